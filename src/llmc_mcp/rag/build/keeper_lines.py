"""The keeper's end of its connections: many servers ask, each hears of its own requests and of what is going on."""

import os
import socket
from typing import NamedTuple

import msgspec

from .messages import KeeperRequest, News, peer_uid

_READ = 1 << 16
_LONGEST_LINE = 8 << 20
_MOST = 512  # connections


class _Asker(NamedTuple):
    """Who made a request, and which number it has there."""

    line: socket.socket
    id: int


class KeeperLines:
    """The connections of servers. Requests of all of them are numbered anew, so that no two have the same id."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        listener.setblocking(False)
        self._rest: dict[socket.socket, bytes] = {}
        self._asked: dict[int, _Asker] = {}
        self._last_id = 0
        self._decoder = msgspec.json.Decoder(KeeperRequest)

    def fds(self) -> list[int]:
        """What to wait for."""
        return [self._listener.fileno(), *(line.fileno() for line in self._rest)]

    def hear(self, ready: set[int]) -> list[KeeperRequest]:
        """The requests that have arrived."""
        if self._listener.fileno() in ready:
            self._accept()
        return [request for line in list(self._rest) if line.fileno() in ready for request in self._read(line)]

    def tell(self, news: News) -> None:
        """Report to all; only the server that made a request is told its id."""
        asker = self._asked.get(news.id)
        if news.done:
            self._asked.pop(news.id, None)
        to_all = msgspec.json.encode(msgspec.structs.replace(news, id=0)) + b"\n"
        for line in list(self._rest):
            if asker is not None and asker.line is line:
                self._send(line, msgspec.json.encode(msgspec.structs.replace(news, id=asker.id)) + b"\n")
            else:
                self._send(line, to_all)

    def _accept(self) -> None:
        try:
            line, _ = self._listener.accept()
        except OSError:
            return  # it hung up already
        if peer_uid(line) != os.geteuid() or len(self._rest) >= _MOST:
            line.close()
            return
        line.setblocking(False)
        self._rest[line] = b""

    def _read(self, line: socket.socket) -> list[KeeperRequest]:
        try:
            data = line.recv(_READ)
            *lines, rest = (self._rest[line] + data).split(b"\n")
            requests = [self._numbered(line, self._decoder.decode(one)) for one in lines]
        except BlockingIOError:
            return []
        except (OSError, msgspec.MsgspecError):
            self._drop(line)
            return []
        if not data or len(rest) > _LONGEST_LINE:
            self._drop(line)
        else:
            self._rest[line] = rest
        return requests

    def _numbered(self, line: socket.socket, request: KeeperRequest) -> KeeperRequest:
        asker = _Asker(line, request.id)
        if request.do == "stop":
            number = next((number for number, known in self._asked.items() if known == asker), 0)
        else:
            number = self._last_id = self._last_id + 1
            self._asked[number] = asker
        return msgspec.structs.replace(request, id=number)

    def _send(self, line: socket.socket, data: bytes) -> None:
        """Send a whole line; one who does not read its lines is dropped, because the others must not wait for it."""
        try:
            sent = line.send(data)
        except OSError:
            sent = 0
        if sent < len(data):
            self._drop(line)

    def _drop(self, line: socket.socket) -> None:
        self._rest.pop(line, None)
        self._asked = {number: asker for number, asker in self._asked.items() if asker.line is not line}
        line.close()
