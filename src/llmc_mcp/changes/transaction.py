"""The protocol of a change: lease and journal the intent, prepare, publish, then mark it as done.

    1  lease + intent    durable; pre-images are in the journal before anything changes
    2  prepare           write new content beside its target and sync it; may take long
    3  publish           check the leases, verify the targets, rename: while holding the store's write lock
    4  sync              the directories in which entries were renamed
    5  done + release    durable, before the reply

Phase 3 holds the write lock, so nobody can take over a lease between its check and the renames. Everything that waits
for the disk happens without it, so that servers don't wait for each other's syncs. A change that a killed process left
between 1 and 5 is settled by the next one: if all of it is visible it counts as done, otherwise it is taken back. No
file is ever left in between: what is marked as done was synced before.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple, Protocol, TypeVar

from ..errors import LlmcError, ResourceBusy, Stale
from ..files.filesystem import Filesystem
from ..session import Session
from ..store.leases import CRIT_CODE, Lease, LeaseKey, Leases, Queue, alive, is_local, own_process
from ..store.root_sets import RootSet
from ..store.sqlite import BUSY_S, Store
from . import targets
from .journal import Change, Journal, PreImage, new_id
from .steps import MoveRecord, Record, SortRecord, Step, StepContext, from_record, paths_of, was_published

_under_way: set[str] = set()  # the changes that this process is making
_SYNCS = 4  # files of one change that are synced in parallel
_SETTLING_S = 1.0  # how long settling a change waits for other writers: the next change settles it as well
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
        self._lock = threading.Lock()

    # --- making ----------------------------------------------------------------------------------

    def make(self, who: Session, action: str, plan_steps: Callable[[Draft], None], check: Callable[[], None]) -> Done:
        """Plan a change and carry it out; plan again when another change gets there first."""
        self.settle_abandoned()
        change_id, queue, races, first = new_id(), Queue(self._wait_s, check), 0, True
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
            elif verdict.over:
                self.settle(verdict.purpose)
            else:
                queue.wait(verdict, self._name_of(verdict, plan.steps[0].label))

    def _name_of(self, lease: Lease, label: str) -> str:
        """How a message calls a conflicting lease, without revealing a path outside the roots."""
        inside = self._roots.holds(lease.key.partition(":")[2])
        return lease.key if inside else f"{label}: a folder that holds it"

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
                taken = self.leases.take(connection, CRIT_CODE, _keys(effects), who, plan.id)
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
                return taken
        except BaseException as exc:
            _under_way.discard(plan.id)
            if isinstance(exc, _OutOfDate | Stale):
                return None
            raise

    def _carry_out(self, plan: Draft, tokens: list[int]) -> Done:
        """Make a journaled change. From here on it can't be cancelled: it is made, or taken back with an error."""
        effects = [step.record for step in plan.steps]
        renewal = _LeaseRenewal(self.leases, tokens)
        label = plan.steps[0].label
        try:
            for step in plan.steps:
                label = step.label
                step.prepare(renewal)
            with self._store.transaction() as connection:
                self._refuse_lost_lease(connection, tokens, label)
                for step in plan.steps:
                    label = step.label
                    step.verify()
                for step in plan.steps:
                    label = step.label
                    step.publish()
                    step.visible = True
            for step in plan.steps:
                step.sync()
            with self._store.transaction() as connection:
                self._refuse_taken_back(connection, plan)
                trimmed = self.journal.done(connection, plan.id, effects)
                self.leases.release(connection, tokens)
        except BaseException as exc:
            self._take_back(plan, tokens)
            if isinstance(exc, OSError):
                raise targets.failed(exc, label) from None
            raise
        finally:
            _under_way.discard(plan.id)
        with suppress(OSError):  # the change is made; what can't be removed now is litter, not a failure
            for step in plan.steps:
                step.clean()
        self._store.sync()  # before the reply, or a power cut may revert it afterwards
        self._clear_up(trimmed)
        return Done(plan.id, effects)

    def _clear_up(self, trimmed: Sequence[str]) -> None:
        """Remove what the journal let go of, and entries trimmed from the trash; what resists is litter, no failure."""
        with suppress(OSError, LlmcError):
            self.journal.remove_released()
        with suppress(OSError):
            for entry in trimmed:
                targets.remove_tree(self._trash_fd, os.fsencode(entry))

    def _refuse_lost_lease(self, connection: sqlite3.Connection, tokens: Sequence[int], label: str) -> None:
        if not self.leases.holds(connection, tokens):
            raise ResourceBusy(
                f"{label}: another agent took over while this change was under way; nothing was changed",
                hint="Read it again and retry.",
            )

    def _refuse_taken_back(self, connection: sqlite3.Connection, plan: Draft) -> None:
        """A change whose syncs outlast its leases may be settled by another process, and taken back if files differ."""
        if not self.journal.knows(connection, plan.id):
            for step in plan.steps:
                step.visible = False  # whatever is there now is not this change's
            raise ResourceBusy(
                f"{plan.steps[0].label}: this change took too long, and another agent took it back",
                hint="Read it again and retry.",
            )

    def _take_back(self, plan: Draft, tokens: Sequence[int]) -> None:
        """Undo a failed change through its open descriptors or, if that fails, through its recorded paths."""
        try:
            for step in reversed(plan.steps):
                step.withdraw()
                step.clean()
            with self._store.transaction(wait_s=_SETTLING_S) as connection:
                self.journal.forget(connection, plan.id)
                self.leases.release(connection, tokens)
            self._clear_up([])
        except (OSError, LlmcError):
            with suppress(OSError, LlmcError):  # the next change tries again
                self.settle(plan.id, finish=False)

    # --- settling --------------------------------------------------------------------------------

    def settle_abandoned(self) -> None:
        """Settle what killed processes left half-done. Before every change: another server may die at any time."""
        if not self._lock.acquire(timeout=BUSY_S):
            raise ResourceBusy("half-done changes are being settled", hint="Try again.")
        try:
            if not self._cleared:
                self.journal.clear_leftovers()
                self._cleared = True
            for change in self.journal.pending():
                if self._is_abandoned(change):
                    self.settle(change.id)
        finally:
            self._lock.release()

    def _is_abandoned(self, change: Change) -> bool:
        """Whether nobody works on a change: its process is dead or, where that can't be seen, its leases are over.

        After a reboot or in another container the process of a change is unknown, and nothing but time can tell.
        """
        if change.process == own_process():
            return change.id not in _under_way
        if is_local(change.process):
            return not alive(change.process)
        return all(lease.over for lease in self.leases.of_purpose(change.id))

    def settle(self, change_id: str, *, finish: bool = True) -> bool:
        """Finish or take back a change that is abandoned or whose leases are over; False for any other.

        Without `finish`, for the process that failed to make it, it is taken back even if all of it is visible.
        """
        trimmed: list[str] = []
        with self._store.transaction(durable=True, wait_s=_SETTLING_S) as connection:
            pending = [change for change in self.journal.pending() if change.id == change_id]
            over = all(lease.over for lease in self.leases.of_purpose(change_id))
            if pending and finish and not over and not self._is_abandoned(pending[0]):
                return False
            if pending:
                trimmed = self._settle(connection, pending[0], finish)
            self.leases.release_purpose(connection, change_id)
        self._clear_up(trimmed)
        return bool(pending)

    def _settle(self, connection: sqlite3.Connection, change: Change, finish: bool) -> list[str]:
        """Finish a change that is wholly visible, else withdraw it from the last step back.

        Returns the trash entries to remove.
        """
        try:
            context = StepContext(self._files_of(change), self._trash_fd, self.journal.image)
            steps = [(record, _temporary(change.id, number)) for number, record in enumerate(change.effects)]
            visible = [was_published(context, *step) for step in steps]
            finish = finish and all(visible)
            for published, (record, temporary) in reversed(list(zip(visible, steps, strict=True))):
                step = from_record(context, record, temporary)
                if step is None:
                    continue
                try:
                    step.visible = published
                    if not finish:
                        step.withdraw()
                    step.clean()
                    step.sync()  # the row is durable, so the files must be as well
                finally:
                    step.close()
            if finish:
                return self.journal.done(connection, change.id, change.effects)
            self.journal.forget(connection, change.id)
        except (OSError, LlmcError):
            self.journal.failed(connection, change.id)
        return []

    def _files_of(self, change: Change) -> Filesystem:
        """A file system that reaches the paths of a change: its roots may differ from this server's."""
        try:
            for effect in change.effects:
                for path in paths_of(effect):
                    self._files.locate(path)
        except LlmcError:
            return Filesystem(change.roots, self._files.access)
        return self._files

    def empty_trash(self, entries: Sequence[str]) -> None:
        """Remove trash entries permanently; the changes that trashed them can no longer be undone."""
        for entry in entries:
            with self._store.transaction() as connection:
                self.journal.empty_trash(connection, entry)
            targets.remove_tree(self._trash_fd, os.fsencode(entry))

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
        self._due = time.monotonic() + leases.ttl_s / 3

    def __call__(self) -> None:
        if time.monotonic() >= self._due:
            self._leases.renew(self._tokens)
            self._due = time.monotonic() + self._leases.ttl_s / 3


def _temporary(change_id: str, number: int) -> bytes:
    return f".llmc-{change_id}-{number}.tmp".encode()


def _keys(effects: Sequence[Record]) -> list[LeaseKey]:
    """One key per path; moving or removing a directory locks everything in it."""
    trees: dict[str, bool] = {}
    for effect in effects:
        for path in paths_of(effect):
            whole = isinstance(effect, SortRecord) or (isinstance(effect, MoveRecord) and effect.kind == "dir")
            trees[path] = trees.get(path, False) or whole
    return [LeaseKey(f"code:{path}", tree) for path, tree in trees.items()]
