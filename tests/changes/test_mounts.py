"""Changes where root and data directory are two mounts of one file system, as bind mounts in a container are."""

import os
import subprocess
import sys
from pathlib import Path

from ..support.workspace import Workspace, require

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


def test_deletes_and_undos_work_across_two_mounts_of_one_file_system(workspace: Workspace, tmp_path: Path) -> None:
    unshare = ["unshare", "--mount", "--propagation", "private"]
    allowed = os.geteuid() == 0 and subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode == 0
    require(allowed, "root that may make mounts")
    workspace.file("a.txt", "one\n")
    workspace.file("b.txt", "two\n")
    data = tmp_path / "data"
    data.mkdir()
    command = [*unshare, "sh", "-c", IN_NAMESPACE, "sh", str(workspace.root), str(data), sys.executable, CHANGES]
    run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
