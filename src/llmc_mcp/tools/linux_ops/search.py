"""Search the contents and the names of files."""

from itertools import islice
from typing import Annotated, ClassVar

import msgspec

from ...context import Context
from ...errors import LlmcError
from ...files import names
from ...tool import FILES, Result, Row, as_payload, tool

ContextLines = Annotated[int, msgspec.Meta(ge=0, le=10)]
MaxFiles = Annotated[int, msgspec.Meta(ge=1, le=2000)]
MaxHits = Annotated[int, msgspec.Meta(ge=1, le=1000)]

_REVISIONS = 100  # files of a reply whose revision is computed


class ContentHit(Row):
    """A matching line with its context."""

    path: str
    line: int
    snippet: str
    start: int | None = None
    rev: str | None = None  # of the file; only in its first hit
    group_by: ClassVar[str] = "path"
    numbered_from: ClassVar[str] = "start"


class SearchHits(Result):
    """Hits by path; `total_hits` is a lower bound if `total_is_exact` is false."""

    hits: list[ContentHit]
    total_hits: int
    truncated: bool
    logged: ClassVar[tuple[str, ...]] = ("total_hits",)
    total_is_exact: bool | None = None
    root: str = ""
    shown: int | None = None
    handle: str | None = None
    body: ClassVar[str] = "hits"
    handle_kind: ClassVar[str] = "search_hits"

    def handle_meta(self) -> dict[str, str | int]:
        return {"root": self.root}


@tool(
    "Search file contents by regex (ripgrep); respects .gitignore",
    needs=FILES,
    read_only=True,
    takes_long=True,
    whole_trees=True,
)
def linux_search_content(  # noqa: PLR0913 - the tool's schema
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
    from ...files.ripgrep import Query

    place = ctx.app.files.locate(root)
    query = Query(pattern, file_glob, literal, ignore_case, context_lines, include_ignored, multiline)
    found = ctx.app.search.content(place, query, max_results, ctx.check)
    hits = [
        ContentHit(hit.path, hit.line, hit.snippet, hit.start if hit.start != hit.line else None) for hit in found.hits
    ]
    reply = SearchHits(hits, found.total, len(hits) < found.total, None if found.exact else False, root=place.absolute)
    if len(hits) > max_results:
        reply.handle = ctx.keep(reply.handle_kind, reply.handle_meta(), as_payload(hits))
        reply.hits = hits[:max_results]
    if reply.truncated or len(hits) > max_results:
        reply.cut(len(reply.hits))
    _add_revisions(ctx, reply.hits)
    return reply


def _add_revisions(ctx: Context, hits: list[ContentHit]) -> None:
    by_path: dict[str, list[ContentHit]] = {}
    for hit in hits:
        by_path.setdefault(hit.path, []).append(hit)
    for path, shown in islice(by_path.items(), _REVISIONS):
        ctx.check()
        try:
            place = ctx.app.files.locate(path)
            snippets = [(hit.start or hit.line, hit.snippet) for hit in shown]
            shown[0].rev = ctx.app.reader.revision_with(place, snippets)
        except LlmcError:
            pass  # it is gone, or has become another kind of thing: the hits are still worth showing


class FileHit(Row):
    """A file whose name matches."""

    path: str
    line_format: ClassVar[str] = "{path}"


class FileHits(Result):
    """Files by name, best first."""

    hits: list[FileHit]
    total_hits: int
    truncated: bool
    logged: ClassVar[tuple[str, ...]] = ("total_hits",)
    root: str
    shown: int | None = None
    handle: str | None = None
    body: ClassVar[str] = "hits"
    handle_kind: ClassVar[str] = "search_hits"

    def handle_meta(self) -> dict[str, str | int]:
        return {"root": self.root}


@tool("Find files by name: substring, glob, or part of a path", needs=FILES, read_only=True, takes_long=True)
def linux_search_files(
    ctx: Context, root: str, pattern: str, file_glob: str | None = None, max_results: MaxFiles = 200
) -> FileHits:
    place = ctx.app.files.locate(root)
    found = ctx.app.lister.find(place, pattern, file_glob, ctx.check)
    base = place.absolute.rstrip("/")
    hits = [FileHit(f"{base}/{names.show(path)}") for path in found]
    reply = FileHits(hits, len(hits), False, place.absolute)
    if len(hits) > max_results:
        reply.handle = ctx.keep(reply.handle_kind, reply.handle_meta(), as_payload(hits))
        reply.hits = hits[:max_results]
        reply.cut(max_results)
    return reply
