"""Replace exact text or numbered lines in a file and keep its encoding, byte order mark, line ends and final newline.

Callers send LF: a line end in `old` matches both LF and CRLF, and inserted text takes the line ends of the text it
replaces. Nothing else is fuzzy: if the text does not occur, nothing is replaced, and the error shows the closest match.

Lines up to `END` are the exception: the file then ends as the new text does, with a newline or without.

Of several edits, line numbers count in the file as it was before all of them; texts are replaced afterwards, in order.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, islice, pairwise
from typing import NamedTuple

from .. import errors
from ..files import codec

END = 10**9  # as the last line of an edit: the end of the file
_SHOWN_MATCHES = 20
_CONTEXT_LINES = 2
_SNIPPET_LINES = 12
_SNIPPET_WIDTH = 160  # characters of context before a match in an overlong line; half the length at which a line is cut


class TextEdit(NamedTuple):
    """Replace a text that must occur exactly `expected` times."""

    old: str
    new: str
    expected: int = 1


class LineEdit(NamedTuple):
    """Replace lines `first` to `last`, from 1; if `last` is the line before `first`, insert before `first`."""

    first: int
    last: int
    new: str

    @property
    def range(self) -> str:
        if self.first == self.last:
            return f"{self.first}"
        return f"{self.first}-{'end' if self.last == END else self.last}"


Edit = TextEdit | LineEdit


class EditedText(NamedTuple):
    """The result of edits; the snippets show the first replacement of the first edit."""

    data: bytes
    count: int  # pyright: ignore[reportIncompatibleMethodOverride]  # tuple.count is not used on an edit
    before: str
    after: str
    first_line: int


class _Occurrence(NamedTuple):
    """The occurrences of a text in a file, and the file with them replaced."""

    times: int
    starts: Callable[[], Iterator[int]]
    length: int  # of the first match, in characters
    inserted: int  # length of the replacement, in characters
    replaced: Callable[[], str]


def apply(data: bytes, edits: Sequence[Edit]) -> EditedText:
    """Make all edits, or raise for the first that can't be made."""
    document = codec.decode(data)
    numbered = {at: edit for at, edit in enumerate(edits) if isinstance(edit, LineEdit)}
    text, made = _replace_lines(document.text, numbered, marked=bool(document.mark))
    for at, edit in enumerate(edits):
        if isinstance(edit, TextEdit):
            try:
                text, made[at] = _replace_text(text, edit, marked=bool(document.mark))
            except errors.LlmcError as exc:
                if len(edits) == 1:
                    raise
                raise type(exc)(f"edit {at + 1} of {len(edits)}: {exc.message}", hint=exc.hint) from None
    count = sum(one.count for one in made.values())
    return made[0]._replace(data=document.encode(text), count=count)


# --- numbered lines --------------------------------------------------------------------------------------------------


def _replace_lines(text: str, edits: dict[int, LineEdit], *, marked: bool) -> tuple[str, dict[int, EditedText]]:
    """The changed text, and what to show of each edit."""
    if not edits:
        return text, {}
    unended = bool(text) and not text.endswith("\n")  # and stays so: nobody counts with an end that comes or goes
    text += ("\r\n" if text.rpartition("\n")[0].endswith("\r") else "\n") * unended
    lines = [f"{line}\n" for line in text.split("\n")[:-1]]
    closing = next((edit.new for edit in edits.values() if edit.last == END), None)
    edits = {at: edit if edit.last != END else edit._replace(last=len(lines)) for at, edit in edits.items()}
    _check_lines(list(edits.values()), len(lines))
    starts = [0, *accumulate(map(len, lines))]
    pieces: list[str] = []
    places: dict[int, tuple[int, int]] = {}  # where the new lines are, in the changed text
    position = length = 0
    for at, edit in sorted(edits.items(), key=lambda item: item[1].first):
        start, end = starts[edit.first - 1], starts[edit.last]
        inserted = _lines_to_insert(lines, edit if not marked else edit._replace(new=edit.new.removeprefix("\ufeff")))
        if inserted == text[start:end] and closing is None:
            raise errors.InvalidArgument(f"lines {edit.range} hold that text already: there is nothing to change")
        pieces += [text[position:start], inserted]
        length += start - position + len(inserted)
        places[at] = length - len(inserted), length
        position = end
    changed = "".join([*pieces, text[position:]])
    if unended if closing is None else closing and not closing.endswith("\n"):
        changed = changed.removesuffix("\n").removesuffix("\r")
    return changed, {
        at: EditedText(
            b"",
            1,
            _snippet(text, starts[edit.first - 1], starts[edit.last]),
            _snippet(changed, *places[at]),
            edit.first,
        )
        for at, edit in edits.items()
    }


def _check_lines(edits: list[LineEdit], total: int) -> None:
    for edit in edits:
        codec.refuse_surrogates("new_text", edit.new)
        if not 1 <= edit.first <= edit.last + 1 <= total + 1:
            raise errors.InvalidArgument(
                f"lines {edit.range}: not a range of the file, which has {total:,} lines",
                hint="Lines count from 1; to insert before line 12, pass 12-11.",
            )
    for one, other in pairwise(sorted(edits, key=lambda edit: (edit.first, edit.last))):
        if other.first <= one.last or other.first == one.first:
            raise errors.BadArgs(f"lines {one.range} and {other.range} overlap", hint="Make them one edit.")


def _lines_to_insert(lines: list[str], edit: LineEdit) -> str:
    """The new lines, with the line ends of those they replace."""
    if not edit.new:
        return ""
    around = (lines[at] for at in (edit.first - 1, edit.first - 2) if 0 <= at < len(lines))
    end = "\r\n" if next(around, "").endswith("\r\n") else "\n"
    return end.join(_with_lf(edit.new).removesuffix("\n").split("\n")) + end


# --- exact text ------------------------------------------------------------------------------------------------------


def _replace_text(text: str, edit: TextEdit, *, marked: bool) -> tuple[str, EditedText]:
    old, new, expected = edit
    _check(old, new, expected)
    if marked:  # the byte order mark is not part of the text, but some clients send it
        old, new = old.removeprefix("\ufeff"), new.removeprefix("\ufeff")
    old, new = _with_lf(old), _with_lf(new)
    if not old or old == new:
        raise errors.InvalidArgument(
            "old_text and new_text differ in line ends or byte order mark only, and edits keep those"
        )
    found = _find(text, old, new)
    if found.times == 0:
        raise _not_found(text, old)
    if found.times != expected:
        raise _other_count(text, found, expected)
    changed = found.replaced()
    start = next(found.starts())
    return changed, EditedText(
        b"",
        found.times,
        _snippet(text, start, start + found.length),
        _snippet(changed, start, start + found.inserted),
        text.count("\n", 0, start) + 1,
    )


def _check(old: str, new: str, expected: int) -> None:
    codec.refuse_surrogates("old_text", old)
    codec.refuse_surrogates("new_text", new)
    if not old:
        raise errors.BadArgs("old_text is empty", hint="Quote the text to replace, with a line around it.")
    if expected < 1:
        raise errors.BadArgs(f"expected_replacements is {expected}; it must be at least 1")
    if old == new:
        raise errors.InvalidArgument("old_text and new_text are the same: there is nothing to change")


def _with_lf(text: str) -> str:
    return text.replace("\r\n", "\n")


def _find(text: str, old: str, new: str) -> _Occurrence:
    crlfs = text.count("\r\n")
    if crlfs and (crlfs < text.count("\n") or old.endswith("\r")):
        return _find_in_mixed(text, old, new)
    end = "\r\n" if crlfs else "\n"
    wanted, inserted = old.replace("\n", end), new.replace("\n", end)

    def starts() -> Iterator[int]:
        start = text.find(wanted)
        while start >= 0:
            yield start
            start = text.find(wanted, start + len(wanted))

    return _Occurrence(text.count(wanted), starts, len(wanted), len(inserted), lambda: text.replace(wanted, inserted))


def _find_in_mixed(text: str, old: str, new: str) -> _Occurrence:
    """Search a file with mixed line ends: LF matches both kinds, and each line keeps its own."""
    plain = _with_lf(text)
    dropped = [
        found.start() - nth for nth, found in enumerate(re.finditer("\r\n", text))
    ]  # positions of removed CRs in `plain`
    spans: list[tuple[int, int]] = []
    start = plain.find(old)
    while start >= 0:
        end = start + len(old)
        spans.append((start + bisect_left(dropped, start), end + bisect_left(dropped, end)))
        start = plain.find(old, end)
    ends = _Ends(text, old, new)

    def replaced() -> str:
        pieces: list[str] = []
        position = 0
        for start, end in spans:
            pieces += [text[position:start], ends.insertion(start, end)]
            position = end
        return "".join([*pieces, text[position:]])

    start, end = spans[0] if spans else (0, 0)
    inserted = len(ends.insertion(start, end)) if spans else 0
    return _Occurrence(len(spans), lambda: (start for start, _ in spans), end - start, inserted, replaced)


class _Ends:
    """Chooses the line ends of text inserted into a file with mixed line ends."""

    def __init__(self, text: str, old: str, new: str) -> None:
        self.text = text
        self.old_lines, self.new_lines = old.split("\n"), new.split("\n")
        self.new_ends = len(self.new_lines) - 1
        shortest = min(len(self.old_lines), len(self.new_lines)) - 1
        self.head = next((i for i in range(shortest) if self.old_lines[i] != self.new_lines[i]), shortest)
        back = range(1, shortest - self.head + 1)
        self.tail = next((i - 1 for i in back if self.old_lines[-i] != self.new_lines[-i]), len(back))

    def insertion(self, start: int, end: int) -> str:
        """The text to insert. Lines in both old and new keep their ends; others take that of the line they replace."""
        had = re.findall(r"\r?\n", self.text[start:end]) or [self._around(start, end)]
        kept = self.new_ends - self.tail
        ends = [had[min(i, len(had) - 1)] for i in range(kept)] + had[len(had) - self.tail :] * bool(self.tail)
        return "".join(line + end for line, end in zip(self.new_lines, [*ends, ""], strict=True))

    def _around(self, start: int, end: int) -> str:
        """The line end of the line that contains a match; on the last line, that of the line before."""
        at = self.text.find("\n", end)
        at = at if at >= 0 else self.text.rfind("\n", 0, start)
        return "\r\n" if self.text[max(at - 1, 0) : at + 1] == "\r\n" else "\n"


def _not_found(text: str, old: str) -> errors.PatchCountMismatch:
    from . import near_miss  # imported late: most edits match

    message, hint = near_miss.explain(text, old)
    return errors.PatchCountMismatch(message, hint=hint)


def _other_count(text: str, found: _Occurrence, expected: int) -> errors.PatchCountMismatch:
    lines: list[int] = []
    line, position = 1, 0
    for start in islice(found.starts(), _SHOWN_MATCHES):
        line += text.count("\n", position, start)
        position = start
        lines.append(line)
    more = found.times - len(lines)
    where = ", ".join(map(str, lines)) + (f" and {more:,} more" if more else "")
    times = "once" if found.times == 1 else f"{found.times:,} times"
    hint = f"Pass expected_replacements={found.times} to replace {'it' if found.times == 1 else 'them all'}"
    if found.times > expected:
        hint = f"Add lines before or after to old_text until only the place you mean matches, or p{hint[1:]}"
    return errors.PatchCountMismatch(
        f"old_text occurs {times}, expected {expected}: line{'s' if len(lines) > 1 else ''} {where}. Nothing changed.",
        hint=f"{hint}.",
    )


def _snippet(text: str, start: int, end: int) -> str:
    """The lines around text[start:end], with LF; shortened if they are many or long."""
    first = start
    for _ in range(_CONTEXT_LINES + 1):
        first = text.rfind("\n", 0, first)
        if first < 0:
            break
    last = text.find("\n", max(end - 1, start))
    for _ in range(_CONTEXT_LINES):
        last = text.find("\n", last + 1) if last >= 0 else last
    last = last if last >= 0 else len(text)
    if start - first > 3 * _SNIPPET_WIDTH:  # a line too long to show: keep the text right before the match
        first = start - _SNIPPET_WIDTH
    lines = _with_lf(text[first + 1 : min(last, end + 50 * _SNIPPET_WIDTH)]).split("\n")
    if len(lines) > _SNIPPET_LINES:
        head, tail = lines[: _SNIPPET_LINES - 4], lines[-4:]
        lines = [*head, f"… {len(lines) - len(head) - len(tail):,} lines …", *tail]
    return "\n".join(_cut(line) for line in lines)


def _cut(line: str) -> str:
    return line if len(line) <= 2 * _SNIPPET_WIDTH else f"{line[: 2 * _SNIPPET_WIDTH]}…"
