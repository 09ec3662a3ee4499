"""Whoever has shown no token does not make the server hold what he sends (E21)."""

import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ..support.client import PATIENCE
from ..support.http_server import OPEN_HANDED, TOKEN, HttpServer
from ..support.workspace import Workspace

SENDERS = 64
SENT = 2 << 20  # by each, of 16 MiB that it announces: what a server that takes it all holds is bounded
GROWTH = 32 << 20
PIECE = b"x" * (64 << 10)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    workspace = Workspace(tmp_path_factory.mktemp("bodies"))
    with HttpServer(workspace.root, *OPEN_HANDED) as server:
        yield server


def connect(served: HttpServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), PATIENCE)


def head(request: str, *headers: str) -> bytes:
    return "\r\n".join([f"{request} HTTP/1.1", "Host: 127.0.0.1", *headers, "", ""]).encode()


def answer(connection: socket.socket) -> tuple[int, bool]:
    """The status, and whether the server then hung up."""
    said = b""
    closed = False
    connection.settimeout(PATIENCE)
    while b"\r\n\r\n" not in said or not closed:
        try:
            piece = connection.recv(65536)
        except ConnectionResetError:
            piece = b""
        said += piece
        closed = not piece
        if not closed and b"connection: close" not in said.lower() and b"\r\n\r\n" in said:
            break  # it stays open
    return int(said.split(b" ", 2)[1]) if said else 0, closed


def resident(served: HttpServer) -> int:
    """The most memory that the server ever had."""
    status = Path(f"/proc/{served.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found
    return int(found[1]) << 10


def send_much(served: HttpServer, request: bytes, framed: bool) -> socket.socket:
    """Send until enough is sent or the server hangs up; the connection stays open."""
    connection = connect(served)
    piece = b"%x\r\n%s\r\n" % (len(PIECE), PIECE) if framed else PIECE
    try:
        connection.sendall(request)
        for _ in range(SENT // len(PIECE)):
            connection.sendall(piece)
    except (BrokenPipeError, ConnectionResetError):
        pass
    return connection


@pytest.mark.parametrize("request_line", ["POST /login", "POST /health", "GET /health", "POST /tool", "POST /none"])
@pytest.mark.parametrize("framed", [False, True], ids=["announced", "chunked"])
def test_e21_bodies_without_a_token_are_not_kept(served: HttpServer, request_line: str, framed: bool) -> None:
    length = "Transfer-Encoding: chunked" if framed else f"Content-Length: {16 << 20}"
    request = head(request_line, "Content-Type: application/json", length)
    before = resident(served)
    with ThreadPoolExecutor(SENDERS) as pool:
        under_way = [pool.submit(send_much, served, request, framed) for _ in range(SENDERS)]
        held = [sending.result() for sending in under_way]
    grown = resident(served) - before
    statuses = {answer(connection) for connection in held}
    for connection in held:
        connection.close()
    assert grown < GROWTH
    assert statuses <= {(413, True), (401, True), (0, True)}  # 0: hung up on while it was sending


@pytest.mark.parametrize(
    ("request_line", "length", "status"),
    [("POST /login", 4097, 413), ("GET /health", 4097, 413), ("POST /tool", 4097, 401), ("POST /mcp", 10**7, 401)],
)
def test_e21_a_body_is_refused_by_its_length_before_any_of_it_came(
    served: HttpServer, request_line: str, length: int, status: int
) -> None:
    with connect(served) as connection:
        connection.sendall(head(request_line, "Content-Type: application/json", f"Content-Length: {length}"))
        assert answer(connection) == (status, True)


def test_e21_a_sign_in_has_room_for_a_token_and_calls_for_what_they_need(served: HttpServer) -> None:
    for body, status in ((b'{"token": "%s"}' % TOKEN.encode(), 303), (b'{"token": "no"}'.ljust(4096), 401)):
        with connect(served) as connection:
            connection.sendall(head("POST /login", "Content-Type: application/json", f"Content-Length: {len(body)}"))
            connection.sendall(body)
            assert answer(connection)[0] == status
    call = b'{"name": "stat", "args": {"path": "."}}'.ljust(1 << 20)
    with connect(served) as connection:
        token = f"Authorization: Bearer {TOKEN}"
        connection.sendall(head("POST /tool", token, "Content-Type: application/json", f"Content-Length: {len(call)}"))
        connection.sendall(call)
        assert answer(connection)[0] == 200


def test_e21_requests_that_nobody_waits_for_are_not_kept(served: HttpServer) -> None:
    """Each that waits behind another is far larger in memory than on the wire, and none of them has a token."""
    with connect(served) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n" * 3_000)
        said, piece = b"", b"-"
        while piece and said.count(b"HTTP/1.1 ") < 100:
            try:
                piece = connection.recv(1 << 20)
            except ConnectionError:  # closed before it had read all
                piece = b""
            said += piece
    assert said.count(b"HTTP/1.1 ") < 100
    with connect(served) as connection:
        connection.sendall(head("GET /health") * 8)
        said = b""
        while said.count(b"HTTP/1.1 200") < 8:
            said += connection.recv(1 << 20)
