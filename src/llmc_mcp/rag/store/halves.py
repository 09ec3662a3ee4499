"""Two searches of a text index at once: tantivy lets other threads run while it searches."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Key = TypeVar("Key")
Found = TypeVar("Found")

_WORTH_IT = 40_000  # documents: looking at fewer takes less time than it takes to wake a thread

_helper: tuple[int, ThreadPoolExecutor] | None = None  # and the process that it belongs to: no thread survives a fork


def in_halves(costs: Mapping[Key, int]) -> tuple[list[Key], list[Key]]:
    """Two lists that cost about the same, the dearer one first; the second is empty if it isn't worth a thread."""
    halves: tuple[list[Key], list[Key]] = [], []
    totals = [0, 0]
    for key in sorted(costs, key=lambda key: -costs[key]):
        at = int(totals[1] < totals[0])
        halves[at].append(key)
        totals[at] += costs[key]
    if totals[1] < _WORTH_IT or len(os.sched_getaffinity(0)) < 2:
        return [*costs], []
    return halves


def for_each(run: Callable[[Key], Found], costs: Mapping[Key, int]) -> dict[Key, Found]:
    """What `run` returns for each key; another thread does one half of them."""

    def run_all(keys: Sequence[Key]) -> dict[Key, Found]:
        return {key: run(key) for key in keys}

    ours, others = in_halves(costs)
    if not others:
        return run_all(ours)
    helped = _pool().submit(run_all, others)
    return {**run_all(ours), **helped.result()}


def _pool() -> ThreadPoolExecutor:
    global _helper  # noqa: PLW0603 - one thread for all indexes of the process
    if _helper is None or _helper[0] != os.getpid():
        _helper = os.getpid(), ThreadPoolExecutor(1, thread_name_prefix="search")
    return _helper[1]
