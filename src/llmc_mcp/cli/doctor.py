"""`llmc doctor`: what this machine offers the server, what it lacks, and how to get it."""

import os
import sys

import msgspec

from ..command_line import JSON, Arguments, Flag, UsageError, declare
from ..config.load import load
from ..review.checks import Check, findings
from .fixes import fixes_for, not_on_path, offer
from .install.clients import llmc_command
from .terminal import has_person

_ABOUT = """\
What this machine offers the server, from the kernel up: how files, searches and commands are confined, which attempts\
 to break out were tried and prevented, and how to get what is missing.

With --fix it then offers what it can do itself: install bubblewrap, show commands a folder of your programs, put llmc\
 on your PATH, add completion to your shell. It asks before each.

Exit code 1 when something does not work; what is merely missing leaves it 0.
"""
_MARKS = {"ok": "ok      ", "missing": "missing ", "broken": "BROKEN  "}
_COLOURS = {"ok": "32", "missing": "33", "broken": "1;31"}


@declare(
    "doctor",
    _ABOUT,
    flags=(Flag("--fix", "offer what can be done about it, and ask before each step"), JSON),
    server_flags=True,
)
def command(given: Arguments) -> int:
    """Print the findings."""
    if "--fix" in given and ("--json" in given or not has_person()):
        raise UsageError("--fix asks before each step, at a terminal")
    found = [*findings(load(given.server)), _on_path()]
    if "--json" in given:
        print(msgspec.json.format(msgspec.json.encode([finding._asdict() for finding in found]), indent=2).decode())
    else:
        for finding in found:
            _show(finding)
    if "--fix" in given:
        return offer(fixes_for(_fixable(found)))
    return int(any(finding.state == "broken" for finding in found))


def _fixable(found: list[Check]) -> dict[str, list[str]]:
    """The findings that `llmc doctor --fix` can do something about, with what it needs to know."""
    topics: dict[str, list[str]] = {}
    if any("apt install bubblewrap" in finding.fix for finding in found):
        topics["bubblewrap"] = []
    for finding in found:
        if finding.topic == "toolchains" and finding.details:
            places = [detail.rpartition(": ")[2] for detail in finding.details]
            folders = [place if os.path.isdir(place) else os.path.dirname(os.path.realpath(place)) for place in places]
            topics["toolchains"] = list(dict.fromkeys(folders))
    return topics


def _show(finding: Check) -> None:
    mark = _MARKS[finding.state]
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        mark = f"\x1b[{_COLOURS[finding.state]}m{mark}\x1b[0m"
    print(f"{mark}{finding.topic}: {finding.message}")
    for detail in finding.details:
        print(f"          {detail}")
    if finding.fix:
        print(f"        fix: {finding.fix}")


def _on_path() -> Check:
    if missing := not_on_path():
        fix = f"{llmc_command()} doctor --fix offers to put them there."
        return Check("shell", "missing", f"not on your PATH: {', '.join(missing)}", fix)
    return Check("shell", "ok", "llmc, llmc-mcp and te are on your PATH")
