"""The definitions of a file as the index stores them: columns of small numbers and similar strings, compressed.

A row for each would take many times the space and serve no query: a name leads to files, and a file is read whole.
"""

import zlib
from collections.abc import Sequence

import msgspec

from .columns import steps, sums
from .types import Definition, Span

_BY_PARENT = "\0"  # stands for the parent's qualified name, a dot, and the name
_LEVEL = 6

_Columns = tuple[
    list[str], list[str], list[str], list[str], list[int], list[int], list[int], list[int], list[int]
]  # names, qualified names, kinds, signatures, parents, first lines, lines, starts, lengths
_decoder = msgspec.msgpack.Decoder(_Columns)


def pack(definitions: Sequence[Definition]) -> bytes:
    """Definitions as bytes; empty for none. Docstrings are read from the file when needed."""
    if not definitions:
        return b""
    spans = [one.span for one in definitions]
    columns: _Columns = (
        [one.name for one in definitions],
        [_short(one, definitions) for one in definitions],
        [one.kind for one in definitions],
        ["" if one.signature == one.name else one.signature for one in definitions],
        [one.parent for one in definitions],
        list(steps(span.first_line for span in spans)),
        [span.last_line - span.first_line for span in spans],
        list(steps(span.start for span in spans)),
        [span.end - span.start for span in spans],
    )
    return zlib.compress(msgspec.msgpack.encode(columns), _LEVEL)


def _short(one: Definition, definitions: Sequence[Definition]) -> str:
    if one.qualname == one.name:
        return ""
    above = definitions[one.parent].qualname if one.parent >= 0 else ""
    return _BY_PARENT if one.qualname == f"{above}.{one.name}" else one.qualname


def unpack(data: bytes) -> list[Definition]:
    """The definitions that `pack` stored; `doc` is empty."""
    if not data:
        return []
    names, qualnames, kinds, signatures, parents, *numbers = _decoder.decode(zlib.decompress(data))
    firsts, lines, starts, lengths = sums(numbers[0]), numbers[1], sums(numbers[2]), numbers[3]
    definitions: list[Definition] = []
    whole: dict[int, str] = {}

    def qualname(at: int) -> str:
        if at not in whole:
            short = qualnames[at]
            whole[at] = f"{qualname(parents[at])}.{names[at]}" if short == _BY_PARENT else short or names[at]
        return whole[at]

    for at, (first, count, start, length) in enumerate(zip(firsts, lines, starts, lengths, strict=True)):
        span = Span(first, first + count, start, start + length)
        signature = signatures[at] or names[at]
        definitions.append(
            Definition(
                name=names[at],
                qualname=qualname(at),
                kind=kinds[at],
                span=span,
                signature=signature,
                doc="",
                parent=parents[at],
            )
        )
    return definitions


def name_and_kind(data: bytes, place: int) -> tuple[str, str]:
    """The qualified name and the kind of one definition."""
    names, qualnames, kinds, _, parents, *_ = _decoder.decode(zlib.decompress(data))
    below: list[str] = []
    at = place
    while qualnames[at] == _BY_PARENT:
        below.append(names[at])
        at = parents[at]
    return ".".join([qualnames[at] or names[at], *reversed(below)]), kinds[place]
