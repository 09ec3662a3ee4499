"""Java: imports, classes, fields, variables and their types."""

from tree_sitter import Node

from .facts import Captures, SyntaxFacts, expression, inherits, returns, typed
from .scan import UNKNOWN
from .scopes import ABOVE, STAR, ClassScope, Scopes, Value

QUERY = """
(line_comment) @blank
(block_comment) @blank
(string_literal) @text
(character_literal) @text
(package_declaration) @blank
(import_declaration) @import
(field_declaration) @field
(formal_parameter) @parameter
(local_variable_declaration) @local
(resource) @parameter
(enhanced_for_statement) @parameter
(catch_formal_parameter name: (identifier) @unknown)
(lambda_expression parameters: (identifier) @unknown)
(inferred_parameters (identifier) @unknown)
(method_declaration) @function
(superclass) @bases
(super_interfaces) @bases
(extends_interfaces) @bases
"""
IMPORTS = ("@import",)
BUILT_IN = frozenset(
    {
        "String",
        "Object",
        "Integer",
        "Long",
        "Double",
        "Boolean",
        "System",
        "Math",
        "Override",
        "Deprecated",
        "Exception",
    }
    | {"RuntimeException", "Thread", "Class", "Iterable", "Runnable", "SuppressWarnings", "FunctionalInterface"}
)
SELVES = {"this": "()", "super": ABOVE}
CLASS_SCOPE: ClassScope = "methods"
STATIC_IMPORTS = True

_CHAINS = frozenset({"identifier", "field_access", "method_invocation", "this", "array_access"})
_WRAPPERS = frozenset({"parenthesized_expression"})


def bind(captures: Captures, scopes: Scopes, facts: SyntaxFacts) -> None:
    """Fill `facts` from what the query found."""
    for node in captures.get("import", ()):
        _import(node, facts)
    for node in captures.get("field", ()):
        owner = scopes.class_around(scopes.inside(node.start_byte))
        for name, value in _declared(node, facts):
            if owner >= 0:
                facts.own(node.end_byte - 1, owner, name, value)
    for node in captures.get("local", ()):
        for name, value in _declared(node, facts):
            facts.bind(node.end_byte - 1, name, value)
    for node in captures.get("parameter", ()):
        name, kind = node.child_by_field_name("name"), node.child_by_field_name("type")
        if name is not None:
            facts.bind(node.start_byte, facts.text(name), typed(facts.text(kind)))
    for node in captures.get("unknown", ()):
        facts.bind(node.start_byte, facts.text(node), UNKNOWN)
    for node in captures.get("function", ()):
        parameters = node.child_by_field_name("parameters")
        if parameters is not None:
            returns(facts, scopes.inside(parameters.start_byte), node.child_by_field_name("type"), scopes)
    for node in captures.get("bases", ()):
        named = node.named_children
        bases = named[0].named_children if named and named[0].type == "type_list" else named
        inherits(facts, scopes.inside(node.start_byte), node.start_byte, bases, scopes)


def _value(node: Node | None, facts: SyntaxFacts) -> Value:
    while node is not None and node.type in ("parenthesized_expression", "cast_expression") and node.named_children:
        node = node.named_children[-1]
    if node is not None and node.type == "object_creation_expression":
        return typed(facts.text(node.child_by_field_name("type")))
    return expression(node, _CHAINS, _WRAPPERS)


def _declared(node: Node, facts: SyntaxFacts) -> list[tuple[str, Value]]:
    kind = facts.text(node.child_by_field_name("type"))
    found: list[tuple[str, Value]] = []
    for one in node.children_by_field_name("declarator"):
        value = _value(one.child_by_field_name("value"), facts) if kind == "var" else typed(kind)
        found.append((facts.text(one.child_by_field_name("name")), value))
    return found


def _import(node: Node, facts: SyntaxFacts) -> None:
    facts.blank(node)
    path = next(
        (facts.text(child) for child in node.named_children if child.type in ("scoped_identifier", "identifier")), ""
    )
    module, _, name = path.rpartition(".")
    parts = path.split(".")
    for place, part in enumerate(parts[:-1]):  # classes, by convention: a nested one or a member is imported
        if part[:1].isupper():
            facts.imported(part, f"<{'.'.join(parts[: place + 1])}>", node.start_byte)
    if any(child.type == "asterisk" for child in node.named_children):
        facts.bind(node.start_byte, STAR, f"<{path}>")
        facts.imported(STAR, f"<{path}>", node.start_byte)
        return
    static = any(child.type == "static" for child in node.children)
    source = f"<{module}>.{module.rpartition('.')[2]}" if static else f"<{path}>"
    facts.imported(name, source, node.start_byte)
    facts.bind(node.start_byte, name, f"{source}.{name}")
