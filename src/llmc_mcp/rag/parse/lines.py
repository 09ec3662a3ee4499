"""Where lines begin."""

from itertools import accumulate


def line_starts(source: bytes) -> list[int]:
    """The first byte of each line, and at the end that of the line after the last. Only \\n ends a line here."""
    return [0, *accumulate(len(line) + 1 for line in source.split(b"\n"))]
