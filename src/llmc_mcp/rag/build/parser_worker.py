"""What a worker of the parser pool does: read a batch of files, parse them, and send what the index stores of them."""

import gc
import hashlib
import os
import resource
import signal
import socket
import traceback
from itertools import pairwise, repeat
from typing import Literal, NamedTuple

import msgspec

from ..parse import outline
from ..parse.detect import language_of
from ..parse.imports import imported
from ..parse.record import Record
from ..parse.text import as_utf8
from ..parse.types import Chunk, PackedReferences, ParsedFile
from ..store import rank
from ..store.embed import Embedding, FileTexts
from ..store.index import (
    GONE,
    NO_CONTENT,
    REFERENCES,
    RESTORED,
    SAME,
    EarlierContent,
    FileState,
    FormerContent,
    IndexedContent,
)
from .walk import Skip, Walk

_MEMORY = 1 << 30
_FRAME = 8
READ_LATER, READ_NOW = "later", "now"  # the references of a file


class Job(msgspec.Struct, frozen=True, array_like=True):
    """A file to parse, unless its content still has the hash `known`, or is one that it had before.

    `former` is what tantivy has of the content with that hash.
    `READ_LATER` leaves the references out; `READ_NOW` is about nothing else, if the content still has that hash.
    """

    id: int
    path: bytes
    size: int
    known: bytes = b""
    earlier: list[EarlierContent] = []
    former: FormerContent | None = None
    references: Literal["", "later", "now"] = ""


# --- frames ---------------------------------------------------------------------------------------


def send(line: socket.socket, data: bytes) -> bool:
    """One frame; False if the other end is closed."""
    try:
        line.sendall(len(data).to_bytes(_FRAME, "little") + data)
    except OSError:
        return False
    return True


def receive(line: socket.socket) -> bytes:
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


# --- batches ---------------------------------------------------------------------------------------


def keep_only(*kept: int) -> None:
    """Close inherited descriptors: above all, a worker must not hold the lock of the index."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    edges = [2, *sorted(kept), 1 << 16]
    for low, high in pairwise(edges):
        os.closerange(low + 1, high)


def serve(line: socket.socket, walk: Walk, embedding: Embedding | None) -> None:
    """Answer batches of jobs until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY if hard < 0 else min(_MEMORY, hard), hard))
    gc.freeze()
    gc.disable()  # what parsing leaves behind is freed by counting; a batch later a collection gets the rest
    while frame := receive(line):
        jobs = msgspec.msgpack.decode(frame, type=list[Job])
        if not send(line, msgspec.msgpack.encode(_with_vectors([_look(walk, job) for job in jobs], embedding))):
            return
        gc.collect(1)


class _ParsedJob(NamedTuple):
    """A file that was parsed, without its vectors: those of a batch are made together."""

    seen: tuple[int, bytes, int, int, bytes]
    content: IndexedContent
    documents: "_Documents"


def _with_vectors(looked: list[FileState | _ParsedJob], embedding: Embedding | None) -> list[FileState | msgspec.Raw]:
    """The states of the files of a batch, as they are sent."""
    parsed = [one for one in looked if isinstance(one, _ParsedJob)]
    none = repeat(b"", len(parsed))
    made = embedding.of_files([one.documents.texts(embedding) for one in parsed]) if embedding is not None else none
    vectors = iter(made)
    return [one if isinstance(one, FileState) else _encoded(one, next(vectors)) for one in looked]


def _encoded(one: _ParsedJob, vectors: bytes) -> FileState | msgspec.Raw:
    """The state of a file that is to be indexed, as it is sent: not every text can be."""
    try:
        content = msgspec.structs.replace(one.content, vectors=vectors if one.content.chunk_count else b"")
        return msgspec.Raw(msgspec.msgpack.encode(FileState(*one.seen, "", content)))
    except Exception as exc:  # noqa: BLE001 - one file must not end the build
        return _failed(one.seen, exc)


def _failed(seen: tuple[int, bytes, int, int, bytes], exc: Exception) -> FileState:
    traceback.print_exc(limit=-4)  # into the log: no file should cause this
    return FileState(*seen, f"unparsable: {type(exc).__name__}")


def _look(walk: Walk, job: Job) -> FileState | _ParsedJob:
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
    return _parsed(seen, text, job)


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
    made = _Documents(job, parsed, text)
    return IndexedContent(
        language=parsed.language,
        broken_line=0,
        chunk_count=len(parsed.chunks),
        chunks=b"",
        outline=b"",
        names=[],
        references=parsed.references,
        documents=made.changed(),
        kept=made.kept,
    )


class _Documents:
    """The documents of a file, and what need not be made anew of them: most of a file stays when it is edited."""

    def __init__(self, job: Job, parsed: ParsedFile, text: bytes) -> None:
        self._all = rank.documents(job.id, parsed, text)
        self.digests = rank.digests(self._all)
        self._former = job.former or FormerContent(b"", b"")
        self._known = rank.split_digests(self._former.digests)
        self.kept = [at for at, (one, other) in enumerate(zip(self.digests, self._known, strict=False)) if one == other]

    def changed(self) -> list[rank.Fields]:
        """Those of other chunks, and that of the file."""
        kept = frozenset(self.kept)
        return [fields for at, fields in enumerate(self._all) if at not in kept]

    def texts(self, embedding: Embedding) -> FileTexts:
        """What the vectors of the file are made of; a chunk that is only elsewhere now has the one that it had."""
        known = dict(zip(self._known, embedding.split(self._former.vectors)[2:], strict=False))
        return rank.texts(self._all, [known.get(digest) for digest in self.digests])


def _content(parsed: ParsedFile, made: _Documents, *, with_references: bool) -> IndexedContent:
    return IndexedContent(
        language=parsed.language,
        broken_line=parsed.broken_line,
        chunk_count=len(parsed.chunks),
        chunks=msgspec.msgpack.encode(parsed.chunks),
        outline=outline.pack(parsed.definitions),
        names=[one.name for one in parsed.definitions],
        references=parsed.references if with_references else None,
        documents=made.changed(),
        kept=made.kept,
        digests=b"".join(made.digests),
    )


def _parsed(seen: tuple[int, bytes, int, int, bytes], data: bytes, job: Job) -> FileState | _ParsedJob:
    from ..parse import file

    reads = job.references != READ_LATER
    try:
        parsed = file.look(os.fsdecode(seen[1]), data, with_references=reads)
        if job.references == READ_NOW and seen[-1] == job.known:
            content = msgspec.structs.replace(NO_CONTENT, references=parsed.references)
            return FileState(*seen, REFERENCES, content)
        made = _Documents(job, parsed, data)
        return _ParsedJob(seen, _content(parsed, made, with_references=reads), made)
    except Exception as exc:  # noqa: BLE001 - one file must not end the build
        return _failed(seen, exc)
