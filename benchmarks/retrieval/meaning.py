"""`python -m benchmarks.retrieval.meaning`: learns meaning.npz, the vectors of words that `rag/store/embed.py` sums.

From the packages of meaning.txt (none of which is measured) it takes docstrings and the code below them. A vector for
each stem is found such that the sum over a docstring's first sentence is nearer to the sum over its own code than to
the code of its neighbours in the file and of strangers: a softmax over a batch, its slope followed with Adam. It
starts from wordllama's vectors, in fewer dimensions and weighted by rarity. Takes about ten minutes and, once, 2 GB of
downloads.
"""

import argparse
import ast
import importlib.util
import math
import random
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from llmc_mcp.rag.parse import words
from llmc_mcp.rag.parse.question import question
from llmc_mcp.rag.store import embed

from . import docstrings

Floats = NDArray[np.float32]
_TARGET = Path(embed.__file__).parent / "meaning.npz"
_LIST = Path(__file__).parent / "meaning.txt"
_FILES, _PAIRS, _OF_FILE = 150, 1_200, 25  # of a package, so that no package has too much to say
_CODE = 4_000  # characters
_VOCABULARY, _FEWEST = 9_000, 12
_WIDTH, _EPOCHS, _BATCH, _BLOCK = 128, 3, 384, 32
_TEMPERATURE, _PACE = 0.06, 0.02


class Pair(NamedTuple):
    """What a docstring says, and what the code below it says, as counts of stems."""

    said: Counter[str]
    code: Counter[str]


class Rows(NamedTuple):
    """Counts as a sparse matrix: of row i the columns and values from ends[i] to ends[i + 1]."""

    ends: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: Floats

    def of(self, rows: NDArray[np.int64]) -> "Rows":
        sizes = self.ends[rows + 1] - self.ends[rows]
        ends = np.concatenate([[0], np.cumsum(sizes)])
        spans = zip(self.ends[rows].tolist(), self.ends[rows + 1].tolist(), strict=True)
        at = np.array([place for first, last in spans for place in range(first, last)], np.int64)
        return Rows(ends, self.columns[at], self.values[at])

    def times(self, vectors: Floats) -> Floats:
        padded = np.concatenate(
            [vectors[self.columns] * self.values[:, None], np.zeros((1, vectors.shape[1]), np.float32)]
        )
        sums = np.add.reduceat(padded, self.ends[:-1])
        sums[np.diff(self.ends) == 0] = 0
        return sums

    def slope(self, rows: Floats) -> tuple[NDArray[np.int64], Floats]:
        """What a slope of `times` is for the columns that it used, each once."""
        each = np.repeat(rows, np.diff(self.ends), axis=0) * self.values[:, None]
        order = np.argsort(self.columns, kind="stable")
        used, first = np.unique(self.columns[order], return_index=True)
        return used, np.add.reduceat(each[order], first)


def pairs_of(archive: zipfile.ZipFile, chance: random.Random) -> list[Pair]:
    """The pairs of a package; those of a file stay together."""
    names = [name for name in archive.namelist() if name.endswith(".py") and "/test" not in name]
    chance.shuffle(names)
    found: list[Pair] = []
    for name in names[:_FILES]:
        try:
            source = archive.read(name).decode()
            here = list(_pairs(source, ast.parse(source)))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        chance.shuffle(here)
        found += here[:_OF_FILE]
    return found[:_PAIRS]


def _pairs(source: str, tree: ast.Module) -> Iterator[Pair]:
    lines = source.split("\n")
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        doc = ast.get_docstring(node)
        said = question(docstrings.first_sentence(doc)).stems if doc else ()
        body = node.body[0]
        if len(said) < 3 or body.end_lineno is None:
            continue
        code = "\n".join([*lines[node.lineno - 1 : body.lineno - 1], *lines[body.end_lineno : node.end_lineno]])
        stems = words.terms(f"{node.name} {node.name} {code[:_CODE]}").split()
        yield Pair(Counter(said), Counter(stems))


def _rows(counts: Sequence[Counter[str]], column: dict[str, int]) -> Rows:
    ends, columns, values = [0], list[int](), list[float]()
    for one in counts:
        known = [(column[word], 1 + math.log(count)) for word, count in one.items() if word in column]
        columns += [at for at, _ in known]
        values += [value for _, value in known]
        ends.append(len(columns))
    return Rows(np.array(ends), np.array(columns), np.array(values, np.float32))


def learn(packages: Sequence[Sequence[Pair]]) -> tuple[list[str], Floats]:
    """The stems and their vectors."""
    pairs = [pair for package in packages for pair in package]
    frequency = Counter(word for pair in pairs for word in {*pair.said, *pair.code})
    vocabulary = [
        word
        for word, count in frequency.most_common(_VOCABULARY)
        if count >= _FEWEST and len(word) > 1 and not word.isdigit()
    ]
    column = {word: at for at, word in enumerate(vocabulary)}
    said, code = _rows([pair.said for pair in pairs], column), _rows([pair.code for pair in pairs], column)
    chance = np.random.default_rng(0)
    rarity = np.array([math.log(1 + len(pairs) / frequency[word]) for word in vocabulary], np.float32)
    vectors = _start(vocabulary) * rarity[:, None]
    mean, square = np.zeros_like(vectors), np.zeros_like(vectors)
    steps = _EPOCHS * len(pairs) // _BATCH + 50
    step = 0
    for epoch in range(_EPOCHS):
        total = 0.0
        batches = _batches(packages, chance)
        for batch in batches:
            step += 1
            loss, used, slope = _slope(said.of(batch), code.of(batch), vectors)
            mean[used] = 0.9 * mean[used] + 0.1 * slope
            square[used] = 0.99 * square[used] + 0.01 * slope * slope
            pace = _PACE * max(1 - step / steps, 0.01)
            vectors[used] -= pace * mean[used] / (np.sqrt(square[used]) + 1e-7)
            total += loss
        print(f"round {epoch + 1}: loss {total / len(batches):.3f}", flush=True)
    return vocabulary, vectors


def _start(vocabulary: Sequence[str]) -> Floats:
    """What wordllama, which was learned from prose, knows about the words."""
    spec = importlib.util.find_spec("wordllama")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("this needs the extra `embedding`, for wordllama's vectors")
    wheel = spec.submodule_search_locations[0]
    safetensors: Any = import_module("safetensors.numpy")
    (weights,) = safetensors.load_file(f"{wheel}/weights/l2_supercat_256.safetensors").values()
    tokenizer: Any = import_module("tokenizers").Tokenizer.from_file(
        f"{wheel}/tokenizers/l2_supercat_tokenizer_config.json"
    )
    pieces: list[list[int]] = [tokenizer.encode(word, add_special_tokens=False).ids for word in vocabulary]
    sums: Floats = np.stack([weights[one].astype(np.float32).sum(axis=0) for one in pieces])
    unit = _unit(sums)[0]
    centred = unit - unit.mean(axis=0)
    axes: Floats = np.linalg.svd(centred, full_matrices=False)[2]
    return centred @ axes[:_WIDTH].T


def _batches(packages: Sequence[Sequence[Pair]], chance: np.random.Generator) -> list[NDArray[np.int64]]:
    """Blocks of neighbours, put together with others': the code beside it is the hardest to tell apart."""
    blocks: list[NDArray[np.int64]] = []
    start = 0
    for package in packages:
        shift = int(chance.integers(_BLOCK)) - _BLOCK
        here = np.arange(start, start + len(package))
        cut = [here[max(at, 0) : at + _BLOCK] for at in range(shift, len(package), _BLOCK)]
        blocks += [block for block in cut if len(block) > 4]
        start += len(package)
    order = [blocks[int(at)] for at in chance.permutation(len(blocks)).tolist()]
    together = _BATCH // _BLOCK
    return [np.concatenate(order[at : at + together]) for at in range(0, len(order), together)]


def _slope(said: Rows, code: Rows, vectors: Floats) -> tuple[float, NDArray[np.int64], Floats]:
    one, one_length = _unit(said.times(vectors))
    other, other_length = _unit(code.times(vectors))
    near = one @ other.T / _TEMPERATURE
    by_row = np.exp(near - near.max(axis=1, keepdims=True))
    by_row /= by_row.sum(axis=1, keepdims=True)
    by_column = np.exp(near - near.max(axis=0, keepdims=True))
    by_column /= by_column.sum(axis=0, keepdims=True)
    size = len(near)
    wrong = (by_row + by_column - 2 * np.eye(size, dtype=np.float32)) / (2 * size * _TEMPERATURE)
    to_one, to_other = wrong @ other, wrong.T @ one
    to_one = (to_one - (to_one * one).sum(axis=1, keepdims=True) * one) / one_length
    to_other = (to_other - (to_other * other).sum(axis=1, keepdims=True) * other) / other_length
    slope = np.zeros_like(vectors)
    for rows, towards in ((said, to_one), (code, to_other)):
        used, sums = rows.slope(towards)
        slope[used] += sums
    used = np.unique(np.concatenate([said.columns, code.columns]))
    return float(-np.log(np.diag(by_row) + 1e-9).mean()), used, slope[used]


def _unit(rows: Floats) -> tuple[Floats, Floats]:
    length = np.sqrt((rows * rows).sum(axis=1, keepdims=True)) + np.float32(1e-6)
    return rows / length, length


def main() -> None:
    argparse.ArgumentParser(prog="python -m benchmarks.retrieval.meaning", description=__doc__).parse_args()
    warnings.simplefilter("ignore", SyntaxWarning)
    chance = random.Random(0)
    packages: list[list[Pair]] = []
    for requirement in _LIST.read_text().split():
        with zipfile.ZipFile(docstrings.wheel(requirement)) as archive:
            packages.append(pairs_of(archive, chance))
    print(f"{len(packages)} packages, {sum(map(len, packages)):,} pairs", flush=True)
    vocabulary, vectors = learn(packages)
    scales = np.abs(vectors).max(axis=1) / 127
    np.savez_compressed(
        _TARGET,
        words=np.frombuffer("\n".join(vocabulary).encode(), np.uint8),
        vectors=np.rint(vectors / scales[:, None]).astype(np.int8),
        scales=scales.astype(np.float16),
    )
    print(f"written: {_TARGET}, {len(vocabulary):,} words, {_TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
