"""`llmc doctor`: what this machine offers the server, what it lacks, and how to get it."""

import os
import sys

import msgspec

from ..command_line import JSON, Arguments, declare
from ..config.load import load
from ..review.checks import Check, findings

_ABOUT = """\
What this machine offers the server, from the kernel up: how files, searches and commands are confined, which attempts\
 to break out were tried and prevented, and how to get what is missing.

Exit code 1 when something does not work; what is merely missing leaves it 0.
"""
_MARKS = {"ok": "ok      ", "missing": "missing ", "broken": "BROKEN  "}
_COLOURS = {"ok": "32", "missing": "33", "broken": "1;31"}


@declare("doctor", _ABOUT, flags=(JSON,), server_flags=True)
def command(given: Arguments) -> int:
    """Print the findings."""
    found = list(findings(load(given.server)))
    if "--json" in given:
        print(msgspec.json.format(msgspec.json.encode([finding._asdict() for finding in found]), indent=2).decode())
    else:
        for finding in found:
            _show(finding)
    return int(any(finding.state == "broken" for finding in found))


def _show(finding: Check) -> None:
    mark = _MARKS[finding.state]
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        mark = f"\x1b[{_COLOURS[finding.state]}m{mark}\x1b[0m"
    print(f"{mark}{finding.topic}: {finding.message}")
    for detail in finding.details:
        print(f"          {detail}")
    if finding.fix:
        print(f"        fix: {finding.fix}")
