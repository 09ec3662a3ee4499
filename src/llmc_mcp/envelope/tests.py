"""pytest, and the test runs of cargo, go and npm: what failed, where and why; what passed is a number."""

import os
import re
from typing import NamedTuple

from .family import FamilyPlan
from .salience import NEAR, NOISE, PLAIN, TITLE, VERDICT, WRONG, SalientLines

_AFTER_FAILURE = 12  # lines that tell why
_PLAIN_SHARE = 0.25

_PYTEST_OTHER = re.compile(
    r"--(?:pdb|trace|co$|collect-only|fixtures|markers|help|version|setup-|cache-show|report-log|junit-?xml=/dev)|-h$|-V$"
)
_SECTION = re.compile(rb"={3,} (.+?) ={3,}$")
_TITLE = re.compile(rb"_{3,} (.+?) _{3,}$")
_REASON = re.compile(rb"E  |\S+:\d+: \S|INTERNALERROR>|\S.*(?:Error|Exception)\b")
_PROGRESS = re.compile(
    rb"\S+ [.sxXpFE]+ *(?:\[ *\d+%\])?$|[.sxXpFE]+ *(?:\[ *\d+%\])$|[^\s:]{1,400}::.{1,600}? (?:PASSED|SKIPPED|XFAIL)"
)
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
    if program in ("pytest", "py.test"):
        if any(_PYTEST_OTHER.match(word) for word in words):
            return None
        return FamilyPlan(list(argv), SalientLines(PytestLines(), plain=_PLAIN_SHARE), one_stream=True)
    style = {"cargo": _CARGO, "go": _GO}.get(program, _NPM)
    runs_tests = words[:1] == ["test"] or (program == "npm" and words[:1] in (["t"], ["tst"]))
    if not runs_tests or any(word in ("-json", "--json", "--watch", "--watchAll", "--help", "-h") for word in words):
        return None
    return FamilyPlan(list(argv), SalientLines(RunnerLines(style), plain=_PLAIN_SHARE), one_stream=True)


class PytestLines:
    """Failures with their place and reason, the short summary, the closing line."""

    words = (
        *(b"=== ", b"___ ", b"E  ", b">  ", b"Error", b"Exception", b"FAILED", b"ERROR"),
        *(b" passed", b" failed", b" error", b" skipped", b" deselected", b" warning"),
    )
    any_case = False

    def __init__(self) -> None:
        self._section = b""
        self._closing = b""

    def weigh(self, line: bytes) -> int:
        if (found := _SECTION.match(line)) is not None:
            self._section = found[1]
            if _COUNTED.search(found[1]):
                self._closing = found[1]
                return VERDICT
            return TITLE
        if self._section.startswith(b"short test summary"):
            return self._summarised(line)
        if self._section in (b"FAILURES", b"ERRORS"):
            return self._failed(line)
        if _COUNTED.match(line) and b" in " in line:  # -q closes without the bars
            self._closing = line
            return VERDICT
        if self._section == b"test session starts" and _PROGRESS.match(line):
            return NOISE
        if self._section.startswith(b"warnings summary"):
            return NOISE
        return WRONG if _REASON.match(line) and b"FAILED" not in line else PLAIN

    def _summarised(self, line: bytes) -> int:
        if _COUNTED.match(line):
            self._closing = line
            return VERDICT
        return VERDICT if line.startswith((b"FAILED", b"ERROR")) else PLAIN

    def _failed(self, line: bytes) -> int:
        if _TITLE.match(line):
            return WRONG
        if _REASON.match(line):
            return WRONG
        return TITLE if line.startswith(b">  ") else PLAIN

    def counts(self) -> dict[str, int]:
        counts = {_plural(word): int(number) for number, word in _COUNTED.findall(self._closing)}
        return {"failed": counts.pop("failed", 0), **counts}


def _plural(word: bytes) -> str:
    return {"error": "errors", "warning": "warnings"}.get(word.decode(), word.decode())


class RunnerLines:
    """Output of other runners: failures and the closing summary."""

    words = ()  # what passed is counted
    any_case = False

    def __init__(self, style: Style) -> None:
        self._style = style
        self._passed = self._failed = 0
        self._near = 0

    def weigh(self, line: bytes) -> int:
        self._near = max(self._near - 1, 0)
        if self._style.passed.match(line):
            self._passed += 1
            self._near = 0
            return VERDICT if self._style.summary.match(line) else NOISE
        if self._style.failed.match(line):
            self._failed += 1
            self._near = _AFTER_FAILURE
            return VERDICT if self._style.summary.match(line) else WRONG
        if self._style.summary.match(line):
            return VERDICT
        return NEAR if self._near else PLAIN

    def counts(self) -> dict[str, int]:
        return {"failed_lines": self._failed, "passed_lines": self._passed}
