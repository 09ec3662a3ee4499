"""`python -m benchmarks.editing --runs DIR --commits FILE --checkouts DIR`: prints Markdown; nothing is asserted.

The edits of recorded runs, each expressed in every dialect and compared byte for byte, with the tokens of the requests;
`--pairs FILE` keeps them between runs. `--race N` makes N edits beside a process that keeps changing the file.
`--rename FOLDER=LANGUAGE …` renames definitions of copies of checkouts, judged by what checks that language here.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from ..report import median, number, provenance, table
from ..shell.recorded import Run, read_runs
from .dialects import express
from .pairs import Pair, pairs_of, read_pairs, write_pairs
from .races import race
from .renames import Scored, judges, score


def dialects(pairs: list[Pair]) -> str:
    """Edits with the same bytes, and tokens, by dialect."""
    same, total, tokens = Counter[str](), Counter[str](), Counter[str]()
    wrong: list[str] = []
    for pair in pairs:
        for one in express(pair) or ():
            total[one.dialect] += 1
            same[one.dialect] += one.same
            tokens[one.dialect] += one.tokens
            if not one.same:
                wrong.append(f"- {one.dialect}: {pair.run} {pair.path} {one.error}")
    lines = tokens["lines"]
    rows = [
        [name, f"{total[name]:,}", f"{same[name]:,}", f"{tokens[name]:,}", f"{lines / tokens[name]:.0%}"]
        for name in total
    ]
    head = ["dialect", "edits", "same bytes", "request tokens", "lines cost of it"]
    return "\n".join([table(head, rows), *wrong[:20]])


def renames(scored: list[Scored]) -> str:
    """Renames by repository."""
    rows: list[list[str]] = []
    notes: list[str] = []
    for one in scored:
        made = [rename for rename in one.renamed if not rename.refused]
        if not made:
            continue
        rows.append(
            [
                f"{one.repository} ({one.language})",
                f"{len(made)}",
                f"{len(one.renamed) - len(made)}",
                f"{sum(rename.places for rename in made):,}",
                f"{sum(rename.likely for rename in made):,}",
                f"{len(one.blamed)}",
                number(median([rename.ms for rename in made])),
            ]
        )
        notes += [f"- {one.repository}: {symbol}: {lines[0]}" for symbol, lines in one.blamed.items()]
        notes += [f"- refused: {rename.symbol}: {rename.refused}" for rename in one.renamed if rename.refused]
    head = ["repository", "renamed", "refused", "places", "likely, left", "blamed", "median, ms"]
    return "\n".join([table(head, rows), *notes[:40]])


def _pairs(asked: argparse.Namespace) -> list[Pair]:
    if asked.pairs is not None and asked.pairs.exists():
        return read_pairs(asked.pairs)
    found: list[Pair] = []
    by_repository: dict[str, list[Run]] = {}
    for run in read_runs(asked.runs, asked.commits)[: asked.most_runs]:
        by_repository.setdefault(run.repository, []).append(run)
    for name, runs in by_repository.items():
        try:
            found += pairs_of(asked.checkouts.resolve() / name, runs, asked.limit)
        except subprocess.CalledProcessError as exc:
            print(f"{name}: {(exc.stderr or b'').decode(errors='replace')[-200:]}", file=sys.stderr)
    if asked.pairs is not None:
        write_pairs(asked.pairs, found)
    return found


def _score(asked: argparse.Namespace, checkout: str) -> Scored:
    folder, _, language = checkout.rpartition("=")
    with tempfile.TemporaryDirectory() as aside:
        copy = Path(aside, Path(folder).name)
        shutil.copytree(folder, copy, symlinks=True)
        return score(copy, language, judges(language, asked.tsc, shutil.which("go") or ""), asked.symbols, asked.seed)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.editing", description=__doc__)
    parser.add_argument("--runs", type=Path, help="a folder with runs.jsonl.gz: id, steps with command")
    parser.add_argument("--commits", type=Path, help="JSON lines (.gz or not): id, base_commit")
    parser.add_argument("--checkouts", type=Path, help="a folder of git repositories, owner__name")
    parser.add_argument("--pairs", type=Path, help="where the edits are kept")
    parser.add_argument("--most-runs", type=int, default=1000, metavar="N")
    parser.add_argument("--limit", type=float, default=20.0, metavar="S", help="of a command (default: %(default)s s)")
    parser.add_argument("--race", type=int, default=0, metavar="N", help="edits beside a writer")
    parser.add_argument("--rename", nargs="*", default=[], metavar="FOLDER=LANGUAGE")
    parser.add_argument("--symbols", type=int, default=25, help="of each repository (default: %(default)s)")
    parser.add_argument("--tsc", default="", help="TypeScript's compiler, to judge renames")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    print(provenance())
    if (asked.runs and asked.commits and asked.checkouts) or (asked.pairs and asked.pairs.exists()):
        print(dialects(_pairs(asked)))
    if asked.race:
        rows = [
            [one.dialect, f"{one.made:,}", f"{one.refused:,}", f"{one.wrong:,}"] for one in race(asked.race, asked.seed)
        ]
        print(table(["dialect", "made", "refused", "wrong place"], rows))
    if asked.rename:
        print(renames([_score(asked, one) for one in asked.rename]))


if __name__ == "__main__":
    main()
