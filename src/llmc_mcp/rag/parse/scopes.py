"""Scopes: what a name stands for inside its own file.

A value is written as a path, which holds everything that one file can know of it:

    <a.b>.c      what module a.b calls c (`from a.b import c`); <..x> and <./x> are relative to the file
    #7           definition 7 of this file;  #7() an instance of it, or what it returns
    ^7           what the bases of class 7 have: super()
    name         a name that is not bound in this file: built in, or brought by a star import or by the package
    ?            not known;  ' a value of the language itself
    .x () []     an attribute, a call, an element of the path before it
    ~            in front: one of several possibilities

Paths are linked across files at query time, so a change of one file never invalidates another one's record.
"""

import re
from bisect import bisect_right
from typing import NamedTuple

from .scan import LITERAL, UNKNOWN
from .types import Definition

CLASSES = frozenset(
    {"class", "struct", "interface", "trait", "enum", "type", "union", "record", "impl", "object", "protocol", "mixin"}
    | {"module", "namespace", "extension", "instance", "concept"}
)
FUNCTIONS = frozenset({"function", "method", "constructor", "macro", "property", "getter", "setter", "prototype"})
_SCOPED = CLASSES | FUNCTIONS
RETURNS, BASE, STAR, PROPERTY, EXPORTS = "()", "^", "*", "@", "="  # keys of bindings that are not names

_FIRST = re.compile(r"[.(\[]")
_DEEPEST = 8  # values of values of values
_LONGEST = 120  # characters of a path; what is longer is nothing that could be linked


class Expression(NamedTuple):
    """A value that is the expression between two bytes, or what comes of it."""

    start: int
    end: int
    then: str = ""  # () for what it makes or returns


class ExpressionValue(NamedTuple):
    """A value that is an expression in words: of a type, say."""

    text: str
    one_of_several: bool = False


Value = Expression | ExpressionValue | str  # a str is a path already


class Assignment(NamedTuple):
    """A name that gets a value somewhere in the file."""

    at: int  # from where on
    name: str
    value: Value
    owner: int | None = None  # the definition whose name it is; None for the scope that it stands in


class Scopes:
    """The scopes of one file: who contains whom, what each binds, what a path means there."""

    def __init__(self, definitions: list[Definition], *, class_scope_is_open: bool, selves: dict[str, str]) -> None:
        """In some languages a method sees its class's names without a receiver (`class_scope_is_open`).

        `selves` are the words for the instance or the class around: `this`, `Self`.
        """
        self.definitions = definitions
        self._open, self._selves = class_scope_is_open, selves
        self._members: dict[tuple[int, str], int] = {}
        self._classes = {one.qualname: place for place, one in enumerate(definitions) if one.kind in CLASSES}
        for place, one in enumerate(definitions):
            if self._stands_in_its_owner(one):
                self._members.setdefault((one.parent, one.name), place)
        self._bound: dict[tuple[int, str], list[Assignment]] = {}
        self._ends: dict[int, tuple[int, str]] = {}
        self._not_here: set[tuple[int, str]] = set()  # names that a scope says it has from further out
        starts = [one.span.start for one in definitions]
        self._edges, self._inner = _flatten(definitions, starts)
        self._lookup = self._edges, self._inner
        self._cache: dict[tuple[int, str], str] = {}
        self._chains: dict[int, list[int]] = {}
        self._scope_of = [*(self._find_scope(place) for place in range(len(definitions))), -1]  # the last one is at -1

    def inside(self, at: int) -> int:
        """The innermost definition around a byte; -1 for none."""
        return self._inner[bisect_right(self._edges, at)]

    def begin_later(self, starts: dict[int, int]) -> None:
        """Some definitions' scopes begin later than they do: decorators are read in the scope around."""
        if starts:
            first = [starts.get(place, one.span.start) for place, one in enumerate(self.definitions)]
            self._lookup = _flatten(self.definitions, first)

    def reads_in(self, at: int) -> int:
        """The definition in whose scope the names at a byte are read."""
        edges, inner = self._lookup
        return inner[bisect_right(edges, at)]

    def stretch(self, at: int) -> tuple[int, int, int]:
        """The definition in whose scope the names at a byte are read; from which byte to which that is so."""
        edges, inner = self._lookup
        place = bisect_right(edges, at)
        return inner[place], edges[place - 1] if place else 0, edges[place] if place < len(edges) else 1 << 62

    def scope(self, at: int) -> int:
        """The innermost definition around a byte that has names of its own."""
        return self.scope_of(self.reads_in(at))

    def scope_of(self, place: int) -> int:
        """The definition itself if it has names of its own, else the one around it that has."""
        return self._scope_of[place]

    def _find_scope(self, place: int) -> int:
        while place >= 0 and self.definitions[place].kind not in _SCOPED:
            place = self.definitions[place].parent
        return place

    def class_around(self, place: int) -> int:
        """The class that a definition lies in, belongs to, or is; -1 for none."""
        while place >= 0 and self.definitions[place].kind not in CLASSES:
            one = self.definitions[place]
            if not self._stands_in_its_owner(one):
                return self._classes.get(one.qualname.rpartition(".")[0], -1)
            place = one.parent
        return place

    def _stands_in_its_owner(self, one: Definition) -> bool:
        """Methods of Go and C++ may stand outside of their class; their qualified names then say whose they are."""
        around = self.definitions[one.parent].qualname + "." if one.parent >= 0 else ""
        return len(one.qualname) == len(around) + len(one.name)

    def member(self, owner: int, name: str) -> int | None:
        """What a definition (or the file, as -1) defines under a name."""
        return self._members.get((owner, name))

    def from_outside(self, at: int, name: str) -> None:
        """A scope says that a name is not its own: `global x`."""
        self._not_here.add((self.scope(at), name))

    def bind(self, bounds: list[Assignment], ends: dict[int, tuple[int, str]]) -> None:
        """Take note of every binding; `ends` tells what the expressions among their values are."""
        self._ends = ends
        for one in bounds:
            owner = self.scope(one.at) if one.owner is None else one.owner
            while (owner, one.name) in self._not_here and owner >= 0:
                owner = self.scope_of(self.definitions[owner].parent)
            self._bound.setdefault((owner, one.name), []).append(one)
        for found in self._bound.values():
            found.sort(key=lambda one: one.at)

    def bindings(self) -> list[tuple[int, str, str]]:
        """What others may ask of this file: values of its names and of its classes' names, and what calls return."""
        found: dict[tuple[int, str, str], None] = {}
        for (owner, name), bounds in self._bound.items():
            outside = owner < 0 or self.definitions[owner].kind in CLASSES or name in (RETURNS, PROPERTY)
            if outside:
                for one in bounds[:8]:
                    path = self._for_others(owner, name, self._value(one, 0))
                    if path not in (LITERAL, "") and not (path == UNKNOWN and name == RETURNS):
                        found[owner, name, path] = None
        return list(found)

    def _for_others(self, owner: int, name: str, path: str) -> str:
        """What a method returns of its own instance, it returns of every subclass's: `$` is who was asked."""
        if name == RETURNS and owner >= 0:
            around = f"#{self.class_around(owner)}()"
            if path.startswith(around):
                return "$" + path[len(around) :]
        return path

    def meaning(self, name: str, inside: int) -> int | str | None:
        """What a bare name means inside a definition: a definition of this file, a path, or None if it is not bound."""
        for scope in self._outwards(self._scope_of[inside]):
            place = self._members.get((scope, name))
            if place is not None and (scope, name) not in self._not_here:
                return place
            bounds = self._bound.get((scope, name))
            if bounds:
                return self._one_of(bounds, 0)
        return None

    def path(self, written: str, at: int, inside: int, depth: int = 0) -> str:
        """The path of an expression as written: its first name is looked up, the rest kept."""
        if written[0] in "?'":
            return shorten(written)
        first = _FIRST.split(written, 1)[0]
        found = self._look_up(first, at, self._scope_of[inside], depth)
        if found.startswith("super") and written[len(first) :].startswith("()"):
            return shorten(self._above(found, at, inside) + written[len(first) + 2 :])
        if found in self._selves and found == first:
            around = self.class_around(inside)
            found = f"#{around}{self._selves[found]}" if around >= 0 else found
        return shorten(found + written[len(first) :])

    def _above(self, written: str, at: int, inside: int) -> str:
        """`super()`, or `super(Class, self)`, which starts above another class than the one around."""
        around = self.class_around(inside)
        _, other, name = written.partition(":")
        if not other or (around >= 0 and self.definitions[around].name == name):
            return f"^{around}" if around >= 0 else UNKNOWN
        found = self._look_up(name, at, self._scope_of[inside], 0)
        return f"^{found[1:]}" if found[0] == "#" and found[1:].isdigit() else UNKNOWN

    def _outwards(self, scope: int) -> list[int]:
        """The scopes in which a name is looked for, from the innermost on."""
        chain = self._chains.get(scope)
        if chain is None:
            chain, outer = [scope], scope
            while outer >= 0:
                outer = self._scope_of[self.definitions[outer].parent]
                if self._open or outer < 0 or self.definitions[outer].kind not in CLASSES:
                    chain.append(outer)
            self._chains[scope] = chain
        return chain

    def _look_up(self, name: str, at: int, innermost: int, depth: int) -> str:
        known = self._cache.get((innermost, name))
        if known is not None:
            return known
        if depth > _DEEPEST:
            return UNKNOWN
        for scope in self._outwards(innermost):
            bounds = self._bound.get((scope, name))
            place = self._members.get((scope, name))
            if place is not None and self.definitions[place].kind in _SCOPED:
                bounds = None
            if bounds and len(bounds) > 1 and scope == innermost:
                return self._latest(bounds, at, depth)
            if bounds or place is not None:
                path = self._one_of(bounds, depth) if bounds else f"#{place}"
                self._cache[innermost, name] = path
                return path
        self._cache[innermost, name] = name
        return name

    def _latest(self, bounds: list[Assignment], at: int, depth: int) -> str:
        """The value by the last binding before a place: what a reader would assume."""
        before = [one for one in bounds if one.at < at and one.value != ""]
        if not before:
            return UNKNOWN
        path = self._value(before[-1], depth)
        if path == LITERAL and len(before) > 1:
            return UNKNOWN  # one branch makes a list, another one something else
        certain = len(before) == 1 or path in (UNKNOWN, LITERAL)
        return path if certain or path.startswith("~") else f"~{path}"

    def _one_of(self, bounds: list[Assignment], depth: int) -> str:
        values = {self._value(one, depth): None for one in bounds[-4:]}
        values.pop("", None)
        known = [path for path in values if path != UNKNOWN]
        if not known:
            return UNKNOWN
        return known[-1] if len(values) == 1 or known[-1].startswith("~") else f"~{known[-1]}"

    def _value(self, one: Assignment, depth: int) -> str:
        value = one.value
        if isinstance(value, str):
            return value
        if isinstance(value, ExpressionValue):
            path = self.path(value.text, one.at, self.reads_in(one.at), depth + 1)
            return shorten(f"~{path}") if value.one_of_several else path
        start, written = self._ends.get(value.end, (-1, UNKNOWN))
        if start != value.start:
            return UNKNOWN
        return self.path(written + value.then, one.at, self.reads_in(one.at), depth + 1)


def shorten(path: str) -> str:
    """A path without what makes no difference, or not known if it is too long to be linked."""
    bare = path.lstrip("~")
    if bare[0] == UNKNOWN:
        return UNKNOWN
    if bare[0] == LITERAL:  # what a list holds, or a method of a text returns, can be anything
        return UNKNOWN if "(" in bare or "[" in bare else LITERAL
    if path.startswith("~~"):
        path = path[1:]
    return path if len(path) <= _LONGEST else UNKNOWN


def _flatten(definitions: list[Definition], starts: list[int]) -> tuple[list[int], list[int]]:
    """Where the innermost definition changes: sorted bytes, and who is innermost from each of them on."""
    edges: list[int] = []
    inner: list[int] = [-1]
    stack: list[tuple[int, int]] = []  # end, place
    for place in sorted(range(len(definitions)), key=lambda at: (starts[at], -definitions[at].span.end)):
        start = starts[place]
        while stack and stack[-1][0] <= start:
            end, _ = stack.pop()
            edges.append(end)
            inner.append(stack[-1][1] if stack else -1)
        edges.append(start)
        inner.append(place)
        stack.append((definitions[place].span.end, place))
    while stack:
        end, _ = stack.pop()
        edges.append(end)
        inner.append(stack[-1][1] if stack else -1)
    return edges, inner
