"""`python -m benchmarks.retrieval [--annotations DIR --checkouts DIR]`: prints Markdown; nothing is asserted."""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np

from llmc_mcp.rag.parse.question import question
from llmc_mcp.rag.store import embed, rank
from llmc_mcp.rag.store.embed import Embedding
from llmc_mcp.rag.store.features import FILE_FEATURES, look_up

from ..report import provenance, table
from ..tokens import count
from . import annotated, cost, docstrings, learn, scale
from .baselines import SEMBLE, SEMBLE_KINDS, Hit, Plain, ripgrep, semble
from .cases import Case
from .corpus import Corpus, ndcg, read_tree, reciprocal

_CATEGORIES = ("architecture", "semantic", "symbol")
_FOLDS = 6


class Answered(NamedTuple):
    """How a system did on one question."""

    group: str
    category: str
    score: float
    tokens: int


def ours(corpus: Corpus, text: str, embedding: Embedding | None) -> list[Hit]:
    """What a search returns, by the weights that are shipped."""
    found = rank.search(corpus.searcher, corpus, question(text), limit=10, embedding=embedding)
    hits: list[Hit] = []
    for one in found.chunks:
        file = corpus.files[one.file]
        span = file.chunks[one.chunk].span
        hits.append(Hit(file.path, span.first_line, span.last_line))
    return hits


def tokens_to(hits: Sequence[Hit], corpus: Corpus, right: Callable[[Hit], bool]) -> int:
    """What one reads, hit by hit, until one is right; all of it where none is."""
    sources = {source.path: source.data for source in corpus.sources}
    read = 0
    for hit in hits:
        lines = sources.get(hit.path, b"").decode(errors="replace").splitlines()[hit.first - 1 : hit.last]
        read += count("\n".join(lines))
        if right(hit):
            break
    return read


def on_annotations(repositories: list[annotated.Repository], embedding: Embedding | None) -> str:
    """NDCG@10 of every system, by category; ours by weights that never saw the repository."""
    systems: dict[str, list[Answered]] = {}
    corpora: list[Corpus] = []
    for repository in repositories:
        corpus = Corpus(read_tree(repository.root), embedding)
        corpora.append(corpus)
        plain = Plain(corpus)
        for query in repository.queries:
            answers = {
                "ripgrep keywords": ripgrep(repository.root, corpus, query.text),
                "plain BM25": plain.ask(query.text),
                "llmc, lexical": ours(corpus, query.text, None),
                "llmc, with meaning": ours(corpus, query.text, embedding),
            }
            for name, hits in answers.items():
                systems.setdefault(name, []).append(_judged(repository, query, hits, corpus))
        _progress(repository.name)
    told = semble([(str(one.root), [query.text for query in one.queries]) for one in repositories])
    for name, folders in zip(SEMBLE_KINDS, told or (), strict=False):
        for repository, corpus, answers in zip(repositories, corpora, folders, strict=True):
            for query, hits in zip(repository.queries, answers, strict=True):
                systems.setdefault(f"semble, {name}", []).append(_judged(repository, query, hits, corpus))
    scores = learn.left_out(_cases(repositories, corpora, embedding))
    for at, name in enumerate(("llmc, lexical", "llmc, with meaning")):
        systems[name] = [old._replace(score=score[at + 1]) for old, score in zip(systems[name], scores, strict=True)]
    order = ["llmc, with meaning", "llmc, lexical"]
    order += sorted(set(systems) - set(order), key=lambda name: -fmean(one.score for one in systems[name]))
    head = ["NDCG@10", "all", *_CATEGORIES, "tokens to the answer"]
    return "\n\n".join([table(head, [_row(name, systems[name]) for name in order]), _by_fold(systems)])


def _cases(repositories: list[annotated.Repository], corpora: list[Corpus], embedding: Embedding | None) -> list[Case]:
    """What the indexes say to the annotated questions."""
    cases: list[Case] = []
    for repository, corpus in zip(repositories, corpora, strict=True):
        for query in repository.queries:
            asked = question(query.text)
            seen = look_up(corpus.searcher, rank.SCHEMA, corpus, asked, scope="repo", embedding=embedding)
            right = np.array([float(corpus.files[file].path in query.targets) for file in seen.files])
            rows = np.array(list(seen.files.values())).reshape(-1, len(FILE_FEATURES))
            cases.append(Case(repository.name, query.category, asked.symbol, rows, right, len(query.targets)))
    return cases


def _judged(repository: annotated.Repository, query: annotated.Query, hits: Sequence[Hit], corpus: Corpus) -> Answered:
    paths = [hit.path for hit in hits]
    ranks = [paths.index(target) + 1 if target in paths else None for target in query.targets]
    read = tokens_to(hits, corpus, lambda hit: hit.path in query.targets)
    return Answered(repository.name, query.category, ndcg(ranks, len(query.targets)), read)


def _row(name: str, answers: list[Answered]) -> list[str]:
    by_category = [fmean(one.score for one in answers if one.category == kind) for kind in _CATEGORIES]
    scores = [fmean(one.score for one in answers), *by_category]
    return [name, *(f"{score:.3f}" for score in scores), f"{fmean(one.tokens for one in answers):,.0f}"]


def _by_fold(systems: dict[str, list[Answered]]) -> str:
    """Repositories, and folds of a few of them, without and with meaning."""
    without, having = systems["llmc, lexical"], systems["llmc, with meaning"]
    groups = list(dict.fromkeys(one.group for one in without))

    def mean(answers: list[Answered], of: Sequence[str]) -> float:
        return fmean(one.score for one in answers if one.group in of)

    folds = [groups[at::_FOLDS] for at in range(_FOLDS)]
    rows = [[group, *(f"{mean(one, [group]):.3f}" for one in (without, having))] for group in groups]
    for at, fold in enumerate(folds, 1):
        rows.append([f"fold {at}: {', '.join(fold)}", *(f"{mean(one, fold):.3f}" for one in (without, having))])
    return table(["left out", "lexical", "with meaning"], rows)


def on_docstrings(packages: Iterable[docstrings.Package], embedding: Embedding | None) -> str:
    """MRR@10 of every system on docstrings whose text is not indexed; the mean over packages."""
    systems: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory(prefix="retrieval-") as work:
        kept = list(packages)
        for package in kept:
            corpus = Corpus(package.sources, embedding)
            plain = Plain(corpus)
            for source in package.sources:
                path = Path(work, package.name, source.path)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(source.data)
            for item in package.items:
                answers = {
                    "llmc, with meaning": ours(corpus, item.text, embedding),
                    "llmc, lexical": ours(corpus, item.text, None),
                    "plain BM25": plain.ask(item.text),
                }
                for name, hits in answers.items():
                    systems.setdefault(name, {}).setdefault(package.name, []).append(_found(item, hits))
            _progress(package.name)
        told = semble([(f"{work}/{one.name}", [item.text for item in one.items]) for one in kept])
    for name, folders in zip(SEMBLE_KINDS, told or (), strict=False):
        for package, answers in zip(kept, folders, strict=True):
            scores = [_found(item, hits) for item, hits in zip(package.items, answers, strict=True)]
            systems.setdefault(f"semble, {name}", {})[package.name] = scores
    names = list(systems)
    rows = [[one.name, *(f"{fmean(systems[name][one.name]):.3f}" for name in names)] for one in kept]
    means = [fmean(fmean(scores) for scores in systems[name].values()) for name in names]
    return table(["docstring → function, MRR@10", *names], [["all", *(f"{mean:.3f}" for mean in means)], *rows])


def _found(item: docstrings.Item, hits: Sequence[Hit]) -> float:
    for place, hit in enumerate(hits, 1):
        if hit.path == item.path and hit.first <= item.last and hit.last >= item.first:
            return reciprocal(place)
    return 0.0


def _progress(name: str) -> None:
    print(f"… {name}", file=sys.stderr, flush=True)


def _print_scale(sources: Path | None, chunks: int, files: int, part: str | None) -> None:
    """The tables of scale.py; what needs sources is left out without them."""
    parts: dict[str, Callable[[Path], scale.Figures]] = {"small": lambda work: scale.small(work, files)}
    if sources is None:
        print("more needs --sources: a folder of repositories\n")
    else:
        parts["large"] = lambda work: scale.large(work, sources, chunks)
        parts["cpp"] = lambda work: scale.cpp(work, sources)
        parts["clones"] = lambda work: scale.clones(work, sources)
        parts["many"] = lambda work: scale.many(work, sources)
    for name in [part] if part else parts:
        with tempfile.TemporaryDirectory(prefix="scale-") as work:
            print(table([name, "seen", "bar", ""], parts[name](Path(work)).table()) + "\n", flush=True)
    where = provenance().rpartition(" · ")[0]
    print(f"{where} · `python -m benchmarks.retrieval --only scale` · load {os.getloadavg()[0]:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.retrieval", description=__doc__)
    parser.add_argument("--annotations", type=Path, help="a folder of NAME.json, beside it repos.json")
    parser.add_argument("--checkouts", type=Path, help="a folder of the repositories, at the annotated commits")
    parser.add_argument("--only", choices=("annotations", "docstrings", "cost", "scale"), help="a part of it")
    parser.add_argument("--sources", type=Path, help="a folder of repositories, for --only scale")
    parser.add_argument("--chunks", type=int, default=500_000, help="about how large the root of --only scale is")
    parser.add_argument("--files", type=int, default=200_000, help="how many small files --only scale has")
    parser.add_argument("--scale", choices=("large", "cpp", "clones", "many", "small"), help="a part of --only scale")
    asked = parser.parse_args()
    if asked.only == "scale":
        _print_scale(asked.sources, asked.chunks, asked.files, asked.scale)
        return
    parts = (asked.only,) if asked.only else ("annotations", "docstrings", "cost")
    embedding = embed.load("auto")
    if embedding is None:
        print("numpy is missing: everything is lexical\n")
    if not SEMBLE.exists():
        print("semble is not installed: `make bench-retrieval` does that\n")
    if "annotations" in parts and not (asked.annotations and asked.checkouts):
        print("NDCG@10 needs --annotations and --checkouts (make: ANNOTATIONS= and CHECKOUTS=)\n")
    elif "annotations" in parts:
        repositories = list(annotated.repositories(asked.annotations, asked.checkouts))
        questions = sum(len(one.queries) for one in repositories)
        print(f"{len(repositories)} repositories, {questions} questions\n", flush=True)
        print(on_annotations(repositories, embedding) + "\n", flush=True)
    if "docstrings" in parts:
        print(on_docstrings(docstrings.packages(docstrings.MEASURED), embedding) + "\n", flush=True)
    if "cost" in parts:
        questions = [item.text for one in docstrings.packages(docstrings.MEASURED) for item in one.items][::3]
        with tempfile.TemporaryDirectory(prefix="retrieval-") as work:
            rows = cost.rows(Path(work), questions)
        print(table(["cost", "lexical", "with vectors"], rows) + "\n", flush=True)
    where = provenance().rpartition(" · ")[0]  # without the command, which names folders of this machine
    print(f"{where} · `python -m benchmarks.retrieval` · load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
