"""One machine per session: the network and the /tmp that its commands share, and that no other session reaches."""

import os
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from ..errors import FeatureUnavailable
from ..kernel import syscalls
from ..kernel.launcher import Launcher
from ..kernel.namespaces import MachineSpec

_MAKING_S = 5.0
_MOST = 64
_KINDS = {"user": syscalls.CLONE_NEWUSER, "mnt": syscalls.CLONE_NEWNS, "net": syscalls.CLONE_NEWNET}


class Machine(NamedTuple):
    """The namespaces of a session, as descriptors in the order in which a command enters them."""

    namespaces: tuple[tuple[str, int], ...]
    tmp: str  # where its /tmp is mounted, for who is in it; empty if it has none
    listener: int = -1  # the proxy's socket in its network, if it has one of its own

    @property
    def has_network(self) -> bool:
        """Whether it has a network of its own."""
        return any(name == "net" for name, _ in self.namespaces)

    def entries(self) -> list[tuple[int, int]]:
        """Descriptors for one command, which the caller closes, and the kind of each."""
        return [(os.dup(fd), _KINDS[name]) for name, fd in self.namespaces]

    def close(self) -> None:
        """Let go of it: it vanishes with the last command in it."""
        for _, fd in self.namespaces:
            os.close(fd)
        if self.listener >= 0:
            os.close(self.listener)


class _KeptMachine(NamedTuple):
    machine: Machine
    needs: dict[str, object]  # what it was made for
    used_at: float


class Machines:
    """The machines of all sessions; those that were used last stay."""

    def __init__(self, idle_s: float, closing: Callable[[Machine], None]) -> None:
        """`closing` is told of a machine before it is let go."""
        self._idle_s, self._closing = idle_s, closing
        self._lock = threading.Lock()
        self._machines: dict[object, _KeptMachine] = {}
        self.unavailable = ""  # why there are none

    def of(self, owner: object, spec: MachineSpec, make: Callable[[MachineSpec], Machine]) -> Machine | None:
        """The machine of a session, made on first use; None where none can be made."""
        needs = {**spec, "home_files": None}
        with self._lock:
            now = time.monotonic()
            if self.unavailable:
                return None
            found = self._machines.pop(owner, None)
            if found is not None and found.needs != needs:  # other folders are mounted now
                self._close(found.machine)
                found = None
            try:
                machine = make(spec) if found is None else found.machine
            except (OSError, FeatureUnavailable) as exc:
                self.unavailable = exc.message if isinstance(exc, FeatureUnavailable) else f"{exc.strerror}"
                return None
            self._machines[owner] = _KeptMachine(machine, needs, now)
            self._let_go(now)
            return machine

    def touch(self, owner: object) -> None:
        """A session is at work, if only by waiting for what it started."""
        with self._lock:
            found = self._machines.pop(owner, None)
            if found is not None:
                self._machines[owner] = found._replace(used_at=time.monotonic())

    def release_idle(self) -> bool:
        """Let go of those whose sessions have been idle for long; whether there were any."""
        with self._lock:
            before = len(self._machines)
            self._let_go(time.monotonic())
            return len(self._machines) < before

    def close(self) -> None:
        """Let go of all of them."""
        with self._lock:
            for kept in self._machines.values():
                self._close(kept.machine)
            self._machines.clear()

    def all(self) -> list[Machine]:
        """Those that there are."""
        with self._lock:
            return [kept.machine for kept in self._machines.values()]

    def are_inhabited(self) -> bool:
        """Whether a process runs in the network of any of them."""
        networks = {os.fstat(fd).st_ino for machine in self.all() for name, fd in machine.namespaces if name == "net"}
        for entry in os.listdir("/proc"):
            try:
                if entry.isdigit() and os.stat(f"/proc/{entry}/ns/net").st_ino in networks:
                    return True
            except OSError:  # it ended, or is somebody else's
                continue
        return False

    def _close(self, machine: Machine) -> None:
        self._closing(machine)
        machine.close()

    def _let_go(self, now: float) -> None:
        """Of sessions that have been idle for long, whose processes are ended too, and of the oldest if many."""
        for owner, kept in list(self._machines.items()):
            if len(self._machines) <= _MOST and now - kept.used_at < self._idle_s:
                break
            self._close(kept.machine)
            del self._machines[owner]


def make_machine(launcher: Launcher, spec: MachineSpec) -> Machine:
    """Have a machine made; OSError with the reason if that fails."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            launcher.make_machine(spec, theirs.fileno())
        if not select.select([ours], [], [], _MAKING_S)[0]:
            raise OSError(0, "the namespaces were not made in time")
        message, fds, _, _ = socket.recv_fds(ours, 4096, len(_KINDS) + 1, socket.MSG_CMSG_CLOEXEC)
    if not fds:
        raise OSError(0, message.decode(errors="replace").removeprefix("!") or "the namespaces could not be made")
    listener = fds.pop() if spec["network"] else -1
    machine = Machine(tuple(zip(message.decode().split(), fds, strict=True)), spec["tmp"], listener)
    if any(os.fstat(fd).st_ino == os.stat(f"/proc/self/ns/{name}").st_ino for name, fd in machine.namespaces):
        machine.close()
        raise OSError(0, "a namespace that was made is the server's own")
    return machine
