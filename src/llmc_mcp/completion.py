"""What a client may offer while a person types an argument: folders, documents, handles.

A completion never tells more than a listing would: folders come through the gate that files come through, handles are
the caller's own. A value that leads nowhere, or out of the roots, has no completions; that is no error.
"""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from .app import Context
from .dispatch import Gate
from .errors import BadArgs, FeatureUnavailable, InvalidArgument, LlmcError
from .resources import DOCS_TEMPLATE, HANDLE_TEMPLATE, Resources

if TYPE_CHECKING:
    from .flow_prompts import Prompts

_MOST = 100  # the protocol's
_LONGEST = 4_096


class Completions(NamedTuple):
    """The first of the values, how many there are, and whether these are all."""

    values: list[str]
    total: int
    has_more: bool


class Completion:
    """Completes arguments of prompts and of resource templates."""

    def __init__(self, gate: Gate, resources: Resources, prompts: "Prompts") -> None:
        self._gate, self._resources, self._prompts = gate, resources, prompts

    def complete(self, ctx: Context, ref: object, argument: object) -> Completions:
        """Values that begin with what was typed."""

        def answer() -> Completions:
            kind, about = _reference(ref)
            name, value = _typed(argument)
            found = sorted(dict.fromkeys(self._values(ctx, kind, about, name, value)))
            return Completions(found[:_MOST], len(found), len(found) > _MOST)

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
        if about in (DOCS_TEMPLATE, HANDLE_TEMPLATE):
            return iter(())  # an offset is any number
        raise InvalidArgument(f"there is no resource template {about[:100]!r} with an argument {name[:60]!r}")

    def _handles(self, ctx: Context, value: str) -> Iterator[str]:
        try:
            mine = ctx.app.handles.list(ctx.session.principal)
        except FeatureUnavailable:
            return iter(())
        return (handle.id for handle in mine if handle.id.startswith(value))

    def _folders(self, ctx: Context, value: str) -> Iterator[str]:
        """Folders below the roots, spelled as they were begun; above a root, the root."""
        files = ctx.app.files
        if value.startswith("/"):
            yield from (root.shown for root in files.roots if root.shown.startswith(value))
        above, typed = os.path.split(value)
        try:
            place = files.locate(above or ".")
            for entry in files.walk(place, depth=1, include_hidden=typed.startswith(".")):
                shown = _shown(entry.path)
                if entry.kind == "dir" and shown.startswith(typed):
                    yield f"{os.path.join(above, shown)}/"
        except LlmcError:
            return


def _shown(name: bytes) -> str:
    from .te import names

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
