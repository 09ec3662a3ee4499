"""The process that searches the text of an index, for all servers: a fork of the keeper.

tantivy, numpy and the word vectors take tens of megabytes: so they are in memory once, and not in every server. A
search is one connection with one request. One that crashes or takes too long costs this process, and the next search
gets another one.
"""

import gc
import os
import signal
import socket
from contextlib import suppress

import msgspec

from ...kernel import syscalls
from ..store.embed import Embedding
from ..store.index import IndexReader
from ..store.layout import Home
from ..store.tables import IndexDamaged
from ..store.types import RankedChunks
from .messages import RankReply, RankRequest, peer_uid
from .parser_worker import keep_only

_READ = 1 << 16
_LONGEST_REQUEST = 16 << 20
_PATIENCE_S = 2.0  # for a server to send its request, and to take the reply
_LONGEST_S = 30  # of a search
_OBJECTS = 50_000  # that are made between two looks for cycles: a search makes ten thousand, and none


class Ranker:
    """The keeper's side. It forks only while it has no database open: SQLite's locks do not survive a fork."""

    def __init__(self, listener: socket.socket, home: Home, embedding: Embedding | None) -> None:
        self._listener, self._home, self._embedding = listener, home, embedding
        self._pid = 0
        self._alive = -1  # readable once the process has ended

    @property
    def fd(self) -> int:
        """What to wait for."""
        return self._alive if self._pid else self._listener.fileno()

    def attend(self, ready: set[int]) -> None:
        """Note the end of the process; fork another one if somebody connects and none is there."""
        if self.fd not in ready:
            return
        if self._pid:
            self._bury()
        else:
            self.fork()

    def close(self) -> None:
        """End the process."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            self._bury()

    def fork(self) -> None:
        """Start the process."""
        self._alive, theirs = os.pipe2(os.O_CLOEXEC)
        keeper = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                syscalls.die_with_parent(signal.SIGKILL)
                if os.getppid() == keeper:
                    keep_only(self._listener.fileno(), theirs)
                    gc.freeze()
                    gc.set_threshold(_OBJECTS)
                    _serve(self._listener, self._home, self._embedding)
            finally:
                os._exit(1)
        os.close(theirs)

    def _bury(self) -> None:
        os.close(self._alive)
        os.waitpid(self._pid, 0)
        self._pid, self._alive = 0, -1


# --- in the process --------------------------------------------------------------------------------


def _serve(listener: socket.socket, home: Home, embedding: Embedding | None) -> None:
    listener.setblocking(True)
    searcher = _Searcher(home, embedding)
    searcher.open()
    while True:
        line, _ = listener.accept()
        with line, suppress(OSError, msgspec.MsgspecError):
            if peer_uid(line) != os.geteuid():
                continue
            line.settimeout(_PATIENCE_S)
            request = msgspec.json.decode(_received(line), type=RankRequest)
            signal.alarm(_LONGEST_S)
            reply = searcher.search(request)
            signal.alarm(0)
            line.sendall(msgspec.json.encode(reply) + b"\n")


def _received(line: socket.socket) -> bytes:
    data = bytearray()
    while not data.endswith(b"\n"):
        piece = line.recv(_READ)
        if not piece or len(data) > _LONGEST_REQUEST:
            raise ConnectionError("no request")
        data += piece
    return bytes(data)


class _Searcher:
    """Searches the build that a request names, and keeps it open for the next one."""

    def __init__(self, home: Home, embedding: Embedding | None) -> None:
        self._home, self._embedding = home, embedding
        self._reader: IndexReader | None = None

    def open(self) -> None:
        """Open the build in force, if there is one, while nobody asks yet."""
        with suppress(IndexDamaged):
            if (build := self._home.current()) is not None:
                self._reader_of(build)

    def search(self, request: RankRequest) -> RankReply:
        try:
            reader = self._reader_of(request.build)
            ranked = reader.search(request.question, request.scope, request.files, request.limit, self._embedding)
        except IndexDamaged as exc:
            self._reader = None
            return RankReply(RankedChunks([], 0), damaged=str(exc))
        return RankReply(ranked, reader.searched)

    def _reader_of(self, build: str) -> IndexReader:
        if os.path.dirname(build) != self._home.folder:
            raise IndexDamaged("it is not of this root")
        if self._reader is None or self._reader.build != build:
            self._reader = None
            self._reader = IndexReader(build)
        self._reader.catch_up()
        return self._reader
