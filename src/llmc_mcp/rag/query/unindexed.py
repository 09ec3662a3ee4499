"""Search of files that are not in the index yet: by ripgrep, while it is built, or updated after a checkout.

Without an index nothing is known about the words but where they are. So a file is as good as the words of the question
that it holds, the rare ones before the common ones, those in its path and those of a definition more than others. The
definitions of names are looked for by themselves: a common word has more lines than can be looked at.
"""

import math
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from ...errors import LlmcError
from ...files import names, revisions
from ...files.filesystem import Filesystem, Place, Root
from ...files.ripgrep import MatchedLine, Query, Search
from ..parse import words
from ..parse.languages import DOCUMENT_ENDINGS
from ..parse.question import Question, last_name
from ..parse.text import as_utf8
from ..store.types import Scope
from . import snippets
from .globs import Glob
from .hits import LoadedHit
from .types import CodeQuery

_WORDS = 10  # of a question that are looked for
_SHORTEST = 3
_LONGEST_S = 5.0  # that files are searched: from a disk, a large folder takes minutes
_LINES = 4_000  # matching lines that are looked at
_CONTEXT = 4  # lines around a match that are shown
_IN_PATH, _DEFINED, _DEFINED_NAME, _TEST = 1.5, 1.0, 20.0, 0.7
_HEAD_BYTES, _HEAD_LINES = 4_096, 10  # shown of a file that only its name speaks for
_LINES_A_FILE = 3  # … of one of many files that changed
_NAMED_BYTES = 1 << 20  # of paths that ripgrep is given; if there are more, it looks at all files
_LARGEST = 4 << 20  # bytes of a file that is shown
_STRONG = 1.0  # the score of a file that holds all words of the question
_DOCUMENTS = frozenset({*DOCUMENT_ENDINGS, "md", "rst", "adoc", "org"})
_NAME = re.compile(r"\w+")
_DEFINES = re.compile(
    r"\b(?:def|class|func|fn|function|struct|interface|trait|type|enum|impl|module|const|let|var|define)\b"
)
_TESTS = re.compile(r"(^|/)(tests?|specs?)/|(^|/|_|\.)(test|spec)[_.]", re.IGNORECASE)


class UnindexedFiles:
    """The files of one root, as ripgrep sees them."""

    def __init__(self, files: Filesystem, root: Root, search: Callable[[], Search]) -> None:
        self._files, self._search = files, search
        self._place = Place(root, b".", root.shown)

    def find(
        self, query: CodeQuery, question: Question, is_new: Callable[[bytes], bool], check: Callable[[], None]
    ) -> list[LoadedHit]:
        """The best hits in files that are new."""
        sought = _sought(question)
        wanted = [*sought.names, *sought.others]
        if not wanted:
            return []
        suits, until = _chooser(query), time.monotonic() + _LONGEST_S

        def fits(path: bytes) -> bool:
            return suits(path) and is_new(path)

        hits = self._lines(_defining(sought.names), check, until) if sought.names else []
        if len({hit.path for hit in hits if fits(self._path_of(hit))}) < query.limit:
            hits += self._lines("|".join(map(re.escape, wanted)), check, until)
        matches = self._by_file(hits, sought, fits)
        is_late = time.monotonic() > until
        by_name = [] if is_late or len(matches) >= query.limit else self._named(wanted, fits, matches, check)
        rarity = _rarities([*matches, *by_name], wanted)
        order = sorted([*matches, *by_name], key=lambda one: (-one.score(rarity), one.path))[: query.limit]
        return [_hit(one, one.piece or self._head(one.path), rarity) for one in order]

    def changed(
        self, query: CodeQuery, question: Question, pending: Mapping[bytes, int], check: Callable[[], None]
    ) -> "ChangedFiles":
        """What matches in files that are not as they were indexed, or are new."""
        sought, suits = _sought(question), _chooser(query)
        wanted, until = [*sought.names, *sought.others], time.monotonic() + _LONGEST_S
        paths = [path for path in pending if suits(path) and self._is_regular(path)]
        is_pending = frozenset(paths).__contains__
        among = paths if sum(map(len, paths)) < _NAMED_BYTES else None
        hits: list[MatchedLine] = []
        if paths and wanted:
            hits += self._lines(_defining(sought.names), check, until, among) if sought.names else []
            hits += self._lines("|".join(map(re.escape, wanted)), check, until, among)
        matches = self._by_file(hits, sought, is_pending)
        seen = {one.path for one in matches}
        named = ((path, _in_path(path, wanted)) for path in paths if path not in seen)
        matches += [_MatchedFile(path, set(), held, 0.0, None) for path, held in named if held]
        return ChangedFiles(self, pending, matches, wanted)

    def _is_regular(self, path: bytes) -> bool:
        """Whether a path leads to a file, and not to something that could keep ripgrep waiting."""
        try:
            info = os.stat(path, dir_fd=self._place.root.fd, follow_symlinks=False)
        except OSError:
            return False
        return stat.S_ISREG(info.st_mode) and b"\n" not in path

    def read(self, path: bytes) -> bytes | None:
        """A file, opened by the rules for reading; None if that is not possible, or it is too large."""
        try:
            fd, info = self._files.open_file(Place(self._place.root, path, names.show(path)))
        except LlmcError:
            return None
        with os.fdopen(fd, "rb", buffering=0) as opened:
            return (opened.read(_LARGEST) or b"") if info.st_size < _LARGEST else None

    def _lines(
        self, pattern: str, check: Callable[[], None], until: float, among: Sequence[bytes] | None = None
    ) -> list[MatchedLine]:
        context, most = (_CONTEXT, 0) if among is None else (0, _LINES_A_FILE)
        query = Query(pattern, context_lines=context, max_per_file=most, outside_git=True)
        return list(self._search().content(self._place, query, _LINES, check, until, among).hits)

    def _path_of(self, hit: MatchedLine) -> bytes:
        return names.parse(hit.path[len(self._place.absolute.rstrip("/")) + 1 :])

    def _by_file(
        self, hits: Iterable[MatchedLine], sought: "_Sought", fits: Callable[[bytes], bool]
    ) -> "list[_MatchedFile]":
        """The hits by file, each with the lines around the one that holds most."""
        lines: dict[bytes, dict[int, MatchedLine]] = {}
        for hit in hits:
            lines.setdefault(self._path_of(hit), {})[hit.line] = hit
        return [_matched(path, list(found.values()), sought) for path, found in lines.items() if fits(path)]

    def _named(
        self,
        wanted: list[str],
        fits: Callable[[bytes], bool],
        matches: "list[_MatchedFile]",
        check: Callable[[], None],
    ) -> "list[_MatchedFile]":
        """Files whose paths hold words of the question, besides those whose text does."""
        listed = self._search().paths(
            self._place, include_hidden=False, include_ignored=False, check=check, outside_git=True
        )
        seen = {one.path for one in matches}
        paths = (path.removeprefix(b"./") for path in listed.split(b"\0") if path)
        named = ((path, _in_path(path, wanted)) for path in paths if path not in seen)
        return [_MatchedFile(path, set(), held, 0.0, None) for path, held in named if held and fits(path)]

    def outside_ignore_files(self) -> Callable[[bytes], bool]:
        """Whether no .ragignore can be about a file: only the build knows what such rules leave out."""
        from ..build.walk import RAG_IGNORE  # only while an index is being built

        root = self._place.root.fd
        known: dict[bytes, bool] = {}

        def has_rules(folder: bytes) -> bool:
            if folder not in known:
                try:
                    os.stat(os.path.join(folder, RAG_IGNORE), dir_fd=root, follow_symlinks=False)
                    known[folder] = True
                except OSError:
                    known[folder] = folder != b"" and has_rules(os.path.dirname(folder))
            return known[folder]

        return lambda path: not has_rules(os.path.dirname(path))

    def _head(self, path: bytes) -> snippets.Piece:
        try:
            fd, _ = self._files.open_file(Place(self._place.root, path, names.show(path)))
        except LlmcError:
            return snippets.Piece([1], [""])
        with os.fdopen(fd, "rb", buffering=0) as opened:
            data = opened.read(_HEAD_BYTES) or b""
        shown = b"\n".join(data.split(b"\n")[:_HEAD_LINES])
        return snippets.piece_of(shown, 0, len(shown), 1)


class ChangedFiles:
    """Files that changed since they were indexed, or are new, and what of them matches a question.

    What is shown is read from the file itself, by the rules for reading: ripgrep may have followed a link.
    """

    def __init__(
        self,
        source: UnindexedFiles,
        pending: Mapping[bytes, int],
        matches: "Sequence[_MatchedFile]",
        wanted: Sequence[str],
    ) -> None:
        self._source, self._wanted = source, wanted
        self._paths = {file: path for path, file in pending.items() if file}
        self._matches = {one.path: one for one in matches}
        self._rarity = _rarities(matches, wanted)

    def __contains__(self, file: int) -> bool:
        """Whether a file of the index is one of them."""
        return file in self._paths

    def hit(self, file: int, symbol: str = "", kind: str = "") -> LoadedHit | None:
        """What matches in a file of the index as it is now; the definition that the index names, if it is there."""
        one = self._matches.get(self._paths[file])
        return self._loaded(one, symbol, kind) if one is not None else None

    def among(self, hits: list[LoadedHit], limit: int) -> list[LoadedHit]:
        """Hits of the index, and the best ones here.

        What defines a name that was asked for comes first, what holds all words in turn with them, the rest behind.
        """
        shown, scores = {hit.path for hit in hits}, [hit.score for hit in hits] or [0.0]
        ordered = sorted(self._matches.values(), key=lambda one: (-one.score(self._rarity), one.path))
        loaded = ((one, self._loaded(one)) for one in ordered if one.path not in shown)
        first, strong, rest = list[LoadedHit](), list[LoadedHit](), list[LoadedHit]()
        for one, hit in islice(((one, hit) for one, hit in loaded if hit is not None), limit):
            if one.defines >= _DEFINED_NAME:
                first.append(hit._replace(score=max(scores)))
            elif hit.score >= _STRONG:
                strong.append(hit)
            else:
                rest.append(hit._replace(score=min(scores)))
        return [*first, *in_turn(hits, strong), *rest]

    def _loaded(self, one: "_MatchedFile", symbol: str = "", kind: str = "") -> LoadedHit | None:
        data = self._source.read(one.path)
        text = as_utf8(data) if data is not None else None
        if data is None or text is None:
            return None
        rows = text.decode(errors="replace").removesuffix("\n").split("\n")
        defined_at = _line_defining(last_name(symbol).lower(), rows) if symbol else 0
        lines = range(defined_at, defined_at + _HEAD_LINES) if defined_at else self._around(one.line, rows)
        if not lines:
            return None  # it has changed again, or was something else in between
        shown = [row.removesuffix("\r") for row in rows[lines.start - 1 : lines.stop - 1]]
        piece = snippets.Piece(list(lines[: len(shown)]), shown)
        found = _hit(one, piece, self._rarity)._replace(revision=revisions.revision_of(data))
        return found._replace(symbol=symbol, kind=kind) if defined_at else found

    def _around(self, line: int, rows: Sequence[str]) -> range:
        """The numbers of lines to show around one that matches: none if it does not; the first ones without a line."""
        if not line:
            return range(1, 1 + _HEAD_LINES)
        matches = line <= len(rows) and any(word in rows[line - 1].lower() for word in self._wanted)
        return range(max(line - _CONTEXT, 1), line + _CONTEXT + 1) if matches else range(0)


def _line_defining(name: str, rows: Sequence[str]) -> int:
    """The number of the first line that defines a name in lower case, as it seems; 0 for none."""
    sought = _Sought([name], [])
    low = ((number, row.lower()) for number, row in enumerate(rows, 1))
    return next((number for number, row in low if name in row and sought.defined_by(row)), 0)


def in_turn(hits: list[LoadedHit], others: list[LoadedHit]) -> list[LoadedHit]:
    """Hits of the index and of ripgrep in turn, as their scores can't be compared: those of the index come first."""
    made: list[LoadedHit] = []
    for at in range(max(len(hits), len(others))):
        made += hits[at : at + 1]
        score = made[-1].score if made else 0.0
        made += [one._replace(score=score) for one in others[at : at + 1]]
    return made


def _hit(one: "_MatchedFile", piece: snippets.Piece, rarity: Mapping[str, float]) -> LoadedHit:
    return LoadedHit(
        path=one.path,
        score=one.score(rarity) / max(sum(rarity.values()), 1.0),
        nth=0,
        piece=piece,
        symbol=None,
        kind=None,
        definitions=(),
        revision="",
    )


class _MatchedFile(NamedTuple):
    """A file, the words that are in its text and in its path, and its best lines."""

    path: bytes
    held: set[str]
    named: set[str]
    defines: float
    piece: snippets.Piece | None
    line: int = 0  # the best one

    def score(self, rarity: Mapping[str, float]) -> float:
        total = sum(rarity[word] for word in self.held) + _IN_PATH * sum(rarity[word] for word in self.named)
        return (total + self.defines) * (_TEST if _TESTS.search(os.fsdecode(self.path)) else 1.0)


class _Sought(NamedTuple):
    """What to look for, in lower case."""

    names: list[str]  # as they are written
    others: list[str]  # words up to where their endings differ

    def defined_by(self, line: str) -> bool:
        """Whether a line defines one of the names, as it seems."""
        keyword = _DEFINES.search(line)
        return keyword is not None and not set(self.names).isdisjoint(_NAME.findall(line, keyword.end()))


def _sought(question: Question) -> _Sought:
    named = [last_name(name).lower() for name in question.names] + [word.lower() for word in question.wholes]
    sought = [name for name in dict.fromkeys(named) if len(name) >= _SHORTEST][:_WORDS]
    if question.symbol and sought:
        return _Sought(sought, [])  # the parts of a name are everywhere
    plain = [stem if word.startswith(stem) else word for word in question.plain if (stem := words.stem(word))]
    long = dict.fromkeys(word for word in [*plain, *question.stems] if len(word) >= _SHORTEST and word not in sought)
    return _Sought(sought, list(long)[: _WORDS - len(sought)])


def _defining(wanted: list[str]) -> str:
    """A pattern for lines that define one of these names, as it seems."""
    return rf"{_DEFINES.pattern}.{{0,80}}\b(?:{'|'.join(map(re.escape, wanted))})\b"


def _chooser(query: CodeQuery) -> Callable[[bytes], bool]:
    glob = Glob(query.path_glob) if query.path_glob is not None else None

    def fits(path: bytes) -> bool:
        shown = os.fsdecode(path)
        return _is_in(query.scope, shown) and (glob is None or glob.fits(shown))

    return fits


def _is_in(scope: Scope, path: str) -> bool:
    is_document = path.rpartition(".")[2].lower() in _DOCUMENTS
    return scope == "both" or is_document == (scope == "docs")


def _matched(path: bytes, found: list[MatchedLine], sought: _Sought) -> "_MatchedFile":
    wanted = [*sought.names, *sought.others]
    rows = [(one, one.snippet.split("\n")) for one in found]
    texts = [(one, rows_of, rows_of[one.line - one.start].lower()) for one, rows_of in rows]
    held = {word for word in wanted if any(word in text for *_, text in texts)}
    best, shown, text = max(texts, key=lambda row: (sought.defined_by(row[2]), _line_score(row[2], wanted)))
    piece = snippets.Piece(list(range(best.start, best.start + len(shown))), shown)
    defines = _DEFINED_NAME if sought.defined_by(text) else _DEFINED if _DEFINES.search(text) else 0.0
    return _MatchedFile(path, held, _in_path(path, wanted), defines, piece, best.line)


def _line_score(text: str, wanted: list[str]) -> float:
    return sum(word in text for word in wanted) + (0.5 if _DEFINES.search(text) else 0.0)


def _in_path(path: bytes, wanted: list[str]) -> set[str]:
    low = os.fsdecode(path).lower()
    return {word for word in wanted if word in low}


def _rarities(files: "Sequence[_MatchedFile]", wanted: Sequence[str]) -> dict[str, float]:
    """A word that few of the files hold says more than one that all of them do."""
    counts = {word: sum(word in one.held or word in one.named for one in files) for word in wanted}
    return {word: math.log(1 + len(files) / (1 + count)) for word, count in counts.items()}
