"""Many servers at once: what a write costs when all share one data directory, beside one directory for each."""

import os
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from . import report
from .client import Client
from .servers import Server, llmc

_SERVERS = 20
_BAR_MS = 300


def run(work: Path, quick: bool) -> str:
    rounds = 20 if quick else 100
    rows: list[list[str]] = []
    for name, count, shared in (
        ("one server", 1, True),
        (f"{_SERVERS} servers, a data directory each", _SERVERS, False),
        (f"{_SERVERS} servers, one data directory", _SERVERS, True),
    ):
        taken = _measure(work / f"{count}-{shared}", count, shared, rounds)
        shown = [report.number(report.percentile(taken, share)) for share in (0.5, 0.95, 0.99)]
        judged = report.verdict(report.percentile(taken, 0.99), _BAR_MS)
        rows.append([name, *shown, report.number(max(taken)), f"{_BAR_MS} ms", judged])
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    head = ["a write of 4 kB, all at once", "p50 ms", "p95 ms", "p99 ms", "longest", "bar of p99", ""]
    return f"{report.table(head, rows)}\n\nLoad average at the end: {load}. {report.provenance()}"


def _measure(work: Path, count: int, shared: bool, rounds: int) -> list[float]:
    """Milliseconds of every write of every server; each writes to a root of its own, so only the store is shared."""
    work.mkdir()
    taken: list[float] = []
    start = threading.Barrier(count)
    with ExitStack() as stack:
        clients = [stack.enter_context(_started(work, number, shared)) for number in range(count)]
        threads = [threading.Thread(target=_write, args=(one, start, rounds, taken)) for one in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if len(taken) != count * rounds:
        raise RuntimeError(f"only {len(taken)} of {count * rounds} writes succeeded")
    return taken


def _started(work: Path, number: int, shared: bool) -> Client:
    root = work / f"root-{number}"
    root.mkdir()
    data = work / ("data" if shared else f"data-{number}")
    server: Server = replace(llmc(root, work, "classic"), extra_env={"LLMC_DATA_DIR": str(data)})
    client = server.start(root)
    client.initialize()
    client.call("linux_fs_write", {"path": "file.txt", "content": "the first write loads and opens what is needed"})
    return client


def _write(client: Client, start: threading.Barrier, rounds: int, taken: list[float]) -> None:
    start.wait()
    for number in range(rounds):
        arguments = {"path": "file.txt", "content": f"{number:08d}\n" + "x" * 4087}
        taken.append(report.milliseconds(lambda: client.call("linux_fs_write", arguments)))  # noqa: B023 - at once
