"""The definitions that have to keep one name: versions, constructors, methods that override each other.

A method whose name another project chose is refused: it would no longer override what that project calls.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from ..errors import InvalidArgument
from ..rag.parse.scopes import BASE, CLASSES, FUNCTIONS, PART
from ..rag.query.resolve import DefinitionPlace, Value
from ..rag.query.search import GraphView

_OVERRIDES = {
    "java": re.compile(r"@Override\b"),
    "cpp": re.compile(r"\boverride\b"),
    "typescript": re.compile(r"\boverride\b"),
    "tsx": re.compile(r"\boverride\b"),
}
C_FAMILY = frozenset({"c", "cpp"})
_STRUCTURAL = frozenset({"typescript", "tsx", "javascript"})
# Methods that Go's own packages find by their names, in whatever type.
_GO = frozenset(
    {"Close", "Error", "Flush", "Format", "GobDecode", "GobEncode", "GoString", "Header", "Hijack", "Is", "Len", "Less"}
    | {"MarshalBinary", "MarshalJSON", "MarshalText", "MarshalXML", "Pop", "Push", "Read", "ReadByte", "ReadFrom"}
    | {"RoundTrip", "Scan", "Seek", "ServeHTTP", "Set", "String", "Swap", "UnmarshalBinary", "UnmarshalJSON"}
    | {"UnmarshalText", "UnmarshalXML", "Unwrap", "Value", "Write", "WriteByte", "WriteHeader", "WriteString"}
    | {"WriteTo"}
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.S)
_CREATED = re.compile(rb"\bnew\s++(?:@\w++\s++)*+([\w.$]++)\s*+(?:<[^;{}]{0,400}>\s*+)?\([^;{}]{0,400}\)\s*+$")
_CONSTANT = re.compile(rb"[\s,{]([\w$]++)\s*+(?:\([^;{}]{0,400}\)\s*+)?$")
_BEFORE = 2_000  # bytes of what an anonymous class is created with


class RenameFamily(NamedTuple):
    """Definitions that are renamed together, and what the caller should know."""

    members: list[DefinitionPlace]
    notes: list[str]


def family_of(view: GraphView, targets: list[DefinitionPlace]) -> RenameFamily:
    """What has to be renamed with the definitions of one thing; raises if the name is not the project's alone."""
    return _Search(view, targets).family()


def class_of(view: GraphView, one: DefinitionPlace) -> DefinitionPlace | None:
    """The definition that a member stands in."""
    parent = view.graph.symbol(one).parent
    return DefinitionPlace(one.file, parent) if parent >= 0 else None


class _Search:
    def __init__(self, view: GraphView, targets: list[DefinitionPlace]) -> None:
        self._view, self._graph, self._resolver = view, view.graph, view.graph.resolver
        self._targets = targets
        self._name = self._graph.symbol(targets[0]).name
        self._language = self._graph.modules.language(targets[0].file)
        self._owners: dict[DefinitionPlace, DefinitionPlace | None] = {}
        self._sources: dict[int, bytes] = {}

    def family(self) -> RenameFamily:
        found = {version: None for one in self._targets for version in self._graph.versions(one)}
        notes: list[str] = []
        if self._language in C_FAMILY:
            self._add_declarations(found)
        if self._graph.symbol(self._targets[0]).kind in CLASSES:
            found.update(dict.fromkeys(list(self._constructors(found))))
        elif any(self._owner(one) is not None or self._graph.is_method(one) for one in self._targets):
            self._add_overrides(found)
            if self._language in C_FAMILY:
                self._add_declarations(found)
            for one in found:
                self._refuse_foreign(one, found)
            self._refuse_in_macros()
            owners = [owner for one in found if (owner := self._owner(one)) is not None]
            if any(self._resolver.order(one)[1] for one in owners):
                notes.append(
                    f"A base of its class is not part of the project: does {self._name} override a method of that?"
                )
        return RenameFamily(list(found), notes)

    def _constructors(self, classes: dict[DefinitionPlace, None]) -> Iterator[DefinitionPlace]:
        for name in (self._name, f"~{self._name}"):
            for one in self._view.files.named(name):
                if self._owner(one) in classes:  # another file may have a class of that name to itself
                    yield one

    # --- declarations of C and C++ -----------------------------------------------------------------------

    def _add_declarations(self, found: dict[DefinitionPlace, None]) -> None:
        """What a header declares and a file that includes it defines, or the other way around, is one thing."""
        rivals = [
            one for one in self._view.files.named(self._name) if self._graph.modules.language(one.file) in C_FAMILY
        ]
        known = -1
        while len(found) != known:
            known = len(found)
            for one in rivals:
                if one not in found and any(self._declares(one, other) for other in list(found)):
                    found.update(dict.fromkeys(self._graph.versions(one)))

    def _declares(self, one: DefinitionPlace, other: DefinitionPlace) -> bool:
        own, their = self._graph.symbol(one), self._graph.symbol(other)
        if own.qualname != their.qualname or (own.kind in CLASSES) != (their.kind in CLASSES):
            return False
        if own.kind in CLASSES and "type" not in (own.kind, their.kind):
            return False  # two classes
        if own.kind not in CLASSES and "prototype" not in (own.kind, their.kind):
            return False
        if one.file == other.file:
            return True
        return other.file in self._resolver.included(one.file) or one.file in self._resolver.included(other.file)

    # --- methods that override each other --------------------------------------------------------------

    def _add_overrides(self, found: dict[DefinitionPlace, None]) -> None:
        rivals = [one for one in self._view.files.named(self._name) if self._may_override(one)]
        known = -1
        while len(found) != known:
            known = len(found)
            for one in rivals:
                if one not in found and any(self._is_related(one, other) for other in list(found)):
                    found[one] = None

    def _is_alike(self, one: DefinitionPlace) -> bool:
        """Whether it is a method like the target, or a field like it, where both may have one name."""
        if not self._graph.modules.traits(one.file).calls_apart:
            return True
        return (self._graph.symbol(one).kind in FUNCTIONS) == (self._graph.symbol(self._targets[0]).kind in FUNCTIONS)

    def _may_override(self, one: DefinitionPlace) -> bool:
        return (
            self._is_alike(one)
            and self._graph.modules.language(one.file) == self._language
            and (self._graph.is_method(one) or self._owner(one) is not None)
        )

    def _is_related(self, one: DefinitionPlace, other: DefinitionPlace) -> bool:
        if self._language == "go":
            return self._satisfies(one, other) or self._satisfies(other, one)
        a, b = self._owner(one), self._owner(other)
        if a is None or b is None:
            return False
        return a in self._resolver.order(b)[0] or b in self._resolver.order(a)[0]

    def _owner(self, one: DefinitionPlace) -> DefinitionPlace | None:
        """The class of a method; of one in a class without a name, the class that it extends."""
        if one not in self._owners and self._language == "cpp":
            self._owners[one] = self._resolver.owner(one)
        elif one not in self._owners:
            around = class_of(self._view, one)
            if around is not None and self._graph.symbol(around).kind not in CLASSES:
                around = self._extended(one) if self._language == "java" else None
            self._owners[one] = around
        return self._owners[one]

    def _extended(self, one: DefinitionPlace) -> DefinitionPlace | None:
        """What `new Base() { … }`, or the body of an enumeration's constant, around a method extends."""
        source = self._source(one.file)
        starts = source.split(b"\n", self._graph.symbol(one).first_line - 1)
        at = len(source) - len(starts[-1])
        depth = 0
        for place in range(at - 1, max(at - 200_000, -1), -1):
            byte = source[place]
            depth += (byte == 0x7D) - (byte == 0x7B)  # } and {
            if depth < 0:
                head = source[max(place - _BEFORE, 0) : place]
                if created := _CREATED.search(head):
                    return self._class_named(one.file, created[1].decode(errors="replace"))
                around = class_of(self._view, class_of(self._view, one) or one)
                if _CONSTANT.search(head) and around is not None and self._graph.symbol(around).kind == "enum":
                    return around
                return None
        return None

    def _source(self, file: int) -> bytes:
        if file not in self._sources:
            self._sources[file] = self._view.read(file) or b""
        return self._sources[file]

    def _class_named(self, file: int, name: str) -> DefinitionPlace | None:
        first, *rest = name.split(".")
        values = self._resolver.attribute(Value("module", file), first)
        if not any(value.what == "definition" for value in values):
            values = self._resolver.evaluate(file, first)
        if not any(value.what == "definition" for value in values):  # nested in a class of this file
            own = [place for place, one in enumerate(self._graph.symbols(file)) if one.name == first]
            values = [Value("definition", file, place) for place in own]
        for part in rest:
            values = [inner for value in values for inner in self._resolver.attribute(value, part)]
        for value in values:
            if value.what == "definition" and self._graph.symbol(value.target).kind in CLASSES:
                return value.target
        return None

    def _satisfies(self, one: DefinitionPlace, other: DefinitionPlace) -> bool:
        """Whether the type of a Go method has all that the interface of another one asks for."""
        interface = class_of(self._view, other)
        if interface is None or self._graph.symbol(interface).kind != "interface" or class_of(self._view, one):
            return False
        asked = {own.name for own in self._graph.symbols(other.file) if own.parent == interface.place}
        owner = self._graph.symbol(one).qualname.rpartition(".")[0]
        has: set[str] = set()
        for file in self._graph.modules.neighbours(one.file):
            has |= {own.name for own in self._graph.symbols(file) if own.qualname == f"{owner}.{own.name}"}
        return asked <= has

    # --- names that are not the project's --------------------------------------------------------------

    def _refuse_foreign(self, one: DefinitionPlace, found: dict[DefinitionPlace, None]) -> None:
        own, owner = self._graph.symbol(one), self._owner(one)
        why = ""
        marked = _OVERRIDES.get(self._language)
        if marked is not None and marked.search(self._head(one)):
            above = set(self._resolver.order(owner)[0]) if owner is not None else set[DefinitionPlace]()
            if owner == class_of(self._view, one) or self._language == "cpp":
                above.discard(owner)  # the owner of a method in a class without a name is a base
            if not any(other != one and self._owner(other) in above for other in found):
                why = "overrides a method of a class that is not part of the project"
        elif self._language == "rust" and owner is not None and self._implements_foreign(owner, found):
            why = "implements a trait that is not part of the project"
        elif self._language == "go" and self._name in _GO:
            why = "may be found by its name: interfaces of Go's own packages have it"
        elif self._language in _STRUCTURAL and owner is not None and self._graph.symbol(owner).kind == "interface":
            why = "is part of an interface, which objects fit without naming it"
        if why:
            where = f"{self._graph.path(one.file)}:{own.first_line}"
            raise InvalidArgument(
                f"{self._name} {why}: {where}", hint="code_rewrite replaces patterns, wherever they are."
            )

    def _refuse_in_macros(self) -> None:
        """A method that a macro of Rust defines has no definition that could be renamed."""
        name = re.compile(rb"\bfn\s+%s\b" % re.escape(self._name.encode()))
        for file in self._graph.mentioning(self._name) if self._language == "rust" else ():
            defined = sum(one.file == file for one in self._view.files.named(self._name))
            if sum(1 for _ in name.finditer(self._source(file))) > defined:
                raise InvalidArgument(f"{self._name} is defined by a macro, too: {self._graph.path(file)}")

    def _head(self, one: DefinitionPlace) -> str:
        """What stands before the body of a definition; the index may keep less of it."""
        own = self._graph.symbol(one)
        lines = self._source(one.file).split(b"\n")[own.first_line - 1 : own.last_line]
        text = _COMMENT.sub("", b"\n".join(lines).decode(errors="replace"))
        named = re.search(rf"\b{re.escape(own.name)}\s*[(<]", text)
        at = named.start() if named is not None else 0
        return own.signature + re.split(r"[;{}]", text[:at])[-1] + re.split(r"[;{]", text[at:])[0]

    def _implements_foreign(self, block: DefinitionPlace, found: dict[DefinitionPlace, None]) -> bool:
        """Whether an impl block is one of a trait that the project does not define."""
        if self._graph.symbol(block).kind != PART:
            return False
        paths = self._view.files.record(block.file).bindings.get((block.place, BASE), ())
        traits = {value.target for path in paths for value in self._resolver.evaluate(block.file, path)}
        return bool(paths) and not any(class_of(self._view, one) in traits for one in found)
