"""Patches in V4A format: where hunks without line numbers belong, and what is refused."""

import pytest

from ..support.client import Client
from ..support.workspace import Workspace

SHAPES = (
    b"class Circle:\n    def area(self):\n        return 3\n\nclass Square:\n    def area(self):\n        return 4\n"
)


NO_NEWLINE = "\\ No newline at end of file"


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch", ""])


def test_files_are_updated_added_deleted_and_moved_as_one_change(server: Client, workspace: Workspace) -> None:
    workspace.file("a.py", b"one\ntwo\nthree\n")
    workspace.file("gone.py", b"whatever\n")
    workspace.file("old.py", b"x = 1\n")
    text = patch(
        "*** Update File: a.py",
        "@@",
        " one",
        "-two",
        "+zwei",
        " three",
        "*** Add File: new/b.py",
        "+first",
        "+",
        "+third",
        "*** Delete File: gone.py",
        "*** Update File: old.py",
        "*** Move to: moved.py",
        "-x = 1",
        "+x = 2",
    )
    assert server.call("linux_fs_apply_diff", diff_text=text).code == ""
    assert workspace.read("a.py") == b"one\nzwei\nthree\n"
    assert workspace.read("new/b.py") == b"first\n\nthird\n"
    assert workspace.read("moved.py") == b"x = 2\n"
    assert not (workspace.root / "gone.py").exists()
    assert not (workspace.root / "old.py").exists()
    server.call("linux_fs_undo")
    assert workspace.read("a.py") == b"one\ntwo\nthree\n"
    assert workspace.read("gone.py") == b"whatever\n"
    assert workspace.read("old.py") == b"x = 1\n"
    assert not (workspace.root / "new/b.py").exists()


def test_an_anchor_tells_which_of_several_places_is_meant(server: Client, workspace: Workspace) -> None:
    workspace.file("shapes.py", SHAPES)
    text = patch(
        "*** Update File: shapes.py",
        "@@ class Square:",
        "@@     def area(self):",
        "-        return 4",
        "+        return 16",
    )
    assert server.call("linux_fs_apply_diff", diff_text=text).code == ""
    assert workspace.read("shapes.py") == SHAPES.replace(b"4", b"16")


def test_a_place_that_is_not_certain_is_refused(server: Client, workspace: Workspace) -> None:
    workspace.file("shapes.py", SHAPES)
    text = patch("*** Update File: shapes.py", "     def area(self):", "+        print()")
    refused = server.call("linux_fs_apply_diff", diff_text=text)
    assert (refused.code, "lines 2, 6" in refused.meta["message"]) == ("PATCH_FAILED", True)
    assert workspace.read("shapes.py") == SHAPES


@pytest.mark.parametrize(
    ("lines", "after"),
    [
        (("@@ two", "+next"), b"one\ntwo\nnext\none\n"),
        (("@@ one", "+next"), b""),  # the anchor fits twice
        (("+last",), b"one\ntwo\none\nlast\n"),
        ((" one", "+last", "*** End of File"), b"one\ntwo\none\nlast\n"),
        ((" two", " one", "+last"), b"one\ntwo\none\nlast\n"),
        (("-one", "+1", "@@ two", "-one", "+3"), b""),  # the first hunk fits twice
        (("-one", "-two", "+1", "@@", "-one", "+3"), b"1\n3\n"),
    ],
)
def test_hunks_follow_one_another_down_the_file(
    server: Client, workspace: Workspace, lines: tuple[str, ...], after: bytes
) -> None:
    workspace.file("a.txt", b"one\ntwo\none\n")
    reply = server.call("linux_fs_apply_diff", diff_text=patch("*** Update File: a.txt", *lines))
    assert (reply.code, workspace.read("a.txt")) == (("", after) if after else ("PATCH_FAILED", b"one\ntwo\none\n"))


@pytest.mark.parametrize(
    ("before", "lines", "after"),
    [
        (b"a\nb\nc", ("-c", "+d"), b"a\nb\nd"),
        (b"a\nb\nc", ("-b", " c"), b"a\nc"),
        (b"a\nb\nc", (" b", "-c"), b"a\nb"),
        (b"a\nb\nc", (" c", "+d", "*** End of File"), b"a\nb\nc\nd"),
        (b"a\r\nb\r\n", ("@@", "+d"), b"a\r\nb\r\nd\r\n"),
        (b"a\nb\n", ("-a", "+x", ""), b"x\nb\n"),  # an empty line before the next part
        (b"b\nb\n", ("-b", "+c", NO_NEWLINE), b"b\nc"),  # which belongs at the end of the file
        (b"a\nb", ("-b", NO_NEWLINE, "+b"), b"a\nb\n"),
        (b"a\nb", ("-a", "+x", " b", NO_NEWLINE), b"x\nb"),
        (b"a\nb", (" b", NO_NEWLINE, "+c"), b"a\nb\nc\n"),
    ],
)
def test_the_end_of_a_file_is_as_it_was_unless_the_patch_speaks_of_it(
    server: Client, workspace: Workspace, before: bytes, lines: tuple[str, ...], after: bytes
) -> None:
    workspace.file("a.txt", before)
    reply = server.call("linux_fs_apply_diff", diff_text=patch("*** Update File: a.txt", *lines))
    assert (reply.code, workspace.read("a.txt")) == ("", after), reply.text


def test_a_hunk_belongs_into_the_block_below_its_anchor(server: Client, workspace: Workspace) -> None:
    content = b"def g():\n  w\ndef f():\n  x\n"
    workspace.file("a.py", content)
    refused = server.call(
        "linux_fs_apply_diff", diff_text=patch("*** Update File: a.py", "@@ def g():", "-  x", "+  y")
    )
    assert (refused.code, workspace.read("a.py")) == ("PATCH_FAILED", content)


def test_a_binary_file_can_be_deleted(server: Client, workspace: Workspace) -> None:
    workspace.file("a.bin", b"\0\1\2\xff")
    assert server.call("linux_fs_apply_diff", diff_text=patch("*** Delete File: a.bin")).code == ""
    assert not (workspace.root / "a.bin").exists()


def test_a_new_file_has_the_line_ends_of_its_lines(server: Client, workspace: Workspace) -> None:
    text = patch("*** Add File: dos.txt", "+one\r", "+two\r")
    assert server.call("linux_fs_apply_diff", diff_text=text).code == ""
    assert workspace.read("dos.txt") == b"one\r\ntwo\r\n"
    text = patch("*** Add File: sent.txt", "+one", "+two").replace("\n", "\r\n")  # all of it was sent so
    assert server.call("linux_fs_apply_diff", diff_text=text).code == ""
    assert workspace.read("sent.txt") == b"one\ntwo\n"


def test_line_ends_of_the_file_are_kept(server: Client, workspace: Workspace) -> None:
    workspace.file("a.txt", b"one\r\ntwo\r\n")
    text = patch("*** Update File: a.txt", " one", "-two", "+zwei", "+drei")
    assert server.call("linux_fs_apply_diff", diff_text=text).code == ""
    assert workspace.read("a.txt") == b"one\r\nzwei\r\ndrei\r\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("*** Begin Patch\n*** Update File: a.txt\n-one\n+1\n", "End Patch"),  # it may have been cut
        (patch(), "names no file"),
        (patch("*** Update File: a.txt"), "nothing is changed"),
        (patch("*** Update File: a.txt", "?one"), "begins with a space"),
        (patch("*** Update File: a.txt", " one"), "changes nothing"),
        (patch("*** Update File: "), "no file name"),
        (patch("*** Add File: b.txt", "text"), "begins with +"),
        (patch("*** Add File: a.txt", "+text"), "exists already"),
        (patch("*** Delete File: none.txt"), "no such file"),
        (patch("*** Update File: a.txt", "-three", "+3"), "does not fit"),
        (patch("*** Update File: a.txt", "@@ nowhere", "-two", "+2"), "does not fit"),
        (patch("*** Update File: ../out.txt", "-a", "+b"), ""),
        (patch("+one"), "does not begin a file"),
        (patch("*** Update File: a.txt", "-one", "+1") + patch("*** Delete File: a.txt"), "something follows"),
    ],
)
def test_a_patch_that_can_not_be_applied_changes_nothing(
    server: Client, workspace: Workspace, text: str, words: str
) -> None:
    workspace.file("a.txt", b"one\ntwo\n")
    refused = server.call("linux_fs_apply_diff", diff_text=text)
    assert refused.is_error
    assert words in refused.meta["message"]
    assert workspace.read("a.txt") == b"one\ntwo\n"
