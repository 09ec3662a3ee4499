"""linux_fs_edit and linux_fs_apply_diff, through a server: what they change, and what they refuse."""

import hashlib
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from llmc_mcp.files.off_limits import is_trash

from .changes.test_journal import changes
from .support.changes import done, server, undo
from .support.client import Client
from .support.workspace import Workspace

__all__ = ["server"]  # the fixture


def edit(server: Client, path: str, old: str, new: str, **more: Any) -> Any:
    return server.call("linux_fs_edit", path=path, old_text=old, new_text=new, **more)


# --- edit ------------------------------------------------------------------------------------------


def test_an_edit_shows_its_place_before_and_after(workspace: Workspace, server: Client) -> None:
    path = workspace.file("a.py", "def f():\n    return 1\n")
    reply = done(edit(server, "a.py", "return 1", "return 2"))
    assert path.read_text() == "def f():\n    return 2\n"
    assert reply["replacements_made"] == 1
    assert "return 1" in reply["before_snippet"]
    assert "return 2" in reply["after_snippet"]
    assert reply["new_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    undo(server, reply["undo_id"])
    assert path.read_text() == "def f():\n    return 1\n"


@pytest.mark.parametrize("name", ["linux_fs_patch_block", "edit_file", "linux.fs_edit", "linux.fs_patch_block"])
def test_the_old_names_still_work(workspace: Workspace, server: Client, name: str) -> None:
    path = workspace.file("a.txt", "one\n")
    done(server.call(name, path="a.txt", old_text="one", new_text="two"))
    assert path.read_text() == "two\n"


def test_a_miss_and_an_ambiguous_match_change_nothing_and_say_where(workspace: Workspace, server: Client) -> None:
    path = workspace.file("a.py", "def f():\n\treturn 1\nx = 1\nx = 1\n")
    missed = edit(server, "a.py", "def f():\n    return 1\n", "")
    assert missed.code == "PATCH_COUNT_MISMATCH"
    assert "line" in missed.text
    twice = edit(server, "a.py", "x = 1", "x = 2")
    assert twice.code == "PATCH_COUNT_MISMATCH"
    assert "3" in twice.text
    assert "4" in twice.text
    assert path.read_text() == "def f():\n\treturn 1\nx = 1\nx = 1\n"
    done(edit(server, "a.py", "x = 1", "x = 2", expected_replacements=2))
    assert path.read_text().count("x = 2") == 2


def test_encoding_line_ends_and_mode_are_kept(workspace: Workspace, server: Client) -> None:
    path = workspace.file("a.txt", "\ufeffgrün\r\nrot\r\n".encode("utf-8"))
    path.chmod(0o755)
    done(edit(server, "a.txt", "grün\nrot", "blau\ngelb"))
    assert path.read_bytes() == "\ufeffblau\r\ngelb\r\n".encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o755


def test_bad_edits_get_their_codes_and_nothing_changes(workspace: Workspace, server: Client) -> None:
    workspace.file("a.txt", "one\n")
    workspace.file("big.txt", b"x\n" * (1 << 20) + b"y\n")
    workspace.file("binary", b"\x00\x01\x02one\xff")
    workspace.file(".env", "TOKEN=hunter2\n")
    (workspace.root / "folder").mkdir()
    expected = {
        "missing.txt": "NOT_FOUND",
        "folder": "IS_DIRECTORY",
        "big.txt": "OUTPUT_TOO_LARGE",
        "binary": "INVALID_ARGUMENT",
        ".env": "PERMISSION_DENIED",
        "../outside/secret.txt": "INVALID_PATH",
    }
    replies = {path: edit(server, path, "one", "two") for path in expected}
    assert {path: reply.code for path, reply in replies.items()} == expected
    assert "hunter2" not in "".join(reply.text for reply in replies.values())
    stale = edit(server, "a.txt", "one", "two", expected_sha256="0" * 64)
    assert stale.code == "SHA_MISMATCH"
    assert changes(server) == []


def test_files_are_edited_up_to_the_configured_size(workspace: Workspace) -> None:
    workspace.file("a.txt", "one" * 10)
    with Client("--root", str(workspace.root), "--mode", "classic", "--set", "limits.edit_max_bytes=20") as it:
        assert edit(it, "a.txt", "one", "two", expected_replacements=10).code == "OUTPUT_TOO_LARGE"
        diff = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n"
        assert it.call("linux_fs_apply_diff", diff_text=diff).code == "OUTPUT_TOO_LARGE"


# --- apply_diff ------------------------------------------------------------------------------------

MANY = """\
diff --git a/one.txt b/one.txt
--- a/one.txt
+++ b/one.txt
@@ -1,2 +1,2 @@
-one
+eins
 end
diff --git a/new/made.sh b/new/made.sh
new file mode 100755
--- /dev/null
+++ b/new/made.sh
@@ -0,0 +1 @@
+echo hi
diff --git a/gone.txt b/gone.txt
deleted file mode 100644
--- a/gone.txt
+++ /dev/null
@@ -1 +0,0 @@
-gone
diff --git a/from.txt b/to.txt
similarity index 50%
rename from from.txt
rename to to.txt
--- a/from.txt
+++ b/to.txt
@@ -1,2 +1,2 @@
-from
+to
 end
"""


def files_in(root: Path) -> dict[str, str]:
    found = [path for path in root.rglob("*") if path.is_file() and not is_trash(str(path))]
    return {str(path.relative_to(root)): path.read_text() for path in found}


@pytest.fixture
def before(workspace: Workspace) -> dict[str, str]:
    for name, text in (("one.txt", "one\nend\n"), ("gone.txt", "gone\n"), ("from.txt", "from\nend\n")):
        workspace.file(name, text)
    return files_in(workspace.root)


AFTER = {"one.txt": "eins\nend\n", "new/made.sh": "echo hi\n", "to.txt": "to\nend\n"}


def test_a_diff_of_many_files_is_one_change(workspace: Workspace, server: Client, before: dict[str, str]) -> None:
    reply = done(server.call("linux_fs_apply_diff", diff_text=MANY))
    root = str(workspace.root)
    reply.pop("syntax", None)  # said where the parser has answered in time
    assert {**reply, "undo_id": ""} == {
        "files_modified": [f"{root}/one.txt"],
        "files_created": [f"{root}/new/made.sh", f"{root}/to.txt"],
        "files_deleted": [f"{root}/gone.txt", f"{root}/from.txt"],
        "backups_created": True,
        "undo_id": "",
        "message": "Applied to 5 files",
    }
    assert files_in(workspace.root) == AFTER
    assert os.access(workspace.root / "new/made.sh", os.X_OK)
    redo = undo(server, reply["undo_id"])[0]["redo_id"]
    assert files_in(workspace.root) == before
    assert not (workspace.root / "new").exists()
    undo(server, redo)
    assert files_in(workspace.root) == AFTER


def test_a_dry_run_tells_and_changes_nothing(workspace: Workspace, server: Client, before: dict[str, str]) -> None:
    reply = done(server.call("repo_write_patch", diff_text=MANY, dry_run=True))
    assert (reply["message"], reply["backups_created"], reply["undo_id"]) == ("Would change 5 files", False, None)
    assert files_in(workspace.root) == before
    assert changes(server) == []


def test_one_reject_and_no_file_changes(workspace: Workspace, server: Client, before: dict[str, str]) -> None:
    reply = server.call("linux_fs_apply_diff", diff_text=MANY.replace("-gone", "-something else"))
    assert reply.code == "PATCH_FAILED"
    assert "gone.txt" in reply.text
    assert files_in(workspace.root) == before
    assert changes(server) == []


def test_a_mode_line_sets_the_executable_bit_and_undo_clears_it(workspace: Workspace, server: Client) -> None:
    path = workspace.file("run.sh", "echo\n")
    path.chmod(0o640)
    diff = "diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n"
    reply = done(server.call("linux_fs_apply_diff", diff_text=diff))
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    undo(server, reply["undo_id"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def modify(path: str) -> str:
    return f"--- {path}\n+++ {path}\n@@ -1 +1 @@\n-old\n+new\n"


def test_diffs_that_leave_the_root_or_go_through_links_are_refused(workspace: Workspace, server: Client) -> None:
    workspace.file("good.txt", "old\n")
    workspace.file("real/file.txt", "old\n")
    (workspace.outside / "file.txt").write_text("old\n")
    (workspace.root / "out").symlink_to(workspace.outside)
    (workspace.root / "link.txt").symlink_to("real/file.txt")
    (workspace.root / "linked").symlink_to("real")
    bad = ["../outside/file.txt", str(workspace.outside / "file.txt"), "out/file.txt", "link.txt", "linked/file.txt"]
    codes = {path: server.call("linux_fs_apply_diff", diff_text=modify("good.txt") + modify(path)).code for path in bad}
    assert codes == dict.fromkeys(bad, "INVALID_PATH")
    assert (workspace.outside / "file.txt").read_text() == "old\n"
    assert (workspace.root / "good.txt").read_text() == "old\n"


def test_diffs_keep_away_from_protected_and_secret_names(workspace: Workspace, server: Client) -> None:
    workspace.file(".git/config", "old\n")
    workspace.file(".env", "old\n")
    for path in (".git/config", ".env"):
        reply = server.call("linux_fs_apply_diff", diff_text=modify(path))
        assert reply.code == "PERMISSION_DENIED"
        assert (workspace.root / path).read_text() == "old\n"
    move = "diff --git a/.env b/seen.txt\nsimilarity index 100%\nrename from .env\nrename to seen.txt\n"
    assert server.call("linux_fs_apply_diff", diff_text=move).code == "PERMISSION_DENIED"
    assert not (workspace.root / "seen.txt").exists()


def test_what_is_no_diff_is_an_argument_error(server: Client) -> None:
    assert server.call("linux_fs_apply_diff", diff_text="hello").code == "INVALID_ARGUMENT"
    assert server.call("linux_fs_apply_diff", diff_text="").code == "INVALID_ARGUMENT"
