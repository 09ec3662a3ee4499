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
from contextlib import contextmanager, suppress

from ..files.filesystem import Root
from ..files.off_limits import MountTable, mount_rows
from ..kernel import syscalls
from . import git_dirs, git_index
from .entries import CACHES, Difference, EntryLook, digest_of, look_from, whole
from .generated import NAMES
from .sources import ContentSources
from .watch import TreeWatch

OUR_TEMPORARY = ".llmc-U_"
_BENEATH = syscalls.RESOLVE_BENEATH | syscalls.RESOLVE_NO_SYMLINKS | syscalls.RESOLVE_NO_MAGICLINKS
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TICK_NS = 20_000_000
_DEEPEST = 200
_LONGEST = 4_096 - 257  # bytes of a folder's path, so that every name in it can be used
_LINKED_MOST = 20_000  # files with several names, which may be written through one that nobody watches
_MANY_LINKS = f"one of more than {_LINKED_MOST:,} files with hard links"
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
        self._hidden: dict[str, set[str]] = {}  # entries that changed and could not be looked at, by folder
        self._several: set[int] = set()  # inodes with several names that were looked at
        self.unseen: dict[str, str] = {}  # folders in which something may have changed unseen, and why
        self.uncovered: dict[str, str] = {}  # what is not followed, and why
        self._generated: set[str] = set()  # folders that tools fill
        self._later: list[str] = []  # those of them that are still to be looked at
        self.left_out: set[str] = set()  # those that hold too much
        self._top = os.fstat(root.fd)
        self._since_ns = 0
        self._copies = 0  # files whose content was looked for in this look
        self._meanings: dict[bytes, str] = {}  # of indexes of git, by their digest
        self.watch = TreeWatch()

    def look(self) -> list[Difference]:
        """What changed since the last look; the first one finds nothing."""
        self._look_for_mounts()
        found: list[Difference] = []
        racy, self._racy = self._racy, set()
        self.unseen, self._copies, self._several = {}, 0, set()
        self._since_ns = time.time_ns() - _TICK_NS
        try:
            if not self._folders:
                self._copies = _ASK_GIT_FROM
                self._top = os.fstat(self.root.fd)
                with self._open("") as fd:
                    self._add_folder("", fd, found)
                self._enter_later(found)
                self.unseen = {}
                return []
            self._compare_all(racy, found)
            self._enter_later(found)
        finally:
            if self._copies >= _ASK_GIT_FROM:
                self.sources.forget_indexes()
        return found

    def _compare_all(self, racy: set[str], found: list[Difference]) -> None:
        named = self.watch.take()
        if named is None:
            self._watch_again()
        self._replaced, self.watch.lost = self.watch.lost, set()
        if named is None or self.watch.fleeting:
            named = self._differing(named or {}, racy)
        for path in (*racy, *self._linked, *self._replaced):
            folder, _, name = path.rpartition("/")
            named.setdefault(folder, set()).add(name)
        hidden, self._hidden = self._hidden, {}
        for folder in sorted({*named, *hidden}):
            self._compare(folder, named.get(folder, set()), hidden.get(folder, set()), racy, found)
        if self._several:
            for folder, names in self._names_of(self._several).items():
                self._compare(folder, names, set(), racy, found)

    def _look_for_mounts(self) -> None:
        if (rows := mount_rows()) != self._mount_rows:
            self._mount_rows, above = rows, f"{os.fsdecode(self.root.real).rstrip('/')}/"
            points = (mount.point for mount in MountTable(rows).mounts)
            self.mounts = frozenset(point[len(above) :] for point in points if point.startswith(above))

    def _is_left_out(self, folder: str, name: str) -> bool:
        return _is_not_followed(folder, name) or _join(folder, name) in self.mounts

    # --- comparing -------------------------------------------------------------------------------

    def _compare(self, folder: str, names: set[str], hidden: set[str], racy: set[str], found: list[Difference]) -> None:
        """Compare some entries of a folder; `hidden` are those that could not be looked at the last time."""
        entries, unsure = self._folders.get(folder), racy | self._replaced
        if entries is None:
            return  # new, and followed as a whole, or gone: its parent says so
        try:
            with self._open(folder) as fd:
                for name in sorted(names | hidden):
                    if self._is_left_out(folder, name):
                        continue
                    differences = [] if name in hidden else found  # nobody knows whose they are
                    try:
                        info = os.lstat(name, dir_fd=fd)
                    except FileNotFoundError:
                        self._gone(folder, entries, name, differences)
                        continue
                    old = entries.get(name)
                    if old is None or not old.matches(info) or _join(folder, name) in unsure:
                        self._update(folder, fd, entries, name, info, differences)
            if hidden:
                self.unseen[folder] = "was not readable before"
        except PermissionError:
            self._hidden[folder] = names | hidden
            if names:
                self.unseen[folder] = "not readable"
        except OSError:
            return  # the folder is gone or was replaced: its parent is named as well

    def _differing(self, named: dict[str, set[str]], racy: set[str]) -> dict[str, set[str]]:
        """Look at all entries for those that inotify did not name.

        A folder is listed only if its change time says that names came or went. The paths are looked up below the root
        just to compare; what differs is opened without following links. Folders come before what is in them.
        """
        root, lstat, mounts = self.root.fd, os.lstat, self.mounts
        skipped = set(mounts)  # not looked into
        top = os.fstat(root)
        changed = {""} if _differs(self._top, top) or top.st_ctime_ns >= self._since_ns or "" in racy else set[str]()
        self._top = top
        for folder, entries in self._folders.items():
            above = f"{folder}/" if folder else ""
            if folder in skipped:
                skipped.update(above + name for name, old in entries.items() if old.is_folder)
                continue
            for name, old in entries.items():
                if mounts and above + name in mounts:
                    continue
                try:
                    info = lstat(above + name, dir_fd=root)
                    if old.ctime_ns == info.st_ctime_ns and old.ino == info.st_ino:
                        continue
                except PermissionError:
                    if folder not in changed:  # else what is in it may be another one
                        skipped.add(above + name)
                        continue
                except OSError:
                    skipped.add(above + name)
                else:
                    (changed if old.is_folder and old.ino == info.st_ino else skipped).add(above + name)
                named.setdefault(folder, set()).add(name)
        for folder in changed | racy:
            if folder in self._folders:
                named.setdefault(folder, set()).update(self._new_names(folder))
        return named

    def _new_names(self, folder: str) -> set[str]:
        try:
            with self._open(folder) as fd:
                return set(os.listdir(fd)) - self._folders[folder].keys()
        except OSError:
            return set()  # `_compare` says so

    def _watch_again(self) -> None:
        """After an overflow nobody knows which folders were made anew, even under their old inode."""
        for folder in self._folders if not self.watch.reason else ():
            with suppress(OSError), self._open(folder) as fd:
                self.watch.add(folder, fd)

    def _names_of(self, inodes: set[int]) -> dict[str, set[str]]:
        """All names of files that have several: one of them was written through, perhaps."""
        found: dict[str, set[str]] = {}
        for folder, entries in self._folders.items():
            if names := {name for name, look in entries.items() if look.ino in inodes}:
                found[folder] = names
        return found

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
            entries[name] = now = look_from(info, old.source)
            self._note(path, info)
            if now.mode != old.mode:
                found.append(Difference(path, old, now))
            is_new = path not in self._folders and now.ctime_ns != old.ctime_ns
            if is_new and path not in self.left_out and self._is_entered(path, info, now):
                self._enter(path, fd, name, [])
                self.unseen.setdefault(path, "was not readable before")
            return
        if old is not None and old.is_folder:
            self._drop(path, found)
        if old is None:
            if self._is_hidden(fd, name):
                return
            self._count_one()
        if stat_bits.S_ISDIR(info.st_mode) and git_dirs.is_kept_whole(path):
            source = whole(info.st_ino, syscalls.birth_ns(fd, os.fsencode(name)))
        else:
            ask_git, generated = self._copies >= _ASK_GIT_FROM, self._is_in_generated(path)
            source = self.sources.source(fd, name, path, info, old, ask_git=ask_git, generated=generated)
            self._copies += 1
        entries[name] = now = look_from(info, source)
        self._note(path, info)
        if old is None or not (old.same_as(now) or self._same_index(path, old, now)):
            found.append(Difference(path, old, now))
        if not self._is_entered(path, info, now):
            return
        if name in NAMES or self.sources.is_ignored(path):
            self._later.append(path)
        else:
            self._enter(path, fd, name, found)

    def _same_index(self, path: str, old: EntryLook, now: EntryLook) -> bool:
        """Whether git has only noted the times of files anew."""
        if not git_dirs.is_index(path) or not (old.is_file and now.is_file):
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
        if (reason := self.uncovered.pop(path, None)) is not None:
            self.unseen[path] = reason
        if old.is_folder:
            self._generated.discard(path)
            self.left_out.discard(path)
            self._drop(path, found)
        found.append(Difference(path, old, None))

    def _drop(self, folder: str, found: list[Difference]) -> None:
        """Forget what a folder held."""
        self.watch.remove(folder)
        self._hidden.pop(folder, None)
        entries = self._folders.pop(folder, {})
        for name in list(entries):
            self._gone(folder, entries, name, found)

    # --- following -------------------------------------------------------------------------------

    def _is_entered(self, path: str, info: os.stat_result, look: EntryLook) -> bool:
        if not look.is_folder or look.is_whole or info.st_dev != self._device:
            return False
        if path.count("/") >= _DEEPEST or len(self.root.real) + len(os.fsencode(path)) > _LONGEST:
            self.uncovered[path] = "too deep"
            return False
        return True

    def _enter_later(self, found: list[Difference]) -> None:
        """Look at folders that tools fill, after all others; one that holds too much is left out and named."""
        while self._later:
            path = self._later.pop(0)
            folder, _, name = path.rpartition("/")
            count, known = self._count, len(found)
            self._generated.add(path)
            try:
                with suppress(FileNotFoundError), self._open(folder) as fd:
                    self._enter(path, fd, name, found)
            except TooManyEntries:
                self._later = [one for one in self._later if not one.startswith(f"{path}/")]
                self._drop(path, [])
                self._count = count
                del found[known:]
                self.uncovered[path] = f"more than {self._most:,} files with it (mcp.limits.command_undo_files)"
                self.left_out.add(path)

    def _is_in_generated(self, path: str) -> bool:
        while self._generated and path:
            if path in self._generated:
                return True
            path = path.rpartition("/")[0]
        return False

    def _enter(self, path: str, fd: int, name: str, found: list[Difference]) -> None:
        self.uncovered.pop(path, None)
        try:
            inner = os.open(name, _FOLDER, dir_fd=fd)
        except PermissionError:
            self.unseen[path] = "not readable"
            if os.access(name, os.X_OK, dir_fd=fd, effective_ids=True):  # who knows what is in it can change it
                self.uncovered[path] = "not readable"
            return
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
        if ".gitattributes" in names:
            self.sources.found_attributes(folder)
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
        if info.st_nlink > 1 and stat_bits.S_ISREG(info.st_mode):
            self._several.add(info.st_ino)
            if len(self._linked) < _LINKED_MOST:
                self._linked.add(path)
            elif _MANY_LINKS not in self.uncovered.values():
                self.uncovered[path] = _MANY_LINKS

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


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _differs(one: os.stat_result, other: os.stat_result) -> bool:
    return one.st_ctime_ns != other.st_ctime_ns or one.st_ino != other.st_ino


def _is_not_followed(folder: str, name: str) -> bool:
    if name in CACHES or name.startswith(OUR_TEMPORARY):
        return True
    if ".git" not in folder or not name.endswith((".lock", "gc.pid")):
        return False
    inside = git_dirs.git_dir_of(f"{folder}/{name}")
    return inside is not None and (name.endswith(".lock") or (name == "gc.pid" and inside == folder))
