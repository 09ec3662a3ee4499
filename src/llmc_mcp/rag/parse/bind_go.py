"""Go: imports, receivers, struct fields, variables and their types."""

import re

from tree_sitter import Node

from .facts import Captures, SyntaxFacts, block_around, expression, type_name, typed
from .scan import UNKNOWN
from .scopes import BASE, ELEMENTS, RETURNS, STAR, ClassScope, Expression, ExpressionValue, Scopes, Value

QUERY = """
(comment) @blank
(interpreted_string_literal) @text
(raw_string_literal) @text
(rune_literal) @text
(composite_literal type: [(type_identifier) (qualified_type) (generic_type)]
  body: (literal_value (keyed_element . (literal_element (identifier) @blank))))
(literal_element (literal_value (keyed_element . (literal_element (identifier) @blank))))
(import_spec) @import
(package_clause) @blank
(field_declaration name: (field_identifier) @blank)
(field_declaration) @field
(parameter_declaration) @parameter
(variadic_parameter_declaration) @parameter
(short_var_declaration) @short
(range_clause) @range
(receive_statement left: (_) @unknown)
(type_switch_statement alias: (_) @unknown)
(var_spec) @spec
(const_spec) @spec
(function_declaration) @function
(method_declaration) @function
(method_elem) @function
"""
IMPORTS = ("@import",)
CLASS_SCOPE: ClassScope = "none"
BUILT_IN = frozenset(
    {"string", "int", "int8", "int16", "int32", "int64", "uint", "uint8", "uint16", "uint32", "uint64", "float32"}
    | {"float64", "bool", "byte", "rune", "error", "any", "make", "new", "len", "cap", "append", "copy", "delete"}
    | {
        "panic",
        "recover",
        "print",
        "println",
        "close",
        "nil",
        "true",
        "false",
        "iota",
        "min",
        "max",
        "clear",
        "uintptr",
    }
)

_HOLDER = re.compile(r"\s*(?:\[\d*\]|map\[[\w.*]+\])")
_BLOCKS = frozenset(
    {"block", "if_statement", "for_statement", "expression_switch_statement", "type_switch_statement"}
    | {"expression_case", "type_case", "default_case", "communication_case", "func_literal"}
)
_WHOLES = frozenset({"function_declaration", "method_declaration"})
_CHAINS = frozenset({"identifier", "selector_expression", "call_expression", "index_expression"})


def bind(captures: Captures, scopes: Scopes, facts: SyntaxFacts) -> None:
    """Fill `facts` from what the query found."""
    for node in captures.get("import", ()):
        _import(node, facts)
    for node in captures.get("field", ()):
        _field(node, scopes, facts)
    for node in captures.get("parameter", ()):
        kind = _typed(facts.text(node.child_by_field_name("type")))
        if node.type == "variadic_parameter_declaration":
            kind = _typed(f"[]{facts.text(node.child_by_field_name('type'))}")
        around = node.parent.parent if node.parent is not None else None
        within = around if around is not None and around.type not in _WHOLES else None
        for name in node.children_by_field_name("name"):
            facts.bind(node.start_byte, facts.text(name), kind, within)
    for node in captures.get("short", ()):
        _assigned(node, facts)
    for node in captures.get("range", ()):
        _ranged(node, facts)
    for node in captures.get("unknown", ()):
        for name in node.named_children:
            if name.type == "identifier":
                facts.bind(node.start_byte, facts.text(name), UNKNOWN, block_around(node, _BLOCKS, _WHOLES))
    for node in captures.get("spec", ()):
        kind, value = node.child_by_field_name("type"), node.child_by_field_name("value")
        for name in node.children_by_field_name("name"):
            first = value.named_children[0] if value is not None and value.named_children else None
            bound = _typed(facts.text(kind)) if kind is not None else _value(first, facts)
            facts.bind(node.end_byte - 1, facts.text(name), bound, block_around(node, _BLOCKS, _WHOLES))
    for node in captures.get("function", ()):
        _function(node, scopes, facts)


def _value(node: Node | None, facts: SyntaxFacts) -> Value:
    while node is not None and node.type in ("unary_expression", "parenthesized_expression") and node.named_children:
        node = node.named_children[0]
    if node is not None and node.type == "composite_literal":
        return _typed(facts.text(node.child_by_field_name("type")))
    if node is not None and node.type == "type_assertion_expression":
        return typed(facts.text(node.child_by_field_name("type")))
    return expression(node, _CHAINS, frozenset())


def _typed(written: str) -> Value:
    """A value of a type; of a slice or a map, what holds values of its elements' type."""
    held = _HOLDER.match(written)
    if held is None:
        return typed(written)
    name = type_name(written[held.end() :])
    return ExpressionValue(f"{name}.{ELEMENTS}") if name and not _HOLDER.match(written[held.end() :]) else UNKNOWN


def _ranged(node: Node, facts: SyntaxFacts) -> None:
    """`for key, value := range values`: only the value has a type that is known."""
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    within = block_around(node, _BLOCKS, _WHOLES)
    known = right is not None and right.type in _CHAINS
    for place, name in enumerate(left.named_children if left is not None else ()):
        if name.type == "identifier":
            is_value = place == 1 and known and right is not None
            value = Expression(right.start_byte, right.end_byte, "[]") if is_value and right is not None else UNKNOWN
            facts.bind(node.start_byte, facts.text(name), value, within)


def _import(node: Node, facts: SyntaxFacts) -> None:
    facts.blank(node)
    path = facts.text(node.child_by_field_name("path"))[1:-1]
    alias = facts.text(node.child_by_field_name("name"))
    last = path.rpartition("/")[2]
    if last[:1] == "v" and last[1:].isdigit():
        last = path.split("/")[-2] if "/" in path else last
    facts.imported(last, f"<{path}>", node.start_byte)
    if alias == ".":
        facts.bind(node.start_byte, STAR, f"<{path}>")
    elif alias != "_":
        facts.bind(node.start_byte, alias or last.removeprefix("go-"), f"<{path}>")


def _field(node: Node, scopes: Scopes, facts: SyntaxFacts) -> None:
    owner = scopes.class_around(scopes.inside(node.start_byte))
    if owner < 0:
        return
    names, kind = node.children_by_field_name("name"), facts.text(node.child_by_field_name("type"))
    for name in names:
        facts.own(node.end_byte, owner, facts.text(name), _typed(kind))
    if not names and (base := type_name(kind)):  # embedded: its methods are promoted to the struct
        facts.own(node.end_byte, owner, BASE, ExpressionValue(base))
        facts.own(node.end_byte, owner, base.rpartition(".")[2], typed(kind))
        facts.inherited.add(node.end_byte)


def _assigned(node: Node, facts: SyntaxFacts) -> None:
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    if left is None or right is None:
        return
    at, within = node.end_byte - 1, block_around(node, _BLOCKS, frozenset())
    names, values = left.named_children, right.named_children
    for place, name in enumerate(names):
        value = _value(values[place], facts) if place < len(values) else UNKNOWN
        if len(values) == 1 and place == 0 and len(names) > 1 and not isinstance(value, Expression):
            value = UNKNOWN
        if name.type == "identifier":
            facts.bind(at, facts.text(name), value, within, since=node.end_byte)
            facts.bind(at, facts.text(name), UNKNOWN, name)  # its own mention


def _function(node: Node, scopes: Scopes, facts: SyntaxFacts) -> None:
    parameters, result = node.child_by_field_name("parameters"), node.child_by_field_name("result")
    if parameters is None or result is None:
        return
    if result.type == "parameter_list" and result.named_children:  # (*Foo, error): the first one counts
        result = result.named_children[0].child_by_field_name("type") or result
    owner = scopes.inside(parameters.start_byte)
    if owner >= 0:
        facts.own(scopes.definitions[owner].span.start - 1, owner, RETURNS, _typed(facts.text(result)))
