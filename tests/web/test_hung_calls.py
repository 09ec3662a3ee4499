"""Calls over HTTP that hang in a file system: they are answered, and what they hold is free for others."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from llmc_mcp.config.schema import Limits

from ..support.http_server import OPEN_HANDED, HttpServer
from ..support.hung_mount import CONTENT, HangingMount
from ..support.workspace import Workspace

VERSION, CAPABILITIES = "io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities"
STATELESS: dict[str, Any] = {VERSION: "2026-07-28", CAPABILITIES: {}}
HUNG = {"path": "hung/there.txt"}


@pytest.fixture
def impatient(workspace: Workspace, mount: HangingMount) -> Iterator[HttpServer]:
    """A server whose calls have little time, on a workspace with a mount that is about to hang."""
    workspace.file("a.txt", "at hand\n")
    with HttpServer(workspace.root, *OPEN_HANDED, "--set", "tools.read_timeout=1") as server:
        try:
            assert server.tool("read_file", **HUNG).json()["data"].encode() == CONTENT
            yield server
        finally:
            mount.end()  # or the server can't leave


def by_rest(server: HttpServer) -> dict[str, Any]:
    reply = server.tool("stat", **HUNG)
    assert reply.status_code == 504
    return reply.json()


def by_mcp(server: HttpServer, params: dict[str, Any], headers: dict[str, str], accept: str) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    with server.client() as client:
        reply = client.post("/mcp", json=message, headers={"accept": accept, **headers})
    data = reply.text if reply.text.startswith("{") else reply.text.rpartition("data: ")[2]
    result = json.loads(data)["result"]
    assert result["isError"]
    return json.loads(result["content"][0]["text"])


def of_handshake_era(server: HttpServer) -> dict[str, Any]:
    version = {"mcp-protocol-version": "2025-11-25"}
    return by_mcp(server, {"name": "stat", "arguments": HUNG}, version, "application/json, text/event-stream")


def of_handshake_era_with_progress(server: HttpServer) -> dict[str, Any]:
    params = {"name": "stat", "arguments": HUNG, "_meta": {"progressToken": 1}}
    return by_mcp(server, params, {"mcp-protocol-version": "2025-11-25"}, "application/json, text/event-stream")


def of_stateless_era(server: HttpServer) -> dict[str, Any]:
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "stat"}
    params = {"name": "stat", "arguments": HUNG, "_meta": STATELESS}
    return by_mcp(server, params, headers, "application/json, text/event-stream")


def of_a_client_that_asks_its_user(server: HttpServer) -> dict[str, Any]:
    hello: dict[str, Any] = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "c", "version": "1"},
    }
    with server.client() as client:
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        begun = client.post("/mcp", json=message, headers={"accept": "application/json, text/event-stream"})
    headers = {"mcp-protocol-version": "2025-11-25", "mcp-session-id": begun.headers["mcp-session-id"]}
    params = {"name": "linux_fs_delete", "arguments": HUNG}
    return by_mcp(server, params, headers, "application/json, text/event-stream")


def test_as_many_calls_as_a_token_may_have_hang_and_the_next_ones_are_served(
    impatient: HttpServer, mount: HangingMount
) -> None:
    ways = (
        by_rest,
        of_handshake_era,
        of_handshake_era_with_progress,
        of_stateless_era,
        of_a_client_that_asks_its_user,
    )
    most = Limits().concurrency_per_token
    mount.hang()
    with ThreadPoolExecutor(most) as pool:
        hung = [pool.submit(ways[number % len(ways)], impatient) for number in range(most)]
        failures = [one.result() for one in hung]
    assert {failure["code"] for failure in failures} == {"TIMEOUT"}
    assert all("file system" in failure["hint"] for failure in failures)
    for _ in range(most + 1):  # the threads hang, but they hold nothing that a call needs
        assert impatient.tool("read_file", path="a.txt").json()["data"] == "at hand\n"
    given_up = {event["cid"] for event in impatient.events if event["event"] == "given_up"}
    assert given_up == {failure["correlation_id"] for failure in failures}
    mount.end()
    assert impatient.tool("read_file", path="a.txt").json()["data"] == "at hand\n"


def test_a_server_with_calls_that_hang_ends_when_it_is_told_to(impatient: HttpServer, mount: HangingMount) -> None:
    mount.hang()
    with ThreadPoolExecutor(1) as pool:
        hung = pool.submit(by_rest, impatient)
        while not any(event["event"] == "given_up" for event in impatient.events):
            assert impatient.process.poll() is None
            time.sleep(0.01)
        assert hung.result()["code"] == "TIMEOUT"
        mount.end()
        assert impatient.stop() == 0
