"""What is asked of a tree, in each language: its definitions and, in the same walk, what it imports or refers to.

A walk over a tree takes longer than to match all patterns, so that one query has those of both.
"""

from functools import lru_cache
from types import ModuleType
from typing import Literal, NamedTuple

from tree_sitter import Language, Node, Query, QueryCursor

from . import bind_c, bind_go, bind_java, bind_python, bind_rust, bind_script
from .languages import LANGUAGES, traits_of
from .parse import SyntaxTree, grammar

Besides = Literal["nothing", "imports", "references"]  # what else is asked

BINDERS: dict[str, ModuleType] = {
    "python": bind_python,
    "javascript": bind_script,
    "typescript": bind_script,
    "tsx": bind_script,
    "go": bind_go,
    "rust": bind_rust,
    "java": bind_java,
    "c": bind_c,
    "cpp": bind_c,
}


class Captured(NamedTuple):
    """The nodes that a query has found, by the names of its captures."""

    definitions: list[tuple[int, dict[str, list[Node]]]]  # of each match, with the number of its pattern
    others: dict[str, list[Node]]  # each node once, in the order of the matches


def ask(syntax: SyntaxTree, besides: Besides = "nothing") -> Captured:
    """Walk over a tree once; one that is not complete has nothing."""
    definitions: list[tuple[int, dict[str, list[Node]]]] = []
    if not syntax.complete:
        return Captured(definitions, {})
    query, count = _query(syntax.language, besides if traits_of(syntax.language).is_code else "nothing")
    found: dict[str, dict[int, Node]] = {}
    for match in QueryCursor(query).matches(syntax.root):
        if match[0] < count:
            definitions.append(match)
            continue
        for name, nodes in match[1].items():
            known = found.get(name)
            if known is None:
                known = found[name] = {}
            for node in nodes:
                known[node.id] = node
    return Captured(definitions, {name: list(nodes.values()) for name, nodes in found.items()})


@lru_cache(maxsize=128)
def _query(language: str, besides: Besides) -> tuple[Query, int]:
    """The query, and how many of its patterns are those of definitions."""
    tree_language, own = grammar(language), LANGUAGES[language].query
    others = "" if besides == "nothing" else _others(language, tree_language, only_imports=besides == "imports")
    query = Query(tree_language, f"{own}\n{others}")
    starts = [query.start_byte_for_pattern(pattern) for pattern in range(query.pattern_count)]
    return query, sum(start < len(own.encode()) for start in starts)


def _others(language: str, tree_language: Language, *, only_imports: bool) -> str:
    binder = BINDERS.get(language)
    if binder is None:
        return "" if only_imports else _blanking(tree_language)
    queries: dict[str, str] = getattr(binder, "QUERIES", {})
    query = queries[language] if queries else binder.QUERY
    names: tuple[str, ...] = getattr(binder, "IMPORTS", ())  # the captures of its patterns for imports, one a line
    return "\n".join(line for line in query.splitlines() if line.endswith(names)) if only_imports and names else query


def _blanking(tree_language: Language) -> str:
    """Patterns for comments and strings in a language without a binder."""
    parts: list[str] = []
    for place in range(tree_language.node_kind_count):
        kind = tree_language.node_kind_for_id(place) or ""
        if tree_language.node_kind_is_named(place) and tree_language.node_kind_is_visible(place):
            if "comment" in kind:
                parts.append(f"({kind}) @blank")
            elif "string" in kind or kind in ("char_literal", "character_literal", "regex", "heredoc_body"):
                parts.append(f"({kind}) @text")
            elif "interpolation" in kind or kind.endswith("substitution"):
                parts.append(f"({kind}) @code")
    return "\n".join(dict.fromkeys(parts))
