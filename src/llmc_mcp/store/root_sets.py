"""Which rows of the store a caller may see: those made within the caller's roots.

All servers and shells of a user share one store, though they work on different projects. Whatever a call leaves there
(a handle, a change, a row of the statistics) carries its *root set*: the roots it was made under, by their real paths
or, where machines share the store, by the names of their workspaces (workspaces.py).
Everything that reads such rows obeys one rule:

    A row is visible where each of its roots lies within one of the reader's.

A server on ~/src sees what a server on ~/src/a left; a server on ~/src/a sees nothing of ~/src/b, and nothing that
was made on ~/src as a whole. A row without roots, from before rows had them, is visible to no server.

`te` has no roots of its own; te/folder.py derives a set for it. The commands of `llmc` belong to the person who owns
the store: they see every row.
"""

from collections.abc import Iterable

from .root_keys import key_of, list_of, paths_of

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing.TYPE_CHECKING without the import: `te` runs commands without loading typing
    from .base import Store

# A condition of a query on rows with roots; its parameter comes from `visible_to`.
VISIBLE = "({parameter} IS NULL OR roots IN (SELECT value FROM json_each({parameter})))"


class RootSet:
    """The real paths of some roots, as text; `key` is the form that rows carry."""

    def __init__(self, paths: Iterable[str], *, from_above: bool = False) -> None:
        self.paths = tuple(sorted(set(paths)))
        self.key = key_of(self.paths)
        self._from_above = from_above

    def holds(self, path: str) -> bool:
        """Whether a path is one of the roots or below one."""
        return _within(path, self.paths)

    def covers(self, key: str) -> bool:
        """Whether a row made under the roots of `key` is visible."""
        if key == self.key:
            return key != ""
        made_under = paths_of(key)
        if not made_under or not self.paths:
            return False
        if all(map(self.holds, made_under)):
            return True
        return self._from_above and all(_within(path, made_under) for path in self.paths)


def visible_to(store: "Store", reader: RootSet | None) -> str | None:
    """The parameter of VISIBLE: the keys that a reader may see as a JSON array; None means all of them."""
    if reader is None:
        return None
    keys = (str(key) for (key,) in store.query("SELECT roots FROM root_sets"))
    local = store.workspaces.local_key
    return list_of(key for key in keys if reader.covers(local(key)))


def folder_of(key: str) -> str:
    """The roots of a key, formatted for people."""
    return ", ".join(paths_of(key)) or "unknown folder"


def _within(path: str, roots: Iterable[str]) -> bool:
    from ..policy import is_below_any  # here, because `te` starts without what it imports

    return is_below_any(path, roots)
