"""The simulation of a fleet multiplies what was measured, and nothing else."""

import pytest

from benchmarks.fleet import __main__ as dispatch
from benchmarks.fleet.measured import CallCost
from benchmarks.fleet.simulate import MIX, Load, bounds, demand

LOAD = Load(1_000, 10_000, 0.1, 2.0, 3.0, 100, 200, 30)
IDLE = CallCost("an idle replica, each second", 2.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, "replicas (100%)")
COSTS = [CallCost(kind, 4.0, 1.0, 2.0, 1 << 20, 1.0, 5.0, 1024.0, "calls (100%)") for kind in MIX]


def test_what_a_team_asks_for_is_calls_times_costs_and_heartbeats() -> None:
    table = demand(LOAD, IDLE, COSTS)
    assert "| calls | 500 | 1,500 |" in table
    assert "| statements | 2,200 | 6,200 |" in table  # 4 a call, and 2 a second of each replica
    assert "| write-ahead log, MB | 500 | 1,500 |" in table
    assert "| processor, cores | 2.50 | 7.50 |" in table


def test_where_it_ends_follows_from_the_same_costs() -> None:
    table = bounds(LOAD, COSTS, 50.0)
    assert "| calls/s of the mix per core of the database | 200 |" in table
    assert "| cores of the database at the peak | 7.50 |" in table
    assert "| changes a second that one project takes (measured here) | 50 |" in table


@pytest.mark.parametrize("word", ["no_such", "../x", "_private"])
def test_a_word_that_is_no_benchmark_is_refused(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch.main([word]) == 2
    assert "simulate" in capsys.readouterr().err
