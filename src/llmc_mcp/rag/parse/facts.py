"""The facts that the binder of a language collects from a syntax tree, and helpers that binders share."""

import re
from collections.abc import Iterable
from functools import lru_cache

from tree_sitter import Node

from .scan import LITERAL, UNKNOWN
from .scopes import BASE, RETURNS, Assignment, Expression, ExpressionValue, Scopes, Value

Captures = dict[str, list[Node]]

LONGEST_TYPE = 1_000  # characters; a longer type is not parsed
# Types that only wrap another one: their values are used like values of that type.
_WRAPPER = re.compile(
    r"(?:[\w.]+\.)?(?:Box|Rc|Arc|RefCell|Mutex|RwLock|Option|Result|Promise|Readonly|Partial|Required|Optional"
    r"|unique_ptr|shared_ptr|weak_ptr|Ref|Observable|Provider)<([^,<>]+(?:<.*>)?)(?:,.*)?>$"
)
_NOISE = re.compile(
    r"\b(?:const|mut|dyn|impl|final|static|struct|class|enum|typename|volatile|readonly|in)\b|'\w+\s|[&*?!\s]"
)
_PATH = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_SEPARATOR = re.compile(r"::|->")


class SyntaxFacts:
    """Bindings, imports, and the ranges of a file that are not code."""

    def __init__(self, source: bytes) -> None:
        self._source = source
        self.bounds: list[Assignment] = []
        self.imports: list[tuple[str, str, int]] = []  # name, path of its source, byte offset
        self.exported: list[tuple[str, int]] = []  # names inside strings that count nevertheless: those of __all__
        self.taken: list[tuple[Assignment, int]] = []  # attributes that a pattern renames, each with its byte offset
        self.blanks: list[tuple[int, int]] = []
        self.inherited: set[int] = set()  # ends of names that are bases of classes

    def text(self, node: Node | None) -> str:
        """The source of a node."""
        return "" if node is None else self._source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def bind(self, at: int, name: str, value: Value, within: Node | None = None, since: int | None = None) -> None:
        """Bind a name to a value in the enclosing scope or, in a part of it, `within` a node and `since` an offset."""
        extent = (within.start_byte if since is None else since, within.end_byte) if within is not None else None
        self.bounds.append(Assignment(at, name, value, extent=extent))

    def assign(self, at: int, name: str, value: Value) -> None:
        """Give another value to a name, in the scope that declares it."""
        self.bounds.append(Assignment(at, name, value, declares=False))

    def own(self, at: int, owner: int, name: str, value: Value) -> None:
        """Record an attribute, a base or a return value of a definition."""
        self.bounds.append(Assignment(at, name, value, owner))

    def imported(self, name: str, source: str, at: int) -> None:
        """Record that the file imports a name from a source."""
        self.imports.append((name, source, at))

    def blank(self, node: Node) -> None:
        """Exclude a node from the scan for names."""
        self.blanks.append((node.start_byte, node.end_byte))

    def wanted(self) -> set[int]:
        """Ends of the expressions that are bound as values."""
        return {one.value.end for one in self.bounds if isinstance(one.value, Expression)}


def typed(written: str) -> Value:
    """A value of a type, in the notation that most languages share."""
    name = type_name(written)
    return ExpressionValue(f"{name}()") if name else UNKNOWN


def type_name(written: str) -> str:
    """The dotted name of a type, without wrappers and modifiers; empty if there is none."""
    return _type_name(written) if len(written) <= LONGEST_TYPE else ""


@lru_cache(maxsize=4_000)  # of types that few files do without
def _type_name(written: str) -> str:
    name = _NOISE.sub("", _SEPARATOR.sub(".", written.strip().lstrip(":")))
    while inner := _WRAPPER.match(name):
        name = inner[1]
    if name.startswith(("[", "(", "{")) or "[]" in name or "|" in name:
        sides = [side for side in name.split("|") if side not in ("null", "undefined")]
        if len(sides) != 1 or sides[0].startswith(("[", "(", "{")) or "[]" in sides[0]:
            return ""
        name = sides[0]
    found = _PATH.match(name)
    return found[0] if found is not None else ""


def expression(node: Node | None, chains: frozenset[str], wrappers: frozenset[str]) -> Value:
    """The value of an expression: a chain of names and calls, a literal, or unknown."""
    while node is not None and node.type in wrappers and node.named_child_count >= 1:
        node = node.named_children[-1]
    if node is None:
        return UNKNOWN
    if node.type in chains:
        return Expression(node.start_byte, node.end_byte)
    literal = any(word in node.type for word in ("string", "number", "literal", "array", "true", "false", "integer"))
    return LITERAL if literal else UNKNOWN


def block_around(node: Node, blocks: frozenset[str], wholes: frozenset[str]) -> Node | None:
    """The innermost block that a declaration holds in; None if that is a whole scope: the file or a definition."""
    around = node.parent
    while around is not None and around.type not in blocks:
        around = around.parent
    if around is None or around.parent is None or around.parent.type in wholes:
        return None
    return around


def inherits(facts: SyntaxFacts, owner: int, at: int, bases: Iterable[Node], scopes: Scopes, mark: str = "") -> None:
    """Record the bases of a definition; `mark` says that none is the name of a variable."""
    before = scopes.definitions[owner].span.start - 1 if owner >= 0 else at
    for base in bases:
        name = type_name(facts.text(base))
        if name and owner >= 0:
            facts.own(before, owner, BASE, ExpressionValue(mark + name))
            start = facts.text(base).find(name.rpartition(".")[2])
            facts.inherited.add(base.start_byte + max(start, 0) + len(name.rpartition(".")[2].encode()))


def returns(facts: SyntaxFacts, owner: int, kind: Node | None, scopes: Scopes) -> None:
    """Record the return type of a function."""
    if owner >= 0 and kind is not None:
        facts.own(scopes.definitions[owner].span.start - 1, owner, RETURNS, typed(facts.text(kind)))
