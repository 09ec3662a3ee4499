"""`te discover`: what te would have saved, and lost, in the sessions that agents had on this machine."""

import json
from typing import NamedTuple

from ..config.load import load
from ..envelope.facts import facts_of, names_in
from ..envelope.lines import NotSimple, speaking
from ..envelope.records import name_of
from ..envelope.replay import replay
from ..printing import print_line
from ..tokens import estimate
from ..visible import visible
from .stats import as_table
from .transcripts import transcripts

_LEAST = 300  # tokens of an output whose facts count
_SHOWN = 25
_COLUMNS = ("command", "runs", "tokens", "with te", "saved %", "facts", "lost")


class CommandTotal(NamedTuple):
    """The sums of one command."""

    runs: int = 0
    tokens: int = 0
    shown: int = 0
    facts: int = 0
    lost: tuple[str, ...] = ()

    def plus(self, other: "CommandTotal") -> "CommandTotal":
        return CommandTotal(
            self.runs + other.runs,
            self.tokens + other.tokens,
            self.shown + other.shown,
            self.facts + other.facts,
            self.lost + other.lost,
        )

    def row(self, name: str) -> tuple[object, ...]:
        saved = round(100 * (1 - self.shown / max(self.tokens, 1)))
        return name, self.runs, self.tokens, self.shown, saved, self.facts, len(self.lost)


def show(*, as_json: bool, lost: bool) -> int:
    """Print what was found, by command."""
    settings = load().config.te
    totals: dict[str, CommandTotal] = {}
    sessions: dict[str, int] = {}
    for transcript in transcripts():
        sessions[transcript.client] = sessions.get(transcript.client, 0) + 1
        for judged in facts_of(transcript.steps):
            step = judged.step
            before = estimate(step.output)
            text = replay(step.command, step.output.encode("utf-8", "replace"), settings, judged.recent).text
            facts = judged.facts if before >= _LEAST else frozenset[str]()
            gone = tuple(sorted(facts - names_in(text.decode("utf-8", "replace"))))
            name, after = _name(step.command), min(estimate(text), before)
            this = CommandTotal(1, before, after, len(facts), gone)
            totals[name] = totals.get(name, CommandTotal()).plus(this)
    _print(totals, sessions, as_json=as_json, lost=lost)
    return 0


def _name(line: str) -> str:
    """The command that a line is about."""
    try:
        found = speaking(line)
    except NotSimple:
        return "(other lines)"
    return name_of(found[-1][0].argv) if found and found[-1][0].argv else "(silent lines)"


def _print(totals: dict[str, CommandTotal], sessions: dict[str, int], *, as_json: bool, lost: bool) -> None:
    ordered = sorted(totals.items(), key=lambda item: item[1].shown - item[1].tokens)
    whole = CommandTotal()
    for _, one in ordered:
        whole = whole.plus(one)
    if as_json:
        names = [column.replace(" %", "_percent").replace(" ", "_") for column in _COLUMNS]
        rows = [dict(zip(names, one.row(name), strict=True)) for name, one in [*ordered, ("all", whole)]]
        print(json.dumps({"sessions": sessions, "commands": rows}, indent=2))
        return
    if not sessions:
        print("te: no transcripts of Claude Code or Codex with shell commands were found")
        return
    print(", ".join(f"{count:,} sessions of {client}" for client, count in sessions.items()))
    print(as_table(_COLUMNS, [one.row(name) for name, one in [*ordered[:_SHOWN], ("all", whole)]]))
    for name, one in ordered if lost else ():
        if one.lost:
            print_line(f"lost of {visible(name)}: {visible(' '.join(one.lost))}")
