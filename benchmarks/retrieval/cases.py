"""Questions and tasks as cases to learn from and to judge by: the candidates that the index offers, and the right ones.

Their indexes are made once and kept (history.py), so that weights are learned and judged in seconds.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from llmc_mcp.rag.parse import outline
from llmc_mcp.rag.parse.outline import StoredOutline
from llmc_mcp.rag.parse.question import Question, question
from llmc_mcp.rag.query import passages
from llmc_mcp.rag.store import neighbours, rank
from llmc_mcp.rag.store.embed import Embedding
from llmc_mcp.rag.store.features import FILE_FEATURES, Candidates, look_up
from llmc_mcp.rag.store.types import DEFINITION_FEATURES, QuestionTerms

from .docstrings import CACHE
from .history import Git, MovingIndex, Parsed, Snapshot

Floats = NDArray[np.float64]
WORK = CACHE / "indexes"


class Case(NamedTuple):
    """A question's candidates: a row of features for each, and which of them answer it."""

    group: str  # the repository
    category: str
    symbol: bool
    rows: Floats
    right: Floats
    targets: int
    language: str = ""


class Task(NamedTuple):
    """An issue, and the files and definitions that its fix edited."""

    id: str
    repository: str
    commit: str
    text: str
    files: tuple[str, ...]
    entities: tuple[str, ...]  # path:Class.method


class TaskCase(NamedTuple):
    """A task with its candidate files, and by their rows which of them each imports."""

    task: Task
    files: Case
    paths: list[str]
    linked: dict[int, list[int]]


def tasks(path: Path) -> list[Task]:
    """The tasks of a file of JSON lines."""
    with gzip.open(path, "rt") as file:
        return [_task(json.loads(line)) for line in file]


def _task(row: dict[str, Any]) -> Task:
    entities = [name for one in row["changes"] for name in one["changes"].get("edited_entities") or ()]
    files = tuple(one["file"] for one in row["changes"])
    return Task(row["id"], row["repo"], row["base_commit"], row["text"], files, tuple(entities))


def git_of(clones: Path, repository: str) -> Git:
    """The clone of OWNER/NAME: OWNER+NAME, OWNER/NAME or NAME below a folder, bare or not."""
    ways = (repository.replace("/", "+"), repository, repository.rpartition("/")[2])
    for way in ways:
        for place in (clones / way / "repo", clones / way):
            if place.is_dir():
                return Git(place)
    raise SystemExit(f"{repository} is not below {clones}")


def snapshots(wanted: list[Task], clones: Path, work: Path = WORK) -> Iterator[tuple[Task, Snapshot]]:
    """The index of each task's commit, made where it is missing."""
    parsed = Parsed(work / "parsed.db")
    for repository in dict.fromkeys(task.repository for task in wanted):
        git = git_of(clones, repository)
        moving = MovingIndex(work / "live" / repository.replace("/", "+"), git, parsed, None)
        mine = sorted((task for task in wanted if task.repository == repository), key=lambda one: git.time(one.commit))
        for task in mine:
            kept = work / "snap" / task.id
            if not (kept / "files").exists():
                moving.move(task.commit, kept)
            yield task, Snapshot(kept, git, parsed)
        git.close()


def case_of(task: Task, snapshot: Snapshot) -> tuple[TaskCase, Candidates, Question]:
    """The candidates for a task."""
    asked = question(task.text)
    seen = look_up(snapshot.searcher, rank.SCHEMA, snapshot, asked, scope="repo")
    paths = [snapshot.files[file].path for file in seen.files]
    rows = np.array(list(seen.files.values())).reshape(-1, len(FILE_FEATURES))
    right = np.array([float(path in task.files) for path in paths])
    files = Case(task.repository, "task", False, rows, right, len(task.files), "python")
    imports = snapshot.imports(seen.files)
    linked = neighbours.links(dict(enumerate(paths)), {at: imports[file] for at, file in enumerate(seen.files)})
    return TaskCase(task, files, paths, linked), seen, asked


def definitions_of(
    snapshot: Snapshot, file: int, seen: Candidates, asked: Question, chunk_weights: Floats
) -> tuple[list[str], Floats]:
    """The definitions of a file that a search looks at, by qualified name, and their features."""
    best = sorted(
        ((float(np.dot(chunk_weights, row)), chunk) for chunk, row in seen.chunks_of(file).items()),
        reverse=True,
    )[: rank.BEST_CHUNKS]
    parsed = snapshot.parsed(file)
    scores = {chunk: score for score, chunk in best} or {0: 0.0}
    terms, definitions = QuestionTerms(seen.weights), StoredOutline(outline.pack(parsed.definitions))
    found = passages.features(snapshot.source(file), definitions, parsed.chunks, scores, asked, terms)
    names = [parsed.definitions[at].qualname for at in found]
    return names, np.array(list(found.values())).reshape(-1, len(DEFINITION_FEATURES))


def question_cases(
    annotations: Path, clones: Path, embedding: Embedding | None, *, whole: bool = False, work: Path = WORK
) -> list[Case]:
    """The annotated questions; with `whole` the root is the whole repository: tests, docs and vendored code too."""
    parsed = Parsed(work / "parsedq.db")
    cases: list[Case] = []
    for entry in json.loads((annotations.parent / "repos.json").read_text()):
        name, below = entry["name"], "" if whole else entry.get("benchmark_root", "")
        git = git_of(clones, entry["url"].removeprefix("https://github.com/").removesuffix(".git"))
        kept = work / ("qwhole" if whole else "q") / name
        if not (kept / "files").exists():
            MovingIndex(work / "live" / f"q{name}", git, parsed, embedding).move(entry["revision"], kept, below)
        snapshot = Snapshot(kept, git, parsed)
        paths = {blob.path for blob in snapshot.files.values()}
        for one in json.loads((annotations / f"{name}.json").read_text()):
            targets = _targets(one, entry.get("benchmark_root", ""), paths, whole=whole)
            cases.append(_question_case(one, targets, snapshot, embedding, (name, entry["language"])))
        git.close()
    return cases


def _targets(one: dict[str, Any], below: str, paths: set[str], *, whole: bool) -> tuple[str, ...]:
    """Targets are told from the top of the repository, or from the folder that is searched."""
    found: dict[str, None] = {}
    for target in [*one["relevant"], *one["secondary"]]:
        path = str(cast(dict[str, Any], target)["path"] if isinstance(target, dict) else target)
        inner = path.removeprefix(f"{below}/") if below else path
        ways = (path, f"{below}/{path}") if whole else (path, inner)
        found[next((way for way in ways if way in paths), inner)] = None
    return tuple(found)


def _question_case(
    one: dict[str, Any], targets: tuple[str, ...], snapshot: Snapshot, embedding: Embedding | None, of: tuple[str, str]
) -> Case:
    asked = question(one["query"])
    seen = look_up(snapshot.searcher, rank.SCHEMA, snapshot, asked, scope="repo", embedding=embedding)
    rows = np.array(list(seen.files.values())).reshape(-1, len(FILE_FEATURES))
    right = np.array([float(snapshot.files[file].path in targets) for file in seen.files])
    return Case(of[0], one["category"], asked.symbol, rows, right, len(targets), of[1])
