"""Condensing a command's output: ranked, grouped, and cut to a budget of tokens.

The real command runs with its real flags. A family (`grep.py` …) understands the output of some commands: it consumes
the lines in bounded memory and finally shows as much as fits: everything, groups, or counts. Output that no family
understands (other commands, flags that change the format, binary data) is not touched.
"""

import os
import re
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from ..tokens import estimate
from .family import USED_UP, Budget, FamilyPlan, ShownOutput, fits, lines_of
from .programs import FAMILY_OF, is_script

if TYPE_CHECKING:
    from ..config.schema import Te
    from ..files.handles import Sink

_HELD = 1 << 20  # bytes of output in memory; the rest goes to disk
_LOOKED_AT = 64 << 20  # bytes that a family parses; after that, only lines are counted
_LINE = 64 << 10  # bytes of one line that a family sees
_SMALLEST = 200  # tokens: enough for counts and places
_SHARE = 10  # one command gets a tenth of the session's remaining budget
_AROUND = 110  # tokens of the header and the handle's line
WHOLE_TOKENS = 1_420  # by the estimate, whose error is about a tenth: nothing is cut from an output under 1,200 tokens
CONDENSED_TOKENS = 1_200  # of an output that is cut and was not asked for line by line
_RUNS = re.compile(rb"([-=_.~*# ])\1{7,}")
_OF_LONGER = 3  # of a long output a third, as far as the budget goes
_OUR_MARK = b"# TE"  # of the header and the pointers; only behind a header are such lines known as the command's


def recognise(argv: list[str]) -> FamilyPlan | None:
    """A plan for a command whose output a family understands, else None."""
    module = FAMILY_OF.get(os.path.basename(argv[0])) or ("scripts" if is_script(argv[0]) else None)
    plan: FamilyPlan | None = import_module(f".{module}", __package__).plan(argv) if module else None
    return plan._replace(kind=plan.kind or str(module)) if plan is not None else None


def share_of(session_budget: int, used: int, most: int) -> tuple[int, int]:
    """The token budget of one command, and what its session has left: the less is left, the smaller the replies."""
    left = max(session_budget - used, 0)
    return min(max(left // _SHARE, _SMALLEST), most), left


def budget_of(settings: "Te", whole: int, used: int, most_bytes: int = 1 << 20) -> tuple[Budget, int]:
    """The budget of one command, and what its session has left of `whole` after `used` tokens."""
    tokens, left = share_of(whole, used, settings.reply_tokens)
    return Budget(tokens, most_bytes, settings.hard_budget and not left), left


def _squeezed(data: bytes) -> bytes:
    """A text with rules and rows of dots made short: they are few tokens, and many for the estimate."""
    return _RUNS.sub(rb"\1\1", data)


class CondensedOutput(NamedTuple):
    """The condensed output, the handle of the original, and its size in tokens."""

    shown: ShownOutput
    handle: str | None
    raw_tokens: int
    unchanged: bytes | None = None  # a short output as the command prints it

    def body(self) -> bytes:
        """The shown lines, followed by pointers to the rest."""
        if self.unchanged is not None:
            return self.unchanged
        crumbs = [f"# TE: {crumb}".encode() for crumb in self.shown.crumbs]
        return b"".join(line + b"\n" for line in (*self.shown.lines, *crumbs))


class Envelope:
    """Consumes a command's output piece by piece and feeds its family whole lines."""

    def __init__(self, plan: FamilyPlan, open_sink: "Callable[[], Sink | None]", *, unchanged_tokens: int = 0) -> None:
        self._plan, self._open_sink, self._unchanged_tokens = plan, open_sink, unchanged_tokens
        self._sink: Sink | None = None
        self._held = bytearray()
        self._rest = b""
        self._total = self._unseen = 0
        self.binary = False
        self.failure: Exception | None = None

    @property
    def held(self) -> bytes | None:
        """All output so far, or None if it no longer fits in memory."""
        return self._plan.plain(bytes(self._held)) if self._total == len(self._held) else None

    def feed(self, piece: bytes) -> None:
        """Add output. Never raises: an exception is kept in `failure`."""
        self._keep(piece)
        if self.binary or self.failure is not None:
            return
        try:
            if self._total <= _LOOKED_AT:
                self._plan.family.take(self._split(piece))
            else:
                self._unseen += piece.count(b"\n")
                self._plan.family.skip(piece.count(b"\n"))
        except Exception as exc:  # noqa: BLE001 - a bug in a family must not break the command
            self.failure = exc

    def _keep(self, piece: bytes) -> None:
        if not self._plan.any_bytes and self._total < _HELD and b"\0" in piece:
            self.binary = True
        self._total += len(piece)
        if self._total <= _HELD:
            self._held += piece
        elif self._sink is None and self._total - len(piece) <= _HELD:
            self._sink = self._open_sink()
            if self._sink is not None:
                self._sink.write(self._plan.plain(bytes(self._held)))
        if self._sink is not None:
            self._sink.write(self._plan.plain(piece))

    def _split(self, piece: bytes) -> list[bytes]:
        lines = (self._rest + piece).split(b"\n") if len(self._rest) < _LINE else piece.split(b"\n")
        if len(self._rest) >= _LINE:  # the continuation of an overlong line
            lines[0] = self._rest + lines[0] if len(lines) == 1 else self._rest
        self._rest = lines.pop()[:_LINE]
        return lines

    def finish(self, budget: Budget) -> CondensedOutput | None:
        """The condensed output; None if the output must be passed on as it is."""
        if self.binary or self.failure is not None:
            return None
        try:
            if self._rest:
                self._plan.family.take([self._rest])
            whole = None if budget.used_up else self._whole(budget)
            shown = self._plan.family.show(self.held, self._inner(budget, whole))
        except Exception as exc:  # noqa: BLE001 - as above
            self.failure = exc
            return None
        if whole is not None and (shown.cut or not self._is_shorter(shown, whole)):
            self.drop()
            return CondensedOutput(ShownOutput(lines_of(whole), shown.counts), None, estimate(whole), whole)
        return self._enriched(self._counted(shown.counts) if budget.used_up else shown)

    def _inner(self, budget: Budget, whole: bytes | None) -> Budget:
        """What the family may show: more than it needs where the output may stay whole."""
        if whole is not None:
            return Budget(2 * max(budget.tokens, WHOLE_TOKENS), budget.bytes, interest=self._plan.interest)
        raw = estimate(bytes(self._held)) * self._total // max(len(self._held), 1)
        most = budget.tokens if self._plan.asked else min(budget.tokens, max(CONDENSED_TOKENS, raw // _OF_LONGER))
        return Budget(max(most - _AROUND, most // 2), budget.bytes - 4 * _AROUND, interest=self._plan.interest)

    def _is_shorter(self, shown: ShownOutput, whole: bytes) -> bool:
        """Whether the form of a family saves something, its header included."""
        if estimate(whole) < self._unchanged_tokens:
            return False
        return estimate(CondensedOutput(shown, None, 0).body()) + _AROUND // 2 < estimate(whole)

    def _whole(self, budget: Budget) -> bytes | None:
        """An output that nothing is cut from, exactly as the command prints it; not one that poses as ours."""
        if not self._unchanged_tokens or self._total != len(self._held):
            return None
        most = budget.tokens if self._plan.asked else min(budget.tokens, WHOLE_TOKENS)
        restored = self._plan.restore(bytes(self._held))
        if restored is None or not fits(_squeezed(restored), budget._replace(tokens=most)):
            return None
        return None if b"\n" + _OUR_MARK in b"\n" + restored else restored

    def as_it_is(self, budget: Budget) -> CondensedOutput:
        """Head and tail of an output that no family understands, for a reply of limited size."""
        from .text import Ends

        if budget.used_up:
            return self._enriched(self._counted({"bytes": self._total}))
        ends = Ends()
        ends.take(lines_of(self._plan.plain(bytes(self._held))))
        return self._enriched(ends.show(self.held, budget))

    def _counted(self, counts: dict[str, int]) -> ShownOutput:
        """What a session without any budget gets."""
        return ShownOutput([], counts, "counts", self._total > 0, "", (USED_UP,))

    def _enriched(self, shown: ShownOutput) -> CondensedOutput:
        raw = estimate(bytes(self._held)) * self._total // max(len(self._held), 1)
        if self._unseen:
            crumb = f"{self._unseen:,} lines after the first {_LOOKED_AT >> 20} MB were not looked at"
            shown = shown._replace(cut=True, crumbs=(*shown.crumbs, crumb))
        return CondensedOutput(shown, self.keep() if shown.cut else self.drop(), raw)

    def keep(self) -> str | None:
        """Store the whole output; returns its handle."""
        if self._sink is None and self._total:
            self._sink = self._open_sink()
            if self._sink is not None:
                self._sink.write(self._plan.plain(bytes(self._held)))
        sink, self._sink = self._sink, None
        return (sink.finish() or None) if sink is not None else None

    def drop(self) -> None:
        """Discard the stored output."""
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.discard()
