"""What a server process has: engines that are made once and closed in order, problems that no thread loses."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from llmc_mcp.app import App, EngineProperty, closing_order
from llmc_mcp.config.schema import Config
from llmc_mcp.lifecycle import Problems


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    (tmp_path / "root").mkdir()
    app = App(Config(), [str(tmp_path / "root")], str(tmp_path / "data"))
    yield app
    app.close()


def yielding(frame: FrameType, event: str, arg: object) -> Any:
    """A trace function that lets another thread run before every single instruction: then a race shows."""
    frame.f_trace_opcodes = True
    if event == "opcode":
        time.sleep(0)
    return yielding


@pytest.fixture
def switching_everywhere() -> Iterator[None]:
    """Threads that start within the test take turns between any two instructions."""
    threading.settrace(yielding)
    yield
    threading.settrace(None)  # pyright: ignore[reportArgumentType] - what ends tracing, as documented


def at_once(*work: Callable[[], None]) -> None:
    """Run functions in threads that start together; waits for all of them."""
    start = threading.Barrier(len(work))

    def run(one: Callable[[], None]) -> None:
        start.wait()
        one()

    threads = [threading.Thread(target=run, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_an_engine_is_made_once_however_many_threads_ask(app: App) -> None:
    seen: list[object] = []
    at_once(*[lambda: seen.append(app.lister)] * 16)
    assert len(set(map(id, seen))) == 1


def test_engines_that_nobody_used_are_not_made_to_be_closed(app: App) -> None:
    lister = app.lister
    app.close()
    assert app.lister is not lister
    app.close()


def test_engines_close_before_those_that_must_outlive_them() -> None:
    order = closing_order()
    for name, declared in vars(App).items():
        if isinstance(declared, EngineProperty):
            assert all(order.index(name) < order.index(later) for later in declared.closes_before), name
    closed = [name for name in order if name in ("repls", "code", "rag", "checker", "launcher", "sandbox", "store")]
    assert set(closed[:4]) == {"repls", "code", "rag", "checker"}  # each ends its children itself,
    assert closed.index("launcher") == 4  # then the launcher ends what is left,
    assert set(closed[5:]) == {"sandbox", "store"}  # and nobody uses these any more
    assert order.index("changes") < order.index("store")


def test_closing_really_follows_the_order(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    used = ("store", "changes", "launcher", "sandbox", "repls")
    for name in used:
        made: Any = getattr(app, name)
        close: Callable[[], None] = made.close

        def noted(name: str = name, close: Callable[[], None] = close) -> None:
            closed.append(name)
            close()

        monkeypatch.setattr(made, "close", noted)
    app.close()
    assert closed == [name for name in closing_order() if name in used]


@pytest.mark.usefixtures("switching_everywhere")
def test_no_problem_is_lost_or_reported_twice_while_threads_add_and_drain() -> None:
    problems, drained = Problems(), list[str]()
    lock = threading.Lock()

    def add(worker: int) -> None:
        for number in range(100):
            problems.add(f"{worker}-{number}")

    def drain() -> None:
        mine: list[str] = []
        for _ in range(100):
            mine += problems.drain()
        with lock:
            drained.extend(mine)

    at_once(*[lambda worker=worker: add(worker) for worker in range(4)], *[drain] * 4)
    drained += problems.drain()
    assert Counter(drained) == Counter(f"{worker}-{number}" for worker in range(4) for number in range(100))
