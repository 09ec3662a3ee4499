"""The process that says whether texts are what their language allows. It sees texts, never files.

Frames on stdin and stdout: four bytes of length, then msgpack. A question is a language and texts; the answer has for
each text its errors. It ends when stdin closes or nobody asked for a while.
"""

import os
import select
import struct

import msgspec

from ..parse.types import Wrong

IDLE_S = 600.0
_LENGTH = struct.Struct("<I")


class SyntaxCheck(msgspec.Struct, frozen=True, array_like=True):
    """Texts in one language."""

    language: str
    texts: list[bytes]


class SyntaxErrors(msgspec.Struct, frozen=True, array_like=True):
    """The errors of each text; None for one that took too long to read."""

    errors: list[list[Wrong] | None]


def main() -> None:
    """Answer until nobody asks."""
    from ..parse.parse import errors, syntax  # not for the server, which asks and never parses

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
