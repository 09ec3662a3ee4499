"""What the conformance suite asks of a server besides what ours has: its fixture tools, resources and prompts.

They are methods of the same frame that serves the real ones: guard, transport, era handling, cache hints and progress
are those of every server of ours. Only the payloads are made up.
"""

import base64
import struct
import zlib
from collections.abc import Callable
from typing import Any, cast

from llmc_mcp.gate.dispatch import Gate
from llmc_mcp.protocol.methods import INVALID_PARAMS, Methods, Params, ProtocolError, Request

_MISSING_CAPABILITY = -32021
_CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
_CACHEABLE = {"ttlMs": 60_000, "cacheScope": "private"}


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _red_pixel() -> str:
    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    body = _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")) + _chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode()


def _silence() -> str:
    head = b"RIFF" + struct.pack("<I", 36) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 8000, 1, 8)
    return base64.b64encode(head + b"data" + struct.pack("<I", 0)).decode()


PNG, WAV = _red_pixel(), _silence()
IMAGE: Params = {"type": "image", "data": PNG, "mimeType": "image/png"}


def _text(text: str) -> Params:
    return {"type": "text", "text": text}


def _embedded(uri: str, kind: str, text: str) -> Params:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": text}}


CONTENTS: dict[str, list[Params]] = {
    "test_simple_text": [_text("This is a simple text response for testing.")],
    "test_image_content": [IMAGE],
    "test_audio_content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}],
    "test_embedded_resource": [
        _embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ],
    "test_multiple_content_types": [
        _text("Multiple content types test:"),
        IMAGE,
        _embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ],
    "test_tool_with_progress": [_text("done")],
    "test_x_header": [_text("header taken")],
    "json_schema_2020_12_tool": [_text("schema taken")],
}
_NO_ARGUMENTS: Params = {"type": "object", "properties": {}}
SCHEMAS: dict[str, Params] = {
    "test_x_header": {
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        "required": ["region"],
    },
    "json_schema_2020_12_tool": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
}
OTHER_TOOLS = ("test_error_handling", "test_missing_capability")
PROMPTS: dict[str, list[str]] = {
    "test_simple_prompt": [],
    "test_prompt_with_arguments": ["arg1", "arg2"],
    "test_prompt_with_embedded_resource": ["resourceUri"],
    "test_prompt_with_image": [],
}


class FixtureMethods(Methods):
    """Our methods, and those of the suite's fixtures."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(gate)
        own: dict[str, Callable[[Request], Params]] = {
            "resources/list": self._list_resources,
            "resources/templates/list": self._templates,
            "resources/read": self._read,
            "prompts/list": self._list_prompts,
            "prompts/get": self._prompt,
            "completion/complete": lambda _: {"completion": {"values": [], "total": 0, "hasMore": False}},
        }
        self._handlers |= own

    def input_schema(self, tool: str) -> Params | None:
        return SCHEMAS.get(tool) or super().input_schema(tool)

    def _list_tools(self, request: Request) -> Params:
        listed = super()._list_tools(request)
        made_up = [
            {"name": name, "description": "a fixture", "inputSchema": SCHEMAS.get(name, _NO_ARGUMENTS)}
            for name in (*CONTENTS, *OTHER_TOOLS)
        ]
        return {**listed, "tools": [*listed["tools"], *made_up]}

    def _call_tool(self, request: Request) -> Params:
        name = request.params.get("name")
        if name == "test_error_handling":
            return {"content": [_text("This tool intentionally returns an error for testing")], "isError": True}
        if name == "test_missing_capability":
            _require_sampling(request)
        if name == "test_tool_with_progress" and "progressToken" in request.params.get("_meta", {}):
            for done in (0, 50, 100):
                request.progress({"progress": done, "total": 100})
        if name in CONTENTS:
            return {"content": CONTENTS[name], "isError": False}
        return super()._call_tool(request)

    def _list_resources(self, request: Request) -> Params:
        del request
        listed = [
            {"uri": "test://static-text", "name": "text", "mimeType": "text/plain"},
            {"uri": "test://static-binary", "name": "binary", "mimeType": "image/png"},
        ]
        return {"resources": listed, **_CACHEABLE}

    def _templates(self, request: Request) -> Params:
        del request
        template = {"uriTemplate": "test://template/{id}/data", "name": "template", "mimeType": "application/json"}
        return {"resourceTemplates": [template], **_CACHEABLE}

    def _read(self, request: Request) -> Params:
        uri = cast(str, request.params.get("uri"))
        if uri == "test://static-text":
            text = "This is the content of the static text resource."
            content: Params = {"uri": uri, "mimeType": "text/plain", "text": text}
        elif uri == "test://static-binary":
            content = {"uri": uri, "mimeType": "image/png", "blob": PNG}
        elif uri.startswith("test://template/") and uri.endswith("/data"):
            found = uri.split("/")[3]
            text = f'{{"id":"{found}","templateTest":true,"data":"Data for ID: {found}"}}'
            content = {"uri": uri, "mimeType": "application/json", "text": text}
        else:
            raise ProtocolError(INVALID_PARAMS, "resource not found", {"uri": uri})
        return {"contents": [content], **_CACHEABLE}

    def _list_prompts(self, request: Request) -> Params:
        del request
        listed = [
            {
                "name": name,
                "description": "a fixture",
                "arguments": [{"name": argument, "description": "any", "required": True} for argument in arguments],
            }
            for name, arguments in PROMPTS.items()
        ]
        return {"prompts": listed, **_CACHEABLE}

    def _prompt(self, request: Request) -> Params:
        name, given = request.params.get("name"), cast(dict[str, Any], request.params.get("arguments") or {})
        contents: dict[object, list[Params]] = {
            "test_simple_prompt": [_text("This is a simple prompt for testing.")],
            "test_prompt_with_arguments": [
                _text(f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'")
            ],
            "test_prompt_with_embedded_resource": [
                _embedded(given.get("resourceUri", ""), "text/plain", "Embedded resource content for testing."),
                _text("Please process the embedded resource above."),
            ],
            "test_prompt_with_image": [IMAGE, _text("Please analyze the image above.")],
        }
        if name not in contents:
            raise ProtocolError(INVALID_PARAMS, "prompt not found")
        return {"messages": [{"role": "user", "content": content} for content in contents[name]]}


def _require_sampling(request: Request) -> None:
    meta = cast(Params, request.params.get("_meta", {}))
    if "sampling" not in cast(Params, meta.get(_CAPABILITIES_KEY, {})):
        raise ProtocolError(_MISSING_CAPABILITY, "this tool needs sampling", {"requiredCapabilities": {"sampling": {}}})
