"""Whether what commands must not see or change inside the roots is what it was, asked before every command.

Finding it anew takes milliseconds. It depends on nothing but the settings, the mounts, and the entries on the way to
the paths that are looked at: as long as each of them is the same entry, so is the answer.
"""

import os
import stat as stat_bits

from ..errors import LlmcError
from ..files.filesystem import Root
from ..files.off_limits import mount_rows, walked
from .profile import SandboxSettings, covered_now, looked_at

_Entry = tuple[int | str, ...] | None


class CoverCheck:
    """Remembers what was found last, and all that it depends on."""

    def __init__(self) -> None:
        self._question: object = None
        self._entries: dict[str, _Entry] = {}
        self._answer: object = None

    def now(self, settings: SandboxSettings, roots: tuple[Root, ...], data_dir: str) -> object:
        """What in the roots has to be covered at this moment, as `covered_now` has it."""
        if any(root.real == b"/" for root in roots):  # all that is in / counts, and any mount below it
            return covered_now(settings, roots, data_dir)
        try:
            paths = looked_at(settings, roots, data_dir)
        except LlmcError:  # as when there is no such user
            return covered_now(settings, roots, data_dir)
        question = settings, roots, paths, mount_rows()
        if question != self._question or any(_entry(path) != entry for path, entry in self._entries.items()):
            # Looked at before the answer is found: a change in between is one at the next question.
            self._entries = _entries_on_the_way(paths)
            self._question, self._answer = question, covered_now(settings, roots, data_dir)
        return self._answer


def _entries_on_the_way(paths: list[str]) -> dict[str, _Entry]:
    found: dict[str, _Entry] = {}
    for path in paths:
        for here in walked(path):
            entry = found[here] = _entry(here)
            if entry is None:  # nothing behind it can appear unless it does
                break
    return found


def _entry(path: str) -> _Entry:
    """Which entry a path names, who may use it and, if it is a link, where to."""
    try:
        info = os.lstat(path)
        target = os.readlink(path) if stat_bits.S_ISLNK(info.st_mode) else ""
    except OSError:
        return None
    return info.st_dev, info.st_ino, info.st_mode, info.st_uid, info.st_gid, target
