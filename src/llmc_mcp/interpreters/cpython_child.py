"""Runs inside the sandbox for one execute_code: the agent's code, with the tools as functions that call the server.

This file is passed to a bare interpreter inside, so it imports nothing of ours, and as little else as possible: every
module costs time at every run. The code that it runs can take it over, so the other end of the channel (cpython.py)
treats everything that it sends as untrusted.
"""

import _ast
import _thread
import json
import os
import sys
from collections.abc import Callable

TYPE_CHECKING = False  # its module takes longer to import than most code takes to run
if TYPE_CHECKING:
    from typing import Any

FILE = "code.py"  # the name of the agent's code in its own tracebacks
_ONLY_AST = 0x400
_MAX_FILES = 20
_HEAD = 4  # bytes of a frame's length


class ChildChannel:
    """The channel to the tools: JSON frames over a socket that no other process has, each with this run's secret."""

    def __init__(self, fd: int, secret: str, max_arguments: int) -> None:
        self._fd, self._secret, self._max_arguments = fd, secret, max_arguments
        self._lock, self._owner = _thread.allocate_lock(), os.getpid()

    def call(self, name: str, values: tuple[object, ...], named: dict[str, object]) -> object:
        """Call a tool and wait for its answer; its failure is a RuntimeError that starts with a code."""
        frame = b""
        if os.getpid() != self._owner:
            raise RuntimeError(f"{name}: tools can be called from the process that runs the code, not from a fork")
        size = weight([values, named], self._max_arguments)
        if size <= self._max_arguments:  # else encoding it could take all memory
            frame = self._encoded({"type": "call", "name": name, "values": values, "named": named})
            size = len(frame)
        if size > self._max_arguments:
            raise RuntimeError(f"TOO_LARGE: the arguments of {name} have more than {self._max_arguments:,} bytes")
        with self._lock:
            self._send(frame)
            answer = json.loads(self._receive())
        if "error" in answer:
            raise (TypeError if answer["error"] == "TypeError" else RuntimeError)(answer["message"])
        return answer["value"]

    def print(self, text: str) -> None:
        """Send what the code printed, if it has no stream of its own."""
        self._send(self._encoded({"type": "print", "text": text}))

    def end(self, outcome: dict[str, object], value: str = "null") -> None:
        """Send the last frame: the outcome of the code, and its value as JSON."""
        frame = self._encoded({"type": "end", **outcome})
        self._send(frame[:-1] + b', "value": ' + value.encode("utf-8", "replace") + b"}")

    def _encoded(self, frame: dict[str, object]) -> bytes:
        text = json.dumps({**frame, "secret": self._secret}, default=_plain, ensure_ascii=False, allow_nan=False)
        return text.encode("utf-8", "replace")

    def _send(self, frame: bytes) -> None:
        send(self._fd, frame)

    def _receive(self) -> bytes:
        return receive(self._fd)


def send(fd: int, frame: bytes) -> None:
    """One frame."""
    view = memoryview(len(frame).to_bytes(_HEAD, "little") + frame)
    while view:
        view = view[os.write(fd, view) :]


def receive(fd: int) -> bytes:
    """One frame."""
    return _exactly(fd, int.from_bytes(_exactly(fd, _HEAD), "little"))


def _exactly(fd: int, size: int) -> bytes:
    pieces: list[bytes] = []
    while size:
        piece = os.read(fd, min(size, 1 << 20))
        if not piece:
            raise ConnectionError("the channel to the tools is closed")
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def weight(value: object, most: int) -> int:
    """The approximate length of a value as text; what it holds twice counts twice. Stops once over `most`.

    A few lists that hold one another can expand to more text than fits in memory, so each value is weighed first.
    """
    total = 0
    todo: list[Any] = [value]
    while todo and total <= most:
        one = todo.pop()
        if isinstance(one, int):
            total += one.bit_length() // 4
        elif isinstance(one, str | bytes | bytearray):
            total += len(one)
        elif isinstance(one, dict | list | tuple | set | frozenset):
            total += len(one)  # pyright: ignore[reportUnknownArgumentType]
            if total <= most:
                todo += one
                todo += one.values() if isinstance(one, dict) else ()
        else:
            total += 4
    return total


def beginning(value: object, room: int) -> str:
    """The text of a value as far as there is room for it."""
    if isinstance(value, str):
        return value[:room]

    def plain(other: "Any") -> object:
        if isinstance(other, set | frozenset):
            return list(other)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        return repr(other[:room] if isinstance(other, bytes | bytearray) else other)

    pieces: list[str] = []
    try:
        for piece in json.JSONEncoder(default=plain, ensure_ascii=False).iterencode(value):
            pieces.append(piece[:room])
            room -= len(piece)
            if room <= 0:
                break
    except (TypeError, ValueError, RecursionError) as exc:  # a key or number that JSON lacks, or nested too deeply
        pieces.append(f" … ({type(exc).__name__})")
    return "".join(pieces)


def _plain(value: "Any") -> object:
    """An argument of a type that JSON lacks, in the form that tools accept."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if isinstance(value, set | frozenset):
        return list(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if isinstance(value, bytes):
        return value.decode()
    if callable(value) and hasattr(value, "__name__"):
        return value.__name__
    raise TypeError(f"a tool takes no {type(value).__name__}")


def functions(channel: ChildChannel, names: list[str]) -> dict[str, Callable[..., object]]:
    """A function for each tool."""

    def make(name: str) -> Callable[..., object]:
        def tool(*values: object, **named: object) -> object:
            return channel.call(name, values, named)

        tool.__name__ = tool.__qualname__ = name
        return tool

    return {name: make(name) for name in names}


def run(code: str, names: "dict[str, Any]") -> object:
    """Run the code as a main module; the value is that of its last line, if that is an expression."""
    main = type(sys)("__main__")
    sys.modules["__main__"] = main
    scope = main.__dict__
    scope.update(names, __builtins__=__builtins__, exit=sys.exit, quit=sys.exit)
    tree: Any = compile(code, FILE, "exec", _ONLY_AST, dont_inherit=True)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], _ast.Expr) else None
    exec(compile(tree, FILE, "exec", dont_inherit=True), scope)  # noqa: S102 - the purpose of this program
    if last is None:
        return None
    return eval(compile(_ast.Expression(last.value), FILE, "eval", dont_inherit=True), scope)  # noqa: S307 - as above


def explained(exc: BaseException, code: str) -> dict[str, object]:
    """What went wrong, and on which line of the agent's code."""
    line = exc.lineno if isinstance(exc, SyntaxError) and exc.filename == FILE else None
    trace = exc.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    words = (exc.msg or "") if isinstance(exc, SyntaxError) else str(exc)
    lines = code.splitlines()
    source = lines[line - 1].strip() if line and line <= len(lines) else None
    return {"kind": type(exc).__name__, "message": words[:10_000], "line": line, "source": source}


def wind_up() -> None:
    """Shut down as an interpreter does: wait for threads, run the registered exit functions."""
    threading = sys.modules.get("threading")
    if threading is not None:
        for thread in threading.enumerate():
            if thread is not threading.main_thread() and not thread.daemon:
                thread.join()
    import atexit

    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage] - the interpreter's own, as it would call it


def written(folder: str) -> list[str]:
    """Names of the files that the code left in its folder."""
    try:
        return sorted(os.listdir(folder))[:_MAX_FILES]
    except OSError:
        return []


def encoded(value: object, most: int) -> tuple[str, int]:
    """A value as JSON or, if it has no such form or is too long, as text; and how much of it was cut, if any."""
    if weight(value, most) <= most:
        try:
            text = json.dumps(value, default=repr, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError):
            value = _described(value)
        else:
            if len(text) <= most:
                return text, 0
    shown = beginning(value, most + 1)
    cut = max(len(value if isinstance(value, str) else shown) - most, 0)  # at least: the rest was not measured
    return json.dumps(shown[:most], ensure_ascii=False), cut


def _described(value: object) -> object:
    """The repr of a value that JSON lacks; the value itself if that fails."""
    try:
        return repr(value)
    except (ValueError, RecursionError):
        return value


def main(fd: int, order: "tuple[str, str, list[str], list[str], int, int]") -> None:
    """Carry out the order and report the outcome."""
    secret, code, names, folders, max_arguments, max_value = order
    os.set_inheritable(fd, False)
    os.dup2(1, 2)  # one stream, in the order in which things were printed
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    folder = os.path.join(os.environ["TMPDIR"], "code")
    os.makedirs(folder, mode=0o700)
    os.chdir(folder)
    os.environ["TMPDIR"] = folder
    sys.path[:0] = [folder]
    sys.path += folders
    sys.argv = [FILE]
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    channel = ChildChannel(fd, secret, max_arguments)
    value = "null"
    outcome: dict[str, object] = {}
    try:
        value, outcome["cut"] = encoded(run(code, functions(channel, names)), max_value)
        wind_up()
    except SystemExit as exc:
        outcome = {} if exc.code in (None, 0) else {"failure": explained(exc, code)}
    except BaseException as exc:  # noqa: BLE001 - any exception is the outcome
        outcome = {"failure": explained(exc, code)}
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        pass  # the code closed it
    try:
        channel.end({**outcome, "files": written(folder)}, "null" if "failure" in outcome else value)
    except OSError:  # or this
        os._exit(1)
    os._exit(0)
