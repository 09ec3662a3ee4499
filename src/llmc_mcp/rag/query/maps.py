"""A map of a repository: the definitions that the rest depends on most, within a token budget.

Files vote for the files whose definitions they use (PageRank, as for pages that link to each other); a definition's
weight is the sum of the votes of the files that use it. A call whose receiver is unknown counts for the only method of
that name. Names that are defined all over a repository count little, and tests vote but are not shown.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from ...files.filesystem import Root
from ...tokens import estimate
from ..parse.scopes import CLASSES, FUNCTIONS
from .graph_index import IndexedFiles, State
from .questions import TESTS
from .resolve import DefinitionPlace, Resolver, Symbol
from .search import CodeSearch, GraphView, QueryCaller

_DAMPING = 0.85
_ROUNDS = 24
_SHOWN = CLASSES | FUNCTIONS
_SIGNATURE = 100
_PER_FILE = 8
_BATCH = 4  # definitions added at a time until the budget is used up
_OBJECTS = frozenset({"variable", "constant"})  # shown if they hold an instance: settings = LazySettings()
_GUESSED = 0.5  # of a vote, if only the name speaks for it
_METHOD_SHARE = 0.5  # of a method's weight is added to its class


class WeightedDefinition(NamedTuple):
    """A definition and its weight."""

    target: DefinitionPlace
    symbol: Symbol
    path: str
    weight: float


class RootMap(NamedTuple):
    """The map of one root; `note` reports on the freshness of the index."""

    root: Root
    text: str
    note: str


class Maps:
    """Draws maps; made once per server. Ranking is slow, so its result is cached until the index changes."""

    def __init__(self, rag: CodeSearch) -> None:
        self._rag = rag
        self._kept: dict[Root, tuple[State, list[WeightedDefinition]]] = {}

    def draw(self, budget: int, caller: QueryCaller, root: Root | None = None, below: str = "") -> list[RootMap]:
        """A map of every root, or of one, or of a folder in it; together they stay within the token budget."""
        answers = self._rag.ask(lambda view: (view.root, self._ranked(view, caller.check)), caller, root)
        share = budget // max(len(answers), 1)
        return [
            RootMap(at, draw([one for one in ranked if one.path.startswith(below)], share), note)
            for (at, ranked), note in answers
        ]

    def _ranked(self, view: GraphView, check: Callable[[], None]) -> list[WeightedDefinition]:
        kept = self._kept.get(view.root)
        if kept is None or kept[0] != view.files.state:
            kept = self._kept[view.root] = (view.files.state, ranking(view, check))
        return kept[1]


def ranking(view: GraphView, check: Callable[[], None] = lambda: None) -> list[WeightedDefinition]:
    """The definitions that the rest of the repository depends on, most important first."""
    links, used = _votes(view, check)
    files = [file for file, *_ in view.files.files()]
    ranks = _pagerank(files, links)
    weights: dict[DefinitionPlace, float] = defaultdict(float)
    for (source, target), count in used.items():
        check()
        given = (ranks.get(source, 0.0) + 1.0 / len(files)) * count**0.5  # an unimportant file's vote counts, too
        weights[target] += given
        parent = view.graph.symbol(target).parent
        if parent >= 0:
            weights[DefinitionPlace(target.file, parent)] += given * _METHOD_SHARE
    ranked: list[WeightedDefinition] = []
    for target, weight in weights.items():
        symbol, path = view.graph.symbol(target), view.graph.path(target.file)
        if (symbol.kind in _SHOWN or _is_object(view, target, symbol)) and not TESTS.search(path):
            private = symbol.name.startswith("_")
            ranked.append(WeightedDefinition(target, symbol, path, weight * (0.2 if private else 1.0)))
    return sorted(ranked, key=lambda one: (-one.weight, one.path, one.symbol.first_line))


def _is_object(view: GraphView, target: DefinitionPlace, symbol: Symbol) -> bool:
    """Whether a name at the top of a file holds an instance of something."""
    if symbol.kind not in _OBJECTS or symbol.parent >= 0:
        return False
    paths = view.files.passing(target.file).bindings.get((-1, symbol.name), ())
    return any(path.endswith("()") for path in paths)


def _votes(
    view: GraphView, check: Callable[[], None]
) -> tuple[dict[int, dict[int, float]], dict[tuple[int, DefinitionPlace], float]]:
    """How much each file uses each other file and each definition.

    Every file is visited once, with a cache of its own that is dropped afterwards: otherwise the graph would keep the
    whole repository in memory for queries that never come.
    """
    links: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    used: dict[tuple[int, DefinitionPlace], float] = defaultdict(float)
    files = view.files.apart()
    resolver = Resolver(files, view.graph.modules)
    for file, _, _ in files.files():
        check()
        for reference, count in files.passing(file).distinct():
            receiver = reference.receiver
            unknown = receiver[:1] == "?"
            if receiver[:1] in ("", "=", "~") and not receiver.startswith("~<"):
                continue  # of the language, or in the same file
            values = [] if unknown else resolver.resolve(file, reference)
            found = [value for value in values if value.what == "definition"]
            for value in found[:1]:
                if value.file != file:
                    links[file][value.file] += count**0.5
                    used[file, value.target] += count
            if not found and reference.kind == "call" and (unknown or any(one.what == "unknown" for one in values)):
                only = _only_method(files, reference.name)
                if only is not None and only.file != file:
                    used[file, only] += count * _GUESSED
    return links, used


def _only_method(files: IndexedFiles, name: str) -> DefinitionPlace | None:
    """The method that has a name, if there is only one definition of it."""
    named = files.named(name)
    if len(named) != 1 or files.symbols(named[0].file)[named[0].place].kind != "method":
        return None
    return named[0]


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
    for many in range(_BATCH, len(ranked) + _BATCH, _BATCH):
        drawn = _drawn(ranked[:many])
        if estimate(drawn) > budget:
            return best or _cut(ranked[:many], budget)
        best = drawn
    return best


def _cut(ranked: list[WeightedDefinition], budget: int) -> str:
    """The map for a budget that is smaller than one batch."""
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
    """The signature of a definition on one line; methods are shown with their class."""
    head = symbol.signature
    if "." in symbol.qualname and symbol.name in head:
        head = head.replace(symbol.name, symbol.qualname, 1)
    return head if len(head) <= _SIGNATURE else head[: _SIGNATURE - 1] + "…"
