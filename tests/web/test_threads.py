"""The threads that run calls: shares, order, cancellation, what they raise."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from llmc_mcp.errors import LlmcError
from llmc_mcp.protocol.lanes import GIVEN_UP_AT_MOST, RunningCall
from llmc_mcp.session import Session
from llmc_mcp.web.threads import CallThreads, DisconnectWatch, ThreadedCall

from ..support.client import PATIENCE
from ..support.gates import gate_on
from ..support.workspace import Workspace


def run(body: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE):
            await body()

    asyncio.run(main())


def test_a_call_returns_or_raises_in_its_own_words() -> None:
    async def body() -> None:
        threads = CallThreads(1)
        assert await threads.start("a", threading.get_ident, RunningCall()).outcome() != threading.get_ident()
        with pytest.raises(ZeroDivisionError):
            await threads.start("a", lambda: 1 // 0, RunningCall()).outcome()
        with pytest.raises(SystemExit):  # ends neither the thread nor the server
            await threads.start("a", lambda: exec("raise SystemExit"), RunningCall()).outcome()
        assert await threads.start("a", lambda: "still here", RunningCall()).outcome() == "still here"

    run(body)


def test_one_principal_waits_for_its_own_calls_and_for_nobody_elses() -> None:
    async def body() -> None:
        threads, go = CallThreads(1), threading.Event()
        held = [threads.start("a", lambda: go.wait(PATIENCE), RunningCall()) for _ in range(20)]
        assert await threads.start("b", lambda: "served", RunningCall()).outcome() == "served"
        late = threads.start("a", lambda: "late", RunningCall())
        assert not await late.finishes_within(0.01)
        go.set()
        assert [await job.outcome() for job in held] == [True] * 20
        assert await late.outcome() == "late"

    run(body)


def test_a_thread_serves_one_call_after_another() -> None:
    async def body() -> None:
        threads = CallThreads(4)
        idents = {await threads.start("a", threading.get_ident, RunningCall()).outcome() for _ in range(50)}
        assert len(idents) == 1

    run(body)


def test_quick_calls_that_come_together_share_a_thread_and_one_that_is_slow_keeps_it_for_itself() -> None:
    async def body() -> None:
        threads, go = CallThreads(16), threading.Event()
        together = [threads.start("a", threading.get_ident, RunningCall(), is_quick=True) for _ in range(10)]
        assert len({await job.outcome() for job in together}) == 1
        first = threads.start("a", lambda: "first", RunningCall(), is_quick=True)
        slow = [threads.start(name, lambda: go.wait(PATIENCE), RunningCall(), is_quick=True) for name in "ab"]
        last = threads.start("a", lambda: "last", RunningCall(), is_quick=True)
        assert (await first.outcome(), await last.outcome()) == ("first", "last")
        assert not any(job.finished for job in slow)
        later = [threads.start("a", lambda: "later", RunningCall(), is_quick=True) for _ in range(3)]
        assert [await job.outcome() for job in later] == ["later"] * 3
        go.set()
        assert [await job.outcome() for job in slow] == [True, True]
        with pytest.raises(ZeroDivisionError):
            await threads.start("a", lambda: 1 // 0, RunningCall(), is_quick=True).outcome()

    run(body)


def test_a_task_that_is_cancelled_cancels_its_call_and_waits_for_the_thread() -> None:
    async def body() -> None:
        threads, running, begun, ended = CallThreads(1), RunningCall(), threading.Event(), threading.Event()

        def call() -> None:
            begun.set()
            while not running.cancelled:
                pass
            ended.set()

        task = asyncio.ensure_future(threads.start("a", call, running).outcome())
        await asyncio.to_thread(begun.wait, PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()

    run(body)


def test_a_client_that_is_gone_cancels_the_call_and_one_that_stays_does_not() -> None:
    async def body() -> None:
        gone, there = RunningCall(), RunningCall()

        async def disconnected() -> dict[str, str]:
            return {"type": "http.disconnect"}

        async def silent() -> dict[str, str]:
            await asyncio.Event().wait()
            raise AssertionError

        threads = CallThreads(2)
        with DisconnectWatch(disconnected, gone), DisconnectWatch(silent, there):
            job: ThreadedCall[bool] = threads.start("a", lambda: _until(lambda: gone.cancelled), gone)
            assert await job.outcome()
        assert not there.cancelled

    run(body)


def test_calls_that_hang_are_given_up_and_their_principal_has_threads_until_too_many_are_lost(
    workspace: Workspace,
) -> None:
    async def body() -> None:
        threads, go = CallThreads(1), threading.Event()

        def hanging(principal: str) -> ThreadedCall[bool]:
            running, context = RunningCall(), gate.context(Session(principal, "s"), "the-cid")
            context.limit_time(-3600)
            running.attach(context)
            return threads.start(principal, lambda: go.wait(PATIENCE), running)

        codes: list[str] = []
        while "RESOURCE_BUSY" not in codes:
            hung = [hanging("a") for _ in range(5)]
            for one in hung:
                with pytest.raises(LlmcError) as caught:
                    await one.outcome()
                codes.append(caught.value.code)
        assert set(codes) == {"TIMEOUT", "RESOURCE_BUSY"}
        assert codes.count("TIMEOUT") > GIVEN_UP_AT_MOST
        assert await threads.start("b", lambda: "served", RunningCall()).outcome() == "served"
        go.set()
        while (again := threads.start("a", lambda: "served again", RunningCall())).finished:
            await asyncio.sleep(0)  # let those that come back be noticed
        assert await again.outcome() == "served again"

    with gate_on(workspace.root) as gate:
        run(body)


def test_calls_that_wait_behind_calls_that_hang_are_served_in_their_turn(workspace: Workspace) -> None:
    async def body() -> None:
        threads, go = CallThreads(1), threading.Event()
        for _ in range(8):  # more than run at once
            running, context = RunningCall(), gate.context(Session("a", "s"), "the-cid")
            context.limit_time(-3600)
            running.attach(context)
            threads.start("a", lambda: go.wait(PATIENCE), running)
        served = threads.start("a", lambda: "served", RunningCall())
        assert await served.outcome() == "served"
        go.set()

    with gate_on(workspace.root) as gate:
        run(body)


def _until(condition: Callable[[], bool]) -> bool:
    while not condition():
        pass
    return True
