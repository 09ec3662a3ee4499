"""The server's end of the channel to the launcher, the one process that starts children (`launcher_process.py`)."""

import errno
import marshal
import os
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from .. import PACKAGE_HOME
from .launcher_process import MAX_MESSAGE, NOT_CONFINED, ChildPlan

if TYPE_CHECKING:
    from .namespaces import MachineSpec

_START_S = 30.0  # from the order to exec; a file system that does not answer may keep a child from ever getting there
_SEND_S = 10  # until the launcher takes an order
_END_S = 5.0  # until a launcher is gone; one that waits for a child which the kernel can't kill goes on by itself


class RunningChild(NamedTuple):
    """A running child, as the server knows it."""

    number: int
    pid: int


class ConfinementError(OSError):
    """The child was not started, because it could not be confined."""


class Launcher:
    """Starts the launcher process on first use and talks to it; safe from any thread.

    With `cgroup` (a cgroup.procs file) the process, and so all it starts, is a member of that group. It joins once:
    moving every single child takes the kernel 10 ms.
    """

    def __init__(self, cgroup: str | None = None) -> None:
        import threading

        self._cgroup = cgroup

        self._lock = threading.Lock()
        self._news = threading.Condition()
        self._channel: socket.socket | None = None
        self._pid = 0
        self._next = 0
        self._used_at = 0.0
        self._events: dict[int, dict[str, int]] = {}

    def start(self, argv: list[bytes], env: dict[bytes, bytes], fds: list[int], plan: ChildPlan) -> RunningChild:
        """Start `argv` with `fds` = cwd, stdin, stdout, stderr and whatever else `plan` refers to."""
        with self._lock:
            self._next += 1
            number = self._next
            order = marshal.dumps(("start", number, argv, env, {**plan}))
            try:
                self._order(number, order, fds)
            except (BrokenPipeError, ConnectionResetError):  # the launcher died since, and never saw the order
                self._disconnect()
                self._order(number, order, fds)
            except OSError as exc:
                too_big = exc.errno in (errno.EMSGSIZE, errno.ENOBUFS)
                raise OSError(errno.E2BIG if too_big else exc.errno, "cannot start") from None
        events = self._wait_for(number, ("started", "failed"), _START_S)
        if events is None:
            self.signal(RunningChild(number, 0), signal.SIGKILL)
            self._forget(number)
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        if "started" not in events:
            self._forget(number)
            stage, number = divmod(events.get("failed", errno.EPIPE), NOT_CONFINED)
            raise (ConfinementError if stage else OSError)(number, os.strerror(number))
        return RunningChild(number, events["started"])

    def _order(self, number: int, order: bytes, fds: list[int]) -> None:
        channel = self._connected()
        self._used_at = time.monotonic()
        self._events[number] = {}
        try:
            socket.send_fds(channel, [order], fds)
        except OSError:
            self._forget(number)
            raise

    def make_machine(self, spec: "MachineSpec", reply: int) -> None:
        """Have the namespaces of a machine made; whoever holds the other end of the socket `reply` gets them."""
        order = marshal.dumps(("machine", 0, {**spec}))
        with self._lock:
            try:
                socket.send_fds(self._connected(), [order], [reply])
            except (BrokenPipeError, ConnectionResetError):  # the launcher died since
                self._disconnect()
                socket.send_fds(self._connected(), [order], [reply])

    def signal(self, child: RunningChild, number: int) -> None:
        """Signal a child and its descendants; nothing happens when it has ended already."""
        with self._lock:
            if self._channel is not None:
                try:
                    self._channel.send(marshal.dumps(("signal", child.number, int(number))))
                except OSError:
                    pass  # the launcher is gone, and its children with it

    def wait(self, child: RunningChild, seconds: float | None = None) -> int | None:
        """The exit code of a child (negative: the signal that ended it), or None if it runs on past `seconds`.

        An exit code is returned once; then the child is forgotten.
        """
        events = self._wait_for(child.number, ("ended",), seconds)
        if events is None:
            return None
        self._forget(child.number)
        return events.get("ended", -signal.SIGKILL)

    def forget(self, child: RunningChild) -> None:
        """Nobody will ask how a child ended."""
        self._forget(child.number)

    def close(self) -> None:
        """Hang up: the launcher ends all children and itself."""
        with self._lock:
            self._disconnect()

    def release_idle(self, idle_s: float) -> bool:
        """End the process if it has no child and has started none for a while; whether it was ended.

        The next start makes a new one. A start is known here before its order is sent, so none is ever cut off.
        """
        with self._lock:
            if self._channel is None or self._events or time.monotonic() - self._used_at < idle_s:
                return False
            self._disconnect()
            return True

    def _disconnect(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.shutdown(socket.SHUT_RDWR)  # wakes the listener, which closes it
            _reap_within(self._pid, _END_S)

    def _connected(self) -> socket.socket:
        """The channel to the launcher. It counts only once somebody listens to it and the launcher has started."""
        if self._channel is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            events: dict[int, dict[str, int]] = {}  # children of a launcher that is gone are gone with it
            with theirs:
                self._listen(ours, events)
                try:
                    for end in (ours, theirs):
                        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_MESSAGE)
                    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(_SEND_S))
                    self._pid = _spawn_launcher(theirs.fileno())
                except OSError:
                    ours.shutdown(socket.SHUT_RDWR)  # the listener closes it
                    raise
            self._channel, self._events = ours, events
            if self._cgroup is not None:
                ours.send(marshal.dumps(("join", 0, self._cgroup)))
        return self._channel

    def _listen(self, channel: socket.socket, events: dict[int, dict[str, int]]) -> None:
        import threading

        try:
            threading.Thread(target=self._hear, args=(channel, events), name="launcher", daemon=True).start()
        except RuntimeError:  # how Python says that the system gives it no more threads
            channel.close()
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None

    def _hear(self, channel: socket.socket, events: dict[int, dict[str, int]]) -> None:
        while True:
            try:
                message = channel.recv(4096)
            except OSError:
                message = b""
            with self._news:
                if message:
                    event, number, value = marshal.loads(message)
                    if number in events:
                        events[number][event] = value
                else:
                    events.clear()  # whoever waits learns that the child is gone
                self._news.notify_all()
            if not message:
                break
        with self._lock:
            if self._channel is channel:  # the launcher died by itself: the next start makes a new one
                self._disconnect()
        channel.close()

    def _wait_for(self, number: int, names: tuple[str, ...], seconds: float | None = None) -> dict[str, int] | None:
        """What is known of a child once one of `names` is; empty when the launcher died, None when time is up."""

        def has_news() -> bool:
            events = self._events.get(number)
            return events is None or any(name in events for name in names)

        with self._news:
            if not self._news.wait_for(has_news, seconds):
                return None
            return dict(self._events.get(number, {}))

    def _forget(self, number: int) -> None:
        with self._news:
            self._events.pop(number, None)


def _reap_within(pid: int, seconds: float) -> None:
    give_up = time.monotonic() + seconds
    while os.waitpid(pid, os.WNOHANG) == (0, 0) and time.monotonic() < give_up:
        time.sleep(0.001)


def _timeval(seconds: int) -> bytes:
    """A C timeval."""
    size = (sys.maxsize.bit_length() + 1) // 8
    return seconds.to_bytes(size, sys.byteorder) + bytes(size)


def _spawn_launcher(channel_fd: int) -> int:
    """A bare interpreter: no site packages, no user settings, an empty environment, one inherited socket."""
    code = (
        f"import sys; sys.path.append({PACKAGE_HOME!r}); from llmc_mcp.kernel.launcher_process import serve; serve(3)"
    )
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-c", code],
            {},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, null, 0),
                (os.POSIX_SPAWN_DUP2, null, 1),
                (os.POSIX_SPAWN_DUP2, channel_fd, 3),
            ],
            setsigmask=[],
        )
    finally:
        os.close(null)
