"""Limits on connections: their number, the size of headers, and the time a client may take or stay idle.

httptools parses headers of any length and waits forever, so the limits are enforced where the bytes arrive.
"""

import asyncio
from asyncio import TimerHandle
from typing import Any, NamedTuple

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from ..errors import LlmcError, RateLimited, Timeout, TooLarge
from ..gate.log import correlation_id
from .guard import TARGET_HOST
from .replies import error_reply, refusal

_PIPELINED = 16  # requests that may wait behind the current one
_REASONS = {400: b"Bad Request", 408: b"Request Timeout", 413: b"Content Too Large", 429: b"Too Many Requests"}


class Patience(NamedTuple):
    """The limits of a connection."""

    header_bytes: int
    receive_s: float
    idle_s: float
    connections: int


class LimitedProtocol(HttpToolsProtocol):
    """A connection that enforces its limits."""

    def __init__(
        self,
        patience: Patience,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._patience = patience
        self._timer: TimerHandle | None = None  # limits an idle connection, or the arrival of headers
        self._writing: TimerHandle | None = None  # limits a client that does not read its reply
        self._in_headers = False
        self._header_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._patience.connections:
            self._refuse(RateLimited("too many connections", hint="Close some, or raise mcp.limits.max_connections."))
            return
        self._arm(self._patience.idle_s, self._abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._stop_write_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_headers:
            self._header_bytes += len(data)
            if self._header_bytes > self._patience.header_bytes:
                self._refuse(self._long_headers())
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        self._in_headers, self._header_bytes = True, 0
        self._arm(self._patience.receive_s, self._too_slow)
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value.strip(b" \t"))  # surrounding white space is not part of a value

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._disarm()
        if len(self.pipeline) >= _PIPELINED:
            # A queued request takes a hundred times the memory of its bytes, and its token is not checked yet. Send no
            # error: the client would take it for the reply to the current request.
            self.transport.close()
            raise httptools.HttpParserError("refused")
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self._patience.header_bytes:
            self._refuse(self._long_headers())
            raise httptools.HttpParserError("refused")
        if not self.url.startswith(b"/") and b"://" in self.url:
            self.scope.setdefault("state", {})[TARGET_HOST] = _authority(self.url)
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._in_headers:
            self._arm(self._patience.idle_s, self._abort)

    def pause_writing(self) -> None:
        """Start a timer, because the client does not read its reply."""
        super().pause_writing()
        self._writing = self._writing or self.loop.call_later(self._patience.idle_s, self._abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_write_timer()

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that could not be parsed, in the standard error format."""
        if not self.transport.is_closing():
            self._refuse(refusal(400, "this is not HTTP/1.1" if "Invalid" in msg else msg))

    def _long_headers(self) -> TooLarge:
        limit = self._patience.header_bytes
        return TooLarge(
            f"the headers are longer than {limit:,} bytes", hint="The limit is mcp.limits.max_header_bytes."
        )

    def _too_slow(self) -> None:
        error = Timeout(f"the headers did not arrive within {self._patience.receive_s:g} s")
        error.http_status = 408
        self._refuse(error)

    def _refuse(self, error: LlmcError) -> None:
        self._disarm()
        if self.transport.is_closing():
            return
        status, headers, body = error_reply(error, cid := correlation_id())
        lines = [b"HTTP/1.1 %d %s" % (status, _REASONS.get(status, b"Error")), b"connection: close"]
        lines += [b"%s: %s" % header for header in headers]
        lines.append(b"x-correlation-id: " + cid.encode())
        self.transport.write(b"\r\n".join(lines) + b"\r\n\r\n" + body)
        self.transport.close()

    def _abort(self) -> None:
        """Close without flushing: an orderly close would wait forever for a client that does not read."""
        self.transport.abort()

    def _stop_write_timer(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def _arm(self, seconds: float, act: Any) -> None:
        self._disarm()
        self._timer = self.loop.call_later(seconds, act)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _authority(url: bytes) -> bytes:
    """Host and port of a request line that holds a whole URL, as for a proxy; the parser drops them."""
    return url.partition(b"://")[2].partition(b"/")[0].partition(b"?")[0]
