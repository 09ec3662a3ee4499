"""Servers and commands forked from a process that has imported them already.

Nearly every test starts one, and most of what a start takes is Python importing modules: 0.1 s of CPU over stdio and as
much again with the first change or command, 1 s over HTTP. A template process imports them once; a server is a fork of
it with its own arguments, environment, folder and descriptors. The template is its parent and tells how it ended. Tests
of the start itself run the command instead.
"""

import atexit
import gc
import importlib
import io
import marshal
import os
import pkgutil
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, cast

import llmc_mcp


class Program(NamedTuple):
    """One of ours: the words after `python`, the module whose `main` they run, and whether it is or has the web."""

    words: tuple[str, ...]
    module: str
    web: bool = False


_SERVER = ("-m", "llmc_mcp.server")
_LLMC = ("-c", "from llmc_mcp.cli.main import main; main()")
STDIO = Program(_SERVER, "llmc_mcp.server")
HTTP = Program(_SERVER, "llmc_mcp.server", web=True)
LLMC = Program(_LLMC, "llmc_mcp.cli.main", web=True)
TE = Program(("-c", "from llmc_mcp.te.main import main; main()"), "llmc_mcp.te.main")

_NUMBER = struct.Struct("!i")
# Variables that count when a process starts, and not later.
_READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "TZ")
_SCREEN = "llmc_mcp.cli.top"  # what it imports costs more than all the others
_WEB = ("llmc_mcp.web", "llmc_mcp.cli")  # ten times as much as a server over stdio needs
_LATE = ("anyio._backends._asyncio", "encodings.idna", "pydantic.v1", "tomlkit", "uvicorn.lifespan.on")  # at first use
_ENGINES = ("llmc_mcp.rag.build", "llmc_mcp.rag.parse", "llmc_mcp.rag.store")  # a server has only what it needs of them

_lock = threading.Lock()
_templates: dict[bool, "_Template"] = {}


class StartRequest(NamedTuple):
    """What a program is started with, besides its three descriptors."""

    module: str
    by_module: bool  # python -m, not -c
    arguments: list[str]
    env: dict[str, str]
    cwd: str
    ignored: list[int]  # signals, as nohup does it


class ForkedServer(subprocess.Popen[Any]):
    """A program with arguments by a fork of a template; in all else what subprocess.Popen gives."""

    def __init__(
        self,
        program: Program,
        arguments: Sequence[str | bytes],
        *,
        env: dict[str, str],
        cwd: Path | None,
        **options: Any,
    ) -> None:
        self._program = program
        self._template: _Template | None = None
        self._asking = threading.Lock()
        command = [sys.executable, *program.words, *arguments]
        super().__init__(command, env=env, cwd=cwd or Path.cwd(), **options)

    def _execute_child(self, args: list[str | bytes], *others: Any) -> None:
        # The order of subprocess.Popen: …, cwd, env, …, then the two ends of each of the three pipes.
        cwd, env, pipes = others[4], others[5], others[9:15]
        if _read_at_start(env) != _AT_START:
            super()._execute_child(args, *others)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
            return
        stdin, _, _, stdout, _, stderr = pipes
        fds = [own if own >= 0 else standard for standard, own in enumerate((stdin, stdout, stderr))]
        self._template = _template(self._program.web)
        module, by_module = self._program.module, self._program.words[0] == "-m"
        words = [os.fsdecode(word) for word in args[3:]]
        self.pid = self._template.start(StartRequest(module, by_module, words, env, str(cwd), _ignored()), fds)
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


def run(
    program: Program,
    *arguments: str | bytes,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: bytes = b"",
    timeout: float | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """What subprocess.run gives for a program, with its output."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    environment = dict(os.environ if env is None else env)
    with ForkedServer(program, arguments, env=environment, cwd=cwd, **pipes) as process:
        try:
            out, err = process.communicate(stdin, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def llmc(
    *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, typed: str = ""
) -> subprocess.CompletedProcess[str]:
    """`llmc` in a pipe, and what it printed."""
    done = run(LLMC, *arguments, env=env, cwd=cwd, stdin=typed.encode())
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def _ignored() -> list[int]:
    return [int(number) for number in (signal.SIGHUP, signal.SIGINT) if signal.getsignal(number) is signal.SIG_IGN]


def _read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(_READ_AT_START)}


_AT_START = _read_at_start(os.environ)


def _template(web: bool) -> "_Template":
    with _lock:
        if web not in _templates:
            _templates[web] = _Template(web)
        return _templates[web]


def templates() -> set[int]:
    """The processes that programs are forked from."""
    return {template.pid for template in _templates.values()}


class _Template:
    """The process that programs are forked from; it ends with this one."""

    def __init__(self, web: bool) -> None:
        self._channel, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", __name__, "web" if web else "", str(theirs.fileno())]
            repository = Path(__file__).parents[2]
            self._process = subprocess.Popen(
                command,
                cwd=repository,
                env={**os.environ, **_AT_START},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self.pid = self._process.pid
        self._lock = threading.Lock()
        atexit.register(self._end)

    def _end(self) -> None:
        self._channel.close()
        self._process.terminate()  # a fork of ours may have the channel open, too
        self._process.wait()

    def start(self, request: StartRequest, fds: list[int]) -> int:
        """Have a program started; returns its pid."""
        return self._ask(tuple(request), fds)

    def exit_code(self, pid: int) -> int:
        """How a program ended that has."""
        return self._ask(pid, [])

    def _ask(self, question: tuple[Any, ...] | int, fds: list[int]) -> int:
        data = marshal.dumps(question)
        with self._lock:
            socket.send_fds(self._channel, [_NUMBER.pack(len(data))], fds)
            self._channel.sendall(data)
            answer = self._channel.recv(_NUMBER.size, socket.MSG_WAITALL)
        if len(answer) < _NUMBER.size:
            raise RuntimeError("the template of servers has ended")
        return _NUMBER.unpack(answer)[0]


# --- the template ----------------------------------------------------------------------------------------------------


def _load(web: bool) -> None:
    """Import every module that a program may need, also those that wait for their first use.

    What was imported stays, and no collection looks at it again: it would touch, and so copy, every page that a fork
    shares with the template. A server over HTTP makes one when it starts.
    """
    gc.disable()
    for found in pkgutil.walk_packages(llmc_mcp.__path__, "llmc_mcp."):
        if not found.name.startswith((_SCREEN, *_ENGINES)) and (web or not found.name.startswith(_WEB)):
            importlib.import_module(found.name)
    for name in _LATE if web else ():
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    gc.enable()
    if len(os.listdir("/proc/self/task")) > 1:
        raise RuntimeError("a process with threads is no template")


def _serve_forks(channel: socket.socket) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C in a terminal is for the tests
    while True:
        header, fds, _, _ = socket.recv_fds(channel, _NUMBER.size, 3, socket.MSG_WAITALL)
        if len(header) < _NUMBER.size:
            return
        question = marshal.loads(channel.recv(_NUMBER.unpack(header)[0], socket.MSG_WAITALL))
        if isinstance(question, int):
            answer = os.waitstatus_to_exitcode(os.waitpid(question, 0)[1])
        elif (answer := os.fork()) == 0:
            channel.close()
            _become(StartRequest(*question), fds)
        channel.sendall(_NUMBER.pack(answer))
        for fd in fds:
            os.close(fd)


def _become(request: StartRequest, fds: list[int]) -> NoReturn:
    code = 1
    try:
        for standard, fd in enumerate(fds):
            os.dup2(fd, standard)
        for fd in fds:
            os.close(fd)
        os.environ.clear()
        os.environ.update(request.env)
        os.chdir(request.cwd)
        _open_streams()
        sys.argv[:] = [str(sys.modules[request.module].__file__) if request.by_module else "-c", *request.arguments]
        sys.path[0] = request.cwd if request.by_module else ""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the template may have been started by nohup
        for number in request.ignored:
            signal.signal(number, signal.SIG_IGN)
        code = _exit_code_of(sys.modules[request.module].main)
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


def _open_streams() -> None:
    """Buffered as the interpreter does it: by what the descriptors lead to now, not by what the template has."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old: io.TextIOWrapper = getattr(sys, name)
        unbuffered = old.write_through
        binary = open(number, "wb" if number else "rb", 0 if unbuffered else -1, closefd=False)  # noqa: SIM115 - it stays
        text = io.TextIOWrapper(
            cast(io.BufferedWriter, binary),
            encoding=old.encoding,
            errors=old.errors,
            newline="\n" if number else None,
            line_buffering=name == "stderr" or binary.isatty(),
            write_through=unbuffered,
        )
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)


def _exit_code_of(main: Callable[[], None]) -> int:
    try:
        main()
    except SystemExit as exc:
        if isinstance(exc.code, str):
            print(exc.code, file=sys.stderr)
        return exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    return 0


if __name__ == "__main__":
    _load(sys.argv[1] == "web")
    _serve_forks(socket.socket(fileno=int(sys.argv[2])))
