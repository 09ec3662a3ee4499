"""The features of each search candidate, which the ranker weighs.

Field scores are BM25's, divided by the total weight of the question's words, so that long and short questions are
comparable. The weights are not defined here.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import NamedTuple, Protocol

import msgspec
import tantivy

from ..parse import words
from ..parse.question import Question, last_name, owner_name
from .embed import Embedding
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
_DEEP_CHUNKS, _DEEP_FILES = 300, 200  # results of a query that are scored, should they be candidates by another one
_PAIRS = 12  # adjacent words of a question that are searched as phrases
_TERMS = 40  # of a title; the rarest
_REST_TERMS = 30  # of the rest of a task
_ALL_TERMS = 50  # of a task
_REST = 0.3  # weight of the words of a task outside its title, when a definition is chosen
_SHORTEST_JOINED = 8  # letters of a word that may be two
_SHORTEST_TYPO = 5  # letters of a word that no file holds and that is searched with one letter wrong
_LEAST_TOTAL = 3.0  # weight of a question's words; a question of words that are everywhere would divide by nearly 0
_HIGHEST = 2.0  # of a score that is divided by it
_FRAME_STEP = 0.8  # what a frame counts of the one inside it
_LARGE = 20  # the binary logarithm of the size of a large file


class Candidates(msgspec.Struct):
    """The candidates for a question and their features."""

    files: dict[int, FileFeatures]
    paths: Mapping[int, str]
    chunks: dict[tuple[int, int], ChunkFeatures]
    weights: dict[str, float]  # the question's terms by their rarity
    unknown: list[str]  # its words that no file holds


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
    rarities: Mapping[str, float] | None = None,
) -> Candidates:
    """Query every field and collect the features of each candidate; `rarities` are known from elsewhere."""
    if question.is_path:
        scope = "both"  # whoever names a document wants that
    fields = _FieldQueries(searcher, schema, scope, files, is_task=question.is_task, rarities=rarities)
    asked = _Asked(question, fields)
    by_chunk, by_file = _chunk_lookups(fields, asked), _file_lookups(fields, asked)
    paths = _candidates(store, asked, by_chunk, by_file)
    facts = fields.facts(paths)
    chunks = _chunk_features(asked, by_chunk, paths)
    best = _best_of_each_file(chunks)
    made = {
        file: _file_features(file, path, best.get(file, _NO_CHUNK), asked, by_file, facts.get(file, (0, 0)))
        for file, path in paths.items()
    }
    if embedding is not None and not question.symbol and not question.is_task:
        _add_meaning(embedding, question, store, made, chunks)
    return Candidates(made, paths, chunks, asked.weights(), asked.unknown)


class _Asked:
    """The terms of a question, each with its weight in this index."""

    def __init__(self, question: Question, fields: "_FieldQueries") -> None:
        self.question, self.rarity = question, fields.rarity
        stems = tuple(dict.fromkeys([*question.stems, *fields.joined(question.plain)]))
        wholes = tuple(dict.fromkeys([*question.wholes, *fields.known_wholes(question.plain)]))
        idf = fields.idf(stems, wholes)
        self.idf = _rarest(idf, _TERMS) if question.is_task else idf
        self.total = max(sum(self.idf.values()), _LEAST_TOTAL)
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


def _rarest(weights: Mapping[str, float], most: int) -> dict[str, float]:
    return dict(sorted(weights.items(), key=lambda row: -row[1])[:most])


def _file_lookups(fields: "_FieldQueries", asked: _Asked) -> dict[str, dict[int, float]]:
    """For each feature of files that is a query of its own, the files that it finds."""
    question = asked.question
    return {
        "file_text": fields.files("file_text", dict.fromkeys(asked.stems, 1.0)),
        "file_path": fields.files("file_path", dict.fromkeys([*asked.stems, *asked.wholes], 1.0)),
        "defines": fields.files("file_defines", asked.defines, flat=True),
        "defines_first": fields.files("file_defines", asked.first, flat=True),
        "defines_exactly": fields.files("file_defines", asked.exactly, flat=True),
        "place": fields.files("file_place", fields.places(question.places), flat=True),
        "file_all": fields.files("file_text", asked.all),
        "prose_defines": fields.files("file_defines", asked.prose_defines, flat=True),
        "code_defines": fields.files("file_defines", asked.code_defines, flat=True),
        "frame": fields.frames([path for path, _ in question.frames]),
    }


def _file_features(
    file: int,
    path: str,
    top: ChunkFeatures,
    asked: _Asked,
    by_file: Mapping[str, Mapping[int, float]],
    facts: tuple[int, int],
) -> FileFeatures:
    name_match, kind = path_match(path, asked.idf, asked.total, asked.rarity), path_kind(path)
    size, code = facts
    scored = {name: found.get(file, 0.0) for name, found in by_file.items()}
    return FileFeatures(
        text=top.text,
        name=top.name,
        phrase=top.phrase,
        file_text=_share(scored["file_text"], asked.total),
        file_path=_share(scored["file_path"], asked.total),
        stem_recall=name_match.stem_recall,
        stem_precision=name_match.stem_precision,
        folder_recall=name_match.folder_recall,
        defines=min(scored["defines"], _HIGHEST),
        defines_first=min(scored["defines_first"], 1.0),
        defines_exactly=min(scored["defines_exactly"], _HIGHEST),
        place=1.0 if path.lower() in asked.paths else min(scored["place"], 1.0),
        test=0.0 if asked.question.wants_tests else kind.test,
        aside=0.0 if asked.question.wants_aside else kind.aside,
        barrel=float(kind.barrel and code == 0),
        listing=kind.listing,
        plain=float(code == 0),
        size=math.log2(1 + size) / _LARGE,
        depth=kind.depth,
        prose=top.prose,
        code=top.code,
        file_all=_share(scored["file_all"], asked.all_total),
        stem_rest=stem_precision(path, asked.rest, asked.rarity) if asked.rest else 0.0,
        prose_defines=min(scored["prose_defines"], _HIGHEST),
        code_defines=min(scored["code_defines"], _HIGHEST),
        frame=scored["frame"],
    )


def _share(score: float, total: float) -> float:
    return min(score / total, _HIGHEST)


_NO_CHUNK = ChunkFeatures()


def _candidates(
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
    paths = store.paths(dict.fromkeys(heads))
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


def _chunk_lookups(fields: "_FieldQueries", asked: _Asked) -> dict[str, dict[tuple[int, int], float]]:
    """For each feature of chunks, the chunks that it finds, the best first."""
    pairs = [pair for pair in asked.question.pairs if pair[0] in asked.idf and pair[1] in asked.idf]
    return {
        "text": fields.texts(dict.fromkeys(asked.stems, 1.0), dict.fromkeys(asked.wholes, 1.0)),
        "name": fields.chunks("name", dict.fromkeys([*asked.stems, *asked.wholes], 1.0)),
        "phrase": fields.phrases(pairs[:_PAIRS], asked.idf),
        "defines": fields.chunks("defines", asked.defines, flat=True),
        "prose": fields.texts(asked.prose, asked.prose),
        "code": fields.texts(asked.code, asked.code),
    }


def _chunk_features(
    asked: _Asked, by_chunk: Mapping[str, Mapping[tuple[int, int], float]], files: Collection[int]
) -> dict[tuple[int, int], ChunkFeatures]:
    columns: list[dict[tuple[int, int], float]] = []
    for name, found in by_chunk.items():
        total = asked.totals.get(name, 1.0)
        columns.append({at: min(score / total, _HIGHEST) for at, score in found.items() if at[0] in files})
    text, name, phrase, defines, prose, code = columns
    return {
        place: ChunkFeatures(
            text.get(place, 0.0),
            name.get(place, 0.0),
            phrase.get(place, 0.0),
            defines.get(place, 0.0),
            prose.get(place, 0.0),
            code.get(place, 0.0),
        )
        for place in {**text, **name, **phrase, **defines, **prose, **code}
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
    question: Question,
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


class _FieldQueries:
    """The queries of one question, against one state of the index."""

    def __init__(
        self,
        searcher: tantivy.Searcher,
        schema: tantivy.Schema,
        scope: str,
        files: Collection[int] | None,
        *,
        is_task: bool,
        rarities: Mapping[str, float] | None = None,
    ) -> None:
        self._searcher, self._is_task, self._weighs = searcher, is_task, is_task or rarities is not None
        self._schema = schema
        self._of_chunks: list[tantivy.Query] = []
        self._of_files: list[tantivy.Query] = []
        self._rarity: dict[str, float] = dict(rarities or {})
        self._in_files: dict[str, int] = {}
        self._known: dict[str, bool] = {}
        self._weights: dict[str, float] = {}
        self._files = sum(searcher.doc_freq("scope", f"file:{scope}") for scope in ("repo", "docs"))
        self._chunks = sum(searcher.doc_freq("scope", scope) for scope in ("repo", "docs"))
        # A document is code or documentation. To leave out the few documents costs less than to ask for all code.
        others = {"repo": ("docs", "file:docs"), "docs": ("repo", "file:repo")}.get(scope, ())
        self._others = [tantivy.Query.term_query(schema, "scope", other, "basic") for other in others]
        if files is not None:
            only = tantivy.Query.term_set_query(schema, "file", list(files))
            self._of_chunks.append(only)
            self._of_files.append(only)

    def idf(self, stems: Sequence[str], wholes: Sequence[str]) -> dict[str, float]:
        """How rare words are among the files, and identifiers among the chunks; nearly 0 for ubiquitous ones."""
        return {**{term: self._rarity_of_whole(term) for term in wholes}, **{term: self.rarity(term) for term in stems}}

    def _rarity_of_whole(self, term: str) -> float:
        return _inverse_frequency(self._searcher.doc_freq("whole", term), self._chunks)

    def _weighted(self, field: str, terms: Mapping[str, float]) -> dict[str, float]:
        """Weights that make BM25 count a term by its rarity among files: tantivy's counts chunks and files as one."""
        total = self._searcher.num_docs
        made: dict[str, float] = {}
        for term, weight in terms.items():
            n = self._searcher.doc_freq(field, term)
            if n:
                made[term] = weight * self.rarity(term) / _inverse_frequency(n, total)
        return made

    def rarity(self, stem: str) -> float:
        """How rare a word is among the files, or an identifier among the chunks."""
        if stem not in self._rarity:
            n = self._files_with(stem)
            is_whole = not n and self._searcher.doc_freq("whole", stem)
            self._rarity[stem] = self._rarity_of_whole(stem) if is_whole else _inverse_frequency(n, self._files)
        return self._rarity[stem]

    def weigh(self, counts: Sequence[tuple[str, int]], most: int) -> tuple[dict[str, float], float]:
        """The words of a part that say most, weighted by how often they occur; and the weight of all of them."""
        often = {term: 1 + math.log(count) for term, count in counts}
        worth = {term: often[term] * rare for term in often if (rare := self._rarity_if_known(term))}
        best = _rarest(worth, most)
        return {term: often[term] for term in best}, max(sum(best.values()), _LEAST_TOTAL)

    def _rarity_if_known(self, term: str) -> float:
        """The rarity of a term; 0 for one that no file holds. Several parts of a task share most terms."""
        if term not in self._weights:
            self._weights[term] = self.rarity(term) if self.is_known(term) else 0.0
        return self._weights[term]

    def is_known(self, term: str) -> bool:
        """Whether a file holds a word or an identifier, in its text or its path."""
        if term not in self._known:
            elsewhere = (self._searcher.doc_freq(field, term) for field in ("whole", "file_path"))
            self._known[term] = bool(self._files_with(term)) or any(elsewhere)
        return self._known[term]

    def _files_with(self, term: str) -> int:
        if term not in self._in_files:
            self._in_files[term] = self._searcher.doc_freq("file_text", term)
        return self._in_files[term]

    def joined(self, plain: Sequence[str]) -> list[str]:
        """Two words of a question that the code writes as one: leader election, leaderelection."""
        pairs = (words.stem(one + other) for one, other in pairwise(plain))
        return [term for term in pairs if len(term) >= _SHORTEST_JOINED and self.is_known(term)]

    def known_wholes(self, plain: Sequence[str]) -> list[str]:
        """Words of a question that are identifiers of several words here: leaderelection, leader_election."""
        long = (word for word in plain if len(word) >= _SHORTEST_JOINED)
        return [word for word in long if any(self._searcher.doc_freq(field, word) for field in ("whole", "file_path"))]

    def definers(self, names: Sequence[str]) -> dict[str, float]:
        """The terms of names that something defines; one that many files define says little."""
        terms = dict.fromkeys(words.name_term(last_name(name)) for name in names)
        return self._by_definers(terms)

    def exact_definers(self, names: Sequence[str]) -> dict[str, float]:
        """Terms for a definition that is written as the name is, that is a type, or that has the same owner."""
        terms: dict[str, None] = {}
        for name in names:
            last, owner = last_name(name), owner_name(name)
            terms[f"={last}"] = None
            if last[:1].isupper():
                terms[f"^{words.name_term(last)}"] = None
            if owner:
                terms[f"{words.name_term(owner)}.{words.name_term(last)}"] = None
        return self._by_definers(terms)

    def _by_definers(self, terms: Iterable[str]) -> dict[str, float]:
        counts = {term: self._searcher.doc_freq("file_defines", term) for term in terms if term}
        return {term: count**-0.5 for term, count in counts.items() if count}

    def places(self, places: Sequence[str]) -> dict[str, float]:
        """The longest end of each path, or beginning of each module, that names files; fewer of them say more."""
        found: dict[str, float] = {}
        for place in places:
            for way in _ways(place):
                if count := self._searcher.doc_freq("file_place", way):
                    found[way] = max(found.get(way, 0.0), 1 / count)
                    break
        return found

    def frames(self, paths: Sequence[str]) -> dict[int, float]:
        """The files of a traceback; the innermost frame that lies in the index counts most."""
        worth, found = 1.0, dict[int, float]()
        for path in paths:
            files = self.files("file_place", self.places([path]), flat=True)
            for file, share in files.items():
                found[file] = max(found.get(file, 0.0), worth * min(share, 1.0))
            worth *= _FRAME_STEP if files else 1.0
        return found

    def facts(self, files: Collection[int]) -> dict[int, tuple[int, int]]:
        """The size of each file in bytes, and how many functions and types it defines."""
        if not files:
            return {}
        ours = tantivy.Query.term_set_query(self._schema, "file", list(files))
        query = tantivy.Query.boolean_query(
            [(tantivy.Occur.Must, ours), (tantivy.Occur.Must, whole_files(self._schema))]
        )
        hits = [address for _, address in self._searcher.search(query, len(files), count=False).hits]
        columns = [self._searcher.fast_field_values(name, hits) for name in ("file", "size", "code")]
        return {int(file or 0): (int(size or 0), int(code or 0)) for file, size, code in zip(*columns, strict=True)}

    def texts(self, stems: Mapping[str, float], wholes: Mapping[str, float]) -> dict[tuple[int, int], float]:
        """The best chunks for words and identifiers in the text."""
        parts = [*self._any("text", stems, flat=False), *self._any("whole", wholes, flat=False)]
        return self._places(parts)

    def chunks(self, field: str, terms: Mapping[str, float], *, flat: bool = False) -> dict[tuple[int, int], float]:
        """The best chunks for words in a field; `flat` only adds the weights of the words that occur."""
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

    def files(self, field: str, terms: Mapping[str, float], *, flat: bool = False) -> dict[int, float]:
        """The best files for words in a field."""
        hits = self._hits(self._any(field, terms, flat=flat), self._of_files, _DEEP_FILES)
        files = self._searcher.fast_field_values("file", [address for _, address in hits])
        return {int(file or 0): score for (score, _), file in zip(hits, files, strict=True)}

    def _places(self, parts: list[tantivy.Query]) -> dict[tuple[int, int], float]:
        hits = self._hits(parts, self._of_chunks, _DEEP_CHUNKS)
        addresses = [address for _, address in hits]
        files = self._searcher.fast_field_values("file", addresses)
        chunks = self._searcher.fast_field_values("chunk", addresses)
        return {(int(f or 0), int(c or 0)): score for (score, _), f, c in zip(hits, files, chunks, strict=True)}

    def _any(self, field: str, terms: Mapping[str, float], *, flat: bool) -> list[tantivy.Query]:
        if flat:
            parts = [(tantivy.Query.term_query(self._schema, field, term, "basic"), w) for term, w in terms.items()]
            return [tantivy.Query.const_score_query(part, weight) for part, weight in parts]
        similar = [term for term in terms if field in ("text", "file_text") and self._may_be_a_typo(term)]
        return [
            *(self._similar(field, term) for term in similar),
            *self._exactly(field, terms),
        ]

    def _may_be_a_typo(self, term: str) -> bool:
        return not self._is_task and len(term) >= _SHORTEST_TYPO and not self.is_known(term)

    def _similar(self, field: str, term: str) -> tantivy.Query:
        """Words with one letter more, less or other, or two swapped."""
        query = tantivy.Query.fuzzy_term_query(self._schema, field, term, 1, True, False)
        return tantivy.Query.const_score_query(query, self.rarity(term) / 2)

    def _exactly(self, field: str, terms: Mapping[str, float]) -> list[tantivy.Query]:
        return [
            tantivy.Query.boost_query(tantivy.Query.term_query(self._schema, field, term, "freq"), weight)
            for term, weight in (self._weighted(field, terms) if self._weighs else terms).items()
        ]

    def _hits(
        self, parts: list[tantivy.Query], filters: list[tantivy.Query], limit: int
    ) -> list[tuple[float, tantivy.DocAddress]]:
        if not parts:
            return []
        wanted = [(tantivy.Occur.Should, part) for part in parts]
        query = tantivy.Query.boolean_query([*wanted, *((tantivy.Occur.MustNot, other) for other in self._others)])
        if filters:
            required = [tantivy.Query.const_score_query(one, 0.0) for one in filters]
            query = tantivy.Query.boolean_query([(tantivy.Occur.Must, one) for one in (query, *required)])
        return self._searcher.search(query, limit, count=False).hits


def whole_files(schema: tantivy.Schema) -> tantivy.Query:
    """The documents of files, not of their chunks."""
    level = [tantivy.Query.term_query(schema, "scope", f"file:{one}", "basic") for one in ("repo", "docs")]
    return tantivy.Query.boolean_query([(tantivy.Occur.Should, one) for one in level])


def _inverse_frequency(n: int, count: int) -> float:
    """BM25's weight of a term that n of so many documents hold."""
    return math.log(1 + (max(count, n) - n + 0.5) / (n + 0.5))


def _ways(place: str) -> Iterator[str]:
    """Each end of a path, the longest first; then each beginning, for a module and a name in it."""
    parts = [part for part in place.split("/") if part][-12:]
    for at in range(len(parts)):
        if at < len(parts) - 1 or len(parts) == 1 or "." in parts[-1]:
            yield "/".join(parts[at:])
    for end in range(len(parts) - 1, 1, -1):
        yield "/".join(parts[:end])
