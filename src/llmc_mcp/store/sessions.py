"""Queries over the calls of all servers and shells, by session: totals, the newest calls, denials, usage over time."""

from typing import NamedTuple

from .base import Store
from .root_sets import VISIBLE, RootSet, visible_to
from .schema import count_of

# Lists for people look at the newest calls only: a page must not take longer with every month that is recorded.
_NEWEST = 20_000
_CALLS = "source NOT IN ('te_run', 'network')"  # the rows that are calls: the others are parts of one
_FAILED = count_of("status <> 'ok'")
_WHOSE = f"(?1 IS NULL OR principal = ?1) AND {VISIBLE.format(parameter='?2')}"


class StoreReader(NamedTuple):
    """Whose rows are read: those of one principal within some roots, or everything for None."""

    principal: str | None = None
    roots: RootSet | None = None

    def parameters(self, store: Store) -> tuple[object, object]:
        """The first two parameters of every query here."""
        return self.principal, visible_to(store, self.roots)


EVERYTHING = StoreReader()  # what the person who owns the store sees


class SessionTotals(NamedTuple):
    """The calls of a session, added up."""

    principal: str
    session_id: str
    agent_id: str
    model: str
    calls: int
    errors: int
    tokens_in: int
    tokens_out: int
    tokens_saved: int
    busy_ms: float  # time spent in calls
    first_at: float
    last_at: float
    roots: str
    sandbox: str  # the level of its latest command; empty before the first


class SessionCall(NamedTuple):
    """One call, with what it cost."""

    id: int
    at: float
    source: str
    tool: str
    args: str
    status: str
    duration_ms: float
    principal: str
    session_id: str
    agent_id: str
    tokens_in: int
    tokens_out: int
    tokens_saved: int


class UsageBucket(NamedTuple):
    """What was used in one stretch of time."""

    number: int
    calls: int
    errors: int
    tokens_in: int
    tokens_out: int
    tokens_saved: int


_SUMMED = (
    *("principal", "session_id", "agent_id", "model", "id", "status", "tokens_in", "tokens_out", "tokens_saved"),
    *("duration_ms", "at", "roots"),
)
_NEWEST_ROWS = f"""
    SELECT {", ".join(_SUMMED)} FROM calls WHERE {_WHOSE} AND {_CALLS} ORDER BY id DESC LIMIT {_NEWEST}
"""  # noqa: S608 - built from constants
_ROWS_OF_ONE = f"SELECT {', '.join(_SUMMED)} FROM calls WHERE {_WHOSE} AND {_CALLS} AND session_id = ?3"  # noqa: S608 - own
_TOTALS = """
    SELECT principal, session_id, agent_id, model, calls, errors, tokens_in, tokens_out, tokens_saved, busy, first,
           last, roots, coalesce((
               SELECT sandbox FROM calls AS one WHERE one.session_id = totals.session_id AND sandbox <> ''
               ORDER BY id DESC LIMIT 1
           ), '')
    FROM (
        SELECT principal, session_id, max(agent_id) AS agent_id, max(model) AS model, count(*) AS calls,
               {failed} AS errors, sum(tokens_in) AS tokens_in, sum(tokens_out) AS tokens_out,
               sum(tokens_saved) AS tokens_saved, sum(duration_ms) AS busy, min(at) AS first, max(at) AS last,
               max(roots) AS roots, max(id) AS latest
        FROM ({rows}) AS newest GROUP BY principal, session_id ORDER BY latest DESC LIMIT {limit}
    ) AS totals ORDER BY latest DESC
"""
_SESSIONS, _SESSION = (
    _TOTALS.format(rows=rows, limit=limit, failed=_FAILED)
    for rows, limit in ((_NEWEST_ROWS, "?3"), (_ROWS_OF_ONE, "1"))
)
_SOME_CALLS = f"""
    SELECT {", ".join(SessionCall._fields)} FROM calls
    WHERE {_WHOSE} AND {_CALLS} AND (?3 IS NULL OR session_id = ?3) ORDER BY id DESC LIMIT ?4
"""  # noqa: S608 - built from constants
_DENIALS = f"""
    SELECT {", ".join(SessionCall._fields)}
    FROM (SELECT * FROM calls WHERE {_WHOSE} ORDER BY id DESC LIMIT {_NEWEST}) AS newest
    WHERE source = 'network' ORDER BY id DESC LIMIT ?3
"""  # noqa: S608 - built from constants
_BUCKETS = f"""
    SELECT CAST((at - ?3) / ?4 AS INTEGER) AS bucket, count(*), {_FAILED}, sum(tokens_in), sum(tokens_out),
           sum(tokens_saved)
    FROM calls WHERE {_WHOSE} AND {_CALLS} AND at >= ?3 AND at < ?5 GROUP BY bucket ORDER BY bucket
"""  # noqa: S608 - built from constants


def sessions(store: Store, reader: StoreReader, limit: int) -> list[SessionTotals]:
    """The sessions that called something lately, the latest first."""
    rows = store.query(_SESSIONS, (*reader.parameters(store), limit))
    return [_totals(store, row) for row in rows]


def session(store: Store, reader: StoreReader, session_id: str) -> SessionTotals | None:
    """One session by its id, the latest of that name; None if it never called anything."""
    rows = store.query(_SESSION, (*reader.parameters(store), session_id))
    return _totals(store, rows[0]) if rows else None


def _totals(store: Store, row: tuple[object, ...]) -> SessionTotals:
    totals = SessionTotals(*row)  # type: ignore[arg-type]
    return totals._replace(roots=store.workspaces.local_key(totals.roots))


def calls(store: Store, reader: StoreReader, limit: int, session_id: str | None = None) -> list[SessionCall]:
    """The latest calls, of one session or of all, newest first."""
    rows = store.query(_SOME_CALLS, (*reader.parameters(store), session_id, limit))
    return [SessionCall(*row) for row in rows]  # type: ignore[arg-type]


def denials(store: Store, reader: StoreReader, limit: int) -> list[SessionCall]:
    """What commands were denied of the network lately, newest first; `args` names the host and the reason."""
    rows = store.query(_DENIALS, (*reader.parameters(store), limit))
    return [SessionCall(*row) for row in rows]  # type: ignore[arg-type]


def usage(store: Store, reader: StoreReader, since: float, until: float, buckets: int) -> list[UsageBucket]:
    """Usage between two times in equal stretches, oldest first; a stretch without calls is empty."""
    width = (until - since) / buckets
    rows = store.query(_BUCKETS, (*reader.parameters(store), since, width, until))
    found = {int(row[0]): row for row in rows}  # type: ignore[call-overload]
    empty = (0, 0, 0, 0, 0)
    return [UsageBucket(number, *found.get(number, (number, *empty))[1:]) for number in range(buckets)]  # type: ignore[arg-type]


def tools_of(store: Store, reader: StoreReader, session_id: str) -> list[tuple[str, int, int]]:
    """The tools that a session called: name, calls, failures; the busiest first."""
    rows = store.query(
        f"""SELECT tool, count(*), {_FAILED} FROM calls WHERE {_WHOSE} AND {_CALLS} AND session_id = ?3
            GROUP BY tool ORDER BY count(*) DESC, tool""",  # noqa: S608 - built from constants
        (*reader.parameters(store), session_id),
    )
    return [(str(tool), int(count), int(failed)) for tool, count, failed in rows]  # type: ignore[call-overload]
