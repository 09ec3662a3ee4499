"""Moving bytes from one socket to another until the first ends, without holding any of them.

The kernel moves them through a pipe (splice), so that they never enter this process. What the second socket can't take
waits in that pipe, and the sender behind it: a thousand slow readers cost no memory here.
"""

import asyncio
import contextlib
import fcntl
import os
import socket

_AT_ONCE = 1 << 20


class _Pipes:
    """Empty pipes, for whoever moves something next."""

    def __init__(self) -> None:
        self._free: list[tuple[int, int]] = []

    def take(self) -> tuple[int, int]:
        if self._free:
            return self._free.pop()
        pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # a user may be over the quota for larger pipes
            fcntl.fcntl(pipe[1], fcntl.F_SETPIPE_SZ, _AT_ONCE)
        return pipe

    def give_back(self, pipe: tuple[int, int], *, empty: bool) -> None:
        if empty and not self._free:
            self._free.append(pipe)
            return
        for fd in pipe:
            os.close(fd)


_PIPES = _Pipes()


class SplicePump:
    """One direction; `done` is set when it ended, with whether both sockets are still good."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._source, self._sink = source, sink
        self._pipe: tuple[int, int] | None = None  # while something is in it
        self._held = 0
        self.done: asyncio.Future[bool] = self._loop.create_future()
        self.moved_at = self._loop.time()
        self._loop.add_reader(source, self._read)

    def _read(self) -> None:
        try:
            self._pipe = _PIPES.take()
            self._held = os.splice(self._source.fileno(), self._pipe[1], _AT_ONCE)
            if not self._held:
                self._sink.shutdown(socket.SHUT_WR)
                self.stop(intact=True)
                return
        except (BlockingIOError, InterruptedError):
            self._let_go()
        except OSError:
            self.stop()
        else:
            self._write()

    def _write(self) -> None:
        if self._pipe is None:
            return
        try:
            while self._held:
                self._held -= os.splice(self._pipe[0], self._sink.fileno(), self._held)
                self.moved_at = self._loop.time()
        except (BlockingIOError, InterruptedError):
            self._loop.remove_reader(self._source)
            self._loop.add_writer(self._sink, self._go_on)
        except OSError:
            self.stop()
        else:
            self._let_go()

    def _let_go(self) -> None:
        """Give the pipe back; one with something left in it is of no use to others."""
        if self._pipe is not None:
            _PIPES.give_back(self._pipe, empty=not self._held)
            self._pipe = None

    def _go_on(self) -> None:
        self._loop.remove_writer(self._sink)
        self._loop.add_reader(self._source, self._read)
        self._write()

    def stop(self, *, intact: bool = False) -> None:
        """Move no more."""
        if not self.done.done():
            self._loop.remove_reader(self._source)
            self._loop.remove_writer(self._sink)
            self._let_go()
            self.done.set_result(intact)


async def run(pumps: list[SplicePump], idle_s: float, total_s: float) -> None:
    """Let pumps run until all ended, one broke, nothing moved for `idle_s`, or `total_s` are over."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + total_s
    try:
        while waiting := [pump.done for pump in pumps if not pump.done.done()]:
            idle_at = max(pump.moved_at for pump in pumps) + idle_s
            seconds = min(idle_at, ends_at) - loop.time()
            if seconds <= 0:
                return
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if any(pump.done.done() and not pump.done.result() for pump in pumps):
                return
    finally:
        for pump in pumps:
            pump.stop()
