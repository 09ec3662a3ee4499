"""Removing a folder in which strangers worked: whatever they left there, however deep, behind whatever modes."""

import itertools
import os
import stat as stat_bits
from collections.abc import Iterator

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str) -> None:
    """Remove a folder that nobody uses any more; what can't be removed stays.

    Folders inside folders are moved up first: no path gets longer than two names, and no recursion deeper than none.
    """
    try:
        os.chmod(path, 0o700)
        top = os.open(path, _OPEN)
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
    os.chmod(name, 0o700, dir_fd=top)  # a folder, and nobody is left to put a link in its place
    fd = os.open(name, _OPEN, dir_fd=top)
    try:
        for inner in os.listdir(fd):
            if not _unlinked(inner, fd):
                os.chmod(inner, 0o700, dir_fd=fd)
                os.rename(inner, next(fresh), src_dir_fd=fd, dst_dir_fd=top)
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=top)
