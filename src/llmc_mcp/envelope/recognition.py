"""Which family understands the output of a shell line."""

import os
from collections.abc import Sequence

from .families import recognise
from .family import FamilyPlan
from .lines import NotSimple, Pipeline, SimpleCommand, speaking
from .names import interest_of
from .programs import FAMILY_OF
from .salience import SalientLines
from .scripts import ScriptLines
from .searches import plain_plan
from .text import Reading, Text, reading_of

SHELL = "bash"
# Programs behind a pipe that pass lines on as they are, some of them or in another order.
_PASSING = frozenset(("head", "tail", "sort", "uniq", "cat", "tee", "less", "more"))


def recognise_line(line: str, recent: Sequence[str] = ()) -> FamilyPlan | None:
    """A plan for a line that bash runs as it stands, else None; `recent` lines tell what the session is after."""
    try:
        pipelines = speaking(line)
    except NotSimple:
        return None
    plans = [_plan_of(pipeline) for pipeline in pipelines]
    known = [plan for plan in plans if plan is not None]
    if not known or len(known) < len(plans):
        return None
    plan = known[0] if len(known) == 1 else _several(known)
    named = tuple(pipelines[-1][0].argv)
    interest = interest_of([line, *reversed(recent)])
    return plan._replace(argv=[SHELL, "-c", line], interest=interest, named=named, one_stream=True)


def _several(plans: list[FamilyPlan]) -> FamilyPlan:
    """Commands one after the other: texts are one text, anything else is read line by line."""
    if all(plan.kind == "text" for plan in plans):
        family = Text(["", ""], numbered=True, ends="head")
        return FamilyPlan([], family, asked=all(plan.asked for plan in plans), kind="text")
    return FamilyPlan([], SalientLines(ScriptLines()), kind="scripts")


def _plan_of(pipeline: Pipeline) -> FamilyPlan | None:
    first, *filters = pipeline
    if (reading := reading_of(first.argv)) is not None and reading.files:
        return _read(reading, filters)
    stages = list(pipeline)
    while len(stages) > 1 and _passes(stages[-1]):
        stages.pop()
    if len(stages) > 1 and os.path.basename(stages[-1].argv[0]) == "xargs":
        return _plain(_after_xargs(stages[-1].argv[1:]), several=True)
    if len(stages) > 1 and _is_search(stages[-1].argv) and (plan := _plain(stages[0].argv)) is not None:
        return plan if plan.kind in ("grep", "paths") else None
    if len(stages) == 1 and (searched := _searched_by_find(stages[0].argv)) is not None:
        return plain_plan(searched, several=True)
    return _plain(stages[0].argv) if len(stages) == 1 else None


def _searched_by_find(argv: list[str]) -> list[str] | None:
    """The search that find runs for all its files at once."""
    if os.path.basename(argv[0]) != "find" or argv[-2:] != ["{}", "+"] or "-exec" not in argv:
        return None
    command = argv[argv.index("-exec") + 1 : -2]
    return command if command and _is_search(command) else None


def _read(reading: Reading, filters: Pipeline) -> FamilyPlan | None:
    """A file through filters: a range of it, or the lines that match."""
    for position, command in enumerate(filters):
        ranged = reading_of(command.argv)
        if ranged is not None and not ranged.files:
            reading = _narrowed(reading, ranged, command.argv)
        elif _is_search(command.argv) and position == len(filters) - 1:
            reading = reading._replace(start=None, numbered=True)
        elif not _passes(command):
            return None
    return FamilyPlan([], reading.family(), asked=reading.asked, kind="text")


def _narrowed(reading: Reading, ranged: Reading, argv: list[str]) -> Reading:
    """A range of what was read; `head -n X | tail -n Y` starts at line X - Y + 1."""
    start = None
    if os.path.basename(argv[0]) != "tail" and reading.start is not None and ranged.start is not None:
        start = reading.start + ranged.start - 1
    return reading._replace(
        asked=reading.asked or ranged.asked, start=start, numbered=reading.numbered or ranged.numbered
    )


def _is_search(argv: list[str]) -> bool:
    return FAMILY_OF.get(os.path.basename(argv[0])) == "grep"


def _after_xargs(words: list[str]) -> list[str]:
    """The command that xargs runs."""
    while words and words[0].startswith("-"):
        words = words[2 if words[0] in ("-n", "-I", "-P", "-L", "-d", "-s", "-a") else 1 :]
    return words


def _plain(argv: list[str], *, several: bool = False) -> FamilyPlan | None:
    """A plan for a command that can't get flags of ours: bash runs it. `several`: on files that another one names."""
    if not argv:
        return None
    if _is_search(argv):
        return plain_plan(argv, several=several)
    return recognise(argv)


def _passes(command: SimpleCommand) -> bool:
    program, *words = command.argv
    if os.path.basename(program) == "tee":
        return True
    return os.path.basename(program) in _PASSING and all(word.startswith("-") or word.isdigit() for word in words)
