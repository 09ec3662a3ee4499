"""Definitions that are made of the stored columns one by one."""

from unittest.mock import patch

import msgspec

from llmc_mcp.rag.parse import outline
from llmc_mcp.rag.parse.file import look
from llmc_mcp.rag.parse.outline import StoredOutline
from llmc_mcp.rag.parse.question import question
from llmc_mcp.rag.parse.types import Chunk, Definition, Span
from llmc_mcp.rag.query import passages
from llmc_mcp.rag.store.types import DEFINITION_FEATURES, QuestionTerms

SOURCE = b'''\
"""Goods."""

LIMIT = 3


class Store:
    """Keeps goods."""

    size = 0

    class Shelf:
        def put(self, thing): ...

    @property
    def full(self): return self.size >= LIMIT


def store_of(name, *others):
    return Store()
'''


def test_every_definition_is_what_was_packed() -> None:
    definitions = look("store.py", SOURCE).definitions
    packed = outline.pack(definitions)
    stored = StoredOutline(packed)
    assert len(definitions) > 4
    assert outline.unpack(packed) == definitions
    assert [stored.qualname(at) for at in range(len(stored))] == [one.qualname for one in definitions]
    assert [stored.kind(at) for at in range(len(stored))] == [one.kind for one in definitions]
    assert len(StoredOutline(b"")) == 0
    assert StoredOutline(b"").code == []


def test_code_is_functions_and_types_with_their_lines() -> None:
    definitions = look("store.py", SOURCE).definitions
    stored = StoredOutline(outline.pack(definitions))
    assert [stored.qualname(row[0]) for row in stored.code] == [
        *("Store", "Store.Shelf", "Store.Shelf.put", "Store.full", "store_of")
    ]
    for at, kind, first, last in stored.code:
        span = definitions[at].span
        assert (kind, first, last) == (definitions[at].kind, span.first_line, span.last_line)


def test_parts_are_the_definitions_directly_inside() -> None:
    definitions = look("store.py", SOURCE).definitions
    store = next(at for at, one in enumerate(definitions) if one.qualname == "Store")
    parts = StoredOutline(outline.pack(definitions)).parts([store])
    assert parts == {store: [one.span for one in definitions if one.parent == store]}
    assert len(parts[store]) >= 2


def test_a_search_makes_only_the_definitions_near_its_chunks() -> None:
    line = b"def area(): return 1\n"
    definitions = [
        Definition(
            f"area_{at}",
            f"area_{at}",
            "function",
            Span(at + 1, at + 1, at * len(line), (at + 1) * len(line)),
            "",
            -1,
        )
        for at in range(1_000)
    ]
    chunks = [Chunk(Span(at + 1, at + 2, at * len(line), (at + 2) * len(line)), -1) for at in range(0, 1_000, 2)]
    stored = StoredOutline(outline.pack(definitions))
    terms = QuestionTerms({"area": 1.0}, [], [1.0] * len(DEFINITION_FEATURES))
    with patch.object(outline, "Definition", wraps=Definition) as made:
        found = passages.ranked(line * 1_000, stored, chunks, {4: 2.0, 7: 1.0}, question("area"), terms)
    assert [one.definition for one in found] == [8, 9, 14, 15]
    assert made.call_count == 4


def test_a_signature_that_is_the_name_is_not_stored_twice() -> None:
    one = Definition("LIMIT", "LIMIT", "constant", Span(1, 1, 0, 9), "LIMIT", -1)
    stored = StoredOutline(outline.pack([one, msgspec.structs.replace(one, signature="LIMIT = 3")]))
    assert [stored[0].signature, stored[1].signature] == ["LIMIT", "LIMIT = 3"]
