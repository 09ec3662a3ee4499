"""Items inside Rust's macros: `cfg_rt! { pub fn spawn() {} }` defines spawn.

A grammar sees only tokens in there. Where the tokens are items, the macro's name and braces are blanked out and the
text is parsed again, so that what they hold is parsed at its own place; the source itself stays as it is.
"""

import functools
import re

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


def unwrapped(tree: SyntaxTree) -> SyntaxTree:
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
