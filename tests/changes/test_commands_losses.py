"""What a command changes where it is hard to see comes back, or the reply names it: nothing is lost silently."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from llmc_mcp.app import App
from llmc_mcp.config.schema import Config
from llmc_mcp.errors import LlmcError
from llmc_mcp.kernel import syscalls

from ..support.changes import never
from ..support.commands import WHO, command, engines, git, snapshot, undo
from ..support.crashes import fork
from ..support.talk import eventually
from .test_commands_limits import stop_watching


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    (made / "dir").mkdir(parents=True)
    (made / "a.txt").write_text("a\n" * 10)
    (made / "dir" / "x").write_text("x\n" * 10)
    return made


def as_ordinary_user(body: Callable[[], None]) -> None:
    """Modes hold for whoever owns the files, as they don't for root."""

    def without_capabilities() -> None:
        syscalls.drop_capabilities()
        body()

    assert fork(without_capabilities) == 0


def said(changes: object) -> str:
    return repr(changes)


# --- folders that can't be read ---------------------------------------------------------------------


@pytest.mark.parametrize("watched", [True, False])
def test_a_change_in_a_folder_that_is_closed_afterwards_is_named(root: Path, tmp_path: Path, watched: bool) -> None:
    def act() -> None:
        (root / "dir" / "x").write_text("changed")
        (root / "dir").chmod(0)

    def body() -> None:
        with engines(root, tmp_path / "data") as app:
            command(app, lambda: None)
            if not watched:
                stop_watching(app)
            changes = command(app, act)
            assert "dir" in said(changes)
            assert "not readable" in said(changes)
            undo(app, changes)
            assert (root / "dir").stat().st_mode & 0o777 == 0o755
            assert command(app, (root / "a.txt").unlink).files == 1  # what came to light is nobody's

    as_ordinary_user(body)


def test_a_folder_that_was_not_readable_at_first_is_named_and_followed_from_then_on(root: Path, tmp_path: Path) -> None:
    (root / "dir").chmod(0)

    def act() -> None:
        (root / "dir").chmod(0o755)
        (root / "dir" / "x").write_text("changed")

    def body() -> None:
        with engines(root, tmp_path / "data") as app:
            assert command(app, (root / "a.txt").unlink).warnings == ()
            changes = command(app, act)
            assert "dir: was not readable" in changes.none
            before = snapshot(root)
            later = command(app, lambda: (root / "dir" / "x").write_text("once more"))
            assert later.files == 1
            undo(app, later)
            assert snapshot(root) == before

    as_ordinary_user(body)


# --- hard links ------------------------------------------------------------------------------------


def through_a_link(root: Path, way: str) -> None:
    other = root / "dir" / "other"
    if way == "in a folder":
        (root / "made").mkdir()
        other = root / "made" / "other"
    os.link(root / "a.txt", other)
    with other.open("a") as file:
        file.write("written through another name\n")
    if way == "replaced":
        (root / "new").write_text("new")
        (root / "new").rename(other)
    elif way != "kept":
        other.unlink()
    if way == "in a folder":
        (root / "made").rmdir()


@pytest.mark.parametrize("way", ["kept", "removed", "replaced", "in a folder"])
@pytest.mark.parametrize("watched", [True, False])
def test_what_is_written_through_another_name_comes_back(root: Path, tmp_path: Path, way: str, watched: bool) -> None:
    before = snapshot(root)
    with engines(root, tmp_path / "data") as app:
        command(app, lambda: None)
        if not watched:
            stop_watching(app)
        undo(app, command(app, lambda: through_a_link(root, way)))
        assert snapshot(root) == before


def test_a_link_in_a_folder_that_stays_is_found_too(root: Path, tmp_path: Path) -> None:
    before = snapshot(root)

    def act() -> None:
        (root / "made").mkdir()
        os.link(root / "a.txt", root / "made" / "other")
        (root / "made" / "other").write_text("other")
        (root / "made" / "other").unlink()

    with engines(root, tmp_path / "data") as app:
        command(app, lambda: None)
        undo(app, command(app, act))
        assert snapshot(root) == before


# --- paths that are too long ------------------------------------------------------------------------


@pytest.mark.parametrize(("levels", "name"), [(230, "d"), (30, "d" * 200)])
def test_what_lies_too_deep_is_named(root: Path, tmp_path: Path, levels: int, name: str) -> None:
    here = os.getcwd()
    try:
        os.chdir(root)
        for _ in range(levels):
            os.mkdir(name)
            os.chdir(name)
        Path("x").write_text("x")
        app = App(Config(), [str(root)], str(tmp_path / "data"))
        try:
            assert "too deep" in command(app, lambda: Path("x").write_text("changed")).none
            changes = command(app, (root / "a.txt").unlink)
            assert "too deep" in changes.none
            undo(app, changes)
        finally:
            app.close()
    finally:
        os.chdir(here)
        shutil.rmtree(root)


# --- file tools beside a command --------------------------------------------------------------------


def test_a_write_of_a_file_tool_between_two_of_a_command_is_not_reverted(root: Path, tmp_path: Path) -> None:
    path = root / "a.txt"
    before = snapshot(root)

    def act(app: App) -> None:
        path.write_text("by the command\n")
        app.mutations.write(WHO, str(path), "by the tool\n", never)
        path.write_text("by the command again\n")

    with engines(root, tmp_path / "data") as app:
        command(app, lambda: None)
        changes = command(app, lambda: act(app))
        assert len(changes.warnings) == 1
        assert "U_" in changes.warnings[0]  # the first part of what it did
        undo(app, changes)
        assert path.read_text() == "by the tool\n"
        assert all(one.failure is None for one in app.undoing.undo_session(WHO, False, never))
        assert snapshot(root) == before


# --- git -------------------------------------------------------------------------------------------


@pytest.fixture
def repository(root: Path) -> Path:
    git(root, "init", "-q")
    git(root, "config", "user.name", "t")
    git(root, "config", "user.email", "t@t")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "one")
    return root


@pytest.mark.parametrize("place", ["untracked", "core.attributesFile", "info", "home"])
def test_a_filter_that_keeps_the_size_of_a_file_does_not_lose_its_bytes(
    repository: Path, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = repository
    home = tmp_path / "home"
    (home / ".config" / "git").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    line = "*.up filter=upper\n"
    {
        "untracked": root / "dir" / ".gitattributes",
        "core.attributesFile": tmp_path / "attributes",
        "info": root / ".git" / "info" / "attributes",
        "home": home / ".config" / "git" / "attributes",
    }[place].write_text(line)
    git(root, "config", "filter.upper.clean", "tr a-z A-Z")
    if place == "core.attributesFile":
        git(root, "config", "core.attributesFile", str(tmp_path / "attributes"))
    (root / "dir" / "f.up").write_text("lower case\n")
    os.utime(root / "dir" / "f.up", (1_700_000_000, 1_700_000_000))
    git(root, "add", "dir/f.up")
    git(root, "commit", "-qm", "two")
    assert git(root, "show", "HEAD:dir/f.up") == "LOWER CASE\n"
    with engines(root, tmp_path / "data") as app:
        undo(app, command(app, (root / "dir" / "f.up").unlink))
    assert (root / "dir" / "f.up").read_text() == "lower case\n"


PRUNE = ("reflog expire --expire=now --all", "gc -q --prune=now")


def test_refs_whose_objects_are_gone_are_named_and_the_repository_stays_whole(repository: Path, tmp_path: Path) -> None:
    root = repository
    git(root, "checkout", "-qb", "other")
    (root / "b.txt").write_text("b\n")
    git(root, "add", "b.txt")
    git(root, "commit", "-qm", "two")
    git(root, "checkout", "-q", "-")
    (root / "staged").write_text("staged\n")
    git(root, "add", "staged")

    def act() -> None:
        git(root, "branch", "-qD", "other")
        git(root, "reset", "-q", "--hard")
        for line in PRUNE:
            git(root, *line.split())
        (root / "a.txt").write_text("changed\n")

    with engines(root, tmp_path / "data") as app:
        command(app, lambda: None)
        changes = command(app, act)
        left = " ".join(undo(app, changes))
    assert "refs/heads/other" in left
    assert ".git/index" in left
    assert (root / "a.txt").read_text() == "a\n" * 10
    assert "staged: its earlier content is gone" in left  # git had the only copy
    assert git(root, "fsck", "--no-dangling") == ""
    git(root, "status")


@pytest.mark.parametrize("way", ["its folder", "the .git folder", "the .git folder away"])
def test_a_repository_that_is_moved_comes_back_with_its_objects(repository: Path, tmp_path: Path, way: str) -> None:
    top = tmp_path / "top"
    top.mkdir()
    repository.rename(top / "one")
    (top / "two").mkdir()
    source, target = {
        "its folder": (top / "one", top / "three"),
        "the .git folder": (top / "one" / ".git", top / "two" / ".git"),
        "the .git folder away": (top / "one" / ".git", top / "one" / "git-away"),
    }[way]
    before, objects = snapshot(top), git(top / "one", "count-objects", "-v")
    with engines(top, tmp_path / "data") as app:
        command(app, lambda: None)
        changes = command(app, lambda: source.rename(target))
        after = snapshot(top)
        assert changes.warnings == ()
        assert changes.undo_id is not None
        undone = app.undoing.undo(WHO, app.changes.journal.find(changes.undo_id, None), False, never)
        assert snapshot(top) == before
        assert git(top / "one", "count-objects", "-v") == objects
        assert git(top / "one", "fsck") == ""
        app.undoing.undo(WHO, app.changes.journal.find(undone.redo_id, None), False, never)
        assert snapshot(top) == after


def test_a_new_repository_is_undone_and_redone_with_its_objects(root: Path, tmp_path: Path) -> None:
    before = snapshot(root)

    def act() -> None:
        git(root, "init", "-q")
        git(root, "add", "-A")
        git(root, "commit", "-qm", "one")

    with engines(root, tmp_path / "data") as app:
        command(app, lambda: None)
        changes = command(app, act)
        assert changes.undo_id is not None
        undone = app.undoing.undo(WHO, app.changes.journal.find(changes.undo_id, None), False, never)
        assert snapshot(root) == before
        app.undoing.undo(WHO, app.changes.journal.find(undone.redo_id, None), False, never)
        assert git(root, "fsck") == ""
        assert git(root, "log", "--format=%s") == "one\n"


@pytest.mark.parametrize("kind", ["worktree", "submodule", "worktree outside"])
def test_committed_work_in_worktrees_and_submodules_is_not_undone_silently(
    repository: Path, tmp_path: Path, kind: str
) -> None:
    top = tmp_path / "top"
    top.mkdir()
    if kind == "submodule":
        git(top, "init", "-q")
        git(top, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(repository), "sub")
        work = top / "sub"
    else:
        where = top if kind == "worktree" else tmp_path
        repository.rename(where / "main")
        work = top / "linked"
        git(where / "main", "worktree", "add", "-q", str(work))
    with engines(top, tmp_path / "data") as app:
        command(app, lambda: None)
        command(app, lambda: (work / "a.txt").write_text("the agent's\n"))
        git(work, "commit", "-qam", "the user's")
        with pytest.raises(LlmcError) as caught:
            app.undoing.undo_session(WHO, False, never)
        assert caught.value.code == "CONFLICT"
        assert "a.txt" in caught.value.message
        assert (work / "a.txt").read_text() == "the agent's\n"


def test_a_budget_for_copies_is_not_spent_on_what_a_linked_repository_holds(repository: Path, tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    repository.rename(top / "main")
    (top / "main" / "large.bin").write_bytes(os.urandom(20_000))
    git(top / "main", "add", "-A")
    git(top / "main", "commit", "-qm", "large")
    git(top / "main", "worktree", "add", "-q", str(top / "linked"))
    before = snapshot(top / "linked")
    config = Config()
    config.limits.command_undo_bytes = 15_000
    with engines(top, tmp_path / "data", config) as app:
        # What git has written just before the first look may have changed since, and is not kept.
        assert eventually(lambda: not command(app, lambda: None).warnings)
        changes = command(app, (top / "linked" / "large.bin").unlink)
        assert changes.warnings == ()
        undo(app, changes)
    assert snapshot(top / "linked") == before


# --- commands at the same time ----------------------------------------------------------------------


def test_a_file_that_two_commands_saw_is_undone_whichever_ends_first(root: Path, tmp_path: Path) -> None:
    before = snapshot(root)
    with engines(root, tmp_path / "data") as app:
        command(app, lambda: None)
        undoing = app.command_undo
        assert undoing is not None
        first, second = undoing.begin(WHO, "first"), undoing.begin(WHO, "second")
        (root / "new").write_text("")
        third = undoing.begin(WHO, "third")  # it looks, and what it finds is the first one's
        (root / "new").write_text("more\n")
        changes = [window.end() for window in (third, second, first)]
        assert sum(one.files for one in changes) == 1
        for change in app.changes.journal.of_session(WHO):
            app.undoing.undo(WHO, change, False, never)
    assert snapshot(root) == before
