"""Code search in which every hit comes with its surroundings in the graph."""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec

from ..context import Context
from ..files.filesystem import Root
from ..tool import CODE_INDEX, Result, Row, tool
from .index_common import Count, Coverage, Scope, caller_of, code_query, site_line, source_of, total_coverage

if TYPE_CHECKING:
    from ..rag.query.questions import Site
    from ..rag.query.search import GraphView, RankedSnippet

_AROUND = 3  # callers, callees, tests of one hit

GraphDepth = Annotated[int, msgspec.Meta(ge=0, le=3)]


class EnrichedSnippet(Row):
    """A piece of a file with what is around it in the graph."""

    text: str
    src: str
    score: float
    symbol: str | None = None
    kind: str | None = None
    rev: str = ""
    callers: list[str] = msgspec.field(default_factory=list[str])
    callees: list[str] = msgspec.field(default_factory=list[str])
    tests: list[str] = msgspec.field(default_factory=list[str])
    docs: list[str] = msgspec.field(default_factory=list[str])
    line_format: ClassVar[str] = (
        "{src} rev={rev} {kind} {symbol}\n{text}\ncallers: {callers}\ncallees: {callees}\ntests: {tests}\ndocs: {docs}"
    )


class EnrichedSnippets(Result):
    """The best snippets that fit the budget, with callers, callees, tests and documents."""

    snippets: list[EnrichedSnippet]
    provenance: bool
    freshness: str
    total_candidates: int
    completeness: Coverage
    shown: int | None = None
    body: ClassVar[str] = "snippets"
    lean_leaves_out: ClassVar[tuple[str, ...]] = ("provenance",)

    def cut(self, kept: int) -> None:
        self.shown = kept


@tool("Search code, each hit with its callers, callees, tests and docs", needs=CODE_INDEX, read_only=True)
def rag_search_enriched(
    ctx: Context,
    query: str,
    scope: Scope | None = None,
    limit: Count | None = None,
    budget_tokens: Count | None = None,
    path_glob: str | None = None,
    graph_depth: GraphDepth = 1,
) -> EnrichedSnippets:
    caller = caller_of(ctx)
    answer = ctx.app.rag.search(code_query(ctx, query, scope, limit, budget_tokens, path_glob), caller)
    rows = [
        EnrichedSnippet(hit.text, source_of(ctx, hit), round(hit.score, 3), hit.symbol, hit.kind, hit.revision)
        for hit in answer.hits
    ]

    def question(view: "GraphView") -> Coverage:
        for hit, row in zip(answer.hits, rows, strict=True):
            if hit.root == view.root and graph_depth:
                _surround(view, hit, row, query, graph_depth, ctx)
        return Coverage(*view.files.completeness())

    answers = ctx.app.rag.ask(question, caller)
    for row in rows:
        if row.symbol is not None and graph_depth:
            row.docs = _mentions(ctx, row.symbol)
    complete = total_coverage([one for one, _ in answers])
    freshness = combined_freshness(answer.freshness, [note for _, note in answers])
    return EnrichedSnippets(rows, True, freshness, answer.candidates, complete)


def combined_freshness(of_hits: str, of_graphs: list[str]) -> str:
    """What both say of it; how far a first build is only once."""
    from ..rag.query.types import PARTIAL  # the engine is imported on first use

    around = ["callers and callees only of what is indexed" if note.startswith(PARTIAL) else note for note in of_graphs]
    notes = [note for note in (of_hits, *around) if note and note != "fresh"]
    return "; ".join(dict.fromkeys(notes)) or "fresh"


def _surround(
    view: "GraphView", hit: "RankedSnippet", row: EnrichedSnippet, query: str, depth: int, ctx: Context
) -> None:
    from ..rag.query import questions

    found = questions.defined_in(view, os.fsdecode(hit.path), hit.numbers[0], hit.numbers[-1], hit.symbol)
    targets = questions.most_like(view, found, query)[:_AROUND]
    if not targets:
        return
    row.symbol = row.symbol or view.graph.symbol(targets[0]).qualname
    callers = questions.lineage(view, row.symbol, targets, "upstream", depth, ctx.check).sites
    sure = [site for site in callers if site.kind != "import" and site.confidence != "name_only"]
    tests = [site for site in sure if questions.TESTS.search(os.fsdecode(site.path))]
    row.callers = _few(ctx, view.root, (site for site in sure if site not in tests))
    row.tests = _few(ctx, view.root, tests)
    callees = questions.lineage(view, row.symbol, targets, "callees", depth, ctx.check).sites
    row.callees = _few(ctx, view.root, callees)


def _few(ctx: Context, root: Root, sites: "Iterable[Site]") -> list[str]:
    return list(dict.fromkeys(site_line(ctx, root, site) for site in sites))[:_AROUND]


def _mentions(ctx: Context, symbol: str) -> list[str]:
    from ..rag.query.search import CodeQuery

    name = symbol.rpartition(".")[2]
    found = ctx.app.rag.search(CodeQuery(name, "docs", 3, 2_000), caller_of(ctx)).hits
    return [source_of(ctx, hit) for hit in found if name in hit.text][:1]
