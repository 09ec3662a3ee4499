"""The memory that a process tree uses: exact for a few processes, estimated for many."""

import os
import re

from .launcher_process import descendants

_FEW = 16
_TOLERANCE = 4  # the estimate counts what forks share once per process
_SHARE = re.compile(rb"^Pss:\s+(\d+) kB", re.MULTILINE)
_PAGE = os.sysconf("SC_PAGE_SIZE")


def over(top: int, most: int) -> str | None:
    """Return a message if the processes below `top` together use more than `most` bytes, else None."""
    below = descendants(top)
    used = sum(map(_estimate, below))
    if used <= most:
        return None
    if len(below) <= _FEW:
        used = sum(map(_exact, below))
    elif used <= most * _TOLERANCE:
        return None
    return f"{len(below)} processes had {used >> 20:,} MB together" if used > most else None


def _estimate(pid: int) -> int:
    """Return the memory that is not file-backed; the kernel keeps counters, so reading does not stall the process."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            resident, shared = file.read().split()[1:3]
    except (OSError, ValueError):
        return 0  # it ended
    return (int(resident) - int(shared)) * _PAGE


def _exact(pid: int) -> int:
    """Return the proportional set size: a page of two processes counts half. Blocks while the process forks or maps."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            match = _SHARE.search(file.read())
    except OSError:
        return 0  # it ended
    return int(match[1]) << 10 if match else 0
