"""Edits by line number, several edits at once, and the guard of a revision."""

import codecs

import pytest

from llmc_mcp.changes.edit import END, Edit, LineEdit, TextEdit, apply
from llmc_mcp.errors import LlmcError
from llmc_mcp.files.revisions import Revisions, revision_of

from ..support.client import Client
from ..support.workspace import Workspace

FIVE = b"one\ntwo\nthree\nfour\nfive\n"


def edited(data: bytes, *edits: Edit) -> bytes:
    return apply(data, edits).data


@pytest.mark.parametrize(
    ("edit", "after"),
    [
        (LineEdit(2, 3, "zwei\ndrei\n"), b"one\nzwei\ndrei\nfour\nfive\n"),
        (LineEdit(2, 3, "zwei\ndrei"), b"one\nzwei\ndrei\nfour\nfive\n"),  # the last newline may be left out
        (LineEdit(2, 3, ""), b"one\nfour\nfive\n"),
        (LineEdit(2, 2, "\n"), b"one\n\nthree\nfour\nfive\n"),
        (LineEdit(2, 1, "new"), b"one\nnew\ntwo\nthree\nfour\nfive\n"),
        (LineEdit(1, 0, "new"), b"new\none\ntwo\nthree\nfour\nfive\n"),
        (LineEdit(6, 5, "six"), b"one\ntwo\nthree\nfour\nfive\nsix\n"),
        (LineEdit(1, 5, "all"), b"all\n"),
    ],
)
def test_lines_are_replaced_inserted_and_deleted(edit: LineEdit, after: bytes) -> None:
    assert edited(FIVE, edit) == after


@pytest.mark.parametrize(
    ("before", "edit", "after"),
    [
        (b"a\r\nb\r\nc\r\n", LineEdit(2, 2, "x\ny"), b"a\r\nx\r\ny\r\nc\r\n"),
        (b"a\r\nb\nc\n", LineEdit(2, 2, "x\ny\n"), b"a\r\nx\ny\nc\n"),
        (b"a\nb", LineEdit(2, 2, "x\n"), b"a\nx"),  # no final newline before, none after
        (b"a\nb", LineEdit(3, 2, "c\n"), b"a\nb\nc"),
        (b"a\r\nb", LineEdit(3, 2, "c"), b"a\r\nb\r\nc"),
        (b"a\nb\nc", LineEdit(3, 3, ""), b"a\nb"),
        (b"a\nb\nc", LineEdit(1, 3, ""), b""),
        (codecs.BOM_UTF8 + b"a\nb\n", LineEdit(1, 1, "\ufeffx"), codecs.BOM_UTF8 + b"x\nb\n"),
        (b"", LineEdit(1, 0, "first"), b"first\n"),
        (b"a\nb\nc\n", LineEdit(2, END, "x"), b"a\nx"),  # to the end: the file ends as the text does
        (b"a\nb\nc", LineEdit(2, END, "x\n"), b"a\nx\n"),
        (b"a\nb", LineEdit(2, END, "b\n"), b"a\nb\n"),
        (b"a\r\nb\r\n", LineEdit(2, END, "x\ny"), b"a\r\nx\r\ny"),
        (b"a\nb\n", LineEdit(2, END, ""), b"a\n"),
        ("\ufeffä\nb\n".encode(), LineEdit(1, 1, "ö"), "\ufefföb\n".encode().replace(b"b\n", b"\nb\n")),
        ("ä\nb\n".encode("utf-16"), LineEdit(2, 2, "ö"), "ä\nö\n".encode("utf-16")),
    ],
)
def test_line_ends_marks_encodings_and_the_final_newline_stay(before: bytes, edit: LineEdit, after: bytes) -> None:
    assert edited(before, edit) == after


def test_numbers_of_several_edits_count_in_the_file_as_it_was() -> None:
    both = LineEdit(4, 4, "vier\nund"), LineEdit(1, 2, "eins"), TextEdit("three", "drei")
    assert edited(FIVE, *both) == b"eins\ndrei\nvier\nund\nfive\n"
    assert apply(FIVE, both).count == 3


def test_what_is_added_behind_a_last_line_that_goes_stands_in_its_place() -> None:
    assert edited(b"a\nb\nc", LineEdit(4, 3, "I"), LineEdit(3, 3, "")) == b"a\nb\nI"


def test_texts_are_replaced_in_order_after_the_lines() -> None:
    assert edited(b"a\n", TextEdit("a", "b"), TextEdit("b", "c")) == b"c\n"


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        ((LineEdit(6, 6, "x"),), "which has 5 lines"),
        ((LineEdit(0, 1, "x"),), "which has 5 lines"),
        ((LineEdit(4, 2, "x"),), "which has 5 lines"),
        ((LineEdit(1, 3, "x"), LineEdit(3, 4, "y")), "overlap"),
        ((LineEdit(2, 1, "x"), LineEdit(2, 2, "y")), "overlap"),
        ((LineEdit(2, 2, "two"),), "nothing to change"),
        ((TextEdit("one", "x"), TextEdit("nowhere", "y")), "edit 2 of 2: "),
    ],
)
def test_edits_that_have_no_place_are_refused(edits: tuple[Edit, ...], words: str) -> None:
    with pytest.raises(LlmcError, match=words):
        apply(FIVE, edits)


# --- the tool --------------------------------------------------------------------------------------------------------


def test_a_read_gives_the_revision_that_guards_an_edit_by_lines(server: Client, workspace: Workspace) -> None:
    workspace.file("a.txt", FIVE)
    rev = server.call("read_file", path="a.txt", offset_lines=1, max_lines=2).meta["rev"]
    assert rev == revision_of(FIVE)
    reply = server.call("linux_fs_edit", path="a.txt", lines="2-3", new_text="zwei", expected=rev)
    assert workspace.read("a.txt") == b"one\nzwei\nfour\nfive\n"
    assert reply.meta["rev"] == revision_of(workspace.read("a.txt"))
    assert server.call("linux_fs_undo").code == ""
    assert workspace.read("a.txt") == FIVE


def test_a_search_and_a_read_of_many_give_revisions_too(server: Client, workspace: Workspace) -> None:
    workspace.file("a.txt", FIVE)
    workspace.file("b.txt", b"two\r\ntwo\r\n")
    found = server.call("linux_search_content", root=".", pattern="two", context_lines=1)
    assert f"a.txt rev={revision_of(FIVE)}\n1-one\n2:two\n3-three" in found.body
    assert found.body.count("rev=") == 2
    many = server.call("linux_fs_read_many", paths=["a.txt"])
    assert f"a.txt rev={revision_of(FIVE)}\none" in many.body


def test_line_numbers_without_a_revision_are_refused(server: Client, workspace: Workspace) -> None:
    workspace.file("a.txt", FIVE)
    refused = server.call("linux_fs_edit", path="a.txt", lines="2", new_text="x")
    assert (refused.code, "expected" in refused.meta["message"]) == ("BAD_ARGS", True)


@pytest.mark.parametrize("lines", ["", "a", "1-", "-1", "1-2-3", "1,2", "\u0661", "9" * 5_000])
def test_a_range_is_one_or_two_numbers(server: Client, workspace: Workspace, lines: str) -> None:
    workspace.file("a.txt", FIVE)
    arguments = {"path": "a.txt", "lines": lines, "new_text": "x", "expected": revision_of(FIVE)}
    assert server.call("linux_fs_edit", **arguments).code == "BAD_ARGS"
    assert workspace.read("a.txt") == FIVE


def test_lines_to_the_end_are_named_so_and_found_again(server: Client, workspace: Workspace) -> None:
    workspace.file("a.txt", FIVE)
    edit = {"path": "a.txt", "lines": "4-end", "new_text": "last"}
    rev = server.call("read_file", path="a.txt").meta["rev"]
    workspace.file("a.txt", b"zero\n" + FIVE)
    refused = server.call("linux_fs_edit", **edit, expected=rev)
    assert "4-end → 5-end" in refused.meta["message"]
    server.call("linux_fs_edit", **{**edit, "lines": "5-end"}, expected=revision_of(workspace.read("a.txt")))
    assert workspace.read("a.txt") == b"zero\none\ntwo\nthree\nlast"


def test_a_stale_revision_is_refused_with_where_the_lines_went(server: Client, workspace: Workspace) -> None:
    workspace.file("a.txt", FIVE)
    rev = server.call("read_file", path="a.txt").meta["rev"]
    workspace.file("a.txt", b"zero\n" + FIVE)
    refused = server.call("linux_fs_edit", path="a.txt", lines="2-3", new_text="x", expected=rev)
    now = revision_of(b"zero\n" + FIVE)
    assert refused.code == "STALE"
    assert "2-3 → 3-4" in refused.meta["message"]
    assert f"expected={now}" in refused.meta["hint"]
    assert workspace.read("a.txt") == b"zero\n" + FIVE
    assert server.call("linux_fs_edit", path="a.txt", lines="3-4", new_text="x", expected=now).code == ""


def test_lines_that_changed_themselves_are_shown_as_they_are(server: Client, workspace: Workspace) -> None:
    workspace.file("a.txt", FIVE)
    rev = server.call("read_file", path="a.txt").meta["rev"]
    workspace.file("a.txt", FIVE.replace(b"two", b"2"))
    refused = server.call("linux_fs_edit", path="a.txt", lines="2", new_text="x", expected=rev)
    assert (refused.code, "2: 2" in refused.meta["message"]) == ("STALE", True)


def test_the_journal_knows_revisions_of_other_servers(workspace: Workspace) -> None:
    workspace.file("a.txt", FIVE)
    with Client("--root", str(workspace.root)) as one, Client("--root", str(workspace.root)) as other:
        one.call("linux_fs_edit", path="a.txt", old_text="one\n", new_text="zero\none\n")
        refused = other.call("linux_fs_edit", path="a.txt", lines="3", new_text="x", expected=revision_of(FIVE))
    assert "3 → 4" in refused.meta["message"]


def test_several_edits_are_made_all_or_none_and_undone_as_one(server: Client, workspace: Workspace) -> None:
    workspace.file("a.txt", FIVE)
    edits = [{"old_text": "one", "new_text": "1"}, {"lines": "5", "new_text": "5"}]
    reply = server.call("linux_fs_edit", path="a.txt", edits=edits, expected=revision_of(FIVE))
    assert (workspace.read("a.txt"), reply.meta["replacements_made"]) == (b"1\ntwo\nthree\nfour\n5\n", 2)
    server.call("linux_fs_undo")
    assert workspace.read("a.txt") == FIVE
    failed = server.call("linux_fs_edit", path="a.txt", edits=[edits[0], {"old_text": "none", "new_text": "x"}])
    assert (failed.code, workspace.read("a.txt")) == ("PATCH_COUNT_MISMATCH", FIVE)


@pytest.mark.parametrize(
    "arguments",
    [
        {"old_text": "one"},
        {"new_text": "one"},
        {"old_text": "one", "lines": "1", "new_text": "x"},
        {"edits": []},
        {"edits": [{"new_text": "x"}]},
        {"edits": [{"old_text": "one", "new_text": "x"}], "new_text": "y"},
        {"lines": "1", "new_text": "x", "expected": "zzzzzz"},
        {"lines": "1", "new_text": "x", "expected": "abc"},
    ],
)
def test_an_edit_says_what_it_replaces_in_one_way(
    server: Client, workspace: Workspace, arguments: dict[str, object]
) -> None:
    workspace.file("a.txt", FIVE)
    assert server.call("linux_fs_edit", path="a.txt", **arguments).code == "BAD_ARGS"
    assert workspace.read("a.txt") == FIVE


def test_only_so_many_bytes_of_contents_are_remembered() -> None:
    revisions = Revisions(most_bytes=40)
    known = [revisions.remember(bytes([65 + number]) * 10) for number in range(6)]
    assert [revisions.find(revision) is not None for revision in known] == [False, False, True, True, True, True]
    assert revisions.find(revisions.remember(b"x" * 11)) is None  # one content does not push all others out
