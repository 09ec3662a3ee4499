"""Where commands run: the levels of confinement, and the choice among them.

`workspace` is bubblewrap: a file system in which only the roots, a private /tmp and read-only system folders
exist, in namespaces of its own. `landlock` needs nothing but the kernel: the same files are out of reach, though
their names can still be seen and their modes changed. `off` is for an operator who confines the whole server.
No level is taken on trust: each passes a self-test here, on this machine, before the first command (`selftest`).
"""

import os
import pwd
import shutil
import stat as stat_bits
import sys
import tempfile
import threading
from collections.abc import Mapping
from typing import NamedTuple, Protocol, cast

from ..config import Config
from ..errors import BadArgs, FeatureUnavailable, InvalidArgument, LlmcError
from . import kernel, seccomp, selftest
from .bounds import Bounds, ControlGroup, Counter, resource_limits
from .filesystem import Root
from .launcher import ConfinementError, Launcher, Plan
from .process import Child

LEVELS = ("auto", "workspace", "landlock", "read_only", "off")
SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

_SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# What programs look up in /etc, and nothing that is anybody's secret (so not /etc/ssl as a whole). Each costs a
# mount at every start of bubblewrap, so only what tools of a developer's day miss.
_ETC = (
    "alternatives", "crypto-policies", "gitconfig", "java-11-openjdk", "java-17-openjdk", "java-21-openjdk",
    "ld.so.cache", "localtime", "mime.types", "nsswitch.conf", "os-release", "pki/ca-trust/extracted",
    "pki/tls/certs", "services", "ssl/certs", "ssl/openssl.cnf", "timezone",
)  # fmt: skip
_ETC_FOR_NETWORK = ("resolv.conf", "hosts")
_ETC_REAL_USERS = ("passwd", "group", "hosts")  # where /etc is the real one
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_PROC_FILES = ("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/uptime", "/proc/loadavg", "/proc/version")
# Under uid 0 these answer to the uid alone, capabilities or not.
_PROC_OF_ROOT = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "mtrr")
_PROC_HIDDEN = ("keys", "timer_list", "sched_debug", "kpagecount", "kpageflags", "kpagecgroup")

_SECRETS = (
    ".ssh", ".aws", ".azure", ".gnupg", ".kube", ".docker", ".config", ".netrc", ".pgpass", ".pypirc", ".npmrc",
    ".git-credentials", ".password-store", ".local/share/keyrings", ".mozilla", ".cargo/credentials.toml",
)  # fmt: skip

_NOBODY_INSIDE = 1000  # who uid 0 is inside: programs that believe to be root try things that must fail
_OOM_FIRST = 800
_BWRAP_WORDS = 8_990  # bubblewrap takes 9,000 arguments, its own included


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
    """A command as the launcher takes it. `fds` are made for this one start."""

    argv: list[bytes]
    env: dict[bytes, bytes]
    plan: Plan
    fds: list[int]


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
        user = "llmc" if self.uid == 0 else _user_name(self.uid)
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
    home = pwd.getpwuid(uid).pw_dir if _user_name(uid) != str(uid) else os.path.expanduser("~")
    folders = [*(os.fsdecode(root.real) for root in roots), *writable] if settings.level != "off" else []
    hidden = _hidden_inside(settings, folders, data_dir, home)
    return Ground(settings, roots, user, uid, search_path(settings), read_only, writable, hidden, Counter(uid))


def search_path(settings: Settings) -> tuple[str, ...]:
    """Where programs are found: the system's folders, and those of toolchains that the operator named."""
    extra = (_bin_of(_real(path)) for path in settings.extra_read)
    return (*SYSTEM_PATH, *(folder for folder in extra if os.path.isdir(folder)))


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


def _user_name(uid: int) -> str:
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


# --- Landlock ----------------------------------------------------------------------------------------


class LandlockLevel:
    """Landlock and seccomp, put on by the launcher between fork and exec."""

    name = "landlock"
    free_fd = 3

    def __init__(self, ground: Ground) -> None:
        if kernel.landlock_abi() < 3:
            raise FeatureUnavailable(
                "the kernel's Landlock is missing or too old to hold a command",
                hint="Linux 6.2 or newer with landlock in its lsm= list.",
            )
        if ground.hidden:
            raise FeatureUnavailable(
                f"Landlock can't hide what lies inside a root: {', '.join(ground.hidden)}",
                hint="Choose a narrower root, or a data directory elsewhere (LLMC_DATA_DIR).",
            )
        _need_filter()
        network = ground.settings.network
        self.blocks_network = not network
        self._ground = ground
        self._tmp = tempfile.mkdtemp(prefix="llmc-")
        if ground.user:
            os.chown(self._tmp, *ground.user)
        self._ruleset = self._rules(network)
        self._seccomp = seccomp.command_filter(families=seccomp.INTERNET if network else ())
        self._env = ground.environment(self._tmp, self._tmp)

    def launch(self, argv: list[bytes], cwd: int) -> Launch:
        del cwd
        plan = self._ground.plan()
        plan |= {"seccomp": self._seccomp, "ruleset": 4, "drop_capabilities": self._ground.uid == 0}
        return Launch(argv, self._env, plan, [os.dup(self._ruleset)])

    def close(self) -> None:
        os.close(self._ruleset)
        shutil.rmtree(self._tmp, ignore_errors=True)

    def _rules(self, network: bool) -> int:
        ground = self._ground
        read_only = kernel.READ_ONLY | kernel.FS_EXECUTE
        read_write = kernel.FS_READ_FILE | kernel.FS_WRITE_FILE
        etc = (*_ETC, *_ETC_REAL_USERS, *(_ETC_FOR_NETWORK if network else ()))
        wanted: list[tuple[str, int]] = [(path, read_only) for path in (*_SYSTEM_FOLDERS, *ground.read_only)]
        wanted += [(f"/etc/{name}", kernel.READ_ONLY) for name in etc]
        wanted += [(path, kernel.READ_ONLY) for path in _PROC_FILES]
        wanted += [(path, read_write) for path in _DEVICES]
        wanted.append(("/dev/tty", read_write | kernel.FS_IOCTL_DEV))  # whatever terminal a program has; mostly none
        wanted += [(path, kernel.EVERYTHING) for path in (self._tmp, *ground.writable)]
        rules = [(root.fd, kernel.EVERYTHING, True) for root in ground.roots]
        opened: list[int] = []
        try:
            for path, rights in wanted:
                try:
                    fd = os.open(path, kernel.O_PATH | os.O_CLOEXEC)
                except OSError:
                    continue  # not every system has all of them
                opened.append(fd)
                rules.append((fd, rights, stat_bits.S_ISDIR(os.fstat(fd).st_mode)))
            return kernel.landlock_ruleset(rules, network=network)
        finally:
            for fd in opened:
                os.close(fd)


def _need_filter() -> None:
    if not seccomp.supported():
        raise FeatureUnavailable(f"there is no seccomp filter for {os.uname().machine} yet")


# --- bubblewrap --------------------------------------------------------------------------------------


class WorkspaceLevel:
    """bubblewrap: the command sees nothing but what it is given."""

    name = "workspace"
    free_fd = 7  # behind those of bwrap itself

    def __init__(self, ground: Ground) -> None:
        self.binary = find_bubblewrap()
        _need_filter()
        self.blocks_network = not ground.settings.network
        self._ground = ground
        self._scope = kernel.landlock_scope()
        families = (*seccomp.INTERNET, seccomp.LOCAL)
        filter_program = seccomp.command_filter(families=families)
        inside = _NOBODY_INSIDE if ground.uid == 0 else ground.uid
        self._files = {
            "seccomp": _in_memory(filter_program),
            "/etc/passwd": _in_memory(_passwd(ground, inside)),
            "/etc/group": _in_memory(f"root:x:0:\nllmc:x:{inside}:\nnogroup:x:65534:\n".encode()),
            "/etc/hosts": _in_memory(b"127.0.0.1 localhost\n::1 localhost\n"),
        }
        self._env = ground.environment("/tmp/home", "/tmp")  # noqa: S108 - a private /tmp
        self._options = [*_namespaces(ground, inside), *_mounts(ground)]

    def launch(self, argv: list[bytes], cwd: int) -> Launch:
        options = [*self._options, "--seccomp", "3"]
        network = not self.blocks_network
        for number, target in enumerate(self._files, 3):
            if target.startswith("/") and not (network and target == "/etc/hosts"):
                options += ["--file", str(number), target]
        options += ["--remount-ro", "/", "--chdir", os.readlink(f"/proc/self/fd/{cwd}"), "--"]
        if len(options) + len(argv) > _BWRAP_WORDS:
            raise BadArgs(f"the command has {len(argv):,} words; here {_BWRAP_WORDS - len(options):,} are possible")
        fds = [os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC) for fd in self._files.values()]
        plan = self._ground.plan()
        plan |= {"wrapped": True, "keep": list(range(4, 4 + len(fds)))}
        if self._scope is not None:
            plan["ruleset"] = 4 + len(fds)
            fds.append(os.dup(self._scope))
        return Launch([os.fsencode(word) for word in (self.binary, *options)] + argv, self._env, plan, fds)

    def close(self) -> None:
        for fd in self._files.values():
            os.close(fd)
        if self._scope is not None:
            os.close(self._scope)


def find_bubblewrap() -> str:
    """The system's bwrap."""
    for folder in SYSTEM_PATH:
        candidate = os.path.join(folder, "bwrap")
        if os.access(candidate, os.X_OK):
            return candidate
    raise FeatureUnavailable("bubblewrap (bwrap) is not installed", hint="Install the package bubblewrap.")


def _in_memory(content: bytes) -> int:
    fd = os.memfd_create("llmc")
    os.write(fd, content)
    return fd


def _passwd(ground: Ground, inside: int) -> bytes:
    user = "llmc" if ground.uid == 0 else _user_name(ground.uid)
    return (
        f"root:x:0:0::/nonexistent:/usr/sbin/nologin\n{user}:x:{inside}:{inside}::/tmp/home:/bin/bash\n"
        "nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n"
    ).encode()


def _namespaces(ground: Ground, inside: int) -> list[str]:
    options = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    if not ground.settings.network:
        options.append("--unshare-net")
    return [*options, "--uid", str(inside), "--gid", str(inside), "--hostname", "sandbox", "--die-with-parent",
            "--new-session", "--cap-drop", "ALL"]  # fmt: skip


def _mounts(ground: Ground) -> list[str]:
    """The file system, outermost folders first.

    Nothing is mounted below a folder that commands can change, because bubblewrap before 0.12 follows a symbolic link
    there, and makes folders outside (CVE-2026-87766); `hidden` entries are the exception that can't be moved.
    """
    options: list[str] = []
    for path in _SYSTEM_FOLDERS:
        options += _same_as_outside(path)
    for name in (*_ETC, *(_ETC_FOR_NETWORK if ground.settings.network else ())):
        options += _same_as_outside(f"/etc/{name}")
    options += ["--proc", "/proc", "--dev", "/dev"]
    if ground.uid == 0:
        options += _proc_for_root()
    size = str(ground.settings.bounds.tmp_mb << 20)
    for folder in ("/tmp", "/dev/shm"):  # noqa: S108 - made anew, private
        options += ["--perms", "1777", "--size", size, "--tmpfs", folder]
    options += ["--dir", "/tmp/home", "--dir", "/run", "--dir", "/var", "--symlink", "/tmp", "/var/tmp"]  # noqa: S108
    writable = _outermost([*(os.fsdecode(root.real) for root in ground.roots), *ground.writable])
    readable = [path for path in _outermost(list(ground.read_only)) if not _covered(path, writable)]
    binds = [(path, "--bind") for path in writable] + [(path, "--ro-bind") for path in readable]
    for path, how in sorted(binds):
        options += [how, path, path]
    for path in ground.hidden:
        options += ["--size", "65536", "--tmpfs", path] if os.path.isdir(path) else ["--ro-bind", "/dev/null", path]
    for root in ground.roots:
        if root.path != root.real and not _covered(os.fsdecode(root.path), [path for path, _ in binds]):
            options += ["--symlink", os.fsdecode(root.real), os.fsdecode(root.path)]
    return options


def _same_as_outside(path: str) -> list[str]:
    """A system file or folder, read-only; a link into /usr stays a link, which costs no mount."""
    if os.path.islink(path) and is_below(os.path.realpath(path), "/usr"):
        return ["--symlink", os.readlink(path), path]
    return ["--ro-bind", os.path.realpath(path), path] if os.path.exists(path) else []


def _proc_for_root() -> list[str]:
    options: list[str] = []
    for name in _PROC_OF_ROOT:
        if os.path.exists(f"/proc/{name}"):
            options += ["--ro-bind", f"/proc/{name}", f"/proc/{name}"]
    for name in _PROC_HIDDEN:
        if os.path.exists(f"/proc/{name}"):
            options += ["--ro-bind", "/dev/null", f"/proc/{name}"]
    return options


def _outermost(paths: list[str]) -> list[str]:
    return [
        path for path in dict.fromkeys(paths) if not any(path != other and is_below(path, other) for other in paths)
    ]


def _covered(path: str, folders: list[str]) -> bool:
    return any(is_below(path, folder) for folder in (*folders, "/usr"))


# --- off ---------------------------------------------------------------------------------------------


class OffLevel:
    """No confinement but the bounds and a clean environment: the operator vouches for what runs."""

    name = "off"
    free_fd = 3
    blocks_network = False

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._env = ground.environment(os.path.expanduser("~"), tempfile.gettempdir())

    def launch(self, argv: list[bytes], cwd: int) -> Launch:
        del cwd
        return Launch(argv, self._env, self._ground.plan(), [])

    def close(self) -> None:
        """It holds nothing."""


# --- the choice --------------------------------------------------------------------------------------


class Report(NamedTuple):
    """How commands are confined here: the level in force, or why there is none, and what each test found."""

    level: str
    reasons: dict[str, str]  # level → why not
    held: dict[str, list[str]]  # level → what it was seen to prevent
    not_held: dict[str, list[str]]  # level → what it does not prevent


class Sandbox:
    """Starts commands at the strongest level that was seen to work; made once per server."""

    def __init__(self, launcher: Launcher, settings: Settings, roots: tuple[Root, ...], data_dir: str) -> None:
        if settings.level not in LEVELS:
            raise InvalidArgument(f"mcp.sandbox.level is none of {', '.join(LEVELS)}")
        self._settings, self._roots, self._data_dir = settings, roots, data_dir
        # Resource limits do not count root's processes; a control group does, with a launcher of its own in it.
        self._group = ControlGroup(settings.bounds) if os.getuid() == 0 and not settings.run_as else None
        self._own_launcher = Launcher(self._group.procs) if self._group and self._group.procs else None
        self._launcher = self._own_launcher or launcher
        self._lock = threading.Lock()
        self._level: Level | None = None
        self._stamp: object = None
        self._report: Report | None = None

    def level(self) -> Level:
        """The level in force; FEATURE_UNAVAILABLE with the reason where nothing holds."""
        with self._lock:
            if self._level is None or self._stamp != _stamp():
                self._forget()
                self._choose()
            if self._level is None:
                raise self._unavailable()
            return self._level

    def start(
        self,
        argv: list[bytes],
        cwd: int,
        stdin: bytes | None = None,
        keep: tuple[int, ...] = (),
        env: Mapping[bytes, bytes] | None = None,
    ) -> Child:
        """Start a command in the directory `cwd`; `keep` stay open in it, from the level's `free_fd` on.

        `env` comes on top of the environment that every command gets.
        """
        launch = self.level().launch(argv, cwd)
        plan = launch.plan
        first = 4 + len(launch.fds)
        plan["keep"] = [*plan.get("keep", ()), *range(first, first + len(keep))]
        more_fds = (*launch.fds, *keep)
        try:
            return Child(
                self._launcher,
                launch.argv,
                cwd=cwd,
                env={**launch.env, **(env or {})},
                plan=plan,
                more_fds=more_fds,
                stdin=stdin,
            )
        except ConfinementError as exc:
            self.broke(f"{exc.strerror}")
            raise FeatureUnavailable(
                f"the sandbox could not be set up ({exc.strerror}), so the command was not run",
                hint="llmc doctor tells what is missing.",
            ) from None
        finally:
            for fd in launch.fds:
                os.close(fd)

    @property
    def launcher(self) -> Launcher:
        """What starts commands here."""
        return self._launcher

    def broke(self, reason: str) -> None:
        """The sandbox failed where it had worked: test anew before the next command."""
        del reason
        with self._lock:
            self._forget()
            selftest.forget(self._data_dir)

    def report(self) -> Report:
        """What `llmc doctor` and `health` tell."""
        with self._lock:
            if self._report is None:
                self._choose()
            return cast(Report, self._report)

    @property
    def counts_processes(self) -> bool:
        """Whether anything bounds the number of a command's processes."""
        return os.getuid() != 0 or bool(self._settings.run_as) or self._own_launcher is not None

    def close(self) -> None:
        with self._lock:
            self._forget()
            if self._own_launcher is not None:
                self._own_launcher.close()
            if self._group is not None:
                self._group.close()

    def _forget(self) -> None:
        if self._level is not None:
            self._level.close()
        self._level = self._report = None

    def _choose(self) -> None:
        wanted = self._settings.level
        order = ("workspace", "landlock") if wanted == "auto" else () if wanted == "read_only" else (wanted,)
        report = Report("", {}, {}, {})
        if wanted == "read_only":
            report.reasons["read_only"] = "the operator switched commands off (mcp.sandbox.level)"
        self._stamp = _stamp()
        try:
            ground = make_ground(self._settings, self._roots, self._data_dir)
        except LlmcError as exc:
            report.reasons["every level"] = _why(exc)
            self._report = report
            return
        for name in order:
            try:
                self._level = self._verified(name, ground, report)
            except LlmcError as exc:
                report.reasons[name] = _why(exc)
                continue
            report = report._replace(level=name)
            break
        self._report = report

    def _verified(self, name: str, ground: Ground, report: Report) -> Level:
        if name != "off":
            outcome = selftest.run(self._launcher, name, ground, self._data_dir)
            report.held[name], report.not_held[name] = outcome.held, outcome.not_held
            if broken := outcome.broken(name, network=self._settings.network):
                raise FeatureUnavailable(f"its self-test failed: {', '.join(broken)}")
        return make_level(name, ground)

    def _unavailable(self) -> FeatureUnavailable:
        reasons = self._report.reasons if self._report else {}
        told = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        return FeatureUnavailable(
            f"commands are not available, because nothing would confine them. {told}",
            hint="llmc doctor tells what is missing and how to get it.",
        )


def _why(exc: LlmcError) -> str:
    return f"{exc.message}. {exc.hint or ''}".strip()


def make_level(name: str, ground: Ground) -> Level:
    """A level by its name."""
    if name == "workspace":
        return WorkspaceLevel(ground)
    return LandlockLevel(ground) if name == "landlock" else OffLevel(ground)


def _stamp() -> object:
    """What a self-test's outcome depends on and can change while the server runs: the program it tested."""
    try:
        return selftest.identity(find_bubblewrap())
    except (LlmcError, OSError):
        return None
