"""The steps that changes consist of: put a file, move an entry, make or remove a directory, sort a folder.

A delete is a move into the trash and its undo a move back; undoing the creation of a file is a delete. Each step runs
in phases, so that a crash at any moment leaves a state that can be recognised and settled:

    begin      write new content to an unnamed file
    prepare    everything slow; new content gets a temporary name, which includes the change's id, beside its target
    publish    renames only; in the transaction that marks the change as done
    withdraw   revert a published step
    clean      remove temporary files

New content is swapped with what it replaces, which is compared with what the change was planned for before it goes:
what somebody saved meanwhile gets its name back. What can't be brought back from the journal, as the original of a
copy on another mount, is removed after the change is done; until then the journal lists it (`leftovers_of`).

The journal stores a step's record, a plain struct, from which another process can rebuild the step.
"""

import hashlib
import os
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from contextlib import suppress

from ..errors import LlmcError, NotADirectory, NotFound, Stale
from ..files import names
from ..files.filesystem import Filesystem, Root, kind_of
from ..files.off_limits import TRASH_FOLDER
from ..kernel import syscalls
from . import targets
from .records import TRASH, ContentImage, MakeRecord, MoveRecord, PutRecord, Record, RemoveRecord, SortRecord
from .targets import Target
from .tree import TreeRecord, TreeStep

_HASHED_BYTES = 64 << 20
Refusal = Callable[[Callable[[], None]], object]  # looks into a folder, raises for what must stay where it is


def looks_of(info: os.stat_result) -> str:
    """A file's identity within its folder, which stays the same across boots: devices may get other numbers."""
    return targets.identity(info).partition(".")[2]


class StepContext:
    """What steps need: the file system, the trash and the pre-images."""

    def __init__(self, files: Filesystem, trash_fd: int, image: Callable[[str], bytes]) -> None:
        self.files, self.trash_fd, self.image = files, trash_fd, image

    def entry(self, path: str) -> "Location":
        """The location of a recorded path, in a root or in the trash."""
        if path.startswith(TRASH):
            folder, slash, name = path[len(TRASH) :].rpartition("/")
            fd = self.files.reopen_dir(self.files.locate(folder)) if slash else os.dup(self.trash_fd)
            return Location(fd, os.fsencode(name), path)
        return Location.of(targets.reopen(self.files, path))


class Location:
    """One end of a move: a directory and a name in it."""

    def __init__(self, dir_fd: int, name: bytes, path: str, target: Target | None = None) -> None:
        self.dir_fd, self.name, self.path, self.target = dir_fd, name, path, target

    @classmethod
    def of(cls, target: Target) -> "Location":
        return cls(target.dir_fd, target.name, target.path, target)

    def enter(self) -> None:
        """Make the folders on the way to it, if there are some to make."""
        if self.target is not None:
            self.target.enter()
            self.dir_fd = self.target.dir_fd

    def stat(self) -> os.stat_result | None:
        try:
            return os.lstat(self.name, dir_fd=self.dir_fd)
        except FileNotFoundError:
            return None

    def inode(self) -> str:
        """Device and inode, whatever the name; empty if there is no entry."""
        info = self.stat()
        return "" if info is None else f"{info.st_dev}.{info.st_ino}"

    def fingerprint(self) -> str:
        """A string that changes with the entry: a file's hash (its size and time if it can't be read), or a kind."""
        fd = os.open(self.name, syscalls.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.dir_fd)
        try:
            info = os.fstat(fd)
            kind = kind_of(info.st_mode)
            if kind != "file":
                return kind
            looks = f"{kind} {info.st_size} {info.st_mtime_ns}"
            if info.st_size > _HASHED_BYTES:
                return looks
            try:
                readable = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
            except PermissionError:
                return looks
            with open(readable, "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        finally:
            os.close(fd)

    def close(self) -> None:
        if self.target is not None:
            self.target.close()
        elif self.dir_fd >= 0:
            os.close(self.dir_fd)
        self.dir_fd = -1


class SharedTrash(Location):
    """A new entry of the trash at the top of a root, which is made when something is deleted there."""

    def __init__(self, root: Root, name: str) -> None:
        folder = names.show(os.path.join(root.real, os.fsencode(TRASH_FOLDER)))
        super().__init__(os.dup(root.fd), os.fsencode(name), f"{TRASH}{folder}/{name}")

    def enter(self) -> None:
        """Make the trash; git has nothing to do with it."""
        try:
            os.mkdir(TRASH_FOLDER, 0o700, dir_fd=self.dir_fd)
        except FileExistsError:
            pass
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(f"{TRASH_FOLDER}/.gitignore", flags, 0o600, dir_fd=self.dir_fd), "wb") as file:
                file.write(b"*\n")
        folder = os.open(TRASH_FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.dir_fd)
        os.dup2(folder, self.dir_fd, inheritable=False)
        os.close(folder)


class _Phased:
    """A step that does nothing in any phase. `temporary` is a file name unique to the change and the step."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.temporary = b""
        self.visible = False  # whether there is something to withdraw

    def begin(self, pool: Executor, /) -> None:
        """Work that may start before the intent is journaled, because a crash leaves no trace of it."""

    def prepare(self, tick: Callable[[], None], /) -> None:
        """Everything slow."""

    def verify(self) -> None:
        """STALE when the target has changed since the change was planned."""

    def publish(self) -> None:
        """Make it visible."""

    def retire(self) -> None:
        """Remove what was replaced, once every step of the change is visible."""

    def published(self) -> bool:
        """Whether the step is visible; for settling an unfinished change."""
        raise NotImplementedError

    def withdraw(self) -> None:
        """Revert the step; a no-op if it was not published."""

    def clean(self) -> None:
        """Remove temporary files."""

    def folders(self) -> list[int]:
        """The directories to sync once the step is visible."""
        return []

    def close(self) -> None:
        """Close all descriptors."""


def _restoring(temporary: bytes) -> bytes:
    """Earlier content on its way back has a name of its own: half-written, it must not be taken for a save."""
    return temporary + b".old"


def _stale(label: str) -> Stale:
    return Stale(f"{label}: changed meanwhile; nothing was done", hint="Read it again.")


class Put(_Phased):
    """New content for a file, or a new file. `pieces` may be read several times."""

    def __init__(
        self, context: StepContext, target: Target, record: PutRecord, pieces: Callable[[], Iterable[bytes]] = tuple
    ) -> None:
        super().__init__(target.label)
        self._context, self.target, self.record, self._pieces = context, target, record, pieces
        self._unnamed: int | None = None
        self._synced: Future[None] | None = None

    def begin(self, pool: Executor, /) -> None:
        if not self.target.missing:
            self._unnamed = targets.write_unnamed(self.target, self._pieces(), self.record.mode)
        if self._unnamed is not None:
            self._synced = pool.submit(os.fsync, self._unnamed)

    def prepare(self, tick: Callable[[], None], /) -> None:
        self.target.enter()
        if self._unnamed is None or self._synced is None:
            targets.write_beside(self.target, self.temporary, self._pieces(), self.record.mode, tick)
        else:
            self._synced.result()
            targets.name_beside(self.target, self._unnamed, self.temporary)

    def verify(self) -> None:
        if self.target.changed():
            raise _stale(self.label)

    def publish(self) -> None:
        target = self.target
        if target.info is None:
            syscalls.rename_no_replace(target.dir_fd, self.temporary, target.dir_fd, target.name)
        elif not targets.exchange(target.dir_fd, self.temporary, target.name, targets.identity(target.info)):
            raise _stale(self.label)

    def retire(self) -> None:
        """Not what somebody who had the file open has written meanwhile."""
        if self._looks(self.temporary) not in ("", self.record.replaces):
            raise _stale(self.label)
        if self.record.kept:
            with suppress(FileNotFoundError):  # a new file replaces none, and a rename leaves none
                os.unlink(self.temporary, dir_fd=self.target.dir_fd)

    def published(self) -> bool:
        """Not with anything but the replaced file beside it: the new content, or what was saved as the process died."""
        return self._looks(self.temporary) in ("", self.record.replaces) and self._is_new(self.target.name)

    def _looks(self, name: bytes) -> str:
        return targets.identity_in(self.target.dir_fd, name).partition(".")[2]

    def _is_new(self, name: bytes) -> bool:
        """Whether an entry beside the target, or the target itself, is the new content."""
        after = self.record.after
        entry = Target(self._context.files, os.dup(self.target.dir_fd), [], name, self.label)
        try:
            if entry.kind != "file" or (self.record.before and entry.existing().st_mode & 0o777 != after.mode):
                return False
            return targets.sha256(targets.pieces_of(entry)) == after.sha256
        finally:
            entry.close()

    def withdraw(self) -> None:
        folder, before = self.target.dir_fd, self.record.before
        if self.target.missing or (before is None and not self.visible):
            return
        if before is None:
            os.unlink(self.target.name, dir_fd=folder)
        elif not targets.exists_in(folder, self.temporary):
            if self.visible:
                self._restore(before)
        elif self._was_swapped():
            ours = targets.identity_in(folder, self.target.name)
            targets.put_back(folder, self.temporary, self.target.name, ours)

    def _was_swapped(self) -> bool:
        untouched = self._looks(self.target.name) == self.record.replaces
        return not untouched and self._is_new(self.target.name) and not self._is_new(self.temporary)

    def _restore(self, before: ContentImage) -> None:
        """Bring back replaced content that is in the journal alone."""
        now = Target(self._context.files, os.dup(self.target.dir_fd), [], self.target.name, self.label)
        try:
            name = _restoring(self.temporary)
            targets.write_beside(now, name, [self._context.image(before.sha256)], before.mode, _no_tick)
            if not targets.exchange(now.dir_fd, name, now.name, targets.identity(now.existing())):
                raise _stale(self.label)
        finally:
            now.close()

    def clean(self) -> None:
        if not self.target.missing:
            for name in (self.temporary, _restoring(self.temporary)):
                targets.remove_tree(self.target.dir_fd, name)

    def folders(self) -> list[int]:
        return [self.target.dir_fd]

    def close(self) -> None:
        self.target.close()
        if self._synced is not None:
            self._synced.exception()  # wait: the fd number must not be reused before the sync
            self._synced = None
        if self._unnamed is not None:
            os.close(self._unnamed)
            self._unnamed = None


class Move(_Phased):
    """Another name for an entry; across mounts it is copied, and the original is renamed away, then removed."""

    def __init__(
        self, source: Location, target: Location, record: MoveRecord, label: str, refuse: Refusal | None = None
    ) -> None:
        super().__init__(label)
        self._source, self._target, self.record, self._refuse = source, target, record, refuse
        self._copied = ""  # the identity of the tree that was copied

    def prepare(self, tick: Callable[[], None], /) -> None:
        source, target = self._source, self._target
        if self._refuse is not None:
            self._refuse(tick)  # once more: until its lease was taken, others could put files into a folder
        target.enter()
        if self.record.copied:
            self._copied = targets.tree_identity(source.dir_fd, source.name)
            targets.copy_tree(source.dir_fd, source.name, target.dir_fd, self.temporary, tick)

    def verify(self) -> None:
        source = self._source
        if source.stat() is None or (source.target is not None and source.target.changed()):
            raise _stale(self.label)

    def publish(self) -> None:
        source, target = self._source, self._target
        if self.record.copied:
            os.rename(source.name, self.temporary, src_dir_fd=source.dir_fd, dst_dir_fd=source.dir_fd)
            if targets.tree_identity(source.dir_fd, self.temporary) != self._copied:
                raise _stale(self.label)  # `withdraw` gives it its name back
            syscalls.rename_no_replace(target.dir_fd, self.temporary, target.dir_fd, target.name)
        else:
            syscalls.rename_no_replace(source.dir_fd, source.name, target.dir_fd, target.name)

    def published(self) -> bool:
        if not self.record.copied:
            return _same_inode(self._target.inode(), self.record.inode)
        unpublished = targets.exists_in(self._target.dir_fd, self.temporary) or not self._target.inode()
        return not unpublished and not _same_inode(self._source.inode(), self.record.inode)

    def withdraw(self) -> None:
        source, target = self._source, self._target
        if not self.record.copied:
            if self.visible:
                syscalls.rename_no_replace(target.dir_fd, target.name, source.dir_fd, source.name)
            return
        if self.visible:
            os.rename(target.name, self.temporary, src_dir_fd=target.dir_fd, dst_dir_fd=target.dir_fd)
        # Also between the two renames, when the original has its temporary name. If somebody made something else of
        # its name, this fails, and both stay.
        if targets.exists_in(source.dir_fd, self.temporary):
            syscalls.rename_no_replace(source.dir_fd, self.temporary, source.dir_fd, source.name)

    def clean(self) -> None:
        if not self.record.copied:
            return
        for location in (self._source, self._target):
            if not (location.target and location.target.missing):
                targets.remove_tree(location.dir_fd, self.temporary)

    def folders(self) -> list[int]:
        return [self._source.dir_fd, self._target.dir_fd]

    def close(self) -> None:
        for location in (self._source, self._target):
            location.close()


class Make(_Phased):
    """A new directory; visible once prepared, because later steps of the change may use it."""

    def __init__(self, target: Target, record: MakeRecord) -> None:
        super().__init__(target.label)
        self._target, self.record = target, record

    def prepare(self, _: Callable[[], None], /) -> None:
        self._target.enter()
        os.mkdir(self._target.name, 0o777, dir_fd=self._target.dir_fd)
        self.visible = True

    def published(self) -> bool:
        return self._target.kind == "dir"

    def withdraw(self) -> None:
        if not self.visible:
            return
        try:
            os.rmdir(self._target.name, dir_fd=self._target.dir_fd)
        except OSError:  # no longer empty, or removed
            pass

    def folders(self) -> list[int]:
        return [self._target.dir_fd]

    def close(self) -> None:
        self._target.close()


class Remove(_Phased):
    """The removal of an empty directory; one that holds originals of copies is renamed away, then removed with them."""

    def __init__(self, target: Target, record: RemoveRecord) -> None:
        super().__init__(target.label)
        self._target, self.record = target, record

    def publish(self) -> None:
        folder, name = self._target.dir_fd, self._target.name
        try:
            if self._is_spent(name):
                os.rename(name, self.temporary, src_dir_fd=folder, dst_dir_fd=folder)
                self.visible = True
                if self._is_spent(self.temporary):
                    return
            else:
                os.rmdir(name, dir_fd=folder)
                return
        except OSError:
            pass
        raise Stale(f"{self.label}: no longer an empty directory", hint="Use force to trash it.")

    def _is_spent(self, name: bytes) -> bool:
        """Whether a directory holds something, and nothing but what this change has renamed away."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, dir_fd=self._target.dir_fd)
        try:
            inside = os.listdir(fd)
        finally:
            os.close(fd)
        ours = os.fsdecode(self.temporary).rpartition("-")[0]
        return bool(inside) and all(entry.startswith(f"{ours}-") for entry in inside)

    def published(self) -> bool:
        renamed = targets.exists_in(self._target.dir_fd, self.temporary)
        return self._target.kind == "" and (not renamed or self._is_spent(self.temporary))

    def withdraw(self) -> None:
        folder, name = self._target.dir_fd, self._target.name
        if targets.exists_in(folder, self.temporary):
            syscalls.rename_no_replace(folder, self.temporary, folder, name)
        if not self.visible:
            return
        try:
            os.mkdir(self._target.name, self.record.mode, dir_fd=self._target.dir_fd)
        except FileExistsError:
            pass

    def folders(self) -> list[int]:
        return [self._target.dir_fd]

    def close(self) -> None:
        self._target.close()


class Branches:
    """A folder and folders below it, each opened once and never through a link; names are relative to the folder."""

    def __init__(self, top: int) -> None:
        self.top = top
        self._opened: dict[bytes, int] = {}

    def at(self, name: str) -> tuple[int, bytes]:
        """The open folder that holds a name, and the last part of the name."""
        above, _, last = names.parse(name).rpartition(b"/")
        if not above:
            return self.top, last
        if above not in self._opened:
            resolve = syscalls.RESOLVE_BENEATH | syscalls.RESOLVE_NO_SYMLINKS
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            self._opened[above] = syscalls.openat2(self.top, above, flags, resolve)
        return self._opened[above], last

    def look(self, name: str) -> str:
        """The identity of the entry with a name; empty if there is none."""
        try:
            folder, last = self.at(name)
            return targets.identity(os.lstat(last, dir_fd=folder))
        except (FileNotFoundError, NotADirectoryError):
            return ""

    def rename(self, old: str, new: str) -> None:
        """Rename an entry to a name that is free."""
        (source, name), (target, new_name) = self.at(old), self.at(new)
        syscalls.rename_no_replace(source, name, target, new_name)

    def folders(self) -> list[int]:
        """All that are open."""
        return [self.top, *self._opened.values()]

    def close(self) -> None:
        """Close everything; may be called twice."""
        for fd in self.folders():
            if fd >= 0:
                os.close(fd)
        self.top, self._opened = -1, {}


class Sort(_Phased):
    """New names for many files of one folder as one step, which keeps a few folders open instead of every file."""

    def __init__(self, files: Filesystem, branches: Branches, record: SortRecord) -> None:
        super().__init__(record.path)
        self._files, self._branches, self.record = files, branches, record
        self._place = files.where(branches.top, record.path)

    def verify(self) -> None:
        look = self._branches.look
        moved_away = self._files.where(self._branches.top, self.label) != self._place
        if moved_away or any(look(old) != identity for old, _, identity in self.record.moves):
            raise _stale(self.label)

    def publish(self) -> None:
        for old, new, _ in self.record.moves:
            self._branches.rename(old, new)

    def published(self) -> bool:
        return all(_same_inode(self._branches.look(new), identity) for _, new, identity in self.record.moves)

    def withdraw(self) -> None:
        """Revert the moves that are visible: a name taken meanwhile stops `publish` half-way."""
        look = self._branches.look
        for old, new, identity in reversed(self.record.moves):
            if _same_inode(look(new), identity) and not look(old):
                self._branches.rename(new, old)

    def folders(self) -> list[int]:
        return self._branches.folders()

    def close(self) -> None:
        self._branches.close()


def _same_inode(one: str, other: str) -> bool:
    """Whether two identities are those of one entry; its device has another number on another machine."""
    return bool(one) and one.split(".")[1] == other.split(".")[1]


Step = Put | Move | Make | Remove | Sort | TreeStep


def from_record(context: StepContext, record: Record, temporary: bytes) -> Step | None:
    """Rebuild a step that another process left; None if a folder that it needs is missing."""
    step: Step
    try:
        if isinstance(record, MoveRecord):
            step = _move_from(context, record)
        elif isinstance(record, PutRecord):
            step = Put(context, targets.reopen(context.files, record.path), record)
        elif isinstance(record, MakeRecord):
            step = Make(targets.reopen(context.files, record.path), record)
        elif isinstance(record, TreeRecord):
            step = TreeStep(context.image, context.files.reopen_dir(context.files.locate(record.path)), record)
        elif isinstance(record, SortRecord):
            step = Sort(context.files, Branches(context.files.reopen_dir(context.files.locate(record.path))), record)
        else:
            step = Remove(targets.reopen(context.files, record.path), record)
    except (NotFound, NotADirectory):
        return None
    step.temporary = temporary
    return step


def _move_from(context: StepContext, record: MoveRecord) -> Move:
    source = context.entry(record.path)
    try:
        return Move(source, context.entry(record.target), record, record.path)
    except LlmcError:
        source.close()
        raise


def was_published(context: StepContext, record: Record, temporary: bytes) -> bool:
    """Whether a step that another process left is visible."""
    step = from_record(context, record, temporary)
    if step is not None:
        try:
            return step.published()
        finally:
            step.close()
    if isinstance(record, MoveRecord):  # a later step may have removed the folder that it left
        try:
            location = context.entry(record.target)
        except (NotFound, NotADirectory):
            return False
        try:
            return _same_inode(location.inode(), record.inode) or (record.copied and location.inode() != "")
        finally:
            location.close()
    return isinstance(record, RemoveRecord)


def _no_tick() -> None:
    """The tick of work that holds no lease."""
