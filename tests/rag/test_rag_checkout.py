"""Many files that change at once can be searched before their references are read; the graph waits, or says so."""

import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmc_mcp.kernel import syscalls
from llmc_mcp.rag.parse import file
from llmc_mcp.rag.query.search import GraphView
from llmc_mcp.rag.store.index import IndexReader
from llmc_mcp.rag.store.tables import IndexTables

from ..support.library import Library, keepers, library_on
from ..support.processes import children_of
from ..support.talk import eventually
from ..support.workspace import require

_FILES = 230  # more than are parsed completely at once, and no multiple of a turn


@pytest.fixture(autouse=True)
def landlock() -> None:
    require(syscalls.landlock_abi() > 0, "Landlock")


@pytest.fixture
def zoo(tmp_path: Path) -> Iterator[Library]:
    root = tmp_path / "zoo"
    root.mkdir()
    (root / "keeper.py").write_text("def feed(animal):\n    return animal\n")
    for number in range(_FILES):
        (root / f"animal_{number}.py").write_text(f"def walk_{number}():\n    return {number}\n")
    with library_on(root, tmp_path / "data") as library:
        library.refresh()
        yield library


def check_out(library: Library) -> None:
    """Change all files, as a checkout does."""
    for number in range(_FILES):
        (library.root / f"animal_{number}.py").write_text(
            f"from keeper import feed\n\n\ndef swim_{number}():\n    return feed({number})\n"
        )


def callers(view: GraphView) -> set[str]:
    """The files that call `feed`."""
    uses = view.graph.uses(view.graph.find("feed"))
    return {view.graph.path(use.file) for use in uses if use.kind == "call" and use.confidence == "exact"}


def unread(library: Library) -> int:
    tables = IndexTables(str(library.build))
    try:
        return tables.unread()
    finally:
        tables.close()


def test_the_graph_knows_every_use_after_a_checkout_that_changes_many_files(zoo: Library) -> None:
    check_out(zoo)
    assert zoo.found("swim_229")[0] == "animal_229.py"
    ((found, note),) = zoo.rag.ask(callers, zoo.caller())
    assert found == {f"animal_{number}.py" for number in range(_FILES)}
    assert "not read yet" not in note
    assert unread(zoo) == 0


def test_a_checkout_is_committed_at_once_and_nothing_is_merged_meanwhile(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    for verb in ("walk", "swim"):
        for number in range(600):  # more than a first build commits at a time
            (root / f"animal_{number}.py").write_text(f"def {verb}_{number}():\n    return {number}\n")
        if verb == "walk":
            with library_on(root, tmp_path / "data") as library:
                library.refresh()
                assert len(generations(library)) == 2
    with library_on(root, tmp_path / "data") as library:
        library.refresh()
        assert len(generations(library)) == 1


def generations(library: Library) -> set[int]:
    """Those in which files were indexed."""
    tables = IndexTables(str(library.build))
    try:
        return {row[0] for row in tables.rows("SELECT generation FROM files")}
    finally:
        tables.close()


def test_an_answer_of_the_graph_says_how_many_files_lack_their_references(zoo: Library) -> None:
    connection = sqlite3.connect(zoo.build / "index.db")
    with connection:
        connection.execute("INSERT INTO unread SELECT id FROM files LIMIT 3")
    connection.close()
    ((_, note),) = zoo.rag.ask(callers, zoo.caller())
    assert note.startswith("the references of 3 files are not read yet")


def test_a_search_does_not_wait_for_references_that_are_being_read(zoo: Library, tmp_path: Path) -> None:
    hops = [f"def hop_{number}():\n    return feed(walk({number}), run({number}))\n" for number in range(12_000)]
    (zoo.root / "kangaroo.py").write_text("".join(hops))
    zoo.refresh()
    zoo.app.close()
    connection = sqlite3.connect(zoo.build / "index.db")
    with connection:
        connection.execute("INSERT INTO unread SELECT id FROM files WHERE path=CAST('kangaroo.py' AS BLOB)")
    connection.close()
    with library_on(zoo.root, tmp_path / "data") as library:
        library.found("walk_7")  # from here on, references are read
        (keeper,) = keepers(zoo.root)
        for parser in sorted(children_of(keeper))[1:]:  # the first child searches
            os.kill(parser, signal.SIGSTOP)  # it takes as long as we like
        found = library.ask("walk_229")
        assert (found.hits[0].path, found.freshness) == (b"animal_229.py", "fresh")
        assert unread(library) == 1
        (zoo.root / "animal_229.py").write_text("def gallop():\n    return 229\n")
        for parser in sorted(children_of(keeper))[1:]:
            os.kill(parser, signal.SIGCONT)
        assert eventually(lambda: library.found("gallop")[:1] == ["animal_229.py"])


def test_references_that_were_missing_when_the_process_ended_are_read_by_the_next_one(
    zoo: Library, tmp_path: Path
) -> None:
    check_out(zoo)
    zoo.rag.ask(callers, zoo.caller())
    zoo.app.close()
    connection = sqlite3.connect(zoo.build / "index.db")  # as if it had ended between the two passes
    with connection:
        connection.execute("INSERT INTO unread SELECT id FROM files WHERE path=CAST('animal_7.py' AS BLOB)")
        for table in ("mentions", "records"):
            connection.execute(f"DELETE FROM {table} WHERE file IN (SELECT file FROM unread)")
    connection.close()
    with library_on(zoo.root, tmp_path / "data") as library:
        ((found, note),) = library.rag.ask(callers, library.caller())
        assert "animal_7.py" in found
        assert "not read yet" not in note


def test_a_content_that_a_file_had_before_is_not_parsed_again(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "keeper.py").write_text("def feed(animal):\n    return animal\n")
    path = root / "animal.py"
    contents = [f"from keeper import feed\n\n\ndef {verb}():\n    return feed(1)\n" for verb in ("walk", "swim")]
    path.write_text(contents[0])
    with library_on(root, tmp_path / "data") as library:
        library.refresh()
        seen: list[tuple[list[int], list[str], set[str]]] = []
        for turn in range(4):
            path.write_text(contents[turn % 2])
            library.refresh()
            ((found, _),) = library.rag.ask(callers, library.caller())
            seen.append((imports(library), library.found(("walk", "swim")[turn % 2]), found))
            assert broken(library) == (77 if turn > 1 else 0)
            mark(library, "replaced", "earlier")
        assert seen[:2] == seen[2:]
        assert [(paths, found) for _, paths, found in seen[:2]] == 2 * [(["animal.py"], {"animal.py"})]
        assert all(imported for imported, _, _ in seen)


def mark(library: Library, *tables: str) -> None:
    """Make contents that are restored known from those that are parsed: by the line of a syntax error."""
    connection = sqlite3.connect(library.build / "index.db")
    with connection:
        for table in tables:
            connection.execute(f"UPDATE {table} SET broken_line=77")
    connection.close()


def broken(library: Library) -> int:
    tables = IndexTables(str(library.build))
    try:
        return tables.rows("SELECT broken_line FROM files WHERE path=CAST('animal.py' AS BLOB)")[0][0]
    finally:
        tables.close()


def imports(library: Library) -> list[int]:
    """What ranking knows of the imports of a file."""
    reader = IndexReader(str(library.build))
    try:
        ((file,),) = reader.rows("SELECT id FROM files WHERE path=CAST('animal.py' AS BLOB)")
        return sorted(reader.imports([file])[file])
    finally:
        reader.close()


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a/b.py", "import os.path\nfrom . import c\n\ndef f():\n    from ..d import e\n"),
        ("a/b.go", 'package a\n\nimport (\n\t"fmt"\n\tx "example.org/y"\n)\n'),
        ("a/B.java", "package a;\n\nimport java.util.List;\nimport static a.C.d;\n\nclass B {}\n"),
        ("a/b.cc", '#include <vector>\n#include "a/c.h"\n\nint f() { return 1; }\n'),
        ("a/b.rs", "use crate::c::{d, e};\nmod f;\n\nfn g() {}\n"),
        ("a/b.ts", 'import { c } from "./c";\nexport * from "../d";\nconst e = require("e");\n'),
    ],
)
def test_what_a_file_imports_is_known_without_its_references(path: str, text: str) -> None:
    whole, first = (file.look(path, text.encode(), with_references=both) for both in (True, False))
    assert sorted(first.imports) == sorted(whole.imports)
    assert first.imports
    assert first.references.count == 0
