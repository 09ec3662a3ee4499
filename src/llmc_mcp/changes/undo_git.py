"""Whether git still has the objects that a ref, a reflog or an index names before an undo brings it back.

`git gc --prune=now` removes what nothing refers to any more. A ref that is brought back then would break its
repository, so it is left as it is, and named.
"""

import re
from collections.abc import Callable, Collection

from ..files import names
from ..tracking import git_index
from ..tracking.git_dirs import git_dir_of, is_index
from ..tracking.git_objects import GitObjects
from .tree import WHOLE_FOLDER, TreeEntry, TreeRecord

_OBJECT = re.compile(rb"\b[0-9a-f]{40}\b")
_NOTHING = b"0" * 40
_LINKED = re.compile(r"/worktrees/[^/]+$")
_GITLINK = 0o160000  # the mode of a submodule in an index; its commit is in another repository
_SYMBOLIC = b"ref: "


class NamedObjects:
    """Looks for the objects that entries of one record name, where they are now."""

    def __init__(self, top: int, record: TreeRecord, coming: Collection[str], image: Callable[[str], bytes]) -> None:
        self._top, self._path, self._coming, self._image = top, record.path, coming, image
        self._entries = {entry.path: entry for entry in record.entries}
        leaving = {
            one.after.content: one.path for one in record.entries if one.after and one.after.kind == WHOLE_FOLDER
        }
        # Folders of objects that the same undo moves back, by the path that they get.
        self._elsewhere = {
            one.path: leaving.get(one.before.content, one.path)
            for one in record.entries
            if one.before is not None and one.before.kind == WHOLE_FOLDER
        }
        self._stores: dict[str, GitObjects | None] = {}

    def are_missing_for(self, entry: TreeEntry, now: bytes | None) -> bool:
        """Whether bringing an entry back would name objects that are gone; what it holds now is not made worse."""
        git_dir = git_dir_of(entry.path)
        if git_dir is None or entry.before is None or entry.before.kind != "file" or entry.before.missing:
            return False
        inside = entry.path[len(git_dir) + 1 :]
        if not (inside.endswith("HEAD") or inside.startswith(("refs/", "logs/")) or inside in ("packed-refs", "index")):
            return False
        content = self._image(entry.before.image)
        if content.startswith(_SYMBOLIC):
            return self._is_gone(git_dir, names.show(content[len(_SYMBOLIC) :].strip()))
        store = self._store(_LINKED.sub("", git_dir))
        known = _objects(entry.path, now or b"")
        return store is not None and any(store.size(oid) is None for oid in _objects(entry.path, content) - known)

    def _is_gone(self, git_dir: str, ref: str) -> bool:
        """Whether the ref that a symbolic one leads to can't be brought back."""
        common = _LINKED.sub("", git_dir)
        found = (self._entries.get(f"{common}/{name}") for name in (ref, "packed-refs"))
        first = next((entry for entry in found if entry is not None), None)
        return first is not None and first.path != f"{git_dir}/HEAD" and self.are_missing_for(first, None)

    def _store(self, git_dir: str) -> GitObjects | None:
        """The objects of a repository; None where some come back with it or may lie elsewhere."""
        path = f"{git_dir}/objects"
        if f"{self._path}/{path}" in self._coming:
            return None
        if git_dir not in self._stores:
            folder = self._elsewhere.get(path, path)
            store = GitObjects(self._top, folder)
            self._stores[git_dir] = None if store.has_alternates() else store
        return self._stores[git_dir]

    def close(self) -> None:
        """Unmap packs; may be called twice."""
        for store in self._stores.values():
            if store is not None:
                store.close()


def _objects(path: str, content: bytes) -> set[bytes]:
    if is_index(path):
        return {entry.oid for entry in git_index.parse(content).values() if entry.mode != _GITLINK}
    return {bytes.fromhex(name.decode()) for name in _OBJECT.findall(content) if name != _NOTHING}
