"""The store: shared by processes, migrated from any version, clear when it can't be used."""

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from llmc_mcp.errors import FeatureUnavailable
from llmc_mcp.store import sqlite
from llmc_mcp.store.calls import newest
from llmc_mcp.store.schema import STEPS
from llmc_mcp.store.sqlite import SqliteStore

from ..support.client import Client
from ..support.workspace import Workspace

pytestmark = pytest.mark.usefixtures("sqlite_store")

# Processes that have nothing in common but the store, as many at once as a machine runs in reasonable time.
_WRITERS = """
import os, sys, threading, time
from llmc_mcp.store.sqlite import SqliteStore
from llmc_mcp.gate.usage import Recorder, Usage

def write(name):
    recorder = Recorder(lambda: SqliteStore(sys.argv[1]))
    for number in range(5):
        recorder.record(Usage(time.time(), "te", name, "ok", 1.0, str(number), 0, 0, "uid:0", "s", "a", "m"))
    recorder.close()
    for thread in threading.enumerate():  # close() waits for a moment only
        if thread is not threading.main_thread():
            thread.join()
    return recorder.dropped

def start(number):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = write(f"writer-{number}")
        finally:
            os._exit(code)
    return pid

failed = 0
for first in range(0, int(sys.argv[2]), 40):
    failed += sum(os.waitpid(pid, 0)[1] != 0 for pid in [start(first + number) for number in range(40)])
sys.exit(failed)
"""


def write_at_once(writers: int, folder: Path) -> None:
    subprocess.run([sys.executable, "-c", _WRITERS, str(folder), str(writers)], check=True)


def test_two_hundred_writers_at_once_lose_no_row(tmp_path: Path) -> None:
    write_at_once(200, tmp_path)
    rows = SqliteStore(str(tmp_path)).query("SELECT tool, count(*) FROM calls GROUP BY tool")
    assert len(rows) == 200
    assert {count for _, count in rows} == {5}


def test_the_database_and_its_folder_belong_to_their_owner_alone(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "state"))
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert Path(store.path).stat().st_mode & 0o777 == 0o600


# --- upgrades --------------------------------------------------------------------------------------------------------

Rows = dict[str, list[dict[str, object]]]


def _made_by_version(folder: Path, version: int) -> Rows:
    """A database as an earlier version left it, with a row in every table; what is in it."""
    connection = sqlite3.connect(folder / "llmc.db")
    connection.row_factory = sqlite3.Row
    for step in STEPS[:version]:
        connection.executescript(step)
    connection.execute("PRAGMA foreign_keys=ON")
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type='table' ORDER BY rowid")]
    tables = [table for table in tables if not table.startswith("sqlite_")]
    for table in tables:
        if connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] == 0:
            _insert_any_row(connection, table)
    connection.execute(f"PRAGMA user_version={version}")
    connection.commit()
    rows = {table: [dict(row) for row in connection.execute(f"SELECT * FROM {table}")] for table in tables}
    connection.close()
    return rows


def _insert_any_row(connection: sqlite3.Connection, table: str, columns: Collection[str] | None = None) -> None:
    """A row of values that fit the columns, or only those given, and refer to rows that are there."""
    refers = {row["from"]: (row["table"], row["to"]) for row in connection.execute(f"PRAGMA foreign_key_list({table})")}
    values: dict[str, object] = {}
    for column in connection.execute(f"PRAGMA table_info({table})").fetchall():
        name = column["name"]
        if columns is not None and name not in columns:
            continue
        if name in refers:
            values[name] = connection.execute("SELECT {1} FROM {0}".format(*refers[name])).fetchone()[0]
        else:
            fitting = {"TEXT": f"{table}'s {name}", "INTEGER": 7, "REAL": 2.5, "BLOB": b"\0\1"}
            values[name] = fitting[column["type"]]
    places = ", ".join("?" for _ in values)
    connection.execute(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({places})", tuple(values.values()))


@pytest.mark.parametrize("version", range(len(STEPS) + 1))
def test_whatever_an_earlier_version_kept_survives_the_upgrade(tmp_path: Path, version: int) -> None:
    before = _made_by_version(tmp_path, version)
    store = SqliteStore(str(tmp_path))
    assert store.query("PRAGMA user_version") == [(len(STEPS),)]
    assert store.query("PRAGMA integrity_check") == [("ok",)]
    assert store.query("PRAGMA foreign_key_check") == []
    for table, rows in before.items():
        columns = list(rows[0])
        after = store.query(f"SELECT {', '.join(columns)} FROM {table}")
        assert after == [tuple(row.values()) for row in rows], table


@pytest.mark.parametrize("version", range(1, len(STEPS)))
def test_an_upgraded_store_is_read_and_written_like_a_new_one(tmp_path: Path, version: int) -> None:
    _made_by_version(tmp_path, version)
    old, new = tmp_path / "llmc.db", tmp_path / "new"
    schemas: list[list[tuple[object, ...]]] = []
    for store in (SqliteStore(str(old.parent)), SqliteStore(str(new))):
        made = store.query("SELECT type, name, tbl_name FROM sqlite_master ORDER BY type, name")
        columns = [store.query(f"PRAGMA table_info({name})") for kind, name, _ in made if kind == "table"]
        schemas.append([*made, *(column for table in columns for column in table)])
    assert schemas[0] == schemas[1]


@pytest.mark.parametrize("version", range(1, len(STEPS)))
def test_a_server_of_an_older_version_keeps_writing_to_an_upgraded_store(tmp_path: Path, version: int) -> None:
    (tmp_path / "then").mkdir()
    columns = {table: list(rows[0]) for table, rows in _made_by_version(tmp_path / "then", version).items()}
    SqliteStore(str(tmp_path / "now")).close()
    connection = sqlite3.connect(tmp_path / "now" / "llmc.db")
    connection.row_factory = sqlite3.Row
    for table, known in columns.items():
        _insert_any_row(connection, table, known)
    connection.close()


def test_no_statement_of_ours_depends_on_the_order_or_number_of_columns() -> None:
    positional = re.compile(r"INSERT\b[^;()]*?\bINTO\s+[\w{}.]+\s+(?:VALUES|SELECT)\b")
    package = Path(sqlite.__file__).parents[1]
    files = [path for path in package.rglob("*.py") if path.name != "schema.py"]  # its steps stay as they were released
    assert [path.name for path in files if positional.search(path.read_text())] == []


def test_calls_that_the_first_version_recorded_are_a_persons_to_see(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    _made_by_version(tmp_path / "state", 1)
    environment = {"LLMC_DATA_DIR": str(tmp_path / "state"), "LLMC_MCP_OBSERVABILITY_RETENTION_DAYS": "0"}
    with Client("--root", str(workspace.root), "--mode", "classic", env=environment) as client:
        assert not client.call("linux_fs_write", path="new.txt", content="x").is_error
        shown = client.call("linux_mcp_recent_calls").text
        assert "linux_fs_write" in shown
        assert "calls's tool" not in shown  # nobody knows under which roots it was made
    assert "calls's tool" in [call.tool for call in newest(SqliteStore(str(tmp_path / "state")), None, 10)]


def test_an_upgrade_that_fails_half_way_leaves_the_old_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _made_by_version(tmp_path, 2)
    broken = (*STEPS[:2], "CREATE TABLE half (x TEXT) STRICT;\nINSERT INTO nowhere VALUES (1);\n")
    monkeypatch.setattr(sqlite, "STEPS", broken)
    with pytest.raises(FeatureUnavailable, match="nowhere"):
        SqliteStore(str(tmp_path))
    monkeypatch.setattr(sqlite, "STEPS", STEPS)
    store = SqliteStore(str(tmp_path))
    assert store.query("SELECT name FROM sqlite_master WHERE name = 'half'") == []
    assert store.query("SELECT id FROM changes") == [(before["changes"][0]["id"],)]


def test_forty_processes_upgrade_a_store_at_once_and_one_does_it(tmp_path: Path) -> None:
    _made_by_version(tmp_path, 1)
    write_at_once(40, tmp_path)
    assert SqliteStore(str(tmp_path)).query("SELECT count(*) FROM calls") == [(201,)]


def test_a_database_from_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "llmc.db")
    connection.execute("PRAGMA user_version=999")
    connection.close()
    with pytest.raises(FeatureUnavailable, match="newer version") as refused:
        SqliteStore(str(tmp_path))
    assert "Upgrade llmc-mcp" in str(refused.value.hint)
    connection = sqlite3.connect(tmp_path / "llmc.db")
    assert connection.execute("PRAGMA user_version").fetchone() == (999,)
    connection.close()


def test_a_failed_transaction_leaves_nothing_behind(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path))
    with pytest.raises(FeatureUnavailable):
        _insert_twice(store)
    assert store.query("SELECT count(*) FROM handles") == [(0,)]


def _insert_twice(store: SqliteStore) -> None:
    with store.transaction() as connection:
        for _ in range(2):  # the second breaks the primary key
            connection.execute(
                "INSERT INTO handles (id, principal, kind, created_at, meta, bytes, lines, line_index)"
                " VALUES ('H','p','k',0,'{}',0,0,x'')"
            )


def _read_without_a_store(workspace: Workspace, data_dir: Path) -> None:
    """A truncated read still answers, without a handle, and the log says why."""
    workspace.file("long.txt", "line\n" * 500)
    with Client("--root", str(workspace.root), env={"LLMC_DATA_DIR": str(data_dir)}) as client:
        reply = client.call("linux_fs_read", path="long.txt")
        assert not reply.is_error
        assert reply.meta["truncated"] is True
        assert "handle" not in reply.meta
        refused = client.call("linux_handle_read", handle="H_file_20260101T000000Z_aaaaaaaaaaaaaaaa")
        assert refused.code == "FEATURE_UNAVAILABLE"
        assert str(data_dir) in refused.meta["message"]
        client.close()
        assert "FEATURE_UNAVAILABLE" in client.log
        assert "Traceback" not in client.log


def test_a_corrupt_database_costs_the_handles_and_nothing_else(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "llmc.db").write_bytes(b"this is no database" * 1000)
    _read_without_a_store(workspace, tmp_path / "state")


def test_a_data_directory_that_cannot_be_made_costs_the_handles_and_nothing_else(
    workspace: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    _read_without_a_store(workspace, tmp_path / "file" / "state")


def test_the_store_is_not_opened_before_it_is_needed(workspace: Workspace, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with Client("--root", str(workspace.root), env={"LLMC_DATA_DIR": str(folder)}) as client:
        client.tools()
    assert not os.path.exists(folder)


def test_every_call_leaves_a_row_without_contents_or_secrets(workspace: Workspace, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with Client("--root", str(workspace.root), env={"LLMC_DATA_DIR": str(folder)}) as client:
        client.call("list_dir", path=".")
        client.call("read_file", path="missing token=abcdef123456")
        client.call("no_such_tool", content="private words")
    rows = SqliteStore(str(folder)).query("SELECT tool, status, args, session_id FROM calls ORDER BY id")
    assert [(tool, status) for tool, status, *_ in rows] == [
        ("list_dir", "ok"),
        ("read_file", "NOT_FOUND"),
        ("no_such_tool", "UNKNOWN_TOOL"),
    ]
    assert "abcdef123456" not in str(rows)
    assert "private words" not in str(rows)
    assert rows[0][2] == "path=."
