"""`python -m benchmarks.te --runs DIR`: recorded outputs through te: tokens saved, facts kept, marks; beside head/tail.

Nothing is started: the envelope condenses the recorded text. `--lost FAMILY` prints each lost fact.
"""

import argparse
from pathlib import Path

from . import chart
from .processes import replay_processes
from .replayed import FAR, LEAST, Row, replay_runs, summed

_LOSSES = 40


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.te", description=__doc__)
    parser.add_argument("--runs", type=Path, required=True, help="folder with runs.jsonl.gz")
    parser.add_argument("--lost", metavar="FAMILY", help="print the lost facts of a family, or of `all`")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="write the chart, as SVG")
    parser.add_argument("--processes", type=int, metavar="N", help="only run the first N commands, as processes")
    parser.add_argument("--journal", type=Path, metavar="FILE", help="with --processes: what is done, to go on later")
    given = parser.parse_args()
    if given.processes:
        raise SystemExit(_compare_processes(given.runs, given.processes, given.journal))
    rows = replay_runs(given.runs)
    print(_table(rows))
    print(_beside_rtk(rows))
    print(_summary(rows))
    for row in rows:
        if (row.cut and row.before < FAR) or row.after > row.before:
            print(f"look: {row.run} step {row.step}, {row.before} → {row.after} tokens: {row.command[:80]!r}")
    if given.lost:
        _print_losses([row for row in rows if given.lost in (row.family, "all") and row.lost])
    if given.chart:
        given.chart.write_text(chart.saved_and_kept(rows))
    raise SystemExit(_judge(rows))


def _compare_processes(runs: Path, count: int, journal: Path | None) -> int:
    ended = replay_processes(runs, count, journal)
    equal = sum(one.same_code for one in ended)
    told = sum(one.whole_or_marked for one in ended)
    print(f"exit codes equal: {equal:,} of {len(ended):,}; output whole or marked: {told:,} of {len(ended):,}")
    for one in ended:
        if not one.same_code or not one.whole_or_marked:
            print(f"look: step {one.number}")
    return int(min(equal, told) < len(ended))


def _table(rows: list[Row]) -> str:
    head = ["family", "outputs", "tokens", "saved", "cut", "without a mark", "facts", "kept", "code names", "kept"]
    head += ["head/tail keeps", "te loses", "head/tail loses"]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    families = sorted({row.family for row in rows}, key=lambda name: -summed(rows, name).before)
    for name in [*families, "all"]:
        total = summed(rows, name)
        lines.append(
            [
                *(name, f"{total.outputs:,}", f"{total.before:,}", f"{total.saved:.1%}", f"{total.cut:,}"),
                f"{total.unmarked:,}",
                *(f"{total.facts:,}", f"{total.kept:.2%}", f"{total.code_facts:,}", f"{total.code_kept:.2%}"),
                *(f"{total.ends_kept:.2%}", f"{total.lost:,}", f"{total.ends_lost:,}"),
            ]
        )
    return "\n".join(map(_line, lines))


def _beside_rtk(rows: list[Row]) -> str:
    """The outputs that a rule of rtk applies to, by its rule and by te."""
    head = ["rtk's rule", "outputs", "tokens", "rtk saves", "te saves", "facts", "rtk keeps", "te keeps"]
    lines = ["", _line(head), _line(["---", *["---:"] * (len(head) - 1)])]
    compared = [(row, row.rtk) for row in rows if row.rtk is not None]
    for rule in [*sorted({rtk.rule for _, rtk in compared}), "all of these"]:
        chosen = [(row, rtk) for row, rtk in compared if rule in (rtk.rule, "all of these")]
        before, facts = sum(row.before for row, _ in chosen), sum(len(row.facts) for row, _ in chosen)
        saved = [1 - sum(pair[of].after for pair in chosen) / max(before, 1) for of in (1, 0)]
        kept = [1 - sum(len(pair[of].lost) for pair in chosen) / max(facts, 1) for of in (1, 0)]
        shares = [*(f"{share:.1%}" for share in saved), f"{facts:,}", *(f"{share:.1%}" for share in kept)]
        lines.append(_line([rule, f"{len(chosen):,}", f"{before:,}", *shares]))
    return "\n".join(lines)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _judge(rows: list[Row]) -> int:
    """Say what breaks a promise; a family must lose fewer facts than head and tail, where those lose any."""
    broken = [f"{row.run} step {row.step} is cut without a mark" for row in rows if row.cut and not row.marked]
    for name in sorted({row.family for row in rows}):
        total = summed(rows, name)
        if total.lost > total.ends_lost or (total.lost and total.lost == total.ends_lost):
            broken.append(f"{name} loses {total.lost} facts, head and tail at equal tokens {total.ends_lost}")
    for line in broken:
        print(f"broken: {line}")
    return int(bool(broken))


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
