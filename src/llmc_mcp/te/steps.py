"""The four things a change is made of: put a file, move an entry, make a directory, remove an empty one.

A delete is a move into the trash, its undo a move back; undoing the creation of a file is a delete. Each step is done
in phases, so that a crash at any moment leaves something that can be told and settled:

    begin      new content is written, but has no name yet
    prepare    whatever takes long; new content stands beside its target, under a name that tells the change
    publish    renames only; runs in the transaction that says that the change is done
    withdraw   takes a published step back
    clean      removes what only the work itself needed

What is journaled of a step is its record, a plain struct; a step can be made from it again in another process.
"""

import hashlib
import os
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future

import msgspec

from ..errors import LlmcError, NotADirectory, NotFound, Stale
from . import kernel, names, writing
from .filesystem import Filesystem, kind_of
from .writing import Target

TRASH = "trash:"  # stands before the name of an entry of the trash, where a path is expected


_HASHED_BYTES = 64 << 20
Refusal = Callable[[Callable[[], None]], object]  # looks into a folder, raises for what must stay where it is


class Image(msgspec.Struct, omit_defaults=True):
    """A file's content."""

    sha256: str
    size: int
    mode: int


class PutRecord(msgspec.Struct, tag="put", omit_defaults=True):
    """A file got new content; `before` is None for a new file."""

    path: str
    after: Image
    before: Image | None = None
    mode: int | None = None  # where the change set it
    kept: bool = True  # False: too large for the journal, and the caller knew
    added: int | None = None  # lines; None: not counted
    removed: int | None = None


class MoveRecord(msgspec.Struct, tag="move", omit_defaults=True):
    """An entry got another name; either may lie in the trash. `looks`: what it was like then, but for the trash."""

    path: str
    target: str
    kind: str
    inode: str
    looks: str = ""
    bytes: int = 0
    copied: bool = False  # between file systems


class MakeRecord(msgspec.Struct, tag="mkdir", omit_defaults=True):
    """A directory was made."""

    path: str


class RemoveRecord(msgspec.Struct, tag="rmdir", omit_defaults=True):
    """An empty directory was removed."""

    path: str
    mode: int


class SortRecord(msgspec.Struct, tag="sort"):
    """Many files got other names below one folder: (old name, new name, identity), names as seen from the folder."""

    path: str
    moves: list[tuple[str, str, str]]


Record = PutRecord | MoveRecord | MakeRecord | RemoveRecord | SortRecord


def left_behind(record: Record) -> list[str]:
    """The names that are free after a step."""
    if isinstance(record, SortRecord):
        return [f"{record.path}/{old}" for old, _, _ in record.moves]
    return [record.path]


def paths_of(record: Record) -> list[str]:
    """The paths that a step changes; the trash is nobody else's business."""
    both = [record.path, record.target] if isinstance(record, MoveRecord) else [record.path]
    return [path for path in both if not path.startswith(TRASH)]


class Workshop:
    """What steps work with: the files, the trash, and what files held before."""

    def __init__(self, files: Filesystem, trash_fd: int, image: Callable[[str], bytes]) -> None:
        self.files, self.trash_fd, self.image = files, trash_fd, image

    def entry(self, path: str) -> "Spot":
        """Where a recorded path lies, in a root or in the trash."""
        if path.startswith(TRASH):
            return Spot(os.dup(self.trash_fd), os.fsencode(path[len(TRASH) :]), path)
        return Spot.of(writing.reopen(self.files, path))


class Spot:
    """One end of a move: a directory and a name in it."""

    def __init__(self, dir_fd: int, name: bytes, path: str, target: Target | None = None) -> None:
        self.dir_fd, self.name, self.path, self.target = dir_fd, name, path, target

    @classmethod
    def of(cls, target: Target) -> "Spot":
        return cls(target.dir_fd, target.name, target.path, target)

    def stat(self) -> os.stat_result | None:
        try:
            return os.lstat(self.name, dir_fd=self.dir_fd)
        except FileNotFoundError:
            return None

    def inode(self) -> str:
        """Which entry it is, whatever its name; empty for none."""
        info = self.stat()
        return "" if info is None else f"{info.st_dev}.{info.st_ino}"

    def looks(self) -> str:
        """A word that differs when the entry does: of a file its content, unless that is huge, else only its kind."""
        fd = os.open(self.name, kernel.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.dir_fd)
        try:
            info = os.fstat(fd)
            kind = kind_of(info.st_mode)
            if kind != "file" or info.st_size > _HASHED_BYTES:
                return f"{kind} {info.st_size} {info.st_mtime_ns}" if kind == "file" else kind
            with open(os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC), "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        finally:
            os.close(fd)

    def close(self) -> None:
        if self.target is not None:
            self.target.close()
        elif self.dir_fd >= 0:
            os.close(self.dir_fd)
        self.dir_fd = -1


class _Phases:
    """What a step may do at each phase. `temporary` is a name, unique to change and step, for work under way."""

    def __init__(self, asked: str) -> None:
        self.asked = asked
        self.temporary = b""
        self.visible = False  # whether there is something to withdraw

    def begin(self, pool: Executor, /) -> None:
        """What may run while the intent is being written down, because a crash leaves nothing of it."""

    def prepare(self, tick: Callable[[], None], /) -> None:
        """Everything that takes time."""

    def verify(self) -> None:
        """STALE when what is to be changed is no longer what it was when the change was planned."""

    def publish(self) -> None:
        """Make it visible."""

    def published(self) -> bool:
        """Whether it is visible: for a change that nobody finished."""
        raise NotImplementedError

    def withdraw(self) -> None:
        """Back to how it was; harmless on what was not published."""

    def clean(self) -> None:
        """Leave no litter."""

    def sync(self) -> None:
        """On the disk."""

    def close(self) -> None:
        """Let go of everything open."""


def _stale(asked: str) -> Stale:
    return Stale(f"{asked}: changed meanwhile; nothing was done", hint="Read it again.")


class Put(_Phases):
    """New content for a file, or a new file. `pieces` may be read several times."""

    def __init__(
        self, shop: Workshop, target: Target, record: PutRecord, pieces: Callable[[], Iterable[bytes]] = tuple
    ) -> None:
        super().__init__(target.asked)
        self._shop, self.target, self.record, self._pieces = shop, target, record, pieces
        self._unnamed: int | None = None
        self._synced: Future[None] | None = None

    def begin(self, pool: Executor, /) -> None:
        if not self.target.missing:
            self._unnamed = writing.write_unnamed(self.target, self._pieces(), self.record.mode)
        if self._unnamed is not None:
            self._synced = pool.submit(os.fsync, self._unnamed)

    def prepare(self, tick: Callable[[], None], /) -> None:
        self.target.enter()
        if self._unnamed is None or self._synced is None:
            writing.write_beside(self.target, self.temporary, self._pieces(), self.record.mode, tick)
        else:
            self._synced.result()
            writing.name_beside(self.target, self._unnamed, self.temporary)

    def verify(self) -> None:
        if self.target.changed():
            raise _stale(self.asked)

    def publish(self) -> None:
        target = self.target
        if target.info is None:
            kernel.rename_no_replace(target.dir_fd, self.temporary, target.dir_fd, target.name)
        else:
            os.rename(self.temporary, target.name, src_dir_fd=target.dir_fd, dst_dir_fd=target.dir_fd)

    def published(self) -> bool:
        if self.target.kind != "file":
            return False
        if writing.exists_in(self.target.dir_fd, self.temporary):  # else it would bear the file's name by now
            return False
        return writing.sha256(writing.pieces_of(self.target)) == self.record.after.sha256

    def withdraw(self) -> None:
        if not self.visible:
            return
        before = self.record.before
        if before is None:
            os.unlink(self.target.name, dir_fd=self.target.dir_fd)
            return
        now = Target(self._shop.files, os.dup(self.target.dir_fd), [], self.target.name, self.asked)
        try:
            writing.write_beside(now, self.temporary, [self._shop.image(before.sha256)], before.mode, _no_tick)
            os.rename(self.temporary, now.name, src_dir_fd=now.dir_fd, dst_dir_fd=now.dir_fd)
        finally:
            now.close()

    def clean(self) -> None:
        if not self.target.missing:
            writing.remove_tree(self.target.dir_fd, self.temporary)

    def sync(self) -> None:
        os.fsync(self.target.dir_fd)

    def close(self) -> None:
        self.target.close()
        if self._synced is not None:
            self._synced.exception()  # the fd must not be somebody else's by the time it is synced
            self._synced = None
        if self._unnamed is not None:
            os.close(self._unnamed)
            self._unnamed = None


class Move(_Phases):
    """Another name for an entry; across file systems a copy, and the original leaves under a temporary name."""

    def __init__(
        self, source: Spot, target: Spot, record: MoveRecord, asked: str, refuse: Refusal | None = None
    ) -> None:
        super().__init__(asked)
        self._source, self._target, self.record, self._refuse = source, target, record, refuse

    def prepare(self, tick: Callable[[], None], /) -> None:
        source, target = self._source, self._target
        if self._refuse is not None:
            self._refuse(tick)  # once more: until its lease was taken, others could put files into a folder
        if target.target is not None:
            target.target.enter()
            target.dir_fd = target.target.dir_fd
        if self.record.copied:
            writing.copy_tree(source.dir_fd, source.name, target.dir_fd, self.temporary, tick)

    def verify(self) -> None:
        source = self._source
        if source.stat() is None or (source.target is not None and source.target.changed()):
            raise _stale(self.asked)

    def publish(self) -> None:
        source, target = self._source, self._target
        if self.record.copied:
            os.rename(source.name, self.temporary, src_dir_fd=source.dir_fd, dst_dir_fd=source.dir_fd)
            try:
                kernel.rename_no_replace(target.dir_fd, self.temporary, target.dir_fd, target.name)
            except OSError:
                os.rename(self.temporary, source.name, src_dir_fd=source.dir_fd, dst_dir_fd=source.dir_fd)
                raise
        else:
            kernel.rename_no_replace(source.dir_fd, source.name, target.dir_fd, target.name)

    def published(self) -> bool:
        if not self.record.copied:
            return self._target.inode() == self.record.inode
        unpublished = writing.exists_in(self._target.dir_fd, self.temporary) or not self._target.inode()
        return not unpublished and self._source.inode() != self.record.inode

    def withdraw(self) -> None:
        source, target = self._source, self._target
        if not self.record.copied:
            if self.visible:
                kernel.rename_no_replace(target.dir_fd, target.name, source.dir_fd, source.name)
            return
        if self.visible:
            os.rename(target.name, self.temporary, src_dir_fd=target.dir_fd, dst_dir_fd=target.dir_fd)
        # Also when a crash came between the two renames: the original waits under its temporary name.
        if source.stat() is None and writing.exists_in(source.dir_fd, self.temporary):
            kernel.rename_no_replace(source.dir_fd, self.temporary, source.dir_fd, source.name)

    def clean(self) -> None:
        if not self.record.copied:
            return
        for spot in (self._source, self._target):
            if not (spot.target and spot.target.missing):
                writing.remove_tree(spot.dir_fd, self.temporary)

    def sync(self) -> None:
        for spot in (self._source, self._target):
            os.fsync(spot.dir_fd)

    def close(self) -> None:
        for spot in (self._source, self._target):
            spot.close()


class Make(_Phases):
    """A new directory; visible as soon as it is prepared, since later steps of the change may go into it."""

    def __init__(self, target: Target, record: MakeRecord) -> None:
        super().__init__(target.asked)
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
        except OSError:  # somebody works in it already, or removed it
            pass

    def sync(self) -> None:
        os.fsync(self._target.dir_fd)

    def close(self) -> None:
        self._target.close()


class Remove(_Phases):
    """An empty directory goes."""

    def __init__(self, target: Target, record: RemoveRecord) -> None:
        super().__init__(target.asked)
        self._target, self.record = target, record

    def publish(self) -> None:
        try:
            os.rmdir(self._target.name, dir_fd=self._target.dir_fd)
        except OSError:
            raise Stale(f"{self.asked}: no longer an empty directory", hint="Use force to trash it.") from None

    def published(self) -> bool:
        return self._target.kind == ""

    def withdraw(self) -> None:
        if not self.visible:
            return
        try:
            os.mkdir(self._target.name, self.record.mode, dir_fd=self._target.dir_fd)
        except FileExistsError:
            pass

    def sync(self) -> None:
        os.fsync(self._target.dir_fd)

    def close(self) -> None:
        self._target.close()


class Branches:
    """A folder and folders below it, each opened once, never through a link; names are as seen from the folder."""

    def __init__(self, top: int) -> None:
        self.top = top
        self._opened: dict[bytes, int] = {}

    def at(self, name: str) -> tuple[int, bytes]:
        """The open folder that holds a name, and the last part of the name."""
        above, _, last = names.parse(name).rpartition(b"/")
        if not above:
            return self.top, last
        if above not in self._opened:
            resolve = kernel.RESOLVE_BENEATH | kernel.RESOLVE_NO_SYMLINKS
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            self._opened[above] = kernel.openat2(self.top, above, flags, resolve)
        return self._opened[above], last

    def look(self, name: str) -> str:
        """The identity of what bears a name; empty for nothing."""
        try:
            folder, last = self.at(name)
            return writing.identity(os.lstat(last, dir_fd=folder))
        except (FileNotFoundError, NotADirectoryError):
            return ""

    def rename(self, old: str, new: str) -> None:
        """Give an entry another name that nothing bears."""
        (source, name), (target, new_name) = self.at(old), self.at(new)
        kernel.rename_no_replace(source, name, target, new_name)

    def sync(self) -> None:
        for fd in (self.top, *self._opened.values()):
            os.fsync(fd)

    def close(self) -> None:
        """Let go of everything; harmless when done twice."""
        for fd in (self.top, *self._opened.values()):
            if fd >= 0:
                os.close(fd)
        self.top, self._opened = -1, {}


class Sort(_Phases):
    """Other names for many files of one folder, as one step: it holds a few folders open, not every file."""

    def __init__(self, files: Filesystem, branches: Branches, record: SortRecord) -> None:
        super().__init__(record.path)
        self._files, self._branches, self.record = files, branches, record
        self._place = files.where(branches.top, record.path)

    def verify(self) -> None:
        look = self._branches.look
        moved_away = self._files.where(self._branches.top, self.asked) != self._place
        if moved_away or any(look(old) != identity for old, _, identity in self.record.moves):
            raise _stale(self.asked)

    def publish(self) -> None:
        for old, new, _ in self.record.moves:
            self._branches.rename(old, new)

    def published(self) -> bool:
        return all(_same_inode(self._branches.look(new), identity) for _, new, identity in self.record.moves)

    def withdraw(self) -> None:
        """Whatever of it is visible: the first name that was taken meanwhile stops `publish` half-way."""
        look = self._branches.look
        for old, new, identity in reversed(self.record.moves):
            if _same_inode(look(new), identity) and not look(old):
                self._branches.rename(new, old)

    def sync(self) -> None:
        self._branches.sync()

    def close(self) -> None:
        self._branches.close()


def _same_inode(one: str, other: str) -> bool:
    return one.split(".")[:2] == other.split(".")[:2]


Step = Put | Move | Make | Remove | Sort


def from_record(shop: Workshop, record: Record, temporary: bytes) -> Step | None:
    """A step of a change that another process left behind; None where a folder that it needs is not there."""
    step: Step
    try:
        if isinstance(record, MoveRecord):
            step = _move_from(shop, record)
        elif isinstance(record, PutRecord):
            step = Put(shop, writing.reopen(shop.files, record.path), record)
        elif isinstance(record, MakeRecord):
            step = Make(writing.reopen(shop.files, record.path), record)
        elif isinstance(record, SortRecord):
            step = Sort(shop.files, Branches(shop.files.reopen_dir(shop.files.locate(record.path))), record)
        else:
            step = Remove(writing.reopen(shop.files, record.path), record)
    except (NotFound, NotADirectory):
        return None
    step.temporary = temporary
    return step


def _move_from(shop: Workshop, record: MoveRecord) -> Move:
    source = shop.entry(record.path)
    try:
        return Move(source, shop.entry(record.target), record, record.path)
    except LlmcError:
        source.close()
        raise


def was_published(shop: Workshop, record: Record, temporary: bytes) -> bool:
    """Whether a step that another process left behind became visible."""
    step = from_record(shop, record, temporary)
    if step is not None:
        try:
            return step.published()
        finally:
            step.close()
    if isinstance(record, MoveRecord):  # a later step may have removed the folder that it left
        try:
            spot = shop.entry(record.target)
        except (NotFound, NotADirectory):
            return False
        try:
            return spot.inode() == record.inode or (record.copied and spot.inode() != "")
        finally:
            spot.close()
    return isinstance(record, RemoveRecord)


def _no_tick() -> None:
    """For work that holds no lease."""
