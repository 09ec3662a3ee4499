"""Protected files, which configure other programs or make them run something, watched while commands run.

A command may change them, but the reply says so. Each protected name that is a path is checked right below each root
and below the folder that a command starts in: one stat before and one after, some hundred microseconds in all.
"""

import os
import stat as stat_bits
import weakref
from collections.abc import Iterable

from ..files.filesystem import Filesystem
from ..policy import watchable

_LISTED_AT_MOST = 100  # files of one folder
_NAMED_AT_MOST = 6
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_Fingerprint = tuple[int, int, int, int]  # inode, change time, size, mode; unlike mtime, ctime can't be set
_Fingerprints = dict[tuple[tuple[int, int], str], _Fingerprint]  # by watched folder (device, inode) and path in it
_LOOKED_AT: _Fingerprint = (0, 0, 0, 0)  # of the empty path: a folder that was seen in one look only tells nothing


class ProtectedFiles:
    """The protected files below the roots of a server."""

    def __init__(self, files: Filesystem) -> None:
        self._files = files
        paths, listed = watchable(files.access.protected_names)
        self._named = frozenset(path for path in paths if "/" not in path)
        # By the first part of a path, so that one stat answers for all paths below a folder that is absent.
        self._tops: dict[str, list[str]] = {path: [] for path in self._named}
        for path in (path for path in paths if "/" in path):
            self._tops.setdefault(path.partition("/")[0], []).append(path)
        self._listed: dict[str, list[str]] = {}
        for path in listed:
            top = path.partition("/")[0]
            self._tops.setdefault(top, [])
            self._listed.setdefault(top, []).append(path)

    def watch(self, directory: int) -> "ProtectedFileWatch":
        """Watch from now on, also below an open directory."""
        return ProtectedFileWatch(self, directory)

    def fingerprints(self, directory: int) -> _Fingerprints:
        """The current state of every protected file, but for those in a root that does not answer."""
        current: _Fingerprints = {}
        done: set[tuple[int, int]] = set()
        silent = self._files.silent_roots.find()
        roots = [root.fd for root in self._files.roots if root.real not in silent]
        for folder in (*roots, directory):
            info = os.fstat(folder)
            identity = info.st_dev, info.st_ino
            if identity not in done:
                done.add(identity)
                current[identity, ""] = _LOOKED_AT
                current.update(((identity, path), state) for path, state in self._below(folder))
        return current

    def _below(self, folder: int) -> Iterable[tuple[str, _Fingerprint]]:
        for top, below in self._tops.items():
            if (info := _stat(folder, top)) is None:
                continue
            is_folder = stat_bits.S_ISDIR(info.st_mode)
            if top in self._named or not is_folder:  # a link in place of a folder counts
                yield top, _fingerprint(info)
            if not is_folder:
                continue
            for path in (*below, *_files_in(folder, self._listed.get(top, ()))):
                if (info := _stat(folder, path)) is not None:
                    yield path, _fingerprint(info)


class ProtectedFileWatch:
    """The protected files as they were at the last report."""

    def __init__(self, protected: ProtectedFiles, directory: int) -> None:
        self._protected, self._directory = protected, os.dup(directory)
        weakref.finalize(self, os.close, self._directory)
        self._before = protected.fingerprints(self._directory)

    def changes(self, subject: str = "The command changed") -> list[str]:
        """A sentence that names the files changed since the last report; none if there are none."""
        before, after = self._before, self._protected.fingerprints(self._directory)
        self._before = after
        both = before.keys() & after.keys()
        changed = sorted({path for (folder, path), _ in before.items() ^ after.items() if (folder, "") in both})
        if not changed:
            return []
        more = f" and {len(changed) - _NAMED_AT_MOST} more" if len(changed) > _NAMED_AT_MOST else ""
        return [f"{subject} files that other programs obey: {', '.join(changed[:_NAMED_AT_MOST])}{more}."]


def _stat(folder: int, path: str) -> os.stat_result | None:
    try:
        return os.stat(path, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None


def _fingerprint(info: os.stat_result) -> _Fingerprint:
    if stat_bits.S_ISDIR(info.st_mode):
        return info.st_ino, 0, 0, info.st_mode
    return info.st_ino, info.st_ctime_ns, info.st_size, info.st_mode


def _files_in(folder: int, subfolders: Iterable[str]) -> list[str]:
    """The files in those subfolders that exist; a link in place of one is not followed."""
    files: list[str] = []
    for path in subfolders:
        try:
            fd = os.open(path, _FOLDER, dir_fd=folder)
        except OSError:
            continue
        try:
            entries = sorted(name for name in os.listdir(fd) if not name.endswith(".sample"))
        finally:
            os.close(fd)
        files += [f"{path}/{name}" for name in entries[:_LISTED_AT_MOST]]
    return files
