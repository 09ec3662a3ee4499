"""What a file defines, read off its syntax tree by the patterns of its language.

Points are taken apart by index everywhere: `.row` and `.column` of tree-sitter 0.26.0 crash the process sooner or
later (they hand out a reference that they do not own).
"""

import functools
import re
from typing import NamedTuple

from tree_sitter import Node, Query, QueryCursor

from .languages import LANGUAGES, Patterns
from .lines import line_starts
from .parse import Syntax, grammar
from .types import Definition, Span

TYPES = frozenset(
    ("class", "struct", "union", "interface", "trait", "enum", "impl", "extension", "instance", "object", "module")
)
_HELPERS = frozenset(("name", "owner", "value", "comment", "above", "wrap"))
_SIGNATURE = 240  # characters
_DOC = 600
_BLANKS = re.compile(r"\s+")
_GENERICS = re.compile(r"<[^<>]*>")
_QUOTES = re.compile(r"""^[rRuUbBfF]{0,2}('''|\"""|'|")|('''|\"""|'|")$""")
_COMMENT_MARKS = re.compile(
    r"^[ \t]*(///?!?|//!|/\*\*?!?|\*+/|\*(?= |$)|#+!?|--+( ?\|| ?\^)?|\{-\|?|;+|%+|\"(?= ))[ \t]?|\*+/[ \t]*$|-\}$",
    re.M,
)


class _Found(NamedTuple):
    """A match in the tree, before it has its place among the others."""

    start: int
    end: int
    kind: str  # "" for a wrapper
    node: Node
    name: str
    owner: str
    value: Node | None


def definitions(syntax: Syntax) -> list[Definition]:
    """In the order of the text, what is around a thing before it. None of a text that could not be read in time."""
    if not syntax.complete:
        return []
    found, above = _matches(syntax)
    return _Placing(syntax, above).place(found)


def _matches(syntax: Syntax) -> "tuple[list[_Found], _Above]":
    query, patterns = _query(syntax.language), LANGUAGES[syntax.language]
    found: dict[int, tuple[int, _Found]] = {}  # by the name's node: of several patterns that fit the first one counts
    wraps: list[_Found] = []
    above = _Above(syntax)
    for pattern, captures in QueryCursor(query).matches(syntax.root):
        names = captures.get("name")
        if names is None:
            for node in captures.get("wrap", ()):
                wraps.append(_Found(node.start_byte, node.end_byte, "", node, "", "", None))
            above.add(captures.get("comment", ()), is_comment=True)
            above.add(captures.get("above", ()), is_comment=False)
            continue
        kind, node = next((kind, nodes[0]) for kind, nodes in captures.items() if kind not in _HELPERS)
        key = names[0].id
        if key in found and found[key][0] <= pattern:
            continue
        owner = syntax.text(captures["owner"][0]) if "owner" in captures else ""
        name = syntax.text(names[0])
        if patterns.dotted:
            owner, name = _parted(name)
        value = captures["value"][0] if "value" in captures else None
        found[key] = pattern, _Found(node.start_byte, node.end_byte, kind, node, name.strip(), owner, value)
    named = [one for _, one in found.values()]
    return sorted([*wraps, *named], key=lambda one: (one.start, -one.end, one.kind)), above


@functools.cache
def _query(language: str) -> Query:
    return Query(grammar(language), LANGUAGES[language].query)


def _parted(name: str) -> tuple[str, str]:
    """Foo<T>::bar → Foo, bar; exports.x → x; Foo.prototype.bar → Foo, bar."""
    if "operator" in name:
        owner, _, last = name.rpartition("::")
        return _GENERICS.sub("", owner).replace("::", "."), last
    parts = [part.strip() for part in re.split(r"::|\.|:", _GENERICS.sub("", name))]
    parts = [part for part in parts if part not in ("prototype", "exports", "module", "this", "")] or [name]
    return ".".join(parts[:-1]), parts[-1]


class _Above:
    """Comments and attributes, to be found by the line that they end on."""

    def __init__(self, syntax: Syntax) -> None:
        self._syntax = syntax
        self._ending: dict[int, tuple[int, int, bool]] = {}  # last row → first row, first byte, whether a comment

    def add(self, nodes: "list[Node] | tuple[()]", is_comment: bool) -> None:
        for node in nodes:
            first, (last, column) = node.start_point[0], node.end_point
            if column == 0 and last > first:
                last -= 1  # grammars differ in whether the line's end is a part of it
            self._ending[last] = first, node.start_byte, is_comment

    def of(self, row: int, starts: list[int]) -> tuple[int, int, str]:
        """The first row of what stands right above a row, its first byte, and what the comments in it say."""
        source, first, byte, comments = self._syntax.source, row, -1, list[str]()
        while (ending := self._ending.get(first - 1)) is not None:
            begin, start, is_comment = ending
            if source[starts[begin] : start].strip():
                break  # it stands behind code
            if is_comment:
                comments.append(source[start : starts[first]].decode(errors="replace"))
            first, byte = begin, start
        return first, byte, "".join(reversed(comments))


class _Placing:
    """Gives each match its parent, and from there its qualified name."""

    def __init__(self, syntax: Syntax, above: _Above) -> None:
        self._syntax = syntax
        self._patterns: Patterns = LANGUAGES[syntax.language]
        self._above = above
        self._starts = line_starts(syntax.source)
        self._placed: list[Definition] = []

    def place(self, found: list[_Found]) -> list[Definition]:
        around: list[tuple[int, int]] = []  # the end of each definition that is open here, and its index
        wrap: _Found | None = None
        for one in found:
            while around and around[-1][0] <= one.start:
                around.pop()
            if not one.kind:
                if wrap is None or one.start >= wrap.end:
                    wrap = one  # the outermost
                continue
            if wrap is not None and (one.start >= wrap.end or (around and around[-1][0] <= wrap.end)):
                wrap = None
            parent = around[-1][1] if around else -1
            around.append((one.end, len(self._placed)))
            self._placed.append(self._definition(one, parent, wrap))
            wrap = None
        return self._placed

    def _definition(self, one: _Found, parent: int, wrap: _Found | None) -> Definition:
        outer = one.node if wrap is None else wrap.node
        row, (last_row, column) = outer.start_point[0], outer.end_point
        first, byte, comment = self._above.of(row, self._starts)
        last_row -= column == 0 and last_row > row
        span = Span(first + 1, last_row + 1, byte if byte >= 0 else outer.start_byte, outer.end_byte)
        around = self._placed[parent] if parent >= 0 else None
        qualname = ".".join(part for part in (around.qualname if around else "", one.owner, one.name) if part)
        kind = one.kind
        if kind == "function" and ((around and around.kind in TYPES) or (one.owner and self._patterns.dotted)):
            kind = "method"
        elif kind == "variable" and one.name.isupper():
            kind = "constant"
        body = self._body(one)
        doc = self._docstring(body) if self._patterns.docstring else ""
        return Definition(one.name, qualname, kind, span, self._signature(one, body), doc or _said(comment), parent)

    def _body(self, one: _Found) -> Node | None:
        holder = one.value or one.node
        if body := holder.child_by_field_name("body"):
            return body
        if types := self._patterns.bodies:
            return next((child for child in holder.children if child.type in types), None)
        return None

    def _signature(self, one: _Found, body: Node | None) -> str:
        end = body.start_byte if body is not None else one.end
        head = self._syntax.source[one.start : min(end, one.start + 4 * _SIGNATURE)].decode(errors="replace")
        if body is None:
            head = head.split("\n", 1)[0]
        text = _BLANKS.sub(" ", head).strip().removesuffix("{").removesuffix(":").rstrip(" =")
        return text if len(text) <= _SIGNATURE else text[: _SIGNATURE - 1] + "…"

    def _docstring(self, body: Node | None) -> str:
        first = body.named_child(0) if body is not None else None
        if first is None or first.type != "expression_statement":
            return ""
        string = first.named_child(0)
        if string is None or string.type != "string":
            return ""
        return _first_paragraph(_QUOTES.sub("", self._syntax.text(string)))


def _said(comment: str) -> str:
    return _first_paragraph(_COMMENT_MARKS.sub("", comment)) if comment else ""


def _first_paragraph(text: str) -> str:
    lines: list[str] = []
    for line in text.strip().splitlines():
        if not line.strip():
            break
        lines.append(line.strip())
    return " ".join(lines)[:_DOC]
