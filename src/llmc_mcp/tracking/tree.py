"""One root as it was seen last, and what differs now.

Where inotify watches all folders, only the entries that it names are compared, else all are. An entry is compared by
its change time and inode; one that changed as we looked may change again in the same tick of the clock, so its content
is compared the next time as well.

What is mounted below the root is left alone: it may not answer, and then nobody comes back who looks at it.
"""

import os
import stat as stat_bits
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from ..files.filesystem import Root
from ..files.off_limits import MountTable, mount_rows
from ..kernel import syscalls
from . import git_index
from .entries import Difference, EntryLook, digest_of, look_from
from .sources import ContentSources
from .watch import TreeWatch

# What tools rebuild by themselves is not followed: it changes with every run, and nobody wants it back.
CACHES = frozenset(("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"))
OUR_TEMPORARY = ".llmc-U_"
_GIT_KEEPS = frozenset(("objects", "lfs", "gc.pid"))
_BENEATH = syscalls.RESOLVE_BENEATH | syscalls.RESOLVE_NO_SYMLINKS | syscalls.RESOLVE_NO_MAGICLINKS
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TICK_NS = 20_000_000
_DEEPEST = 200
_LINKED_MOST = 2_000  # files with several names, which may be written through one that nobody watches
_ASK_GIT_FROM = 50  # files that are copied before git is asked: reading its index costs as much
_MEANINGS_MOST = 16


class TooManyEntries(Exception):
    """A root holds more than is followed."""


class RootTree:
    """The entries below one root."""

    def __init__(
        self, root: Root, sources: ContentSources, hides: Callable[[int, bytes], bool] | None, most_entries: int
    ) -> None:
        self.root, self.sources = root, sources
        self._hides, self._most = hides, most_entries
        self._device = os.fstat(root.fd).st_dev
        self.mounts: frozenset[str] = frozenset()  # folders below the root on which something is mounted
        self._mount_rows = b""
        self._folders: dict[str, dict[str, EntryLook]] = {}
        self._count = 0
        self._racy: set[str] = set()
        self._replaced: set[str] = set()  # folders that were deleted since the last look
        self._linked: set[str] = set()
        self._since_ns = 0
        self._copies = 0  # files whose content was looked for in this look
        self._meanings: dict[bytes, str] = {}  # of indexes of git, by their digest
        self.watch = TreeWatch()

    def look(self) -> list[Difference]:
        """What changed since the last look; the first one finds nothing."""
        self._look_for_mounts()
        found: list[Difference] = []
        racy, self._racy = self._racy, set()
        self._since_ns = time.time_ns() - _TICK_NS
        try:
            self._copies = 0
            if not self._folders:
                self._copies = _ASK_GIT_FROM
                with self._open("") as fd:
                    self._add_folder("", fd, found)
                return []
            named, self._replaced = self.watch.take(), self.watch.lost
            self.watch.lost = set()
            walked = named is None
            if named is None:
                with self._open("") as fd:
                    self._walk("", fd, found)
                named = {}
            else:
                for path in (*racy, *self._linked, *self._replaced):
                    folder, _, name = path.rpartition("/")
                    named.setdefault(folder, set()).add(name)
            for folder in sorted(named):
                self._compare(folder, named[folder], racy, found)
            if racy and walked:
                self._recheck(racy, found)
        finally:
            if self._copies >= _ASK_GIT_FROM:
                self.sources.forget_indexes()
        return found

    def _look_for_mounts(self) -> None:
        if (rows := mount_rows()) != self._mount_rows:
            self._mount_rows, above = rows, f"{os.fsdecode(self.root.real).rstrip('/')}/"
            points = (mount.point for mount in MountTable(rows).mounts)
            self.mounts = frozenset(point[len(above) :] for point in points if point.startswith(above))

    def _is_left_out(self, folder: str, name: str) -> bool:
        return _is_not_followed(folder, name) or _join(folder, name) in self.mounts

    def _recheck(self, racy: set[str], found: list[Difference]) -> None:
        for path in racy - {one.path for one in found}:
            folder, _, name = path.rpartition("/")
            self._compare(folder, {name}, racy, found)

    # --- comparing -------------------------------------------------------------------------------

    def _compare(self, folder: str, names: set[str], racy: set[str], found: list[Difference]) -> None:
        """Compare some entries of a folder."""
        entries, unsure = self._folders.get(folder), racy | self._replaced
        if entries is None:
            return  # new, and followed as a whole, or gone: its parent says so
        try:
            with self._open(folder) as fd:
                for name in sorted(names):
                    if self._is_left_out(folder, name):
                        continue
                    try:
                        info = os.lstat(name, dir_fd=fd)
                    except FileNotFoundError:
                        self._gone(folder, entries, name, found)
                        continue
                    old = entries.get(name)
                    if old is None or not old.matches(info) or _join(folder, name) in unsure:
                        self._update(folder, fd, entries, name, info, found)
        except OSError:
            return  # the folder is gone or was replaced: its parent is named as well

    def _walk(self, folder: str, fd: int, found: list[Difference]) -> None:
        """Compare all entries of a folder, and of the folders in it.

        After an overflow nobody knows which folders were made anew, even under their old inode: all are watched again.
        """
        self.watch.add(folder, fd)
        entries = self._folders[folder]
        changed: list[tuple[str, os.stat_result]] = []
        below: list[str] = []
        seen: set[str] = set()
        with os.scandir(fd) as entries_now:
            for entry in entries_now:
                name = entry.name
                if self.mounts and _join(folder, name) in self.mounts:
                    seen.add(name)
                    continue
                try:
                    info = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                seen.add(name)
                old = entries.get(name)
                if old is None or old.ctime_ns != info.st_ctime_ns or old.ino != info.st_ino:
                    changed.append((name, info))
                if old is not None and old.ino == info.st_ino and old.mode & 0o170000 == 0o040000:
                    below.append(name)
        if len(seen) != len(entries) or changed:
            for name in entries.keys() - seen:
                self._gone(folder, entries, name, found)
            for name, info in changed:
                if not self._is_left_out(folder, name):
                    self._update(folder, fd, entries, name, info, found)
        for name in below:
            path = _join(folder, name)
            if path in self._folders:
                try:
                    inner = os.open(name, _FOLDER, dir_fd=fd)
                except OSError:
                    continue
                try:
                    self._walk(path, inner, found)
                finally:
                    os.close(inner)

    def _update(
        self,
        folder: str,
        fd: int,
        entries: dict[str, EntryLook],
        name: str,
        info: os.stat_result,
        found: list[Difference],
    ) -> None:
        """Take over how an entry looks now."""
        old, path = entries.get(name), _join(folder, name)
        same_folder = old is not None and old.ino == info.st_ino and path not in self._replaced
        if old is not None and same_folder and old.is_folder and stat_bits.S_ISDIR(info.st_mode):
            entries[name] = now = look_from(info)
            if now.mode != old.mode:
                found.append(Difference(path, old, now))
            return
        if old is not None and old.is_folder:
            self._drop(path, found)
        if old is None:
            if self._is_hidden(fd, name):
                return
            self._count_one()
        source = self.sources.source(fd, name, path, info, old, ask_git=self._copies >= _ASK_GIT_FROM)
        self._copies += 1
        entries[name] = now = look_from(info, source)
        self._note(path, info)
        if old is None or not (old.same_as(now) or self._same_index(path, old, now)):
            found.append(Difference(path, old, now))
        if now.is_folder and info.st_dev == self._device:
            self._enter(path, fd, name, found)

    def _same_index(self, path: str, old: EntryLook, now: EntryLook) -> bool:
        """Whether git has only noted the times of files anew."""
        if not is_git_index(path) or not (old.is_file and now.is_file):
            return False
        return self._meaning(path, old) == self._meaning(path, now) != ""

    def _meaning(self, path: str, look: EntryLook) -> str:
        known = digest_of(look.source)
        if known not in self._meanings:
            if len(self._meanings) > _MEANINGS_MOST:
                self._meanings.clear()
            data = self.sources.content(path, look)
            self._meanings[known] = "" if data is None else git_index.meaning_of(data)
        return self._meanings[known]

    def _gone(self, folder: str, entries: dict[str, EntryLook], name: str, found: list[Difference]) -> None:
        old = entries.pop(name, None)
        if old is None:
            return
        path = _join(folder, name)
        self._count -= 1
        self._linked.discard(path)
        if old.is_folder:
            self._drop(path, found)
        found.append(Difference(path, old, None))

    def _drop(self, folder: str, found: list[Difference]) -> None:
        """Forget what a folder held."""
        self.watch.remove(folder)
        entries = self._folders.pop(folder, {})
        for name in list(entries):
            self._gone(folder, entries, name, found)

    # --- following -------------------------------------------------------------------------------

    def _enter(self, path: str, fd: int, name: str, found: list[Difference]) -> None:
        if path.count("/") >= _DEEPEST:
            return
        try:
            inner = os.open(name, _FOLDER, dir_fd=fd)
        except OSError:
            return
        try:
            self._add_folder(path, inner, found)
        finally:
            os.close(inner)

    def _add_folder(self, folder: str, fd: int, found: list[Difference]) -> None:
        """Follow a folder and those in it from now on; watched first, so that nothing is missed in between."""
        self.watch.add(folder, fd)
        entries = self._folders[folder] = {}
        with os.scandir(fd) as entries_now:
            names = [entry.name for entry in entries_now]
        if ".git" in names:
            self.sources.found_repository(folder)
        for name in names:
            if self._is_left_out(folder, name):
                continue
            try:
                info = os.lstat(name, dir_fd=fd)
            except OSError:
                continue
            self._update(folder, fd, entries, name, info, found)

    def _note(self, path: str, info: os.stat_result) -> None:
        if info.st_ctime_ns >= self._since_ns:
            self._racy.add(path)
        if info.st_nlink > 1 and stat_bits.S_ISREG(info.st_mode) and len(self._linked) < _LINKED_MOST:
            self._linked.add(path)

    def _count_one(self) -> None:
        self._count += 1
        if self._count > self._most:
            raise TooManyEntries

    def _is_hidden(self, fd: int, name: str) -> bool:
        return self._hides is not None and self._hides(fd, os.fsencode(name))

    @contextmanager
    def _open(self, folder: str) -> Generator[int]:
        fd = syscalls.openat2(self.root.fd, os.fsencode(folder or "."), _FOLDER, _BENEATH)
        try:
            yield fd
        finally:
            os.close(fd)

    # --- the spool -------------------------------------------------------------------------------

    def move_to(self, successor: ContentSources) -> None:
        """Move what is still needed to another spool."""
        for folder, entries in self._folders.items():
            for name, look in entries.items():
                if look.is_file and look.source[:1] == b"s":
                    data = self.sources.content(_join(folder, name), look)
                    kept = successor.keep(data) if data is not None else b""
                    entries[name] = EntryLook(look.ctime_ns, look.ino, look.mode, look.size, look.mtime_ns, kept)

    def close(self) -> None:
        """Watch no more."""
        self.watch.stop("closed")
        self.sources.close()


def is_git_index(path: str) -> bool:
    """Whether a path is that of a repository's index."""
    return path == ".git/index" or path.endswith("/.git/index")


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _is_not_followed(folder: str, name: str) -> bool:
    if name in CACHES or name.startswith(OUR_TEMPORARY):
        return True
    if ".git" not in folder:
        return False
    in_git = f"/{folder}/".find("/.git/")
    if in_git < 0:
        return False
    inside = f"/{folder}/"[in_git + 6 :]
    return name.endswith(".lock") or (name in _GIT_KEEPS and (not inside or inside.startswith("modules/")))
