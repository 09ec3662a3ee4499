"""What rows call files: by the name of their workspace, never by where one host has it.

Servers on several machines or in several containers may mount one volume at different paths. A row that all of them
read says `NAME/rel`, and each server translates it to a path of its own and back. In SQLite, which one machine uses,
rows keep real paths: there both forms are the same, and a path in an old row of PostgreSQL stays one as well.

`te` starts with this, so it imports next to nothing.
"""

from collections.abc import Callable, Mapping

from .root_keys import key_of, paths_of

_ELSEWHERE = "workspace:"  # how a path of a workspace begins that this server has not; no path of a file does


class Workspaces:
    """The folders of this server that have names; without any, paths are what rows carry."""

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        """`names` has the name of each folder; where two folders have one name, the first stands for it."""
        self.names = dict(names or {})
        folders = sorted(self.names, key=len, reverse=True)
        self._named = [(folder.rstrip("/"), self.names[folder]) for folder in folders]
        first = {name: folder.rstrip("/") for folder, name in reversed(list(self.names.items()))}
        self._found = sorted(first.items(), key=lambda pair: len(pair[0]), reverse=True)
        self._keys: dict[tuple[bool, str], str] = {}

    def stored(self, path: str) -> str:
        """The form of a path that rows carry."""
        if path.startswith(_ELSEWHERE):
            return path[len(_ELSEWHERE) :]
        return _moved(path, self._named) or path

    def local(self, name: str) -> str:
        """The path on this server of what a row names; one that `is_elsewhere` where it has no such workspace."""
        if not self._found or name.startswith("/"):
            return name
        return _moved(name, self._found) or _ELSEWHERE + name

    def stored_key(self, key: str) -> str:
        """The key of a root set (store/root_sets.py) in the form that rows carry."""
        return self._key(key, self.stored)

    def local_key(self, key: str) -> str:
        """The key of a root set on this server."""
        return self._key(key, self.local)

    def _key(self, key: str, translate: Callable[[str], str]) -> str:
        if not self._named:
            return key
        known = (translate == self.stored, key)
        if known not in self._keys:
            if len(self._keys) > 4096:
                self._keys.clear()
            self._keys[known] = key_of(map(translate, paths_of(key)))
        return self._keys[known]


def is_elsewhere(path: str) -> bool:
    """Whether a path belongs to a workspace that this server has not."""
    return path.startswith(_ELSEWHERE)


def _moved(path: str, places: list[tuple[str, str]]) -> str:
    """A path below the first of these places that holds it, below what the place stands for; empty if none does."""
    for place, other in places:
        if path == place or path.startswith(f"{place}/"):
            return f"{other}{path[len(place) :].rstrip('/')}" or "/"
    return ""
