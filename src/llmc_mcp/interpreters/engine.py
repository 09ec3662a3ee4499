"""What execute_code hands to an engine and gets back from it; the engines are in monty.py and cpython.py."""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import msgspec

NOTHING = b"null"  # the value of a run that has none
LARGEST_VALUE = 1 << 20  # bytes of a value that are handed over


class RunLimits(NamedTuple):
    """The limits of one run."""

    seconds: float
    memory_bytes: int
    output_bytes: int
    calls: int


class RunFailure(NamedTuple):
    """Why the code stopped."""

    message: str
    line: int | None
    source: str | None
    hint: str | None


class RunOutcome(NamedTuple):
    """What a run printed, and the value of its last expression."""

    stdout: str
    encoded: bytes  # the value as JSON: a short text may decode to many objects
    failure: RunFailure | None
    cut_bytes: int
    files: tuple[str, ...] = ()  # written by the code itself, and removed with its folder

    @property
    def value(self) -> object:
        """The value of the last expression."""
        return msgspec.json.decode(self.encoded)


Functions = Mapping[str, Callable[..., object]]


class Engine(Protocol):
    """Something that runs code."""

    def run(self, code: str, functions: Functions, limits: RunLimits, check: Callable[[], None]) -> RunOutcome:
        """Run `code` in a state of its own, with `functions` as its only way out; `check` raises to cancel."""
        ...

    def warm(self) -> str:
        """Get ready, so that the first run is quick; returns a text that names the engine and its confinement."""
        ...

    def close(self) -> None:
        """End what it started."""
        ...

    def release_idle(self, idle_s: float) -> bool:
        """End what no run has used for a while; whether anything was ended. The next run starts it again."""
        ...


class PrintBuffer:
    """Collects what is printed, up to a limit; the rest is only counted."""

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


def nearest(message: str, functions: Functions) -> str | None:
    """A hint for an undefined name: the tools that it may have meant."""
    missing = re.search(r"name '(\w+)' is not defined", message)
    if missing is None:
        return None
    import difflib

    close = difflib.get_close_matches(missing[1], functions, n=3, cutoff=0.5)
    return f"Did you mean {' or '.join(close)}? tools() lists all." if close else "tools() lists what there is."
