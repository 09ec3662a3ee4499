"""New contents for several files, computed from what they hold at that moment: all of them change, or none."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ..errors import Conflict, TooLarge
from ..files import names
from ..files.filesystem import Filesystem
from ..session import Session
from . import targets
from .diff import unified
from .operations import Operations
from .patches import MOST_FILES
from .targets import Target
from .transaction import Changes, Draft

Read = Callable[[str], bytes]  # the content of a file that is going to change


class RewrittenFile(NamedTuple):
    """A file, before and after."""

    path: str
    name: str  # in a diff
    before: bytes
    after: bytes
    new_name: str = ""  # in a diff, of a file that moves

    @property
    def diff(self) -> str:
        text = unified(self.before, self.after, self.name)
        if not self.new_name:
            return text
        head, _, hunks = text.partition("\n@@")
        moved = head.rpartition("\n")[0] + f"\n+++ b/{self.new_name}"
        names = f"diff --git a/{self.name} b/{self.new_name}\nrename from {self.name}\nrename to {self.new_name}\n"
        return f"{names}{moved}\n@@{hunks}"


class Rewrite(NamedTuple):
    """A change of several files; without an id, one that was not made."""

    id: str
    files: list[RewrittenFile]


class Rewriter:
    """Makes changes of several files."""

    def __init__(self, files: Filesystem, changes: Changes, mutations: Operations) -> None:
        self._files, self._changes, self._mutations = files, changes, mutations

    def rewrite(
        self,
        who: Session,
        action: str,
        compute: Callable[[Read], Mapping[str, bytes]],
        check: Callable[[], None],
        *,
        dry_run: bool = False,
        moves: Mapping[str, str] | None = None,
    ) -> Rewrite:
        """Replace the contents of files by what `compute` makes of them; it is called again if they change meanwhile.

        Every file that it returns must be one that it has read. Some of them may move to another name, by path.
        """
        outcome: list[list[RewrittenFile]] = []

        def plan(draft: Draft) -> None:
            outcome.append(self._plan(draft, compute, moves or {}))

        if dry_run:
            draft = Draft("")
            try:
                plan(draft)
            finally:
                draft.close()
            return Rewrite("", outcome[-1])
        done = self._changes.make(who, action, plan, check)
        return Rewrite(done.id, outcome[-1])

    def _plan(
        self, draft: Draft, compute: Callable[[Read], Mapping[str, bytes]], moves: Mapping[str, str]
    ) -> list[RewrittenFile]:
        opened: dict[str, tuple[Target, bytes]] = {}

        def read(path: str) -> bytes:
            if path not in opened:
                if len(opened) == MOST_FILES:
                    raise TooLarge(f"more than {MOST_FILES} files would change", hint="Narrow the paths.")
                target = draft.hold(targets.find_file(self._files, path))
                opened[path] = target, self._mutations.text_of(target)
            return opened[path][1]

        changed: list[RewrittenFile] = []
        for path, after in compute(read).items():
            target, before = opened[path]
            if path in moves:
                moved = self._move(draft, target, moves[path], after)
                changed.append(
                    RewrittenFile(moved.place.absolute, self._name(target), before, after, self._name(moved))
                )
            elif after != before:
                self._mutations.put(draft, target, after, before=before)
                changed.append(RewrittenFile(target.place.absolute, self._name(target), before, after))
        return changed

    def _move(self, draft: Draft, source: Target, path: str, after: bytes) -> Target:
        target = draft.hold(targets.find_file(self._files, path))
        if target.info is not None:
            raise Conflict(f"{path} exists already", hint="Choose another name.")
        self._mutations.trash(draft, source)
        self._mutations.put(draft, target, after, mode=None if source.info is None else source.info.st_mode & 0o7777)
        return target

    def _name(self, target: Target) -> str:
        place = target.place
        return names.show(place.below) if place.root == self._files.roots[0] else place.absolute
