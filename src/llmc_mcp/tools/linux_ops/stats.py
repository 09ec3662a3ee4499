"""Statistics of past calls of all servers of this user, across restarts, from the store.

A caller sees its own calls; with the scope `admin`, or on stdio, those of all principals. In both cases the statistics
are limited to calls made within the roots of this server.
"""

import time
from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec

from ...context import Context
from ...tool import Result, Row, tool

if TYPE_CHECKING:
    from ...store.calls import ToolTotals

SomeCalls = Annotated[int, msgspec.Meta(ge=1, le=1000)]


class ToolStats(msgspec.Struct):
    """Number, duration, errors and tokens of the calls of a tool."""

    count: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    errors: int
    tokens_out: int
    tokens_saved: int


class UsageStats(Result):
    """Statistics by tool."""

    tools: dict[str, ToolStats]


class ServerMetrics(Result):
    """Uptime, totals, and statistics by tool."""

    uptime_s: int
    calls: int
    errors: int
    tokens_in: int
    tokens_out: int
    tokens_saved: int
    tools: dict[str, ToolStats]


class CallRecord(Row):
    """One call."""

    tool: str
    args_summary: str
    status: str
    duration_ms: float
    timestamp_iso: str
    line_format: ClassVar[str] = "{timestamp_iso} {tool} {status} {duration_ms:.1f}ms {args_summary}"


class RecentCalls(Result):
    """The latest calls, newest first."""

    calls: list[CallRecord]
    truncated: bool = False
    body: ClassVar[str] = "calls"


@tool("Calls per tool: count, p50, p95, p99, errors, tokens; across restarts", read_only=True)
def linux_mcp_usage_stats(ctx: Context) -> UsageStats:
    return UsageStats(_stats(_totals(ctx)))


@tool("The latest calls with their outcome, newest first", read_only=True)
def linux_mcp_recent_calls(ctx: Context, max_results: SomeCalls = 50, tool_name: str | None = None) -> RecentCalls:
    from ...store.calls import newest

    ctx.gate.flush_usage()
    known = ctx.gate.catalog.known(tool_name) if tool_name else None
    name = known.name if known is not None else tool_name
    found = newest(ctx.app.store, ctx.app.root_set, max_results, tool=name, principal=_whose(ctx))
    return RecentCalls([CallRecord(c.tool, c.args, c.status, round(c.duration_ms, 2), _iso(c.at)) for c in found])


@tool("Uptime, calls, errors and tokens: in total and per tool", read_only=True)
def get_metrics(ctx: Context) -> ServerMetrics:
    totals = _totals(ctx)
    return ServerMetrics(
        uptime_s=round(time.monotonic() - ctx.app.started),
        calls=sum(one.calls for one in totals),
        errors=sum(one.errors for one in totals),
        tokens_in=sum(one.tokens_in for one in totals),
        tokens_out=sum(one.tokens_out for one in totals),
        tokens_saved=sum(one.tokens_saved for one in totals),
        tools=_stats(totals),
    )


def _totals(ctx: Context) -> "list[ToolTotals]":
    from ...store.calls import by_tool

    ctx.gate.flush_usage()
    return by_tool(ctx.app.store, ctx.app.root_set, principal=_whose(ctx))


def _whose(ctx: Context) -> str | None:
    return None if ctx.session.may("admin") else ctx.session.principal


def _stats(totals: "list[ToolTotals]") -> dict[str, ToolStats]:
    return {
        one.tool: ToolStats(
            count=one.calls,
            p50_ms=round(one.p50_ms, 2),
            p95_ms=round(one.p95_ms, 2),
            p99_ms=round(one.p99_ms, 2),
            errors=one.errors,
            tokens_out=one.tokens_out,
            tokens_saved=one.tokens_saved,
        )
        for one in totals
    }


def _iso(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
