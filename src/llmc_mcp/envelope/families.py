"""What `te` makes of a command's output: ranked, grouped, and cut to a budget of tokens.

The real command runs with its real flags. A family (`grep.py` …) knows what some commands print: it takes
the lines as they come, in bounded memory, and at the end shows as much as fits, in steps: all, grouped, counts.
What no family understands is not touched: other commands, flags that change the format, binary output.
"""

import os
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from ..tokens import estimate
from .family import Budget, FamilyPlan, ShownOutput, lines_of
from .programs import FAMILY_OF

if TYPE_CHECKING:
    from ..files.handles import Sink

_HELD = 1 << 20  # bytes of output that stay in memory; the rest goes to disk
_LOOKED_AT = 64 << 20  # bytes that a family sees; of what follows only the lines are counted
_LINE = 64 << 10  # bytes of one line that a family sees
_SMALLEST = 200  # tokens: enough to say how much there is and where
_SHARE = 10  # one command gets a tenth of what the session has left
_AROUND = 110  # tokens of the header and of the handle's line


def recognise(argv: list[str]) -> FamilyPlan | None:
    """A plan for a command whose output is understood; None for all others."""
    module = FAMILY_OF.get(os.path.basename(argv[0]))
    return import_module(f".{module}", __package__).plan(argv) if module else None


def share_of(session_budget: int, used: int, most: int) -> tuple[int, int]:
    """What one command may cost, and what its session has left: the less is left, the smaller the replies."""
    left = max(session_budget - used, 0)
    return min(max(left // _SHARE, _SMALLEST), most), left


class CondensedOutput(NamedTuple):
    """The outcome: what to print, and what it saves."""

    shown: ShownOutput
    handle: str | None
    raw_bytes: int
    raw_tokens: int

    def body(self) -> bytes:
        """The lines that are shown, and where the rest is."""
        crumbs = [f"# TE: {crumb}".encode() for crumb in self.shown.crumbs]
        return b"".join(line + b"\n" for line in (*self.shown.lines, *crumbs))


class Envelope:
    """Takes a command's output piece by piece and gives its family the lines."""

    def __init__(self, plan: FamilyPlan, open_sink: "Callable[[], Sink | None]") -> None:
        self._plan, self._open_sink = plan, open_sink
        self._sink: Sink | None = None
        self._held = bytearray()
        self._rest = b""
        self._total = self._unseen = 0
        self.binary = False
        self.failure: Exception | None = None

    @property
    def held(self) -> bytes | None:
        """All of the output so far, where that is in memory."""
        return bytes(self._held) if self._total == len(self._held) else None

    def feed(self, piece: bytes) -> None:
        """More output. Never raises: what goes wrong with it is kept in `failure`."""
        self._keep(piece)
        if self.binary or self.failure is not None:
            return
        try:
            if self._total <= _LOOKED_AT:
                self._plan.family.take(self._split(piece))
            else:
                self._unseen += piece.count(b"\n")
                self._plan.family.skip(piece.count(b"\n"))
        except Exception as exc:  # noqa: BLE001 - a mistake in here must not cost the user his command
            self.failure = exc

    def _keep(self, piece: bytes) -> None:
        plain = self._plan.plain(piece)
        if not self._plan.any_bytes and self._total < _HELD and b"\0" in piece:
            self.binary = True
        self._total += len(piece)
        if self._total <= _HELD:
            self._held += plain
        elif self._sink is None and self._total - len(piece) <= _HELD:
            self._sink = self._open_sink()
            if self._sink is not None:
                self._sink.write(bytes(self._held))
        if self._sink is not None:
            self._sink.write(plain)

    def _split(self, piece: bytes) -> list[bytes]:
        lines = (self._rest + piece).split(b"\n") if len(self._rest) < _LINE else piece.split(b"\n")
        if len(self._rest) >= _LINE:  # the rest of a line whose beginning is long enough
            lines[0] = self._rest + lines[0] if len(lines) == 1 else self._rest
        self._rest = lines.pop()[:_LINE]
        return lines

    def finish(self, budget: Budget) -> CondensedOutput | None:
        """What to show; None when nothing can be, and the output should be given as it is."""
        if self.binary or self.failure is not None:
            return None
        inner = Budget(max(budget.tokens - _AROUND, budget.tokens // 2), budget.bytes - 4 * _AROUND)
        try:
            if self._rest:
                self._plan.family.take([self._rest])
            shown = self._plan.family.show(self.held, inner)
        except Exception as exc:  # noqa: BLE001 - as above
            self.failure = exc
            return None
        return self._enriched(shown)

    def as_it_is(self, budget: Budget) -> CondensedOutput:
        """The beginning and the end, for a reply that has no room for an output that nobody understands."""
        from .text import Ends

        ends = Ends()
        ends.take(lines_of(bytes(self._held)))
        return self._enriched(ends.show(self.held, budget))

    def _enriched(self, shown: ShownOutput) -> CondensedOutput:
        raw = estimate(bytes(self._held)) * self._total // max(len(self._held), 1)
        if self._unseen:
            crumb = f"{self._unseen:,} lines after the first {_LOOKED_AT >> 20} MB were not looked at"
            shown = shown._replace(cut=True, crumbs=(*shown.crumbs, crumb))
        return CondensedOutput(shown, self.keep() if shown.cut else self.drop(), self._total, raw)

    def keep(self) -> str | None:
        """A handle on all of the output."""
        if self._sink is None and self._total:
            self._sink = self._open_sink()
            if self._sink is not None:
                self._sink.write(bytes(self._held))
        sink, self._sink = self._sink, None
        return (sink.finish() or None) if sink is not None else None

    def drop(self) -> None:
        """Nobody needs the whole."""
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.discard()
