"""The threads that calls run in: two lanes, and a watch over both; what HTTP needs of the watch is here, too.

Calls that may take long have a lane of their own, so that however many of them run, a look at a file never waits for
one. A call polls its deadline itself; one that can't, because the kernel keeps its thread waiting for a file system
that does not answer, is found here when it is overdue. Its thread is given up and replaced: nothing can end it, but
the next call need not share its fate. When too many were given up, the lane takes no more calls.
"""

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from ..context import Context
from ..errors import ResourceBusy, Timeout

RequestId = str | int
Message = dict[str, Any]

LOOK_EVERY_S = 0.5  # after calls that are overdue
GIVEN_UP_AT_MOST = 8  # threads that are replaced
_OVERDUE_S = 5.0  # after its deadline, a call that ends by itself has ended


class RunningCall:
    """A call in progress, on any transport; its context appears once its handler runs."""

    def __init__(self) -> None:
        self.cancelled = False
        self.context: Context | None = None

    def attach(self, context: Context) -> None:
        """Set the context; called from the thread of the call."""
        self.context = context
        if self.cancelled:
            context.cancel()

    def cancel(self) -> None:
        """Cancel the call; its handler notices at its next check."""
        self.cancelled = True
        if self.context is not None:
            self.context.cancel()

    def let_go(self) -> None:
        """The request is answered: what its call left running, as a task, is no longer cancelled with it."""
        self.context = None

    def is_overdue(self, now: float) -> bool:
        """Whether it should have ended by itself; a call without a deadline waits for somebody, as it may."""
        deadline = self.context.deadline if self.context is not None else None
        return deadline is not None and now > deadline + _OVERDUE_S


class PendingCall(RunningCall):
    """A request on its way through a lane."""

    def __init__(self, request_id: RequestId, method: str, params: dict[str, Any]) -> None:
        super().__init__()
        self.request_id, self.method, self.params = request_id, method, params
        self.worker: Worker | None = None


def overdue() -> Timeout:
    """What the client of an overdue call hears."""
    return Timeout(
        "the call took too long, and can't be ended",
        hint="A file system that it needs may not answer. "
        "What it was to change may yet be changed: look before you repeat it.",
    )


def no_thread() -> ResourceBusy:
    """What a client hears when too many threads were given up to serve its call."""
    return ResourceBusy(
        "there is no thread for this call: too many calls hang",
        hint="Wait until they are answered, or start the server anew.",
    )


class Worker:
    """A thread of a lane."""

    def __init__(self, lane: "Lane", number: int) -> None:
        self.lane, self.given_up = lane, False
        self.call: PendingCall | None = None  # what it works on
        self.thread = threading.Thread(target=lane.work, args=(self,), name=f"{lane.name}-{number}", daemon=True)


Answer = Callable[[PendingCall], Message | None]  # the reply to a call; None if it gets none


class Lanes:
    """The two lanes."""

    def __init__(self, size: int, answer: Answer, send: Callable[[Message], None]) -> None:
        self._quick, self._long = (Lane(name, size, answer, send) for name in ("quick", "long"))

    def hand_over(self, call: PendingCall, *, takes_long: bool) -> bool:
        """Have a call served; False if its lane has no thread left."""
        return (self._long if takes_long else self._quick).put(call)

    def give_up(self, call: PendingCall) -> list[PendingCall]:
        """Replace the thread of an overdue call; returns the calls that wait in a lane without any thread."""
        return call.worker.lane.give_up(call.worker, call) if call.worker is not None else []

    def finish(self) -> None:
        """Let every thread end that has nothing left to do."""
        self._quick.finish()
        self._long.finish()

    def join(self, seconds: float) -> bool:
        """Wait for the end of all threads but those that were given up; False if one goes on."""
        until = time.monotonic() + seconds
        for worker in self._serving():
            worker.thread.join(max(until - time.monotonic(), 0))
        return not any(worker.thread.is_alive() for worker in self._serving())

    def _serving(self) -> list[Worker]:
        return [worker for lane in (self._quick, self._long) for worker in list(lane.workers) if not worker.given_up]


class Lane:
    """A queue of calls and the threads that take from it, made when they are needed."""

    def __init__(self, name: str, size: int, answer: Answer, send: Callable[[Message], None]) -> None:
        self.name, self._size, self._answer, self._send = name, size, answer, send
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[PendingCall | None] = queue.SimpleQueue()
        self._idle = 0  # threads that wait for a call, less the calls that wait for a thread
        self._serving = 0  # threads that were not given up
        self._made = 0
        self._finishing = False
        self.workers: list[Worker] = []

    def put(self, call: PendingCall) -> bool:
        """Queue a call; False if no thread would take it."""
        with self._lock:
            if self._idle <= 0:
                self._add_worker()
            if not self._serving:
                return False
            self._idle -= 1
        self._queue.put(call)
        return True

    def work(self, worker: Worker) -> None:
        """What a thread of the lane does: it is free for the next call before its client hears of this one."""
        while (call := self._queue.get()) is not None:
            call.worker, worker.call = worker, call
            reply = self._answer(call)
            with self._lock:
                worker.call = None
                if stays := not worker.given_up or self._take_back(worker):
                    self._idle += 1
            if reply is not None:
                self._send(reply)
            if not stays:
                return

    def give_up(self, worker: Worker, call: PendingCall) -> list[PendingCall]:
        """Replace a thread, if not too many were; returns the calls that nobody is left to serve."""
        with self._lock:
            if worker.given_up or worker.call is not call:  # it has just come back
                return []
            worker.given_up = True
            self._serving -= 1
            self._add_worker()
            return [] if self._serving else self._take_waiting()

    def finish(self) -> None:
        with self._lock:
            self._finishing = True
            for _ in range(self._serving):
                self._queue.put(None)  # that of a thread which is given up later is for the one in its place

    def _add_worker(self) -> None:
        if self._serving >= self._size or len(self.workers) >= self._size + GIVEN_UP_AT_MOST:
            return
        self._made += 1
        worker = Worker(self, self._made)
        try:
            worker.thread.start()
        except RuntimeError:  # no thread to be had now: the others have to do
            return
        self.workers.append(worker)
        self._serving += 1
        self._idle += 1

    def _take_back(self, worker: Worker) -> bool:
        """Have a thread that came back serve again, if there is room for it."""
        if self._serving >= self._size or self._finishing:
            self.workers.remove(worker)
            return False
        worker.given_up = False
        self._serving += 1
        return True

    def _take_waiting(self) -> list[PendingCall]:
        calls: list[PendingCall] = []
        while not self._queue.empty():
            call = self._queue.get()
            if call is not None:
                calls.append(call)
                self._idle += 1
        return calls
