"""Run calls in threads, because handlers are plain functions; the number of threads is limited per principal.

A call that hangs in the kernel is given up when it is overdue, by the rule that stdio has as well (`protocol/lanes`):
its client gets an answer, and another thread takes the place of its own.
"""

import asyncio
import contextlib
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Generic, NoReturn, TypeVar, cast

import anyio

from ..errors import LlmcError
from ..protocol.lanes import GIVEN_UP_AT_MOST, LOOK_EVERY_S, RunningCall, no_thread, overdue

Outcome = TypeVar("Outcome")

# In addition to the calls that may run: a call that the gate refuses briefly needs a thread, too.
_REFUSALS_AT_ONCE = 4
_IDLE_S = 30.0  # after which a thread without work ends
_STEP_ASIDE_S = 0.004  # how long the event loop waits for a batch of quick calls
_APART_S = 0.1  # after a batch that took longer, each call has a thread of its own for so long
_UNWATCHED_S = 0.02  # most calls end sooner, and a task that watches the connection costs more than they do


def _raise(error: LlmcError) -> NoReturn:
    raise error


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
    """A call on its way through a thread; `fail` answers in its place, if its handler can't: it returns or raises."""

    def __init__(
        self,
        principal: str,
        call: Callable[[], Outcome],
        running: RunningCall,
        fail: Callable[[LlmcError], Outcome] = _raise,
    ) -> None:
        self.principal, self.call, self.running, self._fail = principal, call, running, fail
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
            self.running.cancel()
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
        self.running.let_go()
        self._result, self._error, self.finished = result, error, True
        for act in self._after:
            act()
        for waiter in self._waiting:
            _wake(waiter)

    def give_up(self, error: LlmcError) -> None:
        """Finish in the place of the handler, which does not come back or never ran."""
        try:
            self.finish(self._fail(error), None)
        except Exception as exc:  # noqa: BLE001 - the awaiting task gets it
            self.finish(None, exc)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class CallThreads:
    """Threads for calls; one principal's calls wait for another's for a moment at most.

    All methods belong to the event loop.
    """

    def __init__(self, per_principal: int) -> None:
        self._size = per_principal + _REFUSALS_AT_ONCE
        self._lost: Counter[str] = Counter()  # threads that were given up and have not come back, by principal
        self._busy: Counter[str] = Counter()
        self._waiting: dict[str, deque[ThreadedCall[Any]]] = {}
        self._batch: _Batch | None = None  # quick calls that are about to start
        self._batches_from = 0.0
        self._under_way: set[ThreadedCall[Any]] = set()
        self._idle: list[_Thread] = []  # the last one worked last, and is the quickest to wake
        self._looking: asyncio.TimerHandle | None = None

    def resize(self, per_principal: int) -> None:
        """Another number of calls at a time from now on."""
        self._size = per_principal + _REFUSALS_AT_ONCE

    def start(
        self,
        principal: str,
        call: Callable[[], Outcome],
        running: RunningCall,
        fail: Callable[[LlmcError], Outcome] = _raise,
        *,
        is_quick: bool = False,
    ) -> ThreadedCall[Outcome]:
        """Start a call in a thread, or as soon as its principal has one to spare; `is_quick` if it usually is."""
        job, room = ThreadedCall(principal, call, running, fail), self._room(principal)
        if room <= 0:
            job.give_up(no_thread())
        elif self._busy[principal] >= room:
            self._waiting.setdefault(principal, deque()).append(job)
        else:
            self._begin(job, is_quick=is_quick)
        return job

    def _room(self, principal: str) -> int:
        """How many calls of a principal may run; those that hang leave less and less."""
        return min(self._size, self._size + GIVEN_UP_AT_MOST - self._lost[principal])

    def _begin(self, job: ThreadedCall[Any], *, is_quick: bool = False) -> None:
        self._busy[job.principal] += 1
        self._under_way.add(job)
        loop = asyncio.get_running_loop()
        if self._looking is None:
            self._looking = loop.call_later(LOOK_EVERY_S, self._look_after_calls)
        if not is_quick or loop.time() < self._batches_from:
            self._hand_over(_Batch(job, awaited=False))
        elif self._batch is None:
            self._batch = _Batch(job, awaited=True)
            loop.call_soon(self._step_aside)
        else:
            self._batch.jobs.append(job)

    def _step_aside(self) -> None:
        """Have one thread run the quick calls that have come in, and wait for it a moment.

        Two threads that both need the interpreter take it from each other at every system call, which on two cores
        costs more than the calls do. What turns out to take long goes on by itself, and what waits behind it gets
        threads of its own.
        """
        batch, self._batch = self._batch, None
        if batch is None or not self._hand_over(batch):
            return
        if batch.over.acquire(timeout=_STEP_ASIDE_S) or batch.leave():
            self._finished(batch)
            return
        self._batches_from = asyncio.get_running_loop().time() + _APART_S
        while batch.jobs:
            with contextlib.suppress(IndexError):  # the thread has just taken it
                self._hand_over(_Batch(batch.jobs.popleft(), awaited=False))
        self._settle_ended(batch)

    def _hand_over(self, batch: "_Batch") -> bool:
        """Give calls to a thread; False if there is none to be had."""
        try:
            batch.thread = self._idle.pop() if self._idle else _Thread(self._finished, self._retire)
        except RuntimeError:  # no thread can be started now
            for job in batch.jobs:
                self._leave(job)
                job.give_up(no_thread())
            return False
        batch.thread.batches.put(batch)
        return True

    def _finished(self, batch: "_Batch") -> None:
        """A thread is done with its calls; it may say so although that is known."""
        if batch.thread is not None:
            self._idle.append(batch.thread)
            batch.thread = None
        self._settle_ended(batch)

    def _settle_ended(self, batch: "_Batch") -> None:
        while batch.ended:
            job, result, error = batch.ended.popleft()
            if job.finished:  # it had been given up
                self._lost[job.principal] -= 1
            else:
                self._leave(job)
                job.finish(result, error)
            self._serve_waiting(job.principal)

    def _leave(self, job: ThreadedCall[Any]) -> None:
        self._under_way.discard(job)
        self._busy[job.principal] -= 1

    def _serve_waiting(self, principal: str) -> None:
        waiting = self._waiting.get(principal)
        while waiting and self._room(principal) <= 0:
            waiting.popleft().give_up(no_thread())
        while waiting and self._busy[principal] < self._room(principal):
            self._begin(waiting.popleft())

    def _look_after_calls(self) -> None:
        """Answer the calls that are overdue and can't say so themselves."""
        self._looking = None
        now = time.monotonic()
        for job in [job for job in self._under_way if job.running.is_overdue(now)]:
            self._leave(job)
            self._lost[job.principal] += 1
            job.give_up(overdue())
            self._serve_waiting(job.principal)
        if self._under_way:
            self._looking = asyncio.get_running_loop().call_later(LOOK_EVERY_S, self._look_after_calls)

    def _retire(self, thread: "_Thread") -> None:
        """End a thread that found nothing to do, unless it was given something in the meantime."""
        if thread in self._idle:
            self._idle.remove(thread)
            thread.batches.put(None)


class _Batch:
    """Calls that one thread runs one after another, and how they ended."""

    def __init__(self, job: ThreadedCall[Any], *, awaited: bool) -> None:
        self.jobs: deque[ThreadedCall[Any]] = deque((job,))  # those that have not begun
        self.ended: deque[tuple[ThreadedCall[Any], object, BaseException | None]] = deque()
        self.thread: _Thread | None = None
        self.awaited = awaited  # whether the event loop waits for the end
        self.over = threading.Lock()  # held until then
        self.over.acquire()

    def leave(self) -> bool:
        """Wait no longer; True if the end came just now."""
        self.awaited = False  # first: whoever ends the batch from here on says so
        return self.over.acquire(blocking=False)

    def run(self) -> None:
        while self.jobs:
            try:
                job = self.jobs.popleft()
            except IndexError:  # the event loop has just taken it
                break
            result = error = None
            try:
                result = job.call()
            except BaseException as exc:  # noqa: BLE001 - the awaiting task gets it
                error = exc
            self.ended.append((job, result, error))
        self.over.release()


class _Thread:
    """One thread. It has a queue of its own: several that wait for one queue wake each other up."""

    def __init__(self, finished: Callable[[_Batch], None], idle: "Callable[[_Thread], None]") -> None:
        self.batches: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
        self._loop, self._finished, self._idle = asyncio.get_running_loop(), finished, idle
        threading.Thread(target=self._work, name="call", daemon=True).start()

    def _work(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            while self._run_next():
                pass

    def _run_next(self) -> bool:
        try:
            batch = self.batches.get(timeout=_IDLE_S)
        except queue.Empty:
            self._loop.call_soon_threadsafe(self._idle, self)
            batch = self.batches.get()
        if batch is None:
            return False
        batch.run()
        if not batch.awaited:
            self._loop.call_soon_threadsafe(self._finished, batch)
        return True
