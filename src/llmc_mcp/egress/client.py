"""The server's end of the proxy: starts it when a session first needs it, and hears what was denied.

The server holds the listeners, the proxy gets copies. So a proxy that ends, however that happens, leaves sessions that
reach nobody (connections are refused), and the next command brings another one.
"""

import contextlib
import json
import os
import resource
import select
import signal
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

from ..config.network import ALLOWED, invalid_entries
from ..config.trust import one_line
from ..kernel import seccomp, syscalls
from ..kernel.confine import command, needed
from ..kernel.landlock import ruleset
from ..kernel.launcher import Launcher, RunningChild
from ..kernel.launcher_process import ChildPlan
from ..kernel.limits import own_plan

REASONS = ("host", "address", "tls", "request")
_MEMORY = 256 << 20
_OPEN_FILES = 4096
_QUEUE = 256  # connections that wait to be accepted
_KEPT = 32  # hosts denied to a session that wait for its next reply
_KEPT_IN_ALL = 1000  # denials that wait to be recorded
_MESSAGE = 1 << 16
_LOOKUP_FILES = ("resolv.conf", "hosts", "host.conf", "nsswitch.conf", "gai.conf", "services")


class Denial(NamedTuple):
    """A request that the proxy refused. All of it is printable, short, and of one line."""

    owner: object  # the session it came from
    reason: str  # one of REASONS
    target: str
    detail: str

    @property
    def warning(self) -> str:
        """What the reply of a command says."""
        name = self.target.removesuffix(":443").removesuffix(":80")
        if self.reason != "host" or invalid_entries([name]):  # whatever a command made up is nothing to type in
            return f"network: denied {self.target} (policy, do not retry: {self.detail})"
        ways = f"llmc allow network {name}, or for ten minutes llmc approvals"
        return f"network: denied {self.target} (policy, do not retry; the user can: {ways})"


class _Served(NamedTuple):
    owner: object
    denials: "dict[str, Denial]"  # by target


class Egress:
    """The proxy of a server, and the listeners that it serves; safe from any thread."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._child: RunningChild | None = None
        self._served: dict[int, _Served] = {}
        self._entries: tuple[str, ...] = ()
        self._granted: dict[int, tuple[str, ...]] = {}  # by listener, as the proxy knows them
        self._used_at = 0.0
        self._lookup_files: list[tuple[bytes, int, int]] = []
        self._for_audit: deque[Denial] = deque(maxlen=_KEPT_IN_ALL)
        self.denied = Counter[str]()  # by reason

    def serve(self, listener: int, owner: object, entries: tuple[str, ...], granted: tuple[str, ...] = ()) -> None:
        """Have what is connected to a listener served by the list; OSError if the proxy can't be started.

        `granted` are hosts that a person lets this session reach besides.
        """
        with self._lock:
            self._hear()
            self._used_at = time.monotonic()
            if self._lookup_files != (now := _lookup_files()):  # the proxy may read those that it was started with
                self._end()
                self._lookup_files = now
            changed, self._entries = entries != self._entries, entries
            try:
                control = self._control or self._start()
                if changed:
                    _order(control, {"allow": entries})
                if listener not in self._served:
                    _hand_over(control, listener)
                    self._served[listener] = _Served(owner, {})
                if granted != self._granted.get(listener, ()) or (granted and changed):
                    own = (*(f"{ALLOWED}{host}" for host in granted), *entries)
                    _order(control, {"grant": listener, "entries": own})
                    self._granted[listener] = granted
            except OSError:
                self._end()
                raise

    def drop(self, listener: int) -> None:
        """Serve a listener no more: connections to it are refused."""
        with self._lock:
            self._granted.pop(listener, None)
            if self._served.pop(listener, None) is None:
                return
            _refuse_connections(listener)
            if self._control is not None:
                with contextlib.suppress(OSError):
                    _order(self._control, {"drop": listener})

    def take_denials(self, owner: object) -> list[Denial]:
        """What was denied to a session since it was last asked."""
        with self._lock:
            self._hear()
            found: list[Denial] = []
            for served in self._served.values():
                if served.owner == owner:
                    found += served.denials.values()
                    served.denials.clear()
            return found

    def drain_for_audit(self) -> list[Denial]:
        """Every denial, once."""
        with self._lock:
            self._hear()
            found = list(self._for_audit)
            self._for_audit.clear()
            return found

    @property
    def pid(self) -> int:
        """The pid of the proxy; 0 if there is none."""
        return self._child.pid if self._child is not None else 0

    def release_idle(self, idle_s: float, is_needed: Callable[[], bool]) -> bool:
        """End the proxy if no command was started for a while and none needs it; whether it was ended."""
        with self._lock:
            if self._control is None or time.monotonic() - self._used_at < idle_s or is_needed():
                return False
            self._end()
            return True

    def close(self) -> None:
        """End the proxy."""
        with self._lock:
            self._served.clear()
            self._end()

    # --- the process -----------------------------------------------------------------------------

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._child = _started(self._launcher, theirs.fileno())
            except BaseException:
                ours.close()
                raise
        ours.setblocking(False)
        self._control = ours
        threading.Thread(target=self._listen, args=(ours,), name="egress", daemon=True).start()
        _order(ours, {"allow": self._entries})
        for listener in self._served:
            _hand_over(ours, listener)
        return ours

    def _listen(self, control: socket.socket) -> None:
        """Take what the proxy says as it comes: nobody may ask for long, and its end must be noticed."""
        poll = select.poll()
        poll.register(control, select.POLLIN)
        while True:
            poll.poll()
            with self._lock:
                if self._control is not control:
                    return
                self._hear()

    def _hear(self) -> None:
        """Read all that the proxy has said; what it said before a client was answered is there by then."""
        while self._control is not None:
            try:
                message = self._control.recv(_MESSAGE)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            if not message:
                self._end()
                return
            self._note(message)

    def _note(self, message: bytes) -> None:
        """Keep a denial. Whoever takes over the proxy writes these: nothing in them is trusted."""
        try:
            event: dict[str, object] = json.loads(message)
            served = self._served[int(str(event["session"]))]
            reason, target, detail = (one_line(str(event[name])) for name in ("reason", "target", "detail"))
        except (ValueError, TypeError, KeyError):
            return
        denial = Denial(served.owner, reason if reason in REASONS else "request", target, detail)
        self.denied[denial.reason] += 1
        if denial.target not in served.denials and len(served.denials) < _KEPT:
            served.denials[denial.target] = denial
            self._for_audit.append(denial)

    def _end(self) -> None:
        """The proxy is gone or has to go: until there is another one, sessions reach nobody."""
        self._granted.clear()
        control, self._control = self._control, None
        child, self._child = self._child, None
        for listener in self._served:
            _refuse_connections(listener)
        if control is not None:
            with contextlib.suppress(OSError):
                control.shutdown(socket.SHUT_RDWR)  # wakes the thread
            control.close()
        if child is not None:
            self._launcher.signal(child, signal.SIGKILL)
            self._launcher.forget(child)


def _hand_over(control: socket.socket, listener: int) -> None:
    with socket.socket(fileno=os.dup(listener)) as copy:
        # Connections of an earlier time do not keep it from listening again; nobody else can bind the port.
        copy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        copy.listen(_QUEUE)
    socket.send_fds(control, [json.dumps({"serve": listener}).encode()], [listener])


def _order(control: socket.socket, order: dict[str, object]) -> None:
    control.send(json.dumps(order).encode())


def _refuse_connections(listener: int) -> None:
    """Have the kernel refuse connections, those that wait to be accepted too; listening again is possible.

    While it does not listen, an address that may be reused is free for whoever asks; so it may not.
    """
    with socket.socket(fileno=os.dup(listener)) as copy, contextlib.suppress(OSError):
        copy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        copy.shutdown(socket.SHUT_RDWR)


def _started(launcher: Launcher, control: int) -> RunningChild:
    opened = [os.open(b"/", os.O_PATH | os.O_CLOEXEC), os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)]
    folder, nothing = opened
    try:
        files = [(path, syscalls.FS_READ_FILE) for path, _, _ in _lookup_files()]
        opened.append(ruleset([*needed(b"/usr/lib"), *files], network=True))  # without Landlock there is no proxy
        fds = [folder, control, nothing, nothing, opened[-1]]
        return launcher.start(command("llmc_mcp.egress.process"), {}, fds, _plan(ruleset=4))
    finally:
        for fd in opened:
            os.close(fd)


def _plan(ruleset: int) -> ChildPlan:
    filter_program = seccomp.command_filter(families=seccomp.INTERNET, shared=True)
    plan = own_plan({"seccomp": filter_program, "ruleset": ruleset}, memory=_MEMORY)
    plan["limits"] = [*plan.get("limits", ()), (resource.RLIMIT_NOFILE, _OPEN_FILES), (resource.RLIMIT_FSIZE, 0)]
    if os.getuid() == 0:
        plan["drop_capabilities"] = True
    return plan


def _lookup_files() -> list[tuple[bytes, int, int]]:
    """What looking up a name takes, and which files that are now: another network brings another resolv.conf."""
    found: list[tuple[bytes, int, int]] = []
    for name in _LOOKUP_FILES:
        path = f"/etc/{name}".encode()
        with contextlib.suppress(OSError):
            info = os.stat(path)
            found.append((path, info.st_dev, info.st_ino))
    return found
