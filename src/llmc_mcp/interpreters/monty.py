"""Runs an agent's Python in Monty, an interpreter that has no access to the machine but the functions passed to it.

Monty is an interpreter of its own: no files, no network, no imports but a few harmless ones. What the code can reach
is exactly the functions passed in. It runs in a process that the launcher starts (monty_child.py), because its values
become Python objects in its host process: there the kernel limits their memory, and the server sees only JSON.
"""

import importlib.util
import os
import resource
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import msgspec

from ..errors import FeatureUnavailable, ResourceBusy, Timeout
from ..kernel import confine, seccomp, syscalls
from ..kernel.landlock import ruleset
from ..kernel.launcher import Launcher, RunningChild
from ..kernel.launcher_process import ChildPlan
from .engine import LARGEST_VALUE, NOTHING, Functions, PrintBuffer, RunFailure, RunLimits, RunOutcome, nearest
from .monty_child import Order
from .tool_channel import MAX_ARGUMENTS, RunError, ToolChannel

_HOW_TO_INSTALL = "Install it: pip install pydantic-monty==1.4.0."
_WORKERS = 4
_PATIENCE_S = 10.0  # to wait for a free worker, or for one to start
_LOOK_EVERY_S = 0.05
_GRACE_S = 1.0  # for the engine to end code that timed out: it reports the line
_OWN_MEMORY = 64 << 20  # of each of a worker's processes
_ZONES = b"/usr/share/zoneinfo"
_MODULES = "re, json, math, datetime, dataclasses, collections, itertools, csv, decimal, asyncio"

# Messages of the engine about what it lacks, and the way around it.
_HINTS = (
    ("class inheritance", "Use functions, or a class that holds another."),
    ("yield", "Build and return a list."),
    ("ModuleNotFoundError", f"Modules: {_MODULES}. Files, search and commands are functions: tools() lists them."),
    ("PermissionError", "There are no files in here: call read_file(path), linux_fs_write(path, content) …"),
    ("is not supported in this environment", "Call a tool instead: tools() lists them, help(name) explains one."),
    ("not yet support", "Write it in simpler Python."),
    ("TOO_LARGE", "Pass or return less: count, filter or cut first."),
    ("memory limit exceeded", "Keep less: count or filter while reading."),
    ("time limit exceeded", "Do less per run, or pass a longer timeout."),
    ("too many suspensions", "Fewer tool calls per run: search or list first, then read what matters."),
)


class _Worker:
    """A process that holds the engine and carries out one run at a time."""

    def __init__(self, launcher: Launcher, memory_bytes: int) -> None:
        self._launcher = launcher
        self.used_at = time.monotonic()
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        opened = [os.open("/", os.O_PATH | os.O_CLOEXEC), os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)]
        try:
            with theirs:
                fds = [opened[0], opened[1], opened[1], opened[1], theirs.fileno()]
                plan = _plan(memory_bytes)
                if syscalls.landlock_abi():
                    opened.append(ruleset([*confine.needed(_ZONES)]))
                    plan["ruleset"] = len(fds)
                    fds.append(opened[-1])
                self._child: RunningChild = launcher.start(
                    confine.command("llmc_mcp.interpreters.monty_child"), {}, fds, plan
                )
        except OSError as exc:
            self.channel.close()
            raise FeatureUnavailable(f"the code engine could not be started ({exc.strerror})") from None
        finally:
            for fd in opened:
                os.close(fd)
        self._await_ready()

    @property
    def usable(self) -> bool:
        """Whether it waits for a run. It sends nothing unprompted, so a readable channel means that it has ended."""
        return self.channel.fileno() >= 0 and not select.select([self.channel], [], [], 0)[0]

    def close(self) -> None:
        """End it and everything that it started, whatever it is doing."""
        self.channel.close()
        self._launcher.signal(self._child, signal.SIGKILL)
        self._launcher.forget(self._child)

    def _await_ready(self) -> None:
        """Wait for its first frame, which names what is missing; it is empty if all is well."""
        self.channel.settimeout(_PATIENCE_S)
        try:
            head = self.channel.recv(4, socket.MSG_WAITALL)
            reason = self.channel.recv(int.from_bytes(head, "little"), socket.MSG_WAITALL).decode() if any(head) else ""
        except OSError:
            head, reason = b"", ""
        if len(head) < 4 or reason:
            self.close()
            raise FeatureUnavailable(
                f"the code engine did not start ({reason[:300] or 'its process ended'})",
                hint=_HOW_TO_INSTALL,
            )


def _plan(memory_bytes: int) -> ChildPlan:
    """Limit its memory, give it access to nothing, and end it with the server, with everything that it started."""
    plan: ChildPlan = {
        "supervised": True,
        "keep": [4],
        "limits": [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_DATA, memory_bytes + _OWN_MEMORY)],
        "drop_capabilities": os.geteuid() == 0,
    }
    if seccomp.supported():
        plan["seccomp"] = seccomp.command_filter(families=(), shared=True)
    return plan


class _Patience:
    """Checks whether a run is cancelled. After a timeout, the engine has a moment to report that itself."""

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check
        self._over_at = float("inf")

    def __call__(self) -> None:
        try:
            self._check()
        except Timeout:
            now = time.monotonic()
            self._over_at = min(self._over_at, now + _GRACE_S)
            if now >= self._over_at:
                raise


class MontyEngine:
    """Code in Monty's workers; a worker that hangs or dies is replaced and the server goes on."""

    def __init__(self, launcher: Launcher, memory_mb: int) -> None:
        self._launcher, self._memory_bytes = launcher, memory_mb << 20
        self._making = threading.Lock()
        self._free = threading.Semaphore(_WORKERS)
        self._idle: list[_Worker] = []

    def warm(self) -> str:
        """Start a worker, so that it is ready for its first run."""
        self.run("", {}, RunLimits(_PATIENCE_S, self._memory_bytes, 0, 1), lambda: None)
        return "Monty, an interpreter that reaches nothing but the tools"

    def close(self) -> None:
        """End the workers."""
        with self._making:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.close()

    def release_idle(self, idle_s: float) -> bool:
        """End the workers that have had no run for a while; whether any was ended. One with a run is not among them."""
        with self._making:
            oldest = time.monotonic() - idle_s
            ended = [worker for worker in self._idle if worker.used_at <= oldest]
            self._idle = [worker for worker in self._idle if worker.used_at > oldest]
        for worker in ended:
            worker.close()
        return bool(ended)

    def run(self, code: str, functions: Functions, limits: RunLimits, check: Callable[[], None]) -> RunOutcome:
        """Run `code` in a fresh session: nothing is shared between runs."""
        printed, patience = PrintBuffer(limits.output_bytes), _Patience(check)
        with self._worker(check) as worker:
            channel = ToolChannel(worker.channel, functions, limits, printed, patience)
            try:
                channel.send(msgspec.json.encode(_order(channel.secret, code, functions, limits)))
                _follow(channel, patience)
            except Timeout:
                channel.refused = f"TimeoutError: time limit exceeded: the code ran longer than {limits.seconds:g} s"
            if channel.end is None:
                worker.close()
        if channel.end is None:
            error = RunError("", channel.refused or "memory limit exceeded: the engine ended", None, None)
            return RunOutcome(printed.text, NOTHING, _explain(error, functions), printed.cut_bytes)
        end = channel.end
        failure = _explain(end.failure, functions) if end.failure is not None else None
        return RunOutcome(printed.text, bytes(end.value), failure, printed.cut_bytes + end.cut)

    @contextmanager
    def _worker(self, check: Callable[[], None]) -> Generator[_Worker]:
        """A worker for one run; one that did not finish its run is not used again."""
        ends = time.monotonic() + _PATIENCE_S
        while not self._free.acquire(timeout=_LOOK_EVERY_S):
            check()
            if time.monotonic() > ends:
                raise ResourceBusy(f"{_WORKERS} runs of code are under way", hint="Wait for one of them to end.")
        try:
            worker = self._take()
            try:
                yield worker
            except BaseException:
                worker.close()
                raise
            if worker.usable:
                worker.used_at = time.monotonic()
                with self._making:
                    self._idle.append(worker)
            else:
                worker.close()
        finally:
            self._free.release()

    def _take(self) -> _Worker:
        with self._making:
            while self._idle:
                worker = self._idle.pop()
                if worker.usable:
                    return worker
                worker.close()
        if importlib.util.find_spec("pydantic_monty") is None:
            raise FeatureUnavailable("the code engine is not installed", hint=_HOW_TO_INSTALL)
        return _Worker(self._launcher, self._memory_bytes)


def _order(secret: str, code: str, functions: Functions, limits: RunLimits) -> Order:
    return Order(
        secret,
        code,
        [*functions],
        limits.seconds,
        limits.memory_bytes,
        limits.calls,
        limits.output_bytes,
        max(min(limits.output_bytes, LARGEST_VALUE), 1),
        MAX_ARGUMENTS,
    )


def _follow(channel: ToolChannel, check: Callable[[], None]) -> None:
    """Serve a run until it reports its end, dies or misuses the channel."""
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    while not channel.over:
        ready = poll.poll(_LOOK_EVERY_S * 1000)
        check()
        if ready and not channel.serve():
            return


def _explain(error: RunError, functions: Functions) -> RunFailure:
    hint = next((words for sign, words in _HINTS if sign in error.message), None) or nearest(error.message, functions)
    return RunFailure(error.message, error.line, error.source, hint)
