"""What `te` makes of a command's output: ranked, grouped, and cut to a budget of tokens.

The real command runs with its real flags. A family (`grep.py` …) knows what some commands print: it takes
the lines as they come, in bounded memory, and at the end shows as much as fits, in steps: all, grouped, counts.
What no family understands is not touched: other commands, flags that change the format, binary output.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import NamedTuple, Protocol

from ..tokens import estimate

_HELD = 1 << 20  # bytes of output that stay in memory; the rest goes to disk
_LOOKED_AT = 64 << 20  # bytes that a family sees; of what follows only the lines are counted
_LINE = 64 << 10  # bytes of one line that a family sees
_SMALLEST = 200  # tokens: enough to say how much there is and where
_COUNTS_BELOW = 300  # tokens with which nothing but counts makes sense
_SHARE = 10  # one command gets a tenth of what the session has left
_AROUND = 110  # tokens of the header and of the handle's line
_ZONES = 6

# Program → the module below that knows it; its `plan(argv)` says whether it knows these flags, too.
_FAMILIES = {
    **dict.fromkeys(("grep", "egrep", "fgrep", "rg"), "grep"),
    **dict.fromkeys(("cat", "head", "tail"), "text"),
    **dict.fromkeys(("find", "fd", "fdfind", "ls"), "paths"),
    "git": "git",
    **dict.fromkeys(("pytest", "py.test", "python", "python3", "cargo", "go", "npm", "yarn", "pnpm"), "tests"),
}


class Budget(NamedTuple):
    """What a reply may cost."""

    tokens: int
    bytes: int = 1 << 20

    @property
    def counts_only(self) -> bool:
        """Whether there is room for more than counts."""
        return self.tokens < _COUNTS_BELOW


class Shown(NamedTuple):
    """What is shown of an output. `cut`: something of it is not."""

    lines: list[bytes]
    counts: dict[str, int]
    level: str = "all"
    cut: bool = False
    hot_zone: str = ""
    crumbs: tuple[str, ...] = ()


class Family(Protocol):
    """Takes the lines of one command's output, then shows them."""

    def take(self, lines: list[bytes]) -> None:
        """Some more lines, without their ends."""
        ...

    def skip(self, lines: int) -> None:
        """That many more lines came, too late to be looked at; a family that counts lines counts them."""
        ...

    def show(self, held: bytes | None, budget: Budget) -> Shown:
        """As much as fits; `held` is the whole output where it is short enough to be had."""
        ...


class Plan(NamedTuple):
    """How to run a command so that its output is understood, and who understands it."""

    argv: list[str]
    family: Family
    plain: Callable[[bytes], bytes] = bytes  # makes of its output what the user's own flags would have printed
    any_bytes: bool = False  # a NUL does not mean that this is no text


class Sink(Protocol):
    """Where all of an output goes."""

    def write(self, data: bytes) -> None: ...

    def finish(self) -> str: ...

    def discard(self) -> None: ...


def recognise(argv: list[str]) -> Plan | None:
    """A plan for a command whose output is understood; None for all others."""
    module = _FAMILIES.get(os.path.basename(argv[0]))
    return import_module(f".{module}", __package__).plan(argv) if module else None


def share_of(session_budget: int, used: int, most: int) -> tuple[int, int]:
    """What one command may cost, and what its session has left: the less is left, the smaller the replies."""
    left = max(session_budget - used, 0)
    return min(max(left // _SHARE, _SMALLEST), most), left


class Room:
    """What still fits."""

    def __init__(self, budget: Budget, share: float = 1.0) -> None:
        self._tokens, self._bytes = budget.tokens * share, budget.bytes * share

    @property
    def tokens(self) -> int:
        """How many are left."""
        return int(self._tokens)

    def take(self, line: bytes) -> bool:
        """Room for a line; False when there is none, and then nothing is taken."""
        tokens, size = estimate(line) + 1, len(line) + 1
        if tokens > self._tokens or size > self._bytes:
            return False
        self._tokens -= tokens
        self._bytes -= size
        return True

    def fill(self, lines: Iterable[bytes]) -> list[bytes]:
        """The first lines that fit."""
        kept: list[bytes] = []
        for line in lines:
            if not self.take(line):
                break
            kept.append(line)
        return kept


def fits(data: bytes, budget: Budget) -> bool:
    """Whether a whole text fits."""
    return len(data) <= budget.bytes and (len(data) <= budget.tokens or estimate(data) <= budget.tokens)


def lines_of(data: bytes) -> list[bytes]:
    """The lines of a text, a last one without an end among them."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def clip(line: bytes, most: int) -> bytes:
    """The beginning of a line that is too long."""
    if len(line) <= most:
        return line
    return line[:most].decode("utf-8", "ignore").encode() + b" \xe2\x80\xa6[cut]"


def readable(text: bytes) -> str:
    """Bytes for a header or a breadcrumb, whatever they are."""
    return text.decode("utf-8", "backslashreplace")


def zones(paths: dict[bytes, int]) -> str:
    """Where things are, in a few words: "src/ (31), tests/ (7)"."""
    found = _split_by_folder(paths)
    best = [f"{readable(name)} ({count:,})" for name, count in found.most_common(_ZONES)]
    others = sum(count for _, count in found.most_common()[_ZONES:])
    return ", ".join([*best, f"elsewhere ({others:,})"] if others else best)


def _split_by_folder(paths: dict[bytes, int]) -> Counter[bytes]:
    """Counts by the first folder in which the paths differ; a file by its name."""
    prefix = common_folder(paths)
    counts = Counter[bytes]()
    for path, count in paths.items():
        step, slash, _ = path[len(prefix) :].partition(b"/")
        counts[prefix + step + slash] += count
    return counts


def common_folder(paths: Iterable[bytes]) -> bytes:
    """The folder that all paths lie in, with its slash; empty when there is none."""
    known = sorted(paths)
    if not known:
        return b""
    first, last = known[0], known[-1]  # what these two share, all between them share
    same = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return first[: first.rfind(b"/", 0, same) + 1]


def hot_zone(paths: dict[bytes, int]) -> str:
    """The deepest folder, or the file, in which more than half of it all is."""
    total, zone, inside = sum(paths.values()), b"", dict(paths)
    while len(inside) > 1:
        name, count = _split_by_folder(inside).most_common(1)[0]
        if count * 2 <= total or name == zone:
            break
        zone, inside = name, {path: number for path, number in inside.items() if path.startswith(name)}
    if not zone or len(paths) < 2:
        return ""
    return f"{readable(zone)} ({sum(inside.values()):,} of {total:,})"


class Enriched(NamedTuple):
    """The outcome: what to print, and what it saves."""

    shown: Shown
    handle: str | None
    raw_bytes: int
    raw_tokens: int

    def body(self) -> bytes:
        """The lines that are shown, and where the rest is."""
        crumbs = [f"# TE: {crumb}".encode() for crumb in self.shown.crumbs]
        return b"".join(line + b"\n" for line in (*self.shown.lines, *crumbs))


class Envelope:
    """Takes a command's output piece by piece and gives its family the lines."""

    def __init__(self, plan: Plan, open_sink: Callable[[], Sink | None]) -> None:
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

    def finish(self, budget: Budget) -> Enriched | None:
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

    def as_it_is(self, budget: Budget) -> Enriched:
        """The beginning and the end, for a reply that has no room for an output that nobody understands."""
        from .text import Ends

        ends = Ends()
        ends.take(lines_of(bytes(self._held)))
        return self._enriched(ends.show(self.held, budget))

    def _enriched(self, shown: Shown) -> Enriched:
        raw = estimate(bytes(self._held)) * self._total // max(len(self._held), 1)
        if self._unseen:
            crumb = f"{self._unseen:,} lines after the first {_LOOKED_AT >> 20} MB were not looked at"
            shown = shown._replace(cut=True, crumbs=(*shown.crumbs, crumb))
        return Enriched(shown, self.keep() if shown.cut else self.drop(), self._total, raw)

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
