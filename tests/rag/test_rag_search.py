"""Searching code over every surface: the best pieces, within the budget, with the lines they really have."""

import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmc_mcp.config.schema import Config
from llmc_mcp.context import Progress
from llmc_mcp.errors import Cancelled, FeatureDisabled, FeatureUnavailable, InvalidArgument, InvalidPath, LlmcError
from llmc_mcp.gate.dispatch import Gate
from llmc_mcp.kernel import syscalls
from llmc_mcp.rag.build.messages import News
from llmc_mcp.rag.parse.question import LONGEST, question
from llmc_mcp.rag.query import snippets
from llmc_mcp.rag.query.globs import Glob
from llmc_mcp.rag.query.search import CodeQuery, QueryCaller
from llmc_mcp.rag.store import layout
from llmc_mcp.rag.store.index import IndexWriter
from llmc_mcp.tokens import estimate
from llmc_mcp.tools.index_common import caller_of
from llmc_mcp.tools.rag import IndexReport, IndexStats, Snippets

from ..support import forked
from ..support.client import Client
from ..support.gates import context, gate_on
from ..support.http_server import HttpServer
from ..support.library import Library, library_on
from ..support.workspace import Workspace, require

LONG = "\n".join(
    [
        "def settle_invoice(invoice, ledger):",
        '    """Settle an invoice."""',
        *(f"    step_{number} = prepare(invoice, {number})" for number in range(150)),
        "    ledger.post_the_balance(invoice)",
        *(f"    later_{number} = finish(invoice, {number})" for number in range(150)),
        "    return ledger",
        "",
    ]
)


@pytest.fixture(autouse=True)
def landlock() -> None:
    require(syscalls.landlock_abi() > 0, "Landlock")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A small repository; nothing in these tests changes it."""
    made = Workspace(tmp_path_factory.mktemp("shop"))
    made.file(
        "shop/cart.py",
        "class Cart:\n"
        "    def add_item(self, item, quantity):\n"
        '        """Put an item into the cart."""\n'
        "        self.items[item] = quantity\n\n"
        "    def total_price(self):\n"
        "        return sum(item.price * count for item, count in self.items.items())\n",
    )
    made.file("shop/invoice.py", LONG)
    made.file("web/cart.ts", "export function renderCart(cart: Cart): string {\n  return cart.items.join(', ');\n}\n")
    made.file("docs/guide.md", "# Guide\n\n## The cart\n\nAn item is added to the cart with add_item.\n")
    made.file("tests/test_cart.py", "def test_total_price():\n    assert Cart().total_price() == 0\n")
    return made


@pytest.fixture(scope="module")
def gate(shop: Workspace) -> Iterator[Gate]:
    with gate_on(shop.root) as made:
        yield made


def search(gate: Gate, query: str, /, **arguments: Any) -> Snippets:
    result = gate.call(context(gate), "rag_search", {"query": query, **arguments})
    assert isinstance(result, Snippets)
    return result


def paths(found: Snippets) -> list[str]:
    return [row.src.partition("#")[0] for row in found.snippets]


# --- what is found -------------------------------------------------------------------------------------------------


def test_a_search_gives_snippets_with_the_place_they_come_from(gate: Gate, shop: Workspace) -> None:
    found = search(gate, "put an item into the cart")
    best = found.snippets[0]
    place = re.fullmatch(r"shop/cart\.py#L(\d+)-L(\d+)", best.src)
    assert place is not None
    lines = (shop.root / "shop/cart.py").read_text().split("\n")
    assert best.text.split("\n") == lines[int(place[1]) - 1 : int(place[2])]
    assert found.provenance
    assert found.freshness == "fresh"
    assert found.total_candidates >= len(found.snippets)


@pytest.mark.parametrize("tool", ["rag_search", "rag_search_enriched"])
def test_a_hit_has_the_revision_that_an_edit_by_lines_asks_for(gate: Gate, shop: Workspace, tool: str) -> None:
    shop.file("shop/discount.py", "def discount_of(voucher):\n    return voucher.percent / 10\n")
    gate.call(context(gate), "rag_index", {})
    found: Any = gate.call(context(gate), tool, {"query": "discount_of", "limit": 1})
    arguments = {"path": "shop/discount.py", "lines": "2", "new_text": "    return voucher.percent / 100"}
    edit: Any = gate.call(context(gate), "linux_fs_edit", {**arguments, "expected": found.snippets[0].rev})
    gate.call(context(gate), "rag_index", {})
    assert edit.rev == search(gate, "discount_of", limit=1).snippets[0].rev != found.snippets[0].rev
    with pytest.raises(LlmcError):
        gate.call(context(gate), "linux_fs_edit", {**arguments, "expected": found.snippets[0].rev})
    (shop.root / "shop/discount.py").unlink()


def test_a_name_finds_its_definition_first(gate: Gate) -> None:
    best = search(gate, "total_price").snippets[0]
    assert best.src.startswith("shop/cart.py#")
    assert "def total_price" in best.text
    assert best.symbol in ("Cart", "Cart.total_price")


def test_of_names_that_differ_only_in_an_underscore_the_one_that_was_asked_for_is_shown(tmp_path: Path) -> None:
    made = Workspace(tmp_path)
    made.file(
        "shop/basket.py",
        "class Basket:\n    def _count_items(self):\n        return count_items(self.items)\n\n\n"
        + "def filler(value):\n    return value + 1\n\n\n" * 60
        + "def count_items(items):\n    total = 0\n"
        + "".join(f"    for line_{number} in items:\n        total += line_{number}\n" for number in range(60))
        + "    return total\n",
    )
    with gate_on(made.root) as gate:
        for name in ("count_items", "_count_items"):
            assert f"def {name}(" in search(gate, name).snippets[0].text


def test_scope_separates_code_from_documents(gate: Gate) -> None:
    assert "docs/guide.md" not in paths(search(gate, "cart", limit=10))
    assert paths(search(gate, "cart", scope="docs", limit=10)) == ["docs/guide.md"]
    assert {"docs/guide.md", "shop/cart.py"} <= set(paths(search(gate, "cart", scope="both", limit=10)))


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("*.ts", {"web/cart.ts"}),
        ("shop/*.py", {"shop/cart.py", "shop/invoice.py"}),
        ("**/cart.*", {"shop/cart.py", "web/cart.ts"}),
        ("tests/", {"tests/test_cart.py"}),
        ("[st]*/*cart*", {"shop/cart.py", "tests/test_cart.py"}),
        ("nothing/**", set[str]()),
    ],
)
def test_path_glob_restricts_a_search(gate: Gate, glob: str, expected: set[str]) -> None:
    assert set(paths(search(gate, "cart item total price invoice", limit=10, path_glob=glob))) == expected


@pytest.mark.parametrize(
    ("glob", "fits", "fails"),
    [
        ("*.py", ["a.py", "x/y/a.py"], ["a.pyc", "a.py/b"]),
        ("src/*.py", ["src/a.py"], ["src/x/a.py", "x/src/a.py"]),
        ("/src/**/*.py", ["src/a.py", "src/x/y/a.py"], ["a.py", "srcs/a.py"]),
        ("**/test/**/*.py", ["test/a.py", "x/test/y/a.py"], ["tests/a.py", "test/a.c"]),
        ("src/**", ["src/a", "src/x/a"], ["src", "a/src"]),
        ("src/", ["src/a", "x/src/y/a"], ["src"]),
        ("src/**.py", ["src/a.py", "src/x/a.py"], ["src/a.c"]),
        ("**/a/b/**/a/c", ["a/b/a/c", "x/a/b/y/a/c", "a/a/b/a/b/a/c"], ["a/b/c", "a/c", "a/b/a/c/d"]),
        ("[!a]?[0-9].c", ["bx1.c"], ["ax1.c", "bxx.c", "b/1.c"]),
        ("**", ["a", "x/a"], []),
        ("", ["a", "x/a"], []),
        ("[", ["x/["], ["a"]),
    ],
)
def test_a_glob_means_these_paths(glob: str, fits: list[str], fails: list[str]) -> None:
    meant = Glob(glob)
    assert [path for path in [*fits, *fails] if meant.fits(path)] == fits


@pytest.mark.parametrize(
    "glob", ["**/" * 18 + "x", "*a" * 200 + "b", "**/a/" * 80 + "b", "**/*" * 100 + "x", "*" * 500]
)
def test_no_glob_takes_long(glob: str) -> None:
    """Where matching tries things again these never end: the test would be killed by its time limit."""
    meant = Glob(glob)
    for _ in range(100):
        meant.fits("/".join(["a" * 20] * 11))
        meant.fits("a/" * 60 + "a" * 250)


def test_a_glob_that_is_too_long_is_refused_and_comparing_can_be_called_off(gate: Gate) -> None:
    with pytest.raises(InvalidArgument) as caught:
        search(gate, "cart", path_glob="*" * 501)
    assert "500" in caught.value.message
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        raise Cancelled("enough")

    search(gate, "cart")
    caller = QueryCaller(context(gate).session, time.monotonic() + 60, check)
    with pytest.raises(Cancelled):
        gate.app.rag.search(CodeQuery("cart", path_glob="*.py"), caller)
    assert calls == 1


def test_every_file_is_shown_once_before_any_is_shown_twice(gate: Gate) -> None:
    found = paths(search(gate, "cart total price item", scope="both", limit=10, budget_tokens=4_000))
    distinct = len(set(found))
    assert len(set(found[:distinct])) == distinct


def test_words_that_are_nowhere_find_nothing(gate: Gate) -> None:
    assert search(gate, "xylophone quagmire").snippets == []


@pytest.mark.parametrize("query", ["", "   ", "\n"])
def test_an_empty_query_is_refused(gate: Gate, query: str) -> None:
    with pytest.raises(InvalidArgument):
        search(gate, query)


@pytest.mark.parametrize(
    "query", ["the", "((", "a AND (b", "*", "-", '"', "\\", "…", "😀", "a" * 2_000, "x " * 1_000, "+:^~"]
)
def test_no_query_is_a_syntax_error(gate: Gate, query: str) -> None:
    search(gate, query)


@pytest.mark.parametrize("tool", ["rag_search", "rag_search_enriched", "rag_plan"])
def test_a_query_may_be_of_any_length(gate: Gate, tool: str) -> None:
    gate.call(context(gate), tool, {"query": "settle an invoice\n" + "the cart is wrong " * 400})


def test_what_is_not_read_of_a_long_query_is_told(gate: Gate) -> None:
    found = search(gate, "settle an invoice\n" + "the cart is wrong " * 2_000)
    assert found.snippets
    assert f"only the first {LONGEST:,}" in (found.hint or "")


# --- budgets -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [60, 150, 400, 1_500])
def test_snippets_fit_the_budget(gate: Gate, budget: int) -> None:
    found = search(gate, "settle invoice post the balance ledger", limit=5, budget_tokens=budget)
    assert found.snippets
    assert sum(estimate(row.text) + estimate(row.src) for row in found.snippets) <= budget


def test_a_definition_that_fits_is_whole_and_a_longer_one_keeps_its_head_and_what_matches(gate: Gate) -> None:
    (row,) = search(gate, "post the balance", limit=1, budget_tokens=200, path_glob="shop/invoice.py").snippets
    lines = row.text.split("\n")
    assert "    ledger.post_the_balance(invoice)" in lines
    first, last = map(int, re.findall(r"L(\d+)", row.src))
    source = LONG.split("\n")
    at, gaps = first, 0
    for line in lines:  # a gap says at which line the text goes on, so every line has a number
        if gap := re.fullmatch(rf"{snippets.GAP} (\d+)", line):
            at, gaps = int(gap[1]), gaps + 1
            continue
        assert line == source[at - 1]
        at += 1
    assert (gaps > 0, at - 1) == (True, last)


def test_a_piece_is_never_cut_inside_a_word() -> None:
    piece = snippets.Piece([1], ["alpha beta gamma " * 50])
    (shown,) = snippets.fit([piece], question("beta"), 60, 24)
    assert set(shown.text.split()) <= {"alpha", "beta", "gamma", snippets.GAP}


def test_little_needs_are_met_and_the_rest_is_shared() -> None:
    assert snippets.share_out([10, 20, 30], 100) == [10, 20, 30]
    assert snippets.share_out([1_000, 10, 1_000], 310) == [200, 10, 100]


# --- settings ------------------------------------------------------------------------------------------------------


def configured(shop: Workspace, **settings: object) -> Config:
    config = Config()
    for name, value in settings.items():
        setattr(config.rag, name, value)
    return config


def test_a_search_gives_as_much_as_is_configured_unless_asked_and_never_more_than_the_cap(shop: Workspace) -> None:
    config = configured(shop, top_k=2, max_k=3, token_budget=100, max_token_budget=300, default_scope="both")
    with gate_on(shop.root, config) as gate:
        everything = "cart item total price invoice guide"
        assert len(search(gate, everything, budget_tokens=300).snippets) == 2
        assert len(search(gate, everything, limit=50, budget_tokens=300).snippets) == 3
        assert sum(estimate(row.text) for row in search(gate, everything).snippets) <= 100
        assert sum(estimate(row.text) for row in search(gate, everything, limit=3, budget_tokens=9_999).snippets) <= 300
        assert "docs/guide.md" in paths(search(gate, "guide"))


def test_the_code_index_can_be_switched_off(shop: Workspace) -> None:
    with gate_on(shop.root, configured(shop, jit_context_enabled=False)) as gate:
        with pytest.raises(FeatureDisabled) as caught:
            search(gate, "cart")
        assert "mcp.rag.jit_context_enabled" in (caught.value.hint or "")


# --- the other tools -----------------------------------------------------------------------------------------------


def test_rag_stats_tells_what_the_index_holds_and_builds_nothing(shop: Workspace, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def a(): ...\n")
    with gate_on(tmp_path) as gate:
        before = gate.call(context(gate), "rag_stats", {})
        assert isinstance(before, IndexStats)
        assert (before.files, before.updated_iso) == (0, None)
        assert any("not built yet" in note for note in before.notes)
        assert "not built yet" in str(gate.call(context(gate), "health", {}))
        search(gate, "a")
        after = gate.call(context(gate), "rag_stats", {})
        assert isinstance(after, IndexStats)
        assert (after.files, after.chunks, after.symbols, after.languages) == (1, 1, 1, {"python": 1})
        assert after.index_bytes > 0


def test_rag_index_builds_and_says_what_it_did(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def a(): ...\n")
    with gate_on(tmp_path) as gate:
        results = [gate.call(context(gate), "rag_index", {"full": full}) for full in (False, False, True)]
        assert [(one.state, one.files, one.changed) for one in results if isinstance(one, IndexReport)] == [
            ("up to date", 1, 1),
            ("up to date", 1, 0),
            ("up to date", 1, 1),
        ]
        with pytest.raises(InvalidPath):
            gate.call(context(gate), "rag_index", {"path": "/etc"})


def test_how_long_a_search_waits_for_the_first_build_is_the_operators_choice(tmp_path: Path) -> None:
    from llmc_mcp.server import build

    (tmp_path / "cart.py").write_text("def add_item(cart, item):\n    cart.append(item)\n")
    config = Config()
    config.rag.build_wait_sec = 0.001
    gate = build(config, [str(tmp_path)])
    try:
        first = search(gate, "add_item to the cart")
        assert first.freshness.startswith("partial: ")
        assert paths(first) == ["cart.py"]
    finally:
        gate.close()


def test_whoever_asked_for_progress_is_told_what_is_being_done(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def a(): ...\n")
    with gate_on(tmp_path) as gate:
        ctx = context(gate)
        gate.call(ctx, "rag_index", {})
        assert ctx.doing.startswith("the code index is being")
        told: list[Progress] = []
        asked = gate.context(ctx.session, "c", told.append)
        caller_of(asked).tell(News(building=True, files_done=3, files_total=7))
        setattr(asked, "_last_progress", 0.0)  # noqa: B010 - as if half a second had passed
        asked.check()
        assert told == [(3.0, 7, "the code index is being built: 3 of 7 files")]


def test_roots_that_lie_in_each_other_are_searched_once(shop: Workspace) -> None:
    from llmc_mcp.server import build

    gate = build(Config(), [str(shop.root / "shop"), str(shop.root), str(shop.outside)])
    try:
        found = search(gate, "put an item into the cart", limit=10)
        assert paths(found).count(str(shop.root / "shop/cart.py")) == 1
    finally:
        gate.close()


# --- over the wire -------------------------------------------------------------------------------------------------


def test_over_mcp_in_every_mode(shop: Workspace) -> None:
    with Client("--root", str(shop.root), "--mode", "classic") as client:
        reply = json.loads(client.call("rag_query", query="put an item into the cart", k=1).text)
        assert reply["snippets"][0]["src"].startswith("shop/cart.py#L")
        assert reply["provenance"] is True
    with Client("--root", str(shop.root)) as client:
        reply = client.call("rag_search", query="put an item into the cart", limit=1)
        assert reply.body.startswith("shop/cart.py#L")
        assert reply.meta["body_bytes"] == len(reply.body.encode())
        code = "rag_search('total price')['snippets'][0]['src']"
        assert "cart.py#L" in client.call("execute_code", code=code).text


def test_over_http_k_and_budget_are_clamped(shop: Workspace) -> None:
    with HttpServer(shop.root) as server, server.client() as client:
        found = client.post(
            "/rag/search", json={"q": "cart item total", "scope": "both", "k": 50, "budget_tokens": 9_000}
        )
        assert found.status_code == 200
        rows = found.json()["snippets"]
        assert len(rows) == 3
        assert sum(estimate(row["text"]) for row in rows) <= 600
        assert set(rows[0]) >= {"text", "src", "score"}
        small = client.post("/rag/search", json={"q": "cart item total", "k": 1, "budget_tokens": 80}).json()
        assert len(small["snippets"]) == 1
        message = {"user_msg": "how is an item put into the cart?", "inject_context": "Be brief."}
        context_of_call = client.post("/invoke_agent", json=message).json()["context"]
        long = {"user_msg": f"how is an item put into the cart? {'thank you ' * 500}"}
        assert "shop/cart.py#L" in client.post("/invoke_agent", json=long).json()["context"]
        assert context_of_call.startswith("Be brief.\n\n")
        assert "shop/cart.py#L" in context_of_call


# --- for a person --------------------------------------------------------------------------------------------------


def llmc(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return forked.llmc(*arguments, cwd=folder, env={**os.environ, **environ})


def test_llmc_index_and_search(shop: Workspace) -> None:
    made = llmc(shop.root, "index", "--json")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["files"] == 5
    assert made.stderr == ""
    found = llmc(shop.root / "shop", "search", "--json", "put an item into", "the cart")
    assert json.loads(found.stdout)[0]["path"] in ("shop/cart.py", "cart.py")
    shown = llmc(shop.root, "search", "total_price", "--limit", "1")
    assert shown.stdout.startswith("shop/cart.py:")
    assert "\x1b" not in shown.stdout
    assert re.search(r"^ +\d+  .*def total_price", shown.stdout, re.MULTILINE)


@pytest.mark.parametrize("most", [3, 8])
def test_llmc_search_shows_no_more_lines_of_a_hit_than_it_is_told(shop: Workspace, most: int) -> None:
    shown = llmc(shop.root, "search", "post the balance of an invoice", "--limit", "1", "--lines", str(most))
    heading, *lines = shown.stdout.splitlines()
    assert heading.startswith("shop/invoice.py:")
    assert 1 < len(lines) <= most


def test_llmc_search_says_when_there_is_nothing_and_what_is_wrong(shop: Workspace) -> None:
    nothing = llmc(shop.root, "search", "xylophone")
    assert (nothing.returncode, nothing.stdout, "nothing found" in nothing.stderr) == (1, "", True)
    for arguments in (
        ("search",),
        ("search", "a", "--scope", "all"),
        ("search", "a", "--limit", "0"),
        ("index", "--x"),
    ):
        assert llmc(shop.root, *arguments).returncode == 2


def test_a_person_on_a_terminal_gets_colour_links_and_a_progress_bar(shop: Workspace, tmp_path: Path) -> None:
    def on_terminal(**environ: str) -> str:
        command = "from llmc_mcp.cli.main import main; main()"
        script = (
            "import os, pty, sys\n"
            f"argv = [sys.executable, '-c', {command!r}, 'search', 'total_price']\n"
            "sys.exit(os.waitstatus_to_exitcode(pty.spawn(argv)))"
        )
        env = {**os.environ, "LLMC_DATA_DIR": str(tmp_path / "data"), **environ}
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=shop.root, env=env, capture_output=True, timeout=100, check=True
        )
        return done.stdout.decode()

    first = on_terminal()
    assert "\rindexing" in first.replace("\x1b[K", "")
    assert "\x1b]8;;file://" in first
    assert "\x1b[1;36mshop/cart.py:" in first
    assert "\x1b[1" not in on_terminal(NO_COLOR="1")


def test_a_failing_search_tells_a_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syscalls, "landlock_abi", lambda: 0)
    (tmp_path / "a.py").write_text("def a(): ...\n")
    with gate_on(tmp_path) as gate, pytest.raises(LlmcError) as caught:
        search(gate, "a")
    assert caught.value.code == "FEATURE_UNAVAILABLE"


# --- many at once, and what goes wrong -----------------------------------------------------------------------------


@pytest.fixture
def zoo(workspace: Workspace, tmp_path: Path) -> Iterator[Library]:
    workspace.file("zebra.py", "def paint_zebra(stripes):\n    return [black(stripe) for stripe in stripes]\n")
    workspace.file("lion.py", "def roar_loudly():\n    return 'roar'\n")
    with library_on(workspace.root, tmp_path / "data") as made:
        yield made


def test_searches_at_once_while_the_index_is_built_anew_neither_fail_nor_build_it_again(zoo: Library) -> None:
    zoo.ask("zebra")
    done = threading.Event()
    told: set[str] = set()
    failed: list[BaseException] = []

    def keep_asking() -> None:
        while not done.is_set():
            try:
                answer = zoo.ask("paint zebra")
                told.add(answer.freshness)
                assert [hit.path for hit in answer.hits] == [b"zebra.py"]
                ((symbols, _),) = zoo.rag.ask(lambda known: known.files.names_beginning("paint"), zoo.caller())
                assert symbols == ["paint_zebra"]
            except BaseException as exc:  # noqa: BLE001 - whatever it is, it is told
                failed.append(exc)
                return

    threads = [threading.Thread(target=keep_asking) for _ in range(4)]
    for thread in threads:
        thread.start()
    builds = {zoo.build.name}
    for _ in range(6):
        zoo.refresh(full=True)
        builds.add(zoo.build.name)
    done.set()
    for thread in threads:
        thread.join()
    assert failed == []
    assert not [note for note in told if "damaged" in note]
    assert len(builds) == 7


def test_a_search_goes_on_when_the_index_is_replaced_under_it(zoo: Library) -> None:
    zoo.ask("zebra")
    builds: list[str] = []

    def replace_it() -> None:
        if not builds:
            builds.append(zoo.build.name)
            zoo.refresh(full=True)
            builds.append(zoo.build.name)
            zoo.ask("roar")  # somebody else uses the new one already

    answer = zoo.rag.search(CodeQuery("paint zebra", path_glob="*.py"), zoo.caller(replace_it))
    assert ([hit.path for hit in answer.hits], answer.freshness) == ([b"zebra.py"], "fresh")
    assert zoo.build.name == builds[-1]


def test_a_file_that_grew_is_not_read(zoo: Library) -> None:
    zoo.ask("zebra")
    huge = 300 << 20

    def grow() -> None:
        os.truncate(zoo.root / "zebra.py", huge)

    tracemalloc.start()
    try:
        answer = zoo.rag.search(CodeQuery("paint zebra", path_glob="*.py"), zoo.caller(grow))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert answer.hits == []
    assert peak < huge / 4


def test_hits_in_a_file_that_keeps_changing_are_left_out_and_that_is_said(zoo: Library) -> None:
    zoo.ask("zebra")
    versions = itertools.count()

    def rewrite() -> None:
        (zoo.root / ".new").write_text(f"def paint_zebra_{next(versions)}(): ...\n")
        os.replace(zoo.root / ".new", zoo.root / "zebra.py")

    answer = zoo.rag.search(CodeQuery("paint zebra roar loudly", path_glob="*.py"), zoo.caller(rewrite))
    assert [hit.path for hit in answer.hits] == [b"lion.py"]
    assert "left out" in answer.freshness
    after = zoo.ask("paint zebra")
    assert [hit.path for hit in after.hits] == [b"zebra.py"]
    assert "left out" not in after.freshness


def test_the_id_of_a_file_that_is_gone_is_never_given_to_another(zoo: Library) -> None:
    zoo.ask("zebra")
    zoo.app.close()
    writer = IndexWriter(str(zoo.build))
    newest = max(writer.known().values(), key=lambda known: known.id)
    writer.drop(newest.id)
    writer.commit()
    writer.close()
    again = IndexWriter(str(zoo.build))
    try:
        assert again.new_id() > newest.id
    finally:
        again.close()


def test_a_hit_of_what_a_file_was_never_shows_what_it_has_become(zoo: Library) -> None:
    """Between the two commits a hit is one of the old content, and the chunk of its number one of the new."""
    zoo.ask("zebra")
    source = b"# something else entirely\n" * 3
    once = iter([True])

    def commit_the_first_half() -> None:
        if not next(once, False):
            return
        (zoo.root / "zebra.py").write_bytes(source)
        connection = layout.connect(str(zoo.build), write=True)
        connection.execute("BEGIN IMMEDIATE")
        generation = layout.get_meta(connection, "generation") + 1
        connection.execute(
            "UPDATE files SET sha256=?, size=?, generation=? WHERE path=?",
            (hashlib.sha256(source).digest(), len(source), generation, b"zebra.py"),
        )
        layout.put_meta(connection, "generation", generation)
        connection.execute("COMMIT")
        connection.close()

    answer = zoo.rag.search(CodeQuery("black stripes", path_glob="*.py"), zoo.caller(commit_the_first_half))
    assert answer.hits == []
    assert [hit.path for hit in zoo.ask("something else entirely").hits] == [b"zebra.py"]


def test_a_root_that_has_no_index_is_named_and_the_others_answer(shop: Workspace, tmp_path: Path) -> None:
    from llmc_mcp.server import build

    other = tmp_path / "other"
    other.mkdir()
    gate = build(Config(), [str(other), str(shop.root)])
    try:
        in_the_way = Path(layout.home_of(gate.app.data_dir, os.fsencode(other)).folder)
        in_the_way.parent.mkdir(parents=True, exist_ok=True)
        in_the_way.write_text("in the way")
        found = search(gate, "put an item into the cart")
        assert paths(found)[0] == str(shop.root / "shop/cart.py")
        assert f"{other} is left out" in found.freshness
        caller = QueryCaller(context(gate).session, time.monotonic() + 60, lambda: None)
        ((symbols, note),) = gate.app.rag.ask(lambda known: known.files.names_beginning("add_item", 9), caller)
        assert (symbols, f"{other} is left out" in note) == (["add_item"], True)
    finally:
        gate.close()


def test_where_no_root_has_an_index_it_is_said_why(tmp_path: Path) -> None:
    with gate_on(tmp_path) as gate:
        in_the_way = Path(layout.home_of(gate.app.data_dir, os.fsencode(tmp_path)).folder)
        in_the_way.parent.mkdir(parents=True, exist_ok=True)
        in_the_way.write_text("in the way")
        with pytest.raises(FeatureUnavailable):
            search(gate, "cart")
