"""`llmc index` and `llmc search`: the code index, for a person."""

import os
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from ..app import App
from ..command_line import JSON, Arguments, Flag, Positional, declare
from ..config.load import load
from ..errors import NotFound, ResourceBusy
from ..policy import is_below
from ..printing import counted, print_json
from ..visible import visible
from .person import for_people, indexed_folder, never, path_of, session, shown

if TYPE_CHECKING:
    from ..rag.build.messages import News
    from ..rag.query.search import QueryCaller, RankedSnippet, Scope, SearchResult

_FOREVER_S = 24 * 3600.0
_PATIENCE_S = 5.0  # for a first build to be complete; after that, a search shows what there is
_LINES_BESIDES = 4  # the path and the name of a hit, in lines
_TOKENS_A_LINE = 14
_BAR = 24


def _app(folder: str) -> App:
    loaded = load()
    loaded.config.rag.roots = (shown(folder),)
    return App(loaded.config, [folder], loaded.data_dir)


def _app_on_all() -> App:
    """An app whose roots are all folders that are indexed: this person's own."""
    from ..rag.store.layout import indexed_folders

    loaded = load()
    every = [path_of(path) for path, _ in indexed_folders(loaded.data_dir)]
    folders = [path for path in every if os.path.isdir(path)]
    if not folders:
        raise NotFound("no repository is indexed", hint="llmc repos add PATH indexes one.")
    return App(loaded.config, folders, loaded.data_dir)


def _caller(bar: "_Bar") -> "QueryCaller":
    from ..rag.query.search import QueryCaller

    return QueryCaller(session(), time.monotonic() + _FOREVER_S, never, bar.show, patience=_PATIENCE_S)


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


@contextmanager
def _at_work(app: App, bar: _Bar, folder: str | None) -> Generator[None]:
    """Close both in the end; whoever presses ^C is told what becomes of the first build of a folder."""
    try:
        try:
            yield
        finally:
            bar.clear()
            app.close()
    except KeyboardInterrupt:
        if folder is not None and (note := _kept(app, folder)):
            print(f"stopped: {note}", file=sys.stderr)
        raise


def _kept(app: App, folder: str) -> str:
    """What is left of a first build that was interrupted; empty where the index is complete."""
    from ..rag.store.layout import home_of
    from ..rag.store.tables import IndexDamaged, IndexTables

    build = home_of(app.data_dir, os.fsencode(folder)).current()
    try:
        if build is None or IndexTables(build).complete:
            return "" if build else "nothing is indexed yet"
    except IndexDamaged:  # its files are being made
        return "nothing is indexed yet"
    return "what is indexed so far is kept; the next search goes on with it"


# --- index -----------------------------------------------------------------------------------------


@declare(
    "index",
    "Brings the code index of a folder up to date. Searches do that by themselves; this shows the progress. Files that"
    " .gitignore or .ragignore exclude are not indexed.",
    positionals=(Positional("PATH", "the folder (default: this one)", required=False),),
    flags=(Flag("--full", "build the index anew"), JSON),
    dashed_words=True,
)
def index(given: Arguments) -> int:
    """Build or update the index of a folder."""
    folder = indexed_folder(given.first() or ".", named=bool(given.first()))
    app, bar = _app(folder), _Bar()
    started = time.monotonic()
    with _at_work(app, bar, folder):
        (news,) = app.rag.refresh(None, "--full" in given, _caller(bar))
        (stats,) = app.rag.stats()
    if news is None or stats.totals is None:
        raise ResourceBusy("the index is still being built")
    totals = stats.totals
    row = {
        "root": shown(folder),
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
    if "--json" in given:
        print_json(row)
        return 0
    sizes = ((totals.files, "file"), (totals.chunks, "chunk"), (totals.symbols, "symbol"))
    print(f"{shown(folder)}: {', '.join(counted(number, thing) for number, thing in sizes)}")
    changes = f"{news.changed:,} read, {news.removed:,} removed" if news.changed or news.removed else "up to date"
    print(f"{changes} in {row['seconds']} s; the index has {stats.bytes / 1e6:.1f} MB", file=sys.stderr)
    for reason, count in totals.skipped.items():
        print(f"not indexed: {count:,} ({reason})", file=sys.stderr)
    for note in stats.notes:
        print(f"note: {note}", file=sys.stderr)
    return 0


# --- search ----------------------------------------------------------------------------------------


@declare(
    "search",
    "Finds code by what it does or by its name: llmc search where are retries configured. Works offline. The first"
    " search of a folder builds its index, which is asked for in / and in a home. Exit code 1 when nothing is found.",
    positionals=(Positional("QUERY", "", repeated=True),),
    flags=(
        Flag("--scope", "repo: code; docs: Markdown and the like; both", "SCOPE", ("repo", "docs", "both"), "repo"),
        Flag("--limit", "how many hits", "N", default="8"),
        Flag("--glob", "only files whose path matches: '*.py', 'src/**/*.ts'", "GLOB"),
        Flag("--all", "search every repository that is indexed, not only this one; llmc repos lists them"),
        Flag("--lines", "lines shown of each hit", "N", default="12"),
        JSON,
        Flag("--no-color", "no colours, as with NO_COLOR"),
    ),
    dashed_words=True,
)
def search(given: Arguments) -> int:
    """Print the hits of a query; exit code 1 for none, like grep."""
    from ..rag.query.search import CodeQuery

    limit, lines = given.number("--limit"), given.number("--lines")
    query = CodeQuery(
        " ".join(given.positionals),
        cast("Scope", given.value("--scope")),
        limit,
        limit * (lines + _LINES_BESIDES) * _TOKENS_A_LINE,
        given.value("--glob") or None,
        lines,
    )
    everywhere = "--all" in given
    folder = None if everywhere else indexed_folder(".")
    app, bar = _app_on_all() if folder is None else _app(folder), _Bar()
    with _at_work(app, bar, folder):
        answer = app.rag.search(query._replace(repos=("*",) if everywhere else ()), _caller(bar))
    if "--json" in given:
        print_json([{**_row(hit), "freshness": answer.freshness} for hit in answer.hits])
    else:
        coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and "--no-color" not in given
        _print(answer, query.text, coloured)
    if answer.freshness != "fresh":
        print(f"note: {answer.freshness}", file=sys.stderr)
    return 0 if answer.hits else 1


def _row(hit: "RankedSnippet") -> dict[str, object]:
    from ..files import names

    return {
        "path": names.show(hit.path),
        "root": hit.root.shown,
        "first_line": hit.numbers[0],
        "last_line": hit.numbers[-1],
        "score": round(hit.score, 3),
        "symbol": hit.symbol,
        "kind": hit.kind,
        "text": hit.text,
    }


def _print(answer: "SearchResult", question: str, coloured: bool) -> None:
    from ..rag.parse.question import question as parse_question

    wanted = set(parse_question(question).words)
    here = os.path.realpath(".")
    for number, hit in enumerate(answer.hits):
        if number:
            print()
        print(_heading(hit, here, coloured))
        rows = iter(hit.text.split("\n"))
        for before, line in zip([0, *hit.numbers], hit.numbers, strict=False):
            if before and line != before + 1:
                next(rows)  # the gap: line numbers show it
                print(_paint("     …", "2", coloured))
            text = _marked(visible(next(rows), keep="\t"), wanted, coloured)
            print(f"{_paint(f'{line:>6}', '2', coloured)}  {text}")
    if answer.hint:
        print(f"hint: {for_people(answer.hint)}", file=sys.stderr)


def _heading(hit: "RankedSnippet", here: str, coloured: bool) -> str:
    folder = os.fsdecode(hit.root.real)
    full = os.path.join(folder, os.fsdecode(hit.path))
    path = os.path.relpath(full, here) if is_below(here, folder) or is_below(folder, here) else full
    place = _paint(f"{visible(shown(path))}:{hit.numbers[0]}", "1;36", coloured)
    if coloured:  # terminals that know nothing of links show the text alone
        from urllib.parse import quote

        place = f"\x1b]8;;file://{quote(os.fsencode(full))}\x1b\\{place}\x1b]8;;\x1b\\"
    symbol = f"  {_paint(visible(f'{hit.kind} {hit.symbol}'), '33', coloured)}" if hit.symbol else ""
    return f"{place}{symbol}"


def _marked(row: str, wanted: set[str], coloured: bool) -> str:
    """A line with the words of the query in bold."""
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
