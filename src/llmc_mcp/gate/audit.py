"""Two audit trails: calls that may change something, and what calls cost in tokens.

The audit has a line for every call that may change something: who, which tool, a hash of the arguments, the outcome.
It is written before the reply leaves, one JSON object a line, to a file of the month in the data directory, where no
tool and no child reaches it. Files are only ever appended to; whole months go when they are past their retention.

The token audit is a CSV table of every call's tokens, for a spreadsheet. It is off by default.
"""

import csv
import hashlib
import io
import os
import threading
import time

import msgspec

from ..session import Session
from .usage import Usage

_FOLDER = "audit"
_CSV_HEAD = (
    *("timestamp", "correlation_id", "principal", "session_id", "agent_id", "model"),
    *("tool", "status", "duration_ms", "tokens_in", "tokens_out", "tokens_saved"),
)


class Audit:
    """The record of mutating calls."""

    def __init__(self, data_dir: str, retention_days: int = 0) -> None:
        self._folder = os.path.join(data_dir, _FOLDER)
        self._retention_days = retention_days
        self._lock = threading.Lock()
        self._month, self._fd = "", -1

    def write(self, session: Session, tool: str, status: str, arguments: object, summary: str, cid: str) -> None:
        """Add a line; raises OSError where it cannot be written."""
        now = time.time()
        line = {
            "ts": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
            "principal": session.principal,
            "session": session.session_id,
            "agent": session.agent_id,
            "tool": tool,
            "status": status,
            "args": summary,
            "args_sha256": digest(arguments),
            "cid": cid,
        }
        with self._lock:
            os.write(self._file(now), msgspec.json.encode(line) + b"\n")

    def _file(self, now: float) -> int:
        month = time.strftime("%Y-%m", time.gmtime(now))
        if month != self._month or os.fstat(self._fd).st_nlink == 0:  # a new month, or somebody deleted the file
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            opened = os.open(os.path.join(self._folder, f"{month}.jsonl"), flags, 0o600)
            self.close()
            self._month, self._fd = month, opened
            self._forget(now)
        return self._fd

    def _forget(self, now: float) -> None:
        if self._retention_days:
            last = time.strftime("%Y-%m", time.gmtime(now - self._retention_days * 86_400))
            for name in os.listdir(self._folder):
                if name.endswith(".jsonl") and name.removesuffix(".jsonl") < last:
                    os.unlink(os.path.join(self._folder, name))

    def close(self) -> None:
        """Close the file; a later line opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
        self._month, self._fd = "", -1


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
