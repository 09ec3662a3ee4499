"""`llmc stats` and `llmc calls`: what agents did, for a person."""

import sys
import time

from ..config.schema import data_directory
from ..errors import InvalidArgument
from ..printing import print_json, print_line
from ..store.calls import ToolTotals, by_tool, newest
from ..store.root_sets import folder_of, paths_of
from ..store.sqlite import Store
from ..visible import visible

_STATS = """\
usage: llmc stats [--days N] [--json]

Calls per tool over all servers of this user: how many, how many failed, how fast (median, 95th percentile), estimated
tokens in and out, and how many were kept from the model by cutting replies. --days N: of the last N days only.
"""
_CALLS = """\
usage: llmc calls [-n N] [--tool NAME] [--json]

The latest calls, newest first: when, how long, how it ended, which tool, with what. Secrets are never recorded.

  -n N          how many (default: 20)
  --tool NAME   of this tool only
"""


def command(arguments: list[str]) -> int:
    """`llmc stats`."""
    options = _options(arguments, {"--days": 0}, _STATS)
    if options is None:
        return 0
    days = _number(options, "--days")
    totals = by_tool(Store(data_directory()), None, since=time.time() - days * 86_400 if days else 0.0)
    if "--json" in options:
        print_json([one._asdict() for one in totals])
    elif totals:
        _print_totals(totals)
    else:
        print("no calls yet", file=sys.stderr)
    return 0


def calls(arguments: list[str]) -> int:
    """`llmc calls`."""
    options = _options(arguments, {"-n": 20, "--tool": ""}, _CALLS)
    if options is None:
        return 0
    found = newest(Store(data_directory()), None, _number(options, "-n"), tool=options.get("--tool") or None)
    if "--json" in options:
        print_json([{**one._asdict(), "roots": paths_of(one.roots)} for one in found])
        return 0
    for call in found:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(call.at))
        line = f"{when}  {call.duration_ms:>8,.1f} ms  {call.status:<14} {call.tool:<24} {call.args}"
        print_line(f"{line.rstrip()}  [{folder_of(call.roots)}]")
    if not found:
        print("no calls yet", file=sys.stderr)
    return 0


def _options(arguments: list[str], known: dict[str, object], usage: str) -> dict[str, str] | None:
    if "-h" in arguments or "--help" in arguments:
        print(usage, end="")
        return None
    options, todo = {name: str(value) for name, value in known.items()}, list(arguments)
    while todo:
        name, has_value, value = todo.pop(0).partition("=")
        if name == "--json" and not has_value:
            options[name] = "yes"
        elif name in known and (has_value or todo):
            options[name] = value if has_value else todo.pop(0)
        else:
            raise InvalidArgument(f"unknown argument {name!r}", hint=usage.splitlines()[0])
    return options


def _number(options: dict[str, str], name: str) -> int:
    if not options[name].isdigit():
        raise InvalidArgument(f"{name} {options[name]}: expected a whole number")
    return int(options[name])


def _print_totals(totals: list[ToolTotals]) -> None:
    rows = [_row(one) for one in totals]
    if len(totals) > 1:
        rows.append(_row(_sum(totals), percentiles=False))
    head = ("tool", "calls", "errors", "p50 ms", "p95 ms", "tokens in", "tokens out", "tokens saved")
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    for row in [head, *rows]:
        first, *others = (
            cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in _cells(row, widths)
        )
        print("  ".join([first, *others]).rstrip())


def _cells(row: tuple[str, ...], widths: list[int]) -> "enumerate[tuple[str, int]]":
    return enumerate(zip(row, widths, strict=True))


def _row(one: ToolTotals, *, percentiles: bool = True) -> tuple[str, ...]:
    times = (f"{one.p50_ms:,.1f}", f"{one.p95_ms:,.1f}") if percentiles else ("", "")
    tokens = (f"{one.tokens_in:,}", f"{one.tokens_out:,}", f"{one.tokens_saved:,}")
    return (visible(one.tool), f"{one.calls:,}", f"{one.errors:,}", *times, *tokens)


def _sum(totals: list[ToolTotals]) -> ToolTotals:
    def add(column: str) -> int:
        return sum(getattr(one, column) for one in totals)

    counts = (add("tokens_in"), add("tokens_out"), add("tokens_saved"))
    return ToolTotals("all", add("calls"), add("errors"), 0.0, 0.0, *counts)
