"""One build of an index: many processes read it, one writes. Both see SQLite and tantivy as one store.

A tantivy commit can't carry metadata of ours, so its generation is stored as a document: that of file 0, which is not
a real file. After a crash between the two commits SQLite is ahead; `IndexWriter.behind` tells what to redo.
"""

import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, cast

import msgspec
import tantivy

from ...store.schema import insert_into
from ..parse import outline
from ..parse.question import Question
from ..parse.types import PackedReferences
from . import layout, rank
from .embed import Embedding
from .fields import TextState
from .tables import IndexDamaged, IndexTables, damage, means_damage
from .types import RankedChunks, Scope

# Bytes that tantivy fills before it writes a piece of the index, beside whatever else is done; what is left is written
# when somebody waits for it. Of many files that makes too many pieces, which it merges. It takes no less.
_HEAP, _LARGE_HEAP = 16 << 20, 64 << 20
_NO_FILE = 0
_NAMED_FILES = 500  # whose names are inserted together
_TICK_S = 0.02

SAME, GONE = "same", "gone"  # states that change nothing, or remove the file
RESTORED = "restored"  # … or make it what the first build has seen: all but its documents is there
REFERENCES = "references"  # … or add the references to what is stored


class IndexedContent(msgspec.Struct, frozen=True, array_like=True):
    """What is stored about an indexed file, packed by the worker that parsed it."""

    language: str
    broken_line: int
    chunk_count: int
    chunks: bytes
    outline: bytes
    names: list[str]  # of its definitions, in the order of the outline
    references: PackedReferences | None  # None: they are read later
    documents: list[rank.Fields]  # those that are new or say something else
    kept: list[int] = []  # chunks whose documents are as they were
    digests: bytes = b""
    vectors: bytes = b""


class FileState(msgspec.Struct, frozen=True, array_like=True):
    """The result of reading a file; `state` is empty if it is to be indexed, else the reason why not."""

    id: int
    path: bytes
    size: int
    mtime_ns: int
    sha256: bytes
    state: str
    content: IndexedContent | None = None


_FILE_COLUMNS = (
    *("id", "path", "language", "size", "mtime_ns", "sha256", "generation"),
    *("state", "broken_line", "chunk_count"),
)
_INSERT_FILE = insert_into("files", _FILE_COLUMNS).replace("INSERT", "INSERT OR REPLACE", 1)  # by id and by path
NO_CONTENT = IndexedContent(
    language="",
    broken_line=0,
    chunk_count=0,
    chunks=msgspec.msgpack.encode([]),
    outline=b"",
    names=[],
    references=PackedReferences(),
    documents=[],
)


# The tables that `earlier` keeps the rows of, and their columns.
_EARLIER_TABLES = {
    "contents": "chunks, outline, digests",
    "mentions": "count, mentioned",
    "records": "record",
    "vectors": "vectors",
}
_EARLIER, _VERSIONS = 5_000, 4  # contents that are kept: of all files, and looked at of one


class Counts(NamedTuple):
    """How many files an index has, how many hold each term of a question, and how many define each name."""

    files: int
    holding: dict[str, int]
    defining: dict[str, int]


class EarlierContent(msgspec.Struct, frozen=True, array_like=True):
    """What was derived from a content that a file had before."""

    sha256: bytes
    chunks: bytes
    outline: bytes
    record: bytes  # of its references


class FormerContent(msgspec.Struct, frozen=True, array_like=True):
    """What was derived from the chunks that a file has had so far, for those that stay as they are."""

    digests: bytes
    vectors: bytes


class IndexedFile(NamedTuple):
    """A file as it was indexed."""

    id: int
    size: int
    mtime_ns: int
    sha256: bytes


# --- reading ---------------------------------------------------------------------------------------


class IndexReader(IndexTables):
    """Reads one build and searches its text; safe from any thread."""

    def __init__(self, build: str) -> None:
        super().__init__(build)
        try:
            self._index = tantivy.Index.open(layout.text_of(build))
            self._index.config_reader("manual")
            self._index.reload()
            self.searched = _generation_of(self._index)  # the generation that searches see: SQLite may be ahead
            self._state = TextState()  # of that generation
        except BaseException as exc:
            if means_damage(exc):
                raise damage(exc) from None
            raise

    def catch_up(self) -> None:
        """Reload if something was written since the last load."""
        super().catch_up()
        with self._lock:
            if self.generation == self.searched:
                return
            try:
                self._index.reload()
                self.searched = _generation_of(self._index)
                self._state = TextState()
            except BaseException as exc:
                if means_damage(exc):
                    raise damage(exc) from None
                raise

    def counts(self, terms: Sequence[str], names: Sequence[str]) -> Counts:
        """How many files hold each term and define each name."""
        try:
            return _count(self._index.searcher(), terms, names)
        except BaseException as exc:
            if means_damage(exc):
                raise damage(exc) from None
            raise

    def imports(self, files: Collection[int]) -> dict[int, list[int]]:
        """What these files import."""
        return rank.imports_of(self._index.searcher(), files)

    def search(
        self,
        question: Question,
        scope: Scope,
        files: Collection[int] | None,
        limit: int,
        embedding: Embedding | None,
        rarities: Mapping[str, float] | None = None,
    ) -> RankedChunks:
        """The best chunks for a query; `rarities` are those of its words in many indexes together."""
        using = embedding if embedding is not None and embedding.name == self.embedding else None
        try:
            return rank.search(
                self._index.searcher(),
                self,
                question,
                scope=scope,
                files=files,
                limit=limit,
                embedding=using,
                state=self._state if rarities is None else self._state.with_rarities(rarities),
            )
        except BaseException as exc:
            if means_damage(exc):
                raise damage(exc) from None
            raise


def _count(searcher: tantivy.Searcher, terms: Sequence[str], names: Sequence[str]) -> Counts:
    return Counts(
        files=sum(searcher.doc_freq("scope", f"file:{scope}") for scope in ("repo", "docs")),
        holding={term: searcher.doc_freq("file_text", term) or searcher.doc_freq("whole", term) for term in terms},
        defining={name: searcher.doc_freq("file_defines", name) for name in names},
    )


def is_readable(build: str | None) -> bool:
    """Whether there is a build, complete and in this format, that can answer."""
    if build is None:
        return False
    try:
        reader = IndexReader(build)
    except IndexDamaged:
        return False
    reader.close()
    return reader.complete


def _wait_for_merges(text: tantivy.IndexWriter, tick: Callable[[], None] | None) -> None:
    if tick is None:
        text.wait_merging_threads()
        return
    failed: list[Exception] = []

    def wait() -> None:
        try:
            text.wait_merging_threads()
        except Exception as exc:  # noqa: BLE001 - raised again below
            failed.append(exc)

    merging = threading.Thread(target=wait, name="merging")
    merging.start()
    while merging.is_alive():
        merging.join(_TICK_S)
        tick()
    if failed:
        raise failed[0]


def _generation_of(index: tantivy.Index) -> int:
    """The generation of tantivy's last commit; -1 if it has none."""
    searcher = index.searcher()
    hits = searcher.search(tantivy.Query.term_query(rank.SCHEMA, "file", _NO_FILE), 1, count=False).hits
    values = searcher.fast_field_values("chunk", [address for _, address in hits])
    if not values and not searcher.num_docs:
        return 0  # nothing has been committed yet
    return int(values[0]) if values and values[0] is not None else -1


def _earlier(sha256: bytes, chunks: bytes, packed: bytes, record: bytes | None) -> EarlierContent:
    return EarlierContent(sha256, chunks, packed, record or b"")


def _document(fields: rank.Fields) -> tantivy.Document:
    return tantivy.Document.from_dict(fields, rank.SCHEMA)  # pyright: ignore[reportUnknownMemberType]


# --- writing ---------------------------------------------------------------------------------------


class IndexWriter:
    """Writes one build, under the lock of the index. What files say is not visible to readers before `commit`."""

    def __init__(self, build: str, *, fresh: bool = False, embedding: str = "", rules: str = "") -> None:
        self.build, self._text, self._changes = build, cast("tantivy.IndexWriter | None", None), False
        self._expects_many = False
        self._same: list[tuple[int, int, int]] = []  # size, time and id of files whose content is as it was
        self._names: dict[int, Sequence[str]] = {}  # by file, to insert together: in order, which takes less time
        self._settled: list[tuple[bytes]] = []  # files that are pending no more once they are committed
        try:
            if fresh:
                self._connection = layout.create(build)
                layout.put_meta(self._connection, "embedding", embedding)
                layout.put_meta(self._connection, layout.RULES, rules)
                self._index = tantivy.Index(rank.schema(), path=layout.text_of(build))
                self.committed = 0
            else:
                self._connection = layout.connect(build, write=True)
                self._index = tantivy.Index.open(layout.text_of(build))
                self.committed = _generation_of(self._index)
            self.generation = layout.get_meta(self._connection, "generation")
            self.embedding = layout.get_word(self._connection, "embedding")
            highest = self._connection.execute("SELECT coalesce(max(id),0) FROM files").fetchone()[0]
            self._base_end = layout.get_meta(self._connection, layout.BASE_END)
            self._next_id = self._first_new = max(1 + highest, layout.get_meta(self._connection, "next_id"))
            self.complete = bool(layout.get_meta(self._connection, layout.COMPLETE))
            self._contents = self._connection if self.complete else self._base(build)
        except BaseException as exc:
            if means_damage(exc):
                raise damage(exc) from None
            raise
        if self.committed > self.generation or self.committed < 0:
            self.close()
            raise IndexDamaged(f"the text index is of generation {self.committed}, the database of {self.generation}")

    def _base(self, build: str) -> sqlite3.Connection:
        """The database that a first build fills, without what was committed to it alone before a crash."""
        base = layout.connect_base(build)
        for table in (*layout.BY_FILE, "symbols"):
            base.execute(f"DELETE FROM {table} WHERE file>=?", (self._next_id,))  # noqa: S608 - own names
        return base

    def known(self, paths: Sequence[bytes] | None = None) -> dict[bytes, IndexedFile]:
        """The files of the index, skipped ones included: all, or those of `paths`."""
        query = "SELECT path, id, size, mtime_ns, sha256 FROM files"
        if paths is None:
            return {row[0]: IndexedFile(*row[1:]) for row in self._connection.execute(query)}
        rows = (self._connection.execute(f"{query} WHERE path=?", (path,)).fetchone() for path in paths)
        return {row[0]: IndexedFile(*row[1:]) for row in rows if row is not None}

    def base_ids(self, paths: Collection[bytes]) -> dict[bytes, int]:
        """The ids that those of `paths` have in the first build which have changed since."""
        rows = self._connection.execute("SELECT path, file FROM replaced WHERE sha256!=x''")
        return {path: file for path, file in rows if path in paths}

    def earlier_of(self, paths: Collection[bytes]) -> dict[bytes, list[EarlierContent]]:
        """What was derived from earlier contents of those of `paths` that have changed since the first build."""
        found: dict[bytes, list[EarlierContent]] = {}
        reader = layout.connect(self.build)
        try:
            base = (
                "SELECT path, sha256, chunks, outline, record FROM replaced JOIN base.contents USING (file)"
                " LEFT JOIN base.records USING (file) WHERE replaced.file=?"
            )
            later = (
                "SELECT path, sha256, chunks, outline, record FROM earlier WHERE path=? ORDER BY number DESC LIMIT ?"
            )
            for file in self.base_ids(paths).values():
                for path, *parts in reader.execute(base, (file,)):
                    found.setdefault(path, []).append(_earlier(*parts))
            if reader.execute("SELECT 1 FROM earlier LIMIT 1").fetchone():
                for wanted in paths:
                    for path, *parts in reader.execute(later, (wanted, _VERSIONS)):
                        found.setdefault(path, []).append(_earlier(*parts))
        finally:
            reader.close()
        return found

    def former(self, files: Collection[int]) -> dict[int, FormerContent]:
        """What is known of the chunks of these files."""
        query = "SELECT digests, vectors FROM contents LEFT JOIN vectors USING (file) WHERE contents.file=?"
        reader = layout.connect(self.build)
        try:
            rows = {file: reader.execute(query, (file,)).fetchone() for file in files}
        finally:
            reader.close()
        return {file: FormerContent(row[0], row[1] or b"") for file, row in rows.items() if row is not None}

    def behind(self) -> tuple[set[bytes], list[int]]:
        """What tantivy's last commit lacks: files to index again, and files to remove."""
        if self.committed == self.generation:
            return set(), []
        later = (self.committed,)
        files = self._connection.execute("SELECT path FROM files WHERE generation>?", later).fetchall()
        gone = self._connection.execute("SELECT file FROM gone WHERE generation>?", later).fetchall()
        return {row[0] for row in files}, [row[0] for row in gone]

    def unread(self, most: int) -> list[tuple[int, bytes, int, bytes]]:
        """Files whose references are missing: id, path, size and hash of each."""
        query = "SELECT id, path, size, sha256 FROM files WHERE id IN (SELECT file FROM unread) ORDER BY id LIMIT ?"
        return self._connection.execute(query, (most,)).fetchall()

    def count(self) -> int:
        """How many files it knows."""
        return self._connection.execute("SELECT count(*) FROM files").fetchone()[0]

    def is_new(self, file: int) -> bool:
        """Whether a file was not in the index when this writer was opened."""
        return file >= self._first_new

    def new_id(self) -> int:
        """An id for a new file; ids are never reused within a build."""
        self._next_id += 1
        return self._next_id - 1

    def _begin(self, *, changes: bool = True) -> None:
        """Begin a transaction; it makes a generation only if it changes what can be found."""
        if not self._connection.in_transaction:
            self._connection.execute("BEGIN IMMEDIATE")
        if changes and not self._changes:
            self._changes = True
            self._connection.execute("DELETE FROM gone WHERE generation<=?", (self.committed,))
            if not self._contents.in_transaction:
                self._contents.execute("BEGIN IMMEDIATE")
            self.generation += 1

    def _texts(self) -> tantivy.IndexWriter:
        if self._text is None:
            self._text = self._index.writer(_LARGE_HEAP if self._expects_many else _HEAP, 1)
        return self._text

    def expect_many(self) -> None:
        """Take more memory for what comes, which is then written in fewer pieces."""
        self._expects_many = True

    def announce(self, files: Iterable[tuple[bytes, int]], dropped: Collection[int] = ()) -> None:
        """Have searches read these files as text until they are indexed, and leave out what will be dropped.

        In a transaction of its own, before anything else is written.
        """
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("DELETE FROM pending")
        self._connection.executemany("INSERT OR REPLACE INTO pending (path, file) VALUES (?,?)", files)
        gone = "INSERT OR REPLACE INTO pending (path, file) SELECT path, -id FROM files WHERE id=?"
        self._connection.executemany(gone, [(file,) for file in dropped])
        self._connection.execute("COMMIT")

    def settle(self) -> None:
        """Note that everything is indexed, also what another process has announced before it was killed."""
        if self._connection.execute("SELECT 1 FROM pending LIMIT 1").fetchone():
            self._connection.execute("DELETE FROM pending")

    def put(self, result: FileState) -> None:
        """Replace what is stored about a file."""
        self._settled.append((result.path,))
        if result.state == GONE:
            self.drop(result.id)
            return
        if result.state == SAME:
            self._same.append((result.size, result.mtime_ns, result.id))
            return
        self._begin()
        content = result.content or NO_CONTENT
        if result.state == REFERENCES:
            self._put_references(result.id, content.references)
            return
        if not self.is_new(result.id):
            self._forget(result.id, content.kept)
        self._connection.execute("DELETE FROM gone WHERE file=?", (result.id,))  # it may have been dropped before
        if result.state == RESTORED:
            self._restore(result)
        else:
            self._insert(result, content)
        for fields in content.documents:
            self._texts().add_document(_document(fields))

    def _restore(self, result: FileState) -> None:
        """Have an earlier content hold again: that which the first build has seen, or a later one."""
        columns = f"INSERT OR REPLACE INTO files ({', '.join(_FILE_COLUMNS)}) SELECT"
        parts = "path, language, ?, ?, sha256, ?, '', broken_line, chunk_count FROM"
        seen = (result.size, result.mtime_ns, self.generation)
        execute = self._connection.execute
        base = f"{columns} file, {parts} replaced WHERE file=? AND sha256=?"
        if execute(base, (*seen, result.id, result.sha256)).rowcount:
            execute("DELETE FROM replaced WHERE file=?", (result.id,))
            return
        which = (result.path, result.sha256)
        execute(f"{columns} ?, {parts} earlier WHERE path=? AND sha256=?", (result.id, *seen, *which))
        for table, names in _EARLIER_TABLES.items():
            execute(
                f"INSERT INTO {table} (file, {names}) SELECT ?, {names} FROM earlier"  # noqa: S608 - own names
                f" WHERE path=? AND sha256=? AND {names.rpartition(' ')[2]} IS NOT NULL",
                (result.id, *which),
            )
        (packed,) = execute("SELECT outline FROM contents WHERE file=?", (result.id,)).fetchone()
        self._put_names(result.id, [one.name for one in outline.unpack(packed)])
        execute("DELETE FROM earlier WHERE path=? AND sha256=?", which)

    def _keep(self, file: int) -> None:
        """Remember what was derived from the content of a file, which is about to be replaced."""
        if not self.complete or self._connection.execute("SELECT 1 FROM unread WHERE file=?", (file,)).fetchone():
            return
        self._connection.execute(
            "INSERT OR REPLACE INTO earlier (path, sha256, language, broken_line, chunk_count, chunks, outline,"
            " digests, count, mentioned, record, vectors)"
            " SELECT path, sha256, language, broken_line, chunk_count, chunks, outline, digests, count, mentioned,"
            " record, vectors FROM files JOIN main.contents AS own ON own.file=id"
            " LEFT JOIN mentions ON mentions.file=id LEFT JOIN records ON records.file=id"
            " LEFT JOIN vectors ON vectors.file=id WHERE id=? AND state=''",
            (file,),
        )

    def _insert(self, result: FileState, content: IndexedContent) -> None:
        row = (
            *(result.id, result.path, content.language, result.size, result.mtime_ns, result.sha256, self.generation),
            *(result.state, content.broken_line, content.chunk_count),
        )
        self._connection.execute(_INSERT_FILE, row)
        self._put_derived(result.id, content)

    def _put_derived(self, file: int, content: IndexedContent) -> None:
        """Insert what was derived from the content."""
        execute = self._contents.execute
        row = (file, content.chunks, content.outline, content.digests)
        execute("INSERT INTO contents (file, chunks, outline, digests) VALUES (?,?,?,?)", row)
        self._put_names(file, content.names)
        self._put_references(file, content.references)
        if content.vectors:
            execute("INSERT INTO vectors (file, vectors) VALUES (?,?)", (file, content.vectors))

    def _put_names(self, file: int, names: Sequence[str]) -> None:
        self._names[file] = names
        if len(self._names) >= _NAMED_FILES:
            self._insert_names()

    def _insert_names(self) -> None:
        rows = sorted((name, file, place) for file, names in self._names.items() for place, name in enumerate(names))
        self._names = {}
        self._contents.executemany("INSERT INTO symbols (name, file, place) VALUES (?,?,?)", rows)

    def _put_references(self, file: int, references: PackedReferences | None) -> None:
        """Insert the references of a file that has none, or note that they are missing."""
        if references is None:
            self._connection.execute("INSERT OR IGNORE INTO unread (file) VALUES (?)", (file,))
            return
        self._connection.execute("DELETE FROM unread WHERE file=?", (file,))
        if references.record:
            execute, row = self._contents.execute, (file, references.count, references.mentioned)
            execute("INSERT OR REPLACE INTO mentions (file, count, mentioned) VALUES (?,?,?)", row)
            execute("INSERT OR REPLACE INTO records (file, record) VALUES (?,?)", (file, references.record))

    def _forget(self, file: int, kept: Collection[int] = ()) -> None:
        """Remove everything that was derived from a file's content but some documents; it is kept for a while."""
        self._keep(file)
        self._names.pop(file, None)
        if kept:
            (chunks,) = self._connection.execute("SELECT chunk_count FROM files WHERE id=?", (file,)).fetchone()
            rank.delete_but(self._texts(), file, chunks, frozenset(kept))
        else:
            rank.delete(self._texts(), file)
        execute = self._contents.execute
        row = execute("SELECT outline FROM contents WHERE file=?", (file,)).fetchone()
        for place, one in enumerate(outline.unpack(row[0]) if row else []):
            execute("DELETE FROM symbols WHERE name=? AND file=? AND place=?", (one.name, file, place))
        for table in layout.BY_FILE:
            execute(f"DELETE FROM {table} WHERE file=?", (file,))  # noqa: S608 - own names
        self._connection.execute("DELETE FROM unread WHERE file=?", (file,))
        if file < self._base_end:
            execute(
                "INSERT OR IGNORE INTO replaced (file, path, sha256, language, broken_line, chunk_count)"
                " SELECT id, path, CASE state WHEN '' THEN sha256 ELSE x'' END, language, broken_line, chunk_count"
                " FROM files WHERE id=?",
                (file,),
            )

    def drop(self, file: int) -> None:
        """Remove a file."""
        self._begin()
        self._forget(file)
        self._settled += self._connection.execute("SELECT path FROM files WHERE id=?", (file,))
        self._connection.execute("DELETE FROM files WHERE id=?", (file,))
        self._connection.execute("INSERT OR REPLACE INTO gone (file, generation) VALUES (?,?)", (file, self.generation))

    def forget_text(self, file: int) -> None:
        """Remove from tantivy a file that is already gone from SQLite."""
        self._begin()
        rank.delete(self._texts(), file)

    def commit(self) -> bool:
        """Make changes visible, SQLite first; False if there was nothing to write."""
        if self._same:
            self._begin(changes=False)
            self._connection.executemany("UPDATE files SET size=?, mtime_ns=? WHERE id=?", self._same)
            self._same = []
        if not self._connection.in_transaction:
            return False
        if not self._changes:
            self._take_off_list()
            self._connection.execute("COMMIT")
            return True
        self._insert_names()
        layout.put_meta(self._connection, "generation", self.generation)
        layout.put_meta(self._connection, "next_id", self._next_id)
        if self._contents is not self._connection:  # first: what is of a file that nobody knows yet does no harm
            self._contents.execute("COMMIT")
        self._connection.execute("COMMIT")
        text = self._texts()
        rank.delete(text, _NO_FILE)
        marker = tantivy.Document()
        marker.add_unsigned("file", _NO_FILE)
        marker.add_unsigned("chunk", self.generation)
        text.add_document(marker)
        text.commit()
        self.committed, self._changes = self.generation, False
        self._connection.execute("BEGIN IMMEDIATE")
        self._take_off_list()
        self._connection.execute("COMMIT")
        return True

    def _take_off_list(self) -> None:
        """Have searches read files as text no more that they can find."""
        self._connection.executemany("DELETE FROM pending WHERE path=?", self._settled)
        self._settled = []

    def finish(self) -> None:
        """Note that nothing is missing any more; what comes later is stored apart from what this build made."""
        if self.complete:
            # Only now: what was to be restored is there no more.
            newest = "(SELECT max(number) FROM earlier)"
            self._connection.execute(f"DELETE FROM earlier WHERE number<={newest}-?", (_EARLIER,))  # noqa: S608 - own names
            return
        self._begin()
        self._insert_names()
        base, self._contents, self.complete = self._contents, self._connection, True
        self._base_end = self._next_id
        base.execute("COMMIT")
        layout.put_meta(self._connection, layout.SEALED, layout.seal(base))
        layout.put_meta(self._connection, layout.COMPLETE, 1)
        layout.put_meta(self._connection, layout.BASE_END, self._base_end)
        base.close()

    def set_meta(self, key: str, value: int | str) -> None:
        """Set a value of the meta table."""
        self._begin()
        layout.put_meta(self._connection, key, value)

    def close(self, tick: Callable[[], None] | None = None) -> None:
        """Wait for tantivy's background work, calling `tick` meanwhile; uncommitted changes are lost."""
        if self._text is not None:
            text, self._text = self._text, None
            _wait_for_merges(text, tick)
        for connection in {self._contents, self._connection}:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            connection.close()
