"""execute_code with engine = "python": a real CPython in the sandbox, the tools as functions in it."""

import glob
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmc_mcp.errors import Cancelled, FeatureUnavailable, IsolationRequired
from llmc_mcp.kernel.scratch import remove_tree
from llmc_mcp.sandbox import sandbox, selftest

from ..support.client import Client
from ..support.processes import processes_with
from ..support.python_runs import LEVELS, Runs, run, runs
from ..support.workspace import SECRET, Workspace, hand_over, require

__all__ = ["run", "runs"]  # the fixtures


def _sleeper(mark: str) -> list[str]:
    """A command that outlives everybody and can be told from others."""
    return ["bash", "-c", "sleep 1000; true", mark]


# --- a run -------------------------------------------------------------------------------------------


def test_it_is_cpython_with_its_whole_standard_library(runs: Runs) -> None:
    code = """
import sqlite3, subprocess, dataclasses, statistics, sys

class Base: pass

@dataclasses.dataclass
class Point(Base):
    x: int

def squares():
    yield from (n * n for n in range(4))

done = subprocess.run(["echo", "from a child"], capture_output=True, text=True)
[sys.implementation.name, Point(3).x, list(squares()), done.stdout, statistics.mean([1, 2])]
"""
    assert runs.value(code) == ["cpython", 3, [0, 1, 4, 9], "from a child\n", 1.5]


def test_both_streams_come_back_in_the_order_of_printing(runs: Runs) -> None:
    code = "import os, sys\nprint('one')\nprint('two', file=sys.stderr)\nos.system('echo three')\nprint('four')"
    outcome = runs(code)
    assert (outcome.stdout, outcome.value, outcome.failure) == ("one\ntwo\nthree\nfour\n", None, None)


def test_values_without_a_json_form_are_shown_as_text(run: Runs) -> None:
    assert run.value("{'a': [1, None, 2.5], 'b': (1, 2), 3: 10 ** 30}") == {
        "a": [1, None, 2.5],
        "b": [1, 2],
        "3": 10**30,
    }
    assert run.value("[{1}, object]") == ["{1}", "<class 'object'>"]
    assert run.value("[float('nan')]") == "[nan]"
    assert run.value("{(1, 2): 3}") == "{(1, 2): 3}"
    assert run.value("'\\ud800'") == "?"


def test_functions_get_their_arguments_and_their_failures_are_exceptions(run: Runs) -> None:
    seen: list[tuple[tuple[object, ...], dict[str, object]]] = []

    def note(*values: object, **named: object) -> object:
        seen.append((values, named))
        return {"got": len(values), "text": "ä\u2028"}

    def fail() -> object:
        raise RuntimeError("NOT_FOUND: nope")

    code = """
import pathlib
first = note(1, pathlib.Path("a/b"), tags={"x"}, what=note)
try:
    fail()
except RuntimeError as exc:
    second = str(exc)
[first, second]
"""
    assert run.value(code, {"note": note, "fail": fail}) == [{"got": 2, "text": "ä\u2028"}, "NOT_FOUND: nope"]
    assert seen == [((1, "a/b"), {"tags": ["x"], "what": "note"})]
    failure = run("x = 1\nnote(object())", {"note": note}).failure
    assert failure
    assert (failure.message, failure.line, failure.source) == ("TypeError: a tool takes no object", 2, "note(object())")


def test_threads_may_call_tools_and_are_waited_for(run: Runs) -> None:
    code = """
import threading
def work(number):
    print(double(number))
for number in range(5):
    threading.Thread(target=work, args=(number,)).start()
"""

    def double(number: int) -> object:
        return number * 2

    outcome = run(code, {"double": double})
    assert sorted(outcome.stdout.split()) == ["0", "2", "4", "6", "8"]


@pytest.mark.parametrize(
    ("code", "message", "line"),
    [
        ("a = 1\nb = (", "SyntaxError: '(' was never closed", 2),
        ("def f():\n    return missing\n\nf()", "NameError: name 'missing' is not defined", 2),
        ("import json\njson.loads('{')", "JSONDecodeError: Expecting property name", 2),
        ("import sys\nsys.exit(3)", "SystemExit: 3", 2),
        ("def f(): f()\nf()", "RecursionError: maximum recursion depth exceeded", 1),
        ("raise KeyboardInterrupt", "KeyboardInterrupt", 1),
        ("x = bytearray(1 << 31)", "MemoryError", 1),
    ],
)
def test_what_goes_wrong_is_told_with_the_line_of_the_agents_code(
    run: Runs, code: str, message: str, line: int
) -> None:
    failure = run(code).failure
    assert failure
    assert failure.message.startswith(message)
    assert failure.line == line
    assert failure.source == code.splitlines()[line - 1].strip()


def test_an_exit_that_means_success_is_one(run: Runs) -> None:
    assert run("print('a')\nexit()\nprint('b')")[:3] == ("a\n", b"null", None)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import numpy_is_not_here", "mcp.sandbox.extra_read"),
        ("open('nope.txt')", "read_file(path)"),
        ("raed_file('x')", "Did you mean read_file?"),
        ("import urllib.request\nurllib.request.urlopen('http://127.0.0.1:9/')", "llmc allow network"),
    ],
)
def test_what_is_not_in_there_comes_with_a_way_around(runs: Runs, code: str, words: str) -> None:
    if "urllib" in code and runs.level == "workspace":
        code = code.replace("127.0.0.1", "192.0.2.1")  # inside there is a loopback of its own
    failure = runs(code, {"read_file": str}).failure
    assert failure
    assert words in (failure.hint or ""), failure


# --- its limits --------------------------------------------------------------------------------------


def test_what_was_printed_before_the_time_was_up_is_kept(run: Runs) -> None:
    outcome = run("print('begun')\nwhile True: pass", seconds=1.5)
    assert outcome.stdout == "begun\n"
    assert outcome.failure
    assert "time limit exceeded: the code ran longer than 1.5 s" in outcome.failure.message


def test_a_cancelled_run_ends_with_all_it_started(runs: Runs) -> None:
    mark = f"llmc-mark-{os.urandom(6).hex()}"
    started = threading.Event()

    def check() -> None:
        if started.is_set() and processes_with(mark):
            raise Cancelled("no longer wanted")

    code = f"import subprocess\nsubprocess.Popen({_sleeper(mark)})\nbegun()\nwhile True: pass"
    with pytest.raises(Cancelled):
        runs(code, {"begun": started.set}, check=check)
    assert processes_with(mark) == []


def test_more_output_than_is_kept_is_counted(run: Runs) -> None:
    outcome = run("print('ä' * 1000, end='')", output_bytes=101)
    assert outcome.stdout == "ä" * 50
    assert outcome.cut_bytes == 1899
    long = run("'x' * 100_000", output_bytes=1000)
    assert long.value == "x" * 1000
    assert long.cut_bytes == 99_000


def test_the_number_of_calls_is_limited(run: Runs) -> None:
    counted: list[int] = []
    code = "while True:\n    try:\n        call()\n    except BaseException:\n        pass"
    message = run.message(code, {"call": lambda: counted.append(1)}, calls=7)
    assert message == "the run was ended: too many tool calls"
    assert len(counted) == 7


def test_a_fork_has_no_tools(run: Runs) -> None:
    code = """
import os
pid = os.fork()
if pid == 0:
    try:
        call()
    except RuntimeError as exc:
        print(exc)
    os._exit(0)
os.waitpid(pid, 0)
call()
"""
    called: list[int] = []
    outcome = run(code, {"call": lambda: called.append(1)})
    assert "tools can be called from the process that runs the code" in outcome.stdout
    assert called == [1]


# --- its files ---------------------------------------------------------------------------------------


def test_files_that_code_writes_are_gone_and_the_outcome_names_them(runs: Runs) -> None:
    before = set(glob.glob(f"{tempfile.gettempdir()}/llmc-*"))
    code = "import os\nopen('a.csv', 'w').write('x')\nos.mkdir('out')\nos.listdir('.')"
    outcome = runs(code)
    assert sorted(outcome.value) == ["a.csv", "out"]  # pyright: ignore[reportArgumentType]
    assert outcome.files == ("a.csv", "out")
    assert runs.value("import os\nos.listdir('.')") == []
    assert not [
        path for path in set(glob.glob(f"{tempfile.gettempdir()}/llmc-*")) - before if os.path.exists(f"{path}/code")
    ]


def test_packages_come_from_environments_that_the_operator_names(tmp_path: Path) -> None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    package = tmp_path / "venv" / "lib" / version / "site-packages" / "special.py"
    package.parent.mkdir(parents=True)
    package.write_text("ANSWER = 42\n")
    hand_over(tmp_path / "venv")
    for level in LEVELS:
        runs = Runs(level, extra_read=(str(tmp_path / "venv"),))
        try:
            assert runs.value("import special\nspecial.ANSWER") == 42
        finally:
            runs.close()


def test_a_folder_is_removed_however_deep_and_whatever_its_modes(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    top = tmp_path / "top"
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(1200):  # more than a recursion may be deep
        os.mkdir("d", dir_fd=here)
        deeper = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.symlink(outside, "link", dir_fd=here)
    os.mkfifo("fifo", dir_fd=here)
    os.close(here)
    (top / "closed").mkdir()
    (top / "closed" / "file").write_text("x")
    (top / "closed").chmod(0)
    (top / "link").symlink_to(outside)
    remove_tree(str(top))
    assert not top.exists()
    assert (outside / "kept").read_text() == "x"


@pytest.mark.parametrize("level", LEVELS)
def test_code_runs_as_the_user_whom_the_operator_names(level: str) -> None:
    require(os.getuid() == 0, "a test run as root")
    runs = Runs(level, run_as="nobody")
    try:
        outcome = runs("import os\nos.mkdir('closed')\nos.chmod('closed', 0)\n[os.getuid(), f(1)]", {"f": int})
        assert outcome.value == [65534, 1], outcome
    finally:
        runs.close()


# --- who may run it ----------------------------------------------------------------------------------


def test_where_commands_are_not_confined_nothing_runs() -> None:
    runs = Runs("off")
    try:
        with pytest.raises(IsolationRequired, match='level is "off"'):
            runs("1")
    finally:
        runs.close()


def test_a_sandbox_that_fails_its_test_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_level(name: str, profile: object) -> Any:
        raise FeatureUnavailable(f"{name} is broken")

    monkeypatch.setattr(sandbox, "make_level", no_level)
    runs = Runs("auto")
    try:
        with pytest.raises(IsolationRequired, match="nothing would confine them") as caught:
            runs("1")
        assert "LLMC_ISOLATED=1" in str(caught.value.hint)
    finally:
        runs.close()


def test_a_level_at_which_code_could_end_the_server_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    def older_kernel(*arguments: object) -> selftest.ProbeOutcome:
        return selftest.ProbeOutcome(["write_outside"], ["signal_server"])

    monkeypatch.setattr(selftest, "run", older_kernel)
    for vouched in (False, True):
        runs = Runs("landlock", vouched=vouched)
        try:
            if vouched:
                assert runs.engine.warm() == "CPython, unconfined: LLMC_ISOLATED=1"
            else:
                with pytest.raises(IsolationRequired, match=r"could end the server; bubblewrap, or Linux 6\.12"):
                    runs("1")
        finally:
            runs.close()


def test_an_operator_who_vouches_gets_his_way_but_not_where_commands_are_off() -> None:
    vouched = Runs("off", vouched=True)
    try:
        assert vouched.value("import os\nopen('f', 'w').write('x')\nos.listdir('.')") == ["f"]
    finally:
        vouched.close()
    read_only = Runs("read_only", vouched=True)
    try:
        with pytest.raises(IsolationRequired, match="switched commands off"):
            read_only("1")
    finally:
        read_only.close()


def test_the_word_of_the_operator_is_the_servers_environment(workspace: Workspace) -> None:
    workspace.file("llmc.toml", "[mcp]\nmode = 'hybrid'\n")
    arguments = ("--root", str(workspace.root), "--set", "code_execution.engine=python", "--set", "sandbox.level=off")
    for word, code in (("0", "ISOLATION_REQUIRED"), ("1", "")):
        with Client(*arguments, env={"LLMC_ISOLATED": word}) as client:
            assert client.call("execute_code", code="6 * 7").code == code


# --- through the server ------------------------------------------------------------------------------


@pytest.fixture
def server(workspace: Workspace) -> Iterator[Client]:
    with Client("--root", str(workspace.root), "--set", "code_execution.engine=python") as client:
        yield client


def test_every_tool_is_a_function_and_passes_the_gate(workspace: Workspace, server: Client) -> None:
    workspace.file("a.txt", "hello\n")
    workspace.file(".env", f"X={SECRET}\n")
    code = """
errors = []
for path in (".env", "../outside/secret.txt"):
    try:
        print(read_file(path))
    except RuntimeError as exc:
        errors.append(str(exc).split(":")[0])
linux_fs_write("kept.txt", read_file("a.txt")["data"].upper())
open("lost.txt", "w").write("x")
[errors, any(row.startswith("read_file(path") for row in tools()), "returns:" in help(read_file)]
"""
    reply = server.call("execute_code", code=code)
    assert reply.meta["result"] == [["PERMISSION_DENIED", "INVALID_PATH"], True, True]
    assert reply.meta["tool_calls"] == 4
    assert reply.meta["note"] == "Gone with the run: lost.txt. Persist files with linux_fs_write."
    assert (workspace.root / "kept.txt").read_text() == "HELLO\n"
    assert not (workspace.root / "lost.txt").exists()
    assert SECRET not in reply.text


def test_a_call_that_is_taken_back_ends_its_code(server: Client) -> None:
    mark = f"llmc-mark-{os.urandom(6).hex()}"
    code = f"import subprocess\nsubprocess.Popen({_sleeper(mark)})\nwhile True: pass"
    call = server.start_call("execute_code", {"code": code})
    while not processes_with(mark):
        server.call("health")
    server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call}})
    while processes_with(mark):
        server.call("health")
    assert server.call("execute_code", code="1").meta["result"] == 1
