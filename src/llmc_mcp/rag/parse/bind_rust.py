"""Rust: use trees, modules, impl blocks, fields, variables, patterns and their types."""

import re

from tree_sitter import Node

from .facts import Captures, SyntaxFacts, block_around, expression, returns, type_name, typed
from .scan import UNKNOWN
from .scopes import BASE, CLASSES, MODULE, OUTER_MODULE, STAR, ClassScope, ExpressionValue, Scopes, Value

QUERY = """
(line_comment) @blank
(block_comment) @blank
(string_literal) @text
(raw_string_literal) @text
(char_literal) @text
(field_initializer field: (_) @blank)
(field_pattern name: (field_identifier) @blank)
(field_declaration name: (field_identifier) @blank)
(enum_variant name: (identifier) @blank)
(use_declaration argument: (_) @use)
(extern_crate_declaration) @crate
(mod_item) @module
(field_declaration) @field
(parameter) @parameter
(let_declaration) @let
(let_condition) @condition
(match_arm) @arm
(for_expression) @for
(closure_expression parameters: (_) @closure)
(function_item) @function
(function_signature_item) @function
(impl_item) @impl
"""
CLASS_SCOPE: ClassScope = "none"
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
FIELDS_APART = True
SELVES = {"self": "()", "Self": "", "super": OUTER_MODULE}
_SIZES = ("8", "16", "32", "64", "128", "size")
_NUMBERS = frozenset({f"{sign}{bits}" for sign in "iu" for bits in _SIZES} | {"f32", "f64"})
_IMPORTED = frozenset(
    {"Some", "None", "Ok", "Err", "Option", "Result", "Vec", "String", "Box", "str", "bool", "char", "Iterator"}
    | {"IntoIterator", "Default", "Clone", "Drop", "Into", "From", "AsRef", "ToString", "ToOwned"}
)
PRELUDE = {name: f"<std>.{name}" for name in _IMPORTED | _NUMBERS}
# Types whose values are never this project's: their methods are their own, or those of a trait.
_PLAIN = _NUMBERS | {
    *("Vec", "VecDeque", "String", "HashMap", "HashSet", "BTreeMap", "BTreeSet", "str", "bool", "char"),
    *("Path", "PathBuf", "OsStr", "OsString", "Duration", "Instant"),
}

_BLOCKS = frozenset({"block", "match_arm", "closure_expression", "for_expression", "if_expression", "while_expression"})
_MADE = re.compile(
    r"(?:[\w:]*::)?(Arc|Rc|Box|Mutex|RwLock|RefCell|Cell|Pin|Some|Ok|Cow)(?:::<.*>)?(?:::new|::clone|::pin)?$"
)
_PATTERN_PATHS = frozenset({"scoped_identifier", "type_identifier", "scoped_type_identifier", "generic_type"})
_CHAINS = frozenset({"identifier", "field_expression", "call_expression", "scoped_identifier", "index_expression"})
_WRAPPERS = frozenset({"try_expression", "await_expression", "reference_expression", "parenthesized_expression"})


def bind(captures: Captures, scopes: Scopes, facts: SyntaxFacts) -> None:
    """Fill `facts` from what the query found."""
    for node in captures.get("use", ()):
        facts.blank(node)
        _use(node, "", _inline(node, scopes), facts)
    for node in captures.get("crate", ()):
        _extern_crate(node, facts)
    for node in captures.get("module", ()):
        _declared_module(node, scopes, facts)
    for node in captures.get("field", ()):
        owner = scopes.class_around(scopes.inside(node.start_byte))
        if owner >= 0:
            name = facts.text(node.child_by_field_name("name"))
            facts.own(node.end_byte, owner, name, _typed(facts.text(node.child_by_field_name("type"))))
    _variables(captures, facts)
    for node in captures.get("function", ()):
        parameters = node.child_by_field_name("parameters")
        if parameters is not None:
            returns(facts, scopes.inside(parameters.start_byte), node.child_by_field_name("return_type"), scopes)
    for node in captures.get("impl", ()):
        _impl(node, scopes, facts)


# --- variables -------------------------------------------------------------------------------------


def _variables(captures: Captures, facts: SyntaxFacts) -> None:
    """What parameters, `let`, `match` and closures bind, each in its block."""
    for node in captures.get("parameter", ()):
        value = _typed(facts.text(node.child_by_field_name("type")))
        around = node.parent.parent if node.parent is not None else None
        within = around if around is not None and around.type == "closure_expression" else None
        _bind(node.child_by_field_name("pattern"), value, node.start_byte, within, facts)
    for node in captures.get("let", ()):
        kind, value = node.child_by_field_name("type"), node.child_by_field_name("value")
        bound = _typed(facts.text(kind)) if kind is not None else _value(value, facts)
        within, pattern = block_around(node, _BLOCKS, frozenset()), node.child_by_field_name("pattern")
        _bind(pattern, bound, node.end_byte - 1, within, facts, since=node.end_byte)
        _bind(pattern, UNKNOWN, node.start_byte, pattern, facts)  # its own mention in the pattern
    for node in captures.get("condition", ()):
        value = _value(node.child_by_field_name("value"), facts)
        within = block_around(node, _BLOCKS, frozenset())
        _bind(node.child_by_field_name("pattern"), value, node.end_byte - 1, within, facts)
    for node in captures.get("arm", ()):
        pattern = node.child_by_field_name("pattern")
        subject = node.parent.parent if node.parent is not None else None
        value = _value(subject.child_by_field_name("value"), facts) if subject is not None else UNKNOWN
        if pattern is not None:
            for part in pattern.children_by_field_name("condition"):
                pattern = next((one for one in pattern.named_children if one != part), pattern)
            _bind(pattern, value, node.start_byte, node, facts)
    for node in captures.get("for", ()):
        _bind(node.child_by_field_name("pattern"), UNKNOWN, node.start_byte, node, facts)
    for node in captures.get("closure", ()):
        for child in node.named_children:
            if child.type != "parameter":
                _bind(child, UNKNOWN, node.start_byte, node.parent, facts)


def _bind(
    pattern: Node | None, value: Value, at: int, within: Node | None, facts: SyntaxFacts, since: int | None = None
) -> None:
    """Bind the names of a pattern; only a name alone, or what Some and Ok hold, is bound to the value."""
    while pattern is not None:
        if pattern.type == "tuple_struct_pattern" and facts.text(pattern.child_by_field_name("type")) in ("Some", "Ok"):
            held = [one for one in pattern.named_children if one != pattern.child_by_field_name("type")]
        elif pattern.type in ("mut_pattern", "ref_pattern", "reference_pattern", "match_pattern"):
            held = [one for one in pattern.named_children if one.type != "mutable_specifier"]
        else:
            break
        pattern = held[0] if len(held) == 1 else None
    if pattern is None:
        return
    alone = pattern.type == "identifier"
    for name in _names(pattern):
        text = facts.text(name)
        if not text[:1].isupper():  # a constant or a variant, which the pattern compares with
            facts.bind(at, text, value if alone else UNKNOWN, within, since)


def _names(pattern: Node) -> list[Node]:
    """The names that a pattern binds."""
    if pattern.type in ("identifier", "shorthand_field_identifier"):
        return [pattern]
    if pattern.type in _PATTERN_PATHS or pattern.type.endswith(("literal", "_type", "invocation")):
        return []
    kind = pattern.child_by_field_name("type")
    return [name for child in pattern.named_children if child != kind for name in _names(child)]


def _typed(written: str) -> Value:
    """A value of a type."""
    name = type_name(written).rpartition(".")[2]
    return f"<std>.{name}" if name in _PLAIN else typed(written)


def _value(node: Node | None, facts: SyntaxFacts) -> Value:
    while node is not None:
        if node.type in _WRAPPERS and node.named_children:
            node = node.named_children[-1] if node.type == "reference_expression" else node.named_children[0]
        elif inner := _wrapped(node, facts):
            node = inner
        else:
            break
    if node is not None and node.type == "struct_expression":
        return typed(facts.text(node.child_by_field_name("name")))
    return expression(node, _CHAINS, frozenset())


def _wrapped(node: Node, facts: SyntaxFacts) -> Node | None:
    """What `Arc::new(…)` and its like hold: they are used like their content."""
    arguments = node.child_by_field_name("arguments") if node.type == "call_expression" else None
    if arguments is None or arguments.named_child_count != 1:
        return None
    return arguments.named_children[0] if _MADE.match(facts.text(node.child_by_field_name("function"))) else None


# --- modules ---------------------------------------------------------------------------------------


def _inline(node: Node, scopes: Scopes) -> list[str]:
    """The names of the modules around a node that stand in the same file, the outermost first."""
    return [scopes.definitions[place].name for place in reversed(scopes.modules_around(scopes.inside(node.start_byte)))]


def _extern_crate(node: Node, facts: SyntaxFacts) -> None:
    """`extern crate a as b;`"""
    facts.blank(node)
    name, alias = facts.text(node.child_by_field_name("name")), facts.text(node.child_by_field_name("alias"))
    facts.imported(name, "<>", node.start_byte)
    if name != "self":
        facts.bind(node.start_byte, alias or name, f"<{name}>")


def _declared_module(node: Node, scopes: Scopes, facts: SyntaxFacts) -> None:
    """`mod x;` is a file below the folder of its module, or the one that an attribute names."""
    if node.child_by_field_name("body") is not None:
        return
    name, above = facts.text(node.child_by_field_name("name")), node.prev_named_sibling
    inline = _inline(node, scopes)
    place = "./" + "/".join([*inline, name])
    while above is not None and above.type in ("attribute_item", "line_comment", "block_comment"):
        if written := re.match(r'#\[path\s*=\s*"([^"]+)"', facts.text(above)):
            place = f"@{written[1]}"
        above = above.prev_named_sibling
    facts.bind(node.start_byte, name + MODULE, f"<{place}>")
    facts.blank(node)


def _use(node: Node, prefix: str, inline: list[str], facts: SyntaxFacts) -> None:
    """`a::b::{self, C as D, e::*}`, branch by branch."""
    if node.type == "scoped_use_list":
        path = node.child_by_field_name("path")
        inner = _joined(prefix, facts.text(path)) if path is not None else prefix
        listed = node.child_by_field_name("list")
        for child in listed.named_children if listed is not None else ():
            _use(child, inner, inline, facts)
    elif node.type == "use_list":
        for child in node.named_children:
            _use(child, prefix, inline, facts)
    elif node.type == "use_wildcard":
        module = _joined(prefix, facts.text(node.named_children[0])) if node.named_children else prefix
        source = f"<{_from_file(module, inline)}>"
        _type_before(source[1:-1], node, facts)
        facts.bind(node.start_byte, STAR, source)
        facts.imported(STAR, source, node.start_byte)
    elif node.type == "use_as_clause":
        path = _joined(prefix, facts.text(node.child_by_field_name("path")))
        _name_from(path, facts.text(node.child_by_field_name("alias")), node, inline, facts)
    elif node.type == "self":
        _name_from(prefix, "", node, inline, facts)
    else:
        _name_from(_joined(prefix, facts.text(node)), "", node, inline, facts)


def _name_from(path: str, alias: str, node: Node, inline: list[str], facts: SyntaxFacts) -> None:
    if path.endswith("::self"):  # {self as x}
        path = path.removesuffix("::self")
    module, _, name = _from_file(path, inline).rpartition("::")
    source = f"<{module}>" if module else "<>"
    _type_before(module, node, facts)
    last = node if node.type != "use_as_clause" else node.child_by_field_name("path") or node
    facts.imported(name, source, last.end_byte - 1)
    if module:
        facts.bind(node.start_byte, alias or name, f"{source}.{name}")
    elif alias:
        facts.bind(node.start_byte, alias, f"<{name}>")


def _type_before(module: str, node: Node, facts: SyntaxFacts) -> None:
    """A type whose variants are imported is used."""
    before, _, name = module.rpartition("::")
    if before and name[:1].isupper():
        facts.imported(name, f"<{before}>", node.start_byte)


def _from_file(path: str, inline: list[str]) -> str:
    """A path as one from the module that is the file, if it starts from a module inside the file."""
    first, _, rest = path.replace(" ", "").replace("\n", "").removeprefix("::").partition("::")
    modules = list(inline)
    if first == "super" and modules:
        modules.pop()
        while modules and rest.startswith("super::"):
            modules.pop()
            rest = rest.removeprefix("super::")
        if not modules and rest.startswith("super"):
            return rest
        return "::".join(["self", *modules, *([rest] if rest else [])])
    if first == "self" and modules:
        return "::".join(["self", *modules, *([rest] if rest else [])])
    return f"{first}::{rest}" if rest else first


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
        facts.own(scopes.definitions[owner].span.start - 1, owner, BASE, ExpressionValue(base))
        facts.inherited.add(trait.end_byte)
