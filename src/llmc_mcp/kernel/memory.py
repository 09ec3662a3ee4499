"""How much memory a tree of processes has together: closely where there are few, roughly where there are many."""

import os
import re

from .launcher import descendants

_FEW = 16
_LENIENCE = 4  # a rough figure counts what forks share once for each of them
_SHARE = re.compile(rb"^Pss:\s+(\d+) kB", re.MULTILINE)
_PAGE = os.sysconf("SC_PAGE_SIZE")


def over(top: int, most: int) -> str | None:
    """Whether the processes below `top` have more memory than `most` bytes together, and if so, how much."""
    below = descendants(top)
    used = sum(map(_rough, below))
    if used <= most:
        return None
    if len(below) <= _FEW:
        used = sum(map(_close, below))
    elif used <= most * _LENIENCE:
        return None
    return f"{len(below)} processes had {used >> 20:,} MB together" if used > most else None


def _rough(pid: int) -> int:
    """What is no file's. The kernel keeps count of it, so the process need not stand still to be asked."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            resident, shared = file.read().split()[1:3]
    except (OSError, ValueError):
        return 0  # it ended
    return (int(resident) - int(shared)) * _PAGE


def _close(pid: int) -> int:
    """Its share of every page: one that two processes have counts by halves. This waits while it forks or maps."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            found = _SHARE.search(file.read())
    except OSError:
        return 0  # it ended
    return int(found[1]) << 10 if found else 0
