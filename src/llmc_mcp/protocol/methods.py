"""MCP methods as plain payloads: the only place that knows what the protocol calls things.

Two eras are served, request by request. The handshake era (2024-11-05 to 2025-11-25) opens with `initialize`.
The stateless era (2026-07-28) has no handshake: each request carries its protocol version in `_meta`, and each
result says that it is complete. A request with neither is served as the handshake era would.
"""

from collections.abc import Callable
from typing import Any, cast

import msgspec

from .. import __version__
from ..app import Context
from ..dispatch import Gate
from ..errors import LlmcError
from ..observability import correlation_id
from ..prompts import instructions
from ..session import Session

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS_VERSIONS = ("2026-07-28",)

_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
_CLIENT_KEY = "io.modelcontextprotocol/clientInfo"
_SERVER_KEY = "io.modelcontextprotocol/serverInfo"
_REPLY_BYTES_KEY = "llmc/maxReplyBytes"

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
UNSUPPORTED_VERSION = -32022

_LIST_TTL_MS = 300_000  # the tool list never changes while the server runs
_SERVER_INFO = {"name": "llmc-mcp", "version": __version__}
_CAPABILITIES = {"tools": {"listChanged": False}}

Params = dict[str, Any]


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
        return method != "tools/call"

    def answer(self, request: Request) -> Params:
        """The result of a request, or a ProtocolError."""
        stateless = self._stateless(request.params.get("_meta"))
        handler = self._handlers.get(request.method)
        wrong_era = ("initialize", "ping") if stateless else ("server/discover",)
        if handler is None or request.method in wrong_era:
            raise ProtocolError(METHOD_NOT_FOUND, f"method not found: {request.method[:100]}")
        result = handler(request)
        if stateless:
            result = {"resultType": "complete", **result, "_meta": {_SERVER_KEY: _SERVER_INFO}}
        return result

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
        wanted: object = request.params.get("protocolVersion")
        if not isinstance(wanted, str):
            raise ProtocolError(INVALID_PARAMS, "protocolVersion is missing")
        return {
            "protocolVersion": wanted if wanted in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1],
            "capabilities": _CAPABILITIES,
            "serverInfo": _SERVER_INFO,
            "instructions": instructions(self._gate.app),
        }

    def _discover(self, request: Request) -> Params:
        del request
        return {
            "supportedVersions": [*STATELESS_VERSIONS, *HANDSHAKE_VERSIONS],
            "capabilities": _CAPABILITIES,
            "instructions": instructions(self._gate.app),
            **_cacheable(),
        }

    def _list_tools(self, request: Request) -> Params:
        if request.params.get("cursor") is not None:
            raise ProtocolError(INVALID_PARAMS, "unknown cursor: the tool list is a single page")
        stateless = self._stateless(request.params.get("_meta"))
        return {"tools": self._gate.catalog.visible(request.session), **(_cacheable() if stateless else {})}

    def _call_tool(self, request: Request) -> Params:
        params = request.params
        name: object = params.get("name")
        if not isinstance(name, str):
            raise ProtocolError(INVALID_PARAMS, "tools/call needs the name of a tool")
        meta = cast(Params, params.get("_meta") if isinstance(params.get("_meta"), dict) else {})
        ctx = Context(
            self._gate.app,
            request.session,
            correlation_id=request.correlation_id or correlation_id(),
            progress=_progress(meta.get("progressToken"), request.progress),
        )
        request.attach(ctx)
        asked: object = meta.get(_REPLY_BYTES_KEY)
        reply_bytes = asked if isinstance(asked, int) else None
        try:
            rendered = self._gate.reply(ctx, name, params.get("arguments"), reply_bytes=reply_bytes)
        except LlmcError as exc:
            envelope = msgspec.json.encode(exc.envelope(ctx.correlation_id)).decode()
            return {"content": [{"type": "text", "text": envelope}], "isError": True}
        content: list[Params] = [{"type": "text", "text": rendered.text}]
        if rendered.image:
            content.append({"type": "image", "data": rendered.image.data, "mimeType": rendered.image.mime_type})
        return {"content": content, "isError": False}


def _cacheable() -> Params:
    return {"ttlMs": _LIST_TTL_MS, "cacheScope": "private"}


def _progress(token: object, send: Callable[[Params], None]) -> Callable[[float], None] | None:
    if not isinstance(token, str | int) or isinstance(token, bool):
        return None
    return lambda seconds: send({"progressToken": token, "progress": round(seconds, 1), "message": "working"})
