"""One thread for all terminals: it collects what programs print, types what had to wait, and notices when they end."""

import os
import select
import threading
import time
from collections.abc import Callable
from typing import Protocol

_FLOOD_BYTES = 1 << 20  # what one program may print …
_FLOOD_S = 0.1  # … in this time, before it has to wait for the rest of it
_LONGEST_WAIT_S = 30.0


class PumpedProgram(Protocol):
    """Something that prints, and can be typed to."""

    master: int
    ended_fd: int  # readable once the program is gone

    def readable(self) -> int:
        """Read what is there; how much it was."""
        ...

    def writable(self) -> bool:
        """Type on; whether there is more to type."""
        ...

    def ended(self) -> None:
        """The program is gone, and all it printed has been received."""
        ...


class Pump:
    """The thread, made with the first terminal; `tidy` is called now and then and says when it wants to be again."""

    def __init__(self, tidy: Callable[[], float]) -> None:
        self._tidy = tidy
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._sources: dict[int, PumpedProgram] = {}  # by either of its fds
        self._taken: dict[int, tuple[float, int]] = {}  # by master: since when, how much
        self._resting: dict[int, float] = {}  # floods: until when they are not read
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="terminals", daemon=True)
        self._thread.start()

    def add(self, source: PumpedProgram) -> None:
        """Serve a program from now on."""
        with self._lock:
            self._sources[source.master] = self._sources[source.ended_fd] = source
            self._epoll.register(source.master, select.EPOLLIN)
            self._epoll.register(source.ended_fd, select.EPOLLIN)
        self.nudge()

    def wants_to_write(self, source: PumpedProgram) -> None:
        """Call `writable` as soon as the terminal takes more."""
        with self._lock:
            if source.master in self._sources:
                self._epoll.modify(source.master, self._events(source.master) | select.EPOLLOUT)

    def nudge(self) -> None:
        """Tidy up soon."""
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
            wait = min(self._tidy(), self._awake_in(), _LONGEST_WAIT_S)
            for fd, events in self._epoll.poll(max(wait, 0.0)):
                if fd == self._wake:
                    os.eventfd_read(fd)
                elif (source := self._sources.get(fd)) is not None:
                    if fd == source.ended_fd:
                        self._finish(source)
                    else:
                        self._serve(source, events)

    def _awake_in(self) -> float:
        """Let floods that have rested flow again; returns when the next one may."""
        now = time.monotonic()
        for fd in [fd for fd, until in self._resting.items() if until <= now]:
            del self._resting[fd]
            with self._lock:
                if fd in self._sources:
                    self._epoll.modify(fd, select.EPOLLIN | select.EPOLLOUT)
        return min(self._resting.values(), default=now + _LONGEST_WAIT_S) - now

    def _events(self, master: int) -> int:
        return 0 if master in self._resting else select.EPOLLIN

    def _serve(self, source: PumpedProgram, events: int) -> None:
        fd = source.master
        if events & (select.EPOLLIN | select.EPOLLHUP):
            self._count(fd, source.readable())
        if events & select.EPOLLOUT and not source.writable():
            with self._lock:
                self._epoll.modify(fd, self._events(fd))
            if source.writable():  # somebody typed between the two lines above
                self.wants_to_write(source)

    def _count(self, fd: int, size: int) -> None:
        """A program that prints without end must not keep this thread, and so the server, from everything else."""
        now = time.monotonic()
        since, taken = self._taken.get(fd, (now, 0))
        if now - since > _FLOOD_S:
            since, taken = now, 0
        self._taken[fd] = since, taken + size
        if taken + size > _FLOOD_BYTES:
            self._resting[fd] = since + _FLOOD_S
            with self._lock:
                self._epoll.modify(fd, 0)

    def _finish(self, source: PumpedProgram) -> None:
        if not select.select([source.ended_fd], [], [], 0)[0]:
            return  # the event was meant for a program whose fd this one got
        with self._lock:
            for fd in (source.master, source.ended_fd):
                self._sources.pop(fd, None)
                self._epoll.unregister(fd)
            self._taken.pop(source.master, None)
            self._resting.pop(source.master, None)
        source.ended()
