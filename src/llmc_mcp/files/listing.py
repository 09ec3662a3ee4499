"""Listing trees and finding files by name. ripgrep decides what is ignored, as in content searches."""

import fnmatch
import re
from collections.abc import Callable, Iterator

from ..errors import FeatureUnavailable, InvalidArgument
from . import names
from .filesystem import Entry, Filesystem, Place, WalkBudget, kind_of
from .ripgrep import Search

_GLOB = re.compile(r"[*?\[]")
_LONGEST_GLOB = 500  # characters


class Lister:
    """Lists trees and finds files by name; created once per server."""

    def __init__(self, files: Filesystem, search: Callable[[], Search]) -> None:
        self._files, self._search = files, search

    def tree(
        self,
        place: Place,
        depth: int,
        include_hidden: bool,
        file_glob: str | None,
        include_ignored: bool,
        check: Callable[[], None],
        bound: WalkBudget,
        notes: list[str],
    ) -> Iterator[Entry]:
        """Entries with size and time, level by level; an ignored or empty directory is an entry, not entered.

        Remarks for the caller are added to `notes`.
        """
        if depth == 0:
            info, _ = self._files.stat(place)
            yield Entry(b"", kind_of(info.st_mode), 0, info.st_size, info.st_mtime)
            return
        enter = None if include_ignored or depth == 1 else self._not_ignored(place, include_hidden, check, notes)
        wanted = None if file_glob is None else _glob_matcher(file_glob)
        walk = self._files.walk(
            place, depth=depth, include_hidden=include_hidden, enter=enter, with_stat=True, bound=bound
        )
        for count, entry in enumerate(walk):
            if not count % 256:
                check()
            if wanted is None or (entry.kind != "dir" and wanted(b"/" + entry.path)):
                yield entry

    def _not_ignored(
        self, place: Place, hidden: bool, check: Callable[[], None], notes: list[str]
    ) -> Callable[[bytes], bool] | None:
        try:
            paths = self._search().paths(place, include_hidden=hidden, include_ignored=False, check=check)
        except FeatureUnavailable as exc:
            notes.append(f"Ignored folders are listed too: {exc.message}.")
            return None
        folders: set[bytes] = set()
        for path in _split(paths):
            folder = path.rpartition(b"/")[0]
            while folder and folder not in folders:
                folders.add(folder)
                folder = folder.rpartition(b"/")[0]
        return folders.__contains__

    def find(self, place: Place, pattern: str, file_glob: str | None, check: Callable[[], None]) -> list[bytes]:
        """Files by name, best first; the pattern is a substring in any case or a glob, with a slash of the path."""
        paths = self._search().paths(place, include_hidden=False, include_ignored=False, check=check)
        check()
        found = _matching(paths, pattern)
        if file_glob is not None:
            wanted = _glob_matcher(file_glob)
            found = [path for path in found if wanted(b"/" + path)]
        word = names.parse(pattern).lower().strip(b"/")
        found.sort(key=lambda path: _rank(path, word))
        return found


def _matching(paths: bytes, pattern: str) -> list[bytes]:
    if _GLOB.search(pattern):
        wanted = _glob_matcher(pattern)
        return [path for path in _split(paths) if wanted(b"/" + path)]
    word = names.parse(pattern)
    if not word.isascii():
        lowered = pattern.lower()
        return [p for p in _split(paths) if lowered in _searched(p, b"/" in word).decode("utf-8", "replace").lower()]
    return [path for path in _holding(paths, word.lower()) if word.lower() in _searched(path, b"/" in word).lower()]


def _split(paths: bytes) -> list[bytes]:
    return [path[2:] for path in paths.split(b"\0")[:-1]]  # without the leading "./"


def _holding(paths: bytes, word: bytes) -> Iterator[bytes]:
    """Paths that contain a word in any case; one pass in C over all paths finds the candidates."""
    lowered = paths.lower()
    at = lowered.find(word)
    while at >= 0:
        start, end = paths.rfind(b"\0", 0, at) + 1, paths.find(b"\0", at)
        yield paths[start + 2 : end]
        at = lowered.find(word, end)


def _searched(path: bytes, whole: bool) -> bytes:
    return path if whole else path.rpartition(b"/")[2]


def _rank(path: bytes, word: bytes) -> tuple[int, int, bytes]:
    """Sort key: the exact name, the name without its ending, a prefix, anything; then short paths first."""
    name = path.rpartition(b"/")[2].lower()
    if name == word:
        quality = 0
    elif name.partition(b".")[0] == word:
        quality = 1
    else:
        quality = 2 if name.startswith(word) else 3
    return quality, len(path), path


def _glob_matcher(glob: str) -> Callable[[bytes], bool]:
    """A case-insensitive matcher for a glob on the file's name or, with a slash, on the end of its path."""
    if len(glob) > _LONGEST_GLOB:
        raise InvalidArgument(
            f"the glob has {len(glob):,} characters, {_LONGEST_GLOB} are allowed",
            hint="A glob is like *.py or src/*.ts.",
        )
    text = glob.strip("/")
    # fnmatch's stars don't backtrack, so that matching takes linear time.
    if "/" in text:
        pattern = re.compile(fnmatch.translate(f"*/{text}").encode(), re.IGNORECASE)
        return lambda path: pattern.match(path) is not None
    of_name = re.compile(fnmatch.translate(text).encode(), re.IGNORECASE)
    return lambda path: of_name.match(path, path.rfind(b"/") + 1) is not None
