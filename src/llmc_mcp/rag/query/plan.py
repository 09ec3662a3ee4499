"""Where to look for a task: its intent, the symbols that it names, and the places that matter, each with its reason.

No model is involved: the same words and the same index give the same plan.
"""

import os
import re
from collections.abc import Callable
from typing import Literal, NamedTuple

from ...files.filesystem import Root
from ..parse import words
from ..parse.scopes import CLASSES, FUNCTIONS
from .questions import TESTS, Site, find, where_used
from .search import CodeQuery, CodeSearch, GraphView, QueryCaller, RankedSnippet, check_query

Intent = Literal["fix", "add", "change", "remove", "optimise", "test", "document", "understand"]

_INTENTS: dict[Intent, frozenset[str]] = {
    "fix": frozenset(
        {"fix", "bug", "error", "fail", "fails", "failing", "broken", "crash", "wrong", "regression", "leak"}
    ),
    "optimise": frozenset(
        {"slow", "fast", "faster", "performance", "optimize", "optimise", "speed", "memory", "latency"}
    ),
    "remove": frozenset({"remove", "delete", "drop", "deprecate", "retire"}),
    "test": frozenset({"test", "tests", "coverage", "pytest", "unittest"}),
    "document": frozenset({"document", "docs", "docstring", "readme", "changelog", "documentation"}),
    "change": frozenset(
        {"refactor", "rename", "move", "extract", "split", "change", "replace", "migrate", "update", "port"}
    ),
    "add": frozenset({"add", "implement", "create", "support", "introduce", "new", "allow", "enable", "build"}),
    "understand": frozenset(
        {"how", "why", "what", "where", "who", "which", "explain", "understand", "does", "show", "find"}
    ),
}
_SIGNS = frozenset(word for signs in _INTENTS.values() for word in signs)
_NAMES = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\.|::)[A-Za-z_$][\w$]*)*(?:\(\))?")
_PLAIN = re.compile(r"[a-z]+")  # an English word may happen to be a name
_MOST_NAMES = 40  # names of one task that are looked up
_FEW = 4  # definitions of a plain word; one with more is not treated as a name
_SPANS = {"summary": 6, "full": 16}
_USERS = {"summary": 2, "full": 5}


class PlanSpan(NamedTuple):
    """A place to look at, and why."""

    path: bytes
    root: Root
    first_line: int
    last_line: int
    score: float
    rationale: str


class TaskPlan(NamedTuple):
    """The places that a task concerns."""

    intent: Intent
    symbols: list[str]
    spans: list[PlanSpan]
    confidence: float
    freshness: str


def intent_of(query: str) -> Intent:
    """The intent of a task, by the first word that indicates one; to understand, if none does."""
    task_words = re.findall(r"[a-z]+", query.lower())
    for word in task_words:  # the first word decides
        for intent, signs in _INTENTS.items():
            if word in signs:
                return intent
    return "understand"


def make(rag: CodeSearch, query: str, detail: Literal["summary", "full"], caller: QueryCaller) -> TaskPlan:
    """Make a plan for a task described in words."""
    check_query(query)
    named = rag.ask(lambda view: _named(view, query, _USERS[detail], caller.check), caller)
    spans = [span for (found, _), _ in named for span in found]
    symbols = [name for (_, found), _ in named for name in found]
    answer = rag.search(CodeQuery(query, "both", _SPANS[detail], 4_000), caller)
    listed = {(span.path, span.first_line) for span in spans}
    for rank, hit in enumerate(answer.hits):
        if not any(path == hit.path and first in hit.numbers for path, first in listed):
            spans.append(_of_hit(hit, query, rank))
    spans.sort(key=lambda span: -span.score)
    notes = [note for _, note in named if note] or ([answer.freshness] if answer.freshness != "fresh" else [])
    confidence = _confidence(query, bool(symbols), answer.hits)
    return TaskPlan(intent_of(query), symbols, spans[: _SPANS[detail]], confidence, "; ".join(notes) or "fresh")


def _named(view: GraphView, query: str, users: int, check: Callable[[], None]) -> tuple[list[PlanSpan], list[str]]:
    """The definitions that a task names, and what uses them."""
    spans: list[PlanSpan] = []
    symbols: list[str] = []
    for written in list(dict.fromkeys(_NAMES.findall(query)))[:_MOST_NAMES]:
        targets = [one for one in find(view, written) if view.graph.symbol(one).kind in CLASSES | FUNCTIONS]
        if _PLAIN.fullmatch(written):
            targets = [one for one in targets if view.graph.symbol(one).parent < 0 and written not in _SIGNS]
        if not targets or (_PLAIN.fullmatch(written) and (len(targets) > _FEW or len(written) < 5)):
            continue
        for one in targets[:_FEW]:
            symbol = view.graph.symbol(one)
            path = os.fsencode(view.graph.path(one.file))
            score = 1.0 if len(targets) == 1 else 0.9
            spans.append(
                PlanSpan(path, view.root, symbol.first_line, symbol.last_line, score, f"defines {symbol.qualname}")
            )
            symbols.append(symbol.qualname)
        answer = where_used(view, written, targets[:_FEW], 40, check)
        spans += _users(view, answer.sites, targets[0].file, users)
    return spans, symbols


def _users(view: GraphView, sites: list[Site], own: int, most: int) -> list[PlanSpan]:
    sure = [site for site in sites if site.confidence != "name_only" and site.kind != "import"]
    home = os.fsencode(view.graph.path(own))
    found: dict[bytes, PlanSpan] = {}
    for site in sure:
        if site.path not in found and site.path != home and len(found) < most:
            test = TESTS.search(site.path.decode("utf-8", "replace"))
            verb = "tests it" if test else "inherits from it" if site.kind == "inherit" else "uses it"
            why = f"{site.inside or 'the file'} {verb}: {site.snippet}"
            found[site.path] = PlanSpan(site.path, view.root, site.line, site.line, 0.6 if test else 0.7, why[:120])
    return list(found.values())


def _of_hit(hit: RankedSnippet, query: str, rank: int) -> PlanSpan:
    text = hit.text.lower()
    shared = [word for word in dict.fromkeys(re.findall(r"\w{3,}", query.lower())) if word in text]
    what = f"{hit.kind or 'text'} {hit.symbol}" if hit.symbol else "text"
    why = f"{what} matches: {', '.join(shared[:6])}" if shared else f"{what} is close in meaning"
    return PlanSpan(hit.path, hit.root, hit.numbers[0], hit.numbers[-1], round(0.65 / (1 + 0.25 * rank), 3), why)


def _confidence(query: str, named: bool, hits: list[RankedSnippet]) -> float:
    """The share of the query's words that the hits contain."""
    terms = [term for term in dict.fromkeys(re.findall(r"[a-z]{3,}", query.lower())) if term not in words.STOP]
    text = " ".join(f"{hit.symbol or ''} {hit.text}" for hit in hits).lower()
    share = sum(term in text for term in terms) / len(terms) if terms else 0.0
    return round(min(0.3 * named + 0.65 * share, 0.95), 2) if hits or named else 0.0
