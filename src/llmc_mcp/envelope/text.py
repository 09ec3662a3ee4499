"""cat, head and tail: a text that is too long becomes its head, its landmarks and its tail, with line numbers.

Landmarks are definitions in code, headings in a document, errors in a log.
"""

import os
import re
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..tokens import estimate
from .blocks import NumberedText, condense, lines_of_interest
from .family import Budget, Family, FamilyPlan, Room, ShownOutput, clip, fits, lines_of
from .flags import FlagSyntax
from .floods import WordSearch
from .logs import LogLines
from .salience import SalientLines
from .structure import condense_json

_HEAD, _TAIL = 60, 60  # lines
_LANDMARKS = 5_000
_NEAR_SHARE = 0.35  # of a long text's room is for blocks that share names with recent commands
_SPLIT = 400_000  # bytes of a text that is condensed block by block
_LINE = 240  # bytes shown of a line of a cut text

_CAT = FlagSyntax("", long_bare=frozenset({"--number", "--number-nonblank", "--squeeze-blank"}))
_CAT_KNOWN = frozenset({"-n", "-b", "-s", "-u", *_CAT.long_bare})
_ENDS = FlagSyntax(
    "nc", frozenset({"--lines", "--bytes"}), frozenset({"--quiet", "--silent", "--verbose", "--follow"}), numbers=True
)
_ENDS_KNOWN = frozenset({"-n", "-NUM", "--lines", "-q", "-v", "--quiet", "--silent", "--verbose"})

_SED = FlagSyntax(
    "ef", frozenset({"--expression", "--file"}), frozenset({"--quiet", "--silent", "--regexp-extended", "--posix"})
)
_SED_KNOWN = frozenset({"-n", "-e", "-E", "-r", "-s", "-u", *_SED.long_bare, "--expression"})
_SED_RANGE = re.compile(r"(\d+)(?:,(?:\+?\d+|\$))?p;?")
_AWK_RANGE = re.compile(
    r"(?:FNR|NR)\s*(?:>=|==)\s*(\d+)(?:\s*&&\s*(?:FNR|NR)\s*<=?\s*\d+)?\s*(?:\{\s*print(?: \$0)?;?\s*\})?"
)
_NL = FlagSyntax("bdfhilnsvw")
_LOG_FILES = (".log", ".out", ".err")
_PRINTED_NUMBER = re.compile(rb"\s*(\d+)\t")  # by nl and cat -n

_CODE = re.compile(
    rb"(\s*)(?:(?:export|default|public|private|protected|static|final|abstract|async|pub(?:\([^)]*\))?|unsafe|extern"
    rb"|inline|virtual|override|const)\s+)*"
    rb"(?:def|class|fn|func|function\*?|interface|struct|enum|trait|impl|mod|module|namespace|protocol|macro_rules!"
    rb"|CREATE\s+\w+)\s+[\w(*$<]"
)
_DOCUMENT = re.compile(rb"( *)(?:#{1,4} \S|\.\. \w+::|={4,}$|-{4,}$)")
_LOG = re.compile(
    rb"().*(?:\b(?:ERROR|FATAL|CRITICAL|PANIC|SEVERE|Traceback|panicked|segfault|Exception|WARNING)\b"
    rb"|\b[A-Z]\w+(?:Error|Exception)\b)"
)
# Every match of _LOG has one of these.
_LOG_WORDS = (
    *(b"ERROR", b"FATAL", b"CRITICAL", b"PANIC", b"SEVERE", b"Traceback", b"panicked", b"segfault", b"Exception"),
    *(b"WARNING", b"Error"),
)
# Languages whose definitions _CODE recognises, and those whose headings _DOCUMENT does; rag.parse.detect knows endings.
_CODE_LANGUAGES = frozenset(
    (
        *("python", "javascript", "typescript", "tsx", "vue", "go", "rust", "java", "kotlin", "scala", "c", "cpp"),
        *("csharp", "ruby", "php", "swift", "bash", "lua", "sql", "zig", "elixir", "perl"),
    )
)
_DOCUMENT_LANGUAGES = frozenset(("markdown", "rst", "asciidoc", "text"))


def plan(argv: list[str]) -> FamilyPlan | None:
    """A plan; None for flags that follow a file, count bytes or show invisible characters, and for a pipe."""
    program = os.path.basename(argv[0])
    reading = _SLICERS[program](argv) if program in _SLICERS else _whole_or_ends(argv, program)
    if reading is None or not reading.files or "-" in reading.files:
        return None
    return FamilyPlan(list(argv), reading.family(), asked=reading.asked)


class Reading(NamedTuple):
    """What a command reads: files, whether line by line what was asked for, and the first line's number if known."""

    files: list[str]
    asked: bool = False
    start: int | None = 1
    numbered: bool = False
    ends: str = "head"

    def family(self) -> Family:
        """The family for its output."""
        if self.files and all(file.endswith(_LOG_FILES) for file in self.files):
            return SalientLines(LogLines())
        return Text(self.files, numbered=self.numbered or len(self.files) > 1, ends=self.ends, start=self.start)


def reading_of(argv: list[str]) -> Reading | None:
    """What a command reads, its standard input included (no files); None if it does something else."""
    program = os.path.basename(argv[0])
    return _SLICERS[program](argv) if program in _SLICERS else _whole_or_ends(argv, program)


def _whole_or_ends(argv: list[str], program: str) -> Reading | None:
    """cat, head and tail."""
    if program not in ("cat", "head", "tail"):
        return None
    syntax, known = (_CAT, _CAT_KNOWN) if program == "cat" else (_ENDS, _ENDS_KNOWN)
    flags = list(syntax.parse(argv[1:]))
    names = {flag.name for flag in flags if flag.name}
    if not names <= known:
        return None
    numbered = bool(names & {"-n", "-b", "--number", "--number-nonblank"}) and program == "cat"
    files = [flag.value for flag in flags if not flag.name]
    return Reading(files, program != "cat", None if program == "tail" else 1, numbered, program)


def _sed(argv: list[str]) -> Reading | None:
    """sed -n with ranges to print."""
    flags = list(_SED.parse(argv[1:]))
    names = {flag.name for flag in flags}
    scripts = [flag.value for flag in flags if flag.name in ("-e", "--expression")]
    words = [flag.value for flag in flags if not flag.name]
    if not scripts:
        scripts, words = words[:1], words[1:]
    if not names & {"-n", "--quiet", "--silent"} or not names - {""} <= _SED_KNOWN or not scripts:
        return None
    single = _SED_RANGE.fullmatch(scripts[0].strip()) if len(scripts) == 1 else None
    return Reading(words, True, int(single[1]) if single else None)


def _awk(argv: list[str]) -> Reading | None:
    """awk that prints lines by their numbers."""
    found = _AWK_RANGE.fullmatch(argv[1].strip()) if len(argv) > 1 else None
    return Reading(argv[2:], True, int(found[1])) if found else None


def _nl(argv: list[str]) -> Reading | None:
    flags = list(_NL.parse(argv[1:]))
    return Reading([flag.value for flag in flags if not flag.name], numbered=True)


_SLICERS: dict[str, Callable[[list[str]], Reading | None]] = {
    "sed": _sed,
    "nl": _nl,
    **dict.fromkeys(("awk", "gawk", "mawk"), _awk),
}


def _landmarks_of(files: list[str]) -> re.Pattern[bytes]:
    from ..rag.parse.detect import language_of  # while the command runs: `te` must not start later for it

    languages = {"text" if file.endswith(".txt") else language_of(file, b"") for file in files}
    if languages <= _CODE_LANGUAGES:
        return _CODE
    return _DOCUMENT if languages <= _DOCUMENT_LANGUAGES else _LOG


class Ends:
    """The first and the last lines of any text."""

    def __init__(self) -> None:
        self.count = 0
        self.head: list[bytes] = []
        self.tail = deque[bytes](maxlen=_TAIL)

    def take(self, lines: list[bytes]) -> None:
        if len(self.head) < _HEAD:
            self.head += [line[: _LINE * 4] for line in lines[: _HEAD - len(self.head)]]
        self.tail.extend(line[: _LINE * 4] for line in lines[-_TAIL:])
        self.count += len(lines)

    def skip(self, lines: int) -> None:
        self.count += lines
        self.tail.clear()

    def show(self, held: bytes | None, budget: Budget) -> ShownOutput:
        if held is not None and fits(held, budget):
            return ShownOutput(lines_of(held), {"lines": self.count})
        head, tail = self.both_ends(budget, 0.4, 0.5)
        left_out = self.count - len(head) - len(tail)
        middle = [f"… {left_out:,} lines left out …".encode()] if left_out else []
        return ShownOutput([*head, *middle, *tail], {"lines": self.count}, "grouped", True)

    def both_ends(self, budget: Budget, head_share: float, tail_share: float) -> tuple[list[bytes], list[bytes]]:
        """The lines of head and tail that fit, without overlap."""
        head = Room(budget, head_share).fill(self.line(*pair) for pair in enumerate(self.head, 1))
        last = list(enumerate(self.tail, self.count - len(self.tail) + 1))
        last = [pair for pair in last if pair[0] > len(head)]
        tail = Room(budget, tail_share).fill(self.line(*pair) for pair in reversed(last))
        return head, tail[::-1]

    def line(self, number: int, text: bytes) -> bytes:
        """A line as it is shown."""
        del number
        return clip(text, _LINE)


class Text(Ends):
    """A text with landmarks."""

    def __init__(self, files: list[str], *, numbered: bool, ends: str, start: int | None = 1) -> None:
        super().__init__()
        self._files, self._numbered, self._start = files, numbered, start
        self._landmark: re.Pattern[bytes] | None = None
        self._tail_share = 0.3 if ends == "tail" else 0.15
        self._marks: list[tuple[int, int, bytes]] = []  # indentation, line number, text
        self._words = WordSearch(_LOG_WORDS, any_case=False)

    def take(self, lines: list[bytes]) -> None:
        if len(self._marks) < _LANDMARKS:
            if self._landmark is None:
                self._landmark = _landmarks_of(self._files)
            match = self._landmark.match
            for at in self._candidates(lines):
                line = lines[at]
                if (found := match(line[:2_000])) is not None:
                    self._marks.append((len(found[1]), self.count + at + 1, line[: _LINE * 2]))
            del self._marks[_LANDMARKS:]
        super().take(lines)

    def _candidates(self, lines: list[bytes]) -> Sequence[int]:
        """The lines that may be landmarks; definitions and headings are told by how a line begins, which is cheap."""
        return self._words.find(b"\n".join(lines)) if self._landmark is _LOG else range(len(lines))

    def show(self, held: bytes | None, budget: Budget) -> ShownOutput:
        counts = {"lines": self.count}
        if held is not None and fits(held, budget):
            return ShownOutput(lines_of(held), counts)
        if budget.counts_only:
            return ShownOutput(self._chosen(budget, 0.6), counts, "counts", True)
        near: dict[int, bytes] = {}
        if held is not None and len(held) <= _SPLIT:
            if len(self._files) == 1 and (view := condense_json(held, budget)) is not None:
                return ShownOutput(view, counts, "grouped", True)
            text, landmark = lines_of(held), self._landmark or _LOG
            if (lines := condense(self._text(text), landmark, budget)) is not None:
                return ShownOutput(lines, counts, "grouped", True)
            share = budget._replace(tokens=int(budget.tokens * _NEAR_SHARE))
            near = lines_of_interest(text, landmark, share)
            budget = budget._replace(tokens=budget.tokens - sum(estimate(line) + 3 for line in near.values()))
        head, tail = self.both_ends(budget, 0.45 - self._tail_share, self._tail_share)
        marks = self._chosen(budget, 0.5, after=len(head), before=self.count - len(tail) + 1, near=near)
        left_out = self.count - len(head) - len(tail)
        there = sum(len(head) < number <= self.count - len(tail) for _, number, _ in self._marks)
        what = f"… {left_out:,} lines left out" + (f"; {len(marks)} of {there} landmarks in them:" if marks else " …")
        return ShownOutput(
            [*head, what.encode(), *marks, *(["…".encode()] if marks else []), *tail], counts, "grouped", True
        )

    def _text(self, lines: list[bytes]) -> NumberedText:
        """The lines with the numbers that they have in their file, if those are known."""
        if self._numbered and len(self._files) == 1 and (found := _PRINTED_NUMBER.match(lines[0])):
            return NumberedText(lines, int(found[1]))
        if len(self._files) > 1 or self._start is None:
            return NumberedText(lines, 1, " of this output")
        return NumberedText(lines, self._start)

    def line(self, number: int, text: bytes) -> bytes:
        if self._numbered:
            return clip(text, _LINE)
        return str(number + (self._start or 1) - 1).encode() + b":" + clip(text, _LINE)

    def _chosen(
        self, budget: Budget, share: float, after: int = 0, before: int = 1 << 62, near: dict[int, bytes] | None = None
    ) -> list[bytes]:
        """The least indented landmarks, and deeper ones that all fit; of too many on top some from every part."""
        room = Room(budget, share)
        levels: dict[int, list[tuple[int, bytes]]] = {}
        for indent, number, text in self._marks:
            if after < number < before:
                levels.setdefault(indent, []).append((number, self.line(number, clip(text, _LINE // 2))))
        chosen: dict[int, bytes] = {}
        for indent in sorted(levels):
            marks = levels[indent]
            cost = sum(estimate(line) + 1 for _, line in marks)
            if chosen and cost > room.tokens:
                break  # some methods of every class would look like all of them
            every = max(-(-cost // max(room.tokens, 1)), 1)
            chosen.update(mark for mark in marks[every // 2 :: every] if room.take(mark[1]))
        inside = {number: line for number, line in (near or {}).items() if after < number < before}
        chosen |= {number: self.line(number, line) for number, line in inside.items()}
        return [chosen[number] for number in sorted(chosen)]
