"""A data directory or a root that is deleted while the server runs, and a server without descriptors to spare."""

import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest

from llmc_mcp.app import App
from llmc_mcp.config.schema import Config
from llmc_mcp.session import Session

from ..support.changes import done, journaling_server, never, undo
from ..support.client import Client
from ..support.workspace import Workspace, require

pytestmark = pytest.mark.usefixtures("sqlite_store")

WHO = Session("uid:0", "deleted")


def test_a_server_goes_on_in_a_new_store_when_its_data_directory_was_deleted(
    workspace: Workspace, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    workspace.file("long.txt", "line\n" * 3_000)
    with journaling_server(workspace, data) as server:
        done(server.call("linux_fs_write", path="a.txt", content="one\n"))
        shutil.rmtree(data)
        done(server.call("linux_fs_changes"))
        change = done(server.call("linux_fs_write", path="a.txt", content="two\n"))["undo_id"]
        handle = done(server.call("linux_fs_read", path="long.txt"))["handle"]
        assert "line" in done(server.call("linux_handle_read", handle=handle))["content"]
        deleted = done(server.call("linux_fs_delete", path="long.txt"))["undo_id"]
        undo(server, deleted)
        undo(server, change)
        assert (workspace.root / "a.txt").read_text() == "one\n"
        assert (workspace.root / "long.txt").exists()
        assert "linux_fs_delete" in "".join(path.read_text() for path in (data / "audit").iterdir())
    assert (data / "llmc.db").stat().st_mode & 0o777 == 0o600


def test_two_servers_meet_in_the_new_store(workspace: Workspace, tmp_path: Path) -> None:
    first, second = (App(Config(), [str(workspace.root)], str(tmp_path / "data")) for _ in range(2))
    for app in (first, second):
        app.mutations.write(WHO, "a.txt", "x", never)
    shutil.rmtree(tmp_path / "data")
    for app in (first, second):
        app.mutations.write(WHO, "a.txt", "y", never)
    for app in (first, second):
        assert len(app.changes.journal.history(None, None, 10)) == 2
        app.close()
    store = sqlite3.connect(tmp_path / "data/llmc.db")
    assert store.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert store.execute("SELECT count(*) FROM changes").fetchone() == (2,)
    store.close()


def test_a_call_below_a_root_that_was_deleted_says_what_to_do(workspace: Workspace, tmp_path: Path) -> None:
    with journaling_server(workspace, tmp_path / "data") as server:
        done(server.call("linux_fs_write", path="a.txt", content="old\n"))
        shutil.rmtree(workspace.root)
        workspace.root.mkdir()
        for name, arguments in (
            ("linux_fs_read", {"path": "a.txt"}),
            ("linux_fs_write", {"path": "b.txt", "content": "new\n"}),
            ("linux_fs_list", {"path": "."}),
            ("linux_search_content", {"root": ".", "pattern": "new"}),
        ):
            gone = server.call(name, **arguments)
            assert gone.code == "NOT_FOUND"
            assert "was deleted while the server ran" in gone.meta["message"]
            assert "restart the server" in gone.meta["hint"]
    assert list(workspace.root.iterdir()) == []
    with journaling_server(workspace, tmp_path / "data") as server:
        done(server.call("linux_fs_write", path="b.txt", content="new\n"))


# --- health ------------------------------------------------------------------------------------------------------


def test_health_says_that_the_store_is_locked_or_broken(workspace: Workspace, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with journaling_server(workspace, data) as server:
        assert done(server.call("health"))["ok"] is True
        other = sqlite3.connect(data / "llmc.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        busy = done(server.call("health"))
        assert busy["ok"] is False
        assert "others are writing" in busy["store"]
        other.close()
        assert done(server.call("health"))["ok"] is True
    (data / "llmc.db").write_bytes(b"this is no database" * 1000)
    with journaling_server(workspace, data) as server:
        broken = done(server.call("health"))
        assert broken["ok"] is False
        assert "Move it away" in broken["store"]


# --- descriptors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("linux_fs_write", {"path": "a.txt", "content": "x"}), ("linux_fs_list", {"path": "."}), ("health", {})],
)
def test_a_server_without_descriptors_says_so_and_calls_it_no_bug(
    workspace: Workspace, tmp_path: Path, name: str, arguments: dict[str, str]
) -> None:
    require(shutil.which("prlimit") is not None, "prlimit")
    with Client("--root", str(workspace.root), env={"LLMC_DATA_DIR": str(tmp_path / "data")}) as server:
        server.tools()
        pid = str(server.process.pid)
        subprocess.run(["prlimit", "--pid", pid, "--nofile=3:"], check=True)
        short = server.call(name, **arguments)
        assert short.code == "RESOURCE_BUSY" or "too many open files" in short.text
        assert "bug" not in short.text
        assert "ulimit -n" in short.text
        subprocess.run(["prlimit", "--pid", pid, "--nofile=256:"], check=True)
        assert not server.call(name, **arguments).is_error
