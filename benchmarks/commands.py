"""What confinement costs a command, and what a loud or a thousandth command does to the server.

    python -m benchmarks.commands [--runs N] [--gigabytes G] [--soak N]

Overhead: the same program started plainly (posix_spawn) and at each level, interleaved, so that a busy machine
slows all alike, and a line for a shell against plain bash with the same environment. Flood: a child prints 1 GB,
against `child | cat >/dev/null`. Soak: 1,000 commands; those that are handed over are in `benchmarks.shell.soak`.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llmc_mcp.app import App
from llmc_mcp.config.schema import Config
from llmc_mcp.context import Context
from llmc_mcp.errors import FeatureUnavailable
from llmc_mcp.gate.log import correlation_id
from llmc_mcp.gate.render import fit, render
from llmc_mcp.session import Session
from llmc_mcp.tools.exec import CommandOutput, run_cmd

LEVELS = ("landlock", "workspace")
BARS_MS = {"landlock": 4.0, "workspace": 20.0}
LINE = "true | true && X=1"
LINE_BARS_MS = {"landlock": 6.0, "workspace": 20.0}


class Bench:
    """A server's engines at one level, without a transport."""

    def __init__(self, level: str, base: Path) -> None:
        config = Config()
        config.sandbox.level = level
        root = base / f"root-{level}"
        root.mkdir()
        if level == "landlock" and os.getuid() == 0:  # it does not hold root
            config.sandbox.run_as = "nobody"
            base.chmod(0o711)
            root.chmod(0o777)
        self.app = App(config, [str(root)], str(base / f"data-{level}"))

    def run(self, command: str | list[str] | None, **arguments: Any) -> CommandOutput:
        """One command, through the tool, to its end or until it is handed over."""
        session = Session(principal="bench", session_id="bench")
        return run_cmd(Context(self.app, session, correlation_id=correlation_id()), command, **arguments)

    def run_to_its_end(self, command: list[str]) -> CommandOutput:
        """One command, however long it takes."""
        done = self.run(command)
        while done.process is not None:
            done = self.run(None, process=done.process, yield_after=600.0)
        return done


def plain() -> None:
    """The same program with nothing around it."""
    os.waitpid(os.posix_spawn("/usr/bin/true", ["true"], {}), 0)


def plain_line() -> None:
    """The same line in bash with nothing around it; the locale costs it as much as ours."""
    env = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    os.waitpid(os.posix_spawn("/bin/bash", ["bash", "-c", LINE], env), 0)


def overhead(benches: dict[str, Bench], runs: int) -> None:
    """A program, and a line for a shell, over the same without anything around it."""
    programs: dict[str, Callable[[], object]] = {"plain": plain}
    programs |= {level: (lambda bench=bench: bench.run(["true"])) for level, bench in benches.items()}
    compare("a program", programs, BARS_MS, runs)
    lines: dict[str, Callable[[], object]] = {"plain": plain_line}
    lines |= {level: (lambda bench=bench: bench.run(LINE)) for level, bench in benches.items()}
    compare("a line", lines, LINE_BARS_MS, runs)


def compare(what: str, ways: dict[str, Callable[[], object]], bars: dict[str, float], runs: int) -> None:
    """Milliseconds over the plain way."""
    for way in ways.values():
        way()
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(runs):
        for name, way in ways.items():
            started = time.perf_counter()
            way()
            taken[name].append((time.perf_counter() - started) * 1000)
    base, best = statistics.median(taken["plain"]), min(taken["plain"])
    print(f"\n{what}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    print(f"{'level':12}{'best ms':>10}{'median ms':>11}{'p95 ms':>9}{'over plain: best':>18}{'median':>8}{'bar':>6}")
    for name, times in taken.items():
        low, middle, high = min(times), statistics.median(times), statistics.quantiles(times, n=20)[-1]
        over = f"{low - best:18.2f}{middle - base:8.2f}{bars.get(name, 0):6.1f}" if name != "plain" else ""
        print(f"{name:12}{low:10.2f}{middle:11.2f}{high:9.2f}{over}")


def rss_kb(pid: int | str = "self") -> int:
    """Resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def flood(benches: dict[str, Bench], gigabytes: float) -> None:
    """A child that prints a lot: memory, reply size, time against a pipe to cat."""
    count = int(gigabytes * 1024)
    command = ["dd", "if=/dev/zero", "bs=1M", f"count={count}", "status=none"]
    text = ["bash", "-c", f"yes 0123456789012345678901234567890123456789 | head -c {count}M"]
    print(f"\n{'level':12}{'child':8}{'s':>8}{'cat s':>8}{'ratio':>7}{'RSS +MB':>9}{'reply B':>9}")
    for level, bench in benches.items():
        for name, argv in (("zeros", command), ("text", text)):
            line = " ".join(argv) if name == "zeros" else argv[2]
            started = time.perf_counter()
            subprocess.run(["bash", "-c", f"{line} | cat > /dev/null"], check=True)
            piped = time.perf_counter() - started
            bench.run(["true"])
            before = rss_kb()
            started = time.perf_counter()
            result = bench.run_to_its_end(argv)
            taken = time.perf_counter() - started
            grown = (rss_kb() - before) / 1024
            fit(result, 10_000, lean=True, first_root="/")
            size = len(render(result, lean=True, first_root="/").text.encode())
            print(f"{level:12}{name:8}{taken:8.2f}{piped:8.2f}{taken / piped:7.2f}{grown:9.1f}{size:9}")


def soak(benches: dict[str, Bench], commands: int) -> None:
    """Many commands: children, descriptors and memory before and after."""
    print(f"\n{'level':12}{'commands':>9}{'children':>10}{'fds':>10}{'RSS MB':>16}")
    for level, bench in benches.items():
        for _ in range(20):
            bench.run(["true"])
        before = _counts()
        for _ in range(commands):
            bench.run(["true"])
        after = _counts()
        memory = f"{before[2] / 1024:.1f} -> {after[2] / 1024:.1f}"
        print(f"{level:12}{commands:9}{before[0]:>5} ->{after[0]:>2}{before[1]:>5} ->{after[1]:>3}{memory:>16}")


def _counts() -> tuple[int, int, int]:
    """Children of ours and of the launcher, open fds, resident kB."""
    ours = Path("/proc/self/task").iterdir()
    children = [int(pid) for task in ours for pid in (task / "children").read_text().split()]
    below = sum(len(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()) for pid in children)
    return len(children) + below, len(os.listdir("/proc/self/fd")), rss_kb()


def main() -> None:
    """Run all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--soak", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as base:
        benches: dict[str, Bench] = {}
        for level in LEVELS:
            bench = Bench(level, Path(base))
            try:
                bench.run(["true"])
            except FeatureUnavailable as exc:
                print(f"{level}: {exc.message}")
                continue
            benches[level] = bench
        overhead(benches, options.runs)
        if options.gigabytes:
            flood(benches, options.gigabytes)
        if options.soak:
            soak(benches, options.soak)
        for bench in benches.values():
            bench.app.close()


if __name__ == "__main__":
    main()
