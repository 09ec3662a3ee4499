"""Calls of handshake-era clients that may put a question to their user.

The question goes out on the stream of the call's reply, and the answer comes with a request of its own. The SDK has no
way back to a call in its stateless mode, so these calls are answered here. A call that asks nothing and reports no
progress is answered with plain JSON, as any other.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from ..context import Context, UserAnswer, UserQuestion
from ..gate.dispatch import Gate
from ..protocol.elicitation import SentQuestions
from ..protocol.jsonrpc import INTERNAL_ERROR, Params, ProtocolError
from ..protocol.lanes import RunningCall
from ..protocol.methods import Methods
from ..protocol.request import Peer, Request
from ..session import Session
from .guard import Send
from .threads import CallThreads

_PING_S = 15.0  # how often a silent stream says that it is alive, for proxies on the way
_STREAM = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache, no-transform")]
_JSON = [(b"content-type", b"application/json")]


class IncomingCall(msgspec.Struct):
    """A call as the endpoint hands it over."""

    message: Params
    session: Session
    peer: Peer
    correlation_id: str


class AskingCalls:
    """Runs such calls, and delivers answers to them."""

    def __init__(self, gate: Gate, methods: Methods, workers: CallThreads) -> None:
        self._gate, self._methods, self._workers = gate, methods, workers
        config = gate.app.config
        self._questions = SentQuestions(config.tools.consent_timeout, config.limits.concurrency_per_token)

    def deliver(self, reply: Params, session_id: str) -> None:
        """Hand a client's answer to the call that waits for it."""
        self._questions.deliver(reply, session_id)

    def close(self) -> None:
        """No client will answer any more."""
        self._questions.close()

    async def serve(self, incoming: IncomingCall, running: RunningCall, send: Send) -> None:
        """Answer a call: as a stream from its first message on, as JSON if the reply is the only one."""
        loop, messages = asyncio.get_running_loop(), asyncio.Queue[Params | None]()

        def emit(message: Params) -> None:
            loop.call_soon_threadsafe(messages.put_nowait, message)

        request = self._request(incoming, running, emit)
        calling = asyncio.ensure_future(
            self._workers.start(
                request.session.principal,
                lambda: self._outcome(request, lambda: self._methods.answer(request)),
                running,
                lambda error: self._outcome(request, lambda: self._methods.give_up(request, running.context, error)),
            ).outcome()
        )
        calling.add_done_callback(lambda _: messages.put_nowait(None))
        try:
            streaming = await self._forward(messages, send)
            reply = await calling
        finally:
            calling.cancel()
        data = msgspec.json.encode({"jsonrpc": "2.0", "id": incoming.message["id"], **reply})
        if not streaming:
            await send({"type": "http.response.start", "status": 200, "headers": _JSON})
        await send({"type": "http.response.body", "body": _event(data) if streaming else data})

    async def _forward(self, messages: "asyncio.Queue[Params | None]", send: Send) -> bool:
        """Send what the call says until its end; whether it said anything."""
        streaming = False
        while True:
            try:
                message = await asyncio.wait_for(messages.get(), _PING_S if streaming else None)
            except TimeoutError:
                await send({"type": "http.response.body", "body": b": ping\r\n\r\n", "more_body": True})
                continue
            if message is None:
                return streaming
            if not streaming:
                await send({"type": "http.response.start", "status": 200, "headers": _STREAM})
                streaming = True
            await send({"type": "http.response.body", "body": _event(msgspec.json.encode(message)), "more_body": True})

    def _request(self, incoming: IncomingCall, running: RunningCall, emit: Callable[[Params], None]) -> Request:
        def ask(ctx: Context, questions: Sequence[UserQuestion]) -> list[UserAnswer | None]:
            return self._questions.ask_each(ctx, questions, emit, incoming.session.session_id)

        def progress(params: Params) -> None:
            emit({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})

        message = incoming.message
        return Request(
            message["method"],
            message.get("params") or {},
            incoming.session,
            progress,
            running.attach,
            incoming.correlation_id,
            incoming.peer,
            ask,
        )

    def _outcome(self, request: Request, answer: Callable[[], Params]) -> Params:
        """A result or an error, as the reply to a request has it."""
        try:
            return {"result": answer()}
        except ProtocolError as exc:
            return {"error": exc.as_error()}
        except Exception:
            self._gate.log.exception("request_failed", method=request.method[:64], cid=request.correlation_id)
            return {"error": {"code": INTERNAL_ERROR, "message": "internal error"}}


def _event(data: bytes) -> bytes:
    return b"event: message\r\ndata: " + data + b"\r\n\r\n"
