"""What a family is made of: the lines it takes, the plan it makes, the budget it shows them in."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from ..tokens import estimate

_COUNTS_BELOW = 300  # tokens with which nothing but counts makes sense
_ZONES = 6


class Budget(NamedTuple):
    """What a reply may cost."""

    tokens: int
    bytes: int = 1 << 20

    @property
    def counts_only(self) -> bool:
        """Whether there is room for more than counts."""
        return self.tokens < _COUNTS_BELOW


class ShownOutput(NamedTuple):
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

    def show(self, held: bytes | None, budget: Budget) -> ShownOutput:
        """As much as fits; `held` is the whole output where it is short enough to be had."""
        ...


class FamilyPlan(NamedTuple):
    """How to run a command so that its output is understood, and who understands it."""

    argv: list[str]
    family: Family
    plain: Callable[[bytes], bytes] = bytes  # makes of its output what the user's own flags would have printed
    any_bytes: bool = False  # a NUL does not mean that this is no text


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
