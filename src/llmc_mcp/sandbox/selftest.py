"""Test whether a level of confinement holds on this machine, instead of assuming it.

A small program (probe.py) runs inside the very level that commands would get and tries to escape, using files and
listeners that belong to the test. The outcome is what it managed to do. A good outcome is cached for this boot, kernel,
bubblewrap, user, version of this package, and confinement of the server itself; a bad one is tested again at every
start. A test that could not finish, for lack of time or memory, has no outcome.
"""

import errno
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from .. import __version__
from ..errors import FeatureUnavailable, ResourceBusy
from ..files.filesystem import Root
from ..kernel.child import Child
from ..kernel.launcher import ConfinementError, Launcher
from ..kernel.scratch import Scratch

if TYPE_CHECKING:
    from .profile import Launch, Profile

_CACHE = "sandbox.json"
_PATIENCE_S = 20.0
_SYSTEM_PYTHON = "/usr/bin/python3"
# Temporary shortages under load, which say nothing about the sandbox.
_SHORTAGES = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
NETWORK = ("connect_tcp", "send_udp")
# Landlock restricts neither modes nor, before Linux 6.12, signals: the level does not claim them.
NOT_CLAIMED = {"landlock": ("change_mode_outside", "signal_server"), "workspace": ()}


class ProbeOutcome(NamedTuple):
    """The names of the attempts that failed, as they should, and of those that succeeded."""

    held: list[str]
    not_held: list[str]

    def broken(self, level: str, *, network: bool) -> list[str]:
        """Return the attempts that the level claims to prevent and does not."""
        excused = {*NOT_CLAIMED[level], *(NETWORK if network else ())}
        return [name for name in self.not_held if name not in excused]


def run(launcher: Launcher, name: str, profile: "Profile", data_dir: str) -> ProbeOutcome:
    """Return the outcome for a level, from the cache or from a run of the probe."""
    key = _key(name, profile)
    cached = _cached(data_dir).get(key)
    if cached is not None:
        return ProbeOutcome(*cached)
    network = profile.settings.network
    outcome = _probed(launcher, name, profile)
    if outcome.broken(name, network=network) and set(outcome.broken(name, network=network)) <= {*NETWORK}:
        outcome = _probed(launcher, name, profile)  # any program on this machine may have met a port of the test
    if not outcome.broken(name, network=network):
        _remember(data_dir, key, outcome)
    return outcome


def _probed(launcher: Launcher, name: str, profile: "Profile") -> ProbeOutcome:
    scratch = Scratch("selftest")
    try:
        return _try(launcher, name, profile, scratch.path)
    finally:
        scratch.close()


def identity(path: str) -> list[int]:
    """Return the identity of a program, which differs for another file or other content."""
    info = os.stat(path)
    return [info.st_dev, info.st_ino, info.st_mtime_ns, info.st_size]


def forget(data_dir: str) -> None:
    """Test again the next time, but remember that a level has held."""
    outcomes = _cached(data_dir)
    if outcomes:
        _write(data_dir, dict.fromkeys(outcomes))


def held_before(name: str, profile: "Profile", data_dir: str) -> bool:
    """Whether a level has held since boot, for the same users and the same confinement of the server."""
    wanted = [name, _boot(), _surroundings(profile)]
    return any(json.loads(key)[1:4] == wanted for key in _cached(data_dir))


# --- the test ----------------------------------------------------------------------------------------


def _try(launcher: Launcher, name: str, profile: "Profile", base: str) -> ProbeOutcome:
    from .levels import make_level

    facts = _lay_out(base, profile)
    root = os.fsencode(facts["root"])
    root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    listeners = {
        "connect_tcp": _listener(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
        "send_udp": _listener(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
        "connect_unix": _unix_listener(facts["outside"]),
        "connect_abstract": _listener(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + facts["abstract"]),
    }
    ports = {
        "tcp": listeners["connect_tcp"].getsockname()[1],
        "udp": listeners["send_udp"].getsockname()[1],
    }
    try:
        own_root = Root(root_fd, root, os.path.realpath(root))
        level = make_level(name, profile._replace(roots=(own_root,), hidden=(), machine=None))
        try:
            facts_inside = {**facts, **ports, **_server_identity()}
            succeeded = _inside(launcher, level.launch, interpreter(profile.user), facts_inside, root_fd)
        finally:
            level.close()
        # Inside a network namespace a message may be sent and go nowhere: only what arrives here has escaped.
        succeeded = (succeeded - listeners.keys()) | {name for name, end in listeners.items() if _was_reached(end)}
    finally:
        os.close(root_fd)
        for listener in listeners.values():
            listener.close()
    return _judge(succeeded, facts["outside"])


def _lay_out(base: str, profile: "Profile") -> dict[str, str]:
    """Create a root, and outside it files that the user owns, so that only the sandbox protects them."""
    root, outside = os.path.join(base, "root"), os.path.join(base, "outside")
    for folder in (root, outside):
        os.mkdir(folder)
    for name in ("secret", "mode"):
        with open(os.path.join(outside, name), "w") as file:
            file.write("secret")
    os.chmod(os.path.join(outside, "mode"), 0o640)
    if profile.user is not None:
        os.chmod(base, 0o711)  # noqa: S103 - the other user must reach the folders below
        for path in (root, outside, os.path.join(outside, "secret"), os.path.join(outside, "mode")):
            os.chown(path, *profile.user)
    return {"root": root, "outside": outside, "abstract": f"llmc-selftest-{os.urandom(8).hex()}"}


def _server_identity() -> dict[str, object]:
    """Return what identifies this process to the probe; a pid alone is ambiguous across namespaces."""
    import hashlib

    with open("/proc/self/environ", "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    return {"server": os.getpid(), "environment": digest, "pid_namespace": os.stat("/proc/self/ns/pid").st_ino}


def _unix_listener(folder: str) -> socket.socket:
    """Listen in a folder whose path may be longer than a socket address."""
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _listener(socket.AF_UNIX, socket.SOCK_STREAM, f"/proc/self/fd/{fd}/socket")
    finally:
        os.close(fd)


def _listener(family: int, kind: int, address: object) -> socket.socket:
    listener = socket.socket(family, kind)
    listener.bind(address)  # pyright: ignore[reportArgumentType] - an address of the family
    if kind == socket.SOCK_STREAM:
        listener.listen(8)
    return listener


def _was_reached(listener: socket.socket) -> bool:
    listener.setblocking(False)
    try:
        if listener.type == socket.SOCK_DGRAM:
            listener.recv(16)
        else:
            listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def _inside(
    launcher: Launcher,
    launch: "Callable[[list[bytes], int], Launch]",
    python: str,
    facts: Mapping[str, object],
    cwd: int,
) -> set[str]:
    with open(os.path.join(os.path.dirname(__file__), "probe.py")) as file:
        source = file.read()
    words = [python, "-I", "-S", "-c", source, json.dumps(facts)]
    start = launch([os.fsencode(word) for word in words], cwd)
    printed: list[bytes] = []
    try:
        with Child(
            launcher,
            start.argv,
            cwd=cwd,
            env=start.env,
            plan=start.plan,
            more_fds=tuple(start.fds),
            status=start.status,
        ) as child:
            printed += child.output(_deadline())
    except OSError as exc:
        what = "confined" if isinstance(exc, ConfinementError) else "started"
        if exc.errno in _SHORTAGES:
            raise _not_now(f"a test command could not be {what} ({exc.strerror})") from None
        raise FeatureUnavailable(f"a test command could not be {what} ({exc.strerror})") from None
    finally:
        for fd in start.fds:
            os.close(fd)
    try:
        return set(json.loads(b"".join(printed)))
    except ValueError:
        error = child.stderr.decode("utf-8", "replace").strip().rsplit("\n", 1)[-1]
        code = child.exit_code or 0
        message = f"a test command failed inside (exit {code}): {error[:200]}"
        if code < 0 or code > 128 or any(os.strerror(number) in error for number in _SHORTAGES):
            raise _not_now(message) from None
        raise FeatureUnavailable(message) from None


def _not_now(reason: str) -> ResourceBusy:
    return ResourceBusy(
        f"whether commands can be confined could not be tested now: {reason}",
        hint="Try again; the machine may be busy. llmc doctor shows details.",
    )


def interpreter(user: tuple[int, int] | None) -> str:
    """Return this Python or, if the user that runs commands can't reach it, the system's."""
    from .profile import reachable

    return sys.executable if reachable(os.path.realpath(sys.executable), user) else _SYSTEM_PYTHON


def _deadline() -> Callable[[], None]:
    deadline = time.monotonic() + _PATIENCE_S

    def check() -> None:
        if time.monotonic() > deadline:
            raise _not_now(f"a test command did not end within {_PATIENCE_S:g} s")

    return check


def _judge(succeeded: set[str], outside: str) -> ProbeOutcome:
    """Count what the probe reports as succeeded, and also check what is visible from here."""
    from .probe import NAMES

    if os.path.exists(os.path.join(outside, "marker")):
        succeeded.add("write_outside")
    if os.path.getsize(os.path.join(outside, "secret")) == 0:
        succeeded.add("truncate_outside")
    return ProbeOutcome(
        [name for name in NAMES if name not in succeeded], [name for name in NAMES if name in succeeded]
    )


# --- the cache ---------------------------------------------------------------------------------------


def _key(name: str, profile: "Profile") -> str:
    from .levels import find_bubblewrap

    tested = identity(find_bubblewrap()) if name == "workspace" else []
    uname = os.uname()
    what = [uname.release, uname.version, tested, profile.settings.network, identity(sys.executable)]
    return json.dumps([__version__, name, _boot(), _surroundings(profile), what])


def _boot() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def _surroundings(profile: "Profile") -> list[object]:
    return [os.getuid(), profile.uid, walls()]


def walls() -> list[str]:
    """Return how a container or a service manager confines this process, which may differ next time."""
    fields = ("NoNewPrivs:", "Seccomp:", "Seccomp_filters:", "CapBnd:", "CapEff:")
    with open("/proc/self/status") as file:
        values = [line.split()[1] for line in file if line.startswith(fields)]
    with open("/proc/self/mountinfo") as file:
        mounts = [line.split()[4] for line in file]
    return [*values, *sorted(mount for mount in mounts if mount.startswith("/proc/"))]


def _cached(data_dir: str) -> dict[str, list[list[str]] | None]:
    """Return outcomes by what they depend on; None is one that must be tested again."""
    try:
        with open(os.path.join(data_dir, _CACHE)) as file:
            if os.fstat(file.fileno()).st_uid != os.getuid():
                return {}
            return json.load(file)
    except (OSError, ValueError):
        return {}


def _remember(data_dir: str, key: str, outcome: ProbeOutcome) -> None:
    outcomes = {**_cached(data_dir), key: [outcome.held, outcome.not_held]}
    boot = json.loads(key)[2]
    _write(data_dir, {other: value for other, value in outcomes.items() if json.loads(other)[2] == boot})


def _write(data_dir: str, outcomes: Mapping[str, list[list[str]] | None]) -> None:
    path = os.path.join(data_dir, _CACHE)
    temporary = f"{path}.{os.getpid()}"
    try:
        os.makedirs(data_dir, mode=0o700, exist_ok=True)
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
            json.dump(outcomes, file)
        os.rename(temporary, path)
    except OSError:
        pass  # the next start tests again
