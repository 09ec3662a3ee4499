"""Statistics of past calls: as tools, and for a person at a terminal."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from llmc_mcp.gate.usage import Recorder, Usage
from llmc_mcp.store.calls import by_tool, newest
from llmc_mcp.store.sqlite import SqliteStore

from .support import forked
from .support.client import Client
from .support.talk import eventually
from .support.workspace import Workspace

pytestmark = pytest.mark.usefixtures("sqlite_store")


def fill(folder: Path, *rows: tuple[str, str, float]) -> SqliteStore:
    store = SqliteStore(str(folder))
    recorder = Recorder(lambda: store)
    for tool, status, ms in rows:
        recorder.record(Usage(time.time(), "mcp", tool, status, ms, "path=a", 6, 9, "p", "s", "a", "m", "c", 1, 2, 3))
    recorder.close()  # which waits for a moment only
    assert eventually(lambda: store.query("SELECT count(*) FROM calls") == [(len(rows),)])
    return store


def test_totals_are_counts_errors_percentiles_and_tokens(tmp_path: Path) -> None:
    store = fill(
        tmp_path,
        *(("stat", "ok", float(ms)) for ms in range(1, 101)),
        ("read_file", "NOT_FOUND", 5.0),
    )
    first, second = by_tool(store, None)
    assert first == ("stat", 100, 0, 50.0, 95.0, 99.0, 100, 200, 300)
    assert second == ("read_file", 1, 1, 5.0, 5.0, 5.0, 1, 2, 3)
    assert by_tool(store, None, principal="other") == []
    assert by_tool(store, None, since=time.time() + 10) == []
    assert [call.tool for call in newest(store, None, 2)] == ["read_file", "stat"]
    assert [call.duration_ms for call in newest(store, None, 2, tool="stat")] == [100.0, 99.0]


def test_the_tools_answer_across_restarts_and_servers(workspace: Workspace, tmp_path: Path) -> None:
    workspace.file("a.txt", "hello\n")
    environment = {"LLMC_DATA_DIR": str(tmp_path / "data")}
    for _ in range(2):
        with Client("--root", str(workspace.root), "--mode", "classic", env=environment) as client:
            client.call("stat", path="a.txt")
            client.call("stat", path="missing")
    with Client("--root", str(workspace.root), "--mode", "classic", env=environment) as client:
        client.call("linux_fs_read", path="a.txt")
        usage = client.call("linux_mcp_usage_stats").meta["tools"]
        assert usage["stat"].keys() == {"count", "p50_ms", "p95_ms", "p99_ms", "errors", "tokens_out", "tokens_saved"}
        assert (usage["stat"]["count"], usage["stat"]["errors"]) == (4, 2)
        assert usage["linux_fs_read"]["count"] == 1
        totals = client.call("get_metrics").meta
        assert totals["calls"] == 6
        assert totals["errors"] == 2
        assert totals["tokens_out"] > 0
        assert totals["uptime_s"] >= 0
        recent = client.call("linux.mcp_recent_calls", max_results=3, tool_name="stat").meta["calls"]
        assert [call["status"] for call in recent] == ["NOT_FOUND", "ok", "NOT_FOUND"]
        assert recent[0].keys() == {"tool", "args_summary", "status", "duration_ms", "timestamp_iso"}
        assert recent[0]["args_summary"] == "path=missing"


def test_a_call_by_an_alias_counts_for_the_tool(workspace: Workspace, tmp_path: Path) -> None:
    with Client("--root", str(workspace.root), env={"LLMC_DATA_DIR": str(tmp_path)}) as client:
        client.call("linux_fs_mkdir", path="one")
        client.call("linux.fs_mkdirs", path="two")
        assert '"linux_fs_mkdirs":{"count":2' in client.call("linux_mcp_usage_stats").text
        assert client.call("linux_mcp_recent_calls", tool_name="linux_fs_mkdir").text.count("linux_fs_mkdirs ok") == 2


@pytest.mark.parametrize("value", [0, 1001, "5", True])
def test_the_number_of_calls_is_bounded(server: Client, value: object) -> None:
    assert server.call("linux_mcp_recent_calls", max_results=value).code == "BAD_ARGS"


def llmc(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return forked.llmc(*arguments, env={**os.environ, "LLMC_DATA_DIR": str(folder)})


def test_llmc_stats_is_a_table_with_a_sum(tmp_path: Path) -> None:
    fill(tmp_path, ("stat", "ok", 1234.5), ("stat", "ok", 1.0), ("linux_search_content", "TIMEOUT", 3.0))
    head, *rows = llmc(tmp_path, "stats").stdout.splitlines()
    assert " ".join(head.split()) == "tool calls errors p50 ms p95 ms p99 ms tokens in tokens out tokens saved"
    assert rows[0].split() == ["stat", "2", "0", "1.0", "1,234.5", "1,234.5", "2", "4", "6"]
    assert rows[-1].split() == ["all", "3", "1", "3", "6", "9"]
    assert len({len(line) for line in (head, *rows)}) == 1
    parsed = json.loads(llmc(tmp_path, "stats", "--json").stdout)
    assert parsed[0]["tool"] == "stat"


def test_llmc_calls_lists_the_newest_first(tmp_path: Path) -> None:
    fill(tmp_path, ("stat", "ok", 1.0), ("read_file", "NOT_FOUND", 2.0))
    lines = llmc(tmp_path, "calls").stdout.splitlines()
    assert ["read_file" in lines[0], "NOT_FOUND" in lines[0], "stat" in lines[1]] == [True] * 3
    assert len(llmc(tmp_path, "calls", "-n", "1").stdout.splitlines()) == 1
    assert json.loads(llmc(tmp_path, "calls", "--tool=stat", "--json").stdout)[0]["args"] == "path=a"


def test_nothing_recorded_is_said_and_nonsense_refused(tmp_path: Path) -> None:
    assert "no calls yet" in llmc(tmp_path, "stats").stderr
    assert "no calls yet" in llmc(tmp_path, "calls").stderr
    for arguments in (("stats", "--dayz", "1"), ("calls", "-n", "x"), ("stats", "--days")):
        done = llmc(tmp_path, *arguments)
        assert done.returncode == 2
        assert "\nllmc: " in done.stderr
    assert "no tool red_file. Did you mean read_file?" in llmc(tmp_path, "calls", "--tool", "red_file").stderr
    assert llmc(tmp_path, "stats", "--help").stdout.startswith("usage:")
