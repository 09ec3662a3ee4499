"""One build of an index: many processes read it, one writes. Both see SQLite and tantivy as one store.

A tantivy commit can't carry metadata of ours, so its generation is stored as a document: that of file 0, which is not
a real file. After a crash between the two commits SQLite is ahead; `IndexWriter.behind` tells what to redo.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec
import tantivy

from ...store.schema import insert_into
from ..parse import outline
from ..parse.question import Question
from ..parse.types import PackedReferences
from . import layout, rank
from .embed import Embedding
from .tables import IndexDamaged, IndexTables, damage, means_damage
from .types import RankedChunks, Scope

_BUILD_HEAP, _UPDATE_HEAP = 64 << 20, 16 << 20  # bytes; tantivy takes no less than the second
_NO_FILE = 0

SAME, GONE = "same", "gone"  # states that change nothing, or remove the file


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
    ) -> RankedChunks:
        """The best chunks for a query."""
        using = embedding if embedding is not None and embedding.name == self.embedding else None
        try:
            return rank.search(
                self._index.searcher(), self, question, scope=scope, files=files, limit=limit, embedding=using
            )
        except BaseException as exc:
            if means_damage(exc):
                raise damage(exc) from None
            raise


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
            if means_damage(exc):
                raise damage(exc) from None
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
