"""The definitions of a file as the index stores them: columns of small numbers and similar strings, compressed.

A row for each would take many times the space and serve no query: a name leads to files, and a file is read whole. A
generated file has thousands of definitions, and a search shows some of them: `StoredOutline` keeps the columns as they
are stored, and makes a definition of them when somebody asks for it.
"""

import zlib
from collections.abc import Collection, Sequence
from functools import cached_property
from operator import add

import msgspec

from .columns import steps, sums
from .scopes import CLASSES, FUNCTIONS
from .types import Definition, Span

_BY_PARENT = "\0"  # stands for the parent's qualified name, a dot, and the name
_LEVEL = 6

# names, qualified names, kinds, signatures as a list of their own, parents, first lines, lines, starts, lengths
_Columns = tuple[list[str], list[str], list[str], msgspec.Raw, list[int], list[int], list[int], list[int], list[int]]
_decoder = msgspec.msgpack.Decoder(_Columns)
_signatures = msgspec.msgpack.Decoder(list[str])
_NOTHING: _Columns = ([], [], [], msgspec.Raw(msgspec.msgpack.encode([])), [], [], [], [], [])
_CODE = CLASSES | FUNCTIONS


def pack(definitions: Sequence[Definition]) -> bytes:
    """Definitions as bytes; empty for none. Docstrings are read from the file when needed."""
    if not definitions:
        return b""
    spans = [one.span for one in definitions]
    signatures = ["" if one.signature == one.name else one.signature for one in definitions]
    columns: _Columns = (
        [one.name for one in definitions],
        [_short(one, definitions) for one in definitions],
        [one.kind for one in definitions],
        msgspec.Raw(msgspec.msgpack.encode(signatures)),
        [one.parent for one in definitions],
        steps([span.first_line for span in spans]),
        [span.last_line - span.first_line for span in spans],
        steps([span.start for span in spans]),
        [span.end - span.start for span in spans],
    )
    return zlib.compress(msgspec.msgpack.encode(columns), _LEVEL)


def _short(one: Definition, definitions: Sequence[Definition]) -> str:
    if one.qualname == one.name:
        return ""
    above = definitions[one.parent].qualname if one.parent >= 0 else ""
    return _BY_PARENT if one.qualname == f"{above}.{one.name}" else one.qualname


def unpack(data: bytes) -> list[Definition]:
    """The definitions that `pack` stored."""
    stored = StoredOutline(data)
    return [stored[at] for at in range(len(stored))]


CodeLines = tuple[int, str, int, int]  # a function or a type: its place and kind, its first line and its last one


class StoredOutline:
    """The definitions that `outline.pack` stored."""

    def __init__(self, data: bytes) -> None:
        columns = _decoder.decode(zlib.decompress(data)) if data else _NOTHING
        self._names, self._qualnames, self._kinds, self._packed, self._parents, *numbers = columns
        firsts, lines, starts, self._lengths = numbers
        self._firsts, self._starts = list(sums(firsts)), list(sums(starts))
        self._lasts = list(map(add, self._firsts, lines))

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, at: int) -> Definition:
        start = self._starts[at]
        return Definition(
            name=self._names[at],
            qualname=self.qualname(at),
            kind=self._kinds[at],
            span=Span(self._firsts[at], self._lasts[at], start, start + self._lengths[at]),
            signature=self._all_signatures[at] or self._names[at],
            parent=self._parents[at],
        )

    @cached_property
    def _all_signatures(self) -> list[str]:
        return _signatures.decode(self._packed)

    def name(self, at: int) -> str:
        """The name of a definition."""
        return self._names[at]

    def qualname(self, at: int) -> str:
        """The name of a definition with its owners."""
        below: list[str] = []
        while self._qualnames[at] == _BY_PARENT:
            below.append(self._names[at])
            at = self._parents[at]
        return ".".join([self._qualnames[at] or self._names[at], *reversed(below)])

    def kind(self, at: int) -> str:
        """What a definition is."""
        return self._kinds[at]

    def is_type(self, at: int) -> bool:
        """Whether a definition is a type, or holds definitions as one does."""
        return self._kinds[at] in CLASSES

    @cached_property
    def code(self) -> list[CodeLines]:
        """The functions and types, in the order of the file; constants, keys and sections are none."""
        rows = zip(range(len(self)), self._kinds, self._firsts, self._lasts, strict=True)
        return [row for row in rows if row[1] in _CODE]

    def parts(self, owners: Collection[int]) -> dict[int, list[Span]]:
        """Where the definitions directly inside each of these lie, in the order of the file."""
        found: dict[int, list[Span]] = {at: [] for at in owners}
        if found:
            for at in [at for at, parent in enumerate(self._parents) if parent in found]:
                start = self._starts[at]
                span = Span(self._firsts[at], self._lasts[at], start, start + self._lengths[at])
                found[self._parents[at]].append(span)
        return found
