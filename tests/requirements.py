"""Every requirement of the design documents, and the tests that prove it; as a page: `python -m tests.requirements`.

The ids are those of the documents: L1 and L2 are the design documents of those phases (files and search; processes and
system), MVP is the one of the server, LLD the checklist of the low-level design, HYB the one of hybrid mode.
"""

from typing import NamedTuple

FS, SEARCH, WRITE, PATCH = (f"test_linux_ops_{name}" for name in ("fs", "search", "write", "patch"))
PROC, SYS, STATS, ONBOARDING = (f"test_linux_ops_{name}" for name in ("proc", "sysinfo", "stats", "onboarding"))
FS_SEARCH_MCP, PROC_SYS_MCP = "integration/test_mcp_linuxops_fs_search", "integration/test_mcp_linuxops_proc_sys"
A_PATHS, B_COMMANDS, E_HTTP = "security/test_a_paths", "security/test_b_commands", "security/test_e_http"


class Requirement(NamedTuple):
    """`proofs` are test modules below tests/, or `module::test`."""

    id: str
    text: str
    proofs: tuple[str, ...]


def _of(document: str, *rows: tuple[str, ...]) -> list[Requirement]:
    return [Requirement(f"{document} {row[0]}", row[1], row[2:]) for row in rows]


REQUIREMENTS = [
    *_of(
        "L1",
        (
            "R1",
            "Read text files from allowed paths",
            f"{FS}::test_a_small_file_is_read_whole",
            f"{FS}::test_what_lies_outside_is_refused",
        ),
        (
            "R2",
            "Slices by lines",
            f"{FS}::test_a_slice_says_how_to_go_on",
            f"{FS}::test_each_reader_has_its_own_defaults_and_bounds",
        ),
        (
            "R3",
            "A longer file is cut and leaves a handle",
            "files/test_handles::test_a_long_read_leaves_a_handle_that_survives_a_restart",
        ),
        (
            "R4",
            "Write or append UTF-8 text",
            f"{WRITE}::test_a_write_tells_its_size_the_new_hash_and_how_to_take_it_back",
            f"{WRITE}::test_append_adds_to_the_end_and_tells_the_hash_of_the_whole",
        ),
        (
            "R5",
            "expected_sha256 as a precondition",
            f"{WRITE}::test_a29_a_stale_hash_is_refused_and_nothing_is_written",
        ),
        (
            "R6",
            "Bytes written and the new hash",
            f"{WRITE}::test_a_write_tells_its_size_the_new_hash_and_how_to_take_it_back",
        ),
        (
            "R7",
            "List with depth, glob, hidden files",
            f"{FS}::test_a_tree_has_types_sizes_and_times",
            f"{FS}::test_a_glob_keeps_only_what_matches",
            f"{FS}::test_hidden_names_are_shown_on_request",
        ),
        (
            "R8",
            "A long list is cut and leaves a handle",
            "files/test_handles::test_a_cut_listing_leaves_every_name_in_its_handle",
        ),
        (
            "R9",
            "Move inside the roots",
            f"{WRITE}::test_a_move_renames_and_its_undo_renames_back",
            f"{WRITE}::test_a25_bad_moves_get_their_codes",
        ),
        (
            "R10",
            "Delete, but never a root",
            f"{WRITE}::test_what_is_deleted_is_in_the_trash_and_comes_back_as_it_was",
            "security/test_a_writes::test_a23_a_root_is_never_deleted_or_moved",
        ),
        ("R11", "Make directories recursively", f"{WRITE}::test_folders_are_made_once_and_unmade_by_undo"),
        ("R12", "Search files by name and glob", f"{SEARCH}::test_files_are_found_by_name_best_first"),
        (
            "R13",
            "Roots and bounds hold for that search",
            f"{SEARCH}::test_found_files_are_cut_and_counted",
            f"{A_PATHS}::test_a01_dotdot_paths_are_refused_for_every_tool",
        ),
        (
            "R14",
            "Search contents by pattern and glob",
            f"{SEARCH}::test_a_hit_has_path_line_and_text",
            f"{SEARCH}::test_a_glob_narrows_the_files",
        ),
        (
            "R15",
            "Literal or regex, case, context",
            f"{SEARCH}::test_a_pattern_is_a_regex_unless_it_is_literal",
            f"{SEARCH}::test_case_is_ignored_unless_asked_for",
            f"{SEARCH}::test_context_shows_the_lines_around_a_hit",
        ),
        (
            "R16",
            "Structured hits, all of them in the handle",
            "files/test_handles::test_a_cut_search_leaves_every_hit_in_its_handle",
        ),
        (
            "1.2 token efficiency",
            "Compact replies, more by handle",
            "gate/test_output::test_no_reply_is_longer_than_the_limit",
        ),
        ("1.2 safety", "Roots and command list; no way out by a path", A_PATHS, "security/test_a_races", B_COMMANDS),
        (
            "1.2 observability",
            "Every call is logged with tool, time, error, truncated",
            "gate/test_dispatch::test_every_call_leaves_one_line_in_the_log_without_contents_and_secrets",
        ),
        (
            "6.1",
            "A line of log per call",
            "gate/test_dispatch::test_every_call_leaves_one_line_in_the_log_without_contents_and_secrets",
        ),
        (
            "6.2",
            "Counts, latencies, errors by code",
            "test_observability::test_a_prometheus_parser_takes_the_page_and_finds_every_call_in_it",
        ),
        ("7.1", "Unit tests of files and search", FS, SEARCH, WRITE),
        ("7.2", "Integration tests of files and search", FS_SEARCH_MCP),
        (
            "8",
            "Strict roots by default, said at the start",
            "config/test_config::test_a_start_logs_what_differs_from_the_defaults_without_secrets",
            "cli/test_config_cli::test_a_verbose_start_prints_every_setting_without_secrets",
            "security/test_e_config",
        ),
        (
            "9.1",
            "Every tool is registered",
            "gate/test_catalog::test_classic_lists_every_tool",
            f"{FS_SEARCH_MCP}::test_every_tool_returns_the_object_it_promises",
        ),
        ("9.5", "DOCS/mcp_linuxops.md describes them", "test_docs"),
    ),
    *_of(
        "L2",
        (
            "R1",
            "Processes with pid, user, CPU, memory, command",
            f"{PROC}::test_a_process_is_listed_with_user_use_and_command",
        ),
        ("R2", "max_results cuts the list", f"{PROC}::test_more_processes_than_asked_for_are_in_the_handle"),
        ("R3", "Stable fields for machines", f"{PROC_SYS_MCP}::test_the_process_list_has_its_designed_shape"),
        (
            "R4",
            "Send a signal to a pid, TERM by default",
            f"{PROC}::test_each_signal_arrives_and_what_came_of_it_is_told",
        ),
        (
            "R5",
            "Not pid 1, not the server, not other users' processes",
            f"{PROC}::test_pid_1_is_not_killed",
            f"{PROC}::test_the_server_is_not_killed",
            f"{PROC}::test_another_users_process_is_not_killed_unless_configured",
        ),
        ("R6", "A clear status and message", f"{PROC}::test_a_process_that_ignores_a_signal_is_said_to_run"),
        (
            "R7",
            "CPU, load, memory, disks",
            f"{SYS}::test_the_snapshot_is_what_the_machine_says",
            f"{SYS}::test_disks_are_real_and_each_is_there_once",
        ),
        ("R8", "A summary for people, and data", f"{SYS}::test_the_snapshot_is_what_the_machine_says"),
        ("R9", "psutil (required here, so there is no fallback)", f"{SYS}::test_the_snapshot_is_what_the_machine_says"),
        (
            "R10",
            "Services (optional)",
            f"{SYS}::test_services_are_named_and_described",
            f"{SYS}::test_without_systemd_services_are_unavailable_with_the_reason",
        ),
        (
            "R11",
            "The end of the system's log (optional)",
            f"{SYS}::test_logs_are_off_unless_the_operator_wants_them",
            f"{SYS}::test_of_a_long_log_the_end_is_shown_and_all_is_in_the_handle",
        ),
        (
            "1.2 safety",
            "Constraints on kills; other users' processes stay unseen",
            f"{PROC}::test_only_the_own_users_processes_are_seen_unless_configured",
            "security/test_c_interactive",
        ),
        (
            "1.2 token efficiency",
            "A small list, a small snapshot",
            f"{PROC}::test_a_lean_row_costs_at_most_20_tokens",
            f"{SYS}::test_the_snapshot_costs_at_most_120_tokens",
        ),
        (
            "1.2 observability",
            "Logged, measured, audited",
            "test_observability::test_every_call_that_may_change_something_is_in_the_audit_whatever_came_of_it",
        ),
        ("7.1", "Unit tests of processes and system", PROC, SYS),
        ("7.2", "Integration tests of processes and system", PROC_SYS_MCP),
        ("8", "A switch for the process tools", f"{PROC}::test_switched_off_process_tools_do_nothing"),
        ("9.6", "The settings are documented", "config/test_config::test_the_reference_page_names_every_key"),
    ),
    *_of(
        "MVP",
        ("FR-1", "/health, /invoke_agent, /tool, /rag/search, /rag/bootload", "web/test_api"),
        (
            "FR-2",
            "A bearer token",
            "web/test_auth::test_whoever_has_not_the_right_token_gets_nothing",
            "web/test_auth::test_the_token_is_taken_from_its_header_or_as_a_bearer",
        ),
        (
            "FR-3",
            "read_file, list_dir, stat, run_cmd",
            "web/test_api::test_read_file_list_dir_stat_and_run_cmd_have_their_designed_shapes",
        ),
        ("FR-4", "Search and bootload with provenance", "rag/test_rag_search", "rag/test_rag_understand"),
        ("FR-5", "Time limits and bounds from the configuration", "config/test_config_keys"),
        (
            "FR-6",
            "Metrics, logs and token audit by switches",
            "test_observability::test_metrics_are_where_and_whether_the_operator_says",
            "test_observability::test_the_token_audit_has_a_row_per_call",
            "config/test_config_keys::test_the_log_is_as_configured",
        ),
        (
            "FR-7",
            "One error envelope with a correlation id",
            "web/test_api::test_a_tools_error_has_its_own_status",
            "gate/test_dispatch::test_an_error_is_one_envelope_in_every_mode",
        ),
        (
            "NFR-1",
            "Fast: measured by `make bench` (http, tasks) and `make bench-retrieval`",
            "test_benchmarks::test_every_task_is_done_by_our_server_in_both_modes",
        ),
        (
            "NFR-2",
            "10 requests a second, bursts of 20, 429 beyond",
            "web/test_http::test_beyond_rate_and_burst_there_is_429_with_retry_after",
            f"{E_HTTP}::test_e15_a_thousand_calls_at_once_are_answered_or_refused_and_others_are_served",
        ),
        ("NFR-3", "Paths, arguments, allowlist", A_PATHS, B_COMMANDS, "security/test_fuzz"),
        (
            "NFR-4",
            "The start prints the configuration without secrets",
            "config/test_config::test_a_start_logs_what_differs_from_the_defaults_without_secrets",
        ),
        ("NFR-5", "A container, and samples of reverse proxies", "test_deploy"),
        (
            "NFR-6",
            "Nothing injected, only what was asked for",
            "test_hybrid::test_a_mode_costs_no_more_than_its_budget",
            "test_hybrid::test_what_is_said_up_front_is_short_and_names_only_what_is_there",
        ),
        (
            "A6",
            "Command line, environment, file, default",
            "config/test_config::test_the_command_line_beats_the_environment_beats_files_beats_the_default",
        ),
        (
            "5.3",
            "/invoke_agent",
            "web/test_api::test_invoke_agent_takes_note_and_hands_back_the_context_that_it_was_given",
        ),
        ("5.5", "/rag/search", "rag/test_rag_search"),
        ("5.6", "/rag/bootload", "rag/test_rag_understand::test_bootload_reads_the_rules_and_finds_the_task"),
        (
            "5.7",
            "Status codes",
            "web/test_api::test_bodies_that_make_no_sense_are_refused_in_the_envelope",
            "web/test_http",
        ),
        (
            "6",
            "The whole configuration as it is written",
            "config/test_config::test_every_specified_file_loads_as_it_is_written",
            "config/test_config::test_the_specified_server_file_means_what_it_says",
            "integration/test_mvp_configuration::test_every_tool_answers_with_the_configuration_of_the_mvp_document",
        ),
        (
            "7",
            "Constant-time comparison; traversal, links, devices",
            "web/test_auth::test_a_token_is_compared_with_all_of_them_and_in_constant_time",
            A_PATHS,
        ),
        ("8", "Metrics, JSON logs, CSV token audit", "test_observability"),
        (
            "11",
            "Codes and their HTTP status",
            "web/test_api::test_a_tools_error_has_its_own_status",
            "test_docs::test_every_error_code_has_a_row",
        ),
        (
            "12",
            "Unit, integration, load, security tests",
            "web/test_http",
            "security/test_e_http",
            "integration/test_inspector",
        ),
        (
            "14.1",
            "get_metrics",
            f"{STATS}::test_the_tools_answer_across_restarts_and_servers",
            "gate/test_dispatch::test_every_listed_tool_works",
        ),
        ("14.2.2", "The allowlist decides, te only enriches", "tools/test_te_run::test_the_list_of_programs_holds"),
        (
            "14.2.3",
            "Agent, session and model are told, never guessed",
            "protocol/test_session_context",
            "tools/test_te_run::test_the_command_knows_whom_it_runs_for",
        ),
        (
            "14.2.4",
            "te_run, repo_read, repo_write_patch, run_pytest, rag_query",
            "tools/test_te_run",
            f"{FS}::test_a_repository_file_is_named_below_its_root",
            f"{PATCH}::test_the_old_names_still_work",
            "test_exec::test_pytests_counts_and_failures_come_from_its_report",
            "rag/test_rag_search",
        ),
        ("14.2.5", "Sidecar documents as resources", "protocol/test_resources"),
        (
            "14.2.6",
            "te --json",
            "envelope/test_te_answers",
            "tools/test_te_run::test_json_has_the_shape_of_the_contract",
        ),
        (
            "14.2.7",
            "More by handle, piece by piece",
            "tools/test_te_run::test_run_cmd_reads_what_te_kept",
            "envelope/test_te_answers",
            "files/test_handles",
        ),
        ("14.2.8", "docker-compose.yml", "test_deploy"),
        ("14.2.9", "deploy/Dockerfile", "test_deploy"),
        (
            "14.2.10",
            "Its settings load and do something or say that they don't",
            "config/test_config::test_every_specified_file_loads_as_it_is_written",
            "config/test_config_keys::test_every_key_in_force_has_a_test_that_shows_its_effect",
            "config/test_config::test_what_is_not_in_force_is_said_once_for_each_reason",
        ),
        (
            "14.2.12-1",
            "The Dockerfile builds and runs the server (`make image-test`)",
            "deploy/check_image::test_a_client_speaks_mcp_with_it_through_a_pipe",
        ),
        (
            "14.2.12-2",
            "docker-compose up starts it (`make image-test`)",
            "deploy/check_image::test_the_compose_file_starts_the_same_server",
        ),
        (
            "14.2.12-3",
            "te_run, repo_read, rag_query exist",
            "tools/test_te_run",
            f"{FS}::test_a_repository_file_is_named_below_its_root",
            "rag/test_rag_search",
        ),
        ("14.2.12-4", "te_run goes through te", "tools/test_te_run::test_te_run_leaves_a_row_of_its_command"),
        (
            "14.2.12-5",
            "Session context reaches te by its environment",
            "tools/test_te_run::test_the_command_knows_whom_it_runs_for",
            "protocol/test_session_context",
        ),
        (
            "14.2.12-6",
            "Telemetry survives a restart of the container (`make image-test`)",
            "te/test_te_cli::test_every_run_leaves_a_row_that_outlives_it",
            "deploy/check_image::test_telemetry_handles_undo_and_index_survive_another_container",
        ),
        ("14.2.12-7", "Resources show the sidecars", "protocol/test_resources"),
        (
            "14.2.12-8",
            "Metrics include te's latency",
            "test_observability::test_the_time_of_te_run_is_in_the_metrics",
        ),
        (
            "14.2.12-9",
            "te can be switched off",
            "tools/test_te_run::test_te_run_runs_commands_as_they_are_where_te_is_switched_off",
        ),
        (
            "14.2.12-10",
            "The container and the tools are documented",
            "test_docs::test_the_readme_leads_to_the_container_and_to_every_tool",
        ),
        ("16-1", "All endpoints with token and limits", "web/test_api", "web/test_auth", "web/test_http"),
        (
            "16-2",
            "Bootload gives scoped snippets with provenance",
            "rag/test_rag_understand::test_bootload_reads_the_rules_and_finds_the_task",
            "rag/test_rag_search",
        ),
        (
            "16-3",
            "Tools work across / where the operator writes it out",
            "security/test_e_config::test_e16_a_wide_root_that_is_written_out_works_with_a_loud_line",
        ),
        ("16-4", "Observability switches work", "test_observability"),
        (
            "16-5",
            "At least 40 % fewer tokens than Desktop Commander (`make bench`)",
            "test_benchmarks::test_the_same_tasks_cost_at_least_40_percent_fewer_tokens_than_with_desktop_commander",
        ),
        ("16-6", "Latency bars are measured, never asserted (`make bench`); tests pass in CI", "test_benchmarks"),
        (
            "G1",
            "A small tool surface and a bootloader",
            "test_hybrid::test_hybrid_mode_tool_count",
            "rag/test_rag_understand::test_bootload_reads_the_rules_and_finds_the_task",
        ),
        (
            "G2",
            "No boilerplate up front",
            "test_hybrid::test_a_mode_costs_no_more_than_its_budget",
            "test_hybrid::test_what_is_said_up_front_is_short_and_names_only_what_is_there",
        ),
        (
            "G3",
            "Configuration first, overridden by environment and command line",
            "config/test_config::test_the_command_line_beats_the_environment_beats_files_beats_the_default",
        ),
        (
            "G4",
            "Observability behind flags",
            "test_observability::test_metrics_are_where_and_whether_the_operator_says",
        ),
        ("G5", "Direct exposure", "web/test_http", "web/test_http_mcp"),
        ("M0", "API, health, configuration, token", "web/test_api", "web/test_auth", "config/test_config"),
        ("M1", "Registry, files, commands", "gate/test_catalog", FS, "test_exec"),
        ("M2", "Bootloader endpoints", "web/test_api", "rag/test_rag_understand"),
        ("M3", "Limits, time limits, allowlist", "web/test_http", "config/test_config_keys", B_COMMANDS),
        ("M4", "Observability flags", "test_observability"),
        ("M5", "Container and te", "deploy/check_image", "tools/test_te_run"),
        ("M6", "Benchmarks, and this table", "test_benchmarks", "test_requirements"),
        (
            "R1",
            "Writing with lean descriptions",
            "test_hybrid::test_the_full_list_costs_at_most_seventy_five_tokens_a_tool",
            WRITE,
        ),
        (
            "R2",
            "te: JSON, budgets, pieces, more commands",
            "envelope/test_te_enrich",
            "envelope/test_te_answers::test_a_session_that_used_up_a_hard_budget_gets_counts_and_a_sentence",
            "envelope/test_te_answers",
            "tools/test_te_run::test_budgets_are_by_agent",
        ),
        ("R3", "HTTP, and proxies for TLS", "web/test_http_mcp", "deploy/test_proxies"),
        (
            "R4",
            "Handles that notice staleness, tools found by name, leases between sessions",
            "files/test_handles",
            "interpreters/test_code::test_hidden_tools_can_be_found_and_called_where_the_operator_wants_it",
            "store/test_maasl",
        ),
        ("R5", "What a session cost and changed, and what to do next, after it", "cli/test_summary", STATS),
    ),
    *_of(
        "LLD",
        ("2.1", "The configuration", "config/test_config"),
        ("2.2", "Error types", "gate/test_dispatch::test_an_error_is_one_envelope_in_every_mode"),
        ("2.4", "The handle store", "files/test_handles"),
        ("2.5", "The shell wrapper", "commands/test_shell", "test_exec"),
        ("2.6", "The file wrapper", FS, "security/test_a_races"),
        ("2.7", "The search wrapper", SEARCH),
        ("2.8", "The process registry", "commands/test_repl"),
        ("3.3.1", "linux.fs_patch_block", f"{PATCH}::test_the_old_names_still_work", "changes/test_edit"),
        ("3.3.2", "linux.fs_apply_diff", f"{PATCH}::test_a_diff_of_many_files_is_one_change", "changes/test_diff"),
        ("3.4.3", "linux.proc_tree", f"{PROC}::test_children_are_below_their_parents"),
        ("3.7", "Usage statistics and recent calls", STATS),
        ("3.8", "Onboarding flows", ONBOARDING),
        (
            "4",
            "Every tool under its dotted name too",
            "gate/test_catalog::test_a_dotted_name_finds_its_tool",
            f"{FS_SEARCH_MCP}::test_dotted_names_are_accepted",
        ),
        ("L1-1", "Configuration from llmc.toml", "config/test_config"),
        ("L1-2", "File wrapper", FS),
        ("L1-3", "fs_read/write/list/move/delete/mkdirs", FS, WRITE),
        ("L1-4", "Search wrapper", SEARCH),
        ("L1-5", "search_files, search_content", SEARCH),
        ("L1-6", "Handle store", "files/test_handles"),
        ("L1-7", "Unit tests of files and search", FS, SEARCH),
        ("L1-8", "Integration tests of files and search", FS_SEARCH_MCP),
        ("L2-1", "proc_list", PROC),
        (
            "L2-2",
            "proc_kill with safety",
            f"{PROC}::test_pid_1_is_not_killed",
            "security/test_c_interactive::test_c10_a_number_that_is_given_away_again_is_never_hit",
        ),
        ("L2-3", "sys_snapshot", SYS),
        ("L2-4", "Unit tests of processes and system", PROC, SYS),
        ("L2-5", "Integration tests of processes and system", PROC_SYS_MCP),
        ("L3-1", "Process wrapper and registry", "commands/test_repl"),
        ("L3-2", "proc_start", "commands/test_repl::test_python_answers_and_says_whose_turn_it_is"),
        (
            "L3-3",
            "proc_send, proc_read, proc_stop",
            "commands/test_repl::test_only_new_output_is_given",
            "commands/test_repl::test_stopping_ends_a_program_and_forgets_it",
        ),
        ("L3-4", "Unit tests of REPLs", "commands/test_repl"),
        ("L3-5", "Integration tests of REPLs", f"{PROC_SYS_MCP}::test_a_conversation_with_python"),
        ("L4-1", "Usage aggregation", f"{STATS}::test_totals_are_counts_errors_percentiles_and_tokens"),
        ("L4-2", "Recent calls", f"{STATS}::test_the_tools_answer_across_restarts_and_servers"),
        ("L4-3", "Onboarding dispatcher", ONBOARDING),
        ("L4-4", "Downloads, repository, system health", ONBOARDING),
        ("L4-5", "Unit tests of statistics and onboarding", STATS, ONBOARDING),
        (
            "L4-6",
            "Integration tests of statistics and onboarding",
            "integration/test_mcp_linuxops_onboarding_stats",
        ),
        ("X-1", "Registration in the server", "gate/test_catalog"),
        (
            "X-2",
            "DOCS/mcp_linuxops.md",
            "test_docs::test_what_the_pages_call_a_tool_is_one",
            "test_docs::test_commands_in_code_blocks_exist",
        ),
        ("X-3", "DOCS/mcp_linuxops_tools.md", "test_docs::test_a_generated_page_is_fresh"),
        ("X-4", "Metrics and audit", "test_observability"),
        ("X-5", "Configuration reference", "config/test_config::test_the_reference_page_is_up_to_date"),
    ),
    *_of(
        "HYB",
        (
            "2.3-1",
            "The prompt warns that files of code are ephemeral",
            "test_hybrid::test_what_is_said_up_front_is_short_and_names_only_what_is_there",
        ),
        (
            "2.3-2",
            "A phantom tool is said at the start",
            "gate/test_catalog::test_a_promoted_tool_that_does_not_exist_is_a_notice_with_the_nearest_name",
        ),
        ("2.3-3", "A budget for the tool list", "config/test_config_keys::test_a_long_tool_list_is_said"),
        (
            "3.1",
            "[mcp] mode and [mcp.hybrid]",
            "config/test_config_keys::test_the_mode_decides_what_is_listed",
            "config/test_config_keys::test_promoted_tools_are_listed_and_a_phantom_is_said",
        ),
        ("4-1", "Path traversal", "test_hybrid::test_path_traversal_blocked", A_PATHS),
        (
            "4-2",
            "Shell injection",
            "test_hybrid::test_shell_injection_blocked",
            f"{B_COMMANDS}::test_b05_metacharacters_are_plain_arguments",
        ),
        ("4-3", "The allowlist", "test_hybrid::test_a_program_that_is_not_on_the_list_is_not_run"),
        (
            "4-4",
            "Concurrent writes to one file",
            "store/test_maasl::test_two_servers_with_hashes_lose_no_update",
            "store/test_maasl::test_two_servers_without_hashes_never_tear_a_file",
        ),
        (
            "4-5",
            "Code only in isolation",
            "interpreters/test_code::test_an_operator_can_demand_isolation_for_any_engine",
            "interpreters/test_code_python",
            "security/test_d_python",
            "security/test_d_code",
        ),
        (
            "5",
            "An older file without a mode stays classic; llmc repo validate",
            "config/test_config::test_only_a_full_file_without_a_mode_means_what_it_meant_before_there_were_modes",
            "cli/test_config_cli::test_every_kind_of_finding_has_a_severity_and_a_hint",
        ),
        ("6-1", "test_hybrid_mode_tool_count", "test_hybrid::test_hybrid_mode_tool_count"),
        ("6-2", "test_hybrid_mode_write_works", "test_hybrid::test_hybrid_mode_write_works"),
        ("6-3", "test_hybrid_mode_execute_code_blocked", "test_hybrid::test_hybrid_mode_execute_code_blocked"),
        ("6-4", "test_path_traversal_blocked", "test_hybrid::test_path_traversal_blocked"),
        ("6-5", "test_shell_injection_blocked", "test_hybrid::test_shell_injection_blocked"),
        ("6-6", "Single piped lines are answered", "protocol/test_stdio::test_a_single_piped_line_is_answered"),
        ("7-1", "The tool list stays below 5 kB", "test_hybrid::test_a_mode_costs_no_more_than_its_budget"),
        ("7-2", "Files are created and edited through MCP", "test_hybrid::test_a_whole_task_through_seven_tools"),
        ("7-3", "No security regression", "security/test_b_claims"),
        ("7-4", "Classic mode is complete", "gate/test_catalog::test_classic_lists_every_tool"),
    ),
]

# Where a document says one thing and the server does another, and why.
DEVIATIONS = {
    "LLD 1.2": "The encoding of a file is detected and kept; no setting overrides it.",
    "MVP 15": "Usage rows are written in batches beside the calls; there is no sampling.",
    "MVP G5": "A hairpin relay is not built.",
    "MVP R3": "Streaming is by server-sent events, as MCP has it; there is no WebSocket.",
    "MVP R4": "Policy rules per path and subject, a relay and a semantic cache are not built.",
    "MVP NFR-1": "Latencies are measured beside peers by `make bench`; no test asserts on a clock.",
    "HYB 2.2-1": "Paths are resolved by openat2 below a root; `Path.resolve().is_relative_to()` loses races.",
    "HYB 3.4": "The bootstrap text is generated from what is in force, not a fixed prompt.",
    "HYB 4-5": "Monty, the default engine, reaches nothing of the host (28 attempts: `security/test_d_code.py`) and "
    "needs no container. `mcp.code_execution.require_isolation` demands one for both engines.",
    "L2 R9": "psutil is required, so there are no shell fallbacks.",
    "MVP A3": "Roots default to the working directory; `/` is possible where it is written out. Commands then find "
    "the system's folders read-only, and the server's own code, configuration and data out of reach.",
    "MVP A5": "Commands have no network unless the operator allows it.",
    "MVP 14.2.1": "te_run calls the same engine in the sandbox instead of starting scripts/te.",
}

IN_PART = frozenset({"MVP R3", "MVP R4"})


def page() -> str:
    """DOCS/requirements.md."""
    lines = [
        "# Requirements and the tests that prove them",
        "",
        "Generated by `python -m tests.requirements`; a test fails when a requirement has no test, or a test is gone.",
        "L1, L2: design documents of files and search, processes and system. MVP: the server. LLD: the checklist of",
        "the low-level design. HYB: hybrid mode.",
        "",
        "| id | requirement | status | tests |",
        "| --- | --- | --- | --- |",
    ]
    for requirement in REQUIREMENTS:
        named = (proof.partition("::") for proof in requirement.proofs)
        proofs = "<br>".join(f"`{module}.py{mark}{test}`" for module, mark, test in named)
        state = "in part" if requirement.id in IN_PART else "done"
        status = f"{state}; see below" if requirement.id in DEVIATIONS else state
        lines.append(f"| {requirement.id} | {requirement.text} | {status} | {proofs} |")
    lines += ["", "## Decided otherwise", ""]
    lines += [f"- **{name}**: {why}" for name, why in DEVIATIONS.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
