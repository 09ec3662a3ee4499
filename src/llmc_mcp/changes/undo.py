"""Undoing changes, and describing them.

An undo is a change like any other: it is journaled and has an id, so undoing an undo is a redo. It consists of the
inverse steps in reverse order, and is refused as STALE where a file has changed since, unless forced.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from ..errors import Conflict, InvalidPath, LlmcError, NotADirectory, NotFound, Stale
from ..files import names
from ..files.filesystem import Filesystem
from ..session import Session
from ..store.workspaces import is_elsewhere
from ..tracking.commits import CommittedFiles
from ..tracking.git_dirs import is_kept_whole
from . import targets
from .diff import unified
from .journal import Change, refuse_dropped
from .operations import Operations
from .records import TRASH, MakeRecord, MoveRecord, PutRecord, Record, RemoveRecord, SortRecord, left_behind, written_by
from .steps import Branches, Location, Make, Remove, Sort
from .targets import Target
from .transaction import BACKGROUND, Changes, Draft
from .tree import TreeEntry, TreeRecord, entries_of
from .undo_tree import Force, TreeUndo, Unrestored, is_forced, refuse_lost

_NAMED_MOST = 8
_ABOUT_MOST = 60
_SHOWN_BYTES = 2 << 20  # files larger than this are named in a diff, not shown


class Undone(NamedTuple):
    """The outcome of one undo: the change, and either the id that redoes it or why it failed."""

    change: Change
    redo_id: str = ""
    failure: LlmcError | None = None
    left: tuple[Unrestored, ...] = ()


class Undoer:
    """Plans and makes undos."""

    def __init__(self, files: Filesystem, changes: Changes, mutations: Operations) -> None:
        self._files, self._changes, self._mutations = files, changes, mutations
        self._journal = changes.journal
        self._trees = TreeUndo(files, changes, mutations)

    def undo(self, who: Session, change: Change, force: Force, check: Callable[[], None]) -> Undone:
        """Undo one change."""
        refuse_dropped(change)
        if any(map(is_elsewhere, change.roots)):
            raise NotFound(f"{change.id}: was made in a folder that is not on this machine: {', '.join(change.roots)}")
        if change.undone_by is not None:
            raise Stale(f"{change.id}: undone already by {change.undone_by}", hint="Undo that one to redo it.")

        left: list[Unrestored] = []
        force = self._named(force)

        def plan(draft: Draft) -> None:
            draft.undoes = change.id
            left.clear()
            moved = {record.path for record in change.effects if isinstance(record, MoveRecord)}
            for record in reversed(change.effects):
                if isinstance(record, TreeRecord):
                    left.extend(self._trees.plan(draft, record, force, moved, check))
                else:
                    self._take_back(draft, record, is_forced(record.path, force), check)
            refuse_lost(left, len(draft.steps), change.id)
            if not draft.steps:
                raise Stale(f"{change.id}: nothing of it is left to undo")

        return Undone(change, self._changes.make(who, "undo", plan, check).id, left=tuple(left))

    def _named(self, force: Force) -> Force:
        """The paths as the journal has them."""
        return force if isinstance(force, bool) else {self._files.locate(path).real for path in force}

    def undo_newest(self, who: Session, force: Force, check: Callable[[], None]) -> Undone:
        """Undo the newest change of a session."""
        change = self._journal.newest(who)
        if force is False:
            refuse_uncertain(change)
        return self.undo(who, change, force, check)

    def undo_session(self, who: Session, force: Force, check: Callable[[], None]) -> list[Undone]:
        """Undo all changes of a session, newest first; a failure is reported and does not stop the rest."""
        done: list[Undone] = []
        standing = self._journal.of_session(who)
        if force is False:
            self.refuse_committed(standing)
        for change in standing:
            try:
                if force is False:
                    refuse_uncertain(change)
                done.append(self.undo(who, change, force, check))
            except LlmcError as exc:
                if exc.code in ("CANCELLED", "TIMEOUT"):
                    raise
                done.append(Undone(change, failure=exc))
        return done

    def refuse_committed(self, changes: Sequence[Change]) -> None:
        """Raise where files of these changes have been committed since, as they are now."""
        committed: dict[str, list[str]] = {}
        looking = CommittedFiles(self._files)
        try:
            for change in changes:
                for path in (path for record in change.effects for path in written_by(record)):
                    with suppress(InvalidPath, NotFound):  # its root is gone
                        if (commit := looking.commit_of(path, change.at)) is not None:
                            committed.setdefault(commit, []).append(path)
        finally:
            looking.close()
        for commit, paths in committed.items():
            named = ", ".join(list(dict.fromkeys(paths))[:_NAMED_MOST])
            raise Conflict(
                f"committed since, in {commit}: {named}; nothing was undone",
                hint="Undoing would revert committed work: force=true does it, an undo_id takes one change back.",
            )

    def _take_back(self, draft: Draft, record: Record, force: bool, check: Callable[[], None]) -> None:
        if isinstance(record, PutRecord):
            self._take_back_put(draft, record, force)
        elif isinstance(record, MoveRecord):
            self._take_back_move(draft, record, force, check)
        elif isinstance(record, MakeRecord):
            self._take_back_folder(draft, record, force, check)
        elif isinstance(record, SortRecord):
            self._take_back_sort(draft, record, force)
        elif isinstance(record, RemoveRecord):
            target = self._open(draft, record.path, force)
            if target.info is None:
                draft.steps.append(Make(target, MakeRecord(record.path)))
            elif not force:
                raise _changed(record.path)

    def _open(self, draft: Draft, path: str, force: bool) -> Target:
        """The target at a recorded path; STALE if its folder is gone, or with `force` the folder is made again."""
        # Objects of git are protected from file tools; only the undo of a command has moved them.
        of_git = is_kept_whole(os.fsdecode(self._files.locate(path).below))
        refuse = self._files.refuse_ours if of_git else self._files.refuse_change
        try:
            target = draft.hold(targets.reopen(self._files, path))
        except NotADirectory:
            raise Stale(f"{path}: its folder is no folder any more") from None
        except NotFound:
            target = draft.hold(targets.find_new(self._files, path, refuse))
            planned = len(draft.steps)
            coming = {entry for step in draft.steps for entry in _made_by(step.record)}
            self._mutations.make_folders(draft, target, refuse)  # a redo has planned them already
            if any(step.record.path not in coming for step in draft.steps[planned:]) and not force:
                raise Stale(f"{path}: its folder is gone", hint="force=true makes it again.") from None
        refuse(target.place)
        return target

    def _take_back_put(self, draft: Draft, record: PutRecord, force: bool) -> None:
        target = self._open(draft, record.path, force)
        same = target.kind == "file" and targets.sha256(targets.pieces_of(target)) == record.after.sha256
        if not same and not (force and target.kind in ("", "file")):
            raise _changed(record.path)
        if record.before is None:
            if target.info is not None:
                self._mutations.trash(draft, target)
            return
        data = self._journal.image(record.before.sha256)
        mode = record.before.mode if record.mode is not None or target.info is None else None
        self._mutations.put(draft, target, data, mode=mode)

    def _take_back_move(self, draft: Draft, record: MoveRecord, force: bool, check: Callable[[], None]) -> None:
        source = draft.hold(self._location(draft, record.target, force))
        refuse = None
        if source.target is not None:  # a folder may have got other files since it was moved
            refuse = partial(self._mutations.refuse_tree, source.target, record.path)
            if record.path.startswith(TRASH):
                refuse = partial(self._mutations.weigh, source.target)
            refuse(check)
        if source.stat() is None or (record.looks and source.fingerprint() != record.looks and not force):
            raise _changed(record.target)
        target = draft.hold(self._location(draft, record.path, force))
        leaving = [step.record for step in draft.steps if isinstance(step.record, MoveRecord | TreeRecord)]
        vacated = any(record.path in left_behind(one) for one in leaving)
        if target.target is not None and target.target.info is not None and not vacated:
            if not force:
                raise Stale(f"{record.path}: something else is there by now", hint="force=true moves it to the trash.")
            self._mutations.trash(draft, draft.hold(targets.reopen(self._files, record.path)))
        self._mutations.rename(draft, source, target, record.target, refuse).bytes = record.bytes

    def _location(self, draft: Draft, path: str, force: bool) -> Location:
        return (
            self._changes.context.entry(path) if path.startswith(TRASH) else Location.of(self._open(draft, path, force))
        )

    def _take_back_folder(self, draft: Draft, record: MakeRecord, force: bool, check: Callable[[], None]) -> None:
        target = self._open(draft, record.path, force)
        if target.kind != "dir" or target.info is None:
            if not force:
                raise _changed(record.path)
            return
        leaving = {path for step in draft.steps for path in left_behind(step.record)}
        entry = os.open(target.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=target.dir_fd)
        try:
            staying = [
                name for name in os.listdir(entry) if f"{record.path}/{names.show(os.fsencode(name))}" not in leaving
            ]
        finally:
            os.close(entry)
        if staying and not force:
            raise Stale(f"{record.path}: no longer empty", hint="force=true moves it to the trash.")
        if staying:
            weigh = partial(self._mutations.weigh, target)
            self._mutations.trash(draft, target, weigh(check), weigh)
        else:
            draft.steps.append(Remove(target, RemoveRecord(record.path, target.info.st_mode & 0o777)))

    def _take_back_sort(self, draft: Draft, record: SortRecord, force: bool) -> None:
        try:
            branches = draft.hold(Branches(self._files.reopen_dir(self._files.locate(record.path))))
        except (NotFound, NotADirectory):
            raise Stale(f"{record.path}: the folder is gone") from None
        moves: list[tuple[str, str, str]] = []
        for old, new, identity in reversed(record.moves):
            for name in (old, new):
                self._files.refuse_change(self._files.locate(f"{record.path}/{name}"))
            now = branches.look(new)
            if now.partition(".")[2] != identity.partition(".")[2] and not force:  # without the device
                raise _changed(f"{record.path}/{new}")
            if not now:
                continue
            if branches.look(old):
                if not force:
                    raise Stale(f"{record.path}/{old}: something else is there by now", hint="force=true trashes it.")
                self._mutations.trash(draft, draft.hold(targets.reopen(self._files, f"{record.path}/{old}")))
            moves.append((new, old, now))
        if moves:
            draft.steps.append(Sort(self._files, branches, SortRecord(record.path, moves)))

    # --- describing ------------------------------------------------------------------------------

    def texts(self, change: Change, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes | None, bytes]]:
        """For each wanted file that a change wrote: its path, its content before the change, its content now."""
        for record in change.effects:
            if isinstance(record, TreeRecord):
                yield from self._texts_of(record, wanted)
                continue
            if not isinstance(record, PutRecord) or not wanted(record.path) or self._files.is_secret(record.path):
                continue
            try:
                before, after = self._before(record), self._now(record.path)
            except LlmcError:
                continue
            if after is not None:
                yield record.path, before, after

    def _texts_of(self, record: TreeRecord, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes | None, bytes]]:
        for entry in entries_of(record):
            path = f"{record.path}/{entry.path}"
            if entry.after is None or entry.after.kind != "file" or not wanted(path) or self._files.is_secret(path):
                continue
            try:
                before, after = self._before_of(entry), self._now(path)
            except LlmcError:
                continue
            if after is not None:
                yield path, before, after

    def _before_of(self, entry: TreeEntry) -> bytes | None:
        if entry.before is None or entry.before.kind == "dir":
            return None
        if entry.before.missing:
            raise NotFound(entry.before.missing)
        if entry.before.kind == "symlink":
            return entry.before.content.encode()
        return self._journal.image(entry.before.image)

    def diff(
        self, changes: Sequence[Change], check: Callable[[], None] = lambda: None, most: float = float("inf")
    ) -> str:
        """A diff of every file that these changes (newest first) touched: before the first against now.

        Once there are more than `most` characters, no further file is shown.
        """
        shown: list[str] = []
        for piece in self._diffs(changes):
            check()
            if most < 0:
                shown.append("# more files were changed than are shown at once\n")
                break
            shown.append(piece)
            most -= len(piece)
        return "".join(shown)

    def _diffs(self, changes: Sequence[Change]) -> Iterator[str]:
        first: dict[str, PutRecord | MoveRecord | TreeEntry] = {}
        for change in reversed(changes):
            for record in change.effects:
                if isinstance(record, SortRecord):
                    yield f"# {self._shown(record.path)}: {len(record.moves):,} files moved within it\n"
                if isinstance(record, TreeRecord):
                    for entry in entries_of(record):
                        first.setdefault(f"{record.path}/{entry.path}", entry)
                if isinstance(record, PutRecord | MoveRecord) and not record.path.startswith(TRASH):
                    first.setdefault(record.path, record)
        for path, record in first.items():
            shown = self._shown(path)
            if isinstance(record, MoveRecord) and not record.target.startswith(TRASH):
                yield f"rename from {shown}\nrename to {self._shown(record.target)}\n"
            elif self._files.is_secret(path):
                yield f"# {shown}: holds secrets, not shown\n"
            elif isinstance(record, MoveRecord) and record.kind != "file":
                yield f"# {shown}: {record.kind} deleted\n"
            else:
                yield self._diff_of(path, shown, record)

    def _diff_of(self, path: str, shown: str, record: PutRecord | MoveRecord | TreeEntry) -> str:
        try:
            before = self._before_of(record) if isinstance(record, TreeEntry) else self._before(record)
            after = self._now(path)
        except LlmcError as exc:
            return f"# {shown}: {exc.message}\n"
        if len(before or b"") + len(after or b"") > _SHOWN_BYTES:
            return f"# {shown}: {len(before or b''):,} bytes became {len(after or b''):,}, too many to show\n"
        return unified(before, after, shown)

    def _before(self, record: PutRecord | MoveRecord) -> bytes | None:
        if isinstance(record, PutRecord):
            if record.before is None:
                return None
            return self._journal.image(record.before.sha256)
        location = self._changes.context.entry(record.target)
        try:
            fd = os.open(
                location.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=location.dir_fd
            )
        except OSError:
            raise NotFound("no longer in the trash") from None
        finally:
            location.close()
        try:
            return os.pread(fd, _SHOWN_BYTES + 1, 0)
        except IsADirectoryError:  # a forced redo may have put a folder there
            raise NotFound("a folder took its place in the trash") from None
        finally:
            os.close(fd)

    def _now(self, path: str) -> bytes | None:
        try:
            target = targets.reopen(self._files, path)
        except NotFound:
            return None
        try:
            if target.info is None:
                return None
            if target.kind != "file":
                raise InvalidPath("no regular file any more")
            data = targets.read_all(target, _SHOWN_BYTES)
        finally:
            target.close()
        if data is None:
            raise InvalidPath("too large to show")
        return data

    def _shown(self, path: str) -> str:
        """A path as a diff spells it: relative to the first root that contains it."""
        try:
            return names.show(self._files.locate(path).below)
        except LlmcError:
            return path.lstrip("/")


def _made_by(record: Record) -> list[str]:
    """The folders that a step makes."""
    if not isinstance(record, TreeRecord):
        return []
    return [f"{record.path}/{one.path}" for one in record.entries if one.after is not None and one.after.kind == "dir"]


def refuse_uncertain(change: Change) -> None:
    """Raise for a change that nobody named and may be a person's: it came while a command ran in the background."""
    if change.action == BACKGROUND:
        paths = [path for record in change.effects for path in written_by(record)] or [change.about]
        raise Conflict(
            f"{change.id}: made while {change.about[:_ABOUT_MOST]!r} ran in the background, by it or by somebody else:"
            f" {', '.join(paths[:_NAMED_MOST])}; nothing of it was undone",
            hint=f"If it is to be undone: undo_id={change.id}.",
        )


def _changed(path: str) -> Stale:
    return Stale(f"{path}: changed since; nothing was undone", hint="Read it; force=true overrides.")
