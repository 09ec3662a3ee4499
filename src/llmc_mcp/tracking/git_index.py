"""git's index (versions 2 to 4): which blob a file of the work tree was when git last looked at it.

Only read, and only what tells whether a file is still as it was; extensions are left aside. An index that is not
understood has no entries, which costs copies and loses nothing.
"""

import hashlib
import mmap
import os
import struct
from typing import NamedTuple

_HEAD = struct.Struct(">4sII")
_ENTRY = struct.Struct(">10I20sH")
_ASSUMED, _EXTENDED = 0x8000, 0x4000
_NAME_LENGTH = 0xFFF
_ZERO = b"\0"


class IndexEntry(NamedTuple):
    """A blob, and the stat of its file as git has seen it."""

    ctime_ns: int
    mtime_ns: int
    ino: int
    mode: int
    size: int
    oid: bytes
    stage: int
    told: int  # flags that a person sets: take it for unchanged, leave it out of the work tree, add it later

    def is_clean(self, info: os.stat_result, written_ns: int) -> bool:
        """Whether git takes a file for unchanged without reading it.

        One that is as young as the index (`written_ns`) may have changed in the same moment.
        """
        return (
            self.mtime_ns == info.st_mtime_ns
            and self.ctime_ns == info.st_ctime_ns
            and self.ino == info.st_ino & 0xFFFFFFFF
            and self.size == info.st_size & 0xFFFFFFFF
            and self.mtime_ns < written_ns
            and self.stage == 0
        )


def parse(data: bytes) -> dict[bytes, IndexEntry]:
    """The entries by path; conflicting stages of a path leave the last."""
    try:
        magic, version, count = _HEAD.unpack_from(data)
        if magic != b"DIRC" or version not in (2, 3, 4):
            return {}
        return _entries(data, version, count)
    except (struct.error, ValueError, IndexError):
        return {}


def _entries(data: bytes, version: int, count: int) -> dict[bytes, IndexEntry]:
    found: dict[bytes, IndexEntry] = {}
    at, name = _HEAD.size, b""
    unpack, size = _ENTRY.unpack_from, _ENTRY.size
    for _ in range(count):
        start = at
        cs, cn, ms, mn, _dev, ino, mode, _uid, _gid, length, oid, flags = unpack(data, at)
        told = flags & _ASSUMED
        if flags & _EXTENDED:
            told |= int.from_bytes(data[at + size : at + size + 2], "big")
            at += 2
        at += size
        if version == 4:
            cut, at = offset_at(data, at)
            end = data.index(_ZERO, at)
            name = name[: len(name) - cut] + data[at:end]
            at = end + 1
        else:
            end = at + (flags & _NAME_LENGTH) if flags & _NAME_LENGTH < _NAME_LENGTH else data.index(_ZERO, at)
            name = data[at:end]
            at = start + (end - start + 8 & ~7)
        stage = flags >> 12 & 3
        times = cs * 1_000_000_000 + cn, ms * 1_000_000_000 + mn
        found[name] = IndexEntry(*times, ino, mode, length, oid, stage, told)
    return found


def offset_at(data: bytes | mmap.mmap, at: int) -> tuple[int, int]:
    """A number in git's offset encoding, seven bits a byte and one added for every further byte, and where it ends."""
    byte = data[at]
    value = byte & 0x7F
    while byte & 0x80:
        at += 1
        byte = data[at]
        value = (value + 1 << 7) | (byte & 0x7F)
    return value, at + 1


def meaning_of(data: bytes) -> str:
    """A digest of what is staged, whatever git has noted of the files' times: `git status` renews those."""
    digest = hashlib.sha256()
    for path, entry in sorted(parse(data).items()):
        digest.update(b"%s\0%o %d %x " % (path, entry.mode, entry.stage, entry.told) + entry.oid)
    return digest.hexdigest()
