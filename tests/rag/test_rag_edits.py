"""An edited file costs what differs: the rest of it stays in the index, which is as if it had been built anew."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import tantivy

from llmc_mcp.kernel import syscalls
from llmc_mcp.rag.store import layout, rank
from llmc_mcp.rag.store.tables import IndexTables

from ..support.library import Library, library_on
from ..support.workspace import require

_ANIMALS = ("otter", "heron", "badger", "lynx", "walrus", "gecko", "ibis", "moose", "quail", "tapir", "vole", "wombat")


@pytest.fixture(autouse=True)
def landlock() -> None:
    require(syscalls.landlock_abi() > 0, "Landlock")


def function(number: int, animal: str) -> str:
    """A function that is a chunk of its own."""
    lines = [f"    {animal}_{line} = feed({number}, {line})  # the {animal} eats" for line in range(20)]
    return "\n".join([f"def visit_{animal}_{number}(keeper):", *lines, f"    return {animal}_0", ""])


def module(functions: list[tuple[int, str]]) -> str:
    return "import zoo\n\n\n" + "\n\n".join(function(*one) for one in functions)


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    root = tmp_path / "root"
    root.mkdir()
    (root / "zoo.py").write_text(module([(number, animal) for number, animal in enumerate(_ANIMALS)]))
    (root / "other.py").write_text("def feed(number, line):\n    return number + line\n")
    with library_on(root, tmp_path / "data") as opened:
        opened.refresh()
        yield opened


def searcher_of(library: Library) -> tantivy.Searcher:
    index = tantivy.Index.open(layout.text_of(str(library.build)))
    index.reload()
    return index.searcher()


def found_by_terms(library: Library) -> dict[tuple[str, str], list[tuple[str, int]]]:
    """For each field and term, the file and chunk of every document that holds it; -1 for that of a file."""
    searcher, tables = searcher_of(library), IndexTables(str(library.build))
    paths = {file: path.decode() for file, path in tables.all_paths()}
    tables.close()
    terms = [
        "keeper",
        "eat",
        "zoo",
        "number",
        *_ANIMALS,
        *(f"visit{one}{number}" for number, one in enumerate(_ANIMALS)),
    ]
    found: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for field in ("text", "whole", "name", "defines", "file_text", "file_defines"):
        for term in terms:
            hits = searcher.search(tantivy.Query.term_query(rank.SCHEMA, field, term), 1_000, count=False).hits
            places = [address for _, address in hits]
            files, chunks = (searcher.fast_field_values(name, places) for name in ("file", "chunk"))
            rows = zip(files, chunks, strict=True)
            found[field, term] = sorted(
                (paths[int(file or 0)], -1 if chunk is None else int(chunk)) for file, chunk in rows
            )
    return found


def stored(library: Library) -> dict[bytes, tuple[bytes, bytes, bytes, bytes]]:
    """By path, what the tables hold of a file."""
    tables = IndexTables(str(library.build))
    try:
        rows = tables.rows(
            "SELECT path, chunks, outline, digests, vectors FROM files JOIN contents ON contents.file=id"
            " JOIN vectors ON vectors.file=id"
        )
        return {row[0]: row[1:] for row in rows}
    finally:
        tables.close()


def check_as_built_anew(library: Library, tmp_path: Path) -> None:
    with library_on(library.root, tmp_path / "anew") as other:
        other.refresh(full=True)
        assert stored(library) == stored(other)
        assert found_by_terms(library) == found_by_terms(other)
        assert searcher_of(library).num_docs == searcher_of(other).num_docs


def test_whatever_is_edited_the_index_is_as_if_it_had_been_built_anew(library: Library, tmp_path: Path) -> None:
    chance = random.Random(3)
    functions = [(number, animal) for number, animal in enumerate(_ANIMALS)]
    before: list[list[tuple[int, str]]] = []
    for turn in range(12):
        before.append(list(functions))
        what = chance.choice(["insert", "remove", "change", "move", "back"])
        place = chance.randrange(len(functions))
        if what == "insert":
            functions.insert(place, (100 + turn, chance.choice(_ANIMALS)))
        elif what == "remove" and len(functions) > 2:
            del functions[place]
        elif what == "change":
            functions[place] = (functions[place][0], chance.choice(_ANIMALS))
        elif what == "move":
            functions.append(functions.pop(place))
        else:
            functions = list(chance.choice(before))
        (library.root / "zoo.py").write_text(module(functions))
        library.refresh()
    check_as_built_anew(library, tmp_path)


def test_documents_of_chunks_that_stay_are_not_written_again(library: Library) -> None:
    before = searcher_of(library).doc_freq("scope", "repo")  # counts those that were deleted, until tantivy merges
    functions = [(number, animal) for number, animal in enumerate(_ANIMALS)]
    functions[5] = (5, "heron")
    (library.root / "zoo.py").write_text(module(functions))
    library.refresh()
    assert library.found("visit_heron_5")[0] == "zoo.py"
    assert before >= len(_ANIMALS)
    assert searcher_of(library).doc_freq("scope", "repo") == before + 1


def test_a_text_index_that_lacks_the_last_commit_gets_all_documents_of_a_file_again(
    library: Library, tmp_path: Path
) -> None:
    text = layout.text_of(str(library.build))
    library.app.close()
    shutil.copytree(text, tmp_path / "text")
    with library_on(library.root, tmp_path / "data") as opened:
        (library.root / "zoo.py").write_text(module([(number, animal) for number, animal in enumerate(_ANIMALS[:6])]))
        opened.refresh()
    shutil.rmtree(text)
    shutil.copytree(tmp_path / "text", text)
    with library_on(library.root, tmp_path / "data") as opened:
        opened.refresh()
        check_as_built_anew(opened, tmp_path)
