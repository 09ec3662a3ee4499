"""The graph of symbols: who uses a symbol, what leads to it."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import msgspec

from ..context import Context
from ..errors import InvalidArgument, NotFound
from ..files import names
from ..files.filesystem import Root
from ..tool import CODE_INDEX, Result, Row, tool
from .index_common import Coverage, caller_of, display_path, total_coverage

if TYPE_CHECKING:
    from ..rag.query.questions import GraphAnswer, LocatedDefinition, Site
    from ..rag.query.resolve import DefinitionPlace
    from ..rag.query.search import GraphView

_MOST_SITES = 2_000
_LONGEST_SYMBOL = 1_000  # characters, with its path

Limit = Annotated[int, msgspec.Meta(ge=1, le=1000)]
Depth = Annotated[int, msgspec.Meta(ge=1, le=5)]
Confidence = Literal["exact", "likely", "name_only"]
Direction = Literal["callers", "callees", "upstream", "downstream"]


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

    def ask(view: "GraphView", targets: "list[DefinitionPlace]") -> "GraphAnswer":
        return questions.where_used(view, symbol, targets, limit, ctx.check)

    return _uses(ctx, symbol, ask, limit)


@tool("What calls a symbol, or what it calls, step by step", needs=CODE_INDEX, read_only=True)
def rag_lineage(ctx: Context, symbol: str, direction: Direction = "callers", depth: Depth = 2) -> Uses:
    from ..rag.query import questions

    def ask(view: "GraphView", targets: "list[DefinitionPlace]") -> "GraphAnswer":
        return questions.lineage(view, symbol, targets, direction, depth, ctx.check)

    return _uses(ctx, symbol, ask, _MOST_SITES)


def _uses(
    ctx: Context, symbol: str, ask: "Callable[[GraphView, list[DefinitionPlace]], GraphAnswer]", limit: int
) -> Uses:
    """One answer of all roots that know the symbol."""
    answered = ask_about(ctx, symbol, ask)
    rows: list[UseRow] = []
    counts: dict[str, int] = {}
    for view, answer, _, _ in answered:
        rows += [_row(view.root, site) for site in answer.sites]
        for grade, count in answer.counts.items():
            counts[grade] = counts.get(grade, 0) + count
    total = sum(answer.total for _, answer, _, _ in answered)
    return Uses(
        symbol=answered[0][1].symbol,
        items=rows[:limit],
        truncated=len(rows[:limit]) < total,
        completeness=total_coverage([complete for _, _, complete, _ in answered]),
        freshness="; ".join(dict.fromkeys(note for *_, note in answered if note)) or "fresh",
        total=total,
        counts=counts,
        definitions=[
            definition_name(ctx, view.root, one) for view, answer, _, _ in answered for one in answer.definitions
        ],
    )


def ask_about(
    ctx: Context, symbol: str, ask: "Callable[[GraphView, list[DefinitionPlace]], GraphAnswer]"
) -> "list[tuple[GraphView, GraphAnswer, Coverage, str]]":
    """The answers of the roots that define a symbol; NOT_FOUND with the nearest names where none does."""
    from ..rag.query import questions

    if not symbol.strip() or len(symbol) > _LONGEST_SYMBOL:
        raise InvalidArgument("the symbol is empty or too long", hint="A name, Class.method, or path:Class.method.")

    def question(view: "GraphView") -> "tuple[GraphView, GraphAnswer | None, Coverage, list[str]]":
        own = below_root(ctx, view.root, symbol)
        targets = questions.find(view, own) if own is not None else []
        complete = Coverage(*view.files.completeness())
        if not targets:
            return view, None, complete, questions.nearest(view, symbol)
        if questions.too_many(view, targets):
            some = questions.choices(view, targets)
            raise InvalidArgument(
                f"{len(targets)} definitions are called {symbol}",
                hint=f"Choose one: {'; '.join(definition_name(ctx, view.root, one) for one in some)}; …",
            )
        return view, ask(view, targets), complete, []

    answers = ctx.app.rag.ask(question, caller_of(ctx))
    found = [(view, answer, complete, note) for (view, answer, complete, _), note in answers if answer is not None]
    if not found:
        ctx.app.rag.refuse_partial(note for _, note in answers)
        near = [name for (*_, some), _ in answers for name in some]
        hint = f"Did you mean {', '.join(near)}?" if near else "rag_search finds code by what it does."
        raise NotFound(f"nothing here is called {symbol}", hint=hint)
    return found


def below_root(ctx: Context, root: Root, symbol: str) -> str | None:
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


def definition_name(ctx: Context, root: Root, one: "LocatedDefinition") -> str:
    return f"{display_path(ctx, root, one.path)}:{one.what}"


def _row(root: Root, site: "Site") -> UseRow:
    path = f"{root.shown.rstrip('/')}/{names.show(site.path)}"
    shape = OneOfSeveralRow if site.of else UseRow
    return shape(
        file=path,
        line=site.line,
        snippet=site.snippet,
        confidence=site.confidence,
        kind=site.kind,
        inside=site.inside or None,
        of=site.of or None,
        depth=site.depth or None,
    )
