"""Report what is unusual on this machine and why it matters: the checks that an administrator runs first.

Findings are sorted, worst first; a healthy machine has none. What can't be seen from here (another user's processes, a
container's host) is not guessed.
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import psutil

from .processes import Processes
from .sysinfo import Snapshot, SystemInfo

_BUSY_PERCENT = 20.0
_FULL, _VERY_FULL = 90.0, 97.0
_BUSY_PER_CORE = 1.5
_LITTLE_MEMORY = 0.10
_STALLED = 10.0  # percent of the last minute in which some process waited for memory or the disk
_MANY_ZOMBIES = 5
_TOP = 3
_OOM = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)

SEVERITIES = ("critical", "warning", "note")


class HealthFinding(NamedTuple):
    """Something unusual: what it is, why it matters, what to do."""

    severity: str
    what: str
    why: str
    do: str


class HealthCheck:
    """Checks the machine; `at` is a prefix for the paths of system files."""

    def __init__(self, system: SystemInfo, processes: Processes, at: str = "") -> None:
        self._system, self._processes, self._at = system, processes, at

    def findings(self, state: Snapshot, check: Callable[[], None]) -> list[HealthFinding]:
        """Return everything unusual, worst first."""
        findings: list[HealthFinding] = []
        for probe in (self._disks, self._inodes, self._load, self._memory, self._pressure, self._kills, self._zombies):
            check()
            findings += probe(state)
        findings += self._units(check)
        return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))

    def consumers(self, check: Callable[[], None]) -> list[str]:
        """Describe the processes that use the most CPU, then those that use the most memory."""
        rows = self._processes.rows(user=None, name=None, sort="cpu", check=check)
        busy = [row for row in rows[:_TOP] if row.cpu_percent >= _BUSY_PERCENT]
        large = [row for row in sorted(rows, key=lambda row: -row.mem_percent)[:_TOP] if row.mem_percent >= 1]
        return [
            f"{os.path.basename(row.command.split(' ')[0])} (pid {row.pid}): "
            f"CPU {row.cpu_percent:.0f} %, memory {row.mem_percent:.0f} %"
            for row in dict.fromkeys([*busy, *large])
        ]

    # --- checks ----------------------------------------------------------------------------------

    def _disks(self, state: Snapshot) -> Iterator[HealthFinding]:
        for disk in state.disks:
            if disk.used_percent >= _FULL:
                free = psutil.disk_usage(disk.mount).free
                severity = "critical" if disk.used_percent >= _VERY_FULL else "warning"
                what = f"{disk.mount} is {disk.used_percent:.0f} % full, {_size(free)} left"
                why = "a full disk stops logs, databases and package upgrades, often without a clear error"
                yield HealthFinding(severity, what, why, f"du -xh --max-depth=2 {disk.mount} | sort -h | tail")

    def _inodes(self, state: Snapshot) -> Iterator[HealthFinding]:
        for disk in state.disks:
            try:
                info = os.statvfs(disk.mount)
            except OSError:
                continue
            if info.f_files and (used := 100 * (1 - info.f_favail / info.f_files)) >= _FULL:
                what = f"{disk.mount} has used {used:.0f} % of its inodes"
                why = "no new file can be created although there is space: usually a cache of very many small files"
                yield HealthFinding("warning", what, why, f"du --inodes -x --max-depth=2 {disk.mount} | sort -n | tail")

    def _load(self, state: Snapshot) -> Iterator[HealthFinding]:
        cores = len(os.sched_getaffinity(0))
        one, five, _ = state.load_avg
        if five / cores < _BUSY_PER_CORE and one / cores < _BUSY_PER_CORE:
            return
        what = f"load {one:.1f} now, {five:.1f} over five minutes, on {cores} core{'s' * (cores > 1)}"
        if state.cpu_percent < 50:
            why = (
                f"the CPU is only {state.cpu_percent:.0f} % busy: processes wait for a disk, a network mount or a lock"
            )
            yield HealthFinding("warning", what, why, "ps -eo pid,stat,wchan:20,comm | grep ' D'")
        else:
            severity = "warning" if five / cores >= 2 * _BUSY_PER_CORE else "note"
            yield HealthFinding(severity, what, "everything takes longer than usual", "see what uses the most, below")

    def _memory(self, state: Snapshot) -> Iterator[HealthFinding]:
        del state
        memory, swap = psutil.virtual_memory(), _swap()
        if memory.available < memory.total * _LITTLE_MEMORY:
            what = f"{_size(memory.available)} of {_size(memory.total)} memory available"
            yield HealthFinding(
                "critical", what, "the next large allocation may get a process killed", "stop what uses the most"
            )
        if swap and swap[0] > swap[1] // 2:
            what = f"{_size(swap[0])} of {_size(swap[1])} swap in use"
            yield HealthFinding(
                "warning",
                what,
                "memory was short at some point; swapped-out pages are slow to access",
                "vmstat 1 shows whether swapping continues",
            )

    def _pressure(self, state: Snapshot) -> Iterator[HealthFinding]:
        """Read the kernel's pressure stall information; `some avg60` is a percentage of the last minute."""
        del state
        for name, thing in (("memory", "memory"), ("io", "the disk")):
            match = re.search(r"^some .*\bavg60=([\d.]+)", self._text(f"/proc/pressure/{name}"), re.MULTILINE)
            if match and float(match[1]) >= _STALLED:
                what = f"processes waited for {thing} {float(match[1]):.0f} % of the last minute"
                yield HealthFinding(
                    "warning", what, f"{thing} is what slows this machine down", "see what uses the most, below"
                )

    def _kills(self, state: Snapshot) -> Iterator[HealthFinding]:
        del state
        match = _OOM.search(self._text("/sys/fs/cgroup/memory.events")) or _OOM.search(self._text("/proc/vmstat"))
        if match and (count := int(match[1])):
            what = f"the kernel killed {count} process{'es' * (count > 1)} for lack of memory since boot"
            why = "a killed process disappears without an error message of its own"
            yield HealthFinding("warning", what, why, "journalctl -k -g 'Out of memory' names them")

    def _zombies(self, state: Snapshot) -> Iterator[HealthFinding]:
        del state
        parents = self._processes.zombies()
        if parents:
            count, (pid, name) = len(parents), max(parents, key=parents.count)
            what = (
                f"{count} zombie process{'es' * (count > 1)}, {parents.count((pid, name))} left by {name} (pid {pid})"
            )
            why = "each occupies a pid until its parent reaps it; the parent has a bug"
            yield HealthFinding(
                "warning" if count >= _MANY_ZOMBIES else "note", what, why, f"restart {name} (pid {pid})"
            )

    def _units(self, check: Callable[[], None]) -> Iterator[HealthFinding]:
        units = self._system.failed_units(check)
        if units:
            shown = ", ".join(units[:5]) + (f" and {len(units) - 5} more" if len(units) > 5 else "")
            what = f"{len(units)} failed unit{'s' * (len(units) > 1)}: {shown}"
            yield HealthFinding("warning", what, "a service that should run is down", f"systemctl status {units[0]}")

    def _text(self, path: str) -> str:
        try:
            with open(self._at + path, encoding="ascii", errors="replace") as file:
                return file.read()
        except OSError:
            return ""


def _swap() -> tuple[int, int] | None:
    try:
        swap = psutil.swap_memory()
    except (OSError, RuntimeError):  # a container may hide swap
        return None
    return (swap.used, swap.total) if swap.total else None


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TB"


def uptime_s() -> float:
    """Return the seconds since boot."""
    return time.time() - psutil.boot_time()
