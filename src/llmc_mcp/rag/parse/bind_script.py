"""JavaScript and TypeScript: imports, exports, classes, variables and their types."""

from tree_sitter import Node

from .facts import Captures, SyntaxFacts, block_around, expression, inherits, returns, typed
from .scan import LITERAL, UNKNOWN
from .scopes import (
    ABOVE,
    CLASSES,
    FUNCTIONS,
    NAMESPACES,
    RETURNS,
    STAR,
    Assignment,
    ClassScope,
    Expression,
    ExpressionValue,
    Scopes,
    Value,
)

_COMMON = """
(comment) @blank
(string) @text
(template_string) @text
(regex) @text
(template_substitution) @code
(pair key: (property_identifier) @blank)
(pair_pattern key: (property_identifier) @blank)
(import_statement) @import
(export_statement) @export
(variable_declarator) @declare
(assignment_expression) @assign
(formal_parameters) @parameters
(arrow_function parameter: (identifier) @unknown)
(catch_clause parameter: (_) @unknown)
(for_in_statement left: (_) @unknown)
(function_declaration) @named
(generator_function_declaration) @named
(class_declaration) @named
(class_heritage) @heritage
(object [(method_definition) (pair value: [(arrow_function) (function_expression)])] @property)
(return_statement (_) @return)
"""
_TYPED = """
(interface_declaration) @named
(type_alias_declaration) @named
(type_parameters (type_parameter name: (_) @parameter))
(enum_declaration) @named
(property_signature name: (property_identifier) @blank)
(enum_body (property_identifier) @blank)
(enum_assignment name: (property_identifier) @blank)
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
CLASS_SCOPE: ClassScope = "none"
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
SELVES = {"this": "()", "super": ABOVE}
DESTRUCTURES = True

_FUNCTIONS = frozenset({"arrow_function", "function_expression", "generator_function"})
_BLOCKS = _FUNCTIONS | {"statement_block", "for_statement", "for_in_statement", "catch_clause", "switch_body"}
_WHOLES = frozenset(
    {"function_declaration", "generator_function_declaration", "method_definition", "internal_module", "module"}
)
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
        within = node.parent if node.parent is not None and node.parent.type not in _WHOLES else None
        for child in node.named_children:
            _parameter(child, within, scopes, facts)
    _declared(captures, scopes, facts)
    _properties(captures, scopes, facts)
    for node in captures.get("assign", ()):
        _assign(node, scopes, facts)
    for node in captures.get("field", ()):
        _field(node, scopes, facts)
    for node in captures.get("unknown", ()):
        for name in _names(node, facts):
            facts.bind(node.start_byte, name, UNKNOWN, node.parent)
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
        whole = next((child for child in node.named_children if child.type == "namespace_export"), None)
        if whole is not None:  # export * as name from
            facts.bind(node.start_byte, facts.text(whole.named_children[0]), module)
            facts.imported(STAR, module, node.start_byte)
        elif not clauses:
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
            known = scopes.member(-1, facts.text(value)) if value.type == "identifier" else None
            facts.own(node.end_byte, -1, "default", _value(value, facts) if known is None else f"#{known}")


def _declare(node: Node, scopes: Scopes, facts: SyntaxFacts) -> None:
    name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    kind = node.child_by_field_name("type")
    if name is None:
        return
    module = _required(value, facts)
    at = node.end_byte - 1
    is_var = node.parent is not None and node.parent.type == "variable_declaration"
    within = block_around(node, _FUNCTIONS if is_var else _BLOCKS, _WHOLES)
    if name.type == "identifier":
        binding = module if module else typed(facts.text(kind)) if kind is not None else _value(value, facts)
        if value is None or value.type not in ("arrow_function", "function_expression", "class"):
            facts.bind(at, facts.text(name), binding, within)
        elif within is not None:
            _narrow(name, within, scopes, facts)
        if module:
            facts.imported(STAR, module, node.start_byte)
    elif name.type == "object_pattern":
        _taken(name, module or _value(value, facts), at, within, facts)
    else:
        for one in _names(name, facts):
            facts.bind(at, one, UNKNOWN, within)


def _declared(captures: Captures, scopes: Scopes, facts: SyntaxFacts) -> None:
    for node in captures.get("declare", ()):
        _declare(node, scopes, facts)
    for node in captures.get("named", ()):
        name, within = node.child_by_field_name("name"), block_around(node, _BLOCKS, _WHOLES)
        if name is not None and within is not None:
            _narrow(name, within, scopes, facts)


def _properties(captures: Captures, scopes: Scopes, facts: SyntaxFacts) -> None:
    for node in captures.get("property", ()):
        name = node.child_by_field_name("name") or node.child_by_field_name("key")
        place = scopes.inside(name.start_byte) if name is not None else -1
        if place >= 0 and node.parent is not None and scopes.definitions[place].name == facts.text(name):
            scopes.narrow(place, node.parent, is_property=True)
    for node in captures.get("parameter", ()):
        holder, around = scopes.inside(node.start_byte), node.parent.parent if node.parent is not None else None
        while holder >= 0 and scopes.definitions[holder].kind in CLASSES - NAMESPACES:
            holder = scopes.definitions[holder].parent
        if around is not None and around.parent is not None:
            extent = (around.parent.start_byte, around.parent.end_byte)
            owner = scopes.scope_of(holder)
            facts.bounds.append(Assignment(node.start_byte, facts.text(node), UNKNOWN, owner, extent))


def _narrow(name: Node, within: Node, scopes: Scopes, facts: SyntaxFacts) -> None:
    """A function or class that stands in a function without a name is known in there only."""
    place = scopes.inside(name.start_byte)
    if place >= 0 and scopes.definitions[place].name == facts.text(name):
        scopes.narrow(place, within)


def _taken(pattern: Node, value: Value, at: int, within: Node | None, facts: SyntaxFacts) -> None:
    """`const { a, b: c, d = 1 } = value`: each name is an attribute of the value."""
    extent = (within.start_byte, within.end_byte) if within is not None else None
    for one in pattern.named_children:
        inner = one.child_by_field_name("left") if one.type == "object_assignment_pattern" else one
        if inner is None:
            continue
        key, local = inner.child_by_field_name("key"), inner.child_by_field_name("value")
        if inner.type == "pair_pattern" and local is not None and local.type == "assignment_pattern":
            local = local.child_by_field_name("left")
        plain = inner.type == "shorthand_property_identifier_pattern" or (
            key is not None and key.type == "property_identifier" and local is not None
        )
        if not plain or value in (UNKNOWN, LITERAL):
            for name in _names(one, facts):
                facts.bind(at, name, UNKNOWN, within)
            continue
        attribute = facts.text(key if key is not None else inner)
        held = _attribute(value, attribute)
        if local is not None and key is not None:
            facts.taken.append((Assignment(at, attribute, held, extent=extent), key.start_byte))
        if isinstance(value, str):  # of a module
            facts.imported(attribute, value, inner.start_byte)
        for name in _names(local if local is not None else inner, facts):
            facts.bind(at, name, held if local is None or local.type == "identifier" else UNKNOWN, within)


def _attribute(value: Value, name: str) -> Value:
    if isinstance(value, Expression):
        return value._replace(then=f"{value.then}.{name}")
    if isinstance(value, ExpressionValue):
        return value._replace(text=f"{value.text}.{name}")
    return f"{value}.{name}"


def _required(value: Node | None, facts: SyntaxFacts) -> str:
    """The module of `require('x')` or `await import('x')`; empty for anything else."""
    while value is not None and value.type in ("await_expression", "parenthesized_expression") and value.named_children:
        value = value.named_children[0]
    if (
        value is None
        or value.type != "call_expression"
        or facts.text(value.child_by_field_name("function")) not in ("require", "import")
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
        facts.assign(node.end_byte - 1, facts.text(left), value)
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


def _parameter(node: Node, within: Node | None, scopes: Scopes, facts: SyntaxFacts) -> None:
    pattern, kind = node.child_by_field_name("pattern") or node, node.child_by_field_name("type")
    value = typed(facts.text(kind)) if kind is not None else UNKNOWN
    for name in _names(pattern, facts):
        facts.bind(node.start_byte, name, value if pattern.type == "identifier" else UNKNOWN, within)
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
    if node.type in ("assignment_pattern", "object_assignment_pattern"):
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
