"""The port itself: limits while reading, slow clients, crowds, and a polite end."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path

import msgspec
import pytest

from llmc_mcp.gate.rate_limit import Bucket

from ..support.client import PATIENCE, exit_code
from ..support.forked import LLMC, ForkedServer
from ..support.http_server import OPEN_HANDED, TOKEN, UNHURRIED, HttpServer, endless
from ..support.processes import processes_with
from ..support.signals import obeying_hang_ups
from ..support.talk import eventually
from ..support.workspace import Workspace

HEAD = f"POST /tool HTTP/1.1\r\nHost: localhost\r\nX-LLMC-Token: {TOKEN}\r\nContent-Type: application/json\r\n"
STAT = {"name": "stat", "args": {"path": "."}}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("http"))


TIGHT = (
    *("--set", "limits.max_request_bytes=1000", "--set", "limits.max_header_bytes=2000"),
    *("--set", "limits.receive_timeout=0.3", "--set", "tools.idle_timeout=1", "--set", "limits.max_connections=20"),
)


@pytest.fixture(scope="module")
def tight(workspace: Workspace) -> Iterator[HttpServer]:
    with HttpServer(workspace.root, *OPEN_HANDED, *TIGHT) as server:
        yield server


def code_in(answer: bytes) -> tuple[int, str]:
    """Status and error code of a raw answer, which must be a whole one with our envelope."""
    head, _, body = answer.partition(b"\r\n\r\n")
    envelope = json.loads(body)
    assert f"x-correlation-id: {envelope['correlation_id']}".encode() in head.lower()
    return int(head.split()[1]), envelope["code"]


# --- sizes ---------------------------------------------------------------------------------------------------------


def test_a_body_that_is_announced_too_long_is_refused_before_it_is_sent(tight: HttpServer) -> None:
    answer = tight.raw(f"{HEAD}Content-Length: 1001\r\n\r\n".encode())
    assert code_in(answer) == (413, "TOO_LARGE")


def test_a_body_that_grows_too_long_is_refused_while_it_is_read(tight: HttpServer) -> None:
    chunk = b"200\r\n" + b"x" * 512 + b"\r\n"
    answer = tight.raw(f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode(), chunk, chunk)
    assert code_in(answer) == (413, "TOO_LARGE")


def test_a_body_up_to_the_limit_is_taken(tight: HttpServer) -> None:
    body = json.dumps(STAT).encode().ljust(1000)
    answer = tight.raw(f"{HEAD}Connection: close\r\nContent-Length: 1000\r\n\r\n".encode(), body)
    assert answer.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("parts", [1, 3])
def test_headers_that_are_too_long_are_refused(tight: HttpServer, parts: int) -> None:
    long = b"X-Long: " + b"y" * 900 + b"\r\n"
    pieces = [HEAD.encode(), *[long] * 3, b"\r\n"]
    sent = pieces if parts > 1 else [b"".join(pieces)]
    with socket.create_connection(("127.0.0.1", tight.port), timeout=PATIENCE) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for piece in sent:
                connection.sendall(piece)
            answer = connection.recv(65_536)
        except ConnectionError:
            return  # refused in mid-sentence
    assert code_in(answer) == (413, "TOO_LARGE")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"hello\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET /health HTTP/1.1\r\nHost localhost\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /tool HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
def test_what_is_not_http_gets_the_envelope_too(tight: HttpServer, request_bytes: bytes) -> None:
    status, code = code_in(tight.raw(request_bytes))
    assert (status, code) in ((400, "BAD_ARGS"), (401, "AUTH_FAILED"))


def test_a_websocket_is_not_served(tight: HttpServer) -> None:
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n"
    request = f"GET /mcp HTTP/1.1\r\nHost: localhost\r\nX-LLMC-Token: {TOKEN}\r\n{upgrade}\r\n".encode()
    with socket.create_connection(("127.0.0.1", tight.port), timeout=PATIENCE) as connection:
        connection.sendall(request)
        assert b" 405 " in connection.recv(4096).partition(b"\r\n")[0]


# --- slow and idle clients -----------------------------------------------------------------------------------------


def test_a_client_that_is_slow_with_its_headers_is_told_and_left(tight: HttpServer) -> None:
    assert code_in(tight.raw(b"GET /health HTTP/1.1\r\nHost: loc")) == (408, "TIMEOUT")


def test_a_client_that_is_slow_with_its_body_is_told_and_left(tight: HttpServer) -> None:
    answer = tight.raw(f"{HEAD}Content-Length: 100\r\n\r\n".encode(), b"{")
    assert code_in(answer) == (408, "TIMEOUT")


def test_a_client_that_does_nothing_is_left(tight: HttpServer) -> None:
    assert tight.raw() == b""
    answer = tight.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")  # returns once the server hangs up
    assert answer.endswith(b'{"ok":true,"version":"v0"}')
    assert tight.raw(b"\r\n\r\n") == b""  # empty lines keep nothing alive


def test_connections_are_counted(tight: HttpServer) -> None:
    crowd = [socket.create_connection(("127.0.0.1", tight.port), timeout=PATIENCE) for _ in range(30)]
    try:
        refused = [connection for connection in crowd if connection.recv(4096)]
        assert len(refused) >= 10
    finally:
        for connection in crowd:
            connection.close()


def test_slow_clients_do_not_keep_others_waiting(workspace: Workspace) -> None:
    with HttpServer(workspace.root, *OPEN_HANDED, "--set", "limits.receive_timeout=60") as server:
        crowd = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(100)]
        for connection in crowd:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: local")
        assert server.tool("stat", path=".").status_code == 200
        for connection in crowd:
            connection.close()


# --- rates ---------------------------------------------------------------------------------------------------------


def test_a_bucket_holds_a_burst_and_refills_with_time() -> None:
    bucket = Bucket(10, 3, now=0.0)
    assert [bucket.take(0.0) for _ in range(3)] == [0, 0, 0]
    assert bucket.take(0.0) == pytest.approx(0.1)
    assert bucket.take(0.05) == pytest.approx(0.05)
    assert bucket.take(0.1) == 0
    assert bucket.take(0.1) == pytest.approx(0.1)
    assert [bucket.take(100.0) for _ in range(4)][:3] == [0, 0, 0]
    assert bucket.take(50.0) > 0  # a clock that runs backwards gives nothing


def test_beyond_rate_and_burst_there_is_429_with_retry_after(workspace: Workspace) -> None:
    settings = ("--set", "limits.rate_limit_rps=0.001", "--set", "limits.rate_limit_burst=3")
    with HttpServer(workspace.root, *settings) as server, server.client() as client:
        replies = [client.post("/tool", json=STAT) for _ in range(5)]
        assert [reply.status_code for reply in replies] == [200, 200, 200, 429, 429]
        assert replies[3].json()["code"] == "RATE_LIMITED"
        assert 900 <= int(replies[3].headers["retry-after"]) <= 1000
        mcp = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "stat", "arguments": {"path": "."}},
        }
        limited = client.post("/mcp", json=mcp, headers={"accept": "application/json"}).json()["result"]
        assert limited["isError"]
        assert "RATE_LIMITED" in limited["content"][0]["text"]
        assert client.get("/health").status_code == 200


def test_calls_made_by_code_count_once(workspace: Workspace) -> None:
    settings = ("--set", "limits.rate_limit_rps=0.001", "--set", "limits.rate_limit_burst=2")
    with HttpServer(workspace.root, *settings) as server:
        made = server.tool("execute_code", code="[stat('.') for _ in range(20)]\n'done'").json()
        assert (made["result"], made["tool_calls"]) == ("done", 20)
        assert server.tool("stat", path=".").status_code == 200
        assert server.tool("stat", path=".").status_code == 429


def test_so_many_calls_of_a_token_run_at_once_over_http(workspace: Workspace) -> None:
    settings = (*OPEN_HANDED, *UNHURRIED, "--set", "limits.concurrency_per_token=2")
    arguments = endless(workspace.root)
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    with HttpServer(workspace.root, *settings) as server:
        busy = [HTTPConnection("127.0.0.1", server.port) for _ in range(2)]
        for connection in busy:
            connection.request("POST", "/tool", json.dumps({"name": "read_file", "args": arguments}), headers)
        while server.tool("stat", path=".").status_code == 200:
            pass
        refused = server.tool("stat", path=".")
        assert (refused.status_code, refused.json()["code"]) == (429, "RATE_LIMITED")
        assert "2 calls of this token" in refused.json()["message"]
        for connection in busy:
            connection.close()  # hangs up, which takes the calls back
        assert eventually(lambda: server.tool("stat", path=".").status_code == 200)


# --- the end -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_told_to_stop_the_server_finishes_what_is_under_way(workspace: Workspace, number: int) -> None:
    with HttpServer(workspace.root, "--set", "tools.read_timeout=2") as server:
        replies: list[int] = []
        arguments = endless(workspace.root)
        caller = threading.Thread(
            target=lambda: replies.append(server.tool("read_file", **arguments).status_code), daemon=True
        )
        caller.start()
        with server.client() as client:
            while b"llmc_calls_under_way 1" not in client.get("/metrics").content:
                pass
        assert server.stop(number) == 0
        caller.join(PATIENCE)
        assert replies == [504]  # its own time was up: nobody cut it off


def test_what_does_not_finish_is_taken_back_and_the_exit_is_clean(workspace: Workspace) -> None:
    with HttpServer(workspace.root, *UNHURRIED, "--set", "limits.drain_timeout=1") as server:
        arguments = endless(workspace.root)
        replies: list[str] = []
        caller = threading.Thread(target=lambda: replies.append(server.tool("read_file", **arguments).text))
        caller.start()
        with server.client() as client:
            while b"llmc_calls_under_way 1" not in client.get("/metrics").content:
                pass
        assert server.stop() == 0
        caller.join(PATIENCE)
        assert "the server is stopping" in replies[0]


def test_a_server_that_stops_is_unready_first_and_serves_until_proxies_have_noticed(workspace: Workspace) -> None:
    with HttpServer(workspace.root, "--set", "limits.drain_notice=600") as server, server.client() as client:
        assert client.get("/ready").status_code == 200
        server.process.send_signal(signal.SIGTERM)
        while client.get("/ready").status_code == 200:
            pass
        assert client.get("/ready").json() == {"ready": False, "reason": "the server is stopping"}
        assert client.get("/health").status_code == 200  # it lives: nobody should restart it
        done = server.tool("stat", path=".")
        assert (done.status_code, done.headers["connection"]) == (200, "close")
        assert server.stop() == 0  # a second signal: at once


def test_a_server_that_stops_refuses_new_calls_and_waits_for_those_under_way(workspace: Workspace) -> None:
    with HttpServer(workspace.root, *UNHURRIED, "--set", "limits.drain_timeout=600") as server:
        arguments = endless(workspace.root)
        body = msgspec.json.encode({"session_id": "S", "name": "read_file", "args": arguments})
        head = f"POST /tool HTTP/1.1\r\nHost: localhost\r\nX-LLMC-Token: {TOKEN}\r\nContent-Type: application/json\r\n"
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as under_way:
            under_way.sendall(head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
            with server.client() as client:
                while b"llmc_calls_under_way 1" not in client.get("/metrics").content:
                    pass
                server.process.send_signal(signal.SIGTERM)
                while (refused := server.tool("stat", path=".")).status_code == 200:
                    pass
                assert (refused.status_code, refused.json()["code"]) == (503, "SHUTTING_DOWN")
                assert (refused.headers["retry-after"], refused.headers["connection"]) == ("1", "close")
                assert client.get("/ready").status_code == 503
                assert client.get("/health").status_code == 200
            assert server.process.poll() is None
        assert exit_code(server.process) == 0  # the call's client hung up, so nothing is left to wait for


def test_a_hangup_reloads_limits_and_stops_nothing(workspace: Workspace, tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text("[mcp.limits]\nrate_limit_burst = 1000\n")
    with obeying_hang_ups():
        started = HttpServer(workspace.root, "--config", str(settings), "--log-level", "info")
    with started as server:
        assert server.tool("stat", path=".").status_code == 200
        settings.write_text("[mcp.limits]\nrate_limit_burst = 1\nrate_limit_rps = 0.001\n")
        server.process.send_signal(signal.SIGHUP)
        assert eventually(lambda: '"event":"reload"' in server.log)
        assert [server.tool("stat", path=".").status_code for _ in range(2)] == [200, 429]
        settings.write_text("[mcp.limits]\nrate_limit_burst = 0\n")
        server.process.send_signal(signal.SIGHUP)
        assert eventually(lambda: "refused" in server.log)
        assert server.tool("stat", path=".").status_code == 429
        assert server.stop() == 0


def test_a_server_whose_store_is_gone_is_not_ready(workspace: Workspace, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with HttpServer(workspace.root, env={"LLMC_DATA_DIR": str(data)}) as server, server.client("") as client:
        assert client.get("/ready").status_code == 200
        for file in data.glob("llmc.db*"):
            file.unlink()
        (data / "llmc.db").write_bytes(b"no database any more" * 1000)
        reply = client.get("/ready")
        assert (reply.status_code, reply.json()) == (503, {"ready": False})
        with server.client() as operator:
            assert "store" in operator.get("/ready").json()["reason"]


def test_a_server_whose_store_lacks_a_table_is_not_ready(workspace: Workspace, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with HttpServer(workspace.root, env={"LLMC_DATA_DIR": str(data)}) as server, server.client() as operator:
        assert operator.get("/ready").json() == {"ready": True}
        with closing(sqlite3.connect(data / "llmc.db")) as store:
            store.execute("DROP TABLE approvals")
        reply = operator.get("/ready")
        assert reply.status_code == 503
        assert "approvals" in reply.json()["reason"]


def test_open_pages_do_not_keep_a_server_from_ending(workspace: Workspace) -> None:
    with (
        HttpServer(workspace.root) as server,
        server.client() as client,
        client.stream("GET", "/ui/events") as stream,
    ):
        assert next(stream.iter_lines()).startswith("retry")
        assert server.stop() == 0


def test_a_server_under_nohup_outlives_its_terminal(workspace: Workspace) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does it: a child inherits that
    try:
        server = HttpServer(workspace.root)
    finally:
        signal.signal(signal.SIGHUP, before)
    with server:
        server.process.send_signal(signal.SIGHUP)
        assert server.tool("stat", path=".").status_code == 200
        assert server.tool("stat", path=".").status_code == 200


def test_nothing_is_listening_where_something_listens(workspace: Workspace) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "llmc_mcp.server", "--transport", "http", "--port", port]
        done = subprocess.run(command, cwd=workspace.root, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"can't listen on 127.0.0.1:{port}: address already in use" in done.stderr
    assert "hint: Choose another one with --port" in done.stderr


def test_llmc_run_prints_what_a_client_needs(workspace: Workspace, tmp_path: Path) -> None:
    env = {**os.environ, "LLMC_DATA_DIR": str(tmp_path)}
    words = ["run", "--port", "0"]
    process = ForkedServer(LLMC, words, env=env, cwd=workspace.root, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    lines: list[str] = []
    while "^C ends it." not in (line := process.stdout.readline()):
        assert line, "it ended"
        lines.append(line)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 0
    process.stdout.close()
    said = "".join(lines)
    token = (tmp_path / "token").read_text().strip()
    assert f'"X-LLMC-Token": "{token}"' in said
    assert "claude mcp add --transport http llmc http://127.0.0.1:" in said
    assert "sandbox  commands: " in said
    assert str(workspace.root) in said


# --- sessions, which nobody ends --------------------------------------------------------------------------------------


def test_what_a_session_left_running_and_its_machine_end_when_it_has_been_idle(workspace: Workspace) -> None:
    idle = ("linux_ops.process_limits.idle_reap_sec=1", "limits.helper_idle_sec=1")
    settings = [word for setting in idle for word in ("--set", setting)]
    mark = f"llmc-http-idle-{os.getpid()}"
    with HttpServer(workspace.root, *OPEN_HANDED, *settings) as server:
        line = f"( exec -a {mark} sleep 1000 ) & sleep 1000"
        assert server.tool("run_cmd", command=line, yield_after=0).json()["running"] is True
        assert eventually(lambda: processes_with(mark) == [])
        assert eventually(lambda: namespaces_held(server.process.pid) == [])


def namespaces_held(pid: int) -> list[str]:
    """The namespaces that a process keeps in being."""
    targets: list[str] = []
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            targets.append(os.readlink(fd))
    return [target for target in targets if target.startswith(("net:[", "mnt:["))]
