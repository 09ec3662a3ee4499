"""Log lines on stderr, and the ids that tie them to a reply.

A client may never read our stderr; a full pipe must not stop a call. Lines go through a bounded queue to a
thread of their own, and are dropped and counted when the queue is full.
"""

import os
import queue
import threading
import time
import traceback

import msgspec

from ..visible import visible

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_QUEUE_LINES = 2_000


def correlation_id() -> str:
    """A fresh version-4 UUID."""
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


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
        self._json = log_format == "json"
        self._with_ids = with_ids
        self._fd = fd
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self._start = threading.Lock()
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
        if self._writer is not None:
            self._lines.put(None)
            self._writer.join(timeout=1.0)

    def _log(self, level: str, event: str, fields: dict[str, object]) -> None:
        if _LEVELS[level] < self._threshold:
            return
        if not self._with_ids:
            fields.pop("cid", None)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        record = {"ts": stamp, "level": level, "event": event, **fields}
        if self._json:
            line = msgspec.json.encode(record)
        else:
            rest = " ".join(f"{_field(key)}={_field(value)}" for key, value in fields.items())
            line = f"{stamp} {level.upper():7} {_field(event)} {rest}".encode("utf-8", "replace")
        if self._lines.qsize() >= _QUEUE_LINES:
            self.dropped += 1
            return
        self._lines.put(line + b"\n")
        if self._writer is None:
            with self._start:
                if self._writer is None:
                    thread = threading.Thread(target=self._write, name="log", daemon=True)
                    thread.start()
                    self._writer = thread  # only now: close() may join it at once

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                os.write(self._fd, line)
            except OSError:
                self.dropped += 1
