"""What a symbol or a file is: its source, documentation, callers, callees, tests and last commit."""

import os
from typing import TYPE_CHECKING, ClassVar

import msgspec

from ..context import Context
from ..errors import InvalidArgument, NotFound
from ..files import names
from ..files.filesystem import Root
from ..tool import CODE_INDEX, Result, tool
from .graph import ask_about, definition_name
from .index_common import Coverage, caller_of, site_line, source_of

if TYPE_CHECKING:
    from ..rag.query.questions import GraphAnswer, Portrait
    from ..rag.query.resolve import DefinitionPlace
    from ..rag.query.search import GraphView

_SNIPPET_LINES = 40
_SNIPPET_TOKENS = 500
_DOCSTRING = 600
_MOST_DEFINED = 60
_MOST_OTHERS = 12


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
        view, portrait, others, complete, note = _portrait(
            ctx, f"{ctx.app.files.locate(path).real}:{symbol}" if path else symbol
        )
    else:
        view, portrait, complete, note = _portrait_of_file(ctx, path or "")
        others = []
    lines = portrait.source.split("\n")
    found = Inspection(
        path=f"{view.root.shown.rstrip('/')}/{names.show(portrait.path)}",
        symbol=portrait.qualname if portrait.kind != "file" else None,
        lines=f"{portrait.first_line}-{portrait.last_line}",
        kind=portrait.kind,
        signature=portrait.signature,
        docstring=portrait.docstring[:_DOCSTRING],
        snippet="" if include_full_source else _beginning(lines),
        defined_symbols=portrait.defined[:_MOST_DEFINED],
        incoming_calls=[site_line(ctx, view.root, site) for site in portrait.incoming],
        outgoing_calls=[site_line(ctx, view.root, site) for site in portrait.outgoing],
        related_tests=[site_line(ctx, view.root, site) for site in portrait.tests],
        related_docs=_docs(ctx, portrait, 3),
        last_commit=_last_commit(ctx, view.root, portrait.path),
        incoming_total=portrait.incoming_total,
        others=others,
        completeness=complete,
        freshness=note or "fresh",
    )
    if not include_full_source:
        return found
    return InspectedWhole(full_source=portrait.source, **msgspec.structs.asdict(found))


def _portrait(ctx: Context, symbol: str) -> "tuple[GraphView, Portrait, list[str], Coverage, str]":
    """The most used definition in the first root that has one; the others are named after it."""
    from ..rag.query import questions

    held: dict[Root, tuple[Portrait | None, list[str]]] = {}  # the newest of a root that is queried twice

    def ask(view: "GraphView", targets: "list[DefinitionPlace]") -> "GraphAnswer":
        real = [one for one in targets if view.graph.symbol(one).kind != "prototype"] or targets
        best = questions.most_used(view, real, ctx.check)
        order = [best, *(one for one in real if one != best)]
        choices = [definition_name(ctx, view.root, one) for one in questions.choices(view, order, len(order))]
        held[view.root] = questions.portrait(view, best, 12, ctx.check), choices
        return questions.GraphAnswer(symbol, [], [], 0, {})

    answered = ask_about(ctx, symbol, ask)
    for at, (view, _, complete, note) in enumerate(answered):
        portrait, choices = held[view.root]
        if portrait is not None:
            elsewhere = [one for other, *_ in answered[at + 1 :] for one in held[other.root][1]]
            return view, portrait, [*choices[1:], *elsewhere][:_MOST_OTHERS], complete, note
    raise NotFound(f"{symbol}: its file changed just now", hint="Ask again.")


def _portrait_of_file(ctx: Context, path: str) -> "tuple[GraphView, Portrait, Coverage, str]":
    from ..rag.query import questions

    place = ctx.app.files.locate(path)
    handle, _ = ctx.app.files.open_file(place)
    os.close(handle)

    def question(view: "GraphView") -> "tuple[GraphView, Portrait | None, Coverage]":
        inside = place.real.removeprefix(os.fsdecode(view.root.real).rstrip("/") + "/")
        portrait = questions.portrait_of_file(view, inside, 12, ctx.check)
        return view, portrait, Coverage(*view.files.completeness())

    answers = ctx.app.rag.ask(question, caller_of(ctx))
    for (view, portrait, complete), note in answers:
        if portrait is not None:
            return view, portrait, complete, note
    ctx.app.rag.refuse_partial(note for _, note in answers)
    hint = "It may be ignored, binary or too large; read_file reads it."
    if not ctx.app.rag.is_covered(place.real):
        from ..rag.query.folders import HOW_TO_INDEX

        hint = HOW_TO_INDEX
    raise NotFound(f"{path} is not in the code index", hint=hint)


def _beginning(lines: list[str]) -> str:
    from ..tokens import estimate

    shown = lines[:_SNIPPET_LINES]
    while len(shown) > 1 and estimate("\n".join(shown)) > _SNIPPET_TOKENS:
        shown = shown[: len(shown) * 3 // 4]
    return "\n".join(shown) + (f"\n… {len(lines) - len(shown)} more lines" if len(shown) < len(lines) else "")


def _docs(ctx: Context, portrait: "Portrait", most: int) -> list[str]:
    """Documents that mention it."""
    from ..rag.query.search import CodeQuery

    name = portrait.qualname.rpartition("/")[2].rpartition(".")[2] if portrait.kind != "file" else portrait.qualname
    found = ctx.app.rag.search(CodeQuery(name, "docs", most * 2, 4_000), caller_of(ctx)).hits
    return [source_of(ctx, hit) for hit in found if name.rpartition("/")[2] in hit.text][:most]


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
