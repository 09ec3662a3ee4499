"""What the tools do to files, as plans of steps: write, edit, apply a diff, move, delete, make directories.

A plan is made from what is there at that moment and may be made again, should somebody be faster; nothing in here
changes anything.
"""

import os
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from typing import NamedTuple

from ..errors import (
    BadArgs,
    Conflict,
    InvalidArgument,
    IsDirectory,
    NotADirectory,
    NotFound,
    OutputTooLarge,
    ShaMismatch,
)
from ..policy import refuse_protected, refuse_secret
from ..session import Session
from . import edit, text, writing
from .changes import Changes, Done, Draft
from .diff import count_changes
from .filesystem import Entry, Filesystem, kind_of
from .steps import TRASH, Image, Make, MakeRecord, Move, MoveRecord, Put, PutRecord, Refusal, Spot
from .writing import Target

ABSENT = "absent"
_COUNTED_BYTES = 1 << 20  # of larger changes, lines are not counted
_HEAD = 1 << 16
_DEEPEST = 1_000
_HEX = frozenset("0123456789abcdef")


class Written(NamedTuple):
    """A file that was written."""

    id: str
    sha256: str
    size: int  # bytes of the content that was given


class Edited(NamedTuple):
    """A file that was edited."""

    id: str
    sha256: str
    edit: edit.Edited


class Mutations:
    """Plans changes and has them made."""

    def __init__(self, files: Filesystem, changes: Changes, edit_bytes: int) -> None:
        self._files, self._changes, self._edit_bytes = files, changes, edit_bytes
        self._journal = changes.journal

    # --- content ---------------------------------------------------------------------------------

    def write(
        self,
        who: Session,
        path: str,
        content: str,
        check: Callable[[], None],
        *,
        append: bool = False,
        expected: str | None = None,
        parents: bool = False,
        unjournaled: bool = False,
    ) -> Written:
        """Replace what a file holds, or add to it; makes it where it is missing."""
        _check_expected(expected)
        sizes: list[int] = []

        def plan(draft: Draft) -> None:
            target = draft.hold(writing.find_file(self._files, path, parents=parents))
            _compare(target, expected)
            data = _encoded(content, target if append else None)
            sizes.append(len(data))
            self.make_folders(draft, target)
            self.put(draft, target, data, append=append, unjournaled=unjournaled)

        done = self._changes.make(who, "append" if append else "write", plan, check)
        return Written(done.id, _image_of(done).sha256, sizes[-1])

    def edit(
        self,
        who: Session,
        path: str,
        old: str,
        new: str,
        count: int,
        check: Callable[[], None],
        *,
        expected: str | None = None,
    ) -> Edited:
        """Replace exact text in a file."""
        _check_expected(expected)
        edits: list[edit.Edited] = []

        def plan(draft: Draft) -> None:
            target = draft.hold(writing.find_file(self._files, path))
            data = self.text_of(target)
            _compare(target, expected)
            edits.append(edit.apply(data, old, new, count))
            self.put(draft, target, edits[-1].data, before=data)

        done = self._changes.make(who, "edit", plan, check)
        return Edited(done.id, _image_of(done).sha256, edits[-1])

    def text_of(self, target: Target) -> bytes:
        """What a file holds that is to be edited: it must be there, be no secret, and be small enough."""
        if target.info is None:
            raise NotFound(f"{target.asked}: no such file", hint="Create it with linux_fs_write.")
        if self._files.is_secret(target.path) or self._files.is_secret(target.asked):
            raise refuse_secret(target.asked)
        data = writing.read_all(target, self._edit_bytes)
        if data is None:
            raise OutputTooLarge(
                f"{target.asked}: {target.info.st_size:,} bytes is more than can be edited ({self._edit_bytes:,})",
                hint="Edit it by a command (sed -i), or raise mcp.limits.edit_max_bytes.",
            )
        return data

    def put(
        self,
        draft: Draft,
        target: Target,
        data: bytes,
        *,
        append: bool = False,
        unjournaled: bool = False,
        mode: int | None = None,
        before: bytes | None = None,
    ) -> None:
        """Plan new content for a file; what it holds now (`before`, where it was read already) is journaled."""
        if target.info is None:
            record = PutRecord(target.path, Image(writing.sha256([data]), len(data), mode or 0), mode=mode)
            record.added, record.removed = _count(b"", data)
            draft.steps.append(draft.hold(Put(self._changes.shop, target, record, lambda: [data])))
            return
        limit = self._journal.limits.change_bytes
        before = writing.read_all(target, limit) if before is None or len(before) > limit else before
        if before is None and not unjournaled:
            raise self._too_large(target)
        pieces = _pieces(target, before, data, append=append)
        mode_now = target.info.st_mode & 0o777
        size = len(data) + (target.info.st_size if append else 0)
        record = PutRecord(target.path, Image(writing.sha256(pieces()), size, mode_now if mode is None else mode))
        record.mode = mode
        record.before = Image("", target.info.st_size, mode_now)
        if before is None:
            record.kept = False
        else:
            kept = self._journal.keep(before)
            draft.kept.append(kept)
            record.before.sha256 = kept.sha256
            record.added, record.removed = _count(b"" if append else before, data)
        draft.steps.append(draft.hold(Put(self._changes.shop, target, record, pieces)))

    def _too_large(self, target: Target) -> OutputTooLarge:
        size, limit = target.found().st_size, self._journal.limits.change_bytes
        return OutputTooLarge(
            f"{target.asked}: {size:,} bytes is more than the journal keeps of one change ({limit:,})",
            hint="linux_fs_write with allow_unjournaled=true gives up undo; setting: mcp.limits.journal_max_bytes.",
        )

    def make_folders(self, draft: Draft, target: Target) -> None:
        """Plan the directories that a target lacks."""
        for depth, name in enumerate(target.missing):
            folder = Target(self._files, os.dup(target.dir_fd), target.missing[:depth], name, target.asked)
            draft.hold(folder)
            self._files.refuse_change(folder.place)
            if not any(step.record.path == folder.path for step in draft.steps):
                draft.steps.append(Make(folder, MakeRecord(folder.path)))

    # --- names -----------------------------------------------------------------------------------

    def move(self, who: Session, source: str, target: str, overwrite: bool, check: Callable[[], None]) -> Done:
        """Give an entry another name, also on another file system."""

        def plan(draft: Draft) -> None:
            found = draft.hold(writing.find_entry(self._files, source))
            there = draft.hold(writing.find_entry(self._files, target))
            self._refuse_move(found, there, overwrite, check)
            if there.info is not None:
                self.trash(draft, draft.hold(writing.find_entry(self._files, target)))
            refuse = partial(self.refuse_tree, found, there.path)
            self.rename(draft, Spot.of(found), Spot.of(there), source, refuse)

        return self._changes.make(who, "move", plan, check)

    def _refuse_move(self, source: Target, target: Target, overwrite: bool, check: Callable[[], None]) -> None:
        source.found()
        if target.path == source.path:
            raise InvalidArgument(f"{source.asked}: source and target are the same")
        if target.path.startswith(f"{source.path}/"):
            raise InvalidArgument(f"{target.asked}: lies inside {source.asked}")
        if target.kind == "dir":
            raise Conflict(f"{target.asked}: a directory is there", hint="Name the new path itself, inside it.")
        if target.info is not None and not overwrite:
            raise Conflict(f"{target.asked}: exists already", hint="overwrite=true replaces it; it can be undone.")
        for end in (source, target):
            if self._files.is_secret(end.path):  # under another name it could be read
                raise refuse_secret(end.asked)
        if source.kind == "symlink" and self._files.holds_protected(target.path):
            raise refuse_protected(target.asked)
        self.refuse_tree(source, target.path, check)

    def refuse_tree(self, source: Target, target: str, check: Callable[[], None]) -> None:
        """Raise for a folder that holds what must not come to lie below another path."""
        if source.kind == "dir":
            for entry in self._inside(source, check):
                self._refuse_moved(source.path, target, entry)

    def _refuse_moved(self, source: str, target: str, entry: Entry) -> None:
        """Of a tree, what is protected by its path inside of it moves along: a project with its .git."""
        inside = f"/{os.fsdecode(entry.path)}"
        old, new = source + inside, target + inside
        if self._files.is_secret(old) != self._files.is_secret(new):
            raise refuse_secret(old)
        if not self._files.is_protected(inside) and (self._files.is_protected(old) or self._files.is_protected(new)):
            raise refuse_protected(old)
        is_link = entry.kind == "symlink" and not self._files.holds_protected(inside)
        if is_link and self._files.holds_protected(new):
            raise refuse_protected(new)

    def delete(
        self, who: Session, path: str, check: Callable[[], None], *, recursive: bool, unjournaled: bool = False
    ) -> Done:
        """Move an entry into the trash."""
        limit = self._journal.limits.trash_bytes

        def plan(draft: Draft) -> None:
            target = draft.hold(writing.find_entry(self._files, path))
            target.found()
            if target.kind == "dir" and not recursive:
                raise IsDirectory(f"{path}: is a directory", hint="recursive=true deletes it with all it holds.")
            size = self.weigh(target, check)
            if size > limit and not unjournaled:
                raise OutputTooLarge(
                    f"{path}: {size:,} bytes is more than the trash holds ({limit:,})",
                    hint="allow_unjournaled=true deletes it for good; setting: mcp.limits.trash_max_total_bytes.",
                )
            self.trash(draft, target, size, partial(self.weigh, target))

        return self._changes.make(who, "delete", plan, check)

    def weigh(self, target: Target, check: Callable[[], None]) -> int:
        """The bytes of a tree; refuses one that holds something protected."""
        total = target.found().st_size if target.kind == "file" else 0
        if target.kind == "dir":
            for entry in self._inside(target, check):
                total += entry.size if entry.kind == "file" else 0
                path = os.fsdecode(entry.path)
                if self._files.is_protected(f"{target.path}/{path}"):
                    raise refuse_protected(f"{target.asked.rstrip('/')}/{path}")
        return total

    def _inside(self, target: Target, check: Callable[[], None]) -> Iterable[Entry]:
        walk = self._files.walk(target.place, depth=_DEEPEST, include_hidden=True, with_stat=True)
        for number, entry in enumerate(walk):
            if not number % 256:
                check()
            yield entry

    def trash(self, draft: Draft, target: Target, size: int = 0, refuse: Refusal | None = None) -> None:
        """Plan the move of an entry into the trash."""
        entry = self._changes.shop.entry(f"{TRASH}{draft.id}-{len(draft.steps)}")
        record = self.rename(draft, Spot.of(target), draft.hold(entry), target.asked, refuse)
        record.bytes = size or (target.found().st_size if target.kind == "file" else 0)

    def rename(self, draft: Draft, source: Spot, target: Spot, asked: str, refuse: Refusal | None = None) -> MoveRecord:
        """Plan a move between two spots, a copy where they lie on different file systems."""
        info = source.stat()
        if info is None:
            raise NotFound(f"{asked}: no longer there")
        copied = os.fstat(source.dir_fd).st_dev != os.fstat(target.dir_fd).st_dev
        looks = "" if target.path.startswith(TRASH) else source.looks()
        record = MoveRecord(source.path, target.path, kind_of(info.st_mode), source.inode(), looks, copied=copied)
        draft.steps.append(Move(source, target, record, asked, refuse))
        return record

    def mkdirs(self, who: Session, path: str, exist_ok: bool, check: Callable[[], None]) -> Done | None:
        """Make a directory and those above it; None when there was nothing to do."""
        try:
            os.close(self._files.open_dir(self._files.locate(path)))
        except NotFound:
            pass
        except NotADirectory:
            raise Conflict(f"{path}: something that is not a directory is in the way") from None
        else:
            if exist_ok:
                return None
            raise Conflict(f"{path}: exists already")

        def plan(draft: Draft) -> None:
            target = draft.hold(writing.find_new(self._files, path))
            if target.info is not None:
                raise Conflict(f"{path}: exists already")
            self.make_folders(draft, target)
            draft.steps.append(Make(target, MakeRecord(target.path)))

        return self._changes.make(who, "mkdirs", plan, check)


def _pieces(target: Target, before: bytes | None, data: bytes, *, append: bool) -> Callable[[], Iterable[bytes]]:
    """The new content; what is appended to a file too large for memory is streamed."""
    if not append:
        return lambda: [data]
    if before is not None:
        return lambda: [before, data]
    return lambda: chain(writing.pieces_of(target), [data])


def _check_expected(expected: str | None) -> None:
    if expected is None or expected == ABSENT or (len(expected) == 64 and set(expected.lower()) <= _HEX):
        return
    raise InvalidArgument(f"expected_sha256 is 64 hexadecimal digits, or the word {ABSENT!r}")


def _compare(target: Target, expected: str | None) -> None:
    """SHA_MISMATCH for a file that is not what the caller thinks it is; a missing one is not checked."""
    if expected is None or target.info is None:
        return
    if expected == ABSENT:
        raise Conflict(f"{target.asked}: exists already", hint="Read it first, then pass its sha256.")
    if writing.sha256(writing.pieces_of(target)) != expected.lower():
        raise ShaMismatch(f"{target.asked}: changed since you read it; nothing was written", hint="Read it again.")


def _encoded(content: str, appended_to: Target | None) -> bytes:
    """UTF-8; what is appended to a UTF-16 file is UTF-16 too."""
    encoding = "utf-8"
    if appended_to is not None and appended_to.info is not None:
        encoding = _utf16_of(appended_to) or encoding
    try:
        return content.encode(encoding)
    except UnicodeEncodeError as exc:
        raise BadArgs(f"content is not valid Unicode: a lone surrogate at character {exc.start}") from None


def _utf16_of(target: Target) -> str | None:
    fd = target.open()
    try:
        head = os.pread(fd, _HEAD, 0)
    finally:
        os.close(fd)
    found = text.encoding_of(head)
    if found == "utf-16":
        return "utf-16-le" if head.startswith(b"\xff\xfe") else "utf-16-be"
    return found if found in ("utf-16-le", "utf-16-be") else None


def _count(before: bytes, after: bytes) -> tuple[int | None, int | None]:
    """Lines added and removed. What begins and ends alike is left out first: a small edit of a large file is cheap."""
    if b"\0" not in before[:_HEAD] and b"\0" not in after[:_HEAD]:  # in UTF-16 a byte is no line end
        start = before.rfind(b"\n", 0, _alike(before, after)) + 1
        before, after = before[start:], after[start:]
        line_end = before.find(b"\n", len(before) - _alike(before[::-1], after[::-1]))
        alike = len(before) - line_end - 1 if line_end >= 0 else 0
        before, after = before[: len(before) - alike], after[: len(after) - alike]
        if max(before.count(b"\n"), after.count(b"\n")) <= 1 or not before or not after:
            return _lines(after), _lines(before)
    if len(before) + len(after) > _COUNTED_BYTES:
        return None, None
    return count_changes(before, after)


def _lines(data: bytes) -> int:
    return data.count(b"\n") + (data[-1:] not in (b"", b"\n"))


def _alike(one: bytes, other: bytes) -> int:
    """How many bytes two texts have in common at their start."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _image_of(done: Done) -> Image:
    (put,) = [effect for effect in done.effects if isinstance(effect, PutRecord)]
    return put.after
