"""Rust: use trees, impl blocks, fields, variables and their types."""

from tree_sitter import Node

from .facts import Captures, SyntaxFacts, expression, returns, type_name, typed
from .scan import UNKNOWN
from .scopes import BASE, CLASSES, STAR, ExpressionValue, Scopes, Value

QUERY = """
(line_comment) @blank
(block_comment) @blank
(string_literal) @text
(raw_string_literal) @text
(char_literal) @text
(field_initializer field: (_) @blank)
(use_declaration argument: (_) @use)
(field_declaration) @field
(parameter) @parameter
(let_declaration) @let
(for_expression pattern: (_) @unknown)
(closure_parameters (identifier) @unknown)
(function_item) @function
(function_signature_item) @function
(impl_item) @impl
"""
BUILT_IN = frozenset(
    {"Some", "None", "Ok", "Err", "Option", "Result", "Vec", "String", "Box", "str", "bool", "char", "usize", "isize"}
    | {f"{sign}{bits}" for sign in "iu" for bits in (8, 16, 32, 64, 128)}
    | {
        "f32",
        "f64",
        "println",
        "print",
        "format",
        "vec",
        "panic",
        "assert",
        "assert_eq",
        "write",
        "writeln",
        "eprintln",
    }
    | {"derive", "cfg", "test", "allow", "inline", "doc", "macro_rules", "unimplemented", "todo", "unreachable"}
)
SELVES = {"self": "()", "Self": ""}

_CHAINS = frozenset({"identifier", "field_expression", "call_expression", "scoped_identifier", "index_expression"})
_WRAPPERS = frozenset({"try_expression", "await_expression", "reference_expression", "parenthesized_expression"})


def bind(captures: Captures, scopes: Scopes, facts: SyntaxFacts) -> None:
    """Fill `facts` from what the query found."""
    for node in captures.get("use", ()):
        facts.blank(node)
        _use(node, "", facts)
    for node in captures.get("field", ()):
        owner = scopes.class_around(scopes.inside(node.start_byte))
        if owner >= 0:
            name = facts.text(node.child_by_field_name("name"))
            facts.own(node.end_byte, owner, name, typed(facts.text(node.child_by_field_name("type"))))
    for node in captures.get("parameter", ()):
        facts.bind(node.start_byte, _name(node, facts), typed(facts.text(node.child_by_field_name("type"))))
    for node in captures.get("let", ()):
        kind, value = node.child_by_field_name("type"), node.child_by_field_name("value")
        facts.bind(
            node.end_byte - 1, _name(node, facts), typed(facts.text(kind)) if kind is not None else _value(value, facts)
        )
    for node in captures.get("unknown", ()):
        if node.type == "identifier":
            facts.bind(node.start_byte, facts.text(node), UNKNOWN)
    for node in captures.get("function", ()):
        parameters = node.child_by_field_name("parameters")
        if parameters is not None:
            returns(facts, scopes.inside(parameters.start_byte), node.child_by_field_name("return_type"), scopes)
    for node in captures.get("impl", ()):
        _impl(node, scopes, facts)


def _name(node: Node, facts: SyntaxFacts) -> str:
    return facts.text(node.child_by_field_name("pattern")).removeprefix("mut ").strip()


def _value(node: Node | None, facts: SyntaxFacts) -> Value:
    while node is not None and node.type in _WRAPPERS and node.named_children:
        node = node.named_children[0]
    if node is not None and node.type == "struct_expression":
        return typed(facts.text(node.child_by_field_name("name")))
    return expression(node, _CHAINS, frozenset())


def _use(node: Node, prefix: str, facts: SyntaxFacts) -> None:
    """`a::b::{self, C as D, e::*}`, branch by branch."""
    if node.type == "scoped_use_list":
        path = node.child_by_field_name("path")
        inner = _joined(prefix, facts.text(path)) if path is not None else prefix
        listed = node.child_by_field_name("list")
        for child in listed.named_children if listed is not None else ():
            _use(child, inner, facts)
    elif node.type == "use_list":
        for child in node.named_children:
            _use(child, prefix, facts)
    elif node.type == "use_wildcard":
        module = _joined(prefix, facts.text(node.named_children[0])) if node.named_children else prefix
        facts.bind(node.start_byte, STAR, f"<{module}>")
        facts.imported(STAR, f"<{module}>", node.start_byte)
    elif node.type == "use_as_clause":
        _name_from(
            _joined(prefix, facts.text(node.child_by_field_name("path"))),
            facts.text(node.child_by_field_name("alias")),
            node,
            facts,
        )
    elif node.type == "self":
        _name_from(prefix, "", node, facts)
    else:
        _name_from(_joined(prefix, facts.text(node)), "", node, facts)


def _name_from(path: str, alias: str, node: Node, facts: SyntaxFacts) -> None:
    module, _, name = path.rpartition("::")
    source = f"<{module}>" if module else "<>"
    facts.imported(name, source, node.start_byte)
    if module:
        facts.bind(node.start_byte, alias or name, f"{source}.{name}")


def _joined(prefix: str, path: str) -> str:
    return f"{prefix}::{path}" if prefix else path


def _impl(node: Node, scopes: Scopes, facts: SyntaxFacts) -> None:
    trait, name = node.child_by_field_name("trait"), type_name(facts.text(node.child_by_field_name("type")))
    if trait is None:
        return
    owner = scopes.inside(node.start_byte)
    if owner < 0 or scopes.definitions[owner].kind not in CLASSES:
        place = scopes.member(-1, name)
        owner = place if place is not None else -1
    if owner >= 0 and (base := type_name(facts.text(trait))):
        facts.own(node.start_byte, owner, BASE, ExpressionValue(base))
        facts.inherited.add(trait.end_byte)
