"""Repository maps for whoever asks: ranked once for what an index holds, drawn to any budget."""

from typing import NamedTuple

from ..te.filesystem import Root
from .graph_index import IndexedFiles
from .map import Ranked, draw, ranking
from .search import Caller, Known, Rag


class RootMap(NamedTuple):
    """The map of one root; `note` tells what there is to say about how fresh it is."""

    root: Root
    text: str
    note: str


class Maps:
    """Draws maps; made once per server. Ranking takes a moment, so it is kept until the index changes."""

    def __init__(self, rag: Rag) -> None:
        self._rag = rag
        self._kept: dict[Root, tuple[IndexedFiles, list[Ranked]]] = {}

    def draw(self, budget: int, caller: Caller, root: Root | None = None, below: str = "") -> list[RootMap]:
        """A map of every root, or of one, or of a folder in it; together they keep to the budget of tokens."""
        told = self._rag.ask(lambda known: (known.root, self._ranked(known)), caller)
        wanted = [(at, ranked, note) for (at, ranked), note in told if root is None or at == root]
        share = budget // max(len(wanted), 1)
        return [
            RootMap(at, draw([one for one in ranked if one.path.startswith(below)], share), note)
            for at, ranked, note in wanted
        ]

    def _ranked(self, known: Known) -> list[Ranked]:
        kept = self._kept.get(known.root)
        if kept is None or kept[0] is not known.files:
            kept = self._kept[known.root] = (known.files, ranking(known))
        return kept[1]
