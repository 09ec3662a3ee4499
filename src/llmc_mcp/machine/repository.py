"""Summarize a repository from its files: what it is, where it starts, how to run and test it, what is unusual.

Files are only read, nothing is run: the names that ripgrep lists, and the few files in which projects declare
themselves. What they don't say is left out. The commands are those that the project's own files suggest.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

import msgspec

from ..errors import LlmcError
from ..files import names
from ..files.filesystem import Filesystem, Place
from ..files.reader import Reader
from ..files.ripgrep import Search

_READ_BYTES = 256 << 10
_LANGUAGES = {
    "Python": "py pyi pyx",
    "JavaScript": "js mjs cjs jsx",
    "TypeScript": "ts tsx mts",
    "Rust": "rs",
    "Go": "go",
    "C": "c h",
    "C++": "cc cpp cxx hpp hh",
    "Java": "java",
    "Kotlin": "kt kts",
    "C#": "cs",
    "Ruby": "rb",
    "PHP": "php",
    "Swift": "swift",
    "Scala": "scala",
    "Shell": "sh bash",
    "SQL": "sql",
    "HTML": "html htm",
    "CSS": "css scss less",
    "Vue": "vue",
    "Lua": "lua",
    "Elixir": "ex exs",
    "Haskell": "hs",
}
_LANGUAGE_OF = {ending: language for language, endings in _LANGUAGES.items() for ending in endings.split()}
_BUILT_BY = ("pyproject.toml", "setup.py", "package.json", "Cargo.toml", "go.mod", "pom.xml", "build.gradle", "Gemfile")
_TEST_FILE = re.compile(r"(?:^|/)(?:test_[^/]*\.py|[^/]*_test\.(?:py|go)|[^/]*\.(?:test|spec)\.[jt]sx?|tests?\.py)$")
_VENDORED = re.compile(r"^(?:.*/)?(vendor|third_party|third-party|node_modules|_vendor|vendored)/")
_GENERATED = re.compile(r"\.min\.(?:js|css)$|_pb2(?:_grpc)?\.py$|\.pb\.go$")
_NOTES = ("AGENTS.md", "CLAUDE.md", "CONTRACTS.md", "CONTRIBUTING.md", "CONTRIBUTING.rst", ".cursorrules")
_LOCKS = ("uv.lock", "poetry.lock", "Pipfile.lock", "package-lock.json", "yarn.lock", "pnpm-lock.yaml", "bun.lockb")
_CI = (".github/workflows/", ".gitlab-ci.yml", ".circleci/config.yml", "azure-pipelines.yml", "Jenkinsfile", ".ci/")


class RepositoryFacts(NamedTuple):
    """The summary of a repository, as short lines."""

    name: str
    about: str
    size: str
    layout: list[str]
    entries: list[str]
    needs: list[str]
    run: list[str]
    test: list[str]
    unusual: list[str]
    read_first: list[str]


class RepositoryOverview:
    """Summarizes repositories; one instance per server."""

    def __init__(self, files: Filesystem, search: Callable[[], Search], reader: Callable[[], Reader]) -> None:
        self._files, self._search, self._reader = files, search, reader

    def facts(self, place: Place, check: Callable[[], None]) -> RepositoryFacts:
        """Collect all facts about the repository at `place`."""
        listed = self._search().paths(place, include_hidden=True, include_ignored=False, check=check)
        paths = sorted(names.show(path[2:]) for path in listed.split(b"\0")[:-1])
        check()
        return _RepositorySurvey(paths, lambda path: self._text(place, path), place.absolute).facts()

    def _text(self, place: Place, path: str) -> str:
        """Return a file's text; empty if it is missing or may not be read."""
        try:
            content = self._reader().whole(self._files.below(place, path), _READ_BYTES)
        except LlmcError:
            return ""
        return "" if content is None else content[0].decode("utf-8", "replace")


class _RepositorySurvey:
    """One repository: its files, and what they declare."""

    def __init__(self, paths: list[str], text: Callable[[str], str], root: str) -> None:
        self._paths, self._text, self._root = paths, text, root
        self._present = frozenset(paths)
        self._pyproject = _toml(self._read("pyproject.toml"))
        self._package = _json(self._read("package.json"))
        self._cargo = _toml(self._read("Cargo.toml"))
        self._targets = _make_targets(self._read("Makefile"))
        self._installed = self._dist_info()
        self._tests = [path for path in paths if _TEST_FILE.search(path)]

    def _read(self, path: str) -> str:
        return self._text(path) if path in self._present else ""

    def _dist_info(self) -> dict[str, str]:
        """Return the metadata of an installed or unpacked Python package, and its commands as one text."""
        folders = {path.partition("/")[0] for path in self._paths if path.endswith(".dist-info/METADATA")}
        if len(folders) != 1:
            return {}  # none, or a folder of many packages
        (folder,) = folders
        head = self._text(f"{folder}/METADATA").partition("\n\n")[0]
        fields = dict(re.findall(r"^(Name|Summary): (.+)$", head, re.MULTILINE))
        commands = re.search(r"\[console_scripts\]\n([^\[]*)", self._read(f"{folder}/entry_points.txt"))
        return {**fields, "commands": commands[1] if commands else ""}

    def facts(self) -> RepositoryFacts:
        return RepositoryFacts(
            self._name(),
            self._about(),
            self._size(),
            self._layout(),
            _first(self._entries(), 8),
            _first(self._needs(), 5),
            _first(self._run(), 5),
            _first(self._test(), 5),
            _first(self._unusual(), 8),
            [path for path in _NOTES if path in self._present],
        )

    # --- what it is ------------------------------------------------------------------------------

    def _name(self) -> str:
        declared = (_at(self._pyproject, "project", "name"), self._package.get("name"))
        for name in (*declared, _at(self._cargo, "package", "name"), self._go_module(), self._installed.get("Name")):
            if isinstance(name, str) and name:
                return name[:80]
        return os.path.basename(self._root) or self._root

    def _go_module(self) -> str:
        match = re.search(r"^module\s+(\S+)", self._read("go.mod"), re.MULTILINE)
        return match[1] if match else ""

    def _about(self) -> str:
        candidates = (_at(self._pyproject, "project", "description"), self._package.get("description"))
        candidates = (*candidates, _at(self._cargo, "package", "description"), self._installed.get("Summary"))
        for text in (*candidates, _first_paragraph(self._readme())):
            if isinstance(text, str) and text.strip():
                return _cut(" ".join(text.split()), 220)
        return ""

    def _readme(self) -> str:
        readme = next((path for path in self._paths if re.fullmatch(r"(?i)readme(\.(md|rst|txt))?", path)), None)
        return self._text(readme) if readme else ""

    def _size(self) -> str:
        counts = _languages(self._paths)
        shown = ", ".join(f"{language} {count:,}" for language, count in counts.most_common(5))
        return f"{len(self._paths):,} files" + (f": {shown}" if shown else "")

    def _layout(self) -> list[str]:
        """Return the folders with the most files, each with its main language."""
        below: dict[str, list[str]] = {}
        for path in self._paths:
            folder, slash, _ = path.partition("/")
            if slash and not folder.startswith("."):
                below.setdefault(folder, []).append(path)
        largest = sorted(below, key=lambda folder: (-len(below[folder]), folder))[:8]
        return [f"{folder}/ {len(below[folder]):,} files{_made_of(below[folder])}" for folder in sorted(largest)]

    # --- how it starts ---------------------------------------------------------------------------

    def _entries(self) -> Iterator[str]:
        scripts: object = _at(self._pyproject, "project", "scripts")
        for name, target in _items(scripts):
            yield f"{name} → {target}"
        for name, target in re.findall(r"^([\w.-]+)\s*=\s*(\S+)", self._installed.get("commands", ""), re.MULTILINE):
            yield f"{name} → {target}"
        bins: object = self._package.get("bin")
        yield from (f"{name} → {target}" for name, target in _items(bins))
        if isinstance(bins, str):
            yield f"{self._name()} → {bins}"
        if isinstance(main := self._package.get("main"), str):
            yield f"import of the package → {main}"
        for path in ("manage.py", "src/main.rs", "src/lib.rs", "main.go", "index.js", "server.js", "app.py", "main.py"):
            if path in self._present:
                yield path
        yield from (path for path in self._paths if re.fullmatch(r"cmd/[^/]+/main\.go|src/bin/[^/]+\.rs", path))
        modules = (path for path in self._paths if path.endswith("/__main__.py") and not _TEST_FILE.search(path))
        for path in modules:
            if not _is_test_folder(path):
                yield f"python -m {path.removesuffix('/__main__.py').removeprefix('src/').replace('/', '.')}"
        yield from (f"Dockerfile: {line}" for line in _docker_command(self._read("Dockerfile")))

    def _needs(self) -> Iterator[str]:
        """Yield the declared requirements for running it."""
        if isinstance(python := _at(self._pyproject, "project", "requires-python"), str):
            yield f"Python {python}"
        if isinstance(packages := _at(self._pyproject, "project", "dependencies"), list):
            yield f"{len(cast(list[object], packages))} Python packages"
        if isinstance(node := _at(self._package, "engines", "node"), str):
            yield f"Node {node}"
        if isinstance(modules := self._package.get("dependencies"), dict):
            yield f"{len(cast(dict[str, object], modules))} npm packages"
        if isinstance(rust := _at(self._cargo, "package", "rust-version"), str):
            yield f"Rust {rust}"
        if match := re.search(r"^go (\d[\d.]*)", self._read("go.mod"), re.MULTILINE):
            yield f"Go {match[1]}"

    def _run(self) -> Iterator[str]:
        yield from (f"make {name}" for name in ("run", "start", "serve", "dev") if name in self._targets)
        scripts = dict(_items(self._package.get("scripts")))
        yield from (f"{self._node()} run {name}" for name in ("start", "dev", "serve") if name in scripts)
        if self._package and not scripts.keys() & {"start", "dev", "serve"}:
            yield f"{self._node()} install"
        if self._pyproject or "setup.py" in self._present:
            command = next(iter(dict(_items(_at(self._pyproject, "project", "scripts")))), "")
            yield "pip install -e ." + (f", then {command}" if command else "")
        if "manage.py" in self._present:
            yield "python manage.py runserver"
        if self._cargo:
            yield "cargo run" if "src/main.rs" in self._present else "cargo build"
        if "go.mod" in self._present:
            main = next((path for path in self._paths if path.endswith("main.go")), "")
            yield f"go run ./{os.path.dirname(main)}" if main else "go build ./..."
        if any(name in self._present for name in ("docker-compose.yml", "compose.yaml", "docker-compose.yaml")):
            yield "docker compose up"

    def _node(self) -> str:
        by_lock = {"pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn", "bun.lockb": "bun"}
        return next((tool for lock, tool in by_lock.items() if lock in self._present), "npm")

    def _test(self) -> Iterator[str]:
        yield from (f"make {name}" for name in ("test", "tests", "check") if name in self._targets)
        for name, command in _items(self._package.get("scripts")):
            if name == "test" and "no test specified" not in command:
                yield f"{self._node()} test ({_cut(command, 60)})"
        runner = next((path for path in self._paths if re.search(r"(?:^|/)runtests\.py$", path)), "")
        if runner:
            yield f"{_in_folder(runner)} (its own runner)"
        elif self._uses_pytest():
            yield "python -m pytest"
        if "manage.py" in self._present:
            yield "python manage.py test"
        if "tox.ini" in self._present or _at(self._pyproject, "tool", "tox"):
            yield "tox"
        if "noxfile.py" in self._present:
            yield "nox"
        if self._cargo:
            yield "cargo test"
        if "go.mod" in self._present:
            yield "go test ./..."

    def _uses_pytest(self) -> bool:
        configured = _at(self._pyproject, "tool", "pytest") or {"pytest.ini", "conftest.py"} & self._present
        in_tests = "tests/conftest.py" in self._present or "[tool:pytest]" in self._read("setup.cfg")
        return bool(configured) or in_tests or any(os.path.basename(path).startswith("test_") for path in self._tests)

    # --- what is unusual -------------------------------------------------------------------------

    def _unusual(self) -> Iterator[str]:
        if self._paths and not self._readme():
            yield "no README"
        if not self._tests and _languages(self._paths):
            yield "no files named like tests"
        elif self._tests:
            yield from self._scattered_tests()
        runner = next((path for path in self._paths if re.search(r"(?:^|/)runtests\.py$", path)), "")
        if runner:
            yield f"tests have a runner of their own ({runner}); plain pytest or unittest will not work"
        projects = [path for path in self._paths if path.count("/") and os.path.basename(path) in _BUILT_BY]
        projects = [path for path in projects if not _is_test_folder(path) and not _VENDORED.match(path)]
        if len(projects) >= 2:
            yield f"{len(projects)} projects inside this one: {_some(os.path.dirname(path) for path in projects)}"
        if ".gitmodules" in self._present:
            yield "git submodules: a plain clone is not complete"
        yield from self._foreign_code()
        locks = [name for name in _LOCKS if name in self._present and not name.endswith((".lock", "Pipfile.lock"))]
        if len(locks) > 1:
            yield f"several package managers at once: {', '.join(locks)}"
        if self._cargo and (self._pyproject or self._package):
            yield "Rust beside another language: a build needs cargo too"
        if not any(path.startswith(_CI) for path in self._paths):
            yield "no CI configuration"
        if not any(re.match(r"(?i)(licen[sc]e|copying)", os.path.basename(path)) for path in self._paths):
            yield "no license file"

    def _scattered_tests(self) -> Iterator[str]:
        folders = Counter(path.partition("/")[0] for path in self._tests if "/" in path)
        inside = [folder for folder, _ in folders.most_common() if not re.match(r"(?i)tests?$|spec", folder)]
        if len(inside) >= 2 and sum(folders[folder] for folder in inside) > len(self._tests) // 2:
            yield f"tests lie beside the code ({_some(inside)}), not in one folder"

    def _foreign_code(self) -> Iterator[str]:
        vendored = Counter(match[1] for path in self._paths if (match := _VENDORED.match(path)))
        for folder, count in vendored.most_common(2):
            yield f"{count:,} third-party files in {folder}/: don't edit them"
        generated = [path for path in self._paths if _GENERATED.search(path)]
        if generated:
            yield f"{len(generated):,} generated files are checked in, such as {generated[0]}"


# --- helpers -------------------------------------------------------------------------------------------------------


def _languages(paths: Iterable[str]) -> Counter[str]:
    endings = Counter(os.path.splitext(path)[1][1:].lower() for path in paths)
    counts: Counter[str] = Counter()
    for ending, count in endings.items():
        if ending in _LANGUAGE_OF:
            counts[_LANGUAGE_OF[ending]] += count
    return counts


def _made_of(paths: list[str]) -> str:
    common = _languages(paths).most_common(1)
    return f", mostly {common[0][0]}" if common and common[0][1] * 2 > len(paths) else ""


def _is_test_folder(path: str) -> bool:
    return any(part in ("test", "tests", "testing", "fixtures", "testdata") for part in path.split("/")[:-1])


def _in_folder(script: str) -> str:
    folder, _, name = script.rpartition("/")
    return f"cd {folder} && python {name}" if folder else f"python {name}"


def _make_targets(text: str) -> list[str]:
    return re.findall(r"^([a-zA-Z][\w-]*):(?!=)", text, re.MULTILINE)


def _docker_command(text: str) -> list[str]:
    return [_cut(line, 80) for line in re.findall(r"^(?:CMD|ENTRYPOINT)\b.*", text, re.MULTILINE)[-2:]]


def _first_paragraph(text: str) -> str:
    """Return the first paragraph of a README that is prose: not a heading, a badge or a list."""
    for paragraph in re.split(r"\n\s*\n", text):
        lines = [line.strip() for line in paragraph.strip().splitlines()]
        lines = [line for line in lines if line and not re.match(r"[#=\-*~<!\[|`.:>+]|\S+://", line)]
        if len(" ".join(lines)) >= 40:
            return " ".join(lines)
    return ""


def _toml(text: str) -> dict[str, Any]:
    if not text:
        return {}
    import tomllib

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):  # ValueError: also an integer with thousands of digits
        return {}


def _json(text: str) -> dict[str, Any]:
    try:
        value: object = msgspec.json.decode(text) if text else {}
    except msgspec.DecodeError:
        return {}
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _at(table: Mapping[str, Any], *keys: str) -> Any:
    value: Any = table
    for key in keys:
        value = cast(dict[str, Any], value).get(key) if isinstance(value, dict) else None
    return value


def _items(table: object) -> list[tuple[str, str]]:
    rows = cast(dict[object, object], table).items() if isinstance(table, dict) else ()
    return [(str(name), value) for name, value in rows if isinstance(value, str)]


def _first(lines: Iterable[str], limit: int) -> list[str]:
    unique = [_cut(line, 160) for line in dict.fromkeys(lines)]
    return unique if len(unique) <= limit else [*unique[: limit - 1], f"and {len(unique) - limit + 1} more"]


def _some(items: Iterable[str]) -> str:
    unique = list(dict.fromkeys(items))
    return ", ".join(unique[:4]) + (", …" if len(unique) > 4 else "")


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"
