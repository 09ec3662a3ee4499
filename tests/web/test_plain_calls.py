"""Plain tool calls take a short way past the SDK and FastAPI; on the wire nobody can tell.

Two servers get the same requests. One of them leaves every request to the SDK and to FastAPI.
"""

import base64
import json
import random
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import pytest

from llmc_mcp.web.plain_calls import plain_call

from ..support.http_server import OPEN_HANDED, TOKEN, HttpServer
from ..support.workspace import Workspace

THE_LONG_WAY = """
import llmc_mcp.server, llmc_mcp.web.app, llmc_mcp.web.mcp
llmc_mcp.web.mcp.plain_call = lambda *_: None
llmc_mcp.web.app._tool_call = lambda _: None
llmc_mcp.server.main()
"""
WITHOUT_THE_SDK = """
import llmc_mcp.server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

async def refuse(*_):
    raise RuntimeError("the SDK was asked")

StreamableHTTPSessionManager.handle_request = refuse
llmc_mcp.server.main()
"""
BOTH = "application/json, text/event-stream"
CAPABILITIES, CLIENT = "io.modelcontextprotocol/clientCapabilities", "io.modelcontextprotocol/clientInfo"
VERSION = "io.modelcontextprotocol/protocolVersion"
META: dict[str, Any] = {VERSION: "2026-07-28", CAPABILITIES: {}, CLIENT: {"name": "c", "version": "1"}}
ODD = "".join(map(chr, range(1, 0x100))) + "\u2028\ud7ff\ufffd\U0001f600\n"

Headers = list[tuple[str, str]]


class Sent(NamedTuple):
    """A request."""

    headers: Headers
    body: bytes
    method: str = "POST"
    path: str = "/mcp"

    @property
    def wire(self) -> bytes:
        own = [("Host", "localhost"), ("X-LLMC-Token", TOKEN), ("X-Correlation-Id", "the-same-id"), *self.headers]
        lines = [f"{self.method} {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in own)]
        lines += ["Connection: close", f"Content-Length: {len(self.body)}", "", ""]
        return "\r\n".join(lines).encode("latin-1") + self.body

    @property
    def is_plain(self) -> bool:
        headers = [(name.lower().encode("latin-1"), value.strip().encode("latin-1")) for name, value in self.headers]
        try:
            message: object = msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        return plain_call({"headers": headers, "state": {"body": self.body}}, dict(headers), message) is not None


def handshake(params: object = None, /, **changes: Any) -> Sent:
    """A call of the handshake era; `accept`, `kind` and `version` are headers, the rest are fields of the message."""
    headers: Headers = [
        ("Accept", changes.pop("accept", BOTH)),
        ("Content-Type", changes.pop("kind", "application/json")),
    ]
    if (version := changes.pop("version", "2025-11-25")) is not None:
        headers.append(("MCP-Protocol-Version", version))
    headers += changes.pop("headers", [])
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params or STAT, **changes}
    return Sent(headers, json.dumps({key: value for key, value in message.items() if value is not ...}).encode())


def stateless(params: dict[str, Any] | None = None, /, **changes: Any) -> Sent:
    """A call of the stateless era, with its routing headers."""
    params = params or STAT
    headers: Headers = [("Mcp-Method", changes.pop("routed", "tools/call"))]
    if (name := changes.pop("name", params.get("name"))) is not None:
        headers.append(("Mcp-Name", str(name)))
    headers += changes.pop("headers", [])
    params = {"_meta": changes.pop("meta", META), **params}
    return handshake(params, version=changes.pop("version", "2026-07-28"), headers=headers, **changes)


STAT: dict[str, Any] = {"name": "stat", "arguments": {"path": "a.txt"}}


def reading(path: str) -> dict[str, Any]:
    return {"name": "read_file", "arguments": {"path": path}}


PLAIN: dict[str, Sent] = {
    **{f"handshake {version}": handshake(version=version) for version in ("2024-11-05", "2025-03-26", "2025-06-18")},
    "no version": handshake(version=None),
    "JSON only": handshake(accept="application/json"),
    "anything": handshake(accept="*/*"),
    "charset": handshake(kind="application/json; charset=utf-8"),
    "odd characters": handshake(reading("odd.txt")),
    "image": handshake(reading("image.png")),
    "failing": handshake(reading("/etc/passwd")),
    "no such tool": handshake({"name": "nothing", "arguments": {}}),
    "wrong arguments": handshake({"name": "stat", "arguments": {"path": 5}}),
    "no arguments": handshake({"name": "stat"}),
    "number as text": handshake(id="1"),
    "id of any letters": handshake(id="é\u2028\x01\U0001f600"),
    "negative id": handshake(id=-5),
    "long id": handshake(id=10**40),
    "some _meta": handshake({**STAT, "_meta": {"claude/toolUseId": "x", "n": 1.5}}),
    "bad agent": handshake({**STAT, "_meta": {"llmc/agentId": ["x"]}}),
    "stateless _meta in the handshake era": handshake({**STAT, "_meta": META}),
    "half of a stateless _meta": handshake({**STAT, "_meta": {VERSION: "2026-07-28"}}),
    "alias": handshake({"name": "linux.fs_stat", "arguments": {"path": "a.txt"}}),
    "unknown session": handshake(headers=[("Mcp-Session-Id", "0" * 56)]),
    "stateless": stateless(),
    "stateless, JSON only": stateless(accept="application/json"),
    "stateless, anything": stateless(accept="*/*"),
    "stateless, odd characters": stateless(reading("odd.txt")),
    "stateless, image": stateless(reading("image.png")),
    "stateless, failing": stateless(reading("/etc/passwd")),
    "stateless, no such tool": stateless({"name": "nothing"}),
    "stateless, id of any letters": stateless(id="é\u2028\x01\U0001f600"),
    "stateless, no client": stateless(meta={VERSION: "2026-07-28", CAPABILITIES: {"elicitation": {}}}),
    "stateless, bad agent": stateless(meta={**META, "llmc/agentId": ""}),
    "stateless, name in base64": stateless(name=f"=?base64?{base64.b64encode(b'stat').decode()}?="),
}

OTHER: dict[str, Sent] = {
    "progress": handshake({**STAT, "_meta": {"progressToken": 1}}, accept="application/json"),
    "stateless progress": stateless(meta={**META, "progressToken": 1}),
    "unknown version": handshake(version="2099-01-01"),
    "empty version": handshake(version=""),
    "two versions": handshake(headers=[("MCP-Protocol-Version", "2025-06-18")]),
    "two eras": handshake(headers=[("MCP-Protocol-Version", "2026-07-28")]),
    "two accepts": handshake(headers=[("Accept", "text/html")]),
    "HTML only": handshake(accept="text/html"),
    "stream only": handshake(accept="text/event-stream"),
    "no accept": handshake(accept=""),
    "a stream of another kind": stateless(accept="application/json, xtext/event-stream"),
    "another kind": handshake(kind="text/plain"),
    "capitals": handshake(kind="Application/JSON"),
    "another method": handshake({}, method="ping"),
    "list": handshake({}, method="tools/list"),
    "unknown method": handshake({}, method="tools/call/x"),
    "notification": handshake(id=...),
    "null id": handshake(id=None),
    "float id": handshake(id=1.0),
    "boolean id": handshake(id=True),
    "list id": handshake(id=[]),
    "another jsonrpc": handshake(jsonrpc="1.0"),
    "extra field": handshake(extra=1),
    "result": handshake(result={}),
    "params are a list": handshake([1]),
    "no params": handshake(params=...),
    "null params": handshake(params=None),
    "name is a number": handshake({"name": 5}),
    "no name": handshake({"arguments": {}}),
    "arguments are a list": handshake({**STAT, "arguments": []}),
    "null arguments": handshake({**STAT, "arguments": None}),
    "null _meta": handshake({**STAT, "_meta": None}),
    "_meta is a list": handshake({**STAT, "_meta": []}),
    "task": handshake({**STAT, "task": {"ttl": 1000}}),
    "unknown parameter": handshake({**STAT, "unknown": 1}),
    "GET": Sent([("Accept", BOTH)], b"", "GET"),
    "DELETE": Sent([("Accept", BOTH)], b"", "DELETE"),
    **{
        f"body {number}": handshake()._replace(body=body)
        for number, body in enumerate(
            (
                b"",
                b"{",
                b"[]",
                b"null",
                b"[" + handshake().body + b"]",
                handshake().body.replace(b'"a.txt"', b"NaN"),
                handshake().body.replace(b'"a.txt"', b"1e999"),
                handshake().body.replace(b'"a.txt"', b'"\\ud800"'),
                handshake().body.replace(b"a.txt", b"\xff"),
                handshake().body.replace(b'"a.txt"', b"[" * 180 + b"]" * 180),
                handshake().body.replace(b'"a.txt"', b"[" * 400 + b"]" * 400),
                handshake().body.replace(b'"a.txt"', b"[" * 50_000),
                b"\xef\xbb\xbf" + handshake().body,
            )
        )
    },
    "stateless without _meta": handshake(version="2026-07-28", headers=[("Mcp-Method", "tools/call")]),
    "stateless, no capabilities": stateless(meta={VERSION: "2026-07-28"}),
    "stateless, bad capabilities": stateless(meta={**META, CAPABILITIES: {"elicitation": 5}}),
    "stateless, no capabilities at all": stateless(meta={**META, CAPABILITIES: None}),
    "stateless, bad client": stateless(meta={**META, CLIENT: {"name": 5}}),
    "stateless, another version": stateless(meta={**META, VERSION: "2099-01-01"}),
    "stateless, unknown version": stateless(meta={**META, VERSION: "2099-01-01"}, version="2099-01-01"),
    "stateless, version is a number": stateless(meta={**META, VERSION: 5}),
    "stateless, another method": stateless(routed="tools/list"),
    "stateless, another name": stateless(name="read_file"),
    "stateless, no routing": handshake({**STAT, "_meta": META}, version="2026-07-28"),
    "stateless, two names": stateless(headers=[("Mcp-Name", "stat")]),
    "stateless, bad base64": stateless(name="=?base64?_?="),
    "stateless, parameter header": stateless(headers=[("Mcp-Param-Path", "a.txt")]),
    "stateless, answers": stateless({**STAT, "inputResponses": {}, "requestState": "x"}),
    "stateless, HTML only": stateless(accept="text/html"),
}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    made = Workspace(tmp_path_factory.mktemp("plain"))
    made.file("a.txt", "hello\n")
    made.file("odd.txt", ODD)
    made.file("image.png", b"\x89PNG\r\n\x1a\n" + bytes(200))
    return made


@pytest.fixture(scope="module")
def servers(workspace: Workspace) -> Iterator[tuple[HttpServer, HttpServer]]:
    data = {"LLMC_DATA_DIR": str(workspace.outside / "data")}
    with (
        HttpServer(workspace.root, *OPEN_HANDED, env=data) as ours,
        HttpServer(workspace.root, *OPEN_HANDED, env=data, program=("-c", THE_LONG_WAY)) as sdk,
    ):
        yield ours, sdk


def answers(servers: tuple[HttpServer, HttpServer], request: Sent) -> list[bytes]:
    """What both servers answer, without the time of day."""
    return [re.sub(rb"(?m)^date: .*$", b"", server.raw(request.wire)) for server in servers]


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_call_is_answered_as_the_sdk_answers_it(servers: tuple[HttpServer, HttpServer], name: str) -> None:
    assert PLAIN[name].is_plain
    ours, sdk = answers(servers, PLAIN[name])
    assert ours == sdk
    assert ours.startswith(b"HTTP/1.1 "), ours


@pytest.mark.parametrize("name", OTHER)
def test_any_other_request_is_left_to_the_sdk(servers: tuple[HttpServer, HttpServer], name: str) -> None:
    assert not OTHER[name].is_plain
    ours, sdk = answers(servers, OTHER[name])
    assert ours == sdk


def test_no_combination_tells_the_two_ways_apart(servers: tuple[HttpServer, HttpServer]) -> None:
    dice = random.Random(20)
    pool = [*PLAIN.values(), *OTHER.values()]
    plain = 0
    for _ in range(300):
        names = {name for name, _ in dice.choice(pool).headers}
        headers = [header for header in dice.choice(pool).headers if dice.random() < 0.9 or header[0] in names]
        request = Sent([*headers, *dice.choice(pool).headers[:: dice.choice((3, 9))]][: dice.randint(3, 9)], b"")
        request = dice.choice((request, dice.choice(pool)))._replace(body=dice.choice(pool).body)
        plain += request.is_plain
        ours, sdk = answers(servers, request)
        assert ours == sdk, request.wire
    assert plain > 20


def test_a_plain_call_never_reaches_the_sdk(workspace: Workspace) -> None:
    data = {"LLMC_DATA_DIR": str(workspace.outside / "data")}
    calls = [handshake(), handshake(accept="application/json"), stateless(), stateless(reading("odd.txt"))]
    with HttpServer(workspace.root, *OPEN_HANDED, env=data, program=("-c", WITHOUT_THE_SDK)) as server:
        for request in calls:
            assert b'"isError":false' in server.raw(request.wire), request
        assert server.raw(OTHER["stateless progress"].wire).startswith(b"HTTP/1.1 500")


def test_a_session_of_one_way_is_a_session_of_the_other(servers: tuple[HttpServer, HttpServer]) -> None:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    begun = servers[1].raw(handshake(hello, method="initialize").wire)
    found = re.search(rb"mcp-session-id: (\S+)", begun)
    assert found, begun
    request = handshake(headers=[("Mcp-Session-Id", found[1].decode())])
    assert request.is_plain
    ours, sdk = answers(servers, request)
    assert ours == sdk
    assert b'"isError":false' in ours


# --- REST ------------------------------------------------------------------------------------------------------------

CALLS: list[object] = [
    {"name": "stat", "args": {"path": "a.txt"}},
    {"name": "stat", "args": {"path": "a.txt"}, "session_id": "s"},
    {"name": "stat", "args": {"path": "a.txt"}, "session_id": "é" * 128},
    {"name": "read_file", "args": {"path": "odd.txt"}},
    {"name": "read_file", "args": {"path": "/etc/passwd"}},
    {"name": "stat", "args": {"path": 5}},
    {"name": "stat"},
    {"name": "nothing"},
    {"name": ""},
    {"name": "é" * 128},
    {"name": "x" * 129},
    {"name": "stat", "session_id": "x" * 129},
    {"name": "stat", "session_id": None},
    {"name": "stat", "args": None},
    {"name": "stat", "args": []},
    {"name": "stat", "args": {"a": 10**40, "b": 1.5e300, "c": [[{}]]}},
    {"name": "stat", "more": 1},
    {"name": 5},
    {},
    [],
    None,
    "stat",
]
BODIES = [
    *(json.dumps(call).encode() for call in CALLS),
    b"",
    b"{",
    b'{"name": "nothing", "name": "stat", "args": {"path": "a.txt"}}',
    b' {"name": "stat", "args": {"path": "a.txt"}} \n',
    b'{"name": "stat", "args": {"path": NaN}}',
    b'{"name": "stat", "args": {"path": 1e999}}',
    b'{"name": "stat", "args": {"path": "\\ud800"}}',
    b'{"name": "stat", "args": {"path": "\xff"}}',
    b'{"name": "stat", "args": {"path": ' + b"[" * 500 + b"]" * 500 + b"}}",
    b'{"name": "stat", "args": {"path": ' + b"[" * 50_000,
    b'\xef\xbb\xbf{"name": "stat"}',
]


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_a_call_by_rest_is_answered_as_fastapi_answers_it(servers: tuple[HttpServer, HttpServer], body: bytes) -> None:
    for kind in ("application/json", "Application/JSON; charset=utf-8"):
        ours, fastapi = answers(servers, Sent([("Content-Type", kind)], body, path="/tool"))
        assert ours == fastapi
        assert ours.startswith(b"HTTP/1.1 "), ours
