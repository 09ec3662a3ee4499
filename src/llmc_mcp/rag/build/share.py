"""A code index that servers with other data directories begin with: what one has built, the next need not parse.

Servers of a team have one store, PostgreSQL, and the same workspaces, each at a path of its own; the paths in an index
are relative to its root. The server that runs the process of an index stores a copy when a build is complete, and again
when a later one is, or when much has changed since: base.db and tantivy's files, which never change, and the small
rest, compressed and named by their hashes, so that a file that is there is not stored again. The row in
`shared_indexes` comes last and takes the place of the one before, whose files go in the same transaction; nobody waits
for the rest.

A server that has no index checks the files against the row and puts them aside, as it does with the index of a sibling
on its disk (seed.py); from there the confined process goes on (store/received.py): no file of a copy is opened in the
server. What is not as the row says, or fails once, is left alone, and the index is built from the files.
"""

import hashlib
import os
import re
import secrets
import shutil
import sqlite3
import stat
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import msgspec

from ...errors import LlmcError
from ...files import names
from ...files.filesystem import Root
from ...store.base import Store
from ..store import layout, received
from ..store.layout import FORMAT, Home
from .seed import copy_current

_FOLDER = "shared-index"  # in the data directory, and in the names of stored files
_NAME = re.compile(r"(index|base)\.db|text/\.?[A-Za-z0-9_-]{1,80}(\.[A-Za-z0-9_-]{1,40}){0,2}")
_NEEDED = {*layout.DATABASES, "text/meta.json"}
_HASH, _PLACE = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{16}")
_PIECE = 1 << 20
_LEVEL = 4  # of compression
_OVERHEAD = 1 << 10  # of compressed bytes over those that can't be compressed, besides a hundredth
_GROWN, _GROWN_BY = 2, 8 << 20  # the size of what changes since it was stored, after which it is stored again
_AGAIN_S = 600.0  # after a failure
_DAY_S = 86_400.0  # how often a row is said to be of use,
_UNUSED_S = 30 * _DAY_S  # … and after how long without that it goes
_NICE = 15
_FAILURES = (LlmcError, OSError, ValueError, sqlite3.Error, zlib.error, msgspec.MsgspecError)

_KEY = "workspace=? AND kind=?"
_FIND = f"SELECT format, folder, files FROM shared_indexes WHERE {_KEY}"  # noqa: S608 - own names
_TOUCH = f"UPDATE shared_indexes SET at=? WHERE {_KEY} AND format=? RETURNING folder"  # noqa: S608 - own names
_PUT = (
    "INSERT INTO shared_indexes (workspace, kind, format, at, folder, files) VALUES (?,?,?,?,?,?)"
    " ON CONFLICT (workspace, kind) DO UPDATE"
    " SET format=excluded.format, at=excluded.at, folder=excluded.folder, files=excluded.files"
)


class SharedFile(msgspec.Struct, frozen=True, array_like=True):
    """A file of a build: its name there, its size, and the hash and size of what is stored of it."""

    name: str
    bytes: int
    sha256: str
    stored: int


class _Shared(NamedTuple):
    """What a row says."""

    folder: str
    files: list[SharedFile]
    digest: str

    def stored(self) -> dict[str, int]:
        """The stored files and their sizes."""
        return {_stored_name(self.folder, file): file.stored for file in self.files}


class _Note(msgspec.Struct, frozen=True):
    """Which build was stored, or came from the store; the size of what changes of it then, and what the row said.

    It lies where the process that keeps the index can't write. `home` is the folder that it is about.
    """

    home: tuple[int, int] | None = None
    build: str = ""
    bytes: int = 0
    digest: str = ""


class IndexShare:
    """The copy of one root's index in the store; `offer` runs in one thread at a time."""

    def __init__(self, store: Store, workspace: str, home: Home, kind: str, most_bytes: int) -> None:
        self._store, self._home, self._most = store, home, most_bytes
        self._row = workspace, kind
        self._noted = os.path.join(store.data_dir, _FOLDER, f"{os.path.basename(home.folder)}.json")
        self._stopped = threading.Event()
        self._settled: tuple[str, float] = ("", 0.0)  # the build that needs nothing, until when
        self._not_before = 0.0
        self.problem = ""  # why the index could not be stored, or not be had from there

    def stop(self) -> None:
        """Store nothing any more."""
        self._stopped.set()

    # --- from the store --------------------------------------------------------------------------

    def forget_failed(self) -> None:
        """Discard a build that came from the store and never got searchable: the process ended over it."""
        aside = self._home.seed()
        if aside is not None and os.path.basename(aside) == self._note().build:
            self._home.discard(aside)

    def receive(self, tick: Callable[[], None]) -> bool:
        """Put the stored copy aside for the writer to begin with; False if there is none, or none that is sound."""
        folder = ""
        try:
            shared = self._find()
            if shared is None or shared.digest == self._note().digest:  # it was tried
                return False
            self._check(shared)
            folder = self._home.new_build()
            size = next(file.bytes for file in shared.files if file.name == layout.DATABASES[0])
            self._write_note(folder, size, shared.digest)
            for file in shared.files:
                self._unpack(shared, file, folder, tick)
            shutil.rmtree(self._place(shared.folder), ignore_errors=True)
            self._home.put_aside(folder)
            return True
        except _FAILURES as exc:
            self.problem = f"the index of another server can't be used: {_words(exc)}"
            if folder:
                self._home.discard(folder)
            return False

    def _find(self) -> _Shared | None:
        rows = self._store.query(_FIND, self._row)
        if not rows or rows[0][0] != FORMAT:
            return None
        folder, files = str(rows[0][1]), str(rows[0][2])
        digest = hashlib.sha256(f"{folder} {files}".encode()).hexdigest()
        return _Shared(folder, msgspec.json.decode(files, type=list[SharedFile]), digest)

    def _check(self, shared: _Shared) -> None:
        """Raise unless the row describes a build that is stored as a whole, and is not too large."""
        called = {file.name for file in shared.files}
        sound = len(called) == len(shared.files) and called >= _NEEDED and _PLACE.fullmatch(shared.folder)
        for file in shared.files:
            sound = sound and _NAME.fullmatch(file.name) and _HASH.fullmatch(file.sha256) and file.bytes >= 0
            sound = sound and file.stored <= file.bytes + file.bytes // 100 + _OVERHEAD
        if not sound:
            raise ValueError("its row is no description of one")
        self._demand_small(sum(file.bytes for file in shared.files))
        there = self._store.offered(f"{_FOLDER}/{shared.folder}")
        if any(there.get(name) != size for name, size in shared.stored().items()):
            raise ValueError("some of its files are not stored, or not as a whole")

    def _unpack(self, shared: _Shared, file: SharedFile, build: str, tick: Callable[[], None]) -> None:
        """Bring one file of the copy to a build."""
        name = _stored_name(shared.folder, file)
        tick()
        if not self._store.fetch(name):
            raise ValueError(f"{file.name} is gone")
        path = os.path.join(self._store.data_dir, name)
        unpacker, left = zlib.decompressobj(), file.bytes
        try:
            with open(path, "rb") as packed, open(received.place_in(build, file.name), "xb") as made:
                if hashlib.file_digest(packed, "sha256").hexdigest() != file.sha256:
                    raise ValueError(f"{file.name} has another content than its row says")
                packed.seek(0)
                while piece := packed.read(_PIECE):
                    tick()
                    left -= made.write(unpacker.decompress(piece, left + 1))
                    if left < 0 or unpacker.unconsumed_tail:
                        raise ValueError(f"{file.name} is larger than its row says")
        finally:
            os.unlink(path)
        if left or not unpacker.eof:
            raise ValueError(f"{file.name} is smaller than its row says")

    # --- to the store ----------------------------------------------------------------------------

    def is_due(self) -> bool:
        """Whether the store may lack the current build; costs next to nothing."""
        build, now = self._home.current(), time.monotonic()
        if build is None or now < self._not_before or self._stopped.is_set():
            return False
        return self._settled[0] != self._state(build) or now > self._settled[1]

    def offer(self) -> None:
        """Store the current build unless it is there; what prevents that is tried again later."""
        with suppress(OSError):  # of this thread alone: whoever searches comes first
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        try:
            build = self._home.current()
            if build is None or not self._is_whole(build):
                return
            state = self._state(build)
            if not (state == os.path.basename(build) and self._touch()):
                self._store_copy(build)
            self._settled = os.path.basename(build), time.monotonic() + _DAY_S
            self.problem = ""
        except (InterruptedError, TimeoutError):
            pass  # the server is closing, or files are being indexed: then it is due again
        except _FAILURES as exc:
            self._not_before = time.monotonic() + _AGAIN_S
            self.problem = f"not shared with other servers: {_words(exc)}"

    def _state(self, build: str) -> str:
        """The name of a build, with a mark where it is not as it was stored."""
        note, name = self._note(), os.path.basename(build)
        try:
            size = os.path.getsize(layout.databases_of(build)[0])
        except OSError:
            size = 0
        return name if note.build == name and size <= _GROWN * note.bytes + _GROWN_BY else f"{name}*"

    def _is_whole(self, build: str) -> bool:
        """Whether a build is complete, and made by the rules that the row will name."""
        connection = layout.connect(build)
        try:
            sealed = layout.get_meta(connection, layout.SEALED) and layout.get_meta(connection, layout.COMPLETE)
            return bool(sealed) and layout.get_word(connection, layout.RULES) == self._row[1]
        finally:
            connection.close()

    def _touch(self) -> bool:
        """Say that the stored copy is of use; False if there is none."""
        return bool(self._store.execute_alone(_TOUCH, (self._store.now(), *self._row, FORMAT)))

    def _store_copy(self, build: str) -> None:
        self._demand_small(self._home.size())
        rows = self._store.query(_FIND, self._row)
        place = str(rows[0][1]) if rows and _PLACE.fullmatch(str(rows[0][1])) else secrets.token_hex(8)
        own = self._place(place)
        copied = os.path.join(own, "build")
        shutil.rmtree(own, ignore_errors=True)
        os.makedirs(layout.text_of(copied), mode=0o700)
        try:
            copy_current(self._home, copied)
            if self._home.current() != build:
                raise InterruptedError
            layout.forget_earlier(copied)
            called = sorted(_files_below(copied))
            there = self._store.offered(f"{_FOLDER}/{place}")
            files = [self._pack(copied, name, place, there) for name in called]
            text = msgspec.json.encode(files).decode()
            shared = _Shared(place, files, hashlib.sha256(f"{place} {text}".encode()).hexdigest())
            self._register(shared, text)
            size = os.path.getsize(layout.databases_of(build)[0])
            self._write_note(build, size, shared.digest)
        finally:
            shutil.rmtree(own, ignore_errors=True)

    def _pack(self, copied: str, name: str, place: str, there: dict[str, int]) -> SharedFile:
        """Store one file unless it is there."""
        packed = os.path.join(os.path.dirname(copied), "packed")
        seen, packer, size = hashlib.sha256(), zlib.compressobj(_LEVEL), 0
        with open(_opened(os.path.join(copied, name)), "rb") as source, open(packed, "wb") as made:
            while piece := source.read(_PIECE):
                self._demand_time()
                size += len(piece)
                data = packer.compress(piece)
                seen.update(data)
                made.write(data)
            data = packer.flush()
            seen.update(data)
            made.write(data)
        file = SharedFile(name, size, seen.hexdigest(), os.path.getsize(packed))
        stored = _stored_name(place, file)
        if there.get(stored) != file.stored:
            os.rename(packed, os.path.join(self._store.data_dir, stored))
            self._store.offer(stored)
        return file

    def _register(self, shared: _Shared, text: str) -> None:
        """Write the row, and remove the files that no row speaks of any more."""
        with self._store.transaction(check=self._demand_time) as connection:
            # Only now: another server of this workspace may have removed them as nobody's.
            self._check(shared)
            now = self._store.now()
            connection.execute(_PUT, (*self._row, FORMAT, now, shared.folder, text))
            for name in self._store.offered(f"{_FOLDER}/{shared.folder}").keys() - shared.stored().keys():
                self._store.unshare(connection, name)
            unused = connection.execute("DELETE FROM shared_indexes WHERE at<? RETURNING folder", (now - _UNUSED_S,))
            for (folder,) in unused.fetchall():
                for name in self._store.offered(f"{_FOLDER}/{folder}"):
                    self._store.unshare(connection, name)

    def _demand_small(self, size: int) -> None:
        if size > self._most:
            raise ValueError(f"it has {size >> 20:,} MB, more than mcp.rag.share_max_mb")

    def _demand_time(self) -> None:
        if self._stopped.is_set():
            raise InterruptedError

    # --- what is known here ----------------------------------------------------------------------

    def _place(self, folder: str) -> str:
        """Where the stored files of an index are on their way."""
        return os.path.join(self._store.data_dir, _FOLDER, folder)

    def _note(self) -> _Note:
        try:
            with open(self._noted, "rb") as file:
                note = msgspec.json.decode(file.read(), type=_Note)
        except (OSError, msgspec.MsgspecError):
            return _Note()
        return note if note.home == self._home.identity() else _Note()

    def _write_note(self, build: str, size: int, digest: str) -> None:
        note = _Note(self._home.identity(), os.path.basename(build), size, digest)
        os.makedirs(os.path.dirname(self._noted), mode=0o700, exist_ok=True)
        with open(f"{self._noted}.new", "wb") as file:
            file.write(msgspec.json.encode(note))
        os.rename(f"{self._noted}.new", self._noted)


def share_of(store: Store, root: Root, home: Home, kind: str, most_bytes: int) -> IndexShare | None:
    """The copy of a root's index; None where servers don't share any, or have no common name for the root."""
    if not store.is_shared or not most_bytes:
        return None
    workspace = store.workspaces.stored(names.show(root.real))
    return None if workspace.startswith("/") else IndexShare(store, workspace, home, kind, most_bytes)


def _stored_name(place: str, file: SharedFile) -> str:
    return f"{_FOLDER}/{place}/{file.sha256}.z"


def _files_below(build: str) -> list[str]:
    """The files of a copied build that the next server needs."""
    texts = (os.path.join(os.path.basename(layout.text_of(build)), name) for name in os.listdir(layout.text_of(build)))
    return [*layout.DATABASES, *texts]


def _opened(path: str) -> int:
    """A file of an index; the process that writes there is not trusted, and a link would lead to another file."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise ValueError(f"{os.path.basename(path)} is no file")
    return fd


def _words(exc: BaseException) -> str:
    return exc.message if isinstance(exc, LlmcError) else f"{type(exc).__name__}: {exc}"[:200]
