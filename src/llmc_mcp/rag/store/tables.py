"""The SQLite part of one build of an index, for reading: files, chunks, symbols and references.

A server reads nothing else; text is searched by a process that all servers share (ranker.py).
"""

import os
import sqlite3
import threading
import weakref
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from ..parse import outline
from ..parse.outline import StoredOutline
from ..parse.types import Chunk, Definition
from . import layout


class IndexDamaged(Exception):
    """The index can't be read: it has another format, or something else wrote to it."""


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


_MANY_FILES = 20_000  # that take longer to be compared than an answer may take

_chunks = msgspec.msgpack.Decoder(list[Chunk])


def means_damage(exc: BaseException) -> bool:
    """Whether SQLite or tantivy, whose errors are plain ValueErrors, failed; anything else is a bug.

    Rust panics do not derive from Exception, so that they are not swallowed by accident; here they mean a damaged file.
    """
    return isinstance(exc, sqlite3.Error | OSError) or type(exc) is ValueError or type(exc).__name__ == "PanicException"


def damage(exc: BaseException) -> IndexDamaged:
    """What is told of such an error: SQLite's and the kernel's words, but not tantivy's, which are Rust."""
    if isinstance(exc, sqlite3.Error):
        told = str(exc)
    elif isinstance(exc, OSError):
        told = exc.strerror or "it can't be read"
    else:
        told = "its text can't be searched"
    made = IndexDamaged(told[:200])
    made.add_note(f"{type(exc).__name__}: {exc}"[:1_000])
    return made


class IndexTables:
    """Reads one build; safe from any thread. Raises IndexDamaged if the build can't be read.

    A shared reader is not closed explicitly: its files are closed when the last reference is gone.
    """

    def __init__(self, build: str) -> None:
        self.build = build
        self._lock = threading.RLock()
        try:
            self._connection = layout.connect(build)
            weakref.finalize(self, self._connection.close)
            self.identity = layout.identity_of(build)
            self.generation = layout.get_meta(self._connection, "generation")
            self.embedding = layout.get_word(self._connection, "embedding")  # the one that made its vectors
            self.complete = bool(layout.get_meta(self._connection, layout.COMPLETE))  # else the first build goes on
            self.is_large = layout.get_meta(self._connection, "next_id") > _MANY_FILES
        except BaseException as exc:
            if means_damage(exc):
                raise damage(exc) from None
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
                raise damage(exc) from None

    def catch_up(self) -> None:
        """Learn whether something was written since the last time."""
        if layout.identity_of(self.build) != self.identity:
            raise IndexDamaged("its files were deleted")
        found = dict(self._rows("SELECT key, value FROM meta WHERE key IN ('generation', 'complete')"))
        with self._lock:
            self.generation, self.complete = found.get("generation", 0), bool(found.get("complete"))

    def paths(self, files: Collection[int]) -> Mapping[int, str]:
        """The paths of these files, relative to the root."""
        rows = self._rows(f"SELECT id, path FROM files WHERE id IN ({_marks(files)})", list(files))  # noqa: S608 - own names
        return {row[0]: os.fsdecode(row[1]) for row in rows}

    def vectors(self, files: Collection[int]) -> Mapping[int, bytes]:
        """The vectors of these files."""
        return dict(self._rows(f"SELECT file, vectors FROM vectors WHERE file IN ({_marks(files)})", list(files)))  # noqa: S608 - own names

    def all_paths(self, until: int | None = None) -> list[tuple[int, bytes]]:
        """Every indexed file, or those that a generation has."""
        newest = (1 << 62) if until is None else until
        rows = self._rows("SELECT id, path FROM files WHERE state='' AND generation<=?", (newest,))
        return cast(list[tuple[int, bytes]], rows)

    def file(self, file: int) -> File | None:
        """A file with its chunks; None if it is no longer indexed."""
        rows = self._rows(
            "SELECT id, path, language, size, sha256, generation FROM files WHERE id=? AND state=''", (file,)
        )
        places = self._rows("SELECT chunks FROM contents WHERE file=?", (file,))
        if not rows or not places:
            return None
        number, path, language, size, sha256, generation = rows[0]
        return File(
            id=number,
            path=path,
            language=language,
            size=size,
            sha256=sha256,
            generation=generation,
            chunks=_chunks.decode(places[0][0]),
        )

    def outline(self, file: int) -> list[Definition]:
        """The definitions of a file; their docstrings are not stored."""
        rows = self._rows("SELECT outline FROM contents WHERE file=?", (file,))
        return outline.unpack(rows[0][0]) if rows else []

    def definition(self, file: int, place: int) -> tuple[str, str]:
        """Qualified name and kind of one definition."""
        stored = self.stored_outline(file)
        return (stored.qualname(place), stored.kind(place)) if len(stored) else ("", "")

    def stored_outline(self, file: int) -> StoredOutline:
        """The definitions of a file, for a reader that needs a few of them."""
        rows = self._rows("SELECT outline FROM contents WHERE file=?", (file,))
        return StoredOutline(rows[0][0] if rows else b"")

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

    def unread(self) -> int:
        """How many files can be searched, but lack their references."""
        return self._rows("SELECT count(*) FROM unread")[0][0]

    def pending(self) -> dict[bytes, int]:
        """Files that are not indexed as they are, if they are many, by path.

        With the id of each: 0 for a new one, a negative one for a file that is gone.
        """
        return dict(self._rows("SELECT path, file FROM pending"))

    def has_pending(self) -> bool:
        """Whether there are such files."""
        return bool(self._rows("SELECT 1 FROM pending LIMIT 1"))

    def are_pending(self, paths: Sequence[bytes]) -> bool:
        """Whether all of these are such files."""
        return all(self._rows("SELECT 1 FROM pending WHERE path=?", (path,)) for path in paths)

    def updated(self) -> float:
        """When the index was last written to; a log without content is one that a reader has made."""
        found = [os.stat(path) for path in layout.databases_of(self.build) if os.path.exists(path)]
        return max((one.st_mtime for one in found if one.st_size), default=0.0)

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
