"""Servers that commands run in the network of their session: which ports they listen on, and a way to them from here.

A session's network is a namespace that nothing leads into. Its processes are the user's, though, so that the user may
enter it by any of them: a child does, connects there, and hands the connected sockets out.
"""

import asyncio
import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..config.trust import INSIDE_COMMAND
from ..egress.pump import SplicePump, run
from ..errors import NotFound, ResourceBusy
from ..kernel import syscalls
from ..kernel.namespaces import PROXY_PORT

_NS_GET_USERNS = 0xB701
_LISTENING = "0A"
_IDLE_S = 24 * 3600.0
_LOOPBACK = ("127.0.0.1", "::1")


class OpenPort(NamedTuple):
    """A port on which a command listens."""

    port: int
    pid: int
    program: str
    session: str  # as the command's environment says, which it could have changed
    network: int  # which network it is


def open_ports() -> list[OpenPort]:
    """The ports of all commands of this user that have a network of their own."""
    own = os.stat("/proc/self/ns/net").st_ino
    commands = [found for found in _commands() if found.network != own]
    listeners: dict[int, dict[str, int]] = {}  # by network: socket → port
    for command in commands:
        if command.network not in listeners:
            listeners[command.network] = dict(_listeners(command.pid))
    ports: dict[tuple[int, int], OpenPort] = {}
    for command in commands:
        for name in _sockets(command.pid):
            port = listeners[command.network].get(name)
            if port is not None:
                ports.setdefault((command.network, port), command._replace(port=port))
    return sorted(ports.values())


def _commands() -> Iterator[OpenPort]:
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                pairs = (pair.partition(b"=")[::2] for pair in file.read().split(b"\0"))
            environment = {key.decode(errors="replace"): value.decode(errors="replace") for key, value in pairs}
            if INSIDE_COMMAND not in environment:
                continue
            with open(f"/proc/{name}/cmdline", "rb") as file:
                program = file.read().rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
            network = os.stat(f"/proc/{name}/ns/net").st_ino
        except OSError:  # it ended, or is somebody else's
            continue
        yield OpenPort(0, int(name), program, environment.get("TE_SESSION_ID", ""), network)


def _listeners(pid: int) -> Iterator[tuple[str, int]]:
    """The sockets that listen in the network of a process, and their ports; not the proxy's."""
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{pid}/net/{table}") as file:
                rows = [line.split() for line in file][1:]
        except OSError:
            continue
        for row in rows:
            port = int(row[1].rpartition(":")[2], 16)
            if row[3] == _LISTENING and port != PROXY_PORT:
                yield f"socket:[{row[9]}]", port


def _sockets(pid: int) -> Iterator[str]:
    try:
        for entry in os.scandir(f"/proc/{pid}/fd"):
            yield os.readlink(entry.path)
    except OSError:
        return


# --- the way in --------------------------------------------------------------------------------------


class Door:
    """A child in the network of a process, which connects there and hands the sockets out."""

    def __init__(self, pid: int, port: int) -> None:
        network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._child = os.fork()
            if self._child == 0:
                try:
                    self._channel.close()
                    _serve_door(theirs, network, port)
                finally:
                    os._exit(1)
        os.close(network)

    def open(self) -> socket.socket:
        """A new connection to the port."""
        try:
            self._channel.send(b"?")
            answer, fds, _, _ = socket.recv_fds(self._channel, 200, 1, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            answer, fds = b"", []
        if not fds:
            raise ResourceBusy(f"the port can't be reached: {answer.decode(errors='replace') or 'its session is over'}")
        return socket.socket(fileno=fds[0])

    def close(self) -> None:
        """Close the way in."""
        self._channel.close()
        os.waitpid(self._child, 0)


def _serve_door(channel: socket.socket, network: int, port: int) -> None:
    try:
        _enter(network)
    except OSError as exc:
        channel.recv(1)
        channel.send((exc.strerror or "not permitted").encode())
        return
    while channel.recv(1):
        reason = ""
        for address in _LOOPBACK:
            try:
                with socket.create_connection((address, port), 5) as connection:
                    connection.setblocking(False)
                    socket.send_fds(channel, [b"!"], [connection.fileno()])
                break
            except OSError as exc:
                reason = exc.strerror or str(exc)
        else:
            channel.send(reason.encode() or b"?")


def _enter(network: int) -> None:
    try:
        syscalls.setns(network, syscalls.CLONE_NEWNET)
    except PermissionError:  # not root: whoever made the user namespace that owns it may do anything in there
        owner = fcntl.ioctl(network, _NS_GET_USERNS)
        syscalls.setns(owner, syscalls.CLONE_NEWUSER)
        syscalls.setns(network, syscalls.CLONE_NEWNET)


def forward(port: int, pid: int, here: int, listening: Callable[[], None]) -> None:
    """Pass connections to `here` on this machine's loopback on to a port in the network of a process, until ^C.

    Calls `listening` once connections are accepted.
    """
    door = Door(pid, port)
    try:
        door.open().close()  # fails now rather than in a browser
        with socket.create_server(("127.0.0.1", here)) as listener:
            listener.setblocking(False)
            listening()
            asyncio.run(_accept(listener, door))
    except OSError as exc:
        raise ResourceBusy(f"127.0.0.1:{here} can't be used: {exc.strerror}", hint="Name another one: --at N.") from exc
    finally:
        door.close()


async def _accept(listener: socket.socket, door: Door) -> None:
    loop = asyncio.get_running_loop()
    running: set[asyncio.Task[None]] = set()
    while True:
        client, _ = await loop.sock_accept(listener)
        task = loop.create_task(_pass_on(client, door))
        running.add(task)
        task.add_done_callback(running.discard)


async def _pass_on(client: socket.socket, door: Door) -> None:
    with client:
        try:
            server = door.open()
        except ResourceBusy:
            return  # the browser sees the connection end, as it would if the server ended
        with server:
            await run([SplicePump(client, server), SplicePump(server, client)], _IDLE_S, _IDLE_S)


def find_port(port: int, pid: int | None = None) -> OpenPort:
    """The one command that listens on a port."""
    found = [one for one in open_ports() if one.port == port and pid in (None, one.pid)]
    if not found:
        raise NotFound(f"no command listens on port {port}", hint="llmc ports lists those that do.")
    if len(found) > 1:
        pids = ", ".join(str(one.pid) for one in found)
        raise ResourceBusy(f"several sessions have a port {port}", hint=f"Name a process: --pid, one of {pids}.")
    return found[0]
