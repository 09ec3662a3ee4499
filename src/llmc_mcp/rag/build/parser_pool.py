"""Worker processes that read and parse files, so that the process that writes the index need not.

Grammars are C code run on untrusted files. One that crashes or never ends costs a worker, not the index: the file is
recorded as unparsable, and a new worker continues with the rest.
"""

import os
import queue
import select
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

import msgspec

from ..store.embed import Embedding
from ..store.index import FileState
from .parser_worker import Job, keep_only, receive, send, serve
from .walk import Walk

_BATCH_FILES, _BATCH_BYTES = 24, 256 << 10
_PATIENCE_S = 30.0  # for a batch; one file of a megabyte takes a fraction of a second
_TICK_S = 0.05
_MOST_STORED = 8  # batches that are parsed or have been, and are not stored yet: about a megabyte each


class _Parser(NamedTuple):
    pid: int
    line: socket.socket


class ParserPool:
    """A few processes, forked when they are needed and kept for the next time."""

    def __init__(self, walk: Walk, embedding: Embedding | None = None) -> None:
        self._walk, self._embedding = walk, embedding
        self._free: list[_Parser] = []
        self._all: list[_Parser] = []

    def warm(self, count: int) -> None:
        """Fork workers until there are `count`."""
        while len(self._all) < count:
            self._free.append(self._fork())

    def look_at(self, jobs: Iterable[Job], count: int, tick: Callable[[], None]) -> Iterator[FileState]:
        """Parse files and yield the results, in any order; `tick` is called often and may raise to give up."""
        self.warm(count)
        shift = _Shift(_batches(jobs))
        for _ in range(min(count, len(self._free))):
            shift.add(self._free.pop())
        shift.start()
        try:
            while (end := shift.next_end(tick)) is not None:
                if end.answer:
                    yield from msgspec.msgpack.decode(end.answer, type=list[FileState])
                    continue
                self._bury(end.worker)
                self.warm(count)
                shift.add(self._free.pop())
                if len(end.batch) > 1:
                    shift.retry([job] for job in end.batch)
                else:
                    yield _unparsable(end.batch[0], end.why)
        finally:
            idle, others = shift.stop()
            self._free += idle
            for worker in others:  # nobody will read their results
                self._bury(worker)

    def _fork(self) -> _Parser:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        pid = os.fork()
        if pid == 0:
            try:
                keep_only(theirs.fileno(), self._walk.root)
                serve(theirs, self._walk, self._embedding)
            finally:
                os._exit(1)
        theirs.close()
        worker = _Parser(pid, ours)
        self._all.append(worker)
        return worker

    def _bury(self, worker: _Parser) -> None:
        worker.line.close()
        os.kill(worker.pid, signal.SIGKILL)
        os.waitpid(worker.pid, 0)
        self._all.remove(worker)
        if worker in self._free:
            self._free.remove(worker)

    def keep(self, count: int) -> None:
        """End all but `count` idle workers: their imports and caches are worth keeping, but not twice."""
        for worker in self._free[count:]:
            self._bury(worker)

    def close(self) -> None:
        """End all."""
        for worker in list(self._all):
            self._bury(worker)


class _BatchEnd(NamedTuple):
    """What became of a batch: an answer, or why there is none."""

    worker: _Parser
    batch: list[Job]
    answer: bytes
    why: str = ""


class _Shift:
    """Workers at work: a thread hands out batches and takes the answers, so that none waits while those are stored."""

    def __init__(self, batches: Iterable[list[Job]]) -> None:
        self._batches = deque(batches)
        self._due = len(self._batches)  # batches whose end nobody has asked for yet,
        self._stored = 0  # and those of them that have ended
        self._ends = queue.SimpleQueue[_BatchEnd]()
        self._lock = threading.Lock()
        self._here: list[_Parser] = []  # all but those that failed, once somebody has been told
        self._idle: list[_Parser] = []
        self._working: dict[int, tuple[_Parser, list[Job], float]] = {}
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="parsers")

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def add(self, worker: _Parser) -> None:
        """Have one worker more."""
        with self._lock:
            self._here.append(worker)
            self._idle.append(worker)
        os.eventfd_write(self._wake, 1)

    def retry(self, batches: Iterable[list[Job]]) -> None:
        """Have batches in the place of one that failed."""
        with self._lock:
            more = list(batches)
            self._batches += more
            self._due += len(more)
        os.eventfd_write(self._wake, 1)

    def next_end(self, tick: Callable[[], None]) -> _BatchEnd | None:
        """How the next batch ended; None if there is no more."""
        while self._due:
            tick()
            try:
                end = self._ends.get(timeout=_TICK_S)
            except queue.Empty:
                if not self._thread.is_alive():
                    raise OSError(5, "no parsers are at work") from None
                continue
            with self._lock:
                self._stored -= 1
                self._due -= 1
                if not end.answer:
                    self._here.remove(end.worker)
            os.eventfd_write(self._wake, 1)
            return end
        return None

    def stop(self) -> tuple[list[_Parser], list[_Parser]]:
        """Stop; returns the workers that are idle, and those that are not or have failed."""
        with self._lock:
            self._stopping = True
            others = [worker for worker in self._here if worker not in self._idle]
        for worker in others:
            with suppress(OSError):
                worker.line.shutdown(socket.SHUT_RDWR)  # the thread may be waiting for the rest of an answer
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        os.close(self._wake)
        return [worker for worker in self._here if worker not in others], others

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping:
            self._hand_out()
            poll = select.poll()
            for fd in (self._wake, *self._working):
                poll.register(fd, select.POLLIN)
            ready = {fd for fd, _ in poll.poll(_TICK_S * 1000)}
            if self._wake in ready:
                os.eventfd_read(self._wake)
            now = time.monotonic()
            for fd, (worker, batch, until) in list(self._working.items()):
                if fd in ready or now >= until:
                    del self._working[fd]
                    self._take(worker, batch, in_time=fd in ready)

    def _hand_out(self) -> None:
        while True:
            with self._lock:
                is_full = self._stored + len(self._working) >= _MOST_STORED
                if self._stopping or is_full or not self._idle or not self._batches:
                    return
                worker, batch = self._idle.pop(), self._batches.popleft()
            if send(worker.line, msgspec.msgpack.encode(batch)):
                self._working[worker.line.fileno()] = worker, batch, time.monotonic() + _PATIENCE_S
            else:
                self._end(_BatchEnd(worker, batch, b"", "its parser failed"))

    def _take(self, worker: _Parser, batch: list[Job], *, in_time: bool) -> None:
        answer = receive(worker.line) if in_time else b""
        if answer:
            with self._lock:
                self._idle.append(worker)
        self._end(_BatchEnd(worker, batch, answer, "its parser failed" if in_time else "parsing it took too long"))

    def _end(self, end: _BatchEnd) -> None:
        with self._lock:
            self._stored += 1
        self._ends.put(end)


def _batches(jobs: Iterable[Job]) -> Iterator[list[Job]]:
    batch: list[Job] = []
    size = 0
    for job in jobs:
        batch.append(job)
        size += job.size
        if len(batch) >= _BATCH_FILES or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _unparsable(job: Job, why: str) -> FileState:
    return FileState(job.id, job.path, job.size, 0, b"", why)
