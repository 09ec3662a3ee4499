"""What the index holds of a file for searching, and how the answers to a question are ordered.

Every chunk and every file is a tantivy document of its own with fields of its own, so that a word's weight in a file
is not drowned by the many chunks. A question is asked of each field; a linear ranker with learned weights
(weights.json) adds up what the fields, the path and the names say about a file, and a second one picks the chunk.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from importlib.resources import files as package_files
from typing import Literal, Protocol

import msgspec
import tantivy

from llmc_mcp.rag import words
from llmc_mcp.rag.types import Parsed

Place = tuple[int, int]  # a chunk: its file, and where it stands in the file's list of chunks
Scope = Literal["repo", "docs", "both"]

_CHUNKS = 200  # candidates asked for by each query over chunks
_FILES = 150  # by each query over files
_DOCS = frozenset({"markdown", "rst", "asciidoc", "org", "tex", "html"})
_DOC_NAMES = frozenset({"md", "mdx", "markdown", "rst", "txt", "adoc", "asciidoc", "org", "tex", "textile", "rdoc"})
_TYPES = frozenset({"class", "struct", "interface", "trait", "enum", "type", "module", "object", "protocol", "record"})


class Lookup(Protocol):
    """What ranking asks the index's store for."""

    def paths(self, files: Collection[int]) -> Mapping[int, str]:
        """Where these files lie, below the root."""
        ...

    def vectors(self, chunks: Sequence[Place]) -> Mapping[Place, bytes]:
        """The stored vectors of these chunks, each named by its file and its place in the file's list."""
        ...


class Scored(msgspec.Struct, frozen=True):
    """A chunk that may answer the question, named by its file and its place in the file's list of chunks."""

    file: int
    chunk: int
    score: float  # only comparable within one answer


class Found(msgspec.Struct, frozen=True):
    """An answer's chunks, best first: one of each file, then the files' next ones."""

    chunks: list[Scored]
    candidates: int


def schema() -> tantivy.Schema:
    """The fields: `file` and `chunk` name a document; the others hold terms of `words`, separated by spaces."""
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("file", indexed=True, fast=True)
    builder.add_unsigned_field("chunk", fast=True)
    builder.add_text_field("scope", tokenizer_name="raw", index_option="basic")
    for name in ("text", "name", "file_text", "file_name", "file_path"):
        builder.add_text_field(name, tokenizer_name="whitespace", index_option="freq")
    for name in ("defines", "file_defines"):
        builder.add_text_field(name, tokenizer_name="whitespace", index_option="basic")
    return builder.build()


def scope_of(path: str, language: str) -> Literal["repo", "docs"]:
    """Whether a file is documentation."""
    return "docs" if language in _DOCS or path.rpartition(".")[2].lower() in _DOC_NAMES else "repo"


def documents(file: int, parsed: Parsed, source: bytes) -> list[tantivy.Document]:
    """The documents of one file: one for each chunk, then one for the file."""
    scope = scope_of(parsed.path, parsed.language)
    names: list[list[str]] = [[] for _ in parsed.chunks]
    for at, chunk in enumerate(parsed.chunks):
        if chunk.definition >= 0:
            names[at].append(parsed.definitions[chunk.definition].qualname)
    starts = [chunk.span.start for chunk in parsed.chunks]
    defines: list[list[str]] = [[] for _ in parsed.chunks]
    for one in parsed.definitions:
        at = _place(starts, one.span.start)
        if 0 <= at < len(defines):
            names[at].append(one.name)
            defines[at].append(_defined(one.name, one.kind))
    made: list[tantivy.Document] = []
    whole: list[str] = []
    for at, chunk in enumerate(parsed.chunks):
        text = words.terms(source[chunk.span.start : chunk.span.end].decode(errors="replace"))
        whole.append(text)
        document = tantivy.Document()
        document.add_unsigned("file", file)
        document.add_unsigned("chunk", at)
        document.add_text("scope", scope)
        document.add_text("text", text)
        document.add_text("name", words.terms(" ".join(dict.fromkeys(names[at]))))
        document.add_text("defines", " ".join(defines[at]))
        made.append(document)
    document = tantivy.Document()
    document.add_unsigned("file", file)
    document.add_text("scope", scope)
    document.add_text("file_text", " ".join(whole))
    document.add_text("file_name", words.terms(" ".join(one.name for one in parsed.definitions)))
    document.add_text("file_path", words.terms(parsed.path.rpartition(".")[0] or parsed.path))
    document.add_text("file_defines", " ".join(_defined(one.name, one.kind) for one in parsed.definitions))
    made.append(document)
    return made


def delete(writer: tantivy.IndexWriter, file: int) -> None:
    """Removes all documents of a file."""
    writer.delete_documents_by_term("file", file)


def search(
    searcher: tantivy.Searcher,
    lookup: Lookup,
    text: str,
    *,
    scope: Scope = "repo",
    files: Collection[int] | None = None,
    limit: int = 10,
) -> Found:
    """The best chunks for a question; `files` restricts it to those files."""
    asked = words.question(text)
    if not asked.words:
        return Found([], 0)
    seen = look_up(searcher, lookup, asked, scope, files)
    weights = _weights()
    file_scores = {file: _dot(weights.file, vector) for file, vector in seen.files.items()}
    chunk_scores = {place: _dot(weights.chunk, vector) for place, vector in seen.chunks.items()}
    return Found(_in_order(seen, file_scores, chunk_scores, limit), len(seen.chunks))


class Weights(msgspec.Struct, frozen=True):
    """What has been learned: one weight for each feature, in the order of FILE and CHUNK."""

    file: list[float]
    chunk: list[float]


class Seen(msgspec.Struct):
    """The candidates for a question and their features."""

    files: dict[int, list[float]]
    chunks: dict[Place, list[float]]


CHUNK = ("text", "name", "defines")
FILE = (
    "text",  # the best chunk's
    "name",
    "file_text",
    "file_name",
    "file_path",
    "stem_recall",  # how much of the question the file's name has
    "stem_precision",  # how much of the file's name the question has
    "folder_recall",
    "defines",
    "defines_type",
    "is_name",
    "test",
    "example",
    "barrel",
    "stub",
    "depth",
)


def look_up(
    searcher: tantivy.Searcher,
    lookup: Lookup,
    asked: words.Question,
    scope: Scope,
    files: Collection[int] | None = None,
) -> Seen:
    """Asks every field, and puts together what is known about each candidate."""
    ask = _Ask(searcher, scope, files)
    idf = ask.idf(asked.words)
    total = sum(idf.values()) or 1.0
    of_chunk = {name: ask.chunks(name, asked.words, _CHUNKS) for name in ("text", "name")}
    of_file = {name: ask.files(name, asked.words, _FILES) for name in ("file_text", "file_name", "file_path")}
    whole = [words.name_term(words.last_name(name)) for name in asked.names]
    of_chunk["defines"] = ask.chunks("defines", whole, _CHUNKS, flat=True)
    of_file["defines"] = ask.files("file_defines", whole, _FILES, flat=True)
    of_file["defines_type"] = ask.files("file_defines", [f"type:{one}" for one in whole], _FILES, flat=True)
    places = dict.fromkeys(place for found in of_chunk.values() for place in found)
    chunks = {place: [of_chunk[name].get(place, 0.0) / total for name in ("text", "name")] for place in places}
    for place, vector in chunks.items():
        vector.append(of_chunk["defines"].get(place, 0.0))
    best: dict[int, list[float]] = {}
    for (file, _), vector in chunks.items():
        old = best.setdefault(file, [0.0, 0.0])
        old[0], old[1] = max(old[0], vector[0]), max(old[1], vector[1])
    candidates = dict.fromkeys([*best, *(file for found in of_file.values() for file in found)])
    paths = lookup.paths(candidates)
    made: dict[int, list[float]] = {}
    for file in candidates:
        if file not in paths:
            continue
        vector = list(best.get(file, (0.0, 0.0)))
        vector += [of_file[name].get(file, 0.0) / total for name in ("file_text", "file_name", "file_path")]
        vector += path_match(paths[file], idf, total)
        vector += [min(of_file[name].get(file, 0.0), 2.0) for name in ("defines", "defines_type")]
        vector += path_kind(paths[file], whole)
        made[file] = vector
    return Seen(made, {place: vector for place, vector in chunks.items() if place[0] in made})


def path_match(path: str, idf: Mapping[str, float], total: float) -> list[float]:
    """How well a file's name and its folder's fit the question."""
    stem, folder = _path_words(path)
    return [
        sum(idf.get(word, 0.0) for word in stem) / total,
        sum(word in idf for word in stem) / (len(stem) or 1),
        sum(idf.get(word, 0.0) for word in folder - stem) / total,
    ]


def path_kind(path: str, names: Sequence[str]) -> list[float]:
    """What a path alone says about a file."""
    low = "/" + path.lower()
    name = low.rpartition("/")[2]
    stem = name.partition(".")[0]
    return [
        float(words.name_term(path.rpartition("/")[2].partition(".")[0]) in names),
        float(bool(_TEST.search(low))),
        float(bool(_EXAMPLE.search(low))),
        float(stem in _BARREL or name in _BARREL),
        float(name.endswith((".d.ts", ".pyi"))),
        min(path.count("/"), 8) / 8,
    ]


_TEST = re.compile(r"/(tests?|__tests__|specs?|testing|testdata|fixtures?)/|/(test_|conftest)|[._-](test|spec)s?\.\w+$")
_EXAMPLE = re.compile(r"/(_?examples?|samples?|demos?|docs?|docs?_src|benchmarks?|vendor|third_party|legacy|compat)/")
_BARREL = frozenset({"__init__", "index", "mod", "package-info", "exports", "doc"})


@lru_cache(50_000)
def _path_words(path: str) -> tuple[frozenset[str], frozenset[str]]:
    """The words of a file's own name and those of the folder it lies in."""
    folder, _, name = path.rpartition("/")
    stem = name.partition(".")[0] or name
    return frozenset(words.index_words(stem).split()), frozenset(words.terms(folder.rpartition("/")[2]).split())


class _Ask:
    """One question's queries against one state of the index."""

    def __init__(self, searcher: tantivy.Searcher, scope: Scope, files: Collection[int] | None) -> None:
        self._searcher = searcher
        self._filters: list[tantivy.Query] = []
        if scope != "both":
            self._filters.append(tantivy.Query.term_query(SCHEMA, "scope", scope, "basic"))
        if files is not None:
            self._filters.append(tantivy.Query.term_set_query(SCHEMA, "file", list(files)))

    def idf(self, terms: Sequence[str]) -> dict[str, float]:
        """How rare each word is among the files."""
        total = max(self._searcher.num_docs, 1)
        frequency = {term: self._searcher.doc_freq("file_text", term) for term in terms}
        total = max([total, *frequency.values()])
        return {term: math.log(1 + (total - n + 0.5) / (n + 0.5)) for term, n in frequency.items()}

    def chunks(self, field: str, terms: Sequence[str], limit: int, *, flat: bool = False) -> dict[Place, float]:
        hits = self._hits(field, terms, limit, flat)
        addresses = [address for _, address in hits]
        files = self._searcher.fast_field_values("file", addresses)
        chunks = self._searcher.fast_field_values("chunk", addresses)
        return {(int(f or 0), int(c or 0)): score for (score, _), f, c in zip(hits, files, chunks, strict=True)}

    def files(self, field: str, terms: Sequence[str], limit: int, *, flat: bool = False) -> dict[int, float]:
        hits = self._hits(field, terms, limit, flat)
        files = self._searcher.fast_field_values("file", [address for _, address in hits])
        return {int(file or 0): score for (score, _), file in zip(hits, files, strict=True)}

    def _hits(self, field: str, terms: Sequence[str], limit: int, flat: bool) -> list[tuple[float, tantivy.DocAddress]]:
        if not terms:
            return []
        option = "basic" if flat else "freq"
        parts = [tantivy.Query.term_query(SCHEMA, field, term, option) for term in terms]
        if flat:
            parts = [tantivy.Query.const_score_query(part, 1.0) for part in parts]
        query = tantivy.Query.boolean_query([(tantivy.Occur.Should, part) for part in parts])
        if self._filters:
            required = [tantivy.Query.const_score_query(one, 0.0) for one in self._filters]
            query = tantivy.Query.boolean_query([(tantivy.Occur.Must, one) for one in (query, *required)])
        return self._searcher.search(query, limit, count=False).hits


def _in_order(
    seen: Seen,
    file_scores: Mapping[int, float],
    chunk_scores: Mapping[Place, float],
    limit: int,
) -> list[Scored]:
    """The best chunk of each file by the files' scores, then the second of each, and so on."""
    by_file: dict[int, list[tuple[float, int]]] = {}
    for (file, chunk), score in chunk_scores.items():
        by_file.setdefault(file, []).append((-score, chunk))
    for places in by_file.values():
        places.sort()
    order = sorted(seen.files, key=lambda file: (-file_scores[file], file))
    made: list[Scored] = []
    nth = 0
    while len(made) < limit:
        row = [file for file in order if len(by_file.get(file, [(0.0, 0)])) > nth]
        if not row:
            break
        for file in row[: limit - len(made)]:
            made.append(Scored(file, by_file.get(file, [(0.0, 0)])[nth][1], file_scores[file]))
        nth += 1
    return made


@cache
def _weights() -> Weights:
    return msgspec.json.decode(package_files("llmc_mcp.rag").joinpath("weights.json").read_bytes(), type=Weights)


def _dot(weights: Sequence[float], vector: Iterable[float]) -> float:
    return sum(weight * value for weight, value in zip(weights, vector, strict=True))


def _place(starts: list[int], start: int) -> int:
    """The chunk in which a byte lies."""
    return bisect_right(starts, start) - 1


def _defined(name: str, kind: str) -> str:
    whole = words.name_term(name)
    return f"{whole} type:{whole}" if kind in _TYPES else whole


SCHEMA = schema()
