"""The levels of confinement: Landlock, bubblewrap, and none. Each turns a command into what the launcher starts."""

import os
import stat as stat_bits
import tempfile
from typing import NamedTuple

from ..errors import BadArgs, FeatureUnavailable
from ..files.filesystem import Root
from ..files.off_limits import SYSTEM_FOLDERS, outermost
from ..kernel import landlock, seccomp, syscalls
from ..kernel.exec_status import ExecStatus
from ..kernel.namespaces import MachineSpec
from ..kernel.scratch import Scratch
from ..policy import is_below, is_below_any
from .machines import Machine
from .profile import (
    HIDDEN,
    OPEN,
    SYSTEM_PATH,
    Launch,
    Level,
    Profile,
    covers,
    place_of,
    proxy_environment,
    stand_ins,
    user_name,
)

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

_PRIVATE, _PRIVATE_BESIDE = "/tmp", "/run"  # noqa: S108 - made anew; the second where /tmp is the machine's own
_NOBODY_INSIDE = 1000  # who uid 0 is inside: programs that believe to be root try things that must fail
_BWRAP_WORDS = 8_990  # bubblewrap takes 9,000 arguments, its own included


# --- Landlock ----------------------------------------------------------------------------------------


class LandlockLevel:
    """Landlock and seccomp, put on by the launcher between fork and exec."""

    name = "landlock"
    free_fd = 3

    def __init__(self, profile: Profile) -> None:
        if syscalls.landlock_abi() < 3:
            raise FeatureUnavailable(
                "the kernel's Landlock is missing or too old to hold a command",
                hint="Linux 6.2 or newer with landlock in its lsm= list.",
            )
        if profile.uid == 0:
            raise FeatureUnavailable(
                "Landlock does not hold root: its commands could change the modes and owners of root's files anywhere",
                hint="Set mcp.sandbox.run_as to an ordinary user, or run the server as one.",
            )
        if profile.machine:
            raise FeatureUnavailable(
                "Landlock can't hide anything below the root /, such as the server's own data and code",
                hint="Install the package bubblewrap, or choose narrower roots.",
            )
        if profile.hidden:
            raise FeatureUnavailable(
                f"Landlock can't hide what lies inside a root: {', '.join(profile.hidden)}",
                hint="Install the package bubblewrap, choose a narrower root, or a data directory elsewhere"
                " (LLMC_DATA_DIR).",
            )
        if own := profile.own_inside():
            raise FeatureUnavailable(
                f"Landlock can't keep the server's own code or configuration unchanged inside a root: {', '.join(own)}",
                hint="Install the package bubblewrap, choose a root without it, or install the server elsewhere (pipx"
                " install, uv tool install).",
            )
        _need_filter()
        network = profile.settings.network
        self.blocks_network = not network
        self._profile = profile
        self._scratch = Scratch("run", profile.user)
        self._tmp = self._scratch.path
        self._own_bin = self._scratch.beside("bin")
        for name, target in stand_ins(profile).items():
            os.symlink(target, os.path.join(self._own_bin, name))
        self._ruleset = self._rules(network)
        families = seccomp.INTERNET if network else ()
        self._seccomp = seccomp.command_filter(families=families, set_ids=_set_ids(profile), shared=True)
        self._env = profile.environment(self._tmp, self._tmp, self._own_bin)
        if profile.git_config:
            path = os.path.join(self._tmp, ".gitconfig")
            with open(path, "wb") as file:
                file.write(profile.git_config)
            if profile.user:
                os.chown(path, *profile.user)

    def launch(self, argv: list[bytes], cwd: int, machine: Machine | None = None) -> Launch:
        del cwd, machine
        plan = self._profile.plan()
        plan |= {"seccomp": self._seccomp, "ruleset": 4}
        return Launch(argv, self._env, plan, [os.dup(self._ruleset)])

    def close(self) -> None:
        os.close(self._ruleset)
        self._scratch.close()

    def _rules(self, network: bool) -> int:
        profile = self._profile
        read_only = syscalls.READ_ONLY | syscalls.FS_EXECUTE
        read_write = syscalls.FS_READ_FILE | syscalls.FS_WRITE_FILE
        etc = (*_ETC, *_ETC_REAL_USERS, *(_ETC_FOR_NETWORK if network else ()))
        allowed: list[tuple[str, int]] = [
            (path, read_only) for path in (*SYSTEM_FOLDERS, *_unveiled(profile), self._own_bin)
        ]
        allowed += [(f"/etc/{name}", syscalls.READ_ONLY) for name in etc]
        allowed += [(path, syscalls.READ_ONLY) for path in _PROC_FILES]
        allowed += [(path, read_write) for path in _DEVICES]
        allowed.append(("/dev/tty", read_write | syscalls.FS_IOCTL_DEV))  # whatever terminal a program has, if any
        allowed += [(path, syscalls.EVERYTHING) for path in (self._tmp, *profile.writable)]
        roots = [(root.fd, syscalls.EVERYTHING, True) for root in profile.roots]
        return landlock.ruleset(((os.fsencode(path), rights) for path, rights in allowed), roots, network=network)


def _unveiled(profile: Profile) -> list[str]:
    """What commands may read; a folder with a veiled file in it as its other entries, since a rule can't except one."""
    done, todo = list[str](), list(profile.read_only)
    while todo:
        path = todo.pop()
        if path in profile.veiled:
            continue
        if any(is_below(veiled, path) for veiled in profile.veiled):
            todo += [entry.path for entry in os.scandir(path)]
        else:
            done.append(path)
    return done


def _need_filter() -> None:
    if not seccomp.supported():
        raise FeatureUnavailable(f"there is no seccomp filter for {os.uname().machine} yet")


def _set_ids(profile: Profile) -> int:
    """Bits of a mode that commands can't set. A folder's group may be inherited, but not where the group is root's."""
    return seccomp.SET_USER_ID | (seccomp.SET_GROUP_ID if profile.uid == 0 else 0)


# --- bubblewrap --------------------------------------------------------------------------------------


class WorkspaceLevel:
    """bubblewrap: the command sees nothing but what it is given."""

    name = "workspace"

    def __init__(self, profile: Profile) -> None:
        self.binary = find_bubblewrap()
        _need_filter()
        self.blocks_network = not profile.settings.network
        self._profile = profile
        self._scope = syscalls.landlock_scope()
        # The machine's own sockets lie below the root /: who connects to one has a program outside act for him.
        families = seccomp.INTERNET if profile.machine else (*seccomp.INTERNET, seccomp.LOCAL)
        filter_program = seccomp.command_filter(families=families, set_ids=_set_ids(profile), shared=False)
        inside = _NOBODY_INSIDE if profile.uid == 0 else profile.uid
        home, tmp = _private_folders(profile)
        self._files = {
            "seccomp": _in_memory(filter_program),
            "/etc/passwd": _in_memory(_passwd(profile, inside, home)),
            "/etc/group": _in_memory(f"root:x:0:\nllmc:x:{inside}:\nnogroup:x:65534:\n".encode()),
            "/etc/hosts": _in_memory(b"127.0.0.1 localhost\n::1 localhost\n"),
        }
        for target in [name for name in self._files if _is_out_of_place(name, profile)]:
            os.close(self._files.pop(target))
        if profile.git_config:
            self._files[f"{home}/.gitconfig"] = _in_memory(profile.git_config)
        self._home, self._own_tmp = home, tmp == _PRIVATE
        self._status_fd = 3 + len(self._files)
        self.free_fd = self._status_fd + 1
        self._own_folder = _own_folder(profile)
        self._env = profile.environment(home, tmp, f"{self._own_folder}/bin")
        self._places = _places_to_cover(profile)
        self._inside = inside
        self._options = [*_namespaces(profile, inside), *_mounts(profile)]
        self._shared_options: dict[Shared, list[str]] = {}
        self._spec: MachineSpec | None = None

    def machine_spec(self, tmp: str) -> MachineSpec:
        """What the machine of a session has to have for commands of this level; `tmp` is a folder for its /tmp."""
        if self._spec is None:
            self._spec = self._made_spec(tmp)
        return {**self._spec, "tmp": tmp if self._own_tmp else ""}

    def _made_spec(self, tmp: str) -> MachineSpec:
        profile = self._profile
        linked = [(os.fsdecode(root.real), os.fsdecode(root.path)) for root in _linked_below_tmp(profile)]
        places = _places_below_tmp(profile) if self._own_tmp else []
        return MachineSpec(
            network=self.blocks_network,
            tmp=tmp if self._own_tmp else "",
            size_mb=profile.settings.bounds.tmp_mb,
            owner=profile.user,
            folders=[place for path, place in places if os.path.isdir(path)],
            files=[place for path, place in places if not os.path.isdir(path)],
            links=[(target, _inside_tmp(path)) for target, path in linked],
            home=_inside_tmp(self._home),
            home_files=[(".gitconfig", profile.git_config)] if profile.git_config else [],
        )

    def _options_in(self, machine: Machine) -> list[str]:
        shared = Shared(machine.has_network, machine.tmp)
        if shared not in self._shared_options:
            options = [*_namespaces(self._profile, self._inside, shared), *_mounts(self._profile, shared)]
            self._shared_options[shared] = options
        return self._shared_options[shared]

    def launch(self, argv: list[bytes], cwd: int, machine: Machine | None = None) -> Launch:
        for path, place in self._places.items():
            if place_of(path) != place:
                raise FeatureUnavailable(
                    f"{path} was replaced since the sandbox was set up around it, so the command was not run",
                    hint="Try again: the sandbox is set up anew.",
                )
        options = [*(self._options if machine is None else self._options_in(machine)), "--seccomp", "3"]
        network = not self.blocks_network
        # The machine of a session has it in its /tmp; bubblewrap must still read and close ours.
        aside = (
            {f"{self._home}/.gitconfig": f"{self._own_folder}/gitconfig"} if machine is not None and machine.tmp else {}
        )
        for number, target in enumerate(self._files, 3):
            if target.startswith("/") and not (network and target == "/etc/hosts"):
                options += [_how_to_put(target, self._profile), str(number), aside.get(target, target)]
        # A read-only /proc, or a command could put itself last among those that go when memory runs out.
        options += ["--remount-ro", "/proc", "--remount-ro", "/", "--json-status-fd", str(self._status_fd)]
        options += ["--chdir", os.readlink(f"/proc/self/fd/{cwd}"), "--"]
        if len(options) + len(argv) > _BWRAP_WORDS:
            raise BadArgs(f"the command has {len(argv):,} words; here {_BWRAP_WORDS - len(options):,} are possible")
        fds = [os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC) for fd in self._files.values()]
        status = ExecStatus()
        fds.append(status.writing_end())
        plan = self._profile.plan()
        plan |= {"wrapped": True, "keep": list(range(4, 4 + len(fds)))}
        if self._scope is not None:
            plan["ruleset"] = 4 + len(fds)
            fds.append(os.dup(self._scope))
        if machine is not None:
            entries = machine.entries()
            plan["join"] = [(4 + len(fds) + number, kind) for number, (_, kind) in enumerate(entries)]
            fds += [fd for fd, _ in entries]
        words = [os.fsencode(word) for word in (self.binary, *options)]
        return Launch(words + argv, {**self._env, **proxy_environment(self._profile, machine)}, plan, fds, status)

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


def _private_folders(profile: Profile) -> tuple[str, str]:
    """The home of commands and their folder for temporary files, neither of them anybody else's."""
    shared = is_below_any(_PRIVATE, [*profile.changeable, *profile.readable])
    private = _PRIVATE_BESIDE if shared else _PRIVATE
    return os.path.join(private, "home"), os.path.join(private, "tmp") if shared else private


def _own_folder(profile: Profile) -> str:
    """A folder of our own that commands see: in /var, unless that is the machine's."""
    return "/run/llmc" if is_below_any("/var", [*profile.changeable, *profile.readable]) else "/var/llmc"


def _is_out_of_place(target: str, profile: Profile) -> bool:
    """Whether a file of ours would have to be mounted on what is a link on this machine, or not there."""
    return is_below_any(target, profile.readable) and (os.path.islink(target) or not os.path.exists(target))


def _how_to_put(target: str, profile: Profile) -> str:
    """How a file of ours comes to be inside: written, or mounted on the machine's own, which it must not change."""
    return "--ro-bind-data" if is_below_any(target, profile.readable) else "--file"


def _passwd(profile: Profile, inside: int, home: str) -> bytes:
    user = "llmc" if profile.uid == 0 else user_name(profile.uid)
    return (
        f"root:x:0:0::/nonexistent:/usr/sbin/nologin\n{user}:x:{inside}:{inside}::{home}:/bin/bash\n"
        "nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n"
    ).encode()


class Shared(NamedTuple):
    """What the commands of a session share: whether the network, and the folder of their /tmp, if any."""

    network: bool = False
    tmp: str = ""


def _inside_tmp(path: str) -> str:
    return os.path.relpath(path, "/tmp")  # noqa: S108 - inside the sandbox


def _places_below_tmp(profile: Profile) -> list[tuple[str, str]]:
    """What is mounted below /tmp: each path, and its place in /tmp."""
    paths = outermost((*profile.changeable, *profile.readable))
    return [(path, _inside_tmp(path)) for path in paths if is_below(path, "/tmp")]  # noqa: S108 - inside the sandbox


def _linked_below_tmp(profile: Profile) -> list[Root]:
    """The roots that are reached by a link below /tmp, where nothing else is mounted."""
    bound = [path for path, _ in _places_below_tmp(profile)]
    linked = [root for root in profile.roots if root.path != root.real]
    return [root for root in linked if _is_free_below_tmp(os.fsdecode(root.path), bound)]


def _is_free_below_tmp(path: str, bound: list[str]) -> bool:
    return is_below(path, "/tmp") and not is_below_any(path, bound)  # noqa: S108 - inside the sandbox


def _namespaces(profile: Profile, inside: int, shared: Shared = Shared()) -> list[str]:  # noqa: B008 - it never changes
    options = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    if not profile.settings.network and not shared.network:
        options.append("--unshare-net")
    return [*options, "--uid", str(inside), "--gid", str(inside), "--hostname", "sandbox", "--die-with-parent",
            "--new-session", "--cap-drop", "ALL"]  # fmt: skip


def _mounts(profile: Profile, shared: Shared = Shared()) -> list[str]:  # noqa: B008 - it never changes
    """The file system, outermost folders first.

    Below a folder that commands can change, bubblewrap before 0.12 follows a symbolic link to wherever it leads, and
    makes folders there (CVE-2026-87766). So the only mounts in there are on `_places_to_cover`, each a mount
    point in every sandbox, which no command can rename or remove, with nothing but such above it up to the root.
    The /tmp of a session is such a folder too: what has to be in it was made with it (`kernel.namespaces`).
    """
    options: list[str] = []
    for path in SYSTEM_FOLDERS:
        options += _same_as_outside(path)
    options += _etc(profile)
    options += ["--proc", "/proc", "--dev", "/dev"]
    if profile.uid == 0:
        options += _proc_for_root()
    home, tmp = _private_folders(profile)
    size = str(profile.settings.bounds.tmp_mb << 20)
    private = _PRIVATE if tmp == _PRIVATE else _PRIVATE_BESIDE
    for folder in (private, "/dev/shm") if not shared.tmp else ("/dev/shm",):  # noqa: S108 - made anew, private
        options += ["--perms", "1777", "--size", size, "--tmpfs", folder]
    options += ["--bind", shared.tmp, _PRIVATE] if shared.tmp else ["--dir", home, "--dir", tmp]
    options += ["--dir", "/run", "--dir", "/var", "--symlink", "/tmp", "/var/tmp"]  # noqa: S108 - inside the sandbox
    for name, target in stand_ins(profile).items():
        options += ["--symlink", target, f"{_own_folder(profile)}/bin/{name}"]
    writable = outermost(profile.changeable)
    readable = [path for path in outermost(profile.readable) if not _covered(path, writable)]
    binds = [(path, "--bind") for path in writable] + [(path, "--ro-bind") for path in readable]
    for path, how in sorted(binds):
        options += [how, path, path]
    for path, how in covers(profile).items():
        options += _hidden(path) if how == HIDDEN else ["--bind" if how == OPEN else "--ro-bind", path, path]
    for path in profile.machine.links if profile.machine else ():
        options += ["--symlink", os.readlink(path), path]
    for root in profile.roots:
        if shared.tmp and is_below(os.fsdecode(root.path), "/tmp"):  # noqa: S108 - the machine has it
            continue
        if root.path != root.real and not _covered(os.fsdecode(root.path), [path for path, _ in binds]):
            options += ["--symlink", os.fsdecode(root.real), os.fsdecode(root.path)]
    return options


def _hidden(path: str) -> list[str]:
    return ["--size", "65536", "--tmpfs", path] if os.path.isdir(path) else ["--ro-bind", "/dev/null", path]


def _etc(profile: Profile) -> list[str]:
    """What of /etc is there; below the root / all of it is, but for the address of the name server."""
    network = profile.settings.network
    if profile.machine is None:
        names = (*_ETC, *(_ETC_FOR_NETWORK if network else ()))
        return [word for name in names for word in _same_as_outside(f"/etc/{name}")]
    resolver = os.path.realpath("/etc/resolv.conf")
    return ["--ro-bind", resolver, resolver] if network and is_below(resolver, "/run") else []


def _places_to_cover(profile: Profile) -> dict[str, object]:
    """What is mounted on inside the roots, and what is there now: each start looks whether it still is."""
    places: dict[str, object] = {}
    for path in covers(profile):
        place = place_of(path)
        if place is None or stat_bits.S_ISLNK(place[2]):
            raise FeatureUnavailable(f"{path} is being replaced while the sandbox is set up", hint="Try again.")
        places[path] = place
    return places


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


def _covered(path: str, folders: list[str]) -> bool:
    return is_below_any(path, (*folders, "/usr"))


# --- off ---------------------------------------------------------------------------------------------


class OffLevel:
    """No confinement but the bounds and a clean environment: the operator vouches for what runs."""

    name = "off"
    free_fd = 3
    blocks_network = False

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._env = profile.environment(os.path.expanduser("~"), tempfile.gettempdir())

    def launch(self, argv: list[bytes], cwd: int, machine: Machine | None = None) -> Launch:
        del cwd, machine
        return Launch(argv, self._env, self._profile.plan(), [])

    def close(self) -> None:
        """It holds nothing."""


def make_level(name: str, profile: Profile) -> Level:
    """A level by its name."""
    if name == "workspace":
        return WorkspaceLevel(profile)
    return LandlockLevel(profile) if name == "landlock" else OffLevel(profile)
