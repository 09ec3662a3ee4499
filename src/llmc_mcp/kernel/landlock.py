"""A Landlock rule set from paths."""

import os
import stat as stat_bits
from collections.abc import Iterable

from . import syscalls


def ruleset(allowed: Iterable[tuple[bytes, int]], opened: Iterable[tuple[int, int, bool]] = ()) -> int:
    """A Landlock ruleset of paths (those that exist) and of what is open already; OSError where there is none."""
    fds: list[int] = []
    rules = list(opened)
    try:
        for path, rights in dict(allowed).items():
            if not os.path.exists(path):
                continue
            fd = os.open(path, syscalls.O_PATH | os.O_CLOEXEC)
            fds.append(fd)
            rules.append((fd, rights, stat_bits.S_ISDIR(os.fstat(fd).st_mode)))
        return syscalls.landlock_ruleset(rules)
    finally:
        for fd in fds:
            os.close(fd)
