"""What commands did to the files below the roots, as entries of the journal.

A command changes files by itself, so its entry is made when it has ended: from how the roots looked before it
(`tracking`) and how they look then. A row from before it says that it ran; if the server dies meanwhile, the entry says
that it can't be undone.
"""

import hashlib
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from ..errors import LlmcError
from ..files import names
from ..redaction import clip, redact
from ..session import Session
from ..store.base import Store
from ..store.root_sets import RootSet
from ..tracking.entries import EMPTY, GIT, LINK, OBJECTS, REASONS, SPECIAL, SPOOL, Difference, EntryLook, digest_of
from ..tracking.git_dirs import is_index
from ..tracking.tracker import Tracker, Window
from ..tracking.tree import RootTree
from .image_packs import PACKED_FROM, ImagePacker
from .journal import PreImage, new_id
from .records import PutRecord, Record, paths_of
from .transaction import BACKGROUND, COMMAND, Changes, set_under_way
from .tree import WHOLE_FOLDER, TreeEntry, TreeRecord, TreeState, by_git_name, by_meaning, entries_of, special_state
from .whole_folders import with_moves

_BATCH, _BATCH_BYTES = 200, 64 << 10  # images that are journaled at once, or one that is large
_NAMED_MOST = 5
_WAIT_S = 2.0
_NOTHING = hashlib.sha256(b"").hexdigest()


class CommandChanges(NamedTuple):
    """What a command changed, for its reply. `none` says why nothing of it can be undone."""

    undo_id: str | None = None
    files: int = 0
    none: str = ""
    warnings: tuple[str, ...] = ()


class CommandUndo:
    """Journals what commands do; made once per server."""

    def __init__(self, tracker: Tracker, changes: Changes, store: Store, roots: RootSet) -> None:
        self._tracker, self._changes, self._store, self._roots = tracker, changes, store, roots
        self._journal = changes.journal
        self._open: list[CommandWindow] = []
        self._journaling = threading.RLock()  # one after the other: entries are undone in the order they have
        changes.around = self._around

    @property
    def trees(self) -> list[RootTree]:
        """The roots as far as they are followed."""
        return self._tracker.trees

    def prepare(self) -> None:
        """Look at the roots for the first time, which is not part of a command's time."""
        self._tracker.prepare()

    def begin(self, who: Session, about: str, *, read_only: bool = False) -> "CommandWindow":
        """Before a command starts. One that only reads has no row of its own unless it changes something."""
        self.collect()
        window = CommandWindow(self, who, redact(" ".join(clip(about).split())), self._tracker.open())
        window.read_only, window.since = read_only, self._journal.newest_number()
        self._open.append(window)
        if not read_only:
            window.announce()
        return window

    def collect(self) -> None:
        """Journal what commands in the background have done so far."""
        for window in list(self._open):
            if window.is_over is not None:
                window.look()

    @contextmanager
    def _around(self, records: Sequence[Record]) -> Generator[None]:
        """While a change of our own is published: it is not the doing of a command that runs."""
        paths = {path for record in records for path in _all_paths(record)}

        def is_own(tree: RootTree, path: str) -> bool:
            return _is_or_is_below(f"{names.show(tree.root.real)}/{_shown(path)}", paths)

        if not self._open:
            yield
            return
        with self._journaling, self._tracker.apart(is_own, self._divide):
            yield

    def _divide(self, window: Window) -> None:
        """Journal what a command has done so far: the server is about to change the same files."""
        for one in self._open:
            if one.window is window:
                one.look(earlier=True)
                one.announce()  # what comes now is older than the server's next change

    def start(self, window: "CommandWindow") -> None:
        """Write the row of a command that is about to run."""
        with self._store.transaction(wait_s=_WAIT_S) as connection:
            self._journal.announce(connection, window.id, window.who, COMMAND, self._roots.key, window.about)
        set_under_way(window.id, True)

    def finish(self, window: "CommandWindow", *, last: bool, earlier: bool = False) -> CommandChanges:
        """Journal what a command did since it was last looked at; `earlier`: before a change that is under way."""
        change_id = window.id
        try:
            with self._journaling, self._tracker.taking(window.window, last=last) as found:
                return self._journaled(window, found, earlier=earlier)
        except (LlmcError, OSError) as exc:
            window.renew_id()  # the row that was announced says that it can't be undone
            return CommandChanges(none=exc.message if isinstance(exc, LlmcError) else str(exc))
        finally:
            set_under_way(change_id, False)
            if last and window in self._open:
                self._open.remove(window)

    def _without_others(
        self, window: "CommandWindow", found: dict[tuple[int, str], Difference]
    ) -> dict[tuple[int, str], Difference]:
        """What other processes of ours journaled meanwhile, an undo by a person perhaps, is not the command's doing."""
        others = self._journal.made_by_others(window.since) if found else []
        window.since = self._journal.newest_number()
        paths = {path for change in others for record in change.effects for path in _all_paths(record)}
        if not paths:
            return found
        return {
            (tree, path): one
            for (tree, path), one in found.items()
            if not _is_or_is_below(f"{names.show(self._tracker.trees[tree].root.real)}/{_shown(path)}", paths)
        }

    def _journaled(
        self, window: "CommandWindow", found: dict[tuple[int, str], Difference], *, earlier: bool
    ) -> CommandChanges:
        found = self._without_others(window, found)
        unseen, window.window.unseen = window.window.unseen, {}
        if not found and window.read_only and not unseen:
            window.withdraw()
            return CommandChanges()
        unfollowed = _some([*(f"{path}: {reason}" for path, reason in sorted(unseen.items())), *self._unfollowed()])
        if not found:
            window.withdraw()
            return CommandChanges(none=unfollowed)
        if not window.announced:
            window.announce()
        found, moved = with_moves(found, self.trees)
        records: list[TreeRecord] = []
        entries: dict[int, list[TreeEntry]] = {}
        packer = ImagePacker(self._journal, packs=len(found) >= PACKED_FROM)
        for (number, _), difference in sorted(found.items()):
            tree = self._tracker.trees[number]
            entries.setdefault(number, []).append(self._entry(tree, difference, moved, packer))
            if len(packer.images) >= _BATCH or (packer.images and packer.images[-1].stored > _BATCH_BYTES):
                self._add(window, packer.images)
        packer.flush()
        self._add(window, packer.images)
        for number, of_root in entries.items():
            records.append(TreeRecord(names.show(self._tracker.trees[number].root.real), of_root))
        with self._store.transaction() as connection:
            action = BACKGROUND if window.is_over else COMMAND
            self._journal.complete(connection, window.id, action, records, newest=not earlier)
        self._changes.sync_soon()
        undo_id = window.renew_id()
        beside = 0 if window.is_over else window.window.beside  # in the background there is always somebody
        return _outcome(undo_id, records, beside, unfollowed)

    def _add(self, window: "CommandWindow", images: list[PreImage]) -> None:
        if images:
            with self._store.transaction() as connection:
                self._journal.add_images(connection, window.id, images)
            images.clear()

    def _entry(self, tree: RootTree, difference: Difference, moved: set[bytes], packer: ImagePacker) -> TreeEntry:
        path, before, after = difference
        if before is not None and before.is_whole:
            state = _state(before, _identity(before), "" if before.source in moved else OBJECTS)
            return TreeEntry(_shown(path), state, None if after is None else _after(tree, path, after))
        return TreeEntry(
            _shown(path),
            None if before is None else self._before(tree, path, before, packer),
            None if after is None else _after(tree, path, after),
        )

    def _before(self, tree: RootTree, path: str, look: EntryLook, packer: ImagePacker) -> TreeState:
        if not look.is_file or look.source[:1] == LINK:
            return _state(look, _link_target(look), "" if look.has_content() else REASONS[look.source])
        data = tree.sources.content(path, look)
        if data is None:
            return _state(look, "", REASONS.get(look.source, REASONS[b""]))
        digest, place = packer.add(data)
        return msgspec.structs.replace(_state(look, digest), packed=place)

    def _unfollowed(self) -> list[str]:
        mounts = [f"{tree.root.shown}/{point}" for tree in self._tracker.trees for point in sorted(tree.mounts)]
        return [
            *(f"{root}: {reason}" for root, reason in self._tracker.reasons.items()),
            *(f"{tree.root.shown}/{path}: {why}" for tree in self.trees for path, why in tree.uncovered.items()),
            *([f"mounted below the roots: {', '.join(mounts[:_NAMED_MOST])}"] if mounts else []),
        ]

    def forget(self, window: "CommandWindow") -> None:
        """Delete the row of a command that changed nothing."""
        with self._store.transaction(wait_s=_WAIT_S) as connection:
            self._journal.forget(connection, window.id, "pending")

    def release_idle(self, idle_s: float) -> bool:
        """Forget how the roots look while no command runs."""
        return not self._open and self._tracker.release_idle(idle_s)

    def close(self) -> None:
        """Journal what is still open, and watch no more."""
        for window in list(self._open):
            window.end()
        self._tracker.close()


class CommandWindow:
    """A command from its start to its end; one in the background is looked at more than once."""

    def __init__(self, undo: CommandUndo, who: Session, about: str, window: Window) -> None:
        self._undo, self.who, self.about, self.window = undo, who, about, window
        self.id = new_id()
        self.announced = self.read_only = False
        self.since = 0  # the number of the newest change when it was last looked at
        self.is_over: Callable[[], bool] | None = None  # of a command in the background, whether it has ended
        self._failure = ""
        self._earlier: list[CommandChanges] = []
        self._ended = False

    def announce(self) -> None:
        """Journal that the command runs."""
        try:
            self._undo.start(self)
            self.announced = True
        except LlmcError as exc:
            self._failure = exc.message

    def withdraw(self) -> None:
        """Take the row back: nothing was changed."""
        if self.announced:
            self.announced = False
            self._undo.forget(self)

    def renew_id(self) -> str:
        """The id of the entry that was made; what comes later is another one."""
        made, self.id, self.announced = self.id, new_id(), False
        return made

    def go_on_until(self, is_over: Callable[[], bool]) -> None:
        """The command outlives its call: from now on it is looked at from time to time."""
        self.is_over = is_over

    def look(self, *, earlier: bool = False) -> None:
        """Journal what was done so far, for the next reply to tell; once the command has ended, for the last time."""
        if self._ended:
            return
        self._ended = not earlier and self.is_over is not None and self.is_over()
        found = self._undo.finish(self, last=self._ended, earlier=earlier)
        if found.files or found.none:
            self._earlier.append(found)

    def report(self) -> CommandChanges:
        """Journal what was done so far; what the reply has to say of it."""
        self.look()
        earlier, self._earlier = self._earlier, []
        return _together(earlier)

    def end(self) -> CommandChanges:
        """The same at the end of the command; only the first time tells something."""
        last = CommandChanges() if self._ended else self._undo.finish(self, last=True)
        self._ended = True
        earlier, self._earlier = self._earlier, []
        return _together([*earlier, last])


def _together(found: Sequence[CommandChanges]) -> CommandChanges:
    """Several entries in one reply: the newest id, all files, and the other ids in a warning."""
    ids = [one.undo_id for one in found if one.undo_id]
    warnings = [warning for one in found for warning in one.warnings]
    if len(ids) > 1:
        warnings.append(f"Earlier changes of this process: {', '.join(ids[:-1])}.")
    none = next((one.none for one in found if one.none), "")
    return CommandChanges(ids[-1] if ids else None, sum(one.files for one in found), none, tuple(warnings))


def _some(reasons: Sequence[str]) -> str:
    more = f"; and {len(reasons) - _NAMED_MOST} more" if len(reasons) > _NAMED_MOST else ""
    return "; ".join(reasons[:_NAMED_MOST]) + more


def _outcome(undo_id: str, records: Sequence[TreeRecord], beside: int, unfollowed: str) -> CommandChanges:
    entries = [entry for record in records for entry in entries_of(record)]
    lost = [entry for record in records for entry in record.entries if entry.before and entry.before.missing]
    warnings: list[str] = []
    if lost:
        named = ", ".join(f"{entry.path} ({entry.before.missing})" for entry in lost[:_NAMED_MOST] if entry.before)
        more = f" and {len(lost) - _NAMED_MOST} more" if len(lost) > _NAMED_MOST else ""
        warnings.append(f"Undo does not bring back {named}{more}.")
    if beside:
        warnings.append(f"{beside} other command{'s' * (beside > 1)} ran at the same time: {undo_id} may have theirs.")
    if entries and all(entry.before and entry.before.missing for entry in entries):
        return CommandChanges(undo_id, len(entries), lost[0].before.missing if lost[0].before else "", tuple(warnings))
    return CommandChanges(undo_id, len(entries), unfollowed, tuple(warnings))


def _after(tree: RootTree, path: str, look: EntryLook) -> TreeState:
    kind = look.source[:1]
    if kind == LINK:
        return _state(look, _link_target(look))
    if look.is_whole:
        return _state(look, _identity(look))
    if not look.is_file:
        return _state(look, "", tree.uncovered[path] if path in tree.left_out else "")
    if is_index(path) and (data := tree.sources.content(path, look)) is not None:
        return _state(look, by_meaning(data))
    if kind == SPOOL:
        return _state(look, digest_of(look.source)[1:].hex())
    if kind == GIT:
        return _state(look, by_git_name(look.source[1:]))
    return _state(look, _NOTHING if kind == EMPTY else f"looks:{look.size}.{look.mtime_ns}")


def _state(look: EntryLook, content: str, missing: str = "") -> TreeState:
    if look.source == SPECIAL:
        return special_state(look.mode)
    kind = (
        WHOLE_FOLDER
        if look.is_whole
        else "dir"
        if look.is_folder
        else "file"
        if look.is_file
        else "symlink"
        if look.source[:1] == LINK
        else "other"
    )
    kind = WHOLE_FOLDER if look.is_whole else kind
    size = look.size if kind == "file" else 0
    mtime_ns = 0 if look.is_folder else look.mtime_ns
    return TreeState(kind, look.mode & 0o7777, size, mtime_ns, content, missing)


def _identity(look: EntryLook) -> str:
    return look.source[1:].decode()


def _link_target(look: EntryLook) -> str:
    return names.show(look.source[1:]) if look.source[:1] == LINK else ""


def _shown(path: str) -> str:
    return names.show(path.encode("utf-8", "surrogateescape"))


def _is_or_is_below(path: str, paths: set[str]) -> bool:
    """Whether a path, or a folder that holds it, is one of these."""
    while path and path not in paths:
        path = path.rpartition("/")[0]
    return bool(path)


def _all_paths(record: Record) -> list[str]:
    if isinstance(record, TreeRecord):
        return [f"{record.path}/{entry.path}" for entry in record.entries]
    return [record.path] if isinstance(record, PutRecord) else paths_of(record)
