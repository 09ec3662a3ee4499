"""Recorded runs on three copies of a checkout."""

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from .compare import UNORDERED, Outcome, difference
from .copies import Checkout, Copy, duplicate
from .recorded import PLACE, Drawn
from .runners import Ours, Plain

_TOGETHER = 24  # runs that share their copies
_AGAIN = 2  # times that a command which differs is run in bash once more
# What handles files quickly, and of those what may change them by other means than a redirection.
_FILE_PROGRAMS = frozenset((
    "awk", "cat", "chmod", "cp", "diff", "ed", "find", "git", "grep", "head", "ln", "ls", "mkdir", "mv", "patch",
    "perl", "rm", "rmdir", "sed", "sort", "tail", "tee", "touch", "tr", "wc",
))  # fmt: skip
_READERS = frozenset(("cat", "diff", "find", "grep", "head", "ls", "sort", "tail", "tr", "wc"))


class Settings(NamedTuple):
    """What a worker needs to know."""

    checkouts: Path
    environments: tuple[Path, ...]
    limit_s: float


class Compared(NamedTuple):
    """One command in both ways. `unsteady`: what differs from one run in bash to the next."""

    name: str
    family: str
    command: str
    difference: str = ""
    unsteady: str = ""
    left_out: int = 0  # earlier commands that may have changed files and were not done first


class NoCheckout(Exception):
    """The repository has not all of any of the commits."""


class Scene:
    """Three copies of a checkout: one as it is before a command, and one for each way to run it."""

    def __init__(self, repository: str, commits: list[str], settings: Settings, work: Path) -> None:
        self._checkout = Checkout(settings.checkouts / repository, commits, work / "before")
        self.commits = self._checkout.commits
        if not self.commits:
            raise NoCheckout
        self._checkout.go_to(self.commits[0])
        self._before = Copy(work / "before")
        self._for_bash, self._for_us = (
            duplicate(self._before, work / "plain"),
            duplicate(self._before, work / "testbed"),
        )
        self._bash = Plain(self._for_us.path, settings.environments, settings.limit_s)
        self.ours = Ours(self._for_us.path, work / "data", settings.environments, settings.limit_s)

    def compare(self, drawn: Drawn) -> Iterator[Compared]:
        """The sampled commands of one run, in their order."""
        self._checkout.go_to(drawn.run.commit)
        self._spread()
        left_out = 0
        for number, recorded in enumerate(drawn.run.commands[: drawn.steps[-1] + 1]):
            command = recorded.replace(PLACE, str(self._for_us.path))
            programs = self._programs(command)
            if number in drawn.steps:
                compared = self._both(command, programs)
                family = programs[0] if programs else "(shell alone)"
                yield Compared(f"{drawn.run.name}#{number}", family, recorded, *compared, left_out)
            if not _FILE_PROGRAMS.issuperset(programs):
                left_out += 1
            elif not _READERS.issuperset(programs) or ">" in command:
                self._go_on(command)

    def _programs(self, command: str) -> list[str]:
        line = self.ours.read(command)
        if line is None:
            return ["(not taken)"]
        names = line.programs if line.argv[1:2] == ["-c"] else line.argv[:1]
        return [os.path.basename(name) for name in names]

    def _both(self, command: str, programs: list[str]) -> tuple[str, str]:
        unordered = not UNORDERED.isdisjoint(programs)
        plain, ours = self._in_bash(command), self._by_us(command)
        found = difference(plain, ours, unordered)
        for _ in range(_AGAIN if found else 0):
            if unsteady := difference(plain, self._in_bash(command), unordered):
                return "", unsteady
        return found, ""

    def _in_bash(self, command: str) -> Outcome:
        return self._seen(self._bash.run(command, self._for_bash.path), self._for_bash)

    def _by_us(self, command: str) -> Outcome:
        return self._seen(self.ours.run(command), self._for_us)

    def _seen(self, outcome: Outcome, copy: Copy) -> Outcome:
        changed = copy.changed()
        outcome = outcome._replace(files=copy.effects(changed, self._before))
        if changed:
            copy.take(self._before, changed)
        return outcome

    def _go_on(self, command: str) -> None:
        """Do an earlier command for good, in all copies."""
        self._bash.run(command, self._before.path)
        self._spread()

    def _spread(self) -> None:
        """Have what has changed in the first copy in the others, too."""
        changed = self._before.changed()
        if changed:
            for copy in (self._for_bash, self._for_us):
                copy.take(self._before, changed)
            self._before.keep(changed)


def compare_runs(some: list[Drawn], settings: Settings) -> Iterator[tuple[str, list[Compared]]]:
    """Runs on commits of one repository, as far as it has them: the name of each, and its commands."""
    repository, commits = some[0].run.repository, list(dict.fromkeys(one.run.commit for one in some))
    with tempfile.TemporaryDirectory(prefix="shell-") as folder:
        try:
            scene = Scene(repository, commits, settings, Path(folder))
        except NoCheckout:
            return
        try:
            for drawn in some:
                if drawn.run.commit in scene.commits:
                    yield drawn.run.name, list(scene.compare(drawn))
        finally:
            scene.ours.app.close()


def batches(sample: list[Drawn]) -> list[list[Drawn]]:
    """The sample in parts that share their copies."""
    parts: list[list[Drawn]] = []
    for drawn in sorted(sample, key=lambda one: one.run.repository):
        if parts and parts[-1][0].run.repository == drawn.run.repository and len(parts[-1]) < _TOGETHER:
            parts[-1].append(drawn)
        else:
            parts.append([drawn])
    return parts


def compare_all(parts: list[list[Drawn]], settings: Settings, jobs: int) -> Iterator[tuple[str, list[Compared]]]:
    """Run by run; with several jobs, part by part."""
    if jobs == 1:
        for part in parts:
            yield from compare_runs(part, settings)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for done in pool.map(_listed, parts, [settings] * len(parts)):
            yield from done


def _listed(part: list[Drawn], settings: Settings) -> list[tuple[str, list[Compared]]]:
    return list(compare_runs(part, settings))
