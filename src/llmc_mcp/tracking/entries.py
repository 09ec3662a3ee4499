"""What is known of an entry below a root: how it looks, and where its content can be had again."""

import os
import stat as stat_bits
from typing import NamedTuple

import msgspec

# What tools rebuild by themselves is not followed: it changes with every run, and nobody wants it back.
CACHES = frozenset(("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"))

# Where content is, as the first byte of `EntryLook.source`; what follows is an object id, a place or a link's target.
GIT, SPOOL, LINK, EMPTY = b"g", b"s", b"l", b"e"
# A folder that is only followed as a whole; its inode and the time when it was made follow.
WHOLE = b"w"
# Why it is nowhere.
TOO_LARGE, NO_ROOM, UNREADABLE, SPECIAL = b"L", b"R", b"U", b"S"
OBJECTS = "git's objects are not kept"
REASONS = {
    TOO_LARGE: "larger than the journal keeps",
    NO_ROOM: "past the budget for copies (mcp.limits.command_undo_bytes)",
    UNREADABLE: "not readable",
    SPECIAL: "a device or socket",
    b"": "its earlier content is gone",
}


class EntryLook(msgspec.Struct, frozen=True, gc=False):
    """An entry as it was seen. Thousands are kept, so the garbage collector need not look at them."""

    ctime_ns: int
    ino: int
    mode: int
    size: int
    mtime_ns: int
    source: bytes = b""

    @property
    def is_folder(self) -> bool:
        return stat_bits.S_ISDIR(self.mode)

    @property
    def is_whole(self) -> bool:
        """Whether it is a folder whose content is not followed."""
        return self.source[:1] == WHOLE

    @property
    def is_file(self) -> bool:
        return stat_bits.S_ISREG(self.mode)

    def matches(self, info: os.stat_result) -> bool:
        """Whether an entry was not touched since; every change of content, mode or name sets the change time."""
        return self.ctime_ns == info.st_ctime_ns and self.ino == info.st_ino

    def same_as(self, other: "EntryLook") -> bool:
        """Whether two looks show the same kind, mode, time and, as far as known, content."""
        if self.mode != other.mode or self.is_folder:
            return self.mode == other.mode and self.source == other.source
        if self.source == other.source == SPECIAL:
            return self.ino == other.ino
        if (self.size, self.mtime_ns) != (other.size, other.mtime_ns):
            return False
        return digest_of(self.source) == digest_of(other.source) != b"" or self.source[:1] == EMPTY

    def has_content(self) -> bool:
        """Whether the content can be had again."""
        return (self.is_folder and not self.is_whole) or self.source[:1] in (GIT, SPOOL, LINK, EMPTY)


class Difference(NamedTuple):
    """An entry before and after; None where it did not exist. The path is relative to its root."""

    path: str
    before: EntryLook | None
    after: EntryLook | None


def look_from(info: os.stat_result, source: bytes = b"") -> EntryLook:
    """The look of an entry by its stat."""
    return EntryLook(info.st_ctime_ns, info.st_ino, info.st_mode, info.st_size, info.st_mtime_ns, source)


def whole(inode: int, birth_ns: int) -> bytes:
    """The source of a folder that is only followed as a whole: what tells it from any other."""
    return WHOLE + f"{inode}.{birth_ns}".encode()


def spooled(offset: int, sha256: bytes) -> bytes:
    """The source of content in the spool."""
    return SPOOL + offset.to_bytes(8, "big") + sha256


def offset_of(source: bytes) -> int:
    """Where in the spool content is."""
    return int.from_bytes(source[1:9], "big")


def digest_of(source: bytes) -> bytes:
    """What tells one content from another, among sources of the same kind; empty where there is none."""
    kind = source[:1]
    return kind + source[9:] if kind == SPOOL else source if kind in (GIT, LINK) else b""
