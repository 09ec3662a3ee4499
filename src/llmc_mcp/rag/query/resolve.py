"""From a path of one file to the definitions of others: imports, aliases, receivers, inheritance.

Links are made at query time, over the records of the files that a query touches, and cached until the index changes.
So the graph stays correct when a single file changes: there are no stale links to find and remove.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from ..parse.record import Record
from ..parse.scopes import BASE, CLASSES, ELEMENTS, FUNCTIONS, LOCAL, MODULE, NAMESPACES, PART, PROPERTY, RETURNS, STAR
from ..parse.types import Reference
from .modules import Modules

_ROOT = re.compile(r"~?(?:#(?P<own>\d+)|\^(?P<above>\d+)|<(?P<module>[^>]*)>|(?P<name>[^.(\[]*))")
_STEP = re.compile(r"\.([^.()\[\]]+)|(\(\))|(\[\])")
_DEEPEST = 24
_MOST_BASES = 64
HIGHEST = 40  # levels of inheritance; only generated or malicious code has more
_PRIVATE = "_"
_NO_NAMES = frozenset({"?", "'", "$"})
# Types of C++'s library whose methods return nothing that a project defines.
_STANDARD = re.compile(
    r"~?std\.(?:u?w?string|string_view|mutex|thread|condition_variable|[io]?f?stream|[io]?stringstream|exception"
    r"|runtime_error|error_code|ostringstream|size_t|u?int\d+_t)\b"
)
_CONTAINERS = re.compile(
    r"~?std\.(?:vector|deque|list|array|span|(?:unordered_)?(?:multi)?(?:set|map)|(?:priority_)?queue|stack|bitset|function"
    r"|atomic|initializer_list)\(\)|~?std\.\w+\.@"
)
_ELEMENT_OF = frozenset({"front", "back", "at", "top"})  # methods of containers that return an element
_ITERATORS = frozenset({"begin", "end", "find", "rbegin", "cbegin", "lower_bound", "upper_bound"})
_RUST_STARTS = frozenset({"crate", "self", "super"})


class Symbol(NamedTuple):
    """A definition as the graph needs it."""

    name: str
    qualname: str
    kind: str
    parent: int
    first_line: int
    last_line: int
    signature: str


class RecordSource(Protocol):
    """Where records come from: the index, or a test's dictionary."""

    def record(self, file: int) -> Record: ...
    def symbols(self, file: int) -> list[Symbol]: ...
    def named(self, name: str) -> "list[DefinitionPlace]": ...


class DefinitionPlace(NamedTuple):
    """A definition by its file and its place there."""

    file: int
    place: int


class Value(NamedTuple):
    """A possible value of a path."""

    what: str  # module, definition, instance, elements, elsewhere, unknown
    file: int = -1
    place: int = -1
    certain: bool = True
    holder: "DefinitionPlace | None" = None  # the class of the instance whose attribute it was

    @property
    def target(self) -> DefinitionPlace:
        """The definition that it is, or is an instance of."""
        return DefinitionPlace(self.file, self.place)


ELSEWHERE = Value("elsewhere")  # defined by the language or by another project
MADE_ELSEWHERE = Value(
    "elsewhere", -2
)  # made by such a definition: its methods may return anything, even what was passed to it
UNKNOWN = Value("unknown")
CONTAINER = Value("elsewhere", -3)  # of C++'s library: what it holds may be anything
RETURNED_ELSEWHERE = Value("unknown", -2)  # what a method of MADE_ELSEWHERE returns
DOUBTFUL = Value("unknown", certain=False)  # perhaps of another project: the name alone says little


_RESULTS = {
    ELSEWHERE: MADE_ELSEWHERE,
    MADE_ELSEWHERE: RETURNED_ELSEWHERE,
    RETURNED_ELSEWHERE: RETURNED_ELSEWHERE,
    DOUBTFUL: DOUBTFUL,
}  # of calling what is not defined here


class Resolver:
    """Links paths over the records of one state of an index."""

    def __init__(self, source: RecordSource, modules: Modules) -> None:
        self._source, self.modules = source, modules
        self._members: dict[int, dict[tuple[str, str], list[int]]] = {}
        self._stars: dict[int, list[str]] = {}
        self._exports: dict[tuple[int, str], list[Value]] = {}
        self._values: dict[tuple[int, str], list[Value]] = {}
        self._orders: dict[DefinitionPlace, tuple[list[DefinitionPlace], bool]] = {}
        self._included: dict[int, set[int]] = {}
        self._climbing = 0  # number of classes whose bases are being resolved

    def symbol(self, target: DefinitionPlace) -> Symbol:
        """A definition."""
        return self._source.symbols(target.file)[target.place]

    def resolve(self, file: int, reference: Reference) -> list[Value]:
        """What a reference refers to: definitions if they are known."""
        receiver, name = reference.receiver, reference.name
        if receiver.startswith("=#"):
            return [Value("definition", file, int(receiver[2:]))]
        if not receiver:
            found = self._implicit(file, reference.inside, name) or self._global(file, name, 0)
            if found == [UNKNOWN] and self.modules.traits(file).imports == "header":
                around = self._source.symbols(file)[reference.inside].qualname if reference.inside >= 0 else ""
                found = self._declared(name, around) or found
            declared = found == [ELSEWHERE] and self.modules.traits(file).imports == "script"
            return [DOUBTFUL] if declared else self._fitting(file, reference, found)  # it may be declared elsewhere
        holders = self.receivers(file, reference)
        found = self._attributes(holders, name, 0)
        if found == [UNKNOWN] and all(self._is_namespace(one) for one in holders):
            around = {self.symbol(one.target).qualname for one in holders}
            found = self._declared(name, around.pop()) or found if len(around) == 1 else found
        return self._fitting(file, reference, found)

    def receivers(self, file: int, reference: Reference) -> list[Value]:
        """The possible values before the dot: a path may begin with a name of the class around it."""
        path = reference.receiver
        root = _ROOT.match(path)
        if root is None or not root["name"] or root["name"] in _NO_NAMES or reference.inside < 0:
            return self.evaluate(file, path)
        if not self.modules.traits(file).implicit_this:
            return self.evaluate(file, path)
        if root["name"] == "this":
            found = [Value("instance", *one) for one in self._classes_around(file, reference.inside)[:1]]
        else:
            found = self._implicit(file, reference.inside, root["name"])
        return self._follow(found, path, root.end(), 0) if found else self.evaluate(file, path)

    def _fitting(self, file: int, reference: Reference, values: list[Value]) -> list[Value]:
        """Of a method and a field with the same name, the one that is meant."""
        if reference.kind not in ("call", "use") or not self.modules.traits(file).calls_apart:
            return values
        called = reference.kind == "call"
        kept = [value for value in values if value.what != "definition" or self._may_be(value, called=called)]
        return kept or [UNKNOWN]

    def _may_be(self, value: Value, *, called: bool) -> bool:
        kind = self.symbol(value.target).kind
        return kind in CLASSES or (kind in FUNCTIONS) == called

    def _implicit(self, file: int, inside: int, name: str) -> list[Value]:
        """Names of the class, inherited ones included, that a method sees without a receiver."""
        if inside < 0 or not self.modules.traits(file).implicit_this:
            return []
        for target in self._classes_around(file, inside):
            if target.file != file and (here := self._members_of(file).get((self.symbol(target).qualname, name))):
                return self._definitions(file, here)  # `struct Outer::Inner { … }`, apart from Outer
            order, _ = self.order(target)
            found = self._class_member(order, name, target, 0)
            if found[0].what != "unknown":
                return found
        return []

    def _declared(self, name: str, around: str) -> list[Value]:
        """A class of C++ by its qualified name, as seen from another: who declares it need not include its header."""
        classes = [one for one in self._source.named(name) if self.symbol(one).kind in CLASSES - NAMESPACES]
        headers = [one for one in classes if self.modules.path(one.file).rpartition(".")[2].startswith("h")]
        for _ in range(around.count(".") + 2 if headers else 0):
            qualname = f"{around}.{name}".lstrip(".")
            if found := [one for one in headers if self.symbol(one).qualname == qualname]:
                return [Value("definition", *one) for one in found] if len(found) == 1 else []
            around = around.rpartition(".")[0]
        return []

    def _classes_around(self, file: int, inside: int) -> list[DefinitionPlace]:
        """The classes around a definition, the innermost first; those of a method that stands outside, too."""
        found: list[DefinitionPlace] = []
        owner = self._source.symbols(file)[inside].qualname
        while "." in owner:
            owner = owner.rpartition(".")[0]
            here = [DefinitionPlace(file, place) for place in self._class_places(file, owner)]
            found += here or self._included_class(file, owner)
        return found

    def owner(self, target: DefinitionPlace) -> DefinitionPlace | None:
        """The class that a member belongs to, even if it is defined outside of it; None for what is no member."""
        own = self.symbol(target)
        parent = self._source.symbols(target.file)[own.parent] if own.parent >= 0 else None
        around = parent.qualname if parent is not None else ""
        if len(own.qualname) > len(around) + len(own.name) + bool(around):
            qualname = own.qualname[: -len(own.name) - 1]
            here = [DefinitionPlace(target.file, place) for place in self._class_places(target.file, qualname)]
            return next(iter(here or self._included_class(target.file, qualname)), None)
        is_class = parent is not None and parent.kind in CLASSES - NAMESPACES
        return DefinitionPlace(target.file, own.parent) if is_class else None

    def _included_class(self, file: int, qualname: str) -> list[DefinitionPlace]:
        """The class of a qualified name in the headers that a file includes."""
        if self.modules.traits(file).imports != "header":
            return []
        return [
            one
            for one in self._source.named(qualname.rpartition(".")[2])
            if self.symbol(one).qualname == qualname
            and self.symbol(one).kind in CLASSES - NAMESPACES
            and one.file in self.included(file)
        ]

    def included(self, file: int) -> set[int]:
        """The files that a file of C or C++ includes, those that they include, and itself."""
        known = self._included.get(file)
        if known is None:
            known, todo = {file}, [file]
            while todo:
                at = todo.pop()
                for path in self._star_imports(at):
                    new = {value.file for value in self.evaluate(at, path) if value.what == "module"} - known
                    known |= new
                    todo += new
            self._included[file] = known
        return known

    def evaluate(self, file: int, path: str, receiver: Value | None = None, depth: int = 0) -> list[Value]:
        """The possible values of a path; `receiver` is the instance whose method returned it."""
        key = (file, path)
        if receiver is None and key in self._values:
            return self._values[key]
        if depth > _DEEPEST:
            return [UNKNOWN]
        if receiver is None:
            self._values[key] = [UNKNOWN]  # a value that depends on itself is unknown
        values, rest = self._root(file, path, receiver, depth)
        values = self._follow(values, path, rest, depth)
        if receiver is None:
            self._values[key] = values
        return values

    def _follow(self, values: list[Value], path: str, rest: int, depth: int) -> list[Value]:
        """The values of a path from those of its beginning, which ends at the index `rest`."""
        for step in _STEP.finditer(path, rest):
            if step[1]:
                values = self._attributes(values, step[1], depth + 1)
            elif step[2]:
                values = _merge(self._call(value, depth + 1) for value in values)
            else:
                values = [_element(value) for value in values][:1]
        return [value._replace(certain=False) for value in values] if path.startswith("~") else values

    def _root(self, file: int, path: str, receiver: Value | None, depth: int) -> tuple[list[Value], int]:
        """The values of the first part of a path, and the index at which the rest begins."""
        if path.startswith(("std.", "~std.")) and self.modules.traits(file).imports == "header":
            return self._standard(path)
        root = _ROOT.match(path)
        return ([UNKNOWN], len(path)) if root is None else (self._beginning(file, root, receiver, depth), root.end())

    def _standard(self, path: str) -> tuple[list[Value], int]:
        if (found := _STANDARD.match(path)) is not None:
            return [ELSEWHERE], found.end()
        found = _CONTAINERS.match(path)
        return ([CONTAINER], found.end()) if found is not None else ([UNKNOWN], len(path))

    def _beginning(self, file: int, root: "re.Match[str]", receiver: Value | None, depth: int) -> list[Value]:
        if root["own"]:
            return [Value("definition", file, int(root["own"]))]
        if root["above"]:
            return [Value("above", file, int(root["above"]))]
        if root["module"] is not None:
            return self._module(file, root["module"], depth)
        name = root["name"]
        if name == "$":
            return [receiver] if receiver is not None else [UNKNOWN]
        if name in ("?", ""):
            return [UNKNOWN]
        if name == "'":
            return [ELSEWHERE]
        if self.modules.traits(file).imports == "rust":
            return self._path(file, [name], depth)
        found = self._global(file, name, depth)
        if found == [UNKNOWN] and self.modules.traits(file).imports == "header":
            around = ["", *(one.qualname for one in self._source.symbols(file) if one.kind == "namespace")]
            return next((there for one in reversed(around) if (there := self._declared(name, one))), found)
        return found

    def _module(self, file: int, name: str, depth: int) -> list[Value]:
        if not name:
            return [UNKNOWN]
        if self.modules.traits(file).imports == "rust":
            return self._path(file, name.split("::"), depth)
        found = self.modules.find(file, name)
        if not found and self.modules.traits(file).imports == "class" and (nested := self._nested(file, name, depth)):
            return nested
        nowhere = DOUBTFUL if self.modules.is_own_package(file, name) else ELSEWHERE
        return [Value("module", one) for one in found] or [nowhere]

    def _nested(self, file: int, name: str, depth: int) -> list[Value]:
        """The class that holds a nested one, which an import names: `a.Outer` for `a.Outer.Inner`."""
        outer = name.rpartition(".")[0]
        last = outer.rpartition(".")[2]
        if not last[:1].isupper() or depth > _DEEPEST:
            return []
        values = self._attributes(self._module(file, outer, depth + 1), last, depth + 1)
        return [value for value in values if value.what == "definition"]

    def _path(self, file: int, parts: list[str], depth: int) -> list[Value]:
        """A path of Rust: it starts at a module, at a name of this one, or at a crate, and may lead into a file."""
        first, rest = parts[0], parts[1:]
        if depth > _DEEPEST:
            return [UNKNOWN]
        values: list[Value] = []
        if first[:1] not in ".@" and first not in _RUST_STARTS:
            values = self._exported(file, first + MODULE, depth + 1) or self._exported(file, first, depth + 1)
        if not values:
            values = [Value("module", one) for one in self.modules.find(file, first)]
        while rest and rest[0] == "super" and first == "super":
            values = [Value("module", one) for value in values for one in self.modules.find(value.file, "super")]
            rest = rest[1:]
        if not values:
            if self.modules.is_foreign(file, first):
                return [ELSEWHERE]
            return [UNKNOWN if first in _RUST_STARTS or first[:1] in ".@" else DOUBTFUL]
        for part in rest:
            modules = self._attributes(values, part + MODULE, depth + 1)
            is_module = modules and modules[0].what == "module"
            values = modules if is_module else self._attributes(values, part, depth + 1)
        return values

    def _global(self, file: int, name: str, depth: int) -> list[Value]:
        """A name that its file does not bind: from a star import, from the package, or built in."""
        found: list[Value] = []
        for path in self._star_imports(file):
            for module in self.evaluate(file, path, depth=depth + 1):
                if module.what == "module" and not name.startswith(_PRIVATE):
                    found += self._exported(module.file, name, depth + 1)
                elif module.what == "definition":
                    found += self._attribute(module, name, depth + 1)
                elif module.what != "module":
                    found.append(UNKNOWN)
        known = [value for value in found if value.what != "unknown"]
        if known:
            return known
        for sibling in self.modules.siblings(file):
            found += self._definitions(sibling, self._own_members(sibling, -1, name))
        return found or [ELSEWHERE if self.modules.traits(file).unbound_is_external else UNKNOWN]

    def _star_imports(self, file: int) -> list[str]:
        """The paths of everything that a file imports whole, in the modules inside it, too."""
        found = self._stars.get(file)
        if found is None:
            bindings = self._source.record(file).bindings
            owners = [-1, *(place for place, one in enumerate(self._source.symbols(file)) if one.kind in NAMESPACES)]
            found = self._stars[file] = [path for owner in owners for path in bindings.get((owner, STAR), ())]
        return found

    def _exported(self, file: int, name: str, depth: int) -> list[Value]:
        """The values of a name in a module, submodules not included; unknown values are left out."""
        return [value for value in self._module_member(file, name, depth) if value.what != "unknown"]

    def _own_members(self, file: int, owner: int, name: str) -> list[int]:
        """A definition's (or, as -1, the file's) members by qualified name: methods may be defined outside."""
        symbols, bindings = self._source.symbols(file), self._source.record(file).bindings
        around = symbols[owner].qualname if owner >= 0 else ""
        places = self._members_of(file).get((around, name), ())
        return [place for place in places if symbols[place].kind != PART and (place, LOCAL) not in bindings]

    def _definitions(self, file: int, places: list[int]) -> list[Value]:
        """Definitions of one name; the parts of a class, such as impl blocks, count as one."""
        symbols = self._source.symbols(file)
        if len(places) > 1 and all(symbols[place].kind in CLASSES for place in places):
            places = places[:1]
        return [Value("definition", file, place) for place in places]

    def _members_of(self, file: int) -> dict[tuple[str, str], list[int]]:
        members = self._members.get(file)
        if members is None:
            members = self._members[file] = {}
            symbols = self._source.symbols(file)
            for place, one in enumerate(symbols):
                owner = one.qualname[: -len(one.name)].rstrip(".")
                members.setdefault((owner, one.name), []).append(place)
                if one.parent >= 0 and owner == symbols[one.parent].qualname and _only_namespaces(symbols, one.parent):
                    members.setdefault(("", one.name), []).append(place)
        return members

    def _class_places(self, file: int, qualname: str) -> list[int]:
        """The definitions of a file that together make up a class, such as a struct and its impl blocks."""
        owner, _, name = qualname.rpartition(".")
        places = self._members_of(file).get((owner, name), [])
        return [place for place in places if self._source.symbols(file)[place].kind in CLASSES]

    def _module_member(self, file: int, name: str, depth: int) -> list[Value]:
        """The values of a module's name, found once: modules that import each other whole are a maze."""
        if depth > _DEEPEST:
            return [UNKNOWN]
        found = self._exports.get((file, name))
        if found is None:
            self._exports[file, name] = [UNKNOWN]
            found = self._exports[file, name] = self._find_member(file, name, depth)
        return found

    def _find_member(self, file: int, name: str, depth: int) -> list[Value]:
        if own := self._own_members(file, -1, name):
            return self._definitions(file, own)
        bindings = self._source.record(file).bindings
        if paths := bindings.get((-1, name)):
            return _merge(self.evaluate(file, path, depth=depth + 1) for path in paths)
        if declared := bindings.get((-1, name + MODULE)):
            return _merge(self.evaluate(file, path, depth=depth + 1) for path in declared)
        if below := self.modules.submodule(file, name):
            return [Value("module", one) for one in below]
        if (
            name == "default" and self.modules.traits(file).imports == "script"
        ):  # a module without a default export is its own
            return [Value("module", file)]
        if self._star_imports(file):
            found = self._global(file, name, depth + 1)
            return [value for value in found if value.what != "elsewhere"] or [UNKNOWN]
        return [UNKNOWN]

    def _attributes(self, values: list[Value], name: str, depth: int) -> list[Value]:
        found = [self._attribute(value, name, depth) for value in values]
        if len(values) > 1 and all(self._is_open(value) for value in values):  # one package in several files
            known = [part for part in found if part and part[0].what != "unknown"]
            return _merge(known or found)
        return _merge(found)

    def _is_open(self, value: Value) -> bool:
        """Whether other files may add to it: a module, or a namespace."""
        return value.what == "module" or self._is_namespace(value)

    def _is_namespace(self, value: Value) -> bool:
        return value.what == "definition" and self.symbol(value.target).kind == "namespace"

    def attribute(self, value: Value, name: str) -> list[Value]:
        """The values of an attribute."""
        return self._attribute(value, name, 0)

    def _attribute(self, value: Value, name: str, depth: int) -> list[Value]:
        if depth > _DEEPEST:
            return [UNKNOWN]
        if value.what == "module":
            found = self._module_member(value.file, name, depth + 1)
        elif value.what == "above":
            order, _ = self.order(value.target)
            found = self._class_member(order[1:], name, value.target, depth)
        elif value.what in ("definition", "instance"):
            found = self._attribute_of_definition(value, name, depth)
        elif value.what == "elements" and self.modules.traits(value.file).imports == "header":
            return [_of_container(value, name)]
        elif value.what == "pointer":  # an iterator
            return self._attribute(value._replace(what="instance"), name, depth + 1)
        elif name == ELEMENTS and value.what == "unknown":
            return [CONTAINER]
        else:
            return [UNKNOWN if value.what in ("elements", "element", "iterator", "lists") else value]
        return found if value.certain else [one._replace(certain=False) for one in found]

    def _attribute_of_definition(self, value: Value, name: str, depth: int) -> list[Value]:
        symbol = self.symbol(value.target)
        if symbol.kind in CLASSES:
            if name == ELEMENTS and value.what == "definition":
                return [value._replace(what="elements")]
            if name == "__class__":
                return [value._replace(what="definition")]
            if name in ("this", "super") and value.what == "definition":  # Outer.this of Java
                return [value._replace(what="instance" if name == "this" else "above")]
            order, is_open = self.order(value.target)
            found = self._class_member(order, name, value.target, depth)
            is_pair = name == "second" and value.what == "instance" and found == [UNKNOWN] and not is_open
            is_pair = is_pair and self.modules.traits(value.file).imports == "header"  # of an element of a map
            return [value] if is_pair else found
        if value.what == "instance":
            return [UNKNOWN]
        if symbol.kind in FUNCTIONS:
            if not self._is_property(value.target):
                return [UNKNOWN]
            inner = self._call(value, depth + 1)
        else:
            inner = self._constant(value.target, symbol, depth)
        return _merge(self._attribute(one, name, depth + 1) for one in inner)

    def _is_property(self, target: DefinitionPlace) -> bool:
        return (target.place, PROPERTY) in self._source.record(target.file).bindings

    def _constant(self, target: DefinitionPlace, symbol: Symbol, depth: int) -> list[Value]:
        """The values of a constant."""
        paths = self._source.record(target.file).bindings.get((symbol.parent, symbol.name), ())
        return _merge(self.evaluate(target.file, path, depth=depth + 1) for path in paths) or [UNKNOWN]

    def _class_member(
        self, order: list[DefinitionPlace], name: str, holder: DefinitionPlace, depth: int
    ) -> list[Value]:
        for target in order:
            if own := self._own_members(target.file, target.place, name):
                return [Value("definition", target.file, place, holder=holder) for place in own]
            if paths := self._bound(target, name) or self._bound(target, name + MODULE):
                values = _merge(self.evaluate(target.file, path, depth=depth + 1) for path in paths)
                return values if len(values) == 1 else [value._replace(certain=False) for value in values]
            if self.modules.traits(target.file).methods_in_folder and (spread := self._spread_members(target, name)):
                return [value._replace(holder=holder) for value in spread]
            for path in self._source.record(target.file).bindings.get((target.place, STAR), ()):
                found = self._attributes(self.evaluate(target.file, path, depth=depth + 1), name, depth + 1)
                if found and found[0].what not in ("unknown", "elsewhere"):
                    return found
        return [UNKNOWN]

    def _bound(self, target: DefinitionPlace, name: str) -> list[str]:
        """The paths that a class's attribute is bound to; in some languages a class has several parts."""
        bindings = self._source.record(target.file).bindings
        if (paths := bindings.get((target.place, name))) or not self.modules.traits(target.file).methods_in_folder:
            return paths or []
        parts = self._class_places(target.file, self.symbol(target).qualname)
        return [path for place in parts for path in bindings.get((place, name), ())]

    def _spread_members(self, target: DefinitionPlace, name: str) -> list[Value]:
        """Methods that are defined in files other than their type's."""
        qualname = self.symbol(target).qualname
        if self.modules.traits(target.file).imports == "rust":
            return self._implemented(target, name)
        files = [file for file in self.modules.neighbours(target.file) if file != target.file]
        return [
            Value("definition", file, place)
            for file in files
            for place in self._members_of(file).get((qualname, name), ())
        ]

    def _implemented(self, target: DefinitionPlace, name: str) -> list[Value]:
        """Methods of a Rust type in the impl blocks of other files, which import the type."""
        own = self.symbol(target)
        found: list[Value] = []
        for one in self._source.named(name) if own.kind not in NAMESPACES else ():
            parent = self.symbol(one).parent
            if one.file != target.file and parent >= 0:
                part = self._source.symbols(one.file)[parent]
                if part.kind == PART and part.name == own.name and target in self._whole(one.file, part.name):
                    found.append(Value("definition", *one))
        return found

    def _whole(self, file: int, name: str) -> list[DefinitionPlace]:
        """The types that the impl blocks of a file with this name add to."""
        return self._classes(self._exported(file, name, 1) or self._global(file, name, 1), 0)

    def _call(self, value: Value, depth: int) -> list[Value]:
        if depth > _DEEPEST:
            return [UNKNOWN]
        if value.what == "above":
            return [value]
        if value.what in ("element", "iterator"):
            return [value._replace(what="instance" if value.what == "element" else "pointer")]
        if value.what not in ("definition", "instance"):
            return [_RESULTS.get(value, UNKNOWN)]
        symbol = self.symbol(value.target)
        if symbol.kind == "type" and (held := self._alias(value, depth)):
            return held
        if symbol.kind in CLASSES:
            return [value._replace(what="instance")] if value.what == "definition" else [UNKNOWN]
        if symbol.kind not in FUNCTIONS:
            inner = self._constant(value.target, symbol, depth)
            return _merge(self._call(one, depth + 1) for one in inner if one.what != "unknown") or [UNKNOWN]
        paths = self._source.record(value.file).bindings.get((value.place, RETURNS), ())
        receiver = Value("instance", *value.holder) if value.holder is not None else self._own_instance(value)
        found = _merge(self.evaluate(value.file, path, receiver, depth + 1) for path in paths) or [UNKNOWN]
        return found if len(found) == 1 and value.certain else [one._replace(certain=False) for one in found]

    def _alias(self, value: Value, depth: int) -> list[Value]:
        """What a name for a container of C++ stands for."""
        if self.modules.traits(value.file).imports != "header":
            return []
        paths = self._source.record(value.file).bindings.get((value.place, BASE), ())
        found = _merge(self.evaluate(value.file, path, depth=depth + 1) for path in paths)
        return [one for one in found if one.what == "elements"]

    def _own_instance(self, value: Value) -> Value | None:
        parent = self.symbol(value.target).parent
        return Value("instance", value.file, parent) if parent >= 0 else None

    # --- inheritance -------------------------------------------------------------------------------

    def order(self, target: DefinitionPlace) -> tuple[list[DefinitionPlace], bool]:
        """A class and its bases in method resolution order, and whether some of them are unknown."""
        order = self._orders.get(target)
        if order is None:
            if self._climbing >= HIGHEST:
                return [target], True
            self._orders[target] = ([target], True)  # ends the recursion of a class that inherits from itself
            self._climbing += 1
            try:
                order = self._orders[target] = self._linearize(target)
            finally:
                self._climbing -= 1
        return order

    def bases(self, target: DefinitionPlace) -> tuple[list[DefinitionPlace], bool]:
        """The classes that a class names as its bases, and whether there are others that are unknown."""
        found: list[DefinitionPlace] = []
        is_open = False
        bindings = self._source.record(target.file).bindings
        for place in self._class_places(target.file, self.symbol(target).qualname) or [target.place]:
            for path in bindings.get((place, BASE), ()):
                values = self._classes(self.evaluate(target.file, path), 0)
                found += [one for one in values if one not in found]
                is_open = is_open or not values
        own = self.symbol(target)
        if own.kind == PART and not self._own_members(target.file, own.parent, own.name):
            found = [one for one in self._whole(target.file, own.name) if one != target] + found
        return found[:_MOST_BASES], is_open

    def _classes(self, values: Iterable[Value], depth: int) -> list[DefinitionPlace]:
        """The classes among values; a constant may hold one: `Base = make_base()`."""
        found: list[DefinitionPlace] = []
        for value in values:
            if value.what == "definition" and depth < 4:
                symbol = self.symbol(value.target)
                if symbol.kind in CLASSES:
                    found.append(value.target)
                elif symbol.kind not in FUNCTIONS:
                    found += self._classes(self._constant(value.target, symbol, depth), depth + 1)
        return found

    def _linearize(self, target: DefinitionPlace) -> tuple[list[DefinitionPlace], bool]:
        bases, is_open = self.bases(target)
        orders: list[list[DefinitionPlace]] = []
        for base in bases:
            order, base_is_open = self.order(base)
            orders.append(list(order))
            is_open = is_open or base_is_open
        orders.append(list(bases))
        return [target, *_merged([one for one in orders if one])], is_open


def _element(value: Value) -> Value:
    """What an index into a value gives."""
    if value.what in ("elements", "lists"):
        return value._replace(what="instance" if value.what == "elements" else "elements")
    return ELSEWHERE if value.what == "elsewhere" and value != CONTAINER else UNKNOWN


def _of_container(value: Value, name: str) -> Value:
    """What a container of C++ has by a name."""
    if name == ELEMENTS:
        return value._replace(what="lists")
    what = "element" if name in _ELEMENT_OF else "iterator" if name in _ITERATORS else ""
    return value._replace(what=what) if what else ELSEWHERE


def _only_namespaces(symbols: list[Symbol], place: int) -> bool:
    while place >= 0 and symbols[place].kind == "namespace":
        place = symbols[place].parent
    return place < 0


def _merged(orders: list[list[DefinitionPlace]]) -> list[DefinitionPlace]:
    """C3 linearization: a class precedes its bases, and bases keep their order, as far as that is possible."""
    result: list[DefinitionPlace] = []
    while orders:
        tails = {one for order in orders for one in order[1:]}
        head = next((order[0] for order in orders if order[0] not in tails), orders[0][0])
        result.append(head)
        orders = [rest for order in orders if (rest := [one for one in order if one != head])]
    return result


def _merge(parts: Iterable[list[Value]]) -> list[Value]:
    """Unique values; unknown ones are dropped if others are known, which then become uncertain."""
    found: dict[Value, None] = {}
    for part in parts:
        for value in part:
            found[value] = None
    if len(found) < 2:
        return list(found)
    known = [value for value in found if value.what not in ("unknown", "elsewhere")]
    if not known:
        return [ELSEWHERE if all(value.what == "elsewhere" for value in found) else UNKNOWN]
    if len(known) < len(found):
        known = [value._replace(certain=False) for value in known]
    return known
