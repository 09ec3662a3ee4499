"""Explain why a text was not found in a file: the most similar place, and the first character that differs.

Cheap and specific explanations are tried first: the text was escaped, was copied with line numbers, or differs only in
white space or look-alike characters. Otherwise pieces of the text vote for the places where they occur, and only the
best few places are compared. All searching is done by `str.find`, so that megabytes take milliseconds.
"""

import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise, zip_longest
from math import inf
from time import thread_time
from typing import NamedTuple

_SHOWN_WIDTH = 100  # characters of a line to show around the difference
_SHOWN_PAIRS = 3
_CHUNK = 4096
_LONG = 300_000  # characters; of a longer text only the surroundings of the first difference are compared
_SEARCH_SECONDS = 0.06  # for searching pieces; enough except for texts with a tiny alphabet, where str.find is slow
_RE_READ = "Copy the text from the file as it is now (read these lines again); nothing changed."

_LOOK_ALIKES = {
    "'": "\u2018\u2019\u201a\u201b\u2032\u02bc\u00b4",
    '"': "\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb",
    "-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u00ad",
    "": "\u200b\u200c\u200d\u2060\ufeff\ufe0f",
}


class _Stretch(NamedTuple):
    """A part of the file that is compared with the wanted text."""

    start: int
    text: str


def explain(text: str, old: str) -> tuple[str, str]:
    """A message and a hint that explain why `old` (with LF line ends) does not occur in `text`."""
    text = text.replace("\r\n", "\n")
    if not text.strip():
        what = "has only white space" if text else "is empty"
        return f"old_text was not found: the file {what}.", "Write the file instead."
    return _miswritten(text, old) or _but_for_blanks(text, old) or _most_alike(text, old)


# Text that would match if it were written differently


def _unescaped(old: str) -> str:
    """The text without one level of escaping: callers sometimes escape it twice."""
    escapes = {"\\n": "\n", "\\t": "\t", "\\r": "", '\\"': '"', "\\'": "'", "\\\\": "\\"}
    return re.sub(r"\\[ntr\"'\\]", lambda match: escapes[match.group()], old)


def _without_entities(old: str) -> str:
    for entity, character in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&#39;", "'"), ("&amp;", "&")):
        old = old.replace(entity, character)
    return old


def _with_entities(old: str) -> str:
    return old.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _without_numbers(old: str) -> str:
    """The text without line numbers, as pagers and tools put in front of lines."""
    return re.sub(r"(?m)^ *\d+(?:\t|: ?| ?\| ?|→)", "", old)


def _without_markers(old: str) -> str:
    return re.sub(r"(?m)^[-+ ]", "", old)


_READINGS: tuple[tuple[Callable[[str], str], str, str], ...] = (
    (
        _unescaped,
        'its backslash escapes (\\n, \\t, \\") are read as the characters they stand for',
        "Send real line breaks, tabs and quotes: old_text is taken literally.",
    ),
    (
        lambda old: old.replace("\n", "\\n").replace("\t", "\\t"),
        "its line breaks and tabs are written as \\n and \\t: the file has a backslash and a letter there",
        "Send a backslash followed by n where the file has one.",
    ),
    (_without_entities, "entities such as &lt; are read as characters", "Send < > & as they are in the file."),
    (_with_entities, "< > & are written as entities (&lt; &gt; &amp;), as in the file", "Send the entities."),
    (_without_numbers, "the line numbers in front of its lines are left out", "Send the text without line numbers."),
    (_without_markers, "the first character of each line (+, - or a space) is left out", "Send text, not a diff."),
)


def _miswritten(text: str, old: str) -> tuple[str, str] | None:
    for reading, when, hint in _READINGS if len(old) <= _LONG else ():
        meant = reading(old)
        if meant != old and meant.strip() and (start := text.find(meant)) >= 0:
            line = _line_of(text, start)
            return f"old_text was not found as it is, but matches at line {line} when {when}.", hint
    return None


# Text that differs only in white space and look-alike characters


def _alikes(old: str) -> list[tuple[str, str]]:
    """Look-alikes and their plain forms, limited to those that can matter for `old`."""
    return [
        (alike, plain)
        for plain, alikes in _LOOK_ALIKES.items()
        if plain in old or any(alike in old for alike in alikes)
        for alike in alikes
    ]


def _folded(piece: str, alikes: Sequence[tuple[str, str]]) -> str:
    """Remove white space and replace look-alikes. Works per character, so that a text can be folded in chunks."""
    if not piece.isascii():
        for alike, plain in alikes:
            piece = piece.replace(alike, plain)
        piece = unicodedata.normalize("NFKD", piece)
    return "".join(piece.split())


def _but_for_blanks(text: str, old: str) -> tuple[str, str] | None:
    alikes = _alikes(old)
    wanted = _folded(old, alikes)
    chunks = [_folded(text[at : at + _CHUNK], alikes) for at in range(0, len(text), _CHUNK)]
    whole = "".join(chunks)
    if not wanted or (found := whole.find(wanted)) < 0:
        return None
    ends = list(accumulate(map(len, chunks)))

    def unfolded(position: int) -> int:
        """The position in `text` of the character that folds to the one at `position`."""
        chunk = bisect_right(ends, position)
        left = position - (ends[chunk - 1] if chunk else 0)
        at = chunk * _CHUNK
        while (size := len(_folded(text[at], alikes))) <= left:
            left -= size
            at += 1
        return at

    place = _with_blanks_of(text, unfolded(found), unfolded(found + len(wanted) - 1) + 1, old)
    alike = "".join(old.split()) != "".join(place.text.split())
    how = "look-alike characters are taken as equal" if alike else "white space is ignored"
    if alike and re.sub(r"\S+", "", old) != re.sub(r"\S+", "", place.text):
        how = "white space is ignored and look-alike characters are taken as equal"
    others = whole.count(wanted) - 1
    more = f" ({others:,} more such place{'s' if others > 1 else ''})" if others else ""
    return f"old_text was not found. It matches {_lines(text, place)} when {how}{more}. {_compare(text, old, place)}", (
        _RE_READ
    )


def _with_blanks_of(text: str, start: int, end: int, old: str) -> _Stretch:
    """Extend a place by the blanks around it if the wanted text begins or ends with blanks."""
    lead, trail = old[: len(old) - len(old.lstrip())], old[len(old.rstrip()) :]
    if lead:
        breaks = lead.count("\n")
        while start > 0 and text[start - 1].isspace() and (breaks := breaks - (text[start - 1] == "\n")) >= 0:
            start -= 1
    if trail:
        breaks = trail.count("\n")
        while end < len(text) and text[end].isspace() and (breaks or text[end] != "\n"):
            breaks -= text[end] == "\n"
            end += 1
            if not breaks and "\n" in trail:
                break
    return _Stretch(start, text[start:end])


# Text that does not occur: the most similar place


class _Anchor(NamedTuple):
    """A piece of the wanted text that occurs in the file."""

    position: int
    offset: int  # in the wanted text
    weight: float


def _most_alike(text: str, old: str) -> tuple[str, str]:
    if len(old) > _LONG:
        agreed = _longest(len(old), lambda size: old[:size] in text)
        if agreed > 1_000:
            skip = max(old.rfind("\n", 0, agreed) + 1, agreed - 1_000)
            start = text.find(old[:agreed]) + skip
            return _nearest(text, old[skip : skip + 2_000], _Stretch(start, text[start : start + 2_000]))
        old = old[:_LONG]
    votes: Counter[int] = Counter()
    best: dict[int, _Anchor] = {}
    for anchor in _anchors(text, old):
        ballot = (anchor.position - anchor.offset) // 64
        votes[ballot] += int(anchor.weight * 1000)
        best.setdefault(ballot, anchor)
    places = {_place(text, old, best[ballot]) for ballot, _ in votes.most_common(6)}
    scored = sorted(((_likeness(old, place.text), place) for place in places), key=lambda pair: -pair[0])
    if not scored or scored[0][0] < 0.35:
        first = old.strip().partition("\n")[0]
        return (
            f"old_text was not found, and nothing in the file is like it (it begins {first[:80]!r}).",
            "Is it the right file? Search for a word of the text, or read the file again; nothing changed.",
        )
    return _nearest(text, old, scored[0][1])


def _nearest(text: str, old: str, place: _Stretch) -> tuple[str, str]:
    return f"old_text was not found. Nearest: {_lines(text, place)}. {_compare(text, old, place)}", _RE_READ


def _anchors(text: str, old: str) -> Iterator[_Anchor]:
    """The longest prefix and suffix of `old` that occur, then pieces of it, long ones first."""
    until = thread_time() + _SEARCH_SECONDS
    head = _longest(len(old), lambda size: old[:size] in text, until)
    tail = _longest(len(old), lambda size: old[len(old) - size :] in text, until)
    for offset, size in ((0, head), (len(old) - tail, tail)):
        piece = old[offset : offset + size]
        if len(piece.strip()) >= 4:
            yield from _occurrences(text, piece, offset)
    for size in (48, 24, 12, 6):
        rare = 0
        for offset in _spread(old, size):
            if thread_time() > until:
                return
            anchors = list(_occurrences(text, old[offset : offset + size], offset))
            rare += 0 < len(anchors) <= 2
            yield from anchors
        if rare >= 2:
            return


def _longest(limit: int, occurs: Callable[[int], bool], until: float = inf) -> int:
    """The largest size for which `occurs` is true, by bisection: if a piece occurs, so do its parts."""
    low, high = 0, limit
    while low < high and thread_time() < until:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if occurs(middle) else (low, middle - 1)
    return low


def _spread(old: str, size: int) -> list[int]:
    """Evenly spread offsets into `old` that do not point at blanks."""
    last = len(old) - size
    offsets = {round(i * last / 15) for i in range(16)} if last > 0 else {0} if last == 0 else set[int]()
    starts: set[int] = set()
    for offset in offsets:
        blanks = re.compile(r"\s*").match(old, offset, max(last, offset))
        starts.add(blanks.end() if blanks else offset)
    return sorted(starts)


def _occurrences(text: str, piece: str, offset: int) -> Iterator[_Anchor]:
    """The first few occurrences of a piece; the more frequent a piece, the lower its weight."""
    positions: list[int] = []
    position = text.find(piece)
    while position >= 0 and len(positions) < 8:
        positions.append(position)
        position = text.find(piece, position + 1)
    weight = len(piece.strip()) / (len(positions) or 1) / (1 if position < 0 else 16)
    return (_Anchor(position, offset, weight) for position in positions)


def _place(text: str, old: str, anchor: _Anchor) -> _Stretch:
    """As many lines as the wanted text has, aligned so that the anchor is on the same line in both."""
    lines_before = old.count("\n", 0, anchor.offset)
    first = text.rfind("\n", 0, anchor.position) + 1
    for _ in range(lines_before):
        first = text.rfind("\n", 0, max(first - 1, 0)) + 1
    guess = anchor.position - anchor.offset if not lines_before else first
    start = _best_start(text, old, first, max(guess, first))
    end = start
    for _ in range(old.count("\n")):
        end = text.find("\n", end) + 1 or len(text) + 1
    line_end = text.find("\n", end) if end <= len(text) else len(text)
    line_end = line_end if line_end >= 0 else len(text)
    last_line = len(old) - old.rfind("\n") - 1
    return _Stretch(start, text[start : min(line_end, max(end, start) + last_line)])


def _best_start(text: str, old: str, first: int, guess: int) -> int:
    """The start at which most of the first line agrees: inserted or missing characters shift the anchor's guess."""
    head = old.partition("\n")[0][:200]
    line_end = text.find("\n", first)
    line_end = line_end if line_end >= 0 else len(text)
    starts = range(max(first, guess - 32), min(line_end, guess + 33))
    if guess == first and not head[:1].isspace():  # whole lines: the wanted text may lack the indentation
        indented = text[first:line_end]
        guess = first + len(indented) - len(indented.lstrip())
    best = max(starts, key=lambda at: (_common(head, text[at : at + len(head)]), -abs(at - guess)), default=guess)
    return best if _common(head, text[best : best + len(head)]) > 2 else guess


def _common(one: str, other: str) -> int:
    """The length of the common prefix of two texts."""
    return _longest(min(len(one), len(other)), lambda size: one.startswith(other[:size]))


def _likeness(old: str, found: str) -> float:
    """Similarity from 0 to 1: by lines for a long text, by pairs of characters for a short one."""
    if len(old) > 4000:
        pairs = list(zip(_stripped(old), _stripped(found), strict=False))
        equal = sum(len(one) + 1 for one, other in pairs if one == other)
        return max(equal / len(old), _likeness(old[:2000], found[:2000]))
    one, other = _pairs(old), _pairs(found)
    return 2 * (one & other).total() / ((one.total() + other.total()) or 1)


def _stripped(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n")]


def _pairs(text: str) -> Counter[str]:
    dense = " ".join(text.split())
    return Counter(map("".join, pairwise(dense)))


# Rendering the difference


def _compare(text: str, old: str, place: _Stretch) -> str:
    """Describe the first difference, then show the lines that differ, one above the other."""
    at = _common(old, place.text)
    line = _line_of(text, place.start + at)
    column = place.start + at - text.rfind("\n", 0, place.start + at)
    at_end = place.start + at >= len(text)
    words = _difference(old, place.text, at, at_end)
    ours, theirs = old.split("\n"), place.text.split("\n")
    first = text.count("\n", 0, place.start) + 1
    differing = [i for i, (one, other) in enumerate(zip_longest(ours, theirs)) if (one or "") != (other or "")]
    shown = [
        pair
        for i in differing[:_SHOWN_PAIRS]
        for pair in _pair(first + i, ours[i] if i < len(ours) else None, theirs[i] if i < len(theirs) else None)
    ]
    more = len(differing) - _SHOWN_PAIRS
    if more > 0:
        shown.append(f"… {more:,} more of {len(ours):,} lines differ")
    legend = _legend(shown)
    return "\n".join([f"First difference at line {line}, column {column}: {words}.{legend}", *shown])


def _difference(ours: str, theirs: str, at: int, at_end: bool) -> str:
    """Describe the first difference: what each side has at that position."""
    one, other = ours[at : at + 1], theirs[at : at + 1]
    if not (one + other).isascii():
        return f"old_text has {_named(one)}, the file {_named(other)}"
    if _blank(one) or _blank(other):
        while at and ours[at - 1] in " \t":
            at -= 1
        one, other = _run(ours[at:]), _run(theirs[at:])
        if one != other:
            indents = (at == 0 or ours[at - 1] == "\n") and "\n" not in one + other
            nothing = "the end of the file" if at_end else "none"
            return f"{'indentation: ' * indents}old_text has {_count(one, 'none')}, the file {_count(other, nothing)}"
    return f"old_text has {_quoted(ours, at)}, the file {_quoted(theirs, at)}"


def _blank(character: str) -> bool:
    return character in (" ", "\t", "\n", "\r")


def _run(rest: str) -> str:
    """The leading blanks, up to and including a line break."""
    found = re.match(r"[ \t\r]*\n?", rest)
    return found.group() if found else ""


def _count(run: str, nothing: str) -> str:
    """Describe white space: '4 spaces', 'a tab and a line break'."""
    words: list[str] = []
    for match in re.finditer(r" +|\t+|\r+|\n", run):
        name = {" ": "space", "\t": "tab", "\r": "carriage return (CR)", "\n": "line break"}[match.group()[0]]
        size = len(match.group())
        words.append(f"{size} {name}s" if size > 1 else f"a {name}")
    if len(words) > 4:
        words = [*words[:3], "more"]
    return " and ".join(words) or nothing


def _quoted(text: str, at: int) -> str:
    piece = text[at : at + 24].partition("\n")[0]
    return f"“{_visible(piece, blanks=False)}”" if piece else "a line break" if at < len(text) else "nothing more"


def _named(character: str) -> str:
    if not character:
        return "nothing more"
    name = unicodedata.name(character, "")
    shown = f"{character} " if character.isprintable() and not character.isspace() else ""
    return f"{shown}U+{ord(character):04X} {name}".rstrip()


def _pair(number: int, ours: str | None, theirs: str | None) -> list[str]:
    one, other = ours or "", theirs or ""
    at = _common(one, other)
    blanks = _outer_blanks(one) != _outer_blanks(other) or "".join(one.split()) == "".join(other.split())
    start = max(at - _SHOWN_WIDTH // 2, 0)
    rows: list[str] = []
    for label, line in (("old_text", ours), ("file", theirs)):
        if line is None:
            rows.append(f"{label:>8} {number}: (no line)")
            continue
        shown = _visible(line[start : start + _SHOWN_WIDTH], blanks)
        shown = f"{'…' if start else ''}{shown}{'…' if len(line) > start + _SHOWN_WIDTH else ''}"
        rows.append(f"{label:>8} {number}: {shown}")
    return rows


def _outer_blanks(line: str) -> tuple[str, str]:
    return line[: len(line) - len(line.lstrip())], line[len(line.rstrip()) :]


def _visible(line: str, blanks: bool) -> str:
    """A line with invisible characters made visible; with `blanks`, also spaces at its ends and runs of spaces."""
    lead, trail = _outer_blanks(line)
    middle = line[len(lead) : len(line) - len(trail)] if line.strip() else ""
    if blanks:
        lead, trail = lead.replace(" ", "·"), trail.replace(" ", "·") if middle else ""
        middle = re.sub(" {2,}", lambda match: "·" * len(match.group()), middle)
    line = lead + middle + trail
    line = line.replace("\t", "→").replace("\r", "␍")
    return "".join(c if c == " " or (c.isprintable() and not c.isspace()) else f"<U+{ord(c):04X}>" for c in line)


def _legend(rows: Sequence[str]) -> str:
    """Explain the symbols that occur."""
    shown = "".join(row.partition(": ")[2] for row in rows)
    signs = {"→": "tab", "·": "space", "␍": "CR"}
    used = [f"{sign} {name}" for sign, name in signs.items() if sign in shown]
    return f" ({', '.join(used)})" if used else ""


def _lines(text: str, place: _Stretch) -> str:
    first = _line_of(text, place.start)
    last = first + place.text.removesuffix("\n").count("\n")
    return f"line {first}" if first == last else f"lines {first} to {last}"


def _line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
