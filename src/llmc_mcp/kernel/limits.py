"""How much a command may use: processes, memory, files. What binds depends on who runs it.

An ordinary user is bound by resource limits. They do not bind uid 0 in the number of its processes, so for root
a control group does, where one can be made.
"""

import os
import resource
import signal
import time
from typing import NamedTuple

from .launcher_process import ChildPlan

OWN_MEMORY = 1 << 30  # private memory of a child of our own that needs no more
_OOM_EARLY = 400  # our own children go before the server does, and after commands
_COUNT_AGAIN_AFTER_S = 60.0
_PREFIX = "llmc-"
_UNKNOWN = "unknown"


class Bounds(NamedTuple):
    """Of one command, or, where a control group counts, of all commands of a server together."""

    processes: int = 1024
    memory_mb: int = 8192  # private memory of one process
    file_mb: int = 4096  # the size of one file
    open_files: int = 4096
    tmp_mb: int = 1024  # the private /tmp


class Counter:
    """RLIMIT_NPROC counts all of a user's processes, so the limit has to stand above those that run already."""

    def __init__(self, uid: int) -> None:
        self._uid = uid
        self._counted_at = float("-inf")
        self._count = 0

    def running(self) -> int:
        now = time.monotonic()
        if now - self._counted_at > _COUNT_AGAIN_AFTER_S:
            self._count, self._counted_at = _threads_of(self._uid), now
        return self._count


def _threads_of(uid: int) -> int:
    total = 0
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            if os.stat(f"/proc/{name}").st_uid == uid:
                total += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            continue  # it ended
    return total


def resource_limits(bounds: Bounds, running: int) -> list[tuple[int, int]]:
    """As the launcher takes them. Not RLIMIT_AS: runtimes reserve far more address space than they use."""
    return [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, bounds.file_mb << 20),
        (resource.RLIMIT_NOFILE, bounds.open_files),
        (resource.RLIMIT_DATA, bounds.memory_mb << 20),
        (resource.RLIMIT_NPROC, running + bounds.processes),
    ]


class ControlGroup:
    """A group of our own that counts processes, for root; `procs` is None where none can be made."""

    def __init__(self, bounds: Bounds) -> None:
        self.procs: str | None = None
        self._folder = ""
        for folder in _candidates():
            clear_leftovers(os.path.dirname(folder))
            try:
                os.mkdir(folder)
            except OSError:
                continue
            self._folder = folder
            try:
                with open(os.path.join(folder, "pids.max"), "w") as file:
                    file.write(str(bounds.processes))
            except OSError:
                self.close()
                continue
            self.procs = os.path.join(folder, "cgroup.procs")
            break

    def close(self) -> None:
        try:
            os.rmdir(self._folder)
        except OSError:
            pass  # somebody is still in it; an empty group costs nothing


def group_name(pid: int) -> str:
    """A name that tells whose group it is: a pid means something only in its namespace, and until it is reused."""
    return f"{_PREFIX}{_pid_namespace()}-{pid}-{_started_at(str(pid))}-{os.urandom(4).hex()}"


def clear_leftovers(parent: str) -> None:
    """Remove the groups of servers that were killed before they could; one whose owner is not surely gone stays.

    A server makes its group before the first process enters it, so that an empty group may well be in use.
    """
    try:
        names = [name for name in os.listdir(parent) if name.startswith(_PREFIX)]
    except OSError:
        return
    namespace = _pid_namespace()
    for name in names:
        owner = name.removeprefix(_PREFIX).split("-")
        if len(owner) != 4 or namespace == _UNKNOWN or owner[0] != namespace:
            continue
        if not owner[1].isdigit() or _started_at(owner[1]) in (owner[2], _UNKNOWN):
            continue
        try:
            os.rmdir(os.path.join(parent, name))
        except OSError:
            pass  # not empty, or not ours


def _pid_namespace() -> str:
    """Our own pid namespace; unknown where /proc shows another one, whose pids say nothing about ours."""
    try:
        own = os.readlink("/proc/self") == str(os.getpid())
        return str(os.stat("/proc/self/ns/pid").st_ino) if own else _UNKNOWN
    except OSError:
        return _UNKNOWN


def _started_at(pid: str) -> str:
    """When a process started, in clock ticks since boot; 0 for one that does not exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (FileNotFoundError, ProcessLookupError):
        return "0"
    except OSError:
        return _UNKNOWN


def _candidates() -> list[str]:
    """Where a group for processes may be made: beside our own (version 2) or below it (version 1)."""
    name = group_name(os.getpid())
    found: list[str] = []
    try:
        with open("/proc/self/cgroup") as file:
            rows = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return []
    for _, controllers, path in rows:
        if "pids" in controllers.split(","):
            found.append(os.path.join(f"/sys/fs/cgroup/pids{path}", name))
        elif not controllers:
            for top in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
                parent = top + (os.path.dirname(path) if path != "/" else "")
                if _counts_processes(parent):
                    found.append(os.path.join(parent, name))
    return found


def _counts_processes(folder: str) -> bool:
    try:
        with open(os.path.join(folder, "cgroup.subtree_control")) as file:
            return "pids" in file.read().split()
    except OSError:
        return False


def own_plan(plan: ChildPlan | None = None, *, memory: int = OWN_MEMORY) -> ChildPlan:
    """How a child of our own starts (ripgrep, the index, git, systemctl): what it reads may be meant to fill memory."""
    limits = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_DATA, memory)]
    return {**(plan or {}), "limits": limits, "oom_score_adj": _OOM_EARLY}


def limit_own_memory(memory: int = OWN_MEMORY) -> None:
    """The same for the process that calls it; the seccomp filter of our children lets nobody limit another one."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    most = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def ran_out_of_memory(exit_code: int | None, stderr: bytes) -> bool:
    """Whether a program in Rust, such as ripgrep, ended because it reached that limit."""
    return exit_code == -signal.SIGABRT and b"memory allocation" in stderr
