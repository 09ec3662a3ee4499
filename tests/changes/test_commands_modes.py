"""Modes, special files, sizes and git's own notes after the undo of a command are what they were before it."""

import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from llmc_mcp.config.schema import Config
from llmc_mcp.context import Context
from llmc_mcp.errors import LlmcError
from llmc_mcp.tools.linux_ops.changes import linux_fs_undo

from ..support.changes import never
from ..support.commands import WHO, command, engines, git, snapshot, undo
from ..support.crashes import fork
from ..support.workspace import require
from .test_commands_limits import undo_and_redo
from .test_commands_losses import as_ordinary_user, repository, root

__all__ = ["repository", "root"]  # fixtures


def modes(top: Path) -> dict[str, int]:
    return {str(path.relative_to(top)): stat.S_IMODE(path.lstat().st_mode) for path in sorted(top.rglob("*"))}


def close_after_writing(root: Path) -> None:
    (root / "a.txt").write_text("new")
    (root / "a.txt").chmod(0)


def close_folder_after_writing(root: Path) -> None:
    (root / "dir" / "x").write_text("new")
    (root / "dir" / "new").write_text("new")
    (root / "dir").chmod(0o555)


CLOSING: dict[str, Callable[[Path], None]] = {
    "a file that nobody may read": lambda root: (root / "a.txt").chmod(0),
    "a file that was written to before": close_after_writing,
    "a folder that nobody may write to": close_folder_after_writing,
    "a folder that nobody may enter": lambda root: (root / "dir").chmod(0),
}


@pytest.mark.parametrize("act", CLOSING.values(), ids=CLOSING.keys())
def test_what_a_command_has_closed_is_opened_by_the_undo(
    root: Path, tmp_path: Path, act: Callable[[Path], None]
) -> None:
    before = snapshot(root)

    def body() -> None:
        with engines(root, tmp_path / "data") as app:
            command(app, lambda: None)
            changes = command(app, lambda: act(root))
            closed = modes(root) if (root / "dir").stat().st_mode & 0o400 else {}
            assert changes.undo_id is not None
            undone = app.undoing.undo(WHO, app.changes.journal.find(changes.undo_id, None), False, never)
            assert snapshot(root) == before
            app.undoing.undo(WHO, app.changes.journal.find(undone.redo_id, None), False, never)
            assert not closed or modes(root) == closed, modes(root)

    try:
        as_ordinary_user(body)
    finally:
        (root / "dir").chmod(0o755)


def test_a_small_file_that_grew_too_large_for_the_journal_comes_back(root: Path, tmp_path: Path) -> None:
    config = Config()
    config.limits.journal_max_bytes = 1 << 20
    with engines(root, tmp_path / "data", config) as app:
        before = snapshot(root)
        changes = command(app, lambda: (root / "a.txt").write_bytes(b"x" * (2 << 20)))
        undo_and_redo(app, changes, root, before, snapshot(root))


def test_set_group_id_and_sticky_bits_of_folders_come_back(root: Path, tmp_path: Path) -> None:
    (root / "dir").chmod(0o3775)
    with engines(root, tmp_path / "data") as app:
        command(app, lambda: None)
        before = snapshot(root)
        changes = command(app, lambda: shutil.rmtree(root / "dir"))
        undo_and_redo(app, changes, root, before, snapshot(root))


def test_root_gives_no_set_user_id_back_and_says_so(root: Path, tmp_path: Path) -> None:
    require(os.geteuid() == 0, "root")
    (root / "a.txt").chmod(0o4755)
    with engines(root, tmp_path / "data") as app:
        command(app, lambda: None)
        changes = command(app, lambda: ((root / "a.txt").write_text("new"), (root / "a.txt").chmod(0o755)))
        assert any("set-user-id" in one for one in undo(app, changes))
        assert (root / "a.txt").read_text() == "a\n" * 10
        assert stat.S_IMODE((root / "a.txt").stat().st_mode) == 0o755
        setting = command(app, lambda: (root / "a.txt").chmod(0o4755))
        undone = app.undoing.undo(WHO, app.changes.journal.find(setting.undo_id or "", None), False, never)
        assert stat.S_IMODE((root / "a.txt").stat().st_mode) == 0o755
        with pytest.raises(LlmcError, match="set-user-id"):
            app.undoing.undo(WHO, app.changes.journal.find(undone.redo_id, None), False, never)


def test_who_owns_a_file_gets_its_set_user_id_back(root: Path, tmp_path: Path) -> None:
    require(os.geteuid() == 0, "root, to become somebody else")

    def body(top: Path) -> None:
        with engines(top / "root", top / "data") as app:
            command(app, lambda: None)
            before = snapshot(top / "root")
            path = top / "root" / "a.txt"
            undo(app, command(app, lambda: path.write_text("new")))  # which clears the bit
            assert snapshot(top / "root") == before

    root.parent.chmod(0o755)
    body(root.parent)  # everything is imported before the privileges are gone
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        (top / "root").mkdir()
        (top / "root" / "a.txt").write_text("one\n")
        for path in (top, top / "root", top / "root" / "a.txt"):
            os.chown(path, 65534, 65534)
        (top / "root" / "a.txt").chmod(0o4755)

        def as_nobody() -> None:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            body(top)

        assert fork(as_nobody) == 0


# --- special files ---------------------------------------------------------------------------------


def test_a_fifo_is_undone_and_redone_and_a_socket_is_named(root: Path, tmp_path: Path) -> None:
    before = snapshot(root)
    with engines(root, tmp_path / "data") as app:
        command(app, lambda: None)

        def act() -> None:
            os.mkfifo(root / "fifo", 0o640)
            with socket.socket(socket.AF_UNIX) as one:
                one.bind(str(root / "socket"))

        changes = command(app, act)
        undone = app.undoing.undo(WHO, app.changes.journal.find(changes.undo_id or "", None), False, never)
        assert snapshot(root) == before
        redone = app.undoing.undo(WHO, app.changes.journal.find(undone.redo_id, None), False, never)
        assert stat.S_ISFIFO((root / "fifo").lstat().st_mode)
        assert stat.S_IMODE((root / "fifo").lstat().st_mode) == 0o640
        assert not (root / "socket").exists()
        assert [str(one) for one in redone.left] == ["socket: a device or socket"]


def test_a_fifo_that_was_only_used_is_not_changed(root: Path, tmp_path: Path) -> None:
    os.mkfifo(root / "fifo")
    with engines(root, tmp_path / "data") as app:
        command(app, lambda: None)
        assert command(app, lambda: os.utime(root / "fifo")).files == 0
        undo(app, command(app, (root / "fifo").unlink))
        assert stat.S_ISFIFO((root / "fifo").lstat().st_mode)


# --- git -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["assume-unchanged", "skip-worktree"])
def test_flags_in_the_index_are_part_of_what_a_command_did(repository: Path, tmp_path: Path, flag: str) -> None:
    before = git(repository, "ls-files", "-v")
    with engines(repository, tmp_path / "data") as app:
        command(app, lambda: None)
        changes = command(app, lambda: git(repository, "update-index", f"--{flag}", "a.txt"))
        assert changes.files == 1
        assert git(repository, "ls-files", "-v") != before
        undo(app, changes)
        assert git(repository, "ls-files", "-v") == before


def test_git_status_is_no_change_in_a_linked_worktree_or_a_submodule(repository: Path, tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    repository.rename(top / "main")
    git(top / "main", "worktree", "add", "-q", str(top / "linked"))
    git(top / "main", "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(top / "main"), "sub")
    with engines(top, tmp_path / "data") as app:
        command(app, lambda: None)
        for work in (top / "linked", top / "main" / "sub"):
            os.utime(work / "a.txt", (1_700_000_000, 1_700_000_000))
            command(app, lambda: None)
            index = Path(git(work, "rev-parse", "--absolute-git-dir").strip(), "index")
            old = index.read_bytes()
            assert command(app, lambda work=work: git(work, "status")).files == 0
            assert index.read_bytes() != old


def test_a_branch_of_a_submodule_may_be_called_objects(repository: Path, tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    git(top, "init", "-q")
    git(top, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(repository), "sub")
    git(top / "sub", "branch", "objects")
    with engines(top, tmp_path / "data") as app:
        command(app, lambda: None)
        undo(app, command(app, lambda: git(top / "sub", "branch", "-qD", "objects")))
    assert "objects" in git(top / "sub", "branch")


# --- replies ---------------------------------------------------------------------------------------


def test_a_path_is_told_as_undone_or_as_not_but_never_as_both(root: Path, tmp_path: Path) -> None:
    config = Config()
    config.limits.journal_max_bytes = 1 << 20
    (root / "large").write_bytes(b"x" * (2 << 20))
    with engines(root, tmp_path / "data", config) as app:
        changes = command(app, lambda: [(root / name).unlink() for name in ("large", "a.txt")])
        rows = linux_fs_undo(Context(app, WHO, correlation_id="c"), undo_id=changes.undo_id).undone
        assert [(Path(row.path).name, row.action, row.failed) for row in rows] == [
            ("a.txt", "command: delete", None),
            ("large", "not brought back", "larger than the journal keeps"),
        ]
