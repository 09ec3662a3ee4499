"""Macros that hide definitions from a grammar: they are blanked out before a text is parsed.

Rust: `cfg_rt! { pub fn spawn() {} }` defines spawn, but a grammar sees only tokens in there. C++: `class EXPORT Slice`
looks like a function that returns an EXPORT. What they hide is parsed at its own place; the source stays as it is.
"""

import functools
import re
from collections.abc import Iterator

from tree_sitter import Node, Parser, Query, QueryCursor

from .parse import SyntaxTree, grammar, syntax

_QUERY = """
(source_file (macro_invocation (token_tree) @body) @macro)
(source_file (expression_statement (macro_invocation (token_tree) @body) @macro))
(declaration_list (macro_invocation (token_tree) @body) @macro)
"""
_DEEPEST = 4  # macros inside macros
_MOST = 1_000  # macros of a file
_ITEM = re.compile(
    rb"\{\s*+(?:(?>//[^\n]{0,500}\n|/\*.{0,500}?\*/|#!?\[[^\]]{0,500}\])\s*+){0,20}+"
    rb"(?:pub\b|fn\b|use\b|mod\b|impl\b|struct\b|enum\b|trait\b|type\b|const\b|static\b|async\b|unsafe\b|extern\b"
    rb"|macro_rules\b|\w+!\s*\{)",
    re.S,
)
# Macros of C and C++ that stand for attributes or for nothing, by the habit of capitals: between the keyword and the
# name of a class, alone on a line, before a declaration, after its parameters, after a field.
_ATTRIBUTES = (
    re.compile(
        rb"(?:class(?<!\wclass)|struct(?<!\wstruct)|union(?<!\wunion))\s{1,20}"  # `\b` first would take twice as long
        rb"((?:[A-Z][A-Z0-9_]{2,60}(?:\s?\([^(){};]{0,200}\))?\s{1,20}){1,4})"
        rb"(?!final\b)[A-Za-z_]\w{0,200}(?:<[^<>{};]{0,200}>)?\s{0,20}(?:final\s{0,20})?(?::[^:]|\{)"
    ),
    re.compile(
        rb"(?:[{};:>]|^[ \t]{0,40}(?://|#)[^\n]{0,200}|^)[ \t]{0,40}\n\s{0,40}"
        rb"([A-Z][A-Z0-9]{0,60}_[A-Z0-9_]{1,60})[ \t]{0,40}(?=\n)",
        re.M,
    ),
    re.compile(
        rb"^[ \t]{0,40}([A-Z][A-Z0-9]{0,60}_[A-Z0-9_]{1,60})[ \t]{1,40}"
        rb"(?=[A-Za-z][\w: ]{0,100}(?:<[^;{}()]{0,200}>)?[ *&]{1,5}\w{1,200}\s?[(;])",
        re.M,
    ),
    re.compile(
        rb"\)(?:\s{0,100}(?:const|override|noexcept|final)){0,8}\s{1,100}"
        rb"((?:[A-Z][A-Z0-9]{0,60}_[A-Z0-9_]{1,60}(?:\([^(){};]{0,200}\))?\s{0,100}){1,4})(?=[;{:=])"
    ),
    re.compile(
        rb"[\w>*&]\s{1,20}(?!(?:return|else|throw|do|delete|goto|int|void|bool|char|auto|float|double|long)\b)"
        rb"[a-z]\w{0,100}\s{1,100}([A-Z][A-Z0-9]{0,60}_[A-Z0-9_]{1,60}\([^(){};]{0,200}\))\s{0,20}(?=[;={])"
    ),
)
# For those that begin like most of a text, and so take long: what each of their matches ends with. Few places match.
_ENDINGS = {
    _ATTRIBUTES[1]: re.compile(rb"\n[^\S\n]{0,40}[A-Z][A-Z0-9]{0,60}_[A-Z0-9_]{1,60}[ \t]{0,40}(?=\n)"),
    _ATTRIBUTES[4]: re.compile(rb"[A-Z](?<=\s[A-Z])[A-Z0-9]{0,60}_[A-Z0-9_]{1,60}\([^(){};]{0,200}\)\s{0,20}(?=[;={])"),
}
_LONGEST_BEGINNING = 400  # bytes of a match before such an ending; rounded up


def syntax_without_macros(language: str, source: bytes) -> SyntaxTree:
    """The tree of a text with what its macros hide."""
    if language == "rust":
        return _without_wrappers(syntax(language, source))
    text = _without_attributes(source) if language in ("c", "cpp") else source
    tree = syntax(language, text)
    if text == source:
        return tree
    return SyntaxTree(language, source, tree.tree, complete=True) if tree.complete else syntax(language, source)


def _without_attributes(source: bytes) -> bytes:
    """A text of C or C++ with blanks in place of the macros that stand for attributes or nothing."""
    blanked = bytearray(source)
    for pattern in _ATTRIBUTES:
        for start, end in _places(pattern, source):
            blanked[start:end] = re.sub(rb"[^\n]", b" ", source[start:end])
    return bytes(blanked)


def _places(pattern: re.Pattern[bytes], source: bytes) -> Iterator[tuple[int, int]]:
    """The macros that a pattern finds."""
    ending = _ENDINGS.get(pattern)
    endings = list(ending.finditer(source)) if ending is not None else []
    if ending is None or len(endings) * _LONGEST_BEGINNING > len(source):
        yield from (found.span(1) for found in pattern.finditer(source))
        return
    position = 0
    for one in endings:
        start = max(position, one.start() - _LONGEST_BEGINNING)
        if found := pattern.search(source, start, one.end() + 1):
            position = found.end()
            yield found.span(1)


def _without_wrappers(tree: SyntaxTree) -> SyntaxTree:
    """The tree of a Rust file with the items inside macros as if they stood outside."""
    text = tree.source
    for _ in range(_DEEPEST):
        wrappers = _wrappers(tree, text) if tree.complete else []
        if not wrappers:
            break
        blanked = bytearray(text)
        for macro, body in wrappers:
            for start, end in ((macro.start_byte, body.start_byte + 1), (body.end_byte - 1, body.end_byte)):
                blanked[start:end] = re.sub(rb"[^\n]", b" ", text[start:end])
        text = bytes(blanked)
        again = syntax("rust", text)
        if not again.complete:
            break
        tree = SyntaxTree("rust", tree.source, again.tree, complete=True)
    return tree


def _wrappers(tree: SyntaxTree, text: bytes) -> list[tuple[Node, Node]]:
    """The macros that wrap items, and their bodies."""
    found: list[tuple[Node, Node]] = []
    for _, captures in QueryCursor(_query()).matches(tree.root):
        macro, body = captures["macro"][0], captures["body"][0]
        if _ITEM.match(text, body.start_byte, body.end_byte):
            inner = Parser(grammar("rust")).parse(text[body.start_byte + 1 : body.end_byte - 1])
            if not inner.root_node.has_error:
                found.append((macro, body))
    return found[:_MOST]


@functools.cache
def _query() -> Query:
    return Query(grammar("rust"), _QUERY)
