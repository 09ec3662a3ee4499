"""Anti-stomp leases: who may change what right now, among all servers that share a store.

A lease is a row: a class (CRIT_CODE for files, CRIT_DB for index builds …), a key, who holds it and until when.
Keys are taken in sorted order and all or none. A lease whose time is up, or whose process is provably dead, is
taken over. Its token grows with every lease that is given out, so a holder that slept through the end of its own
can tell, and is refused, by asking in the very transaction that makes its work visible (`holds`).
"""

import os
import sqlite3
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple, cast

from ..errors import ResourceBusy
from ..session import Session
from .schema import insert_into
from .sqlite import Store

CRIT_CODE = "CRIT_CODE"
CRIT_DB = "CRIT_DB"

# Those of a Lease, but for the token, which the store gives out.
_COLUMNS = ("class", "key", "tree", "agent_id", "session_id", "process", "purpose", "taken_at", "expires_at")
_FIELDS = ", ".join(("token", *_COLUMNS))
_INSERT = f"{insert_into('leases', _COLUMNS)} RETURNING token"
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.002, 0.05
_AFTER_SLASH = "0"  # the character that follows "/": `key >= "a/" and key < "a0"` means everything below a


class Lease(NamedTuple):
    """A lease in the store; `purpose` is what it was taken for (the id of a change)."""

    token: int
    kind: str
    key: str
    tree: bool
    agent_id: str
    session_id: str
    process: str
    purpose: str
    taken_at: float
    expires_at: float

    @property
    def over(self) -> bool:
        """Whether anybody may take it: its time is up, or nobody is left to use it."""
        return time.time() >= self.expires_at or not alive(self.process)


class LeaseKey(NamedTuple):
    """What is to be held; with `tree` everything below it as well."""

    name: str
    tree: bool = False


class Leases:
    """Gives out leases. What runs inside a transaction takes its connection; the rest opens its own."""

    def __init__(self, store: Store, ttl_s: float) -> None:
        self._store, self.ttl_s = store, ttl_s

    def take(
        self, connection: sqlite3.Connection, kind: str, keys: Iterable[LeaseKey], who: Session, purpose: str = ""
    ) -> list[int] | Lease:
        """Tokens for all keys, or the first lease that stands in the way; then nothing was taken.

        One that is over and has a purpose stands in the way too: whoever wants its key settles that first.
        """
        wanted = sorted(set(keys))
        for key in wanted:
            for lease in _in_the_way(connection, key):
                if not lease.over or lease.purpose:
                    return lease
                self.release(connection, [lease.token])
        now = time.time()
        rows = [
            (kind, key.name, key.tree, who.agent_id, who.session_id, own_process(), purpose, now, now + self.ttl_s)
            for key in wanted
        ]
        return [connection.execute(_INSERT, row).fetchone()[0] for row in rows]

    def holds(self, connection: sqlite3.Connection, tokens: Sequence[int]) -> bool:
        """Whether all of these are still in the store and in time; asked where the answer can't change meanwhile."""
        marks = ",".join("?" * len(tokens))
        found = connection.execute(
            f"SELECT count(*) FROM leases WHERE token IN ({marks}) AND expires_at>?",  # noqa: S608
            (*tokens, time.time()),
        ).fetchone()
        return found[0] == len(tokens)

    def release(self, connection: sqlite3.Connection, tokens: Sequence[int]) -> None:
        """Give leases back; those that were taken over are no longer ours to give."""
        connection.executemany("DELETE FROM leases WHERE token=?", [(token,) for token in tokens])

    def release_purpose(self, connection: sqlite3.Connection, purpose: str) -> None:
        """Drop what was held for something that is settled now."""
        connection.execute("DELETE FROM leases WHERE purpose=?", (purpose,))

    def renew(self, tokens: Sequence[int]) -> None:
        """More time for work that takes long; what was taken over stays lost."""
        until = time.time() + self.ttl_s
        with self._store.transaction() as connection:
            connection.executemany("UPDATE leases SET expires_at=? WHERE token=?", [(until, token) for token in tokens])

    def of_purpose(self, purpose: str) -> list[Lease]:
        """The leases that were taken for something."""
        return _leases(self._store.query(f"SELECT {_FIELDS} FROM leases WHERE purpose=?", (purpose,)))  # noqa: S608

    def all(self) -> list[Lease]:
        """Every lease, by key."""
        return _leases(self._store.query(f"SELECT {_FIELDS} FROM leases ORDER BY key"))  # noqa: S608

    @contextmanager
    def held(
        self, kind: str, keys: Iterable[LeaseKey], who: Session, *, wait_s: float, check: Callable[[], None]
    ) -> Generator[list[int]]:
        """Leases for the length of a block: waits for others, gives up with RESOURCE_BUSY."""
        wanted, queue = list(keys), Queue(wait_s, check)
        while True:
            with self._store.transaction() as connection:
                taken = self.take(connection, kind, wanted, who)
            if isinstance(taken, list):
                break
            queue.wait(taken, taken.key)
        try:
            yield taken
        finally:
            with self._store.transaction() as connection:
                self.release(connection, taken)


class Queue:
    """The patience of one caller: short pauses first, longer ones later, an end at last."""

    def __init__(self, wait_s: float, check: Callable[[], None]) -> None:
        self._check, self._pause = check, _FIRST_PAUSE_S
        self._started = time.monotonic()
        self._until = self._started + wait_s

    def wait(self, lease: Lease, name: str) -> None:
        """Pause before the next try, or RESOURCE_BUSY saying what is held, by whom, and how long we waited.

        The name is the caller's choice: a lease may be on a path that lies outside of the roots.
        """
        self._check()
        if time.monotonic() >= self._until:
            waited = round((time.monotonic() - self._started) * 1000)
            raise ResourceBusy(
                f"{name} is held by agent {lease.agent_id}, session {lease.session_id}; waited {waited} ms",
                hint="Another agent is changing it: read it again and retry.",
            )
        time.sleep(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_S)


def _in_the_way(connection: sqlite3.Connection, key: LeaseKey) -> list[Lease]:
    """Leases on the key, on a tree that holds it and, for a tree, on anything below it."""
    above = _folders_above(key.name)
    marks = ",".join("?" * len(above))
    terms, values = [f"key=? OR (tree AND key IN ({marks}))"], [key.name, *above]
    if key.tree:
        terms.append("(key>=? AND key<?)")
        values += [f"{key.name}/", f"{key.name}{_AFTER_SLASH}"]
    query = f"SELECT {_FIELDS} FROM leases WHERE {' OR '.join(terms)} ORDER BY key"  # noqa: S608
    return _leases(connection.execute(query, values).fetchall())


def _folders_above(name: str) -> list[str]:
    return [name[:at] for at, character in enumerate(name) if character == "/" and at]


def _leases(rows: Sequence[tuple[object, ...]]) -> list[Lease]:
    return [Lease(*cast(tuple[int, str, str, bool, str, str, str, str, float, float], row)) for row in rows]


# --- processes -------------------------------------------------------------------------------------


@cache
def _machine() -> str:
    """This boot of this kernel and this pid namespace: only here does a pid mean what it says."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()}/{os.stat('/proc/self/ns/pid').st_ino}"


def _started_at(pid: int) -> str:
    """When a process began, in the kernel's ticks; empty for one that is gone or only waits to be buried."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b") ")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()


@cache
def _process(pid: int) -> str:
    return f"{_machine()}/{pid}/{_started_at(pid)}"


def own_process() -> str:
    """A word for this process that no other, before or after, on this machine or elsewhere, shares."""
    return _process(os.getpid())


def is_local(process: str) -> bool:
    """Whether a process belongs to this boot and pid namespace, so that its end can be seen."""
    return process.rsplit("/", 2)[0] == _machine()


def alive(process: str) -> bool:
    """Whether a process may still be at work; of one that is not local, only the end of its lease tells."""
    _, pid, started = process.rsplit("/", 2)
    return not is_local(process) or _started_at(int(pid)) == started
