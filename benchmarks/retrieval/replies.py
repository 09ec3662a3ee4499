"""What an agent gets: replies of the real server over stdio, for tasks and for questions; used by tasks.py.

The weights are the ones that are shipped, which were learned from these tasks and questions: the figures tell what a
reply holds and costs, not how well the ranking travels.
"""

import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..client import Client
from ..report import percentile
from ..servers import llmc
from ..tokens import count
from .annotated import Repository
from .cases import Task, git_of
from .history import Blob, Git

BUDGETS = (1_000, 2_000, 4_000)
_SNIPPET = re.compile(r"^(\S+)#L(\d+)-L(\d+) rev=\w* \S* ?(\S*)$", re.M)
_PLANNED = re.compile(r"^(\S+) -?[\d.]+ \[([^\]]*)\]", re.M)
_LINES = re.compile(r":\d+-\d+$")
_LONGEST_BUILD_S = 1_800


class Reply(NamedTuple):
    """The files of a reply in their order, its functions as path:name, its text, and how long it took."""

    files: list[str]
    functions: list[str]
    text: str
    ms: float

    def tokens_to(self, wanted: Sequence[str]) -> int:
        """What is read until the end of the first snippet of a right file; all of it where there is none."""
        starts = [*(match.start() for match in _SNIPPET.finditer(self.text)), len(self.text)]
        paths = [match[1] for match in _SNIPPET.finditer(self.text)]
        first = next((at for at, path in enumerate(paths) if path in wanted), None)
        return count(self.text if first is None else self.text[: starts[first + 1]])


class WorkTree:
    """The files of one commit of a repository in a folder; moving to another one writes only what differs."""

    def __init__(self, folder: Path, git: Git) -> None:
        self._folder, self._git = folder, git
        self._here: set[Blob] = set()

    def move(self, commit: str) -> None:
        wanted = set(self._git.tree(commit))
        for blob in self._here - wanted:
            (self._folder / blob.path).unlink(missing_ok=True)
        for blob in wanted - self._here:
            path = self._folder / blob.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self._git.read(blob.sha))
        self._here = wanted


def searched(client: Client, text: str, **arguments: object) -> Reply:
    """The reply of rag_search."""
    started = time.perf_counter()
    said = client.call("rag_search", {"query": text, **arguments})
    ms = (time.perf_counter() - started) * 1000
    found = list(_SNIPPET.finditer(said))
    named = [f"{match[1]}:{match[4]}" for match in found if match[4]]
    return Reply(list(dict.fromkeys(match[1] for match in found)), named, said, ms)


def planned(client: Client, text: str) -> Reply:
    """The reply of rag_plan."""
    started = time.perf_counter()
    said = client.call("rag_plan", {"query": text})
    ms = (time.perf_counter() - started) * 1000
    rows = [(match[1], match[2]) for match in _PLANNED.finditer(said)]
    named = [f"{path}:{_LINES.sub('', name)}" for path, names in rows for name in names.split(", ") if name]
    return Reply([path for path, _ in rows], named, said, ms)


def of_tasks(wanted: Sequence[Task], clones: Path) -> Iterator[tuple[Task, Reply, Reply]]:
    """Each task with what rag_search and rag_plan reply, in a work tree of its commit."""
    for repository in dict.fromkeys(task.repository for task in wanted):
        git = git_of(clones, repository)
        mine = sorted((task for task in wanted if task.repository == repository), key=lambda one: git.time(one.commit))
        with tempfile.TemporaryDirectory(prefix="replies-") as work:
            root = Path(work, "root")
            root.mkdir()
            tree = WorkTree(root, git)
            tree.move(mine[0].commit)
            with _server(root, Path(work)) as client:
                for task in mine:
                    tree.move(task.commit)
                    _indexed(client)
                    search = searched(client, task.text, limit=10, budget_tokens=2_000)
                    yield task, search, planned(client, task.text)
        git.close()


def of_questions(
    repositories: Sequence[Repository],
) -> Iterator[tuple[Repository, list[tuple[Reply, dict[int, Reply]]]]]:
    """Each repository with the default reply to each question, and those of larger budgets."""
    for one in repositories:
        with tempfile.TemporaryDirectory(prefix="replies-") as work, _server(one.root, Path(work)) as client:
            _indexed(client)
            yield (
                one,
                [
                    (
                        searched(client, query.text),
                        {size: searched(client, query.text, limit=20, budget_tokens=size) for size in BUDGETS},
                    )
                    for query in one.queries
                ],
            )


def _server(root: Path, work: Path) -> Client:
    homes = work / "homes"
    homes.mkdir()
    client = llmc(root, homes).start(root, timeout=_LONGEST_BUILD_S)
    client.initialize()
    return client


def _indexed(client: Client) -> None:
    while "up to date" not in client.call("rag_index", {}):
        time.sleep(1)


def question_rows(repositories: Sequence[Repository]) -> list[list[str]]:
    """A row for each category: how often the first relevant file is in a reply, and what it costs to get there."""
    rows: dict[str, list[tuple[float, ...]]] = {}
    for one, replies in of_questions(repositories):
        for query, (usual, larger) in zip(one.queries, replies, strict=True):
            held = [any(path in query.targets for path in reply.files) for reply in (usual, *larger.values())]
            read, ms = usual.tokens_to(query.targets), usual.ms
            row = (*map(float, held), float(read), float(count(usual.text)), ms)
            rows.setdefault(query.category, []).append(row)
            rows.setdefault("all", []).append(row)
    made: list[list[str]] = []
    for name in sorted(rows):
        table = np.array(rows[name])
        held, read, whole = table[:, :-3].mean(axis=0), table[:, -3].mean(), table[:, -2].mean()
        cells = [name, str(len(table)), *(f"{share:.3f}" for share in held), f"{read:,.0f}", f"{whole:,.0f}"]
        made.append([*cells, f"{percentile(table[:, -1].tolist(), 0.95):,.0f}"])
    return made
