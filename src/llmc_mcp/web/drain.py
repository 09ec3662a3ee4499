"""The end of a server, step by step, so that nobody's call is lost on the way.

A signal makes /ready say no. For `limits.drain_notice` seconds calls are still taken, and their connections closed
after the reply: a proxy has the time to notice. Then new calls are refused, with a hint to try again, which leads them
to another replica; those under way have `limits.drain_timeout` seconds to end.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from ..errors import ShuttingDown

RETRY_AFTER = {"retry-after": "1"}
_REFUSING_S = 1.0


class Drain:
    """How far a server has come; belongs to the event loop."""

    def __init__(self) -> None:
        self.has_begun = self.is_closed = False
        self._under_way = 0
        self._idle = asyncio.Event()

    @contextmanager
    def counted(self) -> Generator[None]:
        """Around a request that the end has to wait for."""
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    def refuse_if_closed(self) -> None:
        """Refuse a request that comes too late."""
        if self.is_closed:
            raise ShuttingDown("the server is stopping", hint="Nothing was done. Try again: another replica answers.")

    async def run(self, notice_s: float, drain_s: float) -> None:
        """Come to the end; returns when no request is left, or time is up."""
        await asyncio.sleep(notice_s)
        self.is_closed = True
        await asyncio.sleep(min(notice_s, _REFUSING_S))  # a refusal tells a proxy more than a connection that breaks
        self._idle.clear()
        if self._under_way:
            try:
                async with asyncio.timeout(drain_s):
                    await self._idle.wait()
            except TimeoutError:
                return
