"""Linters and type checkers: findings under their files, one of each rule first, and how many others there are."""

import os
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from .family import Budget, FamilyPlan, Room, ShownOutput, clip, fits, hot_zone, lines_of

_KEPT = 20_000  # findings in memory
_LINE = 240
_OTHERS = 12  # lines beside findings that are shown, the last ones

_OTHER_FORMATS = re.compile(r"--(?:output-format|format|outputjson|watch|pretty|fix|show-files)|-w$|--?f(?:=|$)")
_PLACE = re.compile(
    rb"\s*(?P<path>[^\s:(][^:(]*)"
    rb"(?::(?P<line>\d+)(?::(?P<col>\d+))?:?|\((?P<at>\d+),(?P<in>\d+)\):)\s+(?:- )?"
)
_ARROW = re.compile(rb"\s*--> (?P<path>[^:]+):(?P<line>\d+):(?P<col>\d+)$")  # ruff, rustc
_HEADLINE = re.compile(rb"(?P<rule>[A-Z]+\d+|error(?:\[\w+\])?|warning)\b:? (?P<text>.+)$")
_CONTINUED = re.compile(rb"\s+\S.*?(?:\((?P<rule>report\w+)\))?$")  # pyright, below a finding
_SOURCE = re.compile(rb"\s*(?:\d+ )?\||\s*(?:help|= note|= help|note): |\s*\^+$|\s*\.\.\.$")
_UNDER_FILE = re.compile(  # eslint
    rb"\s+(?P<line>\d+):(?P<col>\d+)\s+(?P<text>(?:error|warning|info)\s.*\S)\s{2,}(?P<rule>\S+)$"
)
_RULE = re.compile(rb"\[([\w/-]+)\]$|\(([\w/-]+)\)$|^(?:error |warning )?([A-Z]+\d+)\b")


class Finding(NamedTuple):
    """One finding in a file."""

    place: bytes
    rule: bytes
    text: bytes

    def line(self) -> bytes:
        return self.place + b" " + clip(self.text, _LINE)


def plan(argv: list[str]) -> FamilyPlan | None:
    """A plan; None for another form of output, and what doesn't check."""
    program, words = os.path.basename(argv[0]), argv[1:]
    if any(_OTHER_FORMATS.match(word) for word in words) or (program == "ruff" and words[:1] != ["check"]):
        return None
    return FamilyPlan(list(argv), Findings(), one_stream=True)


class Findings:
    """Findings by file, in their order."""

    def __init__(self) -> None:
        self._files: dict[bytes, list[Finding]] = {}
        self._rules = Counter[bytes]()
        self._others: list[bytes] = []
        self._count = self._unplaced = self._notes = 0
        self._last: list[Finding] | None = None  # the findings that the next line may go on with
        self._headline: re.Match[bytes] | None = None
        self._last_path = b""

    def take(self, lines: list[bytes]) -> None:
        for line in lines:
            if self._continues(line):
                continue
            if (arrow := _ARROW.match(line)) is not None and self._headline is not None:
                self._add(arrow["path"], arrow["line"] + b":" + arrow["col"], self._headline[0])
                self._headline = None
            elif (found := _UNDER_FILE.match(line)) is not None and self._last_path:
                text = found["text"] + b" " + found["rule"]
                self._add(self._last_path, found["line"] + b":" + found["col"], text, found["rule"])
            elif (found := _PLACE.match(line)) is not None and line[found.end() :].strip():
                place = b":".join(part for part in found.group("line", "col", "at", "in") if part)
                self._add(found["path"], place, line[found.end() :].strip())
            elif not _SOURCE.match(line):
                self._take_other(line)

    def _continues(self, line: bytes) -> bool:
        """Whether a line goes on with the finding before it; its rule may be at the end of that."""
        findings, self._last = self._last, None
        more = _CONTINUED.match(line) if findings and not _PLACE.match(line) and not _SOURCE.match(line) else None
        if not findings or more is None or _UNDER_FILE.match(line) is not None:
            return False
        before = findings[-1]
        if rule := more["rule"]:
            self._rules[before.rule] -= 1
            self._rules += Counter({rule: 1})
        findings[-1] = Finding(before.place, rule or before.rule, before.text + b" " + line.strip())
        self._last = None if rule else findings
        return True

    def _add(self, path: bytes, place: bytes, text: bytes, rule: bytes = b"") -> None:
        is_note = text.startswith(b"note:")
        self._notes += is_note
        self._count += not is_note
        if not rule:
            found = _RULE.search(text)
            rule = next(filter(None, found.groups()), b"") if found else text.partition(b":")[0][:30]
        self._rules[rule] += 1
        findings = self._files.setdefault(path, [])
        if self._count + self._notes <= _KEPT:
            findings.append(Finding(place, rule, text))
            self._last = findings
        else:
            self._unplaced += 1

    def _take_other(self, line: bytes) -> None:
        """A line that is no finding: the first one of a longer report, a file's name, or the closing words."""
        self._headline = _HEADLINE.match(line)
        if line[:1].isspace() or not line.strip() or self._headline is not None:
            return
        self._last_path = line.strip()
        self._others = [*self._others, clip(line, _LINE)][-_OTHERS:]

    def skip(self, lines: int) -> None:
        del lines

    def show(self, held: bytes | None, budget: Budget) -> ShownOutput:
        counts = {"findings": self._count, "files": len(self._files)}
        counts |= {"notes": self._notes} if self._notes else {}
        if held is not None and fits(held, budget):
            return ShownOutput(lines_of(held), counts)
        zone = hot_zone({path: len(found) for path, found in self._files.items()})
        closing = [line for line in self._others if line not in self._files]
        rules = self._rules_line()
        room = budget.tokens - sum(len(line) // 3 + 1 for line in [*closing, rules])
        for each in (50, 20, 10, 5, 3, 2, 1, 0):
            lines = list(self._listed(each))
            if len(Room(budget._replace(tokens=max(room, 1))).fill(lines)) == len(lines):
                return ShownOutput([rules, *lines, *closing], counts, "grouped", True, zone)
        lines = Room(budget._replace(tokens=max(room - 20, 1))).fill(self._listed(0))
        left = sum(map(len, list(self._files.values())[len(lines) :])) + self._unplaced
        more = f"… {left:,} findings in {len(self._files) - len(lines):,} more files left out".encode()
        return ShownOutput([rules, *lines, more, *closing], counts, "counts", True, zone)

    def _rules_line(self) -> bytes:
        common = self._rules.most_common(15)
        rest = self._rules.total() - sum(count for _, count in common)
        return b"rules: " + _counted(dict(common)) + (f" and {rest:,} of others".encode() if rest else b"")

    def _listed(self, each: int) -> Iterator[bytes]:
        """Every file with this many findings, one of each rule first; then what is left out of it."""
        for path, findings in self._files.items():
            if not each:
                yield path + f" {len(findings):,}: ".encode() + _counted(Counter(one.rule for one in findings))
                continue
            chosen = set(map(id, _varied(findings)[:each]))
            left = Counter(one.rule for one in findings if id(one) not in chosen)
            yield path + f" ({len(findings):,})".encode()
            yield from (one.line() for one in findings if id(one) in chosen)
            if left:
                yield f"… {left.total():,} left out: ".encode() + _counted(left)


def _varied(findings: list[Finding]) -> list[Finding]:
    """The first finding of each rule, then the second …"""
    seen = Counter[bytes]()
    turns: list[tuple[int, int]] = []
    for at, one in enumerate(findings):
        turns.append((seen[one.rule], at))
        seen[one.rule] += 1
    return [findings[at] for _, at in sorted(turns)]


def _counted(rules: dict[bytes, int]) -> bytes:
    ordered = sorted(rules.items(), key=lambda item: -item[1])
    return b", ".join(rule + f" {count:,}".encode() for rule, count in ordered[:15])
