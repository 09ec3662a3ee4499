"""The features of each search candidate, which the ranker weighs.

Field scores are BM25's, divided by the total weight of the question's words, so that long and short questions are
comparable. The weights are not defined here.
"""

import math
from collections.abc import Collection, Mapping
from itertools import islice
from typing import NamedTuple, Protocol

import msgspec
import tantivy

from ..parse import words
from ..parse.question import Question
from .embed import Embedding, Nearness
from .fields import FieldQueries, FieldQuery, TextState, rarest, total_of
from .paths import path_kind, path_match, stem_precision


class ChunkFeatures(NamedTuple):
    """How well one chunk fits a question."""

    text: float = 0.0  # score of its text
    name: float = 0.0  # … of the names in it
    phrase: float = 0.0  # share of the question's adjacent words that are adjacent in it
    defines: float = 0.0  # names of the question that it defines
    prose: float = 0.0  # score of its text for the rest of a task,
    code: float = 0.0  # and for the code in it
    meaning: float = 0.0  # cosine of its vector with the question's


class FileFeatures(NamedTuple):
    """How well one file fits a question."""

    text: float  # of its best chunk
    name: float
    phrase: float
    file_text: float  # score of the whole file's text
    file_path: float
    stem_recall: float  # how much of the question the file's name holds
    stem_precision: float  # how much of the file's name the question holds, by rarity
    folder_recall: float
    defines: float  # names of the question that it defines, by rarity
    defines_first: float  # … and whether the first of them is among these
    defines_exactly: float  # … written in the same way, as a type or by their owner
    place: float  # whether the question holds its path
    test: float
    aside: float  # an example, a benchmark, legacy or vendored code
    barrel: float  # only re-exports
    listing: float  # a lock file, a manifest, a catalog of messages
    plain: float  # defines nothing
    size: float
    depth: float
    prose: float = 0.0  # the same for the rest of a task: of its best chunk
    code: float = 0.0  # … for the code in it
    file_all: float = 0.0  # for all words of the task, by how often it says them
    stem_rest: float = 0.0  # how much of the file's name the rest holds
    prose_defines: float = 0.0  # names of the rest that it defines
    code_defines: float = 0.0
    frame: float = 0.0  # the innermost frame of a traceback that is in it
    meaning: float = 0.0  # cosine of the question with its best chunk,
    file_meaning: float = 0.0  # with the mean of its chunks
    name_meaning: float = 0.0  # and with its names


CHUNK_FEATURES = ChunkFeatures._fields
FILE_FEATURES = FileFeatures._fields

_CHUNKS = 150  # candidates per query over chunks
_FILES = 100  # … over files
_TASK_HEAD = 60  # candidates per query of a task, which has more queries
_MOST_OF_TASK = 80  # candidates of a task
_CRUDE_TEST = 1.5  # what a test loses when these are chosen
_PAIRS = 12  # adjacent words of a question that are searched as phrases
_TERMS = 40  # of a title; the rarest
_REST_TERMS = 30  # of the rest of a task
_ALL_TERMS = 50  # of a task
_REST = 0.3  # weight of the words of a task outside its title, when a definition is chosen
_HIGHEST = 2.0  # of a score that is divided by it,
_MOST_OF = {"defines_first": 1.0, "place": 1.0}  # and of others
_LARGE = 20  # the binary logarithm of the size of a large file


class Candidates(msgspec.Struct):
    """The candidates for a question and their features; those of chunks are made for the few files that are shown."""

    files: dict[int, FileFeatures]
    paths: Mapping[int, str]
    columns: Mapping[str, Mapping[tuple[int, int], float]]  # by the names of CHUNK_FEATURES
    near: Nearness
    weights: dict[str, float]  # the question's terms by their rarity
    unknown: list[str]  # its words that no file holds

    @property
    def chunk_count(self) -> int:
        """How many chunks match."""
        return len(set[tuple[int, int]]().union(*self.columns.values()))

    def chunks_of(self, file: int) -> dict[int, ChunkFeatures]:
        """The features of a file's chunks that match."""
        text, name, phrase, defines, prose, code = (self.columns[name] for name in CHUNK_FEATURES[:-1])
        each = self.near[file][2] if file in self.near else ()
        found = dict.fromkeys(place for column in self.columns.values() for place in column if place[0] == file)
        return {
            place[1]: ChunkFeatures(
                text.get(place, 0.0),
                name.get(place, 0.0),
                phrase.get(place, 0.0),
                defines.get(place, 0.0),
                prose.get(place, 0.0),
                code.get(place, 0.0),
                each[place[1]] if place[1] < len(each) else 0.0,
            )
            for place in found
        }


class FeatureStore(Protocol):
    """See rank.Lookup."""

    def paths(self, files: Collection[int]) -> Mapping[int, str]: ...

    def vectors(self, files: Collection[int]) -> Mapping[int, bytes]: ...


def look_up(
    searcher: tantivy.Searcher,
    schema: tantivy.Schema,
    store: FeatureStore,
    question: Question,
    *,
    scope: str,
    files: Collection[int] | None = None,
    embedding: Embedding | None = None,
    state: TextState | None = None,
) -> Candidates:
    """Query every field and collect the features of each candidate."""
    if question.is_path:
        scope = "both"  # whoever names a document wants that
    fields = FieldQueries(searcher, schema, scope, files, is_task=question.is_task, state=state)
    asked = _Asked(question, fields)
    of_chunks, of_files = _chunk_queries(fields, asked), _file_queries(fields, asked)
    found = fields.search([*of_chunks.values(), *of_files.values()])
    by_chunk = fields.chunk_scores(dict(zip(of_chunks, found, strict=False)))
    by_file = {name: fields.file_scores(hits) for name, hits in zip(of_files, found[len(of_chunks) :], strict=True)}
    by_file["frame"] = fields.frames([path for path, _ in question.frames])
    paths = _candidates(fields, store, asked, by_chunk, by_file)
    facts = fields.facts(paths)
    near: Nearness = {}
    if embedding is not None and not question.symbol and not question.is_task:
        near = embedding.nearness(question.stems, store.vectors(paths))
    columns = _columns(asked, by_chunk, paths)
    rows = _known_features(asked, columns, by_file, paths)
    made = {
        file: _file_features(rows[file], path, asked, facts.get(file, (0, 0)), near.get(file, _FAR))
        for file, path in paths.items()
    }
    return Candidates(made, paths, columns, near, asked.weights(), asked.unknown)


class _Asked:
    """The terms of a question, each with its weight in this index."""

    def __init__(self, question: Question, fields: FieldQueries) -> None:
        self.question, self.rarity = question, fields.rarity
        stems = tuple(dict.fromkeys([*question.stems, *fields.joined(question.plain)]))
        wholes = tuple(dict.fromkeys([*question.wholes, *fields.known_wholes(question.plain)]))
        idf = fields.idf(stems, wholes)
        self.idf = rarest(idf, _TERMS) if question.is_task else idf
        self.total = total_of(self.idf)
        self.stems = tuple(term for term in stems if term in self.idf)
        self.wholes = tuple(term for term in wholes if term in self.idf)
        self.prose, self.prose_total = fields.weigh(question.prose, _REST_TERMS)
        self.code, self.code_total = fields.weigh(question.code, _REST_TERMS)
        self.rest = {**self.code, **self.prose}
        self.all, self.all_total = fields.weigh(question.everything(), _ALL_TERMS)
        self.defines = fields.definers(question.names)
        self.first = fields.definers(question.names[:1])
        self.exactly = fields.exact_definers(question.names)
        self.prose_defines = fields.definers(question.prose_names)
        self.code_defines = fields.definers(question.code_names)
        known = (fields.is_known(word) or fields.is_known(words.stem(word)) for word in question.plain)
        self.totals = {
            **dict.fromkeys(("text", "name", "file_text", "file_path"), self.total),
            "prose": self.prose_total,
            "code": self.code_total,
            "file_all": self.all_total,
        }
        self.paths = question.places if question.is_path else ()
        self.unknown = [word for word, is_known in zip(question.plain, known, strict=True) if not is_known]

    def weights(self) -> dict[str, float]:
        """All terms by their rarity; the rest of a task counts a third."""
        rest = {term: _REST * weight * self.rarity(term) for term, weight in self.all.items()}
        return {**rest, **self.idf}


def _file_queries(fields: FieldQueries, asked: _Asked) -> dict[str, FieldQuery]:
    """For each feature of files that is a query of its own, that query."""
    return {
        "file_text": fields.files("file_text", dict.fromkeys(asked.stems, 1.0)),
        "file_path": fields.files("file_path", dict.fromkeys([*asked.stems, *asked.wholes], 1.0)),
        "defines": fields.files("file_defines", asked.defines, flat=True),
        "defines_first": fields.files("file_defines", asked.first, flat=True),
        "defines_exactly": fields.files("file_defines", asked.exactly, flat=True),
        "place": fields.files("file_place", fields.places(asked.question.places), flat=True),
        "file_all": fields.files("file_text", asked.all),
        "prose_defines": fields.files("file_defines", asked.prose_defines, flat=True),
        "code_defines": fields.files("file_defines", asked.code_defines, flat=True),
    }


def _known_features(
    asked: _Asked,
    columns: Mapping[str, dict[tuple[int, int], float]],
    by_file: Mapping[str, Mapping[int, float]],
    files: Collection[int],
) -> dict[int, list[float]]:
    """The features of each file, of which only those that queries have found are set."""
    rows = {file: [0.0] * len(FILE_FEATURES) for file in files}
    for name in columns.keys() - {name for name, found in by_file.items() if found}:
        at, column = FILE_FEATURES.index(name), columns[name]
        for (file, _), value in reversed(column.items()):  # the best chunk of a file comes first
            rows[file][at] = value
    for name, found in by_file.items():
        at, total, most = FILE_FEATURES.index(name), asked.totals.get(name, 1.0), _MOST_OF.get(name, _HIGHEST)
        for file, score in found.items():
            if file in rows:
                rows[file][at] = min(score / total, most)
    return rows


_STEM, _PLACE, _KIND = (FILE_FEATURES.index(name) for name in ("stem_recall", "place", "test"))
_STEM_REST, _MEANING = FILE_FEATURES.index("stem_rest"), FILE_FEATURES.index("meaning")


def _file_features(
    row: list[float], path: str, asked: _Asked, facts: tuple[int, int], near: tuple[float, float, list[float]]
) -> FileFeatures:
    """All features of a file, given those that queries have found."""
    kind, question = path_kind(path), asked.question
    size, code = facts
    names, mean, each = near
    row[_STEM : _STEM + 3] = path_match(path, asked.idf, asked.total, asked.rarity)
    if asked.paths and path.lower() in asked.paths:
        row[_PLACE] = 1.0
    row[_KIND : _KIND + 7] = (
        0.0 if question.wants_tests else kind.test,
        0.0 if question.wants_aside else kind.aside,
        float(kind.barrel and code == 0),
        kind.listing,
        float(code == 0),
        math.log2(1 + size) / _LARGE,
        kind.depth,
    )
    if asked.rest:
        row[_STEM_REST] = stem_precision(path, asked.rest, asked.rarity)
    row[_MEANING : _MEANING + 3] = max(each, default=0.0), mean, names
    return FileFeatures._make(row)


_FAR: tuple[float, float, list[float]] = (0.0, 0.0, [])


def _candidates(
    fields: FieldQueries,
    store: FeatureStore,
    asked: _Asked,
    by_chunk: Mapping[str, Mapping[tuple[int, int], float]],
    by_file: Mapping[str, Mapping[int, float]],
) -> Mapping[int, str]:
    """The files that are first in some list, with their paths; of a task's, which has many lists, the best ones.

    The lists are longer than that, so that a candidate which is far down in one still has its score there.
    """
    most_chunks, most_files = (_TASK_HEAD, _TASK_HEAD) if asked.question.is_task else (_CHUNKS, _FILES)
    heads = [file for found in by_chunk.values() for file, _ in islice(found, most_chunks)]
    heads += [file for found in by_file.values() for file in islice(found, most_files)]
    paths = fields.paths(dict.fromkeys(heads), store.paths)
    if len(paths) <= _MOST_OF_TASK or not asked.question.is_task:
        return paths
    crude = {file: -_CRUDE_TEST * path_kind(path).test for file, path in paths.items()}
    for name, found in by_file.items():
        for file in found.keys() & crude.keys():
            crude[file] += found[file] / asked.totals.get(name, 1.0)
    for name, places in by_chunk.items():
        last_first = list(places.items())[::-1]
        best_chunks = {file: score for (file, _), score in last_first}  # the first of a file is its best
        for file in best_chunks.keys() & crude.keys():
            crude[file] += best_chunks[file] / asked.totals.get(name, 1.0)
    best = sorted(crude, key=lambda file: -crude[file])[:_MOST_OF_TASK]
    return {file: paths[file] for file in best}


def _chunk_queries(fields: FieldQueries, asked: _Asked) -> dict[str, FieldQuery]:
    """For each feature of chunks, the query that finds them."""
    pairs = [pair for pair in asked.question.pairs if pair[0] in asked.idf and pair[1] in asked.idf]
    return {
        "text": fields.texts(dict.fromkeys(asked.stems, 1.0), dict.fromkeys(asked.wholes, 1.0)),
        "name": fields.chunks("name", dict.fromkeys([*asked.stems, *asked.wholes], 1.0)),
        "phrase": fields.phrases(pairs[:_PAIRS], asked.idf),
        "defines": fields.chunks("defines", asked.defines, flat=True),
        "prose": fields.texts(asked.prose, asked.prose),
        "code": fields.texts(asked.code, asked.code),
    }


def _columns(
    asked: _Asked, by_chunk: Mapping[str, Mapping[tuple[int, int], float]], files: Collection[int]
) -> dict[str, dict[tuple[int, int], float]]:
    """The features of the candidates' chunks, one by one, the best chunks first."""
    made: dict[str, dict[tuple[int, int], float]] = {}
    for name, found in by_chunk.items():
        total = asked.totals.get(name, 1.0)
        made[name] = {at: min(score / total, _HIGHEST) for at, score in found.items() if at[0] in files}
    return made
