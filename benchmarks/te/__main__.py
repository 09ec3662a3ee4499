"""`python -m benchmarks.te --runs DIR`: recorded outputs through te: tokens saved, facts kept, marks; beside head/tail.

Nothing is started: the envelope condenses the recorded text. `--lost FAMILY` prints each lost fact.
"""

import argparse
from pathlib import Path

from . import chart
from .processes import equal_exit_codes
from .replayed import FAR, LEAST, Row, replay_runs, summed

_LOSSES = 40


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.te", description=__doc__)
    parser.add_argument("--runs", type=Path, required=True, help="folder with runs.jsonl.gz")
    parser.add_argument("--lost", metavar="FAMILY", help="print the lost facts of a family, or of `all`")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="write the chart, as SVG")
    parser.add_argument("--processes", type=int, metavar="N", help="compare the exit codes of N commands on processes")
    given = parser.parse_args()
    rows = replay_runs(given.runs)
    print(_table(rows))
    print(_summary(rows))
    for row in rows:
        if (row.cut and row.before < FAR) or row.after > row.before:
            print(f"look: {row.run} step {row.step}, {row.before} → {row.after} tokens: {row.command[:80]!r}")
    if given.lost:
        _print_losses([row for row in rows if given.lost in (row.family, "all") and row.lost])
    if given.processes:
        equal, count = equal_exit_codes(given.runs, given.processes)
        print(f"exit codes equal on processes: {equal:,} of {count:,}")
    if given.chart:
        given.chart.write_text(chart.saved_and_kept(rows))


def _table(rows: list[Row]) -> str:
    head = ["family", "outputs", "tokens", "saved", "cut", "facts", "kept", "code names", "kept", "head/tail keeps"]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    families = sorted({row.family for row in rows}, key=lambda name: -summed(rows, name).before)
    for name in [*families, "all"]:
        total = summed(rows, name)
        lines.append(
            [
                *(name, f"{total.outputs:,}", f"{total.before:,}", f"{total.saved:.1%}", f"{total.cut:,}"),
                *(f"{total.facts:,}", f"{total.kept:.2%}", f"{total.code_facts:,}", f"{total.code_kept:.2%}"),
                f"{total.ends_kept:.2%}",
            ]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _summary(rows: list[Row]) -> str:
    unmarked = sum(row.cut and not row.marked for row in rows)
    grown = sum(row.after > row.before for row in rows)
    failed = sum(row.failed for row in rows)
    below = sum(row.cut and row.before < FAR for row in rows)
    return (
        f"\nfacts: names first seen in an output of {LEAST} tokens or more, and used in one of the next three commands;"
        f"\ncode names: those of them that are no plain word."
        f"\ncut without a mark: {unmarked}; longer than the output: {grown}; parser failed: {failed};"
        f" cut though under {FAR:,} tokens: {below}"
    )


def _print_losses(rows: list[Row]) -> None:
    for row in rows[:_LOSSES]:
        print(f"\n{row.run} step {row.step}, {row.family}, {row.before} → {row.after} tokens")
        print(f"  {row.command[:160]!r}\n  lost: {' '.join(sorted(row.lost))}")


if __name__ == "__main__":
    main()
