"""Search of files that are not in the index yet: by ripgrep, while it is built, or updated after a checkout.

The definitions of names are looked for by themselves: a common word has more lines than can be looked at.
"""

import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from ...errors import FeatureUnavailable, Internal, LlmcError, OutputTooLarge
from ...files import names
from ...files.filesystem import Filesystem, Place, Root
from ...files.ripgrep import MatchedLine, Query, Search
from ..parse.languages import DOCUMENT_ENDINGS
from ..parse.question import Question
from ..store.types import Scope
from . import snippets
from .changed_files import HEAD_LINES, ChangedFiles, hit_of
from .globs import Glob
from .hits import LoadedHit
from .text_match import TextMatch, in_path, match_of, rarities, sought_in
from .types import CodeQuery

_LONGEST_S = 5.0  # that files are searched: from a disk, a large folder takes minutes
_LINES = 4_000  # matching lines that are looked at
_CONTEXT = 4  # lines around a match that are shown
_HEAD_BYTES = 4_096  # read of a file that only its name speaks for
_LINES_A_FILE = 3  # matching lines of each of many files that changed: they only choose the files to read
# Paths that ripgrep is given at once, in bytes: what the launcher is sent must fit the smallest buffer of a socket. Of
# more than so many of these, it looks at all files instead.
_NAMED_BYTES, _NAMED_TIMES = 128 << 10, 12
_DOCUMENTS = frozenset({*DOCUMENT_ENDINGS, "md", "rst", "adoc", "org"})


class UnindexedFiles:
    """The files of one root, as ripgrep sees them; those of more than `largest` bytes are never indexed."""

    def __init__(self, files: Filesystem, root: Root, search: Callable[[], Search], largest: int) -> None:
        self._files, self._search, self._largest = files, search, largest
        self._place = Place(root, b".", root.shown)

    def find(
        self, query: CodeQuery, question: Question, is_new: Callable[[bytes], bool], check: Callable[[], None]
    ) -> list[LoadedHit]:
        """The best hits in files that are new."""
        sought = sought_in(question)
        if not sought.all:
            return []
        suits, until = _chooser(query), time.monotonic() + _LONGEST_S

        def fits(path: bytes) -> bool:
            return suits(path) and is_new(path)

        lines = self._by_file(self._lines(sought.defining(), check, until), fits) if sought.names else {}
        if len(lines) < query.limit:
            for path, found in self._by_file(self._lines(sought.pattern(), check, until), fits).items():
                lines.setdefault(path, {}).update(found)
        matches = [
            match_of(path, ((one.line, _text_of(one)) for one in found.values()), sought)
            for path, found in lines.items()
        ]
        is_late = time.monotonic() > until
        if not is_late and len(matches) < query.limit:
            matches += [one for one in _by_path(self._listed(check), sought.all, lines) if fits(one.path)]
        rarity = rarities(matches, sought.all)
        best = sorted(matches, key=lambda one: (-one.score(rarity), one.path))[: query.limit]
        return [
            hit_of(one, _piece(lines[one.path][one.line]) if one.line else self._head(one.path), rarity) for one in best
        ]

    def changed(
        self,
        query: CodeQuery,
        question: Question,
        pending: Mapping[bytes, int],
        until: float,
        check: Callable[[], None],
    ) -> ChangedFiles:
        """What matches in files that are not as they were indexed, or are new; a negative id is of one that is gone."""
        sought, suits = sought_in(question), _chooser(query)
        paths = [path for path, file in pending.items() if file >= 0 and suits(path) and self._can_be_searched(path)]
        until = min(until, time.monotonic() + _LONGEST_S)
        lines: dict[bytes, dict[int, MatchedLine]] = {}
        patterns = [sought.defining(), sought.pattern()] if sought.names else [sought.pattern()]
        for pattern in patterns if paths and sought.all else ():
            for path, found in self._lines_among(pattern, paths, check, until).items():
                lines.setdefault(path, {}).update(found)
        matches = [
            match_of(path, ((one.line, _text_of(one)) for one in found.values()), sought)
            for path, found in lines.items()
        ]
        matches += _by_path(paths, sought.all, lines)
        return ChangedFiles(self.read, pending, matches, sought, check)

    def read(self, path: bytes) -> bytes | None:
        """A file, opened by the rules for reading; None if that is not possible, or it is too large."""
        try:
            fd, info = self._files.open_file(Place(self._place.root, path, names.show(path)))
        except LlmcError:
            return None
        with os.fdopen(fd, "rb", buffering=0) as opened:
            return (opened.read(self._largest) or b"") if info.st_size <= self._largest else None

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
                    known[folder] = False
            return known[folder]

        return lambda path: not any(map(has_rules, _folders_above(path)))

    # --- ripgrep ---------------------------------------------------------------------------------

    def _lines(self, pattern: str, check: Callable[[], None], until: float) -> list[MatchedLine]:
        query = Query(pattern, context_lines=_CONTEXT, outside_git=True)
        return self._search().content(self._place, query, _LINES, check, until).hits

    def _lines_among(
        self, pattern: str, paths: Sequence[bytes], check: Callable[[], None], until: float
    ) -> dict[bytes, dict[int, MatchedLine]]:
        """A few matching lines of each of these files; of some, if ripgrep fails: what is indexed can still answer."""
        query = Query(pattern, context_lines=0, max_per_file=_LINES_A_FILE, outside_git=True)
        batches: list[list[bytes] | None] = list(_batches(paths))
        found: list[MatchedLine] = []
        try:
            for batch in batches if len(batches) <= _NAMED_TIMES else [None]:
                found += self._search().content(self._place, query, _LINES, check, until, batch).hits
        except (OSError, Internal, OutputTooLarge, FeatureUnavailable):
            pass
        return self._by_file(found, frozenset(paths).__contains__)

    def _by_file(
        self, hits: Sequence[MatchedLine], fits: Callable[[bytes], bool]
    ) -> dict[bytes, dict[int, MatchedLine]]:
        """The matching lines of each file, by their numbers."""
        lines: dict[bytes, dict[int, MatchedLine]] = {}
        for hit in hits:
            lines.setdefault(names.parse(hit.path[len(self._place.absolute.rstrip("/")) + 1 :]), {})[hit.line] = hit
        return {path: found for path, found in lines.items() if fits(path)}

    def _listed(self, check: Callable[[], None]) -> Iterator[bytes]:
        listed = self._search().paths(
            self._place, include_hidden=False, include_ignored=False, check=check, outside_git=True
        )
        return (path.removeprefix(b"./") for path in listed.split(b"\0") if path)

    def _can_be_searched(self, path: bytes) -> bool:
        """Whether a path leads to a file of usual size, and not to something that could keep ripgrep waiting."""
        try:
            info = os.stat(path, dir_fd=self._place.root.fd, follow_symlinks=False)
        except (OSError, ValueError):
            return False
        return stat.S_ISREG(info.st_mode) and info.st_size <= self._largest and b"\n" not in path

    def _head(self, path: bytes) -> snippets.Piece:
        try:
            fd, _ = self._files.open_file(Place(self._place.root, path, names.show(path)))
        except LlmcError:
            return snippets.Piece([1], [""])
        with os.fdopen(fd, "rb", buffering=0) as opened:
            data = opened.read(_HEAD_BYTES) or b""
        shown = b"\n".join(data.split(b"\n")[:HEAD_LINES])
        return snippets.piece_of(shown, 0, len(shown), 1)


def _text_of(one: MatchedLine) -> str:
    return one.snippet.split("\n")[one.line - one.start]


def _piece(one: MatchedLine) -> snippets.Piece:
    shown = one.snippet.split("\n")
    return snippets.Piece(list(range(one.start, one.start + len(shown))), shown)


def _by_path(
    paths: Iterator[bytes] | Sequence[bytes], wanted: Sequence[str], seen: Mapping[bytes, object]
) -> list[TextMatch]:
    """Files whose paths hold words of the question, besides those whose text does."""
    named = ((path, in_path(path, wanted)) for path in paths if path not in seen)
    return [TextMatch(path, set(), held) for path, held in named if held]


def _batches(paths: Sequence[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for path in paths:
        batch.append(path)
        size += len(path) + 16  # with what goes around it on its way
        if size >= _NAMED_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _folders_above(path: bytes) -> Iterator[bytes]:
    """The folder of a file, and those around it up to the root, which is empty."""
    while path:
        path = os.path.dirname(path)
        yield path


def _chooser(query: CodeQuery) -> Callable[[bytes], bool]:
    glob = Glob(query.path_glob) if query.path_glob is not None else None

    def fits(path: bytes) -> bool:
        shown = os.fsdecode(path)
        return _is_in(query.scope, shown) and (glob is None or glob.fits(shown))

    return fits


def _is_in(scope: Scope, path: str) -> bool:
    is_document = path.rpartition(".")[2].lower() in _DOCUMENTS
    return scope == "both" or is_document == (scope == "docs")
