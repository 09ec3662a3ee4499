"""What the rest asks of a store, whichever database holds it.

Queries are written once, in the SQL that both databases speak: parameters are `?` or `?1`, a row that may be there is
inserted with ON CONFLICT, a number that the database gives out comes back by RETURNING, truth is 0 or 1. What differs
in spite of that (the types of columns, triggers, the list behind `json_each`) is translated in one place, postgres.py.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from .waiting import BUSY_S, never_cancelled
from .workspaces import Workspaces


class Rows(Protocol):
    """What a statement gives back."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class Connection(Protocol):
    """A connection within a transaction."""

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Rows: ...

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> Rows: ...


class Following(Protocol):
    """A topic that is followed, until it is closed."""

    heard_at: float  # when it was last certain that nothing is missed, on the monotonic clock

    def close(self) -> None: ...


class Store(Protocol):
    """Rows shared by several processes; safe from any thread."""

    data_dir: str
    is_shared: bool  # with servers that have other data directories

    @property
    def workspaces(self) -> Workspaces:
        """What rows call the files of this server: every path goes through it on its way to a row and back."""
        ...

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    def transaction(
        self, *, durable: bool = False, wait_s: float = BUSY_S, check: Callable[[], None] = never_cancelled
    ) -> AbstractContextManager[Connection]:
        """A write transaction, committed or rolled back as a whole; `durable` ones are on disk when the block ends.

        While others write, it waits for `wait_s` at most, then raises RESOURCE_BUSY; `check` may end the wait sooner.
        """
        ...

    def query(self, sql: str, parameters: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
        """All rows of a SELECT; it waits for no writer."""
        ...

    def execute_alone(
        self, sql: str, parameters: tuple[object, ...] = (), *, durable: bool = False, wait_s: float = BUSY_S
    ) -> list[tuple[object, ...]]:
        """One statement that commits by itself, and the rows that it returns; a `durable` one is on disk then."""
        ...

    def add_rows(
        self, table: str, columns: tuple[str, ...], rows: Iterable[Sequence[Any]], *, wait_s: float = BUSY_S
    ) -> None:
        """Add many rows, all or none; on disk a moment later."""
        ...

    # What servers tell each other. A topic is a name of ours, such as `tokens`.

    def announce(self, connection: Connection, topic: str) -> None:
        """Tell the servers that follow a topic, when this transaction commits."""
        ...

    def follow(self, topic: str, heard: Callable[[], None]) -> "Following | None":
        """Have a function called, in a thread of its own, whenever a topic may have changed.

        None where the data directory is shared: who follows looks at the stamp of the topic there.
        """
        ...

    # Files in the data directory that rows speak of, by their names below it: shared where the data directory is not.

    def share(self, connection: Connection, name: str) -> None:
        """Let other servers have a file, from the commit of this transaction on."""
        ...

    def offer(self, name: str) -> None:
        """Let other servers have a file before any row speaks of it: nobody waits while a large one is stored."""
        ...

    def offered(self, folder: str) -> dict[str, int]:
        """The files of a folder in the data directory that other servers can have, and their sizes in bytes."""
        ...

    def fetch(self, name: str) -> bool:
        """Bring a file that another server shares to the data directory; whether there is one."""
        ...

    def unshare(self, connection: Connection, name: str) -> None:
        """Take a file back, which no row speaks of any more."""
        ...

    def given_number(self, rows: Rows) -> Callable[[], int]:
        """What tells the number that an INSERT … RETURNING gave out; asking for it may take a round trip."""
        ...

    def follow_numbers(self, connection: Connection) -> None:
        """Rows came with their numbers: give out higher ones from now on."""
        ...

    def now(self) -> float:
        """The time by the clock that leases expire by."""
        ...

    # Waiting for what another process does to a row, which may be on another machine.

    def ticket(self) -> int:
        """A moment: what is announced later ends a wait that names it."""
        ...

    def wait(self, topic: str, ticket: int, pause_s: float, limit_s: float) -> bool:
        """Wait until a topic is announced that was not at the ticket's moment; True once it is. One waiter wakes.

        False after a while, however: `pause_s` where nobody announces anything, up to `limit_s` where it is enough to
        look for the dead from time to time.
        """
        ...

    def is_wanted(self, topic: str) -> bool:
        """Whether another thread of this process waits for a topic: then it must be announced."""
        ...

    def check_tables(self) -> None:
        """Raise if it can't be read, or lacks tables that this version needs."""
        ...

    def probe(self) -> None:
        """Raise if nothing can be written now."""
        ...

    def sync(self) -> None:
        """Wait until all that is committed is on disk."""
        ...

    def hurry(self) -> None:
        """The process is about to end: from now on, nobody waits longer than a moment."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...
