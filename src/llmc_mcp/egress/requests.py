"""What a client asks of the proxy: a tunnel (CONNECT, SOCKS5) or one plain HTTP request, read strictly.

Whatever two parsers could read in two ways is refused, as is everything that a package manager has no use for. A
connection carries one request: what follows its body is never read.
"""

import asyncio
import contextlib
import re
import socket
from typing import NamedTuple

from ..config.network import address_bytes, host_name, split_port

MAX_HEAD = 32 << 10
_PIECE = 16 << 10
_SHOWN = 120
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_REQUEST_LINE = re.compile(rb"([A-Z]{1,20}) ([\x21-\x7e]+) HTTP/1\.([01])")
_URI = re.compile(r"http://([^/?#]*)([/?][^#]*)?", re.IGNORECASE)
_LENGTH = re.compile(rb"[0-9]{1,18}")
_CHUNK = re.compile(rb"[0-9A-Fa-f]{1,15}")
_HOP_BY_HOP = frozenset((
    b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"content-length", b"host",
    b"proxy-connection", b"proxy-authorization", b"proxy-authenticate",
))  # fmt: skip
_SOCKS, _NO_PASSWORD, _CONNECT = 5, 0, 1
_FOUR, _NAME, _SIX = 1, 3, 4

Headers = list[tuple[bytes, bytes]]


class Denied(Exception):
    """A request that policy refuses: `reason` is one of a few words, `target` where it meant to go."""

    def __init__(self, reason: str, target: str, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.target, self.detail = reason, target, detail


class Gone(Exception):
    """The client closed the connection before it had asked for anything."""


class Endpoint(NamedTuple):
    """Where a request goes: a name or, where that is empty, an address."""

    name: str
    address: bytes
    port: int

    def __str__(self) -> str:
        if self.name:
            return f"{self.name}:{self.port}"
        family = socket.AF_INET6 if len(self.address) == 16 else socket.AF_INET
        host = socket.inet_ntop(family, self.address)
        return f"[{host}]:{self.port}" if family == socket.AF_INET6 else f"{host}:{self.port}"


class Tunnel(NamedTuple):
    """A request for a connection on which the client speaks TLS with the target."""

    target: Endpoint
    socks: bool


class PlainRequest(NamedTuple):
    """A request over plain HTTP. The length of its body; None: in chunks."""

    target: Endpoint
    method: bytes
    path: bytes
    version: bytes
    headers: Headers
    length: int | None

    def head(self) -> bytes:
        """The head that goes to the server: the one place where a header of the user's could be added some day."""
        lines = [self.method + b" " + self.path + b" HTTP/1." + self.version]
        port = "" if self.target.port == 80 else f":{self.target.port}"
        lines.append(b"Host: " + (str(self.target).rpartition(":")[0] + port).encode())
        named = {word.strip().lower() for word in b",".join(values(self.headers, b"connection")).split(b",")}
        dropped = _HOP_BY_HOP | named
        lines += [name + b": " + value for name, value in self.headers if name.lower() not in dropped]
        if self.length is None:
            lines.append(b"Transfer-Encoding: chunked")
        elif self.length or values(self.headers, b"content-length"):
            lines.append(b"Content-Length: %d" % self.length)
        return b"\r\n".join([*lines, b"Connection: close", b"", b""])


class PeerSocket:
    """A socket and what was read from it ahead."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.buffer = bytearray()
        self.speaks_socks = False
        self._loop = asyncio.get_running_loop()

    async def more(self) -> None:
        """Read on; Gone at the end."""
        piece = await self._loop.sock_recv(self.sock, _PIECE)
        if not piece:
            raise Gone
        self.buffer += piece

    async def take(self, size: int) -> bytes:
        """The next bytes, as many."""
        while len(self.buffer) < size:
            await self.more()
        taken = bytes(self.buffer[:size])
        del self.buffer[:size]
        return taken

    async def line(self) -> bytes:
        """A short line, without its end."""
        while b"\r\n" not in self.buffer[:64]:
            if len(self.buffer) >= 64:
                raise ValueError("a line that is too long")
            await self.more()
        return (await self.take(self.buffer.index(b"\r\n") + 2))[:-2]

    async def head(self) -> bytes:
        """The head of an HTTP message, without the empty line; ValueError if it is too long."""
        looked = 0
        while (end := self.buffer.find(b"\r\n\r\n", max(looked - 3, 0))) < 0:
            looked = len(self.buffer)
            if looked > MAX_HEAD:
                raise ValueError("the head is too long")
            await self.more()
        return (await self.take(end + 4))[:-4]

    async def send(self, data: bytes) -> None:
        """Send all of it."""
        await self._loop.sock_sendall(self.sock, data)


def printable(text: str) -> str:
    """Text from a client, for a log or a reply: one line, short, nothing that a terminal obeys."""
    clean = "".join(char if char.isascii() and char.isprintable() else "?" for char in text[:_SHOWN])
    return clean if len(text) <= _SHOWN else f"{clean}..."


async def read_request(peer: PeerSocket) -> Tunnel | PlainRequest:
    """What the client asks for; Denied where that is nothing we do."""
    while not peer.buffer:
        await peer.more()
    peer.speaks_socks = peer.buffer[0] == _SOCKS
    if peer.speaks_socks:
        return await _socks(peer)
    try:
        return parse_request(await peer.head())
    except ValueError as exc:
        raise _malformed("HTTP", str(exc)) from None


def target_of(host: str, port: int) -> Endpoint:
    """A target from its two parts."""
    if not 0 < port <= 0xFFFF:
        raise _malformed(host, "it names no port")
    address = address_bytes(host)
    if address is not None:
        return Endpoint("", address, port)
    try:
        return Endpoint(host_name(host), b"", port)
    except ValueError as exc:
        raise _malformed(f"{host}:{port}", str(exc)) from None


def _malformed(target: str, why: str) -> Denied:
    return Denied("request", printable(target), why)


# --- HTTP --------------------------------------------------------------------------------------------


def parse_request(head: bytes) -> Tunnel | PlainRequest:
    """A request from its head."""
    first, *lines = head.split(b"\r\n")
    line = _REQUEST_LINE.fullmatch(first)
    if line is None:
        raise _malformed(first.decode("latin-1"), "not a request to a proxy")
    method, uri, version = line[1], line[2].decode("ascii"), line[3]
    headers = parse_headers(lines)
    hosts = values(headers, b"host")
    if len(hosts) > 1:
        raise _malformed(uri, "several Host headers")
    host = hosts[0].decode("latin-1") if hosts else ""
    length = _body_length(headers, uri)
    if method == b"CONNECT":
        target = _authority(uri, 0, uri)
        if hosts and not _is_same(host, target):
            raise _malformed(uri, "the Host header names another host")
        if length != 0:
            raise _malformed(uri, "CONNECT with a body")
        return Tunnel(target, socks=False)
    return _plain(method, uri, version, headers, host, length)


def _plain(method: bytes, uri: str, version: bytes, headers: Headers, host: str, length: int | None) -> PlainRequest:
    parts = _URI.fullmatch(uri)
    if parts is None:
        raise _malformed(uri, "not an absolute http:// URI")
    target = _authority(parts[1], 80, uri)
    if (host or version == b"1") and not _is_same(host, target, 80):
        raise _malformed(uri, "the Host header names another host")
    if values(headers, b"upgrade") or values(headers, b"http2-settings"):
        raise _malformed(uri, "a change of protocol")
    path = parts[2] or "/"
    return PlainRequest(target, method, (path if path[0] == "/" else f"/{path}").encode(), version, headers, length)


def parse_headers(lines: list[bytes]) -> Headers:
    """The headers of a message, each on one line of its own; ValueError where one is not."""
    headers: Headers = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            raise ValueError("a malformed header")
        headers.append((name, value.strip(b" \t")))
    return headers


def values(headers: Headers, name: bytes) -> list[bytes]:
    """All values of a header."""
    return [value for one, value in headers if one.lower() == name]


def _authority(text: str, port: int, uri: str) -> Endpoint:
    if any(char in text for char in "@%\\"):
        raise _malformed(uri, "user names, zones and escapes have no place in a host")
    try:
        host, given = split_port(text)
    except ValueError as exc:
        raise _malformed(uri, str(exc)) from None
    if text.startswith("[") and address_bytes(host) is None:
        raise _malformed(uri, "not an address in brackets")
    return target_of(host, given or port)


def _is_same(host: str, target: Endpoint, port: int | None = None) -> bool:
    """Whether a Host header names a target; a port that it leaves out is the protocol's own or, for CONNECT, any."""
    try:
        name, given = split_port(host)
        return target_of(name, given or port or target.port) == target
    except (ValueError, Denied):
        return False


def _body_length(headers: Headers, uri: str) -> int | None:
    lengths, codings = values(headers, b"content-length"), values(headers, b"transfer-encoding")
    if codings:
        if lengths or [one.lower() for one in codings] != [b"chunked"]:
            raise _malformed(uri, "an ambiguous length")
        return None
    if not lengths:
        return 0
    if len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0]):
        raise _malformed(uri, "an ambiguous length")
    return int(lengths[0])


async def forward_body(request: PlainRequest, client: PeerSocket, server: PeerSocket) -> None:
    """Send the body of a request, and nothing that follows it; one that is cut off or malformed ends the exchange."""
    try:
        await _forward_framed(request, client, server)
    except (Gone, OSError, ValueError):
        with contextlib.suppress(OSError):
            server.sock.shutdown(socket.SHUT_RDWR)


async def _forward_framed(request: PlainRequest, client: PeerSocket, server: PeerSocket) -> None:
    if request.length is not None:
        await _forward(client, server, request.length)
        return
    while True:
        line = await client.line()
        if not _CHUNK.fullmatch(line):
            raise ValueError("a malformed chunk")
        size = int(line, 16)
        await server.send(b"%x\r\n" % size)
        await _forward(client, server, size)
        if await client.take(2) != b"\r\n":  # trailers are not passed on
            raise ValueError("a malformed chunk")
        await server.send(b"\r\n")
        if not size:
            return


async def _forward(client: PeerSocket, server: PeerSocket, size: int) -> None:
    while size:
        if not client.buffer:
            await client.more()
        piece = await client.take(min(size, len(client.buffer)))
        await server.send(piece)
        size -= len(piece)


# --- SOCKS5 ------------------------------------------------------------------------------------------


async def _socks(peer: PeerSocket) -> Tunnel:
    methods = await peer.take((await peer.take(2))[1])
    if _NO_PASSWORD not in methods:
        await peer.send(bytes((_SOCKS, 0xFF)))
        raise _malformed("SOCKS5", "a password where there is none")
    await peer.send(bytes((_SOCKS, _NO_PASSWORD)))
    version, command, _, kind = await peer.take(4)
    sizes = {_FOUR: 4, _SIX: 16}
    if kind == _NAME:
        host = await peer.take((await peer.take(1))[0])
    elif kind in sizes:
        host = await peer.take(sizes[kind])
    else:
        raise _malformed("SOCKS5", "an unknown kind of address")
    port = int.from_bytes(await peer.take(2), "big")
    if version != _SOCKS or command != _CONNECT:
        raise _malformed("SOCKS5", "only CONNECT is done")
    if kind != _NAME:
        return Tunnel(Endpoint("", host, port), socks=True)
    return Tunnel(target_of(host.decode("latin-1"), port), socks=True)


def socks_reply(code: int) -> bytes:
    """An answer to a SOCKS5 request: 0 granted, 2 not allowed by the rules, 4 host unreachable."""
    return bytes((_SOCKS, code, 0, _FOUR, 0, 0, 0, 0, 0, 0))
