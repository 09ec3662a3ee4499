"""Queries over past calls: totals per tool and the newest calls, across restarts and servers."""

from typing import NamedTuple

from .base import Store
from .root_sets import VISIBLE, RootSet, visible_to
from .schema import count_of

# Percentiles consider the newest calls only: last year's latency is irrelevant, and sorting a year of rows is slow.
_NEWEST = 50_000

_BY_TOOL = f"""
    WITH newest AS (
        SELECT tool, status, duration_ms, tokens_in, tokens_out, tokens_saved FROM calls
        WHERE (?1 IS NULL OR principal = ?1) AND at >= ?2 AND source NOT IN ('te_run', 'network')
          AND {VISIBLE.format(parameter="?3")} ORDER BY id DESC LIMIT {_NEWEST}
    ), ranked AS (
        SELECT *, row_number() OVER (PARTITION BY tool ORDER BY duration_ms) AS rank,
               count(*) OVER (PARTITION BY tool) AS total
        FROM newest
    )
    SELECT tool, count(*), {count_of("status <> 'ok'")},
           max(CASE WHEN rank = (total + 1) / 2 THEN duration_ms END),
           max(CASE WHEN rank = (total * 95 + 99) / 100 THEN duration_ms END),
           max(CASE WHEN rank = (total * 99 + 99) / 100 THEN duration_ms END),
           sum(tokens_in), sum(tokens_out), sum(tokens_saved)
    FROM ranked GROUP BY tool ORDER BY count(*) DESC, tool
"""  # noqa: S608 - built from constants


class ToolTotals(NamedTuple):
    """Totals over one tool's calls."""

    tool: str
    calls: int
    errors: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    tokens_in: int
    tokens_out: int
    tokens_saved: int


class PastCall(NamedTuple):
    """One recorded call."""

    at: float
    tool: str
    args: str
    status: str
    duration_ms: float
    principal: str
    session_id: str
    correlation_id: str
    tokens_out: int
    roots: str


_NEWEST_CALLS = f"""
    SELECT {", ".join(PastCall._fields)} FROM calls
    WHERE (?1 IS NULL OR principal = ?1) AND (?2 IS NULL OR tool = ?2) AND {VISIBLE.format(parameter="?4")}
    ORDER BY id DESC LIMIT ?3
"""  # noqa: S608 - built from constants


def by_tool(
    store: Store, reader: RootSet | None, *, principal: str | None = None, since: float = 0.0
) -> list[ToolTotals]:
    """Totals per tool, busiest first, over the calls that the reader may see (None: all), of one principal or all."""
    rows = store.query(_BY_TOOL, (principal, since, visible_to(store, reader)))
    return [ToolTotals(*row) for row in rows]  # type: ignore[arg-type]


def newest(
    store: Store, reader: RootSet | None, limit: int, *, tool: str | None = None, principal: str | None = None
) -> list[PastCall]:
    """The latest calls that the reader may see (None: all), newest first."""
    rows = store.query(_NEWEST_CALLS, (principal, tool, limit, visible_to(store, reader)))
    found = [PastCall(*row) for row in rows]  # type: ignore[arg-type]
    return [call._replace(roots=store.workspaces.local_key(call.roots)) for call in found]
