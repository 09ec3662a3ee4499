"""The tools that explain code, on a small repository with everything real around them."""

import gc
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from shutil import which
from unittest.mock import Mock

import pytest

from llmc_mcp.app import App
from llmc_mcp.commands import git_log
from llmc_mcp.commands.git_log import last_commit
from llmc_mcp.config.schema import Config
from llmc_mcp.context import Context
from llmc_mcp.errors import Cancelled, InvalidArgument, NotFound, Timeout
from llmc_mcp.rag.parse.doc import doc_of
from llmc_mcp.rag.parse.record import Record
from llmc_mcp.rag.query import maps
from llmc_mcp.rag.query.search import GraphView, QueryCaller
from llmc_mcp.session import Session
from llmc_mcp.tokens import estimate
from llmc_mcp.tools.enriched_search import rag_search_enriched
from llmc_mcp.tools.graph import Uses, rag_lineage, rag_where_used
from llmc_mcp.tools.inspect import InspectedWhole, inspect
from llmc_mcp.tools.linux_ops.onboarding import as_text, explain_repo
from llmc_mcp.tools.plan import rag_bootload, rag_plan

from ..support import forked
from ..support.client import PATIENCE
from ..support.library import Library, library_on, never
from ..support.workspace import require

STORE = '''\
"""Where goods are kept."""


class Store:
    """Keeps goods."""

    def save(self, goods: str) -> None:
        """Keep goods for later.

        Nothing is lost.
        """
        check(goods)


def check(goods: str) -> bool:
    return bool(goods)
'''
ORDER = """\
from . import Store


def order(goods: str) -> None:
    store = Store()
    store.save(goods)


def many(all_goods: list[str]) -> None:
    for goods in all_goods:
        order(goods)
"""
FILES = {
    "shop/__init__.py": "from .store import Store\n",
    "shop/store.py": STORE,
    "shop/order.py": ORDER,
    "tests/test_store.py": "from shop.store import Store\n\n\ndef test_a_store_keeps_goods():\n    Store().save('x')\n",
    "docs/guide.md": "# Guide\n\nCall `save` of a Store to keep goods.\n",
    "broken.py": "def (:\n",
    "picture.bin": "\0\1\2",
}
RULES = """\
# For agents

- Run `make test` before you call a change to the store done.
- Never edit generated files.

The weather is nice.
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Generator[Library]:
    root = tmp_path_factory.mktemp("shop")
    for path, text in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    with library_on(root, tmp_path_factory.mktemp("data")) as library:
        library.refresh()
        yield library


def context(library: Library) -> Context:
    found = Context(library.app, Session(principal="uid:0", session_id="test"), correlation_id="test")
    found.limit_time(PATIENCE)
    return found


def lines(found: Uses, root: Path) -> list[tuple[str, int, str]]:
    return [(os.path.relpath(row.file, root), row.line, row.confidence) for row in found.items]


# --- where used, lineage ---------------------------------------------------------------------------


def test_uses_come_with_their_line_their_place_and_how_complete_that_is(shop: Library) -> None:
    found = rag_where_used(context(shop), "Store.save")
    assert lines(found, shop.root) == [("shop/order.py", 6, "exact"), ("tests/test_store.py", 5, "exact")]
    assert found.items[0].snippet == "store.save(goods)"
    assert found.items[0].inside == "order"
    assert found.definitions == ["shop/store.py:7 Store.save"]
    assert (found.completeness.files_failed, found.completeness.files_parsed) == (1, 5)
    assert found.completeness.files_skipped >= 1
    assert (found.total, found.truncated, found.counts) == (2, False, {"exact": 2})


def test_a_limit_cuts_rows_and_says_so(shop: Library) -> None:
    found = rag_where_used(context(shop), "Store.save", limit=1)
    assert (len(found.items), found.total, found.truncated) == (1, 2, True)


def test_lineage_goes_step_by_step_in_both_directions(shop: Library) -> None:
    callers = rag_lineage(context(shop), "check", "callers", depth=3)
    steps = [(row.inside, row.depth) for row in callers.items]
    assert steps == [("Store.save", 1), ("order", 2), ("test_a_store_keeps_goods", 2), ("many", 3)]
    callees = rag_lineage(context(shop), "many", "callees", depth=3)
    assert [(row.inside, row.depth) for row in callees.items] == [
        ("order", 1),
        ("Store", 2),
        ("Store.save", 2),
        ("check", 3),
    ]


def test_upstream_follows_imports_and_bases_too(shop: Library) -> None:
    found = rag_lineage(context(shop), "Store", "upstream", depth=1)
    assert {row.kind for row in found.items} == {"import", "call"}


def test_a_symbol_that_is_not_there_gets_the_nearest_names(shop: Library) -> None:
    with pytest.raises(NotFound) as caught:
        rag_where_used(context(shop), "Store.sav")
    assert "save" in (caught.value.hint or "")
    for nonsense in (" ", "x" * 100_000):
        with pytest.raises(InvalidArgument):
            rag_where_used(context(shop), nonsense)


def test_one_of_many_must_be_chosen_but_few_are_answered_together(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    for number in range(13):
        (root / f"m{number:02}.py").write_text("def go():\n    pass\n\n\ngo()\n")
    (root / "two.py").write_text(
        "class A:\n    def hop(self):\n        self.hop()\n\n\nclass B:\n    def hop(self):\n        self.hop()\n"
    )
    with library_on(root, tmp_path / "data") as library:
        with pytest.raises(InvalidArgument) as caught:
            rag_where_used(context(library), "go")
        assert "m00.py:go" in (caught.value.hint or "")
        chosen = rag_where_used(context(library), "m03.py:go")
        assert lines(chosen, root) == [("m03.py", 5, "exact")]
        both = rag_where_used(context(library), "hop")
        assert [row.of for row in both.items] == ["A.hop", "B.hop"]


def test_an_edit_is_seen_with_its_new_lines(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.py").write_text("def f():\n    pass\n\n\nf()\n")
    with library_on(root, tmp_path / "data") as library:
        assert lines(rag_where_used(context(library), "f"), root) == [("a.py", 5, "exact")]
        (root / "a.py").write_text("# moved\n\n\ndef f():\n    pass\n\n\nf()\n")
        (root / "b.py").write_text("from a import f\n\nf()\n")
        library.refresh()
        found = rag_where_used(context(library), "f")
        assert lines(found, root) == [("a.py", 8, "exact"), ("b.py", 1, "exact"), ("b.py", 3, "exact")]
        (root / "b.py").unlink()
        library.refresh()
        assert lines(rag_where_used(context(library), "f"), root) == [("a.py", 8, "exact")]


# --- inspect ---------------------------------------------------------------------------------------


def test_a_symbol_is_shown_with_everything_around_it(shop: Library) -> None:
    found = inspect(context(shop), symbol="Store.save")
    assert (os.path.relpath(found.path, shop.root), found.lines, found.kind) == ("shop/store.py", "7-12", "method")
    assert found.signature == "def save(self, goods: str) -> None"
    assert found.docstring == "Keep goods for later."
    assert found.snippet.startswith("    def save(")
    assert found.incoming_calls == ["shop/order.py:6 order"]
    assert found.outgoing_calls == ["shop/store.py:15 check"]
    assert found.related_tests == ["tests/test_store.py:5 test_a_store_keeps_goods"]
    assert found.related_docs == ["docs/guide.md#L1-L3"]
    assert found.last_commit is None


def test_a_class_lists_its_methods_and_a_file_its_definitions_and_importers(shop: Library) -> None:
    assert inspect(context(shop), symbol="Store").defined_symbols == ["7 method Store.save"]
    found = inspect(context(shop), path="shop/store.py")
    assert (found.kind, found.docstring) == ("file", "Where goods are kept.")
    assert found.defined_symbols == ["4 class Store", "7 method Store.save", "15 function check"]
    assert [line.split(" ")[0] for line in found.incoming_calls] == ["shop/__init__.py:1"]
    assert [line.split(" ")[0] for line in found.related_tests] == ["tests/test_store.py:1"]


def test_the_whole_source_is_sent_when_asked_for(shop: Library) -> None:
    found = inspect(context(shop), symbol="check", include_full_source=True)
    assert isinstance(found, InspectedWhole)
    assert found.full_source == "def check(goods: str) -> bool:\n    return bool(goods)"


ASK = """
import sys
from llmc_mcp.app import App
from llmc_mcp.context import Context
from llmc_mcp.config.schema import Config
from llmc_mcp.session import Session
from llmc_mcp.tools import rag
from llmc_mcp.tools.enriched_search import rag_search_enriched
from llmc_mcp.tools.graph import rag_lineage, rag_where_used
from llmc_mcp.tools.inspect import inspect
from llmc_mcp.tools.plan import rag_bootload, rag_plan

app = App(Config(), [sys.argv[1]], sys.argv[2])
ctx = Context(app, Session("uid:0", "s"), correlation_id="test")
ctx.limit_time(float(sys.argv[3]))
try:
    assert rag.rag_search(ctx, "keep goods").snippets
    assert inspect(ctx, symbol="Store.save").docstring == "Keep goods for later."
    assert inspect(ctx, path="shop/store.py").docstring
    assert rag_where_used(ctx, "Store.save").items
    assert rag_lineage(ctx, "Store.save").items
    assert rag_search_enriched(ctx, "keep goods").snippets
    assert rag_plan(ctx, "fix Store.save").spans
    assert rag_bootload(ctx, "S", "42").plan
finally:
    app.close()
print(*(name for name in sys.modules if name.split(".")[0] in ("tree_sitter", "semble_grammars")))
"""


def test_the_server_answers_about_code_without_a_parser_of_its_own(shop: Library) -> None:
    arguments = [sys.executable, "-c", ASK, str(shop.root), shop.app.data_dir, str(PATIENCE)]
    done = subprocess.run(arguments, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, []), done


DOCUMENTED = {
    "python": [
        (
            '@wraps(f)\ndef f(a=":", *, b={1: "("}) -> dict[str, int]:\n    # why\n    r"""Says it.\n\n    More."""',
            "Says it.",
        ),
        ("class A(B): 'One line'", "One line"),
        ("# Above it.\ndef f():\n    return 'no docstring'", "Above it."),
        ("def f():\n    'a'.join(b)", ""),
        ('def f():\n    """Never closed', "Never closed"),
    ],
    "c": [("/* Adds\n * numbers.\n */\nint add(int a) { /* not this */ }", "Adds numbers."), ("#define A 1", "")],
    "rust": [("/// Adds.\n#[inline]\nfn add() {}", "Adds.")],
    "javascript": [("/**\n * Adds.\n * @param a\n */\nfunction add(a) {}", "Adds.")],
    "elixir": [('@doc """\nAdds.\n"""\ndef add(a), do: a', "Adds.")],
    "lua": [("--- Adds.\nfunction add() end", "Adds.")],
}


@pytest.mark.parametrize("language", DOCUMENTED)
def test_what_a_definition_says_of_itself_is_read_off_its_text(language: str) -> None:
    for text, doc in DOCUMENTED[language]:
        assert doc_of(language, text) == doc, text


@pytest.mark.parametrize("language", ["python", "c"])
@pytest.mark.parametrize("bait", ["# # ", '"', "(", "\\'", "/*" * 3, "*", " \t", "<p ", '"""\\'])
def test_a_definition_that_is_meant_to_take_long_does_not(language: str, bait: str) -> None:
    def late(*_: object) -> None:
        raise AssertionError("it takes long")

    before = signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, 5.0)  # of this process's own time
    try:
        for text in (
            bait * 100_000,
            f"def f():\n    {bait * 100_000}",
            f"def f({bait * 100_000}",
            f"/*{bait * 100_000}",
        ):
            doc_of(language, text)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def test_nothing_to_inspect_is_said(shop: Library) -> None:
    with pytest.raises(InvalidArgument):
        inspect(context(shop))
    with pytest.raises(NotFound):
        inspect(context(shop), path="missing.py")
    with pytest.raises(NotFound):
        inspect(context(shop), path="picture.bin")


@pytest.fixture
def committed(tmp_path: Path) -> Generator[Library]:
    """A repository with one commit."""
    require(which("git") is not None, "git")
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.py").write_text("def f():\n    pass\n")
    said = ["-c", "user.name=Ann", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "."], [*said, "commit", "-q", "-m", "Begin with f"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    with library_on(root, tmp_path / "data") as library:
        require(not library.app.command_confinement().startswith("unavailable"), "a sandbox")
        yield library


def told(library: Library, check: Callable[[], None] = never) -> str | None:
    app = library.app
    return last_commit(app.sandbox, app.shell.programs, app.files.roots[0], b"a.py", check)


def test_the_last_commit_is_told(committed: Library) -> None:
    found = inspect(context(committed), symbol="f").last_commit
    assert (found or "").endswith("Ann: Begin with f")


BAITS = {
    "a missing object": ('[remote "origin"]\n\turl = .\n\tpromisor = true\n\tuploadpack = touch MARKER; false\n'),
    "… with its protocol allowed": (
        '[remote "origin"]\n\turl = .\n\tpromisor = true\n\tuploadpack = touch MARKER; false\n'
        '[protocol "file"]\n\tallow = always\n'
    ),
    "… by a program": (
        '[remote "origin"]\n\turl = ext::touch MARKER\n\tpromisor = true\n[protocol "ext"]\n\tallow = always\n'
    ),
}


@pytest.mark.parametrize("writable", [True, False], ids=["writable", "read-only"])
@pytest.mark.parametrize("bait", BAITS.values(), ids=list(BAITS))
def test_a_repository_cannot_have_a_program_started_by_a_question(
    committed: Library, bait: str, writable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, sandbox = committed.root, committed.app.sandbox
    tree = subprocess.run(["git", "rev-parse", "HEAD^{tree}"], cwd=root, check=True, capture_output=True, text=True)
    (root / ".git/objects" / tree.stdout[:2] / tree.stdout[2:].strip()).unlink()
    marker = root / "marker"
    with (root / ".git/config").open("a") as file:
        file.write("[core]\n\trepositoryFormatVersion = 1\n[extensions]\n\tpartialClone = origin\n")
        file.write(bait.replace("MARKER", str(marker)))
    git = os.fsencode(which("git") or "")
    with sandbox.start([git, b"log", b"-1", b"--", b"a.py"], committed.app.files.roots[0].fd) as child:
        list(child.output(never))
    assert marker.exists(), "the bait must work, or this shows nothing"
    marker.unlink()
    if writable:  # whether the arguments hold alone
        level = sandbox.another()
        monkeypatch.setattr(sandbox, "another", Mock(return_value=level))
    else:  # whether the sandbox does
        monkeypatch.setattr(git_log, "QUIET", ())
        monkeypatch.setattr(git_log, "ENVIRONMENT", {})
    assert told(committed) is None
    assert not marker.exists()


@pytest.mark.parametrize("error", [Cancelled("taken back"), Timeout("too late")], ids=["cancelled", "timeout"])
def test_a_call_that_is_over_is_over_while_git_is_asked(committed: Library, error: Exception) -> None:
    def check() -> None:
        raise error

    with pytest.raises(type(error)):
        told(committed, check)


# --- several roots ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Context, Path]]:
    """A server with two roots; everything worth asking for lies in the second."""
    home = tmp_path_factory.mktemp("two")
    for path, text in FILES.items():
        (home / "second" / path).parent.mkdir(parents=True, exist_ok=True)
        (home / "second" / path).write_text(text)
    for path, text in {"only.py": "def only():\n    pass\n", "lib.py": "def helper():\n    pass\n"}.items():
        (home / "first" / path).parent.mkdir(exist_ok=True)
        (home / "first" / path).write_text(text)
    (home / "second" / "lib.py").write_text("def helper():\n    pass\n\n\nhelper()\n")
    with library_on(home / "first", home / "data"):
        pass  # it knows where grammars are
    app = App(Config(), [str(home / "first"), str(home / "second")], str(home / "data"))
    try:
        yield context(Library(app, home / "first")), home / "second"
    finally:
        app.close()


def test_a_place_of_a_later_root_is_named_so_that_it_is_found_again(two: tuple[Context, Path]) -> None:
    ctx, root = two
    uses = rag_where_used(ctx, "Store.save")
    found = inspect(ctx, symbol="Store.save")
    enriched = rag_search_enriched(ctx, "save goods for later", limit=3, budget_tokens=2_000)
    (hit,) = [row for row in enriched.snippets if "shop/store.py" in row.src]
    plan = [line for line in rag_bootload(ctx, "S", "fix-Store.save-goods").plan.split("\n") if line[:1] == "-"]
    named = [
        *(row.file for row in uses.items),
        *uses.definitions,
        *found.incoming_calls,
        *found.outgoing_calls,
        *found.related_tests,
        *found.related_docs,
        *(row.src for row in enriched.snippets),
        *hit.callers,
        *hit.callees,
        *hit.tests,
        *hit.docs,
        *(line.removeprefix("- ") for line in plan),
    ]
    assert len(named) >= 14
    for one in named:
        ctx.app.files.open_file(ctx.app.files.locate(re.split(r"[:#]", one)[0]))
    assert {one for one in named if not one.startswith(f"{root}/")} == set()


def test_one_of_a_later_root_is_chosen_by_the_name_that_was_shown(two: tuple[Context, Path]) -> None:
    ctx, root = two
    first = inspect(ctx, symbol="helper")
    assert first.path == f"{root.parent}/first/lib.py"
    assert first.others == [f"{root}/lib.py:helper (function, line 1)"]
    assert (first.completeness.files_parsed, first.incoming_total) == (2, 0)
    chosen = inspect(ctx, symbol=first.others[0].split(" ")[0])
    assert (chosen.path, chosen.incoming_total) == (f"{root}/lib.py", 1)
    assert chosen.completeness.files_failed == 1
    assert inspect(ctx, path=f"{root}/lib.py", symbol="helper").path == f"{root}/lib.py"
    assert inspect(ctx, path="lib.py", symbol="helper").path == first.path


def test_explaining_one_root_builds_no_index_of_another(tmp_path: Path) -> None:
    for name in ("first", "second"):
        for folder in ("shop", ".shop"):  # what is hidden is not indexed
            (tmp_path / name / folder).mkdir(parents=True)
            (tmp_path / name / folder / "tools.py").write_text("def lean():\n    pass\n")
            (tmp_path / name / folder / "use.py").write_text("from .tools import lean\n\nlean()\n")
    with library_on(tmp_path / "first", tmp_path / "data") as library:
        library.refresh()
    app = App(Config(), [str(tmp_path / "first"), str(tmp_path / "second")], str(tmp_path / "data"))
    try:
        ctx = context(Library(app, tmp_path / "first"))
        assert "def lean" in as_text(explain_repo(ctx, None, False))
        assert "def lean" in as_text(explain_repo(ctx, "shop", False))
        assert "def lean" not in as_text(explain_repo(ctx, ".shop", False))
        assert [app.is_indexed(root) for root in app.files.roots] == [True, False]
    finally:
        app.close()


# --- search, plan, bootload, map -------------------------------------------------------------------


def test_hits_come_with_callers_callees_tests_and_docs(shop: Library) -> None:
    found = rag_search_enriched(context(shop), "save goods for later", limit=3, budget_tokens=2_000)
    hit = next(row for row in found.snippets if "shop/store.py" in row.src)
    assert "shop/order.py:6 order" in hit.callers
    assert any(line.startswith("tests/test_store.py:5") for line in hit.tests)
    assert hit.docs == ["docs/guide.md#L1-L3"]
    bare = rag_search_enriched(context(shop), "save goods for later", limit=3, graph_depth=0)
    assert not any(row.callers or row.callees or row.tests or row.docs for row in bare.snippets)


def test_how_fresh_the_graph_is_is_told_with_the_hits(shop: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = shop.rag.ask

    def stale(question: Callable[[GraphView], object], caller: QueryCaller) -> list[tuple[object, str]]:
        return [(answer, "some files changed") for answer, _ in ask(question, caller)]

    monkeypatch.setattr(shop.rag, "ask", stale)
    assert rag_search_enriched(context(shop), "save goods").freshness == "some files changed"


def test_a_plan_names_the_symbols_and_the_places_and_is_always_the_same(shop: Library) -> None:
    plan = rag_plan(context(shop), "fix Store.save when goods are empty", "full")
    assert (plan.intent, plan.symbols) == ("fix", ["Store.save"])
    assert plan.spans[0].rationale == "defines Store.save"
    assert any("uses it" in span.rationale for span in plan.spans)
    assert any("tests it" in span.rationale for span in plan.spans)
    assert plan.confidence > 0.5
    assert plan == rag_plan(context(shop), "fix Store.save when goods are empty", "full")
    nothing = rag_plan(context(shop), "quaternion interpolation")
    assert nothing.symbols == []
    assert nothing.confidence < 0.3


def test_bootload_reads_the_rules_and_finds_the_task(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for path, text in {
        **FILES,
        "AGENTS.md": RULES,
        "docs/CONTRACTS.md": "# Contracts\n\n- A store must keep its goods.\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / "Makefile").write_text("test:\n\ttrue\n")
    with library_on(root, tmp_path / "data") as library:
        found = rag_bootload(context(library), "S", "fix-store-save")
        assert "make test" in found.notes
        assert "must keep its goods" in found.notes
        assert "weather" not in found.notes
        assert "shop/store.py" in found.plan
        assert "make test" in found.plan
        assert found.scope == "repo"
        assert found.provenance
        assert any("def save" in one.text and one.src.partition("#L")[2] for one in found.snippets)
        assert rag_bootload(context(library), "S", "write the docs").scope == "docs"


def test_bootload_is_useful_without_rules_and_without_words(shop: Library) -> None:
    found = rag_bootload(context(shop), "S", "42")
    assert "class Store" in found.plan
    assert found.notes


def test_a_map_stays_within_its_budget_and_shows_what_matters(shop: Library) -> None:
    ((ranked, _),) = shop.rag.ask(maps.ranking, shop.caller())
    assert ranked[0].symbol.name == "Store"
    assert not any("test" in one.path for one in ranked)
    for budget in (10, 30, 100, 1_000):
        assert estimate(maps.draw(ranked, budget)) <= budget


def test_a_map_is_given_up_when_nobody_wants_it_any_more(shop: Library) -> None:
    def check() -> None:
        raise Cancelled("taken back")

    with pytest.raises(Cancelled):
        shop.rag.ask(lambda known: maps.ranking(known, check), shop.caller())


def test_of_what_a_map_was_made_from_nothing_is_kept(shop: Library) -> None:
    def records() -> int:
        return sum(isinstance(one, Record) for one in gc.get_objects())

    def question(known: GraphView) -> tuple[int, int, int]:
        before, ranked = records(), maps.ranking(known)
        return before, records(), len(ranked)

    ((before, after, ranked), _) = shop.rag.ask(question, shop.caller())[0]
    assert (after, ranked > 0) == (before, True)


def test_a_repository_is_ranked_once_for_all_who_ask_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.py").write_text("def f():\n    pass\n")
    (root / "b.py").write_text("from a import f\n\nf()\n")
    ranking = Mock(wraps=maps.ranking)
    monkeypatch.setattr(maps, "ranking", ranking)
    with library_on(root, tmp_path / "data") as library:
        for _ in range(2):
            assert "def f" in rag_bootload(context(library), "S", "42").plan
            assert "def f" in library.app.maps.draw(200, library.caller())[0].text
        assert ranking.call_count == 1
        (root / "a.py").write_text("def f(more):\n    pass\n")
        library.refresh()
        assert "def f(more)" in library.app.maps.draw(200, library.caller())[0].text
        assert ranking.call_count == 2


def test_people_ask_the_same_on_the_command_line(shop: Library) -> None:
    def llmc(*arguments: str) -> subprocess.CompletedProcess[str]:
        return forked.llmc(*arguments, cwd=shop.root, env={**os.environ, "LLMC_DATA_DIR": shop.app.data_dir})

    used = llmc("where-used", "Store.save")
    assert "shop/order.py:6: exact call: store.save(goods)" in used.stdout, used
    assert used.returncode == 0
    assert "used by:\n  shop/order.py:6 order" in llmc("inspect", "Store.save").stdout
    assert "class Store" in llmc("map", "--tokens", "200").stdout
    missing = llmc("where-used", "Stor")
    assert (missing.returncode, "Store" in missing.stderr) == (2, True)
