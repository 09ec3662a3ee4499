"""A thousand developers on paper: measured costs per call, multiplied by what such a team asks for.

Two tables are measured, two extrapolated, and each says which it is. What the team does (`Load`) is an assumption:
every figure of it is a flag.
"""

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from .. import report
from .measured import CallCost, Caller, Fleet, fleet

_IDLE_S = 20.0
_RATE_S = 8.0
_CALLERS = 8
_DAY_S = 86_400
_WORKDAY_S = 8 * 3_600
_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30
# Of a hundred calls of an agent: how many are of each kind. Reads and searches come first, then commands, then edits.
MIX = {
    "read a file": 48,
    "read, cut: a handle keeps the rest": 7,
    "a command that changes nothing": 20,
    "a command that changes a file": 5,
    "edit a file": 14,
    "write 400 kB, its pre-image kept": 1,
    "undo a change": 1,
    "start a program and stop it": 1,
    "type into a program of another replica": 3,
}


class Load(NamedTuple):
    """What a team asks of its fleet."""

    developers: int
    sessions: int
    active: float  # the share of sessions that make calls at a time
    seconds_per_call: float  # of an active session
    peak: float  # the busiest minute, as a multiple of the average
    replicas: int
    projects: int
    retention_days: int

    @property
    def calls_per_second(self) -> float:
        """On average over a working day."""
        return self.sessions * self.active / self.seconds_per_call


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet simulate", description=__doc__)
    parser.add_argument("--calls", type=int, default=150, help="measured calls of each kind")
    parser.add_argument("--developers", type=int, default=1_000)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--active", type=float, default=0.1, help="share of sessions that make calls at a time")
    parser.add_argument("--seconds-per-call", type=float, default=3.0, help="of an active session")
    parser.add_argument("--peak", type=float, default=3.0, help="the busiest minute, as a multiple of the average")
    parser.add_argument("--replicas", type=int, default=100)
    parser.add_argument("--projects", type=int, default=200, help="roots that writers share")
    parser.add_argument("--retention-days", type=int, default=30)
    given = vars(parser.parse_args(arguments))
    calls: int = given.pop("calls")
    with tempfile.TemporaryDirectory(prefix="fleet", dir="/tmp", ignore_cleanup_errors=True) as work:
        folder = Path(work)
        folder.chmod(0o755)  # the database is another user's
        with fleet(folder) as running:
            idle, costs = _measure(running, folder / "root", calls)
            rates = _rates(running, folder / "root")
    print(_tables(Load(**given), idle, costs, rates))


# --- measured --------------------------------------------------------------------------------------------------------


def _measure(running: Fleet, root: Path, calls: int) -> tuple[CallCost, list[CallCost]]:
    one, two = Caller(running.one), Caller(running.two)
    (root / "a.txt").write_text("0\n" * 20)
    (root / "long.txt").write_text("".join(f"line {number}\n" for number in range(20_000)))
    (root / "big.txt").write_text("x" * 400_000)
    program = one("linux_proc_start", command="cat")["proc_id"]
    idle = running.idle(_IDLE_S)
    undo_ids: list[str] = []

    def edit(number: int) -> None:
        made = one("linux_fs_edit", path="a.txt", old_text=f"{number}\n" * 20, new_text=f"{number + 1}\n" * 20)
        undo_ids.append(made["undo_id"])

    def start_and_stop(_: int) -> None:
        one("linux_proc_stop", proc_id=one("linux_proc_start", command="cat")["proc_id"])

    kinds: dict[str, Callable[[int], object]] = {
        "read a file": lambda _: one("linux_fs_read", path="a.txt"),
        "read, cut: a handle keeps the rest": lambda _: one("run_cmd", command="cat long.txt"),
        "a command that changes nothing": lambda _: one("run_cmd", command="true"),
        "a command that changes a file": lambda n: one("run_cmd", command=f"echo {n} > changed.txt"),
        "edit a file": edit,
        "write 400 kB, its pre-image kept": lambda n: one("linux_fs_write", path="big.txt", content=_incompressible(n)),
        "undo a change": lambda _: one("linux_fs_undo", undo_id=undo_ids.pop()),
        "start a program and stop it": start_and_stop,
        "type into a program of another replica": lambda n: two("linux_proc_send", proc_id=program, input=f"{n}"),
    }
    few = {"write 400 kB, its pre-image kept": 5, "undo a change": 2}
    return idle, [running.cost(kind, max(calls // few.get(kind, 1), 5), call, idle) for kind, call in kinds.items()]


def _incompressible(number: int) -> str:
    import random

    return random.Random(number).randbytes(200_000).hex()


def _rates(running: Fleet, root: Path) -> dict[str, float]:
    """How fast writers of one project get on, and readers."""
    for number in range(_CALLERS):
        (root / f"w{number}.txt").write_text("0\n")
    callers = [Caller((running.one, running.two)[number % 2]) for number in range(_CALLERS)]

    def edit(number: int, count: int) -> None:
        callers[number]("linux_fs_write", path=f"w{number}.txt", content=f"{count}\n")

    def read(number: int, _: int) -> None:
        callers[number]("linux_fs_read", path="a.txt")

    for number in range(_CALLERS):
        read(number, 0)
    return {
        f"edits a second, {_CALLERS} callers at two replicas, one project": running.rate(_RATE_S, _CALLERS, edit),
        "edits a second, one caller": running.rate(_RATE_S, 1, edit),
        "durable commits a second of one connection, on this disk": running.durable_commits(_RATE_S / 2),
        f"reads a second, {_CALLERS} callers at two replicas": running.rate(_RATE_S, _CALLERS, read),
    }


# --- extrapolated ----------------------------------------------------------------------------------------------------


def _tables(load: Load, idle: CallCost, costs: list[CallCost], rates: dict[str, float]) -> str:
    shown = report.number
    measured = [
        [
            cost.kind,
            *(shown(one) for one in (cost.statements, cost.transactions, cost.durable, cost.rows)),
            shown(cost.wal_bytes / _KIB),
            shown(cost.cpu_ms),
            shown(cost.stored_bytes / _KIB),
            cost.hottest,
        ]
        for cost in [*costs, idle]
    ]
    head = ["measured, per call", "statements", "transactions", "durable", "rows written", "WAL kB", "CPU ms"]
    parts = [report.table([*head, "grows by kB", "hottest table"], measured)]
    parts.append(report.table(["measured", "value"], [[name, shown(value)] for name, value in rates.items()]))
    parts.append(demand(load, idle, costs))
    parts.append(bounds(load, costs, next(iter(rates.values()))))
    load_average = f"load average {os.getloadavg()[0]:.0f}"
    parts.append(report.provenance("PostgreSQL 15, fsync on", load_average).replace("benchmarks ", "benchmarks.fleet "))
    return "\n\n".join(parts)


def _per_call(costs: list[CallCost]) -> CallCost:
    """The average call of the mix."""
    total = sum(MIX.values())

    def mean(of: Callable[[CallCost], float]) -> float:
        return sum(MIX[cost.kind] * of(cost) for cost in costs) / total

    return CallCost(
        "the mix",
        statements=mean(lambda one: one.statements),
        transactions=mean(lambda one: one.transactions),
        rows=mean(lambda one: one.rows),
        wal_bytes=mean(lambda one: one.wal_bytes),
        durable=mean(lambda one: one.durable),
        cpu_ms=mean(lambda one: one.cpu_ms),
        stored_bytes=mean(lambda one: one.stored_bytes),
        hottest="",
    )


def demand(load: Load, idle: CallCost, costs: list[CallCost]) -> str:
    """What the database must do in a second."""
    mean, rate = _per_call(costs), load.calls_per_second
    rows: list[list[str]] = []
    for name, field, unit in (
        ("statements", "statements", 1.0),
        ("transactions that write", "transactions", 1.0),
        ("of them durable", "durable", 1.0),
        ("rows written", "rows", 1.0),
        ("write-ahead log, MB", "wal_bytes", _MIB),
        ("processor, cores", "cpu_ms", 1000.0),
    ):
        call, beat = getattr(mean, field) / unit, getattr(idle, field) / unit * load.replicas
        rows.append([name, *(report.number(call * rate * times + beat) for times in (1.0, load.peak))])
    grows = mean.stored_bytes * rate * _WORKDAY_S / _GIB
    rows.append(["growth, GB a working day", report.number(grows), "-"])
    rows.insert(0, ["calls", report.number(rate), report.number(rate * load.peak)])
    team = f"extrapolated: {load.developers:,} developers, {load.sessions:,} sessions, {load.replicas} replicas"
    return report.table([team, "average, per second", "peak"], rows)


def bounds(load: Load, costs: list[CallCost], edits: float) -> str:
    """Where it breaks first."""
    mean = _per_call(costs)
    locks = mean.transactions * load.calls_per_second * load.peak
    writes = sum(MIX[cost.kind] for cost in costs if cost.durable >= 0.5) / sum(MIX.values())
    per_core = 1000 / mean.cpu_ms if mean.cpu_ms else float("inf")
    rows = [
        ["calls/s of the mix per core of the database", report.number(per_core)],
        ["cores of the database at the peak", report.number(load.calls_per_second * load.peak / per_core)],
        ["project locks taken per second at the peak", report.number(locks)],
        [f"of them on one of {load.projects} projects", report.number(locks / load.projects)],
        ["changes a second that one project takes (measured here)", report.number(edits)],
        ["changes a second in the busiest project, if it has a tenth of all", report.number(
            load.calls_per_second * load.peak * writes / 10)],
        ["rows in `calls` after the retention", report.number(
            load.calls_per_second * _WORKDAY_S * load.retention_days * 5 / 7)],
        ["connections, if every replica uses its whole pool", report.number(load.replicas * (8 + 2))],
        ["connections of idle replicas", report.number(load.replicas * 2)],
    ]  # fmt: skip
    return report.table(["extrapolated: where it ends", "value"], rows)
