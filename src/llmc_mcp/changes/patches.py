"""Applying a diff to files: all new contents are computed first, then all files change, or none."""

from collections.abc import Callable
from typing import NamedTuple

from ..errors import InvalidPath, PatchFailed, TooLarge
from ..files.filesystem import Filesystem
from ..session import Session
from . import diff, targets
from .diff import FilePatch
from .operations import Operations
from .targets import Target
from .transaction import Changes, Draft

MOST_FILES = 250  # each keeps two descriptors open until all of them have changed


class PatchResult(NamedTuple):
    """What a diff did, or would do; with real paths."""

    id: str
    modified: list[str]
    created: list[str]
    deleted: list[str]


class _PatchedFile:
    """The state of one file while the patches of a diff are applied to it."""

    def __init__(self, target: Target, data: bytes | None) -> None:
        self.target, self.before, self.after = target, data, data
        self.mode: int | None = None
        self.mode_before = None if target.info is None else target.info.st_mode & 0o777

    @property
    def mode_now(self) -> int | None:
        return self.mode_before if self.mode is None else self.mode


class Patcher:
    """Plans and applies diffs."""

    def __init__(self, files: Filesystem, changes: Changes, mutations: Operations) -> None:
        self._files, self._changes, self._mutations = files, changes, mutations

    def apply(self, who: Session, text: str, dry_run: bool, check: Callable[[], None]) -> PatchResult:
        """Apply a diff of one or many files."""
        patches = diff.parse(text)
        if len(patches) > MOST_FILES:
            raise TooLarge(f"the diff is about {len(patches)} files; {MOST_FILES} at a time", hint="Split it.")
        outcome: list[PatchResult] = []

        def plan(draft: Draft) -> None:
            outcome.append(self._plan(draft, patches, check))

        if dry_run:
            draft = Draft("")
            try:
                plan(draft)
            finally:
                draft.close()
            return outcome[-1]
        done = self._changes.make(who, "apply_diff", plan, check)
        return outcome[-1]._replace(id=done.id)

    def _plan(self, draft: Draft, patches: list[FilePatch], check: Callable[[], None]) -> PatchResult:
        files: dict[str, _PatchedFile] = {}
        for patch in patches:
            check()
            self._patch(draft, files, patch)
        result = PatchResult("", [], [], [])
        for file in files.values():
            self._step(draft, file, result)
        if not draft.steps:
            raise PatchFailed("the diff changes nothing", hint="The files have its lines already.")
        return result

    def _patch(self, draft: Draft, files: dict[str, _PatchedFile], patch: FilePatch) -> None:
        file = self._file(draft, files, patch.new_path if patch.kind == "create" else patch.old_path or patch.path)
        after = diff.apply(patch, file.after)
        if patch.kind == "rename":
            target = self._file(draft, files, patch.path)
            if target.after is not None:
                raise PatchFailed(f"{patch.path}: exists already, so nothing can be renamed to it")
            target.mode, file.after = file.mode_now, None
            file = target
        file.after = after
        if patch.new_mode is not None and after is not None:
            file.mode = _executable(file.mode_now, patch.new_mode)

    def _file(self, draft: Draft, files: dict[str, _PatchedFile], path: str | None) -> _PatchedFile:
        if path is None:
            raise PatchFailed("a file of the diff has no name")
        target = draft.hold(targets.find_file(self._files, path, parents=True))
        if target.path in files:
            return files[target.path]
        if target.place.below != self._files.locate(path).below.removeprefix(b"./"):
            raise InvalidPath(f"{path}: a diff is not applied through a symbolic link", hint="Name the real path.")
        data = None if target.info is None else self._mutations.text_of(target)
        files[target.path] = _PatchedFile(target, data)
        return files[target.path]

    def _step(self, draft: Draft, file: _PatchedFile, result: PatchResult) -> None:
        target, shown = file.target, file.target.place.absolute
        if file.after is None:
            if file.before is not None:
                self._mutations.trash(draft, target)
                result.deleted.append(shown)
        elif file.before is None:
            self._mutations.make_folders(draft, target)
            self._mutations.put(draft, target, file.after, mode=file.mode)
            result.created.append(shown)
        elif file.after != file.before or (file.mode is not None and file.mode != file.mode_before):
            self._mutations.put(draft, target, file.after, mode=file.mode)
            result.modified.append(shown)


def _executable(mode: int | None, wanted: int) -> int:
    """Git tracks one bit of a mode: a file is executable by everybody who may read it, or by nobody."""
    if mode is None:
        return 0o777 if wanted & 0o100 else 0o666
    return mode | (mode & 0o444) >> 2 if wanted & 0o100 else mode & ~0o111
