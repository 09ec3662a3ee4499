"""What all families share: budgets, plans, the shape of condensed output, grouping of paths."""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from ..tokens import estimate
from .names import NOTHING, Interest

_COUNTS_BELOW = 300  # tokens; below, only counts make sense
_ZONES = 6
_DIGITS = re.compile(rb"\d+")
_MANY_ALIKE = 20  # names that differ only in their numbers
_TOO_FEW = 3  # names that are listed whatever the room: to count them costs as much


USED_UP = "the session's budget of tokens is used up: only counts are shown (settings te.hard_budget, te.budgets)"


class Budget(NamedTuple):
    """Limits of a reply; `used_up`: its session gets counts and nothing else. `interest`: what its session is after."""

    tokens: int
    bytes: int = 1 << 20
    used_up: bool = False
    interest: Interest = NOTHING

    @property
    def counts_only(self) -> bool:
        """Whether there is room for counts only."""
        return self.tokens < _COUNTS_BELOW


class ShownOutput(NamedTuple):
    """The shown part of an output; `cut` if something is left out."""

    lines: list[bytes]
    counts: dict[str, int]
    level: str = "all"
    cut: bool = False
    hot_zone: str = ""
    crumbs: tuple[str, ...] = ()


class Family(Protocol):
    """Consumes the lines of one command's output, then condenses them."""

    def take(self, lines: list[bytes]) -> None:
        """Add lines, without their newlines."""
        ...

    def skip(self, lines: int) -> None:
        """Count lines that come after the limit and are not parsed."""
        ...

    def show(self, held: bytes | None, budget: Budget) -> ShownOutput:
        """Show as much as fits; `held` is the whole output if it is in memory."""
        ...


class FamilyPlan(NamedTuple):
    """How to run a command so that its output can be parsed, and the family that parses it."""

    argv: list[str]
    family: Family
    plain: Callable[[bytes], bytes] = bytes  # what is kept of a piece of the output
    restore: "Callable[[bytes], bytes | None]" = bytes  # what the given flags print, byte by byte; None: unknown
    any_bytes: bool = False  # output with NULs is not binary
    only_files: tuple[str, ...] = ()  # paths of which a folder is not searched
    asked: bool = False  # the command asks for a range: all of it is shown, unless it is a flood
    interest: Interest = NOTHING  # names of the session's recent commands
    kind: str = ""  # the module whose family it is
    named: tuple[str, ...] = ()  # the words that a shell line has its name from in statistics
    one_stream: bool = False  # where stdout and stderr are the same, their order matters: read them as one

    def hint(self, is_folder: "Callable[[str], bool]") -> str:
        """What the command does not do, and may have been expected to."""
        folder = next(filter(is_folder, self.only_files), None)
        return f"{folder} is a folder: {self.argv[0]} -r searches it" if folder is not None else ""


class Room:
    """The remaining part of a budget."""

    def __init__(self, budget: Budget, share: float = 1.0) -> None:
        self._tokens, self._bytes = budget.tokens * share, budget.bytes * share

    @property
    def tokens(self) -> int:
        """Tokens that are left."""
        return int(self._tokens)

    def take(self, line: bytes) -> bool:
        """Reserve room for a line; False, and nothing reserved, if it does not fit."""
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


def _numbered_once(names: list[bytes]) -> list[bytes]:
    """Many names that differ only in their numbers as the first, the last and how many they are."""
    forms: dict[bytes, list[bytes]] = {}
    for name in names:
        forms.setdefault(_DIGITS.sub(b"#", name), []).append(name)
    return [
        name
        for alike in forms.values()
        for name in (
            alike if len(alike) < _MANY_ALIKE else [alike[0] + b".." + alike[-1] + f"({len(alike):,})".encode()]
        )
    ]


def listed_names(names: list[bytes], room: "Room", before: bytes = b": ") -> bytes:
    """Names behind what stands for them: all, or as many as fit and the number of the others."""
    kept = names = _numbered_once(names)
    while len(kept) > _TOO_FEW and not room.take(b" ".join(kept)):
        kept = kept[: len(kept) * 4 // 5]
    left = len(names) - len(kept)
    more = f" and {left:,} more names".encode() if left else b""
    return (before + b" ".join(kept) if kept else b"") + more


def fits(data: bytes, budget: Budget) -> bool:
    """Whether a whole text fits."""
    return len(data) <= budget.bytes and (len(data) <= budget.tokens or estimate(data) <= budget.tokens)


def lines_of(data: bytes) -> list[bytes]:
    """The lines of a text, including a last one without a newline."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def clip(line: bytes, most: int) -> bytes:
    """A line, cut if it is too long."""
    if len(line) <= most:
        return line
    return line[:most].decode("utf-8", "ignore").encode() + b" \xe2\x80\xa6[cut]"


def readable(text: bytes) -> str:
    """Bytes as text for a header or a pointer, escaping invalid UTF-8."""
    return text.decode("utf-8", "backslashreplace")


def zones(paths: dict[bytes, int]) -> str:
    """The distribution of counts over folders: "src/ (31), tests/ (7)"."""
    found = _split_by_folder(paths)
    best = [f"{readable(name)} ({count:,})" for name, count in found.most_common(_ZONES)]
    others = sum(count for _, count in found.most_common()[_ZONES:])
    return ", ".join([*best, f"elsewhere ({others:,})"] if others else best)


def _split_by_folder(paths: dict[bytes, int]) -> Counter[bytes]:
    """Counts by the first path component in which the paths differ."""
    prefix = common_folder(paths)
    counts = Counter[bytes]()
    for path, count in paths.items():
        step, slash, _ = path[len(prefix) :].partition(b"/")
        counts[prefix + step + slash] += count
    return counts


def common_folder(paths: Iterable[bytes]) -> bytes:
    """The deepest folder that contains all paths, with its slash; empty if there is none."""
    known = sorted(paths)
    if not known:
        return b""
    first, last = known[0], known[-1]  # a prefix of both is a prefix of all between them
    same = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return first[: first.rfind(b"/", 0, same) + 1]


def hot_zone(paths: dict[bytes, int]) -> str:
    """The deepest folder, or the file, with more than half of the total count."""
    total, zone, inside = sum(paths.values()), b"", dict(paths)
    while len(inside) > 1:
        name, count = _split_by_folder(inside).most_common(1)[0]
        if count * 2 <= total or name == zone:
            break
        zone, inside = name, {path: number for path, number in inside.items() if path.startswith(name)}
    if not zone or len(paths) < 2:
        return ""
    return f"{readable(zone)} ({sum(inside.values()):,} of {total:,})"
