"""Files: read, list, stat."""

import hashlib
import os
from datetime import UTC, datetime
from typing import Annotated, ClassVar

import msgspec

from ...app import Context
from ...te import names, text
from ...te.filesystem import kind_of
from ...tool import Image, Result, tool

AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
Depth = Annotated[int, msgspec.Meta(ge=1, le=10)]
FromStart = Annotated[int, msgspec.Meta(ge=0)]
SomeLines = Annotated[int, msgspec.Meta(ge=1, le=2000)]


class FileMeta(msgspec.Struct, omit_defaults=True):
    """Where a slice of a file comes from and how to go on."""

    path: str
    length: int
    total_lines: int
    truncated: bool
    next_offset: int | None = None
    first_line: int | None = None
    total_lines_exact: bool | None = None
    encoding: str | None = None
    mime_type: str | None = None


class FileText(Result):
    """Some lines of a file."""

    data: str
    meta: FileMeta
    image: Image | None = None
    body: ClassVar[str] = "data"

    def cut(self, kept: int) -> None:
        _cut_meta(self.meta, self.data, kept)


class FileContent(Result):
    """The same, in the shape of linux_fs_read."""

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


class ListMeta(msgspec.Struct, omit_defaults=True):
    """What a listing is of."""

    path: str
    truncated: bool
    shown: int | None = None
    total: int | None = None


class Listing(Result):
    """Names in a directory; those of directories end in a slash."""

    data: list[str]
    meta: ListMeta
    body: ClassVar[str] = "data"

    def cut(self, kept: int) -> None:
        self.meta.truncated, self.meta.shown = True, kept


class StatData(msgspec.Struct, omit_defaults=True):
    """What the file system knows of a path."""

    size: int
    mtime: str
    mode: str
    type: str
    sha256: str | None = None
    link_target: str | None = None


class Stat(Result):
    """One path's stat."""

    data: StatData


@tool("Read lines of a file; negative offset counts from the end", feature="fs_enabled", read_only=True)
def read_file(ctx: Context, path: str, offset_lines: int = 0, max_lines: SomeLines = 2000) -> FileText:
    content, meta, image = _read(ctx, path, offset_lines, max_lines)
    return FileText(content, meta, image)


@tool("Read up to 2000 lines of a file from an offset", feature="fs_enabled", read_only=True)
def linux_fs_read(ctx: Context, path: str, offset_lines: FromStart = 0, max_lines: SomeLines = 200) -> FileContent:
    content, meta, image = _read(ctx, path, offset_lines, max_lines)
    return FileContent(content, meta, None, image)


def _read(ctx: Context, path: str, offset: int, max_lines: int) -> tuple[str, FileMeta, Image | None]:
    files, limits = ctx.app.files, ctx.app.config.limits
    place = files.locate(path)
    fd, info = files.open_file(place)
    try:
        head = text.read_head(fd)
        encoding = text.encoding_of(head, whole=info.st_size <= len(head))
        if encoding is None:
            return _describe(fd, head, info.st_size, FileMeta(place.absolute, 0, 0, False), ctx)
        part = text.read_slice(
            fd,
            info.st_size,
            encoding,
            offset,
            max_lines,
            text.Limits(limits.max_slice_bytes, limits.max_line_bytes, limits.count_lines_max_bytes),
            ctx.check,
        )
    finally:
        os.close(fd)
    meta = FileMeta(place.absolute, len(part.text), part.total, not part.complete)
    meta.first_line = part.first + 1 if part.first else None
    meta.next_offset = part.first + part.lines if meta.truncated else None
    meta.total_lines_exact = None if part.total_exact else False
    meta.encoding = None if encoding == "utf-8" else encoding
    return part.text, meta, None


def _describe(fd: int, head: bytes, size: int, meta: FileMeta, ctx: Context) -> tuple[str, FileMeta, Image | None]:
    """A binary file in one line; an image also as itself."""
    limits = ctx.app.config.limits
    meta.mime_type = text.image_type(head)
    if meta.mime_type and size <= limits.max_image_bytes:
        return "", meta, Image(os.pread(fd, size, 0), meta.mime_type)
    words = [meta.mime_type or text.binary_type(head), f"{size:,} bytes"]
    if digest := _sha256(fd, size, ctx):
        words.append(f"sha256 {digest}")
    line = ", ".join(words)
    meta.length = len(line)
    return line, meta, None


@tool("List a directory, optionally several levels deep", feature="fs_enabled", read_only=True)
def list_dir(ctx: Context, path: str, depth: Depth = 1, include_hidden: bool = False) -> Listing:
    place = ctx.app.files.locate(path)
    cap = ctx.app.config.limits.max_list_entries
    shown: list[str] = []
    total = 0
    for entry in ctx.app.files.walk(place, depth=depth, include_hidden=include_hidden):
        total += 1
        if total <= cap:
            shown.append(names.show(entry.path) + ("/" if entry.kind == "dir" else ""))
        if not total % 256:
            ctx.check()
    meta = ListMeta(place.absolute, total > cap, cap if total > cap else None, total)
    return Listing(shown, meta)


@tool("Size, mtime, mode, type and sha256 of a path", feature="fs_enabled", read_only=True)
def stat(ctx: Context, path: str) -> Stat:
    files = ctx.app.files
    place = files.locate(path)
    info, target = files.stat(place)
    data = StatData(
        info.st_size,
        datetime.fromtimestamp(info.st_mtime, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        f"{info.st_mode & 0o7777:04o}",
        kind_of(info.st_mode),
        link_target=None if target is None else names.show(target),
    )
    if data.type == "file" and info.st_size <= ctx.app.config.limits.hash_max_bytes:
        fd, info = files.open_file(place)
        try:
            data.sha256 = _sha256(fd, info.st_size, ctx)
        finally:
            os.close(fd)
    return Stat(data)


def _sha256(fd: int, size: int, ctx: Context) -> str | None:
    """The hash of a file up to the configured size."""
    if size > ctx.app.config.limits.hash_max_bytes:
        return None
    digest = hashlib.sha256()
    position = 0
    while piece := os.pread(fd, 1 << 18, position):
        ctx.check()
        digest.update(piece)
        position += len(piece)
    return digest.hexdigest()
