"""Somebody else's editor saves a file at the very moment that a change publishes its own content."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from llmc_mcp.app import App
from llmc_mcp.changes.records import PutRecord
from llmc_mcp.changes.steps import Move, Put
from llmc_mcp.config.schema import Config
from llmc_mcp.errors import Stale
from llmc_mcp.kernel import syscalls
from llmc_mcp.session import Session

from ..support import crashes
from ..support.changes import litter, never, sha
from ..support.workspace import Workspace, require

WHO = Session("uid:0", "editors")


def save(path: Path, text: str) -> None:
    """As most editors do: written beside the file, renamed over it."""
    beside = path.with_name("editor.new")
    beside.write_text(text)
    beside.rename(path)


def save_in_place(path: Path, text: str) -> None:
    path.write_text(text)


def before_publishing(monkeypatch: pytest.MonkeyPatch, step: type[Put | Move], editor: Callable[[], object]) -> None:
    """Let an editor act after the last look at the files and before the new content is visible."""
    real = step.publish

    def publish(self: Any) -> None:
        editor()
        real(self)

    monkeypatch.setattr(step, "publish", publish)


SAVES = pytest.mark.parametrize("saving", [save, save_in_place])


@SAVES
def test_a_save_between_the_last_look_and_the_rename_stays(
    workspace: Workspace, app: App, monkeypatch: pytest.MonkeyPatch, saving: Callable[[Path, str], None]
) -> None:
    path = workspace.file("a.txt", "old text\n")
    before_publishing(monkeypatch, Put, lambda: saving(path, "saved by an editor\n"))
    with pytest.raises(Stale, match="changed meanwhile; nothing was done"):
        app.mutations.write(WHO, "a.txt", "ours\n", never, expected=sha("old text\n"))
    assert path.read_text() == "saved by an editor\n"
    assert app.changes.journal.history(None, None, 5) == []
    assert app.changes.leases.all() == []


def test_a_write_through_a_descriptor_that_was_open_already_is_not_lost_while_the_change_is_under_way(
    workspace: Workspace, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = workspace.file("a.txt", "old")
    real = syscalls.rename_exchange
    with path.open("a") as log:

        def exchange(*arguments: Any) -> bool:
            swapped = real(*arguments)
            log.write(" and a line")
            log.flush()
            return swapped

        monkeypatch.setattr(syscalls, "rename_exchange", exchange)
        with pytest.raises(Stale):
            app.mutations.write(WHO, "a.txt", "ours", never)
    assert path.read_text().startswith("old and a line")


@SAVES
def test_a_save_during_a_diff_of_several_files_leaves_all_of_them_alone(
    workspace: Workspace, app: App, monkeypatch: pytest.MonkeyPatch, saving: Callable[[Path, str], None]
) -> None:
    paths = {name: workspace.file(name, text) for name, text in crashes.BEFORE.items()}
    inodes = {name: path.stat().st_ino for name, path in paths.items()}
    before_publishing(monkeypatch, Put, lambda: saving(paths["two.txt"], "saved by an editor\n"))
    with pytest.raises(Stale):
        app.patching.apply(WHO, crashes.DIFF, False, never)
    found = {name: path.read_text() for name, path in paths.items()}
    assert found == {**crashes.BEFORE, "two.txt": "saved by an editor\n"}
    assert paths["one.txt"].stat().st_ino == inodes["one.txt"]  # the file itself, with its links and attributes
    assert not (workspace.root / "new").exists()


def test_a_file_that_became_a_folder_or_vanished_at_that_moment_is_left_so(
    workspace: Workspace, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = workspace.file("a.txt", "old")

    def become_a_folder() -> None:
        path.unlink()
        (path / "inside").mkdir(parents=True)

    with monkeypatch.context() as patch:
        before_publishing(patch, Put, become_a_folder)
        with pytest.raises(Stale):
            app.mutations.write(WHO, "a.txt", "ours", never)
    assert (path / "inside").is_dir()
    (path / "inside").rmdir()
    path.rmdir()
    workspace.file("a.txt", "old")
    before_publishing(monkeypatch, Put, path.unlink)
    with pytest.raises(Stale):
        app.mutations.write(WHO, "a.txt", "ours", never)
    assert not path.exists()


@pytest.mark.parametrize("saves", [2, 3, 4])
def test_of_several_saves_in_a_row_the_last_one_stays(
    workspace: Workspace, app: App, monkeypatch: pytest.MonkeyPatch, saves: int
) -> None:
    path = workspace.file("a.txt", "old")
    real, numbers = syscalls.rename_exchange, iter(range(1, saves + 1))

    def exchange(*arguments: Any) -> bool:
        for number in numbers:  # one before each swap
            save(path, f"save {number}")
            break
        return real(*arguments)

    monkeypatch.setattr(syscalls, "rename_exchange", exchange)
    with pytest.raises(Stale):
        app.mutations.write(WHO, "a.txt", "ours", never)
    assert path.read_text() == f"save {saves}"


def test_a_save_is_back_when_the_server_is_killed_right_after_the_swap(workspace: Workspace, tmp_path: Path) -> None:
    path = workspace.file("a.txt", "old")
    pid = os.fork()
    if pid == 0:
        real = syscalls.rename_exchange

        def exchange(*arguments: Any) -> bool:
            save(path, "saved by an editor")
            real(*arguments)
            os._exit(9)

        syscalls.rename_exchange = exchange
        App(Config(), [str(workspace.root)], str(tmp_path / "data")).mutations.write(WHO, "a.txt", "ours", never)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    assert path.read_text() == "ours"
    app = App(Config(), [str(workspace.root)], str(tmp_path / "data"))
    app.reader  # noqa: B018 - whoever reads first settles first
    assert path.read_text() == "saved by an editor"
    assert app.changes.journal.history(None, None, 5) == []
    assert litter(workspace.root) == []
    app.close()


@SAVES
@pytest.mark.parametrize("name", ["a.txt", "folder/a.txt"])
def test_a_save_during_a_move_to_another_file_system_is_not_lost(
    workspace: Workspace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    saving: Callable[[Path, str], None],
    name: str,
) -> None:
    memory = Path("/dev/shm")
    require(memory.is_dir() and memory.stat().st_dev != tmp_path.stat().st_dev, "a second file system at /dev/shm")
    path = workspace.file(name, "old text")
    workspace.file("folder/other.txt", "other")
    before_publishing(monkeypatch, Move, lambda: saving(path, "saved by an editor"))
    with TemporaryDirectory(dir=memory) as elsewhere:
        app = App(Config(), [str(workspace.root), elsewhere], str(tmp_path / "data"))
        with pytest.raises(Stale):
            app.mutations.move(WHO, name.partition("/")[0], f"{elsewhere}/moved", False, never)
        assert os.listdir(elsewhere) == []
        app.close()
    assert path.read_text() == "saved by an editor"
    assert litter(workspace.root) == []


def test_where_names_can_not_be_swapped_changes_are_made_by_renames(
    workspace: Workspace, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object) -> bool:
        return False

    monkeypatch.setattr(syscalls, "rename_exchange", unsupported)
    path = workspace.file("a.txt", "old")
    change = app.mutations.write(WHO, "a.txt", "new", never).id
    assert path.read_text() == "new"
    app.undoing.undo(WHO, app.changes.journal.find(change, None), False, never)
    assert path.read_text() == "old"
    before_publishing(monkeypatch, Put, lambda: save(path, "saved by an editor"))
    with pytest.raises(Stale):  # only a save in the last instant would be replaced
        app.mutations.write(WHO, "a.txt", "new", never)
    assert path.read_text() == "saved by an editor"


def test_every_save_that_a_racing_editor_makes_stays_or_is_in_the_journal(workspace: Workspace, app: App) -> None:
    path, seen = workspace.file("a.txt", "first"), workspace.root / "seen"
    pid = os.fork()
    if pid == 0:
        _edit_for_ever(path, seen)
    try:
        changes = [_write_or_none(app, f"ours {number}") for number in range(200)]
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    effects = [app.changes.journal.find(change, None).effects[0] for change in changes if change]
    kept = {record.before.sha256 for record in effects if isinstance(record, PutRecord) and record.before}
    replaced = [line.split(" became ours ") for line in seen.read_text().splitlines()]
    assert replaced
    # What a refused change wrote has the name for a moment; the editor may see it, and save over it.
    assert [saved for saved, ours in replaced if changes[int(ours)] and sha(saved) not in kept] == []


def _write_or_none(app: App, text: str) -> str | None:
    try:
        return app.mutations.write(WHO, "a.txt", text, never).id
    except Stale:
        return None


def _edit_for_ever(path: Path, seen: Path) -> None:
    """Save, wait until somebody replaces that, note by what, save again."""
    number = 0
    while True:
        number += 1
        text = f"editor {number}"
        save(path, text)
        while (now := path.read_text()) == text:
            os.sched_yield()
        with seen.open("a") as file:
            file.write(f"{text} became {now}\n")
