"""Word vectors, so that a query finds code that uses other words. Optional: it needs numpy.

The vectors of `meaning.npz` were learned from docstrings and the code below them (benchmarks/retrieval/meaning.py), so
that descriptions lie near the code that they describe. The vector of a text is the sum of those of its words;
identifiers are split and stemmed first, as everywhere in the index.
"""

import importlib.util
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import chain, pairwise, repeat
from typing import TYPE_CHECKING, Protocol

from ...errors import InvalidArgument

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Nearness = dict[int, tuple[float, float, list[float]]]  # of each file: its names', its own and its chunks' cosines
_SCALE = 400.0  # scales a unit vector to int8; no component exceeds 0.32 in 128 dimensions
_TEXTS_AT_ONCE = 64  # of 200 words: half a kilobyte of memory for each word


class Embedding(Protocol):
    """Makes the vectors of files, and compares them with a query."""

    setting: str  # its name in the configuration, and that of its weights in weights.json
    name: str  # its name in an index: another name means other vectors

    def of_file(self, names: str, chunks: Sequence[str]) -> bytes:
        """The vectors of a file, given the terms of its names and of its chunks."""
        ...

    def nearness(self, stems: Sequence[str], files: Mapping[int, bytes]) -> Nearness:
        """For each file the cosines with its names, with all of it, and with each chunk."""
        ...


def load(setting: str) -> Embedding | None:
    """The embedding that `rag.embedding` names; `auto` uses what is installed."""
    return _words() if is_wanted(setting) else None


def is_wanted(setting: str) -> bool:
    """Whether the setting names an embedding that can be used; rejects one that can't."""
    if setting == "none":
        return False
    if setting not in ("auto", WordVectors.setting):
        raise InvalidArgument(f"unknown embedding: {setting}", hint=f"Use auto, none or {WordVectors.setting}.")
    if importlib.util.find_spec("numpy") is not None:
        return True
    if setting == "auto":
        return False
    raise InvalidArgument("this embedding needs numpy", hint="Install llmc-mcp[embedding], or use auto.")


@cache
def _words() -> "WordVectors":
    return WordVectors()


class WordVectors:
    """Sums of word vectors."""

    setting = "words"
    name = "words-3"

    def __init__(self) -> None:
        from importlib.resources import files as package_files  # servers check settings here, and load nothing

        # The products here are small: more threads would only wait for each other, each with buffers of its own.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        import numpy as np

        with package_files("llmc_mcp.rag.store").joinpath("meaning.npz").open("rb") as file, np.load(file) as data:
            self._vectors: NDArray[np.float32] = data["vectors"].astype(np.float32) * data["scales"][:, None]
            self._row = {word: row for row, word in enumerate(bytes(data["words"]).decode().split())}

    def of_file(self, names: str, chunks: Sequence[str]) -> bytes:
        import numpy as np

        each = self._sums([names, *chunks])
        mean = each[1:].sum(axis=0) if len(each) > 1 else each[0]
        rows = _unit(np.concatenate([each[:1], mean[None, :], each[1:]]))
        return np.clip(np.rint(rows * _SCALE), -127, 127).astype(np.int8).tobytes()

    def nearness(self, stems: Sequence[str], files: Mapping[int, bytes]) -> Nearness:
        import numpy as np

        if not files:
            return {}
        width = self._vectors.shape[1]
        rows = np.frombuffer(b"".join(files.values()), np.int8).reshape(-1, width)
        cosines: list[float] = (rows.astype(np.float32) @ self._sum(stems) / _SCALE).tolist()
        found: Nearness = {}
        at = 0
        for file, blob in files.items():
            end = at + len(blob) // width
            found[file] = cosines[at], cosines[at + 1], cosines[at + 2 : end]
            at = end
        return found

    def _sum(self, terms: Iterable[str]) -> "NDArray[np.float32]":
        """The direction of some words."""
        return self._sums([" ".join(terms)])[0]

    def _sums(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        """The direction of the words of each text; repeated words count logarithmically more.

        Many texts at once: a call of numpy takes longer than what it computes for one of them.
        """
        import numpy as np

        sums, size = np.zeros((len(texts), self._vectors.shape[1]), np.float32), len(self._vectors)
        for first in range(0, len(texts), _TEXTS_AT_ONCE):
            each = [text.split() for text in texts[first : first + _TEXTS_AT_ONCE]]
            found = map(self._row.get, chain.from_iterable(each), repeat(-1))
            lengths = [len(terms) for terms in each]
            words = np.fromiter(found, np.int64, sum(lengths))
            places = np.repeat(np.arange(first, first + len(each)) * size, lengths) + words
            keys, counts = np.unique(places[words >= 0], return_counts=True)
            vectors = self._vectors.take(keys % size, axis=0)
            weights = (1 + np.log(counts)).astype(np.float32)
            ends = np.searchsorted(keys, np.arange(first, first + len(each) + 1) * size).tolist()
            for place, (begin, end) in enumerate(pairwise(ends), first):
                sums[place] = weights[begin:end] @ vectors[begin:end]
        return _unit(sums)


def _unit(vectors: "NDArray[np.float32]") -> "NDArray[np.float32]":
    import numpy as np

    length = np.sqrt((vectors * vectors).sum(axis=-1, keepdims=True))
    return vectors / np.maximum(length, 1e-9)
