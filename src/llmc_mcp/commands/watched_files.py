"""Files that other programs obey, watched while commands run: a person wants to hear when one of them changes.

The protected names are the list. Those that name a path are looked at right below each root and below the folder that
a command starts in: a stat each, before and after, some hundred microseconds in all.
"""

import os
import stat as stat_bits
import weakref
from collections.abc import Iterable

from ..files.filesystem import Filesystem
from ..policy import watchable

_LISTED_AT_MOST = 100  # files of one folder
_NAMED_AT_MOST = 6
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

# By the folder watched (device and inode) and the path in it: inode, change time, size and mode. Unlike the time of
# modification, the change time can't be set.
_Looks = dict[tuple[tuple[int, int], str], tuple[int, int, int, int]]


class Watcher:
    """What is watched below the roots of a server."""

    def __init__(self, files: Filesystem) -> None:
        self._roots = [root.fd for root in files.roots]
        paths, listed = watchable(files.access.protected_names)
        self._named = frozenset(path for path in paths if "/" not in path)
        self._tops: dict[str, list[str]] = {path: [] for path in self._named}  # what is absent is asked for once
        for path in (path for path in paths if "/" in path):
            self._tops.setdefault(path.partition("/")[0], []).append(path)
        self._listed: dict[str, list[str]] = {}
        for path in listed:
            top = path.partition("/")[0]
            self._tops.setdefault(top, [])
            self._listed.setdefault(top, []).append(path)

    def watch(self, directory: int) -> "Watch":
        """Watch from now on, also below an open directory."""
        return Watch(self, directory)

    def look(self, directory: int) -> _Looks:
        """How everything that is watched looks at this moment."""
        seen: _Looks = {}
        done: set[tuple[int, int]] = set()
        for folder in (*self._roots, directory):
            info = os.fstat(folder)
            identity = info.st_dev, info.st_ino
            if identity not in done:
                done.add(identity)
                seen.update(((identity, path), looks) for path, looks in self._below(folder))
        return seen

    def _below(self, folder: int) -> Iterable[tuple[str, tuple[int, int, int, int]]]:
        for top, below in self._tops.items():
            if (found := _stat(folder, top)) is None:
                continue
            is_folder = stat_bits.S_ISDIR(found.st_mode)
            if top in self._named or not is_folder:  # a link in place of a folder counts
                yield top, _looks(found)
            if not is_folder:
                continue
            for path in (*below, *_names_in(folder, self._listed.get(top, ()))):
                if (found := _stat(folder, path)) is not None:
                    yield path, _looks(found)


class Watch:
    """The watched files as they were at the last report."""

    def __init__(self, watcher: Watcher, directory: int) -> None:
        self._watcher, self._directory = watcher, os.dup(directory)
        weakref.finalize(self, os.close, self._directory)
        self._before = watcher.look(self._directory)

    def changes(self, who: str = "The command changed") -> list[str]:
        """A sentence that names what was changed since the last report, if anything was."""
        before, after = self._before, self._watcher.look(self._directory)
        self._before = after
        changed = sorted(path for _, path in {key for key, _ in before.items() ^ after.items()})
        named = list(dict.fromkeys(changed))
        if not named:
            return []
        more = f" and {len(named) - _NAMED_AT_MOST} more" if len(named) > _NAMED_AT_MOST else ""
        return [f"{who} files that other programs obey: {', '.join(named[:_NAMED_AT_MOST])}{more}."]


def _stat(folder: int, path: str) -> os.stat_result | None:
    try:
        return os.stat(path, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None


def _looks(found: os.stat_result) -> tuple[int, int, int, int]:
    if stat_bits.S_ISDIR(found.st_mode):
        return found.st_ino, 0, 0, found.st_mode
    return found.st_ino, found.st_ctime_ns, found.st_size, found.st_mode


def _names_in(folder: int, listed: Iterable[str]) -> list[str]:
    """The files in folders, as far as these are there; a link in the place of one is not followed."""
    found: list[str] = []
    for path in listed:
        try:
            fd = os.open(path, _FOLDER, dir_fd=folder)
        except OSError:
            continue
        try:
            entries = sorted(name for name in os.listdir(fd) if not name.endswith(".sample"))
        finally:
            os.close(fd)
        found += [f"{path}/{name}" for name in entries[:_LISTED_AT_MOST]]
    return found
