"""Attacks over HTTP: rebinding (E02), tokens (E03), forged requests (E04), other people's things (E05), secrets (E11),
the audit (E12), a command that calls back (E13), floods (E15)."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from llmc_mcp.errors import Forbidden
from llmc_mcp.web.auth import open_table
from llmc_mcp.web.guard import Hosts

from ..support.http_server import OPEN_HANDED, TOKEN, HttpServer
from ..support.workspace import SECRET, Workspace

CALL = {"name": "stat", "args": {"path": "."}}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    made = Workspace(tmp_path_factory.mktemp("attack"))
    made.file("a.txt", "".join(f"line {number}\n" for number in range(5000)))
    return made


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("attack-data")


@pytest.fixture(scope="module")
def second_token(data: Path) -> str:
    return open_table(str(data)).create("second", ("read", "write", "exec"))


@pytest.fixture(scope="module")
def served(workspace: Workspace, data: Path, second_token: str) -> Iterator[HttpServer]:
    del second_token
    with HttpServer(workspace.root, *OPEN_HANDED, env={"LLMC_DATA_DIR": str(data)}) as server:
        yield server


def call(client: httpx.Client, name: str, /, **arguments: Any) -> httpx.Response:
    return client.post("/tool", json={"session_id": "S", "name": name, "args": arguments})


# --- E02: a web page that rebinds its name to loopback ---------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "evil.test",
        "evil.test:8080",
        "127.0.0.1.evil.test",
        "localhost.evil.test:80",
        "evil.test@127.0.0.1",
        "192.168.0.1",
        "[2001:db8::1]:80",
        "",
    ],
)
def test_e02_a_foreign_host_is_refused_whatever_the_token(served: HttpServer, host: str) -> None:
    with served.client() as client:
        for path in ("/health", "/tool", "/mcp"):
            reply = client.post(path, json=CALL, headers={"host": host})
            assert (reply.status_code, reply.json()["code"]) == (403, "FORBIDDEN")


@pytest.mark.parametrize(
    "origin",
    ["http://evil.test", "null", "http://localhost.evil.test", "https://127.0.0.1:1", "file://", "http://127.0.0.1"],
)
def test_e02_a_foreign_origin_is_refused_whatever_the_token(served: HttpServer, origin: str) -> None:
    with served.client() as client:
        reply = client.post("/tool", json=CALL, headers={"origin": origin})
        assert (reply.status_code, reply.json()["code"]) == (403, "FORBIDDEN")
        assert "access-control-allow-origin" not in reply.headers
        preflight = client.options("/tool", headers={"origin": origin, "access-control-request-method": "POST"})
        assert preflight.status_code == 403


@pytest.mark.parametrize(
    ("request_line", "hosts", "status"),
    [
        ("/health", ("localhost", "evil.test"), 400),
        ("/health", ("evil.test", "localhost"), 400),
        ("/health", ("localhost", "localhost"), 400),
        ("http://evil.test/health", ("localhost",), 400),
        ("http://evil.test/health", ("evil.test",), 403),
        ("http://localhost@evil.test/health", ("localhost",), 400),
        ("http://localhost@evil.test/health", ("localhost@evil.test",), 403),
        ("HTTP://evil.test:80/health?http://localhost/", ("localhost",), 400),
        ("http://localhost/health", (), 400),
        ("http://LOCALHOST:80/health", ("localhost:80",), 200),
        ("/health?to=http://evil.test/", ("localhost",), 200),
    ],
)
def test_e02_a_request_names_one_server_and_that_is_ours(
    served: HttpServer, request_line: str, hosts: tuple[str, ...], status: int
) -> None:
    lines = [f"GET {request_line} HTTP/1.1", *(f"Host: {host}" for host in hosts), "Connection: close", "", ""]
    answer = served.raw("\r\n".join(lines).encode())
    assert int(answer.split()[1]) == status, answer


def test_e02_own_names_are_taken_and_others_when_the_operator_says_so() -> None:
    loopback = Hosts("127.0.0.1", (), ())
    for host in (b"127.0.0.1:80", b"localhost", b"LOCALHOST:99", b"[::1]:80", b"127.9.9.9"):
        loopback.check(host, None)
    public = Hosts("0.0.0.0", ("box.lan",), ("https://app.test",))
    for host in (b"192.168.0.1:80", b"box.lan", b"BOX.lan:8080"):
        public.check(host, None)
    assert public.check(b"box.lan", b"https://app.test") is True
    assert public.check(b"box.lan:80", b"http://box.lan:80") is True
    for host, origin in ((b"other.lan", None), (b"box.lan", b"https://other.test"), (None, None)):
        with pytest.raises(Forbidden):
            public.check(host, origin)


def test_e02_by_default_only_this_machine_can_connect(served: HttpServer) -> None:
    assert served.url.startswith("http://127.0.0.1:")
    hexadecimal = f":{served.port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = [row[1] for row in rows if row[3] == "0A" and row[1].endswith(hexadecimal)]
    assert listening == [f"0100007F{hexadecimal}"]


# --- E03: tokens and sessions ----------------------------------------------------------------------------------------


def test_e03_a_session_id_of_another_token_opens_nothing(served: HttpServer, second_token: str) -> None:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    accept = {"accept": "application/json"}
    with served.client() as first, served.client(second_token) as second, served.client("") as nobody:
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        session = first.post("/mcp", json=message, headers=accept).headers["mcp-session-id"]
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        headers = {**accept, "mcp-session-id": session}
        assert first.post("/mcp", json=listing, headers=headers).status_code == 200
        assert second.post("/mcp", json=listing, headers=headers).status_code == 404
        assert nobody.post("/mcp", json=listing, headers=headers).status_code == 401


def test_e03_session_ids_are_not_to_be_guessed(served: HttpServer) -> None:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    with served.client() as client:
        made = [
            client.post("/mcp", json=message, headers={"accept": "application/json"}).headers["mcp-session-id"]
            for _ in range(20)
        ]
    assert len({one[:24] for one in made}) == 20
    assert all(len(one.partition(".")[0]) == 56 for one in made)  # behind the dot: the client's own name


# --- E04: a browser made to post -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["text/plain", "text/plain; application/json", "multipart/form-data; boundary=x"])
def test_e04_what_a_form_of_another_site_can_send_is_refused(served: HttpServer, kind: str) -> None:
    with served.client() as client:
        for path in ("/tool", "/mcp", "/login", "/logout", "/invoke_agent"):
            reply = client.post(path, content=json.dumps(CALL), headers={"content-type": kind})
            assert reply.status_code == 415


# --- E05: other people's things --------------------------------------------------------------------------------------


def test_e05_a_handle_of_another_token_is_not_there(served: HttpServer, second_token: str) -> None:
    handle = served.tool("linux_fs_read", path="a.txt").json()["handle"]
    assert served.tool("linux_handle_read", handle=handle).status_code == 200
    with served.client(second_token) as second:
        foreign = call(second, "linux_handle_read", handle=handle)
        missing = call(second, "linux_handle_read", handle=handle[:-4] + "0000")
    assert foreign.status_code == missing.status_code == 404
    assert foreign.json()["message"].replace(handle, "") == missing.json()["message"].replace(handle[:-4] + "0000", "")


def test_e05_a_process_of_another_token_or_session_is_not_there(served: HttpServer, second_token: str) -> None:
    def send(client: httpx.Client, session: str, process: str) -> httpx.Response:
        body = {"session_id": session, "name": "linux_proc_send", "args": {"proc_id": process, "input": "x"}}
        return client.post("/tool", json=body)

    with served.client() as first, served.client(second_token) as second:
        started = call(first, "linux_proc_start", command="cat")
        if started.status_code in (422, 501):
            pytest.skip(started.json()["message"])
        process = started.json()["proc_id"]
        assert send(first, "S", process).status_code == 200
        assert send(first, "other", process).json()["code"] == "PROCESS_NOT_FOUND"
        assert send(second, "S", process).json()["code"] == "PROCESS_NOT_FOUND"
        call(first, "linux_proc_stop", proc_id=process)


# --- E11, E12: what is said and what is written down -----------------------------------------------------------------


def test_e11_no_error_tells_of_paths_outside_or_of_our_code(served: HttpServer, workspace: Workspace) -> None:
    with served.client() as client:
        replies = [
            call(client, "read_file", path=str(workspace.outside / "secret.txt")),
            call(client, "read_file", path="../outside/secret.txt"),
            call(client, "read_file", path="\x00"),
            client.post("/tool", content=b"{", headers={"content-type": "application/json"}),
            client.get("/docs/../../etc/passwd"),
            client.get("/%2e%2e/%2e%2e/etc/passwd"),
        ]
    for reply in replies:
        assert reply.status_code >= 400
        assert SECRET not in reply.text
        for word in ("Traceback", ".py", "site-packages", "root:x:"):
            assert word not in reply.text


def test_e12_neither_a_tool_nor_a_command_reaches_audit_or_token(served: HttpServer, data: Path) -> None:
    served.tool("linux_fs_write", path="noted.txt", content="x")
    (audit,) = (data / "audit").glob("*.jsonl")
    before = audit.read_bytes()
    assert b"noted.txt" in before
    for path in (audit, data / "llmc.db", data / "session.key"):
        assert served.tool("read_file", path=str(path)).status_code == 403
        assert served.tool("linux_fs_write", path=str(path), content="x").status_code == 403
        assert served.tool("linux_fs_delete", path=str(path)).status_code == 403
        ran = served.tool("run_cmd", command=["bash", "-c", f"cat {path}; echo forged >> {path}; rm -f {path}"])
        if ran.status_code == 200:
            assert ran.json()["data"]["stdout"] == ""
    assert audit.read_bytes().startswith(before)
    assert b"forged >>" not in audit.read_bytes().splitlines()[-1].replace(b"echo forged >> ", b"")
    assert all(json.loads(line)["tool"] for line in audit.read_bytes().splitlines())


# --- E13: a command that calls back ----------------------------------------------------------------------------------


def test_e13_a_command_cannot_reach_the_server_that_started_it(served: HttpServer) -> None:
    code = (
        "import socket,sys\n"
        "try:\n"
        f"    s = socket.create_connection(('127.0.0.1', {served.port}), 3)\n"
        "    s.sendall(b'GET /health HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n'); print('reached', s.recv(100))\n"
        "except OSError as exc:\n    print('refused', exc)\n"
    )
    ran = served.tool("run_cmd", command=["python3", "-c", code])
    if ran.status_code == 501:
        pytest.skip(ran.json()["message"])
    assert ran.json()["data"]["stdout"].startswith("refused"), ran.text


def test_e13_a_command_does_not_inherit_the_token(served: HttpServer) -> None:
    ran = served.tool("run_cmd", command=["env"])
    if ran.status_code == 501:
        pytest.skip(ran.json()["message"])
    assert TOKEN not in ran.text
    assert "LLMC_MCP_TOKEN" not in ran.text


# --- E15: floods -----------------------------------------------------------------------------------------------------


def test_e15_a_thousand_calls_at_once_are_answered_or_refused_and_others_are_served(
    workspace: Workspace, data: Path, second_token: str
) -> None:
    with HttpServer(workspace.root, env={"LLMC_DATA_DIR": str(data)}) as server:
        limits = httpx.Limits(max_connections=100)
        flooding = threading.Event()
        with server.client(limits=limits) as flood, server.client(second_token) as other:

            def one(_: int) -> int:
                reply = flood.post("/tool", json=CALL)
                flooding.set()
                return reply.status_code

            with ThreadPoolExecutor(50) as pool:
                answers = pool.map(one, range(1000))
                assert flooding.wait(30)
                calm = [call(other, "stat", path=".").status_code for _ in range(10)]
                statuses = list(answers)
        assert calm == [200] * 10
        assert set(statuses) == {200, 429}
        assert statuses.count(200) >= 20
        assert server.tool("stat", path=".").status_code in (200, 429)
        assert server.process.poll() is None


def test_a_body_in_pieces_of_any_size_means_the_same(served: HttpServer) -> None:
    body = json.dumps(CALL).encode()
    head = f"POST /tool HTTP/1.1\r\nHost: localhost\r\nX-LLMC-Token: {TOKEN}\r\nContent-Type: application/json\r\n"
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    chunked = served.raw(f"{head}Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + chunks)
    assert chunked.startswith(b"HTTP/1.1 200")
    smuggled = f"{head}Content-Length: 4\r\nContent-Length: 40\r\n\r\n".encode()
    assert b" 400 " in served.raw(smuggled + body).partition(b"\r\n")[0]
    assert served.tool("stat", path=".").status_code == 200
