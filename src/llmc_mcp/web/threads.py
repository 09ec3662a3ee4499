"""From the event loop to handlers, which are plain functions: each call runs in a thread, so many per principal."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from ..context import Context

Outcome = TypeVar("Outcome")

# Beyond what may be under way: calls that the gate refuses need a thread for a moment too.
_REFUSALS_AT_ONCE = 4


class RunningCall:
    """A call on its way: its context appears once the handler runs."""

    def __init__(self) -> None:
        self.cancelled = False
        self._context: Context | None = None

    def attach(self, context: Context) -> None:
        """Called from the worker."""
        self._context = context
        if self.cancelled:
            context.cancel()

    def cancel(self) -> None:
        """Take the call back: its handler notices at its next check."""
        self.cancelled = True
        if self._context is not None:
            self._context.cancel()


class CallThreads:
    """Threads for calls; one principal's calls never wait for another's."""

    def __init__(self, per_principal: int) -> None:
        self._size = per_principal + _REFUSALS_AT_ONCE
        self._limiters: dict[str, anyio.CapacityLimiter] = {}

    async def run(self, principal: str, call: Callable[[], Outcome], running: RunningCall) -> Outcome:
        """Run a call. When whoever waits for it is cancelled, so is the call, and its thread is waited for."""
        limiter = self._limiters.get(principal)
        if limiter is None:
            limiter = self._limiters[principal] = anyio.CapacityLimiter(self._size)
        task = asyncio.ensure_future(anyio.to_thread.run_sync(call, limiter=limiter))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            running.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # looked at, so that nobody complains
            raise

    async def run_while(
        self,
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        principal: str,
        call: Callable[[], Outcome],
        running: RunningCall,
    ) -> Outcome:
        """Run a call for as long as its client is there: hanging up takes it back."""

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            running.cancel()

        watching = asyncio.ensure_future(watch())
        try:
            return await self.run(principal, call, running)
        finally:
            watching.cancel()
