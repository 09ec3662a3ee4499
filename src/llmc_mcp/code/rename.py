"""Rename a definition: every place that certainly means it changes, the doubtful ones are listed.

A name is replaced only where the token is the old name. An import that would leave other uses of the name in its file
behind keeps it there: `from a import new as old`. A method is renamed with those that it overrides and that override
it: the caller of one may call the other.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ..errors import Conflict, InvalidArgument, Stale
from ..rag.parse.name_types import NamePlaces, NameQuery
from ..rag.parse.scopes import FUNCTIONS, PART
from ..rag.parse.types import Reference
from ..rag.query import questions
from ..rag.query.common import METHODS
from ..rag.query.graph import Use
from ..rag.query.resolve import DefinitionPlace, Value
from ..rag.query.search import GraphView
from .families import C_FAMILY, class_of, family_of
from .parser import CodeParser

LANGUAGES = frozenset({"python", "javascript", "typescript", "tsx", "go", "rust", "java", "c", "cpp"})
_IDENTIFIER = re.compile(r"[^\W\d][\w$]*|\$[\w$]*")
_WITH_ALIASES = frozenset({"python", "javascript", "typescript", "tsx", "rust"})
_FOLDER_SCOPED = frozenset({"go", "java"})
_TYPED = frozenset({"java", "go", "rust", "cpp"})
_DISTINCTIVE = 6  # letters of a method's name
_MOST_LISTED = 500
_MOST_SHOWN = 8  # places in a refusal


class FileEdit(NamedTuple):
    """The new content of a file, and the content that it was made from."""

    before: bytes
    after: bytes
    places: int


class RenamePlan(NamedTuple):
    """What a rename changes in one root, and which places it leaves to the caller."""

    old: str
    files: dict[str, FileEdit]  # by path below the root
    doubtful: list[questions.Site]  # likely and name_only
    doubtful_total: Mapping[str, int]
    notes: list[str]
    language: str
    complete: bool = True  # False: a file is not as it was indexed
    moves: Mapping[str, str] = {}  # files that get another name, by path


def pick(view: GraphView, symbol: str) -> list[DefinitionPlace]:
    """The one thing that a symbol means: its definition, overloads and declarations; raises if there are several."""
    found = questions.find(view, symbol)
    whole = [one for one in found if view.graph.symbol(one).kind != PART] or found
    named = {view.graph.symbol(one).qualname for one in whole}
    whole = [one for one in whole if not _is_constructor(view.graph.symbol(one).qualname, named)]
    methods = [one for one in whole if view.graph.symbol(one).kind in FUNCTIONS]
    if methods and all(view.graph.modules.traits(one.file).calls_apart for one in whole):
        whole = methods  # a field may have the same name
    things: dict[tuple[int, str], list[DefinitionPlace]] = {}
    declared: list[DefinitionPlace] = []
    for one in whole:
        own = view.graph.symbol(one)
        if own.kind == "prototype" and view.graph.modules.language(one.file) in C_FAMILY:
            declared.append(one)
        else:
            things.setdefault((one.file, own.qualname), []).append(one)
    names = {view.graph.symbol(one).qualname for one in whole}
    if len(things) > 1 or len(names) > 1:
        shown = [f"{view.graph.path(one.file)}:{view.graph.symbol(one).first_line}" for one in whole[:12]]
        raise InvalidArgument(
            f"{symbol} means {len(things) + (not things) * len(names)} definitions: {', '.join(shown)}",
            hint="Name one of them: path:Class.method.",
        )
    return [*(one for ones in things.values() for one in ones), *declared]


def _is_constructor(qualname: str, named: set[str]) -> bool:
    owner, _, name = qualname.rpartition(".")
    return owner in named and owner.rpartition(".")[2] == name


def plan(
    view: GraphView,
    targets: list[DefinitionPlace],
    new: str,
    parser: CodeParser,
    *,
    strings: bool,
    check: Callable[[], None],
) -> RenamePlan:
    """Everything that a rename of these definitions changes."""
    return _Renaming(view, targets, new, parser, strings, check).plan()


class _Renaming:
    def __init__(
        self,
        view: GraphView,
        targets: list[DefinitionPlace],
        new: str,
        parser: CodeParser,
        strings: bool,
        check: Callable[[], None],
    ) -> None:
        self._view, self._graph, self._parser, self._check = view, view.graph, parser, check
        self._new, self._strings = new, strings
        self._old = self._graph.symbol(targets[0]).name
        self._language = self._graph.modules.language(targets[0].file)
        self._is_member = all(self._graph.is_method(one) for one in targets)
        self._targets, self._notes = family_of(view, targets)
        self._doubtful: list[Use] = []
        self._files_near: set[int] | None = None

    def plan(self) -> RenamePlan:
        self._refuse()
        exact: dict[int, set[Reference]] = {one.file: set() for one in self._targets}
        others: dict[int, dict[Reference, Use]] = {}
        for use, place in self._graph.references(self._targets, self._check):
            reference = self._view.files.record(use.file).reference(place)
            if (
                use.confidence == "exact"
                or self._is_global_in_c(use, reference)
                or self._is_distinctive(use, reference)
            ):
                exact.setdefault(use.file, set()).add(reference)
            else:
                others.setdefault(use.file, {})[reference] = use
        self._refuse_doubtful(others)
        files: dict[str, FileEdit] = {}
        clashes: list[str] = []
        for file, indexes in exact.items():
            edit = self._edit(file, indexes, others.get(file, {}), clashes)
            if edit is None:
                return self._result({}, complete=False)
            if edit.before != edit.after:
                files[self._graph.path(file)] = edit
        if self._strings and not self._add_strings(files, set(exact)):
            return self._result({}, complete=False)
        if clashes:
            raise Conflict(
                f"{self._new} is used already: {', '.join(clashes[:6])}",
                hint="Choose another name, or rename what has this one first.",
            )
        self._doubtful += [use for some in others.values() for use in some.values()]
        return self._result(files)

    def _is_global_in_c(self, use: Use, reference: Reference) -> bool:
        """Whether C leaves no other meaning: names are global there, and a header need not include what it uses."""
        only = use.confidence == "likely" and not reference.receiver
        return only and self._language in C_FAMILY and not self._is_member

    def _is_distinctive(self, use: Use, reference: Reference) -> bool:
        """Whether a method is meant because nothing else has its name, the language's own types included.

        Its class is mentioned in the same file, and a compiler would say if it were not.
        """
        if self._language not in _TYPED or not reference.receiver or not self._is_member:
            return False
        common = METHODS.get(self._graph.modules.traits(use.file).imports, frozenset())
        if len(self._old) < _DISTINCTIVE or self._old in common or set(self._rivals()) - set(self._targets):
            return False
        values = self._graph.resolver.resolve(use.file, reference)
        return all(value.what == "unknown" for value in values) and use.file in self._near()

    def _rivals(self) -> list[DefinitionPlace]:
        return [one for one in self._view.files.named(self._old) if self._graph.symbol(one).kind != PART]

    def _near(self) -> set[int]:
        """The files that name a class of the targets."""
        if self._files_near is None:
            owners = {self._graph.symbol(one).qualname.split(".")[-2] for one in self._targets}
            self._files_near = {file for owner in owners for file in self._graph.mentioning(owner)}
            self._files_near |= {one.file for one in self._targets}
        return self._files_near

    def _result(self, files: dict[str, FileEdit], *, complete: bool = True) -> RenamePlan:
        grades = {"likely": 0, "name_only": 1}
        unique = {(use.file, use.line, use.confidence): use for use in self._doubtful if use.confidence in grades}
        uses = sorted(unique.values(), key=lambda use: (grades[use.confidence], self._graph.path(use.file), use.line))
        counts = {grade: sum(use.confidence == grade for use in uses) for grade in grades}
        sites = questions.sites_of(self._view, uses[:_MOST_LISTED], several=False)
        moves = self._moves() if files else {}
        return RenamePlan(self._old, files, sites, counts, self._notes, self._language, complete, moves)

    def _moves(self) -> dict[str, str]:
        """Files that are called like the class in them, which Java asks for."""
        found: dict[str, str] = {}
        for one in self._targets if self._language == "java" else ():
            path = self._graph.path(one.file)
            folder, slash, name = path.rpartition("/")
            if self._graph.symbol(one).parent < 0 and name == f"{self._old}.java":
                found[path] = f"{folder}{slash}{self._new}.java"
        return found

    # --- refusals ------------------------------------------------------------------------------------

    def _refuse(self) -> None:
        if self._language not in LANGUAGES:
            raise InvalidArgument(
                f"a name in {self._language or 'this language'} can't be renamed",
                hint="Python, JavaScript, TypeScript, Go, Rust, Java, C and C++ can; code_rewrite replaces patterns.",
            )
        if _IDENTIFIER.fullmatch(self._new) is None:
            raise InvalidArgument(f"new_name is {self._new!r}; it must be a single name")
        if self._is_of_the_language():
            raise InvalidArgument(
                f"{self._old} has its name from the language: a constructor is renamed with its class, others can't be"
            )
        if self._new == self._old:
            raise InvalidArgument(f"it is called {self._old} already")
        there = next(self._members(), None) if self._is_member else next(self._neighbours(), None)
        if there is not None:
            where = f"{self._graph.path(there.file)}:{self._graph.symbol(there).first_line}"
            raise Conflict(f"{self._new} exists there already: {where}", hint="Choose another name.")

    def _refuse_doubtful(self, others: Mapping[int, Mapping[Reference, Use]]) -> None:
        """In C++ what is left behind does not compile: refuse if a file that sees the definition may mean it."""
        if self._language != "cpp":
            return
        own = {one.file for one in self._targets}
        uses = [
            use
            for file, some in others.items()
            if own & self._graph.resolver.included(file)
            for reference, use in some.items()
            if not self._is_own_constructor(use, reference)
        ]
        if uses:
            uses.sort(key=lambda use: (self._graph.path(use.file), use.line))
            shown = dict.fromkeys(f"{self._graph.path(use.file)}:{use.line}" for use in uses)
            raise InvalidArgument(
                f"{len(uses)} places may mean {self._old}, and the types there can't be told: "
                f"{', '.join(list(shown)[:_MOST_SHOWN])}{' …' * (len(shown) > _MOST_SHOWN)}",
                hint="code_rewrite replaces patterns, wherever they are.",
            )

    def _is_own_constructor(self, use: Use, reference: Reference) -> bool:
        """`Name::Name() {}`: the definition has been found as such."""
        named = reference.receiver.rpartition(".")[2] == self._old or reference.receiver.startswith("#")
        return named and DefinitionPlace(use.file, use.inside) in self._targets

    def _is_of_the_language(self) -> bool:
        """Whether the language finds it by its name: a constructor, `__len__`, `main`."""
        special = self._language == "python" and self._old.startswith("__") and self._old.endswith("__")
        owner = self._graph.symbol(self._targets[0]).qualname.split(".")[-2:-1]
        is_constructor = self._old == "constructor" or (self._language in ("java", "cpp") and owner == [self._old])
        is_start = self._old == "main" and self._language in ("go", "rust", "c", "cpp", "java")
        return special or is_constructor or is_start or (self._language == "go" and self._old == "init")

    def _members(self) -> Iterator[DefinitionPlace]:
        """Members of the same classes that have the new name."""
        for one in self._targets:
            owner = class_of(self._view, one)
            if owner is None:
                continue
            if (owner.place, self._new) in self._view.files.record(owner.file).bindings:
                yield owner
            for value in self._graph.resolver.attribute(Value("definition", *owner), self._new):
                if value.what == "definition":
                    yield value.target

    def _neighbours(self) -> Iterator[DefinitionPlace]:
        """Definitions of the new name that the old one's scope sees, whichever file they are in."""
        outer = self._graph.symbol(self._targets[0]).qualname.rpartition(".")[0]
        folder = self._graph.path(self._targets[0].file).rpartition("/")[0]
        for one in self._view.files.named(self._new):
            own = self._graph.symbol(one)
            if own.qualname.rpartition(".")[0] != outer or self._graph.modules.language(one.file) != self._language:
                continue
            same_folder = self._graph.path(one.file).rpartition("/")[0] == folder
            in_scope = (self._language in _FOLDER_SCOPED and same_folder) or self._language in C_FAMILY
            if in_scope or any(one.file == target.file for target in self._targets):
                yield one

    # --- one file ------------------------------------------------------------------------------------

    def _edit(
        self, file: int, exact: set[Reference], others: dict[Reference, Use], clashes: list[str]
    ) -> FileEdit | None:
        """The new content of a file; None if it is not as it was indexed. Adds what is doubtful to `others`."""
        self._check()
        wanted = [*exact, *(one for one in others if one not in exact)]
        places, source = self._places(file, wanted)
        if places is None:
            return None
        sure = {at for at, number in places.references.items() if number < len(exact)}
        for at in sure.intersection(places.keys):
            sure.discard(at)
            doubtful = wanted[places.references[at]]
            others[doubtful] = Use(file, doubtful.line, doubtful.kind, "likely", doubtful.inside)
        own = {one.place for one in self._targets if one.file == file}
        keeps = not own and self._keeps_the_name(file, exact, sure, places)
        replaced = self._in_references(places, sure, keeps=keeps)
        for place in own:
            if (at := places.definitions[place]) >= 0:
                replaced[at] = self._new
            if place in places.owners:
                replaced[places.owners[place]] = self._new
        for at in places.shorthands:
            if at in replaced:
                replaced[at] = f"{self._old}: {self._new}"
        if self._strings:
            replaced.update(dict.fromkeys(places.strings, self._new))
        if places.clashes and not self._is_member:
            clashes += [f"{self._graph.path(file)}:{line}" for line in places.clashes]
        return FileEdit(source, self._replace(source, replaced), len(replaced))

    def _in_references(self, places: NamePlaces, sure: set[int], *, keeps: bool) -> dict[int, str]:
        """What to write at the references of a file, which may keep the name for itself."""
        replaced: dict[int, str] = {}
        for at in sure:
            if keeps and at in places.bare:
                continue
            binds = keeps and at in places.imports
            replaced[at] = f"{self._new} as {self._old}" if binds else self._new
            if at in places.aliases and not keeps:
                replaced[places.aliases[at]] = self._new
        return replaced

    def _places(self, file: int, wanted: list[Reference]) -> tuple[NamePlaces | None, bytes]:
        source = self._view.read(file)
        if source is None:
            return None, b""
        language = self._graph.modules.language(file)
        new = "" if self._is_member else self._new
        places = self._parser.names(NameQuery(language, source, self._old, new, wanted, self._strings), self._check)
        if places.problem:
            raise InvalidArgument(f"{self._graph.path(file)}: {places.problem}")
        return places, source

    def _keeps_the_name(self, file: int, exact: set[Reference], sure: set[int], places: NamePlaces) -> bool:
        """Whether a file must keep the old name, because not all that it calls so is certainly the same thing."""
        if self._graph.modules.language(file) not in _WITH_ALIASES or not places.imports:
            return False
        if places.unsettled or any(at in places.bare and at not in sure for at in places.references):
            return True
        named = self._view.files.record(file).named((self._old,))
        return any(one.kind == "import" and one not in exact for one in named)

    def _replace(self, source: bytes, replaced: dict[int, str]) -> bytes:
        pieces: list[bytes] = []
        position, old = 0, self._old.encode()
        for at, new in sorted(replaced.items()):
            if source[at : at + len(old)] != old:
                raise Stale("a file changed while it was read", hint="Try again.")
            pieces += [source[position:at], new.encode()]
            position = at + len(old)
        return b"".join([*pieces, source[position:]])

    def _add_strings(self, files: dict[str, FileEdit], seen: set[int]) -> bool:
        """Rename in strings of the files that don't use it otherwise; False if one is not as it was indexed."""
        name = self._old.encode()
        for file, path, language in self._view.files.files():
            if file in seen or language != self._language:
                continue
            self._check()
            source = self._view.read(file)
            if source is None:
                return False
            if name in source:
                places, _ = self._places(file, [])
                replaced = dict.fromkeys(places.strings if places is not None else (), self._new)
                if replaced:
                    files[path] = FileEdit(source, self._replace(source, replaced), len(replaced))
        return True
