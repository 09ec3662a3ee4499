"""The operations of the file tools, planned as steps: write, edit, move, delete, make directories.

A plan reflects the files at that moment and is made again when they change before it is journaled. Planning itself
changes nothing.
"""

import os
from collections.abc import Callable, Iterable, Sequence
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
    Stale,
)
from ..files import slices
from ..files.filesystem import Entry, Filesystem, Place, kind_of
from ..files.revisions import Revisions, revision_of
from ..policy import refuse_protected, refuse_secret
from ..session import Session
from . import edit, targets
from .diff import count_changes
from .edit import Edit, EditedText, LineEdit
from .records import TRASH, ContentImage, MakeRecord, MoveRecord, PutRecord
from .steps import Location, Make, Move, Put, Refusal, looks_of
from .targets import Target
from .transaction import Changes, Done, Draft

ABSENT = "absent"
_COUNTED_BYTES = 1 << 20  # lines of larger changes are not counted
_HEAD = 1 << 16
_DEEPEST = 1_000
_HEX = frozenset("0123456789abcdef")


class WrittenFile(NamedTuple):
    """The outcome of a write."""

    id: str
    sha256: str
    size: int  # bytes of the given content


class EditedFile(NamedTuple):
    """The outcome of an edit."""

    id: str
    sha256: str
    edit: EditedText


class Operations:
    """Plans operations and makes them as changes."""

    def __init__(self, files: Filesystem, changes: Changes, revisions: Revisions, edit_bytes: int) -> None:
        self._files, self._changes, self._revisions, self._edit_bytes = files, changes, revisions, edit_bytes
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
    ) -> WrittenFile:
        """Replace a file's content or append to it; create it if it is missing."""
        _check_expected(expected)
        sizes: list[int] = []

        def plan(draft: Draft) -> None:
            target = draft.hold(targets.find_file(self._files, path, parents=parents))
            self._refuse_existing_secret(target)
            _compare(target, expected)
            data = _encoded(content, target if append else None)
            sizes.append(len(data))
            self.make_folders(draft, target)
            self.put(draft, target, data, append=append, unjournaled=unjournaled)

        done = self._changes.make(who, "append" if append else "write", plan, check)
        return WrittenFile(done.id, _image_of(done).sha256, sizes[-1])

    def edit(
        self,
        who: Session,
        path: str,
        edits: Sequence[Edit],
        check: Callable[[], None],
        *,
        expected: str | None = None,
        revision: str | None = None,
    ) -> EditedFile:
        """Replace texts or lines in a file: all of them or none."""
        _check_expected(expected)
        made: list[EditedText] = []

        def plan(draft: Draft) -> None:
            target = draft.hold(targets.find_file(self._files, path))
            data = self.text_of(target)
            _compare(target, expected)
            if revision is not None and revision != revision_of(data):
                raise self._stale(target, data, revision, edits)
            made.append(edit.apply(data, edits))
            self.put(draft, target, made[-1].data, before=data)

        done = self._changes.make(who, "edit", plan, check)
        self._revisions.remember(made[-1].data)
        return EditedFile(done.id, _image_of(done).sha256, made[-1])

    def _stale(self, target: Target, data: bytes, revision: str, edits: Sequence[Edit]) -> Stale:
        from .moved_lines import stale  # imported late: most edits are up to date

        before = self._revisions.find(revision) or self._journal.image_of_revision(revision)
        numbered = [one for one in edits if isinstance(one, LineEdit)]
        return stale(target.label, self._revisions.remember(data), data, before, numbered)

    def _refuse_existing_secret(self, target: Target) -> None:
        """A file with a secret name may be made; one that exists is neither shown nor changed."""
        if target.info is not None and (self._files.is_secret(target.path) or self._files.is_secret(target.label)):
            raise refuse_secret(target.label)

    def text_of(self, target: Target) -> bytes:
        """The content of a file to edit, which must exist, not be secret, and be small enough."""
        if target.info is None:
            raise NotFound(f"{target.label}: no such file", hint="Create it with linux_fs_write.")
        self._refuse_existing_secret(target)
        data = targets.read_all(target, self._edit_bytes)
        if data is None:
            raise OutputTooLarge(
                f"{target.label}: {target.info.st_size:,} bytes is more than can be edited ({self._edit_bytes:,})",
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
        """Plan new content for a file; its current content (`before`, if already read) is journaled."""
        if target.info is None:
            record = PutRecord(target.path, ContentImage(targets.sha256([data]), len(data), mode or 0), mode=mode)
            record.added, record.removed = _count(b"", data)
            draft.steps.append(draft.hold(Put(self._changes.context, target, record, lambda: [data])))
            return
        limit = self._journal.limits.change_bytes
        before = targets.read_all(target, limit) if before is None or len(before) > limit else before
        if before is None and not unjournaled:
            raise self._too_large(target)
        pieces = _pieces(target, before, data, append=append)
        mode_now = target.info.st_mode & 0o777
        size = len(data) + (target.info.st_size if append else 0)
        record = PutRecord(
            target.path, ContentImage(targets.sha256(pieces()), size, mode_now if mode is None else mode)
        )
        record.mode = mode
        record.before, record.replaces = ContentImage("", target.info.st_size, mode_now), looks_of(target.info)
        if before is None:
            record.kept = False
        else:
            kept = self._journal.keep(before)
            draft.images.append(kept)
            record.before.sha256 = kept.name
            record.added, record.removed = _count(b"" if append else before, data)
        draft.steps.append(draft.hold(Put(self._changes.context, target, record, pieces)))

    def _too_large(self, target: Target) -> OutputTooLarge:
        size, limit = target.existing().st_size, self._journal.limits.change_bytes
        return OutputTooLarge(
            f"{target.label}: {size:,} bytes is more than the journal keeps of one change ({limit:,})",
            hint="linux_fs_write with allow_unjournaled=true gives up undo; setting: mcp.limits.journal_max_bytes.",
        )

    def make_folders(self, draft: Draft, target: Target, refuse: Callable[[Place], None] | None = None) -> None:
        """Plan the missing directories above a target; `refuse` raises for what must stay."""
        for depth, name in enumerate(target.missing):
            folder = Target(self._files, os.dup(target.dir_fd), target.missing[:depth], name, target.label)
            draft.hold(folder)
            (refuse or self._files.refuse_change)(folder.place)
            if not any(step.record.path == folder.path for step in draft.steps):
                draft.steps.append(Make(folder, MakeRecord(folder.path)))

    # --- names -----------------------------------------------------------------------------------

    def move(self, who: Session, source: str, target: str, overwrite: bool, check: Callable[[], None]) -> Done:
        """Move an entry, also to another file system."""

        def plan(draft: Draft) -> None:
            found = draft.hold(targets.find_entry(self._files, source))
            there = draft.hold(targets.find_entry(self._files, target))
            self._refuse_move(found, there, overwrite, check)
            if there.info is not None:
                self.trash(draft, draft.hold(targets.find_entry(self._files, target)))
            refuse = partial(self.refuse_tree, found, there.path)
            self.rename(draft, Location.of(found), Location.of(there), source, refuse)

        return self._changes.make(who, "move", plan, check)

    def _refuse_move(self, source: Target, target: Target, overwrite: bool, check: Callable[[], None]) -> None:
        source.existing()
        if target.path == source.path:
            raise InvalidArgument(f"{source.label}: source and target are the same")
        if target.path.startswith(f"{source.path}/"):
            raise InvalidArgument(f"{target.label}: lies inside {source.label}")
        if target.kind == "dir":
            raise Conflict(f"{target.label}: a directory is there", hint="Name the new path itself, inside it.")
        if target.info is not None and not overwrite:
            raise Conflict(f"{target.label}: exists already", hint="overwrite=true replaces it; it can be undone.")
        for end in (source, target):
            if self._files.is_secret(end.path):  # under another name it would be readable
                raise refuse_secret(end.label)
        if source.kind == "symlink" and self._files.holds_protected(target.path):
            raise refuse_protected(target.label)
        self.refuse_tree(source, target.path, check)

    def refuse_tree(self, source: Target, target: str, check: Callable[[], None]) -> None:
        """Raise for a folder that holds what must not come to lie below another path."""
        if source.kind == "dir":
            for entry in self._inside(source, check):
                self._refuse_moved(source.path, target, entry)

    def _refuse_moved(self, source: str, target: str, entry: Entry) -> None:
        """Refuse an entry whose protection the move would change; what is protected inside the tree moves along."""
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
            target = draft.hold(targets.find_entry(self._files, path))
            target.existing()
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

    def size(self, target: Target, check: Callable[[], None]) -> int:
        """The size of a file, or of all files in a folder."""
        if target.kind == "dir":
            return sum(entry.size for entry in self._inside(target, check) if entry.kind == "file")
        return target.existing().st_size if target.kind == "file" else 0

    def refuse_delete(self, path: str, check: Callable[[], None]) -> None:
        """Raise if no tool may delete an entry, whatever its caller says."""
        draft = Draft("")
        try:
            target = draft.hold(targets.find_entry(self._files, path))
            target.existing()
            self.weigh(target, check)
        finally:
            draft.close()

    def weigh(self, target: Target, check: Callable[[], None]) -> int:
        """The size of a tree; refuses one that contains something protected."""
        total = target.existing().st_size if target.kind == "file" else 0
        if target.kind == "dir":
            for entry in self._inside(target, check):
                total += entry.size if entry.kind == "file" else 0
                path = os.fsdecode(entry.path)
                if self._files.is_protected(f"{target.path}/{path}"):
                    raise refuse_protected(f"{target.label.rstrip('/')}/{path}")
        return total

    def _inside(self, target: Target, check: Callable[[], None]) -> Iterable[Entry]:
        walk = self._files.walk(target.place, depth=_DEEPEST, include_hidden=True, with_stat=True)
        for number, entry in enumerate(walk):
            if not number % 256:
                check()
            yield entry

    def trash(self, draft: Draft, target: Target, size: int = 0, refuse: Refusal | None = None) -> None:
        """Plan the move of an entry into the trash."""
        entry = self._changes.trash_for(target, f"{draft.id}-{len(draft.steps)}")
        record = self.rename(draft, Location.of(target), draft.hold(entry), target.label, refuse)
        record.bytes = size or (target.existing().st_size if target.kind == "file" else 0)

    def rename(
        self, draft: Draft, source: Location, target: Location, label: str, refuse: Refusal | None = None
    ) -> MoveRecord:
        """Plan a move between two locations: a rename, or a copy if they are on different mounts."""
        info = source.stat()
        if info is None:
            raise NotFound(f"{label}: no longer there")
        copied = targets.mount_of(source.dir_fd) != targets.mount_of(target.dir_fd)
        looks = "" if target.path.startswith(TRASH) else source.fingerprint()
        record = MoveRecord(source.path, target.path, kind_of(info.st_mode), source.inode(), looks, copied=copied)
        draft.steps.append(Move(source, target, record, label, refuse))
        return record

    def mkdirs(self, who: Session, path: str, exist_ok: bool, check: Callable[[], None]) -> Done | None:
        """Make a directory and its parents; None if it exists already."""
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
            target = draft.hold(targets.find_new(self._files, path))
            if target.info is not None:
                raise Conflict(f"{path}: exists already")
            self.make_folders(draft, target)
            draft.steps.append(Make(target, MakeRecord(target.path)))

        return self._changes.make(who, "mkdirs", plan, check)


def _pieces(target: Target, before: bytes | None, data: bytes, *, append: bool) -> Callable[[], Iterable[bytes]]:
    """The new content in pieces; a file too large for memory is streamed when appending."""
    if not append:
        return lambda: [data]
    if before is not None:
        return lambda: [before, data]
    return lambda: chain(targets.pieces_of(target), [data])


def _check_expected(expected: str | None) -> None:
    if expected is None or expected == ABSENT or (len(expected) == 64 and set(expected.lower()) <= _HEX):
        return
    raise InvalidArgument(f"expected_sha256 is 64 hexadecimal digits, or the word {ABSENT!r}")


def _compare(target: Target, expected: str | None) -> None:
    """SHA_MISMATCH for a file that has changed since the caller read it; a missing one is not checked."""
    if expected is None or target.info is None:
        return
    if expected == ABSENT:
        raise Conflict(f"{target.label}: exists already", hint="Read it first, then pass its sha256.")
    if targets.sha256(targets.pieces_of(target)) != expected.lower():
        raise ShaMismatch(f"{target.label}: changed since you read it; nothing was written", hint="Read it again.")


def _encoded(content: str, appended_to: Target | None) -> bytes:
    """The bytes to write: UTF-8, or UTF-16 when appending to a UTF-16 file."""
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
    found = slices.encoding_of(head)
    if found == "utf-16":
        return "utf-16-le" if head.startswith(b"\xff\xfe") else "utf-16-be"
    return found if found in ("utf-16-le", "utf-16-be") else None


def _count(before: bytes, after: bytes) -> tuple[int | None, int | None]:
    """Lines added and removed. Common head and tail are skipped first, so a small edit of a large file is cheap."""
    if b"\0" not in before[:_HEAD] and b"\0" not in after[:_HEAD]:  # in UTF-16 a byte is no line end
        start = before.rfind(b"\n", 0, _common_prefix(before, after)) + 1
        before, after = before[start:], after[start:]
        line_end = before.find(b"\n", len(before) - _common_prefix(before[::-1], after[::-1]))
        alike = len(before) - line_end - 1 if line_end >= 0 else 0
        before, after = before[: len(before) - alike], after[: len(after) - alike]
        if max(before.count(b"\n"), after.count(b"\n")) <= 1 or not before or not after:
            return _lines(after), _lines(before)
    if len(before) + len(after) > _COUNTED_BYTES:
        return None, None
    return count_changes(before, after)


def _lines(data: bytes) -> int:
    return data.count(b"\n") + (data[-1:] not in (b"", b"\n"))


def _common_prefix(one: bytes, other: bytes) -> int:
    """The length of the common prefix of two byte strings."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _image_of(done: Done) -> ContentImage:
    (put,) = [effect for effect in done.effects if isinstance(effect, PutRecord)]
    return put.after
