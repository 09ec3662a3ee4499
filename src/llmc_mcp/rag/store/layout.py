"""Where an index is stored on disk, and the tables of its SQLite file.

    <data directory>/index/<name of the root>/
        root             the root's path, for human readers
        lock             held by the writer
        current          a link to the current build
        seed             a link to a build that is another root's, until it has been compared with the files here
        b-1a2b3c4d/      a build: index.db (authoritative), base.db and text/ (tantivy, made from the same files)

A full build is a new folder, activated by renaming the link. Where there is an index that can be read, that happens
when the new one is complete, and a killed build leaves nothing but files to clean up. Where there is none, it happens
at once: the build commits as it goes, what is there can be searched, and whoever comes next continues it. Files are
updated in place: a transaction in SQLite, then a commit in tantivy, which carries the number of its generation.

What a first build derives from the files goes into base.db, which never changes once the build is complete. So the
index of another worktree or clone begins with links to it and to tantivy's files, which never change either. What is
derived later goes into tables of the same names in index.db; `replaced` lists the files of the base that are not as
they were, and what they were, and `earlier` holds what was derived from later contents: a file that becomes again what
it was, as in a branch that one returns to, is not parsed again.
"""

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

FORMAT = 13  # of tables, fields and parsing; an index of another format is rebuilt

# The text of files is not stored but read from disk. Lines count from 1, both ends included; byte ranges are half-open.
SCHEMA = [
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID",
    # `state` is empty for an indexed file, else why it is not indexed.
    """CREATE TABLE files (
        id INTEGER PRIMARY KEY, path BLOB NOT NULL UNIQUE, language TEXT NOT NULL, size INTEGER NOT NULL,
        mtime_ns INTEGER NOT NULL, sha256 BLOB NOT NULL, generation INTEGER NOT NULL, state TEXT NOT NULL,
        broken_line INTEGER NOT NULL, chunk_count INTEGER NOT NULL)""",
    # Files that were dropped since tantivy's last commit.
    "CREATE TABLE gone (file INTEGER PRIMARY KEY, generation INTEGER NOT NULL)",
    """CREATE TABLE replaced (
        file INTEGER PRIMARY KEY, path BLOB NOT NULL, sha256 BLOB NOT NULL, language TEXT NOT NULL,
        broken_line INTEGER NOT NULL, chunk_count INTEGER NOT NULL)""",
    # What was derived from contents that files had since the first build, and have no more; the last ones of many.
    """CREATE TABLE earlier (
        number INTEGER PRIMARY KEY, path BLOB NOT NULL, sha256 BLOB NOT NULL, language TEXT NOT NULL,
        broken_line INTEGER NOT NULL, chunk_count INTEGER NOT NULL, chunks BLOB NOT NULL, outline BLOB NOT NULL,
        digests BLOB NOT NULL, count INTEGER, mentioned BLOB, record BLOB, vectors BLOB, UNIQUE (path, sha256))""",
    # Files that can be searched, and whose references were not read yet.
    "CREATE TABLE unread (file INTEGER PRIMARY KEY)",
    # Files that are about to be indexed, by a first build or if they are many, and those that are gone: searches read
    # them as text. `file` is the id that the index has them by: 0 for a new file, negative for one that is gone.
    "CREATE TABLE pending (path BLOB PRIMARY KEY, file INTEGER NOT NULL) WITHOUT ROWID",
]
# What is derived from the content of a file.
CONTENT_SCHEMA = [
    # `chunks` holds list[Chunk] as msgpack, in file order; a chunk is identified by the file's id and its index.
    # `outline` holds definitions; see outline.py. `digests` tells whether a chunk still has the same document.
    """CREATE TABLE contents (
        file INTEGER PRIMARY KEY, chunks BLOB NOT NULL, outline BLOB NOT NULL, digests BLOB NOT NULL)""",
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
]
BY_FILE = ("contents", "mentions", "records", "vectors")  # tables whose key is the file

_VIEWS = [
    f"CREATE TEMP VIEW {table} AS SELECT * FROM main.{table}"  # noqa: S608 - own names
    f" UNION ALL SELECT * FROM base.{table} WHERE file NOT IN (SELECT file FROM main.replaced)"
    for table in (*BY_FILE, "symbols")
]

# Keys of `meta`: whether all of it is there, whether base.db is final, the first id that is not in it, and by which
# rules it was made.
COMPLETE, SEALED, BASE_END, RULES = "complete", "sealed", "base_end", "rules"

_BUILD = "b-"
_DATABASE, _BASE, _TEXT = "index.db", "base.db", "text"
DATABASES = (_DATABASE, _BASE)
_WAIT_S = 30.0
# Names come in no order: without a cache for their tree, every one of them is a page read and written.
_WRITER = ("synchronous=NORMAL", "temp_store=MEMORY", "cache_size=-32768")
_TURN_S = 0.02


class Home:
    """The folder of one root's index."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._current, self._seed = os.path.join(folder, "current"), os.path.join(folder, "seed")

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

    def seed(self) -> str | None:
        """The folder of a build that was another root's; nobody may search it."""
        try:
            folder = os.path.join(self.folder, os.readlink(self._seed))
        except OSError:
            return None
        return folder if os.path.isdir(folder) else None

    def put_aside(self, folder: str) -> None:
        """Have the writer begin with this build."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._seed)
        os.symlink(os.path.basename(folder), self._seed)

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
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._seed)
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

    def is_being_written(self) -> bool:
        """Whether a process holds the lock. To find out takes it for a moment: a writer that waits tries again."""
        try:
            fd = os.open(os.path.join(self.folder, "lock"), os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # nobody has ever written here, or this user can't
            return False
        try:
            return not _locked(fd)
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


def indexed_folders(data_dir: str) -> list[tuple[str, Home]]:
    """The folders that have an index, each with the place of that, by path."""
    above = os.path.join(data_dir, "index")
    found: list[tuple[str, Home]] = []
    for name in os.listdir(above) if os.path.isdir(above) else []:
        home = Home(os.path.join(above, name))
        try:
            with open(os.path.join(home.folder, "root"), encoding="utf-8", errors="surrogateescape") as note:
                found.append((note.read().rstrip("\n"), home))
        except OSError:
            continue  # it was just deleted
    return sorted(found, key=lambda row: row[0])


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
    """New databases, for many readers and one writer; returns the first one."""
    _create(os.path.join(build, _BASE), CONTENT_SCHEMA).close()
    return _create(os.path.join(build, _DATABASE), [*SCHEMA, *CONTENT_SCHEMA])


def _create(path: str, schema: list[str]) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, uri=True)
    # Rows are blobs of about a kilobyte: pages of this size waste the least space.
    for pragma in ("page_size=8192", "journal_mode=WAL", *_WRITER):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("BEGIN")
    for statement in schema:
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version={FORMAT}")
    connection.execute("COMMIT")
    return connection


def connect(build: str, *, write: bool = False) -> sqlite3.Connection:
    """An existing database; sqlite3.DatabaseError if it is not an index of this format."""
    path = os.path.join(build, _DATABASE)
    if not os.path.exists(path):
        raise sqlite3.DatabaseError("the index has no database")
    connection = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False, uri=True)
    try:
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        if found != FORMAT:
            raise sqlite3.DatabaseError(f"the index has format {found}, this version has {FORMAT}")
        if write:
            for pragma in _WRITER:
                connection.execute(f"PRAGMA {pragma}")
        else:
            _join_base(connection, build)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_base(build: str) -> sqlite3.Connection:
    """The database that a first build fills."""
    path = os.path.join(build, _BASE)
    connection = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False, uri=True)
    for pragma in _WRITER:
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _join_base(connection: sqlite3.Connection, build: str) -> None:
    """Have the tables of both databases read as one."""
    connection.execute("PRAGMA temp_store=MEMORY")
    place = os.path.join(build, _BASE)
    base = immutable(place) if get_meta(connection, SEALED) else _uri(place, b"mode=ro")
    connection.execute("ATTACH CAST(? AS TEXT) AS base", (base,))
    for view in _VIEWS:
        connection.execute(view)
    connection.execute("PRAGMA query_only=1")


def immutable(path: str) -> bytes:
    """What to attach a database by that nobody writes to: a path need not be UTF-8, and only a blob can say that."""
    return _uri(path, b"immutable=1")


def _uri(path: str, options: bytes) -> bytes:
    place = os.fsencode(path).replace(b"%", b"%25").replace(b"?", b"%3f").replace(b"#", b"%23")
    return b"file:" + place + b"?" + options


def seal(base: sqlite3.Connection) -> bool:
    """Move all that was committed into the file itself, which never changes from then on; False if a reader is slow."""
    return base.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0


def unchanging(build: str) -> list[str]:
    """The files of a sealed build that nobody ever writes to: tantivy replaces its files and does not change them."""
    segments = (name for name in os.listdir(text_of(build)) if not name.startswith(".") and not name.endswith(".json"))
    return [_BASE, *(os.path.join(_TEXT, name) for name in segments)]


def copy_rest(build: str, folder: str) -> None:
    """Copy what the others lack: the list of tantivy's files, and the database that changes.

    A file of the same size and time may have another content elsewhere: no time is kept, so that each is looked at.
    """
    for name in os.listdir(text_of(build)):
        if name.endswith(".json"):
            shutil.copy2(os.path.join(text_of(build), name), text_of(folder), follow_symlinks=False)
    source, target = connect(build, write=True), sqlite3.connect(os.path.join(folder, _DATABASE))
    try:
        source.backup(target)
        target.execute("PRAGMA journal_mode=WAL")
        with target:
            target.execute("UPDATE files SET mtime_ns=-1")
    finally:
        source.close()
        target.close()


def forget_earlier(build: str) -> None:
    """Remove from a copy what files held that have changed since."""
    connection = connect(build, write=True)
    try:
        connection.execute("DELETE FROM earlier")
        connection.execute("VACUUM")
    finally:
        connection.close()


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
