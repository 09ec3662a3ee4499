"""Anti-stomp leases (MAASL): locks on files and indexes, shared by all servers that use one store.

A lease is a row: a class (CRIT_CODE for files, CRIT_DB for index builds …), a key, its holder and its expiry. Keys are
acquired in sorted order, all or none. A lease that has expired, or whose process is provably dead, can be taken over.
Tokens increase with every lease (fencing), so a holder that outslept its lease is refused: `holds` checks the tokens in
the same transaction that makes the work visible.
"""

import os
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple, cast

from ..errors import ResourceBusy
from ..session import Session
from .base import Connection, Store
from .schema import insert_into

CRIT_CODE = "CRIT_CODE"
CRIT_DB = "CRIT_DB"

# Those of a Lease, but for the token, which the store gives out.
_COLUMNS = ("class", "key", "tree", "agent_id", "session_id", "process", "purpose", "taken_at", "expires_at")
_FIELDS = ", ".join(("token", *_COLUMNS))
_INSERT = f"{insert_into('leases', (*_COLUMNS, 'wanted'))} RETURNING token"
_WANT = "UPDATE leases SET wanted=1 WHERE token=? AND wanted=0"  # its end is announced then
_KEYS_AT_ONCE = 32
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.002, 0.05
_AFTER_SLASH = "0"  # the character that follows "/": `key >= "a/" and key < "a0"` means everything below a


class Lease(NamedTuple):
    """A lease in the store; `purpose` is the id of the change that it was taken for."""

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

    def over(self, now: float) -> bool:
        """Whether it may be taken over: it has expired by the store's clock, or its process is dead."""
        return now >= self.expires_at or not alive(self.process)


class LeaseKey(NamedTuple):
    """The key of a lease; with `tree`, everything below it is locked as well."""

    name: str
    tree: bool = False


class Leases:
    """Grants leases. Methods that run inside a transaction take its connection; the others open their own."""

    def __init__(self, store: Store, ttl_s: float) -> None:
        self._store, self.ttl_s = store, ttl_s

    @property
    def store(self) -> Store:
        """Where they are."""
        return self._store

    def take(
        self, connection: Connection, kind: str, keys: Iterable[LeaseKey], who: Session, purpose: str = ""
    ) -> list[int] | Lease:
        """Tokens for all keys, or the first conflicting lease; then nothing was taken.

        A lease that is over but has a purpose conflicts, too: the change it was taken for must be settled first.
        """
        taken = self.claim(connection, kind, keys, who, purpose)
        return taken if isinstance(taken, Lease) else taken()

    def claim(
        self, connection: Connection, kind: str, keys: Iterable[LeaseKey], who: Session, purpose: str = ""
    ) -> Callable[[], list[int]] | Lease:
        """The same, with what tells the tokens: whoever asks for them later need not wait for the database now."""
        wanted, now = sorted(set(keys)), self._store.now()
        for lease in _conflicting(connection, wanted):
            if not lease.over(now) or lease.purpose:
                connection.execute(_WANT, (lease.token,))
                return lease
            self.release(connection, [lease.token])
        holder, times = (who.agent_id, who.session_id, own_process(), purpose), (now, now + self.ttl_s)
        inserted = [
            self._store.given_number(
                connection.execute(
                    _INSERT, (kind, key.name, int(key.tree), *holder, *times, int(self._store.is_wanted(key.name)))
                )
            )
            for key in wanted
        ]
        return lambda: [number() for number in inserted]

    def holds(self, connection: Connection, tokens: Sequence[int]) -> bool:
        """Whether all of these leases are in the store and unexpired; within the transaction that depends on it."""
        found = connection.execute(
            f"SELECT count(*) FROM leases WHERE token IN ({_marks(tokens)}) AND expires_at>?",  # noqa: S608 - own names
            (*tokens, self._store.now()),
        ).fetchone()
        return found[0] == len(tokens)

    def release(self, connection: Connection, tokens: Sequence[int]) -> None:
        """Release leases; those that were taken over have other tokens and are not affected."""
        connection.executemany("DELETE FROM leases WHERE token=?", [(token,) for token in tokens])

    def release_purpose(self, connection: Connection, purpose: str) -> None:
        """Release all leases of a change that is settled."""
        connection.execute("DELETE FROM leases WHERE purpose=?", (purpose,))

    def renew(self, tokens: Sequence[int]) -> bool:
        """Extend leases during long work; False if one was taken over: that one stays lost."""
        until = self._store.now() + self.ttl_s
        rows = [(until, token) for token in tokens]
        with self._store.transaction() as connection:
            done = connection.executemany("UPDATE leases SET expires_at=? WHERE token=?", rows)
            return done.rowcount == len(rows)

    def seconds_left(self, lease: Lease) -> float:
        """How long a lease lasts yet."""
        return lease.expires_at - self._store.now()

    def is_over(self, lease: Lease) -> bool:
        """Whether a lease may be taken over."""
        return lease.over(self._store.now())

    def of_purpose(self, purpose: str) -> list[Lease]:
        """The leases that were taken for a change."""
        return _leases(self._store.query(f"SELECT {_FIELDS} FROM leases WHERE purpose=?", (purpose,)))  # noqa: S608 - built from constants

    def all(self) -> list[Lease]:
        """Every lease, sorted by key."""
        return _leases(self._store.query(f"SELECT {_FIELDS} FROM leases ORDER BY key"))  # noqa: S608 - built from constants

    @contextmanager
    def held(
        self, kind: str, keys: Iterable[LeaseKey], who: Session, *, wait_s: float, check: Callable[[], None]
    ) -> Generator[list[int]]:
        """Hold leases for the length of a block; wait for other holders, and give up with RESOURCE_BUSY."""
        wanted, queue = list(keys), Queue(self._store, wait_s, check)
        while True:
            with self._store.transaction(check=check) as connection:
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
    """One caller's wait for a lease, with a time limit: until it is released, or with exponential backoff."""

    def __init__(self, store: Store, wait_s: float, check: Callable[[], None]) -> None:
        self._store, self._check, self._pause = store, check, _FIRST_PAUSE_S
        self._ticket = store.ticket()  # from before the lease was seen: it may be released before the wait begins
        self._started = time.monotonic()
        self._until = self._started + wait_s

    def wait(self, lease: Lease, name: str) -> None:
        """Pause before the next try; past the limit RESOURCE_BUSY with the name, the holder and the time waited.

        The caller chooses the name: the lease's own key may be a path outside the roots.
        """
        self._check()
        if time.monotonic() >= self._until:
            waited = round((time.monotonic() - self._started) * 1000)
            raise ResourceBusy(
                f"{name} is held by agent {lease.agent_id}, session {lease.session_id}; waited {waited} ms",
                hint="Another agent is changing it: read it again and retry.",
            )
        self._store.wait(lease.key, self._ticket, self._pause, self._until - time.monotonic())
        self._ticket = self._store.ticket()
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_S)


def _conflicting(connection: Connection, keys: Sequence[LeaseKey]) -> list[Lease]:
    """Leases on the keys, on trees that hold them and, for a tree, on anything below it."""
    found: dict[str, Lease] = {}
    for start in range(0, len(keys), _KEYS_AT_ONCE):
        some = keys[start : start + _KEYS_AT_ONCE]
        above = sorted({folder for key in some for folder in _folders_above(key.name)})
        terms, values = [f"key IN ({_marks(some)})"], [*(key.name for key in some), *above]
        if above:
            terms.append(f"(tree=1 AND key IN ({_marks(above)}))")
        for key in some:
            if key.tree:
                terms.append("(key>=? AND key<?)")
                values += [f"{key.name}/", f"{key.name}{_AFTER_SLASH}"]
        query = f"SELECT {_FIELDS} FROM leases WHERE {' OR '.join(terms)} ORDER BY key"  # noqa: S608 - own names
        found.update({lease.key: lease for lease in _leases(connection.execute(query, values).fetchall())})
    return list(found.values())


def _marks(values: Sequence[object]) -> str:
    return ",".join("?" * len(values))


def _folders_above(name: str) -> list[str]:
    return [name[:at] for at, character in enumerate(name) if character == "/" and at]


def _leases(rows: Sequence[tuple[object, ...]]) -> list[Lease]:
    return [Lease(*cast(tuple[int, str, str, bool, str, str, str, str, float, float], row)) for row in rows]


# --- processes -------------------------------------------------------------------------------------


@cache
def _machine() -> str:
    """This boot and this pid namespace: a pid means nothing outside of them."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()}/{os.stat('/proc/self/ns/pid').st_ino}"


def _started_at(pid: int) -> str:
    """When a process started, in kernel ticks; empty if it is gone or a zombie."""
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
    """An identifier of this process that is unique across machines, boots and reused pids."""
    return _process(os.getpid())


def is_local(process: str) -> bool:
    """Whether a process belongs to this boot and pid namespace, so that its end can be seen."""
    return process.rsplit("/", 2)[0] == _machine()


def alive(process: str) -> bool:
    """Whether a process may still be running; one that is not local counts as alive until its leases expire."""
    _, pid, started = process.rsplit("/", 2)
    return not is_local(process) or _started_at(int(pid)) == started
