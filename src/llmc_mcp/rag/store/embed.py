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
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ...errors import InvalidArgument

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Nearness = dict[int, tuple[float, float, list[float]]]  # of each file: its names', its own and its chunks' cosines
_SCALE = 400.0  # scales a unit vector to int8; no component exceeds 0.32 in 128 dimensions
_TEXTS_AT_ONCE = 64  # of 200 words: half a kilobyte of memory for each word


class FileTexts(NamedTuple):
    """The terms of a file's names and of its chunks; the vectors of some chunks may be known."""

    names: str
    chunks: Sequence[str]
    known: Sequence[bytes | None]


class Embedding(Protocol):
    """Makes the vectors of files, and compares them with a query."""

    setting: str  # its name in the configuration, and that of its weights in weights.json
    name: str  # its name in an index: another name means other vectors

    def of_files(self, files: Sequence[FileTexts]) -> list[bytes]:
        """The vectors of each file."""
        ...

    def split(self, vectors: bytes) -> list[bytes]:
        """The vectors of a file, one by one: its names', its own and its chunks'."""
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

    def of_files(self, files: Sequence[FileTexts]) -> list[bytes]:
        texts: list[str] = []
        for one in files:
            texts.append(one.names)
            texts += [text for text, vector in zip(one.chunks, one.known, strict=True) if vector is None]
        made = iter(self.split(_packed(self._sums(texts)).tobytes()))
        owns: list[bytes] = []
        chunks: list[bytes] = []
        for one in files:
            owns.append(next(made))
            chunks.append(b"".join([next(made) if vector is None else vector for vector in one.known]))
        wholes = self._wholes([each or own for own, each in zip(owns, chunks, strict=True)])
        return [b"".join(parts) for parts in zip(owns, wholes, chunks, strict=True)]

    def _wholes(self, files: Sequence[bytes]) -> list[bytes]:
        """The vector of each file: the mean of those of its chunks, as they are stored: known ones count alike."""
        import numpy as np

        width = self._vectors.shape[1]
        rows = np.frombuffer(b"".join(files), np.int8).reshape(-1, width).astype(np.float32)
        ends = np.cumsum([0, *(len(one) // width for one in files)])
        return self.split(_packed(_unit(np.add.reduceat(rows, ends[:-1], axis=0))).tobytes()) if files else []

    def split(self, vectors: bytes) -> list[bytes]:
        width = self._vectors.shape[1]
        return [vectors[at : at + width] for at in range(0, len(vectors), width)]

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


def _packed(vectors: "NDArray[np.float32]") -> "NDArray[np.int8]":
    import numpy as np

    return np.clip(np.rint(vectors * _SCALE), -127, 127).astype(np.int8)


def _unit(vectors: "NDArray[np.float32]") -> "NDArray[np.float32]":
    import numpy as np

    length = np.sqrt((vectors * vectors).sum(axis=-1, keepdims=True))
    return vectors / np.maximum(length, 1e-9)
