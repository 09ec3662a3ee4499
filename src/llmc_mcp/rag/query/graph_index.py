"""The graph of an index: reads the tables of the index for the graph, each file once."""

import os
from collections import OrderedDict
from typing import NamedTuple

from ..parse.record import Record
from ..parse.types import Definition
from ..store.tables import IndexTables
from .graph import Graph
from .resolve import DefinitionPlace, Symbol

_KEPT = 4_000  # files whose records are kept in memory: a few tens of kilobytes each


State = tuple[str, int]  # which build of an index, and how often it has changed


class GraphCoverage(NamedTuple):
    """How much of a root the graph covers."""

    files_parsed: int
    files_skipped: int  # no code, too large, binary: nothing to parse
    files_failed: int  # code that could not be read, or not completely parsed


class IndexedFiles:
    """One generation of an index; not thread-safe."""

    def __init__(self, reader: IndexTables) -> None:
        self._reader = reader
        self.state: State = (reader.build, reader.generation)
        self._records: OrderedDict[int, Record] = OrderedDict()
        self._symbols: dict[int, list[Symbol]] = {}
        self._named: dict[str, list[DefinitionPlace]] = {}

    def files(self) -> list[tuple[int, str, str]]:
        """Every indexed file: id, path, language."""
        rows = self._reader.rows("SELECT id, path, language FROM files WHERE state='' ORDER BY path")
        return [(number, os.fsdecode(path), language) for number, path, language in rows]

    def hashes(self) -> list[tuple[int, bytes]]:
        """Which names each file mentions, as hashes."""
        return [(row[0], row[1]) for row in self._reader.rows("SELECT file, mentioned FROM mentions")]

    def named(self, name: str) -> list[DefinitionPlace]:
        """Every definition of a name."""
        if name not in self._named:
            self._named[name] = [DefinitionPlace(*row) for row in self._reader.defining(name)]
        return self._named[name]

    def names_beginning(self, prefix: str, limit: int = -1) -> list[str]:
        """Names of definitions with this prefix, sorted; all of them without a limit."""
        return self._reader.names(prefix, limit)

    def record(self, file: int) -> Record:
        """The references and bindings of a file."""
        found = self._records.get(file)
        if found is None:
            found = self._records[file] = self._read(file)
            if len(self._records) > _KEPT:
                self._records.popitem(last=False)
        return found

    def passing(self, file: int) -> Record:
        """The same, uncached: for a pass over all files."""
        return self._records.get(file) or self._read(file)

    def _read(self, file: int) -> Record:
        rows = self._reader.rows("SELECT record FROM records WHERE file=?", (file,))
        return Record(rows[0][0] if rows else b"")

    def apart(self) -> "IndexedFiles":
        """The same files with a cache of their own, for a query whose data is not worth keeping."""
        return IndexedFiles(self._reader)

    def symbols(self, file: int) -> list[Symbol]:
        """The definitions of a file, by their places."""
        found = self._symbols.get(file)
        if found is None:
            found = self._symbols[file] = _symbols(self._reader.outline(file))
        return found

    def completeness(self) -> GraphCoverage:
        """How much of the root is in the graph."""
        rows = self._reader.rows("SELECT language!='', state, broken_line>0, count(*) FROM files GROUP BY 1, 2, 3")
        parsed = sum(count for code, state, _, count in rows if code and not state)
        broken = sum(count for code, state, is_broken, count in rows if code and not state and is_broken)
        failed = sum(count for _, state, _, count in rows if state.startswith(("un", "its parser", "parsing")))
        total = sum(count for *_, count in rows)
        return GraphCoverage(parsed - broken, total - parsed - failed, failed + broken)


def _symbols(outline: list[Definition]) -> list[Symbol]:
    return [
        Symbol(
            name=one.name,
            qualname=one.qualname,
            kind=one.kind,
            parent=one.parent,
            first_line=one.span.first_line,
            last_line=one.span.last_line,
            signature=one.signature,
        )
        for one in outline
    ]


def graph_of(reader: IndexTables) -> tuple[Graph, IndexedFiles]:
    """The graph of an index as it is now."""
    files = IndexedFiles(reader)
    return Graph(files), files
