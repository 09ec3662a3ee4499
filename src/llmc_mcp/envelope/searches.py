"""Searches in the form that the given flags print: bash runs them, so they can't get flags of ours.

With -A, -B or -C their output is groups of lines with `--` between them.
"""

import re

from .family import Budget, FamilyPlan, Room, ShownOutput, clip, fits, lines_of
from .grep import Grep, InFile, OwnForm, SearchedTexts, read_search

_NUMBER = re.compile(rb"(\d+)([:-])")
_HIT = re.compile(rb"(.+?):\d+:")
_LONGEST_GROUP = 5_000  # lines
_DECIDING = 200  # lines
_LINE = 240  # bytes shown of a line
_HEAD_SHARE = 0.7
_MARK_TOKENS = 20


def plain_plan(argv: list[str], *, several: bool = False) -> FamilyPlan | None:
    """A plan; None if a flag selects another kind of output.

    `several`: another program gives it files, whose names are then before the hits.
    """
    search = read_search(argv)
    if search is None:
        return None
    own = OwnForm(search.flags, is_rg=search.is_rg, several=several)
    if not search.with_context:
        return FamilyPlan(list(argv), PlainGrep(search.wanted, own), kind="grep")
    family = PlainContext(search.wanted, own) if own.numbered else ContextGroups()
    return FamilyPlan(list(argv), family, kind="grep")


def _name_files(own: OwnForm, lines: list[bytes]) -> bool:
    """Whether hits have names before them shows in the first lines; some of them may be remarks."""
    return any(map(own.names_file, lines[:_DECIDING]))


class PlainGrep(Grep):
    """Hits in the form that the given flags print."""

    def __init__(self, wanted: SearchedTexts | None, own: OwnForm) -> None:
        super().__init__(wanted, with_context=False)
        self._path = own.only_path()
        self._form = own.pattern(named=self._path is None)
        self._own, self._undecided = own, own.undecided_path()

    def take(self, lines: list[bytes]) -> None:
        if self._undecided is not None and lines:
            self._decide(lines, self._undecided)
        for line in lines:
            if (found := self._form.match(line)) is None:
                self._take_other(line)
                continue
            path = found["path"] if self._path is None else self._path
            file = self._files.get(path)
            if file is None:
                file = self._files[path] = InFile(path)
            self._take_hit(file, found["number"] or b"", b":", line, found.end())

    def _decide(self, lines: list[bytes], operand: bytes) -> None:
        self._undecided = None
        self._path = None if _name_files(self._own, lines) else operand
        self._form = self._own.pattern(named=self._path is None)


class PlainContext(Grep):
    """Numbered groups. A group is of one file, so its hits tell the name that its other lines begin with."""

    def __init__(self, wanted: SearchedTexts | None, own: OwnForm) -> None:
        super().__init__(wanted, with_context=True)
        self._path = own.only_path()
        self._group: list[bytes] = []
        self._own, self._undecided = own, own.undecided_path()

    def take(self, lines: list[bytes]) -> None:
        if self._undecided is not None and lines:
            self._path = None if _name_files(self._own, lines) else self._undecided
            self._undecided = None
        for line in lines:
            if line == b"--" or len(self._group) >= _LONGEST_GROUP:
                self._end_group()
            if line != b"--":
                self._group.append(line)

    def skip(self, lines: int) -> None:
        self._end_group()
        super().skip(lines)

    def show(self, held: bytes | None, budget: Budget) -> ShownOutput:
        self._end_group()
        return super().show(held, budget)

    def _end_group(self) -> None:
        group, self._group = self._group, []
        path = self._path if self._path is not None else _name_of(group)
        if path is None:
            for line in group:
                self._take_other(line)
            return
        start = 0 if self._path is not None else len(path) + 1
        file = self._files.get(path) or InFile(path)
        for line in group:
            number = _NUMBER.match(line, start)
            if number is None:
                self._take_other(line)
                continue
            self._files[path] = file
            self._take_hit(file, number[1], number[2], line, number.end())


def _name_of(group: list[bytes]) -> bytes | None:
    """The file name that every line of a group begins with; None for what is no group, such as a remark."""
    for line in group:
        if (hit := _HIT.match(line)) is None:
            continue
        path = hit[1]
        if all(other.startswith((path + b":", path + b"-")) and _NUMBER.match(other, len(path) + 1) for other in group):
            return path
    return None


class ContextGroups:
    """Groups without numbers: which of their lines are hits can't be told, so groups and lines are counted."""

    def __init__(self) -> None:
        self._lines = self._groups = 0
        self._open = False

    def take(self, lines: list[bytes]) -> None:
        for line in lines:
            if line == b"--":
                self._open = False
                continue
            self._lines += 1
            self._groups += not self._open
            self._open = True

    def skip(self, lines: int) -> None:
        self._lines += lines

    def show(self, held: bytes | None, budget: Budget) -> ShownOutput:
        counts = {"groups": self._groups, "lines": self._lines}
        if held is not None and fits(held, budget):
            return ShownOutput(lines_of(held), counts)
        if held is None or budget.counts_only:
            return ShownOutput([], counts, "counts", True)
        groups = [[clip(line, _LINE) for line in lines_of(group)] for group in held.split(b"\n--\n")]
        first = _fitting(groups, Room(budget, _HEAD_SHARE))
        last = _fitting(groups[:first:-1], Room(budget, 1 - _HEAD_SHARE))
        left = groups[first : len(groups) - last]
        mark = f"… {len(left):,} groups of {sum(map(len, left)):,} lines left out".encode()
        shown = [*groups[:first], [mark], *groups[len(groups) - last :]]
        return ShownOutput(b"\n--\n".join(map(b"\n".join, shown)).split(b"\n"), counts, "grouped", True)


def _fitting(groups: list[list[bytes]], room: Room) -> int:
    room.take(b"x" * _MARK_TOKENS)
    return len(room.fill(b"\n".join([*group, b"--"]) for group in groups))
