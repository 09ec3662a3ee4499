"""Interactive processes as a caller sees them, for tests that need no transport."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from llmc_mcp.config.schema import Config
from llmc_mcp.gate.dispatch import Gate
from llmc_mcp.gate.log import correlation_id
from llmc_mcp.session import Session
from llmc_mcp.tools.exec import CommandOutput
from llmc_mcp.tools.linux_ops.proc import ProcessOutput, Sent, Sessions, StartedProcess, StopResult

from .client import PATIENCE
from .gates import gate_on
from .workspace import hand_over, run_as_at

LONG_MS = int(PATIENCE * 1000)
_READS = 3  # after which a program must have ended


class Talk:
    """A session's calls."""

    def __init__(self, gate: Gate, session_id: str = "one", principal: str = "uid:0") -> None:
        self.gate, self.session = gate, Session(principal=principal, session_id=session_id)

    def _call(self, tool: str, **arguments: object) -> object:
        context = self.gate.context(self.session, correlation_id())
        return self.gate.call(context, tool, arguments)

    def run(self, command: str | list[str] | None = None, **arguments: object) -> CommandOutput:
        """Run a command, or go on with one that was handed over."""
        if command is not None:
            arguments["command"] = command
        result = self._call("run_cmd", **arguments)
        assert isinstance(result, CommandOutput)
        return result

    def start(self, command: str | list[str], **arguments: object) -> StartedProcess:
        arguments.setdefault("wait_ms", LONG_MS)
        result = self._call("linux_proc_start", command=command, **arguments)
        assert isinstance(result, StartedProcess)
        return result

    def send(self, proc_id: str, text: str, wait_ms: int = LONG_MS) -> Sent:
        result = self._call("linux_proc_send", proc_id=proc_id, input=text, read_timeout_ms=wait_ms)
        assert isinstance(result, Sent)
        return result

    def read(self, proc_id: str, wait_ms: int = LONG_MS) -> ProcessOutput:
        result = self._call("linux_proc_read", proc_id=proc_id, timeout_ms=wait_ms)
        assert isinstance(result, ProcessOutput)
        return result

    def rest(self, proc_id: str) -> str:
        """Everything that a program prints until it ends, over several reads if necessary."""
        printed = ""
        for _ in range(_READS):
            read = self.read(proc_id)
            printed += read.output
            if read.state == "exited":
                return printed
        raise AssertionError(f"it has not ended; it printed {printed!r}")

    def until(self, proc_id: str, expected: str, printed: str = "") -> str:
        """Everything that a program prints until it has printed what is expected, however late that is."""

        def is_there() -> bool:
            nonlocal printed
            printed += "" if expected in printed else self.read(proc_id, wait_ms=0).output
            return expected in printed

        assert eventually(is_there), f"it printed {printed!r}"
        return printed

    def stop(self, proc_id: str, signal: str = "TERM") -> StopResult:
        result = self._call("linux_proc_stop", proc_id=proc_id, signal=signal)
        assert isinstance(result, StopResult)
        return result

    def sessions(self) -> Sessions:
        result = self._call("linux_proc_sessions")
        assert isinstance(result, Sessions)
        return result

    def python(self, script: str, **arguments: object) -> StartedProcess:
        """Start a Python script on a terminal."""
        return self.start(["python3", "-u", "-c", script], **arguments)

    def python_asleep(self, script: str, expected: str) -> StartedProcess:
        """Start a Python script that prints what is expected, all of which is read, and then waits for something."""
        started = self.python(script, wait_ms=0)
        started.first_output = self.until(started.proc_id, expected, started.first_output)
        assert eventually(lambda: asleep(started.pid))
        return started


@contextmanager
def talk_on(root: Path, config: Config | None = None, *, level: str = "auto") -> Generator[Talk]:
    """A session on a folder."""
    config = config or Config()
    config.sandbox.level = level
    config.sandbox.toolchains = "none"  # the system's programs, whatever the home of the tests holds
    if not config.sandbox.run_as and (user := run_as_at(level)):
        config.sandbox.run_as = user
        hand_over(root)
    with gate_on(root, config) as gate:
        yield Talk(gate)


def eventually(true: Callable[[], bool]) -> bool:
    """Whether a condition becomes true within PATIENCE seconds; looked at less often the longer it takes."""
    until, pause = time.monotonic() + PATIENCE, 0.005
    while not true():
        if time.monotonic() > until:
            return False
        time.sleep(pause)
        pause = min(1.2 * pause, 0.05)
    return True


def open_files() -> list[str]:
    """What the descriptors of this process lead to."""
    targets: list[str] = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            targets.append(str(entry.readlink()))
        except OSError:
            continue  # the one that listed them
    return targets


def terminal_fds() -> int:
    """Descriptors of this process that belong to programs on terminals."""
    return sum(any(kind in target for kind in ("ptmx", "/pts/", "pidfd", "eventfd")) for target in open_files())


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    return _state(pid) not in "ZX"


def asleep(pid: int) -> bool:
    """Whether a process waits for something in the kernel."""
    return _state(pid) == "S"


def suspended(pid: int) -> bool:
    """Whether a process goes on only after a SIGCONT."""
    return _state(pid) == "T"


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"
