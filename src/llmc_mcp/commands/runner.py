"""Running a command to its end: in which folder, for how long, and what is kept of its output."""

import json
import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ..changes.commands import CommandChanges, CommandUndo, CommandWindow
from ..errors import BadArgs, Cancelled, LlmcError, Timeout, from_oserror
from ..files.filesystem import Filesystem
from ..kernel.child import ERR, OUT, Child, ReleasedChild, file_in_memory
from ..sandbox.profile import Level
from ..sandbox.sandbox import Sandbox
from ..session import Session
from ..tool import Gap
from .allowlist import Programs
from .conversation import open_terminal
from .input_wait import Terminal
from .protected_files import ProtectedFiles, ProtectedFileWatch
from .read_only import seems_read_only
from .shell_syntax import CommandLine

if TYPE_CHECKING:
    from ..files.handles import Sink

_HEAD = _TAIL = 32 << 10  # bytes of a stream that stay in memory
_SPOOL_FROM = 1_500  # bytes: escaped, as many may fill a reply
_NOT_ENDED = -1  # in the place of an exit code
_COLUMNS, _ROWS = 120, 40
_GRACE_S = 1.0  # between asking a command to end and making it
_MESSAGE_TAIL = 700  # characters of output that an error message repeats
# How a shell runs a line that is too long for an argument; the line itself does not see the descriptor.
_FROM_FILE = 'eval "$(cat <&{fd})" {fd}<&-'
_NETWORK_MISSED = re.compile(
    rb"(?i)could ?n.t resolve|temporary failure in name resolution|name or service not known|network is unreachable"
    rb"|\b(?:EAI_AGAIN|ENETUNREACH|ENOTFOUND)\b|getaddrinfo|address family not supported"
    rb"|failed to establish a new connection|could not connect to server|dns error|no route to host"
)


class CommandCall(NamedTuple):
    """What a command needs from the call it runs for; `room` is what a reply can hold.

    `tap` sees all of the output as it comes; `env` is added to the command's environment.
    """

    check: Callable[[], None]
    open_sink: "Callable[[], Sink | None]"
    room: int
    tap: Callable[[str, bytes], None] | None = None
    env: Mapping[bytes, bytes] | None = None
    owner: object = None  # the session whose network and /tmp the command shares; None: it has its own
    session: Session | None = None  # whose changes the command makes; None: it can change nothing


class HandOver(NamedTuple):
    """When a running command is handed over, and to whom; `adopt` returns its id, or None if there is no place."""

    after_s: float
    takes_input: bool  # its stdin stays open, for somebody to type
    adopt: "Callable[[RunningCommand], str | None]"


class RunningCommand(NamedTuple):
    """A command that is handed over. Its descriptors are the new owner's to close, once it has an id."""

    child: ReleasedChild
    terminal: Terminal | None  # its input, where it takes any
    watch: ProtectedFileWatch
    sandbox: str
    started: float
    window: CommandWindow | None = None
    printed: str = ""  # what its call has reported already


class CommandResult(NamedTuple):
    """How a command ended. An exit code above 128 stands for the signal that many above it, as in a shell.

    Of one that was handed over, it is the result so far.
    """

    stdout: str
    stderr: str
    exit_code: int
    duration_ms: int
    truncated: bool
    handle: str | None
    sandbox: str
    warnings: list[str]
    gaps: dict[str, Gap]  # by stream, where the middle of one is missing
    process: str | None = None  # the id of a command that runs on
    changes: CommandChanges = CommandChanges()

    @property
    def signal(self) -> str | None:
        """The signal's name, when there is one."""
        return signal_name(self.exit_code - 128)


class CommandRunner:
    """Runs commands; made once per server."""

    def __init__(
        self, sandbox: Sandbox, files: Filesystem, programs: Programs, undo: Callable[[], CommandUndo | None]
    ) -> None:
        self._sandbox, self._files, self.programs, self._undo = sandbox, files, programs, undo
        self._protected = ProtectedFiles(files)

    def run_command(  # noqa: PLR0913 - what a command may be given, all but one by keyword
        self,
        line: CommandLine,
        *,
        cwd: str | None = None,
        timeout_sec: float,
        stdin: str | None = None,
        call: CommandCall,
        listed: bool = True,
        keep: tuple[int, ...] = (),
        level: Level | None = None,
        hand_over: HandOver | None = None,
    ) -> CommandResult:
        """Run a command to its end, its timeout or its cancellation; in every case nothing of it is left running.

        With `hand_over`, one that is still running then is handed over instead, if there is a place for it.
        `listed=False` starts a program of the operator's or our own choice that need not be on the list; `keep`
        are fds that stay open in it, numbered from the `free_fd` of `level`, which is the one in force by default.
        """
        window, none = self.open_window(line, call.session)
        terminal = open_terminal(_COLUMNS, _ROWS) if hand_over is not None and hand_over.takes_input else None
        try:
            source = terminal.slave if terminal is not None else _text_bytes(stdin)
            command = self._start(line, cwd, source, call, listed, keep, level)
            process = self._follow(command._replace(window=window), terminal, timeout_sec, hand_over)
        except BaseException as exc:
            _close(terminal)
            if window is not None:
                _tell(exc, window.end())
            raise
        if process:
            changes = window.report() if window is not None else CommandChanges(none=none)
            return command.result(_NOT_ENDED)._replace(process=process, changes=changes)
        _close(terminal)
        changes = window.end() if window is not None else CommandChanges(none=none)
        return command.result(command.exit_code())._replace(changes=changes)

    def open_window(self, line: CommandLine, session: Session | None) -> tuple[CommandWindow | None, str]:
        """Begin to follow what a command changes, from before it starts; None where that can't be, and why not."""
        if session is None:
            return None, ""
        try:
            undo = self._undo()
        except LlmcError as exc:  # there is no journal: the command runs all the same, and its reply says so
            return None, exc.message
        if undo is None:
            return None, ""
        about = line.script.decode("utf-8", "replace") if line.script is not None else _line_of(line)
        return undo.begin(session, about, read_only=seems_read_only(line)), ""

    def _follow(
        self, command: "_StartedCommand", terminal: Terminal | None, timeout_sec: float, hand_over: HandOver | None
    ) -> str | None:
        """Follow a command to its end; returns the id of one that was handed over."""
        try:
            with command.child:
                if hand_over is not None:
                    try:
                        command.drain(command.until(hand_over.after_s))
                    except _TimeIsUp:
                        running = command.running(terminal)
                        if (process := hand_over.adopt(running)) is not None:
                            command.child.release()
                            return process
                command.drain(command.check)
            if not command.child.executed:
                raise self._sandbox.not_executed(command.path, command.kept.streams[ERR].head)
        except Timeout:
            raise _timed_out(timeout_sec, command.kept, command.watch) from None
        except BaseException:
            command.kept.discard()
            raise
        return None

    def _start(
        self,
        line: CommandLine,
        cwd: str | None,
        stdin: bytes | int | None,
        call: CommandCall,
        listed: bool,
        keep: tuple[int, ...],
        level: Level | None,
    ) -> "_StartedCommand":
        directory = self._files.open_dir(self._files.locate(cwd or "."))
        script = -1
        try:
            folder = os.readlink(f"/proc/self/fd/{directory}")
            path = self.programs.find(line.argv[0], folder) if listed else self.programs.locate(line.argv[0], folder)
            for program in line.programs:
                self.programs.refuse_unlisted(program, folder)
            level = level or self._sandbox.level()
            words = [path, *line.argv[1:]]
            if line.script is not None:
                script = file_in_memory(line.script)
                words += [_FROM_FILE.format(fd=level.free_fd + len(keep)), line.argv[0]]
                keep = (*keep, script)
            watch = self._protected.watch(directory)
            machine = self._sandbox.machine(call.owner, level)
            started = time.monotonic()
            child = self._sandbox.start(
                encoded(words),
                directory,
                level=level,
                machine=machine,
                stdin=stdin,
                keep=keep,
                env=call.env,
                called=_called(line.argv[0], path),
            )
        except OSError as exc:
            raise from_oserror(exc, line.argv[0]) from None
        finally:
            for fd in (directory, script):
                if fd >= 0:
                    os.close(fd)
        warnings = (*line.warnings, *self._missing_roots())
        denials = partial(self._sandbox.take_denials, call.owner)
        network = NetworkWarnings(denials, partial(self._sandbox.missed_network, level, machine))
        return _StartedCommand(child, _KeptOutput(call), call.check, watch, level, path, started, warnings, network)

    def _missing_roots(self) -> list[str]:
        silent = self._files.silent_roots.find()
        missing = [root.shown for root in self._files.roots if root.real in silent]
        return [f"{root} does not answer, so the command ran without it." for root in missing]


class NetworkWarnings(NamedTuple):
    """What a reply says of the network: what was denied, and why there may have been none."""

    denials: Callable[[], list[str]]
    missed: Callable[[], str]


class _TimeIsUp(Exception):
    """The command is to be handed over."""


class _StartedCommand(NamedTuple):
    """A command that runs, and what its result is made from."""

    child: Child
    kept: "_KeptOutput"
    check: Callable[[], None]
    watch: ProtectedFileWatch
    level: Level
    path: str
    started: float
    warnings: tuple[str, ...]
    network: NetworkWarnings
    window: CommandWindow | None = None

    def drain(self, check: Callable[[], None]) -> None:
        """Take what the command prints until it ends; one that has to end early gets a moment for its last output."""
        try:
            for stream, piece in self.child.streams(check):
                self.kept.take(stream, piece)
        except (Timeout, Cancelled):
            self.child.terminate(_GRACE_S)
            for stream, piece in self.child.left_over():
                self.kept.take(stream, piece)
            raise

    def until(self, seconds: float) -> Callable[[], None]:
        """A check that also ends the draining some time after the start."""

        def check() -> None:
            self.check()
            if time.monotonic() - self.started >= seconds:
                raise _TimeIsUp

        return check

    def running(self, terminal: Terminal | None) -> RunningCommand:
        printed = self.kept.text(OUT) + self.kept.text(ERR)
        going_on = self.child.running()
        return RunningCommand(going_on, terminal, self.watch, self.level.name, self.started, self.window, printed)

    def exit_code(self) -> int:
        code = self.child.exit_code or 0
        return 128 - code if code < 0 else code

    def result(self, exit_code: int) -> CommandResult:
        duration_ms = int((time.monotonic() - self.started) * 1000)
        warnings = [*self.watch.changes(), *self.warnings, *_network_warnings(self.network, exit_code, self.kept)]
        return self.kept.result(exit_code, duration_ms, self.level.name, warnings)


def _line_of(line: CommandLine) -> str:
    """A command as it was given: of a line for a shell, the line."""
    words = line.argv
    return words[2] if len(words) == 4 and words[1] == "-c" and words[3] == words[0] else " ".join(words)


def _tell(exc: BaseException, changes: CommandChanges) -> None:
    """Say in the error of a command that was ended what it had changed."""
    if isinstance(exc, Timeout) and (changes.undo_id or changes.none):
        said = f"undo_id {changes.undo_id} takes back {changes.files} changed files." if changes.undo_id else ""
        none = f"undo: none ({changes.none})." if changes.none else ""
        exc.hint = " ".join(part for part in (exc.hint, said, none, *changes.warnings) if part)


def encoded(words: list[str]) -> list[bytes]:
    """The words of a command as the kernel takes them."""
    try:
        return [os.fsencode(word) for word in words]
    except UnicodeEncodeError:
        raise BadArgs("the command is not valid Unicode (lone surrogate)") from None


def _called(name: str, path: str) -> bytes:
    """How a program is called by its caller; nothing where another one stands in for it."""
    leads_there = ".." not in name.split("/") if "/" in name else os.path.basename(path) == name
    return os.fsencode(name) if leads_there else b""


def _text_bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "replace")


def _close(terminal: Terminal | None) -> None:
    for fd in terminal or ():
        os.close(fd)


def _timed_out(timeout_sec: float, kept: "_KeptOutput", watch: ProtectedFileWatch) -> Timeout:
    output = (kept.text(OUT) + kept.text(ERR)).rstrip()[-_MESSAGE_TAIL:]
    printed = f"; it had printed:\n{output}" if output else "; it had printed nothing"
    handle = kept.finish()
    more = f" All of its output: handle {handle}." if handle else ""
    return Timeout(
        f"the command took longer than {timeout_sec:g} s and was ended, with all it had started{printed}",
        hint=" ".join([f"Give a longer timeout.{more}", *watch.changes()]),
    )


def _network_warnings(network: NetworkWarnings, exit_code: int, kept: "_KeptOutput") -> list[str]:
    """What was denied or, where a command seems to have failed for want of a network, a hint."""
    if denied := network.denials():
        return denied
    output = kept.streams[ERR].tail + kept.streams[OUT].tail
    if not exit_code or not _NETWORK_MISSED.search(output):
        return []
    return [hint] if (hint := network.missed()) else []


def signal_name(number: int) -> str | None:
    """The name of a signal; None for a number that is none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


class _Stream:
    """The beginning and the end of one stream."""

    def __init__(self) -> None:
        self.head = self._end = b""
        self.total = self._lines = 0

    def take(self, piece: bytes) -> None:
        self.total += len(piece)
        self._lines += piece.count(b"\n")
        room = _HEAD - len(self.head)
        if room > 0:
            self.head += piece[:room]
            piece = piece[room:]
        if piece:
            self._end = (self._end + piece[-_TAIL:])[-_TAIL:]

    @property
    def tail(self) -> bytes:
        """The last bytes, wherever they are kept."""
        return (self.head + self._end)[-_TAIL:]

    def text(self) -> str:
        gap = self.gap()
        if gap is None:
            return (self.head + self._end).decode("utf-8", "replace")
        return f"{self.head.decode('utf-8', 'replace')}\n{gap.mark}\n{self._end.decode('utf-8', 'replace')}"

    def gap(self) -> Gap | None:
        """What is missing between the beginning and the end."""
        dropped = self.total - len(self.head) - len(self._end)
        if not dropped:
            return None
        lines = self._lines - self.head.count(b"\n") - self._end.count(b"\n")
        return Gap(f"… [{dropped:,} bytes left out] …", lines)


class _KeptOutput:
    """What is kept of a command's output: the ends in memory, all of it in a sink once it is worth one."""

    def __init__(self, call: CommandCall) -> None:
        self.streams = {OUT: _Stream(), ERR: _Stream()}
        self._call = call
        self._sink: Sink | None = None
        self._waiting: list[bytes] = []
        self._total = 0

    def take(self, stream: str, piece: bytes) -> None:
        if self._call.tap is not None:
            self._call.tap(stream, piece)
        self.streams[stream].take(piece)
        self._total += len(piece)
        if self._sink is not None:
            self._sink.write(piece)
        elif self._total <= _SPOOL_FROM or self._waiting or self._total == len(piece):
            self._waiting.append(piece)
            if self._total > _SPOOL_FROM:
                self._begin_sink()

    def _begin_sink(self) -> None:
        self._sink = self._call.open_sink()
        if self._sink is not None:
            for piece in self._waiting:
                self._sink.write(piece)
        self._waiting = []

    def text(self, stream: str) -> str:
        return self.streams[stream].text()

    def finish(self) -> str | None:
        return (self._sink.finish() or None) if self._sink is not None else None

    def discard(self) -> None:
        if self._sink is not None:
            self._sink.discard()
            self._sink = None

    def result(self, exit_code: int, duration_ms: int, level: str, warnings: list[str]) -> CommandResult:
        out, err = self.text(OUT), self.text(ERR)
        truncated = any(stream.total > _HEAD + _TAIL for stream in self.streams.values())
        if len(json.dumps(out)) + len(json.dumps(err)) <= self._call.room:
            self.discard()  # the reply says it all
        return CommandResult(
            stdout=out,
            stderr=err,
            exit_code=exit_code,
            duration_ms=duration_ms,
            truncated=truncated,
            handle=self.finish(),
            sandbox=level,
            warnings=warnings,
            gaps={name: gap for name, stream in self.streams.items() if (gap := stream.gap()) is not None},
        )
