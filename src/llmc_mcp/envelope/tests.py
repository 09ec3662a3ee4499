"""pytest, and the test runs of cargo, go and npm: what failed, where and why; what passed is a number."""

import os
import re
from collections import deque
from typing import NamedTuple

from .family import Budget, FamilyPlan, Room, ShownOutput, clip, fits, lines_of

_FAILURES = 500
_PER_FAILURE = 60  # lines kept per failure
_LAST = 25
_LINE = 300
_COLOUR = re.compile(rb"\x1b\[[0-9;]*m")

_PYTEST_OTHER = re.compile(
    r"--(?:pdb|trace|co$|collect-only|fixtures|markers|help|version|setup-|cache-show|report-log|junit-?xml=/dev)|-h$|-V$"
)
_SECTION = re.compile(rb"={3,} (.+?) ={3,}$")
_TITLE = re.compile(rb"_{3,} (.+?) _{3,}$")
_WORTH = re.compile(rb"(?:E  |>  |\S+:\d+: )|\S.*(?:Error|Exception)\b")
_COUNTED = re.compile(rb"(?<!\d)(\d{1,9}) (passed|failed|errors?|skipped|xfailed|xpassed|warnings?|deselected)")


class Style(NamedTuple):
    """The patterns of a test runner's output."""

    failed: re.Pattern[bytes]
    passed: re.Pattern[bytes]
    summary: re.Pattern[bytes]


_CARGO = Style(
    re.compile(rb"test (\S+) \.\.\. FAILED|---- (\S+) stdout ----|error(?:\[E\d+\])?: |thread '.*' panicked"),
    re.compile(rb"test \S+ \.\.\. (?:ok|ignored)|   Compiling |  Downloaded "),
    re.compile(rb"test result: |error: could not compile"),
)
_GO = Style(
    re.compile(rb"\s*--- FAIL: (\S+)|FAIL\t|panic: |\S+\.go:\d+:\d+: "),
    re.compile(rb"\s*--- (?:PASS|SKIP): |=== (?:RUN|PAUSE|CONT|NAME)|ok  \t|\?   \t|PASS$"),
    re.compile(rb"FAIL$|ok  \t|FAIL\t"),
)
_NPM = Style(
    re.compile(
        rb"\s*(?:\xe2\x9c\x95|\xe2\x9c\x97|\xc3\x97|not ok|FAIL|\d+\) )|.*\bAssertionError\b|npm (?:ERR!|error)"
    ),
    re.compile(rb"\s*(?:\xe2\x9c\x93|\xe2\x9c\x94|\xe2\x88\x9a|ok \d|PASS )"),
    re.compile(rb"(?:Tests?|Test Suites|Test Files):? +|# (?:pass|fail|tests) |\s+\d+ (?:passing|failing|pending)"),
)


def plan(argv: list[str]) -> FamilyPlan | None:
    """A plan; None for commands that don't run tests, or are interactive."""
    program = os.path.basename(argv[0])
    words = argv[1:]
    if program.startswith("python"):
        if words[:2] != ["-m", "pytest"]:
            return None
        program, words = "pytest", words[2:]
    if program in ("pytest", "py.test"):
        return None if any(_PYTEST_OTHER.match(word) for word in words) else FamilyPlan(list(argv), PytestOutput())
    style = {"cargo": _CARGO, "go": _GO}.get(program, _NPM)
    runs_tests = words[:1] == ["test"] or (program == "npm" and words[:1] in (["t"], ["tst"]))
    if not runs_tests or any(word in ("-json", "--json", "--watch", "--watchAll", "--help", "-h") for word in words):
        return None
    return FamilyPlan(list(argv), TestRun(style))


def _clean(line: bytes) -> bytes:
    return _COLOUR.sub(b"", line) if b"\x1b" in line else line


class PytestOutput:
    """Failures with their place and reason, the short summary, the closing line."""

    def __init__(self) -> None:
        self._count = 0
        self._section = b""
        self._failures: list[tuple[bytes, list[bytes]]] = []
        self._summary: list[bytes] = []
        self._closing = b""
        self._last = deque[bytes](maxlen=_LAST)

    def take(self, lines: list[bytes]) -> None:
        self._count += len(lines)
        for raw in lines:
            line = _clean(raw)
            self._last.append(line[: _LINE * 2])
            if (found := _SECTION.match(line)) is not None:
                self._section = found[1]
                if _COUNTED.search(found[1]):
                    self._closing = found[1]
            elif self._section.startswith(b"short test summary"):
                self._summarised(line)
            elif self._section in (b"FAILURES", b"ERRORS"):
                self._failed(line)
            elif _COUNTED.match(line) and b" in " in line:  # -q closes without the bars
                self._closing = line

    def _summarised(self, line: bytes) -> None:
        if line.startswith((b"FAILED", b"ERROR")) and len(self._summary) < _FAILURES:
            self._summary.append(clip(line, _LINE))
        elif _COUNTED.match(line):
            self._closing = line

    def _failed(self, line: bytes) -> None:
        if (found := _TITLE.match(line)) is not None:
            if len(self._failures) < _FAILURES:
                self._failures.append((found[1], []))
        elif self._failures and len(self._failures[-1][1]) < _PER_FAILURE and _WORTH.match(line):
            self._failures[-1][1].append(clip(line, _LINE))

    def skip(self, lines: int) -> None:
        self._count += lines

    def show(self, held: bytes | None, budget: Budget) -> ShownOutput:
        counts = {_plural(word): int(number) for number, word in _COUNTED.findall(self._closing)}
        counts = {"failed": counts.pop("failed", 0), **counts, "lines": self._count}
        if held is not None and fits(held, budget):
            return ShownOutput(lines_of(held), counts)
        if not self._closing:  # interrupted: show its last lines
            return ShownOutput(Room(budget).fill(self._last), counts, "grouped", True)
        lines = [self._closing, *Room(budget, 0.3 if self._failures else 0.8).fill(self._summary)]
        room = Room(budget, 0.6)
        for title, report in self._failures if not budget.counts_only else ():
            kept = room.fill([b"___ " + title, *report])
            lines += kept if len(kept) > 1 else []
        crumbs = (f"{len(self._summary)} failures; pytest NODEID runs one again",) if self._summary else ()
        return ShownOutput(lines, counts, "counts" if budget.counts_only else "grouped", True, "", crumbs)


def _plural(word: bytes) -> str:
    return {"error": "errors", "warning": "warnings"}.get(word.decode(), word.decode())


class TestRun:
    """Output of other runners: failures and the closing summary."""

    __test__ = False

    def __init__(self, style: Style) -> None:
        self._style = style
        self._count = self._passed = 0
        self._near = 0
        self._kept: list[bytes] = []
        self._summary = deque[bytes](maxlen=12)
        self._last = deque[bytes](maxlen=_LAST)
        self._failed = 0

    def take(self, lines: list[bytes]) -> None:
        self._count += len(lines)
        for raw in lines:
            line = _clean(raw)[: _LINE * 2]
            self._last.append(line)
            if self._style.summary.match(line):
                self._summary.append(line)
            if self._style.passed.match(line):
                self._passed += 1
                self._near = 0
            elif self._style.failed.match(line):
                self._failed += 1
                self._near = 12
            if self._near and line.strip() and len(self._kept) < _FAILURES * 4:
                self._kept.append(clip(line, _LINE))
                self._near -= 1

    def skip(self, lines: int) -> None:
        self._count += lines

    def show(self, held: bytes | None, budget: Budget) -> ShownOutput:
        counts = {"failed_lines": self._failed, "passed_lines": self._passed, "lines": self._count}
        if held is not None and fits(held, budget):
            return ShownOutput(lines_of(held), counts)
        ending = Room(budget, 0.25).fill(self._summary) or Room(budget, 0.25).fill(self._last)
        return ShownOutput([*Room(budget, 0.65).fill(self._kept), *ending], counts, "grouped", True)
