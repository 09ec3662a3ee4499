"""What speaks for each candidate of a search: the features that the ranker weighs.

Scores of fields are BM25's, divided by what the question's words weigh together, so that long and short questions are
alike. Nothing here knows a weight.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Protocol

import msgspec
import tantivy

from ..parse import words
from .embed import Embedding

CHUNK_FEATURES = ("text", "name", "phrase", "defines", "meaning")
FILE_FEATURES = (
    "text",  # of its best chunk: how well the text fits
    "name",  # … and the names in it
    "phrase",  # … and how many neighbours of the question are neighbours there
    "file_text",  # the same of the whole file
    "file_path",
    "stem_recall",  # how much of the question the file's name holds
    "stem_precision",  # how much of the file's name the question holds
    "folder_recall",
    "defines",  # names of the question that it defines
    "defines_first",  # … and whether the first of them is among these
    "test",
    "aside",  # an example, a benchmark, something old or foreign
    "barrel",  # only passes on what others define
    "depth",
    "meaning",  # cosine of the question with its best chunk,
    "file_meaning",  # with the mean of its chunks
    "name_meaning",  # and with its names
)

_CHUNKS = 150  # candidates that a query over chunks brings
_FILES = 100  # … over files
_PAIRS = 12  # neighbours of a question that are looked for
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
    """The candidates for a question and their features, in the order of FILE_FEATURES and CHUNK_FEATURES."""

    files: dict[int, list[float]]
    chunks: dict[tuple[int, int], list[float]]


class FeatureStore(Protocol):
    """See rank.Lookup."""

    def paths(self, files: Collection[int]) -> Mapping[int, str]: ...

    def vectors(self, files: Collection[int]) -> Mapping[int, bytes]: ...


def look_up(
    searcher: tantivy.Searcher,
    schema: tantivy.Schema,
    store: FeatureStore,
    asked: words.Question,
    scope: str,
    files: Collection[int] | None = None,
    embedding: Embedding | None = None,
) -> Candidates:
    """Asks every field, and puts together what is known about each candidate."""
    ask = _Ask(searcher, schema, scope, files)
    stems = tuple(dict.fromkeys(asked.stems))
    idf = ask.idf(stems, asked.wholes)
    total = sum(idf.values()) or 1.0
    names = [words.name_term(words.last_name(name)) for name in asked.names]
    text = ask.texts(stems, asked.wholes)
    name = ask.chunks("name", asked.words)
    phrase = ask.phrases(asked.pairs[:_PAIRS], idf)
    defines = ask.chunks("defines", names, flat=True)
    chunks = {
        place: [
            text.get(place, 0.0) / total,
            name.get(place, 0.0) / total,
            phrase.get(place, 0.0),
            min(defines.get(place, 0.0), 2.0),
            0.0,
        ]
        for place in {**text, **name, **phrase, **defines}
    }
    file_text = ask.files("file_text", stems)
    file_path = ask.files("file_path", asked.words)
    file_defines = ask.files("file_defines", names, flat=True)
    first = ask.files("file_defines", names[:1], flat=True)
    candidates = {**dict.fromkeys(place[0] for place in chunks), **file_text, **file_path, **file_defines}
    paths = store.paths(candidates)
    chunks = {place: vector for place, vector in chunks.items() if place[0] in paths}
    best = _best_of_each_file(chunks)
    made: dict[int, list[float]] = {}
    for file, path in paths.items():
        top = best.get(file, _NOTHING)
        made[file] = [
            *top[:3],
            file_text.get(file, 0.0) / total,
            file_path.get(file, 0.0) / total,
            *path_match(path, idf, total),
            min(file_defines.get(file, 0.0), 2.0),
            min(first.get(file, 0.0), 1.0),
            *path_kind(path),
            0.0,
            0.0,
            0.0,
        ]
    if embedding is not None and not asked.symbol:
        _add_meaning(embedding, asked, store, made, chunks)
    return Candidates(made, chunks)


_NOTHING = [0.0] * len(CHUNK_FEATURES)


def _best_of_each_file(chunks: Mapping[tuple[int, int], list[float]]) -> dict[int, list[float]]:
    """The best value of each feature among a file's chunks."""
    best: dict[int, list[float]] = {}
    for (file, _), vector in chunks.items():
        old = best.get(file)
        best[file] = vector if old is None else list(map(max, old, vector))
    return best


def _add_meaning(
    embedding: Embedding,
    asked: words.Question,
    store: FeatureStore,
    files: dict[int, list[float]],
    chunks: dict[tuple[int, int], list[float]],
) -> None:
    """Put in how near the candidates' vectors are to the question's."""
    near = embedding.nearness(asked.stems, store.vectors(files))
    for file, (names, mean, each) in near.items():
        files[file][-3:] = max(each, default=0.0), mean, names
    for (file, chunk), features in chunks.items():
        if file in near and chunk < len(near[file][2]):
            features[-1] = near[file][2][chunk]


def path_match(path: str, idf: Mapping[str, float], total: float) -> list[float]:
    """How well a file's name and its folder's fit the question."""
    stem, folder = _path_words(path)
    return [
        sum(idf.get(word, 0.0) for word in stem) / total,
        sum(word in idf for word in stem) / (len(stem) or 1),
        sum(idf.get(word, 0.0) for word in folder - stem) / total,
    ]


@lru_cache(50_000)
def path_kind(path: str) -> tuple[float, ...]:
    """What a path alone says about a file."""
    low = "/" + path.lower()
    stem = low.rpartition("/")[2].partition(".")[0]
    return (
        float(bool(_TEST.search(low) or _TEST_CLASS.search(path))),
        float(bool(_ASIDE.search(low)) or low.endswith((".d.ts", ".pyi"))),
        float(stem in _BARREL),
        min(path.count("/"), _DEEP) / _DEEP,
    )


@lru_cache(50_000)
def _path_words(path: str) -> tuple[frozenset[str], frozenset[str]]:
    """The words of a file's own name and those of the folder it lies in."""
    folder, _, name = path.rpartition("/")
    stem = name.partition(".")[0] or name
    return frozenset(words.terms(stem).split()), frozenset(words.terms(folder.rpartition("/")[2]).split())


class _Ask:
    """One question's queries against one state of the index."""

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
        """How rare words are among the files, and identifiers among the chunks; nearly 0 for what is everywhere."""
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
        """The best chunks for words in a field; `flat` counts the words that are there."""
        return self._places(self._any(field, terms, flat=flat))

    def phrases(self, pairs: Sequence[tuple[str, str]], idf: Mapping[str, float]) -> dict[tuple[int, int], float]:
        """The share of neighbours, by their weight, that are neighbours in a chunk too."""
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
