"""Search: the contents of files."""

from typing import Annotated, ClassVar

import msgspec

from ...app import Context
from ...tool import Result, Row, tool

ContextLines = Annotated[int, msgspec.Meta(ge=0, le=10)]
MaxHits = Annotated[int, msgspec.Meta(ge=1, le=1000)]


class Hit(Row):
    """A matching line with its context."""

    path: str
    line: int
    snippet: str
    start: int | None = None
    group_by: ClassVar[str] = "path"
    numbered_from: ClassVar[str] = "start"


class SearchHits(Result):
    """Hits by path; `total_hits` counts them all unless `total_is_exact` says otherwise."""

    hits: list[Hit]
    total_hits: int
    truncated: bool
    total_is_exact: bool | None = None
    shown: int | None = None
    body: ClassVar[str] = "hits"

    def cut(self, kept: int) -> None:
        self.truncated, self.shown = True, kept


@tool("Search file contents by regex (ripgrep); respects .gitignore", feature="fs_enabled", read_only=True)
def linux_search_content(
    ctx: Context,
    root: str,
    pattern: str,
    file_glob: str | None = None,
    literal: bool = False,
    ignore_case: bool = True,
    context_lines: ContextLines = 3,
    max_results: MaxHits = 100,
    include_ignored: bool = False,
    multiline: bool = False,
) -> SearchHits:
    from ...te.search import Query

    place = ctx.app.files.locate(root)
    query = Query(pattern, file_glob, literal, ignore_case, context_lines, include_ignored, multiline)
    found = ctx.app.search.content(place, query, max_results, ctx.check)
    hits = [Hit(hit.path, hit.line, hit.snippet, hit.start if hit.start != hit.line else None) for hit in found.hits]
    truncated = len(hits) < found.total
    return SearchHits(hits, found.total, truncated, None if found.exact else False, len(hits) if truncated else None)
