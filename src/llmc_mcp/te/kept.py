"""What is kept from the tools should it lie in a root: the server's code from changes, secrets from any look.

Whoever can change a module that the server has yet to import, or the interpreter of a process it has yet to start,
runs code as the server. So every place that code comes from counts as its own.
"""

import os
import pwd
import sys
from collections.abc import Iterable

_SECRETS = (
    ".ssh", ".aws", ".azure", ".gnupg", ".kube", ".docker", ".config", ".netrc", ".pgpass", ".pypirc", ".npmrc",
    ".git-credentials", ".password-store", ".local/share/keyrings", ".mozilla", ".cargo/credentials.toml",
)  # fmt: skip

# Prefixes that hold everybody's files: of these only what is imported or run is the server's.
_SHARED_PREFIXES = ("/", "/usr", "/usr/local")
_MAX_LINKS = 40  # as many as the kernel follows


def package_home() -> str:
    """The folder that this package is imported from."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def own_code() -> tuple[str, ...]:
    """Every path that this process, or a Python it starts, runs code from; as spelled, not all need exist."""
    prefixes = [path for path in (sys.prefix, sys.base_prefix) if os.path.realpath(path) not in _SHARED_PREFIXES]
    caches = [sys.pycache_prefix] if sys.pycache_prefix else []
    # By hand, because `site` may not be there: a folder for the user's packages that others could still make.
    site = sys.modules.get("site")
    users = [site.getusersitepackages()] if site is not None and site.ENABLE_USER_SITE else []
    paths = (*prefixes, package_home(), sys.executable, *sys.path, *caches, *users)
    return tuple(dict.fromkeys(os.path.abspath(path) for path in paths))


def forget_unneeded_imports(roots: Iterable[str]) -> None:
    """Take what was never imported from off the import path, where it shares files with a root.

    `python -m` puts the working directory there, PYTHONPATH whatever somebody works on: a file of theirs must neither
    run in the server nor be kept from changes because it might.
    """
    folders = [os.path.realpath(os.path.expanduser(root)) for root in roots]
    needed = {os.path.realpath(path) for path in _imported_from()}

    def stays(entry: str) -> bool:
        real = os.path.realpath(entry)
        if real in needed or any(is_below(real, os.path.realpath(path)) for path in (sys.prefix, sys.base_prefix)):
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
    """What neither a file tool nor a command may see: the operator's list, and where users keep their keys."""
    usual = [os.path.join(os.path.realpath(home), name) for home in homes for name in _SECRETS]
    return tuple(dict.fromkeys((*(os.path.abspath(os.path.expanduser(path)) for path in deny_read), *usual)))


def homes(uid: int) -> tuple[str, ...]:
    """The home of a user as the system knows it, and the one that this process was told."""
    try:
        known = [pwd.getpwuid(uid).pw_dir]
    except KeyError:
        known = []
    return tuple(dict.fromkeys((*known, os.path.expanduser("~"))))


def trail(path: str) -> list[str]:
    """Each symbolic link that a path leads through, by its real place, and at the end what it leads to."""
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


def is_below(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or lies in it; both are real paths."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def is_below_any(path: str, folders: Iterable[str]) -> bool:
    """Whether one of the folders is `path` or holds it."""
    return any(is_below(path, folder) for folder in folders)


def outermost(paths: Iterable[str]) -> list[str]:
    """Those that lie in none of the others."""
    paths = list(dict.fromkeys(paths))
    return [path for path in paths if not any(path != other and is_below(path, other) for other in paths)]
