"""The process that checks the syntax of texts. It sees texts, never files.

Frames on stdin and stdout: four bytes of length, then msgpack. A request is a language and texts; the reply has the
errors of each text. It exits when stdin closes or no request comes for a while.
"""

import os
import select
import struct

import msgspec

from ..parse.types import SyntaxProblem

IDLE_S = 600.0
_LENGTH = struct.Struct("<I")


class SyntaxCheck(msgspec.Struct, frozen=True, array_like=True):
    """Texts in one language."""

    language: str
    texts: list[bytes]


class SyntaxErrors(msgspec.Struct, frozen=True, array_like=True):
    """The errors of each text; None for one that took too long to read."""

    errors: list[list[SyntaxProblem] | None]


def main() -> None:
    """Serve until stdin closes."""
    from ..parse.parse import errors, syntax  # only here: the server never parses

    decoder = msgspec.msgpack.Decoder(SyntaxCheck)
    while select.select([0], [], [], IDLE_S)[0] and (frame := receive(0)) is not None:
        question = decoder.decode(frame)
        found = [errors(syntax(question.language, text)) for text in question.texts]
        send(1, msgspec.msgpack.encode(SyntaxErrors(found)))


def send(fd: int, data: bytes) -> None:
    """One frame."""
    frame = memoryview(_LENGTH.pack(len(data)) + data)
    while frame:
        frame = frame[os.write(fd, frame) :]


def receive(fd: int) -> bytes | None:
    """One frame; None at the end."""
    head = _exactly(fd, _LENGTH.size)
    return None if head is None else _exactly(fd, _LENGTH.unpack(head)[0])


def _exactly(fd: int, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        piece = os.read(fd, size - len(data))
        if not piece:
            return None
        data += piece
    return bytes(data)
