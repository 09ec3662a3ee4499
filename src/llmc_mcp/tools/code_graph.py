"""Understanding code: who uses a symbol, what leads to it, what it is, where a task takes place."""

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import msgspec

from ..context import Context
from ..errors import InvalidArgument, LlmcError, NotFound
from ..files import names
from ..files.filesystem import Root
from ..tool import CODE_INDEX, Result, Row, tool
from .index_common import Count, Scope, asked, caller_of, shown

if TYPE_CHECKING:
    from ..rag.query.plan import PlanSpan
    from ..rag.query.questions import GraphAnswer, LocatedDefinition, Portrait, Site
    from ..rag.query.resolve import DefinitionPlace
    from ..rag.query.search import GraphView, RankedSnippet

_MOST_SITES = 2_000
_SNIPPET_LINES = 40
_SNIPPET_TOKENS = 500
_DOCSTRING = 600
_MOST_DEFINED = 60
_MOST_OTHERS = 12
_LONGEST_SYMBOL = 1_000  # characters, with its path
_AROUND = 3  # callers, callees, tests of one hit of a search
_RULES_BYTES = 256 << 10
_MAP_TOKENS = 400

Limit = Annotated[int, msgspec.Meta(ge=1, le=1000)]
Depth = Annotated[int, msgspec.Meta(ge=1, le=5)]
GraphDepth = Annotated[int, msgspec.Meta(ge=0, le=3)]
Confidence = Literal["exact", "likely", "name_only"]
Direction = Literal["callers", "callees", "upstream", "downstream"]


class Coverage(msgspec.Struct, omit_defaults=True):
    """How much of the repository the answer rests on."""

    files_parsed: int
    files_skipped: int
    files_failed: int


class UseRow(Row):
    """A place, and how sure it is."""

    file: str
    line: int
    snippet: str
    confidence: Confidence
    kind: str
    inside: str | None = None
    of: str | None = None
    depth: int | None = None
    group_by: ClassVar[str] = "file"
    line_format: ClassVar[str] = "{line} {confidence} {kind} {inside}: {snippet}"


class OneOfSeveralRow(UseRow):
    """A place, and which of several definitions it is about; in a lineage also how many steps away."""

    line_format: ClassVar[str] = "{line} {confidence} {kind} {inside} ({depth} {of}): {snippet}"


class Uses(Result):
    """Places that use a symbol, or that it uses; `counts` is of all of them."""

    symbol: str
    items: list[UseRow]
    truncated: bool
    completeness: Coverage
    freshness: str
    total: int
    counts: dict[str, int]
    definitions: list[str]
    shown: int | None = None
    body: ClassVar[str] = "items"

    def cut(self, kept: int) -> None:
        self.truncated, self.shown = True, kept


@tool("Who uses a symbol: name, Class.method, path:Class.method", needs=CODE_INDEX, read_only=True)
def rag_where_used(ctx: Context, symbol: str, limit: Limit = 50) -> Uses:
    from ..rag.query import questions

    def ask(known: "GraphView", targets: "list[DefinitionPlace]") -> "GraphAnswer":
        return questions.where_used(known, symbol, targets, limit, ctx.check)

    return _uses(ctx, symbol, ask, limit)


@tool("What calls a symbol, or what it calls, step by step", needs=CODE_INDEX, read_only=True)
def rag_lineage(ctx: Context, symbol: str, direction: Direction = "callers", depth: Depth = 2) -> Uses:
    from ..rag.query import questions

    def ask(known: "GraphView", targets: "list[DefinitionPlace]") -> "GraphAnswer":
        return questions.lineage(known, symbol, targets, direction, depth, ctx.check)

    return _uses(ctx, symbol, ask, _MOST_SITES)


def _uses(
    ctx: Context, symbol: str, ask: "Callable[[GraphView, list[DefinitionPlace]], GraphAnswer]", limit: int
) -> Uses:
    """One answer of all roots that know the symbol."""
    answered = _about(ctx, symbol, ask)
    rows: list[UseRow] = []
    counts: dict[str, int] = {}
    for known, answer, _, _ in answered:
        rows += [_row(known.root, site) for site in answer.sites]
        for grade, count in answer.counts.items():
            counts[grade] = counts.get(grade, 0) + count
    total = sum(answer.total for _, answer, _, _ in answered)
    return Uses(
        answered[0][1].symbol,
        rows[:limit],
        len(rows[:limit]) < total,
        _summed([complete for _, _, complete, _ in answered]),
        "; ".join(dict.fromkeys(note for *_, note in answered if note)) or "fresh",
        total,
        counts,
        [_name(ctx, known.root, one) for known, answer, _, _ in answered for one in answer.definitions],
    )


def _about(
    ctx: Context, symbol: str, ask: "Callable[[GraphView, list[DefinitionPlace]], GraphAnswer]"
) -> "list[tuple[GraphView, GraphAnswer, Coverage, str]]":
    """What the roots that know a symbol say of it; NOT_FOUND with the nearest names where none does."""
    from ..rag.query import questions

    if not symbol.strip() or len(symbol) > _LONGEST_SYMBOL:
        raise InvalidArgument("the symbol is empty or too long", hint="A name, Class.method, or path:Class.method.")

    def question(known: "GraphView") -> "tuple[GraphView, GraphAnswer | None, Coverage, list[str]]":
        own = _below(ctx, known.root, symbol)
        targets = questions.find(known, own) if own is not None else []
        complete = Coverage(*known.files.completeness())
        if not targets:
            return known, None, complete, questions.nearest(known, symbol)
        if questions.too_many(known, targets):
            some = questions.choices(known, targets)
            raise InvalidArgument(
                f"{len(targets)} definitions are called {symbol}",
                hint=f"Choose one: {'; '.join(_name(ctx, known.root, one) for one in some)}; …",
            )
        return known, ask(known, targets), complete, []

    told = ctx.app.rag.ask(question, caller_of(ctx))
    found = [(known, answer, complete, note) for (known, answer, complete, _), note in told if answer is not None]
    if not found:
        near = [name for (*_, some), _ in told for name in some]
        hint = f"Did you mean {', '.join(near)}?" if near else "rag_search finds code by what it does."
        raise NotFound(f"nothing here is called {symbol}", hint=hint)
    return found


def _below(ctx: Context, root: Root, symbol: str) -> str | None:
    """`path:Class.method` as one root has it; None where the path leads into another root."""
    where, _, what = symbol.rpartition(":")
    if not where.startswith("/"):
        return symbol
    for one in (root, *ctx.app.files.roots):
        for top in (one.shown, os.fsdecode(one.real)):
            inside = where.removeprefix(top.rstrip("/") + "/")
            if inside != where:
                return f"{inside}:{what}" if one == root else None
    return symbol


def _name(ctx: Context, root: Root, one: "LocatedDefinition") -> str:
    return f"{shown(ctx, root, one.path)}:{one.what}"


def _row(root: Root, site: "Site") -> UseRow:
    path = f"{root.shown.rstrip('/')}/{names.show(site.path)}"
    inside, of, depth = site.inside or None, site.of or None, site.depth or None
    shape = OneOfSeveralRow if of else UseRow
    return shape(path, site.line, site.snippet, site.confidence, site.kind, inside, of, depth)


def _summed(counts: list[Coverage]) -> Coverage:
    return Coverage(
        sum(one.files_parsed for one in counts),
        sum(one.files_skipped for one in counts),
        sum(one.files_failed for one in counts),
    )


# --- inspect ---------------------------------------------------------------------------------------


class Inspection(Result, kw_only=True):
    """What a symbol or a file is, who uses it, what it uses."""

    path: str
    symbol: str | None = None
    lines: str
    kind: str
    signature: str
    docstring: str
    snippet: str
    defined_symbols: list[str]
    incoming_calls: list[str]
    outgoing_calls: list[str]
    related_tests: list[str]
    related_docs: list[str]
    last_commit: str | None
    incoming_total: int
    others: list[str] = msgspec.field(default_factory=list[str])  # further definitions of that name
    completeness: Coverage
    freshness: str
    truncated: bool = False
    body: ClassVar[str] = "snippet"

    def cut(self, kept: int) -> None:
        del kept
        self.truncated = True


class InspectedWhole(Inspection, kw_only=True):
    """The same, with all of its source."""

    full_source: str
    body: ClassVar[str] = "full_source"


@tool("What a symbol or file is: signature, docs, callers, callees, tests, commit", needs=CODE_INDEX, read_only=True)
def inspect(
    ctx: Context, path: str | None = None, symbol: str | None = None, include_full_source: bool = False
) -> Inspection | InspectedWhole:
    if not path and not symbol:
        raise InvalidArgument("either a path or a symbol is needed", hint="inspect(symbol='Class.method').")
    if symbol:
        known, portrait, others, complete, note = _portrait(
            ctx, f"{ctx.app.files.locate(path).real}:{symbol}" if path else symbol
        )
    else:
        known, portrait, complete, note = _portrait_of_file(ctx, path or "")
        others = []
    lines = portrait.source.split("\n")
    found = Inspection(
        path=f"{known.root.shown.rstrip('/')}/{names.show(portrait.path)}",
        symbol=portrait.qualname if portrait.kind != "file" else None,
        lines=f"{portrait.first_line}-{portrait.last_line}",
        kind=portrait.kind,
        signature=portrait.signature,
        docstring=portrait.docstring[:_DOCSTRING],
        snippet="" if include_full_source else _beginning(lines),
        defined_symbols=portrait.defined[:_MOST_DEFINED],
        incoming_calls=[_line(ctx, known.root, site) for site in portrait.incoming],
        outgoing_calls=[_line(ctx, known.root, site) for site in portrait.outgoing],
        related_tests=[_line(ctx, known.root, site) for site in portrait.tests],
        related_docs=_docs(ctx, portrait, 3),
        last_commit=_last_commit(ctx, known.root, portrait.path),
        incoming_total=portrait.incoming_total,
        others=others,
        completeness=complete,
        freshness=note or "fresh",
    )
    if not include_full_source:
        return found
    return InspectedWhole(full_source=portrait.source, **msgspec.structs.asdict(found))


def _portrait(ctx: Context, symbol: str) -> "tuple[GraphView, Portrait, list[str], Coverage, str]":
    """The definition that is meant, of the first root that knows it; those of other roots are named after it."""
    from ..rag.query import questions

    held: dict[Root, tuple[Portrait | None, list[str]]] = {}  # of a root that is asked again the newest

    def ask(known: "GraphView", targets: "list[DefinitionPlace]") -> "GraphAnswer":
        real = [one for one in targets if known.graph.symbol(one).kind != "prototype"] or targets
        best = questions.most_used(known, real, ctx.check)
        order = [best, *(one for one in real if one != best)]
        choices = [_name(ctx, known.root, one) for one in questions.choices(known, order, len(order))]
        held[known.root] = questions.portrait(known, best, 12, ctx.check), choices
        return questions.GraphAnswer(symbol, [], [], 0, {})

    answered = _about(ctx, symbol, ask)
    for at, (known, _, complete, note) in enumerate(answered):
        portrait, choices = held[known.root]
        if portrait is not None:
            elsewhere = [one for other, *_ in answered[at + 1 :] for one in held[other.root][1]]
            return known, portrait, [*choices[1:], *elsewhere][:_MOST_OTHERS], complete, note
    raise NotFound(f"{symbol}: its file changed just now", hint="Ask again.")


def _portrait_of_file(ctx: Context, path: str) -> "tuple[GraphView, Portrait, Coverage, str]":
    from ..rag.query import questions

    place = ctx.app.files.locate(path)
    handle, _ = ctx.app.files.open_file(place)
    os.close(handle)

    def question(known: "GraphView") -> "tuple[GraphView, Portrait | None, Coverage]":
        inside = place.real.removeprefix(os.fsdecode(known.root.real).rstrip("/") + "/")
        portrait = questions.portrait_of_file(known, inside, 12, ctx.check)
        return known, portrait, Coverage(*known.files.completeness())

    for (known, portrait, complete), note in ctx.app.rag.ask(question, caller_of(ctx)):
        if portrait is not None:
            return known, portrait, complete, note
    raise NotFound(
        f"{path} is not in the code index", hint="It may be ignored, binary or too large; read_file reads it."
    )


def _beginning(lines: list[str]) -> str:
    from ..tokens import estimate

    shown = lines[:_SNIPPET_LINES]
    while len(shown) > 1 and estimate("\n".join(shown)) > _SNIPPET_TOKENS:
        shown = shown[: len(shown) * 3 // 4]
    return "\n".join(shown) + (f"\n… {len(lines) - len(shown)} more lines" if len(shown) < len(lines) else "")


def _line(ctx: Context, root: Root, site: "Site") -> str:
    grade = "" if site.confidence == "exact" else f" ({site.confidence})"
    return f"{shown(ctx, root, site.path)}:{site.line} {site.inside or site.snippet}{grade}"


def _docs(ctx: Context, portrait: "Portrait", most: int) -> list[str]:
    """Documents that mention it."""
    from ..rag.query.search import CodeQuery

    name = portrait.qualname.rpartition("/")[2].rpartition(".")[2] if portrait.kind != "file" else portrait.qualname
    found = ctx.app.rag.search(CodeQuery(name, "docs", most * 2, 4_000), caller_of(ctx)).hits
    return [_source(ctx, hit) for hit in found if name.rpartition("/")[2] in hit.text][:most]


def _source(ctx: Context, hit: "RankedSnippet") -> str:
    return f"{shown(ctx, hit.root, hit.path)}#L{hit.numbers[0]}-L{hit.numbers[-1]}"


def _last_commit(ctx: Context, root: Root, path: bytes) -> str | None:
    from ..commands.git_log import last_commit

    if not os.path.isdir(f"/proc/self/fd/{root.fd}/.git") and not _inside_git(root):
        return None
    return last_commit(ctx.app.sandbox, ctx.app.shell.programs, root, path, ctx.check)


def _inside_git(root: Root) -> bool:
    """Whether the root is a part of a larger repository."""
    folder = os.fsdecode(root.real)
    while folder not in ("", "/"):
        if os.path.exists(f"{folder}/.git"):
            return True
        folder = os.path.dirname(folder)
    return False


# --- search with its surroundings ------------------------------------------------------------------


class EnrichedSnippet(Row):
    """A piece of a file with what is around it in the graph."""

    text: str
    src: str
    score: float
    symbol: str | None = None
    kind: str | None = None
    callers: list[str] = msgspec.field(default_factory=list[str])
    callees: list[str] = msgspec.field(default_factory=list[str])
    tests: list[str] = msgspec.field(default_factory=list[str])
    docs: list[str] = msgspec.field(default_factory=list[str])
    line_format: ClassVar[str] = (
        "{src} {kind} {symbol}\n{text}\ncallers: {callers}\ncallees: {callees}\ntests: {tests}\ndocs: {docs}"
    )


class EnrichedSnippets(Result):
    """The best snippets that fit the budget, with callers, callees, tests and documents."""

    snippets: list[EnrichedSnippet]
    provenance: bool
    freshness: str
    total_candidates: int
    completeness: Coverage
    shown: int | None = None
    body: ClassVar[str] = "snippets"
    lean_leaves_out: ClassVar[tuple[str, ...]] = ("provenance",)

    def cut(self, kept: int) -> None:
        self.shown = kept


@tool("Search code, each hit with its callers, callees, tests and docs", needs=CODE_INDEX, read_only=True)
def rag_search_enriched(
    ctx: Context,
    query: str,
    scope: Scope | None = None,
    limit: Count | None = None,
    budget_tokens: Count | None = None,
    path_glob: str | None = None,
    graph_depth: GraphDepth = 1,
) -> EnrichedSnippets:
    caller = caller_of(ctx)
    answer = ctx.app.rag.search(asked(ctx, query, scope, limit, budget_tokens, path_glob), caller)
    rows = [
        EnrichedSnippet(hit.text, _source(ctx, hit), round(hit.score, 3), hit.symbol, hit.kind) for hit in answer.hits
    ]

    def question(known: "GraphView") -> Coverage:
        for hit, row in zip(answer.hits, rows, strict=True):
            if hit.root == known.root and graph_depth:
                _surround(known, hit, row, query, graph_depth, ctx)
        return Coverage(*known.files.completeness())

    told = ctx.app.rag.ask(question, caller)
    for row in rows:
        if row.symbol is not None and graph_depth:
            row.docs = _mentions(ctx, row.symbol)
    complete = _summed([one for one, _ in told])
    notes = [note for note in (answer.freshness, *(note for _, note in told)) if note and note != "fresh"]
    freshness = "; ".join(dict.fromkeys(notes)) or "fresh"
    return EnrichedSnippets(rows, True, freshness, answer.candidates, complete)


def _surround(
    known: "GraphView", hit: "RankedSnippet", row: EnrichedSnippet, query: str, depth: int, ctx: Context
) -> None:
    from ..rag.query import questions

    found = questions.defined_in(known, os.fsdecode(hit.path), hit.numbers[0], hit.numbers[-1], hit.symbol)
    targets = questions.most_like(known, found, query)[:_AROUND]
    if not targets:
        return
    row.symbol = row.symbol or known.graph.symbol(targets[0]).qualname
    callers = questions.lineage(known, row.symbol, targets, "upstream", depth, ctx.check).sites
    sure = [site for site in callers if site.kind != "import" and site.confidence != "name_only"]
    tests = [site for site in sure if questions.TESTS.search(os.fsdecode(site.path))]
    row.callers = _few(ctx, known.root, (site for site in sure if site not in tests))
    row.tests = _few(ctx, known.root, tests)
    callees = questions.lineage(known, row.symbol, targets, "callees", depth, ctx.check).sites
    row.callees = _few(ctx, known.root, callees)


def _few(ctx: Context, root: Root, sites: "Iterable[Site]") -> list[str]:
    return list(dict.fromkeys(_line(ctx, root, site) for site in sites))[:_AROUND]


def _mentions(ctx: Context, symbol: str) -> list[str]:
    from ..rag.query.search import CodeQuery

    name = symbol.rpartition(".")[2]
    found = ctx.app.rag.search(CodeQuery(name, "docs", 3, 2_000), caller_of(ctx)).hits
    return [_source(ctx, hit) for hit in found if name in hit.text][:1]


# --- plan and bootload -----------------------------------------------------------------------------


class SpanRow(Row):
    """A place to look at, and why."""

    path: str
    lines: str
    score: float
    rationale: str
    line_format: ClassVar[str] = "{path}:{lines} {score} {rationale}"


class PlanText(Result):
    """Where a task takes place."""

    intent: str
    symbols: list[str]
    spans: list[SpanRow]
    confidence: float
    freshness: str
    truncated: bool = False
    body: ClassVar[str] = "spans"

    def cut(self, kept: int) -> None:
        del kept
        self.truncated = True


@tool("Where to look for a task: symbols and places, with reasons", needs=CODE_INDEX, read_only=True)
def rag_plan(ctx: Context, query: str, detail_level: Literal["summary", "full"] = "summary") -> PlanText:
    from ..rag.query import plan

    made = plan.make(ctx.app.rag, query, detail_level, caller_of(ctx))
    return PlanText(made.intent, made.symbols, [_span(span) for span in made.spans], made.confidence, made.freshness)


def _span(span: "PlanSpan") -> SpanRow:
    path = f"{span.root.shown.rstrip('/')}/{names.show(span.path)}"
    return SpanRow(path, f"{span.first_line}-{span.last_line}", span.score, span.rationale)


class Bootload(Result):
    """What a session should know before it starts on a task."""

    plan: str
    scope: Scope
    notes: str
    tools_available: list[str]


@tool("Rules of the repository and a plan for a task, to start with", needs=CODE_INDEX, read_only=True)
def rag_bootload(ctx: Context, session_id: str, task_id: str) -> Bootload:
    from ..rag.query import bootload

    del session_id  # the task decides what there is to know; whose session it is changes nothing
    words = bootload.task_words(task_id)
    rules = bootload.rules(lambda path: _text_of(ctx, path), words)
    scope = bootload.scope_of(words)
    plan = _planned(ctx, words, rules.commands)
    notes = rules.notes or ["There is no AGENTS.md, CONTRACTS.md or README here."]
    if rules.sources:
        notes = [f"From {', '.join(rules.sources)}:", *notes]
    return Bootload(plan, scope, "\n".join(notes), sorted(ctx.gate.catalog.tools))


def _planned(ctx: Context, words: str, commands: list[str]) -> str:
    from ..rag.query import plan

    steps: list[str] = []
    made = plan.make(ctx.app.rag, words, "summary", caller_of(ctx)) if words else None
    if made is not None and made.confidence >= 0.2 and made.spans:
        steps.append(f"The task seems to be: {made.intent} ({words}); confidence {made.confidence}. Look at:")
        steps += [
            f"- {shown(ctx, span.root, span.path)}:{span.first_line}-{span.last_line} ({span.rationale})"
            for span in made.spans
        ]
    else:
        steps.append("The task's name says nothing that the index knows. What the repository leans on:")
        for drawn in ctx.app.maps.draw(_MAP_TOKENS, caller_of(ctx)):
            if drawn.text:
                steps += [drawn.text] if drawn.root == ctx.app.files.roots[0] else [f"# {drawn.root.shown}", drawn.text]
    if commands:
        steps.append(f"Check with: {'; '.join(commands)}")
    return "\n".join(steps)


def _text_of(ctx: Context, path: str) -> str | None:
    """A small text file of the first root."""
    files = ctx.app.files
    try:
        handle, info = files.open_file(files.locate(path))
    except LlmcError:
        return None
    with os.fdopen(handle, "rb") as file:
        return file.read(min(info.st_size, _RULES_BYTES)).decode("utf-8", "replace")
