"""`python -m benchmarks [startup] [search] [files] [writes] [--quick]`: prints Markdown; nothing is asserted."""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from . import (
    code,
    estimate,
    files,
    floors,
    graph,
    http,
    listing,
    onboarding,
    processes,
    search,
    startup,
    tasks,
    te,
    writes,
)

_BENCHMARKS: dict[str, Callable[[Path, bool], str]] = {
    "startup": startup.run,
    "tasks": tasks.run,
    "floors": floors.run,
    "search": search.run,
    "code": code.run,
    "files": files.run,
    "listing": listing.run,
    "graph": graph.run,
    "http": http.run,
    "estimate": estimate.run,
    "processes": processes.run,
    "writes": writes.run,
    "te": te.run,
    "onboarding": onboarding.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("which", nargs="*", metavar="NAME", help=f"{', '.join(_BENCHMARKS)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and smaller files: a look, not a result")
    arguments = parser.parse_args()
    which: list[str] = arguments.which or list(_BENCHMARKS)
    if unknown := set(which) - set(_BENCHMARKS):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    for name in which:
        with tempfile.TemporaryDirectory(prefix="benchmarks-") as work:
            print(f"## {name}\n\n{_BENCHMARKS[name](Path(work), arguments.quick)}\n", flush=True)


if __name__ == "__main__":
    main()
