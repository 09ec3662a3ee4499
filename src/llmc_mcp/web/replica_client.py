"""The HTTP request from one replica to another: one hop, no redirects, no proxies, bounded in time and size.

It waits in the thread of the call, which may be cancelled meanwhile; hanging up then ends the call at the other end.
"""

import select
import socket
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import NamedTuple
from urllib.parse import urlsplit

from .replica_claims import CALL_PATH, HEADER, PROOF

_CONNECT_S = 3.0
_SILENT_S = 15.0  # between two pieces of a request or a reply that is on its way
_CHECK_S = 0.05
_LOOK_S = 3.0  # how often to ask whether the other end still lives
_PIECE = 1 << 16


class NotReached(Exception):
    """No connection, or no reply; `sent` if the call may have been made."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class ReplicaReply(NamedTuple):
    """What came back."""

    status: int
    proof: str
    body: bytes


def is_usable(url: str) -> bool:
    """Whether a URL can be one of a replica: a scheme, a host, maybe a port, and nothing else."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises where it is no number
    except ValueError:
        return False
    bare = not (parts.query or parts.fragment or parts.username or parts.password) and parts.path in ("", "/")
    return parts.scheme in ("http", "https") and bool(parts.hostname) and bare and url.isprintable() and " " not in url


def post(
    url: str, header: str, body: bytes, most: int, check: Callable[[], None], look: Callable[[], None]
) -> ReplicaReply:
    """Forward a call to a usable URL. `check` may end the wait; `look` may, too, and is called from time to time."""
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_CONNECT_S)
    sent = False
    try:
        connection.connect()
        connection.sock.settimeout(_SILENT_S)
        sent = True
        connection.request("POST", CALL_PATH, body, {"Content-Type": "application/json", HEADER: header})
        _await_reply(connection.sock, check, look)
        response = connection.getresponse()
        pieces, size = list[bytes](), 0
        while piece := response.read1(_PIECE):
            check()
            size += len(piece)
            if size > most:
                return ReplicaReply(response.status, "", b"")  # no replica says so much: what it says is not believed
            pieces.append(piece)
        return ReplicaReply(response.status, response.headers.get(PROOF, ""), b"".join(pieces))
    except (OSError, HTTPException) as exc:
        reason = getattr(exc, "strerror", None) or str(exc) or type(exc).__name__
        raise NotReached(str(reason).lower()[:200], sent=sent) from None
    finally:
        connection.close()


def _await_reply(wire: socket.socket, check: Callable[[], None], look: Callable[[], None]) -> None:
    next_look = time.monotonic() + _LOOK_S
    poll = select.poll()
    poll.register(wire, select.POLLIN)
    while not poll.poll(_CHECK_S * 1000):
        check()
        if time.monotonic() >= next_look:
            look()
            next_look = time.monotonic() + _LOOK_S
