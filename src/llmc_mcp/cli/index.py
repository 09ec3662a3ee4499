"""`llmc index` and `llmc search`: the code index, for a person."""

import os
import sys
import time
from typing import TYPE_CHECKING

from ..app import App
from ..config.load import load
from ..errors import InvalidArgument, ResourceBusy
from ..printing import print_json
from ..session import Session
from ..visible import visible
from .arguments import ParsedArguments

if TYPE_CHECKING:
    from ..rag.build.keeper import News
    from ..rag.query.search import QueryCaller, RankedSnippet, SearchResult

_INDEX = """\
usage: llmc index [PATH] [--full] [--json]

Brings the code index of a folder (the one you are in) up to date. Searches do that by themselves; this shows how it
goes. --full builds it anew. What .gitignore and .ragignore leave out is left out.
"""
_SEARCH = """\
usage: llmc search QUERY... [--scope repo|docs|both] [--limit N] [--glob GLOB] [--lines N] [--json] [--no-color]

Finds code by what it does or by its name: llmc search where are retries configured. Works offline.

  --scope    repo: code (default); docs: Markdown and the like; both
  --limit N  how many hits (default: 8)
  --glob     only files whose path matches: '*.py', 'src/**/*.ts'
  --lines N  lines shown of each hit (default: 12)
"""
_FOREVER_S = 24 * 3600.0
_TOKENS_A_LINE = 14
_BAR = 24


def _app(folder: str) -> App:
    loaded = load()
    return App(loaded.config, [folder], loaded.data_dir)


def _home_of(folder: str) -> str:
    """The folder whose index is meant: the repository that a folder lies in, else the folder itself."""
    here = os.path.realpath(folder)
    if not os.path.isdir(here):
        raise InvalidArgument(f"{folder}: not a folder")
    above = here
    while above != os.path.dirname(above):
        if os.path.exists(os.path.join(above, ".git")):
            return above
        above = os.path.dirname(above)
    return here


def _caller(bar: "_Bar") -> "QueryCaller":
    from ..rag.query.search import QueryCaller

    who = Session(principal=f"uid:{os.getuid()}", session_id=f"llmc-{os.getpid()}", agent_id="llmc")
    return QueryCaller(who, time.monotonic() + _FOREVER_S, _never, bar.show)


def _never() -> None:
    """A person who waits can press ^C."""


class _Bar:
    """A progress bar on a person's terminal; nothing anywhere else."""

    def __init__(self) -> None:
        self._shown = False
        self._on = sys.stderr.isatty()

    def show(self, news: "News") -> None:
        if not self._on or not news.busy:
            return
        if news.files_total:
            filled = _BAR * news.files_done // news.files_total
            text = f"[{'#' * filled}{'.' * (_BAR - filled)}] {news.files_done:,} of {news.files_total:,} files"
        else:
            text = "looking at the files"
        print(f"\r\x1b[Kindexing {text}", end="", file=sys.stderr, flush=True)
        self._shown = True

    def clear(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._shown = False


# --- index -----------------------------------------------------------------------------------------


def index(arguments: list[str]) -> int:
    """Build or update the index of a folder."""
    words = ParsedArguments(arguments, _INDEX, ("--full", "--json"), free=True)
    if len(words.left) > 1:
        raise InvalidArgument(f"one folder at a time\n{_INDEX}")
    folder = _home_of(words.left[0] if words.left else ".")
    app, bar = _app(folder), _Bar()
    started = time.monotonic()
    try:
        (news,) = app.rag.refresh(None, "--full" in words.given, _caller(bar))
        (stats,) = app.rag.stats()
    finally:
        bar.clear()
        app.close()
    if news is None or stats.totals is None:
        raise ResourceBusy("the index is still being built")
    totals = stats.totals
    row = {
        "root": folder,
        "files": totals.files,
        "chunks": totals.chunks,
        "symbols": totals.symbols,
        "changed": news.changed,
        "removed": news.removed,
        "skipped": totals.skipped,
        "languages": totals.languages,
        "source_bytes": totals.source_bytes,
        "index_bytes": stats.bytes,
        "seconds": round(time.monotonic() - started, 2),
        "notes": stats.notes,
    }
    if "--json" in words.given:
        print_json(row)
        return 0
    print(f"{folder}: {totals.files:,} files, {totals.chunks:,} chunks, {totals.symbols:,} symbols")
    changes = f"{news.changed:,} indexed, {news.removed:,} removed" if news.changed or news.removed else "up to date"
    print(f"{changes} in {row['seconds']} s; the index has {stats.bytes / 1e6:.1f} MB", file=sys.stderr)
    for reason, count in totals.skipped.items():
        print(f"not indexed: {count:,} ({reason})", file=sys.stderr)
    for note in stats.notes:
        print(f"note: {note}", file=sys.stderr)
    return 0


# --- search ----------------------------------------------------------------------------------------


def search(arguments: list[str]) -> int:
    """Print what a question finds; exit code 1 for nothing, like grep."""
    valued = ("--scope", "--limit", "--glob", "--lines")
    words = ParsedArguments(arguments, _SEARCH, ("--json", "--no-color"), valued, free=True)
    if not words.left:
        raise InvalidArgument(f"what are you looking for?\n{_SEARCH}")
    scope = words.values.get("--scope", "repo")
    if scope not in ("repo", "docs", "both"):
        raise InvalidArgument(f"--scope is repo, docs or both, not {scope!r}")
    from ..rag.query.search import CodeQuery

    limit, lines = words.number("--limit", 8), words.number("--lines", 12)
    asked = CodeQuery(" ".join(words.left), scope, limit, limit * lines * _TOKENS_A_LINE, words.values.get("--glob"))
    folder = _home_of(".")
    app, bar = _app(folder), _Bar()
    try:
        answer = app.rag.search(asked, _caller(bar))
    finally:
        bar.clear()
        app.close()
    if "--json" in words.given:
        print_json([_row(hit) for hit in answer.hits])
    else:
        coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and "--no-color" not in words.given
        _print(answer, asked.text, folder, coloured)
    if answer.freshness != "fresh":
        print(f"note: {answer.freshness}", file=sys.stderr)
    return 0 if answer.hits else 1


def _row(hit: "RankedSnippet") -> dict[str, object]:
    from ..files import names

    return {
        "path": names.show(hit.path),
        "first_line": hit.numbers[0],
        "last_line": hit.numbers[-1],
        "score": round(hit.score, 3),
        "symbol": hit.symbol,
        "kind": hit.kind,
        "text": hit.text,
    }


def _print(answer: "SearchResult", question: str, folder: str, coloured: bool) -> None:
    from ..rag.parse import words
    from ..rag.query.snippets import GAP

    wanted = set(words.question(question).words)
    here = os.path.realpath(".")
    for number, hit in enumerate(answer.hits):
        if number:
            print()
        print(_heading(hit, folder, here, coloured))
        numbers = iter(hit.numbers)
        for row in hit.text.split("\n"):
            gap = row == GAP
            mark = " " * 6 if gap else f"{next(numbers):>6}"
            text = _marked(visible(row, keep="\t"), wanted, coloured)
            print(f"{_paint(mark, '2', coloured)}  {text}")
    if not answer.hits:
        print("nothing found", file=sys.stderr)


def _heading(hit: "RankedSnippet", folder: str, here: str, coloured: bool) -> str:
    full = os.path.join(folder, os.fsdecode(hit.path))
    shown = visible(os.path.relpath(full, here))
    place = _paint(f"{shown}:{hit.numbers[0]}", "1;36", coloured)
    if coloured:  # terminals that know nothing of links show the text alone
        from urllib.parse import quote

        place = f"\x1b]8;;file://{quote(os.fsencode(full))}\x1b\\{place}\x1b]8;;\x1b\\"
    symbol = f"  {_paint(visible(f'{hit.kind} {hit.symbol}'), '33', coloured)}" if hit.symbol else ""
    return f"{place}{symbol}"


def _marked(row: str, wanted: set[str], coloured: bool) -> str:
    """A line with the words that were asked for in bold."""
    if not coloured:
        return row
    import re

    from ..rag.parse import words

    def mark(found: re.Match[str]) -> str:
        hit = wanted.intersection(words.terms(found[0]).split())
        return _paint(found[0], "1;31", True) if hit else found[0]

    return re.sub(r"\w+", mark, row)


def _paint(text: str, colour: str, coloured: bool) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if coloured else text
