"""What an agent needed of an output: the facts.

A fact is a name that is first seen in an output and occurs in one of the next three commands. An output that was
condensed has kept it if the name is still there. Short outputs don't count: nobody condenses them.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}")
_NEXT = 3  # commands in which a fact may be used


class RecordedStep(NamedTuple):
    """One command of a recorded session, and what it printed."""

    command: str
    output: str
    exit_code: int = 0


class StepFacts(NamedTuple):
    """A step, the names of the commands before it and its own, and its facts."""

    step: RecordedStep
    recent: tuple[str, ...]
    facts: frozenset[str]


def names_in(text: str) -> frozenset[str]:
    """The names in a text: identifiers and words of three letters or more."""
    return frozenset(_NAME.findall(text))


def facts_of(steps: Sequence[RecordedStep], recent: int = 5) -> Iterator[StepFacts]:
    """Every step with its facts; `recent` is how many commands a session remembers."""
    commands = [names_in(step.command) for step in steps]
    seen: set[str] = set()
    for at, step in enumerate(steps):
        seen |= commands[at]
        printed = names_in(step.output)
        used = frozenset[str]().union(*commands[at + 1 : at + 1 + _NEXT])
        lines = tuple(one.command for one in steps[max(at - recent, 0) : at])
        yield StepFacts(step, lines, (printed - seen) & used)
        seen |= printed
