"""A child process with its output drained as it comes: bounded memory, cancellable, never left behind."""

import fcntl
import os
import select
import signal
from collections.abc import Callable, Iterator
from types import TracebackType

from .launcher import Launcher

_READ = 1 << 18
_PIPE_SIZE = 1 << 20
_POLL_MS = 50  # how often a silent child's caller is asked whether it still wants the answer
_STDERR_KEPT = 8192


class Child:
    """One child of the launcher, for the length of a `with` block; leaving the block early kills it."""

    def __init__(
        self,
        launcher: Launcher,
        argv: list[bytes],
        *,
        cwd: int,
        env: dict[bytes, bytes],
        ruleset: int | None = None,
    ) -> None:
        self._launcher = launcher
        self.exit_code: int | None = None
        self.stderr = b""
        out_read, out_write = os.pipe2(os.O_CLOEXEC)
        err_read, err_write = os.pipe2(os.O_CLOEXEC)
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._out, self._err = out_read, err_read
        try:
            _enlarge(out_read)
            fds = [cwd, null, out_write, err_write] + ([] if ruleset is None else [ruleset])
            self._child = launcher.start(argv, env, fds)
        except BaseException:
            self._close()
            raise
        finally:
            for fd in (null, out_write, err_write):
                os.close(fd)

    def __enter__(self) -> "Child":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.exit_code is None:
            self._launcher.signal(self._child, signal.SIGKILL)
            self.exit_code = self._launcher.wait(self._child)
        self._close()

    def output(self, check: Callable[[], None]) -> Iterator[bytes]:
        """What the child prints, piece by piece, until it ends; `check` may raise to give up."""
        poll = select.poll()
        waiting = {self._out, self._err}
        for fd in waiting:
            poll.register(fd, select.POLLIN)
        while waiting:
            ready = poll.poll(_POLL_MS)
            check()
            for fd, _ in ready:
                piece = os.read(fd, _READ)
                if not piece:
                    poll.unregister(fd)
                    waiting.discard(fd)
                elif fd == self._out:
                    yield piece
                else:
                    self.stderr = (self.stderr + piece)[:_STDERR_KEPT]
        self.exit_code = self._launcher.wait(self._child)

    def _close(self) -> None:
        for fd in (self._out, self._err):
            os.close(fd)


def _enlarge(pipe: int) -> None:
    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
    except OSError:
        pass  # an unprivileged user may be over his pipe quota; the default size only costs wake-ups
