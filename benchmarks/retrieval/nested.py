"""`python -m benchmarks.retrieval.nested --annotations DIR --tasks FILE --clones DIR`: figures for the unseen.

Nested cross-validation: what is left out is judged by weights and by settings (penalty, share of questions) that were
both chosen without it. Left out are repositories, and for questions also languages. Prints Markdown with 95 % intervals
by drawing what was left out again; nothing is asserted.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from llmc_mcp.rag.store import embed

from ..report import table
from . import cases as made_cases
from . import learn
from .cases import Case, Floats, TaskCase

_PENALTIES = (0.3, 1.0, 3.0)
_TASK_SETTINGS = ((0.1, 0.05), (0.3, 0.05), (1.0, 0.05), (0.3, 0.15))  # penalty, and what a question counts
_FOLDS = 4
_DRAWS = 2_000
_KS = (1, 3, 5, 10)

Judge = Callable[[list[int], list[int], int], Floats]  # learn from cases, judge others by a setting: a row for each


class Judged(NamedTuple):
    """The group of each case, and how it did when that was left out."""

    groups: list[str]
    rows: Floats


def nested(groups: Sequence[str], settings: int, judge: Judge) -> Judged:
    """Leave each group out, and choose one of the settings by folds of the others."""
    names = list(dict.fromkeys(groups))
    found: list[Floats] = []
    of: list[str] = []
    for name in names:
        others = [one for one in names if one != name]
        folds = [set(others[at::_FOLDS]) for at in range(min(_FOLDS, len(others)))]
        quality = [_quality(groups, name, folds, setting, judge) for setting in range(settings)]
        inside, outside = _split(groups, {name})
        found.append(judge(inside, outside, int(np.argmax(quality))))
        of += [name] * len(outside)
    return Judged(of, np.concatenate(found))


def _quality(groups: Sequence[str], left_out: str, folds: Sequence[set[str]], setting: int, judge: Judge) -> float:
    """How well a setting does on folds of everything but what is left out."""
    rows: list[Floats] = []
    for fold in folds:
        inside = _split(groups, {*fold, left_out})[0]
        rows.append(judge(inside, _split(groups, fold)[1], setting))
    return float(np.concatenate(rows).mean())


def _split(groups: Sequence[str], apart: set[str]) -> tuple[list[int], list[int]]:
    inside = [at for at, group in enumerate(groups) if group not in apart]
    return inside, [at for at, group in enumerate(groups) if group in apart]


def interval(judged: Judged, mix: Sequence[float], *, by_group: bool = True) -> str:
    """A sum of columns and its 95 % interval, drawing groups (or single cases) again."""
    chance = np.random.default_rng(1)
    values = judged.rows @ np.array(mix, float)
    names = judged.groups if by_group else [str(at) for at in range(len(values))]
    each = [values[[at for at, own in enumerate(names) if own == name]] for name in dict.fromkeys(names)]
    drawn: list[list[int]] = chance.integers(0, len(each), (_DRAWS, len(each))).tolist()
    draws = [np.concatenate([each[at] for at in row]).mean() for row in drawn]
    low, high = np.percentile(draws, [2.5, 97.5])
    return f"{values.mean():.3f} [{low:.3f}, {high:.3f}]"


def question_rows(questions: Sequence[Case]) -> list[list[str]]:
    """Questions, with repositories and with languages left out: lexical, with vectors, and the difference."""

    def judge(train: list[int], test: list[int], setting: int) -> Floats:
        model = learn.fit_files([questions[at] for at in train], _PENALTIES[setting])
        return np.array(
            [[model.score(questions[at], with_meaning=meaning) for meaning in (False, True)] for at in test]
        )

    made: list[list[str]] = []
    kinds = {"repositories": [one.group for one in questions], "languages": [one.language for one in questions]}
    for name, groups in kinds.items():
        judged = nested(groups, len(_PENALTIES), judge)
        made.append([name, *(interval(judged, mix) for mix in ((1, 0), (0, 1), (-1, 1)))])
    return made


def task_row(tasks: Sequence[TaskCase], questions: Sequence[Case]) -> list[str]:
    """Accuracy at each k, with repositories left out."""

    def judge(train: list[int], test: list[int], setting: int) -> Floats:
        known = [tasks[at] for at in train]
        weights = learn.fit_tasks([one.files for one in known], questions, *_TASK_SETTINGS[setting])
        imported = learn.fit_imported(known, weights)
        ranks = [learn.places_of(tasks[at].files, learn.task_scores(tasks[at], weights, imported)) for at in test]
        return np.array([[bool(one) and max(one) <= k for k in _KS] for one in ranks], float)

    judged = nested([one.files.group for one in tasks], len(_TASK_SETTINGS), judge)
    return [interval(judged, [float(k == own) for own in _KS], by_group=False) for k in _KS]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.retrieval.nested", description=__doc__)
    parser.add_argument("--annotations", type=Path, required=True)
    parser.add_argument("--tasks", type=Path, required=True)
    parser.add_argument("--clones", type=Path, required=True, help="a folder of clones: OWNER+NAME")
    parser.add_argument("--work", type=Path, default=made_cases.WORK, help="where indexes are kept")
    parser.add_argument("--whole", action="store_true", help="questions to the whole repository: tests and docs too")
    asked = parser.parse_args()
    embedding = embed.load(embed.WordVectors.setting)
    questions = made_cases.question_cases(
        asked.annotations, asked.clones, embedding, whole=asked.whole, work=asked.work
    )
    head = ["NDCG@10, left out", "lexical", "with vectors", "vectors bring"]
    print(table(head, question_rows(questions)) + "\n", flush=True)
    if not asked.whole:
        wanted = made_cases.snapshots(made_cases.tasks(asked.tasks), asked.clones, asked.work)
        tasks = [made_cases.case_of(task, snapshot)[0] for task, snapshot in wanted]
        print(
            table(["tasks, repositories left out", *(f"@{k}" for k in _KS)], [["files", *task_row(tasks, questions)]])
        )


if __name__ == "__main__":
    main()
