"""Which files changed, by inotify.

Only folders that hold indexed files, their parents, and empty folders in those are watched, so ignored files cause no
events. A new folder is watched at once. If the kernel has no watch left, files are walked from time to time instead.
"""

import errno
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from ...kernel import syscalls
from .walk import IGNORE_FILES

_BUFFER = 1 << 18
_NEW_FOLDERS = 64  # more were unpacked or installed: the walk that follows decides which of them matter


class Watch:
    """Changes below the working directory since the last call of `changes`."""

    def __init__(self) -> None:
        self.reason = ""  # why files are walked instead; empty while inotify works
        self.written: set[bytes] = set()  # files that were written to, and not closed yet
        self._folders: dict[int, bytes] = {}
        self._watched: dict[bytes, int] = {}
        try:
            self.fd = syscalls.inotify()
        except OSError as exc:
            self.fd, self.reason = -1, f"inotify: {exc.strerror}"

    def follow(self, files: Iterable[bytes], since_ns: int) -> bool:
        """Watch the folders of these files and their parents; True if a new one changed before it was watched."""
        wanted = {b"."}
        for path in files:
            folder = path.rpartition(b"/")[0]
            while folder and folder not in wanted:
                wanted.add(folder)
                folder = folder.rpartition(b"/")[0]
        fresh = wanted - self._watched.keys()
        for folder in fresh:
            self._add(folder)
        known = Counter(folder.rpartition(b"/")[0] or b"." for folder in wanted if folder != b".")
        seen = {folder: info for folder in fresh if (info := _stat(folder)) is not None}
        # Most file systems count the folders in a folder by its links: its own, `.` and the `..` of each. Others count
        # none: they are told by not doing it anywhere.
        counted = {folder for folder, info in seen.items() if info.links - 2 == known[folder]}
        full = counted if any(known[folder] for folder in counted) else set[bytes]()
        empty = [one for folder in seen.keys() - full for one in _empty_below(folder, wanted)]
        empty = [folder for folder in empty if folder not in self._watched]
        for folder in empty:
            self._add(folder)
        changed = any(info.mtime_ns >= since_ns for info in seen.values())
        return changed or not all(map(_is_empty, empty))

    def _add(self, folder: bytes) -> None:
        if self.fd < 0 or self.reason:
            return
        try:
            number = syscalls.inotify_watch(self.fd, folder)
        except OSError as exc:
            if exc.errno in (errno.ENOSPC, errno.ENOMEM, errno.EMFILE):
                self.reason = "the kernel's limit of watched folders is reached (fs.inotify.max_user_watches)"
            return  # gone, or no longer a folder: the next walk will notice
        self._folders[number] = folder
        self._watched[folder] = number

    def changes(self) -> tuple[set[bytes], bool]:
        """Files that changed, appeared or vanished, and whether a walk is needed for the rest."""
        paths: set[bytes] = set()
        walk = False
        try:
            events = syscalls.inotify_events(os.read(self.fd, _BUFFER))
        except BlockingIOError:
            return paths, walk
        for number, mask, _, name in events:
            if mask & syscalls.IN_Q_OVERFLOW:
                walk = True
                self.written.clear()
                continue
            folder = self._folders.get(number)
            if folder is None:
                continue
            if mask & syscalls.IN_IGNORED:
                self._watched.pop(self._folders.pop(number), None)
                continue
            path = name if folder == b"." else folder + b"/" + name
            if name in IGNORE_FILES:
                walk = True
            elif name.startswith(b"."):
                continue
            elif mask & syscalls.IN_ISDIR:
                walk = True
                self._follow_new(path)
            elif mask & syscalls.IN_MODIFY:
                self.written.add(path)
            else:
                self.written.discard(path)
                paths.add(path)
        return paths, walk

    def _follow_new(self, folder: bytes) -> None:
        """Watch a new folder and the folders in it, up to a limit; the walk finds what came earlier."""
        todo, room = [folder], _NEW_FOLDERS
        while todo and room:
            folder, room = todo.pop(0), room - 1
            self._add(folder)
            try:
                with os.scandir(folder) as found:
                    todo += [entry.path for entry in found if entry.is_dir(follow_symlinks=False)]
            except OSError:
                continue


def _empty_below(folder: bytes, but: Collection[bytes]) -> Iterator[bytes]:
    """The folders in a folder that hold nothing but such folders: ripgrep, which lists files, skips them."""
    todo, room = [folder], _NEW_FOLDERS
    while todo and room:
        above, room = todo.pop(), room - 1
        for name in _folders_in(above):
            path = name if above == b"." else above + b"/" + name
            if path in but or name.startswith(b"."):
                continue
            inside = _entries(path)
            if inside is not None and all(inside.values()):
                yield path
                todo.append(path)


def _folders_in(folder: bytes) -> list[bytes]:
    return [name for name, is_folder in (_entries(folder) or {}).items() if is_folder]


def _entries(folder: bytes) -> dict[bytes, bool] | None:
    """The names in a folder, and whether each is a folder; None if it can't be read."""
    try:
        with os.scandir(folder) as found:
            return {entry.name: entry.is_dir(follow_symlinks=False) for entry in found}
    except OSError:
        return None


def _is_empty(folder: bytes) -> bool:
    return all((_entries(folder) or {}).values())


class _FolderInfo(NamedTuple):
    mtime_ns: int
    links: int


def _stat(folder: bytes) -> _FolderInfo | None:
    try:
        info = os.stat(folder)
    except OSError:
        return None  # gone: so are its files
    return _FolderInfo(info.st_mtime_ns, info.st_nlink)
