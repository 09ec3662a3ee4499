"""A little internet in network and mount namespaces of its own: addresses, a name server, web servers that log.

Started by `internet.py` through `unshare`; everything it serves lies on the loopback interface of its namespace. It
says when it is ready, and ends with its stdin.
"""

import http.server
import json
import os
import socket
import socketserver
import ssl
import struct
import subprocess
import sys
import threading
from typing import Any

SETUP: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
_LOCK = threading.Lock()
_ASKED: dict[str, int] = {}


def log(**hit: Any) -> None:
    """Somebody got here."""
    with _LOCK, open(SETUP["hits"], "a") as file:
        file.write(json.dumps(hit) + "\n")


def prepare() -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in SETUP["addresses"]:
        width = "128" if ":" in address else "32"
        subprocess.run(["ip", "addr", "add", f"{address}/{width}", "dev", "lo"], check=True)
    with open(SETUP["resolver"], "w") as file:
        file.write("nameserver 127.0.0.1\noptions timeout:2 attempts:1\n")
    real = os.path.realpath("/etc/resolv.conf")
    subprocess.run(["mount", "--bind", SETUP["resolver"], real], check=True)


# --- names -------------------------------------------------------------------------------------------


def answer_name(query: bytes) -> bytes:
    """An answer from the zone: a list of addresses per name, and of such lists where each question gets the next."""
    at, labels = 12, list[str]()
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode("latin-1"))
        at += 1 + query[at]
    kind = struct.unpack_from(">H", query, at + 1)[0]
    name = ".".join(labels).lower()
    found = SETUP["zone"].get(name, SETUP["elsewhere"])
    if found and isinstance(found[0], list):
        with _LOCK:
            turn = _ASKED[name] = _ASKED.get(name, -1) + 1
        found = found[min(turn, len(found) - 1)]
    log(name=name)
    family = {1: socket.AF_INET, 28: socket.AF_INET6}.get(kind)
    packed = [socket.inet_pton(family, one) for one in found if family and (":" in one) == (kind == 28)]
    rows = b"".join(struct.pack(">HHHIH", 0xC00C, kind, 1, 0, len(one)) + one for one in packed)
    return query[:2] + b"\x81\x80\0\1" + struct.pack(">H", len(packed)) + bytes(4) + query[12 : at + 5] + rows


def serve_names() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 53))
        while True:
            query, who = server.recvfrom(4096)
            server.sendto(answer_name(query), who)


def log_datagrams(address: str, port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, port))
        while True:
            server.recv(4096)
            log(to=address, port=port, udp=True)


# --- pages -------------------------------------------------------------------------------------------


class Handler(http.server.SimpleHTTPRequestHandler):
    """Files below the folder of the Host, and a few pages that are made up."""

    protocol_version = "HTTP/1.1"

    def _log(self) -> None:
        sni = getattr(self.connection, "asked_for", None)
        to, port = self.connection.getsockname()[:2]
        host = self.headers.get("Host", "")
        log(to=to.removeprefix("::ffff:"), port=port, sni=sni, host=host, path=self.path, method=self.command)

    def do_GET(self) -> None:
        self._log()
        if self.path == "/redirect":
            self._reply(302, b"", ("Location", "https://evil.example/stolen"))
        elif self.path.startswith("/bytes/"):
            self._reply_bytes(int(self.path.rpartition("/")[2]))
        elif self.path == "/endless":
            self._reply_endless()
        elif self.path == "/switch":
            self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
        elif self.path == "/hello":
            self._reply(200, b"hello from " + self.headers.get("Host", "").encode())
        else:
            self.directory = os.path.join(SETUP["pages"], self.headers.get("Host", "").partition(":")[0])
            super().do_GET()

    def do_POST(self) -> None:
        self._log()
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._reply(200, b"got " + body)

    def _reply(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _reply_bytes(self, size: int) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        block = memoryview(bytes(1 << 20))
        while size:
            size -= self.wfile.write(block[: min(size, len(block))])

    def _reply_endless(self) -> None:
        self.send_response(200)
        self.end_headers()
        while True:
            self.wfile.write(bytes(1 << 16))

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """On every address, both families."""

    address_family = socket.AF_INET6
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, port: int, context: ssl.SSLContext | None) -> None:
        self.context = context
        super().__init__(("::", port), Handler, bind_and_activate=False)
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.server_bind()
        self.server_activate()

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # without looking up its own name
        self.server_name, self.server_port = "internet", self.server_address[1]

    def get_request(self) -> tuple[Any, Any]:
        connection, who = self.socket.accept()
        to, port = connection.getsockname()[:2]
        log(to=to.removeprefix("::ffff:"), port=port, connected=True)
        if self.context is not None:
            connection = self.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, who

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients leave as they like."""


def main() -> None:
    prepare()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(SETUP["certificate"], SETUP["key"])

    def asked(connection: Any, name: str, _: Any) -> None:
        connection.asked_for = name

    context.sni_callback = asked
    servers = [Server(port, context if secure else None) for port, secure in SETUP["ports"]]
    work: list[tuple[Any, ...]] = [(serve_names,), (log_datagrams, SETUP["elsewhere"][0], 53)]
    work += [(log_datagrams, SETUP["elsewhere"][0], 443), *((server.serve_forever,) for server in servers)]
    for target, *arguments in work:
        threading.Thread(target=target, args=arguments, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
