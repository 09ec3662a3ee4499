"""Terminal text: however it is cut into pieces, the same comes out, and never more than went in allows."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from llmc_mcp.commands.terminal import Screen, keystrokes, python_block

from . import examples

FRAGMENTS = st.sampled_from(
    [
        b"\x1b",
        b"[",
        b"]",
        b"\x1b[",
        b"\x1b]0;",
        b"\x1bP",
        b"\x1b\\",
        b"\x07",
        b"\x9c",
        b"\x18",
        b"1;31m",
        b"\x1b[5C",
        b"\x1b[2;3H",
        b"\x1b(B",
        b"\r",
        b"\n",
        b"\r\n",
        b"\x08",
        b"\x08\x08",
        b"abc",
        b"\xc3",
        b"\xa9",
        b"\xf0\x9f\x98\x80",
        b"\xcc\x81",
        b"\x00",
        b"\t",
        b"x" * 4090,
        b"\x1b[" + b"0" * 4093,
        b"\x1b]" + b"t" * 4095,
        b"\xc2\x9b",
    ]
)
STREAMS = st.lists(FRAGMENTS | st.binary(max_size=6), max_size=24).map(b"".join)
CUTS = st.lists(st.integers(0, 20_000), max_size=12)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    at = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(at)]


@examples(600, a_second=400)
@given(data=STREAMS, cuts=CUTS)
def test_c23_text_is_the_same_however_it_is_cut(data: bytes, cuts: list[int]) -> None:
    screen = Screen()
    for piece in pieces(data, cuts):
        screen.feed(piece)
    assert screen.take(b"", final=True) == Screen().take(data, final=True)


@examples(300, a_second=400)
@given(data=STREAMS, cuts=CUTS)
def test_c23_what_does_not_go_back_is_the_same_when_it_is_given_out_piece_by_piece(
    data: bytes, cuts: list[int]
) -> None:
    data = data.replace(b"\r", b"").replace(b"\b", b"")
    screen = Screen()
    said = "".join([screen.take(piece) for piece in pieces(data, cuts)]) + screen.take(b"", final=True)
    assert said == Screen().take(data, final=True)


@examples(300, a_second=400)
@given(data=STREAMS)
def test_c23_nothing_of_the_controls_is_left_and_the_rest_is_bounded(data: bytes) -> None:
    text = Screen().take(data, final=True)
    assert not any((letter < " " and letter not in "\n\t") or "\x7f" <= letter <= "\x9f" for letter in text)
    assert len(text) <= len(data) * 80


@examples(500, a_second=1_000)
@given(text=st.text(max_size=60))
def test_c20_anything_can_be_typed(text: str) -> None:
    assert keystrokes(text)
    assert python_block(text + "\n").endswith("\n")
