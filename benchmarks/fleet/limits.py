"""Limits over three servers: whether they admit what one bucket admits, and what that costs a call."""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2 as httpx

from llmc_mcp.gate.rate_limit import CallCounts, CallLimits, OwnCounts
from llmc_mcp.gate.shared_limits import SharedCounts
from llmc_mcp.store.postgres import PostgresStore
from tests.support.postgres import cluster

from .. import report

_TOKEN = "a-token-for-measurements"
_SERVERS = 3
_SECOND = 1_000_000_000
_CALL = {"name": "stat", "args": {"path": "."}}


class _Server:
    """A server on loopback with a data directory of its own; its log says what was decided, and when."""

    def __init__(self, root: Path, data: Path, url: str, rps: float, burst: int) -> None:
        settings = (
            f"limits.rate_limit_rps={rps}",
            f"limits.rate_limit_burst={burst}",
            "limits.concurrency_per_token=64",
        )
        words = [word for setting in settings for word in ("--set", setting)]
        environment = {"LLMC_DATA_DIR": str(data), "LLMC_MCP_STORE_URL": url, "LLMC_MCP_TOKEN": _TOKEN}
        command = [sys.executable, "-m", "llmc_mcp.server", "--transport", "http", "--port", "0", "--root", str(root)]
        self._process = subprocess.Popen(
            [*command, "--log-level", "debug", *words],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
            cwd=root,
        )
        self.decisions: list[tuple[int, bool]] = []
        self.url, self._listening = "", threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        if not self._listening.wait(60) or not self.url:
            raise RuntimeError("the server does not listen")

    def _read(self) -> None:
        for line in self._process.stderr or ():
            if "listening on " in line:
                self.url = line.partition("listening on ")[2].partition(";")[0]
                self._listening.set()
            elif '"event":"rate"' in line:
                fields: dict[str, Any] = json.loads(line)
                self.decisions.append((round(fields["at"] * 1e6) * 1000, fields["admitted"]))
        self._listening.set()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._reader.join()


def _reference(times: list[int], rps: float, burst: int) -> list[bool]:
    """What one bucket admits at these times."""
    period, full_at = round(_SECOND / rps), 0
    admitted: list[bool] = []
    for at in times:
        debt = max(full_at - at, 0)
        admitted.append(debt <= (burst - 1) * period)
        if admitted[-1]:
            full_at = at + debt + period
    return admitted


def _flood(url: str, until: float, statuses: list[int]) -> None:
    with httpx.Client(base_url=url, headers={"x-llmc-token": _TOKEN}, timeout=60, trust_env=False) as client:
        while time.monotonic() < until:
            statuses.append(client.post("/tool", json=_CALL).status_code)


def _exactness(work: Path, address: Callable[[], str], seconds: float) -> str:
    rows: list[list[str]] = []
    for rps, burst in ((5.0, 20), (40.0, 5), (25.0, 1)):
        url, root = address(), work / f"root-{rps}"
        root.mkdir()
        servers = [_Server(root, work / f"data-{rps}-{number}", url, rps, burst) for number in range(_SERVERS)]
        statuses: list[int] = []
        until = time.monotonic() + seconds
        threads = [
            threading.Thread(target=_flood, args=(one.url, until, statuses)) for one in servers for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for one in servers:
            one.stop()
        decisions = sorted(decision for one in servers for decision in one.decisions)
        expected = _reference([at for at, _ in decisions], rps, burst)
        wrong = sum(one != other for one, (_, other) in zip(expected, decisions, strict=True))
        lasted = (decisions[-1][0] - decisions[0][0]) / _SECOND
        shown = [f"{rps:g}/s, bursts of {burst}", f"{lasted:.2f}", f"{len(statuses):,}", f"{statuses.count(200):,}"]
        rows.append([*shown, f"{sum(expected):,}", f"{statuses.count(429):,}", f"{wrong}"])
    head = ["limit", "seconds", "calls", "admitted", "by one bucket", "429", "decided otherwise"]
    return f"{_SERVERS} servers, flooded over HTTP by two clients each:\n\n{report.table(head, rows)}"


def _one_call(counts: CallCounts) -> None:
    counts.take("alice")
    counts.enter("alice")
    counts.leave("alice")


def _cost(address: Callable[[], str], work: Path, rounds: int) -> str:
    limits = CallLimits(rps=1e6, burst=10**6, concurrency=8, total=1000)
    store = PostgresStore(address(), str(work))
    rows: list[list[str]] = []
    for name, counts in (("in memory", OwnCounts(limits)), ("PostgreSQL", SharedCounts(lambda: store, limits))):
        for _ in range(50):
            _one_call(counts)
        started = time.process_time()
        taken = [report.milliseconds(lambda: _one_call(counts)) * 1000 for _ in range(rounds)]  # noqa: B023 - at once
        used = (time.process_time() - started) / rounds * 1e6
        shares = [report.number(report.percentile(taken, share)) for share in (0.5, 0.95)]
        rows.append([name, *shares, report.number(used)])
        counts.close()
    store.close()
    head = ["a limited call, µs", "p50", "p95", "CPU of the server"]
    return f"{report.table(head, rows)}\n\nThe database is on a Unix socket of the same machine."


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet limits", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each flood")
    parser.add_argument("--rounds", type=int, default=5_000)
    given = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="benchmarks-") as folder, cluster() as running:
        work = Path(folder)
        print(_exactness(work, running.fresh, given.seconds), flush=True)
        print(f"\n{_cost(running.fresh, work, given.rounds)}")
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"\nLoad average at the end: {load}. {report.provenance(program='benchmarks.fleet')}")
