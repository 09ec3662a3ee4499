"""A row in the store for every call: what was called, how it went, what it cost.

Telemetry must never cost a call: rows wait in memory and a thread of their own writes them in batches. When the
store is unavailable or too slow, rows are dropped and counted. The token audit and other sinks get the same batches.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence, Set
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from ..errors import FeatureUnavailable, ResourceBusy
from ..redaction import MASK, clip, is_secret_name, redact, redact_word
from ..tokens import Sample, weigh

if TYPE_CHECKING:
    from ..store.base import Store

_WAITING_ROWS = 20_000
_BATCH = 2_000
_EVERY_S = 0.1  # who watches a session sees a call this much after it
_CLOSE_S = 2.0
_WRITE_S = 30.0  # how long a batch waits for other writers: nobody waits for it
_DAY_S = 86_400.0
_FORGET_EVERY_S = 6 * 3600.0
_FORGET_ROWS = 1_000
_FORGET = f"DELETE FROM calls WHERE id IN (SELECT id FROM calls WHERE at < ? ORDER BY at LIMIT {_FORGET_ROWS})"  # noqa: S608 - own number
_SHOWN_VALUE = 60
_WEIGHED_ONE_BY_ONE = 20  # replies of a batch

_ITEMS, _DEPTH = 20, 4  # of a list or an object that a summary looks at


class Usage(NamedTuple):
    """One call."""

    at: float
    source: str
    tool: str
    status: str
    duration_ms: float
    args: str
    bytes_in: int
    bytes_out: int
    principal: str
    session_id: str
    agent_id: str
    model: str
    correlation_id: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_saved: int = 0
    budget_profile: str = ""
    roots: str = ""  # the key of the root set that it was made under
    sandbox: str = ""  # the level that confines commands, once it is known


# Called with the usage of calls, many at a time, some time after they ended.
UsageListener = Callable[[Sequence[Usage]], None]


class UsageSink(Protocol):
    """A receiver of usage rows besides the store."""

    def append(self, rows: list[Usage]) -> None: ...

    def forget(self, before: float) -> None: ...


def summarize(arguments: object, content: Set[str]) -> str:
    """Arguments in a line, short, without secrets, and without those in `content`, which hold somebody's data."""
    if not isinstance(arguments, dict):
        return ""
    fields = cast(dict[object, object], arguments)
    return " ".join(f"{str(name)[:40]}={_shown(name, value, content)}" for name, value in islice(fields.items(), 12))


def _shown(name: object, value: object, content: Set[str]) -> str:
    if isinstance(name, str) and is_secret_name(name):
        return MASK
    text = redact(clip(str(_bounded(name, value, content, _DEPTH)))).replace("\n", " ")
    return text if len(text) <= _SHOWN_VALUE else f"{text[:_SHOWN_VALUE]}…"


def _bounded(name: object, value: object, content: Set[str], depth: int) -> object:
    """As much of a value as a summary may need, without contents: its cost must not grow with the value."""
    if isinstance(value, str):
        return f"<{len(value)} chars>" if name in content else clip(value)
    if isinstance(value, list | tuple):
        items = cast(Sequence[object], value)[:_ITEMS] if depth else ()
        return [
            redact_word(clip(one)) if isinstance(one, str) else _bounded(name, one, content, depth - 1) for one in items
        ]
    if isinstance(value, dict):
        fields = islice(cast(dict[object, object], value).items(), _ITEMS if depth else 0)
        return {str(key)[:40]: _field(key, one, content, depth - 1) for key, one in fields}
    return value if isinstance(value, int | float | None) else f"<{type(value).__name__}>"


def _field(name: object, value: object, content: Set[str], depth: int) -> object:
    return MASK if isinstance(name, str) and is_secret_name(name) else _bounded(name, value, content, depth)


_NOTHING_SENT = Sample(b"", 0)


def weighed(batch: Iterable[tuple[Usage, Sample]]) -> list[Usage]:
    """Rows with the tokens of their replies; in a flood, most cost per byte what others of the tool did."""
    rows: list[Usage] = []
    per_byte: dict[str, float] = {}
    for row, sent in batch:
        if not sent.size:
            rows.append(row)
        elif len(rows) >= _WEIGHED_ONE_BY_ONE and row.tool in per_byte:
            rows.append(row._replace(tokens_out=round(per_byte[row.tool] * sent.size)))
        else:
            tokens = weigh(sent)
            per_byte[row.tool] = tokens / sent.size
            rows.append(row._replace(tokens_out=tokens))
    return rows


class Recorder:
    """Takes rows from any thread; its own thread opens the store when the first row comes.

    That thread is woken once per batch, not per row: waking it costs the call that does it.
    """

    def __init__(
        self,
        store: Callable[[], "Store"],
        sinks: tuple[UsageSink, ...] = (),
        retention_days: int = 0,
        listeners: Sequence[UsageListener] = (),
    ) -> None:
        self._store, self._sinks, self._retention_days, self._listeners = store, sinks, retention_days, listeners
        self._rows: deque[tuple[Usage, Sample] | threading.Event] = deque()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._wake, self._hurry = threading.Event(), threading.Event()
        self._closing = False
        self._forget_at = 0.0
        self.dropped = 0

    def record(self, row: Usage, sent: Sample = _NOTHING_SENT) -> None:
        """Never waits, never fails. What the reply cost is worked out later, from a sample of it."""
        if len(self._rows) >= _WAITING_ROWS:
            self.dropped += 1
            return
        self._rows.append((row, sent))
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name="usage", daemon=True)
                    try:
                        thread.start()
                    except RuntimeError:  # no thread to be had now: the next row tries again
                        return
                    self._thread = thread  # only now: close() may join it at once
        if not self._wake.is_set():
            self._wake.set()

    def flush(self) -> None:
        """Wait until what was recorded so far can be read, for a moment at most."""
        if self._thread is not None:
            written = threading.Event()
            self._rows.append(written)
            self._hurry.set()
            self._wake.set()
            written.wait(_CLOSE_S)

    def close(self) -> None:
        """Write what waits, for a moment at most."""
        if self._thread is not None:
            self._closing = True
            self._hurry.set()
            self._wake.set()
            self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        while not self._closing or self._rows:
            self._wake.wait()
            self._hurry.wait(_EVERY_S)  # let a batch gather
            self._wake.clear()  # before looking: what comes from here on wakes us again
            self._hurry.clear()
            while batch := self._take():
                self._write(weighed(one for one in batch if not isinstance(one, threading.Event)))
                for waiting in batch:
                    if isinstance(waiting, threading.Event):
                        waiting.set()

    def _take(self) -> list[tuple[Usage, Sample] | threading.Event]:
        return [self._rows.popleft() for _ in range(min(len(self._rows), _BATCH))]

    def _write(self, batch: list[Usage]) -> None:
        try:
            store = self._store()
            rows = [row._replace(roots=store.workspaces.stored_key(row.roots)) for row in batch]
            store.add_rows("calls", Usage._fields, rows, wait_s=_WRITE_S)
            self._forget()
        except (FeatureUnavailable, ResourceBusy):
            self.dropped += len(batch)
        for sink in self._sinks:
            sink.append(batch)
        for listener in self._listeners:
            listener(batch)

    def _forget(self) -> None:
        """Delete rows past their retention, every few hours."""
        if not self._retention_days or time.monotonic() < self._forget_at:
            return
        self._forget_at = time.monotonic() + _FORGET_EVERY_S
        before = time.time() - self._retention_days * _DAY_S
        while True:  # in short transactions: a long one would keep every server waiting
            with self._store().transaction() as connection:
                forgotten = connection.execute(_FORGET, (before,)).rowcount
            if forgotten < _FORGET_ROWS or self._closing:
                break
        for sink in self._sinks:
            sink.forget(before)
