"""Commands: which program may start, in which folder, for how long, and what is kept of what it prints.

The list of programs keeps an agent to what the operator had in mind; it is not what confines it. Any shell or
interpreter on the list can start whatever it likes, inside the sandbox.
"""

import json
import os
import re
import shlex
import signal
import stat as stat_bits
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from ..config.schema import Config
from ..errors import (
    BadArgs,
    Cancelled,
    CommandNotAllowed,
    LlmcError,
    NotFound,
    PermissionDenied,
    Timeout,
    from_oserror,
)
from ..files.filesystem import Filesystem, Root
from ..kernel.child import ERR, OUT, Child
from ..sandbox.profile import is_below, program_folders, search_path, settings_from
from ..sandbox.sandbox import Sandbox
from .watched_files import Watch, Watcher

_HEAD = _TAIL = 32 << 10  # bytes of a stream that stay in memory
_SPOOL_FROM = 1_500  # bytes: escaped, as many may fill a reply
_GRACE_S = 1.0  # between asking a command to end and making it
_MESSAGE_TAIL = 700  # characters of output that an error message repeats
_OPERATORS = frozenset({"|", "||", "&&", ";", "&", ">", ">>", "<", "2>&1", "2>", "|&"})
_SHEBANG_BYTES = 256
_NETWORK_MISSED = re.compile(
    rb"(?i)could ?n.t resolve|temporary failure in name resolution|name or service not known|network is unreachable"
    rb"|EAI_AGAIN|ENETUNREACH|ENOTFOUND|getaddrinfo|address family not supported|failed to establish a new connection"
    rb"|could not connect to server|dns error|no route to host"
)

_Identity = tuple[int, int]  # device and inode


class Sink(Protocol):
    """Where all of the output goes when it is more than a reply can hold."""

    def write(self, data: bytes) -> None: ...

    def finish(self) -> str: ...

    def discard(self) -> None: ...


class CommandCall(NamedTuple):
    """What a command needs from the call it runs for; `room` is what a reply can hold.

    `tap` sees all of the output as it comes; `env` is added to the command's environment.
    """

    check: Callable[[], None]
    open_sink: Callable[[], Sink | None]
    room: int
    tap: Callable[[str, bytes], None] | None = None
    env: Mapping[bytes, bytes] | None = None


class CommandResult(NamedTuple):
    """How a command ended. An exit code above 128 stands for the signal that many above it, as in a shell."""

    stdout: str
    stderr: str
    exit_code: int
    duration_ms: int
    truncated: bool
    handle: str | None
    sandbox: str
    warnings: list[str]

    @property
    def signal(self) -> str | None:
        """The signal's name, when there is one."""
        return _signal_name(self.exit_code - 128)


class Programs:
    """Which binaries may start: by identity (device and inode) as found in a fixed PATH, not by name.

    `folders` are those that commands can see; whether there is a program elsewhere is not told.
    """

    def __init__(
        self, allowed: Iterable[str], refused: Iterable[str], path: Sequence[str], folders: Sequence[str]
    ) -> None:
        self._allowed, self._refused, self._path, self._folders = tuple(allowed), tuple(refused), path, folders
        self._identities: set[_Identity] = set()

    def find(self, word: str, cwd: str) -> str:
        """The path to execute for the first word of a command, if it may start."""
        with self._opened(word, cwd) as (path, fd):
            if self._may_start(fd):
                return path
        raise CommandNotAllowed(f"{word} is not on the list of allowed programs", hint=self._hint(word))

    def locate(self, word: str, cwd: str) -> str:
        """The path that the first word of a command means."""
        with self._opened(word, cwd) as (path, _):
            return path

    @contextmanager
    def _opened(self, word: str, cwd: str) -> Generator[tuple[str, int]]:
        """The path that a word means, and an O_PATH descriptor of the executable file that is there now."""
        path = os.path.normpath(os.path.join(cwd, word)) if "/" in word else self._search(word)
        fd = self._reach(path) if path is not None else None
        if fd is None:
            raise NotFound(
                f"{word}: there is no such program",
                hint=f"Searched: {':'.join(self._path)}. A path has to lead below a root or mcp.sandbox.extra_read.",
            )
        try:
            if not stat_bits.S_ISREG(os.fstat(fd).st_mode) or not os.access(f"/proc/self/fd/{fd}", os.X_OK):
                raise PermissionDenied(f"{word}: not an executable file")
            yield path or word, fd
        finally:
            os.close(fd)

    def _reach(self, path: str) -> int | None:
        """What is at a path, wherever links lead, as long as commands can see it. It is not really opened."""
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return None
        real = os.readlink(f"/proc/self/fd/{fd}")
        if any(is_below(real, folder) for folder in self._folders):
            return fd
        os.close(fd)
        return None

    def _search(self, name: str) -> str | None:
        for folder in self._path:
            candidate = os.path.join(folder, name)
            if os.access(candidate, os.X_OK) and os.path.isfile(candidate):
                return candidate
        if name == "python":
            return self._search("python3")
        if name == "rg":
            from ..files.ripgrep import find_ripgrep

            return os.fsdecode(find_ripgrep())
        return None

    def _may_start(self, fd: int) -> bool:
        if self._is_listed(fd):
            return True
        interpreter = _interpreter(fd)  # `./tool.py` is `python3 tool.py`, which would be allowed
        found = self._search(interpreter) if interpreter and "/" not in interpreter else interpreter
        program = self._reach(found) if found else None
        if program is None:
            return False
        try:
            return self._is_listed(program)
        finally:
            os.close(program)

    def _is_listed(self, fd: int) -> bool:
        identity = _identity_of(os.fstat(fd))
        if identity not in self._identities:
            self._identities = self._look_up()  # something may have been installed since
        return identity in self._identities

    def _look_up(self) -> set[_Identity]:
        def identities(words: Iterable[str]) -> set[_Identity]:
            found = (word if "/" in word else self._search_quietly(word) for word in words)
            return {identity for path in found if path and (identity := _identity(path)) is not None}

        allowed = [word for word in self._allowed if word not in self._refused]
        return identities(allowed) - identities(self._refused)

    def _search_quietly(self, name: str) -> str | None:
        try:
            return self._search(name)
        except LlmcError:
            return None

    def _hint(self, word: str) -> str:
        if "/" in word:
            return f"Run it through a program on the list, for example: bash -c {shlex.quote(word)}."
        return "Setting: mcp.tools.run_cmd_allowlist."


def programs_from(config: Config, roots: tuple[Root, ...]) -> Programs:
    """The operator's list: run_cmd_allowlist and allowed_binaries without unsafe_binaries."""
    commands = config.linux_ops.commands
    allowed = (*config.tools.run_cmd_allowlist, *commands.allowed_binaries)
    refused = () if commands.allow_unsafe else commands.unsafe_binaries
    settings = settings_from(config)
    return Programs(allowed, refused, search_path(settings), program_folders(settings, roots))


def _identity(path: str) -> _Identity | None:
    try:
        return _identity_of(os.stat(path))
    except OSError:
        return None


def _identity_of(info: os.stat_result) -> _Identity:
    return info.st_dev, info.st_ino


def _interpreter(program: int) -> str | None:
    """The program that a script's first line names; `program` is known to be a regular file, so this can't wait."""
    try:
        with open(f"/proc/self/fd/{program}", "rb", opener=_open_at_once) as file:
            first = file.read(_SHEBANG_BYTES).split(b"\n", 1)[0]
    except OSError:
        return None
    if not first.startswith(b"#!"):
        return None
    words = os.fsdecode(first[2:]).split()
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return words[0] if words else None


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def split(command: str | list[str]) -> list[str]:
    """The words of a command. A string is split like a shell would, but nothing in it is interpreted."""
    try:
        words = shlex.split(command) if isinstance(command, str) else list(command)
    except ValueError as exc:
        raise BadArgs(f"the command can't be split into words: {exc}", hint="Pass a list of words.") from None
    if not words or not words[0]:
        raise BadArgs("the command is empty")
    if any("\0" in word for word in words):
        raise BadArgs("the command contains a NUL byte")
    return words


class CommandRunner:
    """Runs commands; made once per server."""

    def __init__(self, sandbox: Sandbox, files: Filesystem, programs: Programs) -> None:
        self._sandbox, self._files, self.programs = sandbox, files, programs
        self._watcher = Watcher(files)

    def run_command(
        self,
        argv: list[str],
        *,
        cwd: str | None = None,
        timeout_sec: float,
        stdin: str | None = None,
        call: CommandCall,
        listed: bool = True,
        keep: tuple[int, ...] = (),
    ) -> CommandResult:
        """Run a command to its end, its timeout or its cancellation; in every case nothing of it is left running.

        `listed=False` starts a program of the operator's or our own choice that need not be on the list; `keep`
        are fds that stay open in it, numbered from the sandbox's `free_fd`.
        """
        place = self._files.locate(cwd or ".")
        directory = self._files.open_dir(place)
        try:
            folder = os.readlink(f"/proc/self/fd/{directory}")
            path = self.programs.find(argv[0], folder) if listed else self.programs.locate(argv[0], folder)
            return self._run([path, *argv[1:]], directory, timeout_sec, stdin, call, keep)
        finally:
            os.close(directory)

    def _run(
        self,
        argv: list[str],
        directory: int,
        timeout_sec: float,
        stdin: str | None,
        call: CommandCall,
        keep: tuple[int, ...],
    ) -> CommandResult:
        level = self._sandbox.level()
        watch = self._watcher.watch(directory)
        kept = _KeptOutput(call)
        started = time.monotonic()
        try:
            child = self._sandbox.start(_encoded(argv), directory, _text_bytes(stdin), keep, call.env)
        except OSError as exc:
            raise from_oserror(exc, argv[0]) from None
        try:
            with child:
                exit_code = _follow(child, kept, call.check)
            duration_ms = int((time.monotonic() - started) * 1000)
            if not child.executed:
                raise self._sandbox.not_executed(argv[0], kept.streams[ERR].head)
        except Timeout:
            raise _timed_out(timeout_sec, kept, watch) from None
        except BaseException:
            kept.discard()
            raise
        warnings = watch.changes() + _misread(argv)
        said = kept.streams[ERR].tail + kept.streams[OUT].tail
        if level.blocks_network and exit_code and _NETWORK_MISSED.search(said):
            warnings.append("Network is off for commands; setting: mcp.tools.allow_outbound_network.")
        return kept.result(exit_code, duration_ms, level.name, warnings)


def _encoded(words: list[str]) -> list[bytes]:
    try:
        return [word.encode("utf-8", "surrogateescape") for word in words]
    except UnicodeEncodeError:
        raise BadArgs("the command is not valid Unicode (lone surrogate)") from None


def _text_bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "replace")


def _follow(child: Child, kept: "_KeptOutput", check: Callable[[], None]) -> int:
    """Drain a command until it ends; if it is to end early, let it say its last words."""
    try:
        for stream, piece in child.streams(check):
            kept.take(stream, piece)
    except (Timeout, Cancelled):
        child.terminate(_GRACE_S)
        for stream, piece in child.left_over():
            kept.take(stream, piece)
        raise
    code = child.exit_code or 0
    return 128 - code if code < 0 else code


def _timed_out(timeout_sec: float, kept: "_KeptOutput", watch: Watch) -> Timeout:
    said = (kept.text(OUT) + kept.text(ERR)).rstrip()[-_MESSAGE_TAIL:]
    printed = f"; it had printed:\n{said}" if said else "; it had printed nothing"
    handle = kept.finish()
    more = f" All of its output: handle {handle}." if handle else ""
    return Timeout(
        f"the command took longer than {timeout_sec:g} s and was ended, with all it had started{printed}",
        hint=" ".join([f"Give a longer timeout.{more}", *watch.changes()]),
    )


def _misread(argv: list[str]) -> list[str]:
    found = next((word for word in argv[1:] if word in _OPERATORS), None)
    if found is None:
        return []
    return [f"{found} was passed as a plain argument; for a shell's meaning of it: bash -c '…'."]


def _signal_name(number: int) -> str | None:
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


class _Stream:
    """The beginning and the end of one stream."""

    def __init__(self) -> None:
        self.head = self._end = b""
        self.total = 0

    def take(self, piece: bytes) -> None:
        self.total += len(piece)
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
        dropped = self.total - len(self.head) - len(self._end)
        if not dropped:
            return (self.head + self._end).decode("utf-8", "replace")
        middle = f"\n… [{dropped:,} bytes left out] …\n"
        return self.head.decode("utf-8", "replace") + middle + self._end.decode("utf-8", "replace")


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
        return self._sink.finish() if self._sink is not None else None

    def discard(self) -> None:
        if self._sink is not None:
            self._sink.discard()
            self._sink = None

    def result(self, exit_code: int, duration_ms: int, level: str, warnings: list[str]) -> CommandResult:
        out, err = self.text(OUT), self.text(ERR)
        truncated = any(stream.total > _HEAD + _TAIL for stream in self.streams.values())
        if len(json.dumps(out)) + len(json.dumps(err)) <= self._call.room:
            self.discard()  # the reply says it all
        return CommandResult(out, err, exit_code, duration_ms, truncated, self.finish(), level, warnings)
