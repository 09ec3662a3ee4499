"""The process that searches many indexes at once, for `repos`. It reads indexes, never files of a repository.

Frames on stdin and stdout, as in syntax_child.py. It exits when stdin closes or no request comes for a while.
"""

import select

import msgspec

from ..store.types import ManyRequest
from .syntax_child import IDLE_S, receive, send


def main() -> None:
    """Serve until stdin closes."""
    from ..store.many import ManyIndexes

    indexes = ManyIndexes()
    decoder = msgspec.msgpack.Decoder(ManyRequest)
    while select.select([0], [], [], IDLE_S)[0] and (frame := receive(0)) is not None:
        send(1, msgspec.msgpack.encode(indexes.search(decoder.decode(frame))))
