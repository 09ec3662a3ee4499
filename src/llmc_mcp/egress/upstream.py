"""The way to a server: look its name up once, check every address, dial one that was checked."""

import asyncio
import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor

from ..config.network import Rules
from .addresses import is_public
from .requests import Denied, Endpoint

_LOOKUP_S = 15.0
_DIAL_S = 10.0
_NEXT_S = 2.5  # after which the next address is tried: of two families often only one works
_LOOKUPS = 8  # at a time: each takes a thread


class Unreachable(Exception):
    """The target can't be reached, which is nobody's policy."""


class Dialer:
    """Resolves and connects."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_LOOKUPS, "lookup")

    async def addresses_of(self, target: Endpoint, rules: Rules) -> list[bytes]:
        """The addresses of a target, all of them checked against the list."""
        if not target.name:
            if not rules.allow_address(target.address, target.port):
                raise Denied("host", str(target), "an address that is not in the allowlist")
            return [target.address]
        if not rules.allow_name(target.name, target.port):
            raise Denied("host", str(target), "not in the allowlist")
        found = await self._look_up(target.name)
        for address in found:
            if not is_public(address) and not rules.allow_address(address, target.port):
                shown = str(Endpoint("", address, target.port)).rpartition(":")[0].strip("[]")
                raise Denied("address", str(target), f"{shown} is no public address, and is not listed itself")
        return found

    async def _look_up(self, name: str) -> list[bytes]:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_LOOKUP_S):
                rows = await loop.run_in_executor(self._threads, _resolve, name)
        except (OSError, TimeoutError, UnicodeError):
            raise Unreachable("its name could not be resolved") from None
        if not rows:
            raise Unreachable("its name has no address")
        return rows


def _resolve(name: str) -> list[bytes]:
    rows = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    found = {socket.inet_pton(family, str(where[0]).partition("%")[0]): None for family, _, _, _, where in rows}
    return list(found)


async def dial(addresses: list[bytes], port: int) -> socket.socket:
    """Connect to the first address that answers."""
    loop = asyncio.get_running_loop()
    for number, address in enumerate(addresses, 1):
        family = socket.AF_INET6 if len(address) == 16 else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            async with asyncio.timeout(_NEXT_S if number < len(addresses) else _DIAL_S):
                await loop.sock_connect(sock, (socket.inet_ntop(family, address), port))
        except (OSError, TimeoutError):
            sock.close()
            continue
        except BaseException:
            sock.close()
            raise
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock
    raise Unreachable("it does not answer")
