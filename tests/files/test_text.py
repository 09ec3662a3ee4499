"""Slices of text and the text form of names, against the simplest code that could give the same."""

import codecs
import os
import string
from functools import partial
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc_mcp.errors import BadArgs
from llmc_mcp.files import names, slices

ROOMY = slices.SliceLimits(slice_bytes=1 << 20, line_bytes=1 << 16, count_bytes=1 << 30)

lines_of_text = st.lists(st.text(st.sampled_from("ab é€😀\t\r"), max_size=12) | st.just(""), max_size=30)


def whole(lines: list[str], end: str) -> str:
    return "\n".join(lines) + end


content = st.builds(whole, lines_of_text, st.sampled_from(["", "\n"]))
encodings = st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "latin-1"])


def slice_of(
    data: bytes,
    encoding: str,
    offset: int,
    max_lines: int,
    limits: slices.SliceLimits = ROOMY,
    chunk: int = 1 << 18,
    known_total: int | None = None,
) -> slices.Slice:
    fd = os.memfd_create("slice")
    try:
        os.write(fd, data)
        with mock.patch.object(slices, "_CHUNK", chunk):
            return slices.read_slice(
                partial(os.pread, fd), len(data), encoding, offset, max_lines, limits, lambda: None, known_total
            )
    finally:
        os.close(fd)


def split(whole: str) -> list[str]:
    """Lines with their ends, as `read_slice` understands a line."""
    lines = [f"{line}\n" for line in whole.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


@given(content, encodings, st.integers(-40, 40), st.integers(1, 40), st.integers(1, 9))
def test_a_slice_is_the_same_lines_that_reading_everything_gives(
    whole: str, encoding: str, offset: int, max_lines: int, chunk: int
) -> None:
    if encoding == "latin-1":
        whole = whole.encode("latin-1", "ignore").decode("latin-1")
    codec = "utf-16-be" if encoding == "utf-16-be" else encoding
    lines = split(whole)
    first = offset if offset >= 0 else max(len(lines) + offset, 0)
    wanted = lines[first : first + max_lines]

    got = slice_of(whole.encode(codec), encoding, offset, max_lines, chunk=chunk)

    assert got == slice_of(whole.encode(codec), encoding, offset, max_lines, chunk=chunk, known_total=len(lines))
    assert got.text == "".join(wanted)
    assert (got.lines, got.total, got.total_exact) == (len(wanted), len(lines), True)
    assert got.complete == (first + max_lines >= len(lines))
    if wanted:
        assert got.first == first


@given(st.binary(max_size=200), st.integers(0, 30), st.integers(1, 30), st.integers(1, 9))
def test_bytes_that_are_no_utf8_never_break_a_line_count(data: bytes, offset: int, max_lines: int, chunk: int) -> None:
    raw = [line + b"\n" for line in data.split(b"\n")]
    raw[-1] = raw[-1][:-1]
    lines = raw if raw[-1] else raw[:-1]
    got = slice_of(data, "utf-8", offset, max_lines, chunk=chunk)
    assert got.text == b"".join(lines[offset : offset + max_lines]).decode("utf-8", "replace")
    assert got.total == len(lines)


@given(content, st.integers(1, 40), st.integers(1, 20), st.integers(1, 9))
def test_following_the_slices_gives_the_whole_file(whole: str, slice_bytes: int, max_lines: int, chunk: int) -> None:
    limits = ROOMY._replace(slice_bytes=slice_bytes)
    data, offset, parts = whole.encode(), 0, ""
    for _ in range(len(data) + 1):
        got = slice_of(data, "utf-8", offset, max_lines, limits, chunk)
        parts += got.text
        offset += got.lines
        if got.complete:
            break
    assert parts == whole


@given(st.integers(0, 60), st.integers(1, 9), encodings)
def test_a_line_over_the_limit_is_cut_at_a_character_and_says_its_size(length: int, chunk: int, encoding: str) -> None:
    line = "é" * length
    real = len(line.encode("latin-1" if encoding == "latin-1" else "utf-8")) + 1
    got = slice_of(f"{line}\nnext\n".encode(encoding), encoding, 0, 10, ROOMY._replace(line_bytes=20), chunk)
    first, second, end = got.text.split("\n")
    assert (second, end, got.lines, got.total) == ("next", "", 2, 2)
    if real <= 20:
        assert first == line
        assert got.long_lines == {}
    else:
        head, mark = first.split(" ...")
        assert mark == f"[line cut, {real:,} bytes]"
        assert set(head) == {"é"}
        assert got.long_lines == {1: real}


def test_past_the_counting_limit_the_total_is_an_estimate_and_says_so() -> None:
    data = b"0123456789\n" * 1000
    limits = ROOMY._replace(count_bytes=100)
    got = slice_of(data, "utf-8", 10, 5, limits, chunk=110)
    assert (got.text, got.first, got.complete) == ("0123456789\n" * 5, 10, False)
    assert (got.total, got.total_exact) == (1000, False)


def test_past_the_counting_limit_the_last_lines_are_still_the_last_lines() -> None:
    data = b"".join(b"%09d\n" % n for n in range(1000))
    got = slice_of(data, "utf-8", -3, 10, ROOMY._replace(count_bytes=100), chunk=64)
    assert got.text == "000000997\n000000998\n000000999\n"
    assert got.complete
    assert got.total_exact is False


def test_a_total_that_was_reached_anyway_is_exact_past_the_counting_limit() -> None:
    got = slice_of(b"a\nb\nc", "utf-8", 0, 10, ROOMY._replace(count_bytes=1), chunk=2)
    assert (got.total, got.total_exact, got.complete) == (3, True, True)


def test_a_long_scan_asks_whether_it_is_still_wanted() -> None:
    class Unwanted(Exception):
        pass

    def check() -> None:
        raise Unwanted

    fd = os.memfd_create("scan")
    try:
        os.write(fd, b"x\n" * 10)
        with pytest.raises(Unwanted):
            slices.read_slice(partial(os.pread, fd), 20, "utf-8", 5, 1, ROOMY, check)
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    ("head", "encoding"),
    [
        (b"", "utf-8"),
        (b"plain\n", "utf-8"),
        ("naïve €".encode(), "utf-8"),
        (codecs.BOM_UTF8 + b"x", "utf-8-sig"),
        ("wide".encode("utf-16"), "utf-16"),
        ("wide text".encode("utf-16-le"), "utf-16-le"),
        ("wide text".encode("utf-16-be"), "utf-16-be"),
        ("wide ąę text".encode("utf-16-le"), "utf-16-le"),
        (b"caf\xe9\n", "latin-1"),
        (b"\x1b[31mred\x1b[0m\n", "utf-8"),
        (b"\x00\x01\x02\x03", None),
        (b"\x89PNG\r\n\x1a\n\x00\x00", None),
        (b"\xff\xfa\x01\x02", None),
    ],
)
def test_the_encoding_is_told_from_the_start_of_a_file(head: bytes, encoding: str | None) -> None:
    assert slices.encoding_of(head, whole=True) == encoding


def test_a_character_split_by_the_end_of_the_head_is_no_reason_to_doubt_utf8() -> None:
    assert slices.encoding_of("é".encode()[:1], whole=False) == "utf-8"
    assert slices.encoding_of("é".encode()[:1], whole=True) == "latin-1"


# --- names -------------------------------------------------------------------------------------------

name_bytes = st.binary(min_size=1, max_size=60).filter(lambda raw: b"\0" not in raw)
tricky = st.lists(
    st.sampled_from([b"\\", b"\\x", b"x5c", b"5c", b"\\x5c", b"\n", b"\xc2\x9b", b"\xe2\x80\xae", b"\xff", b"a", b"/"]),
    min_size=1,
    max_size=12,
).map(b"".join)


@given(name_bytes | tricky)
def test_a_shown_name_stands_for_exactly_one_file(raw: bytes) -> None:
    assert names.parse(names.show(raw)) == raw


@given(name_bytes | tricky)
def test_a_shown_name_holds_nothing_that_a_terminal_or_a_listing_obeys(raw: bytes) -> None:
    shown = names.show(raw)
    shown.encode("utf-8")
    assert len(shown.splitlines()) == 1
    assert not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 or 0x202A <= ord(c) <= 0x202E for c in shown)


@given(st.text(string.ascii_letters + string.digits + "éü€漢 ._-+%$'\"\\", min_size=1, max_size=40))
def test_ordinary_names_are_shown_as_they_are(name: str) -> None:
    if "\\x" not in name:
        assert names.show(name.encode()) == name
        assert names.parse(name) == name.encode()


@pytest.mark.parametrize(
    "path", ["", "a\0b", "a\\x00b", "\ud800", "n" * 256, "/".join(["d" * 200] * 21)], ids=lambda path: repr(path)[:20]
)
def test_what_can_be_no_path_is_a_bad_argument(path: str) -> None:
    with pytest.raises(BadArgs):
        names.parse(path)


def test_the_longest_name_and_path_are_accepted() -> None:
    assert names.parse("n" * 255) == b"n" * 255
    assert len(names.parse("/".join(["d" * 255] * 15))) == 15 * 256 - 1
