"""A child process whose output is drained as it arrives: bounded memory, cancellable, never left behind."""

import fcntl
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import NamedTuple, Protocol

from .exec_status import ExecStatus
from .launcher import Launcher, RunningChild
from .launcher_process import ChildPlan

OUT, ERR, BESIDE = "stdout", "stderr", "beside"

_READ = 1 << 18
_PIPE_SIZE = 1 << 20
_POLL_S = 0.05  # how often cancellation is checked while the child is silent
_DRAIN_S = 1.0  # how long output may still arrive after the child has ended: another process may hold the pipe
_KILL_S = 3.0  # the kernel can't kill a process that waits for a file system which does not answer
_STDERR_KEPT = 8192


class Beside(Protocol):
    """Another channel of a child, served along with its output."""

    def fileno(self) -> int: ...

    def serve(self) -> bool:
        """Handle that it is readable; return False when it need not be watched any more."""
        ...


class ReleasedChild(NamedTuple):
    """A child that somebody else goes on with: its outputs, and what tells whether it was executed."""

    child: RunningChild
    out: int
    err: int
    status: ExecStatus | None


class Child:
    """One child of the launcher, for the length of a `with` block; leaving the block early kills it."""

    def __init__(  # noqa: PLR0913 - everything a child needs, all but two by keyword
        self,
        launcher: Launcher,
        argv: list[bytes],
        *,
        cwd: int,
        env: dict[bytes, bytes],
        ruleset: int | None = None,
        plan: ChildPlan | None = None,
        more_fds: tuple[int, ...] = (),
        stdin: bytes | int | None = None,
        status: ExecStatus | None = None,
    ) -> None:
        """`stdin` is data or an open file. `more_fds` come after the four standard ones: `plan` counts them from 4.

        `status` is closed with the child.
        """
        self._launcher, self._status = launcher, status
        self.executed = True  # final once closed; without a wrapper, start fails for what can't be executed
        self.exit_code: int | None = None
        self.stderr = b""
        self._released = False
        out_read, out_write = os.pipe2(os.O_CLOEXEC)
        err_read, err_write = os.pipe2(os.O_CLOEXEC)
        source = _source(stdin)
        self._out, self._err = out_read, err_read
        try:
            _enlarge(out_read)
            fds = [cwd, source, out_write, err_write, *more_fds]
            plan = plan or {}
            if ruleset is not None:
                plan = {**plan, "ruleset": len(fds)}
                fds.append(ruleset)
            self._child = launcher.start(argv, env, fds, plan)
        except BaseException:
            self._close()
            raise
        finally:
            for fd in (source, out_write, err_write):
                os.close(fd)

    @property
    def pid(self) -> int:
        """The pid of the child or, if it is supervised, of its supervisor."""
        return self._child.pid

    def __enter__(self) -> "Child":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._released:
            self.kill()
            self._close()

    def output(self, check: Callable[[], None]) -> Iterator[bytes]:
        """Yield the child's stdout in pieces until it ends; keep the start of its stderr in `stderr`."""
        for stream, piece in self.streams(check):
            if stream == OUT:
                yield piece
            else:
                self.stderr = (self.stderr + piece)[:_STDERR_KEPT]

    def streams(self, check: Callable[[], None], beside: Beside | None = None) -> Iterator[tuple[str, bytes]]:
        """Yield both outputs in pieces, as (stream, bytes), until the child ends; `check` may raise to cancel.

        Yield an empty piece each time `beside` was served.
        """
        poll = select.poll()
        names = {self._out: OUT, self._err: ERR}
        if beside is not None:
            names[beside.fileno()] = BESIDE
        for fd in names:
            poll.register(fd, select.POLLIN)
        drained_by = float("inf")
        while names and time.monotonic() < drained_by:
            ready = poll.poll(_POLL_S * 1000)
            check()
            for fd, _ in ready:
                name, piece, more = names[fd], b"", False
                if beside is not None and name == BESIDE:
                    more = beside.serve()
                else:
                    piece = os.read(fd, _READ)
                    more = bool(piece)
                if not more:
                    poll.unregister(fd)
                    del names[fd]
                if piece or name == BESIDE:
                    yield name, piece
            if not ready and self._ended(0):
                drained_by = min(drained_by, time.monotonic() + _DRAIN_S)
        while not self._ended(_POLL_S):
            check()

    def terminate(self, grace_s: float) -> None:
        """Send SIGTERM to the whole tree, and kill it if it has not ended after the grace period."""
        self._launcher.signal(self._child, signal.SIGTERM)
        if not self._ended(grace_s):
            self.kill()

    def kill(self) -> None:
        """Kill the whole tree and wait for its end, unless the kernel itself can't end it now."""
        if self.exit_code is None:
            self._launcher.signal(self._child, signal.SIGKILL)
            if not self._ended(_KILL_S):
                self._launcher.forget(self._child)
                self.exit_code = -signal.SIGKILL

    def abandon(self) -> None:
        """Kill the whole tree without waiting for its end: for a child that can do no harm in the meantime."""
        if self.exit_code is None:
            self._launcher.signal(self._child, signal.SIGKILL)
            self._launcher.forget(self._child)
            self.exit_code = -signal.SIGKILL

    def running(self) -> "ReleasedChild":
        """What somebody else needs to go on with the child."""
        return ReleasedChild(self._child, self._out, self._err, self._status)

    def release(self) -> None:
        """Let go of the child: whoever went on with it closes its descriptors."""
        self._released = True

    def left_over(self) -> Iterator[tuple[str, bytes]]:
        """Yield the unread output of an ended child, without waiting for more."""
        for fd, name in ((self._out, OUT), (self._err, ERR)):
            os.set_blocking(fd, False)
            try:
                while piece := os.read(fd, _READ):
                    yield name, piece
            except BlockingIOError:
                pass

    def _ended(self, seconds: float) -> bool:
        if self.exit_code is None:
            self.exit_code = self._launcher.wait(self._child, seconds)
        return self.exit_code is not None

    def _close(self) -> None:
        for fd in (self._out, self._err):
            os.close(fd)
        if self._status is not None:
            self.executed = self._status.executed(self.exit_code)
            self._status.close()


def _source(stdin: bytes | int | None) -> int:
    """Open the child's stdin: nothing, an open file, or data as a file in memory, so that no pipe has to be fed."""
    if stdin is None:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    if isinstance(stdin, int):
        return os.dup(stdin)
    return file_in_memory(stdin)


def file_in_memory(data: bytes) -> int:
    """A file of its own that can only be read, from its beginning."""
    writable = os.memfd_create("data")
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(writable, view) :]
        return os.open(f"/proc/self/fd/{writable}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(writable)


def _enlarge(pipe: int) -> None:
    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
    except OSError:
        pass  # an unprivileged user may be over its pipe quota; the default size only costs wake-ups
