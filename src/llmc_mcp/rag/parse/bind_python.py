"""Python: imports, assignments, annotations, base classes, return values; and the parts that are not code."""

import builtins
import re

from tree_sitter import Node

from .facts import LONGEST_TYPE, SyntaxFacts
from .scan import LITERAL, UNKNOWN
from .scopes import (
    BASE,
    CLASSES,
    FUNCTIONS,
    PROPERTY,
    RETURNS,
    STAR,
    Assignment,
    ClassScope,
    Expression,
    ExpressionValue,
    Scopes,
    Value,
)

QUERY = """
(comment) @blank
(string) @text
(interpolation) @code
(type (string (string_content) @code))
(keyword_argument name: (identifier) @blank)
(import_statement) @import
(import_from_statement) @import_from
(future_import_statement) @blank
(assignment) @assign
(augmented_assignment left: (identifier) @_all right: (list) @all (#eq? @_all "__all__"))
(named_expression) @named
(for_statement left: (_) @unknown)
(for_in_clause left: (_) @unknown)
(lambda parameters: (lambda_parameters) @unknown)
(as_pattern) @as
(global_statement) @outer
(nonlocal_statement) @outer
(function_definition) @function
(decorated_definition definition: (_) @decorated)
(class_definition superclasses: (argument_list) @bases)
(return_statement (_) @return)
"""
IMPORTS = ("@import", "@import_from")

CLASS_SCOPE: ClassScope = "body"
BUILT_IN = frozenset(dir(builtins))

_CHAINS = frozenset({"identifier", "attribute", "call", "subscript"})
_LISTS = frozenset({"list", "tuple", "expression_list", "binary_operator"})  # of names in __all__
_NO_VALUE = frozenset({"none", "ellipsis"})
_UNCLEAR = frozenset({"binary_operator", "boolean_operator", "conditional_expression", "yield", "unary_operator"})
_WRAPPERS = re.compile(
    r"(?:[\w.]*\.)?(?:Optional|Annotated|Final|ClassVar|Required|NotRequired|ReadOnly)\[(.*)\]$", re.S
)
_CLASS_ITSELF = re.compile(r"(?:[\w.]*\.)?[Tt]ype\[(.*)\]$", re.S)
_DOTTED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*$")
_ANYTHING = frozenset({"Any", "object", "Callable"})
_YIELDED = re.compile(r"(?:[\w.]*\.)?(?:Async)?(?:Generator|Iterator)\[([^,\]]*(?:\[.*\])?)(?:,.*)?\]$", re.S)
_CONTAINERS = frozenset(
    {"list", "dict", "set", "tuple", "str", "int", "float", "bool", "bytes", "List", "Dict", "Set", "Tuple"}
    | {"Sequence", "Iterable", "Iterator", "Mapping"}
)


def bind(captures: dict[str, list[Node]], scopes: Scopes, facts: SyntaxFacts) -> None:
    """Fill `facts` from what the query found."""
    scopes.begin_later({scopes.inside(node.start_byte): node.start_byte for node in captures.get("decorated", ())})
    for node in captures.get("outer", ()):
        for child in node.named_children:
            scopes.from_outside(node.start_byte, facts.text(child))
    for node in captures.get("import", ()):
        _import(node, facts)
    for node in captures.get("import_from", ()):
        _import_from(node, facts)
    for node in captures.get("function", ()):
        _function(node, scopes, facts)
    for node in captures.get("bases", ()):
        _bases(node, scopes, facts)
    for node in captures.get("assign", ()):
        _assignment(node, scopes, facts)
    for node in captures.get("unknown", ()):
        within = _comprehension(node)
        for name in _names(node):
            facts.bind(node.start_byte, facts.text(name), UNKNOWN, within)
    for node in captures.get("named", ()):
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is not None and value is not None:
            facts.bind(node.end_byte - 1, facts.text(name), _value(value))
    for node in captures.get("as", ()):
        _as_pattern(node, facts)
    for node in captures.get("all", ()):
        _exported(node, facts)
    for node in captures.get("return", ()):
        _returned(node, scopes, facts)


def _comprehension(bound: Node) -> Node | None:
    """The lambda or comprehension that binds these names; None for a loop, whose names outlive it."""
    around = bound.parent
    if around is not None and around.type == "for_in_clause":
        return around.parent
    return around if bound.type == "lambda_parameters" else None


def _value(node: Node, then: str = "") -> Value:
    """The value of an expression; an empty path carries no information."""
    while node.type in ("parenthesized_expression", "await") and node.named_child_count == 1:
        node = node.named_children[0]
    if node.type in _CHAINS:
        return Expression(node.start_byte, node.end_byte, then)
    if node.type in _NO_VALUE:
        return ""
    return UNKNOWN if node.type in _UNCLEAR else LITERAL


def annotated(text: str) -> Value:
    """The value that an annotation describes."""
    if len(text) > LONGEST_TYPE:
        return UNKNOWN
    text = text.strip().strip("\"'").strip()
    while inner := _WRAPPERS.match(text):
        text = inner[1].split(",")[0].strip()
    sides = [side.strip() for side in text.split("|")]
    if len(sides) > 1 and "[" not in text:
        text = next((side for side in sides if side != "None"), text)
        if len([side for side in sides if side != "None"]) > 1:
            return ExpressionValue(f"{text}()", one_of_several=True) if _DOTTED.match(text) else UNKNOWN
    if inner := _CLASS_ITSELF.match(text):
        return ExpressionValue(inner[1]) if _DOTTED.match(inner[1]) else UNKNOWN
    name = text.partition("[")[0]
    if name in _CONTAINERS:
        return LITERAL
    return ExpressionValue(f"{name}()") if _DOTTED.match(name) and name.rpartition(".")[2] not in _ANYTHING else UNKNOWN


def _import(node: Node, facts: SyntaxFacts) -> None:
    """`import a.b, c as d`"""
    facts.blanks.append((node.start_byte, node.end_byte))
    for child in node.named_children:
        alias = child.child_by_field_name("alias")
        named = child.child_by_field_name("name") if alias is not None else child
        module = facts.text(named) if named is not None else ""
        before, _, last = module.rpartition(".")
        facts.imported(last, f"<{before}>" if before else "<>", child.start_byte)
        if alias is not None:
            facts.bind(node.start_byte, facts.text(alias), f"<{module}>")
        else:
            root = module.partition(".")[0]
            facts.bind(node.start_byte, root, f"<{root}>")


def _import_from(node: Node, facts: SyntaxFacts) -> None:
    """`from a.b import c as d`, `from . import e`, `from f import *`"""
    facts.blanks.append((node.start_byte, node.end_byte))
    source = node.child_by_field_name("module_name")
    module = f"<{''.join(facts.text(source).split())}>" if source is not None else "<>"
    for child in node.named_children:
        if child.type == "wildcard_import":
            facts.bind(node.start_byte, STAR, module)
            facts.imported(STAR, module, child.start_byte)
        elif child != source:
            alias = child.child_by_field_name("alias")
            named = child.child_by_field_name("name") if alias is not None else child
            name = facts.text(named) if named is not None else ""
            facts.imported(name, module, child.start_byte)
            facts.bind(node.start_byte, facts.text(alias) if alias is not None else name, f"{module}.{name}")


def _function(node: Node, scopes: Scopes, facts: SyntaxFacts) -> None:
    parameters = node.child_by_field_name("parameters")
    if parameters is None:
        return
    owner = scopes.inside(parameters.start_byte)
    if owner < 0 or scopes.definitions[owner].kind not in FUNCTIONS:
        return
    before = scopes.definitions[owner].span.start - 1  # annotations are evaluated in the enclosing scope
    around = scopes.definitions[owner].parent
    decorators = _decorators(node, facts)
    in_class = around >= 0 and scopes.definitions[around].kind in CLASSES and "staticmethod" not in decorators
    for place, child in enumerate(parameters.named_children):
        name, value = _parameter(child, facts)
        if name and place == 0 and in_class and value == UNKNOWN:
            itself = "classmethod" in decorators or name in ("cls", "mcs", "mcls", "klass")
            value = f"#{around}" if itself else f"#{around}()"
        if name:
            facts.bounds.append(Assignment(before, name, value, owner))
    returned = node.child_by_field_name("return_type")
    if returned is not None:
        written = facts.text(returned)
        if "contextmanager" in decorators and (yielded := _YIELDED.match(written[:LONGEST_TYPE])):
            written = yielded[1]  # the value that `with` binds
        itself = in_class and written in ("Self", "typing.Self")
        facts.bounds.append(Assignment(before, RETURNS, f"#{around}()" if itself else annotated(written), owner))
    if "property" in decorators:
        facts.bounds.append(Assignment(before, PROPERTY, PROPERTY, owner))


def _decorators(function: Node, facts: SyntaxFacts) -> str:
    around = function.parent
    if around is None or around.type != "decorated_definition":
        return ""
    return " ".join(facts.text(child) for child in around.named_children if child.type == "decorator")


def _parameter(node: Node, facts: SyntaxFacts) -> tuple[str, Value]:
    if node.type == "identifier":
        return facts.text(node), UNKNOWN
    kind = node.child_by_field_name("type")
    name = node.child_by_field_name("name") or next((one for one in node.named_children if one.type != "type"), None)
    if name is None:
        return "", UNKNOWN
    starred = name.type != "identifier" or node.type in ("list_splat_pattern", "dictionary_splat_pattern")
    if name.type in ("list_splat_pattern", "dictionary_splat_pattern"):
        name = name.named_children[0] if name.named_children else name
    if starred:
        return facts.text(name), LITERAL
    return facts.text(name), annotated(facts.text(kind)) if kind is not None else UNKNOWN


def _bases(node: Node, scopes: Scopes, facts: SyntaxFacts) -> None:
    owner = scopes.inside(node.start_byte)
    if owner < 0:
        return
    before = scopes.definitions[owner].span.start - 1
    for child in node.named_children:
        base = child.child_by_field_name("value") if child.type == "subscript" else child
        if base is not None and base.type in _CHAINS:
            facts.bounds.append(Assignment(before, BASE, Expression(base.start_byte, base.end_byte), owner))
            facts.inherited.add(base.end_byte)


def _assignment(node: Node, scopes: Scopes, facts: SyntaxFacts) -> None:
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    kind = node.child_by_field_name("type")
    while right is not None and right.type == "assignment":
        right = right.child_by_field_name("right")
    if left is None:
        return
    at = node.end_byte - 1
    if right is not None and facts.text(left) == "__all__":
        _exported(right, facts)
    value = annotated(facts.text(kind)) if kind is not None else _value(right) if right is not None else UNKNOWN
    if left.type == "identifier":
        facts.bind(at, facts.text(left), value)
    elif left.type == "attribute":
        holder, name = left.child_by_field_name("object"), left.child_by_field_name("attribute")
        if holder is not None and name is not None and facts.text(holder) in ("self", "cls"):
            owner = scopes.class_around(scopes.inside(node.start_byte))
            if owner >= 0:
                facts.bounds.append(Assignment(at, facts.text(name), value, owner))
    else:
        for name in _names(left):
            facts.bind(at, facts.text(name), UNKNOWN)


def _exported(node: Node, facts: SyntaxFacts) -> None:
    """The names that `__all__` lists."""
    if node.type == "string":
        facts.exported.append((facts.text(node).strip("\"'"), node.start_byte))
    for child in node.named_children if node.type in _LISTS else ():
        _exported(child, facts)


def _names(node: Node) -> list[Node]:
    """The names that a pattern binds."""
    if node.type == "identifier":
        return [node]
    if node.type in ("attribute", "subscript"):
        return []
    if node.type in ("default_parameter", "typed_default_parameter"):
        name = node.child_by_field_name("name")
        return [name] if name is not None else []
    return [name for child in node.named_children for name in _names(child)]


def _as_pattern(node: Node, facts: SyntaxFacts) -> None:
    """`with X() as x`, `except X as x`"""
    alias = node.child_by_field_name("alias")
    source = node.named_children[0] if node.named_children else None
    if alias is None or source is None:
        return
    caught = node.parent is not None and node.parent.type.startswith("except")
    for name in _names(alias):
        facts.bind(alias.end_byte - 1, facts.text(name), _value(source, "()" if caught else ""))


def _returned(node: Node, scopes: Scopes, facts: SyntaxFacts) -> None:
    owner = scopes.scope(node.start_byte)
    value = _value(node)
    if owner >= 0 and scopes.definitions[owner].kind in FUNCTIONS and value not in ("", LITERAL):
        facts.bounds.append(Assignment(node.start_byte, RETURNS, value, owner))
