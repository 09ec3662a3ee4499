"""Questions to a person at a terminal."""

import sys

from ..errors import InvalidArgument


def has_person() -> bool:
    """Whether somebody is there to answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(question: str) -> str:
    """The line that the person types."""
    print(f"{question} ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise InvalidArgument("there was no answer")
    return line.strip()


def confirm(question: str) -> bool:
    """Whether the person says yes; Enter is no."""
    return ask(f"{question} [y/N]").lower() in ("y", "yes")
