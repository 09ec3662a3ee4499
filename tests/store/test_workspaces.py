"""Servers on several machines: one workspace at several paths, one state in PostgreSQL."""

import itertools
import os
import subprocess
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llmc_mcp.app import App
from llmc_mcp.changes import steps
from llmc_mcp.config.schema import Config
from llmc_mcp.errors import Conflict, InvalidArgument, LlmcError, ResourceBusy
from llmc_mcp.session import Session
from llmc_mcp.store import leases as maasl
from llmc_mcp.store.leases import CRIT_CODE, LeaseKey
from llmc_mcp.store.opening import open_store
from llmc_mcp.store.postgres import PostgresStore
from llmc_mcp.store.row_paths import rename_workspace
from llmc_mcp.store.transfer import copy, findings
from llmc_mcp.store.workspaces import Workspaces

from ..support.changes import litter, never
from ..support.hung_mount import can_mount
from ..support.postgres import Cluster
from ..support.workspace import Workspace, require

WHO = Session("uid:0", "session-1", agent_id="alice")
OTHER = Session("uid:0", "session-2", agent_id="bob")


@pytest.fixture
def address(postgres: Cluster) -> str:
    return postgres.fresh()


@pytest.fixture
def serve(address: str, tmp_path: Path) -> Iterator[Callable[..., App]]:
    """Starts the engines of a server with a data directory of its own, as on another machine."""
    running: list[App] = []

    def start(root: Path, *, ttl: float = 30, url: str = address, **names: str) -> App:
        config = Config()
        config.store.url = url
        config.store.workspaces = {str(tmp_path / folder.replace("_", "/")): name for folder, name in names.items()}
        config.limits.lease_wait_sec, config.limits.lease_ttl_sec = 0.05, ttl
        app = App(config, [str(root)], str(tmp_path / f"data-{len(running)}"))
        running.append(app)
        return app

    yield start
    for app in running:
        app.close()


@contextmanager
def mounted(folder: Path, at: Path) -> Generator[Path]:
    """A folder at a second path."""
    require(can_mount(), "root that may make mounts")
    at.mkdir()
    subprocess.run(["mount", "--bind", str(folder), str(at)], check=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


# --- names -----------------------------------------------------------------------------------------


def test_a_path_becomes_a_name_and_a_path_again() -> None:
    names = Workspaces({"/srv/p": "project", "/mnt/deep": "project/deep", "/srv/p/own": "own"})
    for path, name in (
        ("/srv/p", "project"),
        ("/srv/p/a/b.txt", "project/a/b.txt"),
        ("/mnt/deep/c", "project/deep/c"),
        ("/srv/p/own/d", "own/d"),
        ("/srv/pq", "/srv/pq"),
    ):
        assert names.stored(path) == name
        assert names.local(name) == path
    assert names.stored(names.local("another/e")) == "another/e"
    assert not os.path.isabs(names.local("another/e"))
    assert names.local_key(names.stored_key('["/srv/p","/srv/pq"]')) == '["/srv/p","/srv/pq"]'
    assert Workspaces({"/": "all"}).local(Workspaces({"/": "all"}).stored("/")) == "/"
    assert Workspaces().stored("/srv/p") == Workspaces().local("/srv/p") == "/srv/p"


def test_a_root_in_a_workspace_is_named_after_it_and_one_around_it_is_refused(address: str, tmp_path: Path) -> None:
    inner = tmp_path / "outer" / "middle" / "inner"
    inner.mkdir(parents=True)
    first = PostgresStore(address, str(tmp_path), [str(inner.parent)])
    second = PostgresStore(address, str(tmp_path), [str(inner)])
    name = first.workspaces.stored(str(inner.parent))
    assert second.workspaces.stored(str(inner)) == f"{name}/inner"
    outer = str(inner.parents[1])
    with pytest.raises(Conflict, match="would not see what is changed here") as refused:
        PostgresStore(address, str(tmp_path), [outer], {outer: "outer"})
    assert f"llmc store rename {name} outer/" in str(refused.value.hint)
    person = PostgresStore(address, str(tmp_path))  # without roots: finds what is on this machine
    assert person.workspaces.local(f"{name}/inner/a.txt") == str(inner / "a.txt")
    rename_workspace(person, name, "outer/middle")
    third = PostgresStore(address, str(tmp_path), [outer], {outer: "outer"})
    assert third.workspaces.stored(str(inner)) == "outer/middle/inner"


def test_names_come_from_the_configuration_and_must_agree(address: str, tmp_path: Path) -> None:
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    outer = str(inner.parent)
    first = PostgresStore(address, str(tmp_path), [str(inner)], {str(inner): "project/inner"})
    assert first.workspaces.stored(f"{inner}/a") == "project/inner/a"
    second = PostgresStore(address, str(tmp_path), [outer], {outer: "project"})
    assert second.workspaces.stored(f"{inner}/a") == "project/inner/a"
    with pytest.raises(Conflict, match="is project for other servers"):
        PostgresStore(address, str(tmp_path), [outer], {outer: "another"})
    with pytest.raises(InvalidArgument, match="makes it a/inner"):
        PostgresStore(address, str(tmp_path), [outer], {outer: "a", str(inner): "b"})
    with pytest.raises(InvalidArgument, match="is no name"):
        PostgresStore(address, str(tmp_path), [outer], {outer: "../a"})


# --- one workspace at two paths --------------------------------------------------------------------


def test_what_one_server_did_another_one_takes_back_at_another_path(
    workspace: Workspace, serve: Callable[..., App], address: str, tmp_path: Path
) -> None:
    workspace.file("a.txt", "old\n")
    workspace.file("gone/b.txt", "deleted\n")
    one = serve(workspace.root)
    written = one.mutations.write(WHO, "a.txt", "new\n", never)
    one.mutations.move(WHO, "a.txt", "c.txt", False, never)
    deleted = one.mutations.delete(WHO, "gone", never, recursive=True)
    handle = one.handles.create("uid:0", "file_content", {"path": str(workspace.root / "c.txt")}, b"kept\n")
    one.close()
    elsewhere = tmp_path / "another" / "place"
    elsewhere.parent.mkdir()
    workspace.root.rename(elsewhere)

    two = serve(elsewhere)
    found = two.handles.find("uid:0", handle)
    assert found.meta["path"] == str(elsewhere / "c.txt")
    assert two.handles.lines(found, 0, 10).data == b"kept\n"
    assert [(path, kind) for _, _, path, kind, *_ in two.changes.journal.trashed()] == [(f"{elsewhere}/gone", "dir")]
    assert {change.roots[0] for change in two.changes.journal.history(None, None, 10)} == {str(elsewhere)}
    name = two.store.workspaces.stored(str(elsewhere))
    two.close()
    rename_workspace(PostgresStore(address, str(tmp_path)), name, "project")
    two = serve(elsewhere, another_place="project")
    single = open_store("sqlite", str(tmp_path / "single"))
    copy(two.store, single, lambda _table, _count: None)
    assert f'"path":"{elsewhere}/a.txt"' in str(single.query("SELECT effects FROM changes"))
    assert str(single.query("SELECT roots FROM root_sets")) == str([(two.root_set.key,)])
    for change in two.changes.journal.of_session(WHO):
        two.undoing.undo(OTHER, change, False, never)
    assert (elsewhere / "a.txt").read_text() == "old\n"
    assert (elsewhere / "gone/b.txt").read_text() == "deleted\n"
    assert two.changes.journal.trashed() == []
    assert two.changes.journal.find(written.id, None).undone_by
    assert two.changes.journal.find(deleted.id, None).undone_by
    assert findings(two.store) == []
    assert litter(elsewhere) == []


def test_what_servers_deleted_in_a_shared_workspace_is_out_of_reach(
    workspace: Workspace, serve: Callable[..., App]
) -> None:
    workspace.file("a.txt", "deleted\n")
    app = serve(workspace.root)
    app.mutations.delete(WHO, "a.txt", never, recursive=False)
    (entry,) = [path for path in workspace.root.rglob("*") if path.is_file() and path.name != ".gitignore"]
    below = str(entry.relative_to(workspace.root))
    with pytest.raises(LlmcError, match="outside the allowed roots"):
        app.files.open_file(app.files.locate(below))
    for act in (
        lambda: app.mutations.write(WHO, below, "forged", never),
        lambda: app.mutations.delete(WHO, os.path.dirname(below), never, recursive=True),
        lambda: app.mutations.move(WHO, below, "stolen.txt", False, never),
    ):
        with pytest.raises(LlmcError):
            act()
    assert entry.read_text() == "deleted\n"


def test_servers_with_the_files_at_different_paths_exclude_each_other(
    workspace: Workspace, serve: Callable[..., App], tmp_path: Path
) -> None:
    path = workspace.file("a.txt", "old")
    with mounted(workspace.root, tmp_path / "mounted") as there:
        one, two = serve(workspace.root), serve(there)
        key = LeaseKey(f"code:{one.store.workspaces.stored(str(path))}")
        with (
            one.changes.leases.held(CRIT_CODE, [key], OTHER, wait_s=0, check=never),
            pytest.raises(ResourceBusy, match=f"code:{there}/a.txt is held by agent bob"),
        ):
            two.mutations.write(WHO, "a.txt", "new", never)
        with one.store.transaction(), pytest.raises(ResourceBusy), two.store.transaction(wait_s=0):
            pytest.fail("both write at once")
        two.mutations.write(WHO, "a.txt", "new", never)
        assert one.undoing.undo_newest(WHO, False, never)
        one.close()
        two.close()
    assert path.read_text() == "old"


def test_what_a_server_on_another_machine_left_half_done_is_settled_once_its_leases_are_over(
    workspace: Workspace, serve: Callable[..., App], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = workspace.file("a.txt", "old")
    dying, other = serve(workspace.root, ttl=3600), serve(workspace.root)
    monkeypatch.setattr(maasl, "own_process", lambda: "another-boot/1/2/3")
    monkeypatch.setattr("llmc_mcp.changes.journal.own_process", lambda: "another-boot/1/2/3")
    monkeypatch.setattr(steps.Put, "retire", _die)
    monkeypatch.setattr(type(dying.changes), "_take_back", _leave)
    with pytest.raises(KeyboardInterrupt):
        dying.mutations.write(WHO, "a.txt", "half-done", never)
    monkeypatch.undo()
    assert path.read_text() == "half-done"
    with pytest.raises(ResourceBusy):  # nobody here can see that it is dead
        other.mutations.write(OTHER, "a.txt", "new", never)
    with other.store.transaction() as connection:
        connection.execute("UPDATE leases SET expires_at=?", (other.store.now() - 1,))
    other.mutations.write(OTHER, "a.txt", "new", never)
    assert path.read_text() == "new"
    assert [change.state for change in other.changes.journal.history(None, None, 10)] == ["done", "done"]
    assert other.changes.leases.all() == []
    assert litter(workspace.root) == []


def _leave(*_: object) -> None:
    """A killed process takes nothing back."""


def _die(_: steps.Put) -> None:
    raise KeyboardInterrupt


def test_a_server_leaves_half_done_changes_of_a_workspace_that_it_has_not(
    serve: Callable[..., App], tmp_path: Path
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = serve(tmp_path / "one"), serve(tmp_path / "two")
    with one.store.transaction() as connection:
        one.changes.journal.intend(
            connection, "U_0", WHO, action="write", roots=one.root_set.key, effects=[], images=[], undoes=None
        )
        connection.execute("UPDATE changes SET process='another-boot/1/2/3'")
    two.changes.settle_abandoned()
    assert not two.changes.settle("U_0")
    assert [change.id for change in one.changes.journal.pending()] == ["U_0"]
    one.changes.settle_abandoned()
    assert one.changes.journal.pending() == []


# --- backups and retention -------------------------------------------------------------------------


def test_a_backup_that_was_made_while_a_server_ran_lets_another_one_undo_an_old_change(
    workspace: Workspace, serve: Callable[..., App], postgres: Cluster, address: str, tmp_path: Path
) -> None:
    content = os.urandom(300_000).hex()  # too large for a row: in parts beside it
    path = workspace.file("a.txt", content)
    app, made = serve(workspace.root), threading.Event()
    change = app.mutations.write(WHO, "a.txt", "new\n", never)
    backed_up = threading.Event()

    def go_on() -> None:
        for number in itertools.count():
            app.mutations.write(OTHER, "b.txt", f"{number}\n", never)
            made.set()
            if backed_up.is_set():
                return

    working = threading.Thread(target=go_on)
    working.start()
    made.wait()
    postgres.dump(address, tmp_path / "backup")
    backed_up.set()
    working.join()
    app.close()
    restored = postgres.restore(tmp_path / "backup", f"restored_{os.getpid()}", address)
    another = serve(workspace.root, url=restored)
    assert findings(another.store) == []
    another.undoing.undo(WHO, another.changes.journal.find(change.id, None), False, never)
    assert path.read_text() == content
    another.mutations.write(WHO, "c.txt", "goes on\n", never)
    another.close()


def test_what_expires_leaves_the_database(workspace: Workspace, serve: Callable[..., App]) -> None:
    app = serve(workspace.root)
    app.config.limits.journal_max_total_bytes = 400_000
    app.config.limits.handles_max_total_bytes = 400_000

    def parts() -> list[str]:
        return sorted(str(name).partition("/")[0] for (name,) in app.store.query("SELECT name FROM blobs"))

    for turn in range(3):
        app.mutations.write(WHO, "a.txt", os.urandom(300_000).hex(), never)
        app.handles.create("uid:0", "file_content", {}, os.urandom(300_000))
        assert parts() == ["handles", *["journal"] * min(turn, 1)]
    assert findings(app.store) == []


# --- waiting ---------------------------------------------------------------------------------------


def test_who_waits_for_a_lease_wakes_when_another_server_releases_it(address: str, tmp_path: Path) -> None:
    one, two = (PostgresStore(address, str(tmp_path), [str(tmp_path)]) for _ in range(2))
    held, wanting = maasl.Leases(one, 30), maasl.Leases(two, 30)
    two.wait("anything", two.ticket(), 5, 5)  # it listens from now on
    with one.transaction() as connection:
        tokens = held.take(connection, CRIT_CODE, [LeaseKey("code:x")], WHO)
    assert isinstance(tokens, list)
    ticket = two.ticket()
    with two.transaction() as connection:
        seen = wanting.take(connection, CRIT_CODE, [LeaseKey("code:x")], OTHER)
    assert isinstance(seen, maasl.Lease)
    assert not two.wait(seen.key, ticket, 5, 0)  # it is held yet
    with one.transaction() as connection:
        held.release(connection, tokens)
    assert any(two.wait(seen.key, ticket, 5, 5) for _ in range(40))
    for store in (one, two):
        store.close()
