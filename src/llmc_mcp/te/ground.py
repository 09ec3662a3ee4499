"""What a sandbox stands on: the operator's settings, and the folders, users and limits they mean on this machine."""

import os
import pwd
import sys
from typing import NamedTuple, Protocol

from ..config import Config
from ..errors import FeatureUnavailable, InvalidArgument
from .bounds import Bounds, Counter, resource_limits
from .exec_status import ExecStatus
from .filesystem import Root
from .launcher import Plan

LEVELS = ("auto", "workspace", "landlock", "read_only", "off")
SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

_SECRETS = (
    ".ssh", ".aws", ".azure", ".gnupg", ".kube", ".docker", ".config", ".netrc", ".pgpass", ".pypirc", ".npmrc",
    ".git-credentials", ".password-store", ".local/share/keyrings", ".mozilla", ".cargo/credentials.toml",
)  # fmt: skip

_OOM_FIRST = 800


class Settings(NamedTuple):
    """What the operator chose."""

    level: str = "auto"
    network: bool = False
    extra_read: tuple[str, ...] = ()
    extra_write: tuple[str, ...] = ()
    deny_read: tuple[str, ...] = ()
    run_as: str = ""
    bounds: Bounds = Bounds()


def settings_from(config: Config) -> Settings:
    """The operator's choices, from the configuration."""
    chosen = config.sandbox
    bounds = Bounds(
        processes=chosen.max_processes,
        memory_mb=chosen.max_memory_mb,
        file_mb=chosen.max_file_mb,
        tmp_mb=chosen.max_tmp_mb,
    )
    return Settings(
        level=chosen.level,
        network=config.tools.allow_outbound_network,
        extra_read=chosen.extra_read,
        extra_write=chosen.extra_write,
        deny_read=chosen.deny_read,
        run_as=chosen.run_as,
        bounds=bounds,
    )


class Launch(NamedTuple):
    """A command as the launcher takes it. `fds` and `status` are made for this one start; who starts it closes them."""

    argv: list[bytes]
    env: dict[bytes, bytes]
    plan: Plan
    fds: list[int]
    status: ExecStatus | None = None  # where a wrapper starts the command


class Level(Protocol):
    """A way to confine a command."""

    name: str
    blocks_network: bool
    free_fd: int  # the number that the first kept fd gets inside

    def launch(self, argv: list[bytes], cwd: int) -> Launch: ...

    def close(self) -> None: ...


class Ground(NamedTuple):
    """What every level is built from: the folders, who runs commands, and what they are bound by."""

    settings: Settings
    roots: tuple[Root, ...]
    user: tuple[int, int] | None  # whom the launcher has to become, if not who we are
    uid: int
    path: tuple[str, ...]
    read_only: tuple[str, ...]
    writable: tuple[str, ...]
    hidden: tuple[str, ...]  # inside the roots
    counter: Counter
    git_config: bytes = b""  # the file in the home of commands

    def plan(self) -> Plan:
        """What does not depend on the level."""
        bounds = self.settings.bounds
        plan: Plan = {
            "supervised": True,
            "limits": resource_limits(bounds, self.counter.running()),
            "oom_score_adj": _OOM_FIRST,
        }
        if self.user is not None:
            plan["user"] = self.user
        return plan

    def environment(self, home: str, tmp: str) -> dict[bytes, bytes]:
        """Built from nothing: what the server's own environment holds is nobody else's business."""
        user = "llmc" if self.uid == 0 else user_name(self.uid)
        variables = {
            "PATH": ":".join(self.path),
            "HOME": home,
            "TMPDIR": tmp,
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "USER": user,
            "LOGNAME": user,
            "GIT_TERMINAL_PROMPT": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        return {os.fsencode(name): os.fsencode(value) for name, value in variables.items()}


def make_ground(settings: Settings, roots: tuple[Root, ...], data_dir: str) -> Ground:
    """Look at the machine and the settings; raises where the two do not go together."""
    user = _run_as(settings.run_as)
    uid = user[0] if user else os.getuid()
    read_only = tuple(
        dict.fromkeys(
            path
            for path in map(_real, (*settings.extra_read, sys.prefix, sys.base_prefix, _package_home()))
            if os.path.exists(path) and reachable(path, user)
        )
    )
    writable = tuple(dict.fromkeys(map(_real, settings.extra_write)))
    home = pwd.getpwuid(uid).pw_dir if user_name(uid) != str(uid) else os.path.expanduser("~")
    folders = [*(os.fsdecode(root.real) for root in roots), *writable] if settings.level != "off" else []
    hidden = _hidden_inside(settings, folders, data_dir, home)
    return Ground(settings, roots, user, uid, search_path(settings), read_only, writable, hidden, Counter(uid))


def search_path(settings: Settings) -> tuple[str, ...]:
    """Where programs are found: the system's folders, and those of toolchains that the operator named."""
    extra = (_bin_of(_real(path)) for path in settings.extra_read)
    return (*SYSTEM_PATH, *(folder for folder in extra if os.path.isdir(folder)))


def program_folders(settings: Settings, roots: tuple[Root, ...]) -> tuple[str, ...]:
    """Below which folders a program has to lie for commands to start it: those that exist inside the sandbox."""
    if settings.level == "off":
        return ("/",)
    own = (*settings.extra_read, *settings.extra_write, sys.prefix, sys.base_prefix, _package_home())
    folders = map(_real, (*SYSTEM_FOLDERS, *search_path(settings), *own))
    return tuple(dict.fromkeys((*(os.fsdecode(root.real) for root in roots), *folders)))


def reachable(path: str, user: tuple[int, int] | None) -> bool:
    """Whether the user whom commands run as can get to a path at all."""
    if user is None:
        return True
    while path != "/":
        info = os.stat(path)
        shift = 6 if info.st_uid == user[0] else 3 if info.st_gid == user[1] else 0
        if not info.st_mode >> shift & 1:
            return False
        path = os.path.dirname(path)
    return True


def _package_home() -> str:
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _bin_of(folder: str) -> str:
    return folder if os.path.basename(folder) == "bin" else os.path.join(folder, "bin")


def _real(path: str) -> str:
    return os.path.realpath(os.path.expanduser(path))


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _run_as(name: str) -> tuple[int, int] | None:
    """The uid and gid to become; only root can."""
    if not name:
        return None
    try:
        entry = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
    except KeyError:
        raise InvalidArgument(f"mcp.sandbox.run_as: there is no user {name!r}") from None
    if entry.pw_uid == os.getuid():
        return None
    if os.getuid() != 0:
        raise InvalidArgument("mcp.sandbox.run_as needs a server that runs as root")
    return entry.pw_uid, entry.pw_gid


def _hidden_inside(settings: Settings, folders: list[str], data_dir: str, home: str) -> tuple[str, ...]:
    """What lies inside the roots and must not be seen: always an entry right below a root.

    A mount on it keeps it in place: while it is a mount point no command can move it away and put a link there for
    the next start to follow. Deeper down that would not hold, so of a deeper secret the whole entry is hidden.
    """
    secrets = [path for name in _SECRETS if os.path.lexists(path := os.path.join(os.path.realpath(home), name))]
    if any(is_below(os.path.realpath(data_dir), folder) for folder in folders):
        os.makedirs(data_dir, mode=0o700, exist_ok=True)  # what is not there can't be covered
    hidden: dict[str, None] = {}
    for secret in map(_real, (data_dir, *settings.deny_read, *secrets)):
        for folder in folders:
            if secret == folder or (folder == "/" and is_below(secret, folder)):
                raise FeatureUnavailable(
                    f"commands can't run: the root {folder} contains {secret}, which they must not see",
                    hint='Choose a narrower root; mcp.sandbox.level="off" runs commands unconfined.',
                )
            if is_below(secret, folder) and os.path.exists(secret):
                hidden[os.path.join(folder, secret[len(folder) + 1 :].split("/", 1)[0])] = None
    return tuple(path for path in hidden if not os.path.islink(path))


def is_below(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or lies in it; both are real paths."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")
