"""C and C++: includes, bases, members, variables and their types."""

import re
from functools import lru_cache

from tree_sitter import Node

from .facts import LONGEST_TYPE, Captures, SyntaxFacts, block_around, expression, inherits, type_name
from .scan import UNKNOWN
from .scopes import BASE, ELEMENTS, RETURNS, STAR, ClassScope, Expression, ExpressionValue, Scopes, Value

_COMMON = """
(comment) @blank
(string_literal) @text
(char_literal) @text
(preproc_include) @include
(field_declaration) @field
(type_definition) @alias
(parameter_declaration) @local
(declaration) @local
(function_definition) @function
"""
QUERIES = {
    "c": _COMMON,
    "cpp": _COMMON
    + "(raw_string_literal) @text\n(base_class_clause) @bases\n(for_range_loop) @local\n(alias_declaration) @alias\n",
}
IMPORTS = ("@include",)
BUILT_IN = frozenset({"int", "char", "void", "size_t", "bool", "float", "double", "long", "short", "unsigned", "NULL"})
SELVES = {"this": "()"}
CLASS_SCOPE: ClassScope = "methods"

_A_TYPE = "::"  # before the name of a type, which is never that of a variable
_BLOCKS = frozenset({"compound_statement", "for_statement", "for_range_loop", "lambda_expression", "catch_clause"})
_CONTAINER = re.compile(
    r"\s*(?:const\s+)?(?:std\s*::\s*)?"
    r"(?:(?:vector|deque|list|set|multiset|unordered_set|array|span|initializer_list|stack|queue)|(?P<map>(?:unordered_)?map))"
    r"\s*<"
)
_TEMPLATE_MEMBER = re.compile(r">\s*::")
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
        _declares(node, scopes, facts)
        for name, value in _declared(node, facts):
            if owner >= 0:
                facts.own(node.end_byte - 1, owner, name, value)
    for node in captures.get("local", ()):
        _declares(node, scopes, facts)
        for name, value in _declared(node, facts):
            if node.type != "declaration" or scopes.scope(node.start_byte) >= 0:
                facts.bind(node.end_byte - 1, name, value, block_around(node, _BLOCKS, frozenset()))
    for node in captures.get("function", ()):
        body = node.child_by_field_name("body")
        if body is not None:
            _returns(scopes.inside(body.start_byte), node, scopes, facts)
    for node in captures.get("alias", ()):
        place = scopes.inside(node.start_byte)
        if place >= 0 and scopes.definitions[place].kind == "type":
            value = _typed(facts.text(node.child_by_field_name("type")))
            if isinstance(value, ExpressionValue):
                at = scopes.definitions[place].span.start - 1
                facts.own(at, place, BASE, ExpressionValue(value.text.removesuffix("()")))
    for node in captures.get("bases", ()):
        bases = [child for child in node.named_children if child.type != "access_specifier"]
        inherits(facts, scopes.inside(node.start_byte), node.start_byte, bases, scopes, _A_TYPE)


def _value(node: Node | None, facts: SyntaxFacts) -> Value:
    if node is not None and node.type == "new_expression":
        return _typed(facts.text(node.child_by_field_name("type")))
    return expression(node, _CHAINS, _WRAPPERS)


def _typed(written: str) -> Value:
    """A value of a type; a container is known by what it holds."""
    return _often_typed(written) if len(written) <= LONGEST_TYPE else _once_typed(written)


def _once_typed(written: str) -> Value:
    held = _CONTAINER.match(written)
    if _TEMPLATE_MEMBER.search(written):  # an iterator
        return UNKNOWN
    if held is None:
        name = type_name(written)
        return ExpressionValue(f"{_A_TYPE}{name}()") if name else UNKNOWN
    arguments = _arguments(written[held.end() :])
    place = int(held["map"] is not None)
    held_type = type_name(arguments[place]) if len(arguments) > place and "<" not in arguments[place] else ""
    is_known = held_type and held_type not in BUILT_IN
    return ExpressionValue(f"{_A_TYPE}{held_type}.{ELEMENTS}" if is_known else "std.vector()")


_often_typed = lru_cache(maxsize=4_000)(_once_typed)  # most declarations of a project have one of a few types


def _arguments(written: str) -> list[str]:
    """The arguments of a template, from the text after its bracket."""
    found, depth, start = list[str](), 0, 0
    for at, letter in enumerate(written[:LONGEST_TYPE]):
        depth += (letter in "<([") - (letter in ">)]")
        if depth < 0 or (letter == "," and not depth):
            found.append(written[start:at])
            start = at + 1
        if depth < 0:
            break
    return found


def _declares(node: Node, scopes: Scopes, facts: SyntaxFacts) -> None:
    """Record what a function returns that is declared without a body."""
    place = scopes.inside(node.end_byte - 1)
    if place >= 0 and scopes.definitions[place].kind == "prototype":
        _returns(place, node, scopes, facts)


def _returns(place: int, node: Node, scopes: Scopes, facts: SyntaxFacts) -> None:
    kind = node.child_by_field_name("type")
    if place >= 0 and kind is not None:
        facts.own(scopes.definitions[place].span.start - 1, place, RETURNS, _typed(facts.text(kind)))


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
        if (
            one is not None
            and one.type == "function_declarator"
            and block_around(node, _BLOCKS, frozenset()) is not None
        ):
            one = one.child_by_field_name("declarator")  # `Slice rest(name);` is a variable
            one = one if one is not None and one.type == "identifier" else None
        if one is not None and one.type != "function_declarator":
            guess = kind in ("auto", "const auto") or kind.startswith("auto")
            found.append((facts.text(one), _guessed(node, value, facts) if guess else _held(kind, declarator)))
    return found


def _guessed(node: Node, value: Node | None, facts: SyntaxFacts) -> Value:
    """The value of a variable whose type the compiler infers."""
    if node.type != "for_range_loop":
        return _value(value, facts)
    looped = _value(node.child_by_field_name("right"), facts)
    return looped._replace(then="[]") if isinstance(looped, Expression) else UNKNOWN


def _held(kind: str, declarator: Node) -> Value:
    """The value of a variable of a written type; of an array, its elements."""
    value = _typed(kind) if kind else UNKNOWN
    is_array = declarator.type == "array_declarator"
    if not is_array or not isinstance(value, ExpressionValue):
        return value
    return ExpressionValue(f"{value.text.removesuffix('()')}.{ELEMENTS}")
