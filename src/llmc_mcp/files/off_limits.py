"""What tools may not touch even below a root: the server's own code (no changes) and secrets (no access).

Anybody who can change a module that the server has yet to import, or the interpreter of a process it has yet to start,
runs code as the server. So every place that it loads code from counts as its own.
"""

import os
import pwd
import re
import sys
from collections.abc import Iterable
from typing import NamedTuple

from .. import PACKAGE_HOME
from ..policy import is_below, is_below_any

# At the top of a workspace that servers on several machines share: what they deleted there, for any of them to bring
# back. It is the server's, wherever it is found.
TRASH_FOLDER = ".llmc.trash"

_SECRETS = (
    ".ssh", ".aws", ".azure", ".gnupg", ".kube", ".docker", ".config", ".netrc", ".pgpass", ".pypirc", ".npmrc",
    ".git-credentials", ".password-store", ".local/share/keyrings", ".mozilla", ".cargo/credentials.toml",
)  # fmt: skip

_SECRETS_OF_MACHINE = (
    "/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d",
    "/etc/security/opasswd", "/etc/ssl/private", "/etc/pki/tls/private", "/etc/krb5.keytab", "/etc/wireguard",
    "/etc/letsencrypt/archive", "/etc/NetworkManager/system-connections",
    *(f"/etc/ssh/ssh_host_{kind}_key" for kind in ("rsa", "dsa", "ecdsa", "ed25519")),
)  # fmt: skip
_FIRST_PERSON = 1000  # accounts below it are programs', but for root

SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# What the dynamic linker and a distribution's Python obey besides.
_SYSTEM_CODE = (
    *SYSTEM_FOLDERS,
    *("/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/ld.so.conf", "/etc/ld.so.conf.d"),
    f"/etc/python{sys.version_info[0]}.{sys.version_info[1]}",
)

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
    paths = (*prefixes, PACKAGE_HOME, sys.executable, *_start_script(), *_linked_cache(), *sys.path, *caches, *users)
    return tuple(dict.fromkeys(os.path.abspath(path) for path in paths))


def _start_script() -> list[str]:
    """The program that the client starts; a link to it can't be protected by itself, so its folder is."""
    script = os.path.abspath(sys.argv[0]) if sys.argv and sys.argv[0] else ""
    if not os.path.isfile(script):
        return []
    return [os.path.dirname(script) if os.path.islink(script) else script]


def _linked_cache() -> list[str]:
    """The cache of uv, whose installed files are hard links: who changes one there changes what is installed."""
    modules = (sys.modules.get(name) for name in ("llmc_mcp", "msgspec"))
    files = (module.__file__ for module in modules if module is not None and module.__file__)
    if not any(os.stat(file).st_nlink > 1 for file in files if os.path.exists(file)):
        return []
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    cache = os.environ.get("UV_CACHE_DIR") or os.path.join(home, "uv")
    return [cache] if os.path.isdir(cache) else []


def system_code() -> tuple[str, ...]:
    """The programs and libraries that the server uses and shares with the machine, and what decides on them."""
    return _SYSTEM_CODE


def forget_unneeded_imports(roots: Iterable[str]) -> None:
    """Remove unused entries of sys.path that overlap a root.

    `python -m` adds the working directory, PYTHONPATH a project: files there must neither run in the server nor be
    protected from changes because they might.
    """
    folders = [os.path.realpath(os.path.expanduser(root)) for root in roots]
    needed = {os.path.realpath(path) for path in set(_imported_from())}

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
    usual = [os.path.join(home, name) for home in map(os.path.realpath, homes) for name in _SECRETS]
    denied = (os.path.abspath(os.path.expanduser(path)) for path in deny_read)
    return tuple(dict.fromkeys((*denied, *usual, *_SECRETS_OF_MACHINE)))


def homes(uid: int) -> tuple[str, ...]:
    """A user's home in the password database, and this process's $HOME; for root, who may read all, everybody's."""
    try:
        known = [pwd.getpwuid(uid).pw_dir]
    except KeyError:
        known = []
    if uid == 0:
        known += [entry.pw_dir for entry in pwd.getpwall() if entry.pw_uid >= _FIRST_PERSON]
    return tuple(dict.fromkeys((*known, os.path.expanduser("~"))))


def trail(path: str) -> list[str]:
    """The real path of each symbolic link along a path, then the real path of its target."""
    *way, (there, _) = _way(path)
    return [*(here for here, is_link in way if is_link), there]


def walked(path: str) -> list[str]:
    """Every entry that is passed on the way to a path, links and what they lead through included."""
    return [here for here, _ in _way(path)]


def _way(path: str) -> list[tuple[str, bool]]:
    """The entries on the way to a path, and whether each is followed as a link; the last one is what it leads to."""
    way: list[tuple[str, bool]] = []
    links = 0
    done, todo = "/", os.path.join(os.getcwd(), path).split("/")
    while todo:
        part = todo.pop(0)
        here = os.path.normpath(os.path.join(done, part))
        is_link = links < _MAX_LINKS and os.path.islink(here)
        way.append((here, is_link))
        if is_link:
            links += 1
            target = os.readlink(here)
            todo = target.split("/") + todo
            done = "/" if target.startswith("/") else done
        else:
            done = here
    return way


def mount_rows() -> bytes:
    """The mounts of this moment as the kernel lists them."""
    with open("/proc/self/mountinfo", "rb", buffering=0) as file:
        return file.read()


class MountTable:
    """The mounts of this moment: a bind mount shows a folder by another name."""

    def __init__(self, rows: bytes | None = None) -> None:
        lines = (mount_rows() if rows is None else rows).decode("utf-8", "surrogateescape").splitlines()
        found = [line.split() for line in lines]
        self.mounts = [Mount(row[2], _spelled(row[3]), _spelled(row[4]), row[row.index("-") + 1]) for row in found]

    def names_of(self, path: str) -> list[str]:
        """A real path, and its other names; it need not exist."""
        there, rest = path, ""
        while (entry := _entry_id(there)) is None and there != "/":
            there, _, last = there.rpartition("/")
            there, rest = there or "/", os.path.join(last, rest)
        holding = [mount for mount in self.mounts if is_below(there, mount.point)]
        if not holding:
            return [path]
        held_by = max(reversed(holding), key=lambda mount: len(mount.point))  # of two on one folder, the upper one
        inner = _moved(there, held_by.point, held_by.root)
        others = (
            _moved(inner, mount.root, mount.point)
            for mount in self.mounts
            if mount is not held_by and mount.device == held_by.device and is_below(inner, mount.root)
        )
        seen = [name for name in others if _entry_id(name) == entry]  # else something is mounted over it
        return list(dict.fromkeys((path, *(os.path.join(name, rest).rstrip("/") for name in seen))))


def _moved(path: str, folder: str, to: str) -> str:
    """The path that a path below a folder has when the folder is moved."""
    return os.path.join(to, path[len(folder) :].lstrip("/")).rstrip("/") or "/"


class Mount(NamedTuple):
    """A row of mountinfo: which folder of which file system is to be seen where."""

    device: str
    root: str
    point: str
    kind: str


def _spelled(name: str) -> str:
    """A path as it is; mountinfo writes white space and backslashes in octal."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), name)


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


def is_trash(path: str) -> bool:
    """Whether a path is the trash of a workspace, or lies in one."""
    return TRASH_FOLDER in path and TRASH_FOLDER in path.split("/")


class HiddenPlaces(NamedTuple):
    """Real paths that no tool may look into, with everything below them."""

    own_data: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()  # a root that the operator named inside a secret place is served all the same

    def cover(self, path: str) -> bool:
        """Whether a real path is hidden."""
        return is_below_any(path, self.own_data) or is_trash(path) or self.keep_secret(path)

    def keep_secret(self, path: str) -> bool:
        """Whether a real path is hidden for another reason than that it holds the server's data."""
        if not path.startswith(self.secrets):  # one call for all of them: an index asks this for every file
            return False
        return any(
            is_below(path, secret) and not any(is_below(root, secret) and is_below(path, root) for root in self.roots)
            for secret in self.secrets
        )
