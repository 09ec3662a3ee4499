"""A team's store: several servers on one PostgreSQL, which may restart, and the way there from SQLite and back."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from llmc_mcp.errors import Conflict, FeatureUnavailable, InvalidArgument
from llmc_mcp.store.opening import open_store
from llmc_mcp.store.postgres import PostgresStore, migration
from llmc_mcp.store.schema import STEPS
from llmc_mcp.store.transfer import copy, findings, rows_of

from ..support.changes import done
from ..support.client import Client
from ..support.postgres import Cluster
from ..support.workspace import Workspace


def server_on(workspace: Workspace, url: str, data: Path, *words: str) -> Client:
    """A server with a data directory of its own, as on another machine, on the same files and store."""
    environment = {"LLMC_DATA_DIR": str(data), "LLMC_MCP_STORE_URL": url}
    return Client("--root", str(workspace.root), *words, env=environment)


@pytest.fixture
def address(postgres: Cluster) -> str:
    return postgres.fresh()


def test_a_change_made_by_one_server_is_undone_by_another(workspace: Workspace, address: str, tmp_path: Path) -> None:
    content = os.urandom(400_000).hex()  # too large for a row: its pre-image is a file, which the other one lacks
    file = workspace.file("a.txt", content)
    with server_on(workspace, address, tmp_path / "one") as one, server_on(workspace, address, tmp_path / "two") as two:
        change = one.call("linux_fs_write", path="a.txt", content="new\n").meta["undo_id"]
        assert file.read_text() == "new\n"
        done(two.call("linux_fs_undo", undo_id=change))
    assert file.read_text() == content


def test_what_one_server_cut_is_read_on_at_another(workspace: Workspace, address: str, tmp_path: Path) -> None:
    workspace.file("long.txt", "".join(f"line {number}\n" for number in range(20_000)))
    with server_on(workspace, address, tmp_path / "one") as one, server_on(workspace, address, tmp_path / "two") as two:
        handle = one.call("linux_fs_read", path="long.txt").meta["handle"]
        assert "line 15000" in two.call("linux_handle_read", handle=handle, offset=15_000, limit=3).body


def test_two_servers_that_add_to_one_number_lose_no_addition(
    workspace: Workspace, address: str, tmp_path: Path
) -> None:
    file = workspace.file("count.txt", "0\n")

    def add(client: Client, times: int) -> None:
        for _ in range(times):
            while True:
                now = int(client.call("linux_fs_read", path="count.txt").body)
                edit = {"old_text": f"{now}\n", "new_text": f"{now + 1}\n"}
                if not client.call("linux_fs_edit", path="count.txt", **edit).is_error:
                    break

    with server_on(workspace, address, tmp_path / "one") as one, server_on(workspace, address, tmp_path / "two") as two:
        threads = [threading.Thread(target=add, args=(client, 10)) for client in (one, two)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert file.read_text() == "20\n"


def test_without_the_database_reads_go_on_and_changes_come_back_with_it(
    workspace: Workspace, postgres: Cluster, address: str, tmp_path: Path
) -> None:
    workspace.file("a.txt", "old\n")
    with server_on(workspace, address, tmp_path / "one") as client:
        done(client.call("linux_fs_write", path="a.txt", content="first\n"))
        postgres.stop()
        try:
            assert "first" in client.call("linux_fs_read", path="a.txt").body
            refused = client.call("linux_fs_write", path="a.txt", content="second\n")
            assert refused.code == "FEATURE_UNAVAILABLE"
            assert "changes work again" in str(refused.meta)
            assert (workspace.root / "a.txt").read_text() == "first\n"
        finally:
            postgres.start()
        done(client.call("linux_fs_write", path="a.txt", content="third\n"))


def test_servers_on_nested_roots_wait_for_each_other_and_others_do_not(address: str, tmp_path: Path) -> None:
    roots = [tmp_path / name for name in ("srv", "srv/a", "home")]
    for root in roots:
        root.mkdir()
    outer, inner, other = (PostgresStore(address, str(tmp_path), [str(root)]) for root in roots)
    with outer.transaction() as connection:
        connection.execute("UPDATE totals SET bytes=bytes WHERE name='none'")
        with other.transaction(wait_s=0):
            pass
        with pytest.raises(Exception, match="others are writing"), inner.transaction(wait_s=0):
            pass
    with inner.transaction(wait_s=0):
        pass


def test_of_many_servers_that_start_at_once_one_makes_the_tables(address: str, tmp_path: Path) -> None:
    code = "import sys; from llmc_mcp.store.opening import open_store; open_store(*sys.argv[1:]).probe()"
    running = [subprocess.Popen([sys.executable, "-c", code, address, str(tmp_path)]) for _ in range(6)]
    assert [process.wait() for process in running] == [0] * 6


def test_a_store_of_a_newer_version_is_left_alone(address: str, tmp_path: Path) -> None:
    store = PostgresStore(address, str(tmp_path))
    with store.transaction() as connection:
        connection.execute("INSERT INTO schema_version (version) VALUES (?)", (len(STEPS) + 1,))
    with pytest.raises(FeatureUnavailable, match="newer version"):
        PostgresStore(address, str(tmp_path))


def test_a_store_that_lost_a_table_says_which(address: str, tmp_path: Path) -> None:
    store = PostgresStore(address, str(tmp_path))
    store.check_tables()
    with store.transaction() as connection:
        connection.execute("DROP TABLE approvals")
    with pytest.raises(FeatureUnavailable, match="approvals"):
        store.check_tables()


def test_no_message_tells_the_password(tmp_path: Path) -> None:
    url = "postgresql://llmc:hunter2@127.0.0.1:1/state?connect_timeout=1"
    with pytest.raises(FeatureUnavailable) as told:
        PostgresStore(url, str(tmp_path))
    assert "hunter2" not in str(told.value) + str(told.value.hint)
    assert "state at 127.0.0.1" in str(told.value)


def test_an_address_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"mcp\.store\.url"):
        open_store("mysql://somewhere", str(tmp_path))


def test_every_step_of_the_schema_has_been_translated() -> None:
    text = b"".join(map(migration, STEPS))
    assert not [word for word in (b"STRICT", b"BLOB", b"REAL ", b"AUTOINCREMENT", b"OR IGNORE") if word in text]


@pytest.mark.parametrize("there_and_back", [False, True])
def test_a_store_moves_to_postgresql_with_all_it_holds(
    workspace: Workspace, address: str, tmp_path: Path, there_and_back: bool
) -> None:
    file = workspace.file("a.txt", os.urandom(400_000).hex())
    before = file.read_text()
    with server_on(workspace, "sqlite", tmp_path / "old") as client:
        change = done(client.call("linux_fs_write", path="a.txt", content="new\n"))["undo_id"]
        done(client.call("linux_fs_list", path="."))
    source, target = open_store("sqlite", str(tmp_path / "old")), open_store(address, str(tmp_path / "new"))
    copy(source, target, lambda _table, _count: None)
    assert rows_of(target) == rows_of(source)
    assert findings(target) == []
    url, data = address, tmp_path / "new"
    if there_and_back:
        url, data = "sqlite", tmp_path / "back"
        copy(target, open_store("sqlite", str(data)), lambda _table, _count: None)
    with server_on(workspace, url, data) as client:
        done(client.call("linux_fs_undo", undo_id=change))
        done(client.call("linux_fs_write", path="b.txt", content="goes on\n"))
    assert file.read_text() == before


def test_a_store_that_holds_something_is_not_copied_over(address: str, tmp_path: Path) -> None:
    source, target = open_store("sqlite", str(tmp_path / "old")), open_store(address, str(tmp_path / "new"))
    for store in (source, target):
        with store.transaction() as connection:
            connection.execute("INSERT INTO leftovers (path, roots, process) VALUES ('a', '[]', 'p')")
    with pytest.raises(Conflict, match="not empty"):
        copy(source, target, lambda _table, _count: None)
