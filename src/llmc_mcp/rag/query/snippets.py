"""The text shown of a hit: all of it if it fits the budget, else its head and the lines that match."""

from collections.abc import Sequence
from typing import NamedTuple

from ...tokens import estimate
from ..parse import words
from ..parse.question import Question

GAP = "…"
_LEAST = 40  # tokens; a shorter snippet is useless
_LONGEST_LINE = 400  # characters of a line that are shown
_GAP_TOKENS = 4
_HEAD_LINES = 2  # of a hit that is not shown whole


class Piece(NamedTuple):
    """A hit's lines as they are in the file now, and their numbers; they need not follow one another."""

    numbers: list[int]
    lines: list[str]


class SnippetText(NamedTuple):
    """A text, and the numbers of the lines that it shows; a line of its own marks a gap and says where it ends."""

    text: str
    numbers: list[int]


def piece_of(source: bytes, start: int, end: int, first_line: int) -> Piece:
    """The whole lines of a span."""
    start = source.rfind(b"\n", 0, start) + 1
    text = source[start:end].decode("utf-8", "replace").replace("\r\n", "\n").rstrip("\n")
    lines = [short(line) for line in text.split("\n")]
    return Piece(list(range(first_line, first_line + len(lines))), lines)


def fit(
    pieces: Sequence[Piece], question: Question, budget: int, around: int, most_lines: int = 0
) -> list[SnippetText]:
    """The first pieces, as many as the budget of tokens allows; `around` is the cost of each besides its text."""
    count = min(len(pieces), max(budget // (_LEAST + around), 1))
    whole = [estimate("\n".join(piece.lines)) + around for piece in pieces[:count]]
    shares = share_out(whole, budget)
    return [
        _whole(piece)
        if cost <= share and (not most_lines or len(piece.lines) <= most_lines)
        else _degraded(piece, question, share - around, most_lines or len(piece.lines))
        for piece, cost, share in zip(pieces, whole, shares, strict=False)
    ]


def share_out(wanted: Sequence[int], budget: int) -> list[int]:
    """Small requests are granted; the others share the rest equally, except that the first gets twice a share."""
    shares = [0] * len(wanted)
    open_places = list(range(len(wanted)))
    left = budget
    while open_places:
        claims = len(open_places) + (1 if 0 in open_places else 0)
        each = left / claims
        content = [place for place in open_places if wanted[place] <= each * (2 if place == 0 else 1)]
        if not content:
            for place in open_places:
                shares[place] = int(each * (2 if place == 0 else 1))
            break
        for place in content:
            shares[place] = wanted[place]
            left -= wanted[place]
            open_places.remove(place)
    return shares


def _whole(piece: Piece) -> SnippetText:
    return _lines(piece, range(len(piece.lines)))


def _degraded(piece: Piece, question: Question, room: int, most_lines: int) -> SnippetText:
    """The head and the lines that match best, in their order, with gaps marked."""
    wanted = set(question.words)
    head = _HEAD_LINES if most_lines > 2 * _HEAD_LINES else 1
    scored = sorted(
        range(len(piece.lines)),
        key=lambda at: (at >= head, -len(wanted.intersection(words.terms(piece.lines[at]).split())), at),
    )
    costs = _costs(piece)
    chosen: list[int] = []
    spent = 0
    for at in scored:
        if len(chosen) >= most_lines:
            break
        gap = _GAP_TOKENS if chosen and at - 1 not in chosen else 0
        if spent + costs[at] + gap > room:
            if at == 0:
                return _first_words(piece, room)
            continue
        chosen.append(at)
        spent += costs[at] + gap
    while len(chosen) > 1:
        shown = _lines(piece, sorted(chosen))
        if estimate(shown.text) <= room and shown.text.count("\n") < most_lines:
            break
        chosen.pop()
    return _lines(piece, sorted(chosen))


def _costs(piece: Piece) -> list[int]:
    """Tokens of each line, by its share of all, rounded up: estimating each line takes too long."""
    text = "\n".join(piece.lines)
    rate = estimate(text) / max(len(text), 1)
    return [2 + int(1.2 * rate * len(line)) for line in piece.lines]


def _lines(piece: Piece, chosen: Sequence[int]) -> SnippetText:
    text: list[str] = []
    numbers = [piece.numbers[at] for at in chosen]
    for before, number, at in zip([0, *numbers], numbers, chosen, strict=False):
        if before and number != before + 1:
            text.append(f"{GAP} {number}")
        text.append(piece.lines[at])
    return SnippetText("\n".join(text), numbers)


def _first_words(piece: Piece, room: int) -> SnippetText:
    """As many words of the first line as fit."""
    line = piece.lines[0]
    while line and estimate(f"{line} {GAP}") > room:
        line = line.rpartition(" ")[0]
    return SnippetText(f"{line} {GAP}" if line else "", piece.numbers[:1])


def short(line: str) -> str:
    """Cut a very long line at a space."""
    if len(line) <= _LONGEST_LINE:
        return line
    head = line[:_LONGEST_LINE]
    return (head.rpartition(" ")[0] or head) + f" {GAP}"
