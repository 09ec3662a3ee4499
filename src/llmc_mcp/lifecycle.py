"""What the app asks of its engines over their lives: to close, and to give up what is idle."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol, runtime_checkable

_LOOKS = 4  # for idle helpers, in the time after which one is idle
_SHORTEST_LOOK_S = 0.05  # between two of them, whatever is configured


@runtime_checkable
class Closable(Protocol):
    """An engine that holds on to something: children, descriptors, a database."""

    def close(self) -> None: ...


@runtime_checkable
class Releasable(Protocol):
    """An engine whose helpers and caches can end while nobody uses them: the next use makes them anew."""

    def release_idle(self, idle_s: float) -> bool:
        """End what has not been used for so long; whether anything was ended. What is in use is left alone."""
        ...


class Problems:
    """What went wrong without failing a call, until a call's log lines take it along; safe from several threads."""

    def __init__(self) -> None:
        self._waiting: deque[str] = deque()

    def add(self, problem: str) -> None:
        """Keep a problem for the log."""
        self._waiting.append(problem)

    def drain(self) -> list[str]:
        """The problems so far; each is returned once, even when several threads drain."""
        drained: list[str] = []
        while self._waiting:
            try:
                drained.append(self._waiting.popleft())
            except IndexError:  # another thread was faster
                break
        return drained


class IdleClock:
    """A thread that looks from time to time which helpers nobody has used for `idle_s` seconds."""

    def __init__(self, release_idle: Callable[[float], bool], idle_s: float, problems: Problems) -> None:
        self._release_idle, self._idle_s, self._problems = release_idle, idle_s, problems
        self._over = threading.Event()
        threading.Thread(target=self._run, name="idle-clock", daemon=True).start()

    def _run(self) -> None:
        while not self._over.wait(max(self._idle_s / _LOOKS, _SHORTEST_LOOK_S)):
            try:
                self._release_idle(self._idle_s)
            except Exception as exc:  # noqa: BLE001 - helpers that can't be ended now are looked at again
                self._problems.add(f"idle helpers could not be ended: {type(exc).__name__}: {exc}")

    def close(self) -> None:
        """Look no more."""
        self._over.set()
