"""Code: edits by symbol."""

import os
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, TypeVar

from ..context import Context
from ..errors import BadArgs, FeatureDisabled, FeatureUnavailable, InvalidArgument, NotFound, ResourceBusy, Stale
from ..files import names
from ..files.filesystem import Filesystem, Place, Root
from ..tool import CODE_INDEX, FILES, Result, tool
from .graph import below_root
from .index_common import caller_of, display_path
from .linux_ops.syntax import syntax_after

if TYPE_CHECKING:
    from ..changes.rewrites import Read, Rewrite
    from ..code.bodies import BodyAction, BodyEdit
    from ..code.rename import RenamePlan
    from ..rag.query.questions import Site
    from ..rag.query.search import GraphView

Answer = TypeVar("Answer")
Action = Literal["replace_body", "insert_before", "insert_after", "delete", "rename"]

_SHOWN = 20  # doubtful places and callers; the handle has all
_MOST_CALLERS = 500
_PATIENCE_S = 10.0  # for an index that is being updated
_UP_TO_DATE = ("updated", "rebuilt")  # how the notes of an index begin that has seen all changes
_ATTEMPTS = 3  # to rename files that change meanwhile


class CodeEdit(Result):
    """An edit by symbol. `detail`: the diff of a dry run, else the places that need a look."""

    symbol: str
    files: list[str]
    places: int
    detail: str
    undo_id: str | None = None
    likely: int | None = None  # places that probably mean it, and were left alone
    name_only: int | None = None  # places that are called the same
    callers: int | None = None  # of a function whose signature changed
    handle: str | None = None
    notes: list[str] | None = None
    syntax: str | None = None
    truncated: bool = False
    body: ClassVar[str] = "detail"
    handle_kind: ClassVar[str] = "code_places"

    def handle_meta(self) -> dict[str, str | int]:
        return {"symbol": self.symbol}


@tool(
    "Edit a definition by name (Class.method, path:name), or rename it everywhere; one undo",
    needs=FILES,
    destructive=True,
    content=("text",),
    takes_long=True,
    whole_trees=True,
)
def code_edit(
    ctx: Context,
    symbol: str,
    action: Action,
    text: str | None = None,
    new_name: str | None = None,
    strings: bool = False,
    dry_run: bool = False,
) -> CodeEdit:
    if action == "rename":
        if not new_name or text is not None:
            raise BadArgs("rename takes new_name, and no text")
        return _rename(ctx, symbol, new_name, strings, dry_run)
    if (text is None) != (action == "delete") or new_name is not None:
        raise BadArgs(f"{action} takes {'no text' if action == 'delete' else 'text'}, and no new_name")
    return _edit_body(ctx, symbol, action, text or "", dry_run)


# --- rename ------------------------------------------------------------------------------------------


def _rename(ctx: Context, symbol: str, new_name: str, strings: bool, dry_run: bool) -> CodeEdit:
    attempts = _ATTEMPTS
    while True:
        root, plan = _plan(ctx, symbol, new_name, strings)
        attempts -= 1
        try:
            if not plan.complete:
                raise Stale("files change while they are looked at", hint="Try again.")
            compute = partial(_renamed, root, plan)
            moves = {_full(root, os.fsencode(old)): _full(root, os.fsencode(new)) for old, new in plan.moves.items()}
            done = ctx.app.rewriting.rewrite(ctx.session, "rename", compute, ctx.check, dry_run=dry_run, moves=moves)
            return _renamed_reply(ctx, root, plan, done, symbol)
        except Stale:
            if not attempts:
                raise


def _plan(ctx: Context, symbol: str, new_name: str, strings: bool) -> "tuple[Root, RenamePlan]":
    from ..code import rename

    def question(view: "GraphView") -> "tuple[Root, RenamePlan | None]":
        own = below_root(ctx, view.root, symbol)
        targets = rename.pick(view, own) if own is not None else []
        if not targets:
            return view.root, None
        parser = ctx.app.code_parser
        return view.root, rename.plan(view, targets, new_name, parser, strings=strings, check=ctx.check)

    found = [(root, plan) for root, plan in _asked(ctx, question) if plan is not None]
    if not found:
        raise _unknown(ctx, symbol)
    if len(found) > 1:
        roots = ", ".join(root.shown for root, _ in found)
        raise InvalidArgument(f"{symbol} is defined in several roots: {roots}", hint="Name its file: path:name.")
    return found[0]


def _asked(ctx: Context, question: "Callable[[GraphView], Answer]") -> "list[Answer]":
    """The answers of all roots, each from an index that has seen all changes: waits for it."""
    if not ctx.app.config.rag.jit_context_enabled:
        raise FeatureDisabled("there is no code index", hint=f"Setting: mcp.{CODE_INDEX[0]}.")
    until = time.monotonic() + _PATIENCE_S
    while True:
        answers = ctx.app.rag.ask(question, caller_of(ctx))
        behind = [note for _, note in answers if note and not note.startswith(_UP_TO_DATE)]
        if not behind:
            return [answer for answer, _ in answers]
        if time.monotonic() > until:
            raise ResourceBusy(f"the code index is not up to date: {behind[0]}", hint="Ask again in a moment.")
        ctx.check()


def _renamed(root: Root, plan: "RenamePlan", read: "Read") -> dict[str, bytes]:
    after: dict[str, bytes] = {}
    for path, edit in plan.files.items():
        full = _full(root, os.fsencode(path))
        if read(full) != edit.before:
            raise Stale(f"{path}: it changed while the name was looked for", hint="Try again.")
        after[full] = edit.after
    return after


def _renamed_reply(ctx: Context, root: Root, plan: "RenamePlan", done: "Rewrite", symbol: str) -> CodeEdit:
    lines = [_line(ctx, root, site) for site in plan.doubtful]
    reply = CodeEdit(
        symbol=symbol,
        files=[file.path for file in done.files],
        places=sum(edit.places for edit in plan.files.values()),
        detail="".join(file.diff for file in done.files) if not done.id else "",
        undo_id=done.id or None,
        likely=plan.doubtful_total["likely"],
        name_only=plan.doubtful_total["name_only"],
        notes=plan.notes or None,
        syntax=syntax_after(ctx, done.id) if done.id else None,
    )
    _show(ctx, reply, lines)
    return reply


# --- bodies ------------------------------------------------------------------------------------------


class _DefinitionPath(NamedTuple):
    path: str
    qualname: str


def _edit_body(ctx: Context, symbol: str, action: "BodyAction", text: str, dry_run: bool) -> CodeEdit:
    from ..code import bodies

    one = _located(ctx, symbol)
    made: list[BodyEdit] = []

    def compute(read: "Read") -> dict[str, bytes]:
        made.append(bodies.edit(one.path, read(one.path), one.qualname, action, text, ctx.app.code_parser, ctx.check))
        return {one.path: made[-1].after}

    callers = _callers(ctx, one) if action == "delete" else []
    done = ctx.app.rewriting.rewrite(ctx.session, "code_edit", compute, ctx.check, dry_run=dry_run)
    edit = made[-1]
    if action == "replace_body" and edit.signature != edit.new_signature:
        callers = _callers(ctx, one)
    reply = CodeEdit(
        symbol=edit.qualname,
        files=[file.path for file in done.files],
        places=len(done.files),
        detail="".join(file.diff for file in done.files) if not done.id else "",
        undo_id=done.id or None,
        callers=len(callers) or None,
        syntax=syntax_after(ctx, done.id) if done.id else None,
    )
    if not done.files:
        reply.notes = ["The definition has that text already."]
    elif action == "replace_body" and edit.signature != edit.new_signature:
        reply.notes = [f"signature: {edit.signature} → {edit.new_signature or '(gone)'}"]
    _show(ctx, reply, callers)
    return reply


def _located(ctx: Context, symbol: str) -> _DefinitionPath:
    """The file that defines a symbol, and its name there: a path in the symbol needs no index."""
    place = file_of(ctx.app.files, symbol)
    if place is not None:
        return _DefinitionPath(place.absolute, symbol.rpartition(":")[2])
    from ..code import rename

    def question(view: "GraphView") -> _DefinitionPath | None:
        own = below_root(ctx, view.root, symbol)
        targets = rename.pick(view, own) if own is not None else []
        if not targets:
            return None
        path = os.fsencode(view.graph.path(targets[0].file))
        return _DefinitionPath(_full(view.root, path), view.graph.symbol(targets[0]).qualname)

    found = [one for one in _asked(ctx, question) if one is not None]
    if not found:
        raise _unknown(ctx, symbol)
    if len(found) > 1:
        raise InvalidArgument(
            f"{symbol} is defined in several roots: {', '.join(one.path for one in found)}",
            hint="Name its file: path:name.",
        )
    return found[0]


def file_of(files: Filesystem, symbol: str) -> Place | None:
    """The file in `path:name`; None if there is none, as where it is the end of a path, which the index knows."""
    where = symbol.rpartition(":")[0]
    if not where or where.endswith(":"):
        return None
    place = files.locate(where)
    try:
        fd, _ = files.open_file(place)
    except NotFound:
        return None
    os.close(fd)
    return place


def _callers(ctx: Context, one: _DefinitionPath) -> list[str]:
    """Who uses a definition, as far as the index knows."""
    from ..rag.query import questions

    def question(view: "GraphView") -> list[str]:
        own = below_root(ctx, view.root, f"{one.path}:{one.qualname}")
        targets = questions.find(view, own) if own is not None else []
        uses = [use for use in view.graph.uses(targets, ctx.check) if use.kind != "import"] if targets else []
        return [_line(ctx, view.root, site) for site in questions.sites_of(view, uses[:_MOST_CALLERS], several=False)]

    if not ctx.app.config.rag.jit_context_enabled:
        return []
    try:
        return [line for lines, _ in ctx.app.rag.ask(question, caller_of(ctx)) for line in lines]
    except (FeatureUnavailable, ResourceBusy, NotFound) as exc:
        ctx.notes.append(f"Callers are not known: {exc.message}")
        return []


# --- both --------------------------------------------------------------------------------------------


def _full(root: Root, path: bytes) -> str:
    return f"{root.shown.rstrip('/')}/{names.show(path)}"


def _line(ctx: Context, root: Root, site: "Site") -> str:
    return f"{display_path(ctx, root, site.path)}:{site.line} {site.confidence} {site.kind}: {site.snippet}"


def _show(ctx: Context, reply: CodeEdit, lines: list[str]) -> None:
    """The first lines, and a handle for all of them."""
    if not lines:
        return
    if len(lines) > _SHOWN:
        whole = "".join(f"{line}\n" for line in lines)
        reply.handle = ctx.keep(reply.handle_kind, reply.handle_meta(), whole.encode("utf-8", "replace"))
    shown = "".join(f"{line}\n" for line in lines[:_SHOWN])
    reply.detail += shown + (f"… {len(lines) - _SHOWN:,} more\n" if len(lines) > _SHOWN else "")


def _unknown(ctx: Context, symbol: str) -> NotFound:
    from ..rag.query import questions

    near = [name for some in _asked(ctx, lambda view: questions.nearest(view, symbol)) for name in some]
    hint = f"Did you mean {', '.join(near)}?" if near else "rag_search finds code by what it does."
    return NotFound(f"nothing here is called {symbol}", hint=hint)
