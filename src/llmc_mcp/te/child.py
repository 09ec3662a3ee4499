"""Starts the command behind `te`, waits for it and exits like it. Every `te` imports this module: it stays light."""

import errno
import os
import resource
import select
import signal
import stat
from collections.abc import Iterator
from types import FrameType

TYPE_CHECKING = False  # typing.TYPE_CHECKING without importing typing
if TYPE_CHECKING:
    from typing import NoReturn

NOT_FOUND = 127
NOT_EXECUTABLE = 126

_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_FROM_A_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
_AT_ONCE = 1 << 20  # bytes moved by one call, and held by a pipe where the kernel allows it
_READ = 1 << 18
_F_SETPIPE_SZ = 1031


class NotStarted(Exception):
    """The command does not exist or can't be executed; `code` is the exit code of a shell."""

    def __init__(self, word: str, exc: OSError) -> None:
        missing = isinstance(exc, FileNotFoundError)
        self.code = NOT_FOUND if missing else NOT_EXECUTABLE
        super().__init__(f"te: {word}: {'command not found' if missing else exc.strerror}")


class WrappedCommand:
    """A running command; signals are forwarded to it."""

    def __init__(self, argv: list[str], *, stdout: int = 1, stderr: int = 2) -> None:
        actions = [(os.POSIX_SPAWN_DUP2, fd, number) for fd, number in ((stdout, 1), (stderr, 2)) if fd != number]
        try:
            self.pid = os.posix_spawnp(
                argv[0], argv, os.environ, file_actions=actions, setsigdef=_IGNORED_BY_PYTHON, setsigmask=()
            )
        except OSError as exc:
            raise NotStarted(argv[0], exc) from None
        for number in _FORWARDED:
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup: an ignored signal stays ignored
                signal.signal(number, self._forward)

    def _forward(self, number: int, frame: FrameType | None) -> None:
        del frame
        if number in _FROM_A_TERMINAL and _in_foreground():
            return  # the terminal signals the command itself: it is in our process group
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            pass

    def wait(self) -> int:
        """The exit code; minus the number of the signal that killed it."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _in_foreground() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def pipe() -> tuple[int, int]:
    """A pipe with the largest buffer allowed."""
    ends = os.pipe2(os.O_CLOEXEC)
    import fcntl

    try:
        fcntl.fcntl(ends[0], _F_SETPIPE_SZ, _AT_ONCE)
    except OSError:
        pass  # over the quota of pipes: the default size only costs wake-ups
    return ends


def run_through(argv: list[str], *, counted: bool = True) -> tuple[int, int]:
    """Run a command on our own stdout; returns its exit code and how many bytes it printed, 0 where unseen.

    `counted`: output to a pipe is counted as well, which means copying it.
    """
    kind = os.fstat(1).st_mode
    if counted and (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)):
        return _run_counted(argv)
    before = _offset(kind)
    code = WrappedCommand(argv).wait()
    return code, max(_offset(kind) - before, 0)


def _offset(kind: int) -> int:
    try:
        return os.lseek(1, 0, os.SEEK_CUR) if stat.S_ISREG(kind) else 0
    except OSError:
        return 0


def _run_counted(argv: list[str]) -> tuple[int, int]:
    source, end = pipe()
    child = WrappedCommand(argv, stdout=end)
    os.close(end)
    moved, open_still = pump(source, 1, os.pidfd_open(child.pid))
    code = child.wait()
    if open_still and os.fork() == 0:  # a child that the command left behind still prints
        pump(source, 1)
        os._exit(0)
    os.close(source)
    return code, moved


def pieces(sources: dict[int, str], ended: int, patience_ms: int | None = None) -> Iterator[tuple[str, bytes]]:
    """The output of a command, by stream, until it ended and the pipes are empty; its children are not waited for.

    After `patience_ms` without any there is an empty piece of no stream.
    """
    poll = select.poll()
    for fd in (*sources, ended):
        poll.register(fd, select.POLLIN)
    left, over = dict(sources), False
    while left:
        ready = {fd for fd, _ in poll.poll(0 if over else patience_ms)}
        if over and not ready & left.keys():
            return
        if not ready:
            yield "", b""
        over = over or ended in ready
        for fd in ready & left.keys():
            piece = os.read(fd, _READ)
            if piece:
                yield left[fd], piece
            else:
                poll.unregister(fd)
                del left[fd]


def pump(source: int, target: int, ended: int = -1) -> tuple[int, bool]:
    """Move bytes until the pipe ends, or nothing is left in it once `ended`, a pidfd, is ready.

    Returns how many, and whether a process still holds the pipe. When the reader is gone the pipe is closed, and
    the command gets the SIGPIPE that it would get without us.
    """
    os.set_blocking(source, False)
    poll = select.poll()
    poll.register(source, select.POLLIN)
    if ended >= 0:
        poll.register(ended, select.POLLIN)
    moved, over = 0, False
    while True:
        over = over or any(fd == ended for fd, _ in poll.poll(0 if over else None))
        try:
            step = _move(source, target)
        except BlockingIOError:
            if over:
                return moved, True
            continue
        except BrokenPipeError:
            os.close(source)
            os.dup2(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), source)
            return moved, False
        if step == 0:
            return moved, False
        moved += step


def _move(source: int, target: int) -> int:
    """Move some bytes out of a pipe; BlockingIOError when it is empty."""
    while True:
        try:
            return os.splice(source, target, _AT_ONCE)
        except BlockingIOError:
            if not select.select([source], [], [], 0)[0]:
                raise
            select.select([], [target], [])  # the target is non-blocking and full
        except OSError as exc:
            if exc.errno != errno.EINVAL:
                raise
            piece = os.read(source, _AT_ONCE)  # appended files and some devices can't be spliced to
            write(target, piece)
            return len(piece)


def print_later(source: int) -> None:
    """Leave a process behind that prints what the command's own children still have to say, if there are any."""
    poll = select.poll()
    poll.register(source, select.POLLIN)
    if any(event & select.POLLHUP for _, event in poll.poll(0)):
        return
    if os.fork() == 0:
        pump(source, 1)
        os._exit(0)


def write(target: int, data: bytes) -> None:
    """Write all of it, also to a non-blocking target."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(target, view) :]
        except BlockingIOError:
            select.select([], [target], [])


def end_like(code: int) -> "NoReturn":
    """Exit as the command did, by the same code or signal."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # one dump is enough
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
        code = 128 - code
    os._exit(code)
