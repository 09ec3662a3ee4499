"""`python -m benchmarks.undo --runs DIR --commits FILE --checkouts DIR`: prints Markdown; nothing is asserted.

Recorded runs on their checkouts. Every command that changed files is undone, the folder compared byte for byte with
what it was (modes, links, times and git's refs and index included; caches and git's objects are not followed), and the
command redone. `--cost FOLDER` measures instead what following the files adds to a command there, `--many N` what it
takes to undo a command that changed so many files.
"""

import argparse
import random
import sys
import tempfile
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from ..report import provenance, table
from ..shell.recorded import read_runs
from .cost import cost
from .many import many
from .replay import Replayed, safely


def report(found: list[Replayed], skipped: list[str]) -> str:
    """Counts, and what went wrong."""
    restored = sum(one.restored for one in found)
    said = sum(not one.restored and not one.silent for one in found)
    silent = [one for one in found if one.silent]
    redone = sum(one.redone for one in found if one.restored)
    share = restored / len(found) if found else 1.0
    rows = [[f"{len(found):,}", f"{restored:,}", f"{share:.2%}", f"{said:,}", f"{len(silent):,}", f"{redone:,}"]]
    names = ["changed files", "restored", "share", "said that not", "silent losses", "redone"]
    lines = [table(names, rows)]
    lines += [f"- {one.name}: {one.silent} `{one.command[:80]!r}`" for one in silent[:20]]
    lines += [f"- said: {one.name}: {one.said[:200]}" for one in found if not one.restored and not one.silent][:20]
    if skipped:
        lines.append(f"{len(skipped)} runs without a checkout; the first: {skipped[0]}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.undo", description=__doc__)
    parser.add_argument("--runs", type=Path, help="a folder with runs.jsonl.gz: id, steps with command")
    parser.add_argument("--commits", type=Path, help="JSON lines (.gz or not): id, base_commit")
    parser.add_argument("--checkouts", type=Path, help="a folder of git repositories, owner__name")
    parser.add_argument("--most-runs", type=int, default=20, metavar="N", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--environment", type=Path, action="append", default=[], help="whose bin/ comes first on PATH")
    parser.add_argument("--limit", type=float, default=20.0, metavar="S", help="of a command (default: %(default)s s)")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cost", type=Path, metavar="FOLDER", help="measure what a command costs more in this folder")
    parser.add_argument("--times", type=int, default=200, help="of --cost (default: %(default)s)")
    parser.add_argument("--many", type=int, metavar="N", help="undo a command that changed so many files")
    parser.add_argument("--size", type=int, default=1024, metavar="BYTES", help="of --many (default: %(default)s)")
    asked = parser.parse_args()
    print(provenance())
    if asked.cost:
        with tempfile.TemporaryDirectory() as data:
            rows = cost(asked.cost.resolve(), Path(data), asked.times)
        print(table(["command", "times", "added ms, median", "95 %", "CPU ms, median"], rows))
        return
    if asked.many:
        with tempfile.TemporaryDirectory() as folder:
            rows, journal = many(Path(folder), asked.many, asked.size)
        print(table(["phase", "s", "CPU s", "peak memory"], rows), journal, sep="\n\n")
        return
    if not (asked.runs and asked.commits and asked.checkouts):
        parser.error("--runs, --commits and --checkouts, or --cost, or --many")
    runs = read_runs(asked.runs, asked.commits)
    runs = random.Random(asked.seed).sample(runs, min(asked.most_runs, len(runs)))
    one = partial(
        safely, checkouts=asked.checkouts.resolve(), limit_s=asked.limit, environments=tuple(asked.environment)
    )
    found: list[Replayed] = []
    skipped: list[str] = []
    with get_context("spawn").Pool(asked.jobs) as pool:
        for results in pool.imap_unordered(one, runs):
            if isinstance(results, str):
                skipped.append(results)
            else:
                found += results
                wrong = [one for one in results if not one.restored]
                print(f"{len(results)} commands, {len(wrong)} not restored", file=sys.stderr)
                for one in wrong:
                    print(f"  {one.name} {one.silent or one.said} {one.command[:200]!r}", file=sys.stderr)
    print(report(found, skipped))


if __name__ == "__main__":
    main()
