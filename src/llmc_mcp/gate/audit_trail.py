"""Where the audit lies: a file per month in the data directory, or rows in a store that servers share.

Files are only ever appended to. Whole months, or rows, go when they are past their retention; before that they are
looked at, and the register keeps the hash of the last line that went, so that what is left can still be verified. Lines
that don't fit stay: they are evidence.
"""

import fcntl
import os
import time
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from ..errors import Conflict
from ..store.schema import insert_missing
from .audit_chain import AuditLine, Chain, Register, Registered, read_link, verify

if TYPE_CHECKING:
    from ..store.base import Store

_FOLDER = "audit"
_REGISTER, _LOCK = "chains.json", "chains.lock"
_BATCH = 1_000
_COLUMNS = ("chain", "seq", "at", "line")
_REGISTERED = ("number", "chain", "seq", "hash")
_ADD = f"{insert_missing('audit', _COLUMNS)} RETURNING seq"
_COUNT = (
    f"INSERT INTO audit_chains ({', '.join(_REGISTERED)})"  # noqa: S608 - own names
    " SELECT coalesce(max(number), 0) + 1, ?, 0, '' FROM audit_chains ON CONFLICT DO NOTHING RETURNING number"
)
_ANSWER_S = 1.0  # how long a call waits for a connection


class Trail(Protocol):
    """A place for lines, and the register of their chains."""

    def register(self, chain: str) -> int:
        """Count a chain; its number."""
        ...

    def lines(self) -> Iterator[AuditLine]:
        """All lines, in the order in which they should follow each other within a chain."""
        ...

    def read_register(self) -> Register:
        """The chains."""
        ...


class _Chains(msgspec.Struct):
    """The register of files."""

    count: int = 0
    chains: dict[str, tuple[int, int, str]] = {}  # number, and the last line that was dropped
    ended_to: int = 0  # all chains up to this number are over and dropped,
    ended: list[int] = []  # and these


class FileTrail:
    """A file per month; the processes of a data directory write to the same."""

    def __init__(self, data_dir: str) -> None:
        self._folder = os.path.join(data_dir, _FOLDER)
        self._month, self._fd, self._torn = "", -1, False

    def append(self, at: float, line: bytes) -> None:
        """Write a line; raises OSError where it can't be written as a whole."""
        data = (b"\n" if self._torn else b"") + line + b"\n"
        self._torn = os.write(self._file(at), data) != len(data)
        if self._torn:
            raise OSError(f"{self._folder}: a line was written in part: the disk is full")

    def _file(self, at: float) -> int:
        month = _month(at)
        if month != self._month or os.fstat(self._fd).st_nlink == 0:  # a new month, or somebody deleted the file
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            opened = self._open(f"{month}.jsonl", os.O_WRONLY | os.O_APPEND)
            self.close()
            self._month, self._fd = month, opened
        return self._fd

    def _open(self, name: str, flags: int) -> int:
        return os.open(os.path.join(self._folder, name), flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def register(self, chain: str) -> int:
        with self._registering() as chains:
            chains.count += 1
            chains.chains[chain] = (chains.count, 0, "")
            return chains.count

    @contextmanager
    def _registering(self) -> Generator[_Chains]:
        """The register, for one process at a time; what is changed in it is kept."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        lock = self._open(_LOCK, os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            chains = self._chains()
            yield chains
            fresh = f"{_REGISTER}.new"
            with open(self._open(fresh, os.O_WRONLY | os.O_TRUNC), "wb") as file:
                file.write(msgspec.json.encode(chains))
            os.replace(os.path.join(self._folder, fresh), os.path.join(self._folder, _REGISTER))
        finally:
            os.close(lock)

    def _chains(self) -> _Chains:
        try:
            with open(os.path.join(self._folder, _REGISTER), "rb") as file:
                return msgspec.json.decode(file.read(), type=_Chains)
        except FileNotFoundError:
            return _Chains()
        except msgspec.DecodeError as exc:
            raise OSError(f"{self._folder}/{_REGISTER} can't be read: {exc}") from None

    def read_register(self) -> Register:
        kept = self._chains()
        ended = frozenset((*range(1, kept.ended_to + 1), *kept.ended))
        return Register({chain: Registered(*one) for chain, one in kept.chains.items()}, kept.count, ended)

    def lines(self) -> Iterator[AuditLine]:
        for name in self._months():
            yield from self._lines_in(name)

    def _months(self) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self._folder) if name.endswith(".jsonl"))
        except FileNotFoundError:
            return []

    def _lines_in(self, name: str) -> Iterator[AuditLine]:
        with open(os.path.join(self._folder, name), "rb") as file:
            for number, text in enumerate(file, start=1):
                if text.strip():
                    yield AuditLine(f"{name}:{number}", text.rstrip(b"\n"))

    def forget(self, before: float, foreign: Collection[str] = ()) -> None:
        """Drop whole months, and remember where their chains were; raises Conflict for one that does not fit.

        `foreign` chains belong to a store, and left lines here while it was away.
        """
        last = _month(before)
        for name in self._months():
            if name.removesuffix(".jsonl") < last:
                with self._registering() as chains:
                    self._drop(name, chains, foreign)

    def _drop(self, name: str, chains: _Chains, foreign: Collection[str]) -> None:
        links = [(line, read_link(line.text)) for line in self._lines_in(name)]
        own = [(line, link) for line, link in links if link is None or link.chain not in foreign]
        inside = {link.chain for _, link in own if link is not None}
        kept = {chain: Registered(*one) for chain, one in chains.chains.items() if chain in inside}
        verdict = verify((line for line, _ in own), Register(kept, 0))
        if verdict.findings:
            raise _refusal(name, verdict.findings[0].text)
        for chain, head in verdict.heads.items():
            number = kept[chain].number
            if head.closed:
                del chains.chains[chain]
                chains.ended.append(number)
            else:
                chains.chains[chain] = (number, head.seq, head.hash)
        ended = sorted(chains.ended)
        while ended and ended[0] == chains.ended_to + 1:
            chains.ended_to = ended.pop(0)
        chains.ended = ended
        os.unlink(os.path.join(self._folder, name))

    def close(self) -> None:
        """Close the file; a later line opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
        self._month, self._fd = "", -1


class StoreTrail:
    """Rows in a store that servers share."""

    def __init__(self, store: "Store") -> None:
        self._store = store

    def append(self, chain: str, seq: int, at: float, line: bytes) -> None:
        """Write a line; it is on disk then. It may be there already, if the answer to an attempt was lost."""
        row = (chain, seq, at, line.decode())
        if self._store.execute_alone(_ADD, row, durable=True, wait_s=_ANSWER_S):
            return
        if self._store.query("SELECT line FROM audit WHERE chain=? AND seq=?", row[:2]) != [row[3:]]:
            raise OSError(f"somebody wrote another row in the place of {chain}:{seq}")

    def register(self, chain: str) -> int:
        while True:
            if rows := self._store.execute_alone(_COUNT, (chain,), durable=True, wait_s=_ANSWER_S):
                return int(str(rows[0][0]))
            # Another server has just taken the number, or the answer to an attempt was lost.
            if rows := self._store.query("SELECT number FROM audit_chains WHERE chain=?", (chain,)):
                return int(str(rows[0][0]))

    def read_register(self) -> Register:
        rows = self._store.query(f"SELECT {', '.join(_REGISTERED)} FROM audit_chains")  # noqa: S608 - own names
        found = [(str(chain), Registered(int(str(n)), int(str(seq)), str(hashed))) for n, chain, seq, hashed in rows]
        return Register(dict(found), max((one.number for _, one in found), default=0))

    def lines(self) -> Iterator[AuditLine]:
        chain, seq = "", 0
        ask = "SELECT chain, seq, line FROM audit WHERE (chain, seq) > (?, ?) ORDER BY chain, seq LIMIT ?"
        while rows := self._store.query(ask, (chain, seq, _BATCH)):
            for one, number, text in rows:
                chain, seq = str(one), int(str(number))
                yield AuditLine(f"{chain}:{seq}", str(text).encode(), (chain, seq))

    def newest(self, most: int) -> list[bytes]:
        """The last lines, oldest first."""
        rows = self._store.query("SELECT line FROM audit ORDER BY at DESC, chain, seq DESC LIMIT ?", (most,))
        return [str(line).encode() for (line,) in reversed(rows)]

    def forget(self, before: float) -> None:
        """Drop rows, and remember where their chains were; raises Conflict for one that does not fit."""
        ask = "SELECT DISTINCT chain FROM audit WHERE at < ?"
        for (chain,) in self._store.query(ask, (before,)):
            while self._drop(str(chain), before):
                pass

    def _drop(self, chain: str, before: float) -> bool:
        """Drop the first rows of a chain; whether there may be more."""
        with self._store.transaction(durable=True) as connection:
            known = connection.execute("SELECT number, seq, hash FROM audit_chains WHERE chain=?", (chain,)).fetchone()
            rows = connection.execute(
                "SELECT seq, at, line FROM audit WHERE chain=? ORDER BY seq LIMIT ?", (chain, _BATCH)
            ).fetchall()
            old: list[AuditLine] = []
            for seq, at, text in rows:
                if at >= before:
                    break
                old.append(AuditLine(f"{chain}:{seq}", str(text).encode(), (chain, seq)))
            if known is None or not old:
                return False
            verdict = verify(old, Register({chain: Registered(*known)}, 0))
            if verdict.findings:
                raise _refusal(chain, verdict.findings[0].text)
            head = verdict.heads[chain]
            connection.execute("UPDATE audit_chains SET seq=?, hash=? WHERE chain=?", (head.seq, head.hash, chain))
            connection.execute("DELETE FROM audit WHERE chain=? AND seq<=?", (chain, head.seq))
            return len(old) == _BATCH


class AuditPart(NamedTuple):
    """Chains with a register of their own, and their lines."""

    lines: Callable[[], Iterator[AuditLine]]
    register: Register


def parts_of(data_dir: str, store: "Store | None") -> list[AuditPart]:
    """All that there is of the audit: the files of a data directory and, where servers share one, the rows of a store.

    Lines that a server left in a file while the store was away belong to the chains of the store.
    """
    files = FileTrail(data_dir)
    if store is None or not store.is_shared:
        return [AuditPart(files.lines, files.read_register())]
    rows = StoreTrail(store)
    register = rows.read_register()

    def own_lines() -> Iterator[AuditLine]:
        return (line for line in files.lines() if _chain_of(line) not in register.chains)

    return [
        AuditPart(lambda: _with_left(rows, files, register), register),
        AuditPart(own_lines, files.read_register()),
    ]


def _with_left(rows: StoreTrail, files: FileTrail, register: Register) -> Iterator[AuditLine]:
    """The rows, and between them what was left in files and never handed in."""
    left: dict[str, list[AuditLine]] = {}
    for line in files.lines():
        if (chain := _chain_of(line)) in register.chains:
            left.setdefault(chain, []).append(line)
    for chain, group in groupby(rows.lines(), lambda line: line.key and line.key[0]):
        found = left.pop(chain or "", None)
        if found is None:
            yield from group
            continue
        stored = list(group)
        known = {line.text for line in stored}
        yield from sorted((*stored, *(line for line in found if line.text not in known)), key=_seq_of)
    for found in left.values():
        yield from found


def _chain_of(line: AuditLine) -> str:
    link = read_link(line.text)
    return link.chain if link is not None else ""


def _seq_of(line: AuditLine) -> int:
    link = read_link(line.text)
    return line.key[1] if line.key is not None else link.seq if link is not None else 0


def start(trail: Trail, chain: Chain) -> dict[str, object]:
    """What the first line of a chain says besides."""
    return {"start": {"number": trail.register(chain.id), "host": os.uname().nodename, "pid": os.getpid()}}


def _refusal(what: str, why: str) -> Conflict:
    return Conflict(f"the audit of {what} is past its retention, and stays: {why}", hint="llmc audit verify")


def _month(at: float) -> str:
    return time.strftime("%Y-%m", time.gmtime(at))
