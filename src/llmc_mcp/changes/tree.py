"""Many entries of one root at once: what a command did to them, and the step that takes it back.

The step works in a folder of its own at the top of the root, which has the step's temporary name:

    prepare    write what the entries become as n0, n1 …; `ready` says that all of them are there
    publish    rename: what has to go becomes o0, o1 …; new content is swapped in
    withdraw   the same renames back, as far as the names in the folder show that they were done
    clean      remove the folder

What was replaced stays in the folder until the change is done, and in the journal, for the redo.
"""

import hashlib
import os
import stat as stat_bits
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import suppress
from typing import NamedTuple

import msgspec

from ..errors import Stale
from ..files import names
from ..files.filesystem import kind_of
from ..kernel import syscalls
from ..tracking import git_index
from ..tracking.entries import CACHES, REASONS, TOO_LARGE, UNREADABLE, whole
from ..tracking.entries import SPECIAL as _SPECIAL
from ..tracking.git_dirs import is_index
from ..tracking.git_objects import blob_name
from . import targets

_BENEATH = syscalls.RESOLVE_BENEATH | syscalls.RESOLVE_NO_SYMLINKS | syscalls.RESOLVE_NO_MAGICLINKS
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OPEN_FOLDERS = 64
_SYNCED_ALONE = 16  # files; more are synced with all of their file system
_READY = b"ready"
_GIT, _INDEX, _LOOKS = "git:", "index:", "looks:"
FIFO, SPECIAL = "fifo", REASONS[_SPECIAL]
WHOLE_FOLDER = "folder"  # the kind of one whose content is not followed: it is only moved
MANY = 64  # entries, above which a change locks its root as a whole


class TreeState(msgspec.Struct, array_like=True, frozen=True):
    """An entry. `content` of a file is its SHA-256, or names it in another way; of a link, where it leads."""

    kind: str
    mode: int
    size: int = 0
    mtime_ns: int = 0
    content: str = ""
    missing: str = ""  # why the journal does not have the content
    packed: str = ""  # where the content is in a pack of images

    @property
    def image(self) -> str:
        """By what the journal finds the content."""
        return self.packed or self.content

    def has_content_of(self, other: "TreeState") -> bool:
        """Whether only mode and time differ."""
        return self.kind == other.kind and self.content == other.content


class TreeEntry(msgspec.Struct, array_like=True, frozen=True):
    """A path below the root, and what was and is there; None is nothing."""

    path: str
    before: TreeState | None
    after: TreeState | None

    @property
    def is_whole_folder(self) -> bool:
        """Whether it is a folder that is only moved."""
        return any(state is not None and state.kind == WHOLE_FOLDER for state in (self.before, self.after))


class TreeRecord(msgspec.Struct, tag="tree"):
    """Entries below one root change."""

    path: str
    entries: list[TreeEntry]

    def departures(self) -> dict[str, int]:
        """The numbers of the entries from which folders are moved as a whole, by what tells these from others."""
        return {
            entry.before.content: number
            for number, entry in enumerate(self.entries)
            if entry.is_whole_folder and entry.before is not None and not entry.before.missing
        }

    def paths(self) -> list[str]:
        """The paths to lock: the root where there are many."""
        return [self.path] if len(self.entries) > MANY else [f"{self.path}/{entry.path}" for entry in self.entries]


def file_state(info: os.stat_result, content: str, missing: str = "") -> TreeState:
    """The state of an entry by its stat."""
    kind = kind_of(info.st_mode)
    size = info.st_size if kind == "file" else 0
    mtime_ns = info.st_mtime_ns if kind in ("file", "symlink") else 0
    return TreeState(kind, info.st_mode & 0o7777, size, mtime_ns, content, missing)


def special_state(mode: int) -> TreeState:
    """The state of a FIFO, or of a device or socket, which is not made again."""
    is_fifo = stat_bits.S_ISFIFO(mode)
    return TreeState("other", mode & 0o7777, content=FIFO if is_fifo else "", missing="" if is_fifo else SPECIAL)


def mode_given_back(state: TreeState) -> int:
    """The mode that an entry gets: root gives no set-user-id or set-group-id bit to a file."""
    return state.mode & 0o1777 if state.kind == "file" and os.geteuid() == 0 else state.mode


class SeenEntry(NamedTuple):
    """An entry as it is now; `data` is the content of a file that is not too large."""

    info: os.stat_result
    state: TreeState
    data: bytes | None


class TreeFolders:
    """The folders below a root, opened on demand and never through a link; a few stay open."""

    def __init__(self, top: int) -> None:
        self.top = top
        self._opened: OrderedDict[bytes, int] = OrderedDict()

    def at(self, path: str) -> tuple[int, bytes]:
        """The open folder that holds an entry, and its name; the descriptor is good until the next call."""
        above, _, name = names.parse(path).rpartition(b"/")
        if not above:
            return self.top, name
        if above in self._opened:
            self._opened.move_to_end(above)
        else:
            self._opened[above] = syscalls.openat2(self.top, above, _FOLDER, _BENEATH)
            if len(self._opened) > _OPEN_FOLDERS:
                os.close(self._opened.popitem(last=False)[1])
        return self._opened[above], name

    def forget(self) -> None:
        """Close all but the root: folders are about to get other names."""
        while self._opened:
            os.close(self._opened.popitem()[1])

    def stat(self, path: str) -> os.stat_result | None:
        """The stat of an entry; None if it is not there."""
        try:
            folder, name = self.at(path)
            return os.lstat(name, dir_fd=folder)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:  # a link is in the way
            return None

    def see(self, path: str, most: int, *, whole_folder: bool = False) -> SeenEntry | None:
        """An entry with its content, if that is not larger than `most`."""
        info = self.stat(path)
        if info is None:
            return None
        kind = kind_of(info.st_mode)
        if kind == "dir" and whole_folder:
            folder, name = self.at(path)
            content = whole(info.st_ino, syscalls.birth_ns(folder, name))[1:].decode()
            return SeenEntry(info, TreeState(WHOLE_FOLDER, info.st_mode & 0o7777, content=content), None)
        if kind == "symlink":
            folder, name = self.at(path)
            return SeenEntry(info, file_state(info, names.show(os.readlink(name, dir_fd=folder) or b".")), None)
        if kind != "file":
            return SeenEntry(info, file_state(info, "") if kind == "dir" else special_state(info.st_mode), None)
        if info.st_size > most:
            return SeenEntry(info, file_state(info, looks(info), REASONS[TOO_LARGE]), None)
        folder, name = self.at(path)
        try:
            fd = os.open(name, _FILE, dir_fd=folder)
        except PermissionError:
            return SeenEntry(info, file_state(info, looks(info), REASONS[UNREADABLE]), None)
        with open(fd, "rb") as file:
            data = file.read(info.st_size + 1)  # a larger buffer than needed would keep a mapping of its own
        return SeenEntry(info, file_state(info, hashlib.sha256(data).hexdigest()), data)

    def list(self, path: str) -> "list[str]":
        """The names in a folder."""
        folder, name = self.at(path)
        fd = os.open(name, _FOLDER, dir_fd=folder)
        try:
            return [names.show(os.fsencode(one)) for one in os.listdir(fd)]
        finally:
            os.close(fd)

    def close(self) -> None:
        """Close everything; may be called twice."""
        self.forget()
        if self.top >= 0:
            os.close(self.top)
        self.top = -1


def looks(info: os.stat_result) -> str:
    """What tells whether a file that is too large to read has changed."""
    return f"{_LOOKS}{info.st_size}.{info.st_mtime_ns}"


def by_git_name(oid: bytes) -> str:
    """Content by the name that git has for it."""
    return _GIT + oid.hex()


def by_meaning(data: bytes) -> str:
    """An index of git by what is staged in it."""
    return _INDEX + git_index.meaning_of(data)


def is_as(path: str, seen: SeenEntry | None, state: TreeState | None, image: Callable[[str], bytes]) -> bool:
    """Whether an entry is what a record says, its times aside."""
    if seen is None or state is None:
        return seen is None and state is None
    now = seen.state
    if now.kind != state.kind or (now.mode not in (state.mode, mode_given_back(state)) and now.kind != "symlink"):
        return False
    if now.kind != "file":
        return now.content == state.content
    if state.content.startswith(_LOOKS):
        return state.content == looks(seen.info)
    if seen.data is None:
        return False
    if now.content == state.content:
        return True
    if state.content.startswith(_GIT):
        return by_git_name(blob_name(seen.data)) == state.content
    if is_index(path):
        meant = state.content if state.content.startswith(_INDEX) else by_meaning(image(state.image))
        return by_meaning(seen.data) == meant
    return False


class TreeStep:
    """Makes the entries of a record what it says.

    `planned` has the stat of each as it was when this was planned; an earlier step of the change moves away what has
    one of the `vacated` paths.
    """

    def __init__(
        self,
        image: Callable[[str], bytes],
        top: int,
        record: TreeRecord,
        planned: list[os.stat_result | None] | None = None,
        vacated: frozenset[str] = frozenset(),
    ) -> None:
        self.label, self.record = record.path, record
        self.temporary = b""
        self.visible = False
        self._image, self.folders_below = image, TreeFolders(top)
        self._planned = planned or []
        self._departures, self._vacated = record.departures(), vacated
        self._staging = -1

    # --- phases ----------------------------------------------------------------------------------

    def begin(self, _: Executor, /) -> None:
        """Nothing may be written before the intent is journaled: it would be visible."""

    def prepare(self, tick: Callable[[], None], /) -> None:
        """Write the contents that come back."""
        os.mkdir(self.temporary, 0o700, dir_fd=self.folders_below.top)
        staging = self._open_staging()
        alone = sum(entry.after is not None for entry in self.record.entries) <= _SYNCED_ALONE
        for number, entry in enumerate(self.record.entries):
            after = entry.after
            if after is not None and after.kind != WHOLE_FOLDER and self._needs_new(entry):
                self._write(staging, _new(number), after, sync=alone)
                self._give(staging, _new(number), number, entry.path)
                _set_mode(staging, _new(number), after)  # which a change of the owner would clear
            tick()
        os.close(os.open(_READY, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=staging))
        if alone:
            os.fsync(staging)
        else:
            syscalls.sync_file_system(staging)

    def verify(self) -> None:
        """STALE when an entry has changed since this was planned."""
        for entry, planned in zip(self.record.entries, self._planned, strict=True):
            now = self.folders_below.stat(entry.path)
            if entry.path in self._vacated:
                continue  # that step looks at it
            if planned is None and _is_dir(entry.after) and now is not None and stat_bits.S_ISDIR(now.st_mode):
                continue  # an earlier step of the change has made it
            if (now is None) != (planned is None) or (
                now is not None and planned is not None and _identity(now) != _identity(planned)
            ):
                raise Stale(f"{self.label}/{entry.path}: changed meanwhile; nothing was done", hint="Try again.")

    def publish(self) -> None:
        """Make it visible."""
        self.visible = True  # a step that stops half-way is withdrawn as far as it got
        entries = list(enumerate(self.record.entries))
        self._open_folders()
        for number, entry in entries:
            if _is_leaf(entry.before) and not _is_leaf(entry.after):
                self._away(number, entry)
        for number, entry in sorted(entries, key=_deepest_first):
            if _is_dir(entry.before) and not _is_dir(entry.after):
                self._remove_folder(number, entry)
        self.folders_below.forget()
        for _, entry in sorted(entries, key=_outermost_first):
            if _is_dir(entry.after) and not _is_dir(entry.before):
                folder, name = self.folders_below.at(entry.path)
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=folder)
                    self._give(folder, name, -1, entry.path)
        for number, entry in entries:
            if _is_leaf(entry.after) and self._needs_new(entry):
                self._put(number, entry)
        for _, entry in sorted(entries, key=_deepest_first):
            if entry.after is not None and not self._needs_new(entry):
                self._set_attributes(entry.path, entry.after)

    def retire(self) -> None:
        """Keep what was replaced until the change is done."""

    def published(self) -> bool:
        """Whether every entry is what it should become."""
        most = max((entry.after.size for entry in self.record.entries if entry.after), default=0)
        return all(is_as(entry.path, self._see(entry, most), entry.after, self._image) for entry in self.record.entries)

    def withdraw(self) -> None:
        """Revert whatever was done."""
        try:
            staging = self._open_staging()
        except FileNotFoundError:
            return
        if not targets.exists_in(staging, _READY):
            return
        self.folders_below.forget()
        entries = list(enumerate(self.record.entries))
        self._open_folders()
        for number, entry in entries:
            if _is_leaf(entry.after) and self._needs_new(entry):
                self._take_out(number, entry)
        for _, entry in sorted(entries, key=_deepest_first):
            if _is_dir(entry.after) and not _is_dir(entry.before):
                with suppress(OSError):  # no longer empty, or never made
                    folder, name = self.folders_below.at(entry.path)
                    os.rmdir(name, dir_fd=folder)
        self.folders_below.forget()
        for number, entry in sorted(entries, key=_outermost_first):
            if _is_dir(entry.before) and not _is_dir(entry.after):
                self._restore_folder(number, entry)
        for number, entry in entries:
            if _is_leaf(entry.before) and not _is_leaf(entry.after) and targets.exists_in(staging, _old(number)):
                folder, name = self.folders_below.at(entry.path)
                syscalls.rename_no_replace(staging, _old(number), folder, name)
        for _, entry in sorted(entries, key=_deepest_first):
            if entry.before is not None and (_is_dir(entry.before) or not self._needs_new(entry)):
                with suppress(OSError):
                    self._set_attributes(entry.path, entry.before)

    def clean(self) -> None:
        """Remove the folder."""
        if self._staging >= 0:
            os.close(self._staging)
            self._staging = -1
        targets.remove_tree(self.folders_below.top, self.temporary)

    def folders(self) -> list[int]:
        """The directories to sync; the journal of the file system has the others with them."""
        return [self.folders_below.top]

    def close(self) -> None:
        """Close all descriptors."""
        self.folders_below.close()
        if self._staging >= 0:
            os.close(self._staging)
            self._staging = -1

    # --- entries ---------------------------------------------------------------------------------

    def _open_folders(self) -> None:
        """Let the owner change what is in folders whose mode changes; they get their own mode at the end."""
        for _, entry in sorted(enumerate(self.record.entries), key=_outermost_first):
            if entry.before is not None and entry.after is not None and _is_dir(entry.before) and _is_dir(entry.after):
                now = self.folders_below.stat(entry.path)
                if now is not None and stat_bits.S_ISDIR(now.st_mode) and now.st_mode & 0o700 != 0o700:
                    opened = TreeState("dir", now.st_mode & 0o7777 | 0o700)
                    self._set_attributes(entry.path, opened)

    def _needs_new(self, entry: TreeEntry) -> bool:
        """Whether an entry becomes another one, rather than getting another mode or time."""
        if not _is_leaf(entry.after):
            return False
        return entry.before is None or entry.after is None or not entry.before.has_content_of(entry.after)

    def _see(self, entry: TreeEntry, most: int) -> SeenEntry | None:
        return self.folders_below.see(entry.path, most, whole_folder=entry.is_whole_folder)

    def _open_staging(self) -> int:
        if self._staging < 0:
            self._staging = os.open(self.temporary, _FOLDER, dir_fd=self.folders_below.top)
        return self._staging

    def _write(self, staging: int, name: bytes, state: TreeState, *, sync: bool) -> None:
        if state.kind == "symlink":
            os.symlink(names.parse(state.content), name, dir_fd=staging)
            os.utime(name, ns=(state.mtime_ns, state.mtime_ns), dir_fd=staging, follow_symlinks=False)
            return
        if state.kind == "other":
            os.mkfifo(name, 0o600, dir_fd=staging)
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600, dir_fd=staging)
        try:
            view = memoryview(self._image(state.image))
            while view:
                view = view[os.write(fd, view) :]
            os.utime(fd, ns=(state.mtime_ns, state.mtime_ns))
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)

    def _give(self, folder: int, name: bytes, number: int, path: str) -> None:
        """Give a new entry to the owner of what it replaces, or of the folder it is in; only root's are not theirs."""
        if os.geteuid() != 0:
            return
        model = self._planned[number] if number >= 0 and self._planned else None
        while model is None and "/" in path:
            path = path.rpartition("/")[0]
            model = self.folders_below.stat(path)
        model = model or os.fstat(self.folders_below.top)
        os.chown(name, model.st_uid, model.st_gid, dir_fd=folder, follow_symlinks=False)

    def _away(self, number: int, entry: TreeEntry) -> None:
        folder, name = self.folders_below.at(entry.path)
        syscalls.rename_no_replace(folder, name, self._staging, _old(number))
        self._refuse_other(number, entry, _old(number))

    def _refuse_other(self, number: int, entry: TreeEntry, name: bytes) -> None:
        """What was renamed away must be what this was planned for; somebody may have saved it meanwhile."""
        planned = self._planned[number] if self._planned else None
        now = os.lstat(name, dir_fd=self._staging)
        if planned is not None and (now.st_ino, now.st_mtime_ns) != (planned.st_ino, planned.st_mtime_ns):
            raise Stale(f"{self.label}/{entry.path}: changed meanwhile; nothing was done", hint="Try again.")

    def _remove_folder(self, number: int, entry: TreeEntry) -> None:
        """Remove an empty folder; one with nothing but caches in it goes with them."""
        folder, name = self.folders_below.at(entry.path)
        try:
            os.rmdir(name, dir_fd=folder)
            return
        except OSError:
            pass
        if not CACHES.issuperset(self.folders_below.list(entry.path)):
            raise Stale(f"{self.label}/{entry.path}: no longer empty", hint="Move what is in it elsewhere.")
        self.folders_below.forget()
        folder, name = self.folders_below.at(entry.path)
        syscalls.rename_no_replace(folder, name, self._staging, _old(number))

    def _restore_folder(self, number: int, entry: TreeEntry) -> None:
        folder, name = self.folders_below.at(entry.path)
        if targets.exists_in(self._staging, _old(number)):
            syscalls.rename_no_replace(self._staging, _old(number), folder, name)
        else:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=folder)

    def _put(self, number: int, entry: TreeEntry) -> None:
        folder, name = self.folders_below.at(entry.path)
        new, old = self._staged(number, entry), _old(number)
        if not _is_leaf(entry.before):
            syscalls.rename_no_replace(self._staging, new, folder, name)
        elif syscalls.exchange_between(self._staging, new, folder, name):
            os.rename(new, old, src_dir_fd=self._staging, dst_dir_fd=self._staging)
            self._refuse_other(number, entry, old)
        else:
            syscalls.rename_no_replace(folder, name, self._staging, old)
            syscalls.rename_no_replace(self._staging, new, folder, name)

    def _staged(self, number: int, entry: TreeEntry) -> bytes:
        """The name that an entry has in the folder of the step before it is put in place."""
        if entry.after is not None and entry.after.kind == WHOLE_FOLDER:
            return _old(self._departures[entry.after.content])
        return _new(number)

    def _take_out(self, number: int, entry: TreeEntry) -> None:
        """Take new content out again; what it replaced gets its name back."""
        new, old = self._staged(number, entry), _old(number)
        if self._is_somebody_elses(entry):
            return  # written since the process died: it stays
        replaced = targets.exists_in(self._staging, old)
        if not _is_leaf(entry.before):
            if not targets.exists_in(self._staging, new) and (info := self.folders_below.stat(entry.path)):
                del info
                folder, name = self.folders_below.at(entry.path)
                syscalls.rename_no_replace(folder, name, self._staging, new)
            return
        if not replaced and not self._was_swapped(new, entry):
            return
        back = old if replaced else new
        folder, name = self.folders_below.at(entry.path)
        if not targets.exists_in(folder, name):  # between the two renames of a file system that can't swap
            syscalls.rename_no_replace(self._staging, back, folder, name)
        elif not syscalls.exchange_between(self._staging, back, folder, name):
            os.rename(back, name, src_dir_fd=self._staging, dst_dir_fd=folder)

    def _is_somebody_elses(self, entry: TreeEntry) -> bool:
        """Whether an entry has neither the content that this step gives it nor the one that it had before."""
        states = [state for state in (entry.before, entry.after) if state is not None]
        seen = self._see(entry, max((state.size for state in states), default=0))
        return seen is not None and not any(state.has_content_of(seen.state) for state in states)

    def _was_swapped(self, new: bytes, entry: TreeEntry) -> bool:
        """Whether the process died right after it swapped: what has the new content's name is what was replaced."""
        staged = TreeFolders(os.dup(self._staging))
        try:
            seen = staged.see(new.decode(), entry.before.size if entry.before else 0)
        finally:
            staged.close()
        return seen is not None and is_as(entry.path, seen, entry.before, self._image)

    def _set_attributes(self, path: str, state: TreeState) -> None:
        folder, name = self.folders_below.at(path)
        if state.kind == "symlink":
            os.utime(name, ns=(state.mtime_ns, state.mtime_ns), dir_fd=folder, follow_symlinks=False)
            return
        _set_mode(folder, name, state)


def _set_mode(folder: int, name: bytes, state: TreeState) -> None:
    """Set the mode of an entry, and the time of a file; of a link there is nothing to set."""
    if state.kind == "symlink":
        return
    pin = os.open(name, syscalls.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        here = f"/proc/self/fd/{pin}"
        os.chmod(here, mode_given_back(state))
        if state.kind == "file":
            os.utime(here, ns=(state.mtime_ns, state.mtime_ns))
    finally:
        os.close(pin)


def _new(number: int) -> bytes:
    return b"n%d" % number


def _old(number: int) -> bytes:
    return b"o%d" % number


def _is_dir(state: TreeState | None) -> bool:
    return state is not None and state.kind == "dir"


def _is_leaf(state: TreeState | None) -> bool:
    return state is not None and state.kind != "dir"


def _deepest_first(numbered: tuple[int, TreeEntry]) -> tuple[int, str]:
    return -numbered[1].path.count("/"), numbered[1].path


def _outermost_first(numbered: tuple[int, TreeEntry]) -> tuple[int, str]:
    return numbered[1].path.count("/"), numbered[1].path


def _identity(info: os.stat_result) -> tuple[int, int, int]:
    if stat_bits.S_ISDIR(info.st_mode):
        return info.st_ino, info.st_mode, 0
    return info.st_ino, info.st_mode, info.st_ctime_ns


def entries_of(record: TreeRecord) -> Iterator[TreeEntry]:
    """The entries that a person would count: folders only where nothing else changed."""
    found = [entry for entry in record.entries if _is_leaf(entry.before) or _is_leaf(entry.after)]
    leaves = [entry for entry in found if not entry.is_whole_folder]
    yield from leaves or record.entries
