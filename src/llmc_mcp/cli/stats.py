"""`llmc stats` and `llmc calls`: what agents did, for a person."""

import sys
import time

from ..command_line import JSON, Arguments, Flag, declare
from ..config.load import load
from ..config.schema import Config
from ..printing import print_json, print_line
from ..store.calls import ToolTotals, by_tool, newest
from ..store.opening import store_of
from ..store.root_keys import paths_of
from ..store.root_sets import folder_of
from ..visible import visible


@declare(
    "stats",
    "Calls per tool over all servers of this user: how many, how many failed, how fast (median, 95th percentile),"
    " estimated tokens in and out, and how many tokens were saved by cutting replies.",
    flags=(Flag("--days", "only the last N days; 0: all", "N", default="0"), JSON),
)
def command(given: Arguments) -> int:
    """Print totals per tool."""
    days = given.number("--days", least=0)
    loaded = load()
    store = store_of(loaded.config.store, loaded.data_dir)
    totals = by_tool(store, None, since=time.time() - days * 86_400 if days else 0.0)
    if "--json" in given:
        print_json([one._asdict() for one in totals])
    elif totals:
        _print_totals(totals)
    else:
        print("no calls yet", file=sys.stderr)
    return 0


@declare(
    "calls",
    "The latest calls, newest first: when, how long, how it ended, which tool, with what. Secrets are never recorded.",
    flags=(Flag("-n", "how many", "N", default="20"), Flag("--tool", "calls of this tool only", "NAME"), JSON),
)
def calls(given: Arguments) -> int:
    """Print the latest calls."""
    loaded = load()
    store = store_of(loaded.config.store, loaded.data_dir)
    found = newest(store, None, given.number("-n", least=0), tool=given.value("--tool") or None)
    if "--json" in given:
        print_json([{**one._asdict(), "roots": paths_of(one.roots)} for one in found])
        return 0
    for call in found:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(call.at))
        line = f"{when}  {call.duration_ms:>8,.1f} ms  {call.status:<20} {call.tool:<24} {call.args}"
        print_line(f"{line.rstrip()}  [{folder_of(call.roots)}]")
    if not found:
        print(_why_none(given.value("--tool")), file=sys.stderr)
    return 0


def _why_none(tool: str) -> str:
    if not tool:
        return "no calls yet"
    from ..command_line import near
    from ..gate.catalog import Catalog

    known = list(Catalog(Config(mode="classic")).tools)
    if tool in known:
        return f"no calls of {tool} yet"
    return f"there is no tool {visible(tool)}. {near(tool, known)}".rstrip()


def _print_totals(totals: list[ToolTotals]) -> None:
    rows = [_row(one) for one in totals]
    if len(totals) > 1:
        rows.append(_row(_sum(totals), percentiles=False))
    head = ("tool", "calls", "errors", "p50 ms", "p95 ms", "p99 ms", "tokens in", "tokens out", "tokens saved")
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    for row in [head, *rows]:
        first, *others = (
            cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in _cells(row, widths)
        )
        print("  ".join([first, *others]).rstrip())


def _cells(row: tuple[str, ...], widths: list[int]) -> "enumerate[tuple[str, int]]":
    return enumerate(zip(row, widths, strict=True))


def _row(one: ToolTotals, *, percentiles: bool = True) -> tuple[str, ...]:
    times = [f"{took:,.1f}" if percentiles else "" for took in (one.p50_ms, one.p95_ms, one.p99_ms)]
    tokens = (f"{one.tokens_in:,}", f"{one.tokens_out:,}", f"{one.tokens_saved:,}")
    return (visible(one.tool), f"{one.calls:,}", f"{one.errors:,}", *times, *tokens)


def _sum(totals: list[ToolTotals]) -> ToolTotals:
    def add(column: str) -> int:
        return sum(getattr(one, column) for one in totals)

    counts = (add("tokens_in"), add("tokens_out"), add("tokens_saved"))
    return ToolTotals("all", add("calls"), add("errors"), 0.0, 0.0, 0.0, *counts)
