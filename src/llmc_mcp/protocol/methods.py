"""MCP methods as plain payloads: the only place that knows what the protocol calls things.

Two eras are served, request by request. The handshake era (2024-11-05 to 2025-11-25) opens with `initialize`.
The stateless era (2026-07-28) has no handshake: each request carries its protocol version in `_meta`, and each
result says that it is complete. A request with neither is served as the handshake era would.
"""

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from .. import __version__
from ..context import Context
from ..errors import Internal, LlmcError, NotFound, Unprocessable
from ..gate.dispatch import Gate
from ..gate.log import correlation_id
from ..session import Session
from ..tools.introduction import instructions

if TYPE_CHECKING:
    from .completion import Completion
    from .prompts import Prompts
    from .resources import ResourceReader

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS_VERSIONS = ("2026-07-28",)

_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
_CLIENT_KEY = "io.modelcontextprotocol/clientInfo"
_SERVER_KEY = "io.modelcontextprotocol/serverInfo"
_REPLY_BYTES_KEY = "llmc/maxReplyBytes"
_ABOUT_CALLER = {
    "llmc/agentId": "agent_id",
    "llmc/sessionId": "session_id",
    "llmc/model": "model",
    "llmc/budgetProfile": "budget_profile",
}

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
UNSUPPORTED_VERSION = -32022
RESOURCE_NOT_FOUND = -32002  # of the handshake era; the stateless one says INVALID_PARAMS
SERVER_ERROR = -32000

_LIST_TTL_MS = 300_000  # what is offered never changes while the server runs
_READ_TTL_MS = 0  # what is read may
_PAGE = 100  # entries of a list
_SERVER_INFO = {"name": "llmc-mcp", "version": __version__}
_CAPABILITIES: dict[str, Any] = {
    "tools": {"listChanged": False},
    "resources": {"subscribe": False, "listChanged": False},
    "prompts": {"listChanged": False},
    "completions": {},
}
_QUICK = frozenset({"initialize", "ping", "tools/list", "prompts/list", "resources/templates/list", "server/discover"})
_PLAIN_WORD = re.compile(r"[A-Za-z0-9._:@/+ -]{1,128}")
_NO_PLAIN_WORD = re.compile(r"[^A-Za-z0-9._:@/+ -]")

Params = dict[str, Any]
Answer = TypeVar("Answer")


class ProtocolError(Exception):
    """A JSON-RPC error: the request itself is wrong. A tool that fails is a result, not this."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


class Request(msgspec.Struct):
    """One request with what the transport knows of it."""

    method: str
    params: Params
    session: Session
    progress: Callable[[Params], None]
    attach: Callable[[Context], None]  # hands the running call to the transport, for cancellation
    correlation_id: str = ""  # empty: a call gets one of its own


class Methods:
    """Answers requests; stateless but for the gate behind it."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._handlers: dict[str, Callable[[Request], Params]] = {
            "initialize": self._initialize,
            "ping": lambda _: {},
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
            "server/discover": self._discover,
        }

    @property
    def names(self) -> tuple[str, ...]:
        """The methods that are served."""
        return tuple(self._handlers)

    def input_schema(self, tool: str) -> Params | None:
        """The schema of a tool's arguments; None where there is no such tool."""
        found = self._gate.catalog.tools.get(tool)
        return found.input_schema() if found is not None else None

    def is_quick(self, method: str) -> bool:
        """Whether a method answers at once, so that a transport need not hand it to a worker."""
        return method in _QUICK or method not in self._handlers

    def answer(self, request: Request) -> Params:
        """The result of a request, or a ProtocolError."""
        stateless = self._stateless(request.params.get("_meta"))
        handler = self._handlers.get(request.method)
        wrong_era = ("initialize", "ping") if stateless else ("server/discover",)
        if handler is None or request.method in wrong_era:
            raise ProtocolError(METHOD_NOT_FOUND, f"method not found: {request.method[:100]}")
        return self._complete_result(handler(request), stateless)

    def failure(self, request: Request, error: LlmcError) -> Params:
        """The result of a request whose handler does not come back; a ProtocolError for anything but a tool call."""
        if request.method != "tools/call":
            raise ProtocolError(SERVER_ERROR, error.message, error.envelope(request.correlation_id))
        failed = _tool_failure(error, request.correlation_id)
        return self._complete_result(failed, self._stateless(request.params.get("_meta")))

    def _complete_result(self, result: Params, stateless: bool) -> Params:
        return {"resultType": "complete", **result, "_meta": {_SERVER_KEY: _SERVER_INFO}} if stateless else result

    def _stateless(self, meta: object) -> bool:
        """Whether a request belongs to the stateless era; refuses a half-made or unknown envelope."""
        if not isinstance(meta, dict) or _VERSION_KEY not in meta:
            return False
        fields = cast(Params, meta)
        version: object = fields[_VERSION_KEY]
        if not isinstance(version, str):
            raise ProtocolError(INVALID_PARAMS, f"_meta[{_VERSION_KEY!r}] must be a string")
        if version not in STATELESS_VERSIONS:
            known = {"supported": list(STATELESS_VERSIONS), "requested": version[:100]}
            raise ProtocolError(UNSUPPORTED_VERSION, "unsupported protocol version", known)
        if not isinstance(fields.get(_CAPABILITIES_KEY), dict):
            raise ProtocolError(INVALID_PARAMS, f"_meta[{_CAPABILITIES_KEY!r}] is missing")
        return True

    def _initialize(self, request: Request) -> Params:
        requested: object = request.params.get("protocolVersion")
        if not isinstance(requested, str):
            raise ProtocolError(INVALID_PARAMS, "protocolVersion is missing")
        return {
            "protocolVersion": requested if requested in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1],
            "capabilities": _CAPABILITIES,
            "serverInfo": _SERVER_INFO,
            "instructions": instructions(self._gate.app, self._gate.catalog),
        }

    def _discover(self, request: Request) -> Params:
        del request
        return {
            "supportedVersions": [*STATELESS_VERSIONS, *HANDSHAKE_VERSIONS],
            "capabilities": _CAPABILITIES,
            "instructions": instructions(self._gate.app, self._gate.catalog),
            **_cacheable(),
        }

    # --- tools -----------------------------------------------------------------------------------

    def _list_tools(self, request: Request) -> Params:
        if request.params.get("cursor") is not None:
            raise ProtocolError(INVALID_PARAMS, "unknown cursor: the tool list is a single page")
        return {"tools": self._gate.catalog.visible(request.session), **self._cacheable(request)}

    def _call_tool(self, request: Request) -> Params:
        params = request.params
        name: object = params.get("name")
        if not isinstance(name, str):
            raise ProtocolError(INVALID_PARAMS, "tools/call needs the name of a tool")
        ctx = self._context(request)
        try:
            rendered = self._gate.reply(ctx, name, params.get("arguments"), reply_bytes=_reply_bytes(request))
        except LlmcError as exc:
            return _tool_failure(exc, ctx.correlation_id)
        content: list[Params] = [{"type": "text", "text": rendered.text}]
        if rendered.image:
            content.append({"type": "image", "data": rendered.image.data, "mimeType": rendered.image.mime_type})
        return {"content": content, "isError": False}

    # --- resources, prompts, completion ----------------------------------------------------------

    @cached_property
    def _resources(self) -> "ResourceReader":
        from .resources import ResourceReader

        return ResourceReader(self._gate)

    @cached_property
    def _prompts(self) -> "Prompts":
        from .prompts import Prompts

        return Prompts(self._gate)

    @cached_property
    def _completion(self) -> "Completion":
        from .completion import Completion

        return Completion(self._gate, self._resources, self._prompts)

    def _list_resources(self, request: Request) -> Params:
        return self._paged(request, "resources", self._resources.listed(request.session))

    def _list_templates(self, request: Request) -> Params:
        return self._paged(request, "resourceTemplates", self._resources.templates(request.session))

    def _read_resource(self, request: Request) -> Params:
        from .resources import as_contents

        uri = request.params.get("uri")
        content = self._through_gate(request, lambda ctx: self._resources.read(ctx, uri, _reply_bytes(request)))
        return {"contents": as_contents(content), **self._cacheable(request, _READ_TTL_MS)}

    def _list_prompts(self, request: Request) -> Params:
        return self._paged(request, "prompts", self._prompts.listed(request.session))

    def _get_prompt(self, request: Request) -> Params:
        name, arguments = request.params.get("name"), request.params.get("arguments")
        prompt = self._through_gate(request, lambda ctx: self._prompts.get(ctx, name, arguments))
        messages = [{"role": "user", "content": {"type": "text", "text": prompt.text}}]
        return {"description": prompt.description, "messages": messages}

    def _complete(self, request: Request) -> Params:
        params = request.params
        found = self._through_gate(
            request, lambda ctx: self._completion.complete(ctx, params.get("ref"), params.get("argument"))
        )
        counted = {} if found.total is None else {"total": found.total}
        return {"completion": {"values": found.values, **counted, "hasMore": found.has_more}}

    def _through_gate(self, request: Request, ask: Callable[[Context], Answer]) -> Answer:
        """Answer through the gate; a failure becomes a protocol error with our envelope as its data."""
        ctx = self._context(request)
        try:
            return ask(ctx)
        except LlmcError as exc:
            code = SERVER_ERROR
            if isinstance(exc, NotFound) and request.method == "resources/read" and not self._stateless(_meta(request)):
                code = RESOURCE_NOT_FOUND
            elif isinstance(exc, NotFound | Unprocessable):
                code = INVALID_PARAMS
            elif isinstance(exc, Internal):
                code = INTERNAL_ERROR
            raise ProtocolError(code, exc.message, exc.envelope(ctx.correlation_id)) from None

    def _paged(self, request: Request, what: str, entries: Sequence[Params]) -> Params:
        cursor: object = request.params.get("cursor")
        start = 0
        if cursor is not None:
            if not isinstance(cursor, str) or not re.fullmatch(r"after-[1-9]\d{0,8}", cursor):
                raise ProtocolError(INVALID_PARAMS, "unknown cursor")
            start = int(cursor.removeprefix("after-"))
        page: Params = {what: list(entries[start : start + _PAGE]), **self._cacheable(request)}
        if len(entries) > start + _PAGE:
            page["nextCursor"] = f"after-{start + _PAGE}"
        return page

    def _cacheable(self, request: Request, ttl_ms: int = _LIST_TTL_MS) -> Params:
        return _cacheable(ttl_ms) if self._stateless(request.params.get("_meta")) else {}

    # --- the caller ------------------------------------------------------------------------------

    def _context(self, request: Request) -> Context:
        meta = _meta(request)
        ctx = self._gate.context(
            self.session_of(request.session, meta),
            request.correlation_id or correlation_id(),
            _progress(meta.get("progressToken"), request.progress),
        )
        request.attach(ctx)
        return ctx

    def session_of(self, session: Session, meta: Params) -> Session:
        """The caller, by what the call's own `_meta` says: the client's name, then our own keys."""
        session = introduced(session, meta.get(_CLIENT_KEY))
        stated: dict[str, str] = {}
        for key, field in _ABOUT_CALLER.items():
            value: object = meta.get(key)
            if value is None:
                continue
            if not isinstance(value, str) or not _PLAIN_WORD.fullmatch(value):
                raise ProtocolError(INVALID_PARAMS, f"_meta[{key!r}] is a plain word of at most 128 characters")
            stated[field] = value
        return msgspec.structs.replace(session, **stated) if stated else session


def _tool_failure(error: LlmcError, cid: str) -> Params:
    envelope = msgspec.json.encode(error.envelope(cid)).decode()
    return {"content": [{"type": "text", "text": envelope}], "isError": True}


def introduced(session: Session, client: object) -> Session:
    """A session of a client that gave its name (`clientInfo`); without a name it stays as it is."""
    name = client_name(client)
    return msgspec.structs.replace(session, agent_id=name) if name else session


def client_name(client: object) -> str:
    """What a client calls itself in `clientInfo`, as a plain word; empty where it doesn't."""
    name: object = cast(Params, client).get("name") if isinstance(client, dict) else None
    return _NO_PLAIN_WORD.sub("", name)[:128].strip() if isinstance(name, str) else ""


def _meta(request: Request) -> Params:
    meta: object = request.params.get("_meta")
    return cast(Params, meta) if isinstance(meta, dict) else {}


def _reply_bytes(request: Request) -> int | None:
    requested: object = _meta(request).get(_REPLY_BYTES_KEY)
    return requested if isinstance(requested, int) else None


def _cacheable(ttl_ms: int = _LIST_TTL_MS) -> Params:
    return {"ttlMs": ttl_ms, "cacheScope": "private"}


def _progress(token: object, send: Callable[[Params], None]) -> Callable[[float, str], None] | None:
    if not isinstance(token, str | int) or isinstance(token, bool):
        return None
    return lambda seconds, doing: send({"progressToken": token, "progress": round(seconds, 1), "message": doing})
