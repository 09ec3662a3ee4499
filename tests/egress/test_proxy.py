"""The proxy by itself, in this process and on loopback: how long it waits, how much it holds, what it passes on."""

import asyncio
import json
import os
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from llmc_mcp.egress.proxy import PER_SESSION, ConnectionBounds, serve

from ..support.client import PATIENCE
from ..support.hellos import client_hello, in_records


class Proxied:
    """A proxy with one session, and a server that it may reach by its address and as `localhost`."""

    def __init__(self, bounds: ConnectionBounds) -> None:
        self._stack = ExitStack()
        self.server = self._stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=512))
        self.server.settimeout(PATIENCE)
        self._listener = self._stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=512))
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(PATIENCE)
        self._thread = threading.Thread(target=lambda: asyncio.run(serve(theirs, bounds)))
        self._thread.start()
        self._stack.callback(theirs.close)
        self._stack.callback(self._thread.join)
        self._stack.callback(self._control.close)
        self.allow(f"127.0.0.1:{self.port}", f"localhost:{self.port}", f"[::1]:{self.port}")
        socket.send_fds(self._control, [json.dumps({"serve": 7}).encode()], [self._listener.fileno()])

    @property
    def port(self) -> int:
        return self.server.getsockname()[1]

    def allow(self, *entries: str) -> None:
        self._control.send(json.dumps({"allow": entries}).encode())

    def close(self) -> None:
        self._stack.close()

    def connect(self) -> socket.socket:
        return self._stack.enter_context(socket.create_connection(self._listener.getsockname(), PATIENCE))

    def tunnel(self, host: str = "127.0.0.1") -> socket.socket:
        client = self.connect()
        client.sendall(f"CONNECT {host}:{self.port} HTTP/1.1\r\n\r\n".encode())
        assert client.recv(1000) == b"HTTP/1.1 200 Connection established\r\n\r\n"
        return client

    def accept(self) -> socket.socket:
        accepted = self._stack.enter_context(self.server.accept()[0])
        accepted.settimeout(PATIENCE)
        return accepted

    def denial(self) -> dict[str, object]:
        return json.loads(self._control.recv(1 << 16))


@pytest.fixture
def proxied() -> Iterator[Proxied]:
    made = Proxied(ConnectionBounds())
    yield made
    made.close()


@pytest.fixture
def hasty() -> Iterator[Proxied]:
    made = Proxied(ConnectionBounds(asking_s=0.2, idle_s=0.2, longest_s=0.5))
    yield made
    made.close()


@pytest.mark.parametrize(
    "begun", [b"", b"C", b"CONNECT localhost:1 HTTP/1.1\r\nX: ", b"\5", b"\5\1\0\5\1\0\3\xff"], ids=ascii
)
def test_b38_who_does_not_finish_asking_is_let_go(hasty: Proxied, begun: bytes) -> None:
    client = hasty.connect()
    client.sendall(begun)
    while client.recv(100):
        pass


def test_b38_who_does_not_finish_the_client_hello_is_let_go(hasty: Proxied) -> None:
    client = hasty.tunnel("localhost")
    client.sendall(client_hello("localhost")[:-1])
    assert client.recv(100) == b""


def test_b38_a_tunnel_on_which_nothing_moves_or_that_lasts_too_long_ends(hasty: Proxied) -> None:
    client = hasty.tunnel()
    server = hasty.accept()
    assert client.recv(10) == b""
    assert server.recv(10) == b""
    client = hasty.tunnel()
    server = hasty.accept()
    server.setblocking(False)
    try:
        while True:
            server.send(b"x")
            client.recv(100)
    except (ConnectionError, BlockingIOError):
        pass


def test_b36_a_client_hello_in_several_pieces_is_put_together(proxied: Proxied) -> None:
    hello = in_records(client_hello("localhost"), 200)
    client = proxied.tunnel("localhost")
    for at in range(0, len(hello), 100):
        client.sendall(hello[at : at + 100])
    server, got = proxied.accept(), b""
    while len(got) < len(hello):
        got += server.recv(4096)
    assert got == hello


def server_answer(random: bytes) -> bytes:
    """A ServerHello, as far as anybody looks at it."""
    message = b"\x02\0\0\x26\x03\x03" + random + bytes(4)
    return b"\x16\x03\x03" + len(message).to_bytes(2, "big") + message


RETRY = server_answer(bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c"))
CHANGE_CIPHER = b"\x14\x03\x03\0\x01\x01"


def begin_tls(proxied: Proxied, answer: bytes) -> tuple[socket.socket, socket.socket]:
    client = proxied.tunnel("localhost")
    client.sendall(client_hello("localhost"))
    server = proxied.accept()
    assert server.recv(4096)[:1] == b"\x16"
    server.sendall(answer)
    assert client.recv(4096) == answer
    return client, server


def test_b36_a_second_client_hello_names_the_same_host(proxied: Proxied) -> None:
    client, server = begin_tls(proxied, RETRY)
    hello = CHANGE_CIPHER + client_hello("localhost")
    client.sendall(hello)
    got = b""
    while len(got) < len(hello):
        got += server.recv(4096)
    assert got == hello
    client.sendall(b"more")
    assert server.recv(100) == b"more"


@pytest.mark.parametrize(
    "second", [client_hello("evil.example"), CHANGE_CIPHER + client_hello("evil.example"), client_hello(None), b"GET /"]
)
def test_b36_a_second_client_hello_for_another_host_is_not_sent(proxied: Proxied, second: bytes) -> None:
    client, server = begin_tls(proxied, RETRY)
    client.sendall(second)
    assert client.recv(100) == bytes((21, 3, 3, 0, 2, 2, 49))
    assert server.recv(100) == b""
    assert proxied.denial()["reason"] == "tls"


def test_after_an_ordinary_answer_nothing_is_looked_at(proxied: Proxied) -> None:
    client, server = begin_tls(proxied, server_answer(bytes(32)))
    client.sendall(b"whatever")
    assert server.recv(100) == b"whatever"


def test_connections_to_a_host_that_is_taken_off_the_list_end(proxied: Proxied) -> None:
    client = proxied.tunnel()
    server = proxied.accept()
    proxied.allow()
    assert client.recv(10) == b""
    assert server.recv(10) == b""


def test_what_is_sent_arrives_and_a_side_that_has_finished_still_listens(proxied: Proxied) -> None:
    client = proxied.tunnel()
    client.sendall(b"question")
    client.shutdown(socket.SHUT_WR)
    server = proxied.accept()
    assert server.recv(100) == b"question"
    assert server.recv(100) == b""
    server.sendall(b"answer")
    server.close()
    assert client.recv(100) == b"answer"
    assert client.recv(100) == b""


def test_a_reader_that_stalls_stalls_its_own_sender_alone(proxied: Proxied) -> None:
    stalled = proxied.tunnel()
    sender = proxied.accept()
    sender.setblocking(False)
    sent = 0
    for _ in range(10_000):
        try:
            sent += sender.send(bytes(1 << 16))
        except BlockingIOError:
            break
    other = proxied.tunnel()
    proxied.accept().sendall(b"on time")
    assert other.recv(100) == b"on time"
    sender.setblocking(True)
    sender.shutdown(socket.SHUT_WR)
    got = 0
    while piece := stalled.recv(1 << 16):
        got += len(piece)
    assert got == sent


def test_two_hundred_downloads_at_a_time_arrive_whole(proxied: Proxied) -> None:
    size, many = 1 << 18, 200
    clients = [proxied.tunnel() for _ in range(many)]
    servers = [proxied.accept() for _ in range(many)]

    def send() -> None:
        for server in servers:
            server.sendall(bytes(size))
            server.close()

    sender = threading.Thread(target=send)
    sender.start()
    got = {client.fileno(): 0 for client in clients}
    poll = select.poll()
    for client in clients:
        poll.register(client, select.POLLIN)
    left = many
    while left:
        for fd, _ in poll.poll(PATIENCE * 1000):
            piece = os.read(fd, 1 << 16)
            got[fd] += len(piece)
            if not piece:
                poll.unregister(fd)
                left -= 1
    sender.join()
    assert list(got.values()) == [size] * many


def test_b38_more_connections_than_there_is_room_for_wait_their_turn(proxied: Proxied) -> None:
    held = [proxied.connect() for _ in range(PER_SESSION)]
    late = proxied.connect()
    late.sendall(b"CONNECT evil.example:443 HTTP/1.1\r\n\r\n")
    late.settimeout(0.1)
    with pytest.raises(TimeoutError):
        late.recv(100)
    held[0].close()
    late.settimeout(PATIENCE)
    assert late.recv(100).startswith(b"HTTP/1.1 403")
    assert proxied.denial()["target"] == "evil.example:443"
