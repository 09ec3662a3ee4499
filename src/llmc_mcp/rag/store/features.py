"""The features of each search candidate, which the ranker weighs.

Field scores are BM25's, divided by the total weight of the question's words, so that long and short questions are
comparable. The weights are not defined here.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

import msgspec
import tantivy

from ..parse import words
from .embed import Embedding


class ChunkFeatures(NamedTuple):
    """How well one chunk fits a question."""

    text: float = 0.0  # score of its text
    name: float = 0.0  # … of the names in it
    phrase: float = 0.0  # share of the question's adjacent words that are adjacent in it
    defines: float = 0.0  # names of the question that it defines
    meaning: float = 0.0  # cosine of its vector with the question's


class FileFeatures(NamedTuple):
    """How well one file fits a question."""

    text: float  # of its best chunk
    name: float
    phrase: float
    file_text: float  # score of the whole file's text
    file_path: float
    stem_recall: float  # how much of the question the file's name holds
    stem_precision: float  # how much of the file's name the question holds
    folder_recall: float
    defines: float  # names of the question that it defines
    defines_first: float  # … and whether the first of them is among these
    test: float
    aside: float  # an example, a benchmark, legacy or vendored code
    barrel: float  # only re-exports
    depth: float
    meaning: float = 0.0  # cosine of the question with its best chunk,
    file_meaning: float = 0.0  # with the mean of its chunks
    name_meaning: float = 0.0  # and with its names


CHUNK_FEATURES = ChunkFeatures._fields
FILE_FEATURES = FileFeatures._fields

_CHUNKS = 150  # candidates per query over chunks
_FILES = 100  # … over files
_PAIRS = 12  # adjacent words of a question that are searched as phrases
_DEEP = 8

_TEST = re.compile(
    r"/(tests?|__tests__|specs?|testing|testdata|fixtures?)/|/(test_|tests?\.|conftest)|(_|-|\.)(tests?|spec)\.\w+$"
)
_TEST_CLASS = re.compile(r"[a-z0-9](Tests?|Spec|Suite|TestCase)\.\w+$")
_ASIDE = re.compile(
    r"/(_?examples?|samples?|demos?|docs?|docs?_src|bench(marks?)?|vendor(ed)?|third_party|_?legacy|_?compat"
    r"|deprecat\w*|generated)/"
)
_BARREL = frozenset({"__init__", "index", "mod", "package-info", "exports", "doc"})


class Candidates(msgspec.Struct):
    """The candidates for a question and their features."""

    files: dict[int, FileFeatures]
    chunks: dict[tuple[int, int], ChunkFeatures]


class FeatureStore(Protocol):
    """See rank.Lookup."""

    def paths(self, files: Collection[int]) -> Mapping[int, str]: ...

    def vectors(self, files: Collection[int]) -> Mapping[int, bytes]: ...


def look_up(
    searcher: tantivy.Searcher,
    schema: tantivy.Schema,
    store: FeatureStore,
    question: words.Question,
    *,
    scope: str,
    files: Collection[int] | None = None,
    embedding: Embedding | None = None,
) -> Candidates:
    """Query every field and collect the features of each candidate."""
    fields = _FieldQueries(searcher, schema, scope, files)
    stems = tuple(dict.fromkeys(question.stems))
    idf = fields.idf(stems, question.wholes)
    total = sum(idf.values()) or 1.0
    names = [words.name_term(words.last_name(name)) for name in question.names]
    chunks = _chunk_features(fields, question, names, idf, total)
    file_text = fields.files("file_text", stems)
    file_path = fields.files("file_path", question.words)
    file_defines = fields.files("file_defines", names, flat=True)
    first = fields.files("file_defines", names[:1], flat=True)
    paths = store.paths({**dict.fromkeys(place[0] for place in chunks), **file_text, **file_path, **file_defines})
    chunks = {place: vector for place, vector in chunks.items() if place[0] in paths}
    best = _best_of_each_file(chunks)
    made: dict[int, FileFeatures] = {}
    for file, path in paths.items():
        top = best.get(file, _NO_CHUNK)
        name_match, kind = path_match(path, idf, total), path_kind(path)
        made[file] = FileFeatures(
            text=top.text,
            name=top.name,
            phrase=top.phrase,
            file_text=file_text.get(file, 0.0) / total,
            file_path=file_path.get(file, 0.0) / total,
            stem_recall=name_match.stem_recall,
            stem_precision=name_match.stem_precision,
            folder_recall=name_match.folder_recall,
            defines=min(file_defines.get(file, 0.0), 2.0),
            defines_first=min(first.get(file, 0.0), 1.0),
            test=kind.test,
            aside=kind.aside,
            barrel=kind.barrel,
            depth=kind.depth,
        )
    if embedding is not None and not question.symbol:
        _add_meaning(embedding, question, store, made, chunks)
    return Candidates(made, chunks)


_NO_CHUNK = ChunkFeatures()


def _chunk_features(
    fields: "_FieldQueries", question: words.Question, names: Sequence[str], idf: Mapping[str, float], total: float
) -> dict[tuple[int, int], ChunkFeatures]:
    text = fields.texts(tuple(dict.fromkeys(question.stems)), question.wholes)
    name = fields.chunks("name", question.words)
    phrase = fields.phrases(question.pairs[:_PAIRS], idf)
    defines = fields.chunks("defines", names, flat=True)
    return {
        place: ChunkFeatures(
            text=text.get(place, 0.0) / total,
            name=name.get(place, 0.0) / total,
            phrase=phrase.get(place, 0.0),
            defines=min(defines.get(place, 0.0), 2.0),
        )
        for place in {**text, **name, **phrase, **defines}
    }


def _best_of_each_file(chunks: Mapping[tuple[int, int], ChunkFeatures]) -> dict[int, ChunkFeatures]:
    """The best value of each feature among a file's chunks."""
    best: dict[int, ChunkFeatures] = {}
    for (file, _), vector in chunks.items():
        old = best.get(file)
        best[file] = vector if old is None else ChunkFeatures(*map(max, old, vector))
    return best


def _add_meaning(
    embedding: Embedding,
    question: words.Question,
    store: FeatureStore,
    files: dict[int, FileFeatures],
    chunks: dict[tuple[int, int], ChunkFeatures],
) -> None:
    """Add the similarity of the candidates' vectors to the question's."""
    near = embedding.nearness(question.stems, store.vectors(files))
    for file, (names, mean, each) in near.items():
        files[file] = files[file]._replace(meaning=max(each, default=0.0), file_meaning=mean, name_meaning=names)
    for (file, chunk), features in chunks.items():
        if file in near and chunk < len(near[file][2]):
            chunks[file, chunk] = features._replace(meaning=near[file][2][chunk])


class PathMatch(NamedTuple):
    """How well a file's name and its folder's fit a question."""

    stem_recall: float
    stem_precision: float
    folder_recall: float


def path_match(path: str, idf: Mapping[str, float], total: float) -> PathMatch:
    """Compare a path with the words of a question, weighted by their rarity."""
    stem, folder = _path_words(path)
    return PathMatch(
        stem_recall=sum(idf.get(word, 0.0) for word in stem) / total,
        stem_precision=sum(word in idf for word in stem) / (len(stem) or 1),
        folder_recall=sum(idf.get(word, 0.0) for word in folder - stem) / total,
    )


class PathKind(NamedTuple):
    """What a path alone says about a file."""

    test: float
    aside: float
    barrel: float
    depth: float


@lru_cache(50_000)
def path_kind(path: str) -> PathKind:
    """Whether a path is that of a test, an aside or a barrel, and its depth."""
    low = "/" + path.lower()
    stem = low.rpartition("/")[2].partition(".")[0]
    return PathKind(
        test=float(bool(_TEST.search(low) or _TEST_CLASS.search(path))),
        aside=float(bool(_ASIDE.search(low)) or low.endswith((".d.ts", ".pyi"))),
        barrel=float(stem in _BARREL),
        depth=min(path.count("/"), _DEEP) / _DEEP,
    )


@lru_cache(50_000)
def _path_words(path: str) -> tuple[frozenset[str], frozenset[str]]:
    """The words of a file's own name and those of the folder it lies in."""
    folder, _, name = path.rpartition("/")
    stem = name.partition(".")[0] or name
    return frozenset(words.terms(stem).split()), frozenset(words.terms(folder.rpartition("/")[2]).split())


class _FieldQueries:
    """The queries of one question, against one state of the index."""

    def __init__(
        self, searcher: tantivy.Searcher, schema: tantivy.Schema, scope: str, files: Collection[int] | None
    ) -> None:
        self._searcher = searcher
        self._schema = schema
        self._of_chunks: list[tantivy.Query] = []
        self._of_files: list[tantivy.Query] = []
        if scope != "both":
            self._of_chunks.append(tantivy.Query.term_query(schema, "scope", scope, "basic"))
            self._of_files.append(tantivy.Query.term_query(schema, "scope", f"file:{scope}", "basic"))
        if files is not None:
            only = tantivy.Query.term_set_query(schema, "file", list(files))
            self._of_chunks.append(only)
            self._of_files.append(only)

    def idf(self, stems: Sequence[str], wholes: Sequence[str]) -> dict[str, float]:
        """How rare words are among the files, and identifiers among the chunks; nearly 0 for ubiquitous ones."""
        found: dict[str, float] = {}
        for field, terms, level in (("whole", wholes, ""), ("file_text", stems, "file:")):
            frequency = {term: self._searcher.doc_freq(field, term) for term in terms}
            count = sum(self._searcher.doc_freq("scope", f"{level}{scope}") for scope in ("repo", "docs"))
            total = max([count, *frequency.values()])
            found |= {term: math.log(1 + (total - n + 0.5) / (n + 0.5)) for term, n in frequency.items()}
        return found

    def texts(self, stems: Sequence[str], wholes: Sequence[str]) -> dict[tuple[int, int], float]:
        """The best chunks for words and identifiers in the text."""
        return self._places([*self._any("text", stems, flat=False), *self._any("whole", wholes, flat=False)])

    def chunks(self, field: str, terms: Sequence[str], *, flat: bool = False) -> dict[tuple[int, int], float]:
        """The best chunks for words in a field; `flat` only counts the words that occur."""
        return self._places(self._any(field, terms, flat=flat))

    def phrases(self, pairs: Sequence[tuple[str, str]], idf: Mapping[str, float]) -> dict[tuple[int, int], float]:
        """The weighted share of adjacent words that are adjacent in a chunk too."""
        weights = [min(idf[one], idf[other]) for one, other in pairs]
        total = sum(weights)
        if not total:
            return {}
        parts = [
            tantivy.Query.const_score_query(
                tantivy.Query.phrase_query(self._schema, "text", list(pair)), weight / total
            )
            for pair, weight in zip(pairs, weights, strict=True)
        ]
        return self._places(parts)

    def files(self, field: str, terms: Sequence[str], *, flat: bool = False) -> dict[int, float]:
        """The best files for words in a field."""
        hits = self._hits(self._any(field, terms, flat=flat), self._of_files, _FILES)
        files = self._searcher.fast_field_values("file", [address for _, address in hits])
        return {int(file or 0): score for (score, _), file in zip(hits, files, strict=True)}

    def _places(self, parts: list[tantivy.Query]) -> dict[tuple[int, int], float]:
        hits = self._hits(parts, self._of_chunks, _CHUNKS)
        addresses = [address for _, address in hits]
        files = self._searcher.fast_field_values("file", addresses)
        chunks = self._searcher.fast_field_values("chunk", addresses)
        return {(int(f or 0), int(c or 0)): score for (score, _), f, c in zip(hits, files, chunks, strict=True)}

    def _any(self, field: str, terms: Sequence[str], *, flat: bool) -> list[tantivy.Query]:
        if flat:
            parts = [tantivy.Query.term_query(self._schema, field, term, "basic") for term in terms]
            return [tantivy.Query.const_score_query(part, 1.0) for part in parts]
        return [tantivy.Query.term_query(self._schema, field, term, "freq") for term in terms]

    def _hits(
        self, parts: list[tantivy.Query], filters: list[tantivy.Query], limit: int
    ) -> list[tuple[float, tantivy.DocAddress]]:
        if not parts:
            return []
        query = tantivy.Query.boolean_query([(tantivy.Occur.Should, part) for part in parts])
        if filters:
            required = [tantivy.Query.const_score_query(one, 0.0) for one in filters]
            query = tantivy.Query.boolean_query([(tantivy.Occur.Must, one) for one in (query, *required)])
        return self._searcher.search(query, limit, count=False).hits
