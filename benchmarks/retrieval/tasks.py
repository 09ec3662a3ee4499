"""`python -m benchmarks.retrieval.tasks --tasks FILE --clones DIR`: issue text in, files and functions to edit out.

Strict accuracy: every file (or function) that the fix edited is among the first k. Ours is by leaving one repository
out: its weights never saw a task of it. Prints Markdown; nothing is asserted.
"""

import argparse
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tantivy

from llmc_mcp.rag.parse.question import question
from llmc_mcp.rag.store import rank
from llmc_mcp.rag.store.features import FILE_FEATURES, Candidates
from llmc_mcp.rag.store.paths import path_kind

from ..report import percentile, provenance, table
from ..tokens import count
from . import learn, replies
from .annotated import repositories
from .baselines import SEMBLE, SEMBLE_KINDS, semble
from .cases import WORK, Case, Floats, Task, TaskCase, case_of, definitions_of, git_of, question_cases, snapshots, tasks
from .history import Snapshot

_KS = (1, 3, 5, 10)
_FILES = 10
_DEFINITIONS = 4  # of one file
_DRAWS = 2_000  # for a confidence interval


class Answer(NamedTuple):
    """What a system returns for a task: paths, functions as path:name, and tokens read until the first right file."""

    files: list[str]
    functions: list[str]
    tokens: int | None = None


class Seen(NamedTuple):
    """A task, its candidates, and for each file that may be shown its definitions: names, features, tokens of each."""

    task: Task
    case: TaskCase
    paths: list[str]
    definitions: dict[str, tuple[list[str], Floats, list[int]]]


def look(task: Task, snapshot: Snapshot) -> Seen:
    """Everything that judging a task by any weights needs."""
    made, seen, asked = case_of(task, snapshot)
    crude = made.files.rows[:, [FILE_FEATURES.index(name) for name in ("text", "file_text", "file_all", "prose")]]
    order = np.argsort(-(crude.sum(axis=1) - 2 * made.files.rows[:, FILE_FEATURES.index("test")]))[: 3 * _FILES]
    files = list(seen.files)
    shown = {*order.tolist(), *np.flatnonzero(made.files.right).tolist()}
    definitions = {made.paths[at]: _definitions(snapshot, files[at], seen, asked) for at in shown}
    return Seen(task, made, made.paths, definitions)


def _definitions(
    snapshot: Snapshot, file: int, seen: Candidates, asked: learn.Question
) -> tuple[list[str], Floats, list[int]]:
    names, rows = definitions_of(snapshot, file, seen, asked, np.array(learn.CHUNK_PRIOR))
    spans = {one.qualname: one.span for one in snapshot.parsed(file).definitions}
    source = snapshot.source(file)
    texts = [source[spans[name].start : spans[name].end][:4_000].decode(errors="replace") for name in names]
    return names, rows, [count(text) for text in texts]


def ours(seen: Seen, scores: Floats, definitions: Floats) -> Answer:
    """The ranking by these scores of files and weights of definitions, as a plan has it."""
    order = [int(at) for at in np.argsort(-scores, kind="stable")]
    functions: list[tuple[float, str]] = []
    read, found = 0, False
    for at in order[:_FILES]:
        path = seen.paths[at]
        names, rows, sizes = seen.definitions.get(path, ([], np.zeros((0, 0)), []))
        if names:
            own = rows @ definitions
            best = [int(one) for one in np.argsort(-own, kind="stable")[:_DEFINITIONS]]
            functions += [(float(scores[at] + own[one]), f"{path}:{names[one]}") for one in best]
            read += 0 if found else sizes[best[0]]
        found = found or path in seen.task.files
    names_in_order = [name for _, name in sorted(functions, key=lambda one: -one[0])]
    return Answer([seen.paths[at] for at in order], names_in_order, read)


def plain_bm25(task: Task, snapshot: Snapshot) -> Answer:
    """File-level BM25 of every word of the issue, tests left out."""
    asked = question(task.text)
    terms = dict.fromkeys([*asked.stems, *(term for term, _ in (*asked.prose, *asked.code))])
    parts = [tantivy.Query.term_query(rank.SCHEMA, "file_text", term, "freq") for term in terms]
    query = tantivy.Query.boolean_query([(tantivy.Occur.Should, part) for part in parts])
    hits = [address for _, address in snapshot.searcher.search(query, 100, count=False).hits]
    files = [int(file or 0) for file in snapshot.searcher.fast_field_values("file", hits)]
    paths = [snapshot.files[file].path for file in files if file in snapshot.files]
    return Answer([path for path in paths if path.endswith(".py") and not path_kind(path).test], [])


def with_semble(wanted: Sequence[Task], clones: Path) -> dict[str, list[Answer]]:
    """What semble returns, on an export of each commit."""
    made: dict[str, list[Answer]] = {}
    with tempfile.TemporaryDirectory(prefix="tasks-") as work:
        for task in wanted:
            folder = Path(work, task.id)
            folder.mkdir()
            archive = subprocess.run(
                ["git", "-C", str(git_of(clones, task.repository).folder), "archive", task.commit],
                stdout=subprocess.PIPE,
                check=True,
            )
            subprocess.run(["tar", "x", "-C", str(folder)], input=archive.stdout, check=True)
        told = semble([(f"{work}/{task.id}", [task.text]) for task in wanted]) or []
    for name, folders in zip(SEMBLE_KINDS, told, strict=False):
        made[name] = [Answer(list(dict.fromkeys(hit.path for hit in answers[0])), []) for answers in folders]
    return made


def by_repository(cases: Sequence[Seen], questions: Sequence[Case]) -> list[Answer]:
    """Our answers, each by weights that saw no task of its repository."""
    answers: dict[str, Answer] = {}
    for group in dict.fromkeys(one.task.repository for one in cases):
        others = [one for one in cases if one.task.repository != group]
        learned = learn.without(group, [one.case for one in cases], questions)
        definitions = learn.fit_definitions([case for one in others if (case := _definition_case(one)) is not None])
        for one in cases:
            if one.task.repository == group:
                answers[one.task.id] = ours(one, learn.task_scores(one.case, *learned), definitions)
    return [answers[one.task.id] for one in cases]


def _definition_case(seen: Seen) -> Case | None:
    """The definitions of the edited file, and which of them the fix edited."""
    path = seen.task.files[0]
    names, rows, _ = seen.definitions.get(path, ([], np.zeros((0, 0)), []))
    right = np.array([float(f"{path}:{name}" in seen.task.entities) for name in names])
    return Case(seen.task.repository, "task", False, rows, right, 1) if 0 < right.sum() < len(right) else None


def judged(name: str, wanted: Sequence[Task], answers: Sequence[Answer]) -> list[str]:
    """A row of the table, with the 95 % interval of the first column."""
    pairs = list(zip(wanted, answers, strict=True))
    files = [[set(task.files) <= set(answer.files[:k]) for k in _KS] for task, answer in pairs]
    first = [next((1 / at for at, path in enumerate(one.files, 1) if path in task.files), 0.0) for task, one in pairs]
    cells = [_with_interval([row[at] for row in files]) for at in range(len(_KS))]
    row = [name, *cells, f"{np.mean(first):.3f}"]
    edited = [(task, answer) for task, answer in pairs if task.entities]
    if any(answer.functions for answer in answers):
        row += [
            f"{np.mean([set(task.entities) <= set(one.functions[:k]) for task, one in edited]):.3f}" for k in (5, 10)
        ]
    else:
        row += ["", ""]
    read = [one.tokens for one in answers if one.tokens is not None]
    return [*row, f"{np.median(read):,.0f}" if read else ""]


def _with_interval(values: Sequence[bool]) -> str:
    draws = np.random.default_rng(1).choice(np.array(values, float), (_DRAWS, len(values))).mean(axis=1)
    low, high = np.percentile(draws, [2.5, 97.5])
    return f"{np.mean(values):.3f} [{low:.2f}, {high:.2f}]"


def _of_replies(order: Sequence[Task], clones: Path, most: int) -> str:
    """The first tasks of each repository through the real server, by the weights that are shipped."""
    of_each = {name: [task for task in order if task.repository == name] for name in {one.repository for one in order}}
    some = [task for mine in of_each.values() for task in mine[:: max(len(mine) // most, 1)][:most]]
    asked = list(replies.of_tasks(some, clones))
    rows: list[list[str]] = []
    for name, told in (("rag_search", [row[1] for row in asked]), ("rag_plan", [row[2] for row in asked])):
        answers = [Answer(one.files, one.functions, count(one.text)) for one in told]
        times = [one.ms for one in told]
        rows.append([*judged(name, [row[0] for row in asked], answers), f"{percentile(times, 0.95):,.0f}"])
    head = ["real replies", *(f"files @{k}" for k in _KS), "MRR", "functions @5", "@10", "tokens of a reply", "p95, ms"]
    return f"{len(asked)} tasks, by the weights that are shipped\n\n{table(head, rows)}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.retrieval.tasks", description=__doc__)
    parser.add_argument("--tasks", type=Path, required=True, help="tasks.jsonl.gz, or the folder that holds it")
    parser.add_argument("--clones", type=Path, required=True, help="a folder of clones: OWNER+NAME")
    parser.add_argument("--annotations", type=Path, help="annotated questions, which weigh a little when learning")
    parser.add_argument("--work", type=Path, default=WORK, help="where indexes are kept")
    parser.add_argument("--only", help="tasks whose id contains this")
    parser.add_argument("--checkouts", type=Path, help="the annotated commits, to ask the questions of a real server")
    parser.add_argument("--replies", type=int, default=0, metavar="N", help="ask a real server N tasks of a repository")
    parser.add_argument("--semble", action="store_true", help="semble too, on an export of each commit (slow)")
    asked = parser.parse_args()
    path = asked.tasks / "tasks.jsonl.gz" if asked.tasks.is_dir() else asked.tasks
    wanted = [task for task in tasks(path) if not asked.only or asked.only in task.id]
    cases: list[Seen] = []
    baseline: list[Answer] = []
    for task, snapshot in snapshots(wanted, asked.clones, asked.work):
        cases.append(look(task, snapshot))
        baseline.append(plain_bm25(task, snapshot))
    questions = question_cases(asked.annotations, asked.clones, None, work=asked.work) if asked.annotations else []
    order = [one.task for one in cases]
    rows = [judged("llmc", order, by_repository(cases, questions)), judged("file-level BM25", order, baseline)]
    if asked.semble and SEMBLE.exists():
        rows += [judged(f"semble, {name}", order, told) for name, told in with_semble(order, asked.clones).items()]
    head = ["system", *(f"files @{k}" for k in _KS), "MRR", "functions @5", "@10", "tokens to the file"]
    print(f"{len(order)} tasks of {len({task.repository for task in order})} repositories\n")
    print(table(head, rows) + "\n", flush=True)
    if asked.replies:
        print(_of_replies(order, asked.clones, asked.replies) + "\n", flush=True)
    if asked.annotations and asked.checkouts:
        head = ["questions", "", "in the usual reply", *(f"in {size:,} tokens" for size in replies.BUDGETS)]
        head += ["tokens to the file", "tokens of a reply", "p95, ms"]
        print(table(head, replies.question_rows(list(repositories(asked.annotations, asked.checkouts)))) + "\n")
    print(provenance().rpartition(" · ")[0])


if __name__ == "__main__":
    main()
