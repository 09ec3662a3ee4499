"""Whether two runs of a command ended alike: exit code, what they printed, what they left in the files."""

import re
from collections.abc import Callable
from typing import NamedTuple

from .copies import Effect

TIME_IS_UP = -1  # in the place of an exit code
NOT_FOUND = 127
_KEPT = 32 << 10  # bytes of each end of a long stream that a reply has
_GAP = re.compile(r"\n… \[[\d,]+ bytes left out\] …\n")
# Programs that list files in the order in which a folder happens to hold them.
UNORDERED = frozenset(("find", "fd", "grep", "egrep", "fgrep", "rg", "xargs", "du", "tar"))

_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_VOLATILE: tuple[tuple[str, str], ...] = (
    (r"\b0x[0-9a-fA-F]{4,}\b", "<address>"),
    (r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?: ?[+-]\d\d:?\d\d|Z)?)?", "<date>"),
    (rf"\b{_MONTH} +\d{{1,2}} +(?:\d\d:\d\d(?::\d\d)?(?: \d{{4}})?|\d{{4}})\b", "<date>"),
    (r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?", "<time>"),
    (r"\b\d+(?:\.\d+)? ?(?:s|ms|us|µs|sec|secs|seconds?|m\d+[.,]\d+s)\b", "<duration>"),
    (r"(?i)\b(pid|process|port)([ :=]+)\d+", r"\1\2<number>"),
    (r"/tmp/(?:tmp|django_|pip-|pytest-of-|tmp\.)[\w.-]+", "<temporary>"),
    (r"\bdetached at [0-9a-f]{7,}", "detached at <commit>"),
    # pytest fills a line up, around a duration
    (r"(?m)^=+ (.*?) =+$", r"= \1 ="),
)
_RULES = tuple((re.compile(pattern), replacement) for pattern, replacement in _VOLATILE)


class Outcome(NamedTuple):
    """How a command ended. `refused`: our server did not run it, and why."""

    exit_code: int
    stdout: str
    stderr: str
    files: dict[str, Effect]
    refused: str = ""

    @property
    def kind(self) -> str:
        """The class of its exit code."""
        if self.exit_code == TIME_IS_UP:
            return "time is up"
        if self.exit_code == 0:
            return "success"
        return "failure" if self.exit_code < 124 else "not run, or ended by a signal"


def difference(plain: Outcome, ours: Outcome, unordered: bool) -> str:
    """What is not alike, in a line; empty where all is."""
    if ours.refused:
        # An argv whose program does not exist is an error reply, which says what bash says.
        if plain.exit_code == NOT_FOUND and ours.exit_code == NOT_FOUND:
            return ""
        return f"refused ({ours.refused}), in bash: {plain.kind} ({plain.exit_code})"
    if plain.kind != ours.kind:
        return f"exit: {plain.kind} ({plain.exit_code}) in bash, {ours.kind} ({ours.exit_code}) here: {_end(ours)}"
    if plain.exit_code == TIME_IS_UP:
        return ""  # how far either got is a matter of speed
    for name, theirs, here in (("stdout", plain.stdout, ours.stdout), ("stderr", plain.stderr, ours.stderr)):
        if said := _text_difference(theirs, here, unordered):
            return f"{name}: {said}"
    if plain.files != ours.files:
        paths = sorted(path for path in {*plain.files, *ours.files} if plain.files.get(path) != ours.files.get(path))
        return f"files: {', '.join(paths[:5])}{' …' if len(paths) > 5 else ''}"
    return ""


def normalised(text: str) -> list[str]:
    """The lines of an output without what differs from one run to the next."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text.splitlines()


def _text_difference(plain: str, ours: str, unordered: bool) -> str:
    if plain == ours:
        return ""
    if gap := _GAP.search(ours):
        return _ends_difference(plain.encode(), ours[: gap.start()], ours[gap.end() :])
    theirs, here = normalised(plain), normalised(ours)
    if theirs == here or (unordered and sorted(theirs) == sorted(here)):
        return ""
    return _first(theirs, here)


def _ends_difference(plain: bytes, head: str, tail: str) -> str:
    """A long output is kept at both ends; the lines at the cuts are not whole."""
    first, last = plain[:_KEPT].decode(errors="replace"), plain[-_KEPT:].decode(errors="replace")
    cut: Callable[[str], list[str]] = normalised
    if said := _first(cut(first)[:-1], cut(head)[:-1]):
        return said
    return _first(cut(last)[1:], cut(tail)[1:])


def _first(plain: list[str], ours: list[str]) -> str:
    for number, (theirs, here) in enumerate(zip(plain, ours, strict=False), 1):
        if theirs != here:
            return f"line {number}: {theirs[:160]!r} in bash, {here[:160]!r} here"
    if len(plain) == len(ours):
        return ""
    more = [*plain[len(ours) :], *ours[len(plain) :]][0]
    return f"{len(plain)} lines in bash, {len(ours)} here; the first more: {more[:160]!r}"


def _end(outcome: Outcome) -> str:
    lines = (outcome.stderr or outcome.stdout).splitlines()
    return repr(lines[-1][:160]) if lines else "nothing printed"
