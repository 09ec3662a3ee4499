"""What servers and the processes that keep and search an index say to each other: lines of JSON."""

import hashlib
import socket
import struct
from typing import Literal

import msgspec

from ..parse.question import Question
from ..store.types import RankedChunks, Scope

_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


class WalkRules(msgspec.Struct, frozen=True):
    """What the operator allows to be indexed."""

    secret_names: tuple[str, ...] = ()
    secret_exceptions: tuple[str, ...] = ()
    refuse_foreign_links: bool = True
    cross_mounts: bool = True
    # The groups of `HiddenPlaces`, as bytes: these travel as JSON, and a path need not be UTF-8.
    hidden: tuple[tuple[bytes, ...], ...] = ()
    max_file_bytes: int = 1 << 20
    max_files: int = 200_000


class Setup(msgspec.Struct, frozen=True):
    """The first line, from the server that starts the process."""

    home: str
    rules: WalkRules
    ripgrep: str
    embedding: str = "none"
    workers: int = 2
    idle_s: float = 60.0  # without a request, after which it ends

    def kind(self) -> str:
        """What two indexes have in common of which one may begin with the other; hidden places differ by root."""
        rules = msgspec.structs.replace(self.rules, hidden=())
        return hashlib.sha256(msgspec.json.encode([rules, self.embedding])).hexdigest()


class KeeperRequest(msgspec.Struct, frozen=True):
    """`refresh` compares the index with the files, or with `paths` only; `full` builds anew.

    `ping` is done when all changes before it are in the index. `join` is a ping that first compares the index with the
    files if that has not been done yet. With `references`, a ping is done when those of all files are there, too; else
    files can be searched before. `stop` cancels the request of that id.
    """

    id: int
    do: Literal["refresh", "stop", "ping", "join"]
    full: bool = False
    paths: list[bytes] = []
    why: str = ""
    references: bool = False


class News(msgspec.Struct, frozen=True, omit_defaults=True):
    """Progress, and for which request; `done` marks the last report of a request."""

    id: int = 0
    busy: bool = False
    done: bool = False
    building: bool = False
    files_done: int = 0
    files_total: int = 0
    files_listed: int = 0  # so far, by a walk that goes on
    changed: int = 0
    removed: int = 0
    rebuilt: str = ""  # why the whole index was built
    failed: str = ""
    hint: str = ""
    walks: str = ""  # why changes are found by walking
    past_limit: int = 0
    ignore_files: str = ""  # which ones are too large
    lost: bool = False  # said by the client: the process ended first, and another one can take the request


class RankRequest(msgspec.Struct, frozen=True):
    """A search of one build of the index; `files` restricts it to those files."""

    build: str
    question: Question
    scope: Scope
    files: list[int] | None
    limit: int


class RankReply(msgspec.Struct, frozen=True):
    """The best chunks, and the generation of the index that they are of; or why the index can't be read."""

    ranked: RankedChunks
    generation: int = 0
    damaged: str = ""


def peer_uid(line: socket.socket) -> int:
    """The user at the other end of a Unix socket, from the kernel."""
    return _CREDENTIALS.unpack(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[1]
