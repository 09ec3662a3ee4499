"""Moving bytes from one socket to another until the first ends, without holding any of them.

What the second can't take stays in the kernel's buffer of the first, so that the sender waits and a thousand slow
readers cost no memory. Bytes are looked at, sent, and only then removed.
"""

import asyncio
import socket

_BUFFER = memoryview(bytearray(256 << 10))  # of all directions: nothing stays in it between two callbacks


class Pump:
    """One direction; `done` is set when it ended, with whether both sockets are still good."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._source, self._sink = source, sink
        self.done: asyncio.Future[bool] = self._loop.create_future()
        self.moved_at = self._loop.time()
        self._loop.add_reader(source, self._move)

    def _move(self) -> None:
        try:
            size = self._source.recv_into(_BUFFER, 0, socket.MSG_PEEK)
            if not size:
                self._sink.shutdown(socket.SHUT_WR)
                self.stop(intact=True)
                return
            sent = self._send(size)
            if sent:
                self._source.recv_into(_BUFFER, sent, socket.MSG_TRUNC)  # removes them, copies nothing
                self.moved_at = self._loop.time()
            if sent < size:
                self._loop.remove_reader(self._source)
                self._loop.add_writer(self._sink, self._go_on)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.stop(intact=False)

    def _send(self, size: int) -> int:
        try:
            return self._sink.send(_BUFFER[:size])
        except (BlockingIOError, InterruptedError):
            return 0

    def _go_on(self) -> None:
        self._loop.remove_writer(self._sink)
        self._loop.add_reader(self._source, self._move)

    def stop(self, *, intact: bool = False) -> None:
        """Move no more."""
        if not self.done.done():
            self._loop.remove_reader(self._source)
            self._loop.remove_writer(self._sink)
            self.done.set_result(intact)


async def run(pumps: list[Pump], idle_s: float, total_s: float) -> None:
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
