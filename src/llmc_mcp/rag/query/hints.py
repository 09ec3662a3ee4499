"""What to tell about a result that is empty or poor: an agent that knows why asks better."""

from collections.abc import Sequence

from ...files import names
from ..parse import words
from ..parse.question import LONGEST, Question
from ..store.types import QuestionTerms
from .hits import LoadedHit

_POOR = 0.3  # share of the question's words, by rarity, below which no hit is called good
_LOOKED_AT = 3  # hits
_NAMED = 5  # unknown words that are named


def on_result(text: str, question: Question, terms: Sequence[QuestionTerms], hits: Sequence[LoadedHit]) -> str:
    """Notes on a result, joined by semicolons; empty for a good one."""
    notes: list[str] = []
    if len(text.strip()) > LONGEST:
        notes.append(f"only the first {LONGEST:,} of {len(text.strip()):,} characters were read")
    if not question.words and not question.names and not question.places:
        notes.append("no word of the query says anything about code: name what you look for")
        return "; ".join(notes)
    unknown = _unknown(terms)
    if unknown and not question.is_task:
        notes.append(f"no file holds {', '.join(unknown[:_NAMED])}")
    if not hits:
        notes.append("nothing found: use other words, or linux_search_content for exact text")
    elif not question.is_task and not question.symbol and not question.is_path and _coverage(terms, hits) < _POOR:
        notes.append("no good match: the hits share few words with the query")
    return "; ".join(notes)


def _unknown(terms: Sequence[QuestionTerms]) -> list[str]:
    """The words that no index knows."""
    each = [set(one.unknown) for one in terms]
    return [word for word in terms[0].unknown if all(word in one for one in each)] if terms else []


def _coverage(terms: Sequence[QuestionTerms], hits: Sequence[LoadedHit]) -> float:
    """The share of the question's words that the first hits hold, by rarity."""
    weights = {term: weight for one in terms for term, weight in one.weights.items()}
    texts = (" ".join([names.show(hit.path), hit.symbol or "", *hit.piece.lines]) for hit in hits[:_LOOKED_AT])
    held = set(words.terms(" ".join(texts)).split())
    total = sum(weights.values())
    return sum(weight for term, weight in weights.items() if term in held) / total if total else 0.0
