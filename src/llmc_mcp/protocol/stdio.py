"""MCP over standard input and output: one reader, a few workers, one writer at a time; no event loop.

The protocol's two streams are made private at the start: file descriptor 0 becomes /dev/null
and 1 becomes stderr, so neither a stray print nor a child can touch the protocol.

At the end of input the replies under way are finished. A client that can't hear them any more, because nobody reads the
server's output, ends all calls.
"""

import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, cast

import msgspec

from ..context import Context, UserAnswer, UserQuestion
from ..errors import LlmcError
from ..gate.dispatch import Gate, ends_process
from ..gate.log import correlation_id
from ..session import Session
from .jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, ProtocolError
from .lanes import LOOK_EVERY_S, Lanes, Message, PendingCall, RequestId, no_thread, overdue
from .methods import Methods, introduced
from .request import Peer, Request, as_object, asks_users

if TYPE_CHECKING:
    from ..app import App
    from .client_roots import ClientRoots
    from .elicitation import SentQuestions
    from .oversized import IdScanner

_READ = 1 << 16
_SWITCH_S = 0.001  # how long one busy thread may keep the others waiting; Python's default is five times that
_SERVER_BUSY = -32000
_HANG_UP_GRACE_S = 1.0  # for calls under way after a signal to end


class StdioServer:
    """Serves one client until its input ends."""

    def __init__(self, gate: Gate, session: Session) -> None:
        self._gate, self._session = gate, session
        self._methods = Methods(gate)
        self._peer = Peer()
        self._questions: SentQuestions | None = None  # made for a client that can be asked
        self._roots: ClientRoots | None = None  # made for a client that names its folders
        self._limits = gate.app.config.limits
        self._calls: dict[RequestId, PendingCall] = {}
        self._calls_lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._lanes = Lanes(self._limits.workers, self._answer, self._send)
        self._late: deque[Message] = deque()  # replies to calls that were given up
        self._look_at = 0.0
        self._leaving = False
        self._input, self._output = _take_streams()
        self._poll = select.poll()
        self._poll.register(self._input, select.POLLIN)
        self._poll.register(self._output, 0)  # nothing but that nobody reads it

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
            self._lanes.finish()
            give_up = time.monotonic() + _HANG_UP_GRACE_S
            while not self._lanes.join(LOOK_EVERY_S):
                if not self._leaving:
                    give_up = time.monotonic() + _HANG_UP_GRACE_S
                elif time.monotonic() > give_up:
                    break  # a client that ends the server may not read its replies either
                if self._output in self._poll_streams(0):
                    self._leave()
                self._look_after_calls()
            while self._late and not self._leaving:
                self._send(self._late.popleft())

    def hang_up(self, *_: object) -> NoReturn:
        """Signal handler: cancel all calls under way and exit."""
        self._leave()
        raise SystemExit(0)

    def _leave(self) -> None:
        self._leaving = True
        for call in list(self._calls.values()):
            call.cancel()

    # --- reading ---------------------------------------------------------------------------------

    def _read(self) -> bytes:
        """The next piece of input; empty at its end, and when the client is gone."""
        while not self._leaving:
            ready = self._poll_streams(LOOK_EVERY_S if self._calls or self._late else None)
            if self._output in ready:
                self._leave()
            elif self._input in ready:
                return os.read(self._input, _READ)
            else:
                self._look_after_calls()
        return b""

    def _poll_streams(self, seconds: float | None) -> list[int]:
        """Which stream there is news of: input, or that nobody reads the output."""
        return [fd for fd, _ in self._poll.poll(None if seconds is None else seconds * 1000)]

    def _lines(self) -> Iterator[bytes]:
        """Lines of input; one that is too long is answered and skipped without being kept."""
        parts: list[bytes] = []
        held = 0
        scanner: IdScanner | None = None  # of a line that is too long
        while piece := self._read():
            *ended, rest = piece.split(b"\n")
            for end in ended:
                if held + len(end) > self._limits.max_request_bytes:
                    self._refuse_long(_scanning(scanner, [*parts, end]))
                else:
                    yield b"".join([*parts, end])
                parts, held, scanner = [], 0, None
            held += len(rest)
            parts.append(rest)
            if held > self._limits.max_request_bytes:
                scanner, parts = _scanning(scanner, parts), []
            if time.monotonic() > self._look_at:
                self._look_after_calls()
        if parts and held and not self._leaving:
            yield b"".join(parts)  # the last line may lack its newline

    def _refuse_long(self, scanner: "IdScanner") -> None:
        limit = self._limits.max_request_bytes
        self._send_error(_usable_id(scanner.found()), INVALID_REQUEST, f"message longer than {limit:,} bytes")

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
            self._requested(PendingCall(cast(RequestId, request_id), method, cast(dict[str, Any], params or {})))

    def _requested(self, call: PendingCall) -> None:
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
            reply = self._answer(call)
            if reply is not None:
                self._send(reply)
        elif not self._lanes.hand_over(call, takes_long=self._methods.takes_long(call.method, call.params)):
            self._fail(call, no_thread())

    def _notified(self, method: str, params: dict[str, Any]) -> None:
        if method == "notifications/cancelled":
            request_id: object = params.get("requestId")
            call = self._calls.get(cast(RequestId, request_id)) if _usable_id(request_id) is not None else None
            if call is not None:
                call.cancel()
        elif method == "notifications/initialized" and self._roots is not None:
            self._roots.begin()
        elif method == "notifications/roots/list_changed" and self._roots is not None:
            self._roots.ask_again()

    # --- answering -------------------------------------------------------------------------------

    def _answer(self, call: PendingCall) -> Message | None:
        reply: Message
        if self._roots is not None and not self._methods.is_quick(call.method):
            self._roots.wait()
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
        return reply if self._claim(call) else None

    def _claim(self, call: PendingCall) -> bool:
        """Whether a call is still to be answered: a cancelled one gets no reply, none gets two."""
        with self._calls_lock:
            if self._calls.get(call.request_id) is not call:
                return False
            del self._calls[call.request_id]
        return not call.cancelled

    def _look_after_calls(self) -> None:
        """Answer the calls that are overdue and can't say so themselves."""
        now = time.monotonic()
        self._look_at = now + LOOK_EVERY_S
        for call in [call for call in list(self._calls.values()) if call.is_overdue(now)]:
            waiting = self._lanes.give_up(call)
            self._fail(call, overdue())
            for other in waiting:
                self._fail(other, no_thread())
        self._send_late()

    def _fail(self, call: PendingCall, error: LlmcError) -> None:
        """Answer a call in the place of its handler, which does not come back or never ran."""
        cid = call.context.correlation_id if call.context is not None else correlation_id()
        if not self._claim(call):
            return
        request = Request(call.method, call.params, self._session, self._send_progress, call.attach, cid)
        try:
            result = self._methods.give_up(request, call.context, error)
            reply = {"jsonrpc": "2.0", "id": call.request_id, "result": result}
        except ProtocolError as exc:
            reply = _error(call.request_id, exc.code, exc.message, exc.data)
        self._late.append(reply)
        self._send_late()

    def _shake_hands(self, params: dict[str, Any], result: dict[str, Any]) -> None:
        """Keep what the handshake says of the client."""
        self._session = introduced(self._session, params.get("clientInfo"))
        capabilities = as_object(params.get("capabilities"))
        follows = self._gate.app.config.tools.client_roots and isinstance(capabilities.get("roots"), dict)
        self._peer = Peer(result["protocolVersion"], asks_users(capabilities), follows)
        if self._peer.answers and self._questions is None:
            from .elicitation import SentQuestions

            spare = max(self._limits.workers - 1, 1)  # a worker that waits for an answer serves nobody else
            self._questions = SentQuestions(self._gate.app.config.tools.consent_timeout, spare)
        if follows and self._roots is None:
            from .client_roots import ClientRoots

            self._roots = ClientRoots(self._gate, self._session, self._ask, self._uses)

    def _uses(self, app: "App") -> bool:
        """Whether a call under way works with an app."""
        return any(call.context is not None and call.context.app is app for call in list(self._calls.values()))

    def _ask(self, ctx: Context, questions: Sequence[UserQuestion]) -> list[UserAnswer | None]:
        if self._questions is None:
            return [None] * len(questions)
        return self._questions.ask_each(ctx, questions, self._send)

    def _send_progress(self, params: dict[str, Any]) -> None:
        self._send_notification("notifications/progress", params)

    def _send_notification(self, method: str, params: dict[str, Any]) -> None:
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def _send_error(self, request_id: RequestId | None, code: int, message: str) -> None:
        self._send(_error(request_id, code, message))

    def _send(self, message: Message) -> None:
        with self._write_lock:
            self._write(message)

    def _send_late(self) -> None:
        while self._late and self._send_at_once(self._late[0]):
            self._late.popleft()

    def _send_at_once(self, message: Message) -> bool:
        """Send a short message, unless that would wait for the client to read: the reader has other things to do."""
        if not self._write_lock.acquire(blocking=False):
            return False
        try:
            writable = select.poll()
            writable.register(self._output, select.POLLOUT)
            if not writable.poll(0):
                return False
            self._write(message)
            return True
        finally:
            self._write_lock.release()

    def _write(self, message: Message) -> None:
        view = memoryview(self._encoded(message) + b"\n")
        try:
            while view:
                view = view[os.write(self._output, view) :]
        except ConnectionError:
            self._leave()  # the client hung up
        except OSError:
            pass  # its output is a file, and the disk is full

    def _encoded(self, message: Message) -> bytes:
        try:
            return msgspec.json.encode(message)
        except (TypeError, ValueError, RecursionError):  # a lone surrogate, say: no reply may end its thread
            self._gate.log.exception("reply_failed")
            return msgspec.json.encode(_error(message.get("id"), INTERNAL_ERROR, "internal error"))


def _scanning(scanner: "IdScanner | None", pieces: list[bytes]) -> "IdScanner":
    """A scanner that has seen these pieces, too."""
    from .oversized import IdScanner

    scanner = scanner or IdScanner()
    for piece in pieces:
        scanner.feed(piece)
    return scanner


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
