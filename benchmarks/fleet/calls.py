"""Small calls of one server with its state in SQLite and in PostgreSQL, on the same machine and disk."""

import argparse
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from benchmarks import report
from benchmarks.client import Client
from benchmarks.servers import llmc
from tests.support.postgres import cluster

_BAR_MS = 1.5
_KINDS = ("write", "edit", "read")


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.fleet calls", description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="calls-") as work, cluster(synced=True) as database:
        addresses = {"SQLite": "sqlite", "PostgreSQL": database.fresh()}
        clients = {name: _started(Path(work) / name, url) for name, url in addresses.items()}
        taken: dict[tuple[str, str], list[float]] = {}
        for number in range(given.rounds):  # in turn: both see the same load of the machine
            for name, client in clients.items():
                for kind in _KINDS:
                    taken.setdefault((kind, name), []).append(_call(client, kind, number))
        for client in clients.values():
            client.__exit__(None, None, None)
    rows: list[list[str]] = []
    for kind in _KINDS:
        times = [taken[kind, name] for name in addresses]
        shown = [report.number(report.percentile(one, share)) for one in times for share in (0.1, 0.5, 0.95)]
        more = report.percentile(times[1], 0.5) - report.percentile(times[0], 0.5)
        rows.append([kind, *shown, f"{more:+.2f}", f"+{_BAR_MS}", report.verdict(more, _BAR_MS)])
    columns = [f"{name} {share} ms" for name in addresses for share in ("p10", "p50", "p95")]
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(report.table(["", *columns, "more at p50, ms", "bar", ""], rows))
    print(f"\nLoad average at the end: {load}. {report.provenance()}")
    return 0


def _started(work: Path, url: str) -> Client:
    root = work / "root"
    root.mkdir(parents=True)
    env = {"LLMC_DATA_DIR": str(work / "data"), "LLMC_MCP_STORE_URL": url}
    client = replace(llmc(root, work, "classic"), extra_env=env).start(root)
    client.initialize()
    for number in range(20):
        for kind in _KINDS:
            _call(client, kind, -number)
    return client


def _call(client: Client, kind: str, number: int) -> float:
    """Milliseconds of a call."""
    arguments: dict[str, object] = {"path": "file.txt"}
    if kind == "write":
        arguments["content"] = f"first\n{number}\n"
    elif kind == "edit":
        arguments |= {"old_text": f"{number}\n", "new_text": f"{number} edited\n"}
    began = time.perf_counter()
    client.call(f"linux_fs_{kind}", arguments)
    return (time.perf_counter() - began) * 1000
