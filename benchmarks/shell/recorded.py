"""Recorded runs: what an agent sent to bash, in its order, and the commit it worked on."""

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

PLACE = "/testbed"  # where the recorded agents had their checkout


class Run(NamedTuple):
    """One agent's commands. The repository is `owner__name`."""

    name: str
    repository: str
    commit: str
    commands: list[str]


class Drawn(NamedTuple):
    """A run, and which of its commands are in the sample."""

    run: Run
    steps: list[int]


def read_runs(folder: Path, commits: Path) -> list[Run]:
    """The runs of `runs.jsonl.gz` whose base commit is known."""
    bases = {row["id"]: row["base_commit"] for row in _rows(commits)}
    runs: list[Run] = []
    for row in _rows(folder / "runs.jsonl.gz"):
        name = row["id"]
        if name in bases:
            commands = [step["command"] for step in row["steps"]]
            runs.append(Run(name, name.rpartition("-")[0], bases[name], commands))
    return runs


def draw(runs: list[Run], count: int, seed: int, most_runs: int | None = None) -> list[Drawn]:
    """A sample of commands, of some of the runs or all: the same one for the same seed.

    Of as many runs, a smaller sample is a part of a larger one.
    """
    chance = random.Random(seed)
    if most_runs is not None:
        runs = chance.sample(runs, min(most_runs, len(runs)))
    every = [(number, step) for number, run in enumerate(runs) for step in range(len(run.commands))]
    chance.shuffle(every)
    chosen: dict[int, list[int]] = {}
    for number, step in every[:count]:
        chosen.setdefault(number, []).append(step)
    return [Drawn(runs[number], sorted(steps)) for number, steps in sorted(chosen.items())]


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    data = path.read_bytes()
    for line in (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines():
        yield json.loads(line)
