"""JavaScript and TypeScript: imports, exports, classes, variables and their types."""

from tree_sitter import Node

from .facts import Captures, SyntaxFacts, expression, inherits, returns, typed
from .scan import UNKNOWN
from .scopes import FUNCTIONS, RETURNS, STAR, Expression, ExpressionValue, Scopes, Value

_COMMON = """
(comment) @blank
(string) @text
(template_string) @text
(regex) @text
(template_substitution) @code
(pair key: (property_identifier) @blank)
(import_statement) @import
(export_statement) @export
(variable_declarator) @declare
(assignment_expression) @assign
(formal_parameters) @parameters
(arrow_function parameter: (identifier) @unknown)
(catch_clause parameter: (identifier) @unknown)
(for_in_statement left: (_) @unknown)
(class_heritage) @heritage
(return_statement (_) @return)
"""
_TYPED = """
(public_field_definition) @field
(interface_declaration (extends_type_clause) @heritage)
(function_declaration) @function
(method_definition) @function
"""
QUERIES = {
    "javascript": _COMMON + "(jsx_text) @blank\n(field_definition) @field\n",
    "typescript": _COMMON + _TYPED,
    "tsx": _COMMON + _TYPED + "(jsx_text) @blank\n",
}
BUILT_IN = frozenset(
    {"console", "window", "document", "Object", "Array", "String", "Number", "Boolean", "Promise", "Map", "Set", "Math"}
    | {
        "JSON",
        "Date",
        "Error",
        "TypeError",
        "RegExp",
        "Symbol",
        "undefined",
        "NaN",
        "parseInt",
        "parseFloat",
        "require",
    }
    | {"module", "exports", "process", "setTimeout", "clearTimeout", "setInterval", "globalThis", "arguments"}
)
SELVES = {"this": "()"}

_CHAINS = frozenset({"identifier", "member_expression", "call_expression", "subscript_expression", "this"})
_WRAPPERS = frozenset(
    {"parenthesized_expression", "await_expression", "as_expression", "non_null_expression", "satisfies_expression"}
)


def bind(captures: Captures, scopes: Scopes, facts: SyntaxFacts) -> None:
    """Fill `facts` from what the query found."""
    for node in captures.get("import", ()):
        _import(node, facts)
    for node in captures.get("export", ()):
        _export(node, scopes, facts)
    for node in captures.get("parameters", ()):
        for child in node.named_children:
            _parameter(child, scopes, facts)
    for node in captures.get("declare", ()):
        _declare(node, facts)
    for node in captures.get("assign", ()):
        _assign(node, scopes, facts)
    for node in captures.get("field", ()):
        _field(node, scopes, facts)
    for node in captures.get("unknown", ()):
        for name in _names(node, facts):
            facts.bind(node.start_byte, name, UNKNOWN)
    for node in captures.get("heritage", ()):
        _heritage(node, scopes, facts)
    for node in captures.get("function", ()):
        body = node.child_by_field_name("parameters")
        if body is not None:
            returns(facts, scopes.inside(body.start_byte), node.child_by_field_name("return_type"), scopes)
    for node in captures.get("return", ()):
        owner = scopes.scope(node.start_byte)
        value = _value(node, facts)
        if owner >= 0 and scopes.definitions[owner].kind in FUNCTIONS and isinstance(value, Expression):
            facts.own(node.start_byte, owner, RETURNS, value)


def _value(node: Node | None, facts: SyntaxFacts) -> Value:
    while node is not None and node.type in _WRAPPERS and node.named_child_count:
        node = node.named_children[0]
    if node is not None and node.type == "new_expression":
        return typed(facts.text(node.child_by_field_name("constructor")))
    return expression(node, _CHAINS, frozenset())


def _source(node: Node, facts: SyntaxFacts) -> str:
    source = node.child_by_field_name("source")
    return f"<{facts.text(source)[1:-1]}>" if source is not None else ""


def _import(node: Node, facts: SyntaxFacts) -> None:
    facts.blank(node)
    module = _source(node, facts)
    clause = next((child for child in node.named_children if child.type == "import_clause"), None)
    for child in clause.named_children if clause is not None else ():
        if child.type == "identifier":
            facts.bind(node.start_byte, facts.text(child), f"{module}.default")
            facts.imported("default", module, child.start_byte)
            facts.imported(facts.text(child), module, child.start_byte)
        elif child.type == "namespace_import":
            for name in child.named_children:
                facts.bind(node.start_byte, facts.text(name), module)
                facts.imported(STAR, module, child.start_byte)
        else:
            for one in child.named_children:
                _specifier(one, module, node.start_byte, facts)


def _specifier(node: Node, module: str, at: int, facts: SyntaxFacts) -> None:
    """`a as b` in an import or an export."""
    name, alias = facts.text(node.child_by_field_name("name")), facts.text(node.child_by_field_name("alias"))
    if name:
        facts.imported(name, module, node.start_byte)
        facts.bind(at, alias or name, f"{module}.{name}")


def _export(node: Node, scopes: Scopes, facts: SyntaxFacts) -> None:
    module = _source(node, facts)
    if module:
        facts.blank(node)
        clauses = [child for child in node.named_children if child.type == "export_clause"]
        for clause in clauses:
            for one in clause.named_children:
                _specifier(one, module, node.start_byte, facts)
        if not clauses:
            facts.bind(node.start_byte, STAR, module)
            facts.imported(STAR, module, node.start_byte)
        return
    for clause in node.named_children:
        if clause.type == "export_clause":
            for one in clause.named_children:
                name, alias = facts.text(one.child_by_field_name("name")), facts.text(one.child_by_field_name("alias"))
                if alias and alias != name:
                    facts.own(node.end_byte, -1, alias, ExpressionValue(name))
    if any(child.type == "default" for child in node.children):
        value = node.child_by_field_name("value")
        declared = node.child_by_field_name("declaration")
        if declared is not None:
            place = scopes.inside(declared.end_byte - 1)
            facts.own(node.end_byte, -1, "default", f"#{place}" if place >= 0 else UNKNOWN)
        elif value is not None:
            facts.own(node.end_byte, -1, "default", _value(value, facts))


def _declare(node: Node, facts: SyntaxFacts) -> None:
    name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    kind = node.child_by_field_name("type")
    if name is None:
        return
    module = _required(value, facts)
    at = node.end_byte - 1
    if name.type == "identifier":
        binding = module if module else typed(facts.text(kind)) if kind is not None else _value(value, facts)
        if value is None or value.type not in ("arrow_function", "function_expression", "class"):
            facts.bind(at, facts.text(name), binding)
        if module:
            facts.imported(STAR, module, node.start_byte)
    elif module and name.type == "object_pattern":
        for one in name.named_children:
            key = facts.text(one.child_by_field_name("key")) or facts.text(one)
            facts.bind(at, facts.text(one.child_by_field_name("value")) or key, f"{module}.{key}")
            facts.imported(key, module, one.start_byte)
    else:
        for one in _names(name, facts):
            facts.bind(at, one, UNKNOWN)


def _required(value: Node | None, facts: SyntaxFacts) -> str:
    """The module of `require('x')`; empty for anything else."""
    if (
        value is None
        or value.type != "call_expression"
        or facts.text(value.child_by_field_name("function")) != "require"
    ):
        return ""
    arguments = value.child_by_field_name("arguments")
    first = arguments.named_children[0] if arguments is not None and arguments.named_children else None
    return f"<{facts.text(first)[1:-1]}>" if first is not None and first.type == "string" else ""


def _assign(node: Node, scopes: Scopes, facts: SyntaxFacts) -> None:
    left, value = node.child_by_field_name("left"), _value(node.child_by_field_name("right"), facts)
    if left is None:
        return
    holder, name = facts.text(left.child_by_field_name("object")), facts.text(left.child_by_field_name("property"))
    if left.type == "identifier":
        facts.bind(node.end_byte - 1, facts.text(left), value)
    elif holder == "this":
        owner = scopes.class_around(scopes.inside(node.start_byte))
        if owner >= 0:
            facts.own(node.end_byte - 1, owner, name, value)
    elif facts.text(left) == "module.exports" and value != UNKNOWN:
        facts.own(node.end_byte - 1, -1, "default", value)


def _field(node: Node, scopes: Scopes, facts: SyntaxFacts) -> None:
    name = facts.text(node.child_by_field_name("name") or node.child_by_field_name("property"))
    kind, owner = node.child_by_field_name("type"), scopes.class_around(scopes.inside(node.start_byte))
    if owner >= 0 and name:
        value = typed(facts.text(kind)) if kind is not None else _value(node.child_by_field_name("value"), facts)
        facts.own(node.end_byte - 1, owner, name, value)


def _parameter(node: Node, scopes: Scopes, facts: SyntaxFacts) -> None:
    pattern, kind = node.child_by_field_name("pattern") or node, node.child_by_field_name("type")
    value = typed(facts.text(kind)) if kind is not None else UNKNOWN
    for name in _names(pattern, facts):
        facts.bind(node.start_byte, name, value if pattern.type == "identifier" else UNKNOWN)
    if any(child.type == "accessibility_modifier" for child in node.children):  # constructor(private x: X)
        owner = scopes.class_around(scopes.inside(node.start_byte))
        if owner >= 0:
            facts.own(node.end_byte - 1, owner, facts.text(pattern), value)


def _names(node: Node, facts: SyntaxFacts) -> list[str]:
    """The names that a pattern binds."""
    if node.type in ("identifier", "shorthand_property_identifier_pattern"):
        return [facts.text(node)]
    if node.type in ("member_expression", "subscript_expression", "type_annotation"):
        return []
    if node.type == "assignment_pattern":
        left = node.child_by_field_name("left")
        return _names(left, facts) if left is not None else []
    if node.type == "pair_pattern":
        value = node.child_by_field_name("value")
        return _names(value, facts) if value is not None else []
    return [name for child in node.named_children for name in _names(child, facts)]


def _heritage(node: Node, scopes: Scopes, facts: SyntaxFacts) -> None:
    bases: list[Node] = []
    for child in node.named_children:
        if child.type in ("extends_clause", "implements_clause"):
            bases += [one for one in child.named_children if one.type != "type_arguments"]
        else:
            bases.append(child)
    inherits(facts, scopes.inside(node.start_byte), node.start_byte, bases, scopes)
