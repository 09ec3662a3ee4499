"""Knowledge of a code base: search it by meaning, keep its index."""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

import msgspec

from ..context import Context
from ..tool import CODE_INDEX, Result, Row, tool
from .index_common import Count, Scope, caller_of, code_query, source_of

if TYPE_CHECKING:
    from ..rag.query.search import RankedSnippet, Stats


class Snippet(Row):
    """A piece of a file, as it is now."""

    text: str
    src: str
    score: float
    symbol: str | None = None
    kind: str | None = None
    rev: str = ""
    line_format: ClassVar[str] = "{src} rev={rev} {kind} {symbol}\n{text}"


class Snippets(Result):
    """The best snippets that fit the budget."""

    snippets: list[Snippet]
    provenance: bool
    freshness: str
    total_candidates: int
    shown: int | None = None
    hint: str | None = None
    body: ClassVar[str] = "snippets"
    lean_leaves_out: ClassVar[tuple[str, ...]] = ("provenance",)

    def cut(self, kept: int) -> None:
        self.shown = kept


@tool("Search code and docs by meaning or name", aliases=("rag_query",), needs=CODE_INDEX, read_only=True)
def rag_search(
    ctx: Context,
    query: str,
    scope: Scope | None = None,
    limit: Count | None = None,
    budget_tokens: Count | None = None,
    path_glob: str | None = None,
    k: Count | None = None,
    repos: list[str] | None = None,
) -> Snippets:
    wanted = code_query(ctx, query, scope, limit or k, budget_tokens, path_glob)._replace(repos=repos or ())
    answer = ctx.app.rag.search(wanted, caller_of(ctx))
    snippets = [snippet_of(ctx, hit) for hit in answer.hits]
    return Snippets(snippets, True, answer.freshness, answer.candidates, hint=answer.hint or None)


def snippet_of(ctx: Context, hit: "RankedSnippet") -> Snippet:
    """A hit of a search as a reply shows it."""
    return Snippet(hit.text, source_of(ctx, hit), round(hit.score, 3), hit.symbol, hit.kind, hit.revision)


class IndexReport(Result):
    """What came of it; `state` tells when it is still under way."""

    state: str
    files: int
    changed: int
    removed: int
    notes: list[str] = msgspec.field(default_factory=list[str])


@tool("Build or update the code index", needs=CODE_INDEX, read_only=True, task_support="optional")
def rag_index(ctx: Context, path: str | None = None, full: bool = False) -> IndexReport:
    config = ctx.app.config
    ctx.limit_time(config.linux_ops.process_limits.max_timeout_sec)
    rag = ctx.app.rag
    outcomes = rag.refresh(path, full, caller_of(ctx))
    done = [news for news in outcomes if news is not None]
    stats = rag.stats(path)
    return IndexReport(
        "up to date" if len(done) == len(outcomes) else rag.state(),
        sum(one.totals.files for one in stats if one.totals),
        sum(news.changed for news in done),
        sum(news.removed for news in done),
        [note for one in stats for note in one.notes],
    )


class IndexStats(Result):
    """How much the code index holds, and how fresh it is."""

    files: int
    chunks: int
    symbols: int
    edges: int
    languages: dict[str, int]
    index_bytes: int
    source_bytes: int
    updated_iso: str | None
    stale_files: int
    embedding: str
    skipped: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    notes: list[str] = msgspec.field(default_factory=list[str])


@tool("What the code index holds and how fresh it is", needs=CODE_INDEX, read_only=True)
def rag_stats(ctx: Context) -> IndexStats:
    stats = ctx.app.rag.stats()
    totals = [one.totals for one in stats if one.totals is not None]
    updated = max((one.updated for one in stats), default=0.0)
    return IndexStats(
        files=sum(one.files for one in totals),
        chunks=sum(one.chunks for one in totals),
        symbols=sum(one.symbols for one in totals),
        edges=sum(one.edges for one in totals),
        languages=_summed(one.languages for one in totals),
        index_bytes=sum(one.bytes for one in stats),
        source_bytes=sum(one.source_bytes for one in totals),
        updated_iso=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(updated)) if updated else None,
        stale_files=sum(one.changing for one in stats),
        embedding=", ".join(dict.fromkeys(one.embedding for one in stats if one.embedding)) or "none",
        skipped=_summed(one.skipped for one in totals),
        notes=[f"{one.root.shown}: {note}" for one in stats for note in one.notes] or _why_empty(ctx, stats),
    )


def _why_empty(ctx: Context, stats: "list[Stats]") -> list[str]:
    return [] if stats else [ctx.app.rag.state()]


def _summed(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in counts:
        for name, count in one.items():
            total[name] = total.get(name, 0) + count
    return dict(sorted(total.items(), key=lambda row: (-row[1], row[0])))
