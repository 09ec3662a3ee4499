"""When a build commits what it has so far."""

import time
from collections.abc import Callable

# A first build commits after so many files, then after half as many as it has; an update only after so many: tantivy
# merges what comes in many pieces, and takes the time for that from the parsers.
_FIRST_FILES, _MOST_FILES = 500, 5_000
_FIRST_S = 3.0  # … and after that long for the first time: 500 files of C++ take longer on a busy machine


class CommitPlan:
    """The commits of one build, or of one update, counted in files."""

    def __init__(self, done: int, *, is_update: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._is_update, self._clock = is_update, clock
        self._due = _MOST_FILES if is_update else done + _FIRST_FILES
        self._until = float("inf") if is_update else clock() + _FIRST_S

    def is_due(self, done: int) -> bool:
        """Whether to commit now that so many files are done."""
        return done >= self._due or self._clock() > self._until

    def committed(self, done: int) -> None:
        """Choose the next time."""
        self._until = float("inf")
        self._due = done + (_MOST_FILES if self._is_update else min(max(_FIRST_FILES, done // 2), _MOST_FILES))

    @staticmethod
    def is_large(files: int) -> bool:
        """Whether an update of so many files has several commits."""
        return files > _MOST_FILES
