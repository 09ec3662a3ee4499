"""What tools may not touch even below a root: the server's own code (no changes) and secrets (no access).

Anybody who can change a module that the server has yet to import, or the interpreter of a process it has yet to start,
runs code as the server. So every place that it loads code from counts as its own.
"""

import os
import pwd
import sys
from collections.abc import Iterable
from typing import NamedTuple

from .. import PACKAGE_HOME
from ..policy import is_below, is_below_any

_SECRETS = (
    ".ssh", ".aws", ".azure", ".gnupg", ".kube", ".docker", ".config", ".netrc", ".pgpass", ".pypirc", ".npmrc",
    ".git-credentials", ".password-store", ".local/share/keyrings", ".mozilla", ".cargo/credentials.toml",
)  # fmt: skip

# Shared prefixes: only what is imported or run from them belongs to the server.
_SHARED_PREFIXES = ("/", "/usr", "/usr/local")
_MAX_LINKS = 40  # the kernel's own limit


def own_code() -> tuple[str, ...]:
    """Every path that this process, or a Python it starts, may load code from; not all need exist."""
    prefixes = [path for path in (sys.prefix, sys.base_prefix) if os.path.realpath(path) not in _SHARED_PREFIXES]
    caches = [sys.pycache_prefix] if sys.pycache_prefix else []
    # The user's site-packages may not exist yet, but could be created; `site` may not be loaded.
    site = sys.modules.get("site")
    users = [site.getusersitepackages()] if site is not None and site.ENABLE_USER_SITE else []
    paths = (*prefixes, PACKAGE_HOME, sys.executable, *sys.path, *caches, *users)
    return tuple(dict.fromkeys(os.path.abspath(path) for path in paths))


def forget_unneeded_imports(roots: Iterable[str]) -> None:
    """Remove unused entries of sys.path that overlap a root.

    `python -m` adds the working directory, PYTHONPATH a project: files there must neither run in the server nor be
    protected from changes because they might.
    """
    folders = [os.path.realpath(os.path.expanduser(root)) for root in roots]
    needed = {os.path.realpath(path) for path in _imported_from()}

    def stays(entry: str) -> bool:
        real = os.path.realpath(entry)
        if real in needed or is_below_any(real, map(os.path.realpath, (sys.prefix, sys.base_prefix))):
            return True
        return not any(is_below(real, folder) or is_below(folder, real) for folder in folders)

    sys.path[:] = [entry for entry in sys.path if stays(entry)]


def _imported_from() -> Iterable[str]:
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and "." not in name and name != "__main__":
            folder = os.path.dirname(file)
            yield os.path.dirname(folder) if hasattr(module, "__path__") else folder


def secrets(deny_read: Iterable[str], homes: Iterable[str]) -> tuple[str, ...]:
    """What neither file tools nor commands may see: the operator's list, and where users keep keys."""
    usual = [os.path.join(os.path.realpath(home), name) for home in homes for name in _SECRETS]
    return tuple(dict.fromkeys((*(os.path.abspath(os.path.expanduser(path)) for path in deny_read), *usual)))


def homes(uid: int) -> tuple[str, ...]:
    """A user's home in the password database, and this process's $HOME."""
    try:
        known = [pwd.getpwuid(uid).pw_dir]
    except KeyError:
        known = []
    return tuple(dict.fromkeys((*known, os.path.expanduser("~"))))


def trail(path: str) -> list[str]:
    """The real path of each symbolic link along a path, then the real path of its target."""
    links: list[str] = []
    done, todo = "/", os.path.join(os.getcwd(), path).split("/")
    while todo:
        part = todo.pop(0)
        here = os.path.normpath(os.path.join(done, part))
        if len(links) < _MAX_LINKS and os.path.islink(here):
            links.append(here)
            todo = os.readlink(here).split("/") + todo
            done = "/" if os.readlink(here).startswith("/") else done
        else:
            done = here
    return [*links, done]


def seen_from(path: str, folders: Iterable[str]) -> list[str]:
    """A real path, and its other names where a bind mount shows in one of the folders what holds it."""
    ids = {folder: _entry_id(folder) for folder in folders}
    names, above, rest = [path], path, ""
    while True:
        here = _entry_id(above)
        names += [os.path.join(folder, rest).rstrip("/") for folder, one in ids.items() if one and one == here]
        if above == "/":
            return list(dict.fromkeys(names))
        above, last = os.path.split(above)
        rest = os.path.join(last, rest)


def _entry_id(path: str) -> tuple[int, int] | None:
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_dev, info.st_ino


def outermost(paths: Iterable[str]) -> list[str]:
    """The paths that are not inside another one."""
    paths = list(dict.fromkeys(paths))
    return [path for path in paths if not any(path != other and is_below(path, other) for other in paths)]


class HiddenPlaces(NamedTuple):
    """Real paths that no tool may look into, with everything below them."""

    own_data: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()  # a root that the operator named inside a secret place is served all the same

    def cover(self, path: str) -> bool:
        """Whether a real path is hidden."""
        return is_below_any(path, self.own_data) or self.keep_secret(path)

    def keep_secret(self, path: str) -> bool:
        """Whether a real path is hidden for another reason than that it holds the server's data."""
        if not path.startswith(self.secrets):  # one call for all of them: an index asks this for every file
            return False
        return any(
            is_below(path, secret) and not any(is_below(root, secret) and is_below(path, root) for root in self.roots)
            for secret in self.secrets
        )
