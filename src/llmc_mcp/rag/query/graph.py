"""The graph of symbols: what a name refers to, what uses a definition, what it uses.

Edges are graded. `exact`: imports, scopes and types lead there and nowhere else. `likely`: they lead there among
other places, or an override may be called, or nothing else in the repository has that name. `name_only`: the name is
the same and nothing rules it out.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from ..parse.record import Record, mentions
from ..parse.scopes import CLASSES, FUNCTIONS, LOCAL, NAMESPACES, PART
from ..parse.types import Confidence, Reference, ReferenceKind
from .common import METHODS
from .modules import Modules
from .resolve import (
    DOUBTFUL,
    HIGHEST,
    MADE_ELSEWHERE,
    RETURNED_ELSEWHERE,
    DefinitionPlace,
    RecordSource,
    Resolver,
    Symbol,
    Value,
)

_GRADES: dict[Confidence, int] = {"exact": 0, "likely": 1, "name_only": 2}
_GUESSES = 6  # definitions that a call by name only may mean, the nearest ones
_ABOVE = re.compile(r"\^(\d+)")
_OWN = re.compile(r"~?#\d+")


class Files(RecordSource, Protocol):
    """The parts of an index that the graph reads."""

    def files(self) -> list[tuple[int, str, str]]: ...
    def hashes(self) -> Iterable[tuple[int, bytes]]: ...
    def named(self, name: str) -> list[DefinitionPlace]: ...
    def record(self, file: int) -> Record: ...
    def symbols(self, file: int) -> list[Symbol]: ...


class Use(NamedTuple):
    """A place where a symbol is used, and how certain that is."""

    file: int
    line: int
    kind: ReferenceKind
    confidence: Confidence
    inside: int  # the enclosing definition; -1 for none
    of: DefinitionPlace | None = None  # which of the requested definitions; None if only the name is known


class Edge(NamedTuple):
    """An edge from a place to a definition that it uses."""

    line: int
    kind: ReferenceKind
    confidence: Confidence
    target: DefinitionPlace


class Graph:
    """The graph of one state of an index."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.modules = Modules(files.files(), lambda file: files.record(file).bindings)
        self.resolver = Resolver(files, self.modules)
        self._hashes: list[tuple[int, bytes]] | None = None

    def symbol(self, target: DefinitionPlace) -> Symbol:
        """A definition by its place."""
        return self._files.symbols(target.file)[target.place]

    def symbols(self, file: int) -> list[Symbol]:
        """All definitions of a file."""
        return self._files.symbols(file)

    def path(self, file: int) -> str:
        """The path of a file, relative to the root."""
        return self.modules.path(file)

    # --- finding definitions -----------------------------------------------------------------------

    def find(self, text: str) -> list[DefinitionPlace]:
        """The definitions that `name`, `Class.method`, `path:Class.method` or `module.Class.method` means."""
        where, colon, what = text.rpartition(":")
        what = what.replace("::", ".").replace("#", ".").strip().removesuffix("()")
        if colon and not where.endswith(":"):
            there = [one for one in self._ends_with(what) if self._lies_at(one.file, where)]
            return [one for one in there if self.symbol(one).qualname == what] or there
        what = text.replace("::", ".").replace("#", ".").strip().removesuffix("()")
        return self._ends_with(what) or self._in_module(what) or self._inherited(what)

    def _inherited(self, what: str) -> list[DefinitionPlace]:
        """`Class.method` where the class inherits the method."""
        holder, _, name = what.rpartition(".")
        found: dict[DefinitionPlace, None] = {}
        for one in self.find(holder) if holder else ():
            if self.symbol(one).kind in CLASSES:
                for value in self.resolver.attribute(Value("definition", *one), name):
                    if value.what == "definition":
                        found[value.target] = None
        return list(found)

    def _ends_with(self, what: str) -> list[DefinitionPlace]:
        """Definitions whose qualified name ends with this."""
        named = self._files.named(what.rpartition(".")[2])
        return [one for one in named if _same_end(self.symbol(one).qualname, what)]

    def _lies_at(self, file: int, where: str) -> bool:
        path, where = f"/{self.path(file)}", where.strip("/").removeprefix("./")
        return path.endswith(f"/{where}") or path.rpartition(".")[0].endswith(f"/{where}")

    def _in_module(self, what: str) -> list[DefinitionPlace]:
        """`package.module.Class.method`: it begins with the path of a file, which may re-export the rest."""
        parts = what.split(".")
        if len(parts) < 2:
            return []
        found: dict[DefinitionPlace, None] = {}
        for one in self._files.named(parts[-1]):
            qualname = self.symbol(one).qualname
            module = what[: -len(qualname) - 1] if what.endswith(f".{qualname}") else ""
            if module and self._module_ends_with(one.file, module):
                found[one] = None
        if found:
            return list(found)
        for file, path, language in self._files.files():
            if language == "python" and path.endswith("__init__.py"):
                for cut in range(len(parts) - 1, 0, -1):
                    if self._module_ends_with(file, ".".join(parts[:cut])):
                        for value in self.resolver.evaluate(file, f"<.>.{'.'.join(parts[cut:])}"):
                            if value.what == "definition":
                                found[value.target] = None
        return list(found)

    def _module_ends_with(self, file: int, module: str) -> bool:
        stem = self.path(file).rpartition(".")[0].removesuffix("/__init__").removesuffix("/index").removesuffix("/mod")
        return f".{stem.replace('/', '.')}".endswith(f".{module}")

    # --- uses --------------------------------------------------------------------------------------

    def uses(self, targets: Iterable[DefinitionPlace], check: Callable[[], None] = lambda: None) -> list[Use]:
        """Every place that uses one of these definitions, most certain first, then by file and line."""
        found: dict[tuple[int, int, str, int], Use] = {}
        for use, _ in self.references(targets, check):
            key = (use.file, use.line, use.kind, use.inside)
            if key not in found or _GRADES[use.confidence] < _GRADES[found[key].confidence]:
                found[key] = use
        return sorted(found.values(), key=lambda use: (_GRADES[use.confidence], self.path(use.file), use.line))

    def references(
        self, targets: Iterable[DefinitionPlace], check: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[Use, int]]:
        """Every reference to one of these definitions, each with its index in the record of its file."""
        wanted = {one for target in targets for one in self.versions(target)}
        names = {self.symbol(one).name for one in wanted}
        alone = {name: self._is_alone(name, wanted) for name in names}
        todo, seen = set(names), set(names)
        for one in wanted:  # its own file may export it under another name, and never mention it otherwise
            todo |= self._aliases(one.file, self._files.record(one.file), self.symbol(one).name, wanted)
        seen |= todo
        while todo:
            name = todo.pop()
            for file in self.mentioning(name):
                check()
                record = self._files.record(file)
                for alias in self._aliases(file, record, name, wanted) - seen:
                    seen.add(alias)
                    todo.add(alias)
                for place in record.places((name,)):
                    reference = record.reference(place)
                    grade = self._grade(file, reference, wanted, alone=alone.get(name, False), alias=name not in names)
                    if grade is not None:
                        yield Use(file, reference.line, reference.kind, grade[0], reference.inside, grade[1]), place

    def versions(self, target: DefinitionPlace) -> list[DefinitionPlace]:
        """A definition and others of the same name in its file: overloads, a setter, one for each branch."""
        symbols, bindings = self._files.symbols(target.file), self._files.record(target.file).bindings
        qualname, block = symbols[target.place].qualname, bindings.get((target.place, LOCAL))
        same = [place for place, one in enumerate(symbols) if one.qualname == qualname]
        if self.modules.traits(target.file).calls_apart:  # a field is no version of a method
            is_method = symbols[target.place].kind in FUNCTIONS
            same = [place for place in same if (symbols[place].kind in FUNCTIONS) == is_method]
        return [DefinitionPlace(target.file, place) for place in same if bindings.get((place, LOCAL)) == block]

    def _is_alone(self, name: str, wanted: set[DefinitionPlace]) -> bool:
        """Whether nothing else in the same language has this name."""
        rivals = [one for one in self._rivals(name) if one not in wanted]
        return not any(self._same_language(one.file, other.file) for one in rivals for other in wanted)

    def _rivals(self, name: str) -> list[DefinitionPlace]:
        """Every definition that a name could mean."""
        kinds = (CLASSES | FUNCTIONS | {"constant"}) - {PART}
        return [one for one in self._files.named(name) if self.symbol(one).kind in kinds]

    def mentioning(self, name: str) -> list[int]:
        """The files that mention a name."""
        if self._hashes is None:
            self._hashes = list(self._files.hashes())
        return [file for file, hashed in self._hashes if mentions(hashed, name)]

    def _aliases(self, file: int, record: Record, name: str, wanted: set[DefinitionPlace]) -> set[str]:
        """Other names that a file binds to a definition."""
        found: set[str] = set()
        for (owner, alias), paths in record.bindings.items():
            if alias != name and owner == -1 and alias.isidentifier():
                for path in paths:
                    if path.endswith(f".{name}") or _OWN.fullmatch(path):
                        values = self.resolver.evaluate(file, path)
                        if any(value.what == "definition" and value.target in wanted for value in values):
                            found.add(alias)
        return found

    def _grade(
        self, file: int, reference: Reference, wanted: set[DefinitionPlace], *, alone: bool, alias: bool
    ) -> tuple[Confidence, DefinitionPlace | None] | None:
        """How certainly a reference means one of `wanted`, and which one; None if it means something else."""
        values = self.resolver.resolve(file, reference)
        hits = [value for value in values if value.what == "definition" and value.target in wanted]
        if hits:
            sure = hits[0].certain and (len(values) == len(hits) or _same_thing(values))
            return "exact" if sure else "likely", hits[0].target
        if alias:
            return None
        if any(value.what == "elsewhere" for value in values):
            return ("name_only", None) if self._may_return_anything(file, reference, values, wanted) else None
        if reference.receiver.startswith("^") and self._is_own_super(file, reference, wanted):
            return None
        if any(value.what == "unknown" or not value.certain for value in values):
            doubtful = values == [DOUBTFUL] or (
                RETURNED_ELSEWHERE in values and self.modules.traits(file).imports == "folder"
            )
            grade = self._by_name(file, reference, wanted, alone and not doubtful)
            return (grade, next(iter(wanted)) if alone and len(wanted) == 1 else None) if grade is not None else None
        if reference.receiver.startswith("^"):  # a call through super() never reaches an override
            return None
        overridden = next((one for value in values for one in wanted if self._may_be_overridden(value, one)), None)
        return ("likely", overridden) if overridden is not None else None

    def _is_own_super(self, file: int, reference: Reference, wanted: set[DefinitionPlace]) -> bool:
        """Whether a call through super() starts above the very class that has the wanted methods."""
        above = _ABOVE.match(reference.receiver)
        place = int(above[1]) if above is not None else -1
        return all(one.file == file and self.symbol(one).parent == place for one in wanted)

    def _may_return_anything(
        self, file: int, reference: Reference, values: list[Value], wanted: set[DefinitionPlace]
    ) -> bool:
        """Whether a receiver of another project may have a method of this one all the same.

        Rust's generic types and functions hand out what they were given, and a trait adds methods to any type.
        """
        if not reference.receiver or self.modules.traits(file).imports != "rust":
            return False
        owners = {
            self.symbol(DefinitionPlace(one.file, parent)).kind
            for one in wanted
            if (parent := self.symbol(one).parent) >= 0
        }
        return "trait" in owners or (MADE_ELSEWHERE in values and bool(owners - NAMESPACES))

    def _by_name(self, file: int, reference: Reference, wanted: set[DefinitionPlace], alone: bool) -> Confidence | None:
        """Grade a use of which only the name is known, not the receiver."""
        if not any(self._same_language(file, one.file) for one in wanted):
            return None
        receiver, traits = reference.receiver, self.modules.traits(file)
        methods = [one for one in wanted if self.is_method(one)]
        bare = not receiver and not traits.implicit_this
        of_module = reference.kind == "import" or (receiver[:1] == "<" and receiver[-1] == ">")
        if (bare or of_module) and len(methods) == len(wanted):
            return None
        if receiver and not methods and traits.imports == "folder":
            return None  # packages are always known: this is a field
        holder = self.resolver.evaluate(file, receiver) if receiver else []
        if any(value.what == "instance" and self._may_be_inherited(value, wanted) for value in holder):
            return "likely"
        is_common = bool(methods) and reference.name in METHODS.get(traits.imports, ())
        is_other = bool(methods and holder) and all(self._is_of_another_class(one, wanted) for one in holder)
        if alone and not is_common and not is_other:
            return "likely"
        # An attribute of an unknown value is hardly ever a module's function if methods have that name, too.
        return None if receiver and not methods and traits.modules_are_named else "name_only"

    def _is_of_another_class(self, value: Value, wanted: set[DefinitionPlace]) -> bool:
        """Whether a receiver is an instance of a class of this project that has nothing to do with the wanted methods.

        The class may still inherit them from a base that is unknown.
        """
        if value.what != "instance":
            return False
        own = self.resolver.order(value.target)[0]
        if len(own) >= HIGHEST:
            return False  # there were too many bases to look at all of them
        for one in wanted:
            parent = DefinitionPlace(one.file, self.symbol(one).parent)
            if parent.place < 0 or parent in own or value.target in self.resolver.order(parent)[0]:
                return False
        return True

    def is_method(self, one: DefinitionPlace) -> bool:
        """Whether a definition belongs to a class."""
        symbol = self.symbol(one)
        if symbol.parent < 0:  # in Go and C++ only the qualified name tells
            return "." in symbol.qualname
        return self._files.symbols(one.file)[symbol.parent].kind in CLASSES - NAMESPACES

    def _same_language(self, one: int, other: int) -> bool:
        if self.modules.language(one) == self.modules.language(other):
            return True
        family = self.modules.traits(one).family
        return bool(family) and family == self.modules.traits(other).family

    def _may_be_overridden(self, value: Value, wanted: DefinitionPlace) -> bool:
        """Whether a call of this method may be dispatched to the wanted one, which overrides it."""
        if value.what != "definition":
            return False
        receiver = value.holder or DefinitionPlace(value.file, self.symbol(value.target).parent)
        return receiver.place >= 0 and self._inherits(wanted, receiver)

    def _may_be_inherited(self, value: Value, wanted: set[DefinitionPlace]) -> bool:
        return any(self._inherits(one, value.target) for one in wanted)

    def _inherits(self, method: DefinitionPlace, base: DefinitionPlace) -> bool:
        parent = self.symbol(method).parent
        if parent < 0 or self.symbol(DefinitionPlace(method.file, parent)).kind not in CLASSES:
            return False
        return base in self.resolver.order(DefinitionPlace(method.file, parent))[0]

    # --- dependencies ------------------------------------------------------------------------------

    def within(self, target: DefinitionPlace) -> set[int]:
        """The place of a definition and of everything inside it."""
        symbols, places = self._files.symbols(target.file), {target.place}
        for place, one in enumerate(symbols):
            if one.parent in places:
                places.add(place)
        return places

    def on_call(self, target: DefinitionPlace) -> set[int]:
        """The definitions that a call runs: for a class, only those that create an instance."""
        symbols = self._files.symbols(target.file)
        if symbols[target.place].kind not in CLASSES:
            return self.within(target)
        makers = {"__init__", "__new__", "__post_init__", "constructor", symbols[target.place].name}
        places = {target.place}
        for place, one in enumerate(symbols):
            if one.parent == target.place and one.name in makers:
                places |= self.within(DefinitionPlace(target.file, place))
        return places

    def edges(
        self, target: DefinitionPlace, check: Callable[[], None] = lambda: None, places: set[int] | None = None
    ) -> list[Edge]:
        """What a definition and everything inside it use of the repository, most certain first.

        `places` restricts this to the uses of some of the definitions inside it.
        """
        places = self.within(target) if places is None else places
        found: dict[tuple[DefinitionPlace, ReferenceKind], Edge] = {}
        for reference in self._files.record(target.file).inside(places):
            check()
            for edge in self.edge(target.file, reference):
                if not (edge.target.file == target.file and edge.target.place in places):
                    key = (edge.target, edge.kind)
                    if key not in found or _GRADES[edge.confidence] < _GRADES[found[key].confidence]:
                        found[key] = edge
        return sorted(found.values(), key=lambda edge: (_GRADES[edge.confidence], edge.line))

    def edge(self, file: int, reference: Reference) -> Iterator[Edge]:
        """What one reference leads to."""
        values = self.resolver.resolve(file, reference)
        definitions = [value for value in values if value.what == "definition"]
        for value in definitions:
            sure = value.certain and _same_thing(definitions)
            yield Edge(reference.line, reference.kind, "exact" if sure else "likely", value.target)
        if not definitions and any(value.what == "unknown" for value in values):
            rivals = [one for one in self._rivals(reference.name) if self._same_language(file, one.file)]
            if len(rivals) == 1 and DOUBTFUL not in values:
                yield Edge(reference.line, reference.kind, "likely", rivals[0])
            elif reference.kind == "call":
                fitting = [one for one in rivals if self.is_method(one) or not reference.receiver]
                for one in sorted(fitting, key=lambda one: (-self.modules.nearness(file, one.file), one))[:_GUESSES]:
                    yield Edge(reference.line, reference.kind, "name_only", one)

    def importers(self, file: int, check: Callable[[], None] = lambda: None) -> list[Use]:
        """The places that import a file, or something from it."""
        found: dict[tuple[int, int], Use] = {}
        stem = self.path(file).rpartition("/")[2].partition(".")[0]
        if stem in ("__init__", "index", "mod"):
            stem = self.path(file).rpartition("/")[0].rpartition("/")[2]
        names = {stem, "*", *(one.name for one in self._files.symbols(file) if one.parent < 0)}
        for other in sorted({one for name in names for one in self.mentioning(name)} - {file}):
            check()
            for reference in self._files.record(other).named(names):
                if reference.kind == "import" and self._comes_from(other, reference, file):
                    found.setdefault((other, reference.line), Use(other, reference.line, "import", "exact", -1))
        return sorted(found.values(), key=lambda use: (self.path(use.file), use.line))

    def _comes_from(self, importer: int, reference: Reference, file: int) -> bool:
        """Whether an import refers to a file itself, or to something that it defines."""
        holders = self.resolver.evaluate(importer, reference.receiver) if reference.receiver != "<>" else []
        if any(value.what == "module" and value.file == file for value in holders):
            return True
        if reference.receiver == "<>":
            return file in self.modules.find(importer, reference.name)
        return any(value.file == file for value in self.resolver.resolve(importer, reference) if value.what == "module")


def _same_thing(values: list[Value]) -> bool:
    """Whether several definitions are one: overloads, or one per branch of an `if`."""
    first = values[0]
    return all(value.file == first.file for value in values)


def _same_end(qualname: str, what: str) -> bool:
    return qualname == what or qualname.endswith(f".{what}")
