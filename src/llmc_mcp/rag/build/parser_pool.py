"""Worker processes that read and parse files, so that the process that writes the index need not.

Grammars are C code run on untrusted files. One that crashes or never ends costs a worker, not the index: the file is
recorded as unparsable, and a new worker continues with the rest.
"""

import gc
import hashlib
import os
import resource
import select
import signal
import socket
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec

from ..parse import outline
from ..parse.detect import language_of
from ..parse.imports import imported
from ..parse.record import Record
from ..parse.text import as_utf8
from ..parse.types import Chunk, PackedReferences, ParsedFile
from ..store import rank
from ..store.embed import Embedding
from ..store.index import GONE, NO_CONTENT, REFERENCES, RESTORED, SAME, EarlierContent, FileState, IndexedContent
from .walk import Skip, Walk

_BATCH_FILES, _BATCH_BYTES = 24, 256 << 10
_PATIENCE_S = 30.0  # for a batch; one file of a megabyte takes a fraction of a second
_TICK_S = 0.05
_MEMORY = 1 << 30
_FRAME = 8
READ_LATER, READ_NOW = "later", "now"  # the references of a file


class Job(msgspec.Struct, frozen=True, array_like=True):
    """A file to parse, unless its content still has the hash `known`, or is one that it had before.

    `READ_LATER` leaves the references out; `READ_NOW` is about nothing else, if the content still has that hash.
    """

    id: int
    path: bytes
    size: int
    known: bytes = b""
    earlier: list[EarlierContent] = []
    references: Literal["", "later", "now"] = ""


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
        batches = deque(_batches(jobs))
        running: dict[int, tuple[_Parser, list[Job], float]] = {}
        poll = select.poll()
        try:
            while batches or running:
                while batches and self._free and len(running) < count:
                    worker, batch = self._free.pop(), batches.popleft()
                    if not _send(worker.line, msgspec.msgpack.encode(batch)):
                        self._bury(worker)
                        batches.appendleft(batch)
                        self.warm(count)
                        continue
                    running[worker.line.fileno()] = worker, batch, time.monotonic() + _PATIENCE_S
                    poll.register(worker.line, select.POLLIN)
                ready = {fd for fd, _ in poll.poll(_TICK_S * 1000)}
                tick()
                now = time.monotonic()
                for fd, (worker, batch, until) in list(running.items()):
                    if fd not in ready and now < until:
                        continue
                    poll.unregister(fd)
                    del running[fd]
                    answer = _receive(worker.line) if fd in ready else b""
                    if answer:
                        self._free.append(worker)
                        yield from msgspec.msgpack.decode(answer, type=list[FileState])
                        continue
                    self._bury(worker)
                    self.warm(count)
                    if len(batch) > 1:
                        batches.extend([job] for job in batch)
                    else:
                        why = "its parser failed" if fd in ready else "parsing it took too long"
                        yield _unparsable(batch[0], why)
        finally:
            for worker, _, _ in running.values():  # nobody will read their results
                self._bury(worker)

    def _fork(self) -> _Parser:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        pid = os.fork()
        if pid == 0:
            try:
                keep_only(theirs.fileno(), self._walk.root)
                _serve(theirs, self._walk, self._embedding)
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


# --- frames ---------------------------------------------------------------------------------------


def _send(line: socket.socket, data: bytes) -> bool:
    try:
        line.sendall(len(data).to_bytes(_FRAME, "little") + data)
    except OSError:
        return False
    return True


def _receive(line: socket.socket) -> bytes:
    """One frame; empty if the other end is closed."""
    size = int.from_bytes(_exactly(line, _FRAME), "little")
    return _exactly(line, size) if size else b""


def _exactly(line: socket.socket, size: int) -> bytes:
    buffer = bytearray(size)
    view, at = memoryview(buffer), 0
    while at < size:
        try:
            got = line.recv_into(view[at:])
        except OSError:
            got = 0
        if not got:
            return b""
        at += got
    return bytes(buffer)


# --- in the worker ---------------------------------------------------------------------------------


def keep_only(*kept: int) -> None:
    """Close inherited descriptors: above all, a worker must not hold the lock of the index."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    edges = [2, *sorted(kept), 1 << 16]
    for low, high in pairwise(edges):
        os.closerange(low + 1, high)


def _serve(line: socket.socket, walk: Walk, embedding: Embedding | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY if hard < 0 else min(_MEMORY, hard), hard))
    gc.freeze()
    gc.disable()  # what parsing leaves behind is freed by counting; a batch later a collection gets the rest
    while frame := _receive(line):
        jobs = msgspec.msgpack.decode(frame, type=list[Job])
        if not _send(line, msgspec.msgpack.encode([_look(walk, job, embedding) for job in jobs])):
            return
        gc.collect(1)


def _look(walk: Walk, job: Job, embedding: Embedding | None) -> FileState:
    try:
        data, info = walk.read(job.path)
    except FileNotFoundError:
        return FileState(job.id, job.path, 0, 0, b"", GONE)
    except OSError as exc:
        return FileState(job.id, job.path, *_stat(walk, job), b"", f"unreadable: {os.strerror(exc.errno or 5).lower()}")
    except Skip as exc:
        return FileState(job.id, job.path, *_stat(walk, job), b"", str(exc))
    seen = (job.id, job.path, info.st_size, info.st_mtime_ns, hashlib.sha256(data).digest())
    if seen[-1] == job.known and job.references != READ_NOW:
        return FileState(*seen, SAME)
    text = as_utf8(data)
    if text is None:
        return FileState(*seen, "binary")
    for earlier in job.earlier:
        if seen[-1] == earlier.sha256:
            return FileState(*seen, RESTORED, _restored(job, earlier, text))
    return _parsed(seen, text, embedding, job)


def _stat(walk: Walk, job: Job) -> tuple[int, int]:
    seen = walk.look(job.path)
    return (seen.size, seen.mtime_ns) if seen else (job.size, 0)


def _restored(job: Job, earlier: EarlierContent, text: bytes) -> IndexedContent:
    """The documents of a file that was parsed before: tantivy has forgotten them, the rest is still there."""
    path = os.fsdecode(job.path)
    language = language_of(path, text[:4096])
    parsed = ParsedFile(
        path=path,
        language=language,
        sha256=earlier.sha256,
        definitions=outline.unpack(earlier.outline),
        chunks=msgspec.msgpack.decode(earlier.chunks, type=list[Chunk]),
        references=PackedReferences(),
        broken_line=0,
        imports=imported(path, language, Record(earlier.record).imports()),
    )
    return IndexedContent(
        language=parsed.language,
        broken_line=0,
        chunk_count=len(parsed.chunks),
        chunks=b"",
        outline=b"",
        names=[],
        references=parsed.references,
        documents=rank.documents(job.id, parsed, text),
    )


def _content(
    file: int, parsed: ParsedFile, data: bytes, embedding: Embedding | None, *, with_references: bool
) -> IndexedContent:
    documents = rank.documents(file, parsed, data)
    return IndexedContent(
        language=parsed.language,
        broken_line=parsed.broken_line,
        chunk_count=len(parsed.chunks),
        chunks=msgspec.msgpack.encode(parsed.chunks),
        outline=outline.pack(parsed.definitions),
        names=[one.name for one in parsed.definitions],
        references=parsed.references if with_references else None,
        documents=documents,
        vectors=rank.vectors(documents, embedding) if embedding is not None and parsed.chunks else b"",
    )


def _parsed(seen: tuple[int, bytes, int, int, bytes], data: bytes, embedding: Embedding | None, job: Job) -> FileState:
    from ..parse import file

    reads = job.references != READ_LATER
    try:
        parsed = file.look(os.fsdecode(seen[1]), data, with_references=reads)
        if job.references == READ_NOW and seen[-1] == job.known:
            content = msgspec.structs.replace(NO_CONTENT, references=parsed.references)
            return FileState(*seen, REFERENCES, content)
        looked = FileState(*seen, "", _content(seen[0], parsed, data, embedding, with_references=reads))
        msgspec.msgpack.encode(looked)
    except Exception as exc:  # noqa: BLE001 - one file must not end the build
        traceback.print_exc(limit=-4)  # into the log: no file should cause this
        return FileState(*seen, f"unparsable: {type(exc).__name__}")
    return looked
