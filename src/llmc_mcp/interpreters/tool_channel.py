"""The server's end of the channel to a process that runs an agent's code: tool calls come in, answers go out.

Frames are four bytes of length, then JSON. Input may be hostile: its size is checked before it is decoded, and a value
that is not inspected here stays JSON, because a short text can decode to many objects.
"""

import hmac
import re
import secrets
import select
import socket
from collections.abc import Callable

import msgspec

from .engine import Functions, PrintBuffer, RunLimits

MAX_ARGUMENTS = 4 << 20  # bytes of the arguments of one call
MAX_FRAME = 8 << 20  # bytes of any frame
_MAX_VALUES = 100_000  # in the arguments of one call
_MAX_FILES_BYTES = 1 << 16
_HEAD = 4  # bytes of a frame's length
_READ = 1 << 18
_POLL_S = 0.05
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')


class _Call(msgspec.Struct, tag_field="type", tag="call"):
    secret: str
    name: str
    values: msgspec.Raw
    named: msgspec.Raw


class _Print(msgspec.Struct, tag_field="type", tag="print"):
    secret: str
    text: str


class RunError(msgspec.Struct):
    """Why the code stopped, as reported by the process that ran it."""

    kind: str
    message: str
    line: int | None
    source: str | None


class RunEnd(msgspec.Struct, tag_field="type", tag="end"):
    """The outcome of the code, as reported by the process that ran it."""

    secret: str
    files: msgspec.Raw = msgspec.Raw(b"[]")
    value: msgspec.Raw = msgspec.Raw(b"null")
    cut: int = 0
    failure: RunError | None = None

    def file_names(self) -> tuple[str, ...]:
        """Names of files that the code left behind."""
        return tuple(_names.decode(self.files)) if len(bytes(self.files)) <= _MAX_FILES_BYTES else ()


_frames = msgspec.json.Decoder(_Call | _Print | RunEnd)
_names = msgspec.json.Decoder(list[str])
_positional = msgspec.json.Decoder(list[object])
_by_name = msgspec.json.Decoder(dict[str, object])


class ToolChannel:
    """One run's channel: reads frames as they arrive without waiting for them, answers calls one by one."""

    def __init__(
        self,
        channel: socket.socket,
        functions: Functions,
        limits: RunLimits,
        printed: PrintBuffer,
        check: Callable[[], None],
    ) -> None:
        channel.setblocking(False)
        self._socket, self._functions, self._printed, self._check = channel, functions, printed, check
        self._calls_left = limits.calls
        self.secret = secrets.token_hex(16)
        self._received = bytearray()
        self.end: RunEnd | None = None
        self.refused: str | None = None  # why the run is ended: the channel was misused

    @property
    def over(self) -> bool:
        """Whether the run has ended: later frames are ignored."""
        return self.end is not None or self.refused is not None

    def fileno(self) -> int:
        return self._socket.fileno()

    def serve(self) -> bool:
        """Process what has arrived; False at the end of the stream."""
        try:
            piece = self._socket.recv(_READ)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._received += piece
        while not self.over and (frame := self._next()) is not None:
            self._obey(frame)
        return bool(piece)

    def send(self, frame: bytes) -> None:
        """Send a frame, unless the run is cancelled or times out before the process reads it."""
        view = memoryview(len(frame).to_bytes(_HEAD, "little") + frame)
        while view:
            self._check()
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                select.select([], [self._socket], [], _POLL_S)
            except OSError:
                return  # the process closed its end

    def _next(self) -> bytes | None:
        if len(self._received) < _HEAD:
            return None
        size = int.from_bytes(self._received[:_HEAD], "little")
        if size > MAX_FRAME:
            self.refused = f"a message of {size:,} bytes to the tools"
            return None
        if len(self._received) < _HEAD + size:
            return None
        frame = bytes(self._received[_HEAD : _HEAD + size])
        del self._received[: _HEAD + size]
        return frame

    def _obey(self, frame: bytes) -> None:
        try:
            message = _frames.decode(frame)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self.refused = "a message to the tools that makes no sense"
            return
        if not hmac.compare_digest(message.secret.encode(), self.secret.encode()):
            self.refused = "a message to the tools without this run's secret"
        elif isinstance(message, RunEnd):
            self._finish(message)
        elif isinstance(message, _Print):
            self._printed("stdout", message.text)
        elif not self._calls_left:
            self.refused = "too many tool calls"
        else:
            self._calls_left -= 1
            self._check()
            self._answer(message)

    def _finish(self, end: RunEnd) -> None:
        try:
            end.file_names()
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self.refused = "a message to the tools that makes no sense"
        else:
            self.end = end

    def _answer(self, call: _Call) -> None:
        try:
            answer = msgspec.json.encode({"value": self._call(call)})
            if len(answer) > MAX_FRAME:
                raise RuntimeError(f"OUTPUT_TOO_LARGE: the result has {len(answer):,} bytes")
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self.refused = "a message to the tools that makes no sense"
            return
        except (RuntimeError, TypeError) as exc:
            answer = msgspec.json.encode({"error": type(exc).__name__, "message": str(exc)})
        self.send(answer)

    def _call(self, call: _Call) -> object:
        function = self._functions.get(call.name)
        if function is None:
            raise RuntimeError(f"UNKNOWN_TOOL: there is no tool {call.name[:64]!r}; tools() lists them")
        size = len(bytes(call.values)) + len(bytes(call.named))
        if size > MAX_ARGUMENTS:
            raise RuntimeError(f"TOO_LARGE: the arguments of {call.name} have {size:,} bytes")
        if _too_many(bytes(call.values)) or _too_many(bytes(call.named)):
            raise RuntimeError(f"TOO_LARGE: the arguments of {call.name} have more than {_MAX_VALUES:,} values")
        values, named = _positional.decode(call.values), _by_name.decode(call.named)
        return function(*values, **named)


def _too_many(text: bytes) -> bool:
    """Whether JSON holds more values than arguments may have; commas in strings do not count."""
    return text.count(b",") > _MAX_VALUES and _STRING.sub(b"", text).count(b",") > _MAX_VALUES
