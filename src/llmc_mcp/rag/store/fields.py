"""The queries of one question against the text of an index, one for each field.

A query over words in a field is a union of terms, and tantivy skips what can't be among the best of such a union, so
that its cost grows slower than the index: but only of a union that has nothing else in it. So documents of the other
scope are not excluded by the query: some more are asked for than are needed, and those are left out.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import tantivy

from ..parse import words
from ..parse.question import last_name, owner_name

_DEEP_CHUNKS, _DEEP_FILES = 300, 200  # results of a query that are scored, should they be candidates by another one
_SHORTEST_JOINED = 8  # letters of a word that may be two
_SHORTEST_TYPO = 5  # letters of a word that no file holds and that is searched with one letter wrong
_LEAST_TOTAL = 3.0  # weight of a question's words; a question of words that are everywhere would divide by nearly 0
_FRAME_STEP = 0.8  # what a frame counts of the one inside it
_SPARE, _SPARE_SHARE = 20, 3  # more results than needed: at least, and in shares of what the other scope has
_OTHERS_FEW = 0.4  # share of the documents up to which they are left out afterwards,
_OTHERS_MOST = 50_000  # and how many files of them at most
_FREQUENCIES = 20_000  # that are kept


class TextState:
    """What questions learn of one state of an index, for the next ones: how often terms occur, which files are text."""

    def __init__(self) -> None:
        self.frequencies: dict[tuple[str, str], int] = {}  # by field and term
        self.rarities: dict[str, float] = {}
        self.are_given = False
        self.documents: frozenset[int] | None = None

    def with_rarities(self, rarities: Mapping[str, float]) -> "TextState":
        """The same, but for a question whose words are as rare as this says: as they are in many indexes together."""
        made = TextState()
        made.frequencies, made.documents = self.frequencies, self.documents
        made.rarities, made.are_given = dict(rarities), True
        return made

    def forget_some(self) -> None:
        """Keep it small."""
        if len(self.frequencies) > _FREQUENCIES:
            self.frequencies, self.rarities = {}, {}


class _Union(NamedTuple):
    """The parts of a query of which any may match; `is_prunable` if they are terms alone, scored by BM25."""

    parts: list[tantivy.Query]
    is_prunable: bool = False


class _Hits(NamedTuple):
    """The best documents of a query, with their scores and files."""

    scores: list[float]
    addresses: list[tantivy.DocAddress]
    files: list[int]


class FieldQueries:
    """The queries of one question, against one state of the index."""

    def __init__(
        self,
        searcher: tantivy.Searcher,
        schema: tantivy.Schema,
        scope: str,
        files: Collection[int] | None,
        *,
        is_task: bool,
        state: TextState | None = None,
    ) -> None:
        self._searcher, self._is_task = searcher, is_task
        self._schema, self._scope = schema, scope
        self._state = state or TextState()
        self._state.forget_some()
        self._frequencies = self._state.frequencies
        self._rarity, self._weighs = self._state.rarities, is_task or self._state.are_given
        self._known: dict[str, bool] = {}
        self._whole: dict[int, tantivy.DocAddress] = {}  # the documents of files that were found
        self._weights: dict[str, float] = {}
        self._found: dict[tuple[str, bool, tuple[tuple[str, float], ...]], dict[int, float]] = {}
        self._files = self._count("scope", "file:repo") + self._count("scope", "file:docs")
        documents = self._count("scope", "docs")
        self._chunks = documents + self._count("scope", "repo")
        self._share = documents / max(self._chunks, 1)
        self._only = tantivy.Query.term_set_query(schema, "file", list(files)) if files is not None else None

    # --- counts ----------------------------------------------------------------------------------

    def _count(self, field: str, term: str) -> int:
        """How many documents hold a term in a field."""
        key = field, term
        found = self._frequencies.get(key)
        if found is None:
            found = self._frequencies[key] = self._searcher.doc_freq(field, term)
        return found

    def idf(self, stems: Sequence[str], wholes: Sequence[str]) -> dict[str, float]:
        """How rare words are among the files, and identifiers among the chunks; nearly 0 for ubiquitous ones."""
        return {**{term: self._rarity_of_whole(term) for term in wholes}, **{term: self.rarity(term) for term in stems}}

    def _rarity_of_whole(self, term: str) -> float:
        return _inverse_frequency(self._count("whole", term), self._chunks)

    def _weighted(self, field: str, terms: Mapping[str, float]) -> dict[str, float]:
        """Weights that make BM25 count a term by its rarity among files: tantivy's counts chunks and files as one."""
        total = self._searcher.num_docs
        made: dict[str, float] = {}
        for term, weight in terms.items():
            n = self._count(field, term)
            if n:
                made[term] = weight * self.rarity(term) / _inverse_frequency(n, total)
        return made

    def rarity(self, stem: str) -> float:
        """How rare a word is among the files, or an identifier among the chunks."""
        found = self._rarity.get(stem)
        if found is None:
            n = self._count("file_text", stem)
            is_whole = not n and self._count("whole", stem)
            found = self._rarity_of_whole(stem) if is_whole else _inverse_frequency(n, self._files)
            self._rarity[stem] = found
        return found

    def weigh(self, counts: Sequence[tuple[str, int]], most: int) -> tuple[dict[str, float], float]:
        """The words of a part that say most, weighted by how often they occur; and the weight of all of them."""
        often = {term: 1 + math.log(count) for term, count in counts}
        worth = {term: often[term] * rare for term in often if (rare := self._rarity_if_known(term))}
        best = rarest(worth, most)
        return {term: often[term] for term in best}, total_of(best)

    def _rarity_if_known(self, term: str) -> float:
        """The rarity of a term; 0 for one that no file holds. Several parts of a task share most terms."""
        if term not in self._weights:
            self._weights[term] = self.rarity(term) if self.is_known(term) else 0.0
        return self._weights[term]

    def is_known(self, term: str) -> bool:
        """Whether a file holds a word or an identifier, in its text or its path."""
        if term not in self._known:
            self._known[term] = any(self._count(field, term) for field in ("file_text", "whole", "file_path"))
        return self._known[term]

    def joined(self, plain: Sequence[str]) -> list[str]:
        """Two words of a question that the code writes as one: leader election, leaderelection."""
        pairs = (words.stem(one + other) for one, other in pairwise(plain))
        return [term for term in pairs if len(term) >= _SHORTEST_JOINED and self.is_known(term)]

    def known_wholes(self, plain: Sequence[str]) -> list[str]:
        """Words of a question that are identifiers of several words here: leaderelection, leader_election."""
        long = (word for word in plain if len(word) >= _SHORTEST_JOINED)
        return [word for word in long if any(self._count(field, word) for field in ("whole", "file_path"))]

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
        counts = {term: self._count("file_defines", term) for term in terms if term}
        return {term: count**-0.5 for term, count in counts.items() if count}

    def places(self, places: Sequence[str]) -> dict[str, float]:
        """The longest end of each path, or beginning of each module, that names files; fewer of them say more."""
        found: dict[str, float] = {}
        for place in places:
            for way in _ways(place):
                if count := self._count("file_place", way):
                    found[way] = max(found.get(way, 0.0), 1 / count)
                    break
        return found

    # --- results ---------------------------------------------------------------------------------

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
        hits = [self._whole[file] for file in files if file in self._whole]
        if others := [file for file in files if file not in self._whole]:
            ours = tantivy.Query.term_set_query(self._schema, "file", others)
            query = tantivy.Query.boolean_query(
                [(tantivy.Occur.Must, ours), (tantivy.Occur.Must, whole_files(self._schema))]
            )
            hits += [address for _, address in self._searcher.search(query, len(others), count=False).hits]
        columns = [self._searcher.fast_field_values(name, hits) for name in ("file", "size", "code")]
        return {int(file or 0): (int(size or 0), int(code or 0)) for file, size, code in zip(*columns, strict=True)}

    def texts(self, stems: Mapping[str, float], wholes: Mapping[str, float]) -> dict[tuple[int, int], float]:
        """The best chunks for words and identifiers in the text."""
        text, whole = self._any("text", stems, flat=False), self._any("whole", wholes, flat=False)
        return self._places(_Union([*text.parts, *whole.parts], text.is_prunable and whole.is_prunable))

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
        return self._places(_Union(parts))

    def files(self, field: str, terms: Mapping[str, float], *, flat: bool = False) -> dict[int, float]:
        """The best files for words in a field."""
        key = field, flat, tuple(terms.items())
        if key not in self._found:
            hits = self._hits(self._any(field, terms, flat=flat), "file:", _DEEP_FILES)
            self._found[key] = dict(zip(hits.files, hits.scores, strict=True))
            self._whole.update(zip(hits.files, hits.addresses, strict=True))
        return self._found[key]

    def _places(self, union: _Union) -> dict[tuple[int, int], float]:
        hits = self._hits(union, "", _DEEP_CHUNKS)
        chunks = self._searcher.fast_field_values("chunk", hits.addresses)
        numbers = (int(chunk or 0) for chunk in chunks)
        return dict(zip(zip(hits.files, numbers, strict=True), hits.scores, strict=True))

    def _any(self, field: str, terms: Mapping[str, float], *, flat: bool) -> _Union:
        if flat:
            parts = [(tantivy.Query.term_query(self._schema, field, term, "basic"), w) for term, w in terms.items()]
            return _Union([tantivy.Query.const_score_query(part, weight) for part, weight in parts])
        similar = [term for term in terms if field in ("text", "file_text") and self._may_be_a_typo(term)]
        exact = self._exactly(field, terms)
        return _Union([*(self._similar(field, term) for term in similar), *exact], is_prunable=not similar)

    def _may_be_a_typo(self, term: str) -> bool:
        return not self._is_task and len(term) >= _SHORTEST_TYPO and not self.is_known(term)

    def _similar(self, field: str, term: str) -> tantivy.Query:
        """Words with one letter more, less or other, or two swapped."""
        query = tantivy.Query.fuzzy_term_query(self._schema, field, term, 1, True, False)
        return tantivy.Query.const_score_query(query, self.rarity(term) / 2)

    def _exactly(self, field: str, terms: Mapping[str, float]) -> list[tantivy.Query]:
        """BM25's score of each term; one that does not occur would only keep a single other one from being pruned."""
        weights = self._weighted(field, terms) if self._weighs else terms
        parts = {
            term: tantivy.Query.term_query(self._schema, field, term, "freq")
            for term in weights
            if self._count(field, term)
        }
        return [
            part if weights[term] == 1.0 else tantivy.Query.boost_query(part, weights[term])
            for term, part in parts.items()
        ]

    def _hits(self, union: _Union, level: str, limit: int) -> _Hits:
        """The best documents in this scope; `level` is the prefix of the scopes of files, or none for chunks."""
        if not union.parts:
            return _Hits([], [], [])
        query = union.parts[0] if len(union.parts) == 1 else _any_of(union.parts)
        if self._scope == "repo" and union.is_prunable and self._only is None and self._has_few_documents():
            asked = limit + _SPARE + int(_SPARE_SHARE * self._share * limit)
            found = self._search(query, asked)
            kept = self._without_documents(found, limit)
            if len(kept.files) == limit or len(found.files) < asked:
                return kept
        required = [self._only] if self._only is not None else []
        documents = tantivy.Query.term_query(self._schema, "scope", f"{level}docs", "basic")
        if self._scope == "docs":
            required.append(documents)
        elif self._scope == "repo":
            # To leave out the few documents costs less than to ask for all code.
            query = tantivy.Query.boolean_query([(tantivy.Occur.Must, query), (tantivy.Occur.MustNot, documents)])
        if required:
            filters = [tantivy.Query.const_score_query(one, 0.0) for one in required]
            query = tantivy.Query.boolean_query([(tantivy.Occur.Must, one) for one in (query, *filters)])
        return self._search(query, limit)

    def _search(self, query: tantivy.Query, limit: int) -> _Hits:
        hits = self._searcher.search(query, limit, count=False).hits
        addresses = [address for _, address in hits]
        files = [int(file or 0) for file in self._searcher.fast_field_values("file", addresses)]
        return _Hits([score for score, _ in hits], addresses, files)

    def _has_few_documents(self) -> bool:
        return self._share <= _OTHERS_FEW and self._count("scope", "file:docs") <= _OTHERS_MOST

    def _documents(self) -> frozenset[int]:
        """The files that are documentation."""
        if self._state.documents is None:
            query = tantivy.Query.term_query(self._schema, "scope", "file:docs", "basic")
            self._state.documents = frozenset(self._search(query, _OTHERS_MOST).files)
        return self._state.documents

    def _without_documents(self, hits: _Hits, limit: int) -> _Hits:
        documents = self._documents()
        kept = [at for at, file in enumerate(hits.files) if file not in documents][:limit]
        scores, addresses, files = hits
        return _Hits([scores[at] for at in kept], [addresses[at] for at in kept], [files[at] for at in kept])


def rarest(weights: Mapping[str, float], most: int) -> dict[str, float]:
    """The terms with the largest weights."""
    return dict(sorted(weights.items(), key=lambda row: -row[1])[:most])


def total_of(weights: Mapping[str, float]) -> float:
    """What scores are divided by."""
    return max(sum(weights.values()), _LEAST_TOTAL)


def _any_of(parts: Iterable[tantivy.Query]) -> tantivy.Query:
    return tantivy.Query.boolean_query([(tantivy.Occur.Should, part) for part in parts])


def whole_files(schema: tantivy.Schema) -> tantivy.Query:
    """The documents of files, not of their chunks."""
    return _any_of(tantivy.Query.term_query(schema, "scope", f"file:{one}", "basic") for one in ("repo", "docs"))


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
