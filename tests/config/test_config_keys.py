"""Changing any setting that is in force changes what the server does."""

import ast
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmc_mcp.config.schema import Config, keys
from llmc_mcp.errors import LlmcError
from llmc_mcp.gate.dispatch import Gate

from ..support.gates import gate_on, text_of
from ..support.machine import Machine, one_setting
from ..support.workspace import Workspace

TESTS = Path(__file__).parents[1]

# Keys whose effect a test of its own shows; all others are in CHANGES below.
PROVED_BY = {
    "store.url": "test_a_change_made_by_one_server_is_undone_by_another",
    "store.workspaces": "test_names_come_from_the_configuration_and_must_agree",
    "enabled": "test_what_cannot_be_is_refused_with_what_to_do_instead",
    "config_version": "test_a_mistake_is_named_with_its_file_and_line",
    "mode": "test_the_mode_decides_what_is_listed",
    "server.transport": "test_what_cannot_be_is_refused_with_what_to_do_instead",
    "server.tls_enabled": "test_what_cannot_be_is_refused_with_what_to_do_instead",
    "server.result_format": "test_the_mode_chooses_the_format_unless_the_operator_does",
    "tools.allowed_roots": "test_configured_roots_are_what_the_tools_reach",
    "linux_ops.roots.allowed_roots": "test_configured_roots_are_what_the_tools_reach",
    "linux_ops.roots.enforce_roots": "test_configured_roots_are_what_the_tools_reach",
    "tools.read_timeout": "test_a_call_past_its_deadline_is_a_timeout",
    "linux_ops.process_limits.max_timeout_sec": "test_no_call_may_take_longer_than_the_cap",
    "hybrid.promoted_tools": "test_promoted_tools_are_listed_and_a_phantom_is_said",
    "hybrid.bootstrap_budget_warning": "test_a_long_tool_list_is_said",
    "code_execution.enabled": "test_only_a_full_file_without_a_mode_means_what_it_meant_before_there_were_modes",
    "rag.build_wait_sec": "test_how_long_a_search_waits_for_the_first_build_is_the_operators_choice",
    "tools.consent_timeout": "test_a_client_that_never_answers_is_not_waited_for_forever",
    "limits.max_tasks": "test_a_session_has_only_so_many_tasks",
    "limits.task_ttl_sec": "test_a_time_to_live_is_kept_within_bounds",
    "limits.max_request_bytes": "test_a_request_is_as_long_as_configured",
    "limits.helper_idle_sec": "test_the_clock_ends_them_by_itself",
    "limits.workers": "test_as_many_calls_run_at_once_as_configured",
    "policy.rules": "test_a_denied_call_says_which_rule",
    "policy.ask": "test_the_operator_chooses_which_risks_ask",
    "oauth.issuer": "test_a_refusal_says_where_tokens_come_from",
    "oauth.jwks_url": "test_the_sdks_client_finds_the_issuer_signs_in_and_calls",
    "oauth.resource": "test_scopes_of_an_issuer_are_mapped_and_its_keys_are_found",
    "oauth.audience": "test_scopes_of_an_issuer_are_mapped_and_its_keys_are_found",
    "oauth.scopes": "test_scopes_of_an_issuer_are_mapped_and_its_keys_are_found",
    "tools.client_roots": "test_an_operator_may_have_the_roots_stay_as_they_are",
    "policy.protected_names": "test_a31_the_list_is_the_operators",
    "limits.command_undo_bytes": "test_copies_past_the_budget_are_named",
    "limits.command_undo_files": "test_a_root_with_too_many_files_says_why_nothing_can_be_undone",
    "tools.undo_commands": "test_switched_off_nothing_is_followed",
    "limits.journal_max_bytes": "test_a_change_too_large_for_the_journal_needs_the_callers_word",
    "limits.journal_max_total_bytes": "test_a_full_journal_drops_the_oldest_first_and_says_so",
    "limits.trash_max_total_bytes": "test_deleting_what_the_trash_has_no_room_for_needs_the_callers_word",
    "limits.lease_ttl_sec": "test_a_holder_who_slept_past_his_lease_changes_nothing",
    "limits.lease_wait_sec": "test_a_file_that_another_agent_is_changing_is_busy",
    "limits.edit_max_bytes": "test_files_are_edited_up_to_the_configured_size",
    "limits.max_queued_calls": "test_as_many_calls_wait_as_configured",
    "limits.spool_max_bytes": "test_a_commands_output_is_kept_up_to_the_configured_size",
    "linux_ops.process_limits.default_timeout_sec": "test_an_operators_program_gets_the_configured_time",
    "code_execution.engine": "test_cpython_asks_for_isolation",
    "code_execution.timeout": "test_a_run_takes_no_longer_than_configured",
    "hybrid.include_execute_code": "test_hybrid_lists_execute_code_unless_told_not_to",
    "tools.dynamic_tools": "test_hidden_tools_can_be_found_and_called_where_the_operator_wants_it",
    "policy.cross_mounts": "test_a17_another_file_system_below_a_root_is_entered_only_where_the_operator_lets_it",
    "te.enabled": "test_te_run_runs_commands_as_they_are_where_te_is_switched_off",
    "te.json_mode": "test_te_run_answers_as_text_where_that_is_wanted",
    "te.hard_budget": "test_a_session_that_used_up_a_hard_budget_gets_counts_and_a_sentence",
    "te.unchanged_tokens": "test_the_limit_is_a_setting",
    "te.timeout": "test_te_run_takes_no_longer_than_configured",
    "te.passthrough_on_failure": "test_a_mistake_in_enriching_is_an_error_only_where_that_is_wanted",
    "te.budgets": "test_budgets_are_by_agent",
    "te.default_budget": "test_an_agent_that_is_not_named_gets_the_default_budget",
    "te.reply_tokens": "test_no_answer_costs_more_than_configured",
    "observability.enabled": "test_the_log_is_as_configured",
    "observability.log_format": "test_the_log_is_as_configured",
    "observability.log_level": "test_the_log_is_as_configured",
    "server.host": "test_the_server_itself_refuses_such_a_start_and_says_what_to_do",
    "server.port": "test_nothing_is_listening_where_something_listens",
    "server.allowed_hosts": "test_e02_own_names_are_taken_and_others_when_the_operator_says_so",
    "server.allowed_origins": "test_e02_own_names_are_taken_and_others_when_the_operator_says_so",
    "auth.mode": "test_whoever_has_not_the_right_token_gets_nothing",
    "auth.header": "test_header_and_variable_of_the_token_are_the_operators_choice",
    "auth.token_env": "test_header_and_variable_of_the_token_are_the_operators_choice",
    "auth.allow_unauthenticated": "test_unauthenticated_is_possible_on_loopback_for_whoever_writes_it_out",
    "tools.idle_timeout": "test_a_client_that_does_nothing_is_left",
    "limits.max_header_bytes": "test_headers_that_are_too_long_are_refused",
    "limits.receive_timeout": "test_a_client_that_is_slow_with_its_body_is_told_and_left",
    "limits.drain_notice": "test_a_server_that_stops_is_unready_first_and_serves_until_proxies_have_noticed",
    "server.replica_url": "test_other_replicas_reach_a_server_where_its_operator_says",
    "limits.drain_timeout": "test_what_does_not_finish_is_taken_back_and_the_exit_is_clean",
    "limits.max_connections": "test_connections_are_counted",
    "limits.rate_limit_rps": "test_beyond_rate_and_burst_there_is_429_with_retry_after",
    "limits.rate_limit_burst": "test_beyond_rate_and_burst_there_is_429_with_retry_after",
    "limits.concurrency_per_token": "test_so_many_calls_of_a_token_run_at_once_over_http",
    "observability.include_correlation_id": "test_a_line_has_a_correlation_id_unless_the_operator_wants_none",
    "observability.metrics_enabled": "test_metrics_are_where_and_whether_the_operator_says",
    "observability.metrics_prometheus_enabled": "test_metrics_are_where_and_whether_the_operator_says",
    "observability.metrics_path": "test_metrics_are_where_and_whether_the_operator_says",
    "observability.csv_token_audit_enabled": "test_the_token_audit_has_a_row_per_call",
    "observability.csv_path": "test_an_audit_that_cannot_be_written_fails_no_call",
    "observability.audit_enabled": "test_the_audit_can_be_switched_off",
    "observability.retention_days": "test_whole_months_leave_the_audit_when_they_are_past_retention",
    "observability.otel_enabled": "test_with_the_extra_every_call_is_a_span",
    "code_execution.require_isolation": "test_an_operator_can_demand_isolation_for_any_engine",
    "linux_ops.features.kill_enabled": "test_signals_alone_can_be_switched_off",
    "rag.jit_context_enabled": "test_the_code_index_can_be_switched_off",
    "rag.default_scope": "test_a_search_gives_as_much_as_is_configured_unless_asked_and_never_more_than_the_cap",
    "rag.top_k": "test_a_search_gives_as_much_as_is_configured_unless_asked_and_never_more_than_the_cap",
    "rag.token_budget": "test_a_search_gives_as_much_as_is_configured_unless_asked_and_never_more_than_the_cap",
    "rag.max_k": "test_a_search_gives_as_much_as_is_configured_unless_asked_and_never_more_than_the_cap",
    "rag.max_token_budget": "test_a_search_gives_as_much_as_is_configured_unless_asked_and_never_more_than_the_cap",
    "rag.max_file_bytes": "test_files_up_to_the_configured_size_are_indexed",
    "rag.embedding": "test_the_embedding_is_the_operators_choice_and_another_one_builds_the_index_anew",
    "rag.max_files": "test_more_files_than_configured_are_left_out_and_that_is_said",
    "rag.roots": "test_the_operator_names_the_folders_to_index",
    "rag.share_max_mb": "test_nothing_is_shared_where_it_is_off_or_rules_differ_or_the_store_is_a_file",
    "session.default_agent_id": "test_agent_and_model_are_the_configured_ones",
    "session.default_model": "test_agent_and_model_are_the_configured_ones",
    "session.default_budget_profile": "test_what_is_said_closest_to_the_call_wins",
    "resources.sidecars": "test_e14_a_document_of_the_operator_passes_the_gate_of_every_file",
    "tools.exec_timeout": "test_the_operators_timeout_and_cap_hold",
    "tools.enable_run_cmd": "test_run_cmd_and_commands_can_be_switched_off",
    "tools.run_cmd_shell": "test_without_a_shell_a_line_is_plain_words_and_the_hint_works",
    "tools.run_cmd_allowlist": "test_b02_a_program_is_what_it_is_not_what_it_is_called",
    "tools.allow_outbound_network": "test_the_network_is_there_when_the_operator_allows_it",
    "tools.network": "test_a_workspace_file_takes_hosts_away_and_adds_none",
    "tools.network_allow": "test_what_is_listed_is_reached",
    "tools.executables": "test_an_executable_of_the_operator_is_a_tool",
    "sandbox.level": "test_run_cmd_and_commands_can_be_switched_off",
    "sandbox.extra_read": "test_extra_folders_are_readable_or_writable_as_configured",
    "sandbox.extra_write": "test_extra_folders_are_readable_or_writable_as_configured",
    "sandbox.toolchains": "test_the_operator_may_name_folders_or_have_none",
    "sandbox.deny_read": "test_what_the_operator_hides_is_hidden",
    "sandbox.run_as": "test_as_another_user_commands_own_what_they_make",
    "sandbox.forward_ports": "test_a_port_of_a_command_is_passed_on_when_the_operator_allows_it",
    "sandbox.max_processes": "test_c12_a_fork_bomb_hits_a_limit_and_ends_with_its_command",
    "sandbox.max_memory_mb": "test_c13_c14_memory_files_and_tmp_are_bounded",
    "sandbox.max_file_mb": "test_c13_c14_memory_files_and_tmp_are_bounded",
    "sandbox.max_tmp_mb": "test_c13_c14_memory_files_and_tmp_are_bounded",
    "linux_ops.commands.allowed_binaries": "test_more_binaries_may_be_named_in_a_section_of_their_own",
    "linux_ops.commands.unsafe_binaries": "test_an_unsafe_program_is_refused_under_all_its_names",
    "linux_ops.commands.allow_unsafe": "test_an_unsafe_program_is_refused_under_all_its_names",
    "linux_ops.features.proc_enabled": "test_run_cmd_and_commands_can_be_switched_off",
    "linux_ops.process_limits.max_procs_per_session": "test_a_session_has_as_many_programs_as_configured",
    "linux_ops.process_limits.max_procs_total": "test_all_sessions_together_have_as_many_as_configured",
    "linux_ops.process_limits.max_background_per_session": "test_a_session_hands_over_as_many_commands_as_configured",
    "linux_ops.process_limits.max_background_total": "test_all_sessions_together_hand_over_as_many_as_configured",
    "linux_ops.process_limits.idle_reap_sec": "test_an_idle_program_is_ended_and_forgotten",
    "linux_ops.process_limits.allow_kill_other_users": "test_another_users_process_is_not_killed_unless_configured",
    "linux_ops.process_limits.list_all_users": "test_only_the_own_users_processes_are_seen_unless_configured",
    "linux_ops.features.repl_enabled": "test_interactive_processes_can_be_switched_off",
    "linux_ops.features.system_enabled": "test_system_tools_can_be_switched_off",
    "linux_ops.features.logs_enabled": "test_logs_are_off_unless_the_operator_wants_them",
    "linux_ops.commands.allowed_env": "test_variables_are_those_the_operator_lists",
}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    for name, value in made.environ.items():
        monkeypatch.setenv(name, value)
    repo = made.repo
    (repo / "lines.txt").write_text("".join(f"line {number} needle\n" for number in range(600)))
    (repo / "long.txt").write_text("x" * 3000 + "\n")
    (repo / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(200))
    (repo / ".env").write_text("KEY=1\n")
    (repo / "credentials.txt").write_text("KEY=1\n")
    return made


# --- one call, with the default and with the change --------------------------------------------------------------


def call(tool: str, /, reply_bytes: int | None = None, **arguments: Any) -> Callable[[Gate], str]:
    def run(gate: Gate) -> str:
        try:
            return text_of(gate, tool, reply_bytes=reply_bytes, **arguments)
        except LlmcError as exc:
            return exc.code

    return run


def stale_handle(gate: Gate) -> str:
    """What a handle of a file answers after the file changed: a copy goes on, a reference is stale."""
    made = json.loads(text_of(gate, "linux_fs_read", path="lines.txt"))["handle"]
    path = Path(gate.app.files.roots[0].shown) / "lines.txt"
    text = path.read_text()
    path.write_text("changed\n" * 900)
    try:
        return call("linux_handle_read", handle=made)(gate)
    finally:
        path.write_text(text)


def kept_handle(gate: Gate) -> str:
    """What a fresh handle answers."""
    made = json.loads(text_of(gate, "linux_fs_read", path="lines.txt"))["handle"]
    return call("linux_handle_read", handle=made)(gate)


def crowded_out_handle(gate: Gate) -> str:
    """What a handle answers once another one was made after it."""
    made = json.loads(text_of(gate, "linux_fs_read", path="lines.txt"))["handle"]
    digit = gate.app.config.limits.handles_max_total_bytes % 10  # with another limit another reply
    text_of(gate, "linux_search_content", root=".", pattern=f"line {digit}", max_results=2)
    return call("linux_handle_read", handle=made)(gate)


def foreign_link(gate: Gate) -> str:
    """A file with two names that belongs to somebody else."""
    root = Path(gate.app.files.roots[0].shown)
    path = root / "foreign.txt"
    if not path.exists():
        path.write_text("foreign\n")
        os.chown(path, 12345, 12345)
        os.link(path, root / "foreign2.txt")
    return call("read_file", path="foreign.txt")(gate)


LENGTH = "len(read_file('lines.txt')['data'])"
SEARCH = call("linux_search_content", root=".", pattern="needle", max_results=2, context_lines=0)

CHANGES: dict[str, tuple[object, Callable[[Gate], str], Callable[[str], bool]]] = {
    "limits.max_reply_bytes": (2_000, call("read_file", path="lines.txt"), lambda text: len(text) <= 2_000),
    "limits.max_reply_bytes_cap": (
        2_000,
        call("read_file", reply_bytes=9_000, path="lines.txt"),
        lambda text: len(text) <= 2_000,
    ),
    "limits.max_line_bytes": (100, call("read_file", path="long.txt"), lambda text: "line cut" in text),
    "limits.max_slice_bytes": (1_000, call("read_file", path="lines.txt"), lambda text: "line 100 " not in text),
    "limits.count_lines_max_bytes": (
        100,
        call("linux_fs_read", path="lines.txt", max_lines=2),
        lambda text: '"total_lines_exact":false' in text,
    ),
    "limits.hash_max_bytes": (1, call("stat", path="long.txt"), lambda text: "sha256" not in text),
    "limits.max_image_bytes": (1, call("read_file", path="image.png"), lambda text: "208 bytes" in text),
    "limits.max_list_entries": (2, call("list_dir", path="."), lambda text: '"truncated":true' in text),
    "limits.max_tree_entries": (2, call("linux_fs_list", path="."), lambda text: '"truncated":true' in text),
    "limits.list_count_cap": (2, call("list_dir", path="."), lambda text: '"total_is_exact":false' in text),
    "limits.search_count_cap": (3, SEARCH, lambda text: '"total_is_exact":false' in text),
    "limits.handle_max_bytes": (100, stale_handle, lambda text: text == "STALE"),
    "limits.handle_ttl_hours": (1e-9, kept_handle, lambda text: text == "HANDLE_NOT_FOUND"),
    "limits.handles_max_total_bytes": (1, crowded_out_handle, lambda text: text == "HANDLE_NOT_FOUND"),
    "limits.code_max_calls": (
        2,
        call("execute_code", code="for i in range(9): stat('.')"),
        lambda text: "error" in text,
    ),
    "limits.code_result_bytes": (2000, call("execute_code", code=LENGTH), lambda text: '"result":9490' not in text),
    "code_execution.max_memory_mb": (
        1,
        call("execute_code", code="len('x' * 3_000_000)"),
        lambda text: "error" in text,
    ),
    "code_execution.max_output_bytes": (9, call("execute_code", code="print('x' * 99)"), lambda text: "trunc" in text),
    "policy.secret_names": (["cred*"], call("read_file", path="credentials.txt"), lambda text: "DENIED" in text),
    "policy.secret_exceptions": ([".env"], call("read_file", path=".env"), lambda text: "KEY=1" in text),
    "policy.hard_links": ("allow", foreign_link, lambda text: "foreign\\n" in text),
    "linux_ops.features.fs_enabled": (False, call("stat", path="."), lambda text: text == "FEATURE_DISABLED"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_setting_changes_what_a_call_gives(machine: Machine, name: str) -> None:
    value, observe, shows = CHANGES[name]
    if name == "policy.hard_links" and os.geteuid() != 0:
        pytest.skip("needs a file of another user")
    default = machine.load("--mode", "classic").config
    machine.users_file(one_setting(name, value))
    changed = machine.load("--mode", "classic").config
    with gate_on(machine.repo, default) as gate:
        assert not shows(observe(gate))
    with gate_on(machine.repo, changed) as gate:
        assert shows(observe(gate))


# --- a whole server -----------------------------------------------------------------------------------------------


def test_the_mode_decides_what_is_listed(machine: Machine) -> None:
    def listed(mode: str) -> set[str]:
        with machine.server(LLMC_MCP_MODE=mode) as client:
            return {tool["name"] for tool in client.tools()}

    assert listed("code_execution") < listed("hybrid") < listed("classic")


@pytest.mark.parametrize(
    "setting", ["tools.allowed_roots=sub", "linux_ops.roots.allowed_roots=sub", "linux_ops.roots.enforce_roots=false"]
)
def test_configured_roots_are_what_the_tools_reach(machine: Machine, setting: str) -> None:
    (machine.repo / "sub").mkdir()
    (machine.home / "note.txt").write_text("note\n")
    roots = ["/"] if "enforce" in setting else [str(machine.repo / "sub")]
    with machine.server("--set", setting) as client:
        assert client.call("health").meta["roots"] == roots
        assert client.call("read_file", path=str(machine.repo / "long.txt")).is_error is ("enforce" not in setting)


def test_no_call_may_take_longer_than_the_cap(machine: Machine) -> None:
    config = machine.load(*UNHURRIED, "--set", "linux_ops.process_limits.max_timeout_sec=0.05").config
    with gate_on(machine.repo, config) as gate:
        assert call("read_file", **endless(machine))(gate) == "TIMEOUT"


def test_promoted_tools_are_listed_and_a_phantom_is_said(machine: Machine) -> None:
    with machine.server("--set", "hybrid.promoted_tools=health,linux_fs_raed") as client:
        assert "health" in [tool["name"] for tool in client.tools()]
    assert "linux_fs_raed" in client.log
    assert "Did you mean linux_fs_read" in client.log


def test_a_long_tool_list_is_said(machine: Machine) -> None:
    with machine.server() as client:
        client.tools()
    assert "bootstrap_budget_warning" not in client.log
    with machine.server("--set", "hybrid.bootstrap_budget_warning=100") as client:
        client.tools()
    assert "more than bootstrap_budget_warning (100)" in client.log
    with machine.server("--mode", "classic") as client:
        client.tools()
    assert "bootstrap_budget_warning" not in client.log


def test_a_request_is_as_long_as_configured(machine: Machine) -> None:
    with machine.server("--set", "limits.max_request_bytes=1000") as client:
        client.send_raw(b'{"x":"' + b"y" * 1000 + b'"}\n')
        assert "1,000 bytes" in client.wait(None)["error"]["message"]


def endless(machine: Machine) -> dict[str, Any]:
    """Arguments of a call that runs until somebody ends it: the line that it asks for never comes."""
    path = machine.repo / "endless.txt"
    path.write_bytes(b"text\n" * 20_000)
    os.truncate(path, 1 << 40)  # holes: no disk, no end
    return {"path": "endless.txt", "offset_lines": 10**12}


UNHURRIED = ("--set", "tools.read_timeout=60")


def test_as_many_calls_run_at_once_as_configured(machine: Machine) -> None:
    def threads(workers: int) -> int:
        with machine.server(*UNHURRIED, "--set", f"limits.workers={workers}") as client:
            arguments = endless(machine)
            busy = [client.start_call("read_file", arguments) for _ in range(5)]
            client.request("ping")  # answered by the reader, after it started the workers
            count = len(os.listdir(f"/proc/{client.process.pid}/task"))
            for call_id in busy:
                client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call_id}})
            return count

    assert threads(workers=4) - threads(workers=1) == 3


def test_as_many_calls_wait_as_configured(machine: Machine) -> None:
    with machine.server(*UNHURRIED, "--set", "limits.max_queued_calls=1") as client:
        busy = client.start_call("read_file", endless(machine))
        assert "too many calls" in client.request("tools/call", {"name": "stat", "arguments": {}})["error"]["message"]
        client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": busy}})


def test_the_log_is_as_configured(machine: Machine) -> None:
    def log(*settings: str) -> str:
        flags = [part for setting in settings for part in ("--set", setting)]
        with machine.server(*flags) as client:
            client.call("stat", path=".")
        return client.log

    assert '"event":"tool"' in log()
    assert '"event":"tool"' not in log("observability.log_level=warning")
    assert '"event":"tool"' not in log("observability.enabled=false")
    assert " INFO    tool " in log("observability.log_format=text")


# --- completeness --------------------------------------------------------------------------------------------------


def all_tests() -> set[str]:
    trees = [ast.parse(path.read_text()) for path in TESTS.rglob("test_*.py")]
    return {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_key_in_force_has_a_test_that_shows_its_effect() -> None:
    in_force = {name for name, key in keys().items() if not key.not_in_force}
    accounted = [*PROVED_BY, *CHANGES]
    assert sorted(in_force - set(accounted)) == [], "add it to CHANGES, or name its test in PROVED_BY"
    assert sorted(set(accounted) - in_force) == []
    assert len(accounted) == len(set(accounted))
    assert set(PROVED_BY.values()) <= all_tests()


def test_a_commands_output_is_kept_up_to_the_configured_size(workspace: Workspace) -> None:
    for size, dropped in ((64 << 20, 0), (2 << 20, 1)):
        config = Config(mode="classic")
        config.limits.spool_max_bytes = size
        with gate_on(workspace.root, config) as gate:
            printed = json.loads(text_of(gate, "run_cmd", command="seq 1 900000"))
            page = json.loads(
                text_of(gate, "linux_handle_read", handle=printed["meta"]["handle"], grep="bytes dropped")
            )
            assert page["total"] == dropped


def test_an_operators_program_gets_the_configured_time(workspace: Workspace) -> None:
    config = Config(mode="classic")
    config.tools.executables = {"wait_for_nothing": "/bin/sleep"}
    config.linux_ops.process_limits.default_timeout_sec = 0.3
    with gate_on(workspace.root, config) as gate:
        gate.app.sandbox.level()  # its test is not part of the program's time
        assert call("wait_for_nothing", args=["0"])(gate) != "TIMEOUT"
        assert call("wait_for_nothing", args=["60"])(gate) == "TIMEOUT"
