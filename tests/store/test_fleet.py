"""Replicas of the HTTP server that are killed while they write, on a database that restarts."""

from benchmarks.fleet.soak import soak

from ..support.postgres import NEEDED, programs
from ..support.workspace import require


def test_replicas_that_are_killed_while_the_database_restarts_lose_nothing() -> None:
    require(programs() != "", NEEDED)
    with soak(replicas=2, writers=3) as fleet:
        fleet.run(seconds=7, kill_every=2, restart_every=4)
        assert fleet.judge() == []
        assert fleet.tally.kills >= 1
        assert fleet.tally.restarts >= 1
        assert fleet.tally.calls["ok"] > 0
