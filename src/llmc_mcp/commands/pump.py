"""One thread for all programs that outlive a call: it collects output, writes pending input, and notices their end."""

import os
import select
import threading
import time
from collections.abc import Callable
from typing import Protocol

_FLOOD_BYTES = 1 << 20  # a program that prints more than this …
_FLOOD_S = 0.1  # … within this time is not read until the time is over
_LONGEST_WAIT_S = 30.0


class PumpedProgram(Protocol):
    """A program whose output is read and whose input is written."""

    master: int  # where input is written
    outputs: tuple[int, ...]  # where output is read
    ended_fd: int  # readable once the program has ended

    def readable(self, fd: int) -> int:
        """Read the output that is available; return the number of bytes, or -1 if there will be no more."""
        ...

    def writable(self) -> bool:
        """Write pending input; return whether there is more."""
        ...

    def ended(self) -> None:
        """Handle the end of the program and of everything that it started."""
        ...


class Pump:
    """The thread, started with the first terminal; it calls `tidy`, which returns the seconds until it is due again."""

    def __init__(self, tidy: Callable[[], float]) -> None:
        self._tidy = tidy
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._sources: dict[int, PumpedProgram] = {}  # by any of its fds
        self._read_rates: dict[int, tuple[float, int]] = {}  # by output: the start of the interval, bytes read in it
        self._paused: dict[int, float] = {}  # by output: when reading resumes
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="terminals", daemon=True)
        self._thread.start()

    def add(self, source: PumpedProgram) -> None:
        """Serve a program from now on."""
        with self._lock:
            for fd in (*source.outputs, source.ended_fd):
                self._sources[fd] = source
                self._epoll.register(fd, select.EPOLLIN)
        self.nudge()

    def wants_to_write(self, source: PumpedProgram) -> None:
        """Call `writable` as soon as the terminal accepts more."""
        with self._lock:
            if source.master in self._sources:
                self._epoll.modify(source.master, self._events(source.master) | select.EPOLLOUT)

    def nudge(self) -> None:
        """Wake the thread, so that it tidies up soon."""
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        self._closed = True
        self.nudge()
        self._thread.join()
        self._epoll.close()
        os.close(self._wake)

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed:
            wait = min(self._tidy(), self._resume(), _LONGEST_WAIT_S)
            for fd, events in self._epoll.poll(max(wait, 0.0)):
                if fd == self._wake:
                    os.eventfd_read(fd)
                elif (source := self._sources.get(fd)) is not None:
                    if fd == source.ended_fd:
                        self._finish(source)
                    else:
                        self._serve(source, fd, events)

    def _resume(self) -> float:
        """Resume reading programs whose pause is over; return the seconds until the next pause ends."""
        now = time.monotonic()
        for fd in [fd for fd, until in self._paused.items() if until <= now]:
            del self._paused[fd]
            with self._lock:
                if fd in self._sources:
                    self._epoll.modify(fd, select.EPOLLIN | select.EPOLLOUT)
        return min(self._paused.values(), default=now + _LONGEST_WAIT_S) - now

    def _events(self, master: int) -> int:
        return 0 if master in self._paused else select.EPOLLIN

    def _serve(self, source: PumpedProgram, fd: int, events: int) -> None:
        if events & (select.EPOLLIN | select.EPOLLHUP):
            size = source.readable(fd)
            if size < 0:
                with self._lock:
                    self._drop(fd)
                return
            self._count(fd, size)
        if events & select.EPOLLOUT and fd == source.master and not source.writable():
            with self._lock:
                self._epoll.modify(fd, self._events(fd))
            if source.writable():  # input was added between the two calls above
                self.wants_to_write(source)

    def _drop(self, fd: int) -> None:
        if self._sources.pop(fd, None) is not None:
            self._epoll.unregister(fd)
        self._read_rates.pop(fd, None)
        self._paused.pop(fd, None)

    def _count(self, fd: int, size: int) -> None:
        """Pause a program that prints without end: it must not monopolize this thread and thereby the server."""
        now = time.monotonic()
        since, count = self._read_rates.get(fd, (now, 0))
        if now - since > _FLOOD_S:
            since, count = now, 0
        self._read_rates[fd] = since, count + size
        if count + size > _FLOOD_BYTES:
            self._paused[fd] = since + _FLOOD_S
            with self._lock:
                self._epoll.modify(fd, 0)

    def _finish(self, source: PumpedProgram) -> None:
        if not select.select([source.ended_fd], [], [], 0)[0]:
            return  # a stale event of an earlier program that had the same fd
        with self._lock:
            for fd in (*source.outputs, source.ended_fd):
                self._drop(fd)
        source.ended()
