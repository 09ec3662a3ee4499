"""Reading a handle in pages, whether it is a snapshot in the data directory or a reference to a file."""

import os
from collections.abc import Callable
from typing import NamedTuple

from ..errors import LlmcError
from .filesystem import Filesystem
from .handles import Handle, Handles
from .reader import Reader, identity_of
from .ripgrep import Search


class TextPage(NamedTuple):
    """Text of a page; `stale` when the snapshot's source has changed since."""

    content: str
    total: int
    next_offset: int | None
    stale: bool = False


class Pages:
    """Reads pages of handles."""

    def __init__(self, handles: Handles, files: Filesystem, reader: Reader, search: Callable[[], Search]) -> None:
        self._handles, self._files, self._reader, self._search = handles, files, reader, search

    def lines(self, principal: str, handle_id: str, offset: int, limit: int, check: Callable[[], None]) -> TextPage:
        """Lines `offset` to `offset + limit`; negative counts from the end."""
        handle = self._handles.find(principal, handle_id)
        if handle.payload is None:
            place = self._files.locate(str(handle.meta["path"]))
            part = self._reader.read_unchanged(place, str(handle.meta["identity"]), offset, limit, check)
            return TextPage(part.text, part.total_lines, part.next_offset)
        page = self._handles.lines(handle, offset, limit)
        return TextPage(_text(page.data), page.total, page.next_offset, self._changed(handle))

    def bytes(self, principal: str, handle_id: str, offset: int, limit: int) -> TextPage:
        """Bytes `offset` to `offset + limit`, as text."""
        handle = self._handles.find(principal, handle_id)
        if handle.payload is not None:
            page = self._handles.read(handle, offset, limit)
            return TextPage(_text(page.data), page.total, page.next_offset, self._changed(handle))
        fd = self._open_reference(handle)
        try:
            data = os.pread(fd, limit, max(offset if offset >= 0 else handle.size + offset, 0))
        finally:
            os.close(fd)
        end = offset + len(data)
        return TextPage(_text(data), handle.size, end if end < handle.size else None)

    def matching(
        self, principal: str, handle_id: str, pattern: str, offset: int, limit: int, check: Callable[[], None]
    ) -> TextPage:
        """Lines that match a regular expression, with their numbers (from 1)."""
        handle = self._handles.find(principal, handle_id)
        fd = self._handles.open(handle) if handle.payload is not None else self._open_reference(handle)
        try:
            found, total = self._search().lines_of(fd, pattern, offset, limit, check)
        finally:
            os.close(fd)
        end = offset + len(found)
        stale = handle.payload is not None and self._changed(handle)
        return TextPage(_text(b"".join(found)), total, end if end < total else None, stale)

    def _open_reference(self, handle: Handle) -> int:
        place = self._files.locate(str(handle.meta["path"]))
        self._reader.read_unchanged(place, str(handle.meta["identity"]), 0, 1, lambda: None)
        return self._files.open_file(place)[0]

    def _changed(self, handle: Handle) -> bool:
        """Whether the source file of a snapshot has changed; False for a snapshot without a source."""
        identity = handle.meta.get("identity")
        if identity is None:
            return False
        try:
            info, _ = self._files.stat(self._files.locate(str(handle.meta["path"])))
        except LlmcError:
            return True
        return identity_of(info) != identity


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
