"""`python -m benchmarks.retrieval.learn --annotations DIR --tasks FILE --clones DIR`: learns and writes weights.json.

The ranker is linear: a softmax over the candidates of a question, its weights found by Newton's method under an L2
penalty, each with the sign that its meaning demands. Files are learned from annotated questions and from tasks; which
chunk of a file is shown from docstrings, in packages that the benchmark does not measure, and for tasks from the
definitions that their fixes edited.
"""

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from operator import mul
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from llmc_mcp.rag.parse import outline
from llmc_mcp.rag.parse.outline import StoredOutline
from llmc_mcp.rag.parse.question import Question, question
from llmc_mcp.rag.query import passages
from llmc_mcp.rag.store import embed, neighbours, rank
from llmc_mcp.rag.store.embed import Embedding
from llmc_mcp.rag.store.features import CHUNK_FEATURES, FILE_FEATURES, Candidates, look_up
from llmc_mcp.rag.store.types import DEFINITION_FEATURES, QuestionTerms

from . import cases as made_cases
from . import docstrings
from .cases import Case, Floats, TaskCase
from .corpus import Corpus, ndcg
from .history import Snapshot

MEANING = ("meaning", "file_meaning", "name_meaning")
REST = ("prose", "code", "file_all", "stem_rest", "prose_defines", "code_defines", "frame")  # only tasks have these
_PENALTY = 1.0
_TASK_PENALTY = 0.3
_NAME_PENALTY = 10.0  # towards the weights of other questions: there are few that are nothing but a name
# A name alone asks for its definition, and a path for that file: they weigh so much more than in other questions.
_NAME_PRIOR = {"defines": 3.0, "defines_exactly": 4.0, "place": 10.0}
# The annotated folders hold no lock files, few tests and few examples, and few questions name a definition with its
# owner; whole repositories have all of that.
_PRIOR = {"listing": -3.0, "defines_exactly": 2.5, "test": -5.0, "aside": -2.0}
_TASK_PRIOR = {"test": -3.0}  # no fix is judged by the tests that it edits, so none of them shows how much a test is
_QUESTION_SHARE = 0.05  # what a question counts of a task when the weights of tasks are learned
_NEGATIVE = frozenset({"test", "aside", "barrel", "listing", "plain"})
_FREE = frozenset({"depth", "size"})
# Scores of chunks while the weights of definitions are learned; about what the weights of chunks come out as.
CHUNK_PRIOR = [
    {"text": 2.2, "name": 2.9, "phrase": 1.1, "defines": 1.0, "prose": 1.5, "code": 1.0}.get(name, 0.0)
    for name in CHUNK_FEATURES
]
_DEFINITION_SIGN = np.array([0.0 if name == "is_type" else 1.0 for name in DEFINITION_FEATURES])
_WEIGHTS = Path(rank.__file__).parent / "weights.json"


class Model(NamedTuple):
    """Weights of files, in the order of FILE_FEATURES."""

    none: Floats
    meaning: Floats
    name: Floats

    def score(self, case: Case, *, with_meaning: bool) -> float:
        """NDCG@10 of the files in this order."""
        weights = self.name if case.symbol else self.meaning if with_meaning else self.none
        return ndcg(ranks(case, weights), case.targets)


def ranks(case: Case, weights: Floats) -> list[int]:
    """The ranks of the right candidates."""
    return places_of(case, case.rows @ weights)


def places_of(case: Case, scores: Floats) -> list[int]:
    """The ranks of the right candidates by these scores."""
    order = np.argsort(-scores, kind="stable")
    places = {int(row): place for place, row in enumerate(order, 1)}
    return [places[int(row)] for row in np.flatnonzero(case.right)]


class DocstringCases(NamedTuple):
    """The chunks of the right file as candidates, for each docstring; and the definitions in its best chunks."""

    chunks: list[Case]
    definitions: list[Case]


def docstring_cases(packages: Iterable[docstrings.Package], embedding: Embedding | None) -> DocstringCases:
    """What the index says to the first sentences of docstrings."""
    made = DocstringCases([], [])
    for package in packages:
        corpus = Corpus(package.sources, embedding)
        for item in package.items:
            asked = question(item.text)
            seen = look_up(corpus.searcher, rank.SCHEMA, corpus, asked, scope="repo", embedding=embedding)
            ours = [file for file, path in seen.paths.items() if path == item.path]
            inside = [((file, chunk), row) for file in ours for chunk, row in seen.chunks_of(file).items()]
            right = np.array([float(corpus.covers(*at, item.first, item.last)) for at, _ in inside])
            if 0 < right.sum() < len(right):
                rows = np.array([row for _, row in inside])
                made.chunks.append(Case(package.name, "docstring", False, rows, right, 1))
            file = inside[0][0][0] if inside else -1
            scores = {at[1]: sum(map(mul, CHUNK_PRIOR, row)) for at, row in inside}
            best = dict(sorted(scores.items(), key=lambda one: -one[1])[: rank.BEST_CHUNKS])
            if (case := _definition_case(package, item, corpus, file, best, asked, seen)) is not None:
                made.definitions.append(case)
    return made


def _definition_case(
    package: docstrings.Package,
    item: docstrings.Item,
    corpus: Corpus,
    file: int,
    best: dict[int, float],
    asked: Question,
    seen: Candidates,
) -> Case | None:
    if file < 0:
        return None
    parsed, terms = corpus.files[file], QuestionTerms(seen.weights)
    source, definitions = corpus.sources[file].data, StoredOutline(outline.pack(parsed.definitions))
    found = passages.features(source, definitions, parsed.chunks, best, asked, terms)
    lines = [parsed.definitions[at].span for at in found]
    right = np.array([float(span.last_line == item.last and span.first_line <= item.first) for span in lines])
    if not 0 < right.sum() < len(right):
        return None
    return Case(package.name, "docstring", False, np.array(list(found.values())), right, 1)


def task_definition_cases(
    tasks: Sequence[made_cases.Task], clones: Path, work: Path
) -> tuple[list[TaskCase], list[Case], list[Case]]:
    """Of each task its files; the chunks of the right file; and the definitions in the best of these."""
    files: list[TaskCase] = []
    chunks: list[Case] = []
    definitions: list[Case] = []
    for task, snapshot in made_cases.snapshots(list(tasks), clones, work):
        made, seen, asked = made_cases.case_of(task, snapshot)
        files.append(made)
        gold = {name.partition(":")[2] for name in task.entities}
        for file, path in zip(seen.files, made.paths, strict=True):
            if path not in task.files:
                continue
            names, rows = made_cases.definitions_of(snapshot, file, seen, asked, np.array(CHUNK_PRIOR))
            right = np.array([float(name in gold) for name in names])
            if 0 < right.sum() < len(right):
                definitions.append(Case(task.repository, "task", False, rows, right, 1))
            chunks += _task_chunks(task, snapshot, file, seen, gold)
    return files, chunks, definitions


def _task_chunks(task: made_cases.Task, snapshot: Snapshot, file: int, seen: Candidates, gold: set[str]) -> list[Case]:
    parsed = snapshot.parsed(file)
    spans = [one.span for one in parsed.definitions if one.qualname in gold]
    inside = list(seen.chunks_of(file).items())
    held = [parsed.chunks[chunk].span for chunk, _ in inside]
    right = np.array(
        [
            float(any(one.first_line <= span.last_line and one.last_line >= span.first_line for span in spans))
            for one in held
        ]
    )
    if not 0 < right.sum() < len(right):
        return []
    return [Case(task.repository, "task", False, np.array([row for _, row in inside]), right, 1)]


def _only(unused: Iterable[str]) -> NDArray[np.bool_]:
    left_out = set(unused)
    return np.array([name not in left_out for name in FILE_FEATURES])


def fit_definitions(cases: Sequence[Case]) -> Floats:
    """The weights of definitions."""
    return fit(cases, np.ones(len(DEFINITION_FEATURES), bool), _DEFINITION_SIGN, _PENALTY)


def fit_files(cases: Sequence[Case], penalty: float = _PENALTY) -> Model:
    """The weights of files for questions."""
    lexical = _only([*MEANING, *REST])
    asked = [case for case in cases if not case.symbol]
    none = fit(asked, lexical, _SIGN, penalty, _NEAR)
    near = none + np.array([_NAME_PRIOR.get(name, 0.0) for name in FILE_FEATURES])
    return Model(
        none,
        fit(asked, _only(REST), _SIGN, penalty, _NEAR),
        fit([case for case in cases if case.symbol], lexical, np.zeros_like(_SIGN), _NAME_PENALTY, near),
    )


def fit_tasks(
    tasks: Sequence[Case], questions: Sequence[Case], penalty: float = _TASK_PENALTY, count: float = _QUESTION_SHARE
) -> Floats:
    """The weights of files for tasks; questions count a little, so that a few repositories don't decide alone."""
    asked = [case for case in questions if not case.symbol]
    share = [1.0] * len(tasks) + [count] * len(asked)
    near = _NEAR + np.array([_TASK_PRIOR.get(name, 0.0) for name in FILE_FEATURES])
    return fit([*tasks, *asked], _only(MEANING), _SIGN, penalty, near, share)


def fit_imported(tasks: Sequence[TaskCase], weights: Floats) -> float:
    """The weight of what the best files import, beside the score that these weights give."""
    cases: list[Case] = []
    for one in tasks:
        scores = one.files.rows @ weights
        found = neighbours.imported(_by_row(scores), one.linked)
        rows = np.column_stack([scores, [found.get(at, 0.0) for at in range(len(scores))]])
        cases.append(one.files._replace(rows=rows))
    return float(fit(cases, np.array([False, True]), np.ones(2), _TASK_PENALTY, np.array([1.0, 0.0]))[1])


def _by_row(scores: Floats) -> dict[int, float]:
    return {row: float(score) for row, score in enumerate(scores)}


def task_scores(task: TaskCase, weights: Floats, imported: float) -> Floats:
    """The scores of a task's candidates."""
    scores = _by_row(task.files.rows @ weights)
    raised = neighbours.raised(scores, neighbours.imported(scores, task.linked), imported) if scores else scores
    return np.array([raised[at] for at in range(len(scores))])


_NEAR = np.array([_PRIOR.get(name, 0.0) for name in FILE_FEATURES])
_SIGN = np.array([-1.0 if name in _NEGATIVE else 0.0 if name in _FREE else 1.0 for name in FILE_FEATURES])


def fit_chunks(cases: Sequence[Case], *, with_meaning: bool = False) -> Floats:
    """The weights of chunks."""
    used = np.array([with_meaning or name not in MEANING for name in CHUNK_FEATURES])
    return fit(cases, used, np.ones(len(CHUNK_FEATURES)), _PENALTY)


def fit(
    cases: Sequence[Case],
    used: NDArray[np.bool_],
    sign: Floats,
    penalty: float,
    near: Floats | None = None,
    shares: Sequence[float] | None = None,
) -> Floats:
    """Weights that make the right candidates likely; those of a sign that makes no sense become 0."""
    share = np.array([one for one, case in zip(shares or [1.0] * len(cases), cases, strict=True) if case.right.sum()])
    cases = [case for case in cases if case.right.sum()]
    start = np.zeros(len(sign)) if near is None else near
    free = used.copy()
    while True:
        step = np.zeros(len(sign))
        if cases:
            step[free] = _newton(cases, share, free, start, penalty)
        weights = start + step
        wrong = (sign * weights < -1e-9) & free
        if not wrong.any():
            return weights
        free &= ~wrong
        start = np.where(free, start, 0.0)


def _newton(cases: Sequence[Case], share: Floats, free: NDArray[np.bool_], start: Floats, penalty: float) -> Floats:
    rows = np.concatenate([case.rows for case in cases])
    right = np.concatenate([case.right / case.right.sum() for case in cases])
    sizes = np.array([len(case.rows) for case in cases])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    of = np.repeat(np.arange(len(cases)), sizes)
    base, rows, counts = rows @ start, rows[:, free], share[of]

    def loss(weights: Floats) -> tuple[float, Floats]:
        scores = base + rows @ weights
        top = np.maximum.reduceat(scores, starts)
        odds = np.exp(scores - top[of])
        sums = np.add.reduceat(odds, starts)
        likely = share @ (top + np.log(sums)) - (counts * right) @ scores
        return float(likely + penalty / 2 * weights @ weights), odds / sums[of]

    weights = np.zeros(int(free.sum()))
    value, likely = loss(weights)
    for _ in range(30):
        slope = rows.T @ (counts * (likely - right)) + penalty * weights
        mean = np.add.reduceat(rows * likely[:, None], starts)
        bend = (rows * (counts * likely)[:, None]).T @ rows - (mean * share[:, None]).T @ mean
        step, pace, before = np.linalg.solve(bend + penalty * np.eye(len(weights)), slope), 1.0, value
        while (new := loss(weights - pace * step))[0] > before and pace > 1e-3:
            pace /= 2
        weights, (value, likely) = weights - pace * step, new
        if abs(before - value) < 1e-6:
            break
    return weights


def without(group: str, tasks: Sequence[TaskCase], questions: Sequence[Case]) -> tuple[Floats, float]:
    """The weights of tasks that never saw one of this repository."""
    others = [one for one in tasks if one.files.group != group]
    weights = fit_tasks([one.files for one in others], questions)
    return weights, fit_imported(others, weights)


def tasks_left_out(tasks: Sequence[TaskCase], questions: Sequence[Case]) -> list[list[int]]:
    """The ranks of each task's files, by weights that never saw a task of its repository."""
    groups = dict.fromkeys(one.files.group for one in tasks)
    learned = {group: without(group, tasks, questions) for group in groups}
    return [places_of(one.files, task_scores(one, *learned[one.files.group])) for one in tasks]


def left_out(cases: Sequence[Case], tell: Callable[[str], None] = lambda _: None) -> list[tuple[Case, float, float]]:
    """NDCG@10 of every question without and with meaning, by weights that never saw its repository."""
    scores: list[tuple[Case, float, float]] = []
    for group in dict.fromkeys(case.group for case in cases):
        model = fit_files([case for case in cases if case.group != group])
        mine = [case for case in cases if case.group == group]
        scores += [(case, model.score(case, with_meaning=False), model.score(case, with_meaning=True)) for case in mine]
        tell(group)
    return scores


class Learned(NamedTuple):
    """Everything that weights.json holds."""

    files: Model
    task_files: Floats
    imported: float
    chunks: Floats
    chunks_with_meaning: Floats
    task_chunks: Floats
    definitions: Floats
    task_definitions: Floats


def write(learned: Learned, path: Path = _WEIGHTS) -> None:
    """Puts what was learned where the ranker reads it."""

    def named(names: Sequence[str], weights: Floats) -> dict[str, float]:
        return {
            name: round(float(weight), 3) for name, weight in zip(names, weights, strict=True) if abs(weight) > 5e-4
        }

    none, meaning = named(CHUNK_FEATURES, learned.chunks), named(CHUNK_FEATURES, learned.chunks_with_meaning)
    answers, edits = (named(DEFINITION_FEATURES, one) for one in (learned.definitions, learned.task_definitions))
    # Questions that are names show the definition: no docstring is one, so this is not learned.
    definition = {**none, "defines": max(5.0, *none.values())}
    by_name = {**answers, "titled": max(5.0, *answers.values())}
    made = {
        "none": {"file": named(FILE_FEATURES, learned.files.none), "chunk": none, "definition": answers},
        "words": {"file": named(FILE_FEATURES, learned.files.meaning), "chunk": meaning, "definition": answers},
        "name": {"file": named(FILE_FEATURES, learned.files.name), "chunk": definition, "definition": by_name},
        "task": {
            "file": named(FILE_FEATURES, learned.task_files),
            "chunk": named(CHUNK_FEATURES, learned.task_chunks),
            "definition": edits,
            "imported": round(learned.imported, 3),
        },
    }
    path.write_text(json.dumps(made, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.retrieval.learn", description=__doc__)
    parser.add_argument("--annotations", type=Path, required=True)
    parser.add_argument("--tasks", type=Path, required=True)
    parser.add_argument("--clones", type=Path, required=True, help="a folder of clones: OWNER+NAME")
    parser.add_argument("--work", type=Path, default=made_cases.WORK, help="where indexes are kept")
    asked = parser.parse_args()
    embedding = embed.load(embed.WordVectors.setting)
    questions = made_cases.question_cases(asked.annotations, asked.clones, embedding, work=asked.work)
    scores = left_out(questions)
    print(f"NDCG@10 by repositories left out, lexical: {np.mean([lexical for _, lexical, _ in scores]):.4f}")
    print(f"NDCG@10 by repositories left out, with meaning: {np.mean([meaning for _, _, meaning in scores]):.4f}")
    files, chunks, definitions = task_definition_cases(made_cases.tasks(asked.tasks), asked.clones, asked.work)
    found = tasks_left_out(files, questions)
    shares = (np.mean([bool(one) and max(one) <= k for one in found]) for k in (1, 3, 5, 10))
    print(f"Acc@1/3/5/10 by repositories left out: {' '.join(f'{share:.3f}' for share in shares)}")
    said = docstring_cases(docstrings.packages(docstrings.LEARNED), embedding)
    task_files = fit_tasks([one.files for one in files], questions)
    learned = Learned(
        files=fit_files(questions),
        task_files=task_files,
        imported=fit_imported(files, task_files),
        chunks=fit_chunks(said.chunks),
        chunks_with_meaning=fit_chunks(said.chunks, with_meaning=True),
        task_chunks=fit_chunks(chunks),
        definitions=fit_definitions(said.definitions),
        task_definitions=fit_definitions(definitions),
    )
    write(learned)
    print(f"written: {_WEIGHTS}")


if __name__ == "__main__":
    main()
