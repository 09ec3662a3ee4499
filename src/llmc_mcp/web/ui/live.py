"""Tell open pages that something changed: in the store, whichever process wrote it, or in the calls under way here.

One look serves all pages. It costs a few system calls, so it can be taken often; pages fetch what they show themselves.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Sequence

_LOOK_EVERY_S = 0.05
_PING_S = 15.0
_STREAM_S = 600.0  # the browser then connects anew, and its token is checked again
_FIRST = b"retry: 1000\n\n"
_CHANGED, _PING = b"data: changed\n\n", b": ping\n\n"


class LiveFeed:
    """The events of all open pages; belongs to the event loop."""

    def __init__(self, paths: Sequence[str], under_way: Callable[[], int]) -> None:
        self._paths, self._under_way = tuple(paths), under_way
        self._waiting: set[asyncio.Event] = set()
        self._looking: asyncio.Task[None] | None = None
        self._closed = False

    async def events(self) -> AsyncGenerator[bytes]:
        """A stream of server-sent events, until the page is closed or the server stops."""
        changed = asyncio.Event()
        self._waiting.add(changed)
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look())
        until = asyncio.get_running_loop().time() + _STREAM_S
        try:
            yield _FIRST
            while not self._closed and asyncio.get_running_loop().time() < until:
                try:
                    async with asyncio.timeout(_PING_S):
                        await changed.wait()
                except TimeoutError:
                    yield _PING
                    continue
                changed.clear()
                if not self._closed:
                    yield _CHANGED
        finally:
            self._waiting.discard(changed)

    def close(self) -> None:
        """End all streams: a server that stops does not wait for them."""
        self._closed = True
        self._wake()

    async def _look(self) -> None:
        seen = self._state()
        while self._waiting and not self._closed:
            await asyncio.sleep(_LOOK_EVERY_S)
            if (state := self._state()) != seen:
                seen = state
                self._wake()
        self._looking = None

    def _wake(self) -> None:
        for one in self._waiting:
            one.set()

    def _state(self) -> tuple[object, ...]:
        return (self._under_way(), *map(_stamp, self._paths))


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_ino, info.st_mtime_ns, info.st_size
