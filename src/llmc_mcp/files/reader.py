"""Reading files economically: a slice of a text file, or one line that describes a binary."""

import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from ..errors import Stale
from . import codec, slices
from .filesystem import Filesystem, Place
from .revisions import Revisions

_REMEMBERED = 512  # cached facts
_SETTLED_NS = 3_000_000_000  # a file changed more recently may change again without a new timestamp


class Costs(NamedTuple):
    """The limits of reading."""

    lines: slices.SliceLimits
    hash_bytes: int
    image_bytes: int
    revision_bytes: int  # the largest file that has a revision: what can't be edited needs none


class FileSlice(NamedTuple):
    """What was read: `first` and `next_offset` count lines from 0; `info` is the file's stat at that moment."""

    text: str
    info: os.stat_result
    first: int = 0
    total_lines: int = 0
    total_exact: bool = True
    next_offset: int | None = None
    encoding: str | None = None
    mime_type: str | None = None
    image: bytes | None = None
    revision: str | None = None


class _Facts:
    """A cache of facts that need a whole file to be read (line count, hash), valid until the file changes."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, tuple[int, ...]], int | str] = {}

    def get(self, fact: str, info: os.stat_result) -> int | str | None:
        return self._known.get((fact, _version(info)))

    def put(self, fact: str, info: os.stat_result, value: int | str) -> None:
        if time.time_ns() - max(info.st_mtime_ns, info.st_ctime_ns) < _SETTLED_NS:
            return
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[fact, _version(info)] = value


def _version(info: os.stat_result) -> tuple[int, ...]:
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


class Reader:
    """Reads files below the roots; created once per server."""

    def __init__(self, files: Filesystem, costs: Costs) -> None:
        self._files, self._costs = files, costs
        self._facts = _Facts()
        self.revisions = Revisions()

    def read(
        self, place: Place, offset: int, max_lines: int, check: Callable[[], None], room: int | None = None
    ) -> FileSlice:
        """A slice of a text file, an image, or one line that describes another binary.

        With `room`, that many bytes may be held, and a line is as long as it is.
        """
        fd, info = self._files.open_file(place)
        limits = self._costs.lines if room is None else self._costs.lines._replace(slice_bytes=room, line_bytes=room)
        try:
            return self._read(fd, info, offset, max_lines, check, limits)
        finally:
            os.close(fd)

    def read_unchanged(
        self, place: Place, identity: str, offset: int, max_lines: int, check: Callable[[], None]
    ) -> FileSlice:
        """The same, but STALE if the file's identity is not `identity`."""
        fd, info = self._files.open_file(place)
        try:
            if identity_of(info) != identity:
                raise Stale(f"{place.label} changed since the handle was made", hint="Read the file again.")
            return self._read(fd, info, offset, max_lines, check, self._costs.lines)
        finally:
            os.close(fd)

    def whole(self, place: Place, limit: int) -> tuple[bytes, os.stat_result] | None:
        """All bytes of a file, or None if it has more than `limit`."""
        fd, info = self._files.open_file(place)
        try:
            data = os.pread(fd, limit + 1, 0)
        finally:
            os.close(fd)
        return None if len(data) > limit else (data, info)

    def revision_with(self, place: Place, snippets: Iterable[tuple[int, str]]) -> str | None:
        """The revision of a file that has these snippets at these lines; None if it has others, or none to compare."""
        whole = self.whole(place, self._costs.revision_bytes)
        if whole is None:
            return None
        lines = codec.decode(whole[0]).text.replace("\r\n", "\n").split("\n")
        for first, snippet in snippets:
            wanted = snippet.replace("\r", "").split("\n")
            if lines[first - 1 : first - 1 + len(wanted)] != wanted:
                return None
        return self.revisions.remember(whole[0])

    def sha256(self, place: Place, check: Callable[[], None]) -> str | None:
        """The hash of a file, or None above the configured size."""
        fd, info = self._files.open_file(place)
        try:
            return self._sha256(fd, info, check)
        finally:
            os.close(fd)

    def _read(
        self,
        fd: int,
        info: os.stat_result,
        offset: int,
        max_lines: int,
        check: Callable[[], None],
        limits: slices.SliceLimits,
    ) -> FileSlice:
        pread, data = partial(os.pread, fd), None
        if info.st_size <= self._costs.revision_bytes:  # read once: the lines and their revision belong together
            data = os.pread(fd, info.st_size, 0)
            pread = partial(_part, data)
        head = slices.read_head(pread)
        encoding = slices.encoding_of(head, whole=info.st_size <= len(head))
        if encoding is None:
            return self._describe(fd, head, info, check)
        known = self._facts.get("lines", info)
        total = known if isinstance(known, int) else None
        part = slices.read_slice(
            pread, info.st_size, encoding, offset, max_lines, limits=limits, check=check, known_total=total
        )
        if total is None and part.total_exact:
            self._facts.put("lines", info, part.total)
        return FileSlice(
            part.text,
            info,
            first=part.first,
            total_lines=part.total,
            total_exact=part.total_exact,
            next_offset=None if part.complete else part.first + part.lines,
            encoding=None if encoding == "utf-8" else encoding,
            revision=None if data is None else self.revisions.remember(data),
        )

    def _describe(self, fd: int, head: bytes, info: os.stat_result, check: Callable[[], None]) -> FileSlice:
        mime_type = slices.image_type(head)
        if mime_type and info.st_size <= self._costs.image_bytes:
            return FileSlice("", info, mime_type=mime_type, image=os.pread(fd, info.st_size, 0))
        words = [mime_type or slices.binary_type(head), f"{info.st_size:,} bytes"]
        if mime_type:
            words.append(f"not shown: images of more than {self._costs.image_bytes:,} bytes are not sent")
        if digest := self._sha256(fd, info, check):
            words.append(f"sha256 {digest}")
        return FileSlice(", ".join(words), info, mime_type=mime_type)

    def _sha256(self, fd: int, info: os.stat_result, check: Callable[[], None]) -> str | None:
        import hashlib

        if info.st_size > self._costs.hash_bytes:
            return None
        if (known := self._facts.get("sha256", info)) is not None:
            return str(known)
        digest = hashlib.sha256()
        position = 0
        while piece := os.pread(fd, 1 << 18, position):
            check()
            digest.update(piece)
            position += len(piece)
        self._facts.put("sha256", info, digest.hexdigest())
        return digest.hexdigest()


def _part(data: bytes, count: int, position: int) -> bytes:
    return data[position : position + count]


def identity_of(info: os.stat_result) -> str:
    """A string that changes when a file is replaced or written; the same on all machines, whose devices differ."""
    return f"{info.st_ino}.{info.st_size}.{info.st_mtime_ns}"
