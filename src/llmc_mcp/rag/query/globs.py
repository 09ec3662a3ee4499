"""Globs for paths of an index, matched in linear time."""

import fnmatch
import re

from ...errors import InvalidArgument

_LONGEST = 500  # characters
_STARS = re.compile(r"\*{2,}")


class Glob:
    """A glob as in path_glob: without a slash it matches the file name; `**` crosses folders, `*` does not.

    Path components are matched one by one. Between two `**` the first match is as good as any later one, so there is
    no backtracking; fnmatch avoids it in the same way for the stars within a component.
    """

    def __init__(self, glob: str) -> None:
        if len(glob) > _LONGEST:
            raise InvalidArgument(
                f"path_glob has {len(glob):,} characters, {_LONGEST} are allowed",
                hint="A glob is like *.py or src/**/*.ts.",
            )
        runs: list[list[re.Pattern[str]]] = [[]]  # consecutive components; between two runs there is a `**`
        for part in _parts(glob):
            if part != "**":
                runs[-1].append(re.compile(fnmatch.translate(part)))
            elif runs[-1] or len(runs) == 1:
                runs.append([])
        self._first, self._rest = runs[0], runs[1:]

    def fits(self, path: str) -> bool:
        """Whether a path below the root matches."""
        names = path.split("/")
        at = len(self._first)
        if not _fit(self._first, names, 0):
            return False
        if not self._rest:
            return at == len(names)
        for run in self._rest[:-1]:
            while not _fit(run, names, at):
                at += 1
                if at + len(run) > len(names):
                    return False
            at += len(run)
        last = self._rest[-1]
        return len(names) - len(last) >= at and _fit(last, names, len(names) - len(last))


def _parts(glob: str) -> list[str]:
    pattern = glob.removeprefix("./").removeprefix("/")
    parts = [part for part in pattern.split("/") if part]
    if len(parts) < 2:
        parts.insert(0, "**")
    if pattern.endswith("/") or parts[-1] == "**":
        parts += ["**", "*"]  # everything below, but not the folder itself
    return [one for part in parts for one in _without_double_stars(part)]


def _without_double_stars(part: str) -> list[str]:
    """Split `**` off the start of a part: `**.py` is `**/*.py`; elsewhere in a name it is just a star."""
    if part == "**" or not _STARS.search(part):
        return [part]
    single = _STARS.sub("*", part)
    return ["**", single] if part.startswith("**") else [single]


def _fit(run: list[re.Pattern[str]], names: list[str], at: int) -> bool:
    if at + len(run) > len(names):
        return False
    return all(one.match(names[at + nth]) for nth, one in enumerate(run))
