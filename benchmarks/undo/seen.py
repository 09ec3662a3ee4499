"""A folder byte for byte, so cheap that it can be looked at around every command."""

import hashlib
import os
import stat
from pathlib import Path
from typing import NamedTuple

from llmc_mcp.tracking.entries import CACHES
from llmc_mcp.tracking.git_index import meaning_of

_SKIPPED = frozenset(("objects", "lfs"))  # in .git: objects are left as they are


class SeenFile(NamedTuple):
    """An entry: what undo has to bring back, and when it was read."""

    mode: int
    content: str
    mtime_ns: int
    ctime_ns: int

    def same(self, other: "SeenFile | None") -> bool:
        """Whether kind, mode and content are the same."""
        return other is not None and self[:2] == other[:2]


class SeenFolder:
    """Every entry below a folder; looking again reads only what has changed."""

    def __init__(self, path: Path, before: "SeenFolder | None" = None) -> None:
        self.entries: dict[str, SeenFile] = {}
        known = before.entries if before is not None else {}
        top = str(path)
        todo = [top]
        while todo:
            folder = todo.pop()
            with os.scandir(folder) as found:
                for entry in found:
                    inside = entry.path[len(top) + 1 :]
                    if entry.name in CACHES or (inside.startswith(".git/") and inside[5:] in _SKIPPED):
                        continue
                    info = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(info.st_mode):
                        todo.append(entry.path)
                    old = known.get(inside)
                    fresh = old is None or old.ctime_ns != info.st_ctime_ns
                    content = _content(entry.path, inside, info) if fresh or old is None else old.content
                    mtime_ns = info.st_mtime_ns if stat.S_ISREG(info.st_mode) else 0
                    self.entries[inside] = SeenFile(info.st_mode, content, mtime_ns, info.st_ctime_ns)

    def differences(self, other: "SeenFolder") -> list[str]:
        """The paths whose kind, mode or content differ."""
        both = {*self.entries, *other.entries}
        return sorted(path for path in both if not _same(self.entries.get(path), other.entries.get(path)))

    def later(self, other: "SeenFolder") -> list[str]:
        """The files of the work tree that have another time of their last change."""
        return [
            path
            for path, seen in self.entries.items()
            if path in other.entries and other.entries[path].mtime_ns != seen.mtime_ns and not path.startswith(".git/")
        ]


def _same(one: SeenFile | None, other: SeenFile | None) -> bool:
    return one is not None and one.same(other)


def _content(path: str, inside: str, info: os.stat_result) -> str:
    if stat.S_ISLNK(info.st_mode):
        return os.readlink(path)
    if not stat.S_ISREG(info.st_mode):
        return ""
    data = Path(path).read_bytes()
    return meaning_of(data) if inside == ".git/index" else hashlib.sha256(data).hexdigest()
