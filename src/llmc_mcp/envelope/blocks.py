"""Condensing a text by its blocks: definitions stay whole, and every name that is left out is listed at its place.

A text is split where definitions, headings or paragraphs begin. Blocks that share names with the session's recent
commands come first, then those with the most names for their length; of the others a mark tells the lines, the
definitions with their numbers, and the names that occur nowhere else in the reply. So a name that is neither shown nor
listed does not occur. A text with too many names for that is not for this module.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ..tokens import estimate
from .family import Budget, clip
from .names import Interest, names_in

_LINE = 400  # bytes shown of a line
_MARK_TOKENS = 14
_NUMBER_TOKENS = 2  # of a definition's line number, about one to a block; most names are listed without
_LONGEST = 25  # lines, after which a block ends at the next blank line
_LONGEST_SOLID = 60  # lines without a blank one
_SHORTEST = 4  # lines of a paragraph that is a block of its own
_COMMON = 4  # a name in more than a quarter of the blocks says nothing about one of them
_INDEX_SHARE = 0.7  # of the room may go to names of what is left out
_CALLED = re.compile(rb"[(:{<]")  # what follows the name in a definition
_MOST_LINES = 20_000  # beyond, splitting takes too long


class Block(NamedTuple):
    """Consecutive lines from `first` up to, not including, `end`; their cost and names."""

    first: int
    end: int
    tokens: int
    names: dict[bytes, None]
    index_tokens: int


class NumberedText(NamedTuple):
    """Lines of a text; the first one has the number `start`."""

    lines: Sequence[bytes]
    start: int = 1
    of: str = ""  # what the numbers count, if not the lines of a file


def condense(text: NumberedText, starts: re.Pattern[bytes], budget: Budget) -> list[bytes] | None:
    """The blocks that fit, and marks for the others; None if the text has too many lines or names."""
    if len(text.lines) > _MOST_LINES:
        return None
    blocks = _split(text.lines, starts)
    occurrences = Counter(name for block in blocks for name in block.names)
    index = estimate(b" ".join(occurrences)) + _NUMBER_TOKENS * min(len(blocks), len(occurrences))
    if index > budget.tokens * _INDEX_SHARE:
        return None
    shown = _choose(blocks, budget.tokens - index, _wanted(blocks, occurrences, budget.interest))
    return _render(text, blocks, shown, starts)


def lines_of_interest(lines: Sequence[bytes], starts: re.Pattern[bytes], budget: Budget) -> dict[int, bytes]:
    """The blocks, by numbers of lines, that share rare names with the session's commands, as far as they fit."""
    if len(lines) > _MOST_LINES or not budget.interest:
        return {}
    blocks = _split(lines, starts)
    wanted = _wanted(blocks, Counter(name for block in blocks for name in block.names), budget.interest)
    left, found = budget.tokens, dict[int, bytes]()
    for block in sorted(blocks, key=lambda block: -len(wanted & block.names.keys())):
        cost = block.tokens + 3 * (block.end - block.first)
        if wanted.isdisjoint(block.names) or cost > left:
            continue
        left -= cost
        found |= {number + 1: lines[number] for number in range(block.first, block.end)}
    return found


def _wanted(blocks: list[Block], occurrences: Counter[bytes], interest: Interest) -> set[bytes]:
    """The names of interest that tell some blocks from the others."""
    rare = max(len(blocks) // _COMMON, 2)
    return {name for name in interest if 0 < occurrences[name] <= rare}


def _split(lines: Sequence[bytes], starts: re.Pattern[bytes]) -> list[Block]:
    at = [0]
    for number, line in enumerate(lines):
        length = number - at[-1]
        if starts.match(line[:2_000]):
            begin = _with_what_precedes(lines, number, at[-1])
            if begin > at[-1]:
                at.append(begin)
        elif _begins_paragraph(lines, number, length) or length >= _LONGEST_SOLID:
            at.append(number)
    return [_block(lines, first, end) for first, end in zip(at, [*at[1:], len(lines)], strict=True) if end > first]


def _with_what_precedes(lines: Sequence[bytes], number: int, least: int) -> int:
    """Where a definition begins: at its decorators and comments."""
    while number - 1 > least and lines[number - 1].lstrip()[:1] in (b"@", b"#", b"/", b"*"):
        number -= 1
    return number


def _begins_paragraph(lines: Sequence[bytes], number: int, length: int) -> bool:
    line = lines[number]
    if not line.strip() or number == 0 or lines[number - 1].strip():
        return False
    return length >= (_LONGEST if line[:1].isspace() else _SHORTEST)


def _block(lines: Sequence[bytes], first: int, end: int) -> Block:
    text = b"\n".join(lines[first:end])
    names = names_in(text)
    return Block(first, end, estimate(text) + 1, names, estimate(b" ".join(names)))


def _choose(blocks: list[Block], room: int, wanted: set[bytes]) -> set[int]:
    """The blocks that are shown within what the list of all names leaves; a name that is shown need not be listed."""

    def order(at: int) -> tuple[bool, float]:
        block = blocks[at]
        return wanted.isdisjoint(block.names), block.tokens / max(block.index_tokens, 1)

    left = room - _MARK_TOKENS
    visible: set[bytes] = set()
    shown: set[int] = set()
    for at in sorted(range(len(blocks)), key=order):
        block = blocks[at]
        new = b" ".join(name for name in block.names if name not in visible)
        beside = (at - 1 in shown) + (at + 1 in shown)
        cost = block.tokens + _MARK_TOKENS * (1 - beside) - estimate(new)
        if cost <= left:
            left -= cost
            shown.add(at)
            visible.update(block.names)
    return shown


def _render(text: NumberedText, blocks: list[Block], shown: set[int], starts: re.Pattern[bytes]) -> list[bytes]:
    gaps = _gaps(blocks, shown, {name for at in shown for name in blocks[at].names})
    lines: list[bytes] = []
    for at, block in enumerate(blocks):
        if at in shown:
            lines += [clip(line, _LINE) for line in text.lines[block.first : block.end]]
        elif at in gaps:
            lines.append(_mark(text, gaps[at], starts))
    return lines


class LeftOutLines(NamedTuple):
    """Lines that are left out, and the names that nothing else in the reply has."""

    first: int
    end: int
    names: list[bytes]


def _gaps(blocks: list[Block], shown: set[int], listed: set[bytes]) -> dict[int, LeftOutLines]:
    """The gaps between shown blocks, by the first block in them."""
    gaps: dict[int, LeftOutLines] = {}
    begin = -1
    for at, block in enumerate(blocks):
        if at in shown:
            begin = -1
            continue
        new = [name for name in block.names if name not in listed]
        listed.update(new)
        if begin < 0:
            begin = at
            gaps[begin] = LeftOutLines(block.first, block.end, new)
        else:
            gaps[begin] = LeftOutLines(gaps[begin].first, block.end, gaps[begin].names + new)
    return gaps


def _mark(text: NumberedText, gap: LeftOutLines, starts: re.Pattern[bytes]) -> bytes:
    """What stands for lines that are left out."""
    first, last = text.start + gap.first, text.start + gap.end - 1
    where = f"line {first}" if first == last else f"lines {first}-{last}"
    defined = _definitions(text, gap, starts)
    names = [name for name in gap.names if name not in defined]
    listed = [name + b":" + str(number).encode() for name, number in defined.items()] + names
    return f"\u2026 {where}{text.of} left out".encode() + (b": " + b" ".join(listed) if listed else b"")


def _definitions(text: NumberedText, gap: LeftOutLines, starts: re.Pattern[bytes]) -> dict[bytes, int]:
    """Names that are defined in a gap and shown nowhere else, and where."""
    found: dict[bytes, int] = {}
    new = set(gap.names)
    for number in range(gap.first, gap.end):
        line = text.lines[number][:400]
        if _CALLED.search(line) and starts.match(line):
            for name in list(names_in(_CALLED.split(line, maxsplit=1)[0]))[-1:]:
                if name in new:
                    found.setdefault(name, text.start + number)
    return found
