"""C and C++: includes, bases, members, variables and their types."""

from tree_sitter import Node

from .facts import Captures, SyntaxFacts, expression, inherits, returns, typed
from .scan import UNKNOWN
from .scopes import STAR, ClassScope, Scopes, Value

_COMMON = """
(comment) @blank
(string_literal) @text
(char_literal) @text
(preproc_include) @include
(field_declaration) @field
(parameter_declaration) @local
(declaration) @local
(function_definition) @function
"""
QUERIES = {
    "c": _COMMON,
    "cpp": _COMMON + "(raw_string_literal) @text\n(base_class_clause) @bases\n(for_range_loop) @local\n",
}
IMPORTS = ("@include",)
BUILT_IN = frozenset({"int", "char", "void", "size_t", "bool", "float", "double", "long", "short", "unsigned", "NULL"})
SELVES = {"this": "()"}
CLASS_SCOPE: ClassScope = "methods"

_CHAINS = frozenset(
    {"identifier", "field_expression", "call_expression", "qualified_identifier", "subscript_expression"}
)
_WRAPPERS = frozenset({"parenthesized_expression", "pointer_expression", "cast_expression"})


def bind(captures: Captures, scopes: Scopes, facts: SyntaxFacts) -> None:
    """Fill `facts` from what the query found."""
    for node in captures.get("include", ()):
        facts.blank(node)
        name = facts.text(node.child_by_field_name("path")).strip('<>"')
        facts.bind(node.start_byte, STAR, f"<{name}>")
        facts.imported(STAR, f"<{name}>", node.start_byte)
    for node in captures.get("field", ()):
        owner = scopes.class_around(scopes.inside(node.start_byte))
        for name, value in _declared(node, facts):
            if owner >= 0:
                facts.own(node.end_byte - 1, owner, name, value)
    for node in captures.get("local", ()):
        for name, value in _declared(node, facts):
            if node.type != "declaration" or scopes.scope(node.start_byte) >= 0:
                facts.bind(node.end_byte - 1, name, value)
    for node in captures.get("function", ()):
        body = node.child_by_field_name("body")
        if body is not None:
            returns(facts, scopes.inside(body.start_byte), node.child_by_field_name("type"), scopes)
    for node in captures.get("bases", ()):
        bases = [child for child in node.named_children if child.type != "access_specifier"]
        inherits(facts, scopes.inside(node.start_byte), node.start_byte, bases, scopes)


def _value(node: Node | None, facts: SyntaxFacts) -> Value:
    if node is not None and node.type == "new_expression":
        return typed(facts.text(node.child_by_field_name("type")))
    return expression(node, _CHAINS, _WRAPPERS)


def _declared(node: Node, facts: SyntaxFacts) -> list[tuple[str, Value]]:
    """The variables of a declaration, without the functions that it declares."""
    kind = facts.text(node.child_by_field_name("type"))
    found: list[tuple[str, Value]] = []
    for declarator in node.children_by_field_name("declarator"):
        value: Node | None = None
        one: Node | None = declarator
        while one is not None and one.type not in ("identifier", "field_identifier", "function_declarator"):
            value = one.child_by_field_name("value") or value
            one = one.child_by_field_name("declarator") or next(iter(one.named_children), None)
        if one is not None and one.type != "function_declarator":
            guess = kind in ("auto", "const auto") or kind.startswith("auto")
            found.append((facts.text(one), _value(value, facts) if guess else typed(kind) if kind else UNKNOWN))
    return found
