"""Parse patches in V4A format, which models of OpenAI write.

    *** Begin Patch
    *** Update File: src/a.py
    *** Move to: src/b.py            (optional)
    @@ class Shape                   (optional: lines that come before the hunk)
     a line of context
    -an old line
    +a new line
    *** Add File: src/c.py
    +every line of it
    *** Delete File: src/d.py
    *** End Patch

The line of unified diffs that says so of a missing newline at the end of a file is understood. Hunks have no line
numbers: context and anchors must tell where they belong.
"""

from collections.abc import Iterator

from ..files import codec
from .diff_parse import DiffReader, FilePatch, Hunk

_BEGIN, _END, _END_OF_FILE = "*** Begin Patch", "*** End Patch", "*** End of File"
_NO_NEWLINE = "\\ "
_ADD, _DELETE, _UPDATE, _MOVE = "*** Add File:", "*** Delete File:", "*** Update File:", "*** Move to:"
_SHAPE = "After `*** Begin Patch`: `*** Update File: NAME`, `*** Add File: NAME` or `*** Delete File: NAME`."


def begins(text: str) -> bool:
    """Whether a text is a patch in this format."""
    return text.lstrip().startswith(_BEGIN)


def parse(text: str) -> list[FilePatch]:
    """Parse all files of a patch."""
    codec.refuse_surrogates("the patch", text)
    inner = text.rstrip("\r\n")
    if inner.count("\r\n") == inner.count("\n"):  # all of it was sent so; else a new file has these ends
        text = text.replace("\r\n", "\n")
    reader = DiffReader(text.lstrip())
    reader.take()
    patches = list(_files(reader))
    if not patches:
        reader.fail("the patch names no file", _SHAPE)
    return patches


def _files(reader: DiffReader) -> Iterator[FilePatch]:
    while not reader.ended:
        line = reader.take().rstrip()
        if line == _END:
            _refuse_more(reader)
            return
        if line.startswith(_ADD):
            yield _added(reader, _name(reader, line, _ADD))
        elif line.startswith(_DELETE):
            yield FilePatch(_name(reader, line, _DELETE), None, "delete", None, None, (), quotes_content=False)
        elif line.startswith(_UPDATE):
            yield _updated(reader, _name(reader, line, _UPDATE))
        elif line:
            reader.fail(f"{line[:60]!r} does not begin a file", _SHAPE, reader.at)
    reader.fail(f"`{_END}` is missing: the patch may have been cut", "Send all of it.")


def _refuse_more(reader: DiffReader) -> None:
    while not reader.ended and not reader.peek().strip():
        reader.take()
    if not reader.ended:
        reader.fail(f"something follows `{_END}`", "Put all files into one patch.")


def _name(reader: DiffReader, line: str, mark: str) -> str:
    name = line.removeprefix(mark).strip()
    if not name or "\0" in name:
        reader.fail(f"no file name after `{mark}`", line=reader.at)
    return name


def _added(reader: DiffReader, path: str) -> FilePatch:
    lines: list[tuple[str, str]] = []
    while not reader.ended and not reader.peek().startswith("*** "):
        if not reader.peek().startswith("+"):
            reader.fail("every line of a new file begins with +")
        line = reader.take()[1:]
        lines.append(("+", line if _takes_no_newline(reader) else f"{line}\n"))
    hunk = Hunk(1, "new file", 1, 1, tuple(lines), [], [line for _, line in lines], (0, 0))
    return FilePatch(None, path, "create", None, None, (hunk,) if lines else ())


def _updated(reader: DiffReader, path: str) -> FilePatch:
    moved = None
    if reader.peek().startswith(_MOVE):
        moved = _name(reader, reader.take().rstrip(), _MOVE)
    hunks: list[Hunk] = []
    while not reader.ended and not _at_next_file(reader):
        hunks.append(_hunk(reader, len(hunks) + 1))
    if not hunks and moved is None:
        reader.fail(f"nothing is changed in {path}", line=reader.at)
    return FilePatch(path, moved or path, "rename" if moved else "modify", None, None, tuple(hunks))


def _at_next_file(reader: DiffReader) -> bool:
    return reader.peek().startswith("*** ") and reader.peek().rstrip() != _END_OF_FILE


def _takes_no_newline(reader: DiffReader) -> bool:
    """Whether the line before has no line end; takes what says so."""
    said = reader.peek().startswith(_NO_NEWLINE)
    if said:
        reader.take()
    return said


def _hunk(reader: DiffReader, number: int) -> Hunk:
    began = reader.at + 1
    anchors: list[str] = []
    while reader.peek().startswith("@@"):
        anchors += [anchor] if (anchor := reader.take()[2:].removesuffix("@@").strip()) else []
    lines: list[tuple[str, str]] = []
    unended: set[int] = set()
    while not reader.ended and not reader.peek().startswith(("@@", "*** ")):
        line = reader.take().removesuffix("\r") or " "  # an empty line of context may have lost its space
        if line[0] not in " +-":
            reader.fail("a line of a hunk begins with a space, - or +", line=reader.at)
        lines.append((line[0], f"{line[1:]}\n"))
        if _takes_no_newline(reader):
            unended.add(len(lines) - 1)
    if reader.lines[reader.at - 1] == "" and reader.peek().startswith("*** "):
        lines.pop()  # an empty line before the next part is no context
    ends_file = reader.peek().rstrip() == _END_OF_FILE or bool(unended)
    if reader.peek().rstrip() == _END_OF_FILE:
        reader.take()
    last = max((at for at, (mark, _) in enumerate(lines) if mark != "-"), default=-1)
    changes = [at for at, (mark, _) in enumerate(lines) if mark != " "]
    if not changes:
        reader.fail(f"hunk {number} changes nothing", line=began)
    return Hunk(
        number,
        header=f"@@ {anchors[-1]}" if anchors else "@@",
        first=0,
        new_first=0,
        lines=tuple(lines),
        old=[line for mark, line in lines if mark != "+"],
        new=[line for mark, line in lines if mark != "-"],
        context=(changes[0], len(lines) - 1 - changes[-1]),
        anchors=tuple(anchors),
        ends_file=ends_file,
        final_newline=last not in unended if unended else None,
    )
