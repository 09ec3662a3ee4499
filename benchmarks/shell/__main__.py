"""`python -m benchmarks.shell --runs DIR --commits FILE --checkouts DIR`: prints Markdown; nothing is asserted.

Recorded commands, each in plain bash and through run_cmd on equal copies of the commit that its agent had before it.
Earlier commands of the run that only handle files are done first; those that run programs of their own (python, a test
run) are not, which the last lines count. A command that does not do the same twice in bash is left out and counted.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

from ..report import provenance, table
from ..servers import CACHE
from .recorded import draw, read_runs
from .scene import Compared, Settings, compare_all

_BAR = 0.995
_MOST_FAMILIES = 25


def report(results: list[Compared], skipped: list[str]) -> str:
    """A table by the first program of the commands, and what the figures leave out."""
    families = Counter(one.family for one in results)
    rows = [_row("all", results)]
    common = [family for family, _ in families.most_common(_MOST_FAMILIES)]
    rows += [_row(f"`{family}`", [one for one in results if one.family == family]) for family in common]
    if rest := [one for one in results if one.family not in common]:
        rows.append(_row("others", rest))
    after = sum(one.left_out > 0 for one in results)
    lines = [
        table(["first program", "commands", "unsteady in bash", "compared", "alike", "share", f"≥ {_BAR:.1%}"], rows),
        f"{after} of the commands come after some that run programs of their own and were not done first.",
    ]
    if skipped:
        lines.append(f"{len(skipped)} runs without a checkout; the first: {skipped[0]}")
    return "\n\n".join(lines)


def _row(name: str, results: list[Compared]) -> list[str]:
    compared = [one for one in results if not one.unsteady]
    alike = sum(not one.difference for one in compared)
    share = alike / len(compared) if compared else 1.0
    unsteady = len(results) - len(compared)
    verdict = "ok" if share >= _BAR else "missed"
    return [name, f"{len(results):,}", f"{unsteady:,}", f"{len(compared):,}", f"{alike:,}", f"{share:.2%}", verdict]


def _line(one: Compared) -> str:
    what = f"unsteady in bash: {one.unsteady}" if one.unsteady else one.difference
    return f"{one.name}\t{one.family}\t{what}\t{one.command[:500]!r}\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shell", description=__doc__)
    parser.add_argument("--runs", type=Path, required=True, help="a folder with runs.jsonl.gz: id, steps with command")
    parser.add_argument("--commits", type=Path, required=True, help="JSON lines (.gz or not): id, base_commit")
    parser.add_argument("--checkouts", type=Path, required=True, help="a folder of git repositories, owner__name")
    parser.add_argument("--sample", type=int, default=1_500, help="how many commands (default: %(default)s)")
    parser.add_argument("--most-runs", type=int, metavar="N", help="of so many runs: fewer checkouts to make")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repository", action="append", metavar="OWNER__NAME", help="only of these")
    parser.add_argument("--environment", type=Path, action="append", help="a folder whose bin/ comes first on PATH")
    parser.add_argument(
        "--limit", type=float, default=20.0, metavar="S", help="of one command (default: %(default)s s)"
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--mismatches", type=Path, default=CACHE / "shell-mismatches.tsv", help="default: %(default)s")
    asked = parser.parse_args()
    runs = read_runs(asked.runs, asked.commits)
    if asked.repository:
        runs = [run for run in runs if run.repository in asked.repository]
    sample = draw(runs, asked.sample, asked.seed, asked.most_runs)
    settings = Settings(
        asked.checkouts.resolve(), tuple(path.resolve() for path in asked.environment or ()), asked.limit
    )
    results: list[Compared] = []
    skipped: list[str] = []
    asked.mismatches.parent.mkdir(parents=True, exist_ok=True)
    with asked.mismatches.open("w") as file:
        for number, answer in enumerate(compare_all(sample, settings, asked.jobs), 1):
            if isinstance(answer, str):
                skipped.append(answer)
                continue
            results += answer
            file.writelines(_line(one) for one in answer if one.difference or one.unsteady)
            file.flush()
            differ = sum(bool(one.difference) for one in results)
            print(
                f"… {number}/{len(sample)} runs, {len(results)} commands, {differ} differ", file=sys.stderr, flush=True
            )
    print(report(results, skipped) + "\n")
    where = provenance().rpartition(" · ")[0]  # without the command, which names folders of this machine
    print(f"{where} · `python -m benchmarks.shell --sample {asked.sample} --seed {asked.seed}`")


if __name__ == "__main__":
    main()
