"""`python -m benchmarks.retrieval.learn --annotations DIR --checkouts DIR`: learns and writes rag/weights.json.

The ranker is linear: a softmax over the candidates of a question, its weights found by Newton's method under an L2
penalty, each with the sign that its meaning demands. Files are learned from the annotations; which chunk of a file is
shown from docstrings, in packages that the benchmark does not measure.
"""

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from llmc_mcp.rag.parse import words
from llmc_mcp.rag.store import embed, rank
from llmc_mcp.rag.store.embed import Embedding
from llmc_mcp.rag.store.features import CHUNK_FEATURES, FILE_FEATURES, look_up

from . import annotated, docstrings
from .corpus import Corpus, ndcg, read_tree

Floats = NDArray[np.float64]
MEANING = ("meaning", "file_meaning", "name_meaning")
_PENALTY = 1.0
_NAME_PENALTY = 10.0  # towards the weights of other questions: there are few that are nothing but a name
_DEFINITION = 3.0  # a name alone asks for its definition: that weighs so much more than in other questions
_NEGATIVE = frozenset({"test", "aside", "barrel"})
_FREE = frozenset({"depth"})
_WEIGHTS = Path(rank.__file__).parent / "weights.json"


class Case(NamedTuple):
    """A question's candidates: a row of features for each, and which of them answer it."""

    group: str
    category: str
    symbol: bool
    rows: Floats
    right: Floats
    targets: int


class Model(NamedTuple):
    """Weights of files, in the order of FILE_FEATURES."""

    none: Floats
    meaning: Floats
    name: Floats

    def score(self, case: Case, *, with_meaning: bool) -> float:
        """NDCG@10 of the files in this order."""
        weights = self.name if case.symbol else self.meaning if with_meaning else self.none
        order = np.argsort(-(case.rows @ weights), kind="stable")
        places = {int(row): place for place, row in enumerate(order, 1)}
        return ndcg([places[int(row)] for row in np.flatnonzero(case.right)], case.targets)


def annotated_cases(indexed: Iterable[tuple[annotated.Repository, Corpus]], embedding: Embedding | None) -> list[Case]:
    """What the index says to the annotated questions."""
    cases: list[Case] = []
    for repository, corpus in indexed:
        for query in repository.queries:
            question = words.question(query.text)
            seen = look_up(corpus.searcher, rank.SCHEMA, corpus, question, scope="repo", embedding=embedding)
            right = [float(corpus.files[file].path in query.targets) for file in seen.files]
            rows = np.array(list(seen.files.values())).reshape(-1, len(FILE_FEATURES))
            cases.append(
                Case(repository.name, query.category, question.symbol, rows, np.array(right), len(query.targets))
            )
    return cases


def docstring_cases(packages: Iterable[docstrings.Package], embedding: Embedding | None) -> list[Case]:
    """The chunks of the right file as candidates, for each docstring."""
    cases: list[Case] = []
    for package in packages:
        corpus = Corpus(package.sources, embedding)
        for item in package.items:
            question = words.question(item.text)
            seen = look_up(corpus.searcher, rank.SCHEMA, corpus, question, scope="repo", embedding=embedding)
            inside = [(at, row) for at, row in seen.chunks.items() if corpus.files[at[0]].path == item.path]
            right = np.array([float(corpus.covers(*at, item.first, item.last)) for at, _ in inside])
            if 0 < right.sum() < len(right):
                cases.append(Case(package.name, "docstring", False, np.array([row for _, row in inside]), right, 1))
    return cases


def fit_files(cases: Sequence[Case]) -> Model:
    """The weights of files."""
    lexical = np.array([name not in MEANING for name in FILE_FEATURES])
    everything = np.ones(len(FILE_FEATURES), bool)
    sign = np.array([-1 if name in _NEGATIVE else 0 if name in _FREE else 1 for name in FILE_FEATURES])
    asked = [case for case in cases if not case.symbol]
    none = fit(asked, lexical, sign, _PENALTY)
    near = none + _DEFINITION * np.array([name == "defines" for name in FILE_FEATURES])
    return Model(
        none,
        fit(asked, everything, sign, _PENALTY),
        fit([case for case in cases if case.symbol], lexical, np.zeros_like(sign), _NAME_PENALTY, near),
    )


def fit_chunks(cases: Sequence[Case], *, with_meaning: bool) -> Floats:
    """The weights of chunks."""
    used = np.array([with_meaning or name not in MEANING for name in CHUNK_FEATURES])
    return fit(cases, used, np.ones(len(CHUNK_FEATURES)), _PENALTY)


def fit(
    cases: Sequence[Case], used: NDArray[np.bool_], sign: Floats, penalty: float, near: Floats | None = None
) -> Floats:
    """Weights that make the right candidates likely; those of a sign that makes no sense become 0."""
    cases = [case for case in cases if case.right.sum()]
    start = np.zeros(len(sign)) if near is None else near
    free = used.copy()
    while True:
        step = np.zeros(len(sign))
        if cases:
            step[free] = _newton(cases, free, start, penalty)
        weights = start + step
        wrong = (sign * weights < -1e-9) & free
        if not wrong.any():
            return weights
        free &= ~wrong


def _newton(cases: Sequence[Case], free: NDArray[np.bool_], start: Floats, penalty: float) -> Floats:
    rows = np.concatenate([case.rows for case in cases])
    right = np.concatenate([case.right / case.right.sum() for case in cases])
    sizes = np.array([len(case.rows) for case in cases])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    of = np.repeat(np.arange(len(cases)), sizes)
    base, rows = rows @ start, rows[:, free]

    def loss(weights: Floats) -> tuple[float, Floats]:
        scores = base + rows @ weights
        top = np.maximum.reduceat(scores, starts)
        odds = np.exp(scores - top[of])
        sums = np.add.reduceat(odds, starts)
        value = float((top + np.log(sums)).sum() - right @ scores + penalty / 2 * weights @ weights)
        return value, odds / sums[of]

    weights = np.zeros(int(free.sum()))
    value, likely = loss(weights)
    for _ in range(30):
        slope = rows.T @ (likely - right) + penalty * weights
        mean = np.add.reduceat(rows * likely[:, None], starts)
        bend = (rows * likely[:, None]).T @ rows - mean.T @ mean + penalty * np.eye(len(weights))
        step, pace, before = np.linalg.solve(bend, slope), 1.0, value
        while (new := loss(weights - pace * step))[0] > before and pace > 1e-3:
            pace /= 2
        weights, (value, likely) = weights - pace * step, new
        if abs(before - value) < 1e-7:
            break
    return weights


def left_out(cases: Sequence[Case], tell: Callable[[str], None] = lambda _: None) -> list[tuple[Case, float, float]]:
    """NDCG@10 of every question without and with meaning, by weights that never saw its repository."""
    scores: list[tuple[Case, float, float]] = []
    for group in dict.fromkeys(case.group for case in cases):
        model = fit_files([case for case in cases if case.group != group])
        mine = [case for case in cases if case.group == group]
        scores += [(case, model.score(case, with_meaning=False), model.score(case, with_meaning=True)) for case in mine]
        tell(group)
    return scores


def write(model: Model, chunks: tuple[Floats, Floats], path: Path = _WEIGHTS) -> None:
    """Puts what was learned where the ranker reads it."""

    def named(names: Sequence[str], weights: Floats) -> dict[str, float]:
        return {
            name: round(float(weight), 3) for name, weight in zip(names, weights, strict=True) if abs(weight) > 5e-4
        }

    none, meaning = (named(CHUNK_FEATURES, weights) for weights in chunks)
    # Questions that are names show the definition: no docstring is one, so this is not learned.
    definition = {**none, "defines": max(5.0, *none.values())}
    made = {
        "none": {"file": named(FILE_FEATURES, model.none), "chunk": none},
        "words": {"file": named(FILE_FEATURES, model.meaning), "chunk": meaning},
        "name": {"file": named(FILE_FEATURES, model.name), "chunk": definition},
    }
    path.write_text(json.dumps(made, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.retrieval.learn", description=__doc__)
    parser.add_argument("--annotations", type=Path, required=True)
    parser.add_argument("--checkouts", type=Path, required=True)
    asked = parser.parse_args()
    embedding = embed.load(embed.WordVectors.setting)
    repositories = annotated.repositories(asked.annotations, asked.checkouts)
    files = annotated_cases(((one, Corpus(read_tree(one.root), embedding)) for one in repositories), embedding)
    chunks = docstring_cases(docstrings.packages(docstrings.LEARNED), embedding)
    scores = left_out(files)
    print(f"NDCG@10 by repositories left out, lexical: {np.mean([lexical for _, lexical, _ in scores]):.4f}")
    print(f"NDCG@10 by repositories left out, with meaning: {np.mean([meaning for _, _, meaning in scores]):.4f}")
    model = fit_files(files)
    write(model, (fit_chunks(chunks, with_meaning=False), fit_chunks(chunks, with_meaning=True)))
    print(f"written: {_WEIGHTS}")


if __name__ == "__main__":
    main()
