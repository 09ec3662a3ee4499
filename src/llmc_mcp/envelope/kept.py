"""Output that an earlier reply left out, read by its handle: as far as the budget goes, by chunks, or what matches."""

import json
import sys
import time
from typing import NamedTuple

from ..command_line import Arguments, Command, Flag, Positional, UsageError
from ..errors import NotFound
from ..files.handles import Handle, Handles
from ..tokens import estimate
from ..visible import visible
from .family import USED_UP, Budget, Room, clip, lines_of

HANDLE = Positional("ID", "a handle")
CHUNK = Flag("--chunk", "the Nth 100 lines; 0 and 1 are the first", "N")
GREP = Flag("--grep", "the lines that match a pattern, with their numbers", "PATTERN")

_CHUNK = 100  # lines
_LONGEST = 600  # bytes of a line that are shown


def asked_for(words: list[str]) -> Arguments:
    """The words after `te --handle` by their meaning."""
    given = Command("--handle", "", program="te", positionals=(HANDLE,), flags=(CHUNK, GREP)).parse(words)
    refuse_both(given)
    return given


def refuse_both(given: Arguments) -> None:
    """A chunk of what matches is not offered."""
    if CHUNK.name in given and GREP.name in given:
        raise UsageError("--chunk or --grep, not both")


class KeptPage(NamedTuple):
    """Some lines behind a handle, and how to go on."""

    handle: Handle
    counts: dict[str, int]
    lines: list[bytes]
    more: tuple[str, ...] = ()

    def body(self) -> bytes:
        """The lines."""
        return b"".join(line + b"\n" for line in self.lines)

    def text(self, *, on_terminal: bool = False) -> bytes:
        """Header, lines and pointers; a terminal gets no control characters."""
        body = self.body()
        meta = {"v": 1, "handle": self.handle.id, **self.counts, "body_lines": len(self.lines)}
        meta["tokens_estimate"] = estimate(body)
        if on_terminal:
            body = visible(body.decode("utf-8", "replace"), keep="\n\t").encode()
        header = f"# TE_BEGIN_META\n{json.dumps(meta, separators=(',', ':'))}\n# TE_END_META\n"
        return header.encode() + body + "".join(f"# TE: {crumb}\n" for crumb in self.more).encode()


def whole(handles: Handles, handle: Handle, budget: Budget) -> KeptPage:
    """All lines, or as many chunks as fit; where not even one does, its first lines."""
    counts = {"lines": handle.lines}
    if budget.used_up:
        return KeptPage(handle, counts, [], (USED_UP,))
    page = handles.lines(handle, 0, budget.tokens)  # a line costs a token at least
    lines = Room(budget).fill(clip(line, _LONGEST) for line in lines_of(page.data))
    if len(lines) == handle.lines:
        return KeptPage(handle, counts, lines)
    chunks = len(lines) // _CHUNK
    if not chunks:
        return KeptPage(handle, counts, lines, (f"these and the lines after them: {_go_on(handle, 1)}",))
    left = f"{handle.lines - chunks * _CHUNK:,} more lines: {_go_on(handle, chunks + 1)} or --grep PATTERN"
    return KeptPage(handle, counts, lines[: chunks * _CHUNK], (left,))


def chunk(handles: Handles, handle: Handle, number: int, budget: Budget) -> KeptPage:
    """A hundred lines, whatever they cost, if the reply has room for them; number 0 and 1 are the first."""
    number, chunks = max(number, 1), max(-(-handle.lines // _CHUNK), 1)
    if number > chunks:
        raise NotFound(f"{handle.id} has {chunks} chunks")
    counts = {"chunk": number, "chunks": chunks, "lines": handle.lines}
    if budget.used_up:
        return KeptPage(handle, counts, [], (USED_UP,))
    page = handles.lines(handle, (number - 1) * _CHUNK, _CHUNK)
    lines = [clip(line, _LONGEST) for line in lines_of(page.data)]
    fitting = Room(budget._replace(tokens=sys.maxsize)).fill(lines)
    more = [f"chunk {number + 1}: {_go_on(handle, number + 1)}"] if number < chunks else []
    if len(fitting) < len(lines):
        start = (number - 1) * _CHUNK + len(fitting)
        more.insert(0, f"{len(lines) - len(fitting)} lines of this chunk: linux_handle_read, from offset {start} on")
    return KeptPage(handle, counts, fitting, tuple(more))


def _go_on(handle: Handle, number: int) -> str:
    return f"te --handle {handle.id} --chunk {number}"


class Matches:
    """What grep finds behind a handle: as much as fits is shown, all of it is counted."""

    def __init__(self, budget: Budget) -> None:
        self._budget, self._room = budget, Room(budget)
        self._shown = list[bytes]()
        self._total, self._rest, self._full = 0, b"", budget.used_up

    def take(self, piece: bytes) -> None:
        """Add output of grep."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        self._total += len(lines)
        for line in lines:
            self._full = self._full or not self._room.take(clip(line, _LONGEST))
            if self._full:
                return
            self._shown.append(clip(line, _LONGEST))

    def page(self, handle: Handle) -> KeptPage:
        """The lines that match, with their numbers."""
        left = self._total - len(self._shown)
        more = (USED_UP,) if self._budget.used_up else (f"{left:,} more lines match",) if left else ()
        return KeptPage(handle, {"matches": self._total, "lines": handle.lines}, self._shown, more)


def listed(handle: Handle) -> dict[str, str | int]:
    """A handle in a list of them."""
    source = handle.meta.get("command") or handle.meta.get("path") or handle.meta.get("root") or ""
    made = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(handle.created_at))
    row = {"handle": handle.id, "kind": handle.kind, "source": source, "lines": handle.lines}
    return {**row, "bytes": handle.size, "created_iso": made}


def line_of(handle: Handle) -> str:
    """The same as a line."""
    row = listed(handle)
    size = f"{handle.lines:>8,} lines  {handle.size:>12,} bytes"
    return f"{handle.id}  {row['created_iso']}  {size}  {handle.kind} {row['source']}"
