"""A map of a repository: what everything else leans on, within a budget of tokens.

Files vote for the files whose definitions they use (PageRank, as for pages that link to each other); a definition's
weight is what the files that use it have to give. Names that a whole repository defines again and again say little,
and tests vote but are not shown.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from ...files.filesystem import Root
from ...tokens import estimate
from ..parse.scopes import CLASSES, FUNCTIONS
from .graph_index import State
from .questions import TESTS
from .resolve import DefinitionPlace, Resolver, Symbol
from .search import CodeSearch, GraphView, QueryCaller

_DAMPING = 0.85
_ROUNDS = 24
_SHOWN = CLASSES | FUNCTIONS
_SIGNATURE = 100
_PER_FILE = 8
_HELPING = 4  # definitions of the ranking that are added at a time until the budget is full
_OF_ITS_METHODS = 0.5  # of what a method weighs goes to its class


class WeightedDefinition(NamedTuple):
    """A definition and what it weighs."""

    target: DefinitionPlace
    symbol: Symbol
    path: str
    weight: float


class RootMap(NamedTuple):
    """The map of one root; `note` tells what there is to say about how fresh it is."""

    root: Root
    text: str
    note: str


class Maps:
    """Draws maps; made once per server. Ranking takes a moment, so it is kept until the index changes."""

    def __init__(self, rag: CodeSearch) -> None:
        self._rag = rag
        self._kept: dict[Root, tuple[State, list[WeightedDefinition]]] = {}

    def draw(self, budget: int, caller: QueryCaller, root: Root | None = None, below: str = "") -> list[RootMap]:
        """A map of every root, or of one, or of a folder in it; together they keep to the budget of tokens."""
        told = self._rag.ask(lambda known: (known.root, self._ranked(known, caller.check)), caller, root)
        share = budget // max(len(told), 1)
        return [
            RootMap(at, draw([one for one in ranked if one.path.startswith(below)], share), note)
            for (at, ranked), note in told
        ]

    def _ranked(self, known: GraphView, check: Callable[[], None]) -> list[WeightedDefinition]:
        kept = self._kept.get(known.root)
        if kept is None or kept[0] != known.files.state:
            kept = self._kept[known.root] = (known.files.state, ranking(known, check))
        return kept[1]


def ranking(known: GraphView, check: Callable[[], None] = lambda: None) -> list[WeightedDefinition]:
    """The definitions that matter most to the rest, best first."""
    links, used = _votes(known, check)
    files = [file for file, *_ in known.files.files()]
    ranks = _pagerank(files, links)
    weights: dict[DefinitionPlace, float] = defaultdict(float)
    for (source, target), count in used.items():
        check()
        given = (ranks.get(source, 0.0) + 1.0 / len(files)) * count**0.5  # an unimportant file's vote counts, too
        weights[target] += given
        parent = known.graph.symbol(target).parent
        if parent >= 0:
            weights[DefinitionPlace(target.file, parent)] += given * _OF_ITS_METHODS
    ranked: list[WeightedDefinition] = []
    for target, weight in weights.items():
        symbol, path = known.graph.symbol(target), known.graph.path(target.file)
        if symbol.kind in _SHOWN and not TESTS.search(path):
            private = symbol.name.startswith("_")
            ranked.append(WeightedDefinition(target, symbol, path, weight * (0.2 if private else 1.0)))
    return sorted(ranked, key=lambda one: (-one.weight, one.path, one.symbol.first_line))


def _votes(
    known: GraphView, check: Callable[[], None]
) -> tuple[dict[int, dict[int, float]], dict[tuple[int, DefinitionPlace], int]]:
    """Which file uses which file how much, and which definition.

    Every file is looked at once: what is read and linked on the way is forgotten again, or the graph would hold all
    of the repository for questions that nobody asks.
    """
    links: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    used: dict[tuple[int, DefinitionPlace], int] = defaultdict(int)
    files = known.files.apart()
    resolver = Resolver(files, known.graph.modules)
    for file, _, _ in files.files():
        check()
        for reference, count in files.passing(file).distinct():
            receiver = reference.receiver
            if receiver[:1] in ("", "?", "=", "~") and not receiver.startswith("~<"):
                continue  # not known, or its own
            values = [value for value in resolver.resolve(file, reference) if value.what == "definition"]
            for value in values[:1]:
                if value.file != file:
                    links[file][value.file] += count**0.5
                    used[file, value.target] += count
    return links, used


def _pagerank(files: list[int], links: dict[int, dict[int, float]]) -> dict[int, float]:
    count = len(files) or 1
    totals = {file: sum(targets.values()) for file, targets in links.items()}
    shares = {file: [(to, weight / totals[file]) for to, weight in links[file].items()] for file in links}
    ranks = dict.fromkeys(files, 1.0 / count)
    for _ in range(_ROUNDS):
        idle = sum(ranks[file] for file in files if file not in shares)
        base = (1.0 - _DAMPING + _DAMPING * idle) / count
        fresh = dict.fromkeys(files, base)
        for file, targets in shares.items():
            gives = _DAMPING * ranks.get(file, 0.0)
            for to, share in targets:
                fresh[to] = fresh.get(to, base) + gives * share
        ranks = fresh
    return ranks


def draw(ranked: list[WeightedDefinition], budget: int) -> str:
    """As much of a ranking as the budget allows, file by file in the order of their best definitions."""
    best = ""
    for many in range(_HELPING, len(ranked) + _HELPING, _HELPING):
        drawn = _drawn(ranked[:many])
        if estimate(drawn) > budget:
            return best or _cut(ranked[:many], budget)
        best = drawn
    return best


def _cut(ranked: list[WeightedDefinition], budget: int) -> str:
    """A budget that is smaller than one helping."""
    best = ""
    for many in range(1, len(ranked) + 1):
        drawn = _drawn(ranked[:many])
        if estimate(drawn) > budget:
            break
        best = drawn
    return best


def _drawn(ranked: list[WeightedDefinition]) -> str:
    by_file: dict[str, list[WeightedDefinition]] = {}
    for one in ranked:
        mine = by_file.setdefault(one.path, [])
        if len(mine) < _PER_FILE:
            mine.append(one)
    lines: list[str] = []
    for path, mine in by_file.items():
        lines.append(f"{path}:")
        for one in sorted(mine, key=lambda each: each.symbol.first_line):
            lines.append(f"  {one.symbol.first_line} {_head(one.symbol)}")
    return "\n".join(lines)


def _head(symbol: Symbol) -> str:
    """A definition in a line: methods with their class, without what repeats itself."""
    head = symbol.signature
    if "." in symbol.qualname and symbol.name in head:
        head = head.replace(symbol.name, symbol.qualname, 1)
    return head if len(head) <= _SIGNATURE else head[: _SIGNATURE - 1] + "…"
