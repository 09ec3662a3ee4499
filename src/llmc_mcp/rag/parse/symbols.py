"""What a file defines, read off its syntax tree by the query of its language.

Points are indexed, never accessed by name: `.row` and `.column` of tree-sitter 0.26.0 crash the process sooner or
later (they return a reference that they do not own).
"""

import re
from bisect import bisect_right
from itertools import filterfalse
from typing import NamedTuple

from tree_sitter import Node

from .languages import LANGUAGES, Language
from .parse import SyntaxTree
from .types import Definition, Span

_HELPERS = frozenset(("name", "owner", "value", "keyword", "comment", "above", "wrap"))
_ONE_NAME = frozenset(("function", "test", "given", "block"))  # `int a, b;` has several
_OUTER = 300
_SIGNATURE = 240  # characters
_ATTRIBUTES = re.compile(r"\A(?:[ \t]*(?:@\w[^\n]*|#?\[[^\n]*\][ \t\r]*)\n)++")
_SEPARATORS = re.compile(r"::|\.|:")
_ANGLES = re.compile(r"([<>])")


class _Match(NamedTuple):
    """A match of the query, before it is nested among the others."""

    start: int
    end: int
    kind: str  # "" for a wrapper
    node: Node
    name: str
    owner: str
    value: Node | None
    name_at: int = 0
    name_end: int = 0


class DefinitionBytes(NamedTuple):
    """Where an edit finds the parts of a definition; the rest is in its span."""

    head: int  # its first byte below comments and decorators
    name: int  # the first byte of its name; -1 if the name is not written as such


_Matches = list[tuple[int, dict[str, list[Node]]]]


def definitions(syntax: SyntaxTree, matches: _Matches) -> list[Definition]:
    """By the matches of the query for them; in the order of the text, outer before inner."""
    return _placed(syntax, matches).definitions


def located(syntax: SyntaxTree, matches: _Matches) -> tuple[list[Definition], list[DefinitionBytes]]:
    """The same, and where the parts of each definition are."""
    nesting = _placed(syntax, matches)
    return nesting.definitions, nesting.parts()


def _placed(syntax: SyntaxTree, matches: _Matches) -> "_Nesting":
    above = _Above(syntax)
    nesting = _Nesting(syntax, above)
    found = _found(syntax, matches, above)
    if LANGUAGES[syntax.language].equations:
        found = _joined(found)
    elif LANGUAGES[syntax.language].sections:
        found = _to_the_next(found, len(syntax.source))
    nesting.place(found)
    return nesting


def _found(syntax: SyntaxTree, matches: _Matches, above: "_Above") -> list[_Match]:
    language = LANGUAGES[syntax.language]
    found: dict[int, tuple[int, _Match]] = {}  # by the name's node: the first of several matching patterns counts
    functions: dict[int, int] = {}  # of what has one name: its node, and the name's
    wraps: list[_Match] = []
    for pattern, captures in matches:
        names = captures.get("name")
        if names is None:
            for kind, nodes in captures.items():
                if kind == "wrap":
                    wraps += [_Match(node.start_byte, node.end_byte, "", node, "", "", None) for node in nodes]
                elif kind in ("comment", "above"):
                    above.add(nodes)
            continue
        key = names[0].id
        if key in found and found[key][0] <= pattern:
            continue
        one = _named(syntax, language, captures, names[0])
        if one is None:
            continue
        if one.kind in _ONE_NAME:
            other = functions.setdefault(one.node.id, key)
            if other != key and found[other][0] <= pattern:
                continue
            if other != key:
                del found[other]
                functions[one.node.id] = key
        found[key] = pattern, one
    named = [one for _, one in found.values() if one.kind != "ignore"]
    return sorted([*wraps, *named], key=lambda one: (one.start, -one.end, one.kind))


def _named(syntax: SyntaxTree, language: Language, captures: dict[str, list[Node]], name: Node) -> _Match | None:
    kind = next(filterfalse(_HELPERS.__contains__, captures))
    node = captures[kind][0]
    if "keyword" in captures:
        kind = language.keywords.get(syntax.text(captures["keyword"][0]))
        if kind is None:
            return None
    owner = _ungeneric(syntax.text(captures["owner"][0])).strip("?") if "owner" in captures else ""
    text = _plain(syntax.text(name))
    if language.dotted and not owner and name.type != "string":
        owner, text = _parted(text)
    value = captures["value"][0] if "value" in captures else None
    return _Match(
        start=node.start_byte,
        end=node.end_byte,
        kind=kind,
        node=node,
        name=text,
        owner=owner,
        value=value,
        name_at=name.start_byte,
        name_end=name.end_byte,
    )


def _joined(found: list[_Match]) -> list[_Match]:
    """A function's equations (and its type, written before them) as one definition."""
    joined: list[_Match] = []
    for one in found:
        last = joined[-1] if joined else one
        same = (last.kind, last.name, last.owner) == (one.kind, one.name, one.owner)
        if same and one.start >= last.end and one.kind in ("function", "macro"):
            joined[-1] = last._replace(end=one.end)
        else:
            joined.append(one)
    return joined


def _to_the_next(found: list[_Match], end: int) -> list[_Match]:
    """Headings as sections: each extends to the next one."""
    ends = [*(one.start for one in found), end][1:]
    return [
        one._replace(end=stop) if one.node.type == "setext_heading" or one.end < stop else one
        for one, stop in zip(found, ends, strict=True)
    ]


def _parted(name: str) -> tuple[str, str]:
    """Foo<T>::bar → Foo, bar; exports.x → x; Foo.prototype.bar → Foo, bar."""
    if name.isidentifier():
        return "", name
    if "operator" in name:
        owner, _, last = name.rpartition("::")
        return _ungeneric(owner).replace("::", "."), last
    parts = [part.strip() for part in _SEPARATORS.split(_ungeneric(name))]
    parts = [part for part in parts if part not in ("prototype", "exports", "module", "this", "")] or [name]
    return ".".join(parts[:-1]), parts[-1]


def _ungeneric(name: str) -> str:
    """Map<K, List<V>> → Map"""
    if "<" not in name:
        return name
    kept: list[str] = []
    opened: list[int] = []  # where, in `kept`, something begins that may be a list of arguments
    for piece in _ANGLES.split(name):
        if piece == ">" and opened:
            del kept[opened.pop() :]
            continue
        if piece == "<":
            opened.append(len(kept))
        kept.append(piece)
    return "".join(kept)


def _plain(name: str) -> str:
    """A name without its marks: :symbol, "quoted", `Foo`."""
    plain = name.strip()
    if plain[:1] in ('"', "'", "`", "["):
        return plain.strip("\"'`[]")
    return plain[1:] if plain[:1] == ":" and plain[1:2].isalpha() else plain


class _Above:
    """Comments and attributes, by the line that they end on."""

    def __init__(self, syntax: SyntaxTree) -> None:
        self._source = syntax.source
        self._starts = syntax.line_starts
        self._ending: dict[int, tuple[int, int]] = {}  # last row → first row, first byte

    def add(self, nodes: list[Node]) -> None:
        starts = self._starts
        for node in nodes:
            start, end = node.start_byte, node.end_byte
            first = bisect_right(starts, start) - 1
            last = first if end <= starts[first + 1] else bisect_right(starts, end - 1) - 1  # may include a line's end
            self._ending[last] = first, start

    def of(self, row: int) -> tuple[int, int]:
        """The first row of what is directly above a row, and its first byte; -1 if there is nothing."""
        first, byte = row, -1
        while (ending := self._ending.get(first - 1)) is not None:
            begin, start = ending
            if self._source[self._starts[begin] : start].strip():
                break  # it follows code on its line
            first, byte = begin, start
        return first, byte


class _Nesting:
    """Gives each match its parent, and from there its qualified name."""

    def __init__(self, syntax: SyntaxTree, above: _Above) -> None:
        self._syntax = syntax
        self._language: Language = LANGUAGES[syntax.language]
        self._above = above
        self._starts = syntax.line_starts
        self._placed: list[tuple[_Match, _Match | None]] = []  # each definition, and what is wrapped around it
        self.definitions: list[Definition] = []

    def place(self, found: list[_Match]) -> None:
        around: list[tuple[int, int, int]] = []  # each definition that is open here: its end, its start, its index
        wraps: list[_Match] = []
        for one in found:
            while around and (around[-1][0] <= one.start or around[-1][:2] == (one.end, one.start)):
                around.pop()  # it has ended, or is another name of the same thing
            if not one.kind:
                wraps = [wrap for wrap in wraps if wrap.end > one.start]
                wraps.append(one)
                continue
            parent = around[-1][2] if around else -1
            around.append((one.end, one.start, len(self._placed)))
            wrap = self._wrap_of(one, wraps)
            self._placed.append((one, wrap))
            self.definitions.append(self._definition(one, parent, wrap))
            wraps.clear()

    def parts(self) -> list[DefinitionBytes]:
        """Where the parts of each definition are."""
        return [self._parts(one, wrap) for one, wrap in self._placed]

    def _parts(self, one: _Match, wrap: _Match | None) -> DefinitionBytes:
        outer = one.node if wrap is None else wrap.node
        head = next((child.start_byte for child in outer.children if child.type != "decorator"), one.start)
        at = self._syntax.source.rfind(one.name.encode(), one.name_at, one.name_end)
        return DefinitionBytes(min(head, one.start) if outer.children else one.start, at)

    def _wrap_of(self, one: _Match, wraps: list[_Match]) -> _Match | None:
        """The outermost wrapper that ends where the definition ends; others hold more than the definition."""
        for wrap in wraps:
            if wrap.end >= one.end and not self._syntax.source[one.end : min(wrap.end, one.end + 100)].strip(
                b" \t\r\n;"
            ):
                return wrap
        return None

    def _definition(self, one: _Match, parent: int, wrap: _Match | None) -> Definition:
        start, end = (one.start, one.end) if wrap is None else (wrap.start, max(wrap.end, one.end))
        row = bisect_right(self._starts, start) - 1
        last_row = bisect_right(self._starts, max(start, end - 1)) - 1
        first, byte = self._above.of(row)
        span = Span(first + 1, last_row + 1, byte if byte >= 0 else start, end)
        around = self.definitions[parent] if parent >= 0 else None
        outer = around.qualname if around else ""
        if len(outer) > _OUTER:
            outer = "…" + outer[-_OUTER:]  # bounds the names of a deeply nested file
        kind, qualname, joint = one.kind, one.name, " > " if one.kind == "section" else "."
        if one.owner:
            qualname = f"{one.owner}{joint}{qualname}" if qualname else one.owner
        if outer:
            qualname = f"{outer}{joint}{qualname}" if qualname else outer
        if kind == "function" and (
            (around and around.kind in self._language.owners) or (one.owner and self._language.dotted)
        ):
            kind = "method"
        elif kind == "variable" and one.name.isupper():
            kind = "constant"
        signature = self._signature(one, self._body(one))
        return Definition(one.name, qualname, kind, span, signature, parent)

    def _body(self, one: _Match) -> Node | None:
        holder = one.value or one.node
        if body := holder.child_by_field_name("body"):
            return body
        if types := self._language.bodies:
            return next((child for child in holder.children if child.type in types), None)
        return None

    def _signature(self, one: _Match, body: Node | None) -> str:
        start, end = one.start, body.start_byte if body is not None else one.end
        source = self._syntax.source
        before = body.prev_sibling if body is not None else None
        while before is not None and "comment" in before.type:  # some grammars put a body's first comments before it
            end, before = before.start_byte, before.prev_sibling
        if body is None:
            start = max(start, source.rfind(b"\n", start, one.name_at) + 1)
            line_end = source.find(b"\n", one.name_at, end)
            end = line_end if line_end >= 0 else end
        head = source[start : min(end, start + 4 * _SIGNATURE)].decode(errors="replace")
        if "\n" in head:
            head = _ATTRIBUTES.sub("", head)
        text = " ".join(head.split()).removesuffix("{").removesuffix(":").removesuffix("=>").rstrip(" =;")
        return text if len(text) <= _SIGNATURE else text[: _SIGNATURE - 1] + "…"
