"""Detect from kernel state whether a program waits for input: whether one of the foreground processes of its terminal
is blocked in a system call that reads from that terminal, or that waits until it is readable.

Prompts are ignored: any program can print one. /proc shows which system call a thread is blocked in and with which
arguments; the descriptors that a call waits for are read from the memory that the arguments point to. Where /proc does
not show the call (a hardened kernel), a foreground process that sleeps and does not run again is assumed to wait, and
reported as "idle".
"""

import fcntl
import os
import re
import select
import struct
from collections.abc import Iterator
from typing import NamedTuple

_TIOCGPGRP, _TIOCGSID = 0x540F, 0x5429
_CONTROLLING_TERMINAL = os.makedev(5, 0)  # /dev/tty
_MAX_DESCRIPTORS = 1024
_TFD = re.compile(rb"^tfd:\s*(\d+)", re.MULTILINE)
_POLL = struct.Struct("ihh")

# System call numbers by architecture.
_READS = {"x86_64": {0, 19}, "aarch64": {63, 65}}  # read, readv
_POLLS = {"x86_64": {7, 271}, "aarch64": {73}}  # poll, ppoll
_SELECTS = {"x86_64": {23, 270}, "aarch64": {72}}  # select, pselect6
_EPOLLS = {"x86_64": {232, 281, 441}, "aarch64": {22, 441}}  # epoll_wait, epoll_pwait, epoll_pwait2
_MACHINE = os.uname().machine


class BlockedThread(NamedTuple):
    """A thread that waits for the terminal: its id, how that is known, and its CPU time so far.

    Two equal values mean that the thread stayed blocked in between.
    """

    thread: int
    how: str
    ran: str


class Terminal(NamedTuple):
    """A terminal, as the fds of both ends; the server holds both."""

    master: int
    slave: int

    def foreground(self) -> int:
        """Return the foreground process group; 0 while there is none."""
        return self._ioctl(_TIOCGPGRP)

    def leader(self) -> int:
        """Return the session leader, the process that the terminal was opened for; 0 while there is none."""
        return self._ioctl(_TIOCGSID)

    def _ioctl(self, request: int) -> int:
        try:
            return struct.unpack("i", fcntl.ioctl(self.master, request, bytes(4)))[0]
        except OSError:
            return 0


def blocked_reader(terminal: Terminal, top: int, *, shared: bool = False) -> BlockedThread | None:
    """Return the foreground thread that waits for the terminal; `top` is the ancestor of all that runs on it.

    A `shared` terminal is the input of everything below `top` and in nobody's foreground.
    """
    group = terminal.foreground()
    if group <= 0 and not shared:
        return None
    identity = _identity(os.fstat(terminal.slave))
    asleep: BlockedThread | None = None
    for pid in _below(top) if shared else _members(group, top):
        for thread in _threads(pid):
            call = _read(f"/proc/{pid}/task/{thread}/syscall")
            if call is None:
                asleep = asleep or _sleeping(pid, thread)
            elif (how := _waits(pid, call.split(), identity)) and _state(pid, thread) not in b"Tt":
                return BlockedThread(thread, how, _ran(pid, thread))
    return asleep


def _members(group: int, top: int) -> Iterator[int]:
    """Yield the processes of a group, its leader first; the others are searched below `top`."""
    yield group
    for pid in _below(top):
        if pid != group and _group_of(pid) == group:
            yield pid


def _below(top: int) -> Iterator[int]:
    todo = [top]
    while todo:
        pid = todo.pop()
        for thread in _threads(pid):
            words = _read(f"/proc/{pid}/task/{thread}/children") or b""
            children = [int(word) for word in words.split()]
            yield from children
            todo += children


def _threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def _group_of(pid: int) -> int:
    fields = (_read(f"/proc/{pid}/stat") or b"").rpartition(b")")[2].split()
    return int(fields[2]) if len(fields) > 2 else 0


def _state(pid: int, thread: int) -> bytes:
    """Return the state of a thread; one that is stopped still shows the system call in which that happened."""
    fields = (_read(f"/proc/{pid}/task/{thread}/stat") or b"").rpartition(b")")[2].split()
    return fields[0] if fields else b"X"


def _waits(pid: int, call: list[bytes], identity: tuple[int, int]) -> str:
    """Return the name of the system call if it waits for the terminal; a running thread is in none."""
    if len(call) < 7:
        return ""
    number, arguments = int(call[0]), [int(word, 16) for word in call[1:7]]
    if number in _READS.get(_MACHINE, ()):
        return "read" if _is_terminal(pid, arguments[0], identity) else ""
    if number in _POLLS.get(_MACHINE, ()):
        name, watched = "poll", _polled(pid, arguments[0], arguments[1])
    elif number in _SELECTS.get(_MACHINE, ()):
        name, watched = "select", _selected(pid, arguments[0], arguments[1])
    elif number in _EPOLLS.get(_MACHINE, ()):
        name, watched = "epoll", _epolled(pid, arguments[0])
    else:
        return ""
    return name if any(_is_terminal(pid, fd, identity) for fd in watched) else ""


def _polled(pid: int, address: int, count: int) -> list[int]:
    data = _memory(pid, address, min(count, _MAX_DESCRIPTORS) * _POLL.size)
    whole = data[: len(data) // _POLL.size * _POLL.size]
    return [fd for fd, events, _ in _POLL.iter_unpack(whole) if fd >= 0 and events & select.POLLIN]


def _selected(pid: int, count: int, address: int) -> list[int]:
    count = min(count, _MAX_DESCRIPTORS)
    bits = int.from_bytes(_memory(pid, address, (count + 63) // 64 * 8), "little") if address else 0
    return [fd for fd in range(count) if bits >> fd & 1]


def _epolled(pid: int, epoll: int) -> list[int]:
    return [int(word) for word in _TFD.findall(_read(f"/proc/{pid}/fdinfo/{epoll}") or b"")]


def _is_terminal(pid: int, fd: int, identity: tuple[int, int]) -> bool:
    try:
        info = os.stat(f"/proc/{pid}/fd/{fd}")
    except OSError:
        return False
    return info.st_rdev == _CONTROLLING_TERMINAL or _identity(info) == identity


def _identity(info: os.stat_result) -> tuple[int, int]:
    return info.st_dev, info.st_ino


def _memory(pid: int, address: int, size: int) -> bytes:
    try:
        fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.pread(fd, size, address)
    except (OSError, OverflowError):
        return b""
    finally:
        os.close(fd)


def _sleeping(pid: int, thread: int) -> BlockedThread | None:
    """Fall back, where the system call is not shown, to a main thread that sleeps."""
    asleep = thread == pid and _state(pid, thread) == b"S"
    return BlockedThread(thread, "idle", _ran(pid, thread)) if asleep else None


def _ran(pid: int, thread: int) -> str:
    """Return a thread's CPU time in nanoseconds; it changes whenever the thread runs."""
    return (_read(f"/proc/{pid}/task/{thread}/schedstat") or b"").decode()


def _read(path: str) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(fd, 1 << 16)
    except OSError:
        return None
    finally:
        os.close(fd)


def is_python_prompt(pid: int) -> bool:
    """Whether a process is Python in interactive mode: it runs Python, and was given nothing else to run."""
    words = (_read(f"/proc/{pid}/cmdline") or b"").split(b"\0")[:-1]
    try:
        program = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return False
    if not program.startswith(("python", "pypy")):
        return False
    rest = iter(words[1:])
    for word in rest:
        if not word.startswith(b"-") or word == b"-":
            return False
        for option in word[1:].decode("ascii", "replace") if not word.startswith(b"--") else "":
            if option == "i":
                return True
            if option in "cm":
                return False
            if option in "WX":  # the rest is the option's value
                if word.endswith(option.encode()):
                    next(rest, b"")
                break
    return True


def ignores(pid: int, number: int) -> bool:
    """Whether a process ignores a signal, as interactive shells do with most signals that would end them."""
    match = re.search(rb"^SigIgn:\s*([0-9a-f]+)", _read(f"/proc/{pid}/status") or b"", re.MULTILINE)
    return match is not None and bool(int(match[1], 16) >> (number - 1) & 1)
