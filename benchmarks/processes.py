"""Interactive processes, the process list and the state of the machine, against their bars.

    python -m benchmarks.processes [--level LEVEL] [--cycles N]

Everything goes through the tools, without a transport. The round trip is one linux_proc_send with a read.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
import threading
from pathlib import Path

from llmc_mcp.app import App
from llmc_mcp.config.schema import Config
from llmc_mcp.context import Context
from llmc_mcp.gate.log import correlation_id
from llmc_mcp.gate.render import fit, render
from llmc_mcp.session import Session
from llmc_mcp.tool import Result
from llmc_mcp.tools.linux_ops.proc import (
    linux_proc_list,
    linux_proc_send,
    linux_proc_start,
    linux_proc_stop,
)
from llmc_mcp.tools.linux_ops.sysinfo import linux_sys_snapshot

from .report import median, milliseconds, number, percentile, provenance, table, verdict
from .tokens import count

PROGRAMS = ("python3", "bash", "node", "sqlite3")
INPUTS = {"python3": "1 + 1", "bash": "echo 2", "node": "1 + 1", "sqlite3": "select 2;"}
TOGETHER = 32
LISTED = 300


class Bench:
    """A server's engines, and one session's calls."""

    def __init__(self, base: Path, level: str) -> None:
        config = Config()
        config.sandbox.level = level
        config.linux_ops.process_limits.max_procs_per_session = 2 * TOGETHER
        config.linux_ops.process_limits.max_procs_total = 2 * TOGETHER
        (base / "root").mkdir()
        self.app = App(config, [str(base / "root")], str(base / "data"))

    def context(self) -> Context:
        """What one call gets."""
        session = Session(principal="bench", session_id="bench")
        return Context(self.app, session, correlation_id=correlation_id())

    def start(self, program: str) -> str:
        """A program that waits for input."""
        started = linux_proc_start(self.context(), program, wait_ms=30_000)
        assert started.waiting_for_input, started
        return started.proc_id

    def ask(self, proc_id: str, program: str) -> None:
        """One round trip."""
        sent = linux_proc_send(self.context(), proc_id, INPUTS[program], read_timeout_ms=30_000)
        assert sent.output.startswith("2\n"), sent

    def stop(self, proc_id: str) -> None:
        """End it."""
        linux_proc_stop(self.context(), proc_id)


def round_trips(bench: Bench, rounds: int) -> list[list[str]]:
    """One program at a time."""
    rows: list[list[str]] = []
    for program in PROGRAMS:
        proc_id = bench.start(program)
        bench.ask(proc_id, program)
        times = [milliseconds(lambda: bench.ask(proc_id, program)) for _ in range(rounds)]  # noqa: B023 - called at once
        bench.stop(proc_id)
        bar = verdict(median(times), 30)
        rows.append([f"{program} round trip, ms", number(median(times)), number(percentile(times, 0.95)), f"30 {bar}"])
    return rows


def together(bench: Bench, rounds: int) -> list[str]:
    """All at once: the time of each call, while all the others are under way."""
    ids = [bench.start("python3") for _ in range(TOGETHER)]
    times: list[float] = []
    for _ in range(rounds):
        gate = threading.Barrier(TOGETHER)

        def one(proc_id: str, gate: threading.Barrier = gate) -> None:
            gate.wait()
            times.append(milliseconds(lambda: bench.ask(proc_id, "python3")))

        threads = [threading.Thread(target=one, args=(proc_id,)) for proc_id in ids]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for proc_id in ids:
        bench.stop(proc_id)
    shown = [number(median(times)), number(percentile(times, 0.95)), f"100 {verdict(median(times), 100)}"]
    return [f"{TOGETHER} python3 at once, ms each", *shown]


def cycles(bench: Bench, count_of_cycles: int) -> list[list[str]]:
    """Start and stop, many times: what is left."""
    for _ in range(20):
        bench.stop(bench.start("bash"))
    before = _counts()
    taken = milliseconds(lambda: [bench.stop(bench.start("cat" if n % 2 else "bash")) for n in range(count_of_cycles)])
    after = _counts()
    rows = [[f"start and stop, ms each of {count_of_cycles:,}", number(taken / count_of_cycles), "", ""]]
    for name, was, now, slack in zip(
        ("children", "zombies", "fds", "RSS MB"), before, after, (0, 0, 0, 3), strict=True
    ):
        rows.append([f"{name} before → after", f"{was:g} → {now:g}", "", f"+{slack} {verdict(now, was + slack)}"])
    return rows


def _counts() -> tuple[float, float, float, float]:
    """Processes below us, those of them that nobody reaped, open fds, resident MB."""
    todo, found, zombies = [os.getpid()], 0, 0
    while todo:
        for path in Path(f"/proc/{todo.pop()}/task").glob("*/children"):
            for word in path.read_text().split():
                try:
                    state = Path(f"/proc/{word}/stat").read_text().rpartition(")")[2].split()[0]
                except OSError:
                    continue
                found += 1
                zombies += state == "Z"
                todo.append(int(word))
    resident = int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024
    return found, zombies, len(os.listdir("/proc/self/fd")), round(resident, 1)


def lists(bench: Bench, rounds: int) -> list[list[str]]:
    """The process list of a busy machine, first and later calls, and what a row costs."""
    here = sum(name.isdigit() for name in os.listdir("/proc"))
    sleepers = [subprocess.Popen(["sleep", "1000"]) for _ in range(max(LISTED - here, 0))]
    try:
        first = milliseconds(lambda: linux_proc_list(bench.context(), max_results=5000))
        times = [milliseconds(lambda: linux_proc_list(bench.context(), max_results=5000)) for _ in range(rounds)]
        result = linux_proc_list(bench.context(), max_results=5000)
        shown = _lean(result)
        rows = [line for line in shown.split("\n")[1:] if line]
        per_row = statistics.mean(count(f"{row}\n") for row in rows)
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
    name = f"linux_proc_list of {result.total_processes}"
    return [
        [f"{name}, first call, ms", number(first), "", f"100 {verdict(first, 100)}"],
        [f"{name}, ms", number(median(times)), number(percentile(times, 0.95)), f"100 {verdict(median(times), 100)}"],
        [f"{name}, tokens a row", number(per_row), "", f"20 {verdict(per_row, 20)}"],
    ]


def snapshots(bench: Bench, rounds: int) -> list[list[str]]:
    """The state of the machine."""
    times = [milliseconds(lambda: linux_sys_snapshot(bench.context())) for _ in range(rounds)]
    tokens = count(_lean(linux_sys_snapshot(bench.context())))
    return [
        [
            "linux_sys_snapshot, ms",
            number(median(times)),
            number(percentile(times, 0.95)),
            f"300 {verdict(median(times), 300)}",
        ],
        ["linux_sys_snapshot, tokens", number(tokens), "", f"120 {verdict(tokens, 120)}"],
    ]


def _lean(result: Result) -> str:
    fit(result, 1 << 20, lean=True, first_root="/")
    return render(result, lean=True, first_root="/").text


def run(work: Path, quick: bool, level: str = "auto", count_of_cycles: int | None = None) -> str:
    """The whole table."""
    rounds = 20 if quick else 200
    bench = Bench(work, level)
    try:
        rows = lists(bench, 5 if quick else 20) + snapshots(bench, 3 if quick else 10)
        rows += round_trips(bench, rounds)
        rows.append(together(bench, 3 if quick else 10))
        rows += cycles(bench, count_of_cycles or (50 if quick else 1_000))
    finally:
        bench.app.close()
    return f"{table(['', 'median', 'p95', 'bar'], rows)}\n\n{provenance()}"


def main() -> None:
    """As a script: the same, at any level."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", default="auto")
    parser.add_argument("--cycles", type=int, default=None)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as base:
        print(run(Path(base), options.quick, options.level, options.cycles))


if __name__ == "__main__":
    main()
