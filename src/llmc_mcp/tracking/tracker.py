"""Which changes below the roots came while which command ran.

Every command has a window. What differs at a look belongs to the oldest window that is open then; what nobody's window
saw is somebody else's and only taken note of. Two commands at the same time can't be told apart: the one that is looked
at first has the changes, and says with how many others it ran.
"""

import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import NamedTuple

from ..files.filesystem import Filesystem, Root
from .entries import Difference
from .sources import ContentSources
from .spool import ContentSpool
from .tree import RootTree, TooManyEntries


class TrackingLimits(NamedTuple):
    """How much is followed and kept."""

    room: int  # bytes of copies
    largest: int  # bytes of one file
    most_entries: int  # of one root


class Window:
    """The time in which a command runs, and the changes found so far that are its own."""

    def __init__(self) -> None:
        self.differences: dict[tuple[int, str], Difference] = {}
        self.unseen: dict[str, str] = {}  # folders in which it may have changed something, and why that is not known
        self.beside = 0  # how many other commands ran at the same time

    def add(self, tree: int, found: Sequence[Difference]) -> None:
        """Take changes over; a later one of the same entry continues an earlier one."""
        for one in found:
            earlier = self.differences.pop((tree, one.path), None)
            merged = one if earlier is None else one._replace(before=earlier.before)
            if merged.before is None and merged.after is None:
                continue
            if merged.before is not None and merged.after is not None and merged.before.same_as(merged.after):
                continue
            self.differences[tree, one.path] = merged


class Tracker:
    """Follows the roots; made once per server, and empty until the first window."""

    def __init__(
        self,
        files: Filesystem,
        roots: Sequence[Root],
        folder: str,
        limits: TrackingLimits,
        unfollowed: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._files, self._roots, self._folder, self._limits = files, roots, folder, limits
        self._unfollowed = unfollowed
        self.lock = threading.RLock()
        self.trees: list[RootTree] = []
        self.reasons = dict(unfollowed)  # why a root is not followed
        self._spool: ContentSpool | None = None
        self._windows: list[Window] = []
        self._given_up: set[int] = set()  # numbers of trees
        self._followed = roots
        self._begun, self._crowded_at = False, 0
        self._readers = 0  # who are reading contents
        self._used = time.monotonic()

    def prepare(self) -> None:
        """See to it that the roots are followed: the first look at many files takes a while."""
        with self.lock:
            if not self._begun:
                self._begin()

    def open(self) -> Window:
        """Begin a window: what changed before it is not its own."""
        with self.lock:
            self._look()
            window = Window()
            window.beside = len(self._windows)
            for other in self._windows:
                other.beside += 1
            self._windows.append(window)
            return window

    @contextmanager
    def taking(self, window: Window, *, last: bool) -> Generator[dict[tuple[int, str], Difference]]:
        """What a window has found since it was last asked, and its contents; at last the window ends.

        Whatever is found from then on belongs to others, so looking and ending are one.
        """
        with self.lock:
            self._look(window if window in self._windows else None)
            found, window.differences = window.differences, {}
            if last and window in self._windows:
                self._windows.remove(window)
            self._readers += 1
        try:
            yield found
        finally:
            with self.lock:
                self._readers -= 1

    @contextmanager
    def apart(
        self, is_own: Callable[[RootTree, str], bool], before: Callable[[Window], None] = lambda _: None
    ) -> Generator[None]:
        """While the server itself changes files: what is its own doing is nobody's window's.

        `before` is called for windows that have changed the same files already: that comes before the server's change,
        and what they do to them from now on comes after it.
        """
        with self.lock:
            if not self._windows:
                yield
                return
            self._look()
            for window in list(self._windows):
                if any(is_own(self.trees[tree], path) for tree, path in window.differences):
                    before(window)
            yield
            own = Window()
            self._look(own)
            if self._windows:
                self._windows[0].unseen |= own.unseen
            for (tree, path), difference in own.differences.items():
                if self._windows and not is_own(self.trees[tree], path):
                    self._windows[0].add(tree, [difference])

    def _look(self, asking: Window | None = None) -> None:
        self._used = time.monotonic()
        self.prepare()
        owner = asking or (self._windows[0] if self._windows else None)
        silent = self._files.silent_roots.find()
        for number, tree in enumerate(self.trees):
            if tree.root.real in silent or number in self._given_up:
                continue  # commands run without it
            try:
                found = tree.look()
            except (TooManyEntries, OSError) as exc:
                self._give_up(number, self._reason(exc))
                continue
            if owner is not None:
                self._hand_over(number, found, owner)
                owner.add(number, found)
                owner.unseen |= {f"{tree.root.shown}/{path}": reason for path, reason in tree.unseen.items()}
        if not (self._windows or self._readers) and self._spool is not None and self._spool.size > self._crowded_at:
            self._compact()

    def _hand_over(self, number: int, found: Sequence[Difference], owner: Window) -> None:
        """What other windows know of the same entries goes with it: entries of the journal are made in any order."""
        for other in self._windows:
            if other is not owner and other.differences:
                known = [other.differences.pop((number, one.path), None) for one in found]
                owner.add(number, [one for one in known if one is not None])

    def _begin(self) -> None:
        self._begun, self._crowded_at = True, self._limits.room // 2
        try:
            self._spool = ContentSpool(self._folder, self._limits.room)
        except OSError as exc:
            self.reasons[self._folder] = self._reason(exc)
            return
        silent = self._files.silent_roots.find()
        for root in self._followed:
            if root.real in silent:
                self.reasons[root.shown] = "does not answer"
                continue
            sources = ContentSources(root, self._spool, self._limits.largest)
            hides = self._files.hides if self._files.hides_anything else None
            tree = RootTree(root, sources, hides, self._limits.most_entries)
            try:
                tree.look()
            except (TooManyEntries, OSError) as exc:
                self.reasons[root.shown] = self._reason(exc)
                tree.close()
                continue
            self.trees.append(tree)

    def _give_up(self, number: int, reason: str) -> None:
        """A root that grew too large is not followed again until the server was idle."""
        tree = self.trees[number]
        self.reasons[tree.root.shown] = reason
        for window in self._windows:
            window.differences = {key: one for key, one in window.differences.items() if key[0] != number}
        self._followed = [root for root in self._followed if root is not tree.root]
        self._given_up.add(number)
        tree.watch.stop("given up")

    def _reason(self, exc: TooManyEntries | OSError) -> str:
        if isinstance(exc, OSError):
            return exc.strerror or str(exc)
        return f"more than {self._limits.most_entries:,} files (mcp.limits.command_undo_files)"

    def _compact(self) -> None:
        """Move what is still needed to a new spool; the old one is mostly of files that have changed since."""
        if self._spool is None:
            return
        old, self._spool = self._spool, self._spool.successor()
        for tree in self.trees:
            kept = ContentSources(tree.root, self._spool, self._limits.largest)
            tree.move_to(kept)
            tree.sources.spool = self._spool
        old.close()
        self._crowded_at = max(self._limits.room // 2, 2 * self._spool.size)

    def _forget(self) -> None:
        for tree in self.trees:
            tree.close()
        self.trees, self._begun = [], False
        self._given_up.clear()
        if self._spool is not None:
            self._spool.close()
            self._spool = None

    def release_idle(self, idle_s: float) -> bool:
        """Forget how the roots look when no command has run for so long."""
        with self.lock:
            if self._windows or self._readers or not self._begun or time.monotonic() - self._used < idle_s:
                return False
            self._forget()
            self.reasons, self._followed = dict(self._unfollowed), self._roots
            return True

    def close(self) -> None:
        """Forget everything."""
        with self.lock:
            self._windows.clear()
            self._forget()
