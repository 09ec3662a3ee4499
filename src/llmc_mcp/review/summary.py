"""What a session did, once it is over: turns, tools, tokens, time, changes with their diffstat, and what to do next."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..changes.effects import effects_of
from ..changes.journal import Change, Journal
from ..errors import NotFound
from ..printing import counted
from ..session import PERSON
from ..store.base import Store
from ..store.root_sets import folder_of
from ..store.sessions import SessionCall, SessionTotals, StoreReader, calls, session, sessions, tools_of
from ..visible import visible

_CALLS, _CHANGES, _SESSIONS = 20_000, 2_000, 1_000
_FILES_SHOWN, _TOOLS_SHOWN = 20, 12
_COMMAND = re.compile(r"\bcommand=([^…]*+)")
_NEXT_ARGUMENT = re.compile(r" \w+=")
_TESTS = re.compile(r"\b(?:pytest|tox|make test|npm test|cargo test|go test|ctest)\b")


class FileStat(NamedTuple):
    """What a session did to one file; lines are None where they were not counted, as for commands."""

    path: str
    action: str
    added: int | None
    removed: int | None


class SessionSummary(NamedTuple):
    """All that a person wants to know of a session."""

    totals: SessionTotals
    stretches: list[tuple[float, float]]  # in which calls were under way, oldest first
    tools: list[tuple[str, int, int]]
    files: list[FileStat]
    standing: int  # changes in effect
    tests: str  # the latest command that ran tests; empty if there was none

    @property
    def turns(self) -> int:
        """How often the model took its turn."""
        return len(self.stretches)

    @property
    def busy_s(self) -> float:
        """The time in calls; that of calls inside code, or at the same time, counts once."""
        return sum(ended - begun for begun, ended in self.stretches)

    @property
    def span_s(self) -> float:
        """The time from the first call to the end of the last."""
        return self.stretches[-1][1] - self.stretches[0][0] if self.stretches else 0.0

    @property
    def actions(self) -> list[tuple[str, str]]:
        """What a person may do next: what it is for, and the command."""
        name = _quoted(self.totals.session_id)
        found: list[tuple[str, str]] = []
        if self.standing:
            found.append(("undo it", f"llmc undo --session {name}"))
        if self.files:
            found.append(("see it as a diff", f"llmc changes --all --session {name} --diff"))
        if self.tests:
            found.append(("run the tests again", self.tests))
        return found


def summarize_session(store: Store, journal: Journal, reader: StoreReader, session_id: str | None) -> SessionSummary:
    """The summary of a session by its id, or of an agent's latest one."""
    if session_id is None:
        latest = sessions(store, reader, _SESSIONS)
        totals = next((one for one in latest if one.agent_id != PERSON), None)
    else:
        totals = session(store, reader, session_id)
    if totals is None:
        raise NotFound(f"there is no session {session_id[:128]!r}" if session_id else "there is no session yet")
    name = totals.session_id
    reader = reader._replace(principal=totals.principal)  # two clients over HTTP may name their sessions alike
    made = calls(store, reader, _CALLS, name)
    changed = [one for one in journal.history(reader.principal, name, _CHANGES) if one.undoes is None]
    in_effect = [one for one in changed if one.undone_by is None]
    return SessionSummary(
        totals, stretches(made), tools_of(store, reader, name), file_stats(in_effect), len(in_effect), _tests(made)
    )


def stretches(made: Iterable[SessionCall]) -> list[tuple[float, float]]:
    """When calls were under way, oldest first: those that were so together are one stretch, a turn of the model."""
    found: list[tuple[float, float]] = []
    for begun, ended in sorted((one.at - one.duration_ms / 1000, one.at) for one in made):
        if found and begun < found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], ended))
        else:
            found.append((begun, ended))
    return found


def file_stats(changed: Sequence[Change]) -> list[FileStat]:
    """The files of some changes (newest first), with the lines that each gained and lost."""
    found: dict[str, FileStat] = {}
    for change in reversed(changed):
        for effect in effects_of(change):
            path = effect.target or effect.path
            before = found.pop(effect.path, None) or found.pop(path, None)
            action = before.action if before is not None and before.action == "create" else effect.action
            counts = (effect.added, effect.removed)
            if before is not None:
                counts = (_sum(before.added, effect.added), _sum(before.removed, effect.removed))
            found[path] = FileStat(path, action, *counts)
    return list(found.values())


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else (one or 0) + (other or 0)


def _tests(made: Sequence[SessionCall]) -> str:
    for one in made:  # newest first
        if one.tool.endswith("pytest"):
            return "pytest"
        if found := _COMMAND.search(one.args):
            line = _NEXT_ARGUMENT.split(found[1], maxsplit=1)[0]
            if _TESTS.search(line):
                return line
    return ""


def _quoted(text: str) -> str:
    import shlex

    return shlex.quote(text)


def as_lines(summary: SessionSummary) -> list[str]:
    """A summary as text."""
    totals = summary.totals
    lines = [
        f"Session {totals.session_id} of {totals.agent_id} on {folder_of(totals.roots)}",
        f"  {counted(summary.turns, 'turn')}, {counted(totals.calls, 'call')} ({totals.errors:,} failed)"
        f" in {_span(summary.span_s)}, {_span(summary.busy_s)} of it in calls",
        f"  tokens: {totals.tokens_in:,} in, {totals.tokens_out:,} out, {totals.tokens_saved:,} saved",
        f"  tools: {', '.join(_tool(*one) for one in summary.tools[:_TOOLS_SHOWN])}",
    ]
    if summary.files:
        lines.append(f"  {counted(len(summary.files), 'file')} changed:")
        width = min(max(len(one.path) for one in summary.files[:_FILES_SHOWN]), 60)
        lines += [f"    {one.path:{width}}  {_stat(one)}" for one in summary.files[:_FILES_SHOWN]]
        if len(summary.files) > _FILES_SHOWN:
            lines.append(f"    and {len(summary.files) - _FILES_SHOWN:,} more")
    else:
        lines.append("  no files changed")
    lines += [f"  to {what}: {command}" for what, command in summary.actions]
    return [visible(line) for line in lines]


def _tool(name: str, count: int, failed: int) -> str:
    return f"{name} ×{count:,}" + (f" ({failed:,} failed)" if failed else "")  # noqa: RUF001 - a multiplication sign


def _stat(one: FileStat) -> str:
    counts = "" if one.added is None else f" +{one.added:,} -{one.removed or 0:,}"
    return f"{one.action}{counts}"


def _span(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
