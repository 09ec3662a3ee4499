"""The files that an import refers to, by the module system of each language."""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ..parse.languages import Language, traits_of

Said = dict[tuple[int, str], list[str]]

_SCRIPT_ENDS = (".ts", ".tsx", ".d.ts", ".js", ".jsx", ".mjs", ".cjs", ".mts", ".cts", ".vue", ".svelte", ".json")
_WRITTEN_AS = {
    ".js": (".ts", ".tsx"),
    ".jsx": (".tsx",),
    ".mjs": (".mts",),
    ".cjs": (".cts",),
}  # TypeScript imports name the compiled file
_CONFIGURATION = re.compile(r"[jt]sconfig(?:\.\w+)?\.json")
_BUILT = frozenset({"dist", "build", "lib", "out", "es", "esm", "cjs", "types", "typings"})
_BUILT_ENDS = re.compile(r"(?:\.d)?\.[cm]?[jt]sx?$")
_RUST_ROOTS = ("src/lib.rs", "src/main.rs", "lib.rs", "main.rs")
_RUST_PROGRAMS = ("tests", "examples", "benches", "src/bin")
_RUST_LANGUAGE = frozenset({"std", "core", "alloc", "proc_macro", "test"})


class Crate(NamedTuple):
    """A Rust package by its manifest."""

    folder: str
    name: str
    roots: list[int]  # its library and its programs
    dependencies: dict[str, str]  # names in its code → names of the crates


class Modules:
    """The files of an index by the names that imports give them."""

    def __init__(self, files: Iterable[tuple[int, str, str]], said: Callable[[int], Said] = lambda _: {}) -> None:
        """`files` are id, path relative to the root, language; `said` reads the bindings of a manifest."""
        self._path: dict[int, str] = {}
        self._id: dict[str, int] = {}
        self._language: dict[int, str] = {}
        self._in_folder: dict[str, list[int]] = defaultdict(list)
        self._by_name: dict[str, list[int]] = defaultdict(list)  # last part of the path
        for number, path, language in files:
            self._path[number], self._id[path], self._language[number] = path, number, language
            folder, _, name = path.rpartition("/")
            self._in_folder[folder].append(number)
            self._by_name[name].append(number)
        self._said = said
        self._crates: dict[str, Crate] | None = None  # by folder
        self._packages: dict[str, tuple[str, str, Said]] | None = None  # of JavaScript, by name
        self._go_modules: list[tuple[str, str]] | None = None  # names and folders
        self._configurations: dict[str, Said] | None = None  # of TypeScript, by folder
        self._python: dict[str, list[int]] | None = None
        self._python_stems: dict[str, list[int]] = defaultdict(list)

    def path(self, file: int) -> str:
        """The path of a file, relative to the root."""
        return self._path.get(file, "")

    def language(self, file: int) -> str:
        """The grammar of a file."""
        return self._language.get(file, "")

    def traits(self, file: int) -> Language:
        """The traits of a file's language."""
        return traits_of(self.language(file))

    def nearness(self, one: int, other: int) -> int:
        """How many folders two files have in common."""
        return _shared(self.path(one), self.path(other))

    def siblings(self, file: int) -> list[int]:
        """The files whose names this one sees without an import."""
        language = self.language(file)
        if not traits_of(language).shares_folder:
            return []
        found = self._in_folder[self.path(file).rpartition("/")[0]]
        return [one for one in found if self._language[one] == language and one != file]

    def neighbours(self, file: int) -> list[int]:
        """The files in the same folder and language."""
        found = self._in_folder[self.path(file).rpartition("/")[0]]
        return [one for one in found if self._language[one] == self.language(file)]

    def find(self, importer: int, name: str) -> list[int]:
        """The files that `name` refers to in `importer`; none if it is not in this repository."""
        match self.traits(importer).imports:
            case "python":
                return self._find_python(importer, name)
            case "script":
                return self._find_script(importer, name)
            case "header":
                return self._find_header(importer, name)
            case "folder":
                return self._find_folder(name)
            case "rust":
                return self._find_rust(importer, name)
            case "class":
                return self._find_java(importer, name)
            case "":
                return []

    def submodule(self, file: int, name: str) -> list[int]:
        """The files of a package's submodule."""
        path, language = self.path(file), self.language(file)
        folder, _, own = path.rpartition("/")
        if language == "python" and own in ("__init__.py", "__init__.pyi"):
            return self._python_at(_join(folder, name))
        if language == "rust":  # declared inside a macro
            return self._rust_at(_join(self._rust_folder(path), name))
        return []

    # --- Python ------------------------------------------------------------------------------------

    def _python_at(self, stem: str) -> list[int]:
        """A module's file by its path without the extension."""
        for ending in ("/__init__.py", ".py", ".pyi", "/__init__.pyi"):
            if (found := self._id.get(stem + ending)) is not None:
                return [found]
        return []

    def _find_python(self, importer: int, name: str) -> list[int]:
        bare = name.lstrip(".")
        if len(bare) < len(name):
            folder = self.path(importer).rpartition("/")[0]
            for _ in range(len(name) - len(bare) - 1):
                folder = folder.rpartition("/")[0]
            if not bare:
                return self._python_at(folder)
            return self._python_at(_join(folder, bare.replace(".", "/")))
        return self._nearest(importer, self._python_modules().get(bare) or self._python_suffix(bare))

    def _python_modules(self) -> dict[str, list[int]]:
        """Files by the names that an import from their source root gives them."""
        if self._python is None:
            self._python = defaultdict(list)
            packages = {
                path.rpartition("/")[0] for path in self._id if path.endswith(("/__init__.py", "/__init__.pyi"))
            }
            for path, number in self._id.items():
                if self._language[number] == "python":
                    stem = path.removesuffix(".pyi").removesuffix(".py").removesuffix("/__init__")
                    top = path.rpartition("/")[0]
                    while top in packages:
                        top = top.rpartition("/")[0]
                    self._python[stem[len(top) :].lstrip("/").replace("/", ".")].append(number)
                    self._python_stems[stem.rpartition("/")[2]].append(number)
        return self._python

    def _python_suffix(self, name: str) -> list[int]:
        """Modules of namespace packages, which no file marks, by the end of their paths."""
        if "." not in name:
            return []
        end = "/" + name.replace(".", "/")
        found: list[int] = []
        for number in self._python_stems[name.rpartition(".")[2]]:
            stem = self._path[number].removesuffix(".pyi").removesuffix(".py").removesuffix("/__init__")
            if f"/{stem}".endswith(end):
                found.append(number)
        return found

    def _nearest(self, importer: int, found: list[int]) -> list[int]:
        """Of several files of one name, the one that shares the most of its path with the importer."""
        if len(found) < 2:
            return found
        own = self.path(importer)
        return [max(found, key=lambda one: (_shared(own, self._path[one]), -one))]

    # --- other languages ---------------------------------------------------------------------------

    def _find_script(self, importer: int, name: str) -> list[int]:
        if name.startswith("."):
            base = os.path.normpath(_join(self.path(importer).rpartition("/")[0], name))
            return self._script_at(base.removeprefix("./") if base != "." else "")
        tries = [*self._mapped(importer, name), *self._in_package(name)]
        if name[:2] in ("@/", "~/"):  # by convention the source folder
            top = self.path(importer)
            while "/" in top:
                top = top.rpartition("/")[0]
                tries.append(_join(top, name[2:]))
        for base in tries:
            if found := self._script_at(base):
                return found
        return []

    def _script_at(self, base: str) -> list[int]:
        stem, ending = os.path.splitext(base)
        tries = [base, *(stem + end for end in _WRITTEN_AS.get(ending, ()))]
        tries += [base + end for end in _SCRIPT_ENDS]
        tries += [_join(base, f"index{end}") for end in _SCRIPT_ENDS]
        return [self._id[one] for one in tries if one in self._id][:1]

    def _manifests(self, name: str) -> list[tuple[str, Said]]:
        """The manifests of one kind: their folders, and what they say."""
        return [(self._path[one].rpartition("/")[0], self._said(one)) for one in self._by_name.get(name, ())]

    def _mapped(self, importer: int, name: str) -> list[str]:
        """Where the tsconfig.json files above a file let an import lead."""
        if self._configurations is None:
            self._configurations = {}
            for name_of in self._by_name:  # tsconfig.base.json is extended by tsconfig.json
                for where, said in self._manifests(name_of) if _CONFIGURATION.fullmatch(name_of) else ():
                    self._configurations.setdefault(where, {}).update(said)
        found: list[str] = []
        folder = self.path(importer)
        while folder and self._configurations:
            folder = folder.rpartition("/")[0]
            said = self._configurations.get(folder, {})
            for (_, key), places in said.items():
                if key.startswith("path ") and (rest := _matched(key[5:], name)) is not None:
                    found += [os.path.normpath(_join(folder, place.replace("*", rest))) for place in places]
            found += [os.path.normpath(_join(folder, f"{base}/{name}")) for base in said.get((-1, "base"), ())]
        return found

    def _in_package(self, name: str) -> list[str]:
        """Where an import of a package of this repository leads: built files stand for their sources."""
        package, folder, said = self._package_of(name)
        if not package:
            return []
        below = name[len(package) + 1 :]
        written = said.get((-1, "entry"), []) if not below else []
        for (_, key), places in said.items() if below else ():
            if key.startswith("export ") and (rest := _matched(key[7:], f"./{below}")) is not None:
                written += [place.replace("*", rest) for place in places]
        tries = [one for place in written for one in _sources_of(place)]
        tries += [f"src/{below}", below, f"lib/{below}"] if below else ["src/index", "index", "lib/index", "src/main"]
        return [os.path.normpath(_join(folder, one)) for one in tries]

    def _package_of(self, name: str) -> tuple[str, str, Said]:
        """The package of this repository that an import names: its name, its folder, what its manifest says."""
        if self._packages is None:
            found = [
                (said.get((-1, "package"), [""])[0], where, said) for where, said in self._manifests("package.json")
            ]
            self._packages = {package: (package, where, said) for package, where, said in reversed(found) if package}
        parts = name.split("/")
        package = "/".join(parts[: 2 if name.startswith("@") else 1])
        return self._packages.get(package, ("", "", {}))

    def is_own_package(self, file: int, name: str) -> bool:
        """Whether an import names a package of this repository, even if the file that it means is not known."""
        return self.traits(file).imports == "script" and bool(self._package_of(name)[0])

    def _find_header(self, importer: int, name: str) -> list[int]:
        own = _join(self.path(importer).rpartition("/")[0], name)
        if (found := self._id.get(os.path.normpath(own))) is not None:
            return [found]
        last = name.rpartition("/")[2]
        matching = [one for one in self._by_name.get(last, ()) if f"/{self._path[one]}".endswith(f"/{name}")]
        return self._nearest(importer, matching)

    def _find_folder(self, name: str) -> list[int]:
        """A Go package: below the module that it names or, without go.mod, the folder with the most similar path."""
        if self._go_modules is None:
            self._go_modules = [(said.get((-1, "package"), [""])[0], at) for at, said in self._manifests("go.mod")]
        if self._go_modules:
            own = [one for one in self._go_modules if f"{name}/".startswith(f"{one[0]}/")]
            module, at = max(own, key=lambda one: len(one[0]), default=("", ""))
            below = _join(at, name[len(module) + 1 :]).rstrip("/")
            here = self._in_folder.get(below, ()) if module else ()
            return [one for one in here if self._language[one] == "go" and not self._path[one].endswith("_test.go")]
        parts = name.split("/")
        for first in range(len(parts)):
            folder = "/".join(parts[first:])
            here = [one for one in self._in_folder.get(folder, ()) if self._language[one] == "go"]
            if here and (first > 0 or "." not in parts[0]):
                return [one for one in here if not self._path[one].endswith("_test.go")]
        return []

    # --- Rust --------------------------------------------------------------------------------------

    def _rust_crates(self) -> dict[str, Crate]:
        if self._crates is None:
            self._crates = {}
            for path, number in self._id.items():
                folder, _, name = path.rpartition("/")
                if name == "Cargo.toml":
                    self._crates[folder] = self._crate(folder, self._said(number))
        return self._crates

    def _crate(self, folder: str, said: Said) -> Crate:
        written = [*said.get((-1, "entry"), ()), *_RUST_ROOTS[:2], *said.get((-1, "target"), ())]
        roots = [self._id[one] for place in written if (one := os.path.normpath(_join(folder, place))) in self._id]
        names = {key.removeprefix("dependency "): real[0] for (_, key), real in said.items() if " " in key}
        return Crate(folder, said.get((-1, "package"), [""])[0], list(dict.fromkeys(roots)), names)

    def _crate_of(self, path: str) -> Crate | None:
        """The crate that a file belongs to."""
        crates, folder = self._rust_crates(), path
        while folder:
            folder = folder.rpartition("/")[0]
            if (found := crates.get(folder)) is not None and (found.name or found.roots):
                return found
        return None

    def _crate_roots(self, importer: int) -> list[int]:
        """The files at which `crate` may start: its library's and its program's may share their modules."""
        path = self.path(importer)
        crate = self._crate_of(path)
        if self._is_crate_root(path, crate):
            return [importer]
        if crate is not None and crate.roots:
            below = (
                path.removeprefix(f"{crate.folder}/").rpartition("/")[0] if crate.folder else path.rpartition("/")[0]
            )
            programs = [one for one in crate.roots if self.path(one).rpartition("/")[0] == _join(crate.folder, below)]
            return programs or crate.roots
        stem = path
        while stem:
            stem = stem.rpartition("/")[0]
            found = [self._id[one] for top in ("lib", "main") if (one := _join(stem, f"{top}.rs")) in self._id]
            if found:
                return found
        return []

    def _is_crate_root(self, path: str, crate: Crate | None) -> bool:
        folder, _, name = path.rpartition("/")
        if name in ("lib.rs", "main.rs", "build.rs") or (crate is not None and self._id.get(path) in crate.roots):
            return True
        return any(f"/{folder}".endswith(f"/{programs}") for programs in _RUST_PROGRAMS) and name != "mod.rs"

    def _rust_folder(self, path: str) -> str:
        """The folder of a module's submodules."""
        folder, _, name = path.rpartition("/")
        if name == "mod.rs" or self._is_crate_root(path, self._crate_of(path)):
            return folder
        return path.removesuffix(".rs")

    def _rust_at(self, stem: str) -> list[int]:
        for ending in (".rs", "/mod.rs"):
            if (found := self._id.get(stem + ending)) is not None:
                return [found]
        return []

    def _rust_above(self, importer: int) -> list[int]:
        """The module around the one that is a file."""
        path = self.path(importer)
        folder, _, name = path.rpartition("/")
        if name == "mod.rs":
            folder = folder.rpartition("/")[0]
        inside = [self._id[one] for end in ("mod", "lib", "main") if (one := _join(folder, f"{end}.rs")) in self._id]
        roots = [one for one in self._crate_roots(importer) if self.path(one).rpartition("/")[0] == folder]
        return roots or self._rust_at(folder) or inside

    def _find_rust(self, importer: int, name: str) -> list[int]:
        """Where a path starts: `crate`, `self`, `super` or another crate; `./x` and `@x` are what `mod x;` declares."""
        path = self.path(importer)
        if name.startswith("./"):
            return self._rust_at(_join(self._rust_folder(path), name[2:]))
        if name.startswith("@"):
            found = self._id.get(os.path.normpath(_join(path.rpartition("/")[0], name[1:])))
            return [found] if found is not None else []
        if name == "self":
            return [importer]
        if name == "super":
            return self._rust_above(importer)
        return self._crate_roots(importer) if name == "crate" else self._other_crate(importer, name)

    def _other_crate(self, importer: int, name: str) -> list[int]:
        own, crates = self._crate_of(self.path(importer)), self._rust_crates().values()
        real = own.dependencies.get(name, name) if own is not None else name
        for crate in crates:
            if crate.name == real and crate.roots and (crate is not own or crate.roots[0] != importer):
                return crate.roots[:1]
        if any(crate.name for crate in crates):
            return []
        folders = (name.replace("_", "-"), name)  # no manifest is indexed: a crate is mostly named like its folder
        tops = [one for one in self._by_name.get("lib.rs", ()) if self.path(one).split("/")[-3:-2]]
        return [one for one in tops if self.path(one).split("/")[-3] in folders][:1]

    def is_foreign(self, importer: int, name: str) -> bool:
        """Whether a crate is one of another project or of the language itself."""
        if name in _RUST_LANGUAGE:
            return True
        own, crates = self._crate_of(self.path(importer)), self._rust_crates()
        everywhere = crates.get("")
        known = [one.dependencies for one in (own, everywhere) if one is not None]
        return any(name in dependencies for dependencies in known) and not self._other_crate(importer, name)

    def _find_java(self, importer: int, name: str) -> list[int]:
        """A class by its full name, or all files of a package."""
        ending = ".kt" if self.language(importer) == "kotlin" else ".java"
        folder, _, last = name.replace(".", "/").rpartition("/")
        found = [
            one
            for one in self._by_name.get(last + ending, ())
            if f"/{self._path[one]}".endswith(f"/{folder}/{last}{ending}")
        ]
        if found:
            return self._nearest(importer, found)
        package = "/" + name.replace(".", "/")
        return [one for here, files in self._in_folder.items() if f"/{here}".endswith(package) for one in files]


def _matched(pattern: str, name: str) -> str | None:
    """What the `*` of a pattern stands for in a name; None if the name does not fit."""
    before, star, after = pattern.partition("*")
    if not star:
        return "" if name == pattern else None
    fits = name.startswith(before) and name.endswith(after) and len(name) >= len(before) + len(after)
    return name[len(before) : len(name) - len(after)] if fits else None


def _sources_of(place: str) -> list[str]:
    """The sources that a built file may come from: dist/a.d.ts → src/a."""
    stem = _BUILT_ENDS.sub("", os.path.normpath(place))
    first, slash, rest = stem.partition("/")
    return [place, stem, *([f"src/{rest}", rest] if slash and first in _BUILT else [f"src/{stem}"])]


def _shared(one: str, other: str) -> int:
    """How many folders two paths have in common."""
    same = 0
    for first, second in zip(one.split("/"), other.split("/"), strict=False):
        if first != second:
            break
        same += 1
    return same


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
