"""The samples for nginx and Caddy: a real proxy with TLS, and clients that talk through it."""

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2 as httpx
import pytest
from mcp.client import Client as SdkClient
from mcp.client.streamable_http import streamable_http_client

from llmc_mcp import __version__

from ..support.client import PATIENCE
from ..support.http_server import OPEN_HANDED, TOKEN, UNHURRIED, HttpServer, endless
from ..support.workspace import require
from .proxies import NAME, Caddy, Nginx, Proxy

LIST = {"name": "list_dir", "args": {"path": "."}}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("root")
    (made / "hello.txt").write_text("through a proxy\n")
    return made


@pytest.fixture(scope="module")
def served(root: Path) -> Iterator[HttpServer]:
    """A server that knows its public name."""
    with HttpServer(root, *OPEN_HANDED, *UNHURRIED, "--set", f"server.allowed_hosts={NAME}") as server:
        yield server


@pytest.fixture(scope="module", params=[Nginx, Caddy], ids=["nginx", "caddy"])
def kind(request: pytest.FixtureRequest) -> type[Proxy]:
    require(shutil.which(request.param.program) is not None, request.param.program)
    return request.param


@pytest.fixture(scope="module")
def proxy(kind: type[Proxy], served: HttpServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with kind(tmp_path_factory.mktemp(kind.program), served.port) as running:
        yield running


@pytest.fixture(autouse=True)
def name_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """The public name leads to this machine."""
    real = socket.getaddrinfo

    def resolve(host: Any, *arguments: Any, **options: Any) -> Any:
        ours = host in (NAME, NAME.encode())
        return real("127.0.0.1" if ours else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


def test_rest_goes_through_with_tls_and_the_servers_answers_come_back(proxy: Proxy) -> None:
    with proxy.client(TOKEN) as client:
        done = client.post("/tool", json=LIST, headers={"X-Correlation-Id": "proxy-test-1"})
        assert done.json()["data"] == ["hello.txt"]
        assert done.headers["x-correlation-id"] == "proxy-test-1"
        assert "max-age" in done.headers["strict-transport-security"]
        assert client.get("/health").json() == {"ok": True, "version": "v0", "server": __version__}
    with proxy.client("wrong") as client:
        refused = client.post("/tool", json=LIST)
        assert (refused.status_code, refused.json()["code"]) == (401, "AUTH_FAILED")


def converse(proxy: Proxy, body: Any) -> None:
    """An official client's conversation at /mcp."""

    async def main() -> None:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with anyio.fail_after(2 * PATIENCE):
            async with (
                httpx.AsyncClient(
                    headers=headers, verify=proxy.trust(), http2=False, timeout=PATIENCE, trust_env=False
                ) as http,
                SdkClient(streamable_http_client(f"{proxy.url}/mcp", http_client=http)) as client,
            ):
                await body(client)

    anyio.run(main)


def test_the_official_client_lists_and_calls(proxy: Proxy) -> None:
    async def body(client: SdkClient) -> None:
        assert "read_file" in {tool.name for tool in (await client.list_tools()).tools}
        result = await client.call_tool("read_file", {"path": "hello.txt"})
        assert "through a proxy" in str(result.content)

    converse(proxy, body)


def test_progress_arrives_while_a_call_runs_and_hanging_up_ends_the_call(
    proxy: Proxy, served: HttpServer, root: Path
) -> None:
    lines = 11 if isinstance(proxy, Nginx) else 12

    async def body(client: SdkClient) -> None:
        told = anyio.Event()

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            told.set()

        arguments = {**endless(root), "max_lines": lines}  # ends only when somebody ends it
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: client.call_tool("read_file", arguments, progress_callback=progress))
            await told.wait()
            group.cancel_scope.cancel()

    converse(proxy, body)
    (root / "endless.txt").unlink()
    assert _outcome(served, f"max_lines={lines}") == "CANCELLED"


def _outcome(served: HttpServer, argument: str) -> str:
    """What came of a call, once the server has recorded it."""
    for _ in range(2000):
        for call in served.tool("linux_mcp_recent_calls", tool_name="read_file").json()["calls"]:
            if argument in call["args_summary"]:
                return call["status"]
    raise AssertionError("the call goes on")


def test_what_is_too_long_is_refused_before_it_reaches_a_tool(proxy: Proxy, served: HttpServer) -> None:
    marked = {"X-Correlation-Id": f"too-long-{proxy.program}", "Content-Type": "application/json"}
    with proxy.client(TOKEN) as client:
        assert client.post("/tool", json=LIST, headers={**marked, "X-Long": "x" * 30_000}).status_code in (400, 431)
    with proxy.client(TOKEN) as client:
        # Caddy passes on what it has read so far, and the server may be the first to say that it is enough.
        answers = (413,) if isinstance(proxy, Nginx) else (413, 502)
        assert client.post("/tool", content=b" " * (17 << 20), headers=marked).status_code in answers
    told = [event for event in served.events if event.get("cid") == marked["X-Correlation-Id"]]
    assert not [event for event in told if event["event"] == "tool" or event.get("status") == 200]


def test_metrics_are_not_for_the_public(proxy: Proxy) -> None:
    with proxy.client(TOKEN) as client:
        assert client.get("/metrics").status_code == 404


def test_without_tls_a_browser_is_sent_to_where_there_is(proxy: Proxy) -> None:
    with httpx.Client(trust_env=False, timeout=PATIENCE) as client:
        sent = client.get(f"http://{NAME}:{proxy.plain_port}/docs")
    assert sent.status_code in (301, 308)
    assert sent.headers["location"].startswith(f"https://{NAME}")


def test_a_browser_signs_in_and_its_cookie_never_travels_without_tls(proxy: Proxy) -> None:
    with proxy.client() as client:
        signed = client.post("/login", data={"token": TOKEN}, headers={"Origin": proxy.url})
        assert signed.status_code == 303
        assert "; Secure" in signed.headers["set-cookie"]
        assert client.get("/docs").status_code == 200
        stranger = client.post("/tool", json=LIST, headers={"Origin": "https://evil.example"})
        assert stranger.status_code == 403


def test_a_name_that_the_server_was_not_told_is_refused_with_the_setting_to_use(
    served: HttpServer, tmp_path: Path
) -> None:
    require(shutil.which("nginx") is not None, "nginx")  # which passes on whatever name it was called by
    with Nginx(tmp_path, served.port) as proxy, proxy.client(TOKEN) as client:
        refused = client.get("/health", headers={"Host": "other.example"})
    assert refused.status_code == 403
    assert "mcp.server.allowed_hosts" in refused.json()["hint"]
