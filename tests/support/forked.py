"""Servers forked from a process that has imported them already.

Nearly every test starts a server, and most of what a start takes is Python importing modules: 0.1 s of CPU over stdio,
1 s over HTTP. A template process imports them once; a server is a fork of it with its own arguments, environment,
folder and descriptors. The template is its parent and tells how it ended. Tests of the start itself run the command
instead.
"""

import atexit
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, cast

import msgspec

STDIO, HTTP = "stdio", "http"
MODULES = {
    STDIO: ("llmc_mcp.server", "llmc_mcp.protocol.stdio"),
    HTTP: ("llmc_mcp.server", "llmc_mcp.web.serve"),
}
_NUMBER = struct.Struct("!i")
_READ_BY_PYTHON = ("PYTHON", "LD_")  # variables that count when a process starts, and not later

_lock = threading.Lock()
_templates: dict[str, "_Template"] = {}


class StartRequest(msgspec.Struct):
    """What a server is started with, besides its three descriptors."""

    arguments: list[str]
    env: dict[str, str]
    cwd: str
    ignored: list[int]  # signals, as nohup does it


class ForkedServer(subprocess.Popen[Any]):
    """`python -m llmc_mcp.server ARGUMENTS` by a fork of a template; in all else what subprocess.Popen gives."""

    def __init__(
        self, kind: str, arguments: list[str], *, env: dict[str, str], cwd: Path | None, **options: Any
    ) -> None:
        self._kind = kind
        self._template: _Template | None = None
        self._asking = threading.Lock()
        command = [sys.executable, "-m", "llmc_mcp.server", *arguments]
        super().__init__(command, env=env, cwd=cwd or Path.cwd(), **options)

    def _execute_child(self, args: list[str], *others: Any) -> None:
        # The order of subprocess.Popen: …, cwd, env, …, then the two ends of each of the three pipes.
        cwd, env, pipes = others[4], others[5], others[9:15]
        if _counts_at_start(env):
            super()._execute_child(args, *others)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
            return
        stdin, _, _, stdout, _, stderr = pipes
        fds = [own if own >= 0 else standard for standard, own in enumerate((stdin, stdout, stderr))]
        self._template = _template(self._kind)
        self.pid = self._template.start(StartRequest(args[3:], env, str(cwd), _ignored()), fds)
        self._end = os.pidfd_open(self.pid)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]

    def _internal_poll(self, *others: Any, **options: Any) -> int | None:
        if self._template is None:
            return super()._internal_poll(*others, **options)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
        return self.returncode if self.returncode is not None or not self._has_ended(0) else self._ended()

    def _wait(self, timeout: float | None) -> int:
        if self._template is None:
            return super()._wait(timeout)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
        if self.returncode is None:
            if not self._has_ended(timeout):
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self._ended()
        return cast(int, self.returncode)

    def _has_ended(self, timeout: float | None) -> bool:
        return self.returncode is not None or bool(select.select([self._end], [], [], timeout)[0])

    def _ended(self) -> int:
        """The exit code of a server that has ended, from its parent."""
        with self._asking:
            if self.returncode is None:
                assert self._template is not None
                self.returncode = self._template.exit_code(self.pid)
                os.close(self._end)
        return self.returncode


def _ignored() -> list[int]:
    return [number for number in (signal.SIGHUP, signal.SIGINT) if signal.getsignal(number) is signal.SIG_IGN]


def _counts_at_start(env: dict[str, str]) -> bool:
    return any(
        env.get(name) != os.environ.get(name) for name in {*env, *os.environ} if name.startswith(_READ_BY_PYTHON)
    )


def _template(kind: str) -> "_Template":
    with _lock:
        if kind not in _templates:
            _templates[kind] = _Template(kind)
        return _templates[kind]


def templates() -> set[int]:
    """The processes that servers are forked from."""
    return {template.pid for template in _templates.values()}


class _Template:
    """The process that servers of a kind are forked from; it ends with this one."""

    def __init__(self, kind: str) -> None:
        self._channel, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", __name__, kind, str(theirs.fileno())]
            repository = Path(__file__).parents[2]
            self._process = subprocess.Popen(
                command, cwd=repository, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
            )
        self.pid = self._process.pid
        self._lock = threading.Lock()

    def start(self, request: StartRequest, fds: list[int]) -> int:
        """Have a server started; returns its pid."""
        return self._ask(request, fds)

    def exit_code(self, pid: int) -> int:
        """How a server ended that has."""
        return self._ask(pid, [])

    def _ask(self, question: StartRequest | int, fds: list[int]) -> int:
        data = msgspec.json.encode(question)
        with self._lock:
            socket.send_fds(self._channel, [_NUMBER.pack(len(data))], fds)
            self._channel.sendall(data)
            answer = self._channel.recv(_NUMBER.size, socket.MSG_WAITALL)
        if len(answer) < _NUMBER.size:
            raise RuntimeError("the template of servers has ended")
        return _NUMBER.unpack(answer)[0]


# --- the template ----------------------------------------------------------------------------------------------------


def _serve_forks(kind: str, channel: socket.socket) -> None:
    for name in MODULES[kind]:
        __import__(name)
    if len(os.listdir("/proc/self/task")) > 1:
        raise RuntimeError("a process with threads is no template")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C in a terminal is for the tests
    while True:
        header, fds, _, _ = socket.recv_fds(channel, _NUMBER.size, 3, socket.MSG_WAITALL)
        if len(header) < _NUMBER.size:
            return
        data = channel.recv(_NUMBER.unpack(header)[0], socket.MSG_WAITALL)
        question = msgspec.json.decode(data, type=StartRequest | int)
        if isinstance(question, int):
            answer = os.waitstatus_to_exitcode(os.waitpid(question, 0)[1])
        elif (answer := os.fork()) == 0:
            channel.close()
            _become_server(question, fds)
        channel.sendall(_NUMBER.pack(answer))
        for fd in fds:
            os.close(fd)


def _become_server(request: StartRequest, fds: list[int]) -> NoReturn:
    code = 1
    try:
        for standard, fd in enumerate(fds):
            os.dup2(fd, standard)
        for fd in fds:
            os.close(fd)
        os.environ.clear()
        os.environ.update(request.env)
        os.chdir(request.cwd)
        sys.argv[1:] = request.arguments
        sys.path[0] = request.cwd  # as with python -m
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in request.ignored:
            signal.signal(number, signal.SIG_IGN)
        code = _exit_code_of(sys.modules["llmc_mcp.server"].main)
        # os._exit leaves out what an interpreter does at its end.
        threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - as an interpreter does at the end
        traceback.print_exc()
        code = 1
    finally:
        os._exit(code)


def _exit_code_of(main: Callable[[], None]) -> int:
    try:
        main()
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    return 0


if __name__ == "__main__":
    _serve_forks(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))
