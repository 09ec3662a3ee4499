"""The SQLite database in the data directory, shared by all servers and shells of a user.

In WAL mode readers never wait; writers queue for the write lock (BEGIN IMMEDIATE). The payloads of handles are files
beside the database, so that rows stay small and a page of a large payload is a single read.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from ..errors import FeatureUnavailable
from .data_dir import database_of
from .schema import STEPS

_BUSY_TIMEOUT_S = 30.0
_RETRY_S = 0.01
_TOO_NEW = "it was made by a newer version of llmc-mcp"


class Store:
    """One connection to the database; safe from any thread. Opened on construction."""

    def __init__(self, data_dir: str) -> None:
        self.data_dir = data_dir
        self.path = database_of(data_dir)
        self._lock = threading.RLock()  # reentrant: code inside a transaction may query
        try:
            os.makedirs(data_dir, mode=0o700, exist_ok=True)
            self._connection = self._open()
        except (OSError, sqlite3.Error) as exc:
            raise self._unavailable(exc) from None

    def _open(self) -> sqlite3.Connection:
        existed = os.path.exists(self.path)
        connection = sqlite3.connect(self.path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        try:
            if not existed:
                os.chmod(self.path, 0o600)
            _enable_wal(connection)
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("PRAGMA foreign_keys=ON")
            self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Migrate the database to this version; of several processes that try at once, one does it."""
        if _version(connection) == len(STEPS):
            return
        connection.execute("BEGIN IMMEDIATE")
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

    def _unavailable(self, exc: OSError | sqlite3.Error) -> FeatureUnavailable:
        reason = str(exc)
        hint = f"Make {self.data_dir} writable, or set LLMC_DATA_DIR to another folder."
        if isinstance(exc, sqlite3.DatabaseError) and not isinstance(exc, sqlite3.OperationalError):
            hint = f"Move it away: mv {self.path} {self.path}.broken (handles and statistics start anew)."
        return FeatureUnavailable(f"the store {self.path} can't be used: {reason}", hint=hint)

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Generator[sqlite3.Connection]:
        """A write transaction, committed or rolled back as a whole; `durable` ones are on disk when the block ends."""
        with self._lock:
            try:
                if durable:
                    self._connection.execute("PRAGMA synchronous=FULL")
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    yield self._connection
                    self._connection.execute("COMMIT")
                except BaseException:
                    if self._connection.in_transaction:  # on a full disk SQLite rolls back by itself
                        self._connection.execute("ROLLBACK")
                    raise
                finally:
                    if durable:
                        self._connection.execute("PRAGMA synchronous=NORMAL")
            except sqlite3.Error as exc:
                raise self._unavailable(exc) from None

    def query(self, sql: str, parameters: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
        """All rows of a SELECT."""
        with self._lock:
            try:
                return self._connection.execute(sql, parameters).fetchall()
            except sqlite3.Error as exc:
                raise self._unavailable(exc) from None

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._connection.close()


def _enable_wal(connection: sqlite3.Connection) -> None:
    """Switch to WAL mode, retrying: SQLite's busy timeout does not cover two processes creating a database at once."""
    deadline = time.monotonic() + _BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as exc:
            if "locked" not in str(exc) or time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_S)


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
