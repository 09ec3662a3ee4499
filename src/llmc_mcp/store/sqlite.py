"""The SQLite database in the data directory, shared by all servers and shells of a user.

In WAL mode readers never wait for a writer, so queries have a connection of their own. Writers queue for the write lock
(BEGIN IMMEDIATE), each for a limited time and with an eye on cancellation. No sync happens while the lock is held: a
durable transaction commits, lets the next writer in, and syncs the log then, together with whoever else committed.

The payloads of handles are files beside the database, so that rows stay small and a page of a large payload is a single
read.
"""

import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress

from ..errors import FeatureUnavailable, LlmcError, ResourceBusy, shortage, shortage_now
from .data_dir import database_of, stamp_of
from .schema import STEPS, insert_into
from .waiting import BUSY_S, never_cancelled
from .workspaces import Workspaces

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing.TYPE_CHECKING without the import: `te` runs commands without loading typing
    from collections.abc import Iterable, Sequence
    from typing import TypeVar

    from .base import Connection, Rows

    Outcome = TypeVar("Outcome")

_LEAVING_S = 1.0  # the same, once the process is about to end
_PROBE_S = 0.5
_SLICE_S = 0.05
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.01
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_TOO_NEW = "it was made by a newer version of llmc-mcp"
_NEVER_MADE = (0, 0)


class _Database:
    """A connection, and which file it leads to: somebody may delete or replace the data directory meanwhile."""

    def __init__(self, connection: sqlite3.Connection, path: str, *, log: str | None = None) -> None:
        self.connection, self._path = connection, path
        self._identity = _identity(path)
        self._log_fd = -1 if log is None else os.open(log, os.O_RDONLY | os.O_CLOEXEC)

    def is_current(self) -> bool:
        """Whether the path still names this file."""
        return self._identity == _identity(self._path)

    def sync(self) -> None:
        """Wait until everything committed so far is on disk: in the log or, from before a checkpoint, in the database.

        SQLite itself syncs what a checkpoint moves, and takes no locks on the log that a descriptor of ours could lose.
        """
        if self._log_fd >= 0:  # without a log, every commit syncs
            os.fdatasync(self._log_fd)

    def close(self) -> None:
        if self._log_fd >= 0:
            os.close(self._log_fd)
        with suppress(sqlite3.Error):
            self.connection.close()


class SqliteStore:
    """The database; safe from any thread. Opened on construction, and again when its file was deleted or replaced."""

    is_shared = False

    def __init__(self, data_dir: str) -> None:
        self.data_dir = data_dir
        self.path = database_of(data_dir)
        self.name = self.path  # what messages call it
        self.workspaces = Workspaces()  # one machine uses it: rows carry real paths
        self._writing, self._reading = threading.Lock(), threading.Lock()
        self._announced: list[str] = []  # topics that the transaction under way is about
        self._writing_thread = 0  # the thread that is in a transaction: its queries must see what it wrote
        self._leave_by = math.inf
        self._writer: _Database | None = self._open_writer(_Wait(self, BUSY_S, never_cancelled))
        self._reader: _Database | None = None

    # --- writing ---------------------------------------------------------------------------------

    @contextmanager
    def transaction(
        self, *, durable: bool = False, wait_s: float = BUSY_S, check: Callable[[], None] = never_cancelled
    ) -> Generator[sqlite3.Connection]:
        """A write transaction, committed or rolled back as a whole; `durable` ones are on disk when the block ends.

        While others write, it waits for `wait_s` at most, then raises RESOURCE_BUSY; `check` may end the wait sooner.
        """
        wait = _Wait(self, wait_s, check)
        wait.acquire(self._writing)
        try:
            self._writing_thread = threading.get_ident()
            with self._explained():
                writer = self._current_writer(wait)
                wait.until_free(lambda: writer.connection.execute("BEGIN IMMEDIATE"))
                try:
                    self._announced.clear()
                    yield writer.connection
                    writer.connection.execute("COMMIT")
                    for topic in self._announced:
                        _replace_stamp(stamp_of(self.data_dir, topic))
                except BaseException:
                    if writer.connection.in_transaction:  # on a full disk SQLite rolls back by itself
                        writer.connection.execute("ROLLBACK")
                    raise
        finally:
            self._writing_thread = 0
            self._writing.release()
        if durable:
            self.sync()

    def execute_alone(
        self, sql: str, parameters: tuple[object, ...] = (), *, durable: bool = False, wait_s: float = BUSY_S
    ) -> list[tuple[object, ...]]:
        """One statement in a transaction of its own."""
        with self.transaction(durable=durable, wait_s=wait_s) as connection:
            return connection.execute(sql, parameters).fetchall()

    def add_rows(
        self, table: str, columns: tuple[str, ...], rows: "Iterable[Sequence[object]]", *, wait_s: float = BUSY_S
    ) -> None:
        """Add many rows in one transaction."""
        with self.transaction(wait_s=wait_s) as connection:
            connection.executemany(insert_into(table, columns), rows)

    def announce(self, connection: "Connection", topic: str) -> None:  # noqa: ARG002 - as in Store
        """Replace the stamp of a topic once the transaction is committed: whoever sees it reads what is new."""
        self._announced.append(topic)

    def follow(self, topic: str, heard: "Callable[[], None]") -> None:
        """Whoever uses this database sees the stamp."""

    def probe(self) -> None:
        """Raise if nothing can be written now: the store is locked, its disk is full or it may not be written to."""
        with self.transaction(wait_s=_PROBE_S) as connection:
            connection.execute("UPDATE totals SET bytes=bytes")  # says nothing new, and is written all the same

    def check_tables(self) -> None:
        """Raise if it can't be read, or lacks tables that this version needs."""
        ((version,),) = self.query("PRAGMA user_version")
        if int(str(version)) < len(STEPS):
            raise FeatureUnavailable(f"the store {self.path} has version {version} of {len(STEPS)}")
        from .transfer import demand_tables

        demand_tables(self.path, self.query("SELECT name FROM sqlite_master WHERE type='table'"))

    def sync(self) -> None:
        """Wait until all that is committed is on disk. Without the write lock: others write while the disk works."""
        writer = self._writer
        if writer is not None:
            with self._explained(files=True):
                writer.sync()

    def _current_writer(self, wait: "_Wait") -> _Database:
        if self._writer is None:
            raise FeatureUnavailable(f"the store {self.path} is closed: the server is ending")
        if not self._writer.is_current():
            self._writer.close()
            self._writer = self._open_writer(wait)
        return self._writer

    # --- reading ---------------------------------------------------------------------------------

    def query(self, sql: str, parameters: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
        """All rows of a SELECT; it waits for no writer."""
        with self._explained():
            if self._writing_thread == threading.get_ident() and self._writer is not None:
                return self._writer.connection.execute(sql, parameters).fetchall()
            with self._reading:
                wait = _Wait(self, BUSY_S, never_cancelled)
                connection = self._current_reader(wait).connection
                return wait.until_free(lambda: connection.execute(sql, parameters).fetchall())

    def _current_reader(self, wait: "_Wait") -> _Database:
        if self._leave_by < time.monotonic():
            raise FeatureUnavailable(f"the store {self.path} is closed: the server is ending")
        if self._reader is not None and not self._reader.is_current():
            self._reader.close()
            self._reader = None
        if self._reader is None:
            self._reader = self._open_reader(wait)
        return self._reader

    # Whoever uses this database has its data directory, too: there is nothing to do for files.

    def share(self, connection: "Connection", name: str) -> None:
        """Everybody has it."""

    def offer(self, name: str) -> None:
        """Everybody has it."""

    def offered(self, folder: str) -> dict[str, int]:
        """What is there."""
        place = os.path.join(self.data_dir, folder)
        found = os.listdir(place) if os.path.isdir(place) else []
        return {f"{folder}/{name}": os.path.getsize(os.path.join(place, name)) for name in found}

    def fetch(self, name: str) -> bool:  # noqa: ARG002 - as in Store
        """Nobody else can have it."""
        return False

    def unshare(self, connection: "Connection", name: str) -> None:
        """It goes when its file goes."""

    def given_number(self, rows: "Rows") -> "Callable[[], int]":
        """Read it now: a statement that is not read to its end keeps the connection from committing."""
        ((number,),) = rows.fetchall()
        return lambda: number

    def follow_numbers(self, connection: "Connection") -> None:
        """SQLite always does."""

    def now(self) -> float:
        """This machine's clock: nobody else uses the store."""
        return time.time()

    # Processes don't tell each other anything: who waits looks again.

    def ticket(self) -> int:
        """Any: nothing is ever announced."""
        return 0

    def wait(self, topic: str, ticket: int, pause_s: float, limit_s: float) -> bool:  # noqa: ARG002 - as in Store
        """Pause, then look again."""
        time.sleep(pause_s)
        return False

    def is_wanted(self, topic: str) -> bool:  # noqa: ARG002 - as in Store
        """Nobody hears of anything."""
        return False

    # --- opening and closing ---------------------------------------------------------------------

    def _open_writer(self, wait: "_Wait") -> _Database:
        with self._explained(files=True):
            os.makedirs(self.data_dir, mode=0o700, exist_ok=True)
            existed = os.path.exists(self.path)
            connection = _connect(self.path)
            try:
                if not existed:
                    os.chmod(self.path, 0o600)
                ((mode,),) = wait.until_free(lambda: connection.execute("PRAGMA journal_mode=WAL").fetchall())
                logged = mode == "wal"  # a file system without shared memory can't have a log
                connection.execute(f"PRAGMA synchronous={'NORMAL' if logged else 'FULL'}")
                connection.execute("PRAGMA foreign_keys=ON")
                self._migrate(connection, wait)
                return _Database(connection, self.path, log=f"{self.path}-wal" if logged else None)
            except BaseException:
                connection.close()
                raise

    def _open_reader(self, wait: "_Wait") -> _Database:
        if _identity(self.path) == _NEVER_MADE:  # deleted: make it anew rather than read from an empty file
            self._open_writer(wait).close()
        connection = _connect(self.path)
        connection.execute("PRAGMA query_only=ON")
        return _Database(connection, self.path)

    def _migrate(self, connection: sqlite3.Connection, wait: "_Wait") -> None:
        """Migrate the database to this version; of several processes that try at once, one does it."""
        if wait.until_free(lambda: _version(connection)) == len(STEPS):
            return
        wait.until_free(lambda: connection.execute("BEGIN IMMEDIATE"))
        try:
            done = _version(connection)
            if done > len(STEPS):
                raise FeatureUnavailable(
                    f"{self.path}: {_TOO_NEW}", hint="Upgrade llmc-mcp, or set LLMC_DATA_DIR to another folder."
                )
            for step in STEPS[done:]:
                for statement in _statements(step):
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version={len(STEPS)}")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise

    def hurry(self) -> None:
        """The process is about to end: from now on, nobody waits longer than a moment."""
        self._leave_by = min(self._leave_by, time.monotonic() + _LEAVING_S)

    def close(self) -> None:
        """Close both connections; one that is still in use ends with the process."""
        self.hurry()
        for lock, name in ((self._writing, "_writer"), (self._reading, "_reader")):
            if lock.acquire(timeout=_LEAVING_S):
                database: _Database | None = getattr(self, name)
                setattr(self, name, None)
                lock.release()
                if database is not None:
                    database.close()

    @property
    def leave_by(self) -> float:
        """When whoever waits must give up, on the monotonic clock."""
        return self._leave_by

    # --- errors ----------------------------------------------------------------------------------

    @contextmanager
    def _explained(self, *, files: bool = False) -> Generator[None]:
        """Turn SQLite's errors into ours, and with `files` the system's: within a transaction those are not ours."""
        try:
            yield
        except sqlite3.Error as exc:
            raise self._unavailable(exc) from None
        except OSError as exc:
            if not files:
                raise
            raise self._unavailable(exc) from None

    def _unavailable(self, exc: OSError | sqlite3.Error) -> LlmcError:
        code = _code(exc)
        if short := shortage(exc) or (shortage_now() if code == sqlite3.SQLITE_CANTOPEN else None):
            return short
        hint = f"Make {self.data_dir} writable, or set LLMC_DATA_DIR to another folder."
        if code == sqlite3.SQLITE_FULL:
            hint = f"Free space in {self.data_dir}, or set LLMC_DATA_DIR to another folder."
        elif isinstance(exc, sqlite3.DatabaseError) and not isinstance(exc, sqlite3.OperationalError):
            hint = f"Move it away: mv {self.path} {self.path}.broken (handles and statistics start anew)."
        return FeatureUnavailable(f"the store {self.path} can't be used: {exc}", hint=hint)


class _Wait:
    """One caller's wait for the write lock: short pauses with a limit, and a look at cancellation in between."""

    def __init__(self, store: SqliteStore, wait_s: float, check: Callable[[], None]) -> None:
        self._store, self._check, self._pause = store, check, _FIRST_PAUSE_S
        self._started = time.monotonic()
        self._until = self._started + wait_s

    def acquire(self, lock: threading.Lock) -> None:
        """Take a lock that another thread of this process may hold."""
        while not lock.acquire(timeout=_SLICE_S):
            self._look()

    def until_free(self, action: "Callable[[], Outcome]") -> "Outcome":
        """Repeat what fails while another connection writes; with SQLite's own pauses the unlucky starve."""
        while True:
            try:
                return action()
            except sqlite3.OperationalError as exc:
                if _code(exc) not in _BUSY:
                    raise
            self._look()
            time.sleep(self._pause * (0.5 + os.urandom(1)[0] / 256))  # spread, or the same ones meet again and again
            self._pause = min(self._pause * 1.5, _LONGEST_PAUSE_S)

    def _look(self) -> None:
        """Raise if the caller was cancelled or has waited long enough."""
        self._check()
        now = time.monotonic()
        if now >= min(self._until, self._store.leave_by):
            raise ResourceBusy(
                f"others are writing to the store {self._store.path}; waited {(now - self._started) * 1000:.0f} ms",
                hint=f"Try again. `fuser -v {self._store.path}` shows which processes use it.",
            )


def _connect(path: str) -> sqlite3.Connection:
    """A connection that reports at once that others are writing: `_Wait` does the waiting."""
    return sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)


def _replace_stamp(path: str) -> None:
    fresh = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
    os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    os.replace(fresh, path)  # another inode each time, whatever the clock says


def _identity(path: str) -> tuple[int, int]:
    try:
        info = os.stat(path)
    except OSError:
        return _NEVER_MADE
    return info.st_dev, info.st_ino


def _code(exc: OSError | sqlite3.Error) -> int:
    """SQLite's primary result code; 0 for an error that is not SQLite's."""
    return getattr(exc, "sqlite_errorcode", 0) & 0xFF


def _version(connection: sqlite3.Connection) -> int:
    return connection.execute("PRAGMA user_version").fetchone()[0]


def _statements(script: str) -> Iterator[str]:
    """Split a script into statements: executescript() would commit the surrounding transaction."""
    text = ""
    for line in script.splitlines(keepends=True):
        text += line
        if sqlite3.complete_statement(text):
            yield text
            text = ""
