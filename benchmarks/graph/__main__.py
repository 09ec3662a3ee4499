"""`python -m benchmarks.graph --checkouts DIR`: where-used on each repository in DIR, and every miss."""

import argparse
import tempfile
from pathlib import Path

from ..report import provenance, table
from . import opened
from .checkouts import Score, scores

_HEAD = ("repository", "language", "judge", "symbols", "recall", "precision")
_LISTED = 12  # misses of a repository and a judge


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.graph", description=__doc__)
    parser.add_argument("--checkouts", type=Path, required=True, help="a folder of repositories; they are written to")
    parser.add_argument("--tsc", default="", help="the program of TypeScript 7 (npm's typescript), as a judge")
    parser.add_argument("--symbols", type=int, default=40, help="definitions to ask about, for each judge")
    parser.add_argument("names", nargs="*", help="repositories in that folder (default: all)")
    arguments = parser.parse_args()
    found: list[Score] = []
    for folder in sorted(arguments.checkouts.iterdir()):
        if folder.is_dir() and folder.name in (arguments.names or [folder.name]):
            with tempfile.TemporaryDirectory(prefix="graph-") as data, opened(folder, Path(data)) as view:
                for score in scores(folder, view, arguments.symbols, arguments.tsc):
                    found.append(score)
                    _print_misses(score)
    print("\n" + table(_HEAD, [_row(score) for score in found]) + "\n\n" + provenance())


def _print_misses(score: Score) -> None:
    for miss in score.misses[:_LISTED]:
        path, line = miss.place
        print(f"{score.repository}, {score.judge}: {miss.symbol} {miss.what} {path}:{line}", flush=True)


def _row(score: Score) -> list[str]:
    return [
        score.repository,
        score.language,
        score.judge,
        str(score.symbols),
        _share(score.found, score.true),
        _share(score.right, score.sure) if score.judge != "text search" or score.language == "rust" else "-",
    ]


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.3f} ({part}/{whole})" if whole else "-"


if __name__ == "__main__":
    main()
