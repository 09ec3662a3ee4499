"""Small repositories written as one text, with marks for what the graph should find in them.

A line with `@exact` in a comment is a use of the queried symbol with that confidence; lines without a mark are no
uses.
"""

import re
import textwrap
from collections.abc import Iterable

from llmc_mcp.rag.parse import file
from llmc_mcp.rag.parse.record import Record
from llmc_mcp.rag.parse.types import ParsedFile
from llmc_mcp.rag.query.graph import Graph
from llmc_mcp.rag.query.resolve import DefinitionPlace, Symbol

MARK = re.compile(r"@(exact|likely|name_only)\b")


class Repository:
    """Parsed files in memory, in the form that the graph reads."""

    def __init__(self, sources: dict[str, str]) -> None:
        self.parsed: list[ParsedFile] = [file.look(path, text.encode()) for path, text in sources.items()]

    def files(self) -> list[tuple[int, str, str]]:
        return [(number, one.path, one.language) for number, one in enumerate(self.parsed)]

    def hashes(self) -> Iterable[tuple[int, bytes]]:
        return [(number, one.references.mentioned) for number, one in enumerate(self.parsed)]

    def record(self, file: int) -> Record:
        return Record(self.parsed[file].references.record)

    def symbols(self, file: int) -> list[Symbol]:
        return [
            Symbol(one.name, one.qualname, one.kind, one.parent, one.span.first_line, one.span.last_line, one.signature)
            for one in self.parsed[file].definitions
        ]

    def named(self, name: str) -> list[DefinitionPlace]:
        return [
            DefinitionPlace(file, place)
            for file, one in enumerate(self.parsed)
            for place, definition in enumerate(one.definitions)
            if definition.name == name
        ]


def marked(sources: dict[str, str]) -> set[tuple[str, int, str]]:
    """The uses that the comments mark."""
    return {
        (path, number, found[1])
        for path, text in sources.items()
        for number, line in enumerate(text.split("\n"), 1)
        if (found := MARK.search(line))
    }


def found(sources: dict[str, str], symbol: str) -> set[tuple[str, int, str]]:
    graph = Graph(Repository(sources))
    targets = graph.find(symbol)
    assert targets, symbol
    return {(graph.path(use.file), use.line, use.confidence) for use in graph.uses(targets)}


def files_of(repository: str) -> dict[str, str]:
    """Files written below each other, each after a line with its path."""
    parts = re.split(r"^--- (\S+)\n", textwrap.dedent(repository).lstrip("\n"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def expect(symbol: str, repository: str | dict[str, str]) -> None:
    """Assert that the uses of the symbol are exactly the marked ones."""
    sources = files_of(repository) if isinstance(repository, str) else repository
    assert found(sources, symbol) == marked(sources)
