"""What every tool that asks the code index needs: on whose behalf, and how an answer's paths are shown."""

import time
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from ..context import Context
from ..files import names
from ..files.filesystem import Root

if TYPE_CHECKING:
    from ..rag.build.keeper import News
    from ..rag.query.search import CodeQuery, QueryCaller

Scope = Literal["repo", "docs", "both"]
Count = Annotated[int, msgspec.Meta(ge=1)]

_MARGIN_S = 0.3  # of a call's time that is left for the reply
_LONGEST_S = 3600.0


def caller_of(ctx: Context) -> "QueryCaller":
    """The caller of a tool as the index knows him."""
    from ..rag.query.search import QueryCaller, busy_words

    def tell(news: "News") -> None:
        ctx.doing = f"the code index is {busy_words(news)}"

    until = (ctx.deadline or time.monotonic() + _LONGEST_S) - _MARGIN_S
    return QueryCaller(ctx.session, until, ctx.check, tell)


def shown(ctx: Context, root: Root, path: bytes) -> str:
    """A path that leads there again: as it is below the first root, whole below any other."""
    short = names.show(path)
    return short if root == ctx.app.files.roots[0] else f"{root.shown.rstrip('/')}/{short}"


def asked(
    ctx: Context, query: str, scope: Scope | None, limit: int | None, budget_tokens: int | None, path_glob: str | None
) -> "CodeQuery":
    """A search with the operator's defaults for what was left open, and never more than he lets a call ask for."""
    from ..rag.query.search import CodeQuery

    rag = ctx.app.config.rag
    return CodeQuery(
        query,
        scope or msgspec.convert(rag.default_scope, Scope),
        min(limit or rag.top_k, rag.max_k),
        min(budget_tokens or rag.token_budget, rag.max_token_budget),
        path_glob,
    )
