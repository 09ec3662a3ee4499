"""Where an index is stored on disk, and the tables of its SQLite file.

    <data directory>/index/<name of the root>/
        root             the root's path, for human readers
        lock             held by the writer
        current          a link to the current build
        b-1a2b3c4d/      a build: index.db (authoritative) and text/ (tantivy, made from the same files)

A full build is a new folder, activated by renaming the link: readers see the old build or the new one, and a killed
build leaves nothing but files to clean up. Single files are updated in place: a transaction in SQLite, then a commit in
tantivy, which carries the number of its generation.
"""

import fcntl
import hashlib
import os
import secrets
import shutil
import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

FORMAT = 7  # of tables, fields and parsing; an index of another format is rebuilt

# The text of files is not stored but read from disk. Lines count from 1, both ends included; byte ranges are half-open.
SCHEMA = [
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID",
    # `state` is empty for an indexed file, else why it is not indexed. `chunks` holds list[Chunk] as msgpack,
    # in file order; a chunk is identified by the file's id and its index. `outline` holds definitions; see outline.py.
    """CREATE TABLE files (
        id INTEGER PRIMARY KEY, path BLOB NOT NULL UNIQUE, language TEXT NOT NULL, size INTEGER NOT NULL,
        mtime_ns INTEGER NOT NULL, sha256 BLOB NOT NULL, generation INTEGER NOT NULL, state TEXT NOT NULL,
        broken_line INTEGER NOT NULL, chunk_count INTEGER NOT NULL, chunks BLOB NOT NULL, outline BLOB NOT NULL)""",
    # Where a name is defined: the file, and the index in its outline.
    """CREATE TABLE symbols (
        name TEXT NOT NULL, file INTEGER NOT NULL, place INTEGER NOT NULL,
        PRIMARY KEY (name, file, place)) WITHOUT ROWID""",
    # The references of a file to its own and other definitions: `mentioned` holds hashes of the names, `record` holds
    # everything; see record.py. There are two tables because the first one is read as a whole.
    "CREATE TABLE mentions (file INTEGER PRIMARY KEY, count INTEGER NOT NULL, mentioned BLOB NOT NULL)",
    "CREATE TABLE records (file INTEGER PRIMARY KEY, record BLOB NOT NULL)",
    # The vectors of a file: of its names, of the whole file, and of each chunk; see embed.py.
    "CREATE TABLE vectors (file INTEGER PRIMARY KEY, vectors BLOB NOT NULL)",
    # Files that were dropped since tantivy's last commit.
    "CREATE TABLE gone (file INTEGER PRIMARY KEY, generation INTEGER NOT NULL)",
]

_BUILD = "b-"
_DATABASE, _TEXT = "index.db", "text"
_WAIT_S = 30.0
_TURN_S = 0.02


class Home:
    """The folder of one root's index."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._current = os.path.join(folder, "current")

    def prepare(self, root: str) -> None:
        """Create the folder; raises OSError if that fails."""
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        note = os.path.join(self.folder, "root")
        if not os.path.exists(note):
            with open(note, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(f"{root}\n")

    def identity(self) -> tuple[int, int] | None:
        """Which folder it is; another one has taken its place when this changes, or none."""
        return _identity(self.folder)

    def current(self) -> str | None:
        """The folder of the current build."""
        try:
            return os.path.join(self.folder, os.readlink(self._current))
        except OSError:
            return None

    def new_build(self) -> str:
        """An empty folder to build in; removes what killed builds left behind."""
        in_force = self.current()
        for name in os.listdir(self.folder):
            path = os.path.join(self.folder, name)
            if name.startswith((_BUILD, "ignore-")) and path != in_force:
                shutil.rmtree(path, ignore_errors=True) if os.path.isdir(path) else os.unlink(path)
        folder = os.path.join(self.folder, f"{_BUILD}{secrets.token_hex(4)}")
        os.makedirs(text_of(folder))
        return folder

    def discard(self, folder: str) -> None:
        """Remove a build that will not be finished. One whose process was killed is removed by the next build."""
        shutil.rmtree(folder, ignore_errors=True)

    def put_in_force(self, folder: str) -> None:
        """Switch readers to this build and remove the old one; those that have it open can finish."""
        old = self.current()
        fresh = f"{folder}.link"
        os.symlink(os.path.basename(folder), fresh)
        os.rename(fresh, self._current)
        if old is not None and old != folder:
            shutil.rmtree(old, ignore_errors=True)

    @contextmanager
    def writing(self, tick: Callable[[], None]) -> Generator[None]:
        """Hold the lock: one writer among all processes; it is released if that dies. Calls `tick` while waiting."""
        fd = os.open(os.path.join(self.folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not _locked(fd):
                tick()
                time.sleep(_TURN_S)
            yield
        finally:
            os.close(fd)

    def size(self) -> int:
        """Bytes of the current build."""
        folder = self.current()
        if folder is None:
            return 0
        total = 0
        for place, _, files in os.walk(folder):
            for name in files:
                try:
                    total += os.lstat(os.path.join(place, name)).st_size
                except OSError:
                    continue  # removed by a merge in the meantime
        return total


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def home_of(data_dir: str, root: bytes) -> Home:
    """The folder of a root's index, named by the root's last part, for human readers, and a hash of the whole."""
    shown = "".join(char if char.isalnum() or char in "-_." else "-" for char in os.fsdecode(os.path.basename(root)))
    name = f"{shown.strip('.')[:40] or 'root'}-{hashlib.sha256(root).hexdigest()[:16]}"
    return Home(os.path.join(data_dir, "index", name))


def text_of(build: str) -> str:
    """The folder of a build's tantivy files."""
    return os.path.join(build, _TEXT)


def identity_of(build: str) -> tuple[int, int] | None:
    """Which database a build has; another one, or none, when its files were deleted."""
    return _identity(os.path.join(build, _DATABASE))


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def databases_of(build: str) -> tuple[str, str]:
    """The files that a commit writes to."""
    path = os.path.join(build, _DATABASE)
    return path, f"{path}-wal"


def create(build: str) -> sqlite3.Connection:
    """A new database, without durability: nothing reads it before it is complete."""
    connection = sqlite3.connect(os.path.join(build, _DATABASE), isolation_level=None)
    # Rows are blobs of about a kilobyte: pages of this size waste the least space.
    for pragma in ("page_size=8192", "journal_mode=OFF", "synchronous=OFF", "temp_store=MEMORY", "cache_size=-16384"):
        connection.execute(f"PRAGMA {pragma}")
    for statement in SCHEMA:
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version={FORMAT}")
    return connection


def finish(connection: sqlite3.Connection) -> None:
    """Switch a new database to WAL, for many readers and one writer."""
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")


def connect(build: str, *, write: bool = False) -> sqlite3.Connection:
    """An existing database; sqlite3.DatabaseError if it is not an index of this format."""
    path = os.path.join(build, _DATABASE)
    if not os.path.exists(path):
        raise sqlite3.DatabaseError("the index has no database")
    connection = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA temp_store=MEMORY")
        connection.execute("PRAGMA synchronous=NORMAL" if write else "PRAGMA query_only=1")
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        if found != FORMAT:
            raise sqlite3.DatabaseError(f"the index has format {found}, this version has {FORMAT}")
    except BaseException:
        connection.close()
        raise
    return connection


def get_meta(connection: sqlite3.Connection, key: str) -> int:
    """A number from the meta table."""
    row = connection.execute("SELECT value FROM meta WHERE key=?", (key,)).fetchone()
    return 0 if row is None else row[0]


def get_word(connection: sqlite3.Connection, key: str) -> str:
    """A string from the meta table."""
    row = connection.execute("SELECT value FROM meta WHERE key=?", (key,)).fetchone()
    return "" if row is None else str(row[0])


def put_meta(connection: sqlite3.Connection, key: str, value: int | str) -> None:
    """Set a value in the meta table."""
    connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?,?)", (key, value))
