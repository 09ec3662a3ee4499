"""Helpers that nobody uses end and give their memory back; the next use starts them again, and nobody notices."""

import os
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llmc_mcp.config.schema import Config
from llmc_mcp.files.ripgrep import Query
from llmc_mcp.gate.dispatch import Gate
from llmc_mcp.interpreters.engine import RunLimits

from .support.gates import gate_on, text_of
from .support.processes import processes_below
from .support.talk import Talk, alive, eventually
from .support.workspace import Workspace

NEVER = 3_600.0  # a clock that does not fire during a test: what ends, the test has ended
LIMITS = RunLimits(20.0, 128 << 20, 10_000, 100)


def helpers() -> set[int]:
    """The processes that this one has started and that have not ended."""
    return {pid for pid in processes_below(os.getpid()) if alive(pid)}


@contextmanager
def gate_with_idle_time(workspace: Workspace, seconds: float) -> Generator[Gate]:
    config = Config()
    config.limits.helper_idle_sec = seconds
    with gate_on(workspace.root, config) as gate:
        yield gate


@pytest.fixture
def gate(workspace: Workspace) -> Iterator[Gate]:
    workspace.file("zoo.py", "def paint_zebra():\n    return 'stripes'\n")
    with gate_with_idle_time(workspace, NEVER) as gate:
        yield gate


def use(gate: Gate) -> None:
    """Search, run code and a command, edit: each answers as it should."""
    assert "zebra" in text_of(gate, "linux_search_content", root=".", pattern="paint_zebra")
    assert "42" in text_of(gate, "execute_code", code="6 * 7")
    assert "hello" in text_of(gate, "run_cmd", command="echo hello | cat")
    text_of(gate, "linux_fs_edit", path="zoo.py", old_text="'stripes'", new_text="'stripes'  # two")
    text_of(gate, "linux_fs_edit", path="zoo.py", old_text="'stripes'  # two", new_text="'stripes'")


def test_helpers_end_once_nobody_has_used_them_and_come_back_at_the_next_call(gate: Gate) -> None:
    before = helpers()
    use(gate)
    assert helpers() - before

    def ended() -> bool:
        gate.app.release_idle(0.0)  # again: a check of syntax may go on for a moment after its edit
        return not helpers() - before

    assert eventually(ended)
    use(gate)


def test_helpers_that_were_used_a_moment_ago_stay(gate: Gate) -> None:
    use(gate)
    running = helpers()
    assert not gate.app.release_idle(NEVER)
    assert all(alive(pid) for pid in running)


def test_the_clock_ends_them_by_itself(workspace: Workspace) -> None:
    workspace.file("zoo.py", "def paint_zebra():\n    return 'stripes'\n")
    before = helpers()
    with gate_with_idle_time(workspace, 0.2) as gate:
        for _ in range(2):
            use(gate)
            assert eventually(lambda: not helpers() - before)


def test_a_program_in_the_background_keeps_what_it_needs(workspace: Workspace) -> None:
    with gate_with_idle_time(workspace, NEVER) as gate:
        talk = Talk(gate)
        started = talk.python("while True: print(input('> ').upper())")
        gate.app.release_idle(0.0)
        assert "ZEBRA" in talk.send(started.proc_id, "zebra\n").output
        talk.stop(started.proc_id)


def test_what_is_under_way_is_not_ended(gate: Gate) -> None:
    app = gate.app

    def release() -> None:
        app.release_idle(0.0)

    outcome = app.code.run("release()\n6 * 7", {"release": release}, LIMITS, release)
    assert (outcome.value, outcome.failure) == (42, None)
    place = app.files.locate(".")
    assert app.search.content(place, Query("paint_zebra"), 10, release).total == 1


def test_an_end_and_a_use_at_the_same_moment_never_meet(gate: Gate) -> None:
    app, over = gate.app, threading.Event()
    place = app.files.locate(".")
    failed: list[BaseException] = []

    def release() -> None:
        while not over.is_set():
            app.release_idle(0.0)

    def repeat(once: Callable[[], None]) -> None:
        try:
            for _ in range(15):
                once()
        except BaseException as exc:  # noqa: BLE001 - the test fails with it
            failed.append(exc)

    def search() -> None:
        assert app.search.content(place, Query("paint_zebra"), 10, lambda: None).total == 1

    def run() -> None:
        assert app.code.run("6 * 7", {}, LIMITS, lambda: None).value == 42

    ending = threading.Thread(target=release)
    users = [threading.Thread(target=repeat, args=(once,)) for once in (search, run)]
    for thread in (ending, *users):
        thread.start()
    for thread in users:
        thread.join()
    over.set()
    ending.join()
    assert failed == []


def test_memory_is_given_back_with_the_helpers(gate: Gate, tmp_path: Path) -> None:
    use(gate)
    kept = [bytes(1 << 12) for _ in range(20_000)]
    before = resident()
    del kept
    gate.app.release_idle(0.0)
    assert resident() < before - (40 << 20)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
