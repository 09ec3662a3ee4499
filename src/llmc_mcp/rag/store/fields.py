"""The queries of one question against the text of an index, one for each field.

A query over words in a field is a union of terms, and costs what it takes to score every document that holds one of
them, about 7 ns each: tantivy could skip those that can't be among the best, but tantivy-py collects all of them. To
exclude the documents of the other scope makes a query half as dear again. So they are not excluded: some more are asked
for than are needed, and those are left out. For the same reason the searches of a question run in two threads.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

import tantivy

from ..parse import words
from ..parse.question import last_name, owner_name
from . import halves

_DEEP_CHUNKS, _DEEP_FILES = 300, 200  # results of a query that are scored, should they be candidates by another one
_SHORTEST_JOINED = 8  # letters of a word that may be two
_SHORTEST_TYPO = 5  # letters of a word that no file holds and that is searched with one letter wrong
_LEAST_TOTAL = 3.0  # weight of a question's words; a question of words that are everywhere would divide by nearly 0
_FRAME_STEP = 0.8  # what a frame counts of the one inside it
_SPARE, _SPARE_SHARE = 20, 3  # more results than needed: at least, and in shares of what the other scope has
_OTHERS_FEW = 0.4  # share of the documents up to which they are left out afterwards,
_OTHERS_MOST = 50_000  # and how many files of them at most
_FREQUENCIES, _KNOWN_FILES = 20_000, 16_000  # that are kept
_FILE = "file:"  # how the scopes of the documents of files begin
_COST_OF_PHRASE = 4  # of a document that may hold it, as documents that hold a word


class TextState:
    """What questions learn of one state of an index, for the next ones: how often terms occur, which files are text."""

    def __init__(self) -> None:
        self.frequencies: dict[tuple[str, str], int] = {}  # by field and term
        self.rarities: dict[str, float] = {}
        self.paths: dict[int, str] = {}  # by file
        self.facts: dict[int, tuple[int, int]] = {}  # by file; to look one up takes a look into every segment
        self.are_given = False
        self.documents: frozenset[int] | None = None

    def with_rarities(self, rarities: Mapping[str, float]) -> "TextState":
        """The same, but for a question whose words are as rare as this says: as they are in many indexes together."""
        made = TextState()
        made.frequencies, made.documents = self.frequencies, self.documents
        made.paths, made.facts = self.paths, self.facts
        made.rarities, made.are_given = dict(rarities), True
        return made

    def forget_some(self) -> None:
        """Keep it small."""
        if len(self.frequencies) > _FREQUENCIES:
            self.frequencies, self.rarities = {}, {}
        if len(self.paths) > _KNOWN_FILES:
            self.paths, self.facts = {}, {}


class FieldQuery(NamedTuple):
    """A query over the documents of chunks, or of files, of which any part may match."""

    parts: list[tantivy.Query]
    level: str  # the prefix of the scopes of its documents: that of files, or none for chunks
    most: int  # documents that are wanted, the best ones
    is_plain: bool  # whether the parts are terms alone, scored by BM25
    cost: int  # documents that are looked at, about


class FoundDocuments(NamedTuple):
    """The best documents of a query, with their scores and files."""

    scores: list[float]
    addresses: list[tantivy.DocAddress]
    files: list[int]


_NOTHING = FoundDocuments([], [], [])


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
        self._asked: dict[tuple[str, bool, tuple[tuple[str, float], ...]], FieldQuery] = {}
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

    # --- queries ---------------------------------------------------------------------------------

    def texts(self, stems: Mapping[str, float], wholes: Mapping[str, float]) -> FieldQuery:
        """The best chunks for words and identifiers in the text."""
        text, whole = self._any("text", stems, flat=False), self._any("whole", wholes, flat=False)
        is_plain = text.is_plain and whole.is_plain
        return FieldQuery([*text.parts, *whole.parts], "", _DEEP_CHUNKS, is_plain, text.cost + whole.cost)

    def chunks(self, field: str, terms: Mapping[str, float], *, flat: bool = False) -> FieldQuery:
        """The best chunks for words in a field; `flat` only adds the weights of the words that occur."""
        return self._any(field, terms, flat=flat)

    def files(self, field: str, terms: Mapping[str, float], *, flat: bool = False) -> FieldQuery:
        """The best files for words in a field; the same query for the same words."""
        key = field, flat, tuple(terms.items())
        if key not in self._asked:
            self._asked[key] = self._any(field, terms, flat=flat)._replace(level=_FILE, most=_DEEP_FILES)
        return self._asked[key]

    def phrases(self, pairs: Sequence[tuple[str, str]], idf: Mapping[str, float]) -> FieldQuery:
        """The weighted share of adjacent words that are adjacent in a chunk too."""
        weights = [min(idf[one], idf[other]) for one, other in pairs]
        total = sum(weights)
        parts = [
            tantivy.Query.const_score_query(
                tantivy.Query.phrase_query(self._schema, "text", list(pair)), weight / total
            )
            for pair, weight in zip(pairs, weights, strict=True)
            if total
        ]
        both = sum(min(self._count("text", one), self._count("text", other)) for one, other in pairs)
        return FieldQuery(parts, "", _DEEP_CHUNKS, is_plain=False, cost=_COST_OF_PHRASE * both)

    def _any(self, field: str, terms: Mapping[str, float], *, flat: bool) -> FieldQuery:
        cost = sum(self._count(field, term) for term in terms)
        if flat:
            pairs = [(tantivy.Query.term_query(self._schema, field, term, "basic"), w) for term, w in terms.items()]
            parts = [tantivy.Query.const_score_query(part, weight) for part, weight in pairs]
            return FieldQuery(parts, "", _DEEP_CHUNKS, is_plain=False, cost=cost)
        similar = [term for term in terms if field in ("text", "file_text") and self._may_be_a_typo(term)]
        parts = [*(self._similar(field, term) for term in similar), *self._exactly(field, terms)]
        return FieldQuery(parts, "", _DEEP_CHUNKS, is_plain=not similar, cost=cost)

    def _may_be_a_typo(self, term: str) -> bool:
        return not self._is_task and len(term) >= _SHORTEST_TYPO and not self.is_known(term)

    def _similar(self, field: str, term: str) -> tantivy.Query:
        """Words with one letter more, less or other, or two swapped."""
        query = tantivy.Query.fuzzy_term_query(self._schema, field, term, 1, True, False)
        return tantivy.Query.const_score_query(query, self.rarity(term) / 2)

    def _exactly(self, field: str, terms: Mapping[str, float]) -> list[tantivy.Query]:
        """BM25's score of each term; without those that do not occur: a single term is searched faster than a union."""
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

    # --- results ---------------------------------------------------------------------------------

    def search(self, queries: Sequence[FieldQuery]) -> list[FoundDocuments]:
        """The best documents in this scope of each query."""
        # Documents of the other scope are left out afterwards where they are few: see above.
        leaves_out = self._scope == "repo" and self._only is None and self._has_few_documents()
        mores = [self._spare(query.most) if leaves_out and query.is_plain else 0 for query in queries]
        found = self._found_by(list(zip(queries, mores, strict=True)))
        again: dict[int, FieldQuery] = {}
        for at, (query, more) in enumerate(zip(queries, mores, strict=True)):
            if more:
                all_found, found[at] = found[at], self._without_documents(found[at], query.most)
                if len(found[at].files) < query.most and len(all_found.files) == query.most + more:
                    again[at] = query
        for at, exactly in zip(again, self._found_by([(query, 0) for query in again.values()]), strict=True):
            found[at] = exactly
        return found

    def chunk_scores(self, found: Mapping[str, FoundDocuments]) -> dict[str, dict[tuple[int, int], float]]:
        """The chunks that queries have found, with their scores, the best first."""
        addresses = [address for hits in found.values() for address in hits.addresses]
        chunks = iter([int(chunk or 0) for chunk in self._searcher.fast_field_values("chunk", addresses)])
        made: dict[str, dict[tuple[int, int], float]] = {}
        for name, hits in found.items():
            numbers = list(islice(chunks, len(hits.files)))
            made[name] = dict(zip(zip(hits.files, numbers, strict=True), hits.scores, strict=True))
        return made

    def file_scores(self, found: FoundDocuments) -> dict[int, float]:
        """The files that a query has found, with their scores, the best first."""
        self._whole.update(zip(found.files, found.addresses, strict=True))
        return dict(zip(found.files, found.scores, strict=True))

    def frames(self, paths: Sequence[str]) -> dict[int, float]:
        """The files of a traceback; the innermost frame that lies in the index counts most."""
        queries = [self.files("file_place", self.places([path]), flat=True) for path in paths]
        worth, found = 1.0, dict[int, float]()
        for hits in self.search(queries):
            for file, share in self.file_scores(hits).items():
                found[file] = max(found.get(file, 0.0), worth * min(share, 1.0))
            worth *= _FRAME_STEP if hits.files else 1.0
        return found

    def paths(self, files: Collection[int], look_up: Callable[[Collection[int]], Mapping[int, str]]) -> dict[int, str]:
        """The paths of files, in the order of their numbers; `look_up` reads those that no question has read yet."""
        known = self._state.paths
        if missing := [file for file in files if file not in known]:
            known.update(look_up(missing))
        return {file: known[file] for file in sorted(files) if file in known}

    def facts(self, files: Collection[int]) -> dict[int, tuple[int, int]]:
        """The size of each file in bytes, and how many functions and types it defines."""
        known = self._state.facts
        missing = [file for file in files if file not in known]
        hits = [self._whole[file] for file in missing if file in self._whole]
        if others := [file for file in missing if file not in self._whole]:
            ours = tantivy.Query.term_set_query(self._schema, "file", others)
            query = tantivy.Query.boolean_query(
                [(tantivy.Occur.Must, ours), (tantivy.Occur.Must, whole_files(self._schema))]
            )
            hits += [address for _, address in self._searcher.search(query, len(others), count=False).hits]
        columns = [self._searcher.fast_field_values(name, hits) for name in ("file", "size", "code")] if hits else []
        known.update(
            (int(file or 0), (int(size or 0), int(code or 0))) for file, size, code in zip(*columns, strict=True)
        )
        return {file: known[file] for file in files if file in known}

    def _found_by(self, queries: Sequence[tuple[FieldQuery, int]]) -> list[FoundDocuments]:
        """What queries find; one that asks for more documents than it wants gets those of any scope."""
        different = {id(query.parts): (query, more) for query, more in queries if query.parts}
        made = {key: _any_of(query.parts) if more else self._scoped(query) for key, (query, more) in different.items()}
        mosts = {key: query.most + more for key, (query, more) in different.items()}
        ranked = halves.for_each(
            lambda key: self._searcher.search(made[key], mosts[key], count=False).hits,
            {key: query.cost for key, (query, _) in different.items()},
        )
        addresses = [address for hits in ranked.values() for _, address in hits]
        files = iter([int(file or 0) for file in self._searcher.fast_field_values("file", addresses)])
        found = {
            key: FoundDocuments(
                [score for score, _ in hits], [address for _, address in hits], list(islice(files, len(hits)))
            )
            for key, hits in ranked.items()
        }
        return [found.get(id(query.parts), _NOTHING) for query, _ in queries]

    def _scoped(self, asked: FieldQuery) -> tantivy.Query:
        """A query without the documents of the other scope, and of other files than those that are wanted."""
        query = _any_of(asked.parts)
        required = [self._only] if self._only is not None else []
        documents = tantivy.Query.term_query(self._schema, "scope", f"{asked.level}docs", "basic")
        if self._scope == "docs":
            required.append(documents)
        elif self._scope == "repo":
            # To leave out the few documents costs less than to ask for all code.
            query = tantivy.Query.boolean_query([(tantivy.Occur.Must, query), (tantivy.Occur.MustNot, documents)])
        if required:
            filters = [tantivy.Query.const_score_query(one, 0.0) for one in required]
            query = tantivy.Query.boolean_query([(tantivy.Occur.Must, one) for one in (query, *filters)])
        return query

    def _spare(self, most: int) -> int:
        return _SPARE + int(_SPARE_SHARE * self._share * most)

    def _has_few_documents(self) -> bool:
        return self._share <= _OTHERS_FEW and self._count("scope", f"{_FILE}docs") <= _OTHERS_MOST

    def _documents(self) -> frozenset[int]:
        """The files that are documentation."""
        if self._state.documents is None:
            query = tantivy.Query.term_query(self._schema, "scope", f"{_FILE}docs", "basic")
            hits = self._searcher.search(query, _OTHERS_MOST, count=False).hits
            numbers = self._searcher.fast_field_values("file", [address for _, address in hits])
            self._state.documents = frozenset(int(file or 0) for file in numbers)
        return self._state.documents

    def _without_documents(self, hits: FoundDocuments, limit: int) -> FoundDocuments:
        documents = self._documents()
        kept = [at for at, file in enumerate(hits.files) if file not in documents][:limit]
        scores, addresses, files = hits
        return FoundDocuments([scores[at] for at in kept], [addresses[at] for at in kept], [files[at] for at in kept])


def rarest(weights: Mapping[str, float], most: int) -> dict[str, float]:
    """The terms with the largest weights."""
    return dict(sorted(weights.items(), key=lambda row: -row[1])[:most])


def total_of(weights: Mapping[str, float]) -> float:
    """What scores are divided by."""
    return max(sum(weights.values()), _LEAST_TOTAL)


def _any_of(parts: Sequence[tantivy.Query]) -> tantivy.Query:
    if len(parts) == 1:
        return parts[0]
    return tantivy.Query.boolean_query([(tantivy.Occur.Should, part) for part in parts])


def whole_files(schema: tantivy.Schema) -> tantivy.Query:
    """The documents of files, not of their chunks."""
    return _any_of([tantivy.Query.term_query(schema, "scope", f"{_FILE}{one}", "basic") for one in ("repo", "docs")])


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
