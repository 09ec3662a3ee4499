"""Where the files of a command can't be followed or kept, its reply says so; nothing else is lost."""

import os
import shutil
import subprocess
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from llmc_mcp.app import App
from llmc_mcp.changes.commands import CommandChanges
from llmc_mcp.config.schema import Config
from llmc_mcp.errors import LlmcError

from ..support.changes import never
from ..support.commands import WHO, command, engines, git, snapshot, undo
from ..support.hung_mount import can_mount, hanging_mount
from ..support.workspace import require


def undo_and_redo(app: App, changes: CommandChanges, root: Path, before: object, after: object) -> None:
    assert changes.undo_id is not None
    undone = app.undoing.undo(WHO, app.changes.journal.find(changes.undo_id, None), False, never)
    assert snapshot(root) == before
    app.undoing.undo(WHO, app.changes.journal.find(undone.redo_id, None), False, never)
    assert snapshot(root) == after


def stop_watching(app: App) -> None:
    """As on a machine without inotify."""
    undoing = app.command_undo
    assert undoing is not None
    for tree in undoing.trees:
        tree.watch.stop("the test")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    made.mkdir()
    for number in range(5):
        (made / f"{number}.txt").write_text(f"{number}\n" * 10)
    return made


def test_a_file_that_is_too_large_is_named_and_the_rest_comes_back(root: Path, tmp_path: Path) -> None:
    config = Config()
    config.limits.journal_max_bytes = 1 << 20
    with (root / "large").open("wb") as file:
        file.truncate(1 << 30)
    with engines(root, tmp_path / "data", config) as app:

        def act() -> None:
            os.truncate(root / "large", 1 << 29)
            (root / "0.txt").unlink()

        changes = command(app, act)
        assert (changes.files, changes.none) == (2, "")
        assert changes.warnings == ("Undo does not bring back large (larger than the journal keeps).",)
        assert undo(app, changes) == ("large: larger than the journal keeps",)
        assert (root / "0.txt").read_text() == "0\n" * 10
        alone = command(app, lambda: os.truncate(root / "large", 1 << 28))
        assert alone.none == "larger than the journal keeps"


def test_a_large_new_file_goes_to_the_trash_and_comes_back_by_a_redo(root: Path, tmp_path: Path) -> None:
    config = Config()
    config.limits.journal_max_bytes = 1 << 20

    def act() -> None:
        (root / "made").mkdir()
        (root / "made" / "large").write_bytes(b"x" * (2 << 20))
        (root / "made" / "small").write_text("small")

    with engines(root, tmp_path / "data", config) as app:
        before = snapshot(root)
        changes = command(app, act)
        after = snapshot(root)
        assert changes.warnings == ()
        undo_and_redo(app, changes, root, before, after)


def test_copies_past_the_budget_are_named(root: Path, tmp_path: Path) -> None:
    config = Config()
    config.limits.command_undo_bytes = 50  # room for two of the files
    with engines(root, tmp_path / "data", config) as app:
        changes = command(app, lambda: [(root / f"{number}.txt").unlink() for number in range(5)])
        assert "budget" in changes.warnings[0]
        assert "command_undo_bytes" in changes.warnings[0]
        left = undo(app, changes)
        assert len(left) == 3
        assert len(list(root.iterdir())) == 2


def test_a_root_with_too_many_files_says_why_nothing_can_be_undone(root: Path, tmp_path: Path) -> None:
    config = Config()
    config.limits.command_undo_files = 4
    with engines(root, tmp_path / "data", config) as app:
        changes = command(app, (root / "0.txt").unlink)
        assert changes.undo_id is None
        assert "command_undo_files" in changes.none


def test_a_root_that_grows_too_large_says_so_too(root: Path, tmp_path: Path) -> None:
    config = Config()
    config.limits.command_undo_files = 10
    with engines(root, tmp_path / "data", config) as app:
        assert command(app, (root / "0.txt").unlink).undo_id
        changes = command(app, lambda: [(root / f"new{number}").touch() for number in range(20)])
        assert changes.undo_id is None
        assert "command_undo_files" in changes.none


def test_switched_off_nothing_is_followed(root: Path, tmp_path: Path) -> None:
    config = Config()
    config.tools.undo_commands = False
    with engines(root, tmp_path / "data", config) as app:
        assert app.command_undo is None


def test_a_credential_in_the_line_of_a_command_is_masked(root: Path, tmp_path: Path) -> None:
    with engines(root, tmp_path / "data") as app:
        undoing = app.command_undo
        assert undoing is not None
        window = undoing.begin(WHO, "curl -H 'Authorization: Bearer abcdef123456' > 0.txt")
        (root / "0.txt").unlink()
        window.end()
        (change,) = app.changes.journal.history(None, None, 1)
        assert "curl" in change.about
        assert "abcdef" not in change.about


def test_what_root_brings_back_belongs_to_the_owner_of_its_folder(root: Path, tmp_path: Path) -> None:
    require(os.getuid() == 0, "root, to give files away")
    (root / "deep").mkdir()
    (root / "deep" / "file").write_text("1")
    for path in (root, *root.rglob("*")):
        os.chown(path, 12345, 12345)
    with engines(root, tmp_path / "data") as app:

        def act() -> None:
            shutil.rmtree(root / "deep")
            (root / "0.txt").write_text("changed")

        undo(app, command(app, act))
    assert {path.lstat().st_uid for path in root.rglob("*")} == {12345}


def test_what_went_with_a_root_is_listed_and_undo_says_that_the_root_is_gone(root: Path, tmp_path: Path) -> None:
    with engines(root, tmp_path / "data") as app:
        command(app, lambda: None)
        stop_watching(app)
        changes = command(app, lambda: shutil.rmtree(root))
        assert (changes.files, changes.undo_id is not None) == (5, True)
        with pytest.raises(LlmcError, match="was deleted while the server ran"):
            undo(app, changes)


def test_copies_that_nobody_needs_any_more_make_room(root: Path, tmp_path: Path) -> None:
    config = Config()
    config.limits.command_undo_bytes = 4_000
    with engines(root, tmp_path / "data", config) as app:
        for number in range(20):
            changes = command(app, lambda: (root / "0.txt").write_bytes(os.urandom(500)))
            assert changes.warnings == (), number
        before = (root / "0.txt").read_bytes()
        undo(app, command(app, (root / "0.txt").unlink))
        assert (root / "0.txt").read_bytes() == before


def test_without_inotify_the_files_are_walked(root: Path, tmp_path: Path) -> None:
    with engines(root, tmp_path / "data") as app:
        command(app, lambda: None)
        stop_watching(app)
        (root / "3.txt").write_text("somebody else's")
        before = snapshot(root)

        def act() -> None:
            (root / "0.txt").write_text("changed")
            (root / "1.txt").unlink()
            (root / "deep" / "er").mkdir(parents=True)
            (root / "deep" / "er" / "new").write_text("new")

        changes = command(app, act)
        assert changes.files == 3
        undo(app, changes)
        assert snapshot(root) == before


def test_files_that_git_would_convert_are_kept_as_they_are(root: Path, tmp_path: Path) -> None:
    git(root, "init", "-q")
    (root / ".gitattributes").write_text("*.txt text\n*.id ident\n")
    (root / "1.txt").write_bytes(b"a\r\nb\r\n")
    (root / "2.id").write_text("$Id$\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "one")
    (root / "2.id").unlink()
    git(root, "checkout", "-q", "2.id")
    git(root, "status")
    before = snapshot(root, without=(".git",))
    assert b"$Id: " in (root / "2.id").read_bytes()
    with engines(root, tmp_path / "data") as app:
        changes = command(app, lambda: [path.unlink() for path in root.iterdir() if path.is_file()])
        undo(app, changes)
    assert snapshot(root, without=(".git",)) == before


def test_an_idle_server_forgets_the_files_and_finds_them_again(root: Path, tmp_path: Path) -> None:
    with engines(root, tmp_path / "data") as app:
        command(app, lambda: None)
        assert app.release_idle(0)
        assert app.command_undo is not None
        assert app.command_undo.trees == []
        before = snapshot(root)
        undo(app, command(app, (root / "0.txt").unlink))
        assert snapshot(root) == before


def test_changes_of_commands_at_the_same_time_are_all_journaled(root: Path, tmp_path: Path) -> None:
    before = snapshot(root)
    with engines(root, tmp_path / "data") as app:
        command(app, lambda: None)

        def act(number: int) -> CommandChanges:
            return command(app, lambda: (root / f"new{number}").write_text(str(number)))

        with ThreadPoolExecutor(20) as pool:
            found = list(pool.map(act, range(20)))
        assert sum(changes.files for changes in found) >= 20  # one may have seen a file half-written by another
        for change in app.changes.journal.of_session(WHO):
            app.undoing.undo(WHO, change, False, never)
    assert snapshot(root) == before


# --- file systems ----------------------------------------------------------------------------------


@contextmanager
def mounted(kind: str, where: Path, options: str) -> Generator[Path]:
    require(os.getuid() == 0, "root, to mount")
    where.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", kind, "-o", options, "test", str(where)], check=True)
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)


def test_a_full_disk_costs_the_undo_and_the_reply_says_so(root: Path, tmp_path: Path) -> None:
    (root / "big").write_bytes(os.urandom(3 << 20))
    with mounted("tmpfs", tmp_path / "data", "size=8m") as data, engines(root, data) as app:
        command(app, lambda: None)
        (data / "filler").write_bytes(b"x" * ((3 << 20) - (300 << 10)))
        changes = command(app, lambda: (root / "big").write_bytes(b"small"))
        assert changes.undo_id is None
        assert "space" in changes.none
        (data / "filler").unlink()
        (newest,) = app.changes.journal.history(None, None, 1) or [None]
        del newest
        before = snapshot(root)
        undo(app, command(app, lambda: (root / "0.txt").write_text("again")))
        assert snapshot(root) == before


@pytest.mark.parametrize("kind", ["tmpfs", "overlay"])
def test_commands_are_undone_on_other_file_systems(tmp_path: Path, root: Path, kind: str) -> None:
    options = "size=16m"
    if kind == "overlay":
        shutil.copytree(root, tmp_path / "lower")
        with mounted("tmpfs", tmp_path / "layers", "size=16m") as layers:
            (layers / "upper").mkdir()
            (layers / "work").mkdir()
            options = f"lowerdir={tmp_path}/lower,upperdir={layers}/upper,workdir={layers}/work"
            with mounted("overlay", tmp_path / "merged", options) as merged:
                _changed_and_undone(merged, tmp_path / "data")
        return
    with mounted("tmpfs", tmp_path / "memory", options) as memory:
        shutil.copytree(root, memory / "root")
        _changed_and_undone(memory / "root", tmp_path / "data")


def _changed_and_undone(root: Path, data: Path) -> None:
    before = snapshot(root)

    def act() -> None:
        (root / "0.txt").write_text("changed")
        (root / "1.txt").unlink()
        (root / "2.txt").rename(root / "moved")
        (root / "deep").mkdir()
        (root / "deep" / "new").write_text("new")
        (root / "3.txt").chmod(0o700)

    with engines(root, data) as app:
        changes = command(app, act)
        after = snapshot(root)
        undo_and_redo(app, changes, root, before, after)


def test_a_read_only_root_is_followed_without_harm(tmp_path: Path, root: Path) -> None:
    require(os.getuid() == 0, "root, to mount")
    subprocess.run(["mount", "--bind", str(root), str(root)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(root)], check=True)
        with engines(root, tmp_path / "data") as app:
            assert command(app, lambda: None) == CommandChanges()
    finally:
        subprocess.run(["umount", "-l", str(root)], check=True)


def test_the_servers_own_files_are_never_taken_back(root: Path, tmp_path: Path) -> None:
    (root / "data").mkdir()
    with engines(root, root / "data") as app:
        changes = command(app, (root / "0.txt").unlink)
        assert changes.files == 1
        undo(app, changes)
    assert (root / "0.txt").exists()


def test_a_pre_image_that_made_room_for_others_is_missed_with_a_reason(root: Path, tmp_path: Path) -> None:
    config = Config()
    config.limits.journal_max_total_bytes = 3_000
    (root / "0.txt").write_bytes(os.urandom(2_000))
    with engines(root, tmp_path / "data", config) as app:
        first = command(app, lambda: (root / "0.txt").write_bytes(os.urandom(2_000)))
        command(app, lambda: (root / "0.txt").write_bytes(os.urandom(2_000)))
        with pytest.raises(LlmcError, match="make room"):
            undo(app, first)


def test_what_is_mounted_below_a_root_is_not_looked_at_and_named(root: Path, tmp_path: Path) -> None:
    require(can_mount(), "root that may make mounts")
    with engines(root, tmp_path / "data") as app, hanging_mount(root / "hung") as mount:
        mount.hang()
        changes = command(app, lambda: (root / "1.txt").write_text("changed"))
        mount.end()
        assert changes.files == 1
        assert f"mounted below the roots: {root}/hung" in changes.none


def test_a_folder_made_anew_during_an_overflow_is_watched_again(root: Path, tmp_path: Path) -> None:
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    require(most <= 100_000, "a queue of inotify that can be filled")

    def overflow() -> None:
        shutil.rmtree(root / "made")
        (root / "made").mkdir()
        (root / "made" / "one").write_text("second")
        for _ in range(most // 2 + 1):  # two names in turn: what is named twice in a row counts once
            (root / "0.txt").touch()
            (root / "1.txt").touch()

    (root / "made").mkdir()
    (root / "made" / "one").write_text("first")
    with engines(root, tmp_path / "data") as app:
        command(app, lambda: None)
        assert command(app, overflow).undo_id is not None
        assert command(app, lambda: (root / "made" / "one").write_text("third")).files == 1


def test_one_root_that_grows_too_large_costs_no_other_root_its_undo(root: Path, tmp_path: Path) -> None:
    config, other = Config(), tmp_path / "other"
    other.mkdir()
    config.limits.command_undo_files = 50

    def act() -> None:
        (other / "new").write_text("new")
        for number in range(100):
            (root / f"many{number}").touch()

    app = App(config, [str(root), str(other)], str(tmp_path / "data"))
    try:
        changes = command(app, act)
        assert (changes.files, "more than 50 files" in changes.none) == (1, True)
        undo(app, changes)
        assert not (other / "new").exists()
    finally:
        app.close()


def test_the_only_copy_of_what_was_not_kept_stays_where_it_was_moved(root: Path, tmp_path: Path) -> None:
    config = Config()
    config.limits.journal_max_bytes = 1 << 20
    (root / "data").mkdir()
    (root / "data" / "large").write_bytes(b"x" * (2 << 20))
    with engines(root, tmp_path / "data", config) as app:
        changes = command(app, lambda: (root / "data").rename(root / "moved") and (root / "1.txt").write_text("other"))
        left = undo(app, changes)
        assert "moved/large: stays, because it may hold what was not kept" in left
        assert (root / "moved" / "large").stat().st_size == 2 << 20
        assert (root / "1.txt").read_text() == "1\n" * 10


def test_force_for_one_path_is_for_no_other_of_that_name(root: Path, tmp_path: Path) -> None:
    (root / "sub").mkdir()
    both = (root / "a.txt", root / "sub" / "a.txt")
    with engines(root, tmp_path / "data") as app:
        changes = command(app, lambda: [path.write_text("command") for path in both])
        for path in both:
            path.write_text("later")
        assert changes.undo_id is not None
        with pytest.raises(LlmcError, match=r"sub/a\.txt"):
            app.undoing.undo(WHO, app.changes.journal.find(changes.undo_id, None), ["a.txt"], never)
