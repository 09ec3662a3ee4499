"""How commands for people print what was stored: lines stay lines, and nothing steers the terminal."""

import json
import os
import sys
from typing import TextIO

import msgspec

from .visible import visible


def print_line(text: str, file: TextIO | None = None) -> None:
    """One line, whatever is in it."""
    print(visible(text, keep="\t").rstrip(), file=file)


def print_lines(text: str, file: TextIO | None = None) -> None:
    """Text of several lines."""
    for line in text.split("\n"):
        print_line(line, file)


def print_json(value: object) -> None:
    """Data for a program, in ASCII."""
    print(json.dumps(msgspec.to_builtins(value), indent=2))


def print_bytes(data: bytes) -> None:
    """A payload: as it is for a program, as text on a terminal."""
    if os.isatty(1):
        data = visible(data.decode("utf-8", "replace"), keep="\n\t").encode()
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
