"""The one process that starts children.

Starting a child from a many-threaded server is where confinement leaks: file descriptors slip through, a child
dies with the thread that forked it, orphans outlive everybody. So a small single-threaded process does nothing
else. It gets each child's descriptors over a socket, applies the confinement between fork and exec, reaps
exactly what it started, adopts orphans (subreaper), and when the server is gone, even by SIGKILL, it sees the
socket close and ends all that is left.

A command gets a supervisor of its own, a fork of the launcher between it and the command: subreaper of that one
tree, so that whatever the command leaves behind, daemonised or not, ends when the command ends, is stopped, or the
launcher is gone. The process that builds a code index is the one child that may outlive the server: it ends by itself.
One supervisor is always forked ahead, with the process that becomes the command, so that no command waits for a fork.

The process runs `serve()`; the server's end is `launcher.py`. Standard library only, and as little of it as will do.
"""

import errno
import fcntl
import gc
import marshal
import os
import resource
import select
import signal
import socket
from collections.abc import Callable, Collection, Container
from typing import Any, NamedTuple, TypedDict

from . import syscalls

MAX_MESSAGE = 4 << 20  # argv and environment of one child; the kernel's own limit for exec is 2 MB
_FDS = 24
_STANDARD = 4  # cwd, stdin, stdout, stderr come first among the fds of an order
# What the launcher itself, or any Python, does not want to die of; a child gets the defaults back.
_IGNORED_HERE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)
_TIOCSCTTY = 0x540E  # the module that names it is not worth its import
NOT_CONFINED = 1 << 16  # added to an errno: it was not exec that failed, but what must come before it


class ChildPlan(TypedDict, total=False):
    """How a child is confined, beyond its descriptors; fds are named by their place in the order."""

    supervised: bool  # ends with its whole tree
    outlives: bool  # is left alone when the server is gone: it sees its stdin close, and ends by itself
    called: bytes  # what the program gets as its own name, in place of its path
    wrapped: bool  # the child is bwrap, which a gentle signal must not reach: only what runs inside is meant
    ruleset: int  # a Landlock rule set
    join: list[tuple[int, int]]  # namespaces, and the kind of each, in the order in which they are entered
    keep: list[int]  # stay open in the child, as 3, 4, …
    terminal: bool  # stdin is a terminal, and the child's own: ^C on it is a signal to the child
    seccomp: bytes
    limits: list[tuple[int, int]]  # resource, value
    user: tuple[int, int]  # become this uid and gid
    drop_capabilities: bool
    oom_score_adj: int


def serve(channel_fd: int) -> None:
    """The launcher's main loop: start, signal and reap until the server's end of the socket closes."""
    channel = socket.socket(fileno=channel_fd)
    gc.disable()  # a collection would touch, and so copy, every page that a fork shares with us
    gc.freeze()
    syscalls.become_subreaper()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a terminal's ^C is the server's business
    wake = _wake_on_child()
    running: dict[int, _LaunchedChild] = {}  # by pid
    while True:
        sources = {child.source: pid for pid, child in running.items() if child.source is not None}
        ready = _wait_for_any(channel_fd, wake, *sources, timeout_ms=_SPARE_MS if _needs_spare(running) else None)
        if not ready:
            _fork_spare(running)
        for source in sources.keys() & ready:
            _hear_child(channel, running, sources[source])
        if wake in ready:
            os.read(wake, 4096)
        if channel_fd in ready:
            order = _receive_order(channel)
            if not order.message:
                break
            _obey(channel, running, order)
        _reap(channel, running)
    _sweep({pid for pid, child in running.items() if child.outlives})


class _Order(NamedTuple):
    """What the server wants done, with the descriptors for it; `complete` if there was room for all of them."""

    message: bytes
    fds: list[int]
    complete: bool


def _receive_order(channel: socket.socket) -> _Order:
    """The next order; empty at the end, which the kernel calls a reset if news was left unread."""
    try:
        message, fds, flags, _ = socket.recv_fds(channel, MAX_MESSAGE, _FDS, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        return _Order(b"", [], True)
    return _Order(message, fds, not flags & socket.MSG_CTRUNC)


class _LaunchedChild(NamedTuple):
    """A child of the launcher: the server's number for it and where news of it comes from.

    That is the channel to a supervisor or, until it has started, the pipe of any other child.
    """

    number: int
    channel: socket.socket | None = None
    supervisor: bool = False
    report: int = -1
    starting: bool = False  # whether it was reported as started or failed is still open
    orders: socket.socket | None = None  # to the process that waits for what it is to become
    wrapped: bool = False
    outlives: bool = False

    @property
    def source(self) -> int | None:
        """The descriptor that is readable when there is news."""
        if self.number < 0:
            return None
        if self.channel is not None:
            return self.channel.fileno()
        return self.report if self.report >= 0 else None


_SPARE = -1  # the number of a supervisor that waits for its command
_ENDING = -2  # of one whose outcome is known already
_SPARE_MS = 20  # a fork is not for the time in which a command starts


def _wait_for_any(*sources: int, timeout_ms: int | None = None) -> set[int]:
    poll = select.poll()
    for source in sources:
        poll.register(source, select.POLLIN)
    return {fd for fd, _ in poll.poll(timeout_ms)}


def _hear_child(channel: socket.socket, running: dict[int, _LaunchedChild], pid: int) -> None:
    """Pass on one piece of news of a child: that it started or why not; of a supervisor also how its command ended.

    A supervisor's report is passed on as soon as it comes: it takes a while to die.
    """
    child = running[pid]
    if child.channel is None:
        report = os.read(child.report, 4)
        os.close(child.report)
        child = child._replace(report=-1)
    else:
        report = next_report(child.channel)
        if not report:  # killed; the reaper finds its exit code
            child.channel.close()
            running[pid] = child._replace(channel=None)
            return
    value = int.from_bytes(report, "little", signed=True)
    if not child.starting:
        event, child = ("ended", child.number, value), child._replace(number=_ENDING)
    elif value:
        event, child = ("failed", child.number, value), child._replace(number=_ENDING)
    else:
        event, child = ("started", child.number, pid), child._replace(starting=False)
    running[pid] = child
    _tell(channel, event)
    if child.supervisor and child.number == _ENDING and not _spares(running):
        _fork_spare(running)


def _wake_on_child() -> int:
    """A pipe that gets a byte whenever a child ends."""
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _wake)
    return wake_read


def _wake(*_: object) -> None:
    """SIGCHLD needs a handler for its byte to reach the wake-up pipe; the loop does the work."""


def _obey(channel: socket.socket, running: dict[int, _LaunchedChild], order: _Order) -> None:
    words: tuple[Any, ...] = marshal.loads(order.message)
    verb, number = words[0], words[1]
    if verb == "start":
        _start_child(channel, running, order, number, words[4])
    elif verb == "join":
        _write(words[2], b"0")
    elif verb == "machine":
        from . import namespaces  # most servers never need it

        namespaces.fork_maker(words[2], order.fds)
        for fd in order.fds:
            os.close(fd)
    elif verb == "signal":
        for pid, child in running.items():
            if child.number != number:
                continue
            if child.channel is not None:
                _send_if_alive(child.channel, bytes([words[2], child.wrapped]))
            else:  # not reaped yet, so the pid still belongs to our child
                _signal_tree(pid, words[2])


def _start_child(
    channel: socket.socket, running: dict[int, _LaunchedChild], order: _Order, number: int, plan: ChildPlan
) -> None:
    message, fds, complete = order
    try:
        if not complete:
            raise OSError(errno.EMFILE, "no room for the child's descriptors")
        if plan.get("supervised"):
            pid = _order_supervised(running, message, fds)
            running[pid] = running[pid]._replace(number=number, starting=True, wrapped=plan.get("wrapped", False))
        else:
            pid, report = _fork_child(lambda: (message, fds))
            running[pid] = _LaunchedChild(number, report=report, starting=True, outlives=plan.get("outlives", False))
    except OSError as exc:
        _tell(channel, ("failed", number, exc.errno))
    finally:
        for fd in fds:
            os.close(fd)


def _tell(channel: socket.socket, event: tuple[Any, ...]) -> None:
    try:
        channel.send(marshal.dumps(event))
    except OSError:
        pass  # the server is gone; the main loop is about to notice


def _fork_child(take_order: Callable[[], tuple[bytes, list[int]]]) -> tuple[int, int]:
    """Fork, take the order, confine, exec; returns the pid and a pipe for an error before exec, which exec closes.

    Nobody waits for that here: a program or a working directory on a file system that does not answer would stop all.
    """
    report_read, report_write = os.pipe2(os.O_CLOEXEC)
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        os.close(report_read)
        os.close(report_write)
        raise
    if pid == 0:
        stage = 0
        try:
            syscalls.die_with_parent(signal.SIGKILL)
            if os.getppid() != parent:  # it died before the statement above could take effect
                os._exit(127)
            os.setsid()
            for number in _IGNORED_HERE:
                signal.signal(number, signal.SIG_DFL)
            message, fds = take_order()
            _, _, argv, env, plan = marshal.loads(message)
            if plan.get("outlives"):
                syscalls.die_with_parent(0)
            stage = NOT_CONFINED
            report_write = _lift(report_write)  # or a descriptor of the command's would take its place
            _become(plan, fds, report_write)
            stage = 0
            os.execve(argv[0], [plan.get("called", argv[0]), *argv[1:]], env)
        except OSError as exc:
            os.write(report_write, (stage + (exc.errno or errno.EIO)).to_bytes(4, "little"))
        finally:
            os._exit(127)
    os.close(report_write)
    return pid, report_read


def _become(plan: ChildPlan, fds: list[int], report: int) -> None:
    """Everything between fork and exec, in the order in which each step is still permitted."""
    ruleset = _lift(fds[plan["ruleset"]]) if "ruleset" in plan else -1
    _limit(plan)
    os.fchdir(fds[0])
    # Lift everything above the targets first: a source fd may itself be one of them.
    lifted = [_lift(fd) for fd in (*fds[1:_STANDARD], *(fds[index] for index in plan.get("keep", ())))]
    joined = [(_lift(fds[index]), kind) for index, kind in plan.get("join", ())]
    for target, fd in enumerate(lifted):
        os.dup2(fd, target, inheritable=True)
    if plan.get("terminal"):
        fcntl.ioctl(0, _TIOCSCTTY, 0)
    for fd, kind in joined:
        syscalls.setns(fd, kind)
        syscalls.die_with_parent(signal.SIGKILL)  # a user namespace has cleared it
    if "user" in plan:
        uid, gid = plan["user"]
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        syscalls.die_with_parent(signal.SIGKILL)  # a change of user has cleared it
    syscalls.no_new_privileges()
    if plan.get("drop_capabilities"):
        syscalls.drop_capabilities()
    if ruleset >= 0:
        syscalls.landlock_restrict_self(ruleset)
    os.closerange(len(lifted), report)
    os.closerange(report + 1, 1 << 20)
    if "seccomp" in plan:
        syscalls.seccomp_filter(plan["seccomp"])


def _rehearse() -> None:
    """What `_become` does, without effect: the first write to a page that a fork shares is dear, so it comes ahead."""
    marshal.loads(marshal.dumps({"limits": [(0, 0)], "seccomp": bytes(2_000), "keep": [*range(_FDS)]}))
    resource.setrlimit(resource.RLIMIT_CORE, resource.getrlimit(resource.RLIMIT_CORE))
    fd = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
    os.write(fd, os.read(fd, 16))
    os.close(fd)
    fd = _lift(0)
    os.dup2(fd, 0, inheritable=True)
    os.closerange(fd, fd + 1)
    syscalls.no_new_privileges()
    env = {b"%d" % number: b"x" * 64 for number in range(_FDS)}
    for refused in (
        lambda: syscalls.landlock_restrict_self(-1),
        lambda: syscalls.seccomp_filter(b""),
        lambda: os.execve(b"/", [b"x" * 64], env),
    ):
        try:
            refused()
        except OSError:
            pass


def _limit(plan: ChildPlan) -> None:
    if "oom_score_adj" in plan:
        _write("/proc/self/oom_score_adj", b"%d" % plan["oom_score_adj"])
    for kind, value in plan.get("limits", ()):
        hard = resource.getrlimit(kind)[1]
        limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (limit, limit))


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


# --- the supervisor of one command -------------------------------------------------------------------


def _spares(running: dict[int, _LaunchedChild]) -> list[int]:
    return [pid for pid, child in running.items() if child.number == _SPARE]


def _needs_spare(running: dict[int, _LaunchedChild]) -> bool:
    return any(child.supervisor and child.number >= 0 for child in running.values()) and not _spares(running)


def _fork_supervisor(running: dict[int, _LaunchedChild]) -> int:
    """A supervisor, and below it a process that waits for its order. They die with us: the channel closes."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    orders, waiting = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    orders.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_MESSAGE)
    try:
        pid = os.fork()
    except OSError:
        for end in (ours, theirs, orders, waiting):
            end.close()
        raise
    if pid == 0:
        try:
            # It must hold neither the server's channel nor another supervisor's.
            _close_all_but(theirs.fileno(), waiting.fileno())
            syscalls.become_subreaper()
            _supervise(waiting, theirs, _wake_on_child())
        finally:
            os._exit(127)
    theirs.close()
    waiting.close()
    running[pid] = _LaunchedChild(_SPARE, ours, True, orders=orders)
    return pid


def _close_all_but(*kept: int) -> None:
    """Close every descriptor from 3 on but these."""
    first = 3
    for fd in sorted(kept):
        os.closerange(first, fd)
        first = fd + 1
    os.closerange(first, 1 << 20)


def _fork_spare(running: dict[int, _LaunchedChild]) -> None:
    try:
        _fork_supervisor(running)
    except OSError:
        pass  # no room for one now; the next command forks its own, or learns why it can't


def _order_supervised(running: dict[int, _LaunchedChild], message: bytes, fds: list[int]) -> int:
    """Hand an order to a process that waits for one, and return its supervisor, whose first report says if it began."""
    for spare in (*_spares(running), None):
        pid = _fork_supervisor(running) if spare is None else spare
        orders = running[pid].orders
        if orders is None:
            raise OSError(errno.EIO, "a supervisor without a process that waits")
        running[pid] = running[pid]._replace(orders=None)
        with orders:
            try:
                socket.send_fds(orders, [message], fds)
            except (BrokenPipeError, ConnectionResetError):  # somebody killed it while it waited
                _dismiss(running, pid)
                continue
        return pid
    raise OSError(errno.EAGAIN, "a process that was just forked is gone")


def _dismiss(running: dict[int, _LaunchedChild], pid: int) -> None:
    channel = running[pid].channel
    if channel is not None:
        channel.close()
    running[pid] = running[pid]._replace(number=_ENDING, channel=None)


def next_report(channel: socket.socket) -> bytes:
    """The next report of a supervisor; empty when it is gone without one.

    A supervisor that ends before it has read a signal of ours resets the channel. The kernel reports that first, and
    once; a report that was sent before it is still there.
    """
    try:
        return channel.recv(4)
    except ConnectionResetError:
        pass
    try:
        return channel.recv(4)
    except OSError:
        return b""


def next_signal(channel: socket.socket) -> tuple[int, bool]:
    """The next signal for a command, and whether it is wrapped; SIGKILL when the launcher is gone, whatever it left."""
    try:
        number, wrapped = channel.recv(2) or (signal.SIGKILL, False)
    except ConnectionResetError:
        return signal.SIGKILL, False
    return number, bool(wrapped)


def _send_if_alive(channel: socket.socket, data: bytes) -> None:
    try:
        channel.send(data)
    except OSError:
        pass  # the supervisor has just ended; so has its command


def _supervise(waiting: socket.socket, channel: socket.socket, wake: int) -> None:
    """Have a command, hand on signals, and when it ends, by whatever cause, end all that is left of it."""
    command, report = _fork_child(lambda: _awaited_order(waiting))
    waiting.close()
    descendants(os.getpid())  # as at the end, to have what that needs in memory of its own
    exit_code = _watch(command, report, channel, wake)
    _sweep()
    if exit_code is not None:
        _send_if_alive(channel, exit_code.to_bytes(4, "little", signed=True))


def _awaited_order(waiting: socket.socket) -> tuple[bytes, list[int]]:
    try:
        _rehearse()
    except OSError:
        pass  # what is not possible here is reported when it is needed
    message, fds, complete = _receive_order(waiting)
    if not message:
        os._exit(0)  # there will be none
    if not complete:
        raise OSError(errno.EMFILE, "no room for the command's descriptors")
    return message, fds


def _watch(command: int, report: int, channel: socket.socket, wake: int) -> int | None:
    """The exit code of the command, None if it did not start; whether it did is reported first.

    The launcher's signals are handed on, its death is a SIGKILL.
    """
    sources = [channel.fileno(), wake, report]
    while True:
        ready = _wait_for_any(*sources)
        if report in ready:
            failure = _start_failure(report)
            _send_if_alive(channel, failure or bytes(4))
            if failure:
                return None
            sources.remove(report)
        if wake in ready and report not in sources:  # one that ended has closed the pipe, too
            os.read(wake, 4096)
            while (pair := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                if pair[0] == command:
                    return os.waitstatus_to_exitcode(pair[1])
        if channel.fileno() in ready:
            number, wrapped = next_signal(channel)
            if number == signal.SIGKILL:
                if report in sources:
                    _send_if_alive(channel, errno.ECANCELED.to_bytes(4, "little"))
                _sweep()
                return None if report in sources else -signal.SIGKILL
            for pid in _children(command) if wrapped else [command]:
                _signal_tree(pid, number)


def _start_failure(report: int) -> bytes:
    try:
        return os.read(report, 4)
    finally:
        os.close(report)


# --- trees of processes ------------------------------------------------------------------------------


def _lift(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3 + _FDS)


def _reap(channel: socket.socket, running: dict[int, _LaunchedChild]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid not in running:
            continue
        while running[pid].source is not None:  # its last news, from just before it died
            _hear_child(channel, running, pid)
        child = running.pop(pid)
        if child.channel is not None:
            child.channel.close()
        if child.number < 0:
            continue
        if child.supervisor:  # it reported no outcome, so somebody killed it: what it held is ours now
            _kill_children(spared=running)
        event = "failed" if child.starting else "ended"
        value = NOT_CONFINED + errno.EIO if child.starting else os.waitstatus_to_exitcode(status)
        _tell(channel, (event, child.number, value))


def _children(pid: int) -> list[int]:
    try:
        fd = os.open(f"/proc/{pid}/task/{pid}/children", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        words = b""
        while piece := os.read(fd, 1 << 16):
            words += piece
    except OSError:  # it ended while we looked
        return []
    finally:
        os.close(fd)
    return [int(word) for word in words.split()]


def _signal_tree(pid: int, number: int) -> None:
    """Signal a process and all its living descendants, parents first so that they can't fork anew."""
    below = _children(pid)
    _send(pid, number)
    for child in below:
        _signal_tree(child, number)


def _sweep(spared: Collection[int] = ()) -> None:
    """End every descendant but `spared` and theirs.

    Orphans are reparented to us, so killing children until none is left gets all. They are stopped before they are
    killed: a fork bomb at its limit would refill every place that gets free.
    """
    me = os.getpid()
    stopped: set[int] = set()
    while fresh := descendants(me, spared) - stopped:
        for pid in fresh:
            _send(pid, signal.SIGSTOP)
        stopped |= fresh
    _kill_children(spared)


def _kill_children(spared: Container[int] = ()) -> None:
    """Kill and reap children until none is left but `spared`; every round, the orphans of the last one are children."""
    while below := [pid for pid in _children(os.getpid()) if pid not in spared]:
        for pid in below:
            _signal_tree(pid, signal.SIGKILL)
        for pid in below:  # each was sent a SIGKILL itself, so this can't wait for ever
            os.waitpid(pid, 0)


def descendants(pid: int, spared: Collection[int] = ()) -> set[int]:
    """Everybody below a process but `spared` and theirs, as far as they are at this moment."""
    found: set[int] = set()
    todo = [pid]
    while todo:
        below = [child for child in _children(todo.pop()) if child not in spared]
        found.update(below)
        todo += below
    return found


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # it ended, or it is a set-uid program that will
