"""A recorded run on three copies of its checkout, and many runs at once."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from .compare import UNORDERED, Outcome, difference
from .copies import Copy, check_out, duplicate
from .recorded import PLACE, Drawn
from .runners import Ours, Plain

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


def compare_run(drawn: Drawn, settings: Settings) -> list[Compared]:
    """The sampled commands of one run, in their order."""
    with tempfile.TemporaryDirectory(prefix="shell-") as folder:
        work = Path(folder)
        check_out(settings.checkouts / drawn.run.repository, drawn.run.commit, work / "before")
        before = Copy(work / "before")
        place = work / "testbed"
        scene = _Scene(before, duplicate(before, work / "plain"), duplicate(before, place), settings, work / "data")
        try:
            return list(scene.compare(drawn))
        finally:
            scene.ours.app.close()


class _Scene:
    """Three copies of a checkout: one as it is before a command, and one for each way to run it."""

    def __init__(self, before: Copy, plain: Copy, place: Copy, settings: Settings, data: Path) -> None:
        self._before, self._for_bash, self._for_us = before, plain, place
        self._bash = Plain(place.path, settings.environments, settings.limit_s)
        self.ours = Ours(place.path, data, settings.environments, settings.limit_s)

    def compare(self, drawn: Drawn) -> Iterator[Compared]:
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
        changed = self._before.changed()
        if changed:
            for copy in (self._for_bash, self._for_us):
                copy.take(self._before, changed)
            self._before.keep()


def _safely(drawn: Drawn, settings: Settings) -> list[Compared] | str:
    """A checkout that can't be made must not end the whole run; any other failure is the benchmark's."""
    try:
        return compare_run(drawn, settings)
    except subprocess.CalledProcessError as exc:
        return f"{drawn.run.name}: {(exc.stderr or b'').decode(errors='replace').strip()[-200:]}"


def compare_all(sample: list[Drawn], settings: Settings, jobs: int) -> Iterator[list[Compared] | str]:
    """Run by run, in the sample's order."""
    if jobs == 1:
        for drawn in sample:
            yield _safely(drawn, settings)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_safely, sample, [settings] * len(sample))
