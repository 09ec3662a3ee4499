"""Scopes: what a name stands for inside its own file.

A value is written as a path, which holds everything that one file reveals about it:

    <a.b>.c      the name c of module a.b (`from a.b import c`); <..x> and <./x> are relative to the file
    #7           definition 7 of this file;  #7() an instance of it, or its return value
    ^7           the bases of class 7: super()
    name         a name that this file does not bind: built in, or from a star import or the package
    ?            unknown;  ' a value of the language itself
    .x () []     an attribute, a call, an element of the path before it
    ~            as a prefix: one of several possibilities

Paths are linked across files at query time, so changing one file never invalidates the record of another.
"""

import re
from bisect import bisect_right
from itertools import chain
from operator import attrgetter, le
from typing import TYPE_CHECKING, Literal, NamedTuple

from .scan import LITERAL, UNKNOWN
from .types import Definition

if TYPE_CHECKING:  # the server reads records without a parser
    from tree_sitter import Node

CLASSES = frozenset(
    {"class", "struct", "interface", "trait", "enum", "type", "union", "record", "impl", "object", "protocol", "mixin"}
    | {"module", "namespace", "extension", "instance", "concept"}
)
FUNCTIONS = frozenset({"function", "method", "constructor", "macro", "property", "getter", "setter", "prototype"})
NAMESPACES = frozenset({"module", "namespace"})  # what they hold is seen without a receiver everywhere inside
PART = "impl"  # adds to a class that is defined elsewhere
_SCOPED = CLASSES | FUNCTIONS
_CLOSED = CLASSES - NAMESPACES
MODULE = "::"  # ends the names of modules that files declare: a function may have the same name
ELEMENTS = "@"  # as an attribute of a class: a list or a map of its instances
ABOVE = "^"  # likewise: the bases of the enclosing class
OUTER_MODULE = "::"  # as a meaning of a word for the enclosing instance: the module around the innermost one
RETURNS, BASE, STAR, PROPERTY, LOCAL = "()", "^", "*", "@", "{"  # keys of bindings that are not names

_FIRST = re.compile(r"[.(\[]")
_AT, _DECLARES = attrgetter("at"), attrgetter("declares")
_NO_NAME = frozenset({")", "]", ELEMENTS, UNKNOWN, LITERAL, ""})  # ends of paths
_MOST_COMPARED = 4  # values of one name
_EVERYWHERE = 1 << 62  # as the end of a range of bytes
_MOST_VALUES, _MOST_MODULES = 8, 500  # of one name; that a file imports or exports whole
_DEEPEST = 8  # levels of values that refer to other values
_LONGEST = 120  # characters of a path; longer ones are not worth linking


class Expression(NamedTuple):
    """The expression between two byte offsets as a value, or the result of calling it."""

    start: int
    end: int
    then: str = ""  # () for the result of calling it


class ExpressionValue(NamedTuple):
    """A value given as the text of an expression, such as a type."""

    text: str
    one_of_several: bool = False


ClassScope = Literal["methods", "body", "none"]
Value = Expression | ExpressionValue | str  # a str is already a path


class Assignment(NamedTuple):
    """An assignment of a value to a name somewhere in the file."""

    at: int  # byte offset from which it holds
    name: str
    value: Value
    owner: int | None = None  # the definition that owns the name; None for the enclosing scope
    extent: tuple[int, int] | None = None  # the bytes in which it holds, if that is not the whole scope
    declares: bool = True  # False: it gives a value to a name that is declared elsewhere, if it is

    @property
    def size(self) -> int:
        """The bytes in which it holds: of several, the narrowest one counts."""
        return self.extent[1] - self.extent[0] if self.extent is not None else _EVERYWHERE


class Scopes:
    """The scopes of one file: how they nest, what each binds, what a path means there."""

    def __init__(
        self,
        definitions: list[Definition],
        *,
        class_scope: ClassScope,
        selves: dict[str, str],
        prelude: dict[str, str] | None = None,
    ) -> None:
        """`class_scope` says who sees the names of a class without a receiver: its methods, only its body, or nobody.

        `selves` are the words for the enclosing instance or class: `this`, `Self`. `prelude` holds the paths of names
        that need no import.
        """
        self.definitions = definitions
        self._class_scope, self._selves, self._prelude = class_scope, selves, prelude or {}
        self._members: dict[tuple[int, str], int] = {}
        self._versions: dict[tuple[int, str], list[int]] = {}  # all definitions of one name in one scope
        self._local: dict[
            tuple[int, str], dict[int, tuple[int, int]]
        ] = {}  # members that hold in a part of their owner
        self._classes = {one.qualname: place for place, one in enumerate(definitions) if one.kind in CLASSES}
        for place, one in enumerate(definitions):
            if self._stands_in_its_owner(one) and one.kind != PART and not self._is_constructor(one):
                self._members.setdefault((one.parent, one.name), place)
                self._versions.setdefault((one.parent, one.name), []).append(place)
        self._bound: dict[tuple[int, str], list[Assignment]] = {}
        self._ends: dict[int, tuple[int, str]] = {}
        self.holders: dict[str, set[int]] = {}  # the scopes that define or bind a name; known once all are bound
        self._derived: set[str] = set()  # names whose values refer to other names
        self._settled: dict[tuple[int, str], str] = {}  # what a name means that one of them binds
        self.narrow_names: set[str] = set()  # names that hold in a part of some scope only
        self._not_here: set[tuple[int, str]] = set()  # names that a scope declares as an outer scope's
        starts = [one.span.start for one in definitions]
        self._edges, self._inner = _flatten(definitions, starts)
        self._lookup = self._edges, self._inner
        self._is_nested = all(map(le, self._edges, self._edges[1:]))  # no definition ends after one that it began in
        self._cache: dict[tuple[int, str], str] = {}
        self._narrow_cache: dict[tuple[int, str, int], str] = {}  # … of names in one of their stretches
        self._narrow_edges: dict[str, list[int]] | None = None  # known once all names are bound
        # Of expressions, by the definition that they stand in: what they mean, and from where to where they do.
        self.paths: dict[tuple[int, str], tuple[str, int, int]] = {}
        self._firsts: dict[str, str] = {}  # the first name of an expression
        self._chains: dict[int, list[int]] = {}
        self._scope_of = [*(self._find_scope(place) for place in range(len(definitions))), -1]  # index -1 is the file

    def inside(self, at: int) -> int:
        """The innermost definition around a byte; -1 for none."""
        return self._inner[bisect_right(self._edges, at)]

    def inside_stretch(self, at: int) -> tuple[int, int, int]:
        """The innermost definition around a byte, and a range of bytes for which it is."""
        return _stretch(self._edges, self._inner, at) if self._is_nested else (self.inside(at), at, at + 1)

    def begin_later(self, starts: dict[int, int]) -> None:
        """Let some scopes begin after their definitions do: decorators are evaluated in the enclosing scope."""
        if starts:
            first = [starts.get(place, one.span.start) for place, one in enumerate(self.definitions)]
            self._lookup = _flatten(self.definitions, first)

    def reads_in(self, at: int) -> int:
        """The definition in whose scope the names at a byte are looked up."""
        edges, inner = self._lookup
        return inner[bisect_right(edges, at)]

    def stretch(self, at: int) -> tuple[int, int, int]:
        """The definition in whose scope the names at a byte are looked up, and the range of bytes for which it is."""
        return _stretch(*self._lookup, at)

    def scope(self, at: int) -> int:
        """The innermost definition around a byte that has a scope of its own."""
        return self.scope_of(self.reads_in(at))

    def scope_of(self, place: int) -> int:
        """The definition itself if it has a scope of its own, else the innermost enclosing one that has."""
        return self._scope_of[place]

    def _find_scope(self, place: int) -> int:
        while place >= 0 and self.definitions[place].kind not in _SCOPED:
            place = self.definitions[place].parent
        return place

    def class_around(self, place: int) -> int:
        """The class that contains or owns a definition, or that it is; -1 for none."""
        while place >= 0 and self.definitions[place].kind not in CLASSES:
            one = self.definitions[place]
            if not self._stands_in_its_owner(one):
                return self._classes.get(one.qualname.rpartition(".")[0], -1)
            place = one.parent
        return place

    def _stands_in_its_owner(self, one: Definition) -> bool:
        """Whether it is defined inside its owner: in Go and C++ only its qualified name may tell a method's class."""
        around = len(self.definitions[one.parent].qualname) + 1 if one.parent >= 0 else 0
        return len(one.qualname) == around + len(one.name)

    def _is_constructor(self, one: Definition) -> bool:
        """Whether it has the name of its class: that name means the class, inside it, too."""
        owner = self.definitions[one.parent] if one.parent >= 0 else None
        return owner is not None and owner.name == one.name and owner.kind in _CLOSED and one.kind in FUNCTIONS

    def member(self, owner: int, name: str) -> int | None:
        """The definition with a name directly inside a definition (or the file, as -1)."""
        return self._members.get((owner, name))

    def narrow(self, place: int, within: "Node", is_property: bool = False) -> None:
        """Let a definition hold in a part of its owner only: in the function without a name that it stands in.

        A property of an object is never seen without the object.
        """
        one = self.definitions[place]
        key = (one.parent, one.name)
        versions = self._versions.get(key, [])
        if place in versions:
            versions.remove(place)
            if versions:
                self._members[key] = versions[0]
            else:
                self._members.pop(key, None)
        end = within.start_byte if is_property else within.end_byte
        self._local.setdefault(key, {})[place] = (within.start_byte, end)
        self.narrow_names.add(one.name)

    def _member_at(self, scope: int, name: str, at: int) -> int | None:
        """The definition of a name in a scope, as an offset in it sees it."""
        local = self._local.get((scope, name))
        if local:
            holding = [(end - start, place) for place, (start, end) in local.items() if start <= at < end]
            if holding:
                return min(holding)[1]
        return self._members.get((scope, name))

    def from_outside(self, at: int, name: str) -> None:
        """Record that a scope declares a name as not its own: `global x`."""
        self._not_here.add((self.scope(at), name))

    def bind(self, bounds: list[Assignment], ends: dict[int, tuple[int, str]]) -> None:
        """Record every binding; `ends` maps the end of each expression among the values to its start and text."""
        self._ends = ends
        for one in sorted(bounds, key=_DECLARES, reverse=True):
            owner = self.scope(one.at) if one.owner is None else one.owner
            while (owner, one.name) in self._not_here and owner >= 0:
                owner = self.scope_of(self.definitions[owner].parent)
            placed = one
            if not one.declares:
                owner, placed = self._declared(owner, one)
            self._bound.setdefault((owner, one.name), []).append(placed)
            if placed.extent is not None:
                self.narrow_names.add(one.name)
        for assignments in self._bound.values():
            if len(assignments) > 1:
                assignments.sort(key=_AT)
        self._derived = {one.name for one in bounds if not isinstance(one.value, str)}
        for scope, name in chain(self._members, self._local, self._bound):
            self.holders.setdefault(name, set()).add(scope)

    def _declared(self, scope: int, one: Assignment) -> tuple[int, Assignment]:
        """An assignment as one of the name that it assigns to, wherever that is declared."""
        for outer in self._outwards(scope):
            bounds = self._visible(self._bound.get((outer, one.name)), one.at)
            if bounds:
                return outer, one._replace(extent=bounds[0].extent)
            if (outer, one.name) in self._members:
                return outer, one
        return scope, one

    def _visible(self, bounds: list[Assignment] | None, at: int) -> list[Assignment]:
        """The assignments that hold at an offset: those of the innermost block that declares the name."""
        if not bounds or bounds[0].name not in self.narrow_names:
            return bounds or []
        holding = [one for one in bounds if one.extent is None or one.extent[0] <= at < one.extent[1]]
        if len(holding) < 2:
            return holding
        narrowest = min(one.size for one in holding)
        return [one for one in holding if one.size == narrowest]

    def narrow_stretch(self, name: str, at: int) -> int:
        """Which of the stretches around an offset, in each of which the name means one thing; -1 if it always does."""
        if name not in self.narrow_names:
            return -1
        if self._narrow_edges is None:
            self._narrow_edges = self._find_narrow_edges()
        return bisect_right(self._narrow_edges[name], at)

    def narrow_range(self, name: str, at: int) -> tuple[int, int]:
        """The first byte of that stretch, and the one after its last."""
        stretch = self.narrow_stretch(name, at)
        if stretch < 0 or self._narrow_edges is None:
            return 0, _EVERYWHERE
        edges = self._narrow_edges[name]
        return edges[stretch - 1] if stretch else 0, edges[stretch] if stretch < len(edges) else _EVERYWHERE

    def _find_narrow_edges(self) -> dict[str, list[int]]:
        """Where what each narrow name means may change."""
        edges: dict[str, set[int]] = {name: set() for name in self.narrow_names}
        for (_, name), places in self._local.items():
            edges[name].update(chain.from_iterable(places.values()))
        for (_, name), bounds in self._bound.items():
            if name in self.narrow_names:
                edges[name].update(chain.from_iterable(one.extent for one in bounds if one.extent is not None))
        return {name: sorted(found) for name, found in edges.items()}

    def taken(self, one: Assignment) -> tuple[str, str]:
        """The attribute that a pattern takes out of a value, as name and path of the value."""
        path = self._value(one, 0)
        receiver, _, name = path.rpartition(".")
        return name, receiver

    def bindings(self) -> list[tuple[int, str, str]]:
        """The bindings that other files see: values of the file's and its classes' names, and what calls return."""
        found: dict[tuple[int, str, str], None] = {}
        for (owner, name), bounds in self._bound.items():
            outside = owner < 0 or self.definitions[owner].kind in CLASSES or name in (RETURNS, PROPERTY)
            if outside:
                most = _MOST_MODULES if name == STAR else _MOST_VALUES
                for one in [one for one in bounds if one.extent is None][:most]:
                    path = self._for_others(owner, name, self._value(one, 0))
                    if path not in (LITERAL, "") and not (path == UNKNOWN and name == RETURNS):
                        found[owner, name, path] = None
        for places in self._local.values():
            found.update({(place, LOCAL, str(start)): None for place, (start, _) in places.items()})
        return list(found)

    def _for_others(self, owner: int, name: str, path: str) -> str:
        """Make what a method returns of its own instance relative to the receiver, `$`, so that it fits subclasses."""
        if name == RETURNS and owner >= 0:
            around = f"#{self.class_around(owner)}()"
            if path.startswith(around):
                return "$" + path[len(around) :]
        return path

    def meaning(
        self, name: str, inside: int, at: int, called: bool | None = None, *, only_names: bool = False
    ) -> int | str | None:
        """What a bare name means inside a definition: a definition of this file, a path, or None if it is not bound.

        `called`: whether it can only be a function, or only something else, in a language that tells them apart.
        `only_names`: any path will do that does not end with a name, if the right one does not.
        """
        holders = self.holders.get(name)
        if holders is None:
            return None
        for scope in self._outwards(self._scope_of[inside]):
            if scope not in holders:
                continue
            place = self._member_at(scope, name, at)
            if called is not None and place is not None:
                versions = self._versions.get((scope, name), [place])
                fitting = [one for one in versions if self._fits(one, called=called)]
                place = fitting[0] if fitting else None
            bounds = self._visible(self._bound.get((scope, name)), at)
            narrow = bool(bounds) and bounds[0].extent is not None
            if place is not None and (scope, name) not in self._not_here and not narrow:
                return place
            if bounds:
                return self._meant(scope, name, bounds, only_names=only_names)
        return None

    def _meant(self, scope: int, name: str, bounds: list[Assignment], *, only_names: bool) -> str:
        """What bindings of a name mean. Most variables hold results, which are no names, whatever they are."""
        written = [self._written(one) for one in bounds[-_MOST_COMPARED:]]
        if not all(map(self._is_shallow, written)):
            return self._one_of(bounds, 0)
        if only_names and _NO_NAME.issuperset(text[-1:] for text in written):
            return UNKNOWN
        return self._one_of(bounds, 0) if name in self.narrow_names else self._settle(scope, name, bounds)

    def _written(self, one: Assignment) -> str:
        """The text of a value, or its path."""
        value = one.value
        if isinstance(value, str):
            return value
        if isinstance(value, ExpressionValue):
            return value.text
        return self._ends.get(value.end, (-1, UNKNOWN))[1] + value.then

    def _is_shallow(self, written: str) -> bool:
        """Whether a value is a path or refers to a name that is bound to one.

        What other values mean depends on which were looked up before, if they refer to each other in a circle.
        """
        first = self._first(written.removeprefix("::"))
        return first not in self._derived and not first.startswith("super")

    def _settle(self, scope: int, name: str, bounds: list[Assignment]) -> str:
        """What a scope binds a name to, if it does in all of it: the same wherever the name is mentioned."""
        known = self._settled.get((scope, name))
        if known is None:
            known = self._settled[scope, name] = self._one_of(bounds, 0)
        return known

    def _fits(self, place: int, *, called: bool) -> bool:
        kind = self.definitions[place].kind
        return kind in CLASSES or (kind in FUNCTIONS) == called

    def path(self, written: str, at: int, inside: int, depth: int = 0) -> str:
        """The path of an expression as written: its first name is looked up, the rest is kept."""
        if not depth and (known := self.paths.get((inside, written))) is not None and known[1] <= at < known[2]:
            return known[0]
        if written[0] in "?'":
            return shorten(written)
        is_path = written.startswith("::")  # of Rust: it never starts at a variable
        written = written.removeprefix("::")
        first, scope = self._first(written), self._scope_of[inside]
        found = self._look_up(first, at, scope, depth)
        if is_path and (declared := self._look_up(first + MODULE, at, scope, depth))[0] == "<":
            found = declared
        elif is_path and (found.lstrip("~")[0] not in "<#" or "(" in found) and found != first:
            found = self._outside(first, inside)
        if found.startswith("super") and written[len(first) :].startswith("()"):
            return shorten(self._above(found, at, inside) + written[len(first) + 2 :])
        if found == first and first in self._selves:
            found = self._itself(first, inside)
        elif found == first:
            found = self._prelude.get(first, found)
        path = shorten(found + written[len(first) :])
        if not depth:
            self._keep_path(path, written, at, inside, is_path=is_path)
        return path

    def _keep_path(self, path: str, written: str, at: int, inside: int, *, is_path: bool) -> None:
        """Remember a path for as long as it holds, unless that depends on what precedes an offset."""
        first, scope = self._first(written), self._scope_of[inside]
        if (scope, first) in self._cache:
            if not is_path:
                self.paths[inside, written] = path, 0, _EVERYWHERE
            elif (scope, first + MODULE) in self._cache:
                self.paths[inside, f"::{written}"] = path, 0, _EVERYWHERE
        elif not is_path and (scope, first, self.narrow_stretch(first, at)) in self._narrow_cache:
            self.paths[inside, written] = path, *self.narrow_range(first, at)

    def _first(self, written: str) -> str:
        """The first name of an expression."""
        first = self._firsts.get(written)
        if first is None:
            first = self._firsts[written] = _FIRST.split(written, 1)[0]
        return first

    def _outside(self, name: str, inside: int) -> str:
        """What a name means at the top of its module, whatever the variables around are called."""
        for scope in [*self.modules_around(inside), -1]:
            for one in self._bound.get((scope, name), ()):
                if isinstance(one.value, str) and one.value[0] == "<":
                    return one.value
            if (scope, name) in self._members:
                return f"#{self._members[scope, name]}"
        return name

    def _itself(self, word: str, inside: int) -> str:
        """What a word for the enclosing instance, class or module means."""
        around = self.class_around(inside)
        if self._selves[word] == ABOVE:
            return f"^{around}" if around >= 0 else UNKNOWN
        if self._selves[word] != OUTER_MODULE:
            return f"#{around}{self._selves[word]}" if around >= 0 else word
        modules = self.modules_around(inside)
        return word if not modules else "<self>" if len(modules) == 1 else f"#{modules[1]}"

    def modules_around(self, inside: int) -> list[int]:
        """The modules of this file around a definition, the innermost first."""
        found: list[int] = []
        while inside >= 0:
            if self.definitions[inside].kind in NAMESPACES:
                found.append(inside)
            inside = self.definitions[inside].parent
        return found

    def _above(self, written: str, at: int, inside: int) -> str:
        """`super()`, or `super(Class, self)`, which starts above a class other than the enclosing one."""
        around = self.class_around(inside)
        _, other, name = written.partition(":")
        if not other or (around >= 0 and self.definitions[around].name == name):
            return f"^{around}" if around >= 0 else UNKNOWN
        found = self._look_up(name, at, self._scope_of[inside], 0)
        return f"^{found[1:]}" if found[0] == "#" and found[1:].isdigit() else UNKNOWN

    def _outwards(self, scope: int) -> list[int]:
        """The scopes in which a name is looked up, innermost first."""
        chain = self._chains.get(scope)
        if chain is None:
            is_class = scope >= 0 and self.definitions[scope].kind in _CLOSED
            chain, outer = [scope] if self._class_scope != "none" or not is_class else [], scope
            while outer >= 0:
                outer = self._scope_of[self.definitions[outer].parent]
                if self._class_scope == "methods" or outer < 0 or self.definitions[outer].kind not in _CLOSED:
                    chain.append(outer)
            self._chains[scope] = chain
        return chain

    def _look_up(self, name: str, at: int, innermost: int, depth: int) -> str:
        cached = self._cache.get((innermost, name))
        if cached is not None:
            return cached
        stretch = self.narrow_stretch(name, at) if not depth else -1
        if stretch >= 0 and (cached := self._narrow_cache.get((innermost, name, stretch))) is not None:
            return cached
        if depth > _DEEPEST:
            return UNKNOWN
        found, holders = name, self.holders.get(name, ())
        for scope in self._outwards(innermost) if holders else ():
            if scope not in holders:
                continue
            bounds = self._visible(self._bound.get((scope, name)), at)
            place = self._member_at(scope, name, at)
            if place is not None and self.definitions[place].kind in _SCOPED and not (bounds and bounds[0].extent):
                bounds = None
            if bounds and len(bounds) > 1 and scope == innermost:
                return self._latest(bounds, at, depth)
            if bounds or place is not None:
                found = self._one_of(bounds, depth) if bounds else f"#{place}"
                break
        if name not in self.narrow_names:
            self._cache[innermost, name] = found
        elif stretch >= 0:
            self._narrow_cache[innermost, name, stretch] = found
        return found

    def _latest(self, bounds: list[Assignment], at: int, depth: int) -> str:
        """The value of the last binding before an offset, as a reader would assume."""
        before = [one for one in bounds if one.at < at and one.value != ""]
        if not before:
            return UNKNOWN
        path = self._value(before[-1], depth)
        if path == LITERAL and len(before) > 1:
            return UNKNOWN  # one branch assigns a list, another one something else
        certain = len(before) == 1 or path in (UNKNOWN, LITERAL)
        return path if certain or path.startswith("~") else f"~{path}"

    def _one_of(self, bounds: list[Assignment], depth: int) -> str:
        values = {self._value(one, depth): None for one in bounds[-_MOST_COMPARED:]}
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
    """A path without redundant parts; unknown if it is too long to be linked."""
    bare = path.lstrip("~")
    if bare[0] == UNKNOWN:
        return UNKNOWN
    if bare[0] == LITERAL:  # an element of a list, or the result of a string's method, can be anything
        return UNKNOWN if "(" in bare or "[" in bare else LITERAL
    if path.startswith("~~"):
        path = path[1:]
    return path if len(path) <= _LONGEST else UNKNOWN


def _stretch(edges: list[int], inner: list[int], at: int) -> tuple[int, int, int]:
    place = bisect_right(edges, at)
    return inner[place], edges[place - 1] if place else 0, edges[place] if place < len(edges) else _EVERYWHERE


def _flatten(definitions: list[Definition], starts: list[int]) -> tuple[list[int], list[int]]:
    """Where the innermost definition changes: sorted offsets, and the innermost definition from each of them on."""
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
