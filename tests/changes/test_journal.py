"""Undo, redo, what was changed; crashes, full disks; what happens when the journal itself is full."""

import errno
import json
import os
import resource
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from llmc_mcp.app import App
from llmc_mcp.changes.edit import TextEdit
from llmc_mcp.config.schema import Config
from llmc_mcp.context import Context
from llmc_mcp.errors import Cancelled, LlmcError, NotFound, Stale, WriteFailed
from llmc_mcp.kernel import syscalls
from llmc_mcp.session import Session

from ..support import crashes
from ..support.changes import done, journaling_server, litter, never, server, undo
from ..support.client import Client
from ..support.workspace import Workspace

__all__ = ["server"]  # the fixture

WHO = Session("uid:0", "here")
OTHER_SESSION = Session("uid:0", "there")
OTHER_PRINCIPAL = Session("token:x", "here")


def changes(server: Client, **arguments: Any) -> list[dict[str, Any]]:
    return done(server.call("linux_fs_changes", **arguments))["changes"]


# --- undo ------------------------------------------------------------------------------------------


def test_undo_without_an_id_goes_back_change_by_change(workspace: Workspace, server: Client) -> None:
    path = workspace.file("a.txt", "0")
    for content in ("1", "2", "3"):
        done(server.call("linux_fs_write", path="a.txt", content=content))
    seen: list[str] = []
    for _ in range(3):
        undo(server)
        seen.append(path.read_text())
    assert seen == ["2", "1", "0"]
    assert server.call("linux_fs_undo").code == "NOT_FOUND"


def test_undoing_an_undo_is_a_redo_and_so_on(workspace: Workspace, server: Client) -> None:
    path = workspace.file("a.txt", "old")
    change = done(server.call("linux_fs_write", path="a.txt", content="new"))["undo_id"]
    assert server.call("linux_fs_undo", undo_id="U_nothing").code == "NOT_FOUND"
    for expected in ("old", "new", "old", "new"):
        (row,) = undo(server, change)
        assert path.read_text() == expected
        assert server.call("linux_fs_undo", undo_id=change).code == "STALE"  # undone already
        change = row["redo_id"]


def test_a_file_that_changed_since_is_stale_unless_forced(workspace: Workspace, server: Client) -> None:
    path = workspace.file("a.txt", "old")
    change = done(server.call("linux_fs_write", path="a.txt", content="new"))["undo_id"]
    path.write_text("by somebody else")
    assert server.call("linux_fs_undo", undo_id=change).code == "STALE"
    assert path.read_text() == "by somebody else"
    (row,) = undo(server, change, force=True)
    assert path.read_text() == "old"
    undo(server, row["redo_id"])
    assert path.read_text() == "by somebody else"


def test_the_undo_of_a_delete_does_not_overwrite_what_is_there_now(workspace: Workspace, server: Client) -> None:
    path = workspace.file("a.txt", "old")
    change = done(server.call("linux_fs_delete", path="a.txt"))["undo_id"]
    path.write_text("newer")
    assert server.call("linux_fs_undo", undo_id=change).code == "STALE"
    (row,) = undo(server, change, force=True)
    assert path.read_text() == "old"
    undo(server, row["redo_id"])
    assert path.read_text() == "newer"


def test_a_folder_that_is_no_longer_empty_stays(workspace: Workspace, server: Client) -> None:
    change = done(server.call("linux_fs_mkdirs", path="a/b"))["undo_id"]
    workspace.file("a/b/theirs.txt", "x")
    assert server.call("linux_fs_undo", undo_id=change).code == "STALE"
    assert (workspace.root / "a/b/theirs.txt").exists()


def test_a_whole_session_is_undone_and_another_session_is_left_alone(workspace: Workspace, app: App) -> None:
    workspace.file("a.txt", "a\n")
    workspace.file("b.txt", "b\n")
    app.mutations.write(OTHER_SESSION, "theirs.txt", "x", never)
    app.mutations.write(WHO, "a.txt", "a2\n", never)
    app.mutations.move(WHO, "a.txt", "c.txt", False, never)
    app.mutations.edit(WHO, "c.txt", [TextEdit("a2", "a3")], never)
    app.mutations.delete(WHO, "b.txt", never, recursive=False)
    app.mutations.write(WHO, "d/e.txt", "x", never, parents=True)
    undone = app.undoing.undo_session(WHO, False, never)
    assert [one.failure for one in undone] == [None] * 5
    assert {path.name: path.read_text() for path in workspace.root.rglob("*")} == {
        "a.txt": "a\n",
        "b.txt": "b\n",
        "theirs.txt": "x",
    }


def test_a_session_undo_tells_what_it_could_not_undo_and_does_the_rest(workspace: Workspace, server: Client) -> None:
    for name in ("a.txt", "b.txt"):
        workspace.file(name, "old")
        done(server.call("linux_fs_write", path=name, content="new"))
    (workspace.root / "b.txt").write_text("theirs")
    rows = {Path(row["path"]).name: row for row in undo(server, session=True)}
    assert rows["b.txt"]["failed"].startswith("STALE")
    assert "failed" not in rows["a.txt"]
    assert (workspace.root / "a.txt").read_text() == "old"
    assert (workspace.root / "b.txt").read_text() == "theirs"


def test_another_principals_changes_are_not_there(app: App) -> None:
    written = app.mutations.write(WHO, "a.txt", "x", never)
    with pytest.raises(NotFound):
        app.changes.journal.find(written.id, OTHER_PRINCIPAL.principal)
    assert app.changes.journal.history(OTHER_PRINCIPAL.principal, None, 10) == []


def test_undo_works_after_a_restart(workspace: Workspace, tmp_path: Path) -> None:
    workspace.file("a.txt", "old")
    env, roots = {"LLMC_DATA_DIR": str(tmp_path / "data")}, ("--root", str(workspace.root), "--mode", "classic")
    with Client(*roots, env=env) as server:
        change = done(server.call("linux_fs_write", path="a.txt", content="new"))["undo_id"]
    with Client(*roots, env=env) as server:
        assert server.call("linux_fs_undo").code == "NOT_FOUND"  # another session: its changes go by id only
        assert changes(server) == []
        assert [row["undo_id"] for row in changes(server, session="all")] == [change]
        undo(server, change)
    assert (workspace.root / "a.txt").read_text() == "old"


# --- changes ---------------------------------------------------------------------------------------


def test_changes_tell_what_was_done_to_which_path_and_how_many_lines(workspace: Workspace, server: Client) -> None:
    workspace.file("a.txt", "1\n2\n3\n")
    done(server.call("linux_fs_write", path="a.txt", content="1\ntwo\n3\n4\n"))
    done(server.call("linux_fs_write", path="new.txt", content="x\n"))
    done(server.call("linux_fs_move", source="new.txt", target="moved.txt"))
    done(server.call("linux_fs_delete", path="moved.txt"))
    rows = changes(server)
    seen = [(row["action"], Path(row["path"]).name, row["lines_added"], row["lines_removed"]) for row in rows]
    assert seen == [
        ("delete", "moved.txt", None, None),
        ("move", "new.txt", None, None),
        ("create", "new.txt", 1, 0),
        ("write", "a.txt", 2, 1),
    ]
    undo(server)
    assert [row.get("state") for row in changes(server)] == [None, "undone", None, None, None]


def test_the_diff_of_a_session_shows_each_file_then_and_now(workspace: Workspace, server: Client) -> None:
    workspace.file("a.txt", "1\n2\n3\n")
    workspace.file("gone.txt", "bye\n")
    workspace.file(".env", "TOKEN=old-secret\n")
    for content in ("1\nzwei\n3\n", "1\ntwo\n3\n"):
        done(server.call("linux_fs_write", path="a.txt", content=content))
    done(server.call("linux_fs_delete", path="gone.txt"))
    done(server.call("linux_fs_delete", path=".env"))
    done(server.call("linux_fs_write", path=".env.local", content="TOKEN=new-secret\n"))
    diff = done(server.call("linux_fs_changes", diff=True))["diff"]
    assert "-2\n+two\n" in diff
    assert "zwei" not in diff
    assert "-bye\n" in diff
    assert "secret" not in diff.replace("holds secrets", "")


def test_a_long_diff_is_cut_and_whole_in_its_handle(workspace: Workspace, server: Client) -> None:
    done(server.call("linux_fs_write", path="long.txt", content="".join(f"line {n}\n" for n in range(5000))))
    reply = done(server.call("linux_fs_changes", diff=True))
    assert reply["truncated"]
    page = done(server.call("linux_handle_read", handle=reply["handle"], offset=4999, limit=5))
    assert "+line 4999" in page["content"]


def test_a_diff_of_more_changes_than_it_looks_at_says_so(
    workspace: Workspace, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    from llmc_mcp.tools.linux_ops import changes as tools

    monkeypatch.setattr(tools, "_LISTED", 2)
    for number in range(3):
        app.mutations.write(WHO, f"{number}.txt", "x\n", never)
        reply = tools.linux_fs_changes(Context(app, WHO, correlation_id="test"), diff=True)
        assert isinstance(reply, tools.ChangeDiff)
        assert (reply.files, reply.truncated) == (min(number + 1, 2), number == 2)
        assert ("0.txt" in reply.diff) == (number < 2)
        assert reply.note == ("Only the newest 2 changes: then is before the first of them." if number == 2 else None)


# --- limits ----------------------------------------------------------------------------------------


def test_a_full_journal_drops_the_oldest_first_and_says_so(workspace: Workspace, tmp_path: Path) -> None:
    config = Config()
    config.limits.journal_max_total_bytes = 1_000_000
    app = App(config, [str(workspace.root)], str(tmp_path / "data"))
    path = workspace.file("a.bin", os.urandom(200_000).hex())
    ids = [app.mutations.write(WHO, "a.bin", os.urandom(200_000).hex(), never).id for _ in range(8)]
    stored = sum(entry.stat().st_size for entry in (tmp_path / "data/journal").iterdir())
    assert stored <= 1_000_000
    dropped = [app.changes.journal.find(one, None).dropped for one in ids]
    assert dropped == sorted(dropped, reverse=True)
    assert (dropped[0], dropped[-1]) == (True, False)
    with pytest.raises(Stale, match="dropped to make room"):
        app.undoing.undo(WHO, app.changes.journal.find(ids[0], None), True, never)
    app.undoing.undo(WHO, app.changes.journal.find(ids[-1], None), False, never)
    assert path.stat().st_size == 400_000
    app.close()


def test_equal_contents_are_kept_once(workspace: Workspace, tmp_path: Path, app: App) -> None:
    text = os.urandom(200_000).hex()
    for name in ("a", "b", "c"):
        workspace.file(name, text)
        app.mutations.write(WHO, name, "x", never)
    assert len(list((tmp_path / "data/journal").iterdir())) == 1


def test_what_the_journal_keeps_is_its_owners_alone(workspace: Workspace, tmp_path: Path, app: App) -> None:
    workspace.file("a", os.urandom(200_000).hex())
    app.mutations.write(WHO, "a", "x", never)
    for path in (tmp_path / "data").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0 or path.name.startswith("llmc.db-"), path


# --- trouble ---------------------------------------------------------------------------------------


def test_a27_forty_random_kills_leave_old_or_new_never_torn(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.crashes", str(tmp_path), "55", "7"]
    run = subprocess.run(command, check=False, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert run.returncode == 0, run.stderr
    seen = json.loads(run.stdout)["seen"]
    assert sum(seen.values()) == 55
    assert any(name.endswith("new") for name in seen)
    assert any(name.endswith("old") for name in seen)


def test_a28_a_full_disk_leaves_the_old_content(workspace: Workspace, tmp_path: Path) -> None:
    path = workspace.file("a.txt", "old\n")
    with journaling_server(workspace, tmp_path / "data") as it:
        resource.prlimit(it.process.pid, resource.RLIMIT_FSIZE, (600_000, 600_000))
        reply = it.call("linux_fs_write", path="a.txt", content="x" * 1_000_000)
        assert reply.code == "WRITE_FAILED"
        assert path.read_text() == "old\n"
        assert litter(workspace.root) == []
        assert changes(it) == []
        done(it.call("linux_fs_write", path="a.txt", content="small\n"))


Call = Callable[..., Any]


@pytest.mark.parametrize(("module", "name"), [(os, "fsync"), (syscalls, "rename_exchange"), (os, "fchmod")])
def test_a28_an_input_output_error_anywhere_leaves_the_old_content(
    workspace: Workspace, app: App, monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str
) -> None:
    path = workspace.file("a.txt", "old\n")
    app.mutations.write(WHO, "other.txt", "x", never)
    real: Call = getattr(module, name)
    for fatal in range(10):
        calls = iter(range(100))

        def failing(*arguments: Any, **named: Any) -> Any:
            if next(calls) == fatal:  # noqa: B023 - called at once
                raise OSError(errno.EIO, "I/O error")
            return real(*arguments, **named)

        monkeypatch.setattr(module, name, failing)
        try:
            app.mutations.write(WHO, "a.txt", "new\n", never)
        except WriteFailed:
            assert path.read_text() == "old\n"
            assert litter(workspace.root) == []
        else:
            assert fatal > 0
            assert path.read_text() == "new\n"
            return
        finally:
            monkeypatch.setattr(module, name, real)
    pytest.fail("it never succeeded")


@pytest.mark.parametrize(
    ("module", "name"),
    [(os, "fsync"), (syscalls, "rename_exchange"), (syscalls, "rename_no_replace"), (os, "mkdir"), (os, "unlink")],
)
def test_a_diff_that_fails_half_way_leaves_every_file_as_it_was(
    workspace: Workspace, app: App, monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str
) -> None:
    for file, text in crashes.BEFORE.items():
        workspace.file(file, text)
    app.changes.settle_abandoned()  # the journal is there: only the change itself shall fail
    real: Call = getattr(module, name)
    outcomes: list[bool] = []
    while not outcomes or not outcomes[-1]:
        calls, fatal = iter(range(1000)), len(outcomes)

        def failing(*arguments: Any, **named: Any) -> Any:
            if next(calls) == fatal:  # noqa: B023 - called at once
                raise OSError(errno.EIO, "I/O error")
            return real(*arguments, **named)

        monkeypatch.setattr(module, name, failing)
        try:
            app.patching.apply(WHO, crashes.DIFF, False, never)
        except WriteFailed:
            outcomes.append(False)
        else:
            outcomes.append(True)
        finally:
            monkeypatch.setattr(module, name, real)
        found = {str(path.relative_to(workspace.root)): path.read_text() for path in workspace.root.rglob("*.txt")}
        assert found == (crashes.PATCHED if outcomes[-1] else crashes.BEFORE)
        assert litter(workspace.root) == []
        assert (workspace.root / "new").exists() is outcomes[-1]
    assert len(outcomes) > 2


def test_past_its_journal_entry_a_change_ignores_cancellation(workspace: Workspace, app: App) -> None:
    workspace.file("a.txt", "old")
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if app.changes.journal.pending():
            raise Cancelled("too late")

    app.mutations.write(WHO, "a.txt", "new", check)
    assert (calls > 0, (workspace.root / "a.txt").read_text()) == (True, "new")


def test_a_call_that_was_cancelled_before_changes_nothing(workspace: Workspace, app: App) -> None:
    def check() -> None:
        raise Cancelled("taken back")

    with pytest.raises(LlmcError):
        app.mutations.write(WHO, "a.txt", "new", check)
    assert not (workspace.root / "a.txt").exists()


def test_a_file_changed_by_an_editor_while_we_write_is_not_overwritten(
    workspace: Workspace, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = workspace.file("a.txt", "old")
    real = os.fsync

    def saved_meanwhile(fd: int) -> None:
        real(fd)
        path.write_text("saved by an editor")

    monkeypatch.setattr(os, "fsync", saved_meanwhile)
    with pytest.raises(Stale):
        app.mutations.write(WHO, "a.txt", "new", never)
    assert path.read_text() == "saved by an editor"
    assert app.changes.journal.history(None, None, 10) == []


MANY_CHANGES = """
    WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
    INSERT INTO changes (id, session_id, principal, agent_id, at, action, state, process, roots, effects)
    SELECT 'U_' || n, iif(n <= 10, 'first', 'later'), principal, agent_id, at, action, state, process, roots, effects
    FROM changes, numbers
"""


@pytest.mark.parametrize("session_id", [None, "first"])
def test_listing_changes_costs_the_same_however_many_the_journal_has(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, session_id: str | None
) -> None:
    steps: list[int] = []
    for size in (500, 20_000):
        app = App(Config(), [str(workspace.root)], str(tmp_path / f"data-{size}"))
        app.mutations.write(WHO, "a.txt", str(size), never)
        with app.store.transaction() as connection:
            connection.execute(MANY_CHANGES, (size,))
        queries: list[tuple[Any, ...]] = []
        monkeypatch.setattr(app.store, "query", partial(noted, queries, app.store.query))
        assert len(app.changes.journal.history("uid:0", session_id, 5)) == 5
        steps.append(sum(steps_of(tmp_path / f"data-{size}" / "llmc.db", *query) for query in queries))
        app.close()
    assert steps[1] <= steps[0] * 1.1


def noted(calls: list[tuple[Any, ...]], call: Callable[..., Any], *given: Any) -> Any:
    calls.append(given)
    return call(*given)


def steps_of(path: Path, sql: str, parameters: tuple[object, ...] = ()) -> int:
    """How many instructions of its machine SQLite needs for a query."""
    connection, steps = sqlite3.connect(path), [0]

    def count() -> None:
        steps[0] += 1

    connection.set_progress_handler(count, 1)
    connection.execute(sql, parameters).fetchall()
    connection.close()
    return steps[0]


def syncs_of(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> Counter[str]:
    """How often a change syncs each file and folder below a root or in the trash, by name."""
    synced: Counter[str] = Counter()
    real = os.fsync

    def counted(fd: int) -> None:
        name = os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))
        synced["new content" if name.endswith((" (deleted)", ".tmp")) else name] += 1
        real(fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", counted)
        change()
    return synced


def test_a_change_syncs_each_folder_once_and_each_new_file_once(
    workspace: Workspace, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file, text in crashes.BEFORE.items():
        workspace.file(file, text)
    app.changes.settle_abandoned()
    root = workspace.root.name
    written = syncs_of(monkeypatch, lambda: app.mutations.write(WHO, "one.txt", "one\nend\n", never))
    assert written == {"new content": 1, root: 1}
    patched = syncs_of(monkeypatch, lambda: app.patching.apply(WHO, crashes.DIFF, False, never))
    assert patched == {"new content": 3, root: 1, "new": 1, "folder": 1, "trash": 1}
    moved = syncs_of(monkeypatch, lambda: app.mutations.move(WHO, "one.txt", "two.txt", True, never))
    assert moved == {root: 1, "trash": 1}
