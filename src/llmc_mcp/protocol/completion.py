"""Completion of arguments as a person types them: folders, documents, handles, names of definitions.

A completion never reveals more than a listing would: folders are read like any file, handles are the caller's own. A
value that leads nowhere, or out of the roots, has no completions; that is no error.
"""

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ..context import Context
from ..errors import BadArgs, FeatureUnavailable, InvalidArgument, LlmcError, ResourceBusy
from ..gate.dispatch import Gate
from ..tools.inspect import inspect
from ..tools.linux_ops.fs import list_dir
from .resources import DOCS_TEMPLATE, HANDLE_TEMPLATE, SYMBOL_TEMPLATE, ResourceReader

if TYPE_CHECKING:
    from .prompts import Prompts

_MOST = 100  # the protocol's
_LONGEST = 4_096
_PATIENCE_S = 0.5  # for an index that is being compared with the files


class Completions(NamedTuple):
    """The first of the values, how many there are where they were counted, and whether there are more."""

    values: list[str]
    total: int | None
    has_more: bool


class Completion:
    """Completes arguments of prompts and of resource templates."""

    def __init__(self, gate: Gate, resources: ResourceReader, prompts: "Prompts") -> None:
        self._gate, self._resources, self._prompts = gate, resources, prompts

    def complete(self, ctx: Context, ref: object, argument: object) -> Completions:
        """Values that begin with what was typed."""

        def answer() -> Completions:
            kind, about = _reference(ref)
            name, value = _typed(argument)
            found = sorted(dict.fromkeys(self._values(ctx, kind, about, name, value)))
            total = None if about == SYMBOL_TEMPLATE and len(found) > _MOST else len(found)
            return Completions(found[:_MOST], total, len(found) > _MOST)

        return self._gate.ask(ctx, "completion/complete", {"ref": ref}, answer)

    def _values(self, ctx: Context, kind: str, about: str, name: str, value: str) -> Iterator[str]:
        if kind == "ref/prompt":
            flow = self._prompts.flows().get(about)
            if flow is None:
                raise InvalidArgument(f"there is no prompt {about[:60]!r}")
            if name not in [argument.name for argument in flow.arguments]:
                raise InvalidArgument(f"the prompt {about} has no argument {name[:60]!r}")
            return self._folders(ctx, value)
        if about in (DOCS_TEMPLATE, DOCS_TEMPLATE.partition("{?")[0]) and name == "name":
            return (found for found in self._resources.documents() if found.startswith(value))
        if about in (HANDLE_TEMPLATE, HANDLE_TEMPLATE.partition("{?")[0]) and name == "id":
            return self._handles(ctx, value)
        if about == SYMBOL_TEMPLATE and name == "name":
            return self._symbols(ctx, value)
        if about in (DOCS_TEMPLATE, HANDLE_TEMPLATE):
            return iter(())  # an offset is any number
        raise InvalidArgument(f"there is no resource template {about[:100]!r} with an argument {name[:60]!r}")

    def _handles(self, ctx: Context, value: str) -> Iterator[str]:
        try:
            mine = ctx.app.handles.list(ctx.session.principal)
        except (FeatureUnavailable, ResourceBusy):
            return iter(())
        return (handle.id for handle in mine if handle.id.startswith(value))

    def _symbols(self, ctx: Context, value: str) -> Iterator[str]:
        """Names of definitions, where there is an index already: none is built while somebody types."""
        app = ctx.app
        if not app.config.rag.jit_context_enabled or not all(map(app.is_indexed, app.indexed_roots)):
            return
        from ..rag.query.search import QueryCaller

        if not self._gate.allows(ctx, inspect.__name__, {}):
            return
        caller = QueryCaller(ctx.session, time.monotonic() + _PATIENCE_S, ctx.check)
        try:
            answers = app.rag.ask(lambda view: view.files.names_beginning(value, _MOST + 1), caller)
        except LlmcError:
            return
        for symbols, _ in answers:
            yield from symbols

    def _folders(self, ctx: Context, value: str) -> Iterator[str]:
        """Folders below the roots, spelled the way the value begins; above a root, the root."""
        files = ctx.app.files
        if value.startswith("/"):
            yield from (root.shown for root in files.roots if root.shown.startswith(value))
        above, typed = os.path.split(value)
        if not self._gate.allows(ctx, list_dir.__name__, {"path": above or "."}):
            return
        try:
            place = files.locate(above or ".")
            for entry in files.walk(place, depth=1, include_hidden=typed.startswith(".")):
                shown = _shown(entry.path)
                if entry.kind == "dir" and shown.startswith(typed):
                    yield f"{os.path.join(above, shown)}/"
        except LlmcError:
            return


def _shown(name: bytes) -> str:
    from ..files import names

    return names.show(name)


def _reference(ref: object) -> tuple[str, str]:
    fields = cast(dict[str, Any], ref) if isinstance(ref, dict) else {}
    kind: object = fields.get("type")
    about: object = fields.get("name" if kind == "ref/prompt" else "uri")
    if kind not in ("ref/prompt", "ref/resource") or not isinstance(about, str):
        raise BadArgs("a completion is about {type: ref/prompt, name} or {type: ref/resource, uri}")
    return cast(str, kind), about


def _typed(argument: object) -> tuple[str, str]:
    fields = cast(dict[str, Any], argument) if isinstance(argument, dict) else {}
    name: object = fields.get("name")
    value: object = fields.get("value")
    if not isinstance(name, str) or not isinstance(value, str) or len(value) > _LONGEST or "\0" in value:
        raise BadArgs("a completion needs an argument: {name, value}")
    return name, value
