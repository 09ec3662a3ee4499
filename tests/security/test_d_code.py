"""D: hostile code in execute_code. The server answers, stays clean, and goes on."""

import os
import re
import select
import shutil
import signal
from collections.abc import Iterator

import pytest

from ..support.client import PATIENCE, Client
from ..support.processes import processes_below, processes_with
from ..support.python_runs import interpreters
from ..support.workspace import SECRET, Workspace, require
from .attack import status_kb

SPARE_KB = 50_000  # what a server may grow by while it is attacked


def run(server: Client, code: str) -> str:
    """The error's message (empty for none); the server must still work afterwards."""
    reply = server.call("execute_code", code=code, timeout=1)
    assert len(reply.text.encode()) <= 10_000
    assert server.call("execute_code", code="6 * 7").meta["result"] == 42
    return reply.meta["message"] if reply.is_error else reply.meta.get("error", {}).get("message", "")


@pytest.mark.parametrize(
    "code", ["while True: pass", "while True:\n    try:\n        x = 1\n    except BaseException:\n        pass"]
)
def test_d01_an_endless_loop_is_stopped(server: Client, code: str) -> None:
    assert "time limit" in run(server, code)


@pytest.mark.parametrize("code", ["10 ** 10_000_000", "x = 3\nwhile True: x *= x"])
def test_d02_a_native_loop_that_misses_the_clock_is_stopped(server: Client, code: str) -> None:
    assert run(server, code)


@pytest.mark.parametrize(
    "code",
    [
        "x = []\nwhile True: x.append('y' * 1_000_000)",
        "'a' * (1 << 40)",
        "bytes(1 << 40)",
        "def f(): return f()\nf()",
        "(" * 5_000 + ")" * 5_000,
        "import re\nre.match('(a+)+$', 'a' * 40 + 'b')",
    ],
)
def test_d03_memory_depth_and_patterns_are_bounded(server: Client, code: str) -> None:
    assert run(server, code) or code.startswith("import re")


def test_d04_a_long_sleep_is_cut_short_and_many_short_ones_add_up(server: Client) -> None:
    run(server, "import time\ntime.sleep(1e9)")
    assert run(server, "import time\nfor _ in range(100): time.sleep(0.5)")


def test_d03_a_value_nested_without_end_is_answered(server: Client) -> None:
    run(server, "x = []\nfor _ in range(100_000): x = [x]\nx")


def test_d05_floods_and_forged_protocol_lines_stay_out_of_the_stream(server: Client) -> None:
    run(server, "while True: print('x' * 10_000)")
    forged = '{"jsonrpc":"2.0","id":1,"result":{"forged":true}}'
    reply = server.call("execute_code", code=f"print({forged!r})")
    assert forged in reply.text
    server.close()
    assert not any(line.startswith(b'{"jsonrpc":"2.0","id":1,"result":{"forged"') for line in server.raw_lines)
    assert all(line.startswith(b'{"jsonrpc":"2.0"') for line in server.raw_lines)


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos.system('id')",
        "import subprocess",
        "import socket",
        "import ctypes",
        "open('/etc/passwd').read()",
        "open('written.txt', 'w').write('x')",
        "import os\nos.environ['HOME']",
        "().__class__.__base__.__subclasses__()",
        "__import__('os')",
        "read_file.__globals__",
        "eval('__import__(\"os\")')",
        "import pathlib\npathlib.Path('/etc/passwd').read_text()",
    ],
)
def test_d06_there_is_no_machine_behind_the_interpreter(workspace: Workspace, server: Client, code: str) -> None:
    assert run(server, code)
    assert list(workspace.root.iterdir()) == []


def test_d07_a_million_calls_end_at_the_budget(server: Client) -> None:
    reply = server.call("execute_code", code="for i in range(1_000_000): health()", timeout=20)
    assert reply.meta["error"]
    assert reply.meta["tool_calls"] <= 1_000


def test_d07_huge_and_odd_arguments_are_ordinary_errors(server: Client) -> None:
    for argument in ("'x' * 1_000_000", "[1] * 100_000", "{'a': {1: 2}}", "None", "1e308", "print"):
        assert run(server, f"read_file({argument})")


def test_d07_code_does_not_call_itself(server: Client) -> None:
    assert "execute_code" in run(server, "execute_code('1')")


def test_d07_the_same_paths_are_closed(workspace: Workspace, server: Client) -> None:
    (workspace.root / "link").symlink_to(workspace.outside)
    for path in ("../outside/secret.txt", "link/secret.txt", str(workspace.outside / "secret.txt")):
        reply = server.call("execute_code", code=f"print(read_file({path!r})['data'])")
        assert SECRET not in reply.text


def test_d10_nothing_is_shared_between_runs(server: Client) -> None:
    server.call("execute_code", code="leftover = 1\nimport json\njson.dumps = None")
    assert "leftover" in run(server, "leftover")
    assert server.call("execute_code", code="import json\njson.dumps([1])").meta["result"] == "[1]"


def test_d11_snapshots_are_not_offered(server: Client) -> None:
    schema = next(tool["inputSchema"] for tool in server.tools() if tool["name"] == "execute_code")
    assert set(schema["properties"]) == {"code", "timeout"}


@pytest.mark.parametrize("whole", [False, True], ids=["the interpreter", "the process that holds it"])
def test_an_engine_that_dies_takes_nothing_with_it(server: Client, whole: bool) -> None:
    assert server.call("execute_code", code="1").meta["result"] == 1
    workers = processes_with("monty_child") if whole else [*interpreters(server.process.pid)]
    workers = [pid for pid in workers if pid in processes_below(server.process.pid)]
    assert workers
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    first = server.call("execute_code", code="2")
    assert first.meta.get("result") == 2 or first.meta.get("error")
    assert server.call("execute_code", code="3").meta["result"] == 3


# A few bytes of code each; written out, the values have gigabytes or no end.
LARGE = {
    "a list of one text": "a = 'x' * 1_000_000\nvalue = [a] * 100_000",
    "lists of lists": "value = [1]\nfor _ in range(64): value = [value, value]",
    "dictionaries": "value = {'k': 'x'}\nfor _ in range(64): value = {'a': value, 'b': value}",
    "tuples and texts": "value = ('x' * 100_000,)\nfor _ in range(64): value = (value, value)",
    "a text": "value = 'x' * 50_000_000",
    "bytes": "value = b'x' * 50_000_000",
    "many bytes": "a = b'x' * 1_000_000\nvalue = [a] * 100_000",
    "a number": "value = 1 << 8_000_000",
    "numbers": "a = 1 << 1_000_000\nvalue = [a] * 100_000",
    "many small values": "value = [[]] * 5_000_000",
    "nesting": "value = []\nfor _ in range(100_000): value = [value]",
}


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Client]]:
    """A server for each engine."""
    require(shutil.which("bwrap") is not None, "bubblewrap")
    root = tmp_path_factory.mktemp("root")
    with (
        Client("--root", str(root)) as monty,
        Client("--root", str(root), "--set", "code_execution.engine=python") as python,
    ):
        yield {"monty": monty, "python": python}


@pytest.mark.parametrize("engine", ["monty", "python"])
@pytest.mark.parametrize("kind", LARGE)
def test_d12_a_value_is_bounded_where_the_code_runs(engines: dict[str, Client], engine: str, kind: str) -> None:
    server, code = engines[engine], LARGE[kind]
    run(server, "1")
    before = status_kb(server.process.pid, "VmHWM")
    run(server, f"{code}\nvalue")
    assert status_kb(server.process.pid, "VmHWM") - before < SPARE_KB


@pytest.mark.parametrize("engine", ["monty", "python"])
@pytest.mark.parametrize("kind", LARGE)
def test_d12_arguments_are_bounded_before_they_leave_the_code(
    engines: dict[str, Client], engine: str, kind: str
) -> None:
    server, code = engines[engine], LARGE[kind]
    run(server, "1")
    before = status_kb(server.process.pid, "VmHWM")
    message = run(server, f"{code}\nread_file(value)")
    assert re.search("TOO_LARGE|MemoryError|time limit|RecursionError|nested|BAD_ARGS|digits", message), message
    assert status_kb(server.process.pid, "VmHWM") - before < SPARE_KB


@pytest.mark.parametrize("engine", ["monty", "python"])
def test_d12_arguments_that_are_too_large_are_an_error_that_code_can_catch(
    engines: dict[str, Client], engine: str
) -> None:
    code = "said = ''\ntry:\n    read_file('x' * 5_000_000)\nexcept RuntimeError as exc:\n    said = str(exc)\nsaid"
    reply = engines[engine].call("execute_code", code=code)
    assert str(reply.meta["result"]).startswith("TOO_LARGE: the arguments of read_file")


@pytest.mark.parametrize("engine", ["monty", "python"])
@pytest.mark.parametrize("end", ["print(value)", "print(*[value] * 100)", "raise ValueError(value)", "{}[str(value)]"])
@pytest.mark.parametrize("kind", ["a list of one text", "lists of lists", "a text", "numbers"])
def test_d12_prints_and_errors_are_bounded(engines: dict[str, Client], engine: str, kind: str, end: str) -> None:
    server = engines[engine]
    run(server, "1")
    before = status_kb(server.process.pid, "VmHWM")
    run(server, f"{LARGE[kind]}\n{end}")
    assert status_kb(server.process.pid, "VmHWM") - before < SPARE_KB


def test_d12_a_diff_of_many_files_is_bounded(server: Client) -> None:
    """Of files that code writes anew, far less is sent than the server would hold."""
    for lines in ("a", "b"):
        text = "".join(f"{lines}{number:08}\\n" for number in range(30_000))
        code = f"for n in range(40): linux_fs_write('%d.txt' % n, '{text}')"
        assert server.call("execute_code", code=code).meta["tool_calls"] == 40
    before = status_kb(server.process.pid, "VmHWM")
    assert not server.call("linux_fs_changes", diff=True).is_error
    assert status_kb(server.process.pid, "VmHWM") - before < SPARE_KB


def test_d13_a_busy_interpreter_does_not_outlive_a_killed_server(workspace: Workspace) -> None:
    code = "linux_fs_write('begun', '')\nwhile True: pass"
    with Client("--root", str(workspace.root), "--set", "code_execution.timeout=600") as server:
        server.start_call("execute_code", {"code": code, "timeout": 600})
        while not (workspace.root / "begun").exists():
            server.call("health")
        family = {pid: os.pidfd_open(pid) for pid in processes_below(server.process.pid)}
        assert interpreters(server.process.pid) <= family.keys()
        os.kill(server.process.pid, signal.SIGKILL)
        try:
            assert all(select.select([process], [], [], PATIENCE)[0] for process in family.values())
        finally:
            for process in family.values():
                os.close(process)
