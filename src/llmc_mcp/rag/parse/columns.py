"""Delta encoding of columns of rising numbers: small numbers are short."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from operator import sub


def steps(values: Sequence[int]) -> list[int]:
    """Each value as the difference to the one before."""
    return [*map(sub, values, chain((0,), values))]


def sums(steps: Iterable[int]) -> Iterator[int]:
    """The values again."""
    return accumulate(steps)
