"""The one process that starts children, and the server's end of the line to it.

Starting a child from a many-threaded server is where confinement leaks: file descriptors slip through, a child
dies with the thread that forked it, orphans outlive everybody. So a small single-threaded process does nothing
else. It gets each child's descriptors over a socket, applies the confinement between fork and exec, reaps
exactly what it started, adopts orphans (subreaper), and when the server is gone, even by SIGKILL, it sees the
socket close and ends all that is left.

The process runs `serve()`; the server uses `Launcher`. Standard library only, and as little of it as will do.
"""

import errno
import marshal
import os
import signal
import socket
import sys
from typing import Any, NamedTuple

from . import kernel

_MAX_MESSAGE = 4 << 20  # argv and environment of one child; the kernel's own limit for exec is 2 MB
_FDS = 5  # cwd, stdin, stdout, stderr, Landlock rule set


# --- the launcher process ----------------------------------------------------------------------------


def serve(channel_fd: int) -> None:
    """The launcher's main loop: start, signal and reap until the server's end of the socket closes."""
    channel = socket.socket(fileno=channel_fd)
    kernel.become_subreaper()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a terminal's ^C is the server's business
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _wake)

    import select

    poll = select.poll()
    poll.register(channel_fd, select.POLLIN)
    poll.register(wake_read, select.POLLIN)
    running: dict[int, int] = {}  # pid → the server's number for the child
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if wake_read in ready:
            os.read(wake_read, 4096)
        if channel_fd in ready:
            message, fds, _, _ = socket.recv_fds(channel, _MAX_MESSAGE, _FDS, socket.MSG_CMSG_CLOEXEC)
            if not message:
                break
            _obey(channel, running, marshal.loads(message), fds)
        _reap(channel, running)
    _sweep()


def _wake(*_: object) -> None:
    """SIGCHLD needs a handler for its byte to reach the wake-up pipe; the loop does the work."""


def _obey(channel: socket.socket, running: dict[int, int], order: tuple[Any, ...], fds: list[int]) -> None:
    verb, number = order[0], order[1]
    if verb == "start":
        try:
            pid = _start(order[2], order[3], fds)
        except OSError as exc:
            _tell(channel, ("failed", number, exc.errno))
        else:
            running[pid] = number
            _tell(channel, ("started", number, pid))
        finally:
            for fd in fds:
                os.close(fd)
    elif verb == "signal":
        for pid, running_number in running.items():
            if running_number == number:  # not reaped yet, so the pid still belongs to our child
                _signal_tree(pid, order[2])


def _tell(channel: socket.socket, event: tuple[Any, ...]) -> None:
    try:
        channel.send(marshal.dumps(event))
    except OSError:
        pass  # the server is gone; the main loop is about to notice


def _start(argv: list[bytes], env: dict[bytes, bytes], fds: list[int]) -> int:
    """Fork, confine, exec. An error before exec comes back through a pipe that exec itself closes."""
    report_read, report_write = os.pipe2(os.O_CLOEXEC)
    launcher = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            kernel.die_with_parent(signal.SIGKILL)
            if os.getppid() != launcher:  # it died before the line above could take effect
                os._exit(127)
            _become(argv, env, fds, report_write)
        except OSError as exc:
            os.write(report_write, (exc.errno or errno.EIO).to_bytes(4, "little"))
        finally:
            os._exit(127)
    os.close(report_write)
    report = os.read(report_read, 4)
    os.close(report_read)
    if report:
        os.waitpid(pid, 0)
        raise OSError(int.from_bytes(report, "little"), "child could not start")
    return pid


def _become(argv: list[bytes], env: dict[bytes, bytes], fds: list[int], report: int) -> None:
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    cwd, stdin, stdout, stderr = fds[:4]
    os.fchdir(cwd)
    # Lift everything above the standard three first: a source fd may itself be 0, 1 or 2.
    lifted = [_lift(fd) for fd in (stdin, stdout, stderr)]
    for target, fd in enumerate(lifted):
        os.dup2(fd, target, inheritable=True)
    kernel.no_new_privileges()
    if len(fds) == _FDS:
        kernel.landlock_restrict_self(fds[4])
    os.closerange(3, report)
    os.closerange(report + 1, 1 << 20)
    os.execve(argv[0], argv, env)


def _lift(fd: int) -> int:
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)


def _reap(channel: socket.socket, running: dict[int, int]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        number = running.pop(pid, None)
        if number is not None:
            _tell(channel, ("ended", number, os.waitstatus_to_exitcode(status)))


def _children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as listing:
            return [int(word) for word in listing.read().split()]
    except OSError:
        return []


def _signal_tree(pid: int, number: int) -> None:
    """Signal a process and all its living descendants, parents first so that they can't fork anew."""
    below = _children(pid)
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
    for child in below:
        _signal_tree(child, number)


def _sweep() -> None:
    """End every descendant: orphans are reparented to us, so killing children until none is left gets all."""
    me = os.getpid()
    while below := _children(me):
        for pid in below:
            _signal_tree(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, 0)[0]:
                if not _children(me):
                    break
        except ChildProcessError:
            return


# --- the server's end --------------------------------------------------------------------------------


class Started(NamedTuple):
    """A running child, as the server knows it."""

    number: int
    pid: int


class Launcher:
    """Starts the launcher process on first use and talks to it; safe from any thread."""

    def __init__(self) -> None:
        import threading

        self._lock = threading.Lock()
        self._news = threading.Condition()
        self._channel: socket.socket | None = None
        self._pid = 0
        self._next = 0
        self._events: dict[int, dict[str, int]] = {}

    def start(self, argv: list[bytes], env: dict[bytes, bytes], fds: list[int]) -> Started:
        """Start `argv` with `fds` = cwd, stdin, stdout, stderr and, if confined, a Landlock rule set."""
        with self._lock:
            channel = self._connected()
            self._next += 1
            number = self._next
            self._events[number] = {}
            try:
                socket.send_fds(channel, [marshal.dumps(("start", number, argv, env))], fds)
            except OSError as exc:
                del self._events[number]
                raise OSError(errno.E2BIG if exc.errno == errno.EMSGSIZE else exc.errno, "cannot start") from None
        events = self._wait_for(number, ("started", "failed"))
        if "started" not in events:
            self._forget(number)
            raise OSError(events.get("failed", errno.EPIPE), os.strerror(events.get("failed", errno.EPIPE)))
        return Started(number, events["started"])

    def signal(self, child: Started, number: int) -> None:
        """Signal a child and its descendants; nothing happens when it has ended already."""
        with self._lock:
            if self._channel is not None:
                try:
                    self._channel.send(marshal.dumps(("signal", child.number, number)))
                except OSError:
                    pass  # the launcher is gone, and its children with it

    def wait(self, child: Started) -> int:
        """The exit code of a child (negative: the signal that ended it). Call once; the child is forgotten."""
        events = self._wait_for(child.number, ("ended",))
        self._forget(child.number)
        return events.get("ended", -signal.SIGKILL)

    def close(self) -> None:
        """Hang up: the launcher ends all children and itself."""
        with self._lock:
            channel, self._channel = self._channel, None
        if channel is not None:
            channel.shutdown(socket.SHUT_RDWR)
            os.waitpid(self._pid, 0)

    def _connected(self) -> socket.socket:
        if self._channel is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with ours, theirs:
                for end in (ours, theirs):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MAX_MESSAGE)
                self._pid = _spawn_launcher(theirs.fileno())
                self._channel = ours.dup()
            self._listen(self._channel)
        return self._channel

    def _listen(self, channel: socket.socket) -> None:
        import threading

        threading.Thread(target=self._hear, args=(channel,), name="launcher", daemon=True).start()

    def _hear(self, channel: socket.socket) -> None:
        while True:
            try:
                message = channel.recv(4096)
            except OSError:
                message = b""
            with self._news:
                if message:
                    event, number, value = marshal.loads(message)
                    if number in self._events:
                        self._events[number][event] = value
                else:
                    self._events = {}  # whoever waits is told that the child is gone
                self._news.notify_all()
            if not message:
                break
        with self._lock:
            if self._channel is channel:  # the launcher died by itself: the next start makes a new one
                self._channel = None
                os.waitpid(self._pid, 0)

    def _wait_for(self, number: int, names: tuple[str, ...]) -> dict[str, int]:
        with self._news:
            while True:
                events = self._events.get(number)
                if events is None:
                    return {}
                if any(name in events for name in names):
                    return dict(events)
                self._news.wait()

    def _forget(self, number: int) -> None:
        with self._news:
            self._events.pop(number, None)


def _spawn_launcher(channel_fd: int) -> int:
    """A bare interpreter: no site packages, no user settings, an empty environment, one inherited socket."""
    package_home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    code = f"import sys; sys.path.append({package_home!r}); from llmc_mcp.te.launcher import serve; serve(3)"
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
