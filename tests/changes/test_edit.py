"""Edits: exact, and clear about why they are not made."""

import codecs
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmc_mcp import errors
from llmc_mcp.changes import edit


def edited(text: str, old: str, new: str, expected: int = 1, encoding: str = "utf-8") -> str:
    return edit.apply(text.encode(encoding), [edit.TextEdit(old, new, expected)]).data.decode(encoding)


def refusal(text: str | bytes, old: str, new: str = "NEW", expected: int = 1) -> errors.LlmcError:
    with pytest.raises(errors.LlmcError) as caught:
        edit.apply(text.encode() if isinstance(text, str) else text, [edit.TextEdit(old, new, expected)])
    return caught.value


def mismatch(text: str | bytes, old: str, expected: int = 1) -> str:
    error = refusal(text, old, expected=expected)
    assert isinstance(error, errors.PatchCountMismatch)
    assert error.hint
    assert len(error.message) <= 1_200
    return error.message


# What is changed


def test_an_edit_replaces_the_text_and_shows_the_place() -> None:
    result = edit.apply(b"1\n2\n3\n4\nfive\n6\n7\n8\n", [edit.TextEdit("five", "5\n5b", 1)])
    assert result == edit.EditedText(b"1\n2\n3\n4\n5\n5b\n6\n7\n8\n", 1, "3\n4\nfive\n6\n7", "3\n4\n5\n5b\n6\n7", 5)


def test_as_many_places_are_changed_as_were_announced() -> None:
    result = edit.apply(b"a b a\na\n", [edit.TextEdit("a", "xx", 3)])
    assert (result.data, result.count, result.first_line) == (b"xx b xx\nxx\n", 3, 1)


def test_text_can_be_removed_and_the_file_emptied() -> None:
    assert edited("keep\nremove\n", "remove\n", "") == "keep\n"
    assert edited("all", "all", "") == ""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("final", ["", "end"])
def test_encoding_mark_line_ends_and_final_newline_are_kept(encoding: str, end: str, final: str) -> None:
    before, after = (end.join(["grün", "ascii text", *lines, "ß", final]) for lines in (["b", "c"], ["ö", "x", "y"]))
    result = edit.apply(before.encode(encoding), [edit.TextEdit("b\nc\n", "ö\nx\ny\n", 1)])
    assert result.data == after.encode(encoding)


def test_big_endian_utf_16_keeps_its_mark() -> None:
    data = codecs.BOM_UTF16_BE + "one\ntwo\n".encode("utf-16-be")
    assert edit.apply(data, [edit.TextEdit("two", "2", 1)]).data == codecs.BOM_UTF16_BE + "one\n2\n".encode("utf-16-be")


def test_a_client_may_send_the_mark_and_carriage_returns() -> None:
    sent = edit.TextEdit("\ufeffa\r\nb", "\ufeffx\r\ny")
    assert edit.apply(codecs.BOM_UTF8 + b"a\nb\n", [sent]).data == codecs.BOM_UTF8 + b"x\ny\n"


def test_bytes_that_are_no_text_survive_beside_an_edit() -> None:
    data = codecs.BOM_UTF8 + b"a\n\xff\xfe\n"
    assert edit.apply(data, [edit.TextEdit("a", "b", 1)]).data == codecs.BOM_UTF8 + b"b\n\xff\xfe\n"


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        ("a\r\nb\nc\r\n", "a\nb\n", "A\nb\n", "A\r\nb\nc\r\n"),
        ("a\r\nb\nc\r\n", "a\nb\nc", "a\nnew\nb\nc", "a\r\nnew\nb\nc\r\n"),
        ("a\nb\r\nc\n", "b", "b1\nb2", "a\nb1\r\nb2\r\nc\n"),
        ("a\r\nb\nlast", "last", "x\ny", "a\r\nb\nx\ny"),
        ("a\r\nb\nc", "\nb\n", "\nB\n", "a\r\nB\nc"),
        ("a\r\nb\nc\r\n", "a\nb\nc\n", "a\nx\ny\nb\nc\n", "a\r\nx\ny\r\nb\nc\r\n"),
        ("a\r\nb\nc", "\nb", "X", "aX\nc"),
        ("x\r\nx\ny", "x\n", "z\n", None),
    ],
)
def test_with_mixed_line_ends_every_line_keeps_its_own(before: str, old: str, new: str, after: str | None) -> None:
    if after is None:
        assert edited(before, old, new, 2) == before.replace("x", "z")
    else:
        assert edited(before, old, new) == after


def test_half_of_a_line_end_is_no_match() -> None:
    assert "not found" in mismatch("a\r\nb\r\n", "a\r")


pieces = st.text(st.sampled_from("ab\n\r é"), min_size=1, max_size=6)


@settings(deadline=None)
@given(st.lists(pieces, max_size=8), pieces, st.text("xy\n", max_size=5), st.integers(0, 8))
def test_an_edit_of_a_file_with_one_kind_of_line_ends_is_a_plain_replacement(
    parts: list[str], old: str, new: str, at: int
) -> None:
    text = "".join([*parts[:at], old, *parts[at:]]).replace("\r", "")
    old = old.replace("\r", "")
    count = text.count(old) if old else 0
    if not count or old == new:
        return
    assert edited(text, old, new, count) == text.replace(old, new)
    if "\n" not in text:  # then nothing says which kind it is
        return
    crlf = text.replace("\n", "\r\n")
    assert edited(crlf, old, new, count) == text.replace(old, new).replace("\n", "\r\n")


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["\n", "\r\n"])), max_size=12), st.data())
def test_mixed_line_ends_outside_the_match_never_change(lines: list[tuple[str, str]], data: st.DataObject) -> None:
    text = "".join(line + end for line, end in lines)
    start = data.draw(st.integers(0, len(lines)))
    size = data.draw(st.integers(1, 3))
    old = "".join(f"{line}\n" for line, _ in lines[start : start + size])
    if not old:
        return
    plain = text.replace("\r\n", "\n")
    result = edited(text, old, "new\nlines\n", plain.count(old))
    assert result.replace("\r\n", "\n") == plain.replace(old, "new\nlines\n")
    first = plain.index(old)
    untouched = len(text) - len("".join(line + end for line, end in lines[plain.count("\n", 0, first) :]))
    assert result[:untouched] == text[:untouched]


def test_snippets_of_large_edits_stay_small() -> None:
    result = edit.apply(b"a" * 100_000 + b"HERE" + b"b" * 100_000, [edit.TextEdit("HERE", "c" * 50_000, 1)])
    assert "HERE" in result.before
    assert len(result.before) + len(result.after) < 2_000
    lines = "".join(f"line {i}\n" for i in range(5_000))
    assert len(edit.apply(lines.encode(), [edit.TextEdit(lines, "gone", 1)]).before.split("\n")) < 20


# What is refused


def test_arguments_without_a_meaning_are_refused() -> None:
    assert isinstance(refusal("a", ""), errors.BadArgs)
    assert isinstance(refusal("a", "a", "a"), errors.InvalidArgument)
    assert isinstance(refusal("a\n", "a\r\n", "a\n"), errors.InvalidArgument)
    assert isinstance(refusal("a", "a", "b", 0), errors.BadArgs)
    assert isinstance(refusal("a", "\ud800"), errors.BadArgs)
    assert isinstance(refusal("a", "a", "\udcff"), errors.BadArgs)


def test_binary_data_is_refused_with_a_hint() -> None:
    error = refusal(b"\x7fELF\x01\x00\x02\xff", "ELF")
    assert isinstance(error, errors.InvalidArgument)
    assert "ELF binary" in error.message
    assert error.hint


def test_a_character_that_the_file_cannot_hold_is_named() -> None:
    error = refusal("é and more".encode("latin-1"), "more", "5 €")
    assert isinstance(error, errors.BadArgs)
    assert "U+20AC" in error.message


def test_too_many_matches_are_listed_by_line() -> None:
    error = refusal("x\ny\nx\nz x\n", "x")
    assert "3 times, expected 1: lines 1, 3, 4" in error.message
    assert "expected_replacements=3" in (error.hint or "")
    many = mismatch("x\n" * 500, "x", expected=2)
    assert "lines 1, 2, 3" in many
    assert "and 480 more" in many


def test_too_few_matches_are_listed_too() -> None:
    assert "once, expected 2: line 2" in mismatch("a\nx\n", "x", expected=2)


def test_matches_in_mixed_line_ends_are_listed_too() -> None:
    assert "2 times, expected 1: lines 1, 3" in mismatch("x\r\ny\nx\r\ny\nz", "x\ny")


# What comes closest

PROGRAM = """\
def first(a):
\tif a:
\t\treturn a - 1


def second(b):
    print(\u201cx\u201d)
    return b\u0020\u0020\u0020

class Third:
    def long_method_name(self, value):
        return value * 2
"""


@pytest.mark.parametrize(
    ("old", "words"),
    [
        (
            "def first(a):\n    if a:\n        return a - 1\n",
            ["lines 1 to 3 when white space is ignored", "line 2, column 1: indentation: ",
             "old_text has 4 spaces, the file a tab", "old_text 2: ····if a:", "file 2: →if a:"],
        ),
        (
            'print("x")',
            ["line 7 when look-alike", "column 11", "U+0022 QUOTATION MARK", "U+201C LEFT DOUBLE QUOTATION MARK"],
        ),
        (
            "    return b\n\nclass",
            ["lines 8 to 10 when white space is ignored", "the file 3 spaces and a line break", "return b···"],
        ),
        (
            "    def long_method_nam(self, value):\n        return value * 3\n",
            ["Nearest: lines 11 to 12", "line 11, column 24", "file 12:         return value * 2"],
        ),
        ("def first(a):\\n\\tif a:", ["matches at line 1 when its backslash escapes"]),
        ("    10\tclass Third:\n    11\t    def long_method_name", ["line 10 when the line numbers"]),
        ("+class Third:\n+    def long", ["line 10 when the first character"]),
        ("return value * 2\n\n", ["line 12 when white space is ignored", "the file the end of the file"]),
        ("if (a &lt; b) &amp; c:", ["nothing in the file is like it"]),
    ],
)  # fmt: skip
def test_a_text_that_is_not_there_is_explained(old: str, words: list[str]) -> None:
    message = mismatch(PROGRAM, old)
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("text", "old", "words"),
    [
        ("a b\u00a0c\n", "a b c", "U+0020 SPACE, the file U+00A0 NO-BREAK SPACE"),
        ("x \u2013 y\n", "x - y", "- U+002D HYPHEN-MINUS, the file \u2013 U+2013 EN DASH"),
        ("x - y\n", "x \u2212 y", "U+2212 MINUS SIGN, the file - U+002D HYPHEN-MINUS"),
        ("cafe\u0301 x\n", "caf\u00e9 x", "look-alike"),
        ("one\ntwo\rthree\n", "two\nthree", "a line break, the file a carriage return (CR)"),
        ("x = 1", "x = 1\n", "a line break, the file the end of the file"),
        ("if a &lt; b:\n", "if a < b:", "written as entities"),
        ("if a < b:\n", "if a &lt; b:", "entities such as &lt; are read as characters"),
        ('print("a\\nb")\n', 'print("a\nb")', "the file has a backslash and a letter there"),
        ("zero\u200bwidth\n", "zerowidth", "U+200B ZERO WIDTH SPACE"),
        ("if a:\n        return 1\n", "if a:\n    return 1\n", "indentation: old_text has 4 spaces, the file 8 spaces"),
        ("", "x", "the file is empty"),
        (" \n", "x", "only white space"),
        ("a \n a\n", "a\na", "white space is ignored"),
    ],
)
def test_what_cannot_be_seen_is_named(text: str, old: str, words: str) -> None:
    assert words in mismatch(text, old)


def test_line_ends_are_no_difference() -> None:
    message = mismatch("one\r\ntwo words here\r\nthree\r\n", "one\ntwo words there\nthree\n")
    assert "line 2, column 11: old_text has “there”, the file “here”" in message
    assert "␍" not in message


@pytest.mark.parametrize("seed", range(8))
def test_the_nearest_block_is_the_one_that_was_damaged(seed: int) -> None:
    chance = random.Random(seed)
    lines = [f"{'    ' * (i % 3)}value_{chance.randrange(10**6)} = call({chance.randrange(100)})" for i in range(3_000)]
    at, size = chance.randrange(2_900), chance.randint(1, 60)
    wanted = lines[at : at + size]
    damaged = chance.randrange(size)
    wanted[damaged] = wanted[damaged].replace("call", "cal1")
    message = mismatch("\n".join(lines), "\n".join(wanted))
    assert f"First difference at line {at + damaged + 1}," in message
    assert "cal1(" in message
    assert "call(" in message


def test_a_long_line_is_shown_around_the_difference_only() -> None:
    text = ";".join(f"var name{i}={i * 7}" for i in range(20_000))
    message = mismatch(text, "var name9999=69993;var name10000=70001;var")
    assert "line 1, column" in message
    assert "70001" in message
    assert "70000" in message


def test_the_longest_explanation_is_still_short() -> None:
    text = "".join(f"{i} {'wide ' * 40} end\n" for i in range(50))
    assert "more of 51 lines differ" in mismatch(text, text.replace("end", "fin"))


@settings(deadline=None)
@given(
    st.text(st.sampled_from("ab \t\n\r\\ñ-“"), max_size=40),
    st.text(st.sampled_from("ab \t\n\\ñ-“"), min_size=1, max_size=20),
)
def test_every_miss_has_an_explanation(text: str, old: str) -> None:
    if old.replace("\r\n", "\n") not in text.replace("\r\n", "\n"):
        assert "not found" in mismatch(text, old)
