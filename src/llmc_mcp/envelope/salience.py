"""Condensing output line by line: verdicts and errors first, then what is near them, then the ends.

A weigher tells how much a line matters. The lines that fit stay in their order; a mark stands where others were, with
their numbers and, as far as there is room, the names that occur nowhere else in the reply. Of lines that differ only
in numbers the first few count.
"""

import re
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from ..tokens import estimate
from .family import Budget, Room, ShownOutput, clip, fits, lines_of, listed_names
from .floods import WordSearch
from .names import names_in

NOISE, PLAIN, NEAR, TITLE, WRONG, VERDICT = range(6)

_LINE = 400  # bytes shown of a line
_KEPT_HEAD, _KEPT_TAIL, _KEPT = 300, 400, 6_000  # lines kept in memory: the first, the last, those that matter
_EACH = 4_000  # lines that are weighed one by one; what follows is a flood
_MARK_TOKENS = 9
_ALIKE = 3  # lines of one form before more of them are noise
_FORMS = 5_000
_LAST = 6  # lines that are shown if any are
_LAST_SHARE = 5  # they get up to a fifth of the room
_LINES_SHARE = 0.6  # of the room, at most, is for lines
_INDEX_SHARE = 0.5  # of the room may go to names of what is left out
_COLOUR = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
_RUNS = re.compile(rb"([-=_.~^ ])\1{3,}")
_VARIES = re.compile(rb"0x[0-9a-f]+|\b[0-9a-f]{7,}\b|\d+")


class Weigher(Protocol):
    """Tells how much the next line matters.

    In a flood only lines with one of its `words` are asked about, and the last ones; without words all are.
    `any_case`: the words are in small letters, and stand for any.
    """

    words: tuple[bytes, ...]
    any_case: bool

    def weigh(self, line: bytes) -> int: ...

    def counts(self) -> dict[str, int]: ...


class Line(NamedTuple):
    """One line of the output, with its number."""

    number: int
    weight: int
    text: bytes


class SalientLines:
    """Lines by weight; `plain` is the share of the room that lines without weight may use."""

    def __init__(self, weigher: Weigher, *, plain: float = 0.6) -> None:
        self._weigher, self._plain = weigher, plain
        self._count = self._unweighed = 0
        self._kept: list[Line] = []
        self._last = deque[Line](maxlen=_KEPT_TAIL)
        self._forms = Counter[bytes]()
        self._words = WordSearch(weigher.words, any_case=weigher.any_case)

    def take(self, lines: list[bytes]) -> None:
        if not self._weigher.words or self._count + len(lines) <= _EACH:
            for raw in lines:
                self._take_line(raw)
            return
        start = self._count
        self._take_some([(start + at + 1, lines[at]) for at in self._words.find(b"\n".join(lines))])
        self._count = start + len(lines)
        self._unweighed += len(lines)
        first = self._count - len(lines[-_KEPT_TAIL:]) + 1
        self._last.extend(Line(first + at, PLAIN, raw) for at, raw in enumerate(lines[-_KEPT_TAIL:]))

    def _take_some(self, numbered: list[tuple[int, bytes]]) -> None:
        """Lines of a flood that have a word that may matter."""
        for number, raw in numbered:
            self._count = number - 1
            self._take_line(raw)

    def _take_line(self, raw: bytes) -> None:
        self._count += 1
        text = _without_colours(raw)
        line = Line(self._count, self._weight(text), clip(text, _LINE))
        if self._count <= _KEPT_HEAD or (line.weight >= NEAR and len(self._kept) < _KEPT):
            self._kept.append(line)
        else:
            self._last.append(line)

    def _weight(self, text: bytes) -> int:
        weight = self._weigher.weigh(text)
        if not text.strip():
            return NOISE
        if weight == VERDICT or len(self._forms) >= _FORMS:
            return weight
        form = _form(text)
        self._forms[form] += 1
        return weight if self._forms[form] <= _ALIKE else min(weight, NOISE if weight < TITLE else NEAR)

    def skip(self, lines: int) -> None:
        self._count += lines
        self._last.clear()

    def show(self, held: bytes | None, budget: Budget) -> ShownOutput:
        counts = {**self._weigher.counts(), "lines": self._count}
        if held is not None and fits(held, budget):
            return ShownOutput(lines_of(held), counts)
        lines, notes = self._lines(), self._words.notes()
        last = [line for line in lines if line.text.strip()][-_LAST:]  # whatever their form: how it ended
        lines = [line._replace(weight=NEAR) if line.weight < NEAR and line in last else line for line in lines]
        if budget.counts_only:
            chosen = _fill([line for line in lines if line.weight == VERDICT], budget.tokens // 2, {})
            return ShownOutput(list(_rendered(chosen, self._count, {})), counts, "counts", True, "", notes)
        chosen = self._choose(lines, last, int(budget.tokens * _LINES_SHARE))
        whole = _all_lines(held)
        chosen |= _shorter_than_their_marks(whole, chosen, self._count)
        room = min(budget.tokens - _cost(chosen), int(budget.tokens * _INDEX_SHARE))
        index = _index(whole, chosen, self._count, room)
        alike = _alike(whole, chosen, self._count)
        index = {first: alike.get(first, b"") + names for first, names in index.items()}
        return ShownOutput(list(_rendered(chosen, self._count, index)), counts, "grouped", True, "", notes)

    def _lines(self) -> list[Line]:
        """What is kept, in order; the last lines of a flood are weighed now."""
        known = {line.number: line for line in (*self._last, *self._kept)}
        if self._unweighed:
            for line in [line for line in self._last if known[line.number] is line]:
                text = clip(_without_colours(line.text), _LINE)
                known[line.number] = Line(line.number, self._weight(text), text)
        return [known[number] for number in sorted(known)]

    def _choose(self, lines: list[Line], last: list[Line], room: int) -> dict[int, Line]:
        """The last lines, then by weight, of too many the first and the last; of the plain lines more from the end."""
        chosen = _fill(reversed(last), room // _LAST_SHARE, {})
        for weight in (VERDICT, WRONG, TITLE, NEAR):
            alike = [line for line in lines if line.weight == weight and line.number not in chosen]
            chosen = _fill(alike, (room - _cost(chosen)) * 6 // 10, chosen)
            rest = [line for line in alike if line.number not in chosen]
            chosen = _fill(reversed(rest), room - _cost(chosen), chosen)
        plain = [line for line in lines if line.weight == PLAIN and line.number not in chosen]
        left = min(room - _cost(chosen), int(room * self._plain))
        chosen = _fill(reversed(plain), left * 6 // 10, chosen)
        return _fill((line for line in plain if line.number not in chosen), left * 3 // 10, chosen)


def _without_colours(line: bytes) -> bytes:
    line = _COLOUR.sub(b"", line) if b"\x1b" in line else line
    return line.rstrip(b"\r").rpartition(b"\r")[2]  # a progress bar: what is last on its line


def _all_lines(held: bytes | None) -> Sequence[bytes]:
    return [] if held is None else [_without_colours(line) for line in lines_of(held)]


def _cost(chosen: dict[int, Line]) -> int:
    gaps = sum(number - 1 not in chosen for number in chosen)
    return sum(estimate(line.text) + 1 for line in chosen.values()) + _MARK_TOKENS * gaps


def _fill(lines: "Iterator[Line] | Sequence[Line]", room: int, chosen: dict[int, Line]) -> dict[int, Line]:
    """Add the lines that fit."""
    chosen = dict(chosen)
    for line in lines:
        cost = estimate(line.text) + 1 + (0 if line.number - 1 in chosen else _MARK_TOKENS)
        if cost > room:
            break
        room -= cost
        chosen[line.number] = line
    return chosen


def _gaps(chosen: dict[int, Line], count: int) -> Iterator[tuple[int, int]]:
    """The first and the last number of the lines that are left out, gap by gap."""
    before = 0
    for number in [*sorted(chosen), count + 1]:
        if number > before + 1:
            yield before + 1, number - 1
        before = number


def _shorter_than_their_marks(lines: Sequence[bytes], chosen: dict[int, Line], count: int) -> dict[int, Line]:
    """Blank lines, carets and the like, for which a mark would cost more than they do."""
    cheap: dict[int, Line] = {}
    for first, last in _gaps(chosen, count) if lines else ():
        gap = lines[first - 1 : last]
        if last - first < _MARK_TOKENS and estimate(_RUNS.sub(rb"\1", b"\n".join(gap))) < _MARK_TOKENS:
            cheap |= {first + at: Line(first + at, PLAIN, text) for at, text in enumerate(gap)}
    return cheap


def _form(text: bytes) -> bytes:
    """What lines that differ only in numbers have in common."""
    return _VARIES.sub(b"#", text[:_LINE])


def _alike(lines: Sequence[bytes], chosen: dict[int, Line], count: int) -> dict[int, bytes]:
    """By the number of a gap's first line: how many of its lines have the form of a line that is shown."""
    shown: dict[bytes, int] = {}
    for number in sorted(chosen):
        shown.setdefault(_form(chosen[number].text), number)
    found: dict[int, bytes] = {}
    for first, last in _gaps(chosen, count) if lines else ():
        like = Counter(shown[form] for form in map(_form, lines[first - 1 : last]) if form in shown)
        told = [f"{times:,} like line {number}" for number, times in like.most_common(3) if times >= _ALIKE]
        found[first] = f" ({', '.join(told)})".encode() if told else b""
    return found


def _index(lines: Sequence[bytes], chosen: dict[int, Line], count: int, room: int) -> dict[int, bytes]:
    """The names that are left out, by the number of the gap's first line; each gap has its part of the room."""
    listed = names_in(b"\n".join(line.text for line in chosen.values()))
    found: dict[int, list[bytes]] = {}
    for first, last in _gaps(chosen, count) if lines else ():
        found[first] = [name for name in names_in(b"\n".join(lines[first - 1 : last])) if name not in listed]
        listed |= dict.fromkeys(found[first])
    share = room / max(sum(map(len, found.values())), 1)
    return {first: listed_names(names, Room(Budget(int(share * len(names)) + 1))) for first, names in found.items()}


def _rendered(chosen: dict[int, Line], count: int, index: dict[int, bytes]) -> Iterator[bytes]:
    gaps = dict(_gaps(chosen, count))
    for number in sorted([*chosen, *gaps]):
        if number in chosen:
            yield chosen[number].text
            continue
        last = gaps[number]
        where = f"line {number}" if last == number else f"lines {number}-{last}"
        yield f"\u2026 {where} left out".encode() + index.get(number, b"")
