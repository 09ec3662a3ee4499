"""Search of many indexes: the few that the question is about are ranked, by one measure of how rare its words are.

A ranked answer takes milliseconds an index, too many for a hundred of them. To count the files that hold a word takes
microseconds. So the counts of all indexes say how rare each word is in all of them together, and which indexes hold the
rare ones; only those are ranked. The same rarities weigh the words in each, so that scores can be compared: a word that
is rare in one repository and common in all others counts as what it is, common.
"""

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

from ..parse import words
from ..parse.question import Question, last_name
from . import embed
from .index import Counts, IndexReader
from .tables import IndexDamaged
from .types import ManyReply, ManyRequest, RankedBuild

_OPEN = 256  # indexes that stay open
_RANKED = 5  # indexes of those that hold most of a question
_LEAST_SHARE = 0.5  # of what the best one holds
_TERMS = 24  # of a question that are counted
_HALF = 2.0  # files with a word that make half of what a word can add
_DEFINED = 2.0  # what a definition of a name counts more than a mention


class ManyIndexes:
    """Indexes that were searched lately, kept open."""

    def __init__(self) -> None:
        self._readers: OrderedDict[str, IndexReader] = OrderedDict()
        self._whole: set[str] = set()  # builds that were seen complete

    def search(self, request: ManyRequest) -> ManyReply:
        """The best chunks of the builds that hold most of a question."""
        counts: dict[str, Counts] = {}
        damaged: list[str] = []
        unfinished: dict[str, int] = {}
        for build in request.builds:
            try:
                reader = self._reader(build)
                reader.catch_up()
                counts[build] = reader.counts(*_terms(request.question))
                if not self._is_whole(reader):
                    unfinished[build] = len(reader.all_paths(reader.searched))
            except IndexDamaged:
                self._readers.pop(build, None)
                damaged.append(build)
        rarities = rarities_of(counts.values())
        embedding = embed.load(request.embedding)
        found: list[RankedBuild] = []
        for build in chosen(counts, rarities):
            try:
                reader = self._reader(build)
                ranked = reader.search(request.question, request.scope, None, request.limit, embedding, rarities)
                found.append(RankedBuild(build, ranked, reader.searched))
            except IndexDamaged:
                self._readers.pop(build, None)
                damaged.append(build)
        return ManyReply(found, damaged, unfinished)

    def _reader(self, build: str) -> IndexReader:
        reader = self._readers.get(build)
        if reader is None:
            reader = self._readers[build] = IndexReader(build)
            while len(self._readers) > _OPEN:
                self._readers.popitem(last=False)
        self._readers.move_to_end(build)
        return reader

    def _is_whole(self, reader: IndexReader) -> bool:
        """Whether the first build has ended; its tables say so a moment before its text is there to be searched."""
        if reader.complete and reader.searched == reader.generation:
            self._whole.add(reader.build)
        return reader.build in self._whole


def _terms(question: Question) -> tuple[list[str], list[str]]:
    """The terms of a question to count, and the names."""
    names = [words.name_term(last_name(name)) for name in question.names]
    return [*question.stems, *question.wholes][:_TERMS], [name for name in names if name]


def rarities_of(counts: Iterable[Counts]) -> dict[str, float]:
    """How rare each term is in all indexes together, by BM25's measure."""
    every = list(counts)
    files = sum(one.files for one in every)
    terms = dict.fromkeys(term for one in every for term in one.holding)
    totals = {term: sum(one.holding.get(term, 0) for one in every) for term in terms}
    return {term: math.log(1 + (files - n + 0.5) / (n + 0.5)) for term, n in totals.items() if n}


def chosen(counts: Mapping[str, Counts], rarities: Mapping[str, float]) -> Sequence[str]:
    """The indexes that hold most of a question, the best first."""
    scores = {build: _worth(one, rarities) for build, one in counts.items()}
    best = max(scores.values(), default=0.0)
    order = sorted(scores, key=lambda build: (-scores[build], build))[:_RANKED]
    return [build for build in order if scores[build] > 0 and scores[build] >= _LEAST_SHARE * best]


def _worth(counts: Counts, rarities: Mapping[str, float]) -> float:
    held = sum(rarities.get(term, 0.0) * n / (n + _HALF) for term, n in counts.holding.items())
    highest = max(rarities.values(), default=1.0)
    return held + _DEFINED * highest * sum(n > 0 for n in counts.defining.values())
