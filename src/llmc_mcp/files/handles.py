"""Handles: output that did not fit in a reply, kept for a while and read in pages.

A handle belongs to a principal and is unguessable. It is a snapshot (a file in the data directory, named by its hash
where contents may repeat) or, for a file too large to copy, a reference that becomes STALE when the file changes.
Handles are in the store: they survive a restart, and servers and shells of a user share those that their roots make
visible (store/root_sets.py).
"""

import base64
import hashlib
import os
import re
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple, Protocol, cast

import msgspec

from ..config.schema import Config
from ..errors import FeatureUnavailable, HandleNotFound, LlmcError, shortage
from ..store.base import Connection, Store
from ..store.root_sets import VISIBLE, RootSet, visible_to
from ..store.schema import insert_into

_FOLDER = "handles"  # in the data directory
_BLOCK = 1 << 16  # bytes between two entries of a payload's line index
_SPOOL_TAIL = 1 << 20  # bytes kept from the end of an output that exceeds the limit
_WAIT_S = 2.0  # for other writers
_ID = re.compile(r"H_[a-z]{2,12}_\d{8}T\d{6}Z_[a-z2-7]{16}")
_SHORT_KINDS = {"file_content": "file", "fs_list": "list", "search_hits": "srch", "command_output": "cmd"}

_COLUMNS = ("id", "kind", "created_at", "meta", "payload", "bytes", "lines", "line_index", "roots")  # of a Handle
_FIELDS = ", ".join(_COLUMNS)
_INSERT = insert_into("handles", (*_COLUMNS, "principal"))
_FIND = f"SELECT {_FIELDS} FROM handles WHERE id=? AND principal=? AND created_at>=?"  # noqa: S608 - built from constants
_EQUAL = "SELECT id FROM handles WHERE payload=? AND principal=? AND kind=? AND meta=? AND created_at>? AND roots=?"
_LIST = (
    f"SELECT {_FIELDS} FROM handles WHERE principal=?1 AND created_at>=?2"  # noqa: S608 - own names
    f" AND {VISIBLE.format(parameter='?3')} ORDER BY created_at DESC"
)

Meta = dict[str, str | int]


class HandleRetention(NamedTuple):
    """How much is kept, and how long."""

    total_bytes: int
    spool_bytes: int
    ttl_seconds: float


def policy_from(config: Config) -> HandleRetention:
    """The retention that the configuration sets."""
    limits = config.limits
    return HandleRetention(limits.handles_max_total_bytes, limits.spool_max_bytes, limits.handle_ttl_hours * 3600)


class Handle(NamedTuple):
    """A stored handle; `payload` is None for a reference to a file in the roots."""

    id: str
    kind: str
    created_at: float
    meta: Meta
    payload: str | None
    size: int
    lines: int
    line_index: bytes
    roots: str


class Page(NamedTuple):
    """Some lines or bytes of a payload."""

    data: bytes
    total: int
    next_offset: int | None


def is_handle(text: str) -> bool:
    """Whether a string has the form of a handle's id."""
    return text.startswith("H_") and _ID.fullmatch(text) is not None


class LineIndex:
    """Counts lines in streamed data and records the number of newlines before each block."""

    def __init__(self) -> None:
        self.bytes = 0
        self.newlines = 0
        self.blocks = array("q")
        self._open_line = False

    def feed(self, data: bytes) -> None:
        position = 0
        while position < len(data):
            if self.bytes % _BLOCK == 0:
                self.blocks.append(self.newlines)
            step = min(_BLOCK - self.bytes % _BLOCK, len(data) - position)
            self.newlines += data.count(b"\n", position, position + step)
            self.bytes += step
            position += step
        if data:
            self._open_line = not data.endswith(b"\n")

    @property
    def lines(self) -> int:
        return self.newlines + self._open_line


class Handles:
    """Creates, finds, pages and evicts handles; finds those visible from `roots`, or all for None."""

    def __init__(self, store: Store, policy: HandleRetention, roots: RootSet | None) -> None:
        self._store, self._policy, self._roots = store, policy, roots
        self._names = store.workspaces
        self._key = self._names.stored_key("" if roots is None else roots.key)
        self.folder = os.path.join(store.data_dir, _FOLDER)
        with self._writable():
            self._clear_leftovers()

    # --- creating -------------------------------------------------------------------------------

    def create(self, principal: str, kind: str, meta: Meta, payload: bytes) -> str:
        """Create a snapshot. Equal payloads share one file; a recent equal handle is reused."""
        name = hashlib.sha256(payload).hexdigest()
        encoded = self._encoded(meta)
        young = self._store.now() - self._policy.ttl_seconds / 2
        for (known,) in self._store.query(_EQUAL, (name, principal, kind, encoded, young, self._key)):
            return str(known)
        index = LineIndex()
        index.feed(payload)
        with self._writable(), self._file(name, payload) as (fresh, path), self._transaction() as connection:
            if not os.path.exists(path):  # while this transaction lasts, no eviction deletes it
                os.rename(fresh, path)
            self._store.share(connection, f"{_FOLDER}/{name}")
            return self._insert(connection, principal, kind, encoded, name, index)

    def refer(self, principal: str, kind: str, meta: Meta, size: int) -> str:
        """Create a reference to a file in the roots; `meta` holds its identity."""
        index = LineIndex()
        index.bytes = size
        with self._transaction() as connection:
            return self._insert(connection, principal, kind, self._encoded(meta), None, index)

    def spool(self, principal: str, kind: str, meta: Meta) -> "Spool":
        """Start a payload that grows while a command runs."""
        with self._writable():
            return Spool(self, principal, kind, meta, self._policy.spool_bytes)

    def adopt(self, principal: str, kind: str, meta: Meta, spooled: str, index: LineIndex) -> str:
        """Turn a finished spool file into a handle."""
        name = base64.b32encode(os.urandom(20)).decode().lower()
        with self._writable(), self._transaction() as connection:
            os.rename(spooled, self._path(name))
            self._store.share(connection, f"{_FOLDER}/{name}")
            return self._insert(connection, principal, kind, self._encoded(meta), name, index)

    def _transaction(self) -> AbstractContextManager[Connection]:
        """A write transaction; a reply that waits long for its handle is worse than one without."""
        return self._store.transaction(wait_s=_WAIT_S)

    def _insert(
        self,
        connection: Connection,
        principal: str,
        kind: str,
        meta: str,
        payload: str | None,
        index: LineIndex,
    ) -> str:
        now = self._store.now()
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
        random = base64.b32encode(os.urandom(10)).decode().lower()
        handle_id = f"H_{_SHORT_KINDS.get(kind, kind.replace('_', '')[:12])}_{stamp}_{random}"
        size = (index.bytes, index.lines, index.blocks.tobytes())
        connection.execute(_INSERT, (handle_id, kind, now, meta, payload, *size, self._key, principal))
        self._evict(connection, keep=handle_id)
        return handle_id

    def _evict(self, connection: Connection, *, keep: str) -> None:
        """Drop expired handles, then the oldest until the rest fits; a file goes with its last handle."""
        dropped = connection.execute(
            "DELETE FROM handles WHERE created_at<? RETURNING payload", (self._store.now() - self._policy.ttl_seconds,)
        ).fetchall()
        while self._stored_bytes(connection) > self._policy.total_bytes:
            oldest = connection.execute(
                "DELETE FROM handles WHERE id=(SELECT id FROM handles WHERE payload IS NOT NULL AND id<>?"
                " ORDER BY created_at, id LIMIT 1) RETURNING payload",
                (keep,),
            ).fetchall()
            if not oldest:
                break
            dropped += oldest
        for (payload,) in dropped:
            used = connection.execute("SELECT 1 FROM handles WHERE payload=? LIMIT 1", (payload,)).fetchone()
            if payload and not used:
                self._store.unshare(connection, f"{_FOLDER}/{payload}")
                _unlink(self._path(payload))

    def _stored_bytes(self, connection: Connection) -> int:
        shared = "SELECT max(bytes) AS size FROM handles WHERE payload IS NOT NULL GROUP BY payload"
        return connection.execute(f"SELECT coalesce(sum(size),0) FROM ({shared}) AS payloads").fetchone()[0]  # noqa: S608 - own names

    # --- reading ---------------------------------------------------------------------------------

    def find(self, principal: str, handle_id: str) -> Handle:
        """A principal's handle; HANDLE_NOT_FOUND for another's, another project's, an expired or a forged one."""
        rows = self._store.query(_FIND, (handle_id, principal, self._store.now() - self._policy.ttl_seconds))
        found = [self._handle(row) for row in rows]
        if not found or (self._roots is not None and not self._roots.covers(found[0].roots)):
            raise HandleNotFound(
                f"there is no handle {handle_id[:64]}", hint="It may have expired: repeat the call that made it."
            )
        return found[0]

    def list(self, principal: str) -> list[Handle]:
        """All visible, unexpired handles of a principal, newest first."""
        since = self._store.now() - self._policy.ttl_seconds
        rows = self._store.query(_LIST, (principal, since, visible_to(self._store, self._roots)))
        return [self._handle(row) for row in rows]

    def _handle(self, row: tuple[object, ...]) -> Handle:
        handle = Handle(*cast(tuple[str, str, float, Meta, str | None, int, int, bytes, str], row))
        meta: Meta = msgspec.json.decode(cast(str, row[3]))
        return handle._replace(meta=_with_path(meta, self._names.local), roots=self._names.local_key(handle.roots))

    def _encoded(self, meta: Meta) -> str:
        return msgspec.json.encode(_with_path(meta, self._names.stored)).decode()

    def open(self, handle: Handle) -> int:
        """Open the payload of a snapshot for reading."""
        path = self._path(cast(str, handle.payload))
        try:
            if not os.path.exists(path):
                self._store.fetch(f"{_FOLDER}/{handle.payload}")
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            raise HandleNotFound(f"the content of {handle.id} is gone", hint="Repeat the call that made it.") from None

    def lines(self, handle: Handle, offset: int, limit: int) -> Page:
        """A page of lines; a negative offset counts from the end."""
        start = offset if offset >= 0 else max(handle.lines + offset, 0)
        fd = self.open(handle)
        try:
            data = _read_lines(fd, array("q", handle.line_index), start, limit)
        finally:
            os.close(fd)
        end = start + limit
        return Page(data, handle.lines, end if end < handle.lines else None)

    def read(self, handle: Handle, offset: int, limit: int) -> Page:
        """A page of bytes."""
        start = offset if offset >= 0 else max(handle.size + offset, 0)
        fd = self.open(handle)
        try:
            data = os.pread(fd, limit, start)
        finally:
            os.close(fd)
        end = start + len(data)
        return Page(data, handle.size, end if end < handle.size else None)

    # --- files -----------------------------------------------------------------------------------

    @contextmanager
    def _writable(self) -> Generator[None]:
        """Around work in the folder, which is made anew where somebody deleted it; says what to do if it can't be."""
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            yield
        except OSError as exc:
            raise shortage(exc) or _unwritable(self.folder, exc) from None

    @contextmanager
    def _file(self, name: str, payload: bytes) -> Generator[tuple[str, str]]:
        """A payload in a file of its own, and the path that it should get; where neither is needed, nothing is left."""
        path = self._path(name)
        fresh = f"{path}.{os.urandom(8).hex()}.new"
        try:
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(payload)
            yield fresh, path
        finally:
            _unlink(fresh)

    def _clear_leftovers(self) -> None:
        """Remove old files that no handle names: a crash left them. Young ones may be work in progress."""
        with os.scandir(self.folder) as found:
            old = [entry.name for entry in found if time.time() - entry.stat().st_mtime > self._policy.ttl_seconds]
        for name in old:
            if not self._store.query("SELECT 1 FROM handles WHERE payload=? LIMIT 1", (name,)):
                _unlink(self._path(name))

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)


class Sink(Protocol):
    """Where all of a command's output goes when it is more than a reply can hold."""

    def write(self, data: bytes) -> None: ...

    def finish(self) -> str:
        """Keep what was written; returns the handle to read it by, or nothing where it could not be kept."""
        ...

    def discard(self) -> None: ...


class SafeSink:
    """A sink whose failure costs the handle, never the command's own output: `failed` gets the reason."""

    def __init__(
        self, open_sink: Callable[[], Sink], failed: Callable[[str], None], kept: Callable[[int], None] = lambda _: None
    ) -> None:
        """`kept` gets the number of bytes once they have a handle."""
        self._failed, self._kept, self._reason = failed, kept, ""
        self._size = 0
        self._sink: Sink | None = None
        try:
            self._sink = open_sink()
        except (LlmcError, OSError) as exc:
            self._reason = str(exc)  # told when the handle is missed, not before

    def write(self, data: bytes) -> None:
        self._size += len(data)
        if self._sink is not None:
            self._sink.write(data)

    def finish(self) -> str:
        if self._sink is not None:
            try:
                handle = self._sink.finish()
                self._kept(self._size)
                return handle
            except (LlmcError, OSError) as exc:
                self._reason = str(exc)
        self._failed(self._reason)
        return ""

    def discard(self) -> None:
        if self._sink is not None:
            self._sink.discard()


class Spool:
    """A growing payload. Past its limit, the head stays on disk, the tail in memory, and the middle is dropped."""

    def __init__(self, handles: Handles, principal: str, kind: str, meta: Meta, limit: int) -> None:
        self._handles, self._principal, self._kind, self._meta = handles, principal, kind, meta
        self._room = max(limit - _SPOOL_TAIL, 0)
        self._path = os.path.join(handles.folder, f"spool.{os.getpid()}.{os.urandom(8).hex()}")
        self._index = LineIndex()
        self._tail: list[bytes] = []
        self._tail_bytes = 0
        self._dropped = 0
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def write(self, data: bytes) -> None:
        """Add output. Never fails: a full disk only shortens what is kept."""
        head, rest = data[: self._room], data[self._room :]
        if head:
            self._room -= len(head)
            self._store(head)
        if rest:
            self._tail.append(rest)
            self._tail_bytes += len(rest)
            while self._tail_bytes - len(self._tail[0]) > _SPOOL_TAIL:
                gone = self._tail.pop(0)
                self._tail_bytes -= len(gone)
                self._dropped += len(gone)

    def finish(self) -> str:
        """Close the spool; returns the handle's id."""
        if self._dropped:
            self._store(f"\n… [{self._dropped:,} bytes dropped here] …\n".encode())
        for piece in self._tail:
            self._store(piece)
        os.close(self._fd)
        try:
            return self._handles.adopt(self._principal, self._kind, self._meta, self._path, self._index)
        except BaseException:
            _unlink(self._path)
            raise

    def discard(self) -> None:
        """Drop the spool."""
        os.close(self._fd)
        _unlink(self._path)

    def _store(self, data: bytes) -> None:
        try:
            written = os.write(self._fd, data)
        except OSError:
            written = 0
        self._index.feed(data[:written])
        if written < len(data):
            self._room = 0
            self._dropped += len(data) - written


def _with_path(meta: Meta, translate: Callable[[str], str]) -> Meta:
    """What is known of a payload, with another form of the path that it came from."""
    return {**meta, "path": translate(str(meta["path"]))} if "path" in meta else meta


def _read_lines(fd: int, blocks: "array[int]", start: int, limit: int) -> bytes:
    """Lines `start` to `start + limit`; with the index, at most one block is read in vain."""
    block = max(bisect_right(blocks, start) - 1, 0)
    while block > 0 and blocks[block] == start:  # the line may begin before the block in which it ends
        block -= 1
    position = block * _BLOCK
    line = blocks[block] if blocks else 0
    kept: list[bytes] = []
    while limit > 0 and (piece := os.pread(fd, _BLOCK, position)):
        position += len(piece)
        at = 0
        while line < start and (end := piece.find(b"\n", at)) >= 0:
            at, line = end + 1, line + 1
        if line < start:
            continue
        stop = at
        while limit > 0 and (end := piece.find(b"\n", stop)) >= 0:
            stop, limit = end + 1, limit - 1
        kept.append(piece[at : stop if limit == 0 else len(piece)])
    return b"".join(kept)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # gone already, or a leftover that is cleared later


def _unwritable(folder: str, exc: OSError) -> FeatureUnavailable:
    return FeatureUnavailable(
        f"{folder} can't be written: {exc.strerror}", hint="Free space there, or set LLMC_DATA_DIR to another folder."
    )
