"""One edit in every dialect: the same bytes, and what each request costs."""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import msgspec

from llmc_mcp.changes import diff, edit
from llmc_mcp.changes.diff_lines import blocks
from llmc_mcp.changes.edit import END, LineEdit, TextEdit
from llmc_mcp.errors import LlmcError
from llmc_mcp.files import codec
from llmc_mcp.files.revisions import revision_of

from ..tokens import count
from .pairs import Pair

_CONTEXT = 3
_NO_NEWLINE = "\\ No newline at end of file"


class Change(NamedTuple):
    """Lines of the old text, from 1, that others replace; `last` is the line before `first` for an insertion."""

    first: int
    last: int
    new: list[str]


class Expressed(NamedTuple):
    """How an edit came out in one dialect."""

    dialect: str
    same: bool
    tokens: int
    error: str = ""


def express(pair: Pair) -> list[Expressed] | None:
    """An edit in all dialects, a new file in those of diffs; None for what is no text."""
    if not pair.after:
        return None
    try:
        before, after = codec.decode(pair.before or b""), codec.decode(pair.after)
    except LlmcError:
        return None
    if not pair.before:
        whole = "\ufeff" * bool(after.mark) + after.text
        return _created(pair, whole) if pair.before is None and after.text.endswith("\n") else None
    if before.mark != after.mark:
        return None
    old, new = before.text, after.text
    if old.endswith("\n") and new.endswith("\n"):  # what follows the last line end is no line
        old, new = old[:-1], new[:-1]
    changes = changed_lines(old, new)
    if not changes:
        return None
    lines = old.split("\n")
    whole = _Whole.of(before.text, after.text)
    return [
        _expressed("old_text", pair, *_by_text(pair, lines, changes, _CONTEXT)),
        _expressed("old_text, shortest", pair, *_by_text(pair, lines, changes, 0)),
        _expressed("lines", pair, *_by_lines(pair, whole)),
        _expressed("unified", pair, *_by_diff(pair, diff.unified(pair.before, pair.after, pair.path))),
        _expressed("v4a", pair, *_by_diff(pair, _v4a(pair.path, whole))),
    ]


def _created(pair: Pair, text: str) -> list[Expressed]:
    added = "".join(f"+{line}\n" for line in text.split("\n")[:-1])
    v4a = f"*** Begin Patch\n*** Add File: {pair.path}\n{added}*** End Patch\n"
    return [
        _expressed("unified, new file", pair, *_by_diff(pair, diff.unified(None, pair.after, pair.path))),
        _expressed("v4a, new file", pair, *_by_diff(pair, v4a)),
    ]


Request = dict[str, object]


def _expressed(dialect: str, pair: Pair, request: Request, apply: Callable[[], bytes | None]) -> Expressed:
    tokens = count(msgspec.json.encode(request).decode())
    try:
        return Expressed(dialect, apply() == pair.after, tokens)
    except LlmcError as exc:
        return Expressed(dialect, False, tokens, f"{exc.code}: {exc.message}"[:160])


def changed_lines(before: str, after: str) -> list[Change]:
    """The runs of lines that differ."""
    old, new = before.split("\n"), after.split("\n")
    matched = [(0, 0, 0), *blocks(old, new), (len(old), len(new), 0)]
    found: list[Change] = []
    for (a, b, size), (a_next, b_next, _) in pairwise(matched):
        if a + size < a_next or b + size < b_next:
            found.append(Change(a + size + 1, a_next, new[b + size : b_next]))
    return found


class _Whole(NamedTuple):
    """A change of a file as whole lines; the last one belongs to it where a newline comes or goes at the file's end."""

    lines: list[str]
    changes: list[Change]
    ended: bool  # before
    ends: bool  # afterwards

    @classmethod
    def of(cls, old: str, new: str) -> "_Whole":
        ended, ends = old.endswith("\n"), new.endswith("\n")
        old, new = old.removesuffix("\n"), new.removesuffix("\n")
        lines, changes = old.split("\n"), changed_lines(old, new)
        if ended != ends:
            last = (
                changes.pop() if changes and changes[-1].last == len(lines) else Change(len(lines) + 1, len(lines), [])
            )
            if not last.new:  # there must be a line for the new end
                last = Change(last.first - 1, last.last, [lines[last.first - 2]])
            changes.append(last)
        return cls(lines, changes, ended, ends)


def _by_lines(pair: Pair, whole: _Whole) -> tuple[Request, Callable[[], bytes]]:
    """Numbered lines with the revision of the file, as a reply to a read has it."""
    before = pair.before or b""
    edits = [LineEdit(one.first, one.last, "".join(f"{line}\n" for line in one.new)) for one in whole.changes]
    if whole.ended != whole.ends:
        edits[-1] = edits[-1]._replace(last=END, new=edits[-1].new if whole.ends else edits[-1].new.removesuffix("\n"))
    parts = [{"lines": one.range, "new_text": one.new} for one in edits]
    request: Request = {"path": pair.path, "expected": revision_of(before)}
    request |= parts[0] if len(parts) == 1 else {"edits": parts}
    return request, lambda: edit.apply(before, edits).data


class Window(NamedTuple):
    """Some old lines, from 1, and what becomes of them: ` ` stays, `-` goes, `+` comes."""

    first: int
    last: int
    marked: list[tuple[str, str]]

    def side(self, gone: str) -> list[str]:
        """The lines without those that come, or without those that go."""
        return [line for mark, line in self.marked if mark != gone]


def windows(lines: list[str], changes: list[Change], context: int) -> list[Window]:
    """The changes with lines around them: at least `context`, and as many as make the old lines unique."""
    around = [[max(one.first - context, 1), min(one.last + context, len(lines))] for one in changes]
    while True:
        joined: list[list[int]] = []
        for first, last in sorted(around):
            if joined and first <= joined[-1][1] + 1:
                joined[-1][1] = max(joined[-1][1], last)
            else:
                joined.append([first, last])
        unclear = [one for one in joined if not _is_unique(lines, one[0], one[1]) and one != [1, len(lines)]]
        around = joined
        if not unclear:
            return [_window(lines, changes, first, last) for first, last in joined]
        for one in unclear:
            one[0], one[1] = max(one[0] - 1, 1), min(one[1] + 1, len(lines))


def _is_unique(lines: list[str], first: int, last: int) -> bool:
    wanted = "\n".join(lines[first - 1 : last])
    return bool(wanted.strip()) and "\n".join(lines).count(wanted) == 1


def _window(lines: list[str], changes: list[Change], first: int, last: int) -> Window:
    marked: list[tuple[str, str]] = []
    at = first
    for one in changes:
        if first <= one.first <= last + 1 and one.last <= last:
            marked += [(" ", line) for line in lines[at - 1 : one.first - 1]]
            marked += [("-", line) for line in lines[one.first - 1 : one.last]]
            marked += [("+", line) for line in one.new]
            at = one.last + 1
    return Window(first, last, [*marked, *((" ", line) for line in lines[at - 1 : last])])


def _by_text(pair: Pair, lines: list[str], changes: list[Change], context: int) -> tuple[Request, Callable[[], bytes]]:
    """Old and new text, with as many lines around as make the old one unique."""
    edits = _texts(lines, changes, context)
    parts = [{"old_text": one.old, "new_text": one.new} for one in edits]
    request: Request = {"path": pair.path, **(parts[0] if len(parts) == 1 else {"edits": parts})}
    return request, lambda: edit.apply(pair.before or b"", edits).data


def _texts(lines: list[str], changes: list[Change], context: int) -> list[TextEdit]:
    """One edit for each change, or one of everything between them where a text occurs in another's, too."""
    edits = [_text_edit(one, len(lines)) for one in windows(lines, changes, context)]
    text = "\n".join(lines)
    for one in edits:
        if text.count(one.old) != 1:
            break
        text = text.replace(one.old, one.new)
    else:
        return edits
    whole = _window(lines, changes, 1, len(lines))
    changed = [at for at, (mark, _) in enumerate(whole.marked) if mark != " "]
    first, last = changed[0], changed[-1] + 1
    text = "\n".join(lines)
    while True:
        some = Window(0, 0, whole.marked[first:last])
        old = "\n".join(some.side("+"))
        if text.count(old) == 1 or (first == 0 and last >= len(whole.marked)):
            return [_text_edit(some, len(lines))]
        first, last = max(first - 1, 0), last + 1


def _text_edit(one: Window, total: int) -> TextEdit:
    """A window as old and new text; lines that go take a line end along: theirs, or the one before the last line."""
    old, new = "\n".join(one.side("+")), "\n".join(one.side("-"))
    if one.side("-"):
        return TextEdit(old, new)
    return TextEdit(f"\n{old}" if one.last == total else f"{old}\n", "")


def _v4a(path: str, whole: _Whole) -> str:
    """A patch in V4A form, with three lines of context."""
    out = ["*** Begin Patch", f"*** Update File: {path}"]
    for one in windows(whole.lines, whole.changes, _CONTEXT):
        out += ["@@", *(f"{mark}{line}" for mark, line in one.marked)]
        if whole.ended != whole.ends and one.last == len(whole.lines):
            gone = max(at for at, line in enumerate(out) if line[:1] in ("-", " "))
            out.insert(len(out) if whole.ended else gone + 1, _NO_NEWLINE)
    return "\n".join([*out, "*** End Patch", ""])


def _by_diff(pair: Pair, text: str) -> tuple[Request, Callable[[], bytes | None]]:
    (patch,) = diff.parse(text)
    return {"diff_text": text}, lambda: diff.apply(patch, pair.before)
