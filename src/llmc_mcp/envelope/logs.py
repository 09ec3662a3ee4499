"""Logs and tables of containers, pods and services: what went wrong, then lines by their form, with counts."""

import os
import re

from .family import FamilyPlan
from .salience import PLAIN, VERDICT, WRONG, SalientLines

_FOLLOWS = frozenset(("-f", "--follow", "-w", "--watch"))
_OTHER_FORMAT = re.compile(r"(?:-o|--output|--format)(?:=|$)")
_LOGS = frozenset(("logs", "log"))
_TABLES = frozenset(("ps", "images", "get", "top", "events", "container", "image", "volume", "network", "ls"))

_BAD = re.compile(
    rb".*\b(?:ERROR|FATAL|CRITICAL|PANIC|SEVERE|EMERG|ALERT|Traceback|panicked|segfault|panic:|exception|Exception)\b"
    rb"|.*\b[A-Z]\w+(?:Error|Exception)\b|.*\b(?:level|severity)=(?:error|fatal|critical)\b"
)
_TROUBLE = re.compile(
    rb".*\b(?:Error|CrashLoopBackOff|ImagePull\w*|ErrImage\w*|Pending|Evicted|OOMKilled|NotReady|Failed|Unknown|Dead"
    rb"|Restarting|Exited \([1-9]\d*\)|Init:\S+|Terminating|Warning)|.*\(unhealthy\)"
)


_EVENT = re.compile(rb"\s+Warning\s|\s+(?:Reason|Message):\s+(?:\w*(?:Error|Failed|BackOff|Killed))")


def plan(argv: list[str]) -> FamilyPlan | None:
    """A plan for logs and tables; None where the output goes on, or has another form."""
    program, words = os.path.basename(argv[0]), argv[1:]
    if not _FOLLOWS.isdisjoint(words) or any(_OTHER_FORMAT.match(word) for word in words):
        return None
    if program == "journalctl":
        return FamilyPlan(list(argv), SalientLines(LogLines()), one_stream=True)
    verb = next((word for word in words if not word.startswith("-")), "")
    if verb in _LOGS:
        return FamilyPlan(list(argv), SalientLines(LogLines()), one_stream=True)
    if (program, verb) == ("kubectl", "describe"):
        return FamilyPlan(list(argv), SalientLines(DescribedLines()), one_stream=True)
    if verb in _TABLES:
        return FamilyPlan(list(argv), SalientLines(TableLines()))
    if program in ("docker", "podman"):
        from . import scripts

        build = scripts.plan(argv)
        return build._replace(kind="scripts") if build is not None else None
    return None


class LogLines:
    """Lines of a log."""

    words = (
        *(b"error", b"fatal", b"critical", b"panic", b"severe", b"emerg", b"alert", b"traceback", b"segfault"),
        b"exception",
    )
    any_case = True

    def __init__(self) -> None:
        self._bad = 0

    def weigh(self, line: bytes) -> int:
        if _BAD.match(line[:400]):
            self._bad += 1
            return WRONG
        return PLAIN

    def counts(self) -> dict[str, int]:
        return {"error_lines": self._bad}


class DescribedLines(LogLines):
    """`kubectl describe`: its events say what went wrong."""

    words = (*LogLines.words, b"warning")

    def weigh(self, line: bytes) -> int:
        if _EVENT.match(line):
            self._bad += 1
            return WRONG
        return super().weigh(line)


class TableLines:
    """A table with a line of headings."""

    words = ()
    any_case = True

    def __init__(self) -> None:
        self._rows = self._trouble = 0

    def weigh(self, line: bytes) -> int:
        self._rows += 1
        if self._rows == 1:
            return VERDICT
        if _TROUBLE.match(line):
            self._trouble += 1
            return WRONG
        return PLAIN

    def counts(self) -> dict[str, int]:
        return {"rows": max(self._rows - 1, 0), "in_trouble": self._trouble}
