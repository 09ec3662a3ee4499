"""The text of search hits, read from the files as they are now and never from the index."""

import hashlib
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...errors import LlmcError
from ...files import names
from ...files.filesystem import Filesystem, Place, Root
from ..store.tables import File, IndexTables
from ..store.types import ScoredChunk
from . import snippets
from .globs import Glob

_CHECK_EVERY = 500  # paths compared with a glob between two checks for cancellation


class LoadedHit(NamedTuple):
    """A hit with its text; `nth` counts the hits of one file."""

    path: bytes
    score: float
    nth: int
    piece: snippets.Piece
    symbol: str | None
    kind: str | None


class HitSource:
    """The files of one root, each compared with what the index knows of it."""

    def __init__(self, files: Filesystem, root: Root) -> None:
        self._files, self._root = files, root

    def load(
        self, reader: IndexTables, ranked: Sequence[ScoredChunk], limit: int, generation: int
    ) -> tuple[list[LoadedHit], list[bytes]]:
        """The first `limit` hits with their text, and the files that are not as they were indexed."""
        sources: dict[int, tuple[File, bytes] | None] = {}
        hits: list[LoadedHit] = []
        changed: list[bytes] = []
        nth: dict[int, int] = {}
        for one in ranked:
            if len(hits) >= limit:
                break
            if one.file not in sources:
                sources[one.file] = self.read(reader, one.file, changed, generation)
            loaded = sources[one.file]
            if loaded is None or one.chunk >= len(loaded[0].chunks):
                continue
            file, source = loaded
            chunk = file.chunks[one.chunk]
            symbol, kind = reader.definition(file.id, chunk.definition) if chunk.definition >= 0 else ("", "")
            piece = snippets.piece_of(source, chunk.span.start, chunk.span.end, chunk.span.first_line)
            nth[file.id] = nth.get(file.id, -1) + 1
            hits.append(LoadedHit(file.path, one.score, nth[file.id], piece, symbol or None, kind or None))
        return hits, changed

    def read(
        self, reader: IndexTables, file: int, changed: list[bytes], generation: int | None = None
    ) -> tuple[File, bytes] | None:
        """A file whose content is what was indexed; the path of any other is added to `changed`.

        So is that of a file indexed after the `generation` that a search has seen: its chunks have changed.
        """
        indexed = reader.file(file)
        if indexed is None:
            return None
        if generation is not None and indexed.generation > generation:
            changed.append(indexed.path)
            return None
        try:
            fd, info = self._files.open_file(Place(self._root, indexed.path, names.show(indexed.path)))
        except LlmcError:
            changed.append(indexed.path)
            return None
        with os.fdopen(fd, "rb", buffering=0) as opened:
            # A file of another size is not read: it may be huge by now, and nothing else bounds this read.
            source = (opened.read(indexed.size + 1) or b"") if info.st_size == indexed.size else None
        if source is None or hashlib.sha256(source).digest() != indexed.sha256:
            changed.append(indexed.path)
            return None
        return indexed, source


def matching_files(reader: IndexTables, glob: str | None, check: Callable[[], None]) -> list[int] | None:
    """The files whose paths match; None, meaning all, without a glob."""
    if glob is None:
        return None
    pattern = Glob(glob)
    matching: list[int] = []
    for number, (file, path) in enumerate(reader.all_paths()):
        if number % _CHECK_EVERY == 0:
            check()
        if pattern.fits(os.fsdecode(path)):
            matching.append(file)
    return matching
