"""`llmc where-used`, `llmc inspect` and `llmc map`: the graph of symbols, for a person."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from ..app import App
from ..config.load import load
from ..context import Context
from ..errors import InvalidArgument
from ..printing import print_json, print_line, print_lines
from ..session import Session
from ..tools import graph
from ..tools import inspect as inspect_tool
from ..tools.index_common import Coverage, caller_of

Answer = TypeVar("Answer")

_WHERE_USED = """\
usage: llmc where-used SYMBOL [--limit N] [--json]

Who uses a symbol: a name, Class.method, path:Class.method or module.Class.method. Each place is graded: exact, likely,
or name_only where only the name is the same.
"""
_INSPECT = """\
usage: llmc inspect SYMBOL|FILE [--source] [--json]

What a symbol or a file is: its signature and documentation, who uses it, what it uses, its tests, its last commit.
"""
_MAP = """\
usage: llmc map [FOLDER] [--tokens N] [--json]

What everything else in a repository leans on, the most important first, in about N tokens (default: 1000).
"""
_TIME_S = 600.0


def where_used(arguments: list[str]) -> int:
    """Print who uses a symbol; exit code 1 for nobody."""
    words, options = _parsed(arguments, _WHERE_USED, flags=("--json",), valued=("--limit",))
    limit = _number(options, "--limit", 200)
    found = _with_context(".", lambda ctx: graph.rag_where_used(ctx, _one(words, _WHERE_USED), limit))
    if "--json" in options:
        print_json(found)
        return 0 if found.items else 1
    for row in found.items:
        print_line(f"{_relative(row.file)}:{row.line}: {row.confidence} {row.kind}: {row.snippet}")
    counts = ", ".join(f"{count} {grade}" for grade, count in found.counts.items()) or "no uses"
    print_line(f"{found.symbol} ({'; '.join(found.definitions)}): {counts}", sys.stderr)
    _print_gaps(found.completeness)
    return 0 if found.items else 1


def inspect(arguments: list[str]) -> int:
    """Print what a symbol or a file is."""
    words, options = _parsed(arguments, _INSPECT, flags=("--json", "--source"), valued=())
    what = _one(words, _INSPECT)
    path = os.path.realpath(what) if os.path.isfile(what) else None
    symbol = None if path else what
    found = _with_context(".", lambda ctx: inspect_tool.inspect(ctx, path, symbol, "--source" in options))
    if "--json" in options:
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


def repository_map(arguments: list[str]) -> int:
    """Print a map of the repository."""
    words, options = _parsed(arguments, _MAP, flags=("--json",), valued=("--tokens",))
    tokens = _number(options, "--tokens", 1_000)
    if len(words) > 1:
        raise InvalidArgument(f"one folder at a time\n{_MAP}")

    def ask(ctx: Context) -> list[str]:
        return [drawn.text for drawn in ctx.app.maps.draw(tokens, caller_of(ctx))]

    drawn = "\n".join(_with_context(words[0] if words else ".", ask))
    if "--json" in options:
        print_json({"map": drawn})
    elif drawn:
        print_lines(drawn)
    else:
        print("nothing here uses anything else that is here", file=sys.stderr)
    return 0 if drawn else 1


def _with_context(folder: str, ask: Callable[[Context], Answer]) -> Answer:
    loaded = load()
    app = App(loaded.config, [_home_of(folder)], loaded.data_dir)
    session = Session(principal=f"uid:{os.getuid()}", session_id=f"llmc-{os.getpid()}", agent_id="llmc")
    context = Context(app, session, correlation_id=f"llmc-{os.getpid()}")
    context.limit_time(_TIME_S)
    try:
        return ask(context)
    finally:
        app.close()


def _home_of(folder: str) -> str:
    """The folder whose index is meant: the repository that a folder lies in, else the folder itself."""
    here = above = os.path.realpath(folder)
    if not os.path.isdir(here):
        raise InvalidArgument(f"{folder}: not a folder")
    while above != os.path.dirname(above):
        if os.path.exists(os.path.join(above, ".git")):
            return above
        above = os.path.dirname(above)
    return here


def _parsed(
    arguments: Sequence[str], usage: str, *, flags: Sequence[str], valued: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    words: list[str] = []
    options: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if word in ("-h", "--help"):
            print(usage, end="")
            raise SystemExit(0)
        if word in flags:
            options[word] = "yes"
        elif name in valued and (equals or rest):
            options[name] = value if equals else rest.pop(0)
        elif word.startswith("-") and word != "-":
            raise InvalidArgument(f"unknown argument {word!r}\n{usage}")
        else:
            words.append(word)
    return words, options


def _one(words: list[str], usage: str) -> str:
    if len(words) != 1:
        raise InvalidArgument(f"one symbol is needed\n{usage}")
    return words[0]


def _number(options: dict[str, str], name: str, default: int) -> int:
    value = options.get(name, str(default))
    if not value.isdecimal() or not 0 < int(value) <= 100_000:
        raise InvalidArgument(f"{name} takes a number from 1 on, not {value!r}")
    return int(value)


def _relative(path: str) -> str:
    shown = os.path.relpath(path)
    return path if shown.startswith("../..") else shown


def _print_gaps(complete: Coverage) -> None:
    """What an answer does not rest on, where there is something to say."""
    if complete.files_failed:
        print(f"note: {complete.files_failed:,} files could not be parsed, or not in full", file=sys.stderr)
