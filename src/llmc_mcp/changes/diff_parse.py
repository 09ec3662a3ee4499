"""Parse unified diffs, plain ones and those of git.

File names: in a git diff the first component (`a/`, `b/`, …) is dropped, unless both names of the `diff --git` line are
the same (`--no-prefix`). In a plain diff a name is used as it is, except that `a/` and `b/` are dropped, and so is the
first component if it is the only difference between the two names (`diff -r old new`). Of two names that differ in any
other way (`x.orig`, `x`), the one with fewer components is used, then the shorter one, as in patch.
"""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple, NoReturn

from .. import errors
from ..files import codec

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_STAMP = re.compile(r"\s(\d{4}-\d\d-\d\d)[ T](\d\d):(\d\d):(\d\d)(\.\d+)?(?: ?([-+])(\d\d):?(\d\d))?")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|.)")
_ESCAPES = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}
_DEV_NULL = "/dev/null"
_NOTHING_FOUND = "Send a unified diff: `--- a/FILE`, `+++ b/FILE`, then hunks that begin with `@@ -12,5 +12,6 @@`."

Kind = Literal["modify", "create", "delete", "rename"]


class Hunk(NamedTuple):
    """A hunk. Lines include their newline, except for a last line without one."""

    number: int  # within its file, from 1
    header: str
    first: int  # the line at which the hunk begins, from 1; without old lines, the line before which it inserts
    new_first: int
    lines: tuple[tuple[str, str], ...]  # (" ", "-" or "+", the line)
    old: list[str]
    new: list[str]
    context: tuple[int, int]  # number of unchanged lines before the first change and after the last
    anchors: tuple[str, ...] | None = None  # instead of a line number: lines that come before it, in their order
    ends_file: bool = False
    final_newline: bool | None = None  # of the file afterwards; None: as before


class FilePatch(NamedTuple):
    """The part of a diff about one file. Modes are permission bits, or None if the diff has none."""

    old_path: str | None
    new_path: str | None
    kind: Kind
    old_mode: int | None
    new_mode: int | None
    hunks: tuple[Hunk, ...]
    quotes_content: bool = True  # False: the file is deleted whatever it holds

    @property
    def path(self) -> str:
        """The path to show in messages."""
        return self.new_path or self.old_path or _DEV_NULL

    @property
    def may_create(self) -> bool:
        """Whether the file may be missing: the diff creates it, or its only hunk has no old lines (`@@ -0,0 …`)."""
        empty = len(self.hunks) == 1 and not self.hunks[0].old and self.hunks[0].first <= 1
        return self.kind == "create" or (self.kind == "modify" and empty)


def parse(text: str) -> list[FilePatch]:
    """Parse all files of a diff; text before, between and after them is skipped."""
    codec.refuse_surrogates("the diff", text)
    reader = DiffReader(text)
    patches = list(_files(reader))
    if not patches:
        raise errors.InvalidArgument("there is no diff in this text: no line starts a file", hint=_NOTHING_FOUND)
    return patches


class DiffReader:
    """The lines of a diff, with lookahead and line numbers for messages."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        if self.lines[-1] == "":
            self.lines.pop()
        self.at = 0

    @property
    def ended(self) -> bool:
        return self.at >= len(self.lines)

    def peek(self, ahead: int = 0) -> str:
        """The next line, or "" at the end."""
        return self.lines[self.at + ahead] if self.at + ahead < len(self.lines) else ""

    def take(self) -> str:
        self.at += 1
        return self.lines[self.at - 1]

    def fail(self, what: str, hint: str | None = None, line: int | None = None) -> NoReturn:
        raise errors.InvalidArgument(f"line {line or self.at + 1} of the diff: {what}", hint=hint)


def _files(reader: DiffReader) -> Iterator[FilePatch]:
    while not reader.ended:
        line = reader.peek()
        if line.startswith("diff --git "):
            yield _git_file(reader)
        elif _at_names(reader):
            yield _plain_file(reader)
        elif line.startswith("@@ -"):
            reader.fail("a hunk without a file", "Put `--- a/FILE` and `+++ b/FILE` before the first hunk.")
        elif line.startswith("*** Update File:"):
            reader.fail("a V4A patch begins with `*** Begin Patch`", _NOTHING_FOUND)
        elif line.startswith("***************"):
            reader.fail("context diffs are not supported", "Make the diff with `diff -u` or `git diff`.")
        else:
            _refuse_binary(reader)
            reader.take()


def _at_names(reader: DiffReader) -> bool:
    return reader.peek().startswith("--- ") and reader.peek(1).startswith("+++ ")


def _refuse_binary(reader: DiffReader) -> None:
    line = reader.peek().rstrip("\r")
    if line == "GIT binary patch" or (line.startswith("Binary files ") and line.endswith(" differ")):
        reader.fail("binary patches are not supported", "Leave the binary file out, and replace it as a whole.")


# A file of a plain diff


def _plain_file(reader: DiffReader) -> FilePatch:
    at = reader.at + 1
    old, old_gone = _name(reader, "--- ")
    crlf = reader.peek().endswith("\r")
    new, new_gone = _name(reader, "+++ ")
    hunks = tuple(_hunks(reader, crlf))
    if not hunks:
        reader.fail("a file without a hunk", _NOTHING_FOUND, at)
    path = _plain_path(old, new)
    if path is None:
        reader.fail("both names are /dev/null", line=at)
    # `diff -N` writes the name of a missing file with the epoch as its time.
    if old is None or (old_gone and not any(hunk.old for hunk in hunks)):
        return FilePatch(None, path, "create", None, None, hunks)
    if new is None or (new_gone and not any(hunk.new for hunk in hunks)):
        return FilePatch(path, None, "delete", None, None, hunks)
    return FilePatch(path, path, "modify", None, None, hunks)


def _plain_path(old: str | None, new: str | None) -> str | None:
    if old is None or new is None:
        only = old or new
        return only[2:] if only and only.startswith("a/" if new is None else "b/") else only
    if old == new:
        return old
    if old.partition("/")[2] == new.partition("/")[2] != "":
        return new.partition("/")[2]
    if old.startswith("a/") and new.startswith("b/"):
        old, new = old[2:], new[2:]
    return min(new, old, key=lambda name: (name.count("/"), len(name.rpartition("/")[2]), len(name)))


def _name(reader: DiffReader, mark: str) -> tuple[str | None, bool]:
    """The name after `--- ` or `+++ ` (None for /dev/null), and whether its timestamp marks a missing file."""
    rest = reader.peek()[len(mark) :].rstrip("\r")
    if rest.startswith('"') and (quoted := _QUOTED.match(rest)):
        name, rest = _unquoted(quoted[1]), rest[quoted.end() :]
    else:
        stamp = _STAMP.search(rest)
        name = rest.partition("\t")[0] if "\t" in rest else rest[: stamp.start()] if stamp else rest
        rest = rest[len(name) :]
        name = name.rstrip()
    if not name or "\0" in name:
        reader.fail(f"no file name after `{mark.strip()}`")
    reader.take()
    return (None, True) if name == _DEV_NULL else (name, _is_epoch(rest))


def _is_epoch(rest: str) -> bool:
    stamp = _STAMP.search(rest)
    if not stamp or stamp[1] not in ("1969-12-31", "1970-01-01"):
        return False
    seconds = int(stamp[2]) * 3600 + int(stamp[3]) * 60 + int(stamp[4]) - 86400 * (stamp[1] == "1969-12-31")
    zone = (int(stamp[7]) * 3600 + int(stamp[8]) * 60) * (-1 if stamp[6] == "-" else 1) if stamp[6] else 0
    return seconds == zone


def _unquoted(inner: str) -> str:
    """Decode a name quoted by git: backslash escapes, bytes in octal."""

    def byte(escape: re.Match[bytes]) -> bytes:
        value = escape[1]
        return bytes([int(value, 8) & 255]) if value.isdigit() else _ESCAPES.get(value, value)

    return _ESCAPE.sub(byte, inner.encode()).decode("utf-8", "surrogateescape")


# A file of a git diff


class _Header(NamedTuple):
    """The extended header: the lines between `diff --git` and `---`."""

    fields: dict[str, str]
    line: int  # number of the `diff --git` line

    def mode(self, key: str) -> int | None:
        return int(self.fields[key], 8) & 0o7777 if key in self.fields else None

    def renamed(self, key: str) -> str | None:
        """The name in a `rename` line: quoted if necessary, never prefixed."""
        name = self.fields.get(key)
        quoted = _QUOTED.fullmatch(name) if name else None
        return _unquoted(quoted[1]) if quoted else name


_FIELDS = re.compile(
    r"(old mode|new mode|deleted file mode|new file mode|copy from|copy to|rename from|rename to|rename old|rename new"
    r"|similarity index|dissimilarity index|index) (.+)"
)


def _git_file(reader: DiffReader) -> FilePatch:
    names = reader.peek().rstrip("\r")[len("diff --git ") :]
    header = _git_header(reader)
    old, new = _git_names(names, reader, header.line)
    crlf = False
    created, deleted = "new file mode" in header.fields, "deleted file mode" in header.fields
    if _at_names(reader):
        prefixed = old != new or not _same_halves(names)
        old, _ = _name(reader, "--- ")
        crlf = reader.peek().endswith("\r")
        new, _ = _name(reader, "+++ ")
        old, new = (name and (name.partition("/")[2] or name if prefixed else name) for name in (old, new))
        created, deleted = created or old is None, deleted or new is None
    elif reader.peek().startswith(("--- ", "+++ ")):
        reader.fail("`--- ` and `+++ ` must follow one another")
    hunks = tuple(_hunks(reader, crlf))
    old_mode, new_mode = header.mode("old mode"), header.mode("new mode")
    if "rename from" in header.fields and "rename to" in header.fields:
        old, new = header.renamed("rename from"), header.renamed("rename to")
        return FilePatch(old, new, "rename", old_mode, new_mode, hunks)
    if created and deleted:
        reader.fail("the file is both new and deleted", line=header.line)
    if created:
        return FilePatch(None, new or old, "create", None, header.mode("new file mode"), hunks)
    if deleted:
        return FilePatch(old or new, None, "delete", header.mode("deleted file mode"), None, hunks)
    if old != new or not old:
        reader.fail(f"two names, {old} and {new}, but no `rename from` and `rename to`", line=header.line)
    if not hunks and new_mode is None:
        reader.fail("a file without a hunk, and nothing else to do", line=header.line)
    return FilePatch(old, new, "modify", old_mode, new_mode, hunks)


def _git_header(reader: DiffReader) -> _Header:
    line = reader.at + 1
    reader.take()
    fields: dict[str, str] = {}
    while field := _FIELDS.fullmatch(reader.peek().rstrip("\r")):
        key, value = field.groups()
        if key.startswith("copy"):
            reader.fail("copies are not supported", "Write the new file as one: `--- /dev/null`, all lines added.")
        mode = value.rpartition(" ")[2] if key == "index" and " " in value else value if "mode" in key else "100644"
        if not re.fullmatch("[0-7]{6}", mode):
            reader.fail(f"{mode!r} is not a file mode")
        if not mode.startswith("100"):
            what = {"120000": "symbolic links", "160000": "submodules"}.get(mode, f"files of mode {mode}")
            reader.fail(f"{what} are not supported", "Leave that file out of the diff.")
        fields[key] = value
        reader.take()
    _refuse_binary(reader)
    return _Header(fields, line)


def _same_halves(names: str) -> bool:
    middle = len(names) // 2
    return names[middle : middle + 1] == " " and names[:middle] == names[middle + 1 :]


def _git_names(names: str, reader: DiffReader, line: int) -> tuple[str, str]:
    """Both names of `diff --git A B`. Names may contain spaces: B begins where both are equal but for the prefix."""
    if _same_halves(names):
        name = names[: len(names) // 2]
        quoted = _QUOTED.fullmatch(name)
        name = _unquoted(quoted[1]) if quoted else name
        return name, name
    if '"' in names:
        parts = [_unquoted(part[1]) if part[1] is not None else part[0] for part in _PARTS.finditer(names)]
        if len(parts) == 2:
            return parts[0].partition("/")[2], parts[1].partition("/")[2]
    first, second = names.find("/") + 1, 0
    for middle in (match.start() for match in re.finditer(" ", names)):
        if second <= middle + 1:
            second = names.find("/", middle + 1) + 1
        if not first or not second:
            break
        # Moving right, the old name grows and the new one shrinks: their lengths are equal at most once.
        if middle - first == len(names) - second > 0 and names[first:middle] == names[second:]:
            return names[first:middle], names[second:]
    return ("", "") if " " in names else reader.fail("`diff --git` needs two names", line=line)


_PARTS = re.compile(r'"((?:[^"\\]|\\.)*)"|\S+')


# Hunks


def _hunks(reader: DiffReader, crlf: bool) -> Iterator[Hunk]:
    number, end, unterminated = 0, 0, False
    while _skip_to_hunk(reader):
        number += 1
        line = reader.at + 1
        hunk, whole = _hunk(reader, number, crlf)
        if hunk.first < end:
            raise errors.PatchFailed(
                f"line {line} of the diff: hunk {number} begins at line {hunk.first}, but the one before reaches to "
                f"line {end - 1}: hunks must be in order and not overlap"
            )
        if unterminated:
            reader.fail(f"hunk {number} follows one that reached the end of the file", line=line)
        end, unterminated = hunk.first + len(hunk.old), not whole
        yield hunk
    if number:
        _refuse_leftovers(reader, number)


def _skip_to_hunk(reader: DiffReader) -> bool:
    ahead = 0
    while reader.at + ahead < len(reader.lines) and not reader.peek(ahead).strip():
        ahead += 1
    if not reader.peek(ahead).startswith("@@"):
        return False
    reader.at += ahead
    return True


def _refuse_leftovers(reader: DiffReader, number: int) -> None:
    """Refuse extra lines after a hunk: patch ignores them, but they mean that the counts in the header are wrong."""
    line = reader.peek().rstrip("\r")
    if line[:1] not in ("+", "-", " ", "\\") or line in ("--", "-- ") or _at_names(reader):
        return
    reader.fail(f"hunk {number} has more lines than its header says", "Count them again: @@ -START,OLD +START,NEW @@.")


def _hunk(reader: DiffReader, number: int, crlf: bool) -> tuple[Hunk, bool]:
    """Parse a hunk; also return whether both sides end in a newline."""
    line = reader.at + 1
    header = reader.take().rstrip("\r")
    match = _HUNK.match(header)
    if not match:
        reader.fail("a hunk needs line numbers", "Write @@ -START,OLD +START,NEW @@.", line)
    start, new_start = int(match[1]), int(match[3])
    counts = [1 if match[group] is None else int(match[group]) for group in (2, 4)]
    lines = _body(reader, number, match[0], counts, crlf)
    old = [text for mark, text in lines if mark != "+"]
    new = [text for mark, text in lines if mark != "-"]
    changes = [i for i, (mark, _) in enumerate(lines) if mark != " "]
    if not changes:
        reader.fail(f"hunk {number} changes nothing", line=line)
    context = (changes[0], len(lines) - 1 - changes[-1])
    whole = all(side[-1].endswith("\n") for side in (old, new) if side)
    hunk = Hunk(
        number,
        header=match[0],
        first=start + (not old),
        new_first=new_start + (not new),
        lines=tuple(lines),
        old=old,
        new=new,
        context=context,
    )
    return hunk, whole


def _body(reader: DiffReader, number: int, header: str, left: list[int], crlf: bool) -> list[tuple[str, str]]:
    """Parse as many lines as the header announces; `left` holds the remaining old and new ones."""
    lines: list[tuple[str, str]] = []
    while left[0] or left[1]:
        if (
            reader.ended and left[0] == left[1] <= 3 and lines
        ):  # trailing empty lines are often lost; patch accepts that, too
            return [*lines, *[(" ", "\n")] * left[0]]
        line = reader.peek()
        line = line.removesuffix("\r") if crlf else line
        if line[:1] in ("", "\t", "\r") and not reader.ended:  # the leading space was stripped
            line = f" {line}"
        mark = line[:1]
        sides = {" ": (0, 1), "-": (0,), "+": (1,)}.get(mark)
        if sides is None or any(not left[side] for side in sides):
            _miscounted(reader, number, header, lines)
        for side in sides:
            left[side] -= 1
        reader.take()
        newline = "\n"
        if reader.peek().startswith("\\"):
            if any(left[side] for side in sides):
                reader.fail(f"hunk {number} continues after the end of the file")
            reader.take()
            newline = ""
        lines.append((mark, line[1:] + newline))
    return lines


def _miscounted(reader: DiffReader, number: int, header: str, lines: list[tuple[str, str]]) -> NoReturn:
    old = sum(mark != "+" for mark, _ in lines)
    new = sum(mark != "-" for mark, _ in lines)
    what = "the diff ends" if reader.ended else f"{reader.peek()[:40]!r} is not one of its lines"
    reader.fail(
        f"hunk {number} ({header}) is not complete: after {old} old and {new} new lines {what}",
        "Every line of a hunk begins with a space, - or +; the header counts them: @@ -START,OLD +START,NEW @@.",
    )
