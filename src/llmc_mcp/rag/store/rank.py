"""The searchable documents of a file, and the ranking of search results.

Every chunk and every file is a tantivy document with fields of its own, so that the subject of a whole file is not
drowned out by its many chunks. A query searches each field; a linear ranker with learned weights (weights.json) sums
the features of a file, and a second one picks the chunk. A query that is a single name has weights of its own.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from operator import mul
from typing import Protocol

import msgspec
import tantivy

from ..parse import words
from ..parse.question import Question
from ..parse.scopes import CLASSES, FUNCTIONS
from ..parse.types import ParsedFile
from . import neighbours
from .embed import Embedding, FileTexts
from .features import CHUNK_FEATURES, FILE_FEATURES, look_up
from .fields import TextState, whole_files
from .paths import scope_of
from .types import DEFINITION_FEATURES, QuestionTerms, RankedChunks, Scope, ScoredChunk

BEST_CHUNKS = 8  # of a file, that are told with the first of them

Fields = dict[str, list[str | int]]  # a tantivy document that can travel between processes


class Lookup(Protocol):
    """What ranking needs from the store of an index."""

    def paths(self, files: Collection[int]) -> Mapping[int, str]:
        """The paths of these files, relative to the root."""
        ...

    def vectors(self, files: Collection[int]) -> Mapping[int, bytes]:
        """The vectors of these files."""
        ...

    def imports(self, files: Collection[int]) -> Mapping[int, Sequence[int]]:
        """What these files import; see parse/imports.py."""
        ...


class Weights(msgspec.Struct, frozen=True):
    """A learned weight for each feature."""

    file: dict[str, float]
    chunk: dict[str, float]
    definition: dict[str, float] = {}
    imported: float = 0.0  # of what `neighbours` adds to a task's files


# --- documents -------------------------------------------------------------------------------------


def schema() -> tantivy.Schema:
    """The fields: `file` and `chunk` name a document, and `key` does both; the others hold terms of `words`.

    `size`, `code` and `imports` are of a whole file: its bytes, how many functions and types it defines, and hashes.
    """
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("file", indexed=True, fast=True)
    builder.add_unsigned_field("key", indexed=True)
    for name in ("chunk", "size", "code"):
        builder.add_unsigned_field(name, fast=True)
    builder.add_text_field("scope", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("text", tokenizer_name="whitespace", index_option="position")
    for name in ("whole", "name", "file_text", "file_path"):
        builder.add_text_field(name, tokenizer_name="whitespace", index_option="freq")
    for name in ("defines", "file_defines", "file_place"):
        builder.add_text_field(name, tokenizer_name="whitespace", index_option="basic")
    builder.add_unsigned_field("imports", stored=True)
    return builder.build()


SCHEMA = schema()
_WHOLE = (1 << 24) - 1  # in the place of a chunk, for the document of a file; files have fewer chunks
_DIGEST = 8  # bytes


def documents(file: int, parsed: ParsedFile, source: bytes) -> list[Fields]:
    """The documents of one file: one for each chunk, then one for the file."""
    scope = scope_of(parsed.path, parsed.language)
    names, defines = _names(parsed)
    made: list[Fields] = []
    texts: list[str] = []
    for at, chunk in enumerate(parsed.chunks):
        text, whole = words.take_apart(source[chunk.span.start : chunk.span.end].decode(errors="replace"))
        texts.append(text)
        fields: Fields = {"file": [file], "chunk": [at], "key": [_key(file, at)], "scope": [scope], "text": [text]}
        if whole:
            fields["whole"] = [whole]
        if names[at]:
            fields["name"] = [words.terms(" ".join(dict.fromkeys(names[at])))]
        if defines[at]:
            fields["defines"] = [" ".join(dict.fromkeys(defines[at]))]
        made.append(fields)
    defined = dict.fromkeys(name for chunk in defines for name in chunk)
    path = words.terms(parsed.path.rpartition(".")[0] or parsed.path)
    made.append(
        {
            "file": [file],
            "key": [_key(file, _WHOLE)],
            "size": [len(source)],
            "code": [sum(one.kind in CLASSES or one.kind in FUNCTIONS for one in parsed.definitions)],
            "imports": [*parsed.imports],
            "scope": [f"file:{scope}"],
            "file_text": [" ".join(texts)],
            "file_path": [path],
            "file_defines": [" ".join(defined)],
            "file_place": [" ".join(words.places(parsed.path))],
        }
    )
    return made


def _key(file: int, at: int) -> int:
    return file << 24 | at


def digests(made: Sequence[Fields]) -> list[bytes]:
    """What tells whether the document of a chunk would say the same, for each chunk."""
    return [
        hashlib.blake2b(
            "\0".join([str(values[0]) for field, values in chunk.items() if field not in ("file", "chunk", "key")])
            .encode("utf-8", "replace"),
            digest_size=_DIGEST,
        ).digest()
        for chunk in made[:-1]
    ]  # fmt: skip


def split_digests(joined: bytes) -> list[bytes]:
    """The digests of a file, which are stored one after another."""
    return [joined[at : at + _DIGEST] for at in range(0, len(joined), _DIGEST)]


def vectors(made: Sequence[Fields], embedding: Embedding) -> bytes:
    """The vectors of a file, from its documents."""
    return embedding.of_files([texts(made, [None] * (len(made) - 1))])[0]


def texts(made: Sequence[Fields], known: Sequence[bytes | None]) -> FileTexts:
    """What the vectors of a file are made of, from its documents; those of some chunks may be `known`."""
    *chunks, whole = made
    names = " ".join(str(chunk.get("name", [""])[0]) for chunk in chunks)
    path = str(whole["file_path"][0])
    return FileTexts(f"{path} {path} {path} {names}", [str(chunk["text"][0]) for chunk in chunks], known)


def _names(parsed: ParsedFile) -> tuple[list[list[str]], list[list[str]]]:
    """For each chunk, the names of its enclosing definition and its own; and, as terms, the names that it defines."""
    starts = [chunk.span.start for chunk in parsed.chunks]
    names: list[list[str]] = [[] for _ in starts]
    defines: list[list[str]] = [[] for _ in starts]
    for at, chunk in enumerate(parsed.chunks):
        if chunk.definition >= 0:
            names[at].append(parsed.definitions[chunk.definition].qualname)
    for one in parsed.definitions:
        at = max(bisect_right(starts, one.span.start) - 1, 0)
        if starts and (terms := words.definition_terms(one.name, one.qualname, is_type=one.kind in CLASSES)):
            names[at].append(one.name)
            defines[at] += terms
    return names, defines


def delete(writer: tantivy.IndexWriter, file: int) -> None:
    """Remove all documents of a file; by query, because deleting by the term of an unsigned field deletes nothing."""
    writer.delete_documents_by_query(tantivy.Query.term_query(SCHEMA, "file", file))


def delete_but(writer: tantivy.IndexWriter, file: int, chunks: int, kept: Collection[int]) -> None:
    """Remove the documents of a file with so many chunks, but for those of some."""
    keys = [_key(file, at) for at in (*range(chunks), _WHOLE) if at not in kept]
    # No query for a set of terms: to make one takes fifty times as long.
    terms = [(tantivy.Occur.Should, tantivy.Query.term_query(SCHEMA, "key", key)) for key in keys]
    writer.delete_documents_by_query(tantivy.Query.boolean_query(terms))


def imports_of(searcher: tantivy.Searcher, files: Collection[int]) -> dict[int, list[int]]:
    """What files import, from their documents."""
    query = tantivy.Query.boolean_query(
        [
            (tantivy.Occur.Must, tantivy.Query.term_set_query(SCHEMA, "file", list(files))),
            (tantivy.Occur.Must, whole_files(SCHEMA)),
        ]
    )
    hits = [address for _, address in searcher.search(query, max(len(files), 1), count=False).hits]
    numbers = searcher.fast_field_values("file", hits)
    stored = (searcher.doc(address).get_all("imports") for address in hits)
    return {int(file or 0): list(found) for file, found in zip(numbers, stored, strict=True)}


# --- searching -------------------------------------------------------------------------------------


def search(
    searcher: tantivy.Searcher,
    lookup: Lookup,
    question: Question,
    *,
    scope: Scope = "repo",
    files: Collection[int] | None = None,
    limit: int = 10,
    embedding: Embedding | None = None,
    state: TextState | None = None,
) -> RankedChunks:
    """The best chunks for a query; `files` restricts it to those files, `embedding` made the index's vectors.

    `state` is what earlier questions to this searcher have learned.
    """
    if not question.words and not question.names and not question.places:
        return RankedChunks([], 0)
    candidates = look_up(
        searcher,
        SCHEMA,
        lookup,
        question,
        scope=scope,
        files=files,
        embedding=embedding,
        state=state,
    )
    weights = weights_for(question, embedding)
    by_file = [weights.file.get(name, 0.0) for name in FILE_FEATURES]
    by_chunk = [weights.chunk.get(name, 0.0) for name in CHUNK_FEATURES]
    file_scores = {file: _dot(by_file, vector) for file, vector in candidates.files.items()}
    if weights.imported:
        linked = neighbours.links(candidates.paths, lookup.imports(candidates.files))
        found = neighbours.imported(file_scores, linked)
        file_scores = neighbours.raised(file_scores, found, weights.imported)
    best = sorted(file_scores, key=lambda file: (-file_scores[file], file))[:limit]
    chunk_scores = {
        file: {chunk: _dot(by_chunk, vector) for chunk, vector in candidates.chunks_of(file).items()} for file in best
    }
    by_definition = [weights.definition.get(name, 0.0) for name in DEFINITION_FEATURES]
    terms = QuestionTerms(candidates.weights, candidates.unknown, by_definition)
    return RankedChunks(in_order(file_scores, chunk_scores, limit), candidates.chunk_count, terms)


def in_order(
    file_scores: Mapping[int, float], chunk_scores: Mapping[int, Mapping[int, float]], limit: int
) -> list[ScoredChunk]:
    """The best chunk of each of these files, which come best first; then the second of each, and so on."""
    by_file: dict[int, list[tuple[float, int]]] = {}
    for file, scores in chunk_scores.items():
        places = sorted((-score, chunk) for chunk, score in scores.items())
        by_file[file] = places or [(0.0, 0)]  # only the file as a whole matches: show its beginning
    made: list[ScoredChunk] = []
    nth = 0
    while len(made) < limit and (row := [file for file in by_file if len(by_file[file]) > nth]):
        made += [
            ScoredChunk(file, by_file[file][nth][1], file_scores[file], {} if nth else _best(by_file[file]))
            for file in row[: limit - len(made)]
        ]
        nth += 1
    return made


def _best(places: Sequence[tuple[float, int]]) -> dict[int, float]:
    return {chunk: -score for score, chunk in places[:BEST_CHUNKS]}


def weights_for(question: Question, embedding: Embedding | None) -> Weights:
    """The weights for a query: names have their own, and so has each embedding."""
    kind = "none" if embedding is None else embedding.setting
    if question.symbol or question.is_path:
        kind = "name"
    elif question.is_task:
        kind = "task"
    return _weights()[kind]


@cache
def _weights() -> dict[str, Weights]:
    from importlib.resources import files as package_files  # the process that only writes needs no weights

    data = package_files("llmc_mcp.rag.store").joinpath("weights.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, Weights])


def _dot(weights: Sequence[float], vector: Sequence[float]) -> float:
    return sum(map(mul, weights, vector))
