"""Many files that change at once are searched as text until they are indexed, and indexed before their references."""

import os
import re
import signal
import sqlite3
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from llmc_mcp.files import names
from llmc_mcp.files.filesystem import Place
from llmc_mcp.files.revisions import revision_of
from llmc_mcp.files.ripgrep import Query, RipgrepHits
from llmc_mcp.kernel import syscalls
from llmc_mcp.rag.parse import file
from llmc_mcp.rag.parse.question import question as parse_question
from llmc_mcp.rag.query import unindexed
from llmc_mcp.rag.query.changed_files import ChangedFiles
from llmc_mcp.rag.query.search import CodeQuery, GraphView
from llmc_mcp.rag.query.text_match import SoughtWords, TextMatch
from llmc_mcp.rag.query.unindexed import UnindexedFiles
from llmc_mcp.rag.store.index import IndexReader
from llmc_mcp.rag.store.tables import IndexTables

from ..support.library import Library, keepers, library_on, never
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


@contextmanager
def checked_out(library: Library, others: Mapping[str, str | None]) -> Generator[None]:
    """Change all files and some others, None to delete one, and have nothing indexed meanwhile; searches go on."""
    (keeper,) = keepers(library.root)
    os.kill(keeper, signal.SIGSTOP)  # it sees all changes at once, however long they take
    check_out(library)
    for name, text in others.items():
        path = library.root / name
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_text(text)
    parsers = sorted(children_of(keeper))[1:]  # the first child searches
    assert parsers
    signal_all(parsers, signal.SIGSTOP)
    os.kill(keeper, signal.SIGCONT)
    try:
        yield
    finally:
        signal_all(parsers, signal.SIGCONT)


def signal_all(processes: Iterable[int], number: signal.Signals) -> None:
    """Signal processes, some of which may have been ended since they were listed."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


def test_files_that_wait_to_be_indexed_after_a_checkout_are_searched_as_text(zoo: Library) -> None:
    with checked_out(zoo, {"animal_3.py": None}):
        found = zoo.ask("swim_229")
        (best, *_) = found.hits
        assert (best.path, best.text.splitlines()[-2:]) == (
            b"animal_229.py",
            ["def swim_229():", "    return feed(229)"],
        )
        assert best.numbers[-1] == 5
        assert best.revision == revision_of((zoo.root / "animal_229.py").read_bytes())
        assert re.fullmatch(
            r"being updated: \d+ of 229 files; files not indexed yet were searched as text", found.freshness
        )
        assert not found.hint  # the index knows no such word, but that is no news
        assert zoo.found("walk_229") == []  # nothing says so any more
        gone = zoo.ask("walk_3")
        assert (gone.hits, "left out" in gone.freshness) == ([], False)
        assert zoo.found("swim_7", path_glob="animal_8*") == []
        assert zoo.found("swim_7", scope="docs") == []
        assert zoo.found("feed")[0] == "keeper.py"  # as it was indexed
    assert eventually(lambda: zoo.ask("swim_229").freshness == "fresh")
    assert waiting(zoo) == 0
    assert zoo.ask("swim_229").hits[0].symbol == "swim_229"


def test_a_file_that_changed_keeps_its_rank_until_it_is_indexed_again(zoo: Library) -> None:
    texts = {
        "vet.py": "def heal(animal):\n    return animal.wounds.clear()\n",
        "nurse.py": "def bandage(wound):\n    return wound.heals\n",
        "clinic.py": "# heal them\nanimals = 'wounds'\n",
    }
    for name, text in texts.items():
        (zoo.root / name).write_text(text)
    zoo.refresh()
    before = zoo.found("how are wounds healed")
    assert set(before) == set(texts)
    changed = {name: "# wounds\n" * 20 + texts[name] for name in before if name != before[1]}
    with checked_out(zoo, changed):
        found = zoo.ask("how are wounds healed")
        assert [names.show(hit.path) for hit in found.hits[:3]] == before
        assert "as text" in found.freshness
        shown = {names.show(hit.path): (hit.symbol, hit.numbers) for hit in found.hits}
        wanted = {"vet.py": ("heal", [21, 22]), "nurse.py": ("bandage", [21, 22])}
        # What the index has found in a file, where it is now.
        assert {name: shown[name] for name in wanted if name in changed} == {
            name: where for name, where in wanted.items() if name in changed
        }


def test_a_link_or_a_pipe_in_the_place_of_a_file_that_waits_shows_nothing(
    zoo: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (zoo.root / ".env").write_text("def swim_42(): 'hunter2'\n")
    (tmp_path / "outside.py").write_text("def swim_43(): 'hunter2'\n")
    with checked_out(zoo, {}):
        assert zoo.found("swim_7")[0] == "animal_7.py"
        for number in (42, 43, 44):
            (zoo.root / f"animal_{number}.py").unlink()
        (zoo.root / "animal_42.py").symlink_to(zoo.root / ".env")
        (zoo.root / "animal_43.py").symlink_to(tmp_path / "outside.py")
        os.mkfifo(zoo.root / "animal_44.py")
        for number in (42, 43, 44):
            assert all("hunter2" not in hit.text for hit in zoo.ask(f"swim_{number}").hits)
            assert f"animal_{number}.py" not in zoo.found(f"swim_{number}")
        pending = {b"animal_%d.py" % number: number for number in (7, 42, 43, 44)}
        assert searched(zoo, pending, monkeypatch) == [b"animal_7.py"]
        # Now as if they were swapped between that look and the search.
        monkeypatch.setattr(UnindexedFiles, "_can_be_searched", bool)
        del pending[b"animal_44.py"]  # a search of that one would last
        found = changed(zoo, "swim_42", pending)
        assert found.hit(42) is None
        assert [hit.path for hit in found.among([], 5)] == []


def changed(library: Library, text: str, pending: Mapping[bytes, int]) -> ChangedFiles:
    """What a question finds in files that wait."""
    files = UnindexedFiles(library.app.files, library.app.files.roots[0], lambda: library.app.search, 1 << 20)
    return files.changed(CodeQuery(text), parse_question(text), pending, float("inf"), never)


def searched(library: Library, pending: Mapping[bytes, int], monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The files that ripgrep is given."""
    given: list[list[bytes]] = []

    def content(place: Place, query: Query, most: int, check: Callable[[], None], until: float, among: list[bytes]):
        given.append(among)
        return RipgrepHits([], 0, True)

    with monkeypatch.context() as patched:
        patched.setattr(library.app.search, "content", content)
        changed(library, "swim_42", pending)
    assert all(one == given[0] for one in given)
    return given[0]


def test_files_with_any_name_are_searched_as_text_and_so_are_more_than_a_command_can_name(
    zoo: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = [b"--help", b"-e", b"a b.py", b"caf\xe9.py", b"new\nline.py", "é.txt".encode()]
    for name in odd:
        (zoo.root / os.fsdecode(name)).write_text("walks = 1\n")
    zoo.refresh()
    with checked_out(zoo, dict.fromkeys(map(os.fsdecode, odd), "swims = 'otterly'\n")):
        shown = [name for name in odd if b"\n" not in name]
        assert sorted(hit.path for hit in zoo.ask("otterly", "both", 20).hits) == sorted(shown)
        for times in (12, 0):  # in several pieces, and all files of the folder
            monkeypatch.setattr(unindexed, "_NAMED_BYTES", 1_000)
            monkeypatch.setattr(unindexed, "_NAMED_TIMES", times)
            assert sorted(hit.path for hit in zoo.ask("otterly", "both", 20).hits) == sorted(shown)


def test_what_the_index_has_found_is_shown_however_many_files_match_and_whatever_ripgrep_says(
    zoo: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unindexed, "_LINES", 1)
    with checked_out(zoo, {"keeper.py": "def feed(animal):\n    return animal + 1\n"}):
        assert zoo.found("feed")[0] == "keeper.py"  # 231 files hold the word

    def content(*_: object) -> RipgrepHits:
        raise OSError(7, "cannot start")

    monkeypatch.setattr(zoo.app.search, "content", content)
    with checked_out(zoo, {"keeper.py": "def feed(animal):\n    return animal + 2\n"}):
        assert zoo.found("feed")[0] == "keeper.py"


def test_a_file_that_is_no_longer_to_be_indexed_is_not_shown(zoo: Library) -> None:
    with checked_out(zoo, {".ragignore": "animal_7.py\n"}):
        assert zoo.found("swim_229")[0] == "animal_229.py"
        assert eventually(lambda: min(pending_ids(zoo)) < 0)
        assert "animal_7.py" not in zoo.found("swim_7")
        assert "animal_7.py" not in zoo.found("animal_7")  # which the index knows it by


def pending_ids(library: Library) -> list[int]:
    tables = IndexTables(str(library.build))
    try:
        return list(tables.pending().values())
    finally:
        tables.close()


def test_few_files_are_read_however_many_have_a_word_in_their_path(zoo: Library) -> None:
    pending = {b"session/picture_%d.png" % number: 0 for number in range(500)}
    (zoo.root / "session").mkdir()
    for name in pending:
        (zoo.root / os.fsdecode(name)).write_bytes(b"\0" * 10)
    checks: list[int] = []
    files = UnindexedFiles(zoo.app.files, zoo.app.files.roots[0], lambda: zoo.app.search, 1 << 20)
    read: list[bytes] = []
    found = ChangedFiles(
        read_by(files, read),
        pending,
        changed_candidates(pending),
        SoughtWords([], ["session"]),
        lambda: checks.append(1),
    )
    assert found.among([], 5) == []
    assert len(read) == len(checks) == 20


def read_by(files: UnindexedFiles, seen: list[bytes]) -> Callable[[bytes], bytes | None]:
    def read(path: bytes) -> bytes | None:
        seen.append(path)
        return files.read(path)

    return read


def changed_candidates(paths: Iterable[bytes]) -> list[TextMatch]:
    return [TextMatch(path, set(), {"session"}) for path in paths]


@pytest.mark.parametrize(
    ("line", "defines"),
    [
        *(("class SessionConfig(Base):", True), ("export interface SessionConfig {", True)),
        *(("func (s *Server) SessionConfig() error {", True), ("pub enum SessionConfig {", True)),
        *(("enum class SessionConfig : int {", True), ("  def self.session_config", False)),
        *(("const SessionConfig = load()", True), ("#define SessionConfig 1", True)),
        *(("import type { SessionConfig } from './a'", False), ("const c: SessionConfig = load()", False)),
        *(("let x = new SessionConfig()", False), ("# the type SessionConfig is old", False)),
        *(("  // class SessionConfig", False), ("use crate::type::SessionConfig;", False)),
    ],
)
def test_a_line_defines_the_name_behind_its_keyword(line: str, defines: bool) -> None:
    assert SoughtWords(["sessionconfig"], []).defined_by(line.lower()) == defines


def test_folders_may_be_as_deep_as_paths_are_long(zoo: Library) -> None:
    (zoo.root / "pen").mkdir()
    (zoo.root / "pen" / ".ragignore").write_text("x.py\n")
    files = UnindexedFiles(zoo.app.files, zoo.app.files.roots[0], lambda: zoo.app.search, 1 << 20)
    is_free = files.outside_ignore_files()
    assert is_free(b"a/" * 2_000 + b"x.py")
    assert not is_free(b"pen/b/" + b"a/" * 1_500 + b"x.py")


def test_a_method_is_looked_for_below_its_own_class(zoo: Library) -> None:
    (zoo.root / "walk.py").write_text("class First:\n    def run(self): ...\n\nclass Second:\n    def run(self): ...\n")
    found = changed(zoo, "run", {b"walk.py": 5})
    for symbol, line in (("Second.run", 5), ("First.run", 2), ("run", 2)):
        hit = found.hit(5, symbol, "method")
        assert hit is not None
        assert (hit.symbol, hit.piece.numbers[0]) == (symbol, line)
    lost = found.hit(5, "Third.run", "method")
    assert lost is not None
    assert lost.symbol is None


def test_definitions_that_wait_do_not_hide_the_one_that_the_index_has(zoo: Library) -> None:
    (zoo.root / "config.py").write_text("class SessionConfig:\n    depth = 1\n")
    zoo.refresh()
    users = {f"user_{number}.py": "class SessionConfig:\n    other = 1\n" for number in range(6)}
    with checked_out(zoo, users):
        assert eventually(lambda: "user_1.py" in zoo.found("SessionConfig"))
        assert zoo.found("SessionConfig")[0] == "config.py"


def test_what_a_killed_process_was_about_to_index_is_not_pending_for_ever(zoo: Library) -> None:
    with checked_out(zoo, {}):
        assert zoo.found("swim_7")[0] == "animal_7.py"
        (keeper,) = keepers(zoo.root)
        os.kill(keeper, signal.SIGKILL)
        assert waiting(zoo) == _FILES
    assert eventually(lambda: zoo.ask("swim_229").freshness == "fresh")
    assert waiting(zoo) == 0


def test_the_graph_waits_for_files_that_a_search_reads_as_text(zoo: Library) -> None:
    with checked_out(zoo, {}):
        assert "as text" in zoo.ask("swim_229").freshness
        asked = threading.Thread(target=lambda: answers.extend(zoo.rag.ask(callers, zoo.caller())))
        answers: list[tuple[set[str], str]] = []
        asked.start()
    asked.join()
    ((found, note),) = answers
    assert (len(found), note) == (_FILES, "")


def test_new_files_of_a_checkout_are_searched_as_text_too(zoo: Library) -> None:
    with checked_out(zoo, {"newt.py": "def swim_900():\n    return 900\n"}):
        assert zoo.found("swim_229")[0] == "animal_229.py"
        assert eventually(lambda: zoo.found("swim_900")[:1] == ["newt.py"])
        assert "as text" in zoo.ask("swim_900").freshness


def waiting(library: Library) -> int:
    tables = IndexTables(str(library.build))
    try:
        return len(tables.pending())
    finally:
        tables.close()


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
    zoo.refresh()
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
