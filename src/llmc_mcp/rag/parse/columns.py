"""Delta encoding of columns of rising numbers: small numbers are short."""

from collections.abc import Iterable, Iterator


def steps(values: Iterable[int]) -> Iterator[int]:
    """Each value as the difference to the one before."""
    last = 0
    for value in values:
        yield value - last
        last = value


def sums(steps: Iterable[int]) -> Iterator[int]:
    """The values again."""
    total = 0
    for step in steps:
        total += step
        yield total
