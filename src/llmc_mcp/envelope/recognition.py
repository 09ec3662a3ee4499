"""Which family understands the output of a shell line."""

import os
from collections.abc import Sequence

from .families import recognise
from .family import FamilyPlan
from .lines import NotSimple, Pipeline, SimpleCommand, speaking
from .names import interest_of

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
    if len(plans) != 1 or plans[0] is None:
        return None
    interest = interest_of([line, *reversed(recent)])
    return FamilyPlan([SHELL, "-c", line], plans[0].family, asked=plans[0].asked, interest=interest)


def _plan_of(pipeline: Pipeline) -> FamilyPlan | None:
    stages = list(pipeline)
    while len(stages) > 1 and _passes(stages[-1]):
        stages.pop()
    return recognise(stages[-1].argv) if len(stages) == 1 else None


def _passes(command: SimpleCommand) -> bool:
    program, *words = command.argv
    if os.path.basename(program) == "tee":
        return True
    return os.path.basename(program) in _PASSING and all(word.startswith("-") or word.isdigit() for word in words)
