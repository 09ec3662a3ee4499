"""Parse pytest's report (JUnit XML) in a separate process: the tests that wrote it may be hostile.

The report is read from stdin and the results are written to stdout as JSON, both bounded. pytest's reports declare no
document type, so a report that does is rejected before an entity can expand.
"""

import json
import math
import os
import re
from typing import Any
from xml.parsers import expat

MAX_REPORT = 32 << 20
MAX_ANSWER = 6 << 20
_MAX_FAILURES = 1_000
_MAX_DEPTH = 50
_MAX_ELEMENTS = 400_000
_COUNT = 10**9
_NAME = 500
_MESSAGE = 300
_TEXT = 1 << 16  # kept from the end of a traceback
_READ = 4 << 20  # expat rescans an unfinished tag with every chunk
_FAILED_AT = re.compile(r"^(\S.*?):(\d{1,9}): ", re.MULTILINE)


class Refused(Exception):
    """A report that pytest would not write."""


class Report:
    """The totals and failures of a report, collected element by element."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
        self.seconds = 0.0
        self.failures: list[tuple[str, str, int, str]] = []
        self._depth = self._elements = 0
        self._case: dict[str, str] = {}
        self._problem: dict[str, str] | None = None
        self._text = ""

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Handle the start of an element."""
        self._depth += 1
        self._elements += 1
        if self._elements > _MAX_ELEMENTS:
            raise Refused(f"it has more than {_MAX_ELEMENTS:,} elements")
        if self._depth > _MAX_DEPTH:
            raise Refused("its elements are nested too deeply")
        if name == "testsuite":
            for key in self.counts:
                self.counts[key] = min(self.counts[key] + _number(attributes.get(key)), _COUNT)
            self.seconds += _seconds(attributes.get("time"))
        elif name == "testcase":
            self._case = {key: attributes.get(key, "")[:_NAME] for key in ("file", "name", "line")}
        elif name in ("failure", "error"):
            self._problem, self._text = attributes, ""

    def text(self, data: str) -> None:
        """Handle text inside an element."""
        if self._problem is not None:
            self._text = (self._text + data)[-_TEXT:]

    def end(self, name: str) -> None:
        """Handle the end of an element."""
        self._depth -= 1
        if name in ("failure", "error") and self._problem is not None:
            self._add(self._problem)
            self._problem = None

    def _add(self, problem: dict[str, str]) -> None:
        if len(self.failures) >= _MAX_FAILURES:
            return  # the counts still include it
        file, name = self._case.get("file", ""), self._case.get("name", "")
        # The test failed at the last line of the traceback that is in the test's own file.
        lines = [int(number) for path, number in _FAILED_AT.findall(self._text) if path == file]
        line = lines[-1] if lines else _number(self._case.get("line"), -1) + 1
        message = problem.get("message", "").strip()[:_MESSAGE]
        self.failures.append((f"{file}::{name}" if file else name, file, line, message))


def _number(text: str | None, default: int = 0) -> int:
    return min(int(text), _COUNT) if text and re.fullmatch(r"\d{1,18}", text, re.ASCII) else default


def _seconds(text: str | None) -> float:
    try:
        seconds = float(text or 0)
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) else 0.0


def read(source: int) -> Report:
    """Parse the report in an open file; raise ExpatError if it is not XML, Refused if pytest would not write it."""
    report, parser = Report(), expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = report.start, report.end
    parser.CharacterDataHandler = report.text
    parser.StartDoctypeDeclHandler = _refuse_document_type
    while piece := os.read(source, _READ):
        parser.Parse(piece, False)
    parser.Parse(b"", True)
    return report


def _refuse_document_type(*_: Any) -> None:
    raise Refused("it declares a document type")


def main() -> None:
    """Read the report from stdin and write the results to stdout."""
    os.lseek(0, 0, os.SEEK_SET)
    try:
        report = read(0)
    except expat.ExpatError:
        answer: dict[str, object] = {"missing": True}
    except (Refused, MemoryError) as exc:
        answer = {"refused": str(exc) or "it needs too much memory"}
    else:
        answer = {**report.counts, "seconds": report.seconds, "found": report.failures}
    text = json.dumps(answer, ensure_ascii=False).encode()
    while text:
        text = text[os.write(1, text) :]
