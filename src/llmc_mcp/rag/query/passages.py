"""The definitions of a file that answer a question: its best chunks are read once more, definition by definition.

A chunk may hold several small functions, or a part of a large one. What a reader wants is the one that answers.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import mul
from typing import NamedTuple

from ..parse import words
from ..parse.outline import StoredOutline
from ..parse.question import Question, last_name, owner_name
from ..parse.scopes import CLASSES, FUNCTIONS
from ..parse.types import Chunk, Definition, Span
from ..store.types import QuestionTerms

_AVERAGE = 60  # terms of a definition
_SATURATION = 1.2  # BM25's k1
_FRAME_STEP = 0.8  # what a frame of a traceback counts of the one inside it


class Passage(NamedTuple):
    """A definition and how well it answers."""

    definition: int
    score: float


class _Definition(NamedTuple):
    """How well a definition fits: the features of `store.types.DEFINITION_FEATURES`, in their order."""

    chunk: float
    text: float
    name: float
    titled: float
    told: float
    quoted: float
    frame: float
    is_type: float


def ranked(
    source: bytes,
    definitions: StoredOutline,
    chunks: Sequence[Chunk],
    scores: Mapping[int, float],
    question: Question,
    terms: QuestionTerms,
) -> list[Passage]:
    """The functions and types in the best chunks of a file, best first; `scores` are of chunks.

    To a question that is a name, what is named exactly so comes first: `_name` and `Name` have the same words.
    """
    weights = terms.definition
    rows = features(source, definitions, chunks, scores, question, terms)
    made = [Passage(at, sum(map(mul, weights, row))) for at, row in rows.items()]
    exactly = {last_name(name) for name in question.names} if question.symbol else set[str]()
    return sorted(made, key=lambda one: (definitions.name(one.definition) not in exactly, -one.score, one.definition))


def features(
    source: bytes,
    definitions: StoredOutline,
    chunks: Sequence[Chunk],
    scores: Mapping[int, float],
    question: Question,
    terms: QuestionTerms,
) -> dict[int, _Definition]:
    """The features of each definition that shares lines with one of the chunks."""
    best: dict[int, float] = {}
    for number, score in scores.items():
        if number < len(chunks):
            for at in _inside(definitions, chunks[number]):
                best[at] = max(best.get(at, 0.0), score)
    wanted = {at: definitions[at] for at in best}
    own = _own_texts(source, wanted, definitions.parts([at for at in best if definitions.is_type(at)]))
    named, total = _Named(question), max(sum(terms.weights.values()), 1.0)
    return {at: _features(wanted[at], own[at], score, named, terms.weights, total) for at, score in best.items()}


def _inside(definitions: StoredOutline, chunk: Chunk) -> list[int]:
    """The functions and types that share lines with a chunk; a type with more than itself only where it begins."""
    first, last = chunk.span.first_line, chunk.span.last_line
    return [
        at
        for at, kind, begins, ends in definitions.code
        if begins <= last and (begins >= first or (ends >= first and kind in FUNCTIONS))
    ]


def is_code(definitions: StoredOutline, chunk: Chunk) -> bool:
    """Whether a chunk holds a function or a type, or a part of one."""
    return bool(_inside(definitions, chunk)) or (
        chunk.definition >= 0 and definitions.kind(chunk.definition) in CLASSES | FUNCTIONS
    )


def best_chunk(definition: Definition, chunks: Sequence[Chunk], scores: Mapping[int, float]) -> int:
    """The best of the chunks that share lines with a definition."""
    span = definition.span
    inside = [
        number
        for number in scores
        if chunks[number].span.first_line <= span.last_line and chunks[number].span.last_line >= span.first_line
    ]
    return max(inside, key=lambda number: scores[number])


def _own_texts(source: bytes, wanted: Mapping[int, Definition], parts: Mapping[int, list[Span]]) -> dict[int, str]:
    """The text of each definition; that of a type without its functions."""
    texts: dict[int, str] = {}
    for at, one in wanted.items():
        start, end = one.span.start, one.span.end
        pieces: list[bytes] = []
        for part in parts.get(at, ()):
            pieces.append(source[start : part.start])
            start = max(start, part.end)
        texts[at] = b" ".join([*pieces, source[start:end]]).decode("utf-8", "replace")
    return texts


class _Named:
    """The names in a question, by where they stand."""

    def __init__(self, question: Question) -> None:
        self.title = _terms_of(question.names)
        self.prose = _terms_of(question.prose_names)
        self.code = _terms_of(question.code_names)
        self.frames: dict[str, float] = {}
        worth = 1.0
        for _, function in question.frames:
            self.frames.setdefault(words.name_term(last_name(function)), worth)
            worth *= _FRAME_STEP


def _terms_of(names: Sequence[str]) -> dict[str, set[str]]:
    """The last part of each name, and the owners that it is written with."""
    found: dict[str, set[str]] = {}
    for name in names:
        owners = found.setdefault(words.name_term(last_name(name)), set())
        if owner := owner_name(name):
            owners.add(words.name_term(owner))
    return found


def _features(
    one: Definition, text: str, chunk: float, named: _Named, weights: Mapping[str, float], total: float
) -> _Definition:
    """How well a definition fits; `total` is what its words can weigh at most."""
    found = words.terms(text).split()
    norm = _SATURATION * (0.4 + 0.6 * len(found) / _AVERAGE)
    counts = Counter(found)
    shared = sum([weight * counts[term] / (counts[term] + norm) for term, weight in weights.items() if term in counts])
    term = words.name_term(one.name)
    parts = set(words.terms(one.qualname).split())
    owner = words.name_term(one.qualname.removesuffix(f".{one.name}").rpartition(".")[2])
    return _Definition(
        chunk=chunk,
        text=2.2 * shared / total,
        name=sum([weights[part] for part in parts if part in weights]) / total,
        titled=_says(named.title, term, owner),
        told=_says(named.prose, term, owner),
        quoted=_says(named.code, term, owner),
        frame=named.frames.get(term, 0.0),
        is_type=float(one.kind in CLASSES),
    )


def _says(names: Mapping[str, set[str]], term: str, owner: str) -> float:
    """Whether a definition is named: wholly by its owner too, half by its name alone, not at all as another's."""
    owners = names.get(term)
    if owners is None:
        return 0.0
    return 1.0 if owner in owners else 0.5 if owners else 0.7
