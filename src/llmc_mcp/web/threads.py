"""Run calls in threads, because handlers are plain functions; the number of threads is limited per principal."""

import asyncio
import contextlib
import queue
import threading
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Generic, TypeVar, cast

import anyio

from ..context import Context

Outcome = TypeVar("Outcome")

# In addition to the calls that may run: a call that the gate refuses briefly needs a thread, too.
_REFUSALS_AT_ONCE = 4
_IDLE_S = 30.0  # after which a thread without work ends
_UNWATCHED_S = 0.02  # most calls end sooner, and a task that watches the connection costs more than they do


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

    def let_go(self) -> None:
        """The request is answered: what its call left running, as a task, is no longer cancelled with it."""
        self._context = None

    def cancel(self) -> None:
        """Cancel the call; its handler notices at its next check."""
        self.cancelled = True
        if self._context is not None:
            self._context.cancel()


class DisconnectWatch:
    """Cancels the call of a client that disconnects, while the block runs."""

    def __init__(self, receive: Callable[[], Awaitable[MutableMapping[str, Any]]], running: RunningCall) -> None:
        self._receive, self._running = receive, running
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(_UNWATCHED_S, self._start)

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _start(self) -> None:
        self._task = self._loop.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._running.cancel()


class ThreadedCall(Generic[Outcome]):
    """A call on its way through a thread."""

    def __init__(self, principal: str, call: Callable[[], Outcome], running: RunningCall) -> None:
        self.principal, self.call, self._running = principal, call, running
        self._result: Outcome | None = None
        self._error: BaseException | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._after: list[Callable[[], object]] = []
        self.finished = False

    async def outcome(self) -> Outcome:
        """What the call returns or raises. Cancelling the awaiting task cancels the call and waits for its thread."""
        await self.finishes_within(None)
        if self._error is not None:
            raise self._error
        return cast(Outcome, self._result)

    async def finishes_within(self, seconds: float | None) -> bool:
        """Whether the call ends in time; cancelling is the same as with `outcome`."""
        try:
            await self._wait(seconds)
        except asyncio.CancelledError:
            self._running.cancel()
            with anyio.CancelScope(shield=True):
                await self._wait(None)
            raise
        return self.finished

    async def _wait(self, seconds: float | None) -> None:
        if self.finished:
            return
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.append(waiter)
        timer = loop.call_later(seconds, _wake, waiter) if seconds is not None else None
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()

    @property
    def succeeded(self) -> bool:
        """Whether the call has returned a result."""
        return self.finished and self._error is None

    def when_finished(self, act: Callable[[], object]) -> None:
        """Call a function in the event loop once the call is over, however it ends."""
        self._after.append(act)

    def finish(self, result: Outcome | None, error: BaseException | None) -> None:
        """Hand over the outcome; called in the event loop."""
        self._running.let_go()
        self._result, self._error, self.finished = result, error, True
        for act in self._after:
            act()
        for waiter in self._waiting:
            _wake(waiter)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class CallThreads:
    """Threads for calls; one principal's calls never wait for another's. All methods belong to the event loop."""

    def __init__(self, per_principal: int) -> None:
        self._size = per_principal + _REFUSALS_AT_ONCE
        self._busy: dict[str, int] = {}
        self._waiting: dict[str, deque[ThreadedCall[Any]]] = {}
        self._idle: list[_Thread] = []  # the last one worked last, and is the quickest to wake

    async def run(self, principal: str, call: Callable[[], Outcome], running: RunningCall) -> Outcome:
        """Run a call in a thread."""
        return await self.start(principal, call, running).outcome()

    def start(self, principal: str, call: Callable[[], Outcome], running: RunningCall) -> ThreadedCall[Outcome]:
        """Start a call in a thread, or as soon as its principal has one to spare."""
        job = ThreadedCall(principal, call, running)
        busy = self._busy.get(principal, 0)
        if busy >= self._size:
            self._waiting.setdefault(principal, deque()).append(job)
            return job
        thread = self._idle.pop() if self._idle else _Thread(asyncio.get_running_loop(), self._finished, self._retire)
        self._busy[principal] = busy + 1
        thread.jobs.put(job)
        return job

    def _finished(self, thread: "_Thread", job: ThreadedCall[Any], result: object, error: BaseException | None) -> None:
        if waiting := self._waiting.get(job.principal):
            thread.jobs.put(waiting.popleft())
        else:
            self._busy[job.principal] -= 1
            self._idle.append(thread)
        job.finish(result, error)

    def _retire(self, thread: "_Thread") -> None:
        """End a thread that found nothing to do, unless it was given something in the meantime."""
        if thread in self._idle:
            self._idle.remove(thread)
            thread.jobs.put(None)


class _Thread:
    """One thread. It has a queue of its own: several that wait for one queue wake each other up."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, finished: Callable[..., None], idle: Callable[..., None]
    ) -> None:
        self.jobs: queue.SimpleQueue[ThreadedCall[Any] | None] = queue.SimpleQueue()
        self._loop, self._finished, self._idle = loop, finished, idle
        threading.Thread(target=self._work, name="call", daemon=True).start()

    def _work(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            while self._run_next():
                pass

    def _run_next(self) -> bool:
        try:
            job = self.jobs.get(timeout=_IDLE_S)
        except queue.Empty:
            self._loop.call_soon_threadsafe(self._idle, self)
            job = self.jobs.get()
        if job is None:
            return False
        result = error = None
        try:
            result = job.call()
        except BaseException as exc:  # noqa: BLE001 - the awaiting task gets it
            error = exc
        self._loop.call_soon_threadsafe(self._finished, self, job, result, error)
        return True
