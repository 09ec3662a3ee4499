"""Running an agent's Python: an interpreter without a machine behind it, and the functions it is given.

Monty is an interpreter of its own in a worker process: no files, no network, no imports but a few harmless ones. What
the code can reach is exactly the functions passed in, so it needs no container around it. Limits are always passed:
by default the engine has none, and prints to the file descriptor that carries our protocol.
"""

import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from ..errors import FeatureUnavailable

_MAX_SLEEP_S = 5.0
_WORKERS = 4
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


class Limits(NamedTuple):
    """What one run may cost."""

    seconds: float
    memory_bytes: int
    output_bytes: int
    calls: int


class Failure(NamedTuple):
    """Why the code stopped."""

    message: str
    line: int | None
    source: str | None
    hint: str | None


class Outcome(NamedTuple):
    """What a run printed and what its last expression was."""

    stdout: str
    value: object
    failure: Failure | None
    cut_bytes: int
    files: tuple[str, ...] = ()  # written by the code itself, and gone with it


Functions = Mapping[str, Callable[..., object]]


class Engine(Protocol):
    """Something that runs code."""

    def run(self, code: str, functions: Functions, limits: Limits, check: Callable[[], None]) -> Outcome:
        """Run `code` in a state of its own, with `functions` as its only way out; `check` raises to give up."""
        ...

    def warm(self) -> None:
        """Get ready, so that the first run is quick."""
        ...

    def close(self) -> None:
        """End what it started."""
        ...


class Printed:
    """Takes what is printed, up to a limit; the rest is only counted."""

    def __init__(self, limit: int) -> None:
        self._room = limit
        self._kept: list[bytes] = []
        self.cut_bytes = 0

    def __call__(self, stream: str, text: str) -> None:
        del stream
        self.take(text.encode("utf-8", "replace"))

    def take(self, data: bytes) -> None:
        """Keep what there is room for."""
        if self._room and data:
            self._kept.append(data[: self._room])
        self.cut_bytes += max(len(data) - self._room, 0)
        self._room = max(self._room - len(data), 0)

    @property
    def text(self) -> str:
        """What was kept; a character that the limit cut in two is left out."""
        return b"".join(self._kept).decode("utf-8", "ignore" if self.cut_bytes else "replace")


class MontyEngine:
    """Code in Monty's workers; a worker that hangs or dies is replaced and the server goes on."""

    def __init__(self) -> None:
        self._making = threading.Lock()
        self._module: Any = None
        self._pool: Any = None

    def warm(self) -> None:
        """Import the engine and start a worker."""
        self._ready()

    def close(self) -> None:
        """End the workers."""
        with self._making:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.__exit__(None, None, None)

    def run(self, code: str, functions: Functions, limits: Limits, check: Callable[[], None]) -> Outcome:
        """Run `code` in a fresh session: nothing is shared between runs."""
        del check
        pool = self._ready()
        printed = Printed(limits.output_bytes)
        bounds = {
            "max_feed_duration_secs": limits.seconds,
            "max_memory": limits.memory_bytes,
            "max_suspensions": limits.calls,
            "max_total_sleep_secs": min(limits.seconds, _MAX_SLEEP_S),
        }
        policy = {"sleep_system_max": min(limits.seconds, _MAX_SLEEP_S)}
        try:
            with pool.checkout(script_name="code.py", limits=bounds, os_policy=policy) as session:
                value = session.feed_run(code, external_lookup=dict(functions), print_callback=printed)
        except self._module.MontyError as exc:
            return Outcome(printed.text, None, _explain(exc, functions), printed.cut_bytes)
        return Outcome(printed.text, value, None, printed.cut_bytes)

    def _ready(self) -> Any:
        with self._making:
            if self._pool is None:
                try:
                    import pydantic_monty
                except ImportError as exc:
                    raise FeatureUnavailable(
                        f"the code engine is not installed ({exc})", hint="pip install pydantic-monty==1.4.0"
                    ) from None
                self._module = pydantic_monty
                self._pool = pydantic_monty.Monty(max_processes=_WORKERS, checkout_timeout=10.0).__enter__()
            return self._pool


def _explain(exc: Any, functions: Functions) -> Failure:
    message = str(exc)
    frames: list[Any] = exc.traceback() if hasattr(exc, "traceback") else []
    last = frames[-1] if frames else None
    hint = next((words for sign, words in _HINTS if sign in message), None) or nearest(message, functions)
    source = last.source_line[:_SHOWN_SOURCE] if last and last.source_line else None
    return Failure(message[:_SHOWN_MESSAGE], last.line if last else None, source, hint)


def nearest(message: str, functions: Functions) -> str | None:
    """For a name that is not there: the tools it may have meant."""
    missing = re.search(r"name '(\w+)' is not defined", message)
    if missing is None:
        return None
    import difflib

    close = difflib.get_close_matches(missing[1], functions, n=3, cutoff=0.5)
    return f"Did you mean {' or '.join(close)}? tools() lists all." if close else "tools() lists what there is."
