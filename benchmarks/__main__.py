"""`python -m benchmarks [startup] [search] [files] [writes] [--quick]`: prints Markdown; nothing is asserted."""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from . import (
    code,
    egress,
    estimate,
    files,
    floors,
    graph,
    http,
    listing,
    memory,
    onboarding,
    pages,
    processes,
    search,
    startup,
    store,
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
    "pages": pages.run,
    "estimate": estimate.run,
    "processes": processes.run,
    "memory": memory.run,
    "egress": egress.run,
    "writes": writes.run,
    "store": store.run,
    "te": te.run,
    "onboarding": onboarding.run,
}

_PAGE = Path(__file__).with_name("README.md")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("which", nargs="*", metavar="NAME", help=f"{', '.join(_BENCHMARKS)} (default: all)")
    parser.add_argument("--write", action="store_true", help="put the tables into benchmarks/README.md too")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and smaller files: a look, not a result")
    arguments = parser.parse_args()
    which: list[str] = arguments.which or list(_BENCHMARKS)
    if unknown := set(which) - set(_BENCHMARKS):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    for name in which:
        with tempfile.TemporaryDirectory(prefix="benchmarks-") as work:
            result = _BENCHMARKS[name](Path(work), arguments.quick)
        print(f"## {name}\n\n{result}\n", flush=True)
        if arguments.write:
            _write(name, result)


def _write(name: str, result: str) -> None:
    """Between the page's markers, so that what it says around them stays."""
    text = _PAGE.read_text()
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    if begin not in text:
        raise SystemExit(f"{_PAGE.name} has no place for {name}")
    before, _, rest = text.partition(begin)
    _PAGE.write_text(f"{before}{begin}{result}\n{end}{rest.partition(end)[2]}")


if __name__ == "__main__":
    main()
