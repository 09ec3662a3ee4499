"""Folders that tools fill: they are looked at last, and what they may take of the budgets is limited.

By the patterns that git ignores, as far as these are about folders, and by names. It is only about the order: a folder
that is taken for one of them by mistake is followed all the same, as long as there is room.
"""

import fnmatch
import re

_NEVER = "(?!)"
NAMES = frozenset(
    (
        *("node_modules", "bower_components", ".yarn", ".next", ".nuxt", ".parcel-cache", ".turbo"),
        *(".venv", "venv", ".tox", ".nox", ".eggs", "site-packages", ".ipynb_checkpoints", ".hypothesis"),
        *("target", "build", "dist", "out", ".gradle", "_build", ".cache", ".terraform", "Pods", "DerivedData"),
    )
)


class IgnorePatterns:
    """The patterns of a work tree's `.gitignore` and `info/exclude`; those with `!` win."""

    def __init__(self, text: bytes) -> None:
        lines = [line.strip() for line in text.decode("utf-8", "surrogateescape").splitlines()]
        lines = [line for line in lines if line and not line.startswith("#")]
        self._ignored = _Patterns([line for line in lines if not line.startswith("!")])
        self._kept = _Patterns([line[1:] for line in lines if line.startswith("!")])

    def match(self, path: str) -> bool:
        """Whether a folder is ignored by itself, given its path in the work tree."""
        return self._ignored.match(path) and not self._kept.match(path)


class _Patterns:
    """Some patterns as two expressions: for the last name, and for paths, which those with a slash inside are about."""

    def __init__(self, lines: list[str]) -> None:
        lines = [line.removeprefix("**/").rstrip("/") for line in lines]
        self._names = _any_of([line for line in lines if "/" not in line])
        self._paths = _any_of([line.lstrip("/") for line in lines if "/" in line])

    def match(self, path: str) -> bool:
        return bool(self._names.match(path.rpartition("/")[2]) or self._paths.match(path))


def _any_of(patterns: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(fnmatch.translate(one) for one in patterns) or _NEVER)
