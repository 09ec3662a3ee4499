"""Run calls in threads, because handlers are plain functions; the number of threads is limited per principal."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from ..context import Context

Outcome = TypeVar("Outcome")

# In addition to the calls that may run: a call that the gate refuses briefly needs a thread, too.
_REFUSALS_AT_ONCE = 4


class RunningCall:
    """A call in progress; its context is set once its handler runs."""

    def __init__(self) -> None:
        self.cancelled = False
        self._context: Context | None = None

    def attach(self, context: Context) -> None:
        """Set the context; called from the worker thread."""
        self._context = context
        if self.cancelled:
            context.cancel()

    def cancel(self) -> None:
        """Cancel the call; its handler notices at its next check."""
        self.cancelled = True
        if self._context is not None:
            self._context.cancel()


class CallThreads:
    """Threads for calls; one principal's calls never wait for another's."""

    def __init__(self, per_principal: int) -> None:
        self._size = per_principal + _REFUSALS_AT_ONCE
        self._limiters: dict[str, anyio.CapacityLimiter] = {}

    async def run(self, principal: str, call: Callable[[], Outcome], running: RunningCall) -> Outcome:
        """Run a call in a thread. Cancelling the awaiting task cancels the call and waits for its thread."""
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
                task.exception()  # otherwise asyncio logs that it was never retrieved
            raise

    async def run_while(
        self,
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        principal: str,
        call: Callable[[], Outcome],
        running: RunningCall,
    ) -> Outcome:
        """Run a call; a client that disconnects cancels it."""

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            running.cancel()

        watching = asyncio.ensure_future(watch())
        try:
            return await self.run(principal, call, running)
        finally:
            watching.cancel()
