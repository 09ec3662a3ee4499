"""Apply diffs as GNU patch does, and create them.

A hunk is tried at its line plus the offset of the hunk before it, then at increasing distances, later lines first; then
again with one and with two lines of context ignored at each end (fuzz). A hunk with less context at one end than at the
other must match at the start or the end of the file, unless fuzz drops the difference. Where patch would ask whether
the diff was applied already, this fails. There is one addition: if nothing matches, line ends (LF or CRLF) and a byte
order mark are ignored in comparisons, and those of the file are kept.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from .. import errors
from ..files import codec
from . import diff_parse, v4a
from .diff_lines import blocks
from .diff_parse import FilePatch, Hunk

__all__ = ["FilePatch", "Hunk", "apply", "count_changes", "parse", "unified"]

_MAX_FUZZ = 2
_MARK = "\ufeff"
_SHOWN_LINES = 4
_SHOWN_PLACES = 10
_SHOWN_WIDTH = 120


def parse(text: str) -> list[FilePatch]:
    """Parse all files of a diff: unified, of git, or in V4A format."""
    return v4a.parse(text) if v4a.begins(text) else diff_parse.parse(text)


def apply(patch: FilePatch, data: bytes | None) -> bytes | None:
    """The content of the file after the patch. None stands for no file, before (`data`) and after."""
    _check_existence(patch, data)
    if not patch.quotes_content:
        return None
    document = codec.decode(data) if data else codec.Document("", b"", "utf-8")
    before = _MARK * bool(document.mark) + document.text
    if patch.hunks and patch.hunks[0].anchors is not None:
        after = _patched_by_context(patch, before)
    else:
        after = _patched(patch, before)
    if patch.kind == "delete":
        if after:
            raise errors.PatchFailed(
                f"{patch.path}: not deleted, because it has lines that the diff does not have",
                hint="Create the diff again from the current file.",
            )
        return None
    if after == before:
        return data or b""
    mark = document.mark if after.startswith(_MARK) or document.codec.startswith("utf-16") else b""
    return document._replace(mark=mark).encode(after.removeprefix(_MARK) if mark else after)


def _check_existence(patch: FilePatch, data: bytes | None) -> None:
    if data is None and not patch.may_create:
        raise errors.PatchFailed(f"{patch.path}: there is no such file to {patch.kind}")
    if data and patch.kind == "create":
        new = "".join(line for hunk in patch.hunks for line in hunk.new)
        same = codec.decode(data).text.replace("\r\n", "\n") == new.replace("\r\n", "\n")
        raise errors.PatchFailed(
            f"{patch.path}: the diff creates a new file, but it exists already", hint=_applied(same)
        )


def _applied(already: bool) -> str:
    if already:
        return "The file already has the new lines: the diff was applied before."
    return "Read the file again and create the diff from its current content; nothing changed."


def _patched_by_context(patch: FilePatch, before: str) -> str:
    """The same for hunks without line numbers, which seldom say how a file ends: it stays so."""
    ended = not before or before.endswith("\n")
    after = _patched(patch, before if ended else before + ("\r\n" if "\r\n" in before else "\n"))
    said = next((hunk.final_newline for hunk in reversed(patch.hunks) if hunk.final_newline is not None), ended)
    return after if said else after.removesuffix("\n").removesuffix("\r")


def _patched(patch: FilePatch, before: str) -> str:
    by_context = bool(patch.hunks) and patch.hunks[0].anchors is not None
    exact = _Target(_lines(before), tolerant=by_context and "\r\n" in before)
    try:
        return exact.patched(patch)
    except _Ambiguous as ambiguous:
        raise _several(patch, ambiguous) from None
    except _Misfit as misfit:
        ends = "\r\n" in before or before.startswith(_MARK) or any("\r" in line for h in patch.hunks for line in h.old)
        if ends and not misfit.reversed_fits:
            tolerant = _Target(exact.lines, tolerant=True)
            try:
                return tolerant.patched(patch)
            except _Ambiguous as ambiguous:
                raise _several(patch, ambiguous) from None
            except _Misfit as other:
                raise _failure(patch, other, tolerant) from None
        raise _failure(patch, misfit, exact) from None


def _lines(text: str) -> list[str]:
    """Split into lines with their newlines; the last line may have none."""
    lines = [f"{line}\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


class _Misfit(Exception):
    """A hunk does not match anywhere."""

    def __init__(self, hunk: Hunk, guess: int, reversed_fits: bool) -> None:
        super().__init__(hunk.number)
        self.hunk, self.guess, self.reversed_fits = hunk, guess, reversed_fits


class _Ambiguous(Exception):
    """A hunk without a line number matches at several lines."""

    def __init__(self, hunk: Hunk, places: list[int]) -> None:
        super().__init__(hunk.number)
        self.hunk, self.places = hunk, places


class _Span(NamedTuple):
    """The range of lines at which a hunk may match, and how much of its context is ignored."""

    low: int
    high: int
    skip_head: int
    skip_tail: int


class _Target:
    """The lines of a file being patched. Line numbers start at 1, as in hunks."""

    def __init__(self, lines: list[str], *, tolerant: bool) -> None:
        self.lines, self.tolerant = lines, tolerant
        self.keys = [_key(line) for line in lines] if tolerant else lines
        self.done = 0  # number of lines copied or removed so far
        self.shift = 0  # offset of the last hunk from the line in its header
        self.output: list[str] = []
        self._places: dict[str, list[int]] = {}

    def patched(self, patch: FilePatch) -> str:
        for hunk in patch.hunks:
            self._change(hunk, self._locate(hunk))
        self._copy_until(len(self.lines))
        text = "".join(self.output)
        if self.tolerant and text and self.lines and self.lines[0].startswith(_MARK):
            text = _MARK + text.removeprefix(_MARK)
        return text

    def _locate(self, hunk: Hunk) -> int:
        """The line at which a hunk matches."""
        if hunk.anchors is not None:
            return self._seek(hunk, hunk.anchors)
        guess = hunk.first + self.shift
        for fuzz in range(min(_MAX_FUZZ, max(hunk.context)) + 1):
            where = self._find(hunk, hunk.old, guess, hunk.first, fuzz)
            if where is not None:
                self.shift = where - hunk.first
                return where
            # Like patch: before applying the first hunk with more fuzz, check whether it was applied already.
            if hunk.number == 1 and self._find(hunk, hunk.new, hunk.new_first, hunk.new_first, fuzz) is not None:
                raise _Misfit(hunk, guess, reversed_fits=bool(hunk.new))
        raise _Misfit(hunk, guess, reversed_fits=False)

    def _seek(self, hunk: Hunk, anchors: tuple[str, ...]) -> int:
        """The line at which a hunk without a line number matches: the only one, in the block below its anchors."""
        regions = [(self.done, len(self.lines))]
        for anchor in anchors:
            regions = [inner for region in regions for inner in self._blocks_below(anchor, *region)]
        if not hunk.old:
            places = [low + 1 for low, _ in regions] if anchors else [len(self.lines) + 1]
        else:
            wanted = [_key(line) for line in hunk.old] if self.tolerant else hunk.old
            places = sorted({at for region in regions for at in self._matches(wanted, hunk, *region)})
        if not places:
            raise _Misfit(hunk, self.done + 1, reversed_fits=not self.done and bool(hunk.old) and self.holds(hunk.new))
        if len(places) > 1:
            raise _Ambiguous(hunk, places)
        return places[0]

    def _matches(self, wanted: list[str], hunk: Hunk, low: int, high: int) -> Iterator[int]:
        """The lines of a region at which a hunk may begin; its context may reach beyond."""
        last = len(self.lines) - len(wanted) + 1
        span = _Span(max(low + 1, last) if hunk.ends_file else low + 1, min(last, max(high, low + 1)), 0, 0)
        return (at for at in self._candidates(wanted, low + 1, span) if self._fits(wanted, at, span))

    def _blocks_below(self, anchor: str, low: int, high: int) -> Iterator[tuple[int, int]]:
        """What stands below each line that is the anchor, until one that is indented no more than it."""
        for at in range(low, high):
            if self.lines[at].strip() == anchor.strip():
                indent = _indent(self.lines[at])
                below = range(at + 1, high)
                ends = (end for end in below if self.lines[end].strip() and _indent(self.lines[end]) <= indent)
                yield at + 1, next(ends, high)

    def _find(self, hunk: Hunk, wanted: list[str], guess: int, first: int, fuzz: int) -> int | None:
        if not wanted:  # nothing to compare: use the line in the header, if it exists
            return guess if self.done < guess <= len(self.lines) + 1 else None
        if self.tolerant:
            wanted = [_key(line) for line in wanted]
        span = self._span(hunk, len(wanted), first, fuzz)
        wanted = wanted[span.skip_head : len(wanted) - span.skip_tail]
        return next((at for at in self._candidates(wanted, guess, span) if self._fits(wanted, at, span)), None)

    def _span(self, hunk: Hunk, size: int, first: int, fuzz: int) -> _Span:
        head, tail = hunk.context
        skip_head, skip_tail = fuzz + head - max(head, tail), fuzz + tail - max(head, tail)
        low = self.done + 1
        if skip_tail < 0:  # less context after than before: the hunk ends the file
            at_end = len(self.lines) - size + 1
            return _Span(max(at_end, low), at_end, max(skip_head, 0), 0)
        if skip_head < 0 and first <= 1:  # less context before than after: the hunk begins the file
            return _Span(low, 1, 0, skip_tail)
        return _Span(low, len(self.lines) - size + skip_tail + 1, max(skip_head, 0), skip_tail)

    def _candidates(self, wanted: list[str], guess: int, span: _Span) -> Iterator[int]:
        """Line numbers to try, the nearest first; at equal distance the later one."""
        if span.low <= guess <= span.high:
            yield guess
        if not wanted:  # fuzz left nothing to compare
            yield min(max(guess, span.low), span.high)
            return
        if not self._places:
            self._places = defaultdict(list)
            for number, key in enumerate(self.keys, 1):
                self._places[key].append(number)
        rarest = min(range(len(wanted)), key=lambda i: len(self._places.get(wanted[i], ())))
        at = (place - rarest - span.skip_head for place in self._places.get(wanted[rarest], ()))
        yield from sorted((a for a in at if span.low <= a <= span.high), key=lambda a: (abs(a - guess), a < guess))

    def _fits(self, wanted: list[str], at: int, span: _Span) -> bool:
        begin = at - 1 + span.skip_head
        end = begin + len(wanted)
        if not span.low <= at <= span.high or end > len(self.keys):
            return False
        # Compare the last line first: that avoids most slices of long hunks.
        return not wanted or (self.keys[end - 1] == wanted[-1] and self.keys[begin:end] == wanted)

    def holds(self, lines: list[str]) -> bool:
        """Whether these lines occur consecutively."""
        wanted = [_key(line) for line in lines] if self.tolerant else lines
        span = _Span(1, len(self.lines) - len(wanted) + 1, 0, 0)
        return bool(wanted) and any(self._fits(wanted, at, span) for at in self._candidates(wanted, 1, span))

    def _change(self, hunk: Hunk, where: int) -> None:
        """Apply a hunk. Context is copied from the file: with fuzz it may differ from that of the hunk."""
        at = where - 1
        for mark, line in hunk.lines:
            if mark == "+":
                self._copy_until(at)
                if at < where - 1 + len(hunk.old) and self.output and not self.output[-1].endswith("\n"):
                    raise _Misfit(hunk, where, reversed_fits=False)  # patch would join two lines here
                self._put(self._with_end(line, at) if self.tolerant else line)
                continue
            if mark == "-":
                self._copy_until(at)
                self.done = at + 1
            at += 1

    def _with_end(self, line: str, at: int) -> str:
        """Give an added line the line end of its neighbour."""
        if not line.endswith("\n"):
            return line
        neighbours = [*self.lines[max(at - 1, 0) : at], *self.lines[at : at + 1]]
        crlf = next((n.endswith("\r\n") for n in neighbours if n.endswith("\n")), False)
        return _key(line)[:-1] + ("\r\n" if crlf else "\n")

    def _copy_until(self, at: int) -> None:
        if self.done < at and self.lines[self.done : at]:
            self._put(self.lines[self.done])
            self.output += self.lines[self.done + 1 : at]
            self.done = at

    def _put(self, line: str) -> None:
        if self.output and not self.output[-1].endswith("\n"):  # the former last line is no longer the last
            self.output.append("\r\n" if self.tolerant and self.lines and self.lines[0].endswith("\r\n") else "\n")
        self.output.append(line)


def _key(line: str) -> str:
    """A line without CR and byte order mark, which agents often don't see."""
    line = line.removeprefix(_MARK)
    return f"{line[:-2]}\n" if line.endswith("\r\n") else line


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


# Error messages


def _several(patch: FilePatch, ambiguous: _Ambiguous) -> errors.PatchFailed:
    lines = ", ".join(map(str, ambiguous.places[:_SHOWN_PLACES])) + " …" * (len(ambiguous.places) > _SHOWN_PLACES)
    return errors.PatchFailed(
        f"{patch.path}: hunk {ambiguous.hunk.number} matches at lines {lines}; nothing changed.",
        hint="Add lines of context, or a line above it that occurs once: `@@ def name(...)`.",
    )


def _failure(patch: FilePatch, misfit: _Misfit, target: _Target) -> errors.PatchFailed:
    hunk = misfit.hunk
    total = len(patch.hunks)
    at = f"hunk {hunk.number}{f' of {total}' if total > 1 else ''} ({hunk.header})"
    if misfit.reversed_fits:
        message = f"{patch.path}: {at} was applied before: its new lines are in the file, its old ones are not."
        return errors.PatchFailed(message, hint=_applied(already=True))
    if not hunk.old:
        message = f"{patch.path}: {at} adds lines at line {misfit.guess}, but the file has {len(target.lines)} lines."
        return errors.PatchFailed(message, hint=_applied(already=False))
    where = _closest(hunk, target, misfit.guess)
    expected, found = _first_difference([_key(line) for line in hunk.old], target, where)
    message = f"{patch.path}: {at} does not fit at line {misfit.guess} or anywhere else. Closest is line {where}:"
    return errors.PatchFailed("\n".join([message, *expected, *found]), hint=_applied(already=target.holds(hunk.new)))


def _closest(hunk: Hunk, target: _Target, guess: int) -> int:
    """The line at which most of the lines of a hunk match."""
    numbers: dict[str, list[int]] = defaultdict(list)
    wanted = {_key(line) for line in hunk.old if line.strip()}
    for number, line in enumerate(target.lines, 1):
        if (key := _key(line)) in wanted:
            numbers[key].append(number)
    votes = Counter(
        number - i
        for i, line in enumerate(hunk.old)
        for number in numbers.get(_key(line), ())
        if len(numbers[_key(line)]) <= 50
    )
    best = max(votes, key=lambda at: (votes[at], -abs(at - guess)), default=guess)
    return min(max(best, 1), max(len(target.lines), 1))


def _first_difference(wanted: list[str], target: _Target, where: int) -> tuple[list[str], list[str]]:
    """A few lines from the first difference on, in the diff and in the file."""
    found = [_key(line) for line in target.lines[where - 1 : where - 1 + len(wanted)]]
    pairs = list(zip(wanted, found, strict=False))
    at = next((i for i, (one, other) in enumerate(pairs) if one != other), len(pairs))
    end = at + _SHOWN_LINES
    numbered = range(where + at, where + end)
    return (
        [f"diff {n}: {_shown(line)}" for n, line in zip(numbered, wanted[at:end], strict=False)],
        [f"file {n}: {_shown(line)}" for n, line in zip(numbered, found[at:end], strict=False)]
        or [f"file {where + at}: (the file ends)"],
    )


def _shown(line: str) -> str:
    end = "" if line.endswith("\n") else " (no newline)"
    line = line.removesuffix("\n")
    body = line.rstrip(" \t")
    blanks = line[len(body) :].replace(" ", "·").replace("\t", "→")
    indent = re.match(r"[ \t]*", body)
    body = (indent.group().replace("\t", "→") if indent else "") + body.lstrip(" \t")
    return (body + blanks)[:_SHOWN_WIDTH] + end


# Creating diffs


def unified(old: bytes | None, new: bytes | None, path: str, context: int = 3) -> str:
    """A unified diff that `apply` and patch accept; "" if nothing changed. None stands for no file."""
    if old == new:
        return ""
    before, after = _shown_name(f"a/{path}", old), _shown_name(f"b/{path}", new)
    texts = _texts(old or b"", new or b"")
    if texts is None:
        return f"Binary files {before.rstrip()} and {after.rstrip()} differ\n"
    if texts[0] == texts[1]:  # an empty file is created or deleted: only git's format can express that
        word = "new" if old is None else "deleted"
        names = f"{_shown_name(f'a/{path}', b'')} {_shown_name(f'b/{path}', b'')}".replace("\t", "")
        return f"diff --git {names}\n{word} file mode 100644\n"
    a, b = _lines(texts[0]), _lines(texts[1])
    output = [f"--- {before}\n", f"+++ {after}\n"]
    for group in _groups(_changes(a, b), len(a), context):
        output += _rendered(group, a, b)
    return "".join(output)


def count_changes(old: bytes | None, new: bytes | None) -> tuple[int, int]:
    """Lines added and removed; (0, 0) for binary content."""
    texts = _texts(old or b"", new or b"")
    changes = _changes(_lines(texts[0]), _lines(texts[1])) if texts else []
    return sum(c.new_end - c.new_start for c in changes), sum(c.old_end - c.old_start for c in changes)


class _Change(NamedTuple):
    """Lines old_start to old_end become lines new_start to new_end; from 0, ends excluded."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


def _changes(a: list[str], b: list[str]) -> list[_Change]:
    changes: list[_Change] = []
    i = j = 0
    for old, new, size in [*blocks(a, b), (len(a), len(b), 0)]:
        if old > i or new > j:
            changes.append(_Change(i, old, j, new))
        i, j = old + size, new + size
    return changes


def _groups(changes: list[_Change], total: int, context: int) -> Iterator[list[_Change]]:
    """Group changes that are close enough to share context, and add that context."""
    group: list[_Change] = []
    for change in changes:
        if group and change.old_start - group[-1].old_end > 2 * context:
            yield _padded(group, total, context)
            group = []
        group.append(change)
    if group:
        yield _padded(group, total, context)


def _padded(group: list[_Change], total: int, context: int) -> list[_Change]:
    """Add empty changes before and after, which mark the start and the end of the hunk."""
    first, last = group[0], group[-1]
    lead, trail = min(context, first.old_start), min(context, total - last.old_end)
    start = _Change(*[first.old_start - lead] * 2, *[first.new_start - lead] * 2)
    end = _Change(*[last.old_end + trail] * 2, *[last.new_end + trail] * 2)
    return [start, *group, end]


def _rendered(group: list[_Change], a: list[str], b: list[str]) -> Iterator[str]:
    start, end = group[0], group[-1]
    old = _range(start.old_start, end.old_end)
    yield f"@@ -{old} +{_range(start.new_start, end.new_end)} @@\n"
    at = start.old_start
    for change in group:
        yield from (_marked(" ", line) for line in a[at : change.old_start])
        yield from (_marked("-", line) for line in a[change.old_start : change.old_end])
        yield from (_marked("+", line) for line in b[change.new_start : change.new_end])
        at = change.old_end


def _marked(mark: str, line: str) -> str:
    return f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"


def _range(start: int, end: int) -> str:
    size = end - start
    return f"{start + (size > 0)}" + (f",{size}" if size != 1 else "")


def _texts(old: bytes, new: bytes) -> tuple[str, str] | None:
    """Both versions as text; None if one is binary. ASCII content takes the encoding of the other version."""
    try:
        one, other = codec.decode(old), codec.decode(new)
    except errors.InvalidArgument:
        return None
    if one.codec != other.codec and one.text.isascii() and not one.mark:
        one = one._replace(codec=other.codec)
    shown = [_MARK * bool(document.mark) + document.text for document in (one, other)]
    return tuple[str, str](text.encode("utf-8", "replace").decode() for text in shown)


def _shown_name(name: str, data: bytes | None) -> str:
    """A name as git writes it: quoted if necessary, followed by a tab if it contains spaces."""
    if data is None:
        return "/dev/null"
    if re.search(r'[\x00-\x1f\x7f"\\]|[\ud800-\udfff]', name):
        return '"' + "".join(map(_escaped, name.encode("utf-8", "surrogateescape"))) + '"'
    return f"{name}\t" if " " in name else name


def _escaped(byte: int) -> str:
    return f"\\{byte:03o}" if byte < 32 or byte > 126 or byte in b'"\\' else chr(byte)
