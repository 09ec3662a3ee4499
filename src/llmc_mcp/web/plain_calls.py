"""Plain `tools/call` requests: recognised before the SDK sees them, and answered as it would.

For every request the SDK creates a transport, streams, a session and tasks; that takes several times as long as a small
tool. Only a request that the SDK would certainly accept, and a result that it would send as one JSON object, take the
short way. Everything else, from a progress token to a malformed header, is left to the SDK.
"""

import json
from functools import lru_cache
from typing import Any, NamedTuple, cast

import msgspec
from mcp.server.streamable_http import check_accept_headers
from mcp.shared.inbound import MCP_PARAM_HEADER_PREFIX, InboundModernRoute, classify_inbound_request
from mcp_types import DEFAULT_NEGOTIATED_VERSION
from mcp_types.methods import validate_client_request
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError
from starlette.requests import Request

from .guard import Scope
from .replies import JSON, Headers

METHOD = "tools/call"

_FIELDS = {"jsonrpc", "id", "method", "params"}
_PARAMS = {"name", "arguments", "_meta"}
_BRACKETS = 150  # the parser of the SDK refuses about 200 levels, ours many more
_ROUTING = (b"mcp-protocol-version", b"mcp-method", b"mcp-name")
_PARAM_HEADER = MCP_PARAM_HEADER_PREFIX.lower().encode()
_RESULT = {"content", "isError"}
_STATELESS_RESULT = {*_RESULT, "resultType", "_meta"}
_REMEMBERED = 4_096  # bytes of parameters that are validated once only: a client sends the same with every call
_ASCII = json.JSONEncoder(separators=(",", ":"))

Fields = dict[str, Any]


class PlainCall(NamedTuple):
    """A request to call a tool, with nothing that needs the SDK."""

    id: int | str
    params: Fields
    version: str

    def reply(self, result: Fields) -> tuple[Headers, bytes] | None:
        """Headers and body as the SDK writes them; None for a result that it must judge."""
        stateless = self.version in MODERN_PROTOCOL_VERSIONS
        shaped = _shaped_stateless(result) if stateless else _shaped(result)
        if shaped is None:
            return None
        message = {"jsonrpc": "2.0", "id": self.id, "result": shaped}
        try:
            body = msgspec.json.encode(message)
        except UnicodeEncodeError:
            return None
        if stateless and (not body.isascii() or b"\x7f" in body):  # of this era, the SDK escapes such characters
            body = _ASCII.encode(message).encode()
        kind, length = (b"content-type", JSON), (b"content-length", str(len(body)).encode())
        return [length, kind] if stateless else [kind, length], body


def plain_call(scope: Scope, headers: dict[bytes, bytes], message: object) -> PlainCall | None:
    """The call that a request makes; None if the SDK must look at the request."""
    if not isinstance(message, dict):
        return None
    fields = cast(Fields, message)
    if fields.get("method") != METHOD or fields.keys() != _FIELDS or fields["jsonrpc"] != "2.0":
        return None
    version = headers.get(_ROUTING[0], DEFAULT_NEGOTIATED_VERSION.encode()).decode("latin-1")
    is_repeated = len(headers) != len(scope["headers"])
    if is_repeated or type(fields["id"]) not in (int, str) or not _are_plain(fields["params"]):
        return None
    body: bytes = scope["state"]["body"]
    if body.count(b"[") + body.count(b"{") > _BRACKETS or not _are_acceptable(headers, fields, version):
        return None
    return PlainCall(fields["id"], fields["params"], version)


# --- the request -----------------------------------------------------------------------------------------------------


def _are_plain(params: object) -> bool:
    if not isinstance(params, dict) or not params.keys() <= _PARAMS:
        return False
    fields = cast(Fields, params)
    if not isinstance(fields.get("name"), str) or not isinstance(fields.get("arguments", {}), dict):
        return False
    return "_meta" not in fields or (isinstance(fields["_meta"], dict) and "progressToken" not in fields["_meta"])


def _are_acceptable(headers: dict[bytes, bytes], fields: Fields, version: str) -> bool:
    if not _is_json(headers.get(b"content-type", b"")) or not _takes_reply(headers.get(b"accept", b"")):
        return False
    routing: tuple[bytes | None, ...] = ()
    if version not in HANDSHAKE_PROTOCOL_VERSIONS:
        if version not in MODERN_PROTOCOL_VERSIONS or any(name.startswith(_PARAM_HEADER) for name in headers):
            return False
        routing = tuple(map(headers.get, _ROUTING))
    elif "_meta" not in fields["params"]:
        return True
    envelope = msgspec.json.encode({**fields["params"], "arguments": {}})
    judge = _is_valid if len(envelope) <= _REMEMBERED else _is_valid.__wrapped__
    return judge(envelope, version, routing)


@lru_cache(128)
def _is_valid(envelope: bytes, version: str, routing: tuple[bytes | None, ...]) -> bool:
    """Whether the SDK accepts parameters, whatever the arguments, and the stateless era's headers about them."""
    params = msgspec.json.decode(envelope)
    try:
        validate_client_request(METHOD, version, params)
    except (ValidationError, KeyError, ValueError):
        return False
    if not routing:
        return True
    found = zip(_ROUTING, routing, strict=True)
    headers = {name.decode(): value.decode("latin-1") for name, value in found if value is not None}
    return isinstance(
        classify_inbound_request({"method": METHOD, "params": params}, headers=headers), InboundModernRoute
    )


def _is_json(content_type: bytes) -> bool:
    return content_type == JSON or content_type.startswith(JSON + b";")


@lru_cache(64)
def _takes_reply(accept: bytes) -> bool:
    """Whether an Accept header admits a JSON reply, and a stream if it names one."""
    has_json, has_stream = check_accept_headers(Request({"type": "http", "headers": [(b"accept", accept)]}))
    return has_json and (has_stream or b"text/event-stream" not in accept)


# --- the result ------------------------------------------------------------------------------------------------------


def _shaped(result: Fields) -> Fields | None:
    """A result of the handshake era in the order of the SDK's models."""
    content = _shaped_content(result["content"]) if result.keys() == _RESULT else None
    return None if content is None else {"content": content, "isError": result["isError"]}


def _shaped_stateless(result: Fields) -> Fields | None:
    if result.keys() != _STATELESS_RESULT or result["resultType"] != "complete":
        return None
    content = _shaped_content(result["content"])
    if content is None:
        return None
    return {"_meta": result["_meta"], "content": content, "isError": result["isError"], "resultType": "complete"}


def _shaped_content(content: list[Fields]) -> list[Fields] | None:
    shaped: list[Fields] = []
    for part in content:
        if part.keys() == {"type", "text"}:
            shaped.append({"text": part["text"], "type": "text"})
        elif part.keys() == {"type", "data", "mimeType"}:
            shaped.append({"data": part["data"], "mimeType": part["mimeType"], "type": part["type"]})
        else:
            return None
    return shaped
