"""The log of `llmc run`: one line per request. In colour on a terminal, as JSON anywhere else.

The gate and the HTTP guard log a call and its request apart; they have one correlation id, so they make one line here.
Neither arguments nor replies are in it, so no secret is.
"""

import os
import time
from collections.abc import Mapping

from ..config.schema import Observability
from ..gate.log import Log
from ..visible import visible

_CALLS_KEPT = 1_000  # whose requests have not ended yet
_RED, _YELLOW, _GREEN, _QUIET = "31", "33", "32", "2"


class RequestLog(Log):
    """Warnings as the server logs them, and a line of its own for each request."""

    def __init__(self, settings: Observability, *, terminal: bool, coloured: bool, fd: int = 2) -> None:
        level = "warning" if settings.log_level == "info" else settings.log_level
        super().__init__(enabled=settings.enabled, level=level, log_format="text" if terminal else "json", fd=fd)
        self.has_info = self._enabled = settings.enabled
        self._terminal, self._coloured = terminal, coloured
        self._calls: dict[object, Mapping[str, object]] = {}

    def info(self, event: str, **fields: object) -> None:
        if not self._enabled:
            return
        if event == "tool":
            while len(self._calls) >= _CALLS_KEPT:
                self._calls.pop(next(iter(self._calls)))
            self._calls[fields.get("cid")] = fields
        elif event == "http":
            self._request(fields)

    def _request(self, fields: Mapping[str, object]) -> None:
        call = self._calls.pop(fields.get("cid"), {})
        names = {"tool": call.get("tool"), "result": call.get("status"), "session": call.get("session")}
        told = {**fields, **{name: value for name, value in names.items() if value is not None}}
        if not self._terminal:
            self.write("info", "request", told)
            return
        status = int(str(fields["status"]))
        result = str(names["result"] or "")
        failed = status >= 500 or (result not in ("", "ok"))
        mark = self._in(_RED if failed else _YELLOW if status >= 400 else _GREEN, str(status))
        about = " ".join(visible(str(value)) for value in names.values() if value is not None)
        who = visible(str(fields.get("principal") or "-"))
        clock = self._in(_QUIET, time.strftime("%H:%M:%S"))
        line = f"{clock} {mark} {fields['method']:4} {fields['route']:14} {fields['ms']:>8} ms  {who:10} {about}"
        self.write_line(line.rstrip().encode("utf-8", "replace"))

    def _in(self, colour: str, text: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._coloured else text


def request_log(settings: Observability, fd: int = 2) -> RequestLog:
    """The log for whatever standard error is."""
    terminal = os.isatty(fd)
    return RequestLog(settings, terminal=terminal, coloured=terminal and not os.environ.get("NO_COLOR"), fd=fd)
