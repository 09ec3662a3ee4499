"""A team's server as deploy/team has it: the replicas of the compose file, behind its nginx.conf, on one PostgreSQL.

There is no engine to run the compose file itself: its services are plain processes here, with its environment and its
proxy's configuration; only addresses and folders are the test's own.
"""

import re
import shutil
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2 as httpx
import pytest
import yaml
from mcp.client import Client as SdkClient
from mcp.client.streamable_http import streamable_http_client

from ..support.client import PATIENCE
from ..support.http_server import OPEN_HANDED, TOKEN, HttpServer
from ..support.postgres import Cluster
from ..support.workspace import require
from .image import REPOSITORY
from .proxies import Nginx, Proxy

TEAM = REPOSITORY / "deploy/team"
COMPOSE: dict[str, Any] = yaml.safe_load((TEAM / "docker-compose.yml").read_text())
REPLICAS = ("llmc-1", "llmc-2")


class TeamNginx(Nginx):
    """deploy/team/nginx.conf before replicas at these ports."""

    def __init__(self, folder: Path, *upstreams: int, sticky: bool = False) -> None:
        self._upstreams, self._sticky = upstreams, sticky
        super().__init__(folder, 0)

    def _settings(self, upstream: int) -> Path:
        site = (TEAM / "nginx.conf").read_text()
        for name, port in zip(REPLICAS, self._upstreams, strict=True):
            site, count = re.subn(f"server {name}:8080", f"server 127.0.0.1:{port}", site)
            assert count == 1
        if self._sticky:
            site, count = re.subn(r"#\+ ", "", site)
            assert count == 2
        site, count = re.subn(r"listen 8080;", f"listen 127.0.0.1:{self.port};", site)
        assert count == 1
        return self._main(site)

    def _shake_hands(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE):
            pass

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, token: str = "", **options: Any) -> httpx.Client:
        headers = {"X-LLMC-Token": token} if token else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE, trust_env=False, **options)


def replica(name: str, root: Path, store: str, **changed: str) -> HttpServer:
    """A replica with the environment of its service."""
    given: dict[str, str] = COMPOSE["services"][name]["environment"]
    own = {"LLMC_ROOT": str(root.parent / name), "LLMC_CONFIG": str(REPOSITORY / "deploy/container/llmc.toml")}
    own |= {"LLMC_MCP_STORE_URL": store, "LLMC_MCP_TOKEN": TOKEN, "LLMC_MCP_SERVER_ALLOWED_HOSTS": ""}
    own |= {"LLMC_MCP_SERVER_REPLICA_URL": "", **changed}  # as host and port say: 127.0.0.1, and any free one
    assert own.keys() <= {*given, *changed}
    return HttpServer(root, *OPEN_HANDED, "--host", "127.0.0.1", env={**given, **own})


class Team:
    """Two replicas and their proxy."""

    def __init__(self, one: HttpServer, two: HttpServer, proxy: Proxy) -> None:
        self.one, self.two, self.proxy = one, two, proxy

    def served(self) -> list[int]:
        """How many calls each replica has answered."""
        routes = [[event.get("route") for event in server.events] for server in (self.one, self.two)]
        return [sum(route in ("/tool", "/mcp") for route in seen) for seen in routes]


@pytest.fixture(scope="module")
def team(postgres: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    require(shutil.which("nginx") is not None, "nginx")
    tmp_path = tmp_path_factory.mktemp("team")
    (tmp_path / "root").mkdir()
    (tmp_path / "nginx").mkdir()
    store = postgres.fresh()
    with (
        replica("llmc-1", tmp_path / "root", store, LLMC_MCP_LIMITS_DRAIN_NOTICE="1") as one,
        replica("llmc-2", tmp_path / "root", store) as two,
        TeamNginx(tmp_path / "nginx", one.port, two.port) as proxy,
    ):
        yield Team(one, two, proxy)


def converse(proxy: Proxy, body: Callable[[SdkClient], Awaitable[None]]) -> None:
    """An official client's conversation at /mcp."""

    async def main() -> None:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with anyio.fail_after(2 * PATIENCE):
            async with (
                httpx.AsyncClient(headers=headers, timeout=PATIENCE, trust_env=False) as http,
                SdkClient(streamable_http_client(f"{proxy.url}/mcp", http_client=http)) as client,
            ):
                await body(client)

    anyio.run(main)


def test_a_conversation_goes_on_whichever_replica_a_message_reaches(team: Team) -> None:
    async def body(client: SdkClient) -> None:
        started = await client.call_tool("linux_proc_start", {"command": ["sed", "-u", "s/^/heard /"]})
        proc_id = re.findall(r"P_[0-9a-f]{16}", str(started.content))[0]
        for number in range(6):
            sent = {"proc_id": proc_id, "input": f"line {number}", "read_timeout_ms": 60_000}
            assert f"heard line {number}" in str((await client.call_tool("linux_proc_send", sent)).content)
        written = await client.call_tool("linux_fs_write", {"path": "a.txt", "content": "x\n"})
        undo_id = re.findall(r"undo_id\W+(\w+)", str(written.content))[0]
        undone = await client.call_tool("linux_fs_undo", {"undo_id": undo_id})
        assert not undone.is_error
        assert not (await client.call_tool("linux_proc_stop", {"proc_id": proc_id})).is_error

    converse(team.proxy, body)
    while min(team.served()) < 4:  # in turn; the log may be late
        pass


def test_a_session_may_stay_with_one_replica(team: Team, tmp_path: Path) -> None:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
    with TeamNginx(tmp_path, team.one.port, team.two.port, sticky=True) as proxy, proxy.client(TOKEN) as client:
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        session = client.post("/mcp", json=message, headers=headers).headers["mcp-session-id"]
        calls = {f"sticky-call-{number}" for number in range(6)}
        for cid in calls:
            message = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}
            own = {"Mcp-Session-Id": session, "X-Correlation-Id": cid}
            assert client.post("/mcp", json=message, headers={**headers, **own}).status_code == 200
    while sum(served := [_seen(server, calls) for server in (team.one, team.two)]) < len(calls):
        pass
    assert sorted(served) == [0, len(calls)]


def _seen(server: HttpServer, calls: set[str]) -> int:
    return sum(event["event"] == "http" and event.get("cid") in calls for event in server.events)


def test_a_page_signs_in_once_and_its_events_arrive_while_the_stream_is_open(team: Team) -> None:
    with team.proxy.client() as client:
        signed = client.post("/login", data={"token": TOKEN}, headers={"Origin": team.proxy.url})
        assert signed.status_code == 303
        assert {client.get("/ui").status_code for _ in range(4)} == {200}
        with client.stream("GET", "/ui/events") as events:
            assert next(events.iter_text()).startswith("retry:")


def test_what_is_between_replicas_is_not_for_clients(team: Team) -> None:
    with team.proxy.client(TOKEN) as client:
        assert client.post("/replica/call", json={}).status_code == 404
        assert client.get("/metrics").status_code == 404
        assert client.get("/ready").status_code == 200


def test_nobody_loses_a_call_when_a_replica_stops(team: Team) -> None:
    """The last one here: it has one replica left."""
    over, statuses = threading.Event(), list[int]()

    def call() -> None:
        with team.proxy.client(TOKEN) as client:
            while not over.is_set():
                body = {"name": "list_dir", "args": {"path": "."}}
                statuses.append(client.post("/tool", json=body).status_code)

    callers = [threading.Thread(target=call) for _ in range(3)]
    for caller in callers:
        caller.start()
    before = team.served()
    while min(now - then for now, then in zip(team.served(), before, strict=True)) < 5:
        pass
    assert team.one.stop(signal.SIGTERM) == 0
    seen = len(statuses)
    while len(statuses) < seen + 30:
        pass
    over.set()
    for caller in callers:
        caller.join(PATIENCE)
    assert set(statuses) == {200}, team.proxy.log


# --- the files -------------------------------------------------------------------------------------------------------


def test_the_compose_file_opens_nothing_that_nobody_asked_for() -> None:
    services = COMPOSE["services"]
    assert list(services) == [*REPLICAS, "db", "proxy"]
    assert [name for name, service in services.items() if "ports" in service] == ["proxy"]
    assert services["proxy"]["ports"] == ["${LLMC_BIND:-127.0.0.1}:8080:8080"]
    for name in REPLICAS:
        service = services[name]
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert any(volume.endswith(":/workspace:${HOST_REPO_MODE:-ro}") for volume in service["volumes"])
        assert service["environment"]["LLMC_MCP_SERVER_REPLICA_URL"] == f"http://{name}:8080"
        limits = service["environment"]
        drain = float(limits["LLMC_MCP_LIMITS_DRAIN_NOTICE"]) + float(limits["LLMC_MCP_LIMITS_DRAIN_TIMEOUT"])
        assert float(service["stop_grace_period"].removesuffix("s")) >= drain + 15
        for secret in ("LLMC_MCP_TOKEN", "LLMC_MCP_STORE_URL"):
            assert ":?" in limits[secret]  # without one it does not start
