"""What the conformance suite asks of a server besides what ours has: its fixture tools, resources and prompts.

They stand beside the real ones, which are listed and served as always, in the same frame: guard, transport, era
handling, paging, cache hints, progress, tasks and questions to the user are those of every server of ours. Only the
payloads are made up.
"""

import base64
import struct
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any, cast

from llmc_mcp.context import LIST_ROOTS, SAMPLE, Context, UserQuestion
from llmc_mcp.errors import Cancelled
from llmc_mcp.gate.dispatch import Gate
from llmc_mcp.protocol.jsonrpc import INTERNAL_ERROR, MISSING_CAPABILITY, Params, ProtocolError
from llmc_mcp.protocol.methods import CallFacts, Methods
from llmc_mcp.protocol.request import CAPABILITIES_KEY, Request
from llmc_mcp.session import Session

_PATIENCE_S = 0.2  # the suite's tasks are short ones
_BECOMES_TASK_S = 0.6


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
ASKING_PROMPT = "test_input_required_result_prompt"


def _form(**properties: Params) -> Params:
    return {"type": "object", "properties": properties, "required": [*properties]}


_NAME = _form(name={"type": "string"})
_OK = _form(ok={"type": "boolean"})
_OPTIONS: Params = {"type": "string", "enum": ["option1", "option2", "option3"]}
_TITLED = [{"const": f"value{number}", "title": f"Choice {number}"} for number in (1, 2, 3)]
ELICITATION_FORMS: dict[str, Params] = {
    "test_elicitation": _form(username={"type": "string"}, email={"type": "string"}),
    "test_elicitation_sep1034_defaults": _form(
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        verified={"type": "boolean", "default": True},
    ),
    "test_elicitation_sep1330_enums": _form(
        untitledSingle=_OPTIONS,
        titledSingle={"type": "string", "oneOf": _TITLED},
        legacyEnum={"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
        untitledMulti={"type": "array", "items": _OPTIONS},
        titledMulti={"type": "array", "items": {"anyOf": _TITLED}},
    ),
}


def _asked(ctx: Context, key: str, form: Params, message: str = "a fixture asks") -> Params:
    answer = ctx.ask(UserQuestion(key, message, form))
    if answer is None:
        raise _missing("elicitation")
    return {"action": answer.action, **answer.content}


def _asked_once(key: str, form: Params) -> Callable[[Context, Params], str]:
    return lambda ctx, _: f"state-ok: {_asked(ctx, key, form)}"


def _asked_twice(ctx: Context, _: Params) -> str:
    return f"{_asked(ctx, 'step1', _NAME)} {_asked(ctx, 'step2', _form(color={'type': 'string'}))}"


def _asked_by_form(name: str) -> Callable[[Context, Params], str]:
    def run(ctx: Context, arguments: Params) -> str:
        return f"answer: {_asked(ctx, 'answer', ELICITATION_FORMS[name], arguments.get('message', 'a fixture asks'))}"

    return run


def _work(ctx: Context, seconds: float) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        ctx.check()
        time.sleep(0.02)


def _slow_compute(ctx: Context, arguments: Params) -> str:
    _work(ctx, arguments.get("seconds", 0))
    return f"computed {arguments.get('label')}"


def _failing_job(ctx: Context, _: Params) -> str:
    _work(ctx, 1)
    raise RuntimeError("this tool always fails")


def _protocol_error_job(ctx: Context, _: Params) -> str:
    _work(ctx, _BECOMES_TASK_S)
    raise ProtocolError(INTERNAL_ERROR, "this tool breaks the protocol")


def _confirm_delete(ctx: Context, arguments: Params) -> str:
    _work(ctx, _BECOMES_TASK_S)
    return f"{arguments.get('filename')}: {_asked(ctx, 'confirm', _form(confirm={'type': 'boolean'}))}"


def _multi_input(ctx: Context, _: Params) -> str:
    _work(ctx, _BECOMES_TASK_S)
    answers: list[Params] = []

    def ask(key: str) -> None:
        answers.append(_asked(ctx, key, _NAME))

    askers = [threading.Thread(target=ask, args=(key,), daemon=True) for key in ("first", "second")]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    return str(answers)


_ASKED_AT_ONCE = {
    "user_name": UserQuestion("user_name", "What is your name?", _NAME),
    "greeting": UserQuestion(
        "greeting",
        method=SAMPLE,
        params={"messages": [{"role": "user", "content": _text("Generate a greeting")}], "maxTokens": 50},
    ),
    "client_roots": UserQuestion("client_roots", method=LIST_ROOTS),
}


def _ask_for(*keys: str) -> Callable[[Context, Params], str]:
    """Ask a client for several things at once, as far as it says that it answers them."""

    def run(ctx: Context, _: Params) -> str:
        questions = [_ASKED_AT_ONCE[key] for key in keys if _ASKED_AT_ONCE[key].method in ctx.answers]
        return str(ctx.ask_all(questions))

    return run


def _ask_then_work(ctx: Context, _: Params) -> str:
    answer = _asked(ctx, "user_name", _NAME)
    _work(ctx, _BECOMES_TASK_S)
    return f"worked for {answer.get('name')}"


_TASK = CallFacts("optional", may_ask=True)
_REQUIRED_TASK = CallFacts("required", may_ask=True)
_QUESTION = CallFacts(None, may_ask=True)
RUNNING: dict[str, tuple[CallFacts, Callable[[Context, Params], str]]] = {
    "greet": (CallFacts(None, may_ask=False), lambda _, arguments: f"Hello, {arguments.get('name')}!"),
    "slow_compute": (_TASK, _slow_compute),
    "failing_job": (_REQUIRED_TASK, _failing_job),
    "protocol_error_job": (_TASK, _protocol_error_job),
    "confirm_delete": (_TASK, _confirm_delete),
    "multi_input": (_TASK, _multi_input),
    "test_tool_with_task": (_REQUIRED_TASK, _ask_then_work),
    "test_input_required_result_elicitation": (_QUESTION, _asked_once("user_name", _NAME)),
    "test_input_required_result_request_state": (_QUESTION, _asked_once("confirm", _OK)),
    "test_input_required_result_tampered_state": (_QUESTION, _asked_once("confirm", _OK)),
    "test_input_required_result_multi_round": (_QUESTION, _asked_twice),
    "test_input_required_result_list_roots": (_QUESTION, _ask_for("client_roots")),
    "test_input_required_result_sampling": (_QUESTION, _ask_for("greeting")),
    "test_input_required_result_multiple_inputs": (_QUESTION, _ask_for("user_name", "greeting", "client_roots")),
    "test_input_required_result_capabilities": (_QUESTION, _ask_for("user_name", "greeting")),
    **{name: (_QUESTION, _asked_by_form(name)) for name in ELICITATION_FORMS},
}


class FixtureMethods(Methods):
    """Our methods, and the suite's fixtures beside what they serve."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(gate)
        self._long_calls.patience_s = _PATIENCE_S

    def input_schema(self, tool: str) -> Params | None:
        return SCHEMAS.get(tool) or super().input_schema(tool)

    def call_facts(self, name: str, session: Session | None = None) -> CallFacts:
        return RUNNING[name][0] if name in RUNNING else super().call_facts(name, session)

    def may_ask(self, method: object, params: Params, session: Session | None = None) -> bool:
        return params.get("name") == ASKING_PROMPT or super().may_ask(method, params, session)

    def _list_tools(self, request: Request) -> Params:
        listed = super()._list_tools(request)
        made_up = [
            {"name": name, "description": "a fixture", "inputSchema": SCHEMAS.get(name, _NO_ARGUMENTS)}
            for name in (*CONTENTS, *OTHER_TOOLS, *RUNNING)
        ]
        return {**listed, "tools": [*listed["tools"], *made_up]}

    def run_tool(self, request: Request, ctx: Context) -> Params:
        name = request.params["name"]
        if name == "test_error_handling":
            return {"content": [_text("This tool intentionally returns an error for testing")], "isError": True}
        if name == "test_missing_capability":
            _require_sampling(request)
        if name == "test_tool_with_progress" and "progressToken" in request.params.get("_meta", {}):
            for done in (0, 50, 100):
                request.progress({"progress": done, "total": 100})
        if name in CONTENTS:
            return {"content": CONTENTS[name], "isError": False}
        if name not in RUNNING:
            return super().run_tool(request, ctx)
        try:
            return {"content": [_text(RUNNING[name][1](ctx, request.params.get("arguments") or {}))], "isError": False}
        except (RuntimeError, Cancelled) as exc:
            return {"content": [_text(str(exc))], "isError": True}

    def _list_resources(self, request: Request) -> Params:
        listed = [
            {"uri": "test://static-text", "name": "text", "mimeType": "text/plain"},
            {"uri": "test://static-binary", "name": "binary", "mimeType": "image/png"},
        ]
        return _with(super()._list_resources(request), "resources", listed)

    def _list_templates(self, request: Request) -> Params:
        template = {"uriTemplate": "test://template/{id}/data", "name": "template", "mimeType": "application/json"}
        return _with(super()._list_templates(request), "resourceTemplates", [template])

    def _read_resource(self, request: Request) -> Params:
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
            return super()._read_resource(request)
        return {"contents": [content], **self._cacheable(request)}

    def _list_prompts(self, request: Request) -> Params:
        listed = [
            {
                "name": name,
                "description": "a fixture",
                "arguments": [{"name": argument, "description": "any", "required": True} for argument in arguments],
            }
            for name, arguments in {**PROMPTS, ASKING_PROMPT: list[str]()}.items()
        ]
        return _with(super()._list_prompts(request), "prompts", listed)

    def get_prompt(self, request: Request, ctx: Context) -> Params:
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
        if name == ASKING_PROMPT:
            answer = _asked(ctx, "user_context", _form(context={"type": "string"}), "What context?")
            contents[name] = [_text(f"In the context of {answer.get('context')}")]
        if name not in contents:
            return super().get_prompt(request, ctx)
        return {"messages": [{"role": "user", "content": content} for content in contents[name]]}

    def _complete(self, request: Request) -> Params:
        if cast(Params, request.params.get("ref") or {}).get("name") in PROMPTS:
            return {"completion": {"values": [], "total": 0, "hasMore": False}}
        return super()._complete(request)


def _with(page: Params, what: str, made_up: list[Params]) -> Params:
    """The last page of a list, with the fixtures at its end."""
    return page if "nextCursor" in page else {**page, what: [*page[what], *made_up]}


def _require_sampling(request: Request) -> None:
    meta = cast(Params, request.params.get("_meta", {}))
    if "sampling" not in cast(Params, meta.get(CAPABILITIES_KEY, {})):
        raise _missing("sampling")


def _missing(capability: str) -> ProtocolError:
    required: Params = {"requiredCapabilities": {capability: {}}}
    return ProtocolError(MISSING_CAPABILITY, f"this tool needs {capability}", required)
