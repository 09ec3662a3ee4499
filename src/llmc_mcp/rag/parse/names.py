"""Where a file writes a name, byte by byte: for edits that replace it.

A file is parsed as for the index, so its references and definitions are those of its record.
"""

import re
from typing import TYPE_CHECKING

import msgspec

from .macros import syntax_without_macros
from .name_types import NamePlaces, NameQuery, Outline, OutlinedDefinition, OutlineQuery
from .parse import SyntaxTree, errors
from .queries import ask
from .references import ReferenceBytes, keywords
from .references import located as located_references
from .symbols import DefinitionBytes
from .symbols import located as located_definitions
from .types import Definition, Reference

if TYPE_CHECKING:
    from tree_sitter import Node

_WORD = rb"A-Za-z0-9_$\x80-\xff"
_ALL_ENTRY = re.compile(rb"[A-Za-z]{0,2}[\"']{1,3}")
_PATH_IN_STRING = re.compile(rb"[\w.:/#$-]+")
_NO_CODE = ("comment", "string", "char_literal", "regex", "text")
_KEYS = frozenset({"pair", "keyword_argument", "field_initializer", "jsx_attribute", "labeled_statement"})
_SHORTHAND = frozenset({"shorthand_property_identifier", "shorthand_field_initializer"})
_EXPORTS = (b"module.exports", b"exports")
_STATEMENTS = ("import", "use_declaration", "export", "using")
_MOST_CLASHES = 5


def find_names(query: NameQuery) -> NamePlaces:
    """The places of a name in a file."""
    tree = syntax_without_macros(query.language, query.text)
    empty = NamePlaces({}, [], {}, [], [], [], [], [], [])
    if not tree.complete:
        return msgspec.structs.replace(empty, problem="it could not be parsed")
    if query.new in keywords(query.language):
        return msgspec.structs.replace(empty, problem=f"{query.new} is a word of the language")
    nodes = ask(tree, "references")
    definitions, parts = located_definitions(tree, nodes.definitions)
    where = ReferenceBytes(query.old)
    references = [Reference(*row) for row in located_references(tree, definitions, nodes.others, where).references]
    numbers = {one: number for number, one in enumerate(query.wanted)}
    search = _Tokens(tree, query.old)
    for one, at in zip(references, where.places, strict=True):
        if one in numbers:
            search.add(numbers[one], at, is_import=one.kind == "import")
    if not numbers.keys() <= set(references):
        return msgspec.structs.replace(empty, problem="it is not as it was indexed")
    own = _own_names(tree, definitions, parts, query.old)
    return NamePlaces(
        search.references,
        own,
        search.aliases,
        search.shorthands,
        search.imports,
        search.bare,
        search.keys,
        search.in_strings() if query.strings else [],
        _clashes(tree, query.new) if query.new else [],
        _owners(tree.source, own, query.old.encode()),
        bool(where.unsettled),
    )


def _own_names(tree: SyntaxTree, found: list[Definition], parts: list[DefinitionBytes], old: str) -> list[int]:
    """Where each definition with this name writes it; a destructor has a mark before it."""
    name = old.encode()
    found_at: list[int] = []
    for one, part in zip(found, parts, strict=True):
        at = part.name + (one.name[:1] == "~")
        is_named = part.name >= 0 and one.name.lstrip("~") == old
        found_at.append(at if is_named and _word(name).match(tree.source, at) else -1)
    return found_at


def _owners(source: bytes, own: list[int], name: bytes) -> dict[int, int]:
    found: dict[int, int] = {}
    for place, at in enumerate(own):
        before = source[max(at - len(name) - 8, 0) : max(at, 0)].rstrip(b"~ \n*")
        is_tag = re.search(rb"\b(?:struct|union|enum)\s+%s$" % re.escape(name), before)  # typedef struct a a;
        if before.endswith(name + b"::") or (at >= 0 and is_tag):
            found[place] = source.rfind(name, 0, at)
    return found


def _word(name: bytes) -> re.Pattern[bytes]:
    return re.compile(rb"(?<![%s])%s(?![%s])" % (_WORD, re.escape(name), _WORD))


class _Tokens:
    """Finds the token of each reference that writes the name."""

    def __init__(self, tree: SyntaxTree, old: str) -> None:
        self._tree, self._source, self._name = tree, tree.source, old.encode()
        self.references: dict[int, int] = {}
        self.aliases: dict[int, int] = {}
        self.shorthands: list[int] = []
        self.imports: list[int] = []
        self.bare: list[int] = []
        self.keys: list[int] = []

    def add(self, number: int, at: int, *, is_import: bool) -> None:
        """Look at one reference: several on a line may be the same to the graph."""
        node = self._at(at)
        if node is None and is_import:
            node = self._in_statement(at)
        if node is None:
            self._add_entry(number, at)
            return
        start = node.start_byte if self._text(node) == self._name else at
        self.references[start] = number
        around = node.parent
        is_base = self._tree.language == "cpp"  # `Sub() : Base() {}`
        if around is not None and around.type in _KEYS and around.children[0] == node and not is_base:
            self.keys.append(start)
        if not is_import and self._source[:start].rstrip()[-1:] not in (b".", b">", b":"):
            self.bare.append(start)
        if node.type in _SHORTHAND and not self._is_export(node):
            self.shorthands.append(start)
        while around is not None and around.type in ("dotted_name", "scoped_identifier"):
            around = around.parent
        if is_import and around is not None:
            alias = around.child_by_field_name("alias")
            if alias is None:
                self.imports.append(start)
            elif alias != node and self._text(alias) == self._name:
                self.aliases[start] = alias.start_byte

    def _text(self, node: "Node") -> bytes:
        return self._source[node.start_byte : node.end_byte]

    def _at(self, at: int) -> "Node | None":
        """The token at a byte if it is the name; in macros and annotations in strings, the text decides."""
        node = self._tree.root.descendant_for_byte_range(at, at + 1)
        if node is None:
            return None
        if self._text(node) == self._name:
            return node
        is_quote = node.child_count == 0 and self._source[at : at + 1] in (b'"', b"'")
        return node if not is_quote and _word(self._name).match(self._source, at) else None

    def _in_statement(self, at: int) -> "Node | None":
        """The last token in an import that is the name: `import a.b.Name;`"""
        node = self._tree.root.descendant_for_byte_range(at, at + 1)
        while node is not None and node.parent is not None:
            if node.child_count and node.type.startswith(_STATEMENTS):
                break
            node = node.parent
        if node is None or node.parent is None:
            return None
        for found in reversed(list(_word(self._name).finditer(self._source, node.start_byte, node.end_byte))):
            token = self._at(found.start())
            if token is not None and token.parent is not None and token.parent.child_by_field_name("alias") != token:
                return token
        return None

    def _add_entry(self, number: int, at: int) -> None:
        """An entry of `__all__`."""
        quote = _ALL_ENTRY.match(self._source, at)
        if quote is not None and _word(self._name).match(self._source, quote.end()):
            self.references[quote.end()] = number

    def _is_export(self, node: "Node") -> bool:
        """Whether a shorthand property is a name that a module exports: then its users are renamed, too."""
        around = node.parent.parent if node.parent is not None else None
        left = around.child_by_field_name("left") if around is not None else None
        return left is not None and self._text(left) in _EXPORTS

    def in_strings(self) -> list[int]:
        """Where a string that looks like a name or a path has the name as a part."""
        found: list[int] = []
        for match in _word(self._name).finditer(self._source):
            node = self._tree.root.descendant_for_byte_range(match.start(), match.end())
            if node is not None and "string" in node.type and match.start() not in self.references:
                text = self._text(node).strip(b"\"'`")
                if _PATH_IN_STRING.fullmatch(text):
                    found.append(match.start())
        return found


def _clashes(tree: SyntaxTree, new: str) -> list[int]:
    """Lines on which a name is used without a receiver."""
    lines: list[int] = []
    starts = tree.line_starts
    for match in _word(new.encode()).finditer(tree.source):
        node = tree.root.descendant_for_byte_range(match.start(), match.end())
        if node is None or any(word in node.type for word in _NO_CODE) or len(lines) == _MOST_CLASHES:
            continue
        around = node.parent
        is_key = around is not None and around.type in _KEYS and around.children[0] == node
        if not is_key and tree.source[: match.start()].rstrip()[-1:] != b".":
            lines.append(_line_of(starts, match.start()))
    return lines


def _line_of(starts: list[int], at: int) -> int:
    from bisect import bisect_right

    return bisect_right(starts, at)


# --- definitions -----------------------------------------------------------------------------------


def outline_of(query: OutlineQuery) -> Outline:
    """The definitions of a text."""
    tree = syntax_without_macros(query.language, query.text)
    if not tree.complete:
        return Outline([], [], complete=False)
    starts = tree.line_starts
    found = [
        OutlinedDefinition(
            one.name,
            one.qualname,
            one.kind,
            one.parent,
            one.signature,
            one.span.start,
            part.head,
            one.span.end,
            _line_of(starts, part.head),
        )
        for one, part in zip(*located_definitions(tree, ask(tree).definitions), strict=True)
    ]
    inside: list[int] = []
    for row, start in enumerate(starts[1:-1], 1):
        node = tree.root.descendant_for_byte_range(max(start - 1, 0), start)
        if node is not None and ("string" in node.type or node.type in ("heredoc_body", "template_substitution")):
            inside.append(row)
    return Outline(found, inside, error_lines=[one.line for one in errors(tree) or ()])
