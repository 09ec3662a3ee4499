"""The machine's processes: list them, show what they use, and signal those that may be signalled.

The operator chooses whose processes are visible and may be signalled: by default those of the server's own user. A
signal is sent through a pidfd that is opened before any check, so it reaches the process that was checked or none:
never another process that got the same pid in the meantime.
"""

import os
import pwd
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import psutil

from ..config.schema import Config
from ..errors import FeatureUnavailable, InvalidArgument, KillForbidden, LlmcError, PermissionDenied, ProcessNotFound

Sort = Literal["cpu", "mem", "pid"]

_SAMPLE_S = 0.04  # the shortest interval over which CPU use is measured; the kernel counts in ticks of 10 ms
_SAMPLE_AGE_S = 30.0  # a sample older than this says nothing about current use
_SETTLE_S = 0.2  # how long to wait for a signalled process to end
_COMMAND_CHARS = 200
_TICKS = os.sysconf("SC_CLK_TCK")
_KERNEL_THREADS = 2  # kthreadd: the parent of every kernel thread


class Visible(NamedTuple):
    """Whose processes may be listed and signalled; `users` are those that count as the server's own."""

    users: frozenset[int]
    list_others: bool
    kill_others: bool


def visible_from(config: Config) -> Visible:
    """Read the operator's choice; the user that commands run as counts as the server's own."""
    users = {os.getuid()}
    if name := config.sandbox.run_as:
        try:
            users.add(int(name) if name.isdigit() else pwd.getpwnam(name).pw_uid)
        except KeyError:
            pass  # the sandbox refuses to start anything as an unknown user
    limits = config.linux_ops.process_limits
    return Visible(
        frozenset(users), limits.list_all_users or limits.allow_kill_other_users, limits.allow_kill_other_users
    )


class ProcessRow(NamedTuple):
    """A process as `ps` shows it; CPU is relative to one core, so a busy thread pool exceeds 100."""

    pid: int
    user: str
    cpu_percent: float
    mem_percent: float
    command: str


class Branch(NamedTuple):
    """A process in the process tree."""

    pid: int
    parent: int
    command: str


class _CpuSample(NamedTuple):
    process: psutil.Process
    uid: int
    rss: int
    command: str


class Processes:
    """Lists and signals processes; one instance per server, because CPU use is measured since the last sample."""

    def __init__(self, visible: Visible) -> None:
        self._visible = visible
        self._lock = threading.Lock()
        self._sampled_at = float("-inf")
        self._sample: dict[tuple[int, int], int] = {}
        self._names: dict[int, str] = {}
        try:
            self._memory = psutil.virtual_memory().total
        except OSError as exc:
            raise FeatureUnavailable(f"/proc can't be read here ({exc.strerror})") from None

    # --- listing ---------------------------------------------------------------------------------

    def rows(self, *, user: str | None, name: str | None, sort: Sort, check: Callable[[], None]) -> list[ProcessRow]:
        """Return every visible process that matches, sorted."""
        users = self._listed_users(user)
        with self._lock:
            before, began = self._recent_sample()
            samples = list(self._matching(users, name))  # takes about half of the interval
            check()
            time.sleep(max(_SAMPLE_S - (time.monotonic() - began), 0.0))
            used = self._sample = _cpu_ticks()
            self._sampled_at = time.monotonic()
            elapsed = self._sampled_at - began
        shares = {pid: (ticks - before.get((pid, born), 0)) / _TICKS / elapsed for (pid, born), ticks in used.items()}
        rows: list[ProcessRow] = []
        for process, uid, rss, command in samples:
            cpu, memory = round(shares.get(process.pid, 0.0) * 100, 1), round(rss / self._memory * 100, 1)
            rows.append(ProcessRow(process.pid, self._user_name(uid), cpu, memory, _cut(command)))
        return sorted(rows, key=_order(sort))

    def _listed_users(self, user: str | None) -> frozenset[int] | None:
        """Return the users whose processes are listed; None means all."""
        if user is None:
            return None if self._visible.list_others else self._visible.users
        try:
            uid = int(user) if user.isascii() and user.isdigit() else pwd.getpwnam(user).pw_uid
        except (KeyError, ValueError):  # unknown, or not a possible name: a NUL, a lone surrogate
            raise InvalidArgument(f"there is no user {user!r}") from None
        if uid not in self._visible.users and not self._visible.list_others:
            raise PermissionDenied(
                f"processes of {user} are not shown", hint="Setting: linux_ops.process_limits.list_all_users."
            )
        return frozenset({uid})

    def _recent_sample(self) -> tuple[dict[tuple[int, int], int], float]:
        """Return the sample to compare with and its time: the last one if it is recent, else a new one."""
        if time.monotonic() - self._sampled_at > _SAMPLE_AGE_S:
            self._sample, self._sampled_at = _cpu_ticks(), time.monotonic()
        return self._sample, self._sampled_at

    def _matching(self, users: frozenset[int] | None, name: str | None) -> Iterator[_CpuSample]:
        """Yield the processes that match; filter first, because reading what a process uses costs more."""
        for process in psutil.process_iter():
            try:
                with process.oneshot():
                    uid, command = process.uids().real, _command(process)
                    if (users is not None and uid not in users) or command is None:
                        continue
                    if name is None or name.casefold() in command.casefold():
                        yield _CpuSample(process, uid, process.memory_info().rss, command)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue

    def _user_name(self, uid: int) -> str:
        if uid not in self._names:
            try:
                self._names[uid] = pwd.getpwuid(uid).pw_name
            except KeyError:
                self._names[uid] = str(uid)
        return self._names[uid]

    def tree(self, top: int | None) -> list[Branch]:
        """Return the visible processes, parents before children; with `top`, that process and its descendants."""
        branches: dict[int, Branch] = {}
        for process in psutil.process_iter():
            try:
                with process.oneshot():
                    parent = process.ppid()
                    if _KERNEL_THREADS in (process.pid, parent) or not self._may_see(process.uids().real):
                        continue
                    command = _command(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            if command is not None:
                branches[process.pid] = Branch(process.pid, parent, _cut(command))
        if top is None:
            return list(branches.values())
        if top not in branches:
            raise ProcessNotFound(f"there is no process {top}, or it is not shown")
        below, todo = [branches[top]._replace(parent=0)], [top]
        children: dict[int, list[Branch]] = {}
        for branch in branches.values():
            children.setdefault(branch.parent, []).append(branch)
        while todo:
            mine = children.get(todo.pop(), [])
            below += mine
            todo += [branch.pid for branch in mine]
        return below

    def zombies(self) -> list[tuple[int, str]]:
        """Return the pid and name of the parent of every visible zombie."""
        parents: list[tuple[int, str]] = []
        for process in psutil.process_iter():
            try:
                if process.status() == psutil.STATUS_ZOMBIE and self._may_see(process.uids().real):
                    parent = process.parent()
                    parents.append((parent.pid, parent.name()) if parent else (0, "gone"))
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return parents

    def _may_see(self, uid: int) -> bool:
        return self._visible.list_others or uid in self._visible.users

    # --- signalling ------------------------------------------------------------------------------

    def kill(self, pid: int, name: str, check: Callable[[], None]) -> str:
        """Send a signal; return a sentence that describes the result."""
        self._refuse_untouchable(pid)
        try:
            handle = os.pidfd_open(pid)
        except (ProcessLookupError, OverflowError):
            raise ProcessNotFound(f"there is no process {pid}") from None
        except OSError as exc:  # EINVAL: the id of a thread
            raise ProcessNotFound(f"{pid} is not a process ({exc.strerror})") from None
        try:
            self._refuse_foreign(pid)
            self._refuse_machinery(pid)
            return _signal(handle, pid, name, check)
        finally:
            os.close(handle)

    def describe_foreign(self, pid: int) -> str | None:
        """A process that may be signalled and that this server did not start; None for any other."""
        try:
            self._refuse_untouchable(pid)
            self._refuse_foreign(pid)
            self._refuse_machinery(pid)
        except LlmcError:
            return None  # `kill` says why
        try:
            process = psutil.Process(pid)
            if os.getpid() in (parent.pid for parent in process.parents()):
                return None
            started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(process.create_time()))
            return f"process {pid} ({_cut(_command(process) or '')}), started {started}, not by this server"
        except psutil.NoSuchProcess:
            return None

    def _refuse_untouchable(self, pid: int) -> None:
        if pid <= 0:
            raise KillForbidden(f"{pid} means a group of processes; a signal goes to one", hint="Give a process id.")
        if pid == 1:
            raise KillForbidden("process 1 is the system itself")
        if pid == os.getpid():
            raise KillForbidden("that is this server")
        if pid in _ancestors():
            raise KillForbidden(f"process {pid} is an ancestor of this server, which would end with it")

    def _refuse_foreign(self, pid: int) -> None:
        try:
            uids = psutil.Process(pid).uids()
        except psutil.NoSuchProcess:
            raise ProcessNotFound(f"there is no process {pid}") from None
        except psutil.AccessDenied:
            raise PermissionDenied(f"process {pid} belongs to another user") from None
        if {uids.real, uids.effective} <= self._visible.users or self._visible.kill_others:
            return
        raise PermissionDenied(
            f"process {pid} belongs to {self._user_name(uids.real)}",
            hint="Setting: linux_ops.process_limits.allow_kill_other_users.",
        )

    def _refuse_machinery(self, pid: int) -> None:
        """Refuse a direct child, which starts and confines all others, and a kernel thread, which takes no signals."""
        try:
            parent = psutil.Process(pid).ppid()
        except psutil.NoSuchProcess:
            raise ProcessNotFound(f"there is no process {pid}") from None
        if parent == os.getpid():
            raise KillForbidden(f"process {pid} is a part of this server")
        if _KERNEL_THREADS in (pid, parent) and not psutil.Process(pid).cmdline():
            raise KillForbidden(f"process {pid} is a part of the kernel")


def _signal(handle: int, pid: int, name: str, check: Callable[[], None]) -> str:
    number = signal.Signals[f"SIG{name}"]
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    if poll.poll(0):  # it ended before or during the checks
        raise ProcessNotFound(f"process {pid} has ended already")
    try:
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        raise ProcessNotFound(f"process {pid} has ended already") from None
    except PermissionError:
        raise PermissionDenied(f"the system does not let this server signal process {pid}") from None
    check()
    ended = bool(poll.poll(_SETTLE_S * 1000))
    return f"Sent {number.name} to pid {pid}; it {'has ended' if ended else 'still runs'}"


def _ancestors() -> set[int]:
    return {process.pid for process in psutil.Process().parents()}


def _cpu_ticks() -> dict[tuple[int, int], int]:
    """Return the CPU time of every process in ticks, by pid and start time.

    It reads /proc itself: psutil is too slow for the two samples that one call may need.
    """
    ticks: dict[tuple[int, int], int] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb", buffering=0) as file:
                fields = file.read().rpartition(b")")[2].split()  # the name before it may contain anything
        except OSError:
            continue  # it ended
        ticks[int(name), int(fields[19])] = int(fields[11]) + int(fields[12])
    return ticks


def _order(sort: Sort) -> Callable[[ProcessRow], tuple[float, float, int]]:
    if sort == "pid":
        return lambda row: (0.0, 0.0, row.pid)
    if sort == "mem":
        return lambda row: (-row.mem_percent, -row.cpu_percent, row.pid)
    return lambda row: (-row.cpu_percent, -row.mem_percent, row.pid)


def _command(process: psutil.Process) -> str | None:
    """Return the command line without the program's directory, which is long and says little; None if it ended."""
    try:
        words = process.cmdline()
        if not words:
            return f"[{process.name()}]"
    except psutil.ZombieProcess:
        return f"[{process.name()}] <defunct>"
    except psutil.NoSuchProcess:
        return None
    except psutil.AccessDenied:
        return f"[{process.name()}]"
    program = words[0].rsplit("/", 1)[-1] if words[0].startswith("/") else words[0]
    return " ".join([program or words[0], *words[1:]]).replace("\n", " ").strip()


def _cut(command: str) -> str:
    return command if len(command) <= _COMMAND_CHARS else f"{command[: _COMMAND_CHARS - 1]}…"
