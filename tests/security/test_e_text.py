"""E22, E23: text that somebody else chose neither forges a line of the log nor steers a person's terminal."""

import json
import os
import pty
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from llmc_mcp.cli import changes, stats
from llmc_mcp.cli import handles as handles_cli
from llmc_mcp.files.handles import HandleRetention, Handles
from llmc_mcp.gate.log import Log
from llmc_mcp.gate.usage import Recorder, Usage
from llmc_mcp.session import Session
from llmc_mcp.store.leases import CRIT_CODE, LeaseKey, Leases
from llmc_mcp.store.root_sets import RootSet
from llmc_mcp.store.sqlite import SqliteStore
from llmc_mcp.te import folder, queries

from ..support.client import Client
from ..support.workspace import Workspace

HOSTILE = "x\x1b]0;owned\x07\x1b[2J\r\n2026-01-01T00:00:00Z INFO    tool tool=forged\x9b31m\u202e\u2028\x85\ud800end"


def unsafe(text: str) -> set[str]:
    """Characters that a terminal or a reader of lines may obey."""
    return {char for char in text if not char.isprintable()} - {"\n"}


# --- the log -----------------------------------------------------------------------------------------


def logged(log_format: str, **fields: object) -> str:
    reading, writing = os.pipe()
    log = Log(enabled=True, level="debug", log_format=log_format, fd=writing)
    log.info("tool", **fields)
    log.close()
    os.close(writing)
    with open(reading, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return file.read()


@pytest.mark.parametrize("field", ["tool", "cid", "session", "warning", "traceback", "x y\nz"])
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_e22_no_field_of_the_log_begins_another_line(log_format: str, field: str) -> None:
    hostile = HOSTILE.replace("\ud800", "") if log_format == "json" else HOSTILE
    line = logged(log_format, **{field: hostile})
    assert line.count("\n") == 1
    assert line.endswith("\n")
    if log_format == "text":
        assert unsafe(line) == set()


def test_e22_no_value_of_the_text_log_passes_for_another_field() -> None:
    line = logged("text", tool='x" status=ok bytes=1', status="UNKNOWN_TOOL", ms=1.5, session="plain")
    assert line.rstrip("\n").endswith(r'tool="x\" status=ok bytes=1" status=UNKNOWN_TOOL ms=1.5 session=plain')


def test_e22_a_tool_name_with_line_ends_is_one_line_of_a_servers_log(workspace: Workspace) -> None:
    settings = ("--set", "observability.log_format=text", "--log-level", "debug")
    with Client("--root", str(workspace.root), *settings) as client:
        client.request("tools/call", {"name": HOSTILE.replace("\ud800", "")[:60], "arguments": {}})
        client.close()
        assert "UNKNOWN_TOOL" in client.log
        assert not [line for line in client.log.split("\n") if line.startswith("2026-01-01T00:00:00Z")]
        assert unsafe(client.log) == set()


# --- commands ----------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqliteStore:
    """A store in which every text is hostile."""
    monkeypatch.setenv("LLMC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("TE_AGENT_ID", "")
    monkeypatch.chdir(tmp_path)
    hostile, here = HOSTILE.replace("\ud800", ""), folder.root_set()
    store = SqliteStore(str(tmp_path / "data"))
    recorder = Recorder(lambda: store)
    for source in ("mcp", "te"):
        row = Usage(time.time(), source, hostile, hostile, 1.0, hostile, 1, 1, hostile, hostile, hostile, hostile)
        recorder.record(row._replace(roots=here.key, tokens_out=5))
    recorder.close()
    handles = Handles(store, HandleRetention(1 << 30, 4 << 20, 3600.0), here)
    handles.create(f"uid:{os.getuid()}", "fs_list", {"path": hostile}, hostile.encode())
    with store.transaction() as connection:
        who = Session(hostile, hostile, hostile)
        Leases(store, 3600).take(connection, CRIT_CODE, [LeaseKey(f"code:/{hostile}")], who, hostile)
        connection.execute(
            "INSERT INTO trash (entry, change_id, path, kind, bytes, at) VALUES ('e', ?, ?, ?, 1, 1.0)",
            (hostile, hostile, hostile),
        )
        effects = json.dumps([{"type": "mkdir", "path": str(tmp_path / hostile)}])
        connection.execute(
            "INSERT INTO changes (id, principal, session_id, agent_id, at, action, state, process, roots, effects)"
            " VALUES (?,?,?,?,1.0,?,'done',?,?,?)",
            (hostile, hostile, hostile, hostile, hostile, hostile, here.key, effects),
        )
    return store


def te(words: list[str]) -> int:
    return queries.answer(words)


COMMANDS: dict[str, tuple[Callable[[list[str]], int], list[str]]] = {
    "calls": (stats.calls, []),
    "stats": (stats.command, []),
    "changes": (changes.changes, ["--all"]),
    "handles": (handles_cli.command, []),
    "trash": (changes.trash, []),
    "locks": (changes.locks, []),
    "te --list-handles": (te, ["--list-handles"]),
    "te --stats": (te, ["--stats"]),
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_e23_stored_text_does_not_steer_the_terminal(
    store: SqliteStore, name: str, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    command, words = COMMANDS[name]
    assert command([*words, *flags]) == 0
    printed = capsys.readouterr().out
    assert "owned" in printed
    assert unsafe(printed) == set()
    assert not [line for line in printed.split("\n") if line.startswith("2026-01-01T00:00:00Z")]


def test_e23_a_payload_is_shown_on_a_terminal_and_given_as_it_is_to_a_program(
    store: SqliteStore, tmp_path: Path
) -> None:
    mine = f"uid:{os.getuid()}"
    handles = Handles(store, HandleRetention(1 << 30, 4 << 20, 3600.0), RootSet([str(tmp_path)]))
    handle = handles.create(mine, "fs_list", {}, b"one\x1b[2J\ntwo\n")
    for command in (lambda: handles_cli.command([handle]), lambda: te(["--handle", handle])):
        assert b"one\x1b[2J\ntwo\n" in _printed(command, on_terminal=False)
        shown = _printed(command, on_terminal=True)
        assert b"\x1b" not in shown
        assert rb"one\x1b[2J" in shown


def _printed(command: Callable[[], int], *, on_terminal: bool) -> bytes:
    reading, writing = pty.openpty() if on_terminal else os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writing, 1)
        try:
            with open(1, "w", encoding="utf-8", closefd=False) as stdout, redirect_stdout(stdout):
                command()
        finally:
            os._exit(0)
    os.close(writing)
    printed = b""
    try:
        while piece := os.read(reading, 1 << 16):
            printed += piece
    except OSError:  # the other end of a terminal is closed
        pass
    os.close(reading)
    os.waitpid(child, 0)
    return printed
