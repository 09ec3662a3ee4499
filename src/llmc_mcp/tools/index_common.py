"""What the tools of the code index share: the caller, the query, and how a place in the code is displayed."""

import time
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from ..context import Context
from ..files import names
from ..files.filesystem import Root

if TYPE_CHECKING:
    from ..rag.build.messages import News
    from ..rag.query.questions import Site
    from ..rag.query.search import CodeQuery, QueryCaller, RankedSnippet

Scope = Literal["repo", "docs", "both"]
Count = Annotated[int, msgspec.Meta(ge=1)]

_MARGIN_S = 0.3  # of a call's time that is left for the reply
_LONGEST_S = 3600.0
_COMPARE_S = 0.25  # a first answer comes at once and says that it has not been compared; its hits have been, each


class Coverage(msgspec.Struct, omit_defaults=True):
    """How much of the repository the answer rests on."""

    files_parsed: int
    files_skipped: int
    files_failed: int


def caller_of(ctx: Context) -> "QueryCaller":
    """The caller of a tool, as the index takes one."""
    from ..rag.query.search import QueryCaller, busy_words

    def report(news: "News") -> None:
        ctx.doing = f"the code index is {busy_words(news)}"
        ctx.steps = (news.files_done, news.files_total) if news.files_total else None

    until = (ctx.deadline or time.monotonic() + _LONGEST_S) - _MARGIN_S
    return QueryCaller(
        ctx.session, until, ctx.check, report, compare=_COMPARE_S, patience=ctx.app.config.rag.build_wait_sec
    )


def display_path(ctx: Context, root: Root, path: bytes) -> str:
    """A path that a tool accepts again: relative to the first root, absolute in any other."""
    short = names.show(path)
    return short if root == ctx.app.files.roots[0] else f"{root.shown.rstrip('/')}/{short}"


def code_query(
    ctx: Context, query: str, scope: Scope | None, limit: int | None, budget_tokens: int | None, path_glob: str | None
) -> "CodeQuery":
    """A search, with the configured defaults for omitted arguments and the configured maxima."""
    from ..rag.query.search import CodeQuery

    rag = ctx.app.config.rag
    return CodeQuery(
        query,
        scope or msgspec.convert(rag.default_scope, Scope),
        min(limit or rag.top_k, rag.max_k),
        min(budget_tokens or rag.token_budget, rag.max_token_budget),
        path_glob,
    )


def site_line(ctx: Context, root: Root, site: "Site") -> str:
    """A place in the code as one line: where, what, and how sure unless it is."""
    grade = "" if site.confidence == "exact" else f" ({site.confidence})"
    return f"{display_path(ctx, root, site.path)}:{site.line} {site.inside or site.snippet}{grade}"


def source_of(ctx: Context, hit: "RankedSnippet") -> str:
    """Where a snippet comes from, as `path#L1-L9`."""
    return f"{display_path(ctx, hit.root, hit.path)}#L{hit.numbers[0]}-L{hit.numbers[-1]}"


def total_coverage(counts: list[Coverage]) -> Coverage:
    """The coverage of several roots together."""
    return Coverage(
        sum(one.files_parsed for one in counts),
        sum(one.files_skipped for one in counts),
        sum(one.files_failed for one in counts),
    )
