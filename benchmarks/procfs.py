"""Memory and CPU time of a process with all its descendants, from /proc."""

import os
from pathlib import Path
from typing import NamedTuple

_TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


class Memory(NamedTuple):
    """Megabytes (10^6 bytes). Pss counts a page shared by n processes as 1/n; `own` is its part that no file backs."""

    rss: float
    pss: float
    own: float


def tree(pid: int) -> list[int]:
    """The process and its descendants."""
    found = [pid]
    for parent in found:  # grows while it is walked
        for thread in _threads(parent):
            found += [int(child) for child in _read(f"/proc/{parent}/task/{thread}/children").split()]
    return found


def memory(pid: int) -> Memory:
    totals = {"Rss:": 0, "Pss:": 0, "Pss_Anon:": 0}
    for member in tree(pid):
        for line in _read(f"/proc/{member}/smaps_rollup").splitlines():
            words = line.split()
            if words[0] in totals:
                totals[words[0]] += int(words[1])
    return Memory(*(total * 1024 / 1e6 for total in totals.values()))


def status(pid: int) -> dict[str, int]:
    """The sizes of a process in /proc/PID/status, in kB."""
    found: dict[str, int] = {}
    for line in _read(f"/proc/{pid}/status").splitlines():
        name, _, value = line.partition(":")
        if value.endswith(" kB"):
            found[name] = int(value.split()[0])
    return found


def cpu_ms(pid: int) -> float:
    """User and system time of the tree so far, children that ended included, in steps of a clock tick."""
    ticks = 0
    for member in tree(pid):
        # The command name may hold spaces and parentheses: fields are counted from its last one.
        fields = _read(f"/proc/{member}/stat").rpartition(")")[2].split()
        if fields:
            ticks += sum(int(field) for field in fields[11:15])
    return ticks * _TICK_MS


def _threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def _read(path: str) -> str:
    """A /proc file, or nothing when its process has just ended."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""
