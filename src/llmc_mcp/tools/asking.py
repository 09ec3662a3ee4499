"""What every tool that asks the code index needs: on whose behalf, and how an answer's paths are shown."""

import time
from typing import TYPE_CHECKING

from ..app import Context
from ..te import names
from ..te.filesystem import Root

if TYPE_CHECKING:
    from ..rag.build import News
    from ..rag.search import Caller

_MARGIN_S = 0.3  # of a call's time that is left for the reply
_LONGEST_S = 3600.0


def caller_of(ctx: Context) -> "Caller":
    """The caller of a tool as the index knows him."""
    from ..rag.search import Caller, busy_words

    def tell(news: "News") -> None:
        ctx.doing = f"the code index is {busy_words(news)}"

    until = (ctx.deadline or time.monotonic() + _LONGEST_S) - _MARGIN_S
    return Caller(ctx.session, until, ctx.check, tell)


def shown(ctx: Context, root: Root, path: bytes) -> str:
    """A path that leads there again: as it is below the first root, whole below any other."""
    short = names.show(path)
    return short if root == ctx.app.files.roots[0] else f"{root.shown.rstrip('/')}/{short}"
