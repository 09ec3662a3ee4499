"""Handles: read the rest of an earlier reply."""

from typing import Annotated, ClassVar, Literal

import msgspec

from ...context import Context
from ...errors import InvalidArgument
from ...tool import FILES, Result, tool

Limit = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
Offset = Annotated[int, msgspec.Meta(ge=0)]


class HandlePage(Result):
    """A page of a handle; `stale`: the source has changed since the snapshot was taken."""

    content: str
    total: int
    next_offset: int | None
    offset: int
    unit: str
    stale: bool = False
    body: ClassVar[str] = "content"

    def cut(self, kept: int) -> None:
        sent = len(self.content.encode()) if self.unit == "bytes" else kept
        self.next_offset = self.offset + sent


@tool("Read a page of a handle; grep keeps only lines matching a regex", needs=FILES, read_only=True)
def linux_handle_read(
    ctx: Context,
    handle: str,
    offset: Offset = 0,
    limit: Limit = 200,
    unit: Literal["lines", "bytes", "items"] = "lines",
    grep: str | None = None,
) -> HandlePage:
    principal, pages = ctx.session.principal, ctx.app.pages
    if grep is not None and unit == "bytes":
        raise InvalidArgument("grep looks at lines or items, not at bytes")
    if grep is not None:
        page = pages.matching(principal, handle, grep, offset, limit, ctx.check)
    elif unit == "bytes":
        page = pages.bytes(principal, handle, offset, limit)
    else:
        page = pages.lines(principal, handle, offset, limit, ctx.check)
    return HandlePage(page.content, page.total, page.next_offset, offset, unit, page.stale)
