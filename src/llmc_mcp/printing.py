"""Printing of untrusted text for people: one line stays one line, and control characters are escaped."""

import os
import sys
from typing import TextIO

import msgspec

from .visible import visible


def print_line(text: str, file: TextIO | None = None) -> None:
    """Print text as one line, control characters escaped."""
    print(visible(text, keep="\t").rstrip(), file=file)


def print_lines(text: str, file: TextIO | None = None) -> None:
    """Print text of several lines."""
    for line in text.split("\n"):
        print_line(line, file)


def print_json(value: object) -> None:
    """Print data as JSON, in ASCII."""
    import json  # not on the way to a server, which counts things too

    print(json.dumps(msgspec.to_builtins(value), indent=2))


def counted(number: int, thing: str) -> str:
    """A number of things: 1 file, 2 files, 3 repositories."""
    plural = f"{thing[:-1]}ies" if thing.endswith("y") else f"{thing}s"
    return f"{number:,} {thing if number == 1 else plural}"


def print_bytes(data: bytes) -> None:
    """Print a payload: unchanged, or escaped on a terminal."""
    if os.isatty(1):
        data = visible(data.decode("utf-8", "replace"), keep="\n\t").encode()
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
