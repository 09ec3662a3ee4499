"""MCP over Streamable HTTP: the official SDK is the transport, `methods` builds the replies.

Both eras are served statelessly: the SDK creates a new transport for every request, and no reply depends on an earlier
one. A client of the handshake era still gets a session id. It identifies the conversation that processes, changes and
tasks belong to, carries the client's name and whether it asks its user, and is what a cancellation or an answer refers
to. It is signed for the principal, so that it needs no storage, stays valid across restarts, and is useless with
another token.

Replies are JSON. They are streamed only if the client requests progress (and, in the stateless era, only if there is
progress to report), or if a question to the user is on its way (see `asking`). Plain tool calls are answered without
the SDK: see `plain_calls`.
"""

import asyncio
import base64
import hashlib
import hmac
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, cast

import msgspec
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value, x_mcp_header_map
from mcp_types import RequestParams

from .. import __version__
from ..errors import NotFound
from ..gate.dispatch import Gate
from ..protocol.jsonrpc import HEADER_MISMATCH, INTERNAL_ERROR, ProtocolError
from ..protocol.lanes import RunningCall
from ..protocol.methods import CORE_TASKS, HANDSHAKE_VERSIONS, Methods, client_name, introduced
from ..protocol.request import TASKS_VERSION, Peer, Request, asks_users
from ..tools.introduction import instructions
from .asking import AskingCalls, IncomingCall
from .guard import Message, Receive, RequestCaller, Scope, Send
from .plain_calls import METHOD, PlainCall, plain_call
from .replies import refusal
from .threads import CallThreads, ThreadedCall

_SESSION = b"mcp-session-id"
_VERSION = b"mcp-protocol-version"
_BY_SDK = frozenset({"initialize", "ping"})
_ASKS_USERS = "\n?"  # behind a client's name, which has no line end
_NAME_TASKS = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
_DEFAULT_VERSION = "2025-03-26"  # of a handshake-era request without a header for it
_PROMPT_S = 1.0  # a call that takes longer may need a stream: the SDK opens one after 15 s, to keep the connection open

Params = dict[str, Any]


class HandshakeSession(NamedTuple):
    """A session that began with a handshake: its id, the client's name, and whether it asks its user."""

    id: str = ""
    agent: str = ""
    asks_users: bool = False


class SessionIds:
    """Creates and verifies the ids of sessions that began with a handshake."""

    def __init__(self, key: Callable[[], bytes]) -> None:
        self._key = key

    def make(self, principal: str, agent: str = "", *, asks_users: bool = False) -> str:
        about = agent + _ASKS_USERS if asks_users else agent
        nonce, encoded = secrets.token_hex(12), base64.urlsafe_b64encode(about.encode()).decode()
        return f"{nonce}{self._signature(nonce, principal, encoded)}" + (f".{encoded}" if encoded else "")

    def read(self, session_id: str, principal: str) -> "HandshakeSession | None":
        """What a session's id says; None for a forged id or another principal's."""
        signed, _, encoded = session_id.partition(".")
        signature = self._signature(signed[:24], principal, encoded)
        if not hmac.compare_digest(signed[24:].encode(), signature.encode()):
            return None
        about = base64.urlsafe_b64decode(encoded).decode()
        return HandshakeSession(signed, about.removesuffix(_ASKS_USERS), about.endswith(_ASKS_USERS))

    def _signature(self, nonce: str, principal: str, encoded: str) -> str:
        return hmac.new(self._key(), f"{nonce}:{principal}:{encoded}".encode(), hashlib.sha256).hexdigest()[:32]


class McpEndpoint:
    """The ASGI application at /mcp; the guard has admitted the request and read its body."""

    def __init__(self, gate: Gate, workers: CallThreads, session_ids: SessionIds, methods: Methods) -> None:
        self._gate, self._workers, self._session_ids = gate, workers, session_ids
        self._methods = methods
        self._running: dict[tuple[str, str], RunningCall] = {}  # by session and request id, for cancellation
        self._asking = AskingCalls(gate, methods, workers)
        self._server = self._make_server()
        self._replying = self._manager(json_response=True)
        self._streaming = self._manager(json_response=False)
        self._header_parameters: dict[str, bool] = {}  # by tool

    def _make_server(self) -> Server[Any]:
        server: Server[Any] = Server(
            "llmc-mcp",
            version=__version__,
            instructions=instructions(self._gate.app, self._gate.catalog),
            # Without this, the SDK lists all tools on every call to look for header parameters, which no tool has.
            get_tool_input_schema=self._methods.input_schema,
        )
        for method in self._methods.names:
            if method not in _BY_SDK:
                server.add_request_handler(method, RequestParams, self._answer)
        server.middleware.append(self._add_tasks)
        return server

    async def _add_tasks(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Say what the SDK has no words for: the tasks of 2025-11-25."""
        if ctx.method == "tools/call" and ctx.protocol_version == TASKS_VERSION and "task" in (ctx.params or {}):
            return await self._answer(ctx, RequestParams())
        result = await call_next(ctx)
        if ctx.method == "initialize" and isinstance(result, dict) and result["protocolVersion"] == TASKS_VERSION:
            result["capabilities"]["tasks"] = CORE_TASKS
        return result

    def _manager(self, *, json_response: bool) -> StreamableHTTPSessionManager:
        return StreamableHTTPSessionManager(
            self._server,
            json_response=json_response,
            stateless=True,
            max_request_body_size=self._gate.app.config.limits.max_request_bytes,
        )

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Run the SDK's session managers while requests are served."""
        async with self._replying.run(), self._streaming.run():
            try:
                yield
            finally:
                self._asking.close()
                await asyncio.to_thread(self._methods.close)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            raise refusal(405, "only POST is supported: there is no stream to open and no session to end")
        caller: RequestCaller = scope["state"]["caller"]
        headers = dict(scope["headers"])
        head = _MessageHead(scope["state"]["body"])
        handshake = headers.get(_VERSION, b"").decode("latin-1") in ("", *HANDSHAKE_VERSIONS)
        session_id = headers.get(_SESSION, b"").decode("latin-1")
        principal = caller.principal.name if caller.principal else ""
        session: HandshakeSession | None = HandshakeSession()
        if handshake and session_id:
            session = self._session_ids.read(session_id, principal)
            if session is None:
                raise NotFound("there is no such session", hint="Initialize again.")
        session_id = session.id
        version = headers.get(_VERSION, b"").decode("latin-1") or _DEFAULT_VERSION
        peer = Peer(version, session.asks_users) if handshake else Peer()
        scope["state"]["session_id"], scope["state"]["agent"], scope["state"]["peer"] = session_id, session.agent, peer
        if head.method == "notifications/cancelled" and session_id:
            self._cancel(session_id, head.params.get("requestId"))
        if head.method == "initialize" and handshake:
            agent, asks = client_name(head.params.get("clientInfo")), asks_users(head.params.get("capabilities"))
            send = _with_session(send, self._session_ids.make(principal, agent, asks_users=asks))
        accepts_stream = b"text/event-stream" in headers.get(b"accept", b"")
        if session.asks_users:
            if head.is_reply:
                self._asking.deliver(head.fields, session_id)
                await send({"type": "http.response.start", "status": 202, "headers": []})
                await send({"type": "http.response.body", "body": b""})
                return
            accepts_both = accepts_stream and b"application/json" in headers.get(b"accept", b"")
            who = caller.session(session_id)
            if accepts_both and head.is_call and self._methods.may_ask(head.method, head.params, who):
                await self._serve_asking(scope, send, head)
                return
        stream = accepts_stream and (head.wants_progress if handshake else True)
        manager = self._streaming if stream else self._replying
        plain = plain_call(scope, headers, head.message)
        if plain is None or not await self._reply_promptly(plain, scope["state"], send, _PROMPT_S if stream else None):
            await manager.handle_request(scope, receive, send)

    async def _reply_promptly(self, call: PlainCall, state: Params, send: Send, seconds: float | None) -> bool:
        """Answer a call without the SDK; one that takes long or fails is left to it, and goes on as `state["job"]`."""
        if self._has_header_parameters(call.params["name"]):
            return False
        request = self._request(METHOD, call.params, state, _unreported)
        job = self._start(request, call.id, state)
        if not await job.finishes_within(seconds):
            return False
        reply = call.reply(await job.outcome()) if job.succeeded else None
        if reply is None:
            return False
        headers, body = reply
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        return True

    async def _serve_asking(self, scope: Scope, send: Send, head: "_MessageHead") -> None:
        state = scope["state"]
        running: RunningCall = state["caller"].running
        key = (state["session_id"], repr(head.fields["id"]))
        self._running[key] = running
        session = introduced(state["caller"].session(state["session_id"]), {"name": state["agent"]})
        incoming = IncomingCall(head.fields, session, state["peer"], state["caller"].correlation_id)
        try:
            await self._asking.serve(incoming, running, send)
        finally:
            self._running.pop(key, None)

    def _cancel(self, session_id: str, request_id: object) -> None:
        running = self._running.get((session_id, repr(request_id)))
        if running is not None:
            running.cancel()

    async def _answer(self, ctx: ServerRequestContext[Any, Any], params: RequestParams) -> Params:
        """Handle all requests that the SDK does not handle itself."""
        del params  # `ctx` has the raw message
        if ctx.request is None:
            raise MCPError(INTERNAL_ERROR, "the request has no HTTP request")
        state = ctx.request.scope["state"]
        progress = _Progress(ctx)
        request = self._request(ctx.method, dict(ctx.params or {}), state, progress.report)
        if ctx.method in _NAME_TASKS and not state["peer"].version:
            _check_name(ctx.request.headers.get(MCP_NAME_HEADER), request.params.get("taskId"))
        try:
            if self._methods.is_quick(ctx.method):
                return _builtins(self._methods.answer(request))
            job: ThreadedCall[Params] = state.get("job") or self._start(request, ctx.request_id, state)
            result = await job.outcome()
            await progress.sent()
            return result
        except ProtocolError as exc:
            raise MCPError(exc.code, exc.message, exc.data) from None

    def _request(self, method: str, params: Params, state: Params, report: Callable[[Params], None]) -> Request:
        caller: RequestCaller = state["caller"]
        session = caller.session(state["session_id"] or f"mcp-{caller.principal.name if caller.principal else ''}")
        session = introduced(session, {"name": state["agent"]})
        return Request(method, params, session, report, caller.running.attach, caller.correlation_id, state["peer"])

    def _start(self, request: Request, request_id: object, state: Params) -> ThreadedCall[Params]:
        """Answer a request in a thread; its session can cancel it."""
        caller: RequestCaller = state["caller"]
        running = caller.running
        state["job"] = job = self._workers.start(
            request.session.principal,
            lambda: _builtins(self._methods.answer(request)),
            running,
            lambda error: self._methods.give_up(request, running.context, error),
            is_quick=not self._methods.takes_long(request.method, request.params),
        )
        if state["session_id"]:
            key = (state["session_id"], repr(request_id))
            self._running[key] = running
            job.when_finished(lambda: self._running.pop(key, None))
        return job

    def _has_header_parameters(self, tool: str) -> bool:
        """Whether a tool takes arguments from headers, which the SDK compares with the body."""
        known = self._header_parameters.get(tool)
        if known is None:
            schema = self._methods.input_schema(tool)
            if schema is None:
                return False
            known = self._header_parameters[tool] = bool(x_mcp_header_map(schema))
        return known


def _builtins(answer: Params) -> Params:
    return cast(Params, msgspec.to_builtins(answer))


def _unreported(params: Params) -> None:
    """Progress that nobody asked for."""


class _Progress:
    """Sends progress from the thread of a call, without making it wait for the client."""

    def __init__(self, ctx: ServerRequestContext[Any, Any]) -> None:
        self._ctx, self._loop = ctx, asyncio.get_running_loop()
        self._sending: set[asyncio.Task[None]] = set()

    def report(self, params: Params) -> None:
        self._loop.call_soon_threadsafe(self._start, params)

    def _start(self, params: Params) -> None:
        report = self._ctx.session.report_progress(params["progress"], params.get("total"), params.get("message"))
        task = self._loop.create_task(report)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def sent(self) -> None:
        """Wait until all progress is sent, because it must precede the result."""
        if self._sending:
            await asyncio.wait(self._sending)


class _MessageHead:
    """The fields of a message that are needed before the SDK parses it. Malformed messages are left to the SDK."""

    def __init__(self, body: bytes) -> None:
        try:
            message: object = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            message = None
        self.message: object = message
        fields = cast(Params, message) if isinstance(message, dict) else {}
        self.fields = fields
        self.method: object = fields.get("method")
        self.is_reply = self.method is None and ("result" in fields or "error" in fields)
        params: object = fields.get("params")
        self.params: Params = cast(Params, params) if isinstance(params, dict) else {}
        meta: object = self.params.get("_meta")
        self.wants_progress = isinstance(meta, dict) and "progressToken" in meta
        request_id: object = fields.get("id")
        usable_id = isinstance(request_id, str | int) and not isinstance(request_id, bool)
        is_object = isinstance(params, dict) and isinstance(meta, dict | None)
        self.is_call = fields.get("jsonrpc") == "2.0" and usable_id and isinstance(self.method, str) and is_object


def _check_name(header: str | None, task_id: object) -> None:
    """The header for intermediaries must name the task, as the SDK checks for tools, prompts and resources."""
    if header is None or decode_header_value(header.strip()) != task_id:
        raise MCPError(HEADER_MISMATCH, "the Mcp-Name header is not the taskId of the request")


def _with_session(send: Send, session_id: str) -> Send:
    """Add a session id to a successful reply."""

    async def stamped(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 200:
            message["headers"] = [*message.get("headers", []), (_SESSION, session_id.encode())]
        await send(message)

    return stamped
