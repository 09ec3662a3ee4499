"""Copies of file contents, one after the other in a file without a name: it goes with the process."""

import os
import tempfile


class ContentSpool:
    """Contents by their offset. `room` is how many bytes may be live or dead in it."""

    def __init__(self, folder: str, room: int) -> None:
        self._folder, self._room = folder, room
        self.size = 0
        self._fd = _unnamed(folder)

    def add(self, data: bytes) -> int | None:
        """Keep content and return its offset; None where there is no room, in the budget or on the disk."""
        if self.size + len(data) > self._room:
            return None
        offset, view = self.size, memoryview(data)
        try:
            while view:
                view = view[os.pwrite(self._fd, view, offset + len(data) - len(view)) :]
        except OSError:  # a full disk: whatever was written is overwritten by the next content
            return None
        self.size += len(data)
        return offset

    def read(self, offset: int, size: int) -> bytes:
        """The content at an offset."""
        pieces: list[bytes] = []
        while size and (piece := os.pread(self._fd, size, offset)):
            pieces.append(piece)
            offset, size = offset + len(piece), size - len(piece)
        return b"".join(pieces)

    def successor(self) -> "ContentSpool":
        """An empty spool in its place."""
        return ContentSpool(self._folder, self._room)

    def close(self) -> None:
        """Forget everything."""
        os.close(self._fd)
        self._fd = -1


def _unnamed(folder: str) -> int:
    os.makedirs(folder, mode=0o700, exist_ok=True)
    try:
        return os.open(folder, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
    except OSError:  # a file system without such files
        fd, path = tempfile.mkstemp(dir=folder)
        os.unlink(path)
        return fd
