"""`python -m benchmarks.editing --runs DIR --commits FILE --checkouts DIR`: prints Markdown; nothing is asserted.

The edits of recorded runs, each expressed in every dialect and compared byte for byte, with the tokens of the requests;
`--pairs FILE` keeps them between runs. `--race N` makes N edits beside a process that keeps changing the file.
`--check N` runs code_check on a checkout of Django. `--rename` renames definitions of the repositories of
`repositories.toml`, or of those named, in copies of checkouts.
"""

import argparse
import subprocess
import sys
from collections import Counter
from pathlib import Path

from ..report import median, number, percentile, provenance, table, verdict
from ..shell.recorded import Run, read_runs
from .checks import Checked, check
from .dialects import express
from .judges import repositories
from .pairs import Pair, pairs_of, read_pairs, write_pairs
from .races import race
from .renames import Scored, score


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
    """Renames by repository, and in all."""
    rows = [_row(f"{one.repository.name} ({one.repository.language})", [one]) for one in scored]
    languages = {one.repository.language for one in scored}
    rows.append(_row(f"{len(scored)} repositories, {len(languages)} languages", scored))
    notes: list[str] = []
    for one in scored:
        name = one.repository.name
        notes += [f"- {name}: {symbol}: {lines[0]} ({len(lines)})" for symbol, lines in one.blamed.items()]
        for rename in one.renamed:
            if rename.refused:
                notes.append(f"- {name}: refused: {rename.symbol}: {rename.refused}")
            if rename.wrong or rename.missed:
                notes.append(f"- {name}: {rename.symbol}: pyright leaves {rename.wrong}, adds {rename.missed}")
    head = ["repository", "renamed", "refused", "places", "likely, left", "findings before", "blamed", "unharmed"]
    head += ["by pyright", "more lines", "fewer", "median, ms", "95 %, ms", "CPU, ms", "RSS, MB"]
    return "\n".join([table(head, rows), _RENAME_BARS, *notes])


_RENAME_BARS = "Bars: 200 renames, 8 repositories, 5 languages, 98 % unharmed, 0 wrong, 200 ms, 120 MB."


def _row(name: str, scored: list[Scored]) -> list[str]:
    every = [rename for one in scored for rename in one.renamed]
    made = [rename for rename in every if not rename.refused]
    blamed = sum(len(one.blamed) for one in scored)
    judged = [rename for rename in made if rename.judged]
    times = [rename.ms for rename in made] or [0.0]
    return [
        name,
        f"{len(made)}",
        f"{len(every) - len(made)}",
        f"{sum(rename.places for rename in made):,}",
        f"{sum(rename.likely for rename in made):,}",
        f"{sum(one.former for one in scored):,}",
        f"{blamed}",
        f"{1 - blamed / max(len(made), 1):.1%}",
        f"{len(judged)}" if judged else "",
        f"{sum(len(rename.wrong) for rename in judged)}" if judged else "",
        f"{sum(len(rename.missed) for rename in judged)}" if judged else "",
        number(median(times)),
        number(percentile(times, 0.95)),
        number(median([rename.cpu_ms for rename in made] or [0.0])),
        number(max(one.rss for one in scored)),
    ]


def checks(found: list[Checked]) -> str:
    """The first check and those that follow."""
    warm = found[1:] or found
    times, spent = [one.ms for one in warm], [one.cpu_ms for one in warm]
    rows = [
        ["first", number(found[0].ms), number(found[0].cpu_ms), "", ""],
        ["warm, median", number(median(times)), number(median(spent)), "2,000", verdict(median(times), 2000)],
    ]
    head = ["code_check on Django, a one-line error", "wall, ms", "CPU, ms", "bar, ms", ""]
    return "\n".join([table(head, rows), f"Found: {'; '.join(warm[-1].found)}"])


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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.editing", description=__doc__)
    parser.add_argument("--runs", type=Path, help="a folder with runs.jsonl.gz: id, steps with command")
    parser.add_argument("--commits", type=Path, help="JSON lines (.gz or not): id, base_commit")
    parser.add_argument("--checkouts", type=Path, help="a folder of git repositories, owner__name")
    parser.add_argument("--pairs", type=Path, help="where the edits are kept")
    parser.add_argument("--most-runs", type=int, default=1000, metavar="N")
    parser.add_argument("--limit", type=float, default=20.0, metavar="S", help="of a command (default: %(default)s s)")
    parser.add_argument("--race", type=int, default=0, metavar="N", help="edits beside a writer")
    parser.add_argument("--check", type=int, default=0, metavar="N", help="calls of code_check on django__django")
    parser.add_argument("--rename", nargs="*", metavar="NAME", help="rename in these repositories (default: all)")
    parser.add_argument("--symbols", type=int, default=25, help="of each repository (default: %(default)s)")
    parser.add_argument("--modules", type=Path, default=Path("node_modules"), help="where TypeScript is")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    print(provenance())
    if (asked.runs and asked.commits) or (asked.pairs and asked.pairs.exists()):
        print(dialects(_pairs(asked)))
    if asked.race:
        rows = [
            [one.dialect, f"{one.made:,}", f"{one.refused:,}", f"{one.wrong:,}"] for one in race(asked.race, asked.seed)
        ]
        print(table(["dialect", "made", "refused", "wrong place"], rows))
    if asked.check:
        print(checks(check(asked.checkouts, asked.check)))
    if asked.rename is not None:
        chosen = repositories(asked.rename)
        print(renames([score(one, asked.checkouts, asked.modules, asked.symbols, asked.seed) for one in chosen]))


if __name__ == "__main__":
    main()
