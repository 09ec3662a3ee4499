"""Changes between mounts: of one file system, as bind mounts in a container are, and of two."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from llmc_mcp.app import App
from llmc_mcp.changes import targets
from llmc_mcp.config.schema import Config
from llmc_mcp.session import Session

from ..support import crashes
from ..support.changes import litter, never
from ..support.workspace import Workspace, require

WHO = Session("uid:0", "mounts")

UNSHARE = ["unshare", "--mount", "--propagation", "private"]
# Two file systems on which a sync costs nothing.
IN_MEMORY = """
set -e
mount -t tmpfs none "$1"
mount -t tmpfs none "$2"
exec "$3" -m tests.support.crashes "$1" "$2" "$4"
"""
IN_NAMESPACE = """
set -e
mount --bind "$1" "$1"
mount --bind "$2" "$2"
exec "$3" -c "$4" "$1" "$2"
"""
# Every change here moves something into the trash, or back; each is undone.
CHANGES = """
import os, sys
from llmc_mcp.app import App
from llmc_mcp.config.schema import Config
from llmc_mcp.session import Session

root, data = sys.argv[1:]
who, never = Session("uid:0", "mounts"), lambda: None
app = App(Config(), [root], data)
assert os.stat(root).st_dev == os.stat(data).st_dev

def files():
    return {name: open(os.path.join(root, name)).read() for name in sorted(os.listdir(root))}

def undo():
    app.undoing.undo(who, app.changes.journal.newest(who), False, never)

before = files()
assert sorted(before) == ["a.txt", "b.txt"]
app.mutations.delete(who, "a.txt", never, recursive=False)
assert sorted(files()) == ["b.txt"]
undo()
assert files() == before
app.mutations.write(who, "new.txt", "new", never)
undo()
assert files() == before
app.patching.apply(who, "--- a/a.txt\\n+++ /dev/null\\n@@ -1 +0,0 @@\\n-one\\n", False, never)
assert sorted(files()) == ["b.txt"]
undo()
assert files() == before
app.mutations.move(who, "a.txt", "b.txt", True, never)
assert files() == {"b.txt": "one\\n"}
undo()
assert files() == before
app.close()
"""


def may_mount() -> bool:
    return os.geteuid() == 0 and subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode == 0


def test_deletes_and_undos_work_across_two_mounts_of_one_file_system(workspace: Workspace, tmp_path: Path) -> None:
    require(may_mount(), "root that may make mounts")
    workspace.file("a.txt", "one\n")
    workspace.file("b.txt", "two\n")
    data = tmp_path / "data"
    data.mkdir()
    command = [*UNSHARE, "sh", "-c", IN_NAMESPACE, "sh", str(workspace.root), str(data), sys.executable, CHANGES]
    run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A folder on another file system than tmp_path, in memory."""
    memory = Path("/dev/shm")
    require(memory.is_dir() and memory.stat().st_dev != tmp_path.stat().st_dev, "a second file system at /dev/shm")
    with TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@pytest.mark.parametrize("name", crashes.BETWEEN)
def test_a27_a_kill_at_any_moment_of_a_change_between_file_systems_leaves_old_or_new_and_no_litter(
    tmp_path: Path, name: str
) -> None:
    require(may_mount(), "root that may make mounts")
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    command = [*UNSHARE, "sh", "-c", IN_MEMORY, "sh", *map(str, folders), sys.executable, name]
    run = subprocess.run(command, check=False, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    assert told["wrong"] == []
    assert told["points"] == told["moments"][name] + 1


def test_what_can_not_be_removed_after_a_move_is_removed_by_a_later_server(
    workspace: Workspace, tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.file("folder/a.txt", "a")
    roots = [str(workspace.root), str(elsewhere)]
    real = targets.remove_tree

    def busy(*_: object) -> None:
        raise OSError(16, "Device or resource busy")

    pid = os.fork()
    if pid == 0:
        targets.remove_tree = busy
        App(Config(), roots, str(tmp_path / "data")).mutations.move(
            WHO, "folder", str(elsewhere / "folder"), False, never
        )
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert real is targets.remove_tree
    assert (elsewhere / "folder/a.txt").read_text() == "a"
    assert len(litter(workspace.root)) == 1
    app = App(Config(), roots, str(tmp_path / "data"))
    app.changes.settle_abandoned()
    assert litter(workspace.root) == []
    assert app.changes.journal.leftovers() == []
    app.close()


def test_an_original_whose_name_was_taken_after_a_kill_is_kept(
    workspace: Workspace, tmp_path: Path, elsewhere: Path
) -> None:
    workspace.file("a.txt", "original")
    roots = [str(workspace.root), str(elsewhere)]
    pid = os.fork()
    if pid == 0:
        real = targets.tree_identity

        def die_once_it_is_renamed_away(dir_fd: int, name: bytes) -> str:
            return real(dir_fd, name) if name == b"a.txt" else os._exit(9)

        targets.tree_identity = die_once_it_is_renamed_away
        App(Config(), roots, str(tmp_path / "data")).mutations.move(
            WHO, "a.txt", str(elsewhere / "a.txt"), False, never
        )
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    workspace.file("a.txt", "somebody else's")
    app = App(Config(), roots, str(tmp_path / "data"))
    app.changes.settle_abandoned()
    assert (workspace.root / "a.txt").read_text() == "somebody else's"
    assert [Path(path).read_text() for path in litter(workspace.root)] == ["original"]
    assert [change.state for change in app.changes.journal.history(None, None, 5)] == ["failed"]
    app.close()
