"""The text of search hits, read from the files as they are now and never from the index."""

import hashlib
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from ...errors import LlmcError
from ...files import names, revisions
from ...files.filesystem import Filesystem, Place, Root
from ..parse.question import Question
from ..parse.text import as_utf8
from ..parse.types import Chunk, Definition
from ..store.tables import File, IndexTables
from ..store.types import RankedChunks, ScoredChunk
from . import passages, snippets
from .globs import Glob
from .types import RankedDefinition

_LARGEST_WHOLE = 4_000  # bytes of a definition that is shown instead of the chunk
_SHOWN = 3  # definitions of one file that are shown, if they are nearly as good as the best one
_NEARLY = 1.0  # of a definition's score
_SMALL = 500  # bytes of such a definition
_DEFINITIONS = 8  # of one file that are told
_CHECK_EVERY = 500  # paths compared with a glob between two checks for cancellation


class LoadedHit(NamedTuple):
    """A hit with its text; `nth` counts the hits of one file."""

    path: bytes
    score: float
    nth: int
    piece: snippets.Piece
    symbol: str | None
    kind: str | None
    definitions: Sequence[RankedDefinition]
    revision: str


class PendingHits(Protocol):
    """Files of the index that are known to have changed."""

    def __contains__(self, file: int) -> bool:
        """Whether a file is one of them."""
        ...

    def hit(self, file: int, symbol: str = "", kind: str = "") -> LoadedHit | None:
        """What matches in it as it is now; the definition that the index has found in it, if that is still there."""
        ...


class HitSource:
    """The files of one root, each compared with what the index knows of it."""

    def __init__(self, files: Filesystem, root: Root) -> None:
        self._files, self._root = files, root

    def load(
        self,
        reader: IndexTables,
        ranked: RankedChunks,
        question: Question,
        limit: int,
        generation: int,
        pending: PendingHits | None = None,
    ) -> tuple[list[LoadedHit], list[bytes]]:
        """The first `limit` hits with their text, and the files that are not as they were indexed.

        A file that is known to have changed keeps the rank that it had, if it still has something to show.
        """
        sources: dict[int, tuple[File, bytes] | None] = {}
        hits: list[LoadedHit] = []
        changed: list[bytes] = []
        nth: dict[int, int] = {}
        for one in ranked.chunks:
            if len(hits) >= limit:
                break
            if pending is not None and one.file in pending:
                if one.file not in sources:
                    sources[one.file] = None
                    hit = pending.hit(one.file, *_definition_of(reader, reader.file(one.file), one.chunk))
                    if hit is not None:
                        hits.append(hit._replace(score=one.score))
                continue
            if one.file not in sources:
                sources[one.file] = self.read(reader, one.file, changed, generation)
            loaded = sources[one.file]
            if loaded is None or one.chunk >= len(loaded[0].chunks):
                continue
            file, source = loaded
            nth[file.id] = nth.get(file.id, -1) + 1
            if one.best:
                shown = _best_definition(reader, file, source, one, ranked, question)
            else:
                shown = _Shown(_piece(source, file.chunks[one.chunk]), *_definition_of(reader, file, one.chunk))
            hits.append(
                LoadedHit(
                    path=file.path,
                    score=one.score,
                    nth=nth[file.id],
                    piece=shown.piece,
                    symbol=shown.symbol or None,
                    kind=shown.kind or None,
                    definitions=shown.definitions,
                    revision=file.sha256.hex()[: revisions.LENGTH],
                )
            )
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
        return indexed, as_utf8(source) or b""


def _definition_of(reader: IndexTables, file: File | None, chunk: int) -> tuple[str, str]:
    """The qualified name and the kind of the definition that a chunk belongs to; empty if there is none."""
    if file is None or chunk >= len(file.chunks) or file.chunks[chunk].definition < 0:
        return "", ""
    return reader.definition(file.id, file.chunks[chunk].definition)


class _Shown(NamedTuple):
    """What is shown of a file."""

    piece: snippets.Piece
    symbol: str
    kind: str
    definitions: Sequence[RankedDefinition] = ()


def _best_definition(
    reader: IndexTables, file: File, source: bytes, one: ScoredChunk, ranked: RankedChunks, question: Question
) -> _Shown:
    """The definition of a file that answers best, whole if it isn't too large; else the chunk, below its head."""
    definitions = reader.stored_outline(file.id)
    chunk = file.chunks[one.chunk]
    found = passages.ranked(source, definitions, file.chunks, one.best, question, ranked.terms)
    told = [_told(definitions[place], score + one.score) for place, score in found[:_DEFINITIONS]]
    if not found or not passages.is_code(definitions, chunk):
        at = chunk.definition
        named = (definitions.qualname(at), definitions.kind(at)) if at >= 0 else ("", "")
        return _Shown(_piece(source, chunk), *named, told)
    best = definitions[found[0].definition]
    if best.span.end - best.span.start <= _LARGEST_WHOLE:
        piece = _with_small_ones(source, [definitions[one.definition] for one in _close(found)])
    else:
        inside = passages.best_chunk(best, file.chunks, one.best)
        piece = _below_its_head(source, best, file.chunks[inside])
    return _Shown(piece, best.qualname, best.kind, told)


def _close(found: list[passages.Passage]) -> list[passages.Passage]:
    """The best definition, and those that are nearly as good."""
    return [one for one in found[:_SHOWN] if one.score > found[0].score - _NEARLY]


def _with_small_ones(source: bytes, definitions: list[Definition]) -> snippets.Piece:
    """The first definition, and the small ones among the others, in the order of the file."""
    best, *others = definitions
    small = [one for one in others if one.span.end - one.span.start <= _SMALL and not _overlap(one, best)]
    numbers: list[int] = []
    lines: list[str] = []
    for one in sorted([best, *small], key=lambda one: one.span.start):
        piece = snippets.piece_of(source, one.span.start, one.span.end, one.span.first_line)
        if not numbers or piece.numbers[0] > numbers[-1]:
            numbers += piece.numbers
            lines += piece.lines
    return snippets.Piece(numbers, lines)


def _overlap(one: Definition, other: Definition) -> bool:
    return one.span.first_line <= other.span.last_line and one.span.last_line >= other.span.first_line


def _told(one: Definition, score: float) -> RankedDefinition:
    return RankedDefinition(one.qualname, one.kind, one.span.first_line, one.span.last_line, score)


def _piece(source: bytes, chunk: Chunk) -> snippets.Piece:
    return snippets.piece_of(source, chunk.span.start, chunk.span.end, chunk.span.first_line)


def _below_its_head(source: bytes, definition: Definition, chunk: Chunk) -> snippets.Piece:
    """A chunk of a large definition, and the line that says what it is a part of."""
    piece = _piece(source, chunk)
    first = definition.span.first_line
    if chunk.span.first_line <= first:
        return piece
    head = snippets.piece_of(source, definition.span.start, definition.span.end, first)
    name = definition.name
    at = next((at for at, line in enumerate(head.lines) if name in line), 0)
    return snippets.Piece([first + at, *piece.numbers], [head.lines[at], *piece.lines])


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
