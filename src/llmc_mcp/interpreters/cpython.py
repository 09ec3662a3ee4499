"""Runs an agent's Python in a real CPython: in a sandbox that passed its self-test, with the tools as the only way out.

A run gets a process tree, a folder and a socket of its own. The roots are not visible: the code reaches them, and
anything else outside, only by calling tools, and the gate treats these calls like all others. Hostile code controls
everything inside, our own program included, so whatever arrives over the channel is checked here and counted against
the run's limits.
"""

import functools
import marshal
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import CodeType
from typing import NamedTuple

from ..errors import FeatureUnavailable, IsolationRequired, LlmcError, Timeout
from ..kernel.child import OUT, Child
from ..kernel.launcher import Launcher
from ..kernel.memory import over
from ..kernel.scratch import Scratch
from ..sandbox.profile import Level, SandboxSettings
from ..sandbox.sandbox import Sandbox
from ..sandbox.selftest import interpreter
from .engine import LARGEST_VALUE, NOTHING, Functions, PrintBuffer, RunFailure, RunLimits, RunOutcome, nearest
from .tool_channel import MAX_ARGUMENTS, RunError, ToolChannel

_PROCESSES = 128
_LOOK_EVERY_S = 0.2
_OWN_MEMORY = 32 << 20  # of interpreter and sandbox; a single process gets its MemoryError from the kernel
# The server sends program and order before any of the agent's code runs.
_BEGIN = (
    "import marshal, os, sys; program, order = marshal.loads(os.read(0, os.fstat(0).st_size)); exec(program); "
    "main(int(sys.argv[1]), order)"
)
_SIGNALS = "signal_server"  # an attempt of the self-test
_SHOWN_MESSAGE = 1_500
_SHOWN_SOURCE = 200

_NO_NETWORK = "Network is off for code; only the user can allow it: llmc allow network."
_HINTS = (
    ("ModuleNotFoundError", "Only the standard library is available, and the venvs that mcp.sandbox.extra_read names."),
    ("FileNotFoundError", "The workspace is not in here: read_file(path), linux_fs_write(path, content) … reach it."),
    ("PermissionError", "Outside its own folder, code can only use the tools: tools() lists them."),
    ("MemoryError", "Keep less: count or filter while reading."),
    ("Network is unreachable", _NO_NETWORK),
    (
        "Temporary failure in name resolution",
        _NO_NETWORK,
    ),
    ("Address family not supported", _NO_NETWORK),
)


# --- the engine --------------------------------------------------------------------------------------


class _RunFolder(NamedTuple):
    """The surroundings of one run."""

    level: Level
    env: dict[bytes, bytes]


class PythonEngine:
    """Code in CPython; made once per server. `vouched`: the operator says that the whole server is isolated."""

    def __init__(self, launcher: Launcher, settings: SandboxSettings, data_dir: str, *, vouched: bool) -> None:
        self._launcher, self._settings, self._data_dir, self._vouched = launcher, settings, data_dir, vouched
        self._sandbox = Sandbox(launcher, settings, (), data_dir)
        self._choosing = threading.Lock()

    def warm(self) -> str:
        """Test the sandbox, and load what a start needs into memory."""
        self.run("", {}, RunLimits(10.0, 0, 0, 0), lambda: None)
        level = self._level().name
        return f"CPython, {f'in the {level} sandbox' if level != 'off' else 'unconfined: LLMC_ISOLATED=1'}"

    def close(self) -> None:
        """End what it started."""
        self._sandbox.close()

    def reconfigure(self, settings: SandboxSettings) -> None:
        """Run the next code by other settings for commands; its own limits stay."""
        with self._choosing:
            self._settings = settings._replace(extra_write=(), bounds=self._settings.bounds)
            self._sandbox.reconfigure(self._settings)

    def release_idle(self, idle_s: float) -> bool:
        """End the sandbox's launcher if it has been idle for a while; whether it was ended."""
        return self._sandbox.release_idle(idle_s)

    def run(self, code: str, functions: Functions, limits: RunLimits, check: Callable[[], None]) -> RunOutcome:
        """Run `code` in a process tree and a folder of its own; nothing of either is left afterwards."""
        level = self._level()
        printed = PrintBuffer(limits.output_bytes)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with ours, theirs:
            channel = ToolChannel(ours, functions, limits, printed, check)
            with self._place(level) as place:
                child = self._start(place, code, functions, limits, channel.secret, theirs)
                with child:
                    failure = _follow(child, channel, printed, limits, check)
            if not child.executed:
                raise self._sandbox.not_executed("Python", child.stderr)
        text, cut = printed.text, printed.cut_bytes
        if failure is not None or channel.end is None:
            return RunOutcome(text, NOTHING, failure or _died(child), cut)
        end = channel.end
        error = _explain(end.failure, functions) if end.failure is not None else None
        return RunOutcome(text, bytes(end.value), error, cut + max(end.cut, 0), end.file_names())

    def _level(self) -> Level:
        """A level that holds, or `off` if the operator vouches for the isolation."""
        with self._choosing:
            try:
                level = self._sandbox.level()
                self._refuse_weak(level)
            except (FeatureUnavailable, IsolationRequired) as exc:
                # The operator's declaration replaces a sandbox that never worked, not one that held and fails now.
                fails_now = isinstance(exc, FeatureUnavailable) and self._sandbox.has_held
                if not self._vouched or self._settings.level == "read_only" or fails_now:
                    raise _isolation_required(exc.message) from None
                self._sandbox.close()
                self._sandbox = Sandbox(self._launcher, self._settings._replace(level="off"), (), self._data_dir)
                return self._sandbox.level()
            return level

    def _refuse_weak(self, level: Level) -> None:
        """Refuse a level that is good enough for commands, but not for code, all of which is untrusted."""
        if level.name == "off" and not self._vouched:
            raise IsolationRequired('mcp.sandbox.level is "off"')
        if _SIGNALS in self._sandbox.report().not_held.get(level.name, ()):
            raise IsolationRequired(
                f"at the {level.name} level code could end the server; bubblewrap, or Linux 6.12, prevents that"
            )

    @contextmanager
    def _place(self, level: Level) -> Generator[_RunFolder]:
        """A temporary folder that no other run sees: bubblewrap makes a new one for each run, else it is made here."""
        if level.name == "workspace":
            yield _RunFolder(level, {})
        elif level.name == "landlock":
            own = self._sandbox.another()
            try:
                yield _RunFolder(own, {})
            finally:
                own.close()
        else:
            scratch = Scratch("code", level.launch([], -1).plan.get("user"))
            try:
                yield _RunFolder(level, {b"TMPDIR": os.fsencode(scratch.path)})
            finally:
                scratch.close()

    def _start(
        self, place: _RunFolder, code: str, functions: Functions, limits: RunLimits, secret: str, channel: socket.socket
    ) -> Child:
        cwd = os.open("/", os.O_PATH | os.O_CLOEXEC)
        room = max(min(limits.output_bytes, LARGEST_VALUE), 1)
        text = code.encode("utf-8", "replace").decode()
        order = (secret, text, [*functions], _packages(self._settings.extra_read), MAX_ARGUMENTS, room)
        python = interpreter(self._sandbox.user)
        words = [python, "-I", "-S", "-X", "utf8", "-c", _BEGIN, str(place.level.free_fd)]
        try:
            argv = [os.fsencode(word) for word in words]
            stdin = marshal.dumps((_program(python), order))
            return self._sandbox.start(
                argv, cwd, level=place.level, stdin=stdin, keep=(channel.fileno(),), env=place.env
            )
        except OSError as exc:
            raise FeatureUnavailable(f"Python could not be started ({exc.strerror})") from None
        finally:
            channel.close()
            os.close(cwd)


def settings_for_code(commands: SandboxSettings, memory_mb: int) -> SandboxSettings:
    """The settings for commands, but without a writable folder, and with the limits of one run."""
    bounds = commands.bounds
    bounds = bounds._replace(
        processes=min(bounds.processes, _PROCESSES),
        memory_mb=min(bounds.memory_mb, memory_mb),
        tmp_mb=min(bounds.tmp_mb, memory_mb),
        file_mb=min(bounds.file_mb, memory_mb),
    )
    return commands._replace(extra_write=(), egress=None, bounds=bounds)


def _follow(
    child: Child, channel: ToolChannel, printed: PrintBuffer, limits: RunLimits, check: Callable[[], None]
) -> RunFailure | None:
    """Serve a run until it reports its end, dies, misuses the channel or times out; then none of it is left running."""
    failure = None
    memory = _Memory(child.pid, limits.memory_bytes)

    def check_run() -> None:
        check()
        memory.check()

    try:
        for stream, piece in child.streams(check_run, channel):
            if channel.over:
                break
            _take(child, printed, stream, piece)
    except Timeout:
        failure = RunFailure(
            f"TimeoutError: time limit exceeded: the code ran longer than {limits.seconds:g} s",
            None,
            None,
            "Do less per run, or pass a longer timeout.",
        )
    except _TooMuchMemory as exc:
        failure = RunFailure(f"MemoryError: memory limit exceeded: {exc}", None, None, "Keep less, in fewer processes.")
    child.kill()
    for stream, piece in child.left_over():
        _take(child, printed, stream, piece)
    if channel.refused is not None:
        return RunFailure(f"the run was ended: {channel.refused}", None, None, _hint_for(channel.refused))
    return failure


class _TooMuchMemory(Exception):
    """The processes of a run use more memory than its limit."""


class _Memory:
    """Samples the memory of a run: the kernel limits each process, but not all of them together."""

    def __init__(self, supervisor: int, most: int) -> None:
        self._supervisor, self._most = supervisor, most + _OWN_MEMORY if most else 0
        self._look_at = time.monotonic() + _LOOK_EVERY_S

    def check(self) -> None:
        now = time.monotonic()
        if now < self._look_at:
            return
        if self._most and (much := over(self._supervisor, self._most)) is not None:
            raise _TooMuchMemory(much)
        # If a sample takes long, because there are many processes, the next one is taken later.
        self._look_at = time.monotonic() + _LOOK_EVERY_S + 4 * (time.monotonic() - now)


def _take(child: Child, printed: PrintBuffer, stream: str, piece: bytes) -> None:
    if stream == OUT:
        printed.take(piece)
    elif not child.stderr:
        child.stderr = piece


def _hint_for(reason: str) -> str | None:
    return "Search or list first, then read what matters." if reason == "too many tool calls" else None


def _explain(error: RunError, functions: Functions) -> RunFailure:
    # Cut before anything inspects it: the message comes from the code and can have any length.
    kind, words = error.kind[:_SHOWN_MESSAGE], error.message[:_SHOWN_MESSAGE]
    message = (f"{kind}: {words}" if words else kind)[:_SHOWN_MESSAGE]
    hint = next((hint for sign, hint in _HINTS if sign in message), None) or nearest(message, functions)
    return RunFailure(message, error.line, error.source[:_SHOWN_SOURCE] if error.source else None, hint)


def _died(child: Child) -> RunFailure:
    """Explain a death: an interpreter that can't start says why on its stderr; running code has other streams."""
    code = child.exit_code or 0
    number = -code if code < 0 else code - 128
    try:
        how = f"signal {signal.Signals(number).name}"
    except ValueError:
        how = f"exit code {code}"
    error = child.stderr.decode("utf-8", "replace").strip()[-_SHOWN_MESSAGE:]
    return RunFailure(
        f"the interpreter ended without an answer ({how}){': ' if error else ''}{error}", None, None, None
    )


def _isolation_required(reason: str) -> LlmcError:
    return IsolationRequired(
        f'mcp.code_execution.engine = "python" runs only in isolation, and there is none: {reason}',
        hint='engine = "monty" needs none; an operator who isolates the whole server sets LLMC_ISOLATED=1.',
    )


def _packages(folders: tuple[str, ...]) -> list[str]:
    """The package folders of the virtual environments that the operator lets commands read."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = (os.path.join(os.path.expanduser(folder), "lib", version, "site-packages") for folder in folders)
    return [path for path in found if os.path.isdir(path)]


@functools.cache
def _program(python: str) -> CodeType | str:
    """The program that runs inside: compiled if the interpreter is ours, else as source, as bytecode is per version."""
    with open(os.path.join(os.path.dirname(__file__), "cpython_child.py")) as file:
        text = file.read()
    return compile(text, "<inside>", "exec") if python == sys.executable else text
