"""What a question looks for in plain text, and how well a file answers it where no index tells.

Nothing is known about the words but where they are. So a file is as good as the words of the question that it holds,
the rare ones before the common ones, those in its path and those of a definition more than others.
"""

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..parse import words
from ..parse.question import Question, last_name

_WORDS = 10  # of a question that are looked for
_SHORTEST = 3
_IN_PATH, _DEFINED, _TEST = 1.5, 1.0, 0.7
DEFINED_NAME = 20.0  # what a line is worth that defines a name which was asked for
_DEFINES = re.compile(
    r"\b(?:def|class|func|fn|function|struct|interface|trait|type|enum|impl|module|const|let|var|define)\b"
)
_NAME_BEHIND = re.compile(  # … or behind a receiver of Go or another keyword; within bounds, as a line may be endless
    r"\*?\s{1,20}(?:\([^()]{0,100}\)\s{0,20})?(?:(?:async|mut|static|class|struct|enum)\s{1,20})?([\w.:$]{1,200})"
)
_REFERS = re.compile(r"\s*(?:#(?!\s*define)|//|/?\*|--|(?:import|from|use|using)\b)")  # comments, and what names others
_NAME = re.compile(r"\w+")
_TESTS = re.compile(r"(^|/)(tests?|specs?)/|(^|/|_|\.)(test|spec)[_.]", re.IGNORECASE)


class SoughtWords(NamedTuple):
    """What to look for, in lower case."""

    names: list[str]  # as they are written
    others: list[str]  # words up to where their endings differ

    @property
    def all(self) -> list[str]:
        """Names and other words."""
        return [*self.names, *self.others]

    def pattern(self) -> str:
        """An expression for lines that hold one of them."""
        return "|".join(map(re.escape, self.all))

    def defining(self) -> str:
        """An expression for lines that may define one of the names."""
        return rf"{_DEFINES.pattern}.{{0,80}}\b(?:{'|'.join(map(re.escape, self.names))})\b"

    def defined_by(self, line: str) -> bool:
        """Whether a line defines one of the names, as it seems."""
        keyword = None if _REFERS.match(line) else _DEFINES.search(line)
        found = _NAME_BEHIND.match(line, keyword.end()) if keyword is not None else None
        return found is not None and not set(self.names).isdisjoint(_NAME.findall(found[1]))


def sought_in(question: Question) -> SoughtWords:
    """The words of a question that say most."""
    named = [last_name(name).lower() for name in question.names] + [word.lower() for word in question.wholes]
    sought = [name for name in dict.fromkeys(named) if len(name) >= _SHORTEST][:_WORDS]
    if question.symbol and sought:
        return SoughtWords(sought, [])  # the parts of a name are everywhere
    plain = [stem if word.startswith(stem) else word for word in question.plain if (stem := words.stem(word))]
    long = dict.fromkeys(word for word in [*plain, *question.stems] if len(word) >= _SHORTEST and word not in sought)
    return SoughtWords(sought, list(long)[: _WORDS - len(sought)])


class TextMatch(NamedTuple):
    """A file, the words that are in its text and in its path, what its best line is worth, and which that is."""

    path: bytes
    held: set[str]
    named: set[str]
    defines: float = 0.0
    line: int = 0  # none, if only its path speaks for it

    def score(self, rarity: Mapping[str, float]) -> float:
        """How well it answers; 1 and more if it holds all words."""
        total = sum(rarity[word] for word in self.held) + _IN_PATH * sum(rarity[word] for word in self.named)
        worth = (total + self.defines) * (_TEST if _TESTS.search(os.fsdecode(self.path)) else 1.0)
        return worth / max(sum(rarity.values()), 1.0)


def match_of(path: bytes, lines: Iterable[tuple[int, str]], sought: SoughtWords) -> TextMatch:
    """How a file matches by some of its lines, each with its number."""
    wanted = sought.all
    every = ((number, line.lower()) for number, line in lines)
    low = [(number, text) for number, text in every if any(word in text for word in wanted)]
    held = {word for word in wanted if any(word in text for _, text in low)}
    if not low:
        return TextMatch(path, held, in_path(path, wanted))
    line, best = max(low, key=lambda row: (sought.defined_by(row[1]), _worth(row[1], wanted), -row[0]))
    defines = DEFINED_NAME if sought.defined_by(best) else _DEFINED if _DEFINES.search(best) else 0.0
    return TextMatch(path, held, in_path(path, wanted), defines, line)


def _worth(text: str, wanted: Sequence[str]) -> float:
    return sum(word in text for word in wanted) + (0.5 if _DEFINES.search(text) else 0.0)


def in_path(path: bytes, wanted: Sequence[str]) -> set[str]:
    """The words that a path holds."""
    low = os.fsdecode(path).lower()
    return {word for word in wanted if word in low}


def rarities(matches: Sequence[TextMatch], wanted: Sequence[str]) -> dict[str, float]:
    """A word that few of the files hold says more than one that all of them do."""
    counts = {word: sum(word in one.held or word in one.named for one in matches) for word in wanted}
    return {word: math.log(1 + len(matches) / (1 + count)) for word, count in counts.items()}
