"""git's objects, loose and packed, read below a root without running git.

An object is only returned if its content has its name. Packs stay mapped, so a command that repacks or deletes the
repository does not take them away. Alternates are not followed: they may lie outside of the roots.
"""

import hashlib
import mmap
import os
import struct
import zlib
from contextlib import suppress

from ..kernel import syscalls
from .git_index import offset_at

_BENEATH = syscalls.RESOLVE_BENEATH | syscalls.RESOLVE_NO_SYMLINKS | syscalls.RESOLVE_NO_MAGICLINKS
_TYPES = {1: b"commit", 2: b"tree", 3: b"blob", 4: b"tag"}
_OFFSET_DELTA, _NAME_DELTA = 6, 7
_DEEPEST_DELTA = 4_096
_LARGE_OFFSET = 0x80000000
_LARGEST_BASE = 256 << 20  # of an object that deltas apply to
_HEAD_BYTES = 64  # at most, before the content of a loose object
_PEEKED = 512  # compressed bytes that hold the beginning of an object, tables of its compression included


class GitObjects:
    """The objects in a folder, which is relative to an open root."""

    def __init__(self, root_fd: int, folder: str) -> None:
        self._root_fd, self._folder = root_fd, folder
        self._packs: dict[str, _Pack] = {}
        self._find_packs()

    def has_alternates(self) -> bool:
        """Whether there may be more objects elsewhere."""
        try:
            os.close(self._open("info/alternates", os.O_RDONLY))
        except OSError:
            return False
        return True

    def size(self, oid: bytes) -> int | None:
        """The size of an object; None where it is not there."""
        try:
            for pack in self._packs.values():
                if (offset := pack.find(oid)) is not None:
                    return pack.size(offset)
            with open(self._open(_loose(oid), os.O_RDONLY), "rb", buffering=0) as file:
                head = zlib.decompressobj().decompress(file.read(_PEEKED), _HEAD_BYTES)
            return int(head.partition(b"\0")[0].split(b" ")[1])
        except (OSError, ValueError, IndexError, struct.error, zlib.error):
            return None

    def read(self, oid: bytes, kind: bytes, most: int) -> bytes | None:
        """The content of an object; None where it is not there, of another kind, larger than `most` or damaged."""
        for again in (False, True):
            if again:
                self._find_packs()  # git may have packed it since
            try:
                found = self._read(oid, most)
            except (OSError, ValueError, IndexError, struct.error, zlib.error):
                continue
            if found is not None and found[0] == kind and len(found[1]) <= most and _name_of(*found) == oid:
                return found[1]
        return None

    def _read(self, oid: bytes, most: int) -> tuple[bytes, bytes] | None:
        for pack in self._packs.values():
            if (offset := pack.find(oid)) is not None:
                return pack.read(offset, most)
        with open(self._open(_loose(oid), os.O_RDONLY), "rb") as file:
            data = zlib.decompressobj().decompress(file.read(), most + _HEAD_BYTES)
        head, _, content = data.partition(b"\0")
        return head.partition(b" ")[0], content

    def _find_packs(self) -> None:
        with suppress(OSError):
            folder = self._open("pack", os.O_RDONLY | os.O_DIRECTORY)
            try:
                names = [name.removesuffix(".idx") for name in os.listdir(folder) if name.endswith(".idx")]
            finally:
                os.close(folder)
            for name in names:
                if name not in self._packs:
                    with suppress(OSError, ValueError, struct.error):
                        self._packs[name] = _Pack(self._map(f"pack/{name}.idx"), self._map(f"pack/{name}.pack"))

    def _open(self, path: str, flags: int) -> int:
        return syscalls.openat2(self._root_fd, os.fsencode(f"{self._folder}/{path}"), flags, _BENEATH)

    def _map(self, path: str) -> mmap.mmap:
        fd = self._open(path, os.O_RDONLY)
        try:
            return mmap.mmap(fd, 0, prot=mmap.PROT_READ)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Unmap the packs."""
        for pack in self._packs.values():
            pack.close()
        self._packs = {}


class _Pack:
    """A pack and its index, version 2."""

    def __init__(self, index: mmap.mmap, data: mmap.mmap) -> None:
        self._index, self._data = index, data
        magic, version = struct.unpack_from(">4sI", index)
        if (magic, version) != (b"\377tOc", 2):
            raise ValueError("an index of another version")
        self._fanout = struct.unpack_from(">256I", index, 8)
        self._count = self._fanout[255]
        self._names = 8 + 1024
        self._offsets = self._names + self._count * 24

    def find(self, oid: bytes) -> int | None:
        """The offset of an object in the pack; None if it is not in it."""
        low, high = self._fanout[oid[0] - 1] if oid[0] else 0, self._fanout[oid[0]]
        while low < high:
            middle = (low + high) // 2
            at = self._names + middle * 20
            name = self._index[at : at + 20]
            if name == oid:
                return self._offset(middle)
            low, high = (middle + 1, high) if name < oid else (low, middle)
        return None

    def _offset(self, number: int) -> int:
        (offset,) = struct.unpack_from(">I", self._index, self._offsets + number * 4)
        if offset & _LARGE_OFFSET:
            at = self._offsets + self._count * 4 + (offset & ~_LARGE_OFFSET) * 8
            (offset,) = struct.unpack_from(">Q", self._index, at)
        return offset

    def read(self, offset: int, most: int) -> tuple[bytes, bytes] | None:
        """An object and its kind; its deltas are applied to their base."""
        deltas: list[bytes] = []
        for _ in range(_DEEPEST_DELTA):
            start, (kind, size, at) = offset, self._head(offset)
            if size > (_LARGEST_BASE if deltas else most):
                return None
            if kind in _TYPES:
                data = self._inflate(at, size)
                for left, delta in zip(range(len(deltas) - 1, -1, -1), reversed(deltas), strict=True):
                    data = _apply(data, delta, _LARGEST_BASE if left else most)
                return _TYPES[kind], data
            if kind == _OFFSET_DELTA:
                back, at = offset_at(self._data, at)
                offset = start - back
            elif kind == _NAME_DELTA:
                found = self.find(self._data[at : at + 20])
                at += 20
                if found is None:
                    return None  # a thin pack is never stored
                offset = found
            else:
                return None
            deltas.append(self._inflate(at, size))
        return None

    def size(self, offset: int) -> int:
        """The size of an object; a delta begins with that of its base and its own."""
        kind, size, at = self._head(offset)
        if kind in _TYPES:
            return size
        at = offset_at(self._data, at)[1] if kind == _OFFSET_DELTA else at + 20
        delta = zlib.decompressobj().decompress(self._data[at : at + _PEEKED], 20)
        return _size(delta, _size(delta, 0)[1])[0]

    def _head(self, at: int) -> tuple[int, int, int]:
        byte = self._data[at]
        kind, size, shift = byte >> 4 & 7, byte & 15, 4
        while byte & 0x80:
            at += 1
            byte = self._data[at]
            size |= (byte & 0x7F) << shift
            shift += 7
        return kind, size, at + 1

    def _inflate(self, at: int, size: int) -> bytes:
        packed = self._data[at : at + size + size // 500 + 128]  # incompressible content grows by less
        data = zlib.decompressobj().decompress(packed, size + 1)
        if len(data) != size:
            raise ValueError("a damaged object")
        return data

    def close(self) -> None:
        self._index.close()
        self._data.close()


def _loose(oid: bytes) -> str:
    name = oid.hex()
    return f"{name[:2]}/{name[2:]}"


def _apply(base: bytes, delta: bytes, most: int) -> bytes:
    """The object that a delta makes of its base."""
    at = 0
    _, at = _size(delta, at)
    size, at = _size(delta, at)
    if size > most:
        raise ValueError("larger than expected")
    parts: list[bytes] = []
    while at < len(delta):
        code = delta[at]
        at += 1
        if code & 0x80:
            start = length = 0
            for bit in range(4):
                if code & 1 << bit:
                    start |= delta[at] << 8 * bit
                    at += 1
            for bit in range(3):
                if code & 0x10 << bit:
                    length |= delta[at] << 8 * bit
                    at += 1
            parts.append(base[start : start + (length or 0x10000)])
        else:
            parts.append(delta[at : at + code])
            at += code
    made = b"".join(parts)
    if len(made) != size:
        raise ValueError("a damaged delta")
    return made


def _size(delta: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = delta[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at


def _name_of(kind: bytes, content: bytes) -> bytes:
    return hashlib.sha1(b"%s %d\0" % (kind, len(content)) + content, usedforsecurity=False).digest()


def blob_name(content: bytes) -> bytes:
    """The id of a blob with that content."""
    return _name_of(b"blob", content)
