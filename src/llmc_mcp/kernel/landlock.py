"""A Landlock rule set from paths."""

import os
import stat as stat_bits
from collections.abc import Iterable

from . import syscalls


def ruleset(
    allowed: Iterable[tuple[bytes, int]], opened: Iterable[tuple[int, int, bool]] = (), *, network: bool = False
) -> int:
    """A rule set (as an fd) that denies everything but the rights on these paths and on what is open already.

    Paths that do not exist are skipped; a path that is named twice gets the rights of both. `network` leaves TCP
    alone. OSError where the kernel offers no Landlock.
    """
    fds: list[int] = []
    rules = list(opened)
    try:
        for path, rights in allowed:
            try:
                fd = os.open(path, syscalls.O_PATH | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                continue  # not every system has all of them, and no rule only means no access
            fds.append(fd)
            rules.append((fd, rights, stat_bits.S_ISDIR(os.fstat(fd).st_mode)))
        return syscalls.landlock_ruleset(rules, network=network)
    finally:
        for fd in fds:
            os.close(fd)
