"""Replays recorded runs through the envelope and judges every output."""

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from llmc_mcp.config.schema import Te
from llmc_mcp.envelope.facts import RecordedStep, StepFacts, facts_of, names_in
from llmc_mcp.envelope.replay import replay

from .. import tokens
from .rtk import rtk_output

LEAST = 300  # tokens of an output whose facts count
FAR = 1_200  # tokens below which nothing may be cut
_PLAIN_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_MARK = re.compile(r"^# TE: all of it: te --handle \S+ [^\n]*\n\Z", re.M)


class ByRtk(NamedTuple):
    """What rtk's rule makes of an output."""

    rule: str
    after: int
    lost: frozenset[str]


class Row(NamedTuple):
    """One output."""

    run: str
    step: int
    command: str
    family: str
    before: int
    after: int
    cut: bool
    marked: bool
    failed: bool
    facts: frozenset[str]
    lost: frozenset[str]
    lost_by_ends: frozenset[str]
    rtk: ByRtk | None = None


class Total(NamedTuple):
    """The sums of a family; facts of outputs that te left alone count for it and for head/tail alike."""

    outputs: int
    before: int
    saved: float
    cut: int
    unmarked: int
    facts: int
    lost: int
    code_facts: int
    code_lost: int
    ends_lost: int

    @property
    def kept(self) -> float:
        return 1 - self.lost / max(self.facts, 1)

    @property
    def code_kept(self) -> float:
        return 1 - self.code_lost / max(self.code_facts, 1)

    @property
    def ends_kept(self) -> float:
        return 1 - self.ends_lost / max(self.facts, 1)


def replay_runs(folder: Path) -> list[Row]:
    """A row for every output of `runs.jsonl.gz`."""
    return [row for name, steps in recorded_runs(folder) for row in _rows(name, steps)]


def recorded_runs(folder: Path) -> Iterator[tuple[str, list[RecordedStep]]]:
    """The recorded sessions, by name."""
    with gzip.open(folder / "runs.jsonl.gz") as file:
        for line in file:
            run = json.loads(line)
            yield run["id"], [RecordedStep(one["command"], one["output"], one["exit"]) for one in run["steps"]]


def _rows(name: str, steps: list[RecordedStep]) -> Iterator[Row]:
    for number, judged in enumerate(facts_of(steps)):
        yield _row(name, number, judged)


def _row(name: str, number: int, judged: StepFacts) -> Row:
    step = judged.step
    before = tokens.count(step.output)
    facts = judged.facts if before >= LEAST else frozenset[str]()
    done = replay(step.command, step.output.encode(), Te(), judged.recent)
    text = done.text.decode("utf-8", "replace")
    same = text == step.output
    after = before if same else tokens.count(text)
    lost = frozenset[str]() if same else facts - names_in(text)
    ends = facts - names_in(head_and_tail(step.output, after)) if facts and after < before else frozenset[str]()
    marked = not done.cut or _MARK.search(text) is not None
    result = (done.cut, marked, done.failed, facts, lost, ends)
    return Row(name, number, step.command, done.family, before, after, *result, _by_rtk(step, facts))


def _by_rtk(step: RecordedStep, facts: frozenset[str]) -> ByRtk | None:
    printed = rtk_output(step.command, step.output)
    if printed is None:
        return None
    rule, text = printed
    return ByRtk(rule, tokens.count(text), facts - names_in(text))


def head_and_tail(text: str, most: int) -> str:
    """The first and the last lines, half of the tokens each, with a mark between them."""
    left = [max((most - 12) // 2, 0)] * 2
    lines = text.splitlines()
    costs = [tokens.count(line + "\n") for line in lines]
    first, last = 0, len(lines)
    while first < last and costs[first] <= left[0]:
        left[0] -= costs[first]
        first += 1
    while last > first and costs[last - 1] <= left[1]:
        last -= 1
        left[1] -= costs[last]
    return "\n".join([*lines[:first], f"[{last - first} lines left out]", *lines[last:]])


def summed(rows: list[Row], family: str) -> Total:
    """The total of one family, or of `all`."""
    chosen = [row for row in rows if family in (row.family, "all")]
    before = sum(row.before for row in chosen)
    return Total(
        len(chosen),
        before,
        1 - sum(row.after for row in chosen) / max(before, 1),
        sum(row.cut for row in chosen),
        sum(row.cut and not row.marked for row in chosen),
        facts=sum(len(row.facts) for row in chosen),
        lost=sum(len(row.lost) for row in chosen),
        code_facts=sum(_code_names(row.facts) for row in chosen),
        code_lost=sum(_code_names(row.lost) for row in chosen),
        ends_lost=sum(len(row.lost_by_ends) for row in chosen),
    )


def _code_names(names: frozenset[str]) -> int:
    return sum(_PLAIN_WORD.fullmatch(name) is None for name in names)
