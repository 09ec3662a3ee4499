"""Running an agent's Python: an interpreter without a machine behind it, and the functions it is given.

Monty is an interpreter of its own in a worker process: no files, no network, no imports but a few harmless ones. What
the code can reach is exactly the functions passed in, so it needs no container around it. Limits are always passed:
by default the engine has none, and prints to the file descriptor that carries our protocol.
"""

import glob
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from ..errors import Cancelled, FeatureUnavailable, LlmcError, ResourceBusy
from .code import Failure, Functions, Limits, Outcome, Printed, nearest

_MAX_SLEEP_S = 5.0
_WORKERS = 4
_PATIENCE_S = 10.0  # for a worker that is free
_LOOK_EVERY_S = 0.05
_SHOWN_SOURCE = 200
_SHOWN_MESSAGE = 1_500
_MODULES = "re, json, math, datetime, dataclasses, collections, itertools, csv, decimal, asyncio"

# What the engine says when it lacks something, and the way around it.
_HINTS = (
    ("class inheritance", "Use functions, or a class that holds another."),
    ("yield", "Build and return a list."),
    ("ModuleNotFoundError", f"Modules: {_MODULES}. Files, search and commands are functions: tools() lists them."),
    ("PermissionError", "There are no files in here: call read_file(path), linux_fs_write(path, content) …"),
    ("is not supported in this environment", "Call a tool instead: tools() lists them, help(name) explains one."),
    ("not yet support", "Write it in simpler Python."),
    ("memory limit exceeded", "Keep less: count or filter while reading."),
    ("time limit exceeded", "Do less per run, or pass a longer timeout."),
    ("too many suspensions", "Fewer tool calls per run: search or list first, then read what matters."),
)


class _Worker:
    """A pool of one worker: the engine does not tell which of several runs what, and has no way to stop one."""

    def __init__(self, module: Any) -> None:
        before = _children()
        self.pool: Any = module.Monty(max_processes=1, checkout_timeout=_PATIENCE_S).__enter__()
        try:
            (pid,) = _children() - before
            self._process = os.pidfd_open(pid)
        except (ValueError, OSError):
            self.pool.__exit__(None, None, None)
            raise FeatureUnavailable("the code engine did not start", hint="Its worker is the program monty.") from None
        self._killed = False

    @property
    def usable(self) -> bool:
        """Whether its process is still the one that it was started with."""
        return not self._killed and not select.select([self._process], [], [], 0)[0]

    def kill(self) -> None:
        """End it in whatever it does."""
        self._killed = True
        try:
            signal.pidfd_send_signal(self._process, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it was quicker

    def close(self) -> None:
        self.pool.__exit__(None, None, None)
        os.close(self._process)


def _children() -> set[int]:
    """The engine's processes; whatever else the server starts meanwhile is not meant."""
    found: set[int] = set()
    for path in glob.glob("/proc/self/task/*/children"):
        try:
            with open(path) as file:
                pids = file.read().split()
        except OSError:
            continue  # a thread that ended
        for pid in pids:
            try:
                if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "monty":
                    found.add(int(pid))
            except OSError:
                continue  # a process that ended
    return found


class _Lookout:
    """One thread that asks, for all runs, whether they are still wanted, and kills the worker of one that is not."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._any = threading.Event()
        self._runs: dict[_Worker, Callable[[], None]] = {}
        self._given_up: dict[_Worker, Cancelled] = {}
        self._thread: threading.Thread | None = None

    @contextmanager
    def over(self, worker: _Worker, check: Callable[[], None]) -> Generator[None]:
        """Watch over a run; if it was taken back, that is what this raises."""
        with self._lock:
            self._runs[worker] = check
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="lookout", daemon=True)
                self._thread.start()
        self._any.set()
        try:
            yield
        finally:
            with self._lock:
                del self._runs[worker]
                gone = self._given_up.pop(worker, None)
            if gone is not None:
                raise gone from None

    def _watch(self) -> None:
        while True:
            self._any.wait()
            time.sleep(_LOOK_EVERY_S)
            with self._lock:
                if not self._runs:
                    self._any.clear()
                runs = list(self._runs.items())
            for worker, check in runs:
                self._look(worker, check)

    def _look(self, worker: _Worker, check: Callable[[], None]) -> None:
        try:
            check()
        except Cancelled as exc:
            with self._lock:
                if self._runs.get(worker) is check:  # it may have ended meanwhile, and its worker have another
                    self._given_up[worker] = exc
                    worker.kill()
        except LlmcError:
            pass  # out of time: the engine sees to that itself, and says where the code was


class MontyEngine:
    """Code in Monty's workers; a worker that hangs or dies is replaced and the server goes on."""

    def __init__(self) -> None:
        self._making = threading.Lock()
        self._free = threading.Semaphore(_WORKERS)
        self._idle: list[_Worker] = []
        self._lookout = _Lookout()
        self._module: Any = None

    def warm(self) -> str:
        """Import the engine and start a worker."""
        with self._worker(lambda: None):
            return "Monty, an interpreter that reaches nothing but the tools"

    def close(self) -> None:
        """End the workers."""
        with self._making:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.close()

    def run(self, code: str, functions: Functions, limits: Limits, check: Callable[[], None]) -> Outcome:
        """Run `code` in a fresh session: nothing is shared between runs."""
        printed = Printed(limits.output_bytes)
        bounds = {
            "max_feed_duration_secs": limits.seconds,
            "max_memory": limits.memory_bytes,
            "max_suspensions": limits.calls,
            "max_total_sleep_secs": min(limits.seconds, _MAX_SLEEP_S),
        }
        policy = {"sleep_system_max": min(limits.seconds, _MAX_SLEEP_S)}
        with self._worker(check) as worker, self._lookout.over(worker, check):
            try:
                with worker.pool.checkout(script_name="code.py", limits=bounds, os_policy=policy) as session:
                    value = session.feed_run(code, external_lookup=dict(functions), print_callback=printed)
            except self._module.MontyError as exc:
                return Outcome(printed.text, None, _explain(exc, functions), printed.cut_bytes)
            return Outcome(printed.text, value, None, printed.cut_bytes)

    @contextmanager
    def _worker(self, check: Callable[[], None]) -> Generator[_Worker]:
        """A worker for one run; one that did not survive the run is not used again."""
        ends = time.monotonic() + _PATIENCE_S
        while not self._free.acquire(timeout=_LOOK_EVERY_S):
            check()
            if time.monotonic() > ends:
                raise ResourceBusy(f"{_WORKERS} runs of code are under way", hint="Wait for one of them to end.")
        try:
            worker = self._take()
            try:
                yield worker
            finally:
                if worker.usable:
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
            if self._module is None:
                self._module = _import()
            return _Worker(self._module)


def _import() -> Any:
    try:
        import pydantic_monty
    except ImportError as exc:
        raise FeatureUnavailable(
            f"the code engine is not installed ({exc})", hint="pip install pydantic-monty==1.4.0"
        ) from None
    return pydantic_monty


def _explain(exc: Any, functions: Functions) -> Failure:
    message = str(exc)
    frames: list[Any] = exc.traceback() if hasattr(exc, "traceback") else []
    last = frames[-1] if frames else None
    hint = next((words for sign, words in _HINTS if sign in message), None) or nearest(message, functions)
    source = last.source_line[:_SHOWN_SOURCE] if last and last.source_line else None
    return Failure(message[:_SHOWN_MESSAGE], last.line if last else None, source, hint)
