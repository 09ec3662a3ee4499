"""What a file says about other definitions: who is called, imported, inherited, used; and what its names stand for."""

from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache
from types import ModuleType
from typing import NamedTuple

import semble_grammars  # pyright: ignore[reportMissingTypeStubs]
from tree_sitter import Language, Node, Query, QueryCursor

from . import bind_python
from .scan import LITERAL, Mention, scan
from .scopes import CLASSES, FUNCTIONS, Scopes
from .syntax_facts import Facts
from .types import Binding, Definition, Reference

_NOT_KEYWORDS = frozenset({"self", "this", "super", "cls", "base", "Self", "crate", "print", "exec", "match", "case"})
_MOST = 40_000  # references of one file; more has only a machine written


class Found(NamedTuple):
    """What `find` makes of a file."""

    references: list[Reference]
    bindings: list[Binding]


class Grammar(NamedTuple):
    """How a language is read."""

    query: Query | None
    keywords: frozenset[str]
    bind: Callable[[dict[str, list[Node]], Scopes, Facts], None] | None
    built_in: frozenset[str]
    open_classes: bool  # methods see their class's names without a receiver
    definers: bool  # the scan leaves out the names of functions and classes


_BINDERS: dict[str, ModuleType] = {"python": bind_python}


@lru_cache(maxsize=64)
def _grammar(language: str) -> Grammar:
    tongue = semble_grammars.get_language(language)
    kinds = {tongue.node_kind_for_id(place) or "" for place in range(tongue.node_kind_count)}
    keywords = frozenset(kind for kind in kinds if kind.isidentifier()) - _NOT_KEYWORDS
    named = {
        kind
        for place in range(tongue.node_kind_count)
        if tongue.node_kind_is_named(place) and (kind := tongue.node_kind_for_id(place))
    }
    binder = _BINDERS.get(language)
    if binder is None:
        return Grammar(_blanking(tongue), keywords - named, None, frozenset(), True, False)
    return Grammar(
        Query(tongue, binder.QUERY),
        keywords - named,
        binder.bind,
        binder.BUILT_IN,
        getattr(binder, "OPEN_CLASSES", False),
        language == "python",
    )


def _blanking(tongue: Language) -> Query | None:
    """A query for what is no code in a language of which we know nothing else."""
    parts: list[str] = []
    for place in range(tongue.node_kind_count):
        kind = tongue.node_kind_for_id(place) or ""
        if tongue.node_kind_is_named(place) and tongue.node_kind_is_visible(place):
            if "comment" in kind:
                parts.append(f"({kind}) @blank")
            elif "string" in kind or kind in ("char_literal", "character_literal", "regex", "heredoc_body"):
                parts.append(f"({kind}) @text")
            elif "interpolation" in kind or kind.endswith("substitution"):
                parts.append(f"({kind}) @code")
    return Query(tongue, "\n".join(dict.fromkeys(parts))) if parts else None


def find(language: str, root: Node, source: bytes, definitions: list[Definition]) -> Found:
    """References and bindings of a file. `language` must have a grammar."""
    grammar = _grammar(language)
    captures = QueryCursor(grammar.query).captures(root) if grammar.query is not None else {}
    facts, scopes = Facts(), Scopes(definitions, class_scope_is_open=grammar.open_classes)
    if grammar.bind is not None:
        grammar.bind(captures, scopes, facts)
    scanned = scan(_only_code(source, captures, facts), language, grammar.keywords, facts.wanted())
    scopes.bind(facts.bounds, scanned.ends)
    lines = _line_starts(source)
    references = [
        Reference(name, path, "import", bisect_right(lines, at), scopes.inside(at)) for name, path, at in facts.imports
    ]
    references += _references(scanned.mentions[:_MOST], grammar, scopes, facts, lines)
    bindings = [Binding(*one) for one in scopes.bindings()]
    return Found(references, bindings)


def _references(
    mentions: list[Mention], grammar: Grammar, scopes: Scopes, facts: Facts, lines: list[int]
) -> list[Reference]:
    found: list[Reference] = []
    waiting = _own_names(scopes.definitions, grammar.definers)
    bare: dict[tuple[int, str], tuple[str, str]] = {}
    for written, receiver, called, at in mentions:
        inside = scopes.inside(at)
        if written in waiting and _is_definition(waiting[written], scopes.definitions, at, inside):
            continue
        if receiver is None:
            known = bare.get((inside, written))
            if known is None:
                known = bare[inside, written] = _bare(written, inside, scopes, grammar.built_in)
            name, path = known
        else:
            name, path = written, scopes.path(receiver, at, inside)
        if path == LITERAL:
            continue
        inherits = bool(facts.inherited) and at + len(written.encode()) in facts.inherited
        kind = "inherit" if inherits else "call" if called else "use"
        found.append(Reference(name, path, kind, bisect_right(lines, at), inside))
    return found


def _own_names(definitions: list[Definition], but: bool) -> dict[str, list[int]]:
    """Definitions by name, those whose own name the scan has still to come by."""
    waiting: dict[str, list[int]] = {}
    for place, one in enumerate(definitions):
        if not but or one.kind not in CLASSES | FUNCTIONS:
            waiting.setdefault(one.name, []).append(place)
    return waiting


def _is_definition(places: list[int], definitions: list[Definition], at: int, inside: int) -> bool:
    """Whether a mention is the definition's own name: the first one in its span."""
    while inside >= 0:
        if inside in places and definitions[inside].span.start <= at:
            places.remove(inside)
            return True
        inside = definitions[inside].parent
    return False


def _bare(name: str, inside: int, scopes: Scopes, built_in: frozenset[str]) -> tuple[str, str]:
    """What a name without a receiver refers to, as name and path; LITERAL for what nobody would look for."""
    found = scopes.meaning(name, inside)
    if isinstance(found, int):
        return name, f"=#{found}"
    if found is None:
        return name, LITERAL if name in built_in else ""
    if found[0] == "<":
        module, _, attribute = found.rpartition(".")
        if module.endswith(">") and attribute.isidentifier():
            return attribute, module
    return name, LITERAL


def _only_code(source: bytes, captures: dict[str, list[Node]], facts: Facts) -> bytes:
    """The file with spaces where no code is; texts keep their quotes, code inside of them comes back."""
    pieces = [
        (node.start_byte, node.end_byte, kind) for kind in ("blank", "text", "code") for node in captures.get(kind, ())
    ]
    pieces += [(start, end, "blank") for start, end in facts.blanks]
    pieces.sort()
    code = bytearray(source)
    for start, end, kind in pieces:
        if kind == "code":
            code[start:end] = source[start:end]
        elif kind == "blank":
            code[start:end] = b" " * (end - start)
        else:
            code[start:end] = b'"' * (end - start)
    return bytes(code)


def _line_starts(source: bytes) -> list[int]:
    starts, at = [0], source.find(b"\n")
    while at >= 0:
        starts.append(at + 1)
        at = source.find(b"\n", at + 1)
    return starts
