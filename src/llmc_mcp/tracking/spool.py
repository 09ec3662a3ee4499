"""Copies of file contents, one after the other in a file without a name: it goes with the process."""

import fcntl
import os
import struct
import tempfile

_FICLONERANGE = 0x4020940D
_RANGE = struct.Struct("=qQQQ")
_ALIGNED = 64 << 10  # where a shared extent may begin, whatever the file system


class ContentSpool:
    """Contents by their offset. `room` is how many bytes may be live or dead in it."""

    def __init__(self, folder: str, room: int) -> None:
        self._folder, self._room = folder, room
        self.size = 0
        self._fd = _unnamed(folder)
        self._cannot_share: set[int] = set()  # devices

    def add(self, data: bytes, *, half: bool = False) -> int | None:
        """Keep content and return its offset; None where there is no room, in the budget, or half of it, or on disk."""
        if self.size + len(data) > (self._room // 2 if half else self._room):
            return None
        offset, view = self.size, memoryview(data)
        try:
            while view:
                view = view[os.pwrite(self._fd, view, offset + len(data) - len(view)) :]
        except OSError:  # a full disk: whatever was written is overwritten by the next content
            return None
        self.size += len(data)
        return offset

    def share(self, fd: int, *, half: bool = False) -> int | None:
        """Keep an open file's content without copying it (reflink); None where the file system can't, or no room."""
        info, offset = os.fstat(fd), -(-self.size // _ALIGNED) * _ALIGNED
        if info.st_dev in self._cannot_share or offset + info.st_size > (self._room // 2 if half else self._room):
            return None
        try:
            fcntl.ioctl(self._fd, _FICLONERANGE, _RANGE.pack(fd, 0, 0, offset))
        except OSError:
            self._cannot_share.add(info.st_dev)
            return None
        self.size = offset + info.st_size
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
