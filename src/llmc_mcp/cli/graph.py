"""`llmc where-used`, `llmc inspect` and `llmc map`: the graph of symbols, for a person."""

import os
import sys
from typing import TYPE_CHECKING, cast

from ..command_line import JSON, Arguments, Flag, Positional, declare
from ..printing import print_json, print_line, print_lines
from ..tools.index_common import Coverage, caller_of
from .person import context, gate_on, indexed_folder

if TYPE_CHECKING:
    from ..tools.graph import Uses
    from ..tools.inspect import Inspection

_MOST_USES = 1_000  # that rag_where_used lists
_REPLY_BYTES = 1 << 30  # nothing is cut: a person has a pager


@declare(
    "where-used",
    "Lists who uses a symbol. Each place is graded: exact, likely, or name_only where only the name is the same. Exit"
    " code 1 when nobody uses it.",
    positionals=(Positional("SYMBOL", "a name, Class.method, path:Class.method or module.Class.method"),),
    flags=(Flag("--limit", "how many places", "N", default="200"), JSON),
)
def where_used(given: Arguments) -> int:
    """Print who uses a symbol."""
    limit = given.number("--limit", most=_MOST_USES)
    found = cast("Uses", _call("rag_where_used", {"symbol": given.positionals[0], "limit": limit}))
    if "--json" in given:
        print_json(found)
        return 0 if found.items else 1
    for row in found.items:
        print_line(f"{_relative(row.file)}:{row.line}: {row.confidence} {row.kind}: {row.snippet}")
    counts = ", ".join(f"{count} {grade}" for grade, count in found.counts.items()) or "no uses"
    print_line(f"{found.symbol} ({'; '.join(found.definitions)}): {counts}", sys.stderr)
    _print_gaps(found.completeness)
    return 0 if found.items else 1


@declare(
    "inspect",
    "Shows what a symbol or a file is: its signature and documentation, who uses it, what it uses, its tests, its last"
    " commit.",
    positionals=(Positional("SYMBOL|FILE", "a file, or a symbol as llmc where-used takes it"),),
    flags=(Flag("--source", "print its whole source"), JSON),
)
def inspect(given: Arguments) -> int:
    """Print what a symbol or a file is."""
    name = given.positionals[0]
    subject = {"path": os.path.realpath(name)} if os.path.isfile(name) else {"symbol": name}
    found = cast("Inspection", _call("inspect", {**subject, "include_full_source": "--source" in given}))
    if "--json" in given:
        print_json(found)
        return 0
    print_line(f"{_relative(found.path)}:{found.lines}  {found.kind} {found.symbol or ''}")
    for text in (found.signature, found.docstring):
        if text:
            print_lines(f"  {text}")
    source = getattr(found, "full_source", "")
    if source:
        print_lines(source)
    parts = {
        "defines": found.defined_symbols,
        "used by": found.incoming_calls,
        "uses": found.outgoing_calls,
        "tests": found.related_tests,
        "docs": found.related_docs,
        "last commit": [found.last_commit] if found.last_commit else [],
        "also called that": found.others,
    }
    for name, lines in parts.items():
        if lines:
            print(f"{name}:")
            for line in lines:
                print_line(f"  {line}")
    _print_gaps(found.completeness)
    return 0


@declare(
    "map",
    "Prints what everything else in a repository depends on, the most important first. Exit code 1 for an empty map.",
    positionals=(Positional("FOLDER", "the repository (default: the one you are in)", required=False),),
    flags=(Flag("--tokens", "about how many tokens", "N", default="1000"), JSON),
)
def repository_map(given: Arguments) -> int:
    """Print a map of the repository."""
    tokens = given.number("--tokens", most=100_000)
    gate = gate_on(indexed_folder(given.first() or ".", named=bool(given.first())))
    try:
        ctx = context(gate)
        maps = gate.ask(ctx, "map", {"tokens": tokens}, lambda: gate.app.maps.draw(tokens, caller_of(ctx)))
    finally:
        gate.close()
    drawn = "\n".join(one.text for one in maps)
    if "--json" in given:
        print_json({"map": drawn})
    elif drawn:
        print_lines(drawn)
    else:
        print("nothing here uses anything else that is here", file=sys.stderr)
    return 0 if drawn else 1


def _call(tool: str, arguments: dict[str, object]) -> object:
    gate = gate_on(indexed_folder("."))
    try:
        return gate.call(context(gate), tool, arguments, reply_bytes=_REPLY_BYTES)
    finally:
        gate.close()


def _relative(path: str) -> str:
    shown = os.path.relpath(path)
    return path if shown.startswith("../..") else shown


def _print_gaps(coverage: Coverage) -> None:
    """Say which part of the repository an answer lacks."""
    if coverage.files_failed:
        print(f"note: {coverage.files_failed:,} files could not be parsed, or not in full", file=sys.stderr)
