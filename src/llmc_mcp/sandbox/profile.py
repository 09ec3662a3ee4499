"""What a sandbox is built from: the operator's settings, and the folders, users and limits they mean here."""

import itertools
import os
import pwd
import shutil
import stat as stat_bits
import sys
from typing import NamedTuple, Protocol

from .. import PACKAGE_HOME
from ..config.schema import Config
from ..errors import FeatureUnavailable, InvalidArgument
from ..files.filesystem import Root
from ..files.off_limits import homes, outermost, own_code, secrets, seen_from, trail
from ..kernel.exec_status import ExecStatus
from ..kernel.launcher import ChildPlan
from ..kernel.limits import Bounds, Counter, resource_limits
from ..policy import is_below, is_below_any
from .machines import Machine

LEVELS = ("auto", "workspace", "landlock", "read_only", "off")
SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

_OOM_FIRST = 800


class SandboxSettings(NamedTuple):
    """What the operator chose."""

    level: str = "auto"
    network: bool = False
    extra_read: tuple[str, ...] = ()
    extra_write: tuple[str, ...] = ()
    deny_read: tuple[str, ...] = ()
    run_as: str = ""
    bounds: Bounds = Bounds()
    idle_s: float = 1_800.0  # after which what a session shares goes


def settings_from(config: Config) -> SandboxSettings:
    """The operator's choices, from the configuration."""
    chosen = config.sandbox
    bounds = Bounds(
        processes=chosen.max_processes,
        memory_mb=chosen.max_memory_mb,
        file_mb=chosen.max_file_mb,
        tmp_mb=chosen.max_tmp_mb,
    )
    return SandboxSettings(
        level=chosen.level,
        network=config.tools.allow_outbound_network,
        extra_read=chosen.extra_read,
        extra_write=chosen.extra_write,
        deny_read=chosen.deny_read,
        run_as=chosen.run_as,
        bounds=bounds,
        idle_s=config.linux_ops.process_limits.idle_reap_sec,
    )


class Launch(NamedTuple):
    """A command as the launcher takes it. `fds` and `status` are made for this one start; the caller closes them."""

    argv: list[bytes]
    env: dict[bytes, bytes]
    plan: ChildPlan
    fds: list[int]
    status: ExecStatus | None = None  # where a wrapper starts the command


class Level(Protocol):
    """A way to confine a command."""

    name: str
    blocks_network: bool
    free_fd: int  # the number that the first kept fd gets inside

    def launch(self, argv: list[bytes], cwd: int, machine: Machine | None = None) -> Launch:
        """What to start for a command; in `machine` it shares what its session has."""
        ...

    def close(self) -> None: ...


class Profile(NamedTuple):
    """What every level is built from: the folders, who runs commands, and what they are bound by."""

    settings: SandboxSettings
    roots: tuple[Root, ...]
    user: tuple[int, int] | None  # whom the launcher has to become, if not who we are
    uid: int
    path: tuple[str, ...]
    read_only: tuple[str, ...]
    writable: tuple[str, ...]
    hidden: tuple[str, ...]  # inside the roots
    counter: Counter
    git_config: bytes = b""  # the file in the home of commands
    own_code: tuple[str, ...] = ()  # what the server runs, or may yet; no command may change it

    @property
    def changeable(self) -> list[str]:
        """The folders that commands may change."""
        return [*(os.fsdecode(root.real) for root in self.roots), *self.writable]

    def own_inside(self) -> list[str]:
        """What of the server's code lies in a folder that commands may change: real paths, the outermost."""
        inside = [path for path in map(os.path.realpath, self.own_code) if os.path.exists(path)]
        seen = (name for path in inside for name in seen_from(path, self.changeable))
        return outermost(path for path in seen if is_below_any(path, self.changeable))

    def plan(self) -> ChildPlan:
        """What does not depend on the level."""
        bounds = self.settings.bounds
        plan: ChildPlan = {
            "supervised": True,
            "limits": resource_limits(bounds, self.counter.running()),
            "oom_score_adj": _OOM_FIRST,
        }
        if self.user is not None:
            plan["user"] = self.user
        return plan

    def environment(self, home: str, tmp: str, *more_path: str) -> dict[bytes, bytes]:
        """Built from nothing: what the server's own environment holds is nobody else's business."""
        user = "llmc" if self.uid == 0 else user_name(self.uid)
        variables = {
            "PATH": ":".join((*self.path, *more_path)),
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


def make_profile(settings: SandboxSettings, roots: tuple[Root, ...], data_dir: str) -> Profile:
    """Look at the machine and the settings; raises where the two do not go together."""
    user = _run_as(settings.run_as)
    uid = user[0] if user else os.getuid()
    read_only = tuple(
        dict.fromkeys(
            path
            for path in map(_real, (*settings.extra_read, sys.prefix, sys.base_prefix, PACKAGE_HOME))
            if os.path.exists(path) and reachable(path, user)
        )
    )
    writable = tuple(dict.fromkeys(map(_real, settings.extra_write)))
    folders = [*(os.fsdecode(root.real) for root in roots), *writable] if settings.level != "off" else []
    hidden = _hidden_inside(settings, folders, data_dir, uid)
    _make_places_for_code(folders)
    path = search_path(settings)
    profile = Profile(settings, roots, user, uid, path, read_only, writable, hidden, Counter(uid), own_code=own_code())
    if settings.level != "off":
        _refuse_loose_code(profile)
    return profile


def _make_places_for_code(folders: list[str]) -> None:
    """Make what the next start imports from and nobody has made yet: what is not there can't be covered."""
    for path in outermost(map(os.path.realpath, own_code())):
        if is_below_any(path, folders) and not os.path.exists(path):
            try:
                os.makedirs(path, exist_ok=True)
            except OSError as exc:
                raise FeatureUnavailable(
                    f"commands can't run: they could make {path}, which the server imports from ({exc.strerror})",
                    hint="Make the folder, or serve a folder without it.",
                ) from None


def _refuse_loose_code(profile: Profile) -> None:
    """Raise where a command could have the server run other code, however that code itself is covered."""
    own = profile.own_inside()
    for path in profile.own_code:
        *links, real = trail(path)
        for folder in profile.changeable:
            if is_below_any(folder, seen_from(real, profile.changeable)):
                raise FeatureUnavailable(
                    f"commands can't run: they may change {folder}, which the server runs its own code from",
                    hint="Serve another folder, or install the server in an environment of its own.",
                )
        for link in links:
            if is_below_any(link, profile.changeable) and not is_below_any(link, own):
                raise FeatureUnavailable(
                    f"commands can't run: they could replace {link}, a link on the way to the server's own code",
                    hint="Start the server by its real path, or serve a folder without the link.",
                )


def pinned(profile: Profile) -> dict[str, bool]:
    """How the server's code inside the roots is kept: each path to mount on itself, and whether it is read-only.

    The folders on the way to it stay writable, but are mount points as well: what is one can't be renamed, so no
    command can put a link in the place of any of them for the next start to follow.
    """
    pins: dict[str, bool] = {}
    for own in profile.own_inside():
        if is_below_any(own, profile.hidden):
            continue  # nothing of it is to be seen
        folder = min((folder for folder in profile.changeable if is_below(own, folder)), key=len)
        path = folder
        for part in own[len(folder) :].strip("/").split("/"):
            path = os.path.join(path, part)
            # A folder that the user of commands can't enter is kept as a whole.
            pins[path] = pins.get(path, False) or path == own or not reachable(path, profile.user)
            if pins[path]:
                break
    return dict(sorted(pins.items()))


def search_path(settings: SandboxSettings) -> tuple[str, ...]:
    """Where programs are found: the system's folders, and those of toolchains that the operator named."""
    extra = (_bin_of(_real(path)) for path in settings.extra_read)
    return (*SYSTEM_PATH, *(folder for folder in extra if os.path.isdir(folder)))


def stand_ins(profile: Profile) -> dict[str, str]:
    """Programs that commands find by name although no folder of theirs has one: name → what is started."""
    found: dict[str, str] = {}
    search = os.pathsep.join(profile.path)
    if shutil.which("python", path=search) is None and (python := shutil.which("python3", path=search)):
        found["python"] = python
    own = os.path.join(sys.prefix, "bin", "rg")
    if shutil.which("rg", path=search) is None and os.access(own, os.X_OK) and reachable(own, profile.user):
        found["rg"] = own
    return found


def program_folders(settings: SandboxSettings, roots: tuple[Root, ...]) -> tuple[str, ...]:
    """Below which folders a program has to lie for commands to start it: those that exist inside the sandbox."""
    if settings.level == "off":
        return ("/",)
    own = (*settings.extra_read, *settings.extra_write, sys.prefix, sys.base_prefix, PACKAGE_HOME)
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


def _hidden_inside(settings: SandboxSettings, folders: list[str], data_dir: str, uid: int) -> tuple[str, ...]:
    """What lies inside the roots and must not be seen: always an entry right below a root.

    A mount on it keeps it in place: while it is a mount point no command can move it away and put a link there for
    the next start to follow. Deeper down that would not hold, so of a deeper secret the whole entry is hidden.
    """
    if is_below_any(os.path.realpath(data_dir), folders):
        os.makedirs(data_dir, mode=0o700, exist_ok=True)  # what is not there can't be covered
    hidden: dict[str, None] = {}
    for path in (data_dir, *secrets(settings.deny_read, homes(uid))):
        *links, real = trail(path)
        inside = [name for name in seen_from(real, folders) if is_below_any(name, folders)]
        if not os.path.exists(real) or not inside:
            continue
        for link in links:
            if is_below_any(link, folders):
                raise FeatureUnavailable(
                    f"commands can't run: the link {link} leads to what they must not see, and they could replace it",
                    hint="Choose a narrower root, or put the real folder in the place of the link.",
                )
        for secret, folder in itertools.product(inside, folders):
            if secret == folder or (folder == "/" and is_below(secret, folder)):
                raise FeatureUnavailable(
                    f"commands can't run: the root {folder} contains {secret}, which they must not see",
                    hint='Choose a narrower root; mcp.sandbox.level="off" runs commands unconfined.',
                )
            if is_below(secret, folder):
                hidden[os.path.join(folder, secret[len(folder) + 1 :].split("/", 1)[0])] = None
    return tuple(hidden)


def covered_now(settings: SandboxSettings, roots: tuple[Root, ...], data_dir: str) -> object:
    """What in the roots has to be covered at this moment; a level that was made for something else is stale."""
    if settings.level in ("off", "read_only"):
        return None
    try:
        profile = make_profile(settings, roots, data_dir)
    except (FeatureUnavailable, InvalidArgument) as exc:
        return exc.message
    return [(path, place_of(path)) for path in (*profile.hidden, *pinned(profile))]


def place_of(path: str) -> tuple[int, int, int] | None:
    """Which entry a path names, a link taken as itself: device, inode and kind."""
    try:
        info = os.lstat(path)
    except OSError:
        return None
    return info.st_dev, info.st_ino, stat_bits.S_IFMT(info.st_mode)
