"""MCP over standard input and output: one reader, a few workers, one writer at a time; no event loop.

The protocol's two streams are made private at the start: file descriptor 0 becomes /dev/null
and 1 becomes stderr, so neither a stray print nor a child can touch the protocol.
"""

import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn, cast

import msgspec

from ..context import Context, UserAnswer, UserQuestion
from ..gate.dispatch import Gate, ends_process
from ..session import Session
from .jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, ProtocolError
from .methods import Methods, introduced
from .request import Peer, Request, asks_users

if TYPE_CHECKING:
    from .elicitation import SentQuestions

_READ = 1 << 16
_SWITCH_S = 0.001  # how long one busy thread may keep the others waiting; Python's default is five times that
_SERVER_BUSY = -32000
_HANG_UP_GRACE_S = 1.0  # for calls under way after a signal to end
RequestId = str | int


class _PendingCall:
    """A request on its way: the context appears once the handler runs."""

    def __init__(self, request_id: RequestId, method: str, params: dict[str, Any]) -> None:
        self.request_id, self.method, self.params = request_id, method, params
        self.cancelled = False
        self.context: Context | None = None

    def attach(self, context: Context) -> None:
        self.context = context
        if self.cancelled:
            context.cancel()

    def cancel(self) -> None:
        self.cancelled = True
        if self.context is not None:
            self.context.cancel()


class StdioServer:
    """Serves one client until its input ends."""

    def __init__(self, gate: Gate, session: Session) -> None:
        self._gate, self._session = gate, session
        self._methods = Methods(gate)
        self._peer = Peer()
        self._questions: SentQuestions | None = None  # made for a client that asks its user
        self._limits = gate.app.config.limits
        self._queue: queue.SimpleQueue[_PendingCall | None] = queue.SimpleQueue()
        self._calls: dict[RequestId, _PendingCall] = {}
        self._calls_lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._workers: list[threading.Thread] = []
        self._leaving = False
        self._input, self._output = _take_streams()

    def run(self) -> None:
        """Read until the end of input, then finish the replies that are under way."""
        sys.setswitchinterval(_SWITCH_S)
        try:
            for line in self._lines():
                self._receive(line)
        finally:
            if self._questions is not None:
                self._questions.close()
            self._methods.close()
            for _ in self._workers:
                self._queue.put(None)
            give_up = time.monotonic() + _HANG_UP_GRACE_S
            for worker in self._workers:  # a client that ends the server may not read its replies either
                worker.join(max(give_up - time.monotonic(), 0) if self._leaving else None)

    def hang_up(self, *_: object) -> NoReturn:
        """Signal handler: cancel all calls under way and exit."""
        self._leaving = True
        for call in list(self._calls.values()):
            call.cancel()
        raise SystemExit(0)

    # --- reading ---------------------------------------------------------------------------------

    def _lines(self) -> Iterator[bytes]:
        """Lines of input; one that is too long is answered and skipped without being kept."""
        parts: list[bytes] = []
        held = 0
        while piece := os.read(self._input, _READ):
            *ended, rest = piece.split(b"\n")
            for end in ended:
                if held + len(end) > self._limits.max_request_bytes:
                    self._refuse_long()
                else:
                    yield b"".join([*parts, end])
                parts, held = [], 0
            held += len(rest)
            if held <= self._limits.max_request_bytes:
                parts.append(rest)
            else:
                parts = []
        if parts and held:
            yield b"".join(parts)  # the last line may lack its newline

    def _refuse_long(self) -> None:
        limit = self._limits.max_request_bytes
        self._send_error(None, INVALID_REQUEST, f"message longer than {limit:,} bytes")

    def _receive(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            message: object = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            self._send_error(_salvaged_id(line), PARSE_ERROR, "not valid JSON")
            return
        if not isinstance(message, dict):
            self._send_error(None, INVALID_REQUEST, "a message is a single JSON object; batches are not taken")
            return
        fields = cast(dict[str, Any], message)
        request_id: object = fields.get("id")
        method: object = fields.get("method")
        params: object = fields.get("params")
        if not isinstance(method, str):
            if "result" not in fields and "error" not in fields:
                self._send_error(_usable_id(request_id), INVALID_REQUEST, "a request has a method")
            elif self._questions is not None:
                self._questions.deliver(fields)
        elif params is not None and not isinstance(params, dict):
            if request_id is not None:
                self._send_error(_usable_id(request_id), INVALID_PARAMS, "params must be an object")
        elif "id" not in fields:
            self._notified(method, cast(dict[str, Any], params or {}))
        elif _usable_id(request_id) is None:
            self._send_error(None, INVALID_REQUEST, "an id is a string or a whole number")
        else:
            self._requested(_PendingCall(cast(RequestId, request_id), method, cast(dict[str, Any], params or {})))

    def _requested(self, call: _PendingCall) -> None:
        with self._calls_lock:
            duplicate = call.request_id in self._calls
            crowded = len(self._calls) >= self._limits.max_queued_calls
            if not duplicate and not crowded:
                self._calls[call.request_id] = call
        if duplicate:
            self._send_error(call.request_id, INVALID_REQUEST, "a request with this id is under way")
        elif crowded:
            self._send_error(call.request_id, _SERVER_BUSY, "too many calls under way; wait for some replies")
        elif self._methods.is_quick(call.method):
            self._answer(call)
        else:
            self._hand_over(call)

    def _hand_over(self, call: _PendingCall) -> None:
        if len(self._workers) < self._limits.workers and len(self._calls) > len(self._workers):
            worker = threading.Thread(target=self._work, name=f"worker-{len(self._workers)}", daemon=True)
            self._workers.append(worker)
            worker.start()
        self._queue.put(call)

    def _notified(self, method: str, params: dict[str, Any]) -> None:
        if method == "notifications/cancelled":
            request_id: object = params.get("requestId")
            call = self._calls.get(cast(RequestId, request_id)) if _usable_id(request_id) is not None else None
            if call is not None:
                call.cancel()

    # --- answering -------------------------------------------------------------------------------

    def _work(self) -> None:
        while (call := self._queue.get()) is not None:
            self._answer(call)

    def _answer(self, call: _PendingCall) -> None:
        reply: dict[str, Any]
        try:
            request = Request(
                call.method,
                call.params,
                self._session,
                self._send_progress,
                call.attach,
                peer=self._peer,
                ask=self._ask,
                notify=self._send_notification,
            )
            result = self._methods.answer(request)
            reply = {"jsonrpc": "2.0", "id": call.request_id, "result": result}
            if call.method == "initialize":  # answered by the reader itself: no call can have begun before
                self._shake_hands(call.params, result)
        except ProtocolError as exc:
            reply = _error(call.request_id, exc.code, exc.message, exc.data)
        except BaseException as exc:
            if ends_process(exc):
                raise
            self._gate.log.exception("request_failed", method=call.method[:64])
            reply = _error(call.request_id, INTERNAL_ERROR, "internal error")
        with self._calls_lock:
            self._calls.pop(call.request_id, None)
        if not call.cancelled:  # a cancelled request gets no reply
            self._send(reply)

    def _shake_hands(self, params: dict[str, Any], result: dict[str, Any]) -> None:
        """Keep what the handshake says of the client."""
        self._session = introduced(self._session, params.get("clientInfo"))
        self._peer = Peer(result["protocolVersion"], asks_users(params.get("capabilities")))
        if self._peer.asks_users and self._questions is None:
            from .elicitation import SentQuestions

            spare = max(self._limits.workers - 1, 1)  # a worker that waits for an answer serves nobody else
            self._questions = SentQuestions(self._gate.app.config.tools.consent_timeout, spare)

    def _ask(self, ctx: Context, question: UserQuestion) -> UserAnswer | None:
        return None if self._questions is None else self._questions.ask(ctx, question, self._send)

    def _send_progress(self, params: dict[str, Any]) -> None:
        self._send_notification("notifications/progress", params)

    def _send_notification(self, method: str, params: dict[str, Any]) -> None:
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def _send_error(self, request_id: RequestId | None, code: int, message: str) -> None:
        self._send(_error(request_id, code, message))

    def _send(self, message: dict[str, Any]) -> None:
        data = msgspec.json.encode(message) + b"\n"
        with self._write_lock:
            view = memoryview(data)
            try:
                while view:
                    view = view[os.write(self._output, view) :]
            except OSError:
                pass  # the client hung up; the end of input follows


def _error(request_id: RequestId | None, code: int, message: str, data: object = None) -> dict[str, Any]:
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return {"jsonrpc": "2.0", "id": request_id, "error": error}


def _usable_id(value: object) -> RequestId | None:
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None


def _salvaged_id(line: bytes) -> RequestId | None:
    """The id of a message that only a lax decoder takes (lone surrogates, NaN): its sender waits for an answer."""
    import json

    try:
        message: object = json.loads(line)
        request_id = _usable_id(cast(dict[str, Any], message).get("id")) if isinstance(message, dict) else None
        msgspec.json.encode(request_id)
    except (ValueError, RecursionError):
        return None
    return request_id


def _take_streams() -> tuple[int, int]:
    """Private copies of stdin and stdout; the public ones become harmless."""
    own_input, own_output = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    return own_input, own_output
