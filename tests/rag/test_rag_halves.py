"""A question's searches in two threads."""

import os
import threading

import pytest

from llmc_mcp.rag.store import halves


def _has_cores(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    def cores(_: int) -> set[int]:
        return set(range(count))

    monkeypatch.setattr(os, "sched_getaffinity", cores)


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    _has_cores(monkeypatch, 2)


def test_searches_are_split_by_what_they_cost() -> None:
    costs = {"a": 500_000, "b": 300_000, "c": 250_000, "d": 10}
    assert halves.in_halves(costs) == (["a", "d"], ["b", "c"])


def test_cheap_searches_are_not_worth_a_thread() -> None:
    assert halves.in_halves({"a": 500_000, "b": 1_000}) == (["a", "b"], [])
    assert halves.in_halves({}) == ([], [])


def test_one_core_has_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    _has_cores(monkeypatch, 1)
    assert halves.in_halves({"a": 500_000, "b": 500_000}) == (["a", "b"], [])


def test_both_halves_run_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=60)  # only two threads can pass it

    def run(key: str) -> str:
        both.wait()
        return key.upper()

    assert halves.for_each(run, {"a": 500_000, "b": 500_000}) == {"a": "A", "b": "B"}


def test_an_error_in_the_other_thread_is_raised() -> None:
    def run(key: str) -> str:
        if key == "b":
            raise ValueError(key)
        return key

    with pytest.raises(ValueError, match="b"):
        halves.for_each(run, {"a": 600_000, "b": 500_000})


def test_a_forked_process_has_a_thread_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def thread(_: str) -> int:
        return threading.get_ident()

    costs = {"a": 500_000, "b": 500_000}
    first = set(halves.for_each(thread, costs).values())
    monkeypatch.setattr(os, "getpid", lambda: 1)  # as in a fork, where the thread is gone
    second = set(halves.for_each(thread, costs).values())
    assert len(first | second) == 3
