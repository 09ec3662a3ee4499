"""What a sandbox is built from: the operator's settings, and the folders, users and limits they mean here."""

import os
import pwd
import shutil
import stat as stat_bits
import sys
from typing import NamedTuple, Protocol

from .. import PACKAGE_HOME
from ..config.schema import Config
from ..config.trust import INSIDE_COMMAND, user_config_file
from ..errors import FeatureUnavailable, InvalidArgument
from ..files.filesystem import Root
from ..files.off_limits import SYSTEM_FOLDERS, TRASH_FOLDER, MountTable, homes, outermost, own_code, secrets, trail
from ..kernel.exec_status import ExecStatus
from ..kernel.launcher_process import ChildPlan
from ..kernel.limits import Bounds, Counter, resource_limits
from ..kernel.namespaces import PROXY_PORT
from ..policy import is_below, is_below_any
from .machines import Machine
from .toolchains import NONE, Toolchain, candidates_for, find_toolchains, programs_path

LEVELS = ("auto", "workspace", "landlock", "read_only", "off")
SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

OPEN, READ_ONLY, HIDDEN = "open", "read-only", "hidden"

# Of the root `/`: a command has a /proc and /dev of its own, no /sys, and nothing to do with what listens in /run.
_KERNEL_FOLDERS = ("/proc", "/sys", "/dev", "/run")
_KERNEL_FILE_SYSTEMS = frozenset((
    "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs", "fusectl",
    "mqueue", "proc", "pstore", "securityfs", "selinuxfs", "sysfs", "tracefs",
))  # fmt: skip
_READ_ONLY_ENTRIES = ("/etc", "/boot")  # every program on the machine obeys what is there, the server's too

_OOM_FIRST = 800

_PROXY = f"http://127.0.0.1:{PROXY_PORT}"
_PROXY_ENVIRONMENT = {
    name.encode(): value.encode()
    for names, value in {
        # Not socks5h:// for ALL_PROXY, though it works: httpx refuses to start where a module for SOCKS is missing.
        ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"): _PROXY,
        ("PIP_PROXY", "CARGO_HTTP_PROXY", "npm_config_proxy", "npm_config_https_proxy"): _PROXY,
        ("NO_PROXY", "no_proxy", "npm_config_noproxy"): "localhost,127.0.0.1,::1",
        ("NODE_USE_ENV_PROXY",): "1",
    }.items()
    for name in names
}


class SandboxSettings(NamedTuple):
    """What the operator chose."""

    level: str = "auto"
    network: bool = False  # the host's own
    extra_read: tuple[str, ...] = ()
    extra_write: tuple[str, ...] = ()
    deny_read: tuple[str, ...] = ()
    run_as: str = ""
    bounds: Bounds = Bounds()
    toolchains: str | tuple[str, ...] = NONE
    trusted_files: tuple[str, ...] = ()  # configuration that the next start obeys
    idle_s: float = 1_800.0  # after which what a session shares goes
    egress: tuple[str, ...] | None = None  # what commands may reach through the proxy; None: they have none


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
        network=config.network() == "on",
        egress=config.egress_entries() if config.network() == "allowlist" else None,
        extra_read=chosen.extra_read,
        extra_write=chosen.extra_write,
        deny_read=chosen.deny_read,
        run_as=chosen.run_as,
        bounds=bounds,
        idle_s=config.linux_ops.process_limits.idle_reap_sec,
        toolchains=chosen.toolchains,
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


class MachineRoot(NamedTuple):
    """What the root `/` means to commands: its entries, by what they may do with each.

    The kernel's own file systems and /run, where other programs listen, are not among them.
    """

    writable: tuple[str, ...]
    read_only: tuple[str, ...]
    links: tuple[str, ...]


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
    own_code: tuple[str, ...] = ()  # what the server runs or obeys, by every name; no command may change it
    machine: MachineRoot | None = None  # where a root is `/`
    toolchains: tuple[Toolchain, ...] = ()
    veiled: tuple[str, ...] = ()  # files in what commands may only read, which they must not see; the roots' trash

    @property
    def changeable(self) -> list[str]:
        """The folders that commands may change."""
        return [*_folders_of(self.roots, self.machine), *self.writable]

    @property
    def readable(self) -> list[str]:
        """The folders that commands may read besides, and the system's."""
        return [*self.read_only, *(self.machine.read_only if self.machine else ())]

    def own_inside(self) -> list[str]:
        """What of the server's code lies in a folder that commands may change: real paths, the outermost."""
        changeable = self.changeable
        return outermost(path for path in self.own_code if is_below_any(path, changeable))

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
            INSIDE_COMMAND: "1",
        }
        variables |= {name: value for toolchain in self.toolchains for name, value in toolchain.env}
        return {os.fsencode(name): os.fsencode(value) for name, value in variables.items()}


def proxy_environment(profile: Profile, machine: Machine | None) -> dict[bytes, bytes]:
    """How programs find the proxy, where there is one. Who ignores it reaches nobody, since there is nothing else."""
    if profile.settings.egress is None or machine is None or machine.listener < 0:
        return {}
    return _PROXY_ENVIRONMENT


def make_profile(settings: SandboxSettings, roots: tuple[Root, ...], data_dir: str) -> Profile:
    """Look at the machine and the settings; raises where the two do not go together."""
    user = _run_as(settings.run_as)
    uid = user[0] if user else os.getuid()
    toolchains = toolchains_of(settings)
    shown = (path for toolchain in toolchains for path in toolchain.shown)
    read_only = tuple(
        dict.fromkeys(
            path
            for path in map(_real, (*settings.extra_read, sys.prefix, sys.base_prefix, PACKAGE_HOME, *shown))
            if os.path.exists(path) and reachable(path, user)
        )
    )
    writable = tuple(dict.fromkeys(map(_real, settings.extra_write)))
    own, unseen = _own(settings), _unseen(settings, data_dir, uid)
    confined = settings.level != "off"
    machine = _machine_root(unseen, own) if confined and any(root.real == b"/" for root in roots) else None
    folders = [*_folders_of(roots, machine), *writable] if confined else []
    for path in unseen[:2]:
        if is_below_any(os.path.realpath(path), folders):
            _make_place(path)
    for path in outermost(map(os.path.realpath, own)):
        if is_below_any(path, folders):
            _make_place(path)
    mounts = MountTable()
    hidden = _hidden_inside(unseen, folders, machine, mounts)
    own_names = tuple(name for path in own if os.path.exists(path) for name in mounts.names_of(os.path.realpath(path)))
    profile = Profile(
        settings,
        roots,
        user,
        uid,
        search_path(settings),
        read_only,
        writable,
        hidden,
        Counter(uid),
        own_code=own_names,
        machine=machine,
        toolchains=toolchains,
    )
    inside = [path for toolchain in toolchains for path in toolchain.secrets if not is_below_any(path, folders)]
    trash = [path for path in _trash_of(roots) if os.path.isdir(path)]
    profile = profile._replace(veiled=(*inside, *trash))
    if confined:
        _refuse_loose_code(profile, own)
    return profile


def _own(settings: SandboxSettings) -> tuple[str, ...]:
    """What the server runs or obeys."""
    return (*own_code(), *settings.trusted_files)


def _unseen(settings: SandboxSettings, data_dir: str, uid: int) -> tuple[str, ...]:
    """What commands must not see; whatever appears in the first two, the next start trusts."""
    return (data_dir, os.path.dirname(user_config_file()), *secrets(settings.deny_read, homes(uid)))


def _trash_of(roots: tuple[Root, ...]) -> list[str]:
    """Where servers that share a workspace put what they delete."""
    return [os.path.join(os.fsdecode(root.real), TRASH_FOLDER) for root in roots]


def _folders_of(roots: tuple[Root, ...], machine: MachineRoot | None) -> list[str]:
    """The folders that the roots stand for."""
    named = [os.fsdecode(root.real) for root in roots]
    return [folder for root in named for folder in (machine.writable if machine and root == "/" else (root,))]


def _machine_root(unseen: tuple[str, ...], own: tuple[str, ...]) -> MachineRoot:
    """Sort the entries of `/`; those that commands must not see are left out."""
    found: dict[str, list[str]] = {"writable": [], "read_only": [], "links": []}
    left_out = (*SYSTEM_FOLDERS, *_KERNEL_FOLDERS, *(os.path.realpath(path) for path in unseen if os.path.exists(path)))
    code = [os.path.realpath(path) for path in own]
    for entry in sorted(os.scandir("/"), key=lambda entry: entry.name):
        if is_below_any(entry.path, left_out):
            continue
        if entry.is_symlink():
            found["links"].append(entry.path)
        elif not entry.is_dir() or entry.path in _READ_ONLY_ENTRIES or is_below_any(entry.path, code):
            found["read_only"].append(entry.path)
        else:
            found["writable"].append(entry.path)
    return MachineRoot(**{kind: tuple(paths) for kind, paths in found.items()})


def _make_place(path: str) -> None:
    """Make a folder that the next start reads from and nobody has made yet: what is not there can't be covered."""
    try:
        if not os.path.exists(path):
            os.makedirs(path, mode=0o700)
    except OSError as exc:
        raise FeatureUnavailable(
            f"commands can't run: they could make {path}, which the server reads ({exc.strerror})",
            hint="Make it, or serve a folder without it.",
        ) from None


def _refuse_loose_code(profile: Profile, own_code: tuple[str, ...]) -> None:
    """Raise where a command could have the server run other code, however that code itself is covered."""
    own, changeable = profile.own_inside(), profile.changeable
    for folder in changeable:
        if is_below_any(folder, profile.own_code):
            raise FeatureUnavailable(
                f"commands can't run: they may change {folder}, which the server runs its own code from",
                hint="Serve another folder, or install the server in an environment of its own.",
            )
    for path in own_code:
        for link in trail(path)[:-1]:
            if is_below_any(link, changeable) and not is_below_any(link, own):
                raise FeatureUnavailable(
                    f"commands can't run: they could replace {link}, a link on the way to the server's own code",
                    hint="Start the server by its real path, or serve a folder without the link.",
                )


def covers(profile: Profile) -> dict[str, str]:
    """What is mounted over places inside the roots, and how: OPEN, READ_ONLY or HIDDEN, outermost first.

    The server's code is read-only and secrets are hidden. The folders on the way to them stay open, but are mount
    points as well: what is one can't be renamed or removed, so no command can put a link in the place of any of them
    for the next start to follow.
    """
    found: dict[str, str] = {}
    targets = [(path, HIDDEN) for path in (*profile.hidden, *profile.veiled)]
    targets += [(path, READ_ONLY) for path in profile.own_inside()]
    changeable = profile.changeable
    for target, kind in sorted(targets, key=lambda row: len(row[0])):  # what lies above decides first
        above = [path for path, how in found.items() if how != OPEN and is_below(target, path)]
        if any(found[path] == HIDDEN for path in above):
            continue  # nothing of it is to be seen
        folder = min((folder for folder in changeable if is_below(target, folder)), key=len, default="")
        if above or not folder:  # nothing on the way can be changed
            found[_first_barred(target, "/", profile.user)] = kind
            continue
        barred = _first_barred(target, folder, profile.user)
        path = folder
        for part in barred[len(folder) :].strip("/").split("/"):
            path = os.path.join(path, part)
            found.setdefault(path, OPEN)
        found[barred] = kind
    return dict(sorted(found.items()))


def _first_barred(target: str, folder: str, user: tuple[int, int] | None) -> str:
    """The outermost folder on the way that the user of commands can't enter, where nothing is mounted; or the target.

    It is covered as a whole.
    """
    path = folder
    for part in target[len(folder) :].strip("/").split("/"):
        path = os.path.join(path, part)
        if path == target or not reachable(path, user):
            break
    return path


def search_path(settings: SandboxSettings) -> tuple[str, ...]:
    """Where programs are found: in toolchains, in the system's folders, and in those that the operator named."""
    extra = (_bin_of(_real(path)) for path in settings.extra_read)
    known = programs_path(toolchains_of(settings), SYSTEM_PATH, os.environ.get("PATH", ""))
    return (*known, *(folder for folder in extra if os.path.isdir(folder)))


def toolchains_of(settings: SandboxSettings) -> tuple[Toolchain, ...]:
    """The toolchains that commands see; not those that the user whom they run as can't get to."""
    user = _run_as(settings.run_as)
    found = find_toolchains(settings.toolchains, os.path.expanduser("~"))
    return tuple(one for one in found if all(os.path.exists(path) and reachable(path, user) for path in one.shown))


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
    shown = (path for toolchain in toolchains_of(settings) for path in toolchain.shown)
    own = (*settings.extra_read, *settings.extra_write, sys.prefix, sys.base_prefix, PACKAGE_HOME, *shown)
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


def _hidden_inside(
    unseen: tuple[str, ...], folders: list[str], machine: MachineRoot | None, mounts: MountTable
) -> tuple[str, ...]:
    """What commands would find inside the roots and must not see: real paths, the outermost."""
    shown = [*folders, *(machine.read_only if machine else ())]
    # The kernel may show its own files elsewhere too, as in a chroot; under uid 0 they answer to the uid alone.
    kernel = [mount.point for mount in mounts.mounts if machine and mount.kind in _KERNEL_FILE_SYSTEMS]
    hidden: dict[str, None] = {}
    for path in (*unseen, *(point for point in kernel if is_below_any(point, shown))):
        if not os.path.exists(path):
            continue
        *links, real = trail(path)
        inside = [name for name in mounts.names_of(real) if is_below_any(name, shown)]
        for link in links if inside else ():
            if is_below_any(link, folders):
                raise FeatureUnavailable(
                    f"commands can't run: the link {link} leads to what they must not see, and they could replace it",
                    hint="Choose a narrower root, or put the real folder in the place of the link.",
                )
        for secret in inside:
            if secret in folders:
                raise FeatureUnavailable(
                    f"commands can't run: the root {secret} is a place that they must not see",
                    hint="Choose another root.",
                )
            hidden[secret] = None
    return tuple(outermost(hidden))


def covered_now(settings: SandboxSettings, roots: tuple[Root, ...], data_dir: str) -> object:
    """What in the roots has to be covered at this moment; a level that was made for something else is stale."""
    if settings.level in ("off", "read_only"):
        return None
    try:
        profile = make_profile(settings, roots, data_dir)
    except (FeatureUnavailable, InvalidArgument) as exc:
        return exc.message
    return profile.machine, [(path, how, place_of(path)) for path, how in covers(profile).items()]


def looked_at(settings: SandboxSettings, roots: tuple[Root, ...], data_dir: str) -> list[str]:
    """The paths that `covered_now` depends on, whether they exist or not."""
    user = _run_as(settings.run_as)
    unseen = _unseen(settings, data_dir, user[0] if user else os.getuid())
    writable = map(os.path.expanduser, settings.extra_write)
    candidates = candidates_for(settings.toolchains, os.path.expanduser("~"))
    return [*_own(settings), *unseen, *_trash_of(roots), *writable, *candidates]


def place_of(path: str) -> tuple[int, int, int] | None:
    """Which entry a path names, a link taken as itself: device, inode and kind."""
    try:
        info = os.lstat(path)
    except OSError:
        return None
    return info.st_dev, info.st_ino, stat_bits.S_IFMT(info.st_mode)
