"""Where to look for a task: its intent, the symbols that it names, and the files that matter, each with its reasons.

The files are those of a search, in its order.
No model is involved: the same words and the same index give the same plan.
"""

import os
import re
from collections.abc import Callable
from typing import Literal, NamedTuple

from ...files.filesystem import Root
from ..parse import words
from ..parse.question import LONGEST, Question
from ..parse.question import question as parse_question
from ..parse.scopes import CLASSES, FUNCTIONS
from .questions import TESTS, Site, find, where_used
from .search import CodeQuery, CodeSearch, GraphView, QueryCaller, RankedSnippet, Scope, check_query
from .types import RankedDefinition

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
_PLAIN = re.compile(r"[a-z]+")  # an English word may happen to be a name
_MOST_NAMES = 12  # names of one task that are looked up
_MOST_SHARED = 6  # words that are told as a reason
_FEW = 4  # definitions of a plain word; one with more is not treated as a name
_FILES = {"summary": 10, "full": 20}
_SYMBOLS = {"summary": 3, "full": 6}  # of one file
_USERS = {"summary": 2, "full": 5}
_BUDGET = 4_000  # tokens of the hits that a plan is made from


class PlanSpan(NamedTuple):
    """A place to look at, and why."""

    path: bytes
    root: Root
    first_line: int
    last_line: int
    score: float  # of its file; 0 for a place that the search did not find
    rationale: str


class PlanFile(NamedTuple):
    """A file that a task concerns, why, and its definitions to look at, best first."""

    path: bytes
    root: Root
    score: float
    reasons: list[str]
    symbols: list[RankedDefinition]


class TaskPlan(NamedTuple):
    """The files and places that a task concerns."""

    intent: Intent
    symbols: list[str]
    files: list[PlanFile]
    spans: list[PlanSpan]
    confidence: float
    freshness: str
    hint: str


def intent_of(query: str) -> Intent:
    """The intent of a task, by the first word that indicates one; to understand, if none does."""
    task_words = re.findall(r"[a-z]+", query.lower())
    for word in task_words:  # the first word decides
        for intent, signs in _INTENTS.items():
            if word in signs:
                return intent
    return "understand"


def make(rag: CodeSearch, query: str, detail: Literal["summary", "full"], caller: QueryCaller) -> TaskPlan:
    """Make a plan for a task described in words: the files that a search finds, in its order, then who uses them."""
    check_query(query)
    intent, question = intent_of(query), parse_question(query)
    scope: Scope = "both" if intent == "document" or question.wants_aside else "repo"
    answer = rag.search(CodeQuery(query, scope, _FILES[detail], _BUDGET), caller)
    named = rag.ask(lambda view: _named(view, question, _USERS[detail], caller.check), caller)
    symbols = list(dict.fromkeys(name for (_, found), _ in named for name in found))
    files = [_file(hit, query, question, set(symbols), _SYMBOLS[detail]) for hit in _one_of_each(answer.hits)]
    spans = [span for file, hit in zip(files, _one_of_each(answer.hits), strict=True) for span in _spans(file, hit)]
    found = {(span.path, span.first_line) for span in spans}
    others = [span for (around, _), _ in named for span in around if (span.path, span.first_line) not in found]
    spans += others[: _FILES[detail]]
    notes = [note for _, note in named if note] or ([answer.freshness] if answer.freshness != "fresh" else [])
    confidence = _confidence(question, bool(symbols), answer.hits)
    return TaskPlan(intent, symbols, files, spans, confidence, "; ".join(notes) or "fresh", answer.hint)


def _one_of_each(hits: list[RankedSnippet]) -> list[RankedSnippet]:
    """The first hit of each file."""
    return list({(hit.path, hit.root): hit for hit in reversed(hits)}.values())[::-1]


def _file(hit: RankedSnippet, query: str, question: Question, named: set[str], most: int) -> PlanFile:
    symbols = list(hit.definitions[:most])
    return PlanFile(hit.path, hit.root, round(hit.score, 3), _reasons(hit, query, question, named), symbols)


def _reasons(hit: RankedSnippet, query: str, question: Question, named: set[str]) -> list[str]:
    """Why a file is in the plan, the strongest reason first."""
    path = os.fsdecode(hit.path).lower()
    reasons: list[str] = []
    frame = next((function for place, function in question.frames if place.endswith(path)), None)
    if frame is not None:
        reasons.append(f"in the traceback: {frame}" if frame else "in the traceback")
    elif any(path.endswith(place) or place.endswith(path) for place in question.places):
        reasons.append("named by its path")
    defined = [one.name for one in hit.definitions if one.name in named]
    if defined:
        reasons.append(f"defines {', '.join(defined)}")
    shared = _shared(hit, query)
    if shared:
        reasons.append(f"matches: {', '.join(shared)}")
    return reasons or ["close to the words of the task"]


def _shared(hit: RankedSnippet, query: str) -> list[str]:
    """Words of the task as it writes them, the first ones, that the hit holds in any form."""
    held = set(words.terms(f"{os.fsdecode(hit.path)} {hit.symbol or ''} {hit.text}").split())
    found: dict[str, str] = {}
    for word in words.all_words(query[:LONGEST]):
        stems, whole = words.take_apart(word)
        asked = {whole} if whole else set(stems.split())
        if len(word) > 2 and asked and asked <= held:
            found.setdefault(whole or stems, word)
        if len(found) == _MOST_SHARED:
            break
    return list(found.values())


def _spans(file: PlanFile, hit: RankedSnippet) -> list[PlanSpan]:
    """The definitions of a file as places; what was found of it where it defines nothing."""
    if not file.symbols:
        return [PlanSpan(file.path, file.root, hit.numbers[0], hit.numbers[-1], file.score, file.reasons[0])]
    return [
        PlanSpan(
            path=file.path,
            root=file.root,
            first_line=one.first_line,
            last_line=one.last_line,
            score=file.score,
            rationale=_rationale(one, file.reasons),
        )
        for one in file.symbols
    ]


def _rationale(one: RankedDefinition, reasons: list[str]) -> str:
    named = f"defines {one.name}"
    return named if named in reasons else f"{one.kind} {one.name}: {reasons[0]}"


def _named(
    view: GraphView, question: Question, users: int, check: Callable[[], None]
) -> tuple[list[PlanSpan], list[str]]:
    """The definitions that a task names, and what uses those that its title names."""
    spans: list[PlanSpan] = []
    symbols: list[str] = []
    for written in _written(question):
        targets = [one for one in find(view, written) if view.graph.symbol(one).kind in CLASSES | FUNCTIONS]
        if _PLAIN.fullmatch(written):
            targets = [one for one in targets if view.graph.symbol(one).parent < 0 and written not in _SIGNS]
        if not targets or (_PLAIN.fullmatch(written) and (len(targets) > _FEW or len(written) < 5)):
            continue
        for one in targets[:_FEW]:
            symbol = view.graph.symbol(one)
            path = os.fsencode(view.graph.path(one.file))
            why = f"defines {symbol.qualname}"
            spans.append(PlanSpan(path, view.root, symbol.first_line, symbol.last_line, 0.0, why))
            symbols.append(symbol.qualname)
        if written in question.names or written in question.plain:
            answer = where_used(view, written, targets[:_FEW], 40, check)
            spans += _users(view, answer.sites, targets[0].file, users)
    return spans, symbols


def _written(question: Question) -> list[str]:
    """The names of a task that are looked up, those of its title first."""
    told = (*question.names, *question.plain, *question.prose_names, *question.code_names)
    return [name for name in dict.fromkeys(told) if "/" not in name][:_MOST_NAMES]


def _users(view: GraphView, sites: list[Site], own: int, most: int) -> list[PlanSpan]:
    sure = [site for site in sites if site.confidence != "name_only" and site.kind != "import"]
    home = os.fsencode(view.graph.path(own))
    found: dict[bytes, PlanSpan] = {}
    for site in sure:
        if site.path not in found and site.path != home and len(found) < most:
            test = TESTS.search(site.path.decode("utf-8", "replace"))
            verb = "tests it" if test else "inherits from it" if site.kind == "inherit" else "uses it"
            why = f"{site.inside or 'the file'} {verb}: {site.snippet}"
            found[site.path] = PlanSpan(site.path, view.root, site.line, site.line, 0.0, why[:120])
    return list(found.values())


def _confidence(question: Question, named: bool, hits: list[RankedSnippet]) -> float:
    """The share of the title's words that the hits contain."""
    held = set(words.terms(" ".join(f"{hit.symbol or ''} {hit.text}" for hit in hits)).split())
    asked = set(question.stems)
    share = len(asked & held) / len(asked) if asked else 0.0
    return round(min(0.3 * named + 0.65 * share, 0.95), 2) if hits or named else 0.0
