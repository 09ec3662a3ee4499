"""The code index: its state, and a search box."""

from collections.abc import Mapping
from typing import cast

from ...errors import LlmcError
from ...gate.dispatch import Gate
from ...gate.log import correlation_id
from ...tools.rag import Snippets, rag_search
from .html import Html, element
from .layout import HOME, Viewer, WebPage, facts, section, several

_LONGEST = 500
_BYTES = 100_000


def index(gate: Gate, viewer: Viewer, given: Mapping[str, str]) -> WebPage:
    """The state of the index and, for a query, what it finds: the tool that agents call."""
    query = given.get("q", "").strip()[:_LONGEST]
    box = element(
        "form",
        element("label", "Search code and documents ", element("input", type="search", name="q", value=query)),
        element("button", "Search"),
        method="get",
        action=f"{HOME}/index",
        role="search",
    )
    folders = ", ".join(root.shown for root in gate.app.indexed_roots) or "-"
    state = facts([("State", gate.app.index_state()), ("Folders", folders)])
    return WebPage("Code index", several(state, box, _found(gate, viewer, query) if query else None))


def _found(gate: Gate, viewer: Viewer, query: str) -> Html:
    if rag_search.__name__ not in gate.catalog.tools:
        return element("p", "The code index is switched off.", class_="notice")
    context = gate.context(viewer.session, correlation_id())
    try:
        found = cast(Snippets, gate.call(context, rag_search.__name__, {"query": query}, reply_bytes=_BYTES))
    except LlmcError as exc:
        return element("p", exc.message, class_="notice")
    parts = [
        element(
            "article", element("h3", one.src), element("pre", one.text, tabindex=0, role="region", aria_label=one.src)
        )
        for one in found.snippets
    ]
    return section("Found", parts or element("p", "Nothing.", class_="quiet"))
