"""The id of a message that is too long to keep: its sender waits for an answer.

The message is scanned as it comes, string by string and bracket by bracket, so that only an `id` of the message itself
counts, never one inside its params or inside a string. Some clients write it first, others last.
"""

import re

import msgspec

_AT_TOP = re.compile(rb'["{}\[\]:,]')
_BELOW = re.compile(rb'["{}\[\]]')
_OPENING = frozenset(b"{[")
_CLOSING = frozenset(b"}]")
_QUOTE, _COLON, _COMMA = b'":,'
_KEPT = 1_024  # bytes of a name or an id
_STEPS = 1_000_000  # brackets and quotes: about a second's work


class IdScanner:
    """Finds the id in the pieces of one message."""

    def __init__(self) -> None:
        self._depth = self._steps = 0
        self._in_string = self._escaped = False
        self._kept = b""  # of the name or the value that is being read, at the top
        self._name: bytes | None = None  # of the value
        self._id = b""

    def feed(self, piece: bytes) -> None:
        """Scan the next piece."""
        at = 0
        while at < len(piece) and self._steps < _STEPS:
            self._steps += 1
            at = self._scan_string(piece, at) if self._in_string else self._scan(piece, at)

    def found(self) -> object:
        """The id, whatever its type; None if there was none, or too much before it."""
        try:
            return msgspec.json.decode(self._id)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return None

    def _scan_string(self, piece: bytes, at: int) -> int:
        """From inside a string to its end, or to the end of the piece."""
        quote = piece.find(b'"', at)
        end = len(piece) if quote < 0 else quote
        backslashes = end - at - len(piece[at:end].rstrip(b"\\"))
        escapes = (backslashes + (self._escaped and backslashes == end - at)) % 2 == 1
        self._escaped = escapes and quote < 0
        self._in_string = escapes or quote < 0
        end += quote >= 0
        self._keep(piece[at:end])
        return end

    def _scan(self, piece: bytes, at: int) -> int:
        """To the next quote, bracket or, at the top, other mark."""
        mark = (_AT_TOP if self._depth <= 1 else _BELOW).search(piece, at)
        if mark is None:
            self._keep(piece[at:])
            return len(piece)
        end = mark.end()
        sign = piece[end - 1]
        self._keep(piece[at : end - 1])
        if sign == _QUOTE:
            self._in_string = True
            self._keep(b'"')
        elif sign in _OPENING:
            self._depth += 1
            self._kept = b"" if self._depth == 1 else self._kept
        elif sign in _CLOSING:
            self._end_of_value()
            self._depth -= 1
        elif sign == _COLON:
            self._name, self._kept = self._kept, b""
        elif sign == _COMMA:
            self._end_of_value()
        return end

    def _keep(self, text: bytes) -> None:
        if self._depth == 1 and len(self._kept) <= _KEPT:
            self._kept += text[: _KEPT + 1 - len(self._kept)]

    def _end_of_value(self) -> None:
        if self._depth == 1:
            if self._name is not None and _decoded(self._name) == "id":
                self._id = self._kept
            self._name, self._kept = None, b""


def _decoded(name: bytes) -> object:
    try:
        return msgspec.json.decode(name)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
