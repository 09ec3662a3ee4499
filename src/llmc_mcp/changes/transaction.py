"""The protocol of a change: lease and journal the intent, prepare, publish, then mark it as done.

    1  lease + intent    durable; pre-images are in the journal before anything changes
    2  prepare           write new content beside its target and sync it; may take long
    3  publish           check the leases, verify the targets, rename: while holding the store's write lock
    4  sync              the directories in which entries were renamed
    5  done + release    durable, before the reply

Phase 3 holds the write lock, so nobody can take over a lease between its check and the renames. Everything that waits
for the disk happens without it, so that servers don't wait for each other's syncs. A change that a killed process left
between 1 and 5 is settled by the next one: if all of it is visible it counts as done, otherwise it is taken back. No
file is ever left in between.

The folder of a rename is synced before the change is marked as done. Where a change replaces a single file, both are
synced at the same time, and the reply waits for both. After a power cut in between, the mark may be there without the
rename: until a later transaction confirms it, the change is listed with its leftovers, and whoever finds it there after
another boot, with the replaced file untouched, forgets it.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from typing import NamedTuple, Protocol, TypeVar

from ..errors import LlmcError, NotADirectory, NotFound, ResourceBusy, Stale
from ..files.filesystem import Filesystem
from ..session import Session
from ..store.base import Connection, Store
from ..store.leases import CRIT_CODE, Lease, LeaseKey, Leases, Queue, alive, is_local, own_process
from ..store.root_sets import RootSet
from ..store.waiting import BUSY_S
from ..store.workspaces import is_elsewhere
from . import targets
from .journal import Change, Journal, Leftover, PreImage, new_id
from .records import TRASH, PutRecord, Record, is_lost, leftovers_of, locks_all_below, paths_of
from .steps import Location, SharedTrash, Step, StepContext, from_record, looks_of, was_published

_SHARED = f"{TRASH}/"  # how the path of an entry of a workspace's trash begins
_under_way: set[str] = set()  # the changes that this process is making
COMMAND = "command"  # the action of what a command did
BACKGROUND = "background"  # of what happened while one ran in the background: somebody else may have done it
_UNKNOWN_COMMAND_S = 86_400  # after which a command of a process that can't be seen counts as over
_UNKNOWN_SERVER_S = 300  # after which what a server on another machine had still to remove counts as given up
_SYNCS = 4  # files of one change that are synced in parallel
_SETTLING_S = 1.0  # how long settling a change waits for other writers: the next change settles it as well
_LEFTOVERS_S = 1.0  # between two looks for leftovers of killed processes
_RACES = 50  # replanning attempts when files change before the intent is journaled


class OpenResource(Protocol):
    """Something that holds file descriptors; close() may be called more than once."""

    def close(self) -> None: ...


Holder = TypeVar("Holder", bound=OpenResource)


class Draft:
    """A change being planned: its steps in order, and the pre-images that must be journaled before the first."""

    def __init__(self, change_id: str) -> None:
        self.id = change_id
        self.steps: list[Step] = []
        self.images: list[PreImage] = []
        self.undoes: str | None = None
        self._open: list[OpenResource] = []

    def hold(self, opened: Holder) -> Holder:
        """Keep something open until the change is made or abandoned."""
        self._open.append(opened)
        return opened

    def close(self) -> None:
        """Close everything that is held."""
        for opened in self._open:
            opened.close()


class Done(NamedTuple):
    """A change that was made."""

    id: str
    effects: list[Record]


def set_under_way(change_id: str, under_way: bool) -> None:
    """Say whether this process works on a change that is pending."""
    if under_way:
        _under_way.add(change_id)
    else:
        _under_way.discard(change_id)


class Changes:
    """Makes changes, and settles those that killed processes left half-done."""

    def __init__(
        self, files: Filesystem, store: Store, journal: Journal, leases: Leases, roots: RootSet, wait_s: float
    ) -> None:
        self._files, self._store, self.journal, self.leases = files, store, journal, leases
        self._roots, self._wait_s = roots, wait_s
        self._trash_fd = os.open(journal.trash, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.context = StepContext(files, self._trash_fd, journal.image)
        self._pool = ThreadPoolExecutor(_SYNCS, thread_name_prefix="sync")
        self._cleared = False
        self._confirmed: list[str] = []  # leftovers of changes that are on the disk as a whole
        self._look_at = 0.0  # when to look for leftovers again
        self._resisting: set[str] = set()  # leftovers that this process could not remove
        self._lock = threading.Lock()
        self.around: Callable[[Sequence[Record]], AbstractContextManager[object]] = nullcontext  # each publication

    # --- making ----------------------------------------------------------------------------------

    def make(self, who: Session, action: str, plan_steps: Callable[[Draft], None], check: Callable[[], None]) -> Done:
        """Plan a change and carry it out; plan again when another change gets there first."""
        self._renew_trash()
        self.settle_abandoned()
        change_id, queue, races, first = new_id(), Queue(self._store, self._wait_s, check), 0, True
        while True:
            check()
            plan = Draft(change_id)
            try:
                plan_steps(plan)
                self._begin(plan, at_once=first)
                first = False  # later attempts don't write the content ahead of the lease again
                verdict = self._intend(who, action, plan, check)
                if isinstance(verdict, list):
                    return self._carry_out(plan, verdict)
            finally:
                plan.close()
            if verdict is None:
                races += 1
                if races > _RACES:
                    raise Stale(f"{plan.steps[0].label}: keeps changing while we look", hint="Try again.")
            elif not self.leases.is_over(verdict) or not self.settle(verdict.purpose):
                queue.wait(verdict, self._name_of(verdict, plan.steps[0].label))

    def trash_for(self, target: targets.Target, name: str) -> Location:
        """Where an entry goes that is deleted: where machines share the store, into the trash of its own root."""
        shared = bool(self._store.workspaces.names)
        return SharedTrash(target.place.root, name) if shared else self.context.entry(f"{TRASH}{name}")

    def _renew_trash(self) -> None:
        """Open the trash again where somebody deleted the data directory; its descriptor keeps its number."""
        if os.fstat(self._trash_fd).st_nlink == 0:
            self.journal.make_folders()
            fd = os.open(self.journal.trash, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            os.dup2(fd, self._trash_fd, inheritable=False)
            os.close(fd)

    def _keys(self, effects: Sequence[Record]) -> list[LeaseKey]:
        """One key per path; moving or removing a directory locks everything in it."""
        trees: dict[str, bool] = {}
        for effect in effects:
            for path in paths_of(effect):
                trees[path] = trees.get(path, False) or locks_all_below(effect)
        stored = self._store.workspaces.stored
        return [LeaseKey(f"code:{stored(path)}", tree) for path, tree in trees.items()]

    def _name_of(self, lease: Lease, label: str) -> str:
        """How a message calls a conflicting lease, without revealing a path outside the roots."""
        kind, _, name = lease.key.partition(":")
        path = self._store.workspaces.local(name)
        return f"{kind}:{path}" if self._roots.holds(path) else f"{label}: a folder that holds it"

    def _begin(self, plan: Draft, *, at_once: bool) -> None:
        for number, step in enumerate(plan.steps):
            step.temporary = _temporary(plan.id, number)
            try:
                if at_once:
                    step.begin(self._pool)
            except OSError as exc:
                raise targets.failed(exc, step.label) from None

    def _intend(self, who: Session, action: str, plan: Draft, check: Callable[[], None]) -> list[int] | Lease | None:
        """Tokens once the intent is journaled, the lease that conflicts, or None when the plan is out of date."""
        effects = [step.record for step in plan.steps]
        try:
            with self._store.transaction(durable=True, check=check) as connection:
                confirmed, self._confirmed = self._confirmed, []
                for path in confirmed:
                    self.journal.removed(connection, path)
                taken = self.leases.claim(connection, CRIT_CODE, self._keys(effects), who, plan.id)
                if isinstance(taken, Lease):
                    return taken
                for step in plan.steps:
                    step.verify()
                journaled = self.journal.intend(
                    connection,
                    plan.id,
                    who,
                    action=action,
                    roots=self._roots.key,
                    effects=effects,
                    images=plan.images,
                    undoes=plan.undoes,
                )
                if not journaled:
                    raise _OutOfDate
                _under_way.add(plan.id)
                return taken()
        except BaseException as exc:
            _under_way.discard(plan.id)
            if isinstance(exc, _OutOfDate | Stale):
                return None
            raise

    def _carry_out(self, plan: Draft, tokens: list[int]) -> Done:
        """Make a journaled change. From here on it can't be cancelled: it is made, or taken back with an error."""
        effects = [step.record for step in plan.steps]
        renewal = _LeaseRenewal(self.leases, tokens)
        label, state = plan.steps[0].label, "pending"
        left, syncs = _leftovers(plan.id, effects), list[Future[None]]()
        late = [] if left else _replaced_beside(plan)
        try:
            for step in plan.steps:
                label = step.label
                step.prepare(renewal)
            with self.around(effects), self._store.transaction() as connection:
                self._refuse_lost_lease(connection, tokens, label)
                for step in plan.steps:
                    label = step.label
                    step.verify()
                for step in plan.steps:
                    label = step.label
                    step.publish()
                    step.visible = True
                for step in plan.steps:
                    step.retire()
            syncs = self._begin_sync([fd for step in plan.steps for fd in step.folders()])
            if not late:
                _finish(syncs)
            with self._store.transaction() as connection:
                found = self.journal.done(connection, plan.id, effects, [*left, *late])
                if found is None:
                    raise self._taken_back(plan)
                left = found
                self.leases.release(connection, tokens)
            state = "done"
            self._store.sync()  # before the reply, or a power cut may revert it afterwards
            _finish(syncs)
        except BaseException as exc:
            wait(syncs)
            self._take_back(plan, tokens, state, renewal)
            if isinstance(exc, OSError):
                raise targets.failed(exc, label) from None
            raise
        finally:
            _under_way.discard(plan.id)
        self._confirmed += late
        self._clear_up([path for path in left if path not in late])
        return Done(plan.id, effects)

    def sync_soon(self) -> None:
        """Bring the journal to the disk without waiting for it: what a command changed is not there yet either."""
        self._pool.submit(self._sync_journal)

    def _sync_journal(self) -> None:
        with suppress(OSError, LlmcError):
            self._store.sync()
            self.journal.remove_released()

    def _begin_sync(self, folders: Sequence[int]) -> "list[Future[None]]":
        """Sync directories, each once, several at a time: the file system writes them together."""
        by_inode = {(info.st_dev, info.st_ino): fd for fd in folders for info in (os.fstat(fd),)}
        return [self._pool.submit(os.fsync, fd) for fd in by_inode.values()]

    def _clear_up(self, left: Sequence[str]) -> None:
        """Remove what the journal let go of and what a change left; what resists is tried again, no failure."""
        with suppress(OSError, LlmcError):
            self.journal.remove_released()
        for path in left:
            with suppress(OSError, LlmcError):  # its row stays, for a later process
                self._remove_leftover(self.context, path)

    def _remove_leftover(self, context: StepContext, path: str) -> None:
        """Remove a leftover, then its row; a crash in between leaves a row that means nothing any more."""
        if is_lost(path):
            return
        with suppress(NotFound, NotADirectory), closing(context.entry(path)) as location:
            targets.remove_tree(location.dir_fd, location.name)
            os.fsync(location.dir_fd)
        with self._store.transaction() as connection:
            self.journal.removed(connection, path)

    def _refuse_lost_lease(self, connection: Connection, tokens: Sequence[int], label: str) -> None:
        if not self.leases.holds(connection, tokens):
            raise ResourceBusy(
                f"{label}: another agent took over while this change was under way; nothing was changed",
                hint="Read it again and retry.",
            )

    def _taken_back(self, plan: Draft) -> ResourceBusy:
        """A change whose syncs outlast its leases may be settled by another process, and taken back if files differ."""
        for step in plan.steps:
            step.visible = False  # whatever is there now is not this change's
        return ResourceBusy(
            f"{plan.steps[0].label}: this change took too long, and another agent took it back",
            hint="Read it again and retry.",
        )

    def _take_back(self, plan: Draft, tokens: Sequence[int], state: str, renewal: "_LeaseRenewal") -> None:
        """Undo a failed change through its open descriptors or, if that fails, through its recorded paths.

        One whose leases may be over belongs to whoever settles it: the files may have got newer content meanwhile.
        """
        try:
            if renewal.is_overdue():
                raise ResourceBusy("its leases may be over")
            for step in reversed(plan.steps):
                step.withdraw()
                step.clean()
            with self._store.transaction(wait_s=_SETTLING_S) as connection:
                self.journal.forget(connection, plan.id, state)
                self.leases.release(connection, tokens)
            self._clear_up([])
        except (OSError, LlmcError):
            with suppress(OSError, LlmcError):  # the next change tries again
                self.settle(plan.id, finish=False)

    # --- settling --------------------------------------------------------------------------------

    def settle_abandoned(self) -> None:
        """Settle what killed processes left half-done. Before every change: another server may die at any time.

        Where the database is another machine's, every second: what is in the way of a change has leases, and is found.
        """
        if not self._lock.acquire(timeout=BUSY_S):
            raise ResourceBusy("half-done changes are being settled", hint="Try again.")
        try:
            if not self._cleared:
                self.journal.clear_leftovers()
                self._cleared = True
            due = time.monotonic() >= self._look_at
            for change in self.journal.pending() if due or not self._store.workspaces.names else ():
                if self._is_here(change.roots, change.effects) and self._is_abandoned(change):
                    self.settle(change.id)
            if due:
                self._look_at = time.monotonic() + _LEFTOVERS_S
                self._remove_leftovers()
        finally:
            self._lock.release()

    def _remove_leftovers(self) -> None:
        for leftover in self.journal.leftovers():
            if leftover.path not in self._resisting and self._is_given_up(leftover):
                try:
                    context = self._context_of(leftover.roots, [leftover.path])
                    if not is_local(leftover.process):
                        self._forget_lost(context, leftover)
                    self._remove_leftover(context, leftover.path)
                except (OSError, LlmcError):  # its root may be gone, or on a disk that is not there now
                    self._resisting.add(leftover.path)

    def _forget_lost(self, context: StepContext, leftover: Leftover) -> None:
        """Forget a change that a power cut kept from the disk: its file is the one that it should have replaced."""
        with self._store.transaction(durable=True, wait_s=_SETTLING_S) as connection:
            change = self.journal.of_temporary(os.path.basename(leftover.path))
            if change is None or len(change.effects) != 1 or not isinstance(change.effects[0], PutRecord):
                return
            with suppress(OSError, LlmcError), closing(context.entry(change.effects[0].path)) as location:
                info = location.stat()
                if info is not None and looks_of(info) == change.effects[0].replaces:
                    self.journal.forget(connection, change.id, "done")

    def _is_given_up(self, leftover: Leftover) -> bool:
        """Whether nobody is removing a leftover; where that can't be seen, two may do it at once."""
        if leftover.process == own_process() or is_lost(leftover.path):
            return False
        if is_local(leftover.process):
            return not alive(leftover.process)
        if not self._store.workspaces.names:
            return True
        change = self.journal.of_temporary(os.path.basename(leftover.path))  # of a server on another machine
        return change is None or self._store.now() - change.at > _UNKNOWN_SERVER_S

    def _is_here(self, roots: Sequence[str], effects: Sequence[Record]) -> bool:
        """Whether this server may settle a change: it has the files, and locks out whoever is making it.

        A server of another project has its own lock in a store of several machines.
        """
        if any(is_lost(path) for effect in effects for path in paths_of(effect)):
            return False
        if not self._store.workspaces.names:
            return True
        made_under = RootSet(roots)
        return any(map(self._roots.holds, roots)) or any(map(made_under.holds, self._roots.paths))

    def _is_abandoned(self, change: Change) -> bool:
        """Whether nobody works on a change: its process is dead or, where that can't be seen, its leases are over.

        After a reboot or in another container the process of a change is unknown, and nothing but time can tell.
        """
        if change.process == own_process():
            return change.id not in _under_way
        if is_local(change.process):
            return not alive(change.process)
        if change.action == COMMAND:  # it has no lease
            return self._store.now() - change.at > _UNKNOWN_COMMAND_S
        return all(self.leases.is_over(lease) for lease in self.leases.of_purpose(change.id))

    def settle(self, change_id: str, *, finish: bool = True) -> bool:
        """Finish or take back a change that is abandoned or whose leases are over; False if it is not for us to do.

        Without `finish`, for the process that failed to make it, it is taken back even if all of it is visible.
        """
        left: list[str] = []
        with self._store.transaction(durable=True, wait_s=_SETTLING_S) as connection:
            self.journal.hold(connection, change_id)
            pending = [change for change in self.journal.pending() if change.id == change_id]
            if pending and not self._is_here(pending[0].roots, pending[0].effects):
                return False
            over = all(self.leases.is_over(lease) for lease in self.leases.of_purpose(change_id))
            if pending and finish and not over and not self._is_abandoned(pending[0]):
                return False
            if pending:
                left = self._settle(connection, pending[0], finish)
            self.leases.release_purpose(connection, change_id)
        self._clear_up(left)
        return True

    def _settle(self, connection: Connection, change: Change, finish: bool) -> list[str]:
        """Finish a change that is wholly visible, else withdraw it from the last step back.

        Returns what is to be removed then.
        """
        if change.action == COMMAND:
            self.journal.lose(connection, change.id)
            return []
        try:
            context = self._context_of(change.roots, [path for effect in change.effects for path in paths_of(effect)])
            steps = [(record, _temporary(change.id, number)) for number, record in enumerate(change.effects)]
            visible = [was_published(context, *step) for step in steps]
            finish = finish and all(visible)
            for published, (record, temporary) in reversed(list(zip(visible, steps, strict=True))):
                step = from_record(context, record, temporary)
                if step is None:
                    continue
                try:
                    step.visible = published
                    if finish:
                        step.retire()
                    else:
                        step.withdraw()
                        step.clean()
                    _finish(self._begin_sync(step.folders()))  # the row is durable, so the files must be as well
                finally:
                    step.close()
            if finish:
                left = _leftovers(change.id, change.effects)
                return self.journal.done(connection, change.id, change.effects, left) or []
            self.journal.forget(connection, change.id, "pending")
        except (OSError, LlmcError):
            self.journal.failed(connection, change.id)
        return []

    def _context_of(self, roots: list[str], paths: Sequence[str]) -> StepContext:
        """A context that reaches the paths of a change: its roots may differ from this server's."""
        files = self._files
        try:
            for path in paths:
                if (folder := path.removeprefix(TRASH)).startswith("/"):
                    self._files.locate(folder)
        except LlmcError:
            here = [root for root in roots if not is_elsewhere(root)]
            here += [os.path.dirname(os.path.dirname(path[len(TRASH) :])) for path in paths if path.startswith(_SHARED)]
            files = Filesystem(list(dict.fromkeys(here)), self._files.access)
        return StepContext(files, self._trash_fd, self.journal.image)

    def empty_trash(self, entries: Sequence[str]) -> None:
        """Remove trash entries permanently; the changes that trashed them can no longer be undone."""
        for entry in entries:
            with self._store.transaction() as connection:
                left = self.journal.empty_trash(connection, entry)
            self._remove_leftover(self._context_of([], [left]), left)

    def close(self) -> None:
        """Stop the sync threads and close the trash."""
        self._pool.shutdown()
        os.close(self._trash_fd)


class _OutOfDate(Exception):
    """The files that a plan was made from have changed."""


class _LeaseRenewal:
    """Renews the leases of a change during long work; called between pieces of it."""

    def __init__(self, leases: Leases, tokens: Sequence[int]) -> None:
        self._leases, self._tokens = leases, tokens
        self._since = time.monotonic()

    def __call__(self) -> None:
        if time.monotonic() >= self._since + self._leases.ttl_s / 3:
            since = time.monotonic()
            self._leases.renew(self._tokens)
            self._since = since

    def is_overdue(self) -> bool:
        """Whether the leases may be over already, as far as this process can tell without the store."""
        return time.monotonic() >= self._since + self._leases.ttl_s


def _temporary(change_id: str, number: int) -> bytes:
    return f".llmc-{change_id}-{number}.tmp".encode()


def _leftovers(change_id: str, effects: Sequence[Record]) -> list[str]:
    return leftovers_of([(record, _temporary(change_id, number)) for number, record in enumerate(effects)])


def _replaced_beside(plan: Draft) -> list[str]:
    """The temporary path of a change that does nothing but replace one file, which the journal keeps."""
    record = plan.steps[0].record
    if len(plan.steps) > 1 or plan.undoes or not isinstance(record, PutRecord) or not record.before:
        return []
    return [f"{os.path.dirname(record.path)}/{_temporary(plan.id, 0).decode()}"]


def _finish(syncs: "Sequence[Future[None]]") -> None:
    """Wait for all, since the descriptors must stay open until then; the first error is raised."""
    wait(syncs)
    for sync in syncs:
        sync.result()
