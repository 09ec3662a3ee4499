"""One build of an index: many processes read it, one writes. Both see SQLite and tantivy as one store.

A tantivy commit can't carry metadata of ours, so its generation is stored as a document: that of file 0, which is not
a real file. After a crash between the two commits SQLite is ahead; `IndexWriter.behind` tells what to redo.
"""

import os
import sqlite3
import threading
import weakref
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec
import tantivy

from ...store.schema import insert_into
from ..parse import outline, words
from ..parse.types import Chunk, Definition, PackedReferences
from . import layout, rank
from .embed import Embedding

_BUILD_HEAP, _UPDATE_HEAP = 64 << 20, 16 << 20  # bytes; tantivy takes no less than the second
_NO_FILE = 0

SAME, GONE = "same", "gone"  # states that change nothing, or remove the file


class IndexDamaged(Exception):
    """The index can't be read: it has another format, or something else wrote to it."""


class IndexedContent(msgspec.Struct, frozen=True, array_like=True):
    """What is stored about an indexed file, packed by the worker that parsed it."""

    language: str
    broken_line: int
    chunk_count: int
    chunks: bytes
    outline: bytes
    names: list[str]  # of its definitions, in the order of the outline
    references: PackedReferences
    documents: list[rank.Fields]
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


_INSERT_FILE = insert_into(
    "files",
    (
        *("id", "path", "language", "size", "mtime_ns", "sha256", "generation"),
        *("state", "broken_line", "chunk_count", "chunks", "outline"),
    ),
    verb="INSERT OR REPLACE",
)
_NOTHING = IndexedContent(
    language="",
    broken_line=0,
    chunk_count=0,
    chunks=msgspec.msgpack.encode([]),
    outline=b"",
    names=[],
    references=PackedReferences(),
    documents=[],
)


class IndexedFile(NamedTuple):
    """A file as it was indexed."""

    id: int
    size: int
    mtime_ns: int
    sha256: bytes


class File(NamedTuple):
    """A file that a search found, with the places of its chunks."""

    id: int
    path: bytes
    language: str
    size: int
    sha256: bytes
    generation: int
    chunks: list[Chunk]


class Totals(NamedTuple):
    """How much an index holds."""

    files: int
    chunks: int
    symbols: int
    edges: int
    skipped: dict[str, int]
    languages: dict[str, int]
    source_bytes: int


_chunks = msgspec.msgpack.Decoder(list[Chunk])


def _means_damage(exc: BaseException) -> bool:
    """Whether SQLite or tantivy, whose errors are plain ValueErrors, failed; anything else is a bug.

    Rust panics do not derive from Exception, so that they are not swallowed by accident; here they mean a damaged file.
    """
    return isinstance(exc, sqlite3.Error | OSError) or type(exc) is ValueError or type(exc).__name__ == "PanicException"


def _damage(exc: BaseException) -> IndexDamaged:
    return IndexDamaged(f"{type(exc).__name__}: {exc}"[:200])


# --- reading ---------------------------------------------------------------------------------------


class IndexReader:
    """Reads one build; safe from any thread. Raises IndexDamaged if the build can't be read.

    A shared reader is not closed explicitly: its files are closed when the last reference is gone.
    """

    def __init__(self, build: str) -> None:
        self.build = build
        self._lock = threading.RLock()
        try:
            self._connection = layout.connect(build)
            weakref.finalize(self, self._connection.close)
            self._index = tantivy.Index.open(layout.text_of(build))
            self._index.config_reader("manual")
            self._index.reload()
            self.searched = _generation_of(self._index)  # the generation that searches see: SQLite may be ahead
            self.generation = layout.get_meta(self._connection, "generation")
            self.embedding = layout.get_word(self._connection, "embedding")  # the one that made its vectors
        except BaseException as exc:
            if _means_damage(exc):
                raise _damage(exc) from None
            raise

    def close(self) -> None:
        """Close a reader that is not shared."""
        with self._lock:
            self._connection.close()

    def _rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                return self._connection.execute(sql, parameters).fetchall()
            except sqlite3.Error as exc:
                raise _damage(exc) from None

    def catch_up(self) -> None:
        """Reload if something was written since the last load."""
        rows = self._rows("SELECT value FROM meta WHERE key='generation'")
        generation = rows[0][0] if rows else 0
        with self._lock:
            if generation == self.generation == self.searched:
                return
            try:
                self._index.reload()
                self.searched = _generation_of(self._index)
            except BaseException as exc:
                if _means_damage(exc):
                    raise _damage(exc) from None
                raise
            self.generation = generation

    def search(
        self,
        question: words.Question,
        scope: rank.Scope,
        files: Collection[int] | None,
        limit: int,
        embedding: Embedding | None,
    ) -> rank.RankedChunks:
        """The best chunks for a query."""
        using = embedding if embedding is not None and embedding.name == self.embedding else None
        try:
            return rank.search(
                self._index.searcher(), self, question, scope=scope, files=files, limit=limit, embedding=using
            )
        except BaseException as exc:
            if _means_damage(exc):
                raise _damage(exc) from None
            raise

    def paths(self, files: Collection[int]) -> Mapping[int, str]:
        """The paths of these files, relative to the root."""
        rows = self._rows(f"SELECT id, path FROM files WHERE id IN ({_marks(files)})", list(files))  # noqa: S608 - own names
        return {row[0]: os.fsdecode(row[1]) for row in rows}

    def vectors(self, files: Collection[int]) -> Mapping[int, bytes]:
        """The vectors of these files."""
        return dict(self._rows(f"SELECT file, vectors FROM vectors WHERE file IN ({_marks(files)})", list(files)))  # noqa: S608 - own names

    def all_paths(self) -> list[tuple[int, bytes]]:
        """Every indexed file."""
        return cast(list[tuple[int, bytes]], self._rows("SELECT id, path FROM files WHERE state=''"))

    def file(self, file: int) -> File | None:
        """A file with its chunks; None if it is no longer indexed."""
        rows = self._rows(
            "SELECT id, path, language, size, sha256, generation, chunks FROM files WHERE id=? AND state=''", (file,)
        )
        if not rows:
            return None
        number, path, language, size, sha256, generation, chunks = rows[0]
        return File(
            id=number,
            path=path,
            language=language,
            size=size,
            sha256=sha256,
            generation=generation,
            chunks=_chunks.decode(chunks),
        )

    def outline(self, file: int) -> list[Definition]:
        """The definitions of a file; their docstrings are not stored."""
        rows = self._rows("SELECT outline FROM files WHERE id=?", (file,))
        return outline.unpack(rows[0][0]) if rows else []

    def definition(self, file: int, place: int) -> tuple[str, str]:
        """Qualified name and kind of one definition."""
        rows = self._rows("SELECT outline FROM files WHERE id=?", (file,))
        return outline.name_and_kind(rows[0][0], place) if rows else ("", "")

    def defining(self, name: str) -> list[tuple[int, int]]:
        """Where a name is defined: file and place in its outline."""
        return cast(list[tuple[int, int]], self._rows("SELECT file, place FROM symbols WHERE name=?", (name,)))

    def names(self, beginning: str = "", limit: int = -1) -> list[str]:
        """Names of definitions with this prefix, sorted."""
        rows = self._rows(
            "SELECT DISTINCT name FROM symbols WHERE name>=? AND name<? ORDER BY name LIMIT ?",
            (beginning, f"{beginning}\U0010ffff", limit),
        )
        return [row[0] for row in rows]

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run any query; for the graph, which reads the tables itself."""
        return self._rows(sql, parameters)

    def updated(self) -> float:
        """When the index was last written to."""
        newest = [os.stat(path).st_mtime for path in layout.databases_of(self.build) if os.path.exists(path)]
        return max(newest, default=0.0)

    def totals(self) -> Totals:
        """Counts of what is indexed."""
        files, chunks, size = self._rows(
            "SELECT count(*), coalesce(sum(chunk_count),0), coalesce(sum(size),0) FROM files WHERE state=''"
        )[0]
        skipped = dict(self._rows("SELECT state, count(*) FROM files WHERE state!='' GROUP BY state ORDER BY state"))
        languages = dict(
            self._rows(
                "SELECT CASE language WHEN '' THEN 'text' ELSE language END, count(*) FROM files"
                " WHERE state='' GROUP BY 1 ORDER BY 2 DESC, 1"
            )
        )
        symbols = self._rows("SELECT count(*) FROM symbols")[0][0]
        edges = self._rows("SELECT coalesce(sum(count),0) FROM mentions")[0][0]
        return Totals(
            files=files,
            chunks=chunks,
            symbols=symbols,
            edges=edges,
            skipped=skipped,
            languages=languages,
            source_bytes=size,
        )


def _marks(values: Collection[object]) -> str:
    return ",".join("?" * len(values))


def _generation_of(index: tantivy.Index) -> int:
    """The generation of tantivy's last commit; -1 if it has none."""
    searcher = index.searcher()
    hits = searcher.search(tantivy.Query.term_query(rank.SCHEMA, "file", _NO_FILE), 1, count=False).hits
    values = searcher.fast_field_values("chunk", [address for _, address in hits])
    return int(values[0]) if values and values[0] is not None else -1


def _document(fields: rank.Fields) -> tantivy.Document:
    return tantivy.Document.from_dict(fields, rank.SCHEMA)  # pyright: ignore[reportUnknownMemberType]


# --- writing ---------------------------------------------------------------------------------------


class IndexWriter:
    """Writes one build, under the lock of the index. Nothing is visible to readers before `commit`."""

    def __init__(self, build: str, *, fresh: bool = False) -> None:
        self._fresh = fresh
        self._text: tantivy.IndexWriter | None = None
        try:
            if fresh:
                self._connection = layout.create(build)
                self._index = tantivy.Index(rank.schema(), path=layout.text_of(build))
                self.committed = 0
            else:
                self._connection = layout.connect(build, write=True)
                self._index = tantivy.Index.open(layout.text_of(build))
                self.committed = _generation_of(self._index)
            self.generation = layout.get_meta(self._connection, "generation")
            self.embedding = layout.get_word(self._connection, "embedding")
            highest = self._connection.execute("SELECT coalesce(max(id),0) FROM files").fetchone()[0]
            self._next_id = max(1 + highest, layout.get_meta(self._connection, "next_id"))
        except BaseException as exc:
            if _means_damage(exc):
                raise _damage(exc) from None
            raise
        if self.committed > self.generation or self.committed < 0:
            self.close()
            raise IndexDamaged(f"the text index is of generation {self.committed}, the database of {self.generation}")

    def known(self, paths: Sequence[bytes] | None = None) -> dict[bytes, IndexedFile]:
        """The files of the index, skipped ones included: all, or those of `paths`."""
        query = "SELECT path, id, size, mtime_ns, sha256 FROM files"
        if paths is None:
            return {row[0]: IndexedFile(*row[1:]) for row in self._connection.execute(query)}
        rows = (self._connection.execute(f"{query} WHERE path=?", (path,)).fetchone() for path in paths)
        return {row[0]: IndexedFile(*row[1:]) for row in rows if row is not None}

    def behind(self) -> tuple[set[bytes], list[int]]:
        """What tantivy's last commit lacks: files to index again, and files to remove."""
        if self.committed == self.generation:
            return set(), []
        later = (self.committed,)
        files = self._connection.execute("SELECT path FROM files WHERE generation>?", later).fetchall()
        gone = self._connection.execute("SELECT file FROM gone WHERE generation>?", later).fetchall()
        return {row[0] for row in files}, [row[0] for row in gone]

    def new_id(self) -> int:
        """An id for a new file; ids are never reused within a build."""
        self._next_id += 1
        return self._next_id - 1

    def _begin(self) -> None:
        if not self._connection.in_transaction:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("DELETE FROM gone WHERE generation<=?", (self.committed,))
            self.generation += 1

    def _texts(self) -> tantivy.IndexWriter:
        if self._text is None:
            self._text = self._index.writer(_BUILD_HEAP if self._fresh else _UPDATE_HEAP, 1)
        return self._text

    def put(self, result: FileState) -> None:
        """Replace what is stored about a file."""
        self._begin()
        if result.state == GONE:
            self.drop(result.id)
            return
        if result.state == SAME:
            self._connection.execute(
                "UPDATE files SET size=?, mtime_ns=? WHERE id=?", (result.size, result.mtime_ns, result.id)
            )
            return
        if not self._fresh:
            self._forget(result.id)
        content = result.content or _NOTHING
        row = (
            *(result.id, result.path, content.language, result.size, result.mtime_ns, result.sha256, self.generation),
            *(result.state, content.broken_line, content.chunk_count, content.chunks, content.outline),
        )
        self._connection.execute(_INSERT_FILE, row)
        self._put_derived(result.id, content)
        for fields in content.documents:
            self._texts().add_document(_document(fields))

    def _put_derived(self, file: int, content: IndexedContent) -> None:
        """Insert what was derived from the content into the tables other than `files`."""
        names = ((name, file, place) for place, name in enumerate(content.names))
        self._connection.executemany("INSERT INTO symbols (name, file, place) VALUES (?,?,?)", names)
        references = content.references
        if references.record:
            row = (file, references.count, references.mentioned)
            self._connection.execute("INSERT INTO mentions (file, count, mentioned) VALUES (?,?,?)", row)
            self._connection.execute("INSERT INTO records (file, record) VALUES (?,?)", (file, references.record))
        if content.vectors:
            self._connection.execute("INSERT INTO vectors (file, vectors) VALUES (?,?)", (file, content.vectors))

    def _forget(self, file: int) -> None:
        """Remove everything that was derived from a file's content."""
        for table in ("mentions", "records", "vectors"):
            self._connection.execute(f"DELETE FROM {table} WHERE file=?", (file,))  # noqa: S608 - own names
        row = self._connection.execute("SELECT outline FROM files WHERE id=?", (file,)).fetchone()
        for place, one in enumerate(outline.unpack(row[0]) if row else []):
            self._connection.execute("DELETE FROM symbols WHERE name=? AND file=? AND place=?", (one.name, file, place))
        rank.delete(self._texts(), file)

    def drop(self, file: int) -> None:
        """Remove a file."""
        self._begin()
        self._forget(file)
        self._connection.execute("DELETE FROM files WHERE id=?", (file,))
        self._connection.execute("INSERT OR REPLACE INTO gone (file, generation) VALUES (?,?)", (file, self.generation))

    def forget_text(self, file: int) -> None:
        """Remove from tantivy a file that is already gone from SQLite."""
        self._begin()
        rank.delete(self._texts(), file)

    def commit(self) -> bool:
        """Make changes visible, SQLite first; False if there was nothing to write."""
        if not self._connection.in_transaction:
            return False
        layout.put_meta(self._connection, "generation", self.generation)
        layout.put_meta(self._connection, "next_id", self._next_id)
        self._connection.execute("COMMIT")
        text = self._texts()
        rank.delete(text, _NO_FILE)
        marker = tantivy.Document()
        marker.add_unsigned("file", _NO_FILE)
        marker.add_unsigned("chunk", self.generation)
        text.add_document(marker)
        text.commit()
        self.committed = self.generation
        return True

    def set_meta(self, key: str, value: int | str) -> None:
        """Set a value of the meta table."""
        self._begin()
        layout.put_meta(self._connection, key, value)

    def close(self) -> None:
        """Wait for tantivy's background work; uncommitted changes are lost."""
        if self._text is not None:
            text, self._text = self._text, None
            text.wait_merging_threads()
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        if self._fresh:
            layout.finish(self._connection)
        self._connection.close()
