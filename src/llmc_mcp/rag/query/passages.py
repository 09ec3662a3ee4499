"""The definitions of a file that answer a question: its best chunks are read once more, definition by definition.

A chunk may hold several small functions, or a part of a large one. What a reader wants is the one that answers.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import mul
from typing import NamedTuple

from ..parse import words
from ..parse.question import Question, last_name, owner_name
from ..parse.scopes import CLASSES, FUNCTIONS
from ..parse.types import Chunk, Definition
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
    definitions: Sequence[Definition],
    chunks: Sequence[Chunk],
    scores: Mapping[int, float],
    question: Question,
    terms: QuestionTerms,
) -> list[Passage]:
    """The functions and types in the best chunks of a file, best first; `scores` are of chunks."""
    weights = terms.definition
    rows = features(source, definitions, chunks, scores, question, terms)
    made = [Passage(at, sum(map(mul, weights, row))) for at, row in rows.items()]
    return sorted(made, key=lambda one: (-one.score, one.definition))


def features(
    source: bytes,
    definitions: Sequence[Definition],
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
    own = _own_texts(source, definitions, best)
    named = _Named(question)
    return {at: _features(definitions[at], own[at], score, named, terms) for at, score in best.items()}


def _inside(definitions: Sequence[Definition], chunk: Chunk) -> list[int]:
    """The functions and types that share lines with a chunk; a type with more than itself only where it begins."""
    first, last = chunk.span.first_line, chunk.span.last_line
    found: list[int] = []
    for at, one in enumerate(definitions):
        is_function = one.kind in FUNCTIONS and one.span.first_line <= last and one.span.last_line >= first
        if is_function or (one.kind in CLASSES and first <= one.span.first_line <= last):
            found.append(at)
    return found


def is_code(definitions: Sequence[Definition], chunk: Chunk) -> bool:
    """Whether a chunk holds a function or a type, or a part of one."""
    return bool(_inside(definitions, chunk)) or (
        chunk.definition >= 0 and definitions[chunk.definition].kind in CLASSES | FUNCTIONS
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


def _own_texts(source: bytes, definitions: Sequence[Definition], wanted: Mapping[int, float]) -> dict[int, str]:
    """The text of each definition; that of a type without its functions."""
    inside: dict[int, list[Definition]] = {at: [] for at in wanted if definitions[at].kind in CLASSES}
    for one in definitions:
        if one.parent in inside:
            inside[one.parent].append(one)
    texts: dict[int, str] = {}
    for at in wanted:
        start, end = definitions[at].span.start, definitions[at].span.end
        pieces: list[bytes] = []
        for one in inside.get(at, ()):
            pieces.append(source[start : one.span.start])
            start = max(start, one.span.end)
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


def _features(one: Definition, text: str, chunk: float, named: _Named, terms: QuestionTerms) -> _Definition:
    counts = Counter(words.terms(text).split())
    norm = _SATURATION * (0.4 + 0.6 * sum(counts.values()) / _AVERAGE)
    found = ((weight, counts[term]) for term, weight in terms.weights.items() if term in counts)
    shared = sum(weight * count / (count + norm) for weight, count in found)
    term = words.name_term(one.name)
    parts = set(words.terms(one.qualname).split())
    total = max(sum(terms.weights.values()), 1.0)
    owner = words.name_term(one.qualname.removesuffix(f".{one.name}").rpartition(".")[2])
    return _Definition(
        chunk=chunk,
        text=2.2 * shared / total,
        name=sum(terms.weights.get(part, 0.0) for part in parts) / total,
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
