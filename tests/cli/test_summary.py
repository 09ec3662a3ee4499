"""`llmc summary` says what a session did and what to do next; `llmc run` prints it when it ends."""

import json
import os
import pty
import signal
import subprocess
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from llmc_mcp.cli.onboard import command as onboard
from llmc_mcp.cli.summary import command
from llmc_mcp.review.summary import stretches
from llmc_mcp.store.sessions import SessionCall

from ..support.client import Client
from ..support.forked import LLMC, ForkedServer, llmc
from ..support.workspace import Workspace

TOKEN = "test-token-0123456789abcdef"


def call(at: float, ms: float) -> SessionCall:
    return SessionCall(0, at, "mcp", "stat", "", "ok", ms, "p", "s", "a", 0, 0, 0)


def test_calls_that_run_together_are_one_turn() -> None:
    assert stretches([]) == []
    assert len(stretches([call(1.0, 100), call(2.0, 100)])) == 2
    assert stretches([call(2.0, 1500), call(1.9, 100), call(3.0, 500)]) == [(0.5, 2.0), (2.5, 3.0)]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of its own."""
    folder = tmp_path / "data"
    monkeypatch.setenv("LLMC_DATA_DIR", str(folder))
    return folder


def test_a_summary_counts_tools_tokens_and_lines(
    workspace: Workspace, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace.file("a.txt", "one\ntwo\n")
    with Client("--root", str(workspace.root)) as client:
        assert not client.call("linux_fs_write", path="a.txt", content="one\nthree\nfour\n", mode="rewrite").code
        assert not client.call("linux_fs_write", path="b.txt", content="new\n").code
        assert client.call("read_file", path="missing.txt").code == "NOT_FOUND"
        resource = client.request("resources/read", {"uri": "llmc://summary"})["result"]["contents"][0]["text"]
    assert command([]) == 0
    shown = capsys.readouterr().out
    for text in (resource, shown):
        assert "linux_fs_write ×2" in text  # noqa: RUF001 - a multiplication sign
        assert "read_file ×1 (1 failed)" in text  # noqa: RUF001 - a multiplication sign
        assert "2 files changed" in text
        assert "+2 -1" in text
        assert "llmc undo --session" in text
    assert command(["--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tokens_out"] > 0
    assert found["turns"] >= 3
    assert {Path(one["path"]).name for one in found["files"]} == {"a.txt", "b.txt"}


def test_the_calls_inside_code_take_no_time_besides_it(
    workspace: Workspace, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client("--root", str(workspace.root)) as client:
        assert "error" not in client.call("execute_code", code="run_cmd('sleep 0.2')\nNone").meta
    assert command(["--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["turns"] == 1
    assert 200 <= found["busy_ms"] <= found["span_ms"]


def test_the_latest_session_is_an_agents_and_not_ones_own_commands(
    workspace: Workspace, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.file("a.txt", "one\n")
    with Client("--root", str(workspace.root)) as client:
        assert not client.call("linux_fs_write", path="a.txt", content="two\n").code
    monkeypatch.chdir(workspace.root)
    assert onboard(["explain_repo"]) == 0
    capsys.readouterr()
    assert command([]) == 0
    shown = capsys.readouterr().out
    assert "linux_fs_write ×1" in shown  # noqa: RUF001 - a multiplication sign
    assert "1 turn, 1 call (0 failed)" in shown
    assert "1 file changed:" in shown


class Run:
    """`llmc run` with standard error on a pipe or a terminal."""

    def __init__(self, root: Path, data: Path, *, terminal: bool, env: dict[str, str] | None = None) -> None:
        self._reader, writer = pty.openpty() if terminal else os.pipe()
        self.process = ForkedServer(
            LLMC,
            ["run", "--port", "0"],
            cwd=root,
            env={**os.environ, "LLMC_DATA_DIR": str(data), "LLMC_MCP_TOKEN": TOKEN, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=writer,
            text=True,
        )
        os.close(writer)
        assert self.process.stdout is not None
        printed = ""
        while "^C ends it." not in printed:
            printed += self.process.stdout.readline()
        self.url = printed.split("URL      ")[1].split("/mcp")[0]

    def post(self, name: str, *, token: str = TOKEN, **arguments: Any) -> None:
        body = {"session_id": "work", "name": name, "args": arguments}
        httpx.post(f"{self.url}/tool", json=body, headers={"X-LLMC-Token": token}, trust_env=False, timeout=60)

    def end(self) -> tuple[str, str]:
        """Press ^C; returns what it printed then, and its log."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.stdout is not None
        log = b""
        while True:
            try:
                piece = os.read(self._reader, 65_536)
            except OSError:  # the terminal's other end is closed
                piece = b""
            if not piece:
                break
            log += piece
        os.close(self._reader)
        printed = self.process.stdout.read()
        self.process.stdout.close()
        assert self.process.wait() == 0
        return printed, log.decode()


def test_run_logs_requests_as_json_into_a_pipe_and_ends_with_a_summary(workspace: Workspace, data: Path) -> None:
    run = Run(workspace.root, data, terminal=False)
    run.post("linux_fs_write", path="made.txt", content="password=hunter2-secret\n")
    run.post("read_file", path="missing.txt")
    printed, log = run.end()
    records = [line for line in log.splitlines() if line.startswith("{")]
    requests = [line for line in map(json.loads, records) if line["event"] == "request"]
    assert [(one["route"], one["status"], one["tool"], one["result"]) for one in requests] == [
        ("/tool", 200, "linux_fs_write", "ok"),
        ("/tool", 404, "read_file", "NOT_FOUND"),
    ]
    assert "hunter2" not in log
    assert TOKEN not in log
    assert "Session work of" in printed
    assert "made.txt" in printed


def test_sessions_of_two_tokens_that_share_a_name_are_summarized_apart(workspace: Workspace, data: Path) -> None:
    env = {**os.environ, "LLMC_DATA_DIR": str(data)}
    made = llmc("token", "create", "other", "--scope", "read", env=env)
    run = Run(workspace.root, data, terminal=False)
    run.post("linux_fs_write", path="made.txt", content="x")
    run.post("list_dir", token=made.stdout.split()[0], path=".")
    owners, others = sorted(run.end()[0].split("Session work of")[1:], key=lambda text: "list_dir" in text)
    assert "made.txt" in owners
    assert "list_dir" not in owners
    assert "linux_fs_write" not in others
    assert "made.txt" not in others


@pytest.mark.parametrize("coloured", [True, False], ids=["colour", "NO_COLOR"])
def test_run_logs_requests_for_people_on_a_terminal(workspace: Workspace, data: Path, coloured: bool) -> None:
    run = Run(workspace.root, data, terminal=True, env={"NO_COLOR": "" if coloured else "1"})
    run.post("read_file", path="missing.txt")
    _, log = run.end()
    (line,) = [line for line in log.splitlines() if "/tool" in line]
    assert "POST" in line
    assert "read_file NOT_FOUND work" in line
    assert ("\x1b[31m404\x1b[0m" in line) is coloured
