"""Indexes in memory, made by the very functions that make the ones on the disk; and the metrics."""

import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import tantivy

from llmc_mcp.rag.parse import file
from llmc_mcp.rag.parse.types import ParsedFile
from llmc_mcp.rag.store import rank
from llmc_mcp.rag.store.embed import Embedding

_HEAP = 64 << 20
_LARGEST = 1 << 20


class Source(NamedTuple):
    """A file to index."""

    path: str
    data: bytes


class Corpus:
    """An index of some files; it is the `Lookup` of its own searches."""

    def __init__(self, sources: Iterable[Source], embedding: Embedding | None) -> None:
        self.files: list[ParsedFile] = []
        self.sources: list[Source] = []
        self._vectors: dict[int, bytes] = {}
        index = tantivy.Index(rank.SCHEMA)
        writer = index.writer(_HEAP, 1)
        for number, source in enumerate(sources):
            parsed = file.look(source.path, source.data)
            documents = rank.documents(number, parsed, source.data)
            for fields in documents:
                writer.add_document(tantivy.Document.from_dict(fields, rank.SCHEMA))  # pyright: ignore[reportUnknownMemberType]
            if embedding is not None and parsed.chunks:
                self._vectors[number] = rank.vectors(documents, embedding)
            self.files.append(parsed)
            self.sources.append(source)
        writer.commit()
        writer.wait_merging_threads()
        index.reload()
        self.searcher = index.searcher()

    def paths(self, files: Collection[int]) -> Mapping[int, str]:
        return {file: self.files[file].path for file in files}

    def vectors(self, files: Collection[int]) -> Mapping[int, bytes]:
        return {file: self._vectors[file] for file in files if file in self._vectors}

    def imports(self, files: Collection[int]) -> Mapping[int, Sequence[int]]:
        return {file: self.files[file].imports for file in files}

    def covers(self, file: int, chunk: int, first: int, last: int) -> bool:
        """Whether a chunk holds some of these lines."""
        span = self.files[file].chunks[chunk].span
        return span.first_line <= last and span.last_line >= first


def read_tree(root: Path) -> list[Source]:
    """The text files below a folder, hidden ones left out."""
    found: list[Source] = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "node_modules")
        for name in sorted(names):
            path = Path(folder, name)
            if name.startswith(".") or path.is_symlink() or not path.is_file() or path.stat().st_size > _LARGEST:
                continue
            data = path.read_bytes()
            if b"\0" not in data[:8192]:
                found.append(Source(str(path.relative_to(root)), data))
    return found


def ndcg(ranks: Sequence[int | None], targets: int) -> float:
    """NDCG@10 of one question: `ranks` holds each target's rank, counted from 1; None for one that was not found."""
    ideal = sum(1 / math.log2(place + 2) for place in range(min(targets, 10)))
    return sum(1 / math.log2(rank + 1) for rank in ranks if rank is not None and rank <= 10) / ideal


def reciprocal(rank: int | None) -> float:
    """The reciprocal rank within the first ten."""
    return 1 / rank if rank is not None and rank <= 10 else 0.0
