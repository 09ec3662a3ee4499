"""Whether what a file holds now was committed to git since some time."""

import os
from contextlib import suppress
from typing import NamedTuple

from ..errors import Conflict
from ..files import names
from ..files.filesystem import Filesystem, Root
from . import git_dirs
from .git_objects import GitObjects, blob_name

_SMALL = 1 << 20
_LARGEST = 64 << 20
_LINKS_MOST = 5  # from HEAD to a commit


class Head(NamedTuple):
    """The commit that is checked out, in short, and when it was made."""

    name: str
    at: float
    tree: bytes


class CommittedFiles:
    """Looks files up in the commits that are checked out; for one undo, since it remembers them."""

    def __init__(self, files: Filesystem) -> None:
        self._files = files
        self._repositories: dict[tuple[int, bytes], _CommittedTree | None] = {}

    def commit_of(self, path: str, since: float) -> str | None:
        """The commit that holds a file as it is now, if it was made after `since`.

        CONFLICT where there may be one that can't be read.
        """
        place = self._files.locate(path)
        folder: bytes = os.path.dirname(place.below)
        while True:
            try:
                repository = self._repository(place.root, folder)
            except git_dirs.OutsideOfRoot as exc:
                raise _unknown(path, f"its repository, {exc}, is outside of the roots") from None
            if repository is not None:
                inside = place.below[len(folder) + 1 :] if folder else place.below
                if repository.head is None and repository.moved_since(since):
                    raise _unknown(path, "the commit that is checked out is newer and can't be read")
                return repository.commit_of(place.below, inside, since)
            if not folder:
                return None
            folder = os.path.dirname(folder)

    def _repository(self, root: Root, folder: bytes) -> "_CommittedTree | None":
        key = root.fd, folder
        if key not in self._repositories:
            try:
                self._repositories[key] = _CommittedTree(root.fd, git_dirs.find(root, os.fsdecode(folder)))
            except (OSError, ValueError, StopIteration):
                self._repositories[key] = None
        return self._repositories[key]

    def close(self) -> None:
        """Unmap packs."""
        for repository in self._repositories.values():
            if repository is not None:
                repository.objects.close()


class _CommittedTree:
    def __init__(self, root_fd: int, dirs: git_dirs.GitDirs) -> None:
        self._root_fd, self._dirs = root_fd, dirs
        self._followed = [f"{dirs.own}/HEAD"]  # the files that lead to the commit
        text = git_dirs.read(root_fd, self._followed[0], _SMALL).strip()
        self.objects = GitObjects(root_fd, f"{dirs.common}/objects")
        self.head = self._commit(self._resolve(text))
        self._trees: dict[bytes, dict[bytes, bytes]] = {}

    def _resolve(self, text: bytes) -> bytes:
        for _ in range(_LINKS_MOST):
            if not text.startswith(b"ref: "):
                return bytes.fromhex(text.decode("ascii"))
            ref = text[5:].strip()
            try:
                self._followed.append(f"{self._dirs.common}/{os.fsdecode(ref)}")
                text = git_dirs.read(self._root_fd, self._followed[-1], _SMALL).strip()
            except OSError:
                packed = git_dirs.read(self._root_fd, f"{self._dirs.common}/packed-refs", _LARGEST)
                text = next(line.split(b" ")[0] for line in packed.splitlines() if line.endswith(b" " + ref))
        raise ValueError("no commit")

    def moved_since(self, since: float) -> bool:
        """Whether another commit may have been checked out or made since."""
        for path in self._followed:
            with suppress(OSError):
                if os.stat(path, dir_fd=self._root_fd, follow_symlinks=False).st_mtime >= int(since):
                    return True
        return False

    def _commit(self, oid: bytes) -> Head | None:
        data = self.objects.read(oid, b"commit", _SMALL)
        if data is None:
            return None
        fields = dict(line.split(b" ", 1) for line in data.partition(b"\n\n")[0].splitlines() if b" " in line)
        at = float(fields[b"committer"].rsplit(b" ", 2)[1])
        return Head(oid.hex()[:10], at, bytes.fromhex(fields[b"tree"].decode()))

    def commit_of(self, below: bytes, inside: bytes, since: float) -> str | None:
        if self.head is None or self.head.at < int(since):  # git keeps whole seconds
            return None
        oid = self.head.tree
        for part in inside.split(b"/"):
            found = self._entries(oid).get(part)
            if found is None:
                return None
            oid = found
        try:
            content = git_dirs.read(self._root_fd, below, _LARGEST)
        except OSError:
            return None
        return self.head.name if blob_name(content) == oid else None

    def _entries(self, tree: bytes) -> dict[bytes, bytes]:
        if tree not in self._trees:
            found: dict[bytes, bytes] = {}
            data, at = self.objects.read(tree, b"tree", _LARGEST) or b"", 0
            while at < len(data):
                space, end = data.index(b" ", at), data.index(b"\0", at)
                found[data[space + 1 : end]] = data[end + 1 : end + 21]
                at = end + 21
            self._trees[tree] = found
        return self._trees[tree]


def _unknown(path: str, reason: str) -> Conflict:
    return Conflict(
        f"{names.show(path.encode())}: may have been committed since: {reason}; nothing was undone",
        hint="force=true undoes it all the same, an undo_id takes one change back.",
    )
