"""Temporary folders for the lifetime of a server or a run, and their removal.

Untrusted programs work in these folders, and servers get killed. So each folder lies in a parent folder that belongs to
the server and that the server keeps locked while it lives; the kernel releases the lock when it dies. A parent folder
that is not locked belongs to a dead server and can be removed.
"""

import fcntl
import itertools
import os
import re
import stat as stat_bits
import tempfile
from collections.abc import Iterator

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_INNER = "tmp"
_OURS = re.compile(r"llmc-(?:run|code|selftest)-[a-z0-9_]{8}")


class Scratch:
    """A new folder at `path`, until it is closed; `user` (uid and gid) owns it if not the server's user."""

    def __init__(self, kind: str, user: tuple[int, int] | None = None) -> None:
        fresh = tempfile.mkdtemp(prefix=f".llmc-{kind}-")
        self._held = os.open(fresh, _OPEN)
        fcntl.flock(self._held, fcntl.LOCK_EX)
        os.fchmod(self._held, 0o711)  # `user` can pass through it, but neither list nor lock it
        # Only a locked folder may have the name that `remove_leftovers` looks for.
        self._outer = os.path.join(os.path.dirname(fresh), os.path.basename(fresh).removeprefix("."))
        os.rename(fresh, self._outer)
        os.mkdir(_INNER, mode=0o700, dir_fd=self._held)
        if user:
            os.chown(_INNER, *user, dir_fd=self._held)
        self.path = os.path.join(self._outer, _INNER)

    def beside(self, name: str) -> str:
        """Make another folder that goes with this one, which everybody may read and the server alone can change."""
        os.mkdir(name, mode=0o755, dir_fd=self._held)
        os.chmod(name, 0o755, dir_fd=self._held)  # noqa: S103 - whatever the umask is
        return os.path.join(self._outer, name)

    def close(self) -> None:
        """Remove the folder and everything in it."""
        remove_tree(self._outer)
        os.close(self._held)


def remove_leftovers() -> None:
    """Remove the folders of servers that were killed."""
    place = tempfile.gettempdir()
    for name in os.listdir(place):
        if _OURS.fullmatch(name):
            _remove_if_dead(os.path.join(place, name))


def _remove_if_dead(path: str) -> None:
    try:
        folder = os.open(path, _OPEN)
    except OSError:
        return  # another user's, or not a folder
    try:
        if os.fstat(folder).st_uid == os.geteuid():
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(path)
    except BlockingIOError:
        pass  # its server is alive
    finally:
        os.close(folder)


def remove_tree(path: str) -> None:
    """Remove a folder that is no longer used; what can't be removed stays.

    Nested folders are moved up first, so that no path is longer than two names and no recursion is needed.
    """
    try:
        top = _opened(path)
    except OSError:
        return
    try:
        fresh = (f".llmc-{number}" for number in itertools.count())
        while folders := [name for name in os.listdir(top) if not _unlinked(name, top)]:
            for name in folders:
                _dissolve(name, top, fresh)
        os.rmdir(path)
    except OSError:
        pass  # what is left belongs to another user
    finally:
        os.close(top)


def _unlinked(name: str, folder: int) -> bool:
    """Remove anything but a folder; return whether it was removed."""
    if stat_bits.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        return False
    os.unlink(name, dir_fd=folder)
    return True


def _dissolve(name: str, top: int, fresh: Iterator[str]) -> None:
    """Remove a folder directly below `top`, after moving the folders in it up to `top`."""
    fd = _opened(name, top)
    try:
        for inner in os.listdir(fd):
            if not _unlinked(inner, fd):
                os.close(_opened(inner, fd))  # makes it writable: otherwise it can't be moved
                os.rename(inner, next(fresh), src_dir_fd=fd, dst_dir_fd=top)
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=top)


def _opened(name: str, folder: int | None = None) -> int:
    """Open a folder even if its mode forbids it; a link in its place is neither followed nor changed."""
    place = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.chmod(f"/proc/self/fd/{place}", 0o700)
        return os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(place)
