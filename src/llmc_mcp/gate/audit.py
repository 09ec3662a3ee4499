"""Two audit trails: calls that may change something, and what calls cost in tokens.

The audit has a line for every call that may change something: who, which tool, a hash of the arguments, the outcome.
It is written before the reply leaves, one JSON object a line, where no tool and no child reaches it: to a file of the
month in the data directory or, where servers share a store, to a row there. Lines form chains (`audit_chain`), so that
`llmc audit verify` finds one that was changed.

The token audit is a CSV table of every call's tokens, for a spreadsheet. It is off by default.
"""

import csv
import hashlib
import io
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from ..errors import Conflict, FeatureUnavailable, ResourceBusy
from ..session import Session
from .audit_chain import Chain
from .audit_trail import FileTrail, StoreTrail, start
from .usage import Usage

if TYPE_CHECKING:
    from ..store.base import Store

_FORGET_EVERY_S = 6 * 3600.0
_DAY_S = 86_400.0
_CLOSE_S = 2.0
_UNREACHABLE = (FeatureUnavailable, ResourceBusy)
_CSV_HEAD = (
    *("timestamp", "correlation_id", "principal", "session_id", "agent_id", "model"),
    *("tool", "status", "duration_ms", "tokens_in", "tokens_out", "tokens_saved"),
)


class Audit:
    """The record of mutating calls; `store` is one that servers share. Safe from several threads."""

    def __init__(
        self,
        data_dir: str,
        retention_days: int = 0,
        store: "Callable[[], Store] | None" = None,
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._files = FileTrail(data_dir)
        self._retention_days, self._store, self._notice = retention_days, store, notice
        self._lock = threading.Lock()
        self._chain = Chain()  # of files
        self._shared = Chain()  # of rows
        self._left: list[tuple[int, float, bytes]] = []  # rows that the store has not got, because it is away
        self._forget_at = 0.0
        self._forgetting: threading.Thread | None = None

    def write(self, session: Session, tool: str, status: str, arguments: object, summary: str, cid: str) -> None:
        """Add a line; raises OSError where it can't be written anywhere."""
        now = time.time()
        record: dict[str, object] = {
            "ts": _stamp(now),
            "principal": session.principal,
            "session": session.session_id,
            "agent": session.agent_id,
            "tool": tool,
            "status": status,
            "args": summary,
            "args_sha256": digest(arguments),
            "cid": cid,
        }
        self._add(record, now)
        self._forget(now)

    def _add(self, record: dict[str, object], now: float) -> None:
        if self._store is None:
            self._add_to_file(record, now)
            return
        try:
            trail = StoreTrail(self._store())
            numbered = self._numbered(trail, record)
        except _UNREACHABLE:  # it has no number yet: until it has, its lines are a chain of files
            self._add_to_file(record, now)
            return
        seq, line = numbered
        try:
            trail.append(self._shared.id, seq, now, line)
            self._hand_in(trail)
        except _UNREACHABLE:
            with self._lock:
                self._left.append((seq, now, line))
                self._files.append(now, line)  # should this process end before the store is back

    def _numbered(self, trail: StoreTrail, record: dict[str, object]) -> tuple[int, bytes]:
        """The record as the next line of this process's chain; calls don't wait for each other's rows."""
        if not self._shared.has_begun:
            with self._lock:
                if not self._shared.has_begun:
                    return self._shared.number({**record, **start(trail, self._shared)})
        return self._shared.number(record)

    def _hand_in(self, trail: StoreTrail) -> None:
        """Give the store the rows that it missed."""
        while self._left:
            with self._lock:
                left, self._left = self._left, []
            for at, (seq, then, line) in enumerate(left):
                try:
                    trail.append(self._shared.id, seq, then, line)
                except _UNREACHABLE:
                    with self._lock:
                        self._left += left[at:]
                    return

    def _add_to_file(self, record: dict[str, object], now: float) -> None:
        with self._lock:
            if not self._chain.has_begun:
                record = {**record, **start(self._files, self._chain)}
            self._chain.add(record, lambda _, line: self._files.append(now, line))

    def _forget(self, now: float) -> None:
        """Drop what is past its retention, every few hours; in a thread, because it is verified first."""
        with self._lock:
            if not self._retention_days or time.monotonic() < self._forget_at:
                return
            self._forget_at = time.monotonic() + _FORGET_EVERY_S
            before = now - self._retention_days * _DAY_S
            self._forgetting = threading.Thread(target=self._drop, args=(before,), name="audit", daemon=True)
            with suppress(RuntimeError):  # no thread to be had: the next time, then
                self._forgetting.start()

    def _drop(self, before: float) -> None:
        try:
            if self._store is None:
                self._files.forget(before)
            else:
                trail = StoreTrail(self._store())
                trail.forget(before)
                self._files.forget(before, trail.read_register().chains)
        except Conflict as exc:
            self._notice(exc.message)
        except (OSError, *_UNREACHABLE):
            pass  # the next time, then

    def close(self) -> None:
        """Close the chains: what is missing at their ends from now on was cut off. A later line begins another."""
        now = time.time()
        if self._forgetting is not None and self._forgetting.is_alive():
            self._forgetting.join(_CLOSE_S)
        try:
            if self._shared.has_begun:
                self._add({"ts": _stamp(now), "closed": True}, now)
            if self._chain.has_begun:
                self._add_to_file({"ts": _stamp(now), "closed": True}, now)
        except OSError as exc:
            self._notice(f"the audit could not be closed: {exc}")
        with self._lock:
            self._chain, self._shared = Chain(), Chain()
            self._files.close()


def digest(arguments: object) -> str:
    """A hash of arguments that does not depend on their order."""
    try:
        return hashlib.sha256(msgspec.json.encode(arguments, order="deterministic")).hexdigest()
    except (TypeError, ValueError, RecursionError):  # no JSON: no tool takes them either
        return ""


class TokenAudit:
    """The CSV table. A relative path starts at the data directory: in a root, any tool could change it."""

    def __init__(self, path: str, data_dir: str) -> None:
        self.path = os.path.join(data_dir, os.path.expanduser(path))
        self.failed = 0

    def append(self, rows: list[Usage]) -> None:
        """Add rows; what cannot be written is counted, no call fails for it."""
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            fd = os.open(self.path, flags, 0o600)
            try:
                if os.fstat(fd).st_size == 0:
                    table.writerow(_CSV_HEAD)
                table.writerows(_csv_row(row) for row in rows)
                os.write(fd, text.getvalue().encode("utf-8", "replace"))
            finally:
                os.close(fd)
        except OSError:
            self.failed += len(rows)

    def forget(self, before: float) -> None:
        """Drop rows of calls that are older."""
        oldest = _stamp(before)
        try:
            with open(self.path, encoding="utf-8", newline="") as file:
                head, *rows = list(csv.reader(file)) or [list(_CSV_HEAD)]
            kept = [row for row in rows if row and row[0] >= oldest]
            if len(kept) == len(rows):
                return
            fresh = f"{self.path}.new"
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                csv.writer(file, lineterminator="\n").writerows([head, *kept])
            os.replace(fresh, self.path)
        except OSError:
            self.failed += 1


def _csv_row(row: Usage) -> list[object]:
    who = (row.correlation_id, row.principal, row.session_id, row.agent_id, row.model, row.tool, row.status)
    cost = (round(row.duration_ms, 2), row.tokens_in, row.tokens_out, row.tokens_saved)
    return [_stamp(row.at), *map(_inert, who), *cost]


def _inert(text: str) -> str:
    """A cell that no spreadsheet takes for a formula: callers choose some of these words."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _stamp(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
