"""Usage rows in PostgreSQL: how many a second, and what calls notice of it."""

import argparse
import os
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from llmc_mcp.config.schema import Config
from llmc_mcp.gate.dispatch import Gate
from llmc_mcp.gate.usage import Recorder, Usage
from llmc_mcp.server import build
from llmc_mcp.session import Session
from llmc_mcp.store.base import Store
from llmc_mcp.store.postgres import PostgresStore
from llmc_mcp.store.schema import insert_into
from tests.support.postgres import cluster

from .. import report

_BAR_ROWS, _BAR_SHARE = 20_000, 0.05
_BATCH = 2_000
_SLICE_S = 0.5


def _row() -> Usage:
    about = ("path=src/app.py offset=10", 120, 3000, "alice", "session-1", "claude", "opus", "0123456789abcdef")
    return Usage(time.time(), "mcp", "linux_fs_read", "ok", 1.25, *about, 30, 750, 0, "default", '["/srv/a"]', "bwrap")


def _write_rates(store: PostgresStore, seconds: float) -> str:
    rows: list[list[str]] = []

    def by_insert(batch: list[Usage]) -> None:
        with store.transaction() as connection:
            connection.executemany(insert_into("calls", Usage._fields), batch)

    def by_copy(batch: list[Usage]) -> None:
        store.add_rows("calls", Usage._fields, batch)

    for name, write in (("INSERT (executemany)", by_insert), ("COPY", by_copy)):
        batch, written = [_row()] * _BATCH, 0
        used, started = time.process_time(), time.perf_counter()
        while time.perf_counter() - started < seconds:
            write(batch)
            written += len(batch)
        rate = written / (time.perf_counter() - started)
        own = (time.process_time() - used) / written * 1e6
        rows.append([name, f"{rate:,.0f}", report.number(own), "ok" if rate >= _BAR_ROWS else "missed"])
    return report.table([f"batches of {_BATCH:,}", "rows/s", "own CPU, µs a row", f"bar: {_BAR_ROWS:,}"], rows)


class _Feeder(threading.Thread):
    """Records rows at a rate, in a thread and by a recorder of its own, while it is let."""

    def __init__(self, store: Store, rate: float) -> None:
        super().__init__(daemon=True)
        self.recorder, self._rate = Recorder(lambda: store), rate
        self.feeding, self.ending = threading.Event(), threading.Event()
        self.recorded = 0

    def run(self) -> None:
        row = _row()
        while not self.ending.is_set():
            self.feeding.wait()
            started, before = time.perf_counter(), self.recorded
            while self.feeding.is_set() and not self.ending.is_set():
                due = before + round(self._rate * (time.perf_counter() - started))
                for _ in range(due - self.recorded):
                    self.recorder.record(row)
                self.recorded = due
                time.sleep(0.01)


def _effect(gate: Gate, store: Store, rate: float, slices: int) -> str:
    """Calls in alternating slices of time, with and without rows being recorded: the machine's moods hit both."""
    feeder = _Feeder(store, rate)
    feeder.start()
    session = Session("alice", "s", limited=False)
    taken: dict[bool, list[float]] = {False: [], True: []}
    used: dict[bool, float] = {False: 0.0, True: 0.0}
    fed_s = 0.0
    ((before_all,),) = store.query("SELECT count(*) FROM calls")
    started_all = time.perf_counter()
    for number in range(2 * slices):
        fed = bool(number % 2)
        (feeder.feeding.set if fed else feeder.feeding.clear)()
        if not fed:
            feeder.recorder.flush()
        before, until = time.thread_time(), time.perf_counter() + _SLICE_S
        while time.perf_counter() < until:
            taken[fed].append(
                report.milliseconds(lambda: gate.reply(gate.context(session, "0123456789"), "stat", {"path": "a.txt"}))
            )
        used[fed] += time.thread_time() - before
        fed_s += _SLICE_S * fed
    feeder.ending.set()
    feeder.feeding.set()
    feeder.join()
    feeder.recorder.close()
    gate.flush_usage()
    ((after_all,),) = store.query("SELECT count(*) FROM calls")
    written = (int(str(after_all)) - int(str(before_all))) / (time.perf_counter() - started_all)
    rows: list[list[str]] = []
    for fed in (False, True):
        p50, p95 = (report.number(report.percentile(taken[fed], share) * 1000) for share in (0.5, 0.95))
        cpu = report.number(used[fed] / len(taken[fed]) * 1e6)
        rows.append([f"{feeder.recorded / fed_s:,.0f} rows/s" if fed else "none", p50, p95, cpu])
    slower = report.percentile(taken[True], 0.5) / report.percentile(taken[False], 0.5) - 1
    judged = "ok" if slower <= _BAR_SHARE else "missed"
    lost = feeder.recorder.dropped + (gate.recorder.dropped if gate.recorder is not None else 0)
    dropped = f"{written:,.0f} rows/s written with those of the calls themselves, {lost:,} dropped"
    told = f"The median call takes {slower:+.1%} (bar: {_BAR_SHARE:.0%}, {judged}); {dropped}."
    return f"{report.table(['rows recorded meanwhile', 'call p50 µs', 'p95', 'CPU of its thread'], rows)}\n\n{told}"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet usage", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of writing each way")
    parser.add_argument("--slices", type=int, default=20, help="of half a second, with and without rows")
    parser.add_argument("--rates", type=float, nargs="*", default=[2_000.0, 7_000.0, 20_000.0], help="rows a second")
    given = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="benchmarks-") as folder, cluster() as running:
        work = Path(folder)
        (work / "root").mkdir()
        (work / "root" / "a.txt").write_text("hello\n")
        os.environ["LLMC_DATA_DIR"] = str(work / "data")
        store = PostgresStore(running.fresh(), str(work))
        print(_write_rates(store, given.seconds), flush=True)
        config = Config()
        config.observability.log_level = "error"
        config.store.url = running.fresh()
        gate = build(config, [str(work / "root")])
        for rate in given.rates:
            print(f"\n{_effect(gate, gate.app.store, rate, given.slices)}", flush=True)
        gate.close()
        store.close()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"\nLoad average at the end: {load}. {report.provenance(program='benchmarks.fleet')}")
