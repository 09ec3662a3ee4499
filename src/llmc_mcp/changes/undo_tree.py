"""Taking back what a command did to many entries of a root.

Each entry must be as the command left it, or it was changed since: then nothing is taken back, and the files are named.
"""

import os
from collections.abc import Callable, Collection
from typing import NamedTuple

import msgspec

from ..errors import NotADirectory, NotFound, Stale
from ..files.filesystem import Filesystem, Place
from ..tracking.entries import CACHES
from . import targets
from .image_packs import PACKED_FROM, ImagePacker
from .operations import Operations
from .transaction import Changes, Draft
from .tree import (
    WHOLE_FOLDER,
    SeenEntry,
    TreeEntry,
    TreeFolders,
    TreeRecord,
    TreeState,
    TreeStep,
    is_as,
    mode_given_back,
)
from .undo_git import NamedObjects

_NAMED_MOST = 8
_CHECK_EVERY = 64
Force = bool | Collection[str]  # everything, nothing, or the paths whose later changes may be lost


def is_forced(path: str, force: Force) -> bool:
    """Whether a later change of a path may be lost."""
    return force if isinstance(force, bool) else path in force


class Unrestored(NamedTuple):
    """An entry that an undo does not bring back, or not all of it, and why."""

    root: str
    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class TreeUndo:
    """Plans the step that takes entries back."""

    def __init__(self, files: Filesystem, changes: Changes, mutations: Operations) -> None:
        self._files, self._changes, self._mutations = files, changes, mutations
        self._most = changes.journal.limits.change_bytes

    def plan(
        self, draft: Draft, record: TreeRecord, force: Force, coming: Collection[str], check: Callable[[], None]
    ) -> "list[Unrestored]":
        """Plan the step; returns what can't be brought back. Other steps bring what is `coming`."""
        place = self._files.locate(record.path)
        try:
            folders = draft.hold(TreeFolders(self._files.reopen_dir(place)))
        except (NotFound, NotADirectory):
            raise Stale(f"{record.path}: the folder is gone") from None
        plan = _Plan(self, draft, record, folders, coming, check)
        for number, entry in enumerate(record.entries):
            if not number % _CHECK_EVERY:
                check()
            self._refuse_ours(place, entry)
            plan.take(entry, force)
        plan.refuse_conflicts(force)
        plan.finish()
        return plan.left

    def _refuse_ours(self, place: Place, entry: TreeEntry) -> None:
        path = f"{place.real}/{entry.path}"
        self._files.refuse_ours(self._files.locate(path))

    def see(self, folders: TreeFolders, entry: TreeEntry) -> SeenEntry | None:
        """An entry as it is now."""
        try:
            return folders.see(entry.path, self._most, whole_folder=entry.is_whole_folder)
        except OSError as exc:
            raise targets.failed(exc, entry.path) from None

    def image(self, sha256: str) -> bytes:
        """A pre-image."""
        return self._changes.journal.image(sha256)

    def step(
        self, draft: Draft, record: TreeRecord, planned: list[os.stat_result | None], vacated: set[str]
    ) -> TreeStep:
        """The step for the entries of a record."""
        top = self._files.reopen_dir(self._files.locate(record.path))
        return draft.hold(TreeStep(self.image, top, record, planned, frozenset(vacated)))

    def packer(self, record: TreeRecord) -> ImagePacker:
        """Keeps what is about to be replaced, for the redo."""
        return ImagePacker(self._changes.journal, packs=len(record.entries) >= PACKED_FROM)

    def trash(self, draft: Draft, path: str, check: Callable[[], None]) -> None:
        """Move what the journal can't keep to the trash: a large file, or a folder whose content is not followed."""
        target = draft.hold(targets.reopen(self._files, path))
        self._mutations.trash(draft, target, self._mutations.size(target, check))


class _Plan:
    """The entries of one record, as far as they are planned."""

    def __init__(
        self,
        undo: TreeUndo,
        draft: Draft,
        record: TreeRecord,
        folders: TreeFolders,
        coming: Collection[str],
        check: Callable[[], None],
    ) -> None:
        self._undo, self._draft, self._record, self._folders, self._check = undo, draft, record, folders, check
        self._objects = draft.hold(NamedObjects(folders.top, record, coming, undo.image))
        self._packer = undo.packer(record)
        self._returning = record.departures()  # folders that are moved back
        self.left: list[Unrestored] = []
        self._conflicts: list[str] = []
        # A file that was not kept may have been moved: then its new name has the only copy.
        gone = [entry.before for entry in record.entries if entry.before is not None and entry.after is None]
        self._lost = {(state.size, state.mtime_ns) for state in gone if state.missing and state.kind == "file"}
        self._stays: set[str] = set()
        self._vacated: set[str] = set()
        self._entries: list[TreeEntry] = []
        self._planned: list[os.stat_result | None] = []
        self._new_folders: list[tuple[TreeEntry, SeenEntry]] = []

    def take(self, entry: TreeEntry, force: Force) -> None:
        """Plan one entry."""
        if entry.before is None and entry.after is not None and (entry.after.size, entry.after.mtime_ns) in self._lost:
            self._leave(entry, "stays, because it may hold what was not kept")
            self._stays.add(entry.path)
            return
        if entry.before is None and entry.after is not None and entry.after.kind == "dir" and entry.after.missing:
            self._leave(entry, f"stays: {entry.after.missing}")
            self._stays.add(entry.path)
            return
        if entry.before is not None and entry.before.missing:
            self._leave(entry, entry.before.missing)
            return
        if entry.before is not None and mode_given_back(entry.before) != entry.before.mode:
            self._leave(entry, "root gives no set-user-id or set-group-id bit back")
        seen = self._undo.see(self._folders, entry)
        if self._objects.are_missing_for(entry, seen.data if seen else None):
            self._leave(entry, "git has removed objects that it names")
            return
        if is_as(entry.path, seen, entry.before, self._undo.image) and not _has_other_time(seen, entry.before):
            return
        if not is_as(entry.path, seen, entry.after, self._undo.image):
            if is_as(entry.path, seen, entry.before, self._undo.image):
                return  # somebody has brought it back already
            if not is_forced(f"{self._record.path}/{entry.path}", force):
                self._conflicts.append(entry.path)
                return
        if seen is not None and seen.state.kind == "dir" and (entry.before is None or entry.before.kind != "dir"):
            self._new_folders.append((entry, seen))
            return
        self._add(entry.path, seen, entry.before)

    def _leave(self, entry: TreeEntry, reason: str) -> None:
        self.left.append(Unrestored(self._record.path, entry.path, reason))

    def _add(self, path: str, seen: SeenEntry | None, becomes: TreeState | None) -> None:
        moves_back = seen is not None and seen.state.content in self._returning
        unkept = seen is not None and seen.data is None and seen.state.kind in ("file", WHOLE_FOLDER)
        if seen is not None and unkept and not moves_back:
            same = becomes is not None and becomes.content == seen.state.content
            if not same:
                self._undo.trash(self._draft, f"{self._record.path}/{path}", self._check)
                seen = None
                if becomes is None:
                    return
                self._vacated.add(path)
        elif seen is not None and (becomes is None or not becomes.has_content_of(seen.state)):
            seen = self._kept(seen)
        self._entries.append(TreeEntry(path, None if seen is None else seen.state, becomes))
        self._planned.append(None if seen is None else seen.info)

    def _kept(self, seen: SeenEntry) -> SeenEntry:
        if seen.data is None:
            return seen
        return seen._replace(state=msgspec.structs.replace(seen.state, packed=self._packer.add(seen.data)[1]))

    def refuse_conflicts(self, force: Force) -> None:
        """Raise for files that were changed since, and for folders that others have put something into."""
        leaving = {entry.path for entry in self._entries if entry.after is None}
        leaving |= {entry.path for entry, _ in self._new_folders}
        leaving |= {step.record.path[len(self._record.path) + 1 :] for step in self._draft.steps}
        for entry, seen in sorted(self._new_folders, key=lambda one: -one[0].path.count("/")):
            inside = [name for name in self._folders.list(entry.path) if name not in CACHES]
            staying = [f"{entry.path}/{name}" for name in inside if f"{entry.path}/{name}" not in leaving]
            if self._stays.intersection(staying):
                self._stays.add(entry.path)
                leaving.discard(entry.path)
                staying = [path for path in staying if path not in self._stays]
                self._conflicts += staying if not is_forced(f"{self._record.path}/{entry.path}", force) else []
                continue
            if staying and not is_forced(f"{self._record.path}/{entry.path}", force):
                self._conflicts += staying
            elif staying:
                leaving.discard(entry.path)  # it stays with what is in it
            else:
                self._add(entry.path, seen, entry.before)
        if self._conflicts:
            named = ", ".join(sorted(set(self._conflicts))[:_NAMED_MOST])
            more = f" and {len(self._conflicts) - _NAMED_MOST} more" if len(self._conflicts) > _NAMED_MOST else ""
            raise Stale(
                f"{self._record.path}: changed since: {named}{more}; nothing was undone",
                hint="Read them; force=true overrides, or force=[paths] for some.",
            )

    def finish(self) -> None:
        """Add the step."""
        self._packer.flush()
        self._draft.images += self._packer.images
        if self._entries:
            record = TreeRecord(self._record.path, self._entries)
            self._draft.steps.append(self._undo.step(self._draft, record, self._planned, self._vacated))


def _has_other_time(seen: SeenEntry | None, state: TreeState | None) -> bool:
    return seen is not None and state is not None and seen.state.mtime_ns != state.mtime_ns


def refuse_lost(left: list[Unrestored], planned: int, change_id: str) -> None:
    """Raise where nothing of a command can be brought back."""
    if left and not planned:
        hint = "Older changes are undone by their id: linux_fs_changes lists them."
        raise Stale(f"{change_id}: can't be undone: {left[0]}", hint=hint)
