"""The network of commands by the user's list, seen from the server: what is said, recorded, and switched."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmc_mcp.cli.doctor import findings
from llmc_mcp.config.schema import Config, PolicyRule
from llmc_mcp.config.trust import ConfigError
from llmc_mcp.store.calls import by_tool, newest
from llmc_mcp.tools.introduction import bootstrap

from ..support.machine import Machine
from ..support.talk import Talk, eventually, talk_on
from ..support.workspace import Workspace, require

# Asks the proxy for a host; prints how the answer begins, or that there is none.
ASK = """
import socket, sys
try:
    with socket.create_connection(("127.0.0.1", 61080), 20) as proxy:
        proxy.sendall(b"CONNECT %s HTTP/1.1\\r\\n\\r\\n" % sys.argv[1].encode())
        print(proxy.recv(1000).decode())
except ConnectionError as exc:
    print(type(exc).__name__)
"""


def allowing(*entries: str) -> Config:
    config = Config()
    config.tools.network_allow = entries
    return config


@pytest.fixture
def talk(workspace: Workspace) -> Iterator[Talk]:
    require(shutil.which("bwrap") is not None, "bubblewrap")
    with talk_on(workspace.root, allowing("python", "localhost.example"), level="workspace") as talk:
        yield talk


def ask(talk: Talk, host: str) -> tuple[str, list[str]]:
    done = talk.run(["python3", "-c", ASK, host])
    return done.data.stdout.strip(), done.meta.warnings or []


def test_a_denial_is_in_the_answer_the_reply_the_audit_and_the_list_of_calls(talk: Talk) -> None:
    answer, warnings = ask(talk, "evil.example:443")
    assert answer.startswith("HTTP/1.1 403 policy: not allowed, do not retry")
    assert "policy: evil.example:443 is not in the allowlist; do not retry." in answer
    assert "llmc allow network evil.example" in answer
    assert warnings == [
        "network: denied evil.example:443 (policy, do not retry; the user can: llmc allow network evil.example, "
        "or for ten minutes llmc approvals)"
    ]
    app = talk.gate.app
    talk.gate.flush_usage()
    call = newest(app.store, None, 1, tool="network")[0]
    assert (call.status, call.principal, call.session_id) == ("DENIED", "uid:0", "one")
    assert call.args.startswith("evil.example:443 ")
    assert "network" not in {totals.tool for totals in by_tool(app.store, None)}
    audits = [path.read_text() for path in Path(app.data_dir, "audit").glob("*.jsonl")]
    lines = [json.loads(line) for text in audits for line in text.splitlines()]
    assert [line["args"] for line in lines if line.get("tool") == "network"] == [call.args]
    assert app.network_denied() == {"host": 1, "address": 0, "tls": 0, "request": 0}


def test_many_requests_for_one_host_are_one_warning(talk: Talk) -> None:
    script = ASK.replace("try:", "for _ in range(20):")
    done = talk.run(["python3", "-c", script.partition("except")[0], "evil.example:443"])
    assert len(done.meta.warnings or []) == 1


def test_a_program_on_a_terminal_and_one_in_the_background_are_told_too(talk: Talk) -> None:
    started = talk.start(["python3", "-c", ASK, "evil.example:443"])
    assert "403" in started.first_output + (talk.rest(started.proc_id) if started.state != "exited" else "")
    script = "import time, os\nwhile not os.path.exists('go'): time.sleep(0.02)\n" + ASK
    process = talk.run(["python3", "-c", script, "late.example:443"], yield_after=0).process
    Path(talk.gate.app.files.roots[0].shown, "go").touch()
    told: list[str] = []

    def has_ended() -> bool:
        turn = talk.run(process=process, yield_after=0.05)
        told.extend(turn.meta.warnings or [])
        return not turn.running

    assert eventually(has_ended)
    assert any("denied late.example:443" in warning for warning in told)


def test_the_environment_leads_programs_to_the_proxy_and_only_then(workspace: Workspace) -> None:
    require(shutil.which("bwrap") is not None, "bubblewrap")
    with talk_on(workspace.root, allowing("python"), level="workspace") as talk:
        lines = talk.run(["env"]).data.stdout.splitlines()
        wanted = ("HTTP_PROXY", "https_proxy", "ALL_PROXY", "npm_config_https_proxy", "PIP_PROXY", "CARGO_HTTP_PROXY")
        for name in wanted:
            assert f"{name}=http://127.0.0.1:61080" in lines
        assert "NO_PROXY=localhost,127.0.0.1,::1" in lines
        assert not any("SSH_AUTH_SOCK" in line for line in lines)
    with talk_on(workspace.root, level="workspace") as talk:
        assert "proxy" not in talk.run(["env"]).data.stdout.lower()
        assert ask(talk, "pypi.org:443")[0] == "ConnectionRefusedError"
        assert talk.gate.app.sandbox.egress.pid == 0


def test_the_introduction_and_a_hint_say_what_is_reached(talk: Talk) -> None:
    assert "network: proxy to python, localhost.example only" in bootstrap(talk.gate.app, talk.gate.catalog)
    done = talk.run(["python3", "-c", "import socket; socket.getaddrinfo('pypi.org', 443)"])
    assert any("python, localhost.example through a proxy" in warning for warning in done.meta.warnings or [])


def test_b34_without_a_namespace_the_list_is_not_offered_and_that_is_said(workspace: Workspace) -> None:
    with talk_on(workspace.root, allowing("python"), level="landlock") as talk:
        assert "no network (the allowlist needs bubblewrap)" in bootstrap(talk.gate.app, talk.gate.catalog)
        done = talk.run(["python3", "-c", "import socket; socket.create_connection(('127.0.0.1', 1))"])
        assert done.data.exit_code == 1
        assert any("needs the workspace level" in warning for warning in done.meta.warnings or [])
        assert "proxy" not in talk.run(["env"]).data.stdout.lower()


def test_an_idle_proxy_ends_and_the_next_command_has_one_again(talk: Talk) -> None:
    sandbox = talk.gate.app.sandbox
    assert "403" in ask(talk, "evil.example:443")[0]
    process = talk.run(["sleep", "600"], yield_after=0).process
    assert not sandbox.release_idle(0)
    assert sandbox.egress.pid
    talk.run(process=process, stop=True)
    assert eventually(lambda: sandbox.release_idle(0) or not sandbox.egress.pid)
    assert sandbox.egress.pid == 0
    assert "403" in ask(talk, "evil.example:443")[0]


def test_code_in_execute_code_has_no_proxy(workspace: Workspace) -> None:
    require(shutil.which("bwrap") is not None, "bubblewrap")
    config = allowing("python")
    config.code_execution.engine = "python"
    with talk_on(workspace.root, config, level="workspace") as talk:
        context = talk.gate.context(talk.session, "test")
        code = "import os; print([name for name in os.environ if 'proxy' in name.lower()])"
        assert "[]" in talk.gate.reply(context, "execute_code", {"code": code}).text


def test_a_server_follows_the_list_and_ends_connections_when_it_is_gone(tmp_path: Path) -> None:
    require(shutil.which("bwrap") is not None, "bubblewrap")
    machine = Machine(tmp_path)
    command = ["python3", "-c", ASK, "host.invalid:443"]

    def answers(expected: str) -> bool:
        return eventually(lambda: expected in server.call("run_cmd", command=command).text)

    with machine.server("--set", "sandbox.level=workspace") as server:
        assert answers("ConnectionRefusedError")
        machine.llmc("allow", "network", "python")
        assert answers("403 policy")
        machine.llmc("allow", "network", "host.invalid")
        assert answers("502 Bad Gateway")  # allowed, but there is no such host
        machine.llmc("allow", "network", "host.invalid", "--revoke")
        assert answers("403 policy")
        machine.llmc("allow", "network", "python", "--revoke")
        assert answers("ConnectionRefusedError")


def test_a_workspace_file_takes_hosts_away_and_adds_none(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.users_file('[mcp.tools]\nnetwork_allow = ["python", "git"]\n')
    (machine.repo / "llmc.toml").write_text('[mcp.tools]\nnetwork = "on"\nnetwork_allow = ["git", "evil.example"]\n')
    config = machine.load().config
    assert config.network() == "allowlist"
    assert config.tools.network_allow == ("git",)
    (machine.repo / "llmc.toml").write_text('[mcp.tools]\nnetwork = "off"\n')
    assert machine.load().config.network() == "off"


def test_the_doctor_says_what_network_commands_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path)
    for name, value in machine.environ.items():
        monkeypatch.setenv(name, value)
    machine.users_file('[mcp.tools]\nnetwork_allow = ["python"]\n')
    found = {check.topic: check for check in findings(machine.load())}
    assert "allowlist" in found["network"].message
    assert os.getuid() != 0 or found["network"].details == ("python",)


def test_what_a_command_made_up_is_never_a_command_for_the_user(talk: Talk) -> None:
    """A warning is read by people who copy from it."""
    answer, warnings = ask(talk, "$(touch${IFS}owned).example:443")
    assert "llmc allow" not in answer
    assert warnings
    assert "llmc allow" not in warnings[0]


def test_a_proxy_that_can_not_be_started_leaves_commands_without_a_network_and_that_is_said(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the kernel has no Landlock to confine it by."""

    def refuse(*_: object, **__: object) -> int:
        raise OSError(38, "the kernel does not support Landlock")

    monkeypatch.setattr("llmc_mcp.egress.client.ruleset", refuse)
    assert ask(talk, "pypi.org:443")[0] == "ConnectionRefusedError"
    assert "no network (no proxy: the proxy could not be started (the kernel" in talk.gate.app.sandbox.shares()
    done = talk.run(["python3", "-c", "import socket; socket.getaddrinfo('pypi.org', 443)"])
    assert any("Commands have no network here: the proxy" in warning for warning in done.meta.warnings or [])


def test_a_host_that_a_person_approves_is_reached_by_that_session_alone(talk: Talk) -> None:
    talk = Talk(talk.gate, "mine")
    ask(talk, "evil.example:443")
    approvals = talk.gate.app.approvals
    (waiting,) = [row for row in approvals.pending() if row.tool == "network" and row.session_id == "mine"]
    assert "evil.example:443" in waiting.deed
    assert ask(talk, "evil.example:443")[0].startswith("HTTP/1.1 403")
    approvals.answer(waiting.id, True, "test")
    answer, _ = ask(talk, "evil.example:443")
    assert not answer.startswith("HTTP/1.1 403")  # it is looked up now, and leads nowhere
    assert ask(talk, "evil.example:8443")[0].startswith("HTTP/1.1 403")
    assert ask(Talk(talk.gate, "two"), "evil.example:443")[0].startswith("HTTP/1.1 403")


def test_rules_about_hosts_decide_before_the_list_in_their_order(workspace: Workspace) -> None:
    require(shutil.which("bwrap") is not None, "bubblewrap")
    config = allowing("*.example.com")
    config.policy.rules = (
        PolicyRule("allow", host="good.evil.test"),
        PolicyRule("deny", host="*.evil.test"),
        PolicyRule("deny", host="bad.example.com"),
        PolicyRule("ask", host="asks.example.com"),
    )
    with talk_on(workspace.root, config, level="workspace") as owner:
        talk = Talk(owner.gate, "of-hosts")
        for host, refused in (
            *(("good.evil.test", False), ("other.evil.test", True), ("bad.example.com", True)),
            *(("fine.example.com", False), ("asks.example.com", True), ("unknown.test", True)),
        ):
            assert ask(talk, f"{host}:443")[0].startswith("HTTP/1.1 403") == refused, host
        asked = {row.arguments for row in talk.gate.app.approvals.pending() if row.session_id == "of-hosts"}
        assert '{"host":"asks.example.com:443"}' in asked
        assert '{"host":"unknown.test:443"}' in asked
        assert not any("evil.test" in arguments or "bad" in arguments for arguments in asked)


def test_a_rule_about_a_host_stands_alone(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for rule in ('{"host": "x.test", "tool": "run_cmd", "do": "deny"}', '{"host": "**", "do": "deny"}'):
        with pytest.raises(ConfigError):
            machine.load("--set", f"policy.rules=[{rule}]")
    opened = machine.load("--set", 'policy.rules=[{"host": "x.test", "do": "allow"}]').config
    assert opened.network() == "allowlist"
    asking = machine.load("--set", 'policy.rules=[{"host": "x.test", "do": "ask"}]').config
    assert asking.network() == "off"
