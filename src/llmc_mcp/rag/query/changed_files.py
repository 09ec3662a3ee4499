"""Hits in files that changed since they were indexed, or are new, until they are indexed again.

ripgrep has chosen files that may match; each that is shown is read, by the rules for reading: ripgrep sees only a few
lines of each, and follows a link that has taken a file's place. A file that the index has found keeps the rank that it
had.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ...files import revisions
from ..parse.question import last_name, owner_name
from ..parse.text import as_utf8
from . import snippets
from .hits import LoadedHit
from .text_match import DEFINED_NAME, SoughtWords, TextMatch, match_of, rarities

HEAD_LINES = 10  # shown of a definition, or of a file that only its name speaks for
_CONTEXT = 4  # lines around a match that are shown
_READ = 4  # files that are read for each one that is shown
_STRONG = 1.0  # the score of a file that holds all words of the question


class _CurrentText(NamedTuple):
    """A file as it is now."""

    rows: list[str]
    revision: str


class ChangedFiles:
    """Files that wait to be indexed again, and what of them matches a question; of those that are gone, nothing."""

    def __init__(
        self,
        read: Callable[[bytes], bytes | None],
        pending: Mapping[bytes, int],
        candidates: Sequence[TextMatch],
        sought: SoughtWords,
        check: Callable[[], None],
    ) -> None:
        self._read, self._sought, self._check = read, sought, check
        self._paths = {abs(file): path if file > 0 else None for path, file in pending.items() if file}
        self._candidates = candidates
        self._rarity = rarities(candidates, sought.all)

    def __contains__(self, file: int) -> bool:
        """Whether a file of the index is one of them."""
        return file in self._paths

    def hit(self, file: int, symbol: str = "", kind: str = "") -> LoadedHit | None:
        """What matches in a file of the index as it is now; the definition that the index names, if it is there."""
        path = self._paths[file]
        text = self._text(path) if path is not None else None
        if path is None or text is None:
            return None
        match = match_of(path, enumerate(text.rows, 1), self._sought)
        if not match.held and not match.named:
            return None
        line = _line_of(symbol, text.rows) if symbol else 0
        found = self._hit(match, text, range(line, line + HEAD_LINES) if line else None)
        return found._replace(symbol=symbol, kind=kind) if line else found

    def among(self, hits: list[LoadedHit], limit: int) -> list[LoadedHit]:
        """Hits of the index, and the best ones here.

        What defines a name that was asked for comes first, unless the index has a definition; what holds all words
        comes in turn with the hits, and the rest behind.
        """
        first, strong, rest = list[LoadedHit](), list[LoadedHit](), list[LoadedHit]()
        for match, hit in self._best(limit, {hit.path for hit in hits}):
            if match.defines >= DEFINED_NAME:
                first.append(hit)
            elif hit.score >= _STRONG:
                strong.append(hit)
            else:
                rest.append(hit._replace(nth=1, score=0.0))
        if hits and last_name(hits[0].symbol or "").lower() in self._sought.names:
            return [*in_turn(hits, [*first, *strong]), *rest]
        top = max((hit.score for hit in hits), default=0.0)
        return [*(hit._replace(score=top) for hit in first), *in_turn(hits, strong), *rest]

    def _best(self, limit: int, shown: set[bytes]) -> list[tuple[TextMatch, LoadedHit]]:
        """The best hits in other files than those that are shown, by all of their text."""
        new = [one for one in self._candidates if one.path not in shown]
        ordered = sorted(new, key=lambda one: (-one.score(self._rarity), one.path))
        found: list[tuple[TextMatch, LoadedHit]] = []
        for candidate in ordered[: _READ * limit]:
            self._check()
            text = self._text(candidate.path)
            match = match_of(candidate.path, enumerate(text.rows, 1), self._sought) if text is not None else None
            if text is not None and match is not None and (match.held or match.named):
                found.append((match, self._hit(match, text)))
        return sorted(found, key=lambda row: (-row[1].score, row[0].path))[:limit]

    def _text(self, path: bytes) -> _CurrentText | None:
        data = self._read(path)
        text = as_utf8(data) if data is not None else None
        if data is None or text is None:
            return None
        rows = text.decode(errors="replace").removesuffix("\n").split("\n")
        return _CurrentText([row.removesuffix("\r") for row in rows], revisions.revision_of(data))

    def _hit(self, match: TextMatch, text: _CurrentText, lines: range | None = None) -> LoadedHit:
        """The lines around the best one, or those that are given; the first ones where only the path matches."""
        if lines is None:
            around = range(max(match.line - _CONTEXT, 1), match.line + _CONTEXT + 1)
            lines = around if match.line else range(1, 1 + HEAD_LINES)
        shown = [snippets.short(row) for row in text.rows[lines.start - 1 : lines.stop - 1]]
        piece = snippets.Piece(list(lines[: len(shown)]), shown)
        return hit_of(match, piece, self._rarity)._replace(revision=text.revision)


def hit_of(match: TextMatch, piece: snippets.Piece, rarity: Mapping[str, float]) -> LoadedHit:
    """A hit that no index knows more of than where it is."""
    return LoadedHit(
        path=match.path,
        score=match.score(rarity),
        nth=0,
        piece=piece,
        symbol=None,
        kind=None,
        definitions=(),
        revision="",
    )


def in_turn(hits: list[LoadedHit], others: list[LoadedHit]) -> list[LoadedHit]:
    """Hits of the index and of ripgrep in turn, as their scores can't be compared: those of the index come first."""
    made: list[LoadedHit] = []
    for at in range(max(len(hits), len(others))):
        made += hits[at : at + 1]
        score = made[-1].score if made else 0.0
        made += [one._replace(score=score) for one in others[at : at + 1]]
    return made


def _line_of(symbol: str, rows: Sequence[str]) -> int:
    """The number of the line that defines a name, as it seems, below the one that defines its owner; 0 for none."""
    first = 0
    for name in (owner_name(symbol), last_name(symbol)):
        sought = SoughtWords([name.lower()], [])
        if name:
            numbered = ((number, row.lower()) for number, row in enumerate(rows[first:], first + 1))
            first = next((number for number, row in numbered if name.lower() in row and sought.defined_by(row)), 0)
            if not first:
                return 0
    return first
