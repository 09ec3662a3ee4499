"""Split a file into chunks: whole definitions if they are small, else parts of them.

Every line that is not blank lies in exactly one chunk, and a chunk ends at the end of a line, unless that line alone is
gigantic. A chunk belongs to the innermost definition that holds all of it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from .types import Chunk, Definition, Span, line_starts

TARGET_BYTES = 2_000  # no piece of more than one line is larger
TARGET_LINES = 60
TINY_BYTES = 500  # a smaller piece is joined to its neighbour if both together fit the target
GIGANTIC_LINE = 8_000  # a longer line is split itself


class _Piece(NamedTuple):
    """Lines [first, last), counted from 0, the definition that they belong to, and the one that was cut for them."""

    first: int
    last: int
    definition: int
    home: int


def chunks(source: bytes, definitions: list[Definition]) -> list[Chunk]:
    """The chunks of a file, in order."""
    text = _Text(source)
    if not text.count:
        return []
    inside: list[list[int]] = [[] for _ in range(len(definitions) + 1)]  # the last list is the file's own
    for index, definition in enumerate(definitions):
        inside[definition.parent].append(index)
    pieces = _merged(text, list(_pieces(text, definitions, inside)), definitions)
    return [chunk for piece in pieces for chunk in text.chunks_of(piece)]


def _pieces(text: "_Text", definitions: list[Definition], inside: list[list[int]]) -> Iterator[_Piece]:
    """Each small definition, and the text between and around them. Uses a stack, as nesting is unbounded."""
    open_parts: list[tuple[int, int, int, Iterator[int]]] = [(0, text.count, -1, iter(inside[-1]))]
    while open_parts:
        at, end, owner, children = open_parts.pop()
        for child in children:
            span = definitions[child].span
            first, last = max(at, span.first_line - 1), min(end, span.last_line)
            if first >= last:
                continue  # it shares its lines with the one before
            yield from text.split(at, first, owner, owner)
            at = last
            if text.fits(first, last):
                yield from text.split(first, last, child, owner)
            elif not inside[child]:
                yield from text.split(first, last, child, child)
            else:
                open_parts.append((at, end, owner, children))
                open_parts.append((first, last, child, iter(inside[child])))
                break
        else:
            yield from text.split(at, end, owner, owner)


def _merged(text: "_Text", pieces: list[_Piece], definitions: list[Definition]) -> list[_Piece]:
    merged: list[_Piece] = []
    for piece in pieces:
        joined = piece
        while merged and text.may_join(merged[-1], joined):
            before = merged.pop()
            around = _around(before.definition, joined.definition, definitions)
            joined = _Piece(before.first, joined.last, around, joined.home)
        merged.append(joined)
    return merged


def _around(one: int, other: int, definitions: list[Definition]) -> int:
    """The innermost definition that contains both. Parents have smaller numbers than their children."""
    while one != other:
        if one > other:
            one = definitions[one].parent
        else:
            other = definitions[other].parent
    return one


class _Text:
    """The lines of a file, and where to cut between them."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self._starts = line_starts(source)
        self.count = len(self._starts) - 1
        self._starts[-1] = len(source)
        self._indents = _indents(source)

    def fits(self, first: int, last: int) -> bool:
        return last - first <= TARGET_LINES and self._size(first, last) <= TARGET_BYTES

    def may_join(self, one: _Piece, other: _Piece) -> bool:
        if one.home != other.home or not self.fits(one.first, other.last):
            return False  # parts of different functions are not joined
        return self._size(one.first, one.last) < TINY_BYTES or self._size(other.first, other.last) < TINY_BYTES

    def split(self, first: int, last: int, definition: int, home: int) -> Iterator[_Piece]:
        """Split lines into pieces that fit, without blank lines at their ends."""
        while True:
            while first < last and self._indents[first] < 0:
                first += 1
            while first < last and self._indents[last - 1] < 0:
                last -= 1
            if first >= last:
                return
            if self.fits(first, last):
                yield _Piece(first, last, definition, home)
                return
            cut = self._best_cut(first, last)
            yield _Piece(first, cut, definition, home)
            first = cut

    def _best_cut(self, first: int, last: int) -> int:
        """The least nested line, preferably after a blank one, in the second half of what still fits."""
        end = first + 1
        while end < last and self.fits(first, end + 1):
            end += 1
        if end >= last or end == first + 1:
            return end
        best, best_cost = end, 1_000_000
        for line in range(max(first + 1, first + (end - first) // 2), end + 1):
            indent = self._indents[line]
            if indent < 0:
                continue
            cost = 4 * indent - (6 if self._indents[line - 1] < 0 else 0)
            if cost <= best_cost:
                best, best_cost = line, cost
        return best

    def chunks_of(self, piece: _Piece) -> Iterator[Chunk]:
        first, last, definition, _ = piece
        while last > first + 1 and self._indents[last - 1] < 0:
            last -= 1
        start, end = self._starts[first], self._starts[last]
        if last - first > 1 or end - start <= GIGANTIC_LINE:
            yield Chunk(Span(first + 1, last, start, end), definition)
            return
        while start < end:
            cut = self._cut_in_line(start, end)
            yield Chunk(Span(first + 1, last, start, cut), definition)
            start = cut

    def _cut_in_line(self, start: int, end: int) -> int:
        if end - start <= TARGET_BYTES:
            return end
        cut = start + TARGET_BYTES
        for mark in (b";", b"}", b",", b" "):
            at = self.source.rfind(mark, start + TARGET_BYTES // 2, cut)
            if at >= 0:
                return at + 1
        while cut > start + 1 and self.source[cut] & 0xC0 == 0x80:
            cut -= 1  # not inside a character
        return cut

    def _size(self, first: int, last: int) -> int:
        return self._starts[last] - self._starts[first]


def _indents(source: bytes) -> list[int]:
    """The indentation of each line, -1 for a blank one."""
    return [len(line) - len(bare) if (bare := line.lstrip()) else -1 for line in source.split(b"\n")]
