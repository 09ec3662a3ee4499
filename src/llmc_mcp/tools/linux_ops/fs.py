"""Files: read, list, stat."""

import time
from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec

from ...context import Context
from ...errors import Forbidden, LlmcError
from ...files import names
from ...files.filesystem import Place, kind_of
from ...tool import FILES, Image, Result, Row, as_payload, tool

if TYPE_CHECKING:
    from ...files.reader import FileSlice

Depth = Annotated[int, msgspec.Meta(ge=1, le=10)]
TreeDepth = Annotated[int, msgspec.Meta(ge=0, le=10)]
FromStart = Annotated[int, msgspec.Meta(ge=0)]
SomeBytes = Annotated[int, msgspec.Meta(ge=1)]
SomeLines = Annotated[int, msgspec.Meta(ge=1, le=2000)]
SomePaths = Annotated[list[str], msgspec.Meta(min_length=1, max_length=100)]

_WHOLE_FILE = 1 << 62


class FileMeta(msgspec.Struct, omit_defaults=True):
    """The source of a slice of a file, and where to continue."""

    path: str
    length: int
    total_lines: int
    truncated: bool
    next_offset: int | None = None
    first_line: int | None = None
    rev: str | None = None
    total_lines_exact: bool | None = None
    encoding: str | None = None
    mime_type: str | None = None
    warnings: list[str] | None = None


class FileText(Result):
    """Some lines of a file."""

    data: str
    meta: FileMeta
    image: Image | None = None
    body: ClassVar[str] = "data"

    def cut(self, kept: int) -> None:
        _cut_meta(self.meta, self.data, kept)


class FileContent(Result):
    """Some lines of a file, as linux_fs_read returns them."""

    content: str
    meta: FileMeta
    handle: str | None = None
    image: Image | None = None
    body: ClassVar[str] = "content"

    def cut(self, kept: int) -> None:
        _cut_meta(self.meta, self.content, kept)


def _cut_meta(meta: FileMeta, sent: str, kept: int) -> None:
    meta.truncated, meta.length = True, len(sent)
    meta.next_offset = (meta.first_line or 1) - 1 + kept


class OneOfMany(Row):
    """One of several files; lean text shows it below its path."""

    path: str
    content: str
    total_lines: int
    truncated: bool
    error: str | None = None
    rev: str | None = None
    line_format: ClassVar[str] = "{content}{error}"
    group_by: ClassVar[str] = "path"


class ManyFiles(Result):
    """Several files that share one reply."""

    files: list[OneOfMany]
    body: ClassVar[str] = "files"

    def cut(self, kept: int) -> None:
        """Do nothing: files are shortened before the reply is built."""


class ListMeta(msgspec.Struct, omit_defaults=True):
    """The directory of a listing, and whether the listing is complete."""

    path: str
    truncated: bool
    shown: int | None = None
    total: int | None = None
    total_is_exact: bool | None = None
    warnings: list[str] | None = None


class Listing(Result):
    """Names in a directory; names of directories end in a slash."""

    data: list[str]
    meta: ListMeta
    handle: str | None = None
    body: ClassVar[str] = "data"
    handle_kind: ClassVar[str] = "fs_list"

    def handle_meta(self) -> dict[str, str | int]:
        return {"path": self.meta.path}

    def cut(self, kept: int) -> None:
        self.meta.truncated, self.meta.shown = True, kept


class FileEntry(Row):
    """One entry of a tree."""

    path: str
    type: str
    size_bytes: int
    mtime_iso: str
    line_format: ClassVar[str] = "{path}\t{type}\t{size_bytes}\t{mtime_iso}"


class Tree(Result):
    """Entries below a directory."""

    entries: list[FileEntry]
    truncated: bool
    total_entries: int
    root: str
    logged: ClassVar[tuple[str, ...]] = ("total_entries",)
    shown: int | None = None
    total_is_exact: bool | None = None
    note: str | None = None
    handle: str | None = None
    body: ClassVar[str] = "entries"
    handle_kind: ClassVar[str] = "fs_list"

    def handle_meta(self) -> dict[str, str | int]:
        return {"root": self.root}


class StatData(msgspec.Struct, omit_defaults=True):
    """The attributes of a path."""

    size: int
    mtime: str
    mode: str
    type: str
    sha256: str | None = None
    link_target: str | None = None


class Stat(Result):
    """The stat of a path."""

    data: StatData


@tool("Read lines of a file or handle; a negative offset counts from the end", needs=FILES, read_only=True, role="core")
def read_file(ctx: Context, path: str, offset_lines: int = 0, max_lines: SomeLines | None = None) -> FileText:
    lines = _lines(ctx, max_lines, 2000)
    if path.startswith("H_"):
        from ...files.handles import is_handle

        if is_handle(path):
            return _read_handle(ctx, path, offset_lines, lines)
    place = ctx.app.files.locate(path)
    reading = _read(ctx, place, offset_lines, lines)
    return FileText(reading.text, _meta(place, reading), _image(reading))


def _lines(ctx: Context, wanted: int | None, usual: int) -> int:
    """How many lines to read: as many as were asked for; a reader gets the usual number, code the whole file."""
    if wanted is not None:
        return wanted
    return _WHOLE_FILE if ctx.in_code else usual


def _read(ctx: Context, place: Place, offset: int, lines: int) -> "FileSlice":
    return ctx.app.reader.read(place, offset, lines, ctx.check, ctx.reply_bytes if ctx.in_code else None)


def _read_handle(ctx: Context, handle_id: str, offset: int, max_lines: int) -> FileText:
    page = ctx.app.pages.lines(ctx.session.principal, handle_id, offset, max_lines, ctx.check)
    first = offset if offset >= 0 else max(page.total + offset, 0)
    meta = FileMeta(handle_id, len(page.content), page.total, page.next_offset is not None, page.next_offset)
    meta.first_line = first + 1 if first else None
    return FileText(page.content, meta)


@tool("Read up to 2000 lines of a file from an offset", needs=FILES, read_only=True)
def linux_fs_read(
    ctx: Context, path: str, offset_lines: FromStart = 0, max_lines: SomeLines | None = None
) -> FileContent:
    place = ctx.app.files.locate(path)
    reading = _read(ctx, place, offset_lines, _lines(ctx, max_lines, 200))
    meta = _meta(place, reading)
    too_long = len(reading.text) > ctx.reply_bytes // 2
    handle = _file_handle(ctx, place, reading) if meta.truncated or too_long else None
    return FileContent(reading.text, meta, handle, _image(reading))


@tool("Read a file of a repository; root must lie in an allowed root", needs=FILES, read_only=True)
def repo_read(ctx: Context, root: str, path: str, max_bytes: SomeBytes | None = None) -> FileText:
    place = ctx.app.files.below(ctx.app.files.locate(root), path)
    reading = _read(ctx, place, 0, _WHOLE_FILE)
    meta = _meta(place, reading)
    if max_bytes is not None and len(reading.text.encode()) > max_bytes:
        text = reading.text.encode()[:max_bytes].decode("utf-8", "ignore")
        meta.truncated, meta.length, meta.next_offset = True, len(text), text.count("\n")
        return FileText(text, meta)
    return FileText(reading.text, meta, _image(reading))


@tool("Read several files at once, one reply shared among them", needs=FILES, read_only=True)
def linux_fs_read_many(ctx: Context, paths: SomePaths, max_lines: SomeLines | None = None) -> ManyFiles:
    lines = _lines(ctx, max_lines, 200)
    # Small files leave room to large ones: shortest first, each file gets an equal share of the remaining room.
    readings = {path: _try_to_read(ctx, path, lines) for path in dict.fromkeys(paths)}
    room = ctx.reply_bytes * 4 // 5 - sum(len(path) + 40 for path in readings)
    waiting = len(readings)
    for row in sorted(readings.values(), key=lambda row: len(row.content)):
        _shorten(row, room // waiting)
        room -= len(row.content.encode())
        waiting -= 1
    return ManyFiles(list(readings.values()))


def _try_to_read(ctx: Context, path: str, max_lines: int) -> OneOfMany:
    try:
        place = ctx.app.files.locate(path)
        reading = _read(ctx, place, 0, max_lines)
    except LlmcError as exc:
        return OneOfMany(path, "", 0, False, f"{exc.code}: {exc.message}")
    truncated = reading.next_offset is not None
    return OneOfMany(place.absolute, reading.text, reading.total_lines, truncated, rev=reading.revision)


def _shorten(row: OneOfMany, room: int) -> None:
    """Cut the text of a file at the end of a line so that it fits its share."""
    encoded = row.content.encode()
    if len(encoded) <= room:
        return
    end = encoded.rfind(b"\n", 0, max(room, 0)) + 1
    row.content = encoded[:end].decode("utf-8", "replace")
    row.truncated = True
    row.error = f"[cut after line {row.content.count(chr(10))} of {row.total_lines}]"


@tool("List a directory, optionally several levels deep", needs=FILES, read_only=True, role="core")
def list_dir(ctx: Context, path: str, depth: Depth = 1, include_hidden: bool = False) -> Listing:
    from ...files.filesystem import WalkBudget

    place = ctx.app.files.locate(path)
    bound = WalkBudget(ctx.app.config.limits.list_count_cap)
    rows: list[str] = []
    for entry in ctx.app.files.walk(place, depth=depth, include_hidden=include_hidden, bound=bound):
        rows.append(names.show(entry.path) + ("/" if entry.kind == "dir" else ""))
        if not len(rows) % 256:
            ctx.check()
    cap = ctx.app.config.limits.max_list_entries
    exact = False if bound.reached else None
    listing = Listing(rows, ListMeta(place.absolute, bound.reached, None, len(rows), exact))
    if len(rows) > cap:
        listing.handle = ctx.keep(listing.handle_kind, listing.handle_meta(), as_payload(rows))
        listing.data = rows[:cap]
        listing.cut(cap)
    return listing


@tool("List a tree with types, sizes and times; ignored folders are not entered", needs=FILES, read_only=True)
def linux_fs_list(
    ctx: Context,
    path: str,
    depth: TreeDepth = 2,
    include_hidden: bool = False,
    file_glob: str | None = None,
    include_ignored: bool = False,
) -> Tree:
    from ...files.filesystem import WalkBudget

    place = ctx.app.files.locate(path)
    bound, notes = WalkBudget(ctx.app.config.limits.list_count_cap), list[str]()
    found = ctx.app.lister.tree(place, depth, include_hidden, file_glob, include_ignored, ctx.check, bound, notes)
    base = place.absolute.rstrip("/")
    rows = [
        FileEntry(
            f"{base}/{names.show(entry.path)}" if entry.path else place.absolute,
            entry.kind,
            entry.size,
            _iso(entry.mtime),
        )
        for entry in found
    ]
    shown = ctx.app.config.limits.max_tree_entries
    tree = Tree(rows, bound.reached, len(rows), place.absolute)
    tree.total_is_exact = False if bound.reached else None
    tree.note = " ".join(notes) or None
    if len(rows) > shown:
        tree.handle = ctx.keep(tree.handle_kind, tree.handle_meta(), as_payload(rows))
        tree.entries = rows[:shown]
        tree.cut(shown)
    return tree


@tool("Size, mtime, mode, type and sha256 of a path", needs=FILES, read_only=True)
def stat(ctx: Context, path: str) -> Stat:
    place = ctx.app.files.locate(path)
    info, target = ctx.app.files.stat(place)
    data = StatData(
        info.st_size,
        _iso(info.st_mtime),
        f"{info.st_mode & 0o7777:04o}",
        kind_of(info.st_mode),
        link_target=None if target is None else names.show(target),
    )
    if data.type == "file":
        try:
            data.sha256 = ctx.app.reader.sha256(place, ctx.check)
        except Forbidden:
            pass  # the other attributes of an unreadable file are still useful
    return Stat(data)


def _meta(place: Place, reading: "FileSlice") -> FileMeta:
    return FileMeta(
        path=place.absolute,
        length=len(reading.text),
        total_lines=reading.total_lines,
        truncated=reading.next_offset is not None,
        next_offset=reading.next_offset,
        first_line=reading.first + 1 if reading.first else None,
        rev=reading.revision,
        total_lines_exact=None if reading.total_exact else False,
        encoding=reading.encoding,
        mime_type=reading.mime_type,
    )


def _image(reading: "FileSlice") -> Image | None:
    return None if reading.image is None else Image(reading.image, reading.mime_type or "")


def _file_handle(ctx: Context, place: Place, reading: "FileSlice") -> str | None:
    """A handle with a snapshot of a small file, or with a reference to a large one."""
    from ...files.reader import identity_of

    meta: dict[str, str | int] = {"path": place.real, "identity": identity_of(reading.info)}
    limit = ctx.app.config.limits.handle_max_bytes
    if reading.info.st_size > limit:
        return ctx.refer("file_content", meta, reading.info.st_size)
    whole = ctx.app.reader.whole(place, limit)
    return None if whole is None else ctx.keep("file_content", {**meta, "identity": identity_of(whole[1])}, whole[0])


def _iso(timestamp: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(timestamp))
