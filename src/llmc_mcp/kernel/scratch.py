"""Folders for the time of a server or a run, and their removal: strangers work in them, and servers get killed.

A folder lies in one that is the server's own and is locked as long as the server lives, by the kernel. So whoever finds
one that nobody holds knows that its server is dead, and removes it.
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
    """A new folder, at `path`, until it is closed; `user` (uid and gid) owns it where that is not the server's."""

    def __init__(self, kind: str, user: tuple[int, int] | None = None) -> None:
        fresh = tempfile.mkdtemp(prefix=f".llmc-{kind}-")
        self._held = os.open(fresh, _OPEN)
        fcntl.flock(self._held, fcntl.LOCK_EX)
        os.fchmod(self._held, 0o711)  # the user inside passes through, and can neither list nor lock it
        # It gets the name that is looked for only now that it is held.
        self._outer = os.path.join(os.path.dirname(fresh), os.path.basename(fresh).removeprefix("."))
        os.rename(fresh, self._outer)
        os.mkdir(_INNER, mode=0o700, dir_fd=self._held)
        if user:
            os.chown(_INNER, *user, dir_fd=self._held)
        self.path = os.path.join(self._outer, _INNER)

    def close(self) -> None:
        """Remove it, whatever was left in it."""
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
        return  # another user's, or no folder
    try:
        if os.fstat(folder).st_uid == os.geteuid():
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(path)
    except BlockingIOError:
        pass  # its server lives
    finally:
        os.close(folder)


def remove_tree(path: str) -> None:
    """Remove a folder that nobody uses any more; what can't be removed stays.

    Folders inside folders are moved up first: no path gets longer than two names, and no recursion deeper than none.
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
        pass  # what is left belongs to somebody else
    finally:
        os.close(top)


def _unlinked(name: str, folder: int) -> bool:
    """Remove anything but a folder; whether it was such a thing."""
    if stat_bits.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        return False
    os.unlink(name, dir_fd=folder)
    return True


def _dissolve(name: str, top: int, fresh: Iterator[str]) -> None:
    """Remove a folder right below `top`; the folders in it come to lie beside it."""
    fd = _opened(name, top)
    try:
        for inner in os.listdir(fd):
            if not _unlinked(inner, fd):
                os.close(_opened(inner, fd))  # a folder that can't be written to can't be moved
                os.rename(inner, next(fresh), src_dir_fd=fd, dst_dir_fd=top)
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=top)


def _opened(name: str, folder: int | None = None) -> int:
    """Open a folder that may be closed to us; a link in its place is neither followed nor changed."""
    place = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.chmod(f"/proc/self/fd/{place}", 0o700)
        return os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(place)
