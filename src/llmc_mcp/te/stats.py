"""`te --stats`: commands run by te, by agent, with durations, tokens saved, and what to condense next."""

import json
import time
from typing import cast

from ..store.base import Store
from ..store.data_dir import data_directory
from ..store.root_sets import VISIBLE, RootSet, visible_to
from ..store.schema import count_of
from ..store.sqlite import SqliteStore
from ..visible import visible
from .folder import reader

_SHOWN = 15

# Title, the columns' names, and where they come from; te_run's commands have rows of their own.
_FROM = f"FROM calls WHERE source IN ('te', 'te_run') AND {VISIBLE.format(parameter='?1')}"
_FAILED, _FALLBACKS = count_of("status<>'ok'"), count_of("mode='fallback'")
_TABLES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        "commands",
        ("command", "runs", "failed", "mean ms", "tokens shown", "tokens saved", "fallbacks"),
        f"SELECT substr(tool, 4), count(*), {_FAILED}, round(avg(duration_ms)), sum(tokens_out),"
        f" sum(tokens_saved), {_FALLBACKS} {_FROM} GROUP BY tool ORDER BY 2 DESC, 1 LIMIT ?2",
    ),
    (
        "agents",
        ("agent", "sessions", "runs", "tokens shown", "tokens saved"),
        "SELECT agent_id, count(DISTINCT session_id), count(*), sum(tokens_out), sum(tokens_saved)"
        f" {_FROM} GROUP BY agent_id ORDER BY 3 DESC, 1 LIMIT ?2",
    ),
    (
        "slow",
        ("command", "when", "ms", "status", "agent"),
        f"SELECT substr(tool, 4), at, round(duration_ms), status, agent_id {_FROM} ORDER BY duration_ms DESC LIMIT ?2",
    ),
    (
        "enrich next",
        ("command", "runs", "tokens shown", "mode"),
        f"SELECT substr(tool, 4), count(*), sum(tokens_out), mode {_FROM} AND mode IN ('passthrough', 'raw')"
        " GROUP BY tool, mode HAVING sum(tokens_out)>0 ORDER BY 3 DESC LIMIT ?2",
    ),
)


def tables(store: Store, reader: RootSet | None) -> dict[str, tuple[tuple[str, ...], list[tuple[object, ...]]]]:
    """Every table by its title: the names of its columns, and its rows."""
    visible = visible_to(store, reader)
    found = {title: (names, store.query(sql, (visible, _SHOWN))) for title, names, sql in _TABLES}
    names, rows = found["slow"]
    found["slow"] = names, [(name, _moment(cast(float, at)), *others) for name, at, *others in rows]
    return found


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def show(as_json: bool) -> int:
    """Print the tables."""
    found = tables(SqliteStore(data_directory()), reader())
    if as_json:
        rows = {
            title.replace(" ", "_"): [dict(zip((n.replace(" ", "_") for n in names), row, strict=True)) for row in rows]
            for title, (names, rows) in found.items()
        }
        print(json.dumps(rows, indent=2))
        return 0
    for title, (names, rows) in found.items():
        print(f"{title}\n{as_table(names, rows)}\n")
    return 0


def as_table(names: tuple[str, ...], rows: list[tuple[object, ...]]) -> str:
    """Rows below the names of their columns."""
    if not rows:
        return "  nothing yet"
    cells = [names, *(tuple(_cell(value) for value in row) for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(names))]
    return "\n".join("  " + "  ".join(_aligned(row, widths)) for row in cells)


def _aligned(row: tuple[str, ...], widths: list[int]) -> list[str]:
    return [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]


def _cell(value: object) -> str:
    return f"{int(value):,}" if isinstance(value, int | float) else visible(cast(str, value))
