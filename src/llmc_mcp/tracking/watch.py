"""Which entries below a root may have changed, by inotify. Only names are taken from it: what changed is for stat."""

import errno
import os

from ..kernel import syscalls
from .entries import CACHES

_BUFFER = 1 << 18


class _Arrivals:
    """Names that appear, until they are renamed; `left` once one has left that might have been another file's name.

    A hard link is a new name like any other, and what is written through it is reported for that name alone. Where it
    still exists, its inode tells whose it is; where it is gone, only looking at all files does. So it is with a new
    folder, in which names may have come and gone before it was watched.
    """

    def __init__(self) -> None:
        self.left = False
        self._here: set[tuple[int, bytes]] = set()
        self._between: set[int] = set()  # renames whose second half has not come

    def note(self, mask: int, rename: int, entry: tuple[int, bytes]) -> None:
        """Take an event into account."""
        if mask & syscalls.IN_CREATE:
            self._here.add(entry)
            self.left |= bool(mask & syscalls.IN_ISDIR) and os.fsdecode(entry[1]) not in CACHES
        elif mask & (syscalls.IN_DELETE | syscalls.IN_MOVED_TO | syscalls.IN_MOVED_FROM) and entry in self._here:
            self._here.discard(entry)
            if mask & syscalls.IN_MOVED_FROM:
                self._between.add(rename)
            else:
                self.left = True
        if mask & syscalls.IN_MOVED_TO and rename in self._between:
            self._between.discard(rename)
            self._here.add(entry)

    def end(self) -> bool:
        """Whether one has left, also by a rename to where nobody watches."""
        return self.left or bool(self._between)


class TreeWatch:
    """Watches folders; `reason` says why they must be walked instead, and is empty while all are watched."""

    def __init__(self) -> None:
        self.reason = ""
        self.lost: set[str] = set()  # folders that were deleted, whatever has their path, and even their inode, now
        self.fleeting = False  # whether names came and went, by which other files may have been written to
        self._folders: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        try:
            self._fd = syscalls.inotify()
        except OSError as exc:
            self._fd, self.reason = -1, f"inotify: {exc.strerror}"

    def add(self, folder: str, dir_fd: int) -> None:
        """Watch an open folder."""
        if self.reason:
            return
        try:
            number = syscalls.inotify_watch_open(self._fd, dir_fd)
        except OSError as exc:
            known = exc.errno in (errno.ENOSPC, errno.ENOMEM)
            limit = "the kernel's limit of watched folders is reached (fs.inotify.max_user_watches)"
            self.stop(limit if known else f"inotify: {exc.strerror}")
            return
        self._folders[number] = folder
        self._numbers[folder] = number

    def remove(self, folder: str) -> None:
        """Watch a folder no more; where it was moved and is watched under its new path already, it stays so."""
        number = self._numbers.pop(folder, None)
        if number is not None and self._folders.get(number) == folder:
            del self._folders[number]
            syscalls.inotify_forget(self._fd, number)

    def take(self) -> dict[str, set[str]] | None:
        """The names reported since the last time, by folder; None where only a walk can tell."""
        if self.reason:
            return None
        named: dict[str, set[str]] = {}
        complete, self.fleeting = True, False
        arrivals = _Arrivals()
        while True:
            try:
                data = os.read(self._fd, _BUFFER)
            except BlockingIOError:
                self.fleeting = arrivals.end()
                return named if complete else None
            for number, mask, rename, name in syscalls.inotify_events(data):
                if mask & syscalls.IN_Q_OVERFLOW:
                    complete = False
                elif mask & syscalls.IN_IGNORED:
                    folder = self._folders.pop(number, None)
                    if folder is not None and self._numbers.get(folder) == number:
                        del self._numbers[folder]
                        self.lost.add(folder)
                elif name and (folder := self._folders.get(number)) is not None:
                    named.setdefault(folder, set()).add(os.fsdecode(name))
                    arrivals.note(mask, rename, (number, name))

    def stop(self, reason: str) -> None:
        """Free all watches, for this reason."""
        if not self.reason:
            self.reason = reason
            os.close(self._fd)
            self._folders, self._numbers = {}, {}
