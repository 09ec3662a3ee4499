"""Programs that outlive a call, owned by a session and ended when idle for too long.

They are interactive programs, started on a terminal in the sandbox, and commands that were still running when their
call had waited long enough.
"""

import os
import secrets
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from ..changes.commands import CommandChanges, CommandWindow
from ..config.schema import Config
from ..errors import (
    BadArgs,
    LlmcError,
    PermissionDenied,
    ProcessNotFound,
    ProcLimitExceeded,
    ResourceBusy,
    from_oserror,
)
from ..files.filesystem import Filesystem
from ..kernel.exec_status import ExecStatus
from ..kernel.launcher import ConfinementError, Launcher, RunningChild
from ..sandbox.profile import SYSTEM_PATH
from ..sandbox.sandbox import Sandbox
from ..store.replicas import OwnedProgram
from .allowlist import Programs
from .background import BackgroundCommand
from .board import ProgramBoard, ShownProgram
from .conversation import Check, Conversation, StreamsTurn, Turn, open_terminal
from .protected_files import ProtectedFiles, ProtectedFileWatch
from .pump import Pump
from .runner import RunningCommand, encoded
from .shell_syntax import CommandLine

_COLUMNS, _ROWS = 120, 40
_LATE_S = 1.0  # between asking a command that is out of time to end and making it
_SHOW_EVERY_S = 0.25  # how often others see what runs, and are heard
_EXITED_KEPT = 16  # exited programs kept per session, for their last output
_SIGNAL_S, _HANGUP_S, _KILL_S = 0.3, 2.0, 10.0  # how long to wait for the end after each signal

# Present a terminal that is too simple for line editors, so that programs print plain text.
_ENVIRONMENT = {
    "TERM": "dumb",
    "EMACS": "t",  # bash: no line editing, so that a tab is a tab
    "PYTHON_BASIC_REPL": "1",
    "NODE_NO_READLINE": "1",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "PS1": "$ ",
}

_OUT_OF_TIME = "It was ended, with all it had started: its timeout was over."

# Inside bubblewrap a program starts in bubblewrap's session: it has to claim the terminal itself.
_CLAIM = (
    "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


class SessionLimits(NamedTuple):
    """How many programs may run, how long they may be idle, and which variables callers may set."""

    per_session: int
    total: int
    commands_per_session: int
    commands_total: int
    idle_s: float
    variables: tuple[str, ...]


def limits_from(config: Config) -> SessionLimits:
    """Read the operator's limits from the configuration."""
    configured = config.linux_ops.process_limits
    return SessionLimits(
        configured.max_procs_per_session,
        configured.max_procs_total,
        configured.max_background_per_session,
        configured.max_background_total,
        configured.idle_reap_sec,
        config.linux_ops.commands.allowed_env,
    )


class Owner(NamedTuple):
    """The owner of a program."""

    principal: str
    session_id: str


class Watcher(NamedTuple):
    """The call that waits for a program: what may end the wait, and who is told the last line that it printed."""

    check: Check
    shows: Callable[[str], None]


class CommandTurn(NamedTuple):
    """A turn of a command, how long it has been running, and what confines it."""

    turn: StreamsTurn
    elapsed_ms: int
    sandbox: str


class RunningProgram(NamedTuple):
    """A program as its owner sees it."""

    proc_id: str
    pid: int
    command: str
    state: str
    started_iso: str
    idle_s: int


class _Entry:
    def __init__(self, owner: Owner, command: str, denials: Callable[[], list[str]], *, handed_over: bool) -> None:
        self.denials = denials  # of the network, since the last report
        self.handed_over = handed_over  # a command, not an interactive program
        self.sandbox = ""
        self.ends_at = float("inf")  # the time limit that its caller gave it
        self.terminated = False
        self.proc_id = f"P_{secrets.token_hex(8)}"
        self.owner, self.command = owner, command
        self.started = datetime.now(UTC)
        self.started_at = time.monotonic()
        self.used_at = time.monotonic()
        self.busy = 1  # calls under way
        self.pid = 0
        self.conversation: Conversation | None = None
        self.watch: ProtectedFileWatch | None = None
        self.window: CommandWindow | None = None

    def report(self, turn: Turn) -> Turn:
        """Return the turn with what changed since the last one."""
        return turn._replace(warnings=self.changes(), changes=self.undoable())

    def follow(self, window: CommandWindow | None) -> None:
        """Follow what the program changes for as long as it runs."""
        self.window = window
        if window is not None:
            window.go_on_until(lambda: self.exited)

    def undoable(self) -> CommandChanges:
        """What the program changed since the last report, journaled."""
        if self.window is None:
            return CommandChanges()
        return self.window.end() if self.exited else self.window.report()

    def forget(self) -> None:
        """Follow the program no more."""
        if self.window is not None:
            self.window.end()

    def changes(self) -> tuple[str, ...]:
        warnings = self.watch.changes("Since the last report, something changed") if self.watch is not None else []
        warnings = [*warnings, *self.denials()]
        return (*warnings, _OUT_OF_TIME) if self.terminated else tuple(warnings)

    def owned(self) -> OwnedProgram:
        return OwnedProgram(self.proc_id, *self.owner)

    @property
    def exited(self) -> bool:
        return self.conversation is not None and self.conversation.exit_code is not None


class TerminalSessions:
    """Starts programs and keeps track of them; one instance per server."""

    def __init__(
        self,
        sandbox: Sandbox,
        files: Filesystem,
        programs: Programs,
        limits: SessionLimits,
        board: ProgramBoard,
        started: Callable[[OwnedProgram], None] = lambda _: None,
    ) -> None:
        self._started = started  # told before a caller learns a program's id
        self._board, self._shown_activity, self._next_show = board, 0, 0.0
        self._sandbox, self._files, self._programs, self._limits = sandbox, files, programs, limits
        self._protected = ProtectedFiles(files)
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._pump: Pump | None = None

    # --- starting --------------------------------------------------------------------------------

    def start(  # noqa: PLR0913 - what a program may be given, all but two by keyword
        self,
        owner: Owner,
        line: CommandLine,
        *,
        cwd: str | None,
        env: dict[str, str],
        columns: int,
        wait_s: float,
        check: Check,
        server_env: Mapping[bytes, bytes] | None = None,
        window: CommandWindow | None = None,
    ) -> tuple[str, int, Turn]:
        """Start a program and wait for its first turn; returns its id, its pid and what it printed.

        `env` comes from the caller, `server_env` from the server itself.
        """
        self._refuse_variables(env)
        if line.script is not None:
            raise BadArgs("the line is too long to be started on a terminal", hint="Start a shell, and type it.")
        argv = line.argv
        entry = self._reserve(owner, " ".join(argv))
        entry.follow(window)
        try:
            variables = {**_encoded_env(env), **(server_env or {})}
            entry.conversation, status = self._converse(entry, line, cwd, variables, columns)
            with closing(status) if status is not None else nullcontext():
                entry.conversation.await_terminal(check)
                entry.pid = entry.conversation.pid
                turn = entry.conversation.turn(wait_s, check, for_output=False)
                entry.pid = entry.conversation.pid or entry.pid
                if status is not None and not status.executed(turn.exit_code):
                    raise self._sandbox.not_executed(argv[0], turn.output.encode())
        except BaseException:
            self._discard(entry)  # the caller never learns its id
            raise
        self._started(entry.owned())
        self._release(entry)
        return entry.proc_id, entry.pid, entry.report(turn)

    def _reserve(self, owner: Owner, command: str, *, handed_over: bool = False) -> _Entry:
        entry = _Entry(owner, command, partial(self._sandbox.take_denials, owner), handed_over=handed_over)
        limits, kind = self._limits, "commands in the background" if handed_over else "interactive processes"
        with self._lock:
            alike = [other for other in self._entries.values() if other.handed_over == handed_over]
            running = [other for other in alike if not other.exited]
            mine = [other for other in running if other.owner == owner]
            for count, limit, whose in (
                (len(mine), limits.commands_per_session if handed_over else limits.per_session, "this session"),
                (len(running), limits.commands_total if handed_over else limits.total, "the server"),
            ):
                if count >= limit:
                    raise ProcLimitExceeded(
                        f"{whose} has {count} {kind}, and no more are allowed",
                        hint="linux_proc_sessions lists them, linux_proc_stop ends one.",
                    )
            ended = [other for other in self._entries.values() if other.exited and other.owner == owner]
            old_ones = ended[: max(len(ended) - _EXITED_KEPT + 1, 0)]
            for old in old_ones:
                del self._entries[old.proc_id]
            self._entries[entry.proc_id] = entry
        for old in old_ones:
            old.forget()
        return entry

    def _refuse_variables(self, env: dict[str, str]) -> None:
        for name, value in env.items():
            if name not in self._limits.variables:
                raise PermissionDenied(
                    f"the variable {name[:60]!r} can't be set",
                    hint=f"Allowed: {', '.join(self._limits.variables)}. Setting: linux_ops.commands.allowed_env.",
                )
            if "\0" in value:
                raise BadArgs(f"the variable {name} contains a NUL byte")

    def _converse(
        self, entry: _Entry, line: CommandLine, cwd: str | None, env: dict[bytes, bytes], columns: int
    ) -> tuple[Conversation, ExecStatus | None]:
        argv = line.argv
        directory = self._files.open_dir(self._files.locate(cwd or "."))
        try:
            entry.watch = self._protected.watch(directory)
            folder = os.readlink(f"/proc/self/fd/{directory}")
            path = self._programs.find(argv[0], folder)
            for program in line.programs:
                self._programs.refuse_unlisted(program, folder)
            terminal = open_terminal(columns, _ROWS)
            try:
                launcher, child, status = self._launch(
                    entry.owner, encoded([path, *argv[1:]]), directory, env, terminal.slave
                )
            except BaseException:
                os.close(terminal.master)
                os.close(terminal.slave)
                raise
        finally:
            os.close(directory)
        try:
            conversation = Conversation(launcher, child, terminal, _ended_fd(child), self._request_write)
            self._started_pump().add(conversation)
        except OSError as exc:  # out of file descriptors
            launcher.signal(child, signal.SIGKILL)
            os.close(terminal.master)
            os.close(terminal.slave)
            if status is not None:
                status.close()
            raise from_oserror(exc, argv[0]) from None
        return conversation, status

    def _launch(
        self, owner: Owner, argv: list[bytes], directory: int, env: dict[bytes, bytes], slave: int
    ) -> tuple[Launcher, RunningChild, ExecStatus | None]:
        level, launcher = self._sandbox.level(), self._sandbox.launcher
        wrapped = level.name == "workspace"
        machine = self._sandbox.machine(owner, level)
        launch = level.launch([*_claim(), *argv] if wrapped else argv, directory, machine)
        plan = launch.plan
        if not wrapped:
            plan["terminal"] = True
        if "user" in plan:
            os.fchown(slave, *plan["user"])
        try:
            fds = [directory, slave, slave, slave, *launch.fds]
            return launcher, launcher.start(launch.argv, {**launch.env, **env}, fds, plan), launch.status
        except OSError as exc:
            if launch.status is not None:
                launch.status.close()
            if isinstance(exc, ConfinementError):
                raise self._sandbox.broke(f"{exc.strerror}") from None
            raise from_oserror(exc, os.fsdecode(argv[0])) from None
        finally:
            for fd in launch.fds:
                os.close(fd)

    def adopt(self, owner: Owner, command: str, running: RunningCommand, ends_at: float) -> str | None:
        """Go on with a command that outlives its call; returns its id, or None if there is no place for it.

        `ends_at` is when its time limit is over, by the monotonic clock.
        """
        try:
            entry = self._reserve(owner, command, handed_over=True)
        except ProcLimitExceeded:
            return None
        try:
            terminal = running.terminal or open_terminal(_COLUMNS, _ROWS)
            ended_fd = _ended_fd(running.child.child)
            entry.conversation = BackgroundCommand(
                self._sandbox.launcher,
                running.child,
                terminal,
                ended_fd,
                self._request_write,
                takes_input=running.terminal is not None,
            )
        except OSError:  # out of file descriptors
            with self._lock:
                self._entries.pop(entry.proc_id, None)
            return None
        entry.conversation.remember(running.printed)
        entry.watch, entry.sandbox, entry.started_at = running.watch, running.sandbox, running.started
        entry.ends_at = ends_at
        entry.follow(running.window)
        entry.pid = entry.conversation.pid
        pump = self._started_pump()
        pump.add(entry.conversation)
        self._started(entry.owned())
        self._release(entry)
        return entry.proc_id

    # --- input and output ------------------------------------------------------------------------

    def send(self, owner: Owner, proc_id: str, text: str, read_s: float, check: Check) -> Turn | None:
        """Type `text` and, if there is time for it, wait for the answer."""
        with self._using(owner, proc_id) as (entry, conversation):
            conversation.send(text, check)
            return entry.report(conversation.turn(read_s, check, for_output=False)) if read_s else None

    def go_on(self, owner: Owner, proc_id: str, text: str | None, seconds: float, call: Watcher) -> CommandTurn:
        """Type `text`, if any, and wait until the program ends, waits for input, or time is up."""
        with self._using(owner, proc_id) as (entry, conversation):

            def check() -> None:
                call.shows(conversation.last_line())
                call.check()

            if text is not None:
                conversation.send(text, check)
            turn = conversation.streams(seconds, check)
            return self._command_turn(entry, turn)

    def end(self, owner: Owner, proc_id: str, check: Check) -> CommandTurn:
        """Like `stop`, with the last output by stream."""
        with self._using(owner, proc_id) as (entry, conversation):
            self._end(conversation, signal.SIGTERM, check)
            turn = conversation.streams(0, check)
            if turn.exit_code is None:
                raise _does_not_end()
        with self._lock:
            self._entries.pop(proc_id, None)
        return self._command_turn(entry, turn)

    def _command_turn(self, entry: _Entry, turn: StreamsTurn) -> CommandTurn:
        elapsed_ms = int((time.monotonic() - entry.started_at) * 1000)
        sandbox = entry.sandbox or self._sandbox.level().name
        return CommandTurn(turn._replace(warnings=entry.changes(), changes=entry.undoable()), elapsed_ms, sandbox)

    def touch(self, owner: Owner) -> None:
        """The session is at work: what it left in the background is not idle."""
        self._sandbox.touch(owner)
        now = time.monotonic()
        with self._lock:
            for entry in self._entries.values():
                if entry.owner == owner and entry.handed_over:
                    entry.used_at = now

    def read(self, owner: Owner, proc_id: str, seconds: float, check: Check) -> Turn:
        """Return what was printed since the last time."""
        with self._using(owner, proc_id) as (entry, conversation):
            return entry.report(conversation.turn(seconds, check, for_output=True))

    def stop(self, owner: Owner, proc_id: str, number: int, check: Check) -> Turn:
        """End a program and forget it: by the given signal, then SIGHUP, then SIGKILL; returns its last turn."""
        with self._using(owner, proc_id) as (entry, conversation):
            self._end(conversation, number, check)
            code, output = conversation.exit_code, conversation.left()
        if code is None:
            raise _does_not_end()
        with self._lock:
            self._entries.pop(proc_id, None)
        return entry.report(Turn(output, code, ""))

    def _end(self, conversation: Conversation, number: int, check: Check) -> None:
        for signal_number, seconds in (
            (number, _SIGNAL_S),
            (signal.SIGHUP, _HANGUP_S),
            (signal.SIGKILL, _KILL_S),
        ):
            if conversation.exit_code is None and conversation.signal(signal_number):
                conversation.ends_within(seconds, check)

    def running(self, owner: Owner) -> list[RunningProgram]:
        """List the programs of a session, oldest first."""
        with self._lock:
            mine = [entry for entry in self._entries.values() if entry.owner == owner]
        return [_as_program(entry) for entry in mine]

    def owned(self) -> list[OwnedProgram]:
        """All programs and their owners."""
        with self._lock:
            return [entry.owned() for entry in self._entries.values() if entry.conversation is not None]

    def holds(self, proc_id: str) -> bool:
        """Whether a program is here, whosever it is."""
        return proc_id in self._entries

    def of_all(self) -> list[ShownProgram]:
        """List the programs of all sessions, oldest first; no output counts as read by it."""
        with self._lock:
            entries = list(self._entries.values())
        return [_as_shown(entry, entry.conversation) for entry in entries if entry.conversation is not None]

    def stop_for_person(self, proc_id: str, check: Check) -> None:
        """End a program of any session, as its owner would."""
        with self._lock:
            entry = self._entries.get(proc_id)
        if entry is not None:
            self.stop(entry.owner, proc_id, signal.SIGTERM, check)

    def _face_others(self) -> float:
        """Show what runs to the user's other processes, and end what they want ended; returns when to look again."""
        if not self._entries and not self._shown_activity:
            return self._limits.idle_s
        if time.monotonic() < self._next_show:
            return self._next_show - time.monotonic()
        self._next_show = time.monotonic() + _SHOW_EVERY_S
        for proc_id in self._board.take_requests(list(self._entries)):
            threading.Thread(target=self._stop_quietly, args=(proc_id,), name="stop", daemon=True).start()
        if (activity := self.activity()) != self._shown_activity:
            self._shown_activity = activity
            self._board.show(self.of_all())
        return _SHOW_EVERY_S

    def _stop_quietly(self, proc_id: str) -> None:
        with suppress(LlmcError):  # it ended by itself, or is stuck in the kernel
            self.stop_for_person(proc_id, lambda: None)

    def activity(self) -> int:
        """A number that changes when a program starts, prints or ends."""
        entries = list(self._entries.values())
        return sum(1 + entry.exited + (entry.conversation.printed if entry.conversation else 0) for entry in entries)

    def close(self) -> None:
        """Release everything; the launcher ends the programs."""
        with self._lock:
            entries, self._entries = self._entries, {}
            pump, self._pump = self._pump, None
        if pump is not None:
            pump.close()
        self._board.show([])
        for entry in entries.values():
            if entry.conversation is not None:
                entry.conversation.abandon()

    @contextmanager
    def _using(self, owner: Owner, proc_id: str) -> Generator[tuple[_Entry, Conversation]]:
        """Yield a program of this owner, and keep it from being reaped; for others it does not exist."""
        with self._lock:
            entry = self._entries.get(proc_id)
            if entry is None or entry.owner != owner or entry.conversation is None:
                raise ProcessNotFound(
                    f"there is no process {proc_id[:40]!r}", hint="linux_proc_sessions lists those of this session."
                )
            entry.busy += 1
        try:
            yield entry, entry.conversation
        finally:
            self._release(entry)

    # --- tidying up ------------------------------------------------------------------------------

    def _release(self, entry: _Entry) -> None:
        with self._lock:
            entry.busy -= 1
            entry.used_at = time.monotonic()

    def _discard(self, entry: _Entry) -> None:
        with self._lock:
            self._entries.pop(entry.proc_id, None)
        if entry.conversation is not None:
            entry.conversation.signal(signal.SIGKILL)
        entry.forget()

    def _tidy(self) -> float:
        """End and forget programs that have been idle for too long; return the seconds until the next one is due."""
        now = time.monotonic()
        with self._lock:
            idle = {entry: now - entry.used_at for entry in self._entries.values() if not entry.busy}
            over = [entry for entry, seconds in idle.items() if seconds >= self._limits.idle_s]
            late = [entry for entry in self._entries.values() if entry.ends_at <= now and not entry.exited]
        for entry in over:
            self._discard(entry)
        for entry in late:
            self._end_late(entry, now)
        left = [self._limits.idle_s - seconds for entry, seconds in idle.items() if entry not in over]
        with self._lock:
            left += [entry.ends_at - now for entry in self._entries.values() if not entry.exited]
        left.append(self._face_others())
        return min([*left, self._limits.idle_s])  # one that is in use now may be idle from now on

    def _end_late(self, entry: _Entry, now: float) -> None:
        """A time limit is over: ask the command to end, and a moment later make it."""
        if entry.conversation is not None:
            entry.conversation.signal(signal.SIGKILL if entry.terminated else signal.SIGTERM)
        entry.ends_at = float("inf") if entry.terminated else now + _LATE_S
        entry.terminated = True

    def _started_pump(self) -> Pump:
        with self._lock:
            if self._pump is None:
                self._pump = Pump(self._tidy)
            return self._pump

    def _request_write(self, conversation: Conversation) -> None:
        if self._pump is not None:
            self._pump.wants_to_write(conversation)


def _as_shown(entry: _Entry, conversation: Conversation) -> ShownProgram:
    one, owner = _as_program(entry), entry.owner
    return ShownProgram(
        one.proc_id,
        owner.principal,
        owner.session_id,
        one.command,
        one.state,
        one.pid,
        one.started_iso,
        entry.handed_over,
        conversation.tail(),
    )


def _as_program(entry: _Entry) -> RunningProgram:
    return RunningProgram(
        entry.proc_id,
        entry.pid,
        entry.command,
        "exited" if entry.exited else "running",
        entry.started.isoformat(timespec="seconds").replace("+00:00", "Z"),
        int(time.monotonic() - entry.used_at),
    )


def _ended_fd(child: RunningChild) -> int:
    """Return an fd that is readable once the program's supervisor, and with it the whole process tree, has ended."""
    try:
        return os.pidfd_open(child.pid)
    except ProcessLookupError:
        return os.eventfd(1, os.EFD_CLOEXEC)


def _does_not_end() -> ResourceBusy:
    return ResourceBusy("the process does not end; it may be stuck in the kernel", hint="Try again later.")


def _claim() -> list[bytes]:
    program = shutil.which("setsid", path=":".join(SYSTEM_PATH))
    words = [program, "-c"] if program else [sys.executable, "-I", "-S", "-c", _CLAIM]
    return [os.fsencode(word) for word in words]


def _encoded_env(env: dict[str, str]) -> dict[bytes, bytes]:
    variables = {**_ENVIRONMENT, **env}
    return dict(zip(encoded(list(variables)), encoded(list(variables.values())), strict=True))
