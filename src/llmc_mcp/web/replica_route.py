"""The receiving end of forwarded calls: POST /replica/call.

The guard has verified the signature before it read the body. What may be forwarded is little: a tool that names a
program, the list of programs and Stop of the pages. This server judges each by the caller's own scopes, tools and
rules, and by whose program it is; it forwards nothing on.
"""

from typing import Any

import msgspec

from ..context import Context
from ..errors import AuthFailed, BadArgs, Forbidden, LlmcError
from ..gate.dispatch import Gate
from ..review import processes
from ..review.processes import ShownProgram
from .guard import RequestCaller, Scope, Send
from .replica_claims import PROOF, Claims, digest, proof
from .replicas import Forwarded, ForwardedList, ForwardedStop, ForwardedTool
from .replies import JSON, error_reply
from .threads import CallThreads
from .ui.processes import STOP_FORM

_FORWARDED = msgspec.json.Decoder(Forwarded)


class ReplicaEndpoint:
    """The ASGI application of the route."""

    def __init__(self, gate: Gate, workers: CallThreads, key: str) -> None:
        self._gate, self._workers, self._key = gate, workers, key

    async def __call__(self, scope: Scope, send: Send) -> None:
        claims: Claims = scope["state"]["forwarded"]
        body: bytes = scope["state"]["body"]
        if digest(body) != claims.body:
            raise AuthFailed("the body is not the one that was signed")
        try:
            status, headers, reply = 200, [(b"content-type", JSON)], await self._run(claims, body, scope)
            headers.append((b"content-length", str(len(reply)).encode()))
        except LlmcError as exc:
            status, headers, reply = error_reply(exc, claims.correlation_id)
        headers.append((PROOF.encode(), proof(self._key, claims.nonce, status, reply).encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": reply})

    async def _run(self, claims: Claims, body: bytes, scope: Scope) -> bytes:
        try:
            call = _FORWARDED.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise BadArgs("this is no forwarded call") from None
        caller: RequestCaller = scope["state"]["caller"]

        def run() -> bytes:
            context = self._gate.context(claims.session, claims.correlation_id)
            context.forwarded, context.agreed = True, claims.agreed
            caller.running.attach(context)
            return self._answer(context, call)

        # Threads of their own: those of a principal may all be waiting for calls that they forwarded themselves.
        whose = f"forwarded:{claims.session.principal}"
        return await self._workers.start(whose, run, caller.running).outcome()

    def _answer(self, ctx: Context, call: Forwarded) -> bytes:
        if isinstance(call, ForwardedTool):
            tool = self._gate.catalog.find(call.name)
            if not tool.gathers and not (tool.process and call.arguments.get(tool.process)):
                raise Forbidden(f"{tool.name} is not forwarded between replicas, or names no process")
            return self._gate.answer_forwarded(ctx, call.name, call.arguments, call.reply_bytes, lean=call.lean)
        if isinstance(call, ForwardedList):
            return msgspec.json.encode(self._programs(ctx))
        return self._stop(ctx, call)

    def _programs(self, ctx: Context) -> list[ShownProgram]:
        if not (ctx.session.may("read") or ctx.session.may("admin")):
            raise Forbidden("the pages need the scope 'read'")
        principal = None if ctx.session.may("admin") else ctx.session.principal
        return processes.programs(self._gate.app.data_dir, principal, self._gate.app)

    def _stop(self, ctx: Context, call: ForwardedStop) -> bytes:
        principal = None if ctx.session.may("admin") else ctx.session.principal
        app = self._gate.app

        def stop() -> ShownProgram:
            return processes.stop(app.data_dir, principal, call.proc_id, ctx.check, app)

        given: dict[str, Any] = {"id": call.proc_id}
        return msgspec.json.encode(self._gate.act(ctx, STOP_FORM, given, stop))
