"""The proxy process: whoever connects to the listener of a session reaches what the list allows, and nobody else.

The server hands over listeners and the list on the socket that is its stdin, and is told there what was denied. The
listeners belong to the network namespaces of sessions, in which nothing else listens or routes; connections to the
world are made in the namespace of this process. It holds no secret, writes no file, and ends when the server does.

Standard library only.
"""

import asyncio
import contextlib
import json
import socket
from typing import NamedTuple, cast

from ..config.network import Rules
from .hello import ALERT, MAX_HELLO, NotAllowedHello, is_retry, server_name
from .pump import SplicePump, run
from .requests import (
    Denied,
    Endpoint,
    Gone,
    PeerSocket,
    PlainRequest,
    Tunnel,
    forward_body,
    parse_headers,
    printable,
    read_request,
    socks_reply,
    values,
)
from .upstream import Dialer, Unreachable, dial

PER_SESSION = 256  # connections at a time; more wait in the kernel's queue
IN_ALL = 768
_ASKING_S = 15.0  # from accept to a whole request, and from there to a whole ClientHello
_IDLE_S = 300.0
_LONGEST_S = 6 * 3600.0
_AGAIN_S = 0.2  # after which accepting is tried again when descriptors ran out
_MESSAGE = 1 << 20


class ConnectionBounds(NamedTuple):
    """How long a connection may take; a test has less patience."""

    asking_s: float = _ASKING_S
    idle_s: float = _IDLE_S
    longest_s: float = _LONGEST_S


class SessionListener:
    """The listener of one session and the connections that came from it."""

    def __init__(self, proxy: "Proxy", key: int, listener: socket.socket) -> None:
        self._proxy, self._key, self._listener = proxy, key, listener
        self._connections: set[asyncio.Task[None]] = set()
        self._accepting = False
        listener.setblocking(False)
        self.accept_on()

    def accept_on(self) -> None:
        """Accept connections, as long as there is room for them."""
        room = len(self._connections) < PER_SESSION and self._proxy.has_room and self._listener.fileno() >= 0
        if room != self._accepting:
            self._accepting = room
            if room:
                self._proxy.loop.add_reader(self._listener, self._accept)
            else:
                self._proxy.loop.remove_reader(self._listener)

    def _accept(self) -> None:
        try:
            sock = self._listener.accept()[0]
        except BlockingIOError:
            return
        except OSError:  # out of descriptors, or the listener was shut down
            self._proxy.loop.remove_reader(self._listener)
            self._accepting = False
            self._proxy.loop.call_later(_AGAIN_S, self.accept_on)
            return
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._proxy.loop.create_task(self._proxy.serve(sock, self._key))
        self._connections.add(task)
        self._proxy.connections += 1
        task.add_done_callback(self._ended)
        self.accept_on()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._connections.discard(task)
        self._proxy.connections -= 1
        self._proxy.accept_on()

    def close(self) -> None:
        """Let go of the listener, and end its connections."""
        if self._accepting:
            self._proxy.loop.remove_reader(self._listener)
            self._accepting = False
        self._listener.close()
        for task in self._connections:
            task.cancel()


class Proxy:
    """All sessions, and the list that holds for them."""

    def __init__(self, control: socket.socket, bounds: ConnectionBounds = ConnectionBounds()) -> None:  # noqa: B008 - it never changes
        self.loop = asyncio.get_running_loop()
        self._control, self._bounds = control, bounds
        self._rules = Rules()
        self._granted: dict[int, Rules] = {}  # to a session, instead of the list of all
        self._sessions: dict[int, SessionListener] = {}
        self._dialer = Dialer()
        self._targets: dict[asyncio.Task[None], tuple[int, Endpoint]] = {}  # of connections that have asked
        self.connections = 0
        self.ended = asyncio.Event()
        control.setblocking(False)
        self.loop.add_reader(control, self._obey)

    @property
    def has_room(self) -> bool:
        """Whether another connection may be accepted."""
        return self.connections < IN_ALL

    def accept_on(self) -> None:
        """A connection ended: some session may have been waiting for that."""
        for session in self._sessions.values():
            session.accept_on()

    def close(self) -> None:
        """Let go of everything."""
        for key in list(self._sessions):
            self._drop(key)
        self.loop.remove_reader(self._control)
        self._control.close()

    def _obey(self) -> None:
        try:
            message, fds, _, _ = socket.recv_fds(self._control, _MESSAGE, 1, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except OSError:
            message, fds = b"", []
        if not message:
            self.ended.set()
            return
        order = json.loads(message)
        if "allow" in order:
            self._rules = Rules(order["allow"])
        if "grant" in order:
            self._granted[order["grant"]] = Rules(order["entries"])
        if "allow" in order or "grant" in order:
            for task, (key, target) in self._targets.items():
                if not self._rules_of(key).allow(target.name, target.address, target.port):
                    task.cancel()
        if "serve" in order and fds:
            self._drop(order["serve"])
            self._sessions[order["serve"]] = SessionListener(self, order["serve"], socket.socket(fileno=fds[0]))
        if "drop" in order:
            self._drop(order["drop"])

    def _rules_of(self, key: int) -> Rules:
        return self._granted.get(key, self._rules)

    def _drop(self, key: int) -> None:
        self._granted.pop(key, None)
        if session := self._sessions.pop(key, None):
            session.close()

    def _tell(self, key: int, denied: Denied) -> None:
        """Tell the server before the client: who asks it after the command has ended finds it there."""
        event = {"session": key, "reason": denied.reason, "target": printable(denied.target) or "?"}
        with contextlib.suppress(OSError):  # the server does not keep up; the client learns it all the same
            self._control.send(json.dumps({**event, "detail": printable(denied.detail)}).encode())

    async def serve(self, sock: socket.socket, key: int) -> None:
        """One connection."""
        task = cast("asyncio.Task[None]", asyncio.current_task())
        with sock:
            peer = PeerSocket(sock)
            request: Tunnel | PlainRequest | None = None
            try:
                async with asyncio.timeout(self._bounds.asking_s):
                    request = await read_request(peer)
                self._targets[task] = (key, request.target)
                if isinstance(request, Tunnel):
                    await self._tunnel(peer, request, key)
                else:
                    await self._plain(peer, request, key)
            except Denied as denied:
                self._tell(key, denied)
                await self._answer(peer, 403, _denial(denied))
            except Unreachable as exc:
                target = request.target if request else ""
                await self._answer(peer, 502, f"{target}: {exc}")
            except (Gone, OSError, TimeoutError, ValueError):
                pass  # nobody is there to be answered
            finally:
                self._targets.pop(task, None)

    async def _answer(self, peer: PeerSocket, status: int, text: str) -> None:
        if peer.speaks_socks:
            answer = socks_reply(2 if status == 403 else 4)
        else:
            body = f"{text}\n".encode()
            reason = "policy: not allowed, do not retry" if status == 403 else "Bad Gateway"
            head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
            answer = f"{head}Connection: close\r\n\r\n".encode() + body
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(self._bounds.asking_s):
                await peer.send(answer)
                peer.sock.shutdown(socket.SHUT_WR)
                while await self.loop.sock_recv(peer.sock, 4096):  # or what is unread resets the connection
                    pass

    async def _tunnel(self, peer: PeerSocket, request: Tunnel, key: int) -> None:
        target = request.target
        addresses = await self._dialer.addresses_of(target, self._rules_of(key))
        await peer.send(socks_reply(0) if request.socks else b"HTTP/1.1 200 Connection established\r\n\r\n")
        if target.name and not await self._shows_name(peer, target, key):  # an address is listed for any protocol
            return
        try:
            sock = await dial(addresses, target.port)
        except Unreachable:
            return  # in the tunnel there is no language to say it in
        with sock:
            server = PeerSocket(sock)
            await _send_ahead(peer, server)
            if target.name and not await self._answered(peer, server, target, key):
                return
            pumps = [SplicePump(peer.sock, sock), SplicePump(sock, peer.sock)]
            await run(pumps, self._bounds.idle_s, self._bounds.longest_s)

    async def _answered(self, peer: PeerSocket, server: PeerSocket, target: Endpoint, key: int) -> bool:
        """Pass on the server's answer to the ClientHello and, where it asks for another one, that; if it is allowed."""
        async with asyncio.timeout(self._bounds.idle_s):
            again = await _asks_again(server)
        await _send_ahead(server, peer)
        if again and not await self._shows_name(peer, target, key, again=True):
            return False
        await _send_ahead(peer, server)
        return True

    async def _shows_name(self, peer: PeerSocket, target: Endpoint, key: int, *, again: bool = False) -> bool:
        """Whether the client begins with a ClientHello for the very name that the tunnel was granted for."""
        try:
            async with asyncio.timeout(self._bounds.asking_s):
                await _demand_hello(peer, target.name, again=again)
        except NotAllowedHello as exc:
            self._tell(key, Denied("tls", str(target), str(exc)))
            with contextlib.suppress(OSError):
                await peer.send(ALERT)
            return False
        return True

    async def _plain(self, peer: PeerSocket, request: PlainRequest, key: int) -> None:
        addresses = await self._dialer.addresses_of(request.target, self._rules_of(key))
        with await dial(addresses, request.target.port) as sock:
            server = PeerSocket(sock)
            await server.send(request.head())
            sending = self.loop.create_task(forward_body(request, peer, server))
            try:
                async with asyncio.timeout(self._bounds.idle_s):
                    head = await _response_head(server)
                await peer.send(head + bytes(server.buffer))
                await run([SplicePump(sock, peer.sock)], self._bounds.idle_s, self._bounds.longest_s)
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)


def _denial(denied: Denied) -> str:
    host = printable(denied.target)
    if denied.reason == "host":
        name = host.removesuffix(":443").removesuffix(":80")
        return f"policy: {host} is not in the allowlist; do not retry. The user can allow it: llmc allow network {name}"
    return f"policy: {host}: {printable(denied.detail)}; do not retry."


async def _demand_hello(peer: PeerSocket, name: str, *, again: bool) -> None:
    """Read a whole ClientHello ahead."""
    while (asked := server_name(peer.buffer, again=again)) is None:
        if len(peer.buffer) > MAX_HELLO:
            raise NotAllowedHello("the ClientHello is too long")
        await peer.more()
    if asked != name.encode():
        raise NotAllowedHello(f"the TLS server name is {printable(asked.decode('latin-1'))}, another one")


async def _send_ahead(source: PeerSocket, sink: PeerSocket) -> None:
    """Pass on what was read ahead."""
    await sink.send(bytes(source.buffer))
    source.buffer.clear()


async def _asks_again(server: PeerSocket) -> bool:
    """Whether a server answers a ClientHello by asking for another one, which would name a host anew."""
    try:
        while (asked := is_retry(server.buffer)) is None:
            await server.more()
    except Gone:
        return False
    return asked


async def _response_head(server: PeerSocket) -> bytes:
    """The heads of a response as the client gets them: nothing but this one exchange happens on the connection."""
    heads = b""
    while True:
        try:
            first, *lines = (await server.head()).split(b"\r\n")
            status, headers = first[9:12], parse_headers(lines)
        except ValueError as exc:
            raise Unreachable(f"its answer is not HTTP: {exc}") from None
        if not first.startswith(b"HTTP/1.") or not status.isdigit() or status == b"101":
            raise Unreachable("its answer is not HTTP")
        named = {word.strip().lower() for word in b",".join(values(headers, b"connection")).split(b",")}
        dropped = {b"connection", b"keep-alive", b"proxy-connection", b"upgrade", *named}
        kept = [name + b": " + value for name, value in headers if name.lower() not in dropped]
        heads += b"\r\n".join([first, *kept, *([] if status < b"200" else [b"Connection: close"]), b"", b""])
        if status >= b"200":
            return heads


async def serve(control: socket.socket, bounds: ConnectionBounds = ConnectionBounds()) -> None:  # noqa: B008 - it never changes
    """Serve until the server's end of the control socket closes."""
    proxy = Proxy(control, bounds)
    try:
        await proxy.ended.wait()
    finally:
        proxy.close()
