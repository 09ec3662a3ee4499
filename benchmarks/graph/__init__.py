"""Where-used on real packages against pyright's language server: precision, recall, and how long each takes.

A sample of definitions is drawn whose names several definitions share: the names at which a search by name is at a
loss. For each, pyright's references are the truth; a line that declares the same name again is none of them. pyright
knows nothing of receivers without a type, so places that only the name speaks for are not counted against anybody.
"""

import random
import re
import shutil
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from llmc_mcp.app import App
from llmc_mcp.config.schema import Config
from llmc_mcp.rag.query import maps
from llmc_mcp.rag.query.resolve import DefinitionPlace
from llmc_mcp.rag.query.search import GraphView, QueryCaller
from llmc_mcp.session import Session
from llmc_mcp.tokens import estimate

from ..report import median, milliseconds, number, percentile, provenance, table
from .oracle import Place, Pyright

_PACKAGES: dict[str, tuple[str, ...]] = {
    "django": ("django",),
    "hypothesis": ("hypothesis",),
    "pytest": ("_pytest", "pytest", "pluggy"),
    "fastapi": ("fastapi", "starlette"),
}
_SAMPLE, _QUICK_SAMPLE = 100, 15
_UNIQUE = 40
_KINDS = ("function", "method", "class")
_HEAD = r"\s*(?:async\s+)?(?:def|class)\s+({})\b"
_TIME_S = 600.0


class Score(NamedTuple):
    """What was counted for one package."""

    symbols: int
    exact: int
    exact_right: int
    true: int
    found: int
    ours_ms: list[float]
    theirs_ms: list[float]


def run(work: Path, quick: bool) -> str:
    """The tables."""
    packages = {name: _PACKAGES[name] for name in (["django"] if quick else _PACKAGES)}
    sample = _QUICK_SAMPLE if quick else _SAMPLE
    rows: list[list[str]] = []
    more = ""
    for name, parts in packages.items():
        root = _copied(work / name, parts)
        with _index(root, work / f"{name}-data") as (app, caller):
            ((known, _),) = app.rag.ask(lambda known: known, caller)
            rows.append(_row(name, _score(root, known, sample)))
            if name == "django":
                more = _times(known)
    head = (
        "package",
        "symbols",
        "exact precision",
        "all recall",
        "exact recall",
        "ours p50/p95 ms",
        "pyright p50/p95 ms",
    )
    judge = f"pyright {version('pyright')}"
    return f"{table(head, rows)}\n\n{more}\n\n{provenance(judge)}"


def _copied(root: Path, parts: Iterable[str]) -> Path:
    for part in parts:
        found = find_spec(part)
        if found is not None and found.origin is not None:
            left_out = shutil.ignore_patterns("__pycache__", "locale", "*.so")
            shutil.copytree(Path(found.origin).parent, root / part, ignore=left_out)
    return root


@contextmanager
def _index(root: Path, data: Path) -> Generator[tuple[App, QueryCaller]]:
    app = App(Config(), [str(root)], str(data))
    caller = QueryCaller(Session(principal="me", session_id="benchmark"), time.monotonic() + _TIME_S, lambda: None)
    try:
        app.rag.refresh(None, True, caller)
        yield app, caller
    finally:
        app.close()


@contextmanager
def opened(folder: Path, data: Path) -> Generator[GraphView]:
    """The graph of a folder, indexed anew."""
    with _index(folder, data) as (app, caller):
        ((view, _),) = app.rag.ask(lambda view: view, caller)
        yield view


def _score(root: Path, known: GraphView, sample: int) -> Score:
    graph = known.graph
    exact = right = true = found = 0
    ours: list[float] = []
    theirs: list[float] = []
    chosen = _chosen(known, sample)
    with Pyright(root) as pyright:
        for target, line, column, declared in chosen:
            places, seconds = pyright.references(graph.path(target.file), line, column)
            theirs.append(seconds * 1000)
            began = time.perf_counter()
            uses = graph.uses([target])
            ours.append((time.perf_counter() - began) * 1000)
            truth = places - declared
            sure: set[Place] = {(graph.path(use.file), use.line) for use in uses if use.confidence == "exact"}
            every: set[Place] = {(graph.path(use.file), use.line) for use in uses}
            exact, right = exact + len(sure), right + len(sure & truth)
            true, found = true + len(truth), found + len(every & truth)
    return Score(
        symbols=len(chosen), exact=exact, exact_right=right, true=true, found=found, ours_ms=ours, theirs_ms=theirs
    )


def _chosen(known: GraphView, sample: int) -> list[tuple[DefinitionPlace, int, int, set[Place]]]:
    """Definitions of names that several have, with where their names stand and where the same name is declared."""
    graph = known.graph
    by_name: dict[str, list[DefinitionPlace]] = {}
    for file, _, language in known.files.files():
        for place, symbol in enumerate(graph.symbols(file)):
            if language == "python" and symbol.kind in _KINDS and not symbol.name.startswith("__"):
                by_name.setdefault(symbol.name, []).append(DefinitionPlace(file, place))
    shared = [one for name in sorted(by_name) if len(by_name[name]) > 1 for one in by_name[name]]
    random.Random(7).shuffle(shared)
    chosen: list[tuple[DefinitionPlace, int, int, set[Place]]] = []
    for target in shared:
        head = _head_of(known, target)
        if head is not None and len(chosen) < sample:
            heads = [(one, _head_of(known, one)) for one in by_name[graph.symbol(target).name]]
            declared = {(graph.path(one.file), place[0]) for one, place in heads if place is not None}
            chosen.append((target, *head, declared))
    return chosen


def _head_of(known: GraphView, target: DefinitionPlace) -> tuple[int, int] | None:
    symbol, source = known.graph.symbol(target), known.read(target.file)
    lines = (source or b"").decode("utf-8", "replace").split("\n")
    for line in range(symbol.first_line, min(symbol.last_line, len(lines)) + 1):
        if found := re.match(_HEAD.format(re.escape(symbol.name)), lines[line - 1]):
            return line, found.start(1)
    return None


def _row(name: str, score: Score) -> list[str]:
    def share(part: int, whole: int) -> str:
        return f"{part / whole:.3f} ({part}/{whole})" if whole else "-"

    def times(values: list[float]) -> str:
        return f"{number(median(values))} / {number(percentile(values, 0.95))}"

    return [
        name,
        str(score.symbols),
        share(score.exact_right, score.exact),
        share(score.found, score.true),
        share(score.exact_right, score.true),
        times(score.ours_ms),
        times(score.theirs_ms),
    ]


def _times(known: GraphView) -> str:
    """On Django: names that only one definition has, and the map."""
    graph = known.graph
    every = [
        DefinitionPlace(file, place) for file, *_ in known.files.files() for place in range(len(graph.symbols(file)))
    ]
    random.Random(7).shuffle(every)
    alone = [one for one in every if len(known.files.named(graph.symbol(one).name)) == 1][:_UNIQUE]
    unique = [milliseconds(lambda one=one: graph.uses([one])) for one in alone]
    drawn: list[str] = []
    spent = milliseconds(lambda: drawn.append(maps.draw(maps.ranking(known), 1_000)))
    return (
        f"Django, names that one definition has ({len(alone)}): p50 {number(median(unique))} ms,"
        f" slowest {number(max(unique))} ms (bar: 20). Its map: {number(spent)} ms (bar: 1,000 with all around it),"
        f" {estimate(drawn[0])} tokens (bar: 1,000)."
    )
