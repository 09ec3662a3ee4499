"""The four things a change is made of: put a file, move an entry, make a directory, remove an empty one.

A delete is a move into the trash, its undo a move back; undoing the creation of a file is a delete. Each step is done
in phases, so that a crash at any moment leaves something that can be told and settled:

    prepare    whatever takes long: new content is written beside its target, under a name that tells the change
    publish    renames only; runs in the transaction that says that the change is done
    withdraw   takes a published step back
    clean      removes what only the work itself needed

What is journaled of a step is its record, a plain struct; a step can be made from it again in another process.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from ..errors import LlmcError, Stale
from . import kernel, writing
from .filesystem import Filesystem
from .writing import Target, identity

T = TypeVar("T")

TRASH = "trash:"  # stands before the name of an entry of the trash, where a path is expected


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
    """An entry got another name; either may lie in the trash. `identity`: as it was at its new place."""

    path: str
    target: str
    kind: str
    identity: str
    bytes: int = 0
    copied: bool = False  # between file systems


class MakeRecord(msgspec.Struct, tag="mkdir", omit_defaults=True):
    """A directory was made."""

    path: str


class RemoveRecord(msgspec.Struct, tag="rmdir", omit_defaults=True):
    """An empty directory was removed."""

    path: str
    mode: int


Record = PutRecord | MoveRecord | MakeRecord | RemoveRecord


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

    def close(self) -> None:
        if self.target is not None:
            self.target.close()
        elif self.dir_fd >= 0:
            os.close(self.dir_fd)
        self.dir_fd = -1


class Step:
    """A part of a change. `temporary` is the name, unique to change and step, for what is not published yet."""

    record: Record
    asked: str

    def __init__(self) -> None:
        self.temporary = b""
        self.visible = False  # whether there is something to withdraw

    def prepare(self, tick: Callable[[], None]) -> None:
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


class Put(Step):
    """New content for a file, or a new file. `pieces` may be read several times."""

    def __init__(
        self, shop: Workshop, target: Target | None, record: PutRecord, pieces: Callable[[], Iterable[bytes]] | None
    ) -> None:
        super().__init__()
        self._shop, self.target, self.record, self._pieces = shop, target, record, pieces
        self.asked = target.asked if target else record.path

    def prepare(self, tick: Callable[[], None]) -> None:
        assert self.target is not None
        assert self._pieces is not None
        self.target.enter()
        writing.write_beside(self.target, self.temporary, self._pieces(), self.record.mode)

    def verify(self) -> None:
        assert self.target is not None
        if self.target.changed():
            raise _stale(self.asked)

    def publish(self) -> None:
        assert self.target is not None
        target = self.target
        if target.info is None:
            kernel.rename_no_replace(target.dir_fd, self.temporary, target.dir_fd, target.name)
        else:
            os.rename(self.temporary, target.name, src_dir_fd=target.dir_fd, dst_dir_fd=target.dir_fd)

    def published(self) -> bool:
        if self.target is None or self.target.kind != "file":
            return False
        if writing.exists_in(self.target.dir_fd, self.temporary):  # else it would bear the file's name by now
            return False
        return writing.sha256(writing.pieces_of(self.target)) == self.record.after.sha256

    def withdraw(self) -> None:
        if self.target is None or not self.visible:
            return
        before = self.record.before
        if before is None:
            os.unlink(self.target.name, dir_fd=self.target.dir_fd)
            return
        now = Target(self._shop.files, os.dup(self.target.dir_fd), [], self.target.name, self.asked)
        try:
            writing.write_beside(now, self.temporary, [self._shop.image(before.sha256)], before.mode)
            os.rename(self.temporary, now.name, src_dir_fd=now.dir_fd, dst_dir_fd=now.dir_fd)
        finally:
            now.close()

    def clean(self) -> None:
        if self.target is not None and self.target.dir_fd >= 0 and not self.target.missing:
            writing.remove_tree(self.target.dir_fd, self.temporary)

    def sync(self) -> None:
        assert self.target is not None
        os.fsync(self.target.dir_fd)

    def close(self) -> None:
        if self.target is not None:
            self.target.close()


class Move(Step):
    """Another name for an entry; across file systems a copy, and the original leaves under a temporary name."""

    def __init__(self, source: Spot | None, target: Spot | None, record: MoveRecord, asked: str) -> None:
        super().__init__()
        self._source, self._target, self.record, self.asked = source, target, record, asked

    def _ends(self) -> tuple[Spot, Spot]:
        assert self._source is not None
        assert self._target is not None
        return self._source, self._target

    def prepare(self, tick: Callable[[], None]) -> None:
        source, target = self._ends()
        if target.target is not None:
            target.target.enter()
            target.dir_fd = target.target.dir_fd
        if self.record.copied:
            writing.copy_tree(source.dir_fd, source.name, target.dir_fd, self.temporary, tick)

    def verify(self) -> None:
        source, _ = self._ends()
        now = source.stat()
        if now is None or (source.target is not None and source.target.changed()):
            raise _stale(self.asked)

    def publish(self) -> None:
        source, target = self._ends()
        if self.record.copied:
            os.rename(source.name, self.temporary, src_dir_fd=source.dir_fd, dst_dir_fd=source.dir_fd)
            try:
                kernel.rename_no_replace(target.dir_fd, self.temporary, target.dir_fd, target.name)
            except OSError:
                os.rename(self.temporary, source.name, src_dir_fd=source.dir_fd, dst_dir_fd=source.dir_fd)
                raise
        else:
            kernel.rename_no_replace(source.dir_fd, source.name, target.dir_fd, target.name)
        info = target.stat()
        if info is not None:
            self.record.identity = identity(info)

    def published(self) -> bool:
        if self._source is None or self._target is None:
            return False
        there = self._target.stat()
        if there is None or self._source.stat() is not None:
            return False
        return not writing.exists_in(self._target.dir_fd, self.temporary) and (
            self.record.copied or identity(there) == self.record.identity
        )

    def withdraw(self) -> None:
        if self._source is None or self._target is None:
            return
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
            if spot is not None and spot.dir_fd >= 0 and not (spot.target and spot.target.missing):
                writing.remove_tree(spot.dir_fd, self.temporary)

    def sync(self) -> None:
        for spot in self._ends():
            os.fsync(spot.dir_fd)

    def close(self) -> None:
        for spot in (self._source, self._target):
            if spot is not None:
                spot.close()


class Make(Step):
    """A new directory; visible as soon as it is prepared, since later steps of the change may go into it."""

    def __init__(self, target: Target | None, record: MakeRecord) -> None:
        super().__init__()
        self._target, self.record = target, record
        self.asked = target.asked if target else record.path

    def prepare(self, tick: Callable[[], None]) -> None:
        assert self._target is not None
        self._target.enter()
        os.mkdir(self._target.name, 0o777, dir_fd=self._target.dir_fd)
        self.visible = True

    def published(self) -> bool:
        return self._target is not None and self._target.kind == "dir"

    def withdraw(self) -> None:
        if self._target is None or not self.visible:
            return
        try:
            os.rmdir(self._target.name, dir_fd=self._target.dir_fd)
        except OSError:  # somebody works in it already, or removed it
            pass

    def sync(self) -> None:
        assert self._target is not None
        os.fsync(self._target.dir_fd)

    def close(self) -> None:
        if self._target is not None:
            self._target.close()


class Remove(Step):
    """An empty directory goes."""

    def __init__(self, target: Target | None, record: RemoveRecord) -> None:
        super().__init__()
        self._target, self.record = target, record
        self.asked = target.asked if target else record.path

    def publish(self) -> None:
        assert self._target is not None
        try:
            os.rmdir(self._target.name, dir_fd=self._target.dir_fd)
        except OSError:
            raise Stale(f"{self.asked}: no longer an empty directory", hint="Use force to trash it.") from None

    def published(self) -> bool:
        return self._target is not None and self._target.kind == ""

    def withdraw(self) -> None:
        if self._target is None or not self.visible:
            return
        try:
            os.mkdir(self._target.name, self.record.mode, dir_fd=self._target.dir_fd)
        except FileExistsError:
            pass

    def sync(self) -> None:
        assert self._target is not None
        os.fsync(self._target.dir_fd)

    def close(self) -> None:
        if self._target is not None:
            self._target.close()


def from_record(shop: Workshop, record: Record) -> Step:
    """A step of a change that another process left behind; what is out of reach stays as it is."""
    if isinstance(record, MoveRecord):
        source, target = _try(lambda: shop.entry(record.path)), _try(lambda: shop.entry(record.target))
        return Move(source, target, record, record.path)
    target = _try(lambda: writing.reopen(shop.files, record.path))
    if isinstance(record, PutRecord):
        return Put(shop, target, record, None)
    return Make(target, record) if isinstance(record, MakeRecord) else Remove(target, record)


def _try(open_it: Callable[[], T]) -> T | None:
    try:
        return open_it()
    except LlmcError:
        return None


def close_all(steps: Sequence[Step]) -> None:
    """Let go of what a plan holds open."""
    for step in steps:
        step.close()
