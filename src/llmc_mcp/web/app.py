"""The REST API: tools return their result objects as JSON, all errors have one format."""

import json
import os
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Annotated, Any, Literal, NoReturn

import msgspec
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.exceptions import HTTPException

from .. import __version__
from ..errors import BadArgs, FeatureDisabled, Forbidden, Internal, LlmcError, NotFound, ShuttingDown
from ..gate.dispatch import Gate
from ..permissions.sign_ins import shared_secret
from ..protocol.methods import Methods
from .auth import Tokens, read_secret
from .drain import Drain
from .guard import Guard, Receive, RequestCaller, Scope, Send, SharedParts
from .mcp import McpEndpoint, SessionIds
from .metrics import CONTENT_TYPE, Metrics
from .oauth import Issuer
from .pages import docs_page, metadata_routes, sign_in_routes
from .replica_claims import CALL_PATH
from .replica_route import ReplicaEndpoint
from .replicas import Replicas
from .replies import JSON, error_reply, refusal
from .threads import CallThreads
from .ui.routes import PATHS, UserPages

API_VERSION = "v0"
_MCP, _TOOL = "/mcp", "/tool"
_DEFAULT_SESSION = "http"
_SESSION_KEY, _FORMER_KEY = "session_ids", "session.key"  # in the store, and the file in which it was before
_FORMS_KEY = "forms"
_READY = "readiness"  # whose threads look after the store: those of no client
_SEARCHED = 2_000  # characters of a message used as the query; longer queries are refused

_SESSION_LENGTH = _NAME_LENGTH = 128

SessionId = Annotated[
    str, Field(max_length=_SESSION_LENGTH, description="the conversation that processes and changes belong to")
]


def _capitalized(name: object) -> object:
    return name.capitalize() if isinstance(name, str) else name


class Body(BaseModel):
    """A request body: unknown fields are refused, and no types are converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ToolRequest(Body):
    session_id: SessionId = _DEFAULT_SESSION
    name: Annotated[str, Field(max_length=_NAME_LENGTH)]
    args: dict[str, Any] = {}


class ToolCall(msgspec.Struct, forbid_unknown_fields=True):
    """A valid `ToolRequest`, decoded without FastAPI."""

    name: Annotated[str, msgspec.Meta(max_length=_NAME_LENGTH)]
    session_id: Annotated[str, msgspec.Meta(max_length=_SESSION_LENGTH)] = _DEFAULT_SESSION
    args: dict[str, Any] = {}


_TOOL_CALL = msgspec.json.Decoder(ToolCall)


class AgentRequest(Body):
    session_id: SessionId = _DEFAULT_SESSION
    role: Annotated[Literal["Beatrice", "Otto", "Rem", "Grace"] | None, BeforeValidator(_capitalized)] = None
    user_msg: Annotated[str, Field(min_length=1)]
    inject_context: str = ""


class AgentReply(BaseModel):
    text: str
    context: str | None = Field(None, description="context to pass to the model together with this message")


class SearchRequest(Body):
    q: Annotated[str, Field(min_length=1)]
    scope: Literal["repo", "docs", "both"] | None = None
    k: Annotated[int, Field(ge=1)] | None = None
    budget_tokens: Annotated[int, Field(ge=1)] | None = None


class BootloadRequest(Body):
    session_id: SessionId
    task_id: Annotated[str, Field(max_length=256)]


class Health(BaseModel):
    ok: bool
    version: str = Field(description="of the API")
    server: str | None = Field(None, description="version of the server; for callers with a token")
    limits: str | None = Field(None, description="whose calls limits count, where servers share them; the same")


class Readiness(BaseModel):
    ready: bool
    reason: str | None = Field(None, description="what is missing; for callers with a token")


class ErrorEnvelope(BaseModel):
    code: str
    message: str
    hint: str | None = None
    correlation_id: str


_FAILURES: dict[int | str, dict[str, Any]] = {"4XX": {"model": ErrorEnvelope}, "5XX": {"model": ErrorEnvelope}}


class _StrictRequest(Request):
    """A request whose body must be standard JSON: no NaN, no lone surrogates, no numbers out of range."""

    async def json(self) -> Any:
        try:
            return msgspec.json.decode(await self.body())
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            raise json.JSONDecodeError(str(exc)[:200], "", 0) from None


class _StrictRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return strictly


def _caller(request: Request) -> RequestCaller:
    return request.scope["state"]["caller"]


async def _who(request: Request) -> RequestCaller:  # async, because FastAPI runs plain functions in a thread
    return _caller(request)


Who = Annotated[RequestCaller, Depends(_who)]


class _Rest:
    """The routes and the objects they share."""

    def __init__(self, gate: Gate, workers: CallThreads, metrics: Metrics, drain: Drain) -> None:
        self._gate, self._workers, self._metrics, self._drain = gate, workers, metrics, drain
        self._rag = gate.app.config.rag

    async def health(self, caller: Who) -> Health:
        """Say that the server answers."""
        if caller.principal is None:
            return Health(ok=True, version=API_VERSION, server=None, limits=None)
        counts = self._gate.limits.counts
        shared = ("alone" if counts.alone else "shared") if self._gate.app.config.store.is_shared() else None
        return Health(ok=True, version=API_VERSION, server=__version__, limits=shared)

    async def ready(self, caller: Who) -> Response:
        """Say whether the server can work: it is not stopping, and its store has the tables that this version needs."""
        try:
            if self._drain.has_begun:
                raise ShuttingDown("the server is stopping")
            await self._workers.start(_READY, self._check_store, caller.running).outcome()
            found = Readiness(ready=True, reason=None)
        except LlmcError as exc:
            found = Readiness(ready=False, reason=exc.message if caller.principal else None)
        body = found.model_dump_json(exclude_none=True)
        return Response(body, 200 if found.ready else 503, media_type="application/json")

    def _check_store(self) -> None:
        self._gate.app.store.check_tables()  # opens it, the first time

    async def tool(self, body: ToolRequest, caller: Who) -> Response:
        """Call a tool by name; the reply is the tool's result object."""
        return _json(await self._call(caller, body.session_id, body.name, body.args))

    async def reply_to_tool(self, call: ToolCall, caller: RequestCaller, send: Send) -> None:
        """Do the same for a body that is known to be valid, without FastAPI, which takes as long as a small tool."""
        try:
            body = await self._call(caller, call.session_id, call.name, call.args)
            status, headers = 200, [(b"content-length", str(len(body)).encode()), (b"content-type", JSON)]
        except LlmcError as exc:
            status, headers, body = error_reply(exc, caller.correlation_id)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def invoke_agent(self, body: AgentRequest, caller: Who) -> AgentReply:
        """Return context for a message to an agent. The caller passes it to the model; no model is called here."""
        session = caller.session(body.session_id)
        await self._workers.start(session.principal, lambda: self._gate.limits.take(session), caller.running).outcome()
        parts = [body.inject_context] if body.inject_context else []
        if self._rag.jit_context_enabled and "rag_search" in self._gate.catalog.tools:
            query = body.user_msg[:_SEARCHED]
            arguments = self._search_arguments(query, None, None, None)
            found = msgspec.json.decode(await self._call(caller, body.session_id, "rag_search", arguments))
            parts += [f"{snippet['src']}\n{snippet['text']}" for snippet in found["snippets"]]
        text = f"[MCP {API_VERSION}] received; use /rag/search for pre-call context"
        return AgentReply(text=text, context="\n\n".join(parts) or None)

    async def search(self, body: SearchRequest, caller: Who) -> Response:
        """Search the code index."""
        arguments = self._search_arguments(body.q, body.scope, body.k, body.budget_tokens)
        return _json(await self._call(caller, _DEFAULT_SESSION, "rag_search", arguments))

    async def bootload(self, body: BootloadRequest, caller: Who) -> Response:
        """Return the plan and scope of a task, from the repository's own notes."""
        arguments = {"session_id": body.session_id, "task_id": body.task_id}
        return _json(await self._call(caller, body.session_id, "rag_bootload", arguments))

    async def metrics(self, caller: Who) -> Response:
        """Return Prometheus metrics."""
        if caller.principal is None or not caller.principal.scopes & {"read", "admin"}:
            raise Forbidden("metrics need the scope 'read'")
        if not self._gate.app.config.observability.metrics_prometheus_enabled or not self._metrics.enabled:
            raise FeatureDisabled(
                "metrics are switched off",
                hint="Settings: observability.metrics_enabled and observability.metrics_prometheus_enabled.",
            )
        return Response(self._metrics.page(), media_type=CONTENT_TYPE)

    def _search_arguments(self, query: str, scope: str | None, k: int | None, budget: int | None) -> dict[str, Any]:
        rag = self._rag
        return {
            "query": query,
            "scope": scope or rag.default_scope,
            "limit": min(k or rag.top_k, rag.top_k),
            "budget_tokens": min(budget or rag.token_budget, rag.token_budget),
        }

    async def _call(self, caller: RequestCaller, session_id: str, name: str, arguments: dict[str, Any]) -> bytes:
        """Run a tool in a thread."""
        session = caller.session(session_id)

        def run() -> bytes:
            context = self._gate.context(session, caller.correlation_id)
            caller.running.attach(context)
            return self._gate.reply_json(context, name, arguments)

        def fail(error: LlmcError) -> NoReturn:
            self._gate.give_up(caller.running.context, error, caller.correlation_id, tool=name[:64])
            raise error

        tool = self._gate.catalog.known(name)
        is_quick = tool is None or not tool.takes_long
        return await self._workers.start(session.principal, run, caller.running, fail, is_quick=is_quick).outcome()


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def create_app(gate: Gate, tokens: Tokens, methods: Methods | None = None, replicas: Replicas | None = None) -> Guard:
    """Create the application: MCP at /mcp, REST on the other routes, the guard in front of both."""
    config = gate.app.config
    issuer = Issuer(config.oauth) if config.oauth.issuer else None
    metrics = Metrics(gate)
    workers = CallThreads(config.limits.concurrency_per_token)
    gate.app.on_settings.append(lambda fresh: workers.resize(fresh.limits.concurrency_per_token))
    drain = Drain()
    former = read_secret(os.path.join(gate.app.data_dir, _FORMER_KEY))
    session_ids = SessionIds(shared_secret(gate.app.store, _SESSION_KEY, former))
    mcp = McpEndpoint(gate, workers, session_ids, methods or Methods(gate))
    rest = _Rest(gate, workers, metrics, drain)
    pages = UserPages(gate, workers, tokens, shared_secret(gate.app.store, _FORMS_KEY))
    api = _rest_app(gate, rest, sign_in_routes(tokens), mcp.run)
    forwarded = ReplicaEndpoint(gate, workers, replicas.key) if replicas is not None else None
    api.include_router(pages.router())
    if issuer is not None:
        api.include_router(metadata_routes(issuer))

    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == _MCP:
            await mcp(scope, receive, send)
        elif forwarded is not None and scope["type"] == "http" and scope["path"] == CALL_PATH:
            await forwarded(scope, send)
        elif (call := _tool_call(scope)) is not None:
            await rest.reply_to_tool(call, scope["state"]["caller"], send)
        else:
            await api(scope, receive, send)

    paths = [route.path for route in api.routes if isinstance(route, APIRoute)]
    return Guard(
        route,
        gate,
        tokens,
        metrics,
        [_MCP, CALL_PATH, *paths, *PATHS],
        issuer,
        pages.feed.close,
        SharedParts(drain, replicas.verifier if replicas is not None else None),
    )


def _tool_call(scope: Scope) -> ToolCall | None:
    """The call that a request to /tool makes; None for any other request, and for a body that FastAPI must refuse."""
    if scope["type"] != "http" or scope["path"] != _TOOL or scope["method"] != "POST":
        return None
    try:
        return _TOOL_CALL.decode(scope["state"]["body"])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _rest_app(
    gate: Gate, rest: _Rest, sign_in: APIRouter, background: Callable[[], AbstractAsyncContextManager[None]]
) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        async with background():
            yield

    api = FastAPI(
        title="LLMC MCP", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan, redirect_slashes=False
    )
    api.router.route_class = _StrictRoute
    settings = gate.app.config.observability
    api.get("/health", response_model=Health, response_model_exclude_none=True)(rest.health)
    api.get("/ready", response_model=Readiness, responses={503: {"model": Readiness}})(rest.ready)
    api.post(_TOOL, responses=_FAILURES)(rest.tool)
    api.post("/invoke_agent", response_model=AgentReply, response_model_exclude_none=True, responses=_FAILURES)(
        rest.invoke_agent
    )
    api.post("/rag/search", responses=_FAILURES)(rest.search)
    api.post("/rag/bootload", responses=_FAILURES)(rest.bootload)
    api.get(settings.metrics_path, response_class=PlainTextResponse, responses=_FAILURES)(rest.metrics)
    api.include_router(sign_in)

    @api.get("/", include_in_schema=False)
    async def first_page() -> Response:  # pyright: ignore[reportUnusedFunction]
        return RedirectResponse("/ui", status_code=303)

    @api.get("/docs", include_in_schema=False, response_class=HTMLResponse)
    async def docs() -> str:  # pyright: ignore[reportUnusedFunction]
        return docs_page(api.openapi(), gate.catalog)

    _envelopes(api, gate)
    return api


def _envelopes(api: FastAPI, gate: Gate) -> None:
    """Return every error raised behind the guard in the standard error format."""

    def respond(request: Request, error: LlmcError, extra: dict[str, str] | None = None) -> Response:
        status, headers, body = error_reply(error, _caller(request).correlation_id, extra)
        return Response(body, status, {name.decode(): value.decode() for name, value in headers})

    async def by_code(request: Request, error: Exception) -> Response:
        return respond(request, error if isinstance(error, LlmcError) else Internal("the request failed unexpectedly"))

    async def by_status(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        extra = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
        if status == 404:
            return respond(request, NotFound("there is no such route", hint="GET /docs lists them."), extra)
        words = {405: "this route does not allow this method", 400: "the body is not valid JSON"}
        return respond(request, refusal(status, words.get(status, "the request cannot be served")), extra)

    async def invalid(request: Request, error: Exception) -> Response:
        first: dict[str, Any] = error.errors()[0] if isinstance(error, RequestValidationError) else {}
        if first.get("type") == "json_invalid":
            return respond(request, refusal(400, "the body is not valid JSON"))
        where = ".".join(str(part) for part in first.get("loc", ())[1:])[:100]
        return respond(request, BadArgs(f"{where or 'body'}: {str(first.get('msg', 'invalid')).lower()[:300]}"))

    async def unexpected(request: Request, error: Exception) -> Response:
        del error  # the guard logs it
        return respond(request, Internal("the request failed unexpectedly"))

    del gate
    api.add_exception_handler(LlmcError, by_code)
    api.add_exception_handler(HTTPException, by_status)
    api.add_exception_handler(RequestValidationError, invalid)
    api.add_exception_handler(Exception, unexpected)
