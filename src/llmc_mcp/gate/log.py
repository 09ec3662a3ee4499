"""Log lines on stderr, and the ids that tie them to a reply.

A client may never read our stderr; a full pipe must not stop a call. Lines wait in memory for a thread of their own,
and are dropped and counted when too many wait. That thread is woken once per batch, not per line: waking it costs the
call that does it. A warning or an error does not wait for its batch to grow.
"""

import os
import threading
import time
import traceback
from collections import deque
from functools import lru_cache

import msgspec

from ..visible import visible

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_URGENT = _LEVELS["warning"]
_WAITING_LINES = 2_000
_EVERY_S = 0.1
_CLOSE_S = 1.0
_PIPE_BUF = 4_096  # what a pipe takes as a whole, however many write to it


def correlation_id() -> str:
    """A fresh version-4 UUID."""
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


@lru_cache(maxsize=1)  # many lines are of the same second
def _stamp(now: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))


def _field(value: object) -> str:
    """A word of a text line: whatever could pass for another field or another line is quoted and escaped."""
    text = str(value)
    if text.isprintable() and not any(char in text for char in ' "='):
        return text
    return '"' + visible(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


class Log:
    """Structured lines, JSON or text, at or above a level."""

    def __init__(self, *, enabled: bool, level: str, log_format: str, with_ids: bool = True, fd: int = 2) -> None:
        self._threshold = _LEVELS.get(level, 20) if enabled else 100
        self.has_info = _LEVELS["info"] >= self._threshold  # whether a line of this level need be made at all
        self._json = log_format == "json"
        self._with_ids = with_ids
        self._fd = fd
        self._lines: deque[bytes] = deque()
        self._writer: threading.Thread | None = None
        self._starting = threading.Lock()
        self._wake, self._hurry = threading.Event(), threading.Event()
        self._closing = False
        self.dropped = 0

    def debug(self, event: str, **fields: object) -> None:
        self._log("debug", event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._log("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._log("warning", event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """An error with the traceback of the exception being handled; the only place one is ever shown."""
        self._log("error", event, {**fields, "traceback": traceback.format_exc()})

    def close(self) -> None:
        """Give the writer a moment to finish; a stuck reader is not waited for."""
        if self._lines and self._writer is None:
            self._start_writer()
        if self._writer is not None:
            self._closing = True
            self._hurry.set()
            self._wake.set()
            self._writer.join(_CLOSE_S)

    def _log(self, level: str, event: str, fields: dict[str, object]) -> None:
        if _LEVELS[level] >= self._threshold:
            self.write(level, event, fields)

    def write(self, level: str, event: str, fields: dict[str, object]) -> None:
        """Write a record, whatever the threshold."""
        if not self._with_ids:
            fields.pop("cid", None)
        stamp = _stamp(int(time.time()))
        record = {"ts": stamp, "level": level, "event": event, **fields}
        if self._json:
            line = msgspec.json.encode(record)
        else:
            rest = " ".join(f"{_field(key)}={_field(value)}" for key, value in fields.items())
            line = f"{stamp} {level.upper():7} {_field(event)} {rest}".encode("utf-8", "replace")
        self.write_line(line, urgent=_LEVELS[level] >= _URGENT)

    def write_line(self, line: bytes, *, urgent: bool = False) -> None:
        """Have a line written by the thread that does so; it never waits for a reader."""
        if len(self._lines) >= _WAITING_LINES:
            self.dropped += 1
            return
        self._lines.append(line + b"\n")
        if self._writer is None:
            self._start_writer()
        if urgent:
            self._hurry.set()
        if not self._wake.is_set():
            self._wake.set()

    def _start_writer(self) -> None:
        with self._starting:
            if self._writer is None:
                thread = threading.Thread(target=self._write, name="log", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # no thread to be had now: the next line tries again
                    return
                self._writer = thread  # only now: close() may join it at once

    def _write(self) -> None:
        while not self._closing or self._lines:
            self._wake.wait()
            self._hurry.wait(_EVERY_S)  # let a batch gather
            self._wake.clear()  # before looking: what comes from here on wakes us again
            self._hurry.clear()
            while self._lines:
                self._write_some()

    def _write_some(self) -> None:
        """Write lines together, as many as nobody else's output can tear apart."""
        lines = [self._lines.popleft()]
        room = _PIPE_BUF - len(lines[0])
        while self._lines and len(self._lines[0]) <= room:
            lines.append(self._lines.popleft())
            room -= len(lines[-1])
        try:
            os.write(self._fd, b"".join(lines))
        except OSError:
            self.dropped += len(lines)
