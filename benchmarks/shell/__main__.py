"""`python -m benchmarks.shell --runs DIR --commits FILE --checkouts DIR`: prints Markdown; nothing is asserted.

Recorded commands, each in plain bash and through run_cmd on equal copies of the commit that its agent had before it.
Earlier commands of the run that only handle files are done first; those that run programs of their own (python, a test
run) are not, which the last lines count. A command that does not do the same twice in bash is left out and counted.
"""

import argparse
import json
import random
import sys
from collections import Counter
from pathlib import Path

from ..report import provenance, table
from ..servers import CACHE
from .recorded import Drawn, draw, read_runs
from .scene import Compared, Settings, batches, compare_all

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


def _done_before(results: Path, sample: list[Drawn]) -> dict[str, list[Compared]]:
    """What is known already of the runs of the sample, the same commands of each."""
    drawn = {one.run.name: [f"{one.run.name}#{step}" for step in one.steps] for one in sample}
    rows = map(json.loads, results.read_text().splitlines()) if results.exists() else ()
    known = {name: [Compared(*one) for one in answer] for name, answer in rows}
    return {name: answer for name, answer in known.items() if [one.name for one in answer] == drawn.get(name)}


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
    parser.add_argument(
        "--results", type=Path, default=CACHE / "shell.jsonl", help="of each command (default: %(default)s)"
    )
    parser.add_argument("--resume", action="store_true", help="don't do again what is in the results already")
    asked = parser.parse_args()
    runs = read_runs(asked.runs, asked.commits)
    if asked.repository:
        runs = [run for run in runs if run.repository in asked.repository]
    sample = draw(runs, asked.sample, asked.seed, asked.most_runs)
    settings = Settings(
        asked.checkouts.resolve(), tuple(path.resolve() for path in asked.environment or ()), asked.limit
    )
    asked.results.parent.mkdir(parents=True, exist_ok=True)
    done = _done_before(asked.results, sample) if asked.resume else {}
    parts = batches([one for one in sample if one.run.name not in done])
    random.Random(asked.seed).shuffle(parts)  # what is known after a while is then as true as the whole
    with asked.results.open("a" if asked.resume else "w") as file:
        for name, answer in compare_all(parts, settings, asked.jobs):
            done[name] = answer
            file.write(json.dumps([name, answer]) + "\n")
            file.flush()
            commands = sum(map(len, done.values()))
            differ = sum(bool(one.difference) for each in done.values() for one in each)
            print(
                f"… {len(done)}/{len(sample)} runs, {commands} commands, {differ} differ", file=sys.stderr, flush=True
            )
    missing = [drawn.run.name for drawn in sample if drawn.run.name not in done]
    results = [one for drawn in sample for one in done.get(drawn.run.name, ())]
    print(report(results, missing) + "\n")
    where = provenance().rpartition(" · ")[0]  # without the command, which names folders of this machine
    print(f"{where} · `python -m benchmarks.shell --sample {asked.sample} --seed {asked.seed}`")


if __name__ == "__main__":
    main()
