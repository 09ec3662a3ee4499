"""Where-used on checkouts of real repositories, in four languages, against each language's judge and text search.

Recall counts every place of an answer, precision those that are graded exact or likely. Definitions are drawn by a
fixed seed: for a judge that knows types among all, for text search among names that one definition has.
"""

import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from llmc_mcp.rag.parse.scopes import CLASSES, FUNCTIONS, LOCAL, PART
from llmc_mcp.rag.query.resolve import DefinitionPlace
from llmc_mcp.rag.query.search import GraphView

from . import text
from .oracle import Place, Pyright, TypeScript, go_uses

_LANGUAGES = {"python": "python", "go": "go", "typescript": "typescript", "tsx": "typescript", "rust": "rust"}
_KINDS = (CLASSES | FUNCTIONS | {"constant"}) - {PART, "prototype", "module", "namespace"}
_LANGUAGE_ITSELF = {"rust": {"std", "core", "alloc"}, "go": {"context", "http", "strings", "os", "fmt", "errors"}}
_MOST_PLACES = 400


class Miss(NamedTuple):
    """A place that one side names and the other does not."""

    symbol: str
    what: str
    place: Place


class Score(NamedTuple):
    """What was counted for one repository and one judge."""

    repository: str
    language: str
    judge: str
    symbols: int
    true: int
    found: int
    sure: int
    right: int
    misses: list[Miss]


Judge = Callable[[DefinitionPlace, Place, int], set[Place] | None]


def scores(folder: Path, view: GraphView, symbols: int, tsc: str) -> Iterator[Score]:
    """A repository's scores, one for each judge that there is for its language."""
    language = _language(view)
    with ExitStack() as stack:
        for name, judge in _judges(folder, view, language, tsc, stack):
            yield _score(view, folder.name, language, name, judge, symbols)


def _language(view: GraphView) -> str:
    """The language of most of its files."""
    counts = Counter(_LANGUAGES[language] for _, _, language in view.files.files() if language in _LANGUAGES)
    return counts.most_common(1)[0][0]


def _judges(folder: Path, view: GraphView, language: str, tsc: str, stack: ExitStack) -> Iterator[tuple[str, Judge]]:
    yield "text search", _by_text(view, language)
    program = shutil.which("go") if language == "go" else None
    if language == "python":
        yield "pyright", _by_server(view, stack.enter_context(Pyright(folder)))
    elif language == "typescript" and tsc:
        yield "TypeScript", _by_server(view, stack.enter_context(TypeScript(folder, tsc)))
    elif program is not None:
        known = go_uses(folder, program)
        yield "go/types", lambda target, head, _: known.get((view.graph.symbol(target).name, head))


def _by_server(view: GraphView, server: "Pyright | TypeScript") -> Judge:
    def judge(target: DefinitionPlace, head: Place, column: int) -> set[Place]:
        places, _ = server.references(*head, column)
        same = view.files.named(view.graph.symbol(target).name)
        return places - {found[0] for one in same if (found := _head(view, one)) is not None}

    return judge


def _by_text(view: GraphView, language: str) -> Judge:
    files = {path: _source(view, file) for file, path, own in view.files.files() if _LANGUAGES.get(own) == language}
    outside = _LANGUAGE_ITSELF.get(language, set()) | _dependencies(view)

    def judge(target: DefinitionPlace, head: Place, _: int) -> set[Place] | None:
        symbol = view.graph.symbol(target)
        same = [one for one in view.files.named(symbol.name) if view.graph.symbol(one).kind != PART]
        if len(same) != 1 or not text.is_telling(symbol.name):
            return None
        found = text.uses(symbol.name, symbol.kind in FUNCTIONS - {"macro"}, language, files, outside, head[0])
        return found - {head} if len(found) <= _MOST_PLACES else None

    return judge


def _dependencies(view: GraphView) -> set[str]:
    """The crates that the manifests of a repository name and that are not its own."""
    named: set[str] = set()
    own: set[str] = set()
    for file, path, _ in view.files.files():
        if path.endswith("Cargo.toml"):
            said = view.files.record(file).bindings
            own |= set(said.get((-1, "package"), ()))
            named |= {key.removeprefix("dependency ") for _, key in said if key.startswith("dependency ")}
    return named - own


def _score(view: GraphView, repository: str, language: str, name: str, judge: Judge, symbols: int) -> Score:
    graph = view.graph
    asked = true = found = sure = right = 0
    misses: list[Miss] = []
    for target in _definitions(view, language):
        head = _head(view, target)
        truth = judge(target, *head) if head is not None else None
        if head is None or not truth:
            continue
        asked += 1
        grades = {(graph.path(use.file), use.line): use.confidence for use in reversed(graph.uses([target]))}
        if name == "TypeScript":  # dependencies are not installed: imports of other packages lead nowhere
            own = _package(view, head[0])
            grades = {place: grade for place, grade in grades.items() if _package(view, place) == own}
            truth = {place for place in truth if _package(view, place) == own}
        certain = {place for place, grade in grades.items() if grade != "name_only"}
        true, found = true + len(truth), found + len(truth & grades.keys())
        sure, right = sure + len(certain), right + len(certain & truth)
        symbol = graph.symbol(target).qualname
        misses += [Miss(symbol, "missed", place) for place in sorted(truth - grades.keys())]
        if name != "text search":  # a name of its own is beyond it: import a as b
            misses += [Miss(symbol, grades[place], place) for place in sorted(certain - truth)]
        if asked >= symbols:
            break
    return Score(repository, language, name, asked, true, found, sure, right, misses)


def _definitions(view: GraphView, language: str) -> list[DefinitionPlace]:
    """The definitions that others can use, in an order of chance."""
    found: list[DefinitionPlace] = []
    for file, _, own in view.files.files():
        if _LANGUAGES.get(own) == language:
            bindings = view.files.record(file).bindings
            for place, symbol in enumerate(view.graph.symbols(file)):
                plain = re.fullmatch(r"[A-Za-z]\w*", symbol.name) is not None
                if symbol.kind in _KINDS and plain and (place, LOCAL) not in bindings:
                    found.append(DefinitionPlace(file, place))
    random.Random(7).shuffle(found)
    return found


def _source(view: GraphView, file: int) -> str:
    return (view.read(file) or b"").decode("utf-8", "replace")


def _head(view: GraphView, target: DefinitionPlace) -> tuple[Place, int] | None:
    """Where the name of a definition stands, below its comments and attributes: its line, and its column."""
    symbol, lines = view.graph.symbol(target), _source(view, target.file).split("\n")
    name = re.compile(rf"(?<![\w$.]){re.escape(symbol.name)}(?![\w$])")
    for number in range(symbol.first_line, min(symbol.last_line, len(lines)) + 1):
        line = lines[number - 1]
        if not line.strip().startswith(("#", "//", "/*", "*", "@")) and (found := name.search(line)):
            return (view.graph.path(target.file), number), found.start()
    return None


def _package(view: GraphView, place: Place) -> str:
    """The folder of the package.json above a file."""
    paths = {path for _, path, _ in view.files.files() if path.endswith("package.json")}
    folder = place[0]
    while folder:
        folder = folder.rpartition("/")[0]
        if f"{folder}/package.json".lstrip("/") in paths:
            return folder
    return ""
