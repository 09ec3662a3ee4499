"""Slices of text files, streamed: memory use depends on the slice, not on the file.

A line ends at `\\n`, as for wc, rg and editors; line ends are kept. Encodings are detected (UTF-8, UTF-16, byte
order marks, Latin-1); binary files are recognised.
"""

import codecs
from collections.abc import Callable, Iterator
from typing import NamedTuple

Pread = Callable[[int, int], bytes]  # (bytes, position) → what stands there

_CHUNK = 1 << 18
_HEAD = 1 << 16  # bytes examined to detect a file's type
_TEXT_CONTROLS = frozenset(b"\t\n\r\f\b\x1b")
_BINARY_CONTROLS = bytes(byte for byte in range(32) if byte not in _TEXT_CONTROLS)

_IMAGES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
_KNOWN_BINARIES = {
    b"\x7fELF": "ELF binary",
    b"PK\x03\x04": "zip archive",
    b"\x1f\x8b": "gzip data",
    b"BZh": "bzip2 data",
    b"\xfd7zXZ\x00": "xz data",
    b"\x28\xb5\x2f\xfd": "zstd data",
    b"%PDF": "PDF document",
    b"SQLite format 3\x00": "SQLite database",
}


class SliceLimits(NamedTuple):
    """Limits of a slice."""

    slice_bytes: int
    line_bytes: int
    count_bytes: int


class Slice(NamedTuple):
    """Some whole lines of a file; `first` counts from 0."""

    text: str
    first: int
    lines: int
    total: int
    total_exact: bool
    complete: bool  # the slice reaches the end of the file
    long_lines: dict[int, int]  # lines that were cut: their number (from 1) and real size in bytes


def encoding_of(head: bytes, *, whole: bool = False) -> str | None:
    """The codec for a file that starts with `head`; None for binary content."""
    if head.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\x00" in head:
        return _utf16_without_mark(head)
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, whole)
    except UnicodeDecodeError:
        return None if len(head.translate(None, _BINARY_CONTROLS)) < len(head) else "latin-1"
    return "utf-8"


def _utf16_without_mark(head: bytes) -> str | None:
    """Detect UTF-16 without a mark: mostly ASCII text has NULs at even or at odd positions only."""
    even, odd = head[0::2].count(0), head[1::2].count(0)
    if (even and odd) or max(even, odd) <= len(head) // 2 * 0.4:
        return None
    encoding = "utf-16-le" if odd else "utf-16-be"
    seen = head.decode(encoding, "ignore").encode("utf-8", "ignore")
    return encoding if len(seen.translate(None, _BINARY_CONTROLS)) == len(seen) else None


def image_type(head: bytes) -> str | None:
    """The MIME type of an image that clients can show."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _IMAGES.items() if head.startswith(magic)), None)


def binary_type(head: bytes) -> str:
    """A short description of a binary file."""
    return next((words for magic, words in _KNOWN_BINARIES.items() if head.startswith(magic)), "binary data")


def read_head(pread: Pread) -> bytes:
    """The part of a file that type detection examines."""
    return pread(_HEAD, 0)


def read_slice(
    pread: Pread,
    size: int,
    encoding: str,
    offset: int,
    max_lines: int,
    limits: SliceLimits,
    check: Callable[[], None],
    known_total: int | None = None,
) -> Slice:
    """Lines `offset` to `offset + max_lines`; a negative offset counts from the end.

    `known_total` is the line count if an earlier read found it; it saves counting.
    """
    source = _Source(pread, size, encoding, check)
    if offset >= 0:
        return _forward(source, 0, 0, offset, max_lines, limits, known_total=known_total)
    if source.wide:  # wide encodings can't be read backwards: count first
        total = sum(chunk.count(b"\n") for chunk in source.chunks(0)) + source.unterminated
        return _forward(source, 0, 0, max(total + offset, 0), max_lines, limits)
    start, stepped = _step_back(source, -offset)
    if size > limits.count_bytes:
        found = _forward(source, start, 0, 0, max_lines, limits)
        total = _estimate(size, size - start, stepped)
        return found._replace(first=max(total - stepped, 0), total=total, total_exact=False)
    before = source.count_newlines(0, start) if known_total is None else max(known_total - stepped, 0)
    return _forward(source, start, before, before, max_lines, limits, known_total=known_total)


class _Source:
    """A file as chunks of UTF-8 (or Latin-1) bytes, whatever its encoding."""

    def __init__(self, pread: Pread, size: int, encoding: str, check: Callable[[], None]) -> None:
        self.pread, self.size, self.encoding, self.check = pread, size, encoding, check
        self.wide = encoding.startswith("utf-16")
        self.unterminated = 0  # 1 when the last chunk read did not end in a newline

    def chunks(self, start: int) -> Iterator[bytes]:
        decoder = codecs.getincrementaldecoder(self.encoding)("replace") if self.wide else None
        position = start
        while piece := self.pread(_CHUNK, position):
            self.check()
            if position == 0 and self.encoding == "utf-8-sig":
                piece = piece[len(codecs.BOM_UTF8) :]
                position += len(codecs.BOM_UTF8)
            position += len(piece)
            if decoder:
                piece = decoder.decode(piece).encode("utf-8", "replace")
            if piece:
                self.unterminated = int(not piece.endswith(b"\n"))
                yield piece

    def count_newlines(self, start: int, end: int) -> int:
        count = 0
        while start < end:
            self.check()
            piece = self.pread(min(_CHUNK, end - start), start)
            if not piece:
                break
            count += piece.count(b"\n")
            start += len(piece)
        return count

    def decode(self, raw: bytes) -> str:
        return raw.decode("latin-1" if self.encoding == "latin-1" else "utf-8", "replace")


class _Collector:
    """Collects whole lines up to the limits; keeps only the head of an overlong line."""

    def __init__(self, first: int, max_lines: int, limits: SliceLimits, *, utf8: bool) -> None:
        self.first, self.max_lines, self.limits, self.utf8 = first, max_lines, limits, utf8
        self.kept: list[bytes] = []
        self.kept_bytes = 0
        self.lines = 0
        self.long_lines: dict[int, int] = {}
        self.partial: list[bytes] = []  # the head of the line that the last chunk broke off in
        self.partial_size = 0

    @property
    def full(self) -> bool:
        return self.lines >= self.max_lines or self.kept_bytes >= self.limits.slice_bytes

    def feed(self, piece: bytes, position: int) -> int:
        """Collect lines of `piece` from `position` on; returns where it stopped."""
        while not self.full:
            end = piece.find(b"\n", position)
            if end < 0:
                self._hold(piece[position:])
                return len(piece)
            self._close(piece[position : end + 1])
            position = end + 1
        return position

    def finish(self) -> None:
        """End of file: a last line without a newline counts."""
        if self.partial_size and not self.full:
            self._close(b"")

    def _hold(self, rest: bytes) -> None:
        room = self.limits.line_bytes + 1 - self.partial_size
        if room > 0:
            self.partial.append(rest[:room])
        self.partial_size += len(rest)

    def _close(self, rest: bytes) -> None:
        size = self.partial_size + len(rest)
        if size <= self.limits.line_bytes:
            line = b"".join([*self.partial, rest])
        else:
            line = self._cut(b"".join(self.partial) + rest[: self.limits.line_bytes], size)
        self.partial, self.partial_size = [], 0
        self.kept.append(line)
        self.kept_bytes += len(line)
        self.lines += 1

    def _cut(self, head: bytes, size: int) -> bytes:
        self.long_lines[self.first + self.lines + 1] = size
        head = head[: self.limits.line_bytes]
        if self.utf8:  # not in the middle of a character
            while head and head[-1] & 0xC0 == 0x80:
                head = head[:-1]
            if head and head[-1] >= 0xC0:
                head = head[:-1]
        return head + f" ...[line cut, {size:,} bytes]\n".encode("ascii")


def _forward(
    source: _Source,
    start: int,
    line: int,
    offset: int,
    max_lines: int,
    limits: SliceLimits,
    known_total: int | None = None,
) -> Slice:
    """Skip from `line` (at byte `start`) to line `offset`, collect, then count what is left."""
    collector = _Collector(offset, max_lines, limits, utf8=source.encoding != "latin-1")
    seen, scanned, more = line, 0, False
    count_all = known_total is None and source.size <= limits.count_bytes
    for piece in source.chunks(start):
        scanned += len(piece)
        position, seen = _skip(piece, seen, offset) if seen < offset else (0, seen)
        if position < len(piece) and not collector.full:
            stop = collector.feed(piece, position)
        else:
            stop = position
        seen += piece.count(b"\n", position)
        if stop < len(piece):
            more = True
            if not count_all and collector.full:
                break
    collector.finish()
    total = seen + source.unterminated
    exact = count_all or not more or known_total is not None
    if more and known_total is not None:
        total = known_total
    elif not exact:
        total = max(_estimate(source.size - start, scanned, seen - line) + line, offset + collector.lines)
    return Slice(
        source.decode(b"".join(collector.kept)),
        first=offset,
        lines=collector.lines,
        total=total,
        total_exact=exact,
        complete=not more,
        long_lines=collector.long_lines,
    )


def _skip(piece: bytes, seen: int, offset: int) -> tuple[int, int]:
    """Move past newlines in `piece` until line `offset` starts; returns (position, newlines passed in all)."""
    count = piece.count(b"\n")
    if seen + count < offset:
        return len(piece), seen + count
    position = 0
    while seen < offset:
        position = piece.find(b"\n", position) + 1
        seen += 1
    return position, seen


def _step_back(source: _Source, lines: int) -> tuple[int, int]:
    """The byte where the last `lines` lines start, and how many lines that really are."""
    end = source.size
    last = source.pread(1, end - 1) if end else b""
    found = 0 if last in (b"\n", b"") else 1  # a last line without a newline is a line
    wanted = lines + 1 - found  # newlines to step over: the one before the first wanted line included
    position = end
    newlines = 0
    while position > 0:
        source.check()
        size = min(_CHUNK, position)
        piece = source.pread(size, position - size)
        if newlines + piece.count(b"\n") < wanted:
            newlines += piece.count(b"\n")
            position -= size
            continue
        at = len(piece)
        while newlines < wanted:
            at = piece.rfind(b"\n", 0, at)
            newlines += 1
        return position - size + at + 1, lines
    return 0, newlines + found


def _estimate(size: int, scanned: int, lines: int) -> int:
    return round(size * max(lines, 1) / max(scanned, 1))
