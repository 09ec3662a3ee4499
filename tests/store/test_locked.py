"""A store that another process keeps locked, or whose disk is full: who waits, for how long, and what a reply says."""

import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmc_mcp.errors import Cancelled, ResourceBusy
from llmc_mcp.store.sqlite import SqliteStore

from ..support.client import Client, Reply, exit_code
from ..support.workspace import Workspace, require

pytestmark = pytest.mark.usefixtures("sqlite_store")


@pytest.fixture
def server(workspace: Workspace, tmp_path: Path) -> Iterator[Client]:
    """A server that has used its store before."""
    workspace.file("long.txt", "".join(f"line {number}\n" for number in range(3_000)))
    with serving(workspace, tmp_path / "data") as client:
        assert not client.call("linux_fs_write", path="first.txt", content="1\n").is_error
        yield client


def serving(workspace: Workspace, data_dir: Path) -> Client:
    return Client("--root", str(workspace.root), "--mode", "classic", env={"LLMC_DATA_DIR": str(data_dir)})


@pytest.fixture
def lock(server: Client, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Another process's transaction that does not end."""
    connection = sqlite3.connect(tmp_path / "data/llmc.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    connection.close()


def writing(server: Client, name: str) -> int:
    return server.start_call("linux_fs_write", {"path": name, "content": "x"})


def reply_to(server: Client, request_id: int) -> Reply:
    return Reply(server.wait(request_id)["result"])


def test_reads_answer_while_writes_wait_for_a_locked_store(server: Client, lock: sqlite3.Connection) -> None:
    waiting = [writing(server, f"{number}.txt") for number in range(3)]
    for name in ("linux_fs_changes", "linux_mcp_usage_stats", "linux_mcp_recent_calls"):
        assert not server.call(name).is_error
    assert server.messages.empty()  # no write has been answered yet
    assert [reply_to(server, one).code for one in waiting] == ["RESOURCE_BUSY"] * 3


def test_writes_give_up_together_with_a_hint_and_change_nothing(
    server: Client, workspace: Workspace, lock: sqlite3.Connection
) -> None:
    waiting = [writing(server, f"{number}.txt") for number in range(6)]
    replies = [reply_to(server, one) for one in waiting]
    assert {reply.code for reply in replies} == {"RESOURCE_BUSY"}
    assert all("llmc.db" in reply.meta["message"] and "Try again" in reply.meta["hint"] for reply in replies)
    assert sorted(path.name for path in workspace.root.iterdir()) == ["first.txt", "long.txt"]
    lock.execute("ROLLBACK")
    assert not server.call("linux_fs_write", path="0.txt", content="x").is_error


def test_a_signal_ends_a_server_whose_calls_wait_for_the_store(server: Client, lock: sqlite3.Connection) -> None:
    for number in range(4):
        writing(server, f"{number}.txt")
    server.call("linux_fs_changes")  # the writes are under way
    server.process.send_signal(signal.SIGTERM)
    assert exit_code(server.process) == 0


def test_a_waiting_transaction_asks_whether_it_was_cancelled(tmp_path: Path) -> None:
    store, other = SqliteStore(str(tmp_path)), SqliteStore(str(tmp_path))
    asked: list[int] = []

    def cancelled_at_the_third() -> None:
        asked.append(len(asked))
        if len(asked) == 3:
            raise Cancelled("enough")

    with other.transaction() as connection:
        connection.execute("DELETE FROM calls")
        with pytest.raises(Cancelled), store.transaction(check=cancelled_at_the_third):
            pass
        with pytest.raises(ResourceBusy, match="waited"), store.transaction(wait_s=0.01):
            pass
        assert store.query("SELECT count(*) FROM calls") == [(0,)]
    with store.transaction() as connection:  # both gave their turn back
        connection.execute("DELETE FROM calls")
    store.close()
    other.close()


def without_handle(reply: Reply) -> None:
    """A reply that shows what it can, has no handle, and says why."""
    assert not reply.is_error, reply.text
    told = reply.meta.get("meta", reply.meta)
    assert not told.get("handle")
    assert "There is no handle for the rest" in " ".join(told["warnings"])


CALLS: dict[str, dict[str, Any]] = {
    "run_cmd": {"command": ["seq", "100000"]},
    "te_run": {"command": "seq 100000"},
    "linux_fs_read": {"path": "long.txt"},
    "linux_search_content": {"root": ".", "pattern": "line"},
    "linux_fs_list": {"path": "many"},
}


@pytest.mark.parametrize("name", CALLS)
def test_a_reply_has_no_handle_and_says_so_where_the_store_is_locked(
    server: Client, workspace: Workspace, lock: sqlite3.Connection, name: str
) -> None:
    for number in range(600):
        workspace.file(f"many/{number:04}", "")
    without_handle(server.call(name, **CALLS[name]))


@pytest.mark.parametrize("name", CALLS)
def test_a_reply_has_no_handle_and_says_so_where_the_disk_is_full(
    workspace: Workspace, tmp_path: Path, name: str
) -> None:
    workspace.file("long.txt", "".join(f"line {number}\n" for number in range(3_000)))
    for number in range(600):
        workspace.file(f"many/{number:04}", "")
    data = tmp_path / "full"
    data.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(data)], check=False)
    require(mounted.returncode == 0, "root that may make mounts")
    try:
        with serving(workspace, data) as server:
            assert not server.call("linux_fs_write", path="first.txt", content="1\n").is_error
            fill(data / "filler")
            without_handle(server.call(name, **CALLS[name]))
    finally:
        subprocess.run(["umount", "-l", str(data)], check=True)


def fill(path: Path) -> None:
    """Leave no byte free."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    for size in (1 << 16, 4096, 1):
        try:
            while True:
                os.write(fd, b"x" * size)
        except OSError:
            pass
    os.close(fd)
