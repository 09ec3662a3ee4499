"""Statistics, Markdown and a line on where the figures come from."""

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path


def milliseconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1000


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def number(value: float) -> str:
    """About three significant digits; whole numbers stay whole."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def verdict(value: float, bar: float) -> str:
    return "ok" if value <= bar else "missed"


def provenance(*versions: str, program: str = "benchmarks") -> str:
    """Machine, day, versions and command: what a reader needs to trust or to repeat a table."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    machine = f"{_processor()}, {os.cpu_count()} cores, {memory:.0f} GB, Linux {platform.release()}"
    command = " ".join([f"python -m {program}", *sys.argv[1:]])
    parts = [machine, f"Python {platform.python_version()}", *versions, time.strftime("%Y-%m-%d"), f"`{command}`"]
    return f"Measured on {' · '.join(parts)}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
