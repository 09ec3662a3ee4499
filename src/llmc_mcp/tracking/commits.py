"""Whether what a file holds now was committed to git since some time."""

import os
import stat as stat_bits
from typing import NamedTuple

from ..files import names
from ..files.filesystem import Filesystem
from ..kernel import syscalls
from .git_objects import GitObjects, blob_name

_BENEATH = syscalls.RESOLVE_BENEATH | syscalls.RESOLVE_NO_SYMLINKS | syscalls.RESOLVE_NO_MAGICLINKS
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
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
        """The commit that holds a file as it is now, if it was made after `since`."""
        place = self._files.locate(path)
        folder: bytes = os.path.dirname(place.below)
        while True:
            repository = self._repository(place.root.fd, folder)
            if repository is not None:
                inside = place.below[len(folder) + 1 :] if folder else place.below
                return repository.commit_of(place.below, inside, since)
            if not folder:
                return None
            folder = os.path.dirname(folder)

    def _repository(self, root_fd: int, folder: bytes) -> "_CommittedTree | None":
        key = root_fd, folder
        if key not in self._repositories:
            try:
                self._repositories[key] = _CommittedTree(root_fd, os.path.join(folder, b".git"))
            except (OSError, ValueError, StopIteration):
                self._repositories[key] = None
        return self._repositories[key]

    def close(self) -> None:
        """Unmap packs."""
        for repository in self._repositories.values():
            if repository is not None:
                repository.objects.close()


class _CommittedTree:
    def __init__(self, root_fd: int, git_dir: bytes) -> None:
        self._root_fd, self._git_dir = root_fd, git_dir
        text = _read(root_fd, git_dir + b"/HEAD", _SMALL).strip()
        self.objects = GitObjects(root_fd, os.fsdecode(git_dir))
        self._head = self._commit(self._resolve(text))
        self._trees: dict[bytes, dict[bytes, bytes]] = {}

    def _resolve(self, text: bytes) -> bytes:
        for _ in range(_LINKS_MOST):
            if not text.startswith(b"ref: "):
                return bytes.fromhex(text.decode("ascii"))
            ref = text[5:].strip()
            try:
                text = _read(self._root_fd, self._git_dir + b"/" + ref, _SMALL).strip()
            except OSError:
                packed = _read(self._root_fd, self._git_dir + b"/packed-refs", _LARGEST)
                text = next(line.split(b" ")[0] for line in packed.splitlines() if line.endswith(b" " + ref))
        raise ValueError("no commit")

    def _commit(self, oid: bytes) -> Head | None:
        data = self.objects.read(oid, b"commit", _SMALL)
        if data is None:
            return None
        fields = dict(line.split(b" ", 1) for line in data.partition(b"\n\n")[0].splitlines() if b" " in line)
        at = float(fields[b"committer"].rsplit(b" ", 2)[1])
        return Head(oid.hex()[:10], at, bytes.fromhex(fields[b"tree"].decode()))

    def commit_of(self, below: bytes, inside: bytes, since: float) -> str | None:
        if self._head is None or self._head.at < int(since):  # git keeps whole seconds
            return None
        oid = self._head.tree
        for part in inside.split(b"/"):
            found = self._entries(oid).get(part)
            if found is None:
                return None
            oid = found
        try:
            content = _read(self._root_fd, below, _LARGEST)
        except OSError:
            return None
        return self._head.name if blob_name(content) == oid else None

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


def _read(root_fd: int, path: bytes, most: int) -> bytes:
    with open(syscalls.openat2(root_fd, path, _FLAGS, _BENEATH), "rb") as file:
        if not stat_bits.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{names.show(path)}: no regular file")
        return file.read(most)
