"""Parsing a command's flags as the command does: clusters, attached and separate values."""

from collections.abc import Iterator
from typing import NamedTuple


class GivenFlag(NamedTuple):
    """One flag (`-i`, `--include`) with its value, or an operand (`name` is empty)."""

    name: str
    value: str = ""


class FlagSyntax(NamedTuple):
    """Which flags take a value. Long flags may be abbreviated to a unique prefix, as GNU's."""

    short_values: str
    long_values: frozenset[str] = frozenset()
    long_bare: frozenset[str] = frozenset()
    numbers: bool = False  # -5 is a flag

    def parse(self, words: list[str]) -> Iterator[GivenFlag]:
        """Flags and operands, in order."""
        todo = list(words)
        while todo:
            word = todo.pop(0)
            if word == "--":
                yield from (GivenFlag("", operand) for operand in todo)
                return
            if word.startswith("--"):
                yield self._long(word, todo)
            elif word.startswith("-") and word != "-":
                yield from self._cluster(word, todo)
            else:
                yield GivenFlag("", word)

    def _long(self, word: str, todo: list[str]) -> GivenFlag:
        name, has_value, value = word.partition("=")
        known = self.long_values | self.long_bare
        if name not in known:
            meant = [full for full in known if full.startswith(name)]
            name = meant[0] if len(meant) == 1 else name
        if name in self.long_values and not has_value:
            value = todo.pop(0) if todo else ""
        return GivenFlag(name, value)

    def _cluster(self, word: str, todo: list[str]) -> Iterator[GivenFlag]:
        for at, letter in enumerate(word[1:], 2):
            if letter in self.short_values:
                attached = word[at:]
                yield GivenFlag(f"-{letter}", attached or (todo.pop(0) if todo else ""))
                return
            yield GivenFlag("-NUM" if self.numbers and letter.isdigit() else f"-{letter}", letter)
