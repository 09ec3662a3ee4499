"""Replace what a pattern matches, in all files of one language below some paths."""

import os
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..changes.rewrites import Read
from ..errors import InvalidArgument, LlmcError, Stale
from ..files import names
from ..files.filesystem import Filesystem, Place
from ..files.ripgrep import Search
from ..rag.parse.detect import language_of
from ..rag.parse.patterns import LANGUAGES, NAMES, RewriteQuery
from .parser import CodeParser

_SHORT = {
    "py": "python",
    "js": "javascript",
    "ts": "typescript",
    "golang": "go",
    "rs": "rust",
    "c++": "cpp",
    "cs": "c_sharp",
}
_LITERAL = re.compile(r"(?<![\w$])[^\W\d]\w*")
_HEAD = 4096


class PatternMatches(NamedTuple):
    """The files that have matches: for each, its content and the lines of the matches."""

    files: dict[str, tuple[bytes, list[int]]]
    searched: int
    skipped: list[str]  # files that are not UTF-8

    @property
    def total(self) -> int:
        return sum(len(lines) for _, lines in self.files.values())


class PatternRewriter:
    """Finds and replaces a pattern."""

    def __init__(self, files: Filesystem, search: Search, parser: CodeParser, largest: int) -> None:
        self._files, self._search, self._parser, self._largest = files, search, parser, largest

    def language(self, name: str) -> str:
        """A language by its name here; raises for one that has no patterns."""
        known = _SHORT.get(name.lower(), name.lower())
        known = next((ours for ours, theirs in NAMES.items() if theirs == known), known)
        if NAMES.get(known, known) not in LANGUAGES:
            raise InvalidArgument(
                f"there are no patterns for {name!r}", hint=f"Languages: {', '.join(sorted(LANGUAGES))}."
            )
        return known

    def find(
        self, language: str, pattern: str, replacement: str, places: list[Place], check: Callable[[], None]
    ) -> PatternMatches:
        """What a pattern matches in files that may be read."""
        literal = max(_LITERAL.findall(pattern), key=len, default="").encode()
        found: dict[str, tuple[bytes, list[int]]] = {}
        skipped: list[str] = []
        searched = 0
        for path, place in self._files_of(language, places, check):
            check()
            data = self._read(place)
            if data is None or language_of(path, data[:_HEAD]) != language:
                continue
            searched += 1
            if literal not in data:
                continue
            try:
                text = data.decode()
            except UnicodeDecodeError:
                skipped.append(path)
                continue
            done = self._parser.rewrite(RewriteQuery(language, text, pattern, replacement), check)
            if done.problem:
                raise InvalidArgument(done.problem, hint="$A stands for one node, $$$A for any number of them.")
            if done.lines:
                found[path] = data, done.lines
        return PatternMatches(found, searched, skipped)

    def compute(
        self, language: str, pattern: str, replacement: str, matches: PatternMatches, check: Callable[[], None]
    ) -> Callable[[Read], dict[str, bytes]]:
        """The new contents of the files with matches, for a change that is made of all of them."""

        def new_contents(read: Read) -> dict[str, bytes]:
            after: dict[str, bytes] = {}
            for path, (before, _) in matches.files.items():
                data = read(path)
                if data != before:
                    raise Stale(f"{path}: it changed while the pattern was looked for", hint="Try again.")
                query = RewriteQuery(language, data.decode(), pattern, replacement)
                after[path] = self._parser.rewrite(query, check).text.encode()
            return after

        return new_contents

    def _files_of(self, language: str, places: list[Place], check: Callable[[], None]) -> Iterator[tuple[str, Place]]:
        for place in places:
            fd, is_folder = self._files.open_dir_or_file(place)
            os.close(fd)
            if not is_folder:
                yield place.absolute, place
                continue
            below = self._search.paths(place, include_hidden=False, include_ignored=False, check=check)
            for path in sorted(filter(None, below.split(b"\0"))):
                shown = names.show(path.removeprefix(b"./"))
                if shown.endswith(".h") or language_of(shown, b"") == language:
                    yield f"{place.absolute.rstrip('/')}/{shown}", self._files.below(place, shown)

    def _read(self, place: Place) -> bytes | None:
        """A file that may be shown and is not too large to edit; None for any other."""
        try:
            fd, info = self._files.open_file(place)
        except LlmcError:
            return None
        with os.fdopen(fd, "rb", buffering=0) as opened:
            return (opened.read(info.st_size) or b"") if info.st_size <= self._largest else None
