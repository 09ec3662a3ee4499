"""What runs on the machine: seen as configured, signalled only where that can do no harm."""

import importlib
import json
import os
import pwd
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from llmc_mcp.config.schema import Config
from llmc_mcp.errors import InvalidArgument, LlmcError, PermissionDenied, ProcessNotFound
from llmc_mcp.tools.linux_ops.proc import ProcessBranch, ProcessInfo, ProcessList, ProcessTree

from .support.client import PATIENCE, UNASKED, Client
from .support.gates import context, gate_on, text_of
from .support.signals import obey_interrupts
from .support.talk import alive, eventually
from .support.workspace import Workspace

NOBODY = 65534
MARK = "llmc-test-process"
AS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="needs to start a process as another user")


@contextmanager
def process(*argv: str, **options: Any) -> Generator[subprocess.Popen[Any]]:
    """A process of ours that ends with the block."""
    options.setdefault("preexec_fn", obey_interrupts)
    started: subprocess.Popen[Any] = subprocess.Popen(argv or ("sleep", "1000"), **options)
    try:
        yield started
    finally:
        started.kill()
        started.wait()


def listed(root: Path, config: Config | None = None, /, **arguments: object) -> ProcessList:
    with gate_on(root, config) as gate:
        result = gate.call(context(gate), "linux_proc_list", arguments)
    assert isinstance(result, ProcessList)
    return result


def row_of(result: ProcessList, pid: int) -> ProcessInfo | None:
    return next((row for row in result.processes if row.pid == pid), None)


# --- the list ------------------------------------------------------------------------------------------


def test_a_process_is_listed_with_user_use_and_command(tmp_path: Path) -> None:
    with process("sleep", "1234") as one:
        row = row_of(listed(tmp_path, max_results=5000), one.pid)
    assert row is not None
    assert (row.user, row.command) == (pwd.getpwuid(os.getuid()).pw_name, "sleep 1234")
    assert row.cpu_percent >= 0
    assert 0 <= row.mem_percent < 100


def test_cpu_is_a_real_sample(tmp_path: Path) -> None:
    with (
        process("sleep", "1000") as lazy,
        process(sys.executable, "-c", "while True: pass") as busy,
        gate_on(tmp_path) as gate,
    ):

        def share(pid: int) -> float:
            result = gate.call(context(gate), "linux_proc_list", {"max_results": 5000})
            assert isinstance(result, ProcessList)
            row = row_of(result, pid)
            return row.cpu_percent if row else -1.0

        assert eventually(lambda: share(busy.pid) > 5)
        assert share(lazy.pid) == 0


def test_a_name_filters_and_an_order_orders(tmp_path: Path) -> None:
    with process("sleep", "4321") as one, process("sleep", "4321") as two:
        result = listed(tmp_path, name="SLEEP 4321", sort="pid")
        assert [row.pid for row in result.processes] == sorted([one.pid, two.pid])
        assert result.total_processes == 2
    memory = [row.mem_percent for row in listed(tmp_path, sort="mem").processes]
    assert memory == sorted(memory, reverse=True)


def test_more_processes_than_asked_for_are_in_the_handle(tmp_path: Path) -> None:
    with process("sleep", "1000") as one, gate_on(tmp_path, Config(mode="classic")) as gate:
        reply = json.loads(text_of(gate, "linux_proc_list", max_results=1))
        assert (len(reply["processes"]), reply["truncated"]) == (1, True)
        assert reply["total_processes"] > 1
        whole = json.loads(text_of(gate, "linux_handle_read", handle=reply["handle"], grep=f'"pid":{one.pid},'))
        assert "sleep 1000" in whole["content"]


def test_a_zombie_is_listed_as_one(tmp_path: Path) -> None:
    code = "import os, signal\npid = os.fork()\nif pid: print(pid, flush=True), signal.pause()\n"
    with process(sys.executable, "-c", code, stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        assert eventually(lambda: not alive(pid))
        row = row_of(listed(tmp_path, max_results=5000), pid)
        parent.stdout.close()
    assert row is not None
    assert row.command.endswith("<defunct>")


def test_a_long_command_is_cut_and_a_newline_in_it_is_not_a_row(tmp_path: Path) -> None:
    with process(sys.executable, "-c", "import time\ntime.sleep(1000)", MARK * 50) as one:
        row = row_of(listed(tmp_path, max_results=5000), one.pid)
    assert row is not None
    assert len(row.command) == 200
    assert row.command.endswith("…")
    assert "\n" not in row.command


@pytest.mark.filterwarnings("ignore:open_binary is deprecated:DeprecationWarning")  # bpe_openai's own
def test_a_lean_row_costs_at_most_20_tokens(tmp_path: Path) -> None:
    encoding: Any = importlib.import_module("bpe_openai").get_encoding("o200k_base")
    with gate_on(tmp_path) as gate:
        _, *rows = text_of(gate, "linux_proc_list").split("\n")
    rows = [row for row in rows if row]
    assert len(rows) > 5
    assert sum(len(encoding.encode(f"{row}\n")) for row in rows) / len(rows) <= 20


# --- whose processes -----------------------------------------------------------------------------------


@AS_ROOT
def test_only_the_own_users_processes_are_seen_unless_configured(tmp_path: Path) -> None:
    with process("sleep", "1000", user=NOBODY, group=NOBODY) as other:
        hidden = listed(tmp_path, max_results=5000)
        assert row_of(hidden, other.pid) is None
        assert hidden.total_processes == len(hidden.processes)
        for key in ("list_all_users", "allow_kill_other_users"):
            config = Config()
            setattr(config.linux_ops.process_limits, key, True)
            row = row_of(listed(tmp_path, config, max_results=5000), other.pid)
            assert row is not None
            assert row.user == pwd.getpwuid(NOBODY).pw_name
            only = listed(tmp_path, config, max_results=5000, user=row.user)
            assert {row.user for row in only.processes} == {row.user}


@AS_ROOT
def test_asking_for_another_user_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PermissionDenied, match="are not shown"):
        listed(tmp_path, user="nobody")
    with pytest.raises(InvalidArgument, match="no user"):
        listed(tmp_path, user="nobody-of-that-name")
    assert listed(tmp_path, user="root").total_processes > 0


# --- signals: every guard rail -------------------------------------------------------------------------


@pytest.fixture
def server(workspace: Workspace) -> Iterator[Client]:
    with Client("--root", str(workspace.root), *UNASKED) as client:
        yield client


def kill(server: Client, pid: int, name: str = "TERM") -> str:
    return server.call("linux_proc_kill", pid=pid, signal=name).code


def test_pid_1_is_not_killed(server: Client) -> None:
    assert kill(server, 1) == "KILL_FORBIDDEN"


def test_the_server_is_not_killed(server: Client) -> None:
    assert kill(server, server.process.pid, "KILL") == "KILL_FORBIDDEN"
    assert not server.call("health").is_error


def test_ancestors_of_the_server_are_not_killed(server: Client) -> None:
    for pid in (os.getpid(), os.getppid()):
        assert kill(server, pid) == "KILL_FORBIDDEN"


def test_an_unknown_signal_is_an_invalid_argument(server: Client) -> None:
    reply = server.call("linux_proc_kill", pid=os.getpid(), signal="STOP")
    assert reply.code == "INVALID_ARGUMENT"
    assert "TERM, KILL, INT, HUP" in reply.text
    assert server.call("linux_proc_stop", proc_id="P_x", signal="usr1").code == "INVALID_ARGUMENT"


def test_signals_alone_can_be_switched_off(workspace: Workspace) -> None:
    with Client("--root", str(workspace.root), "--set", "linux_ops.features.kill_enabled=false") as client:
        reply = client.call("linux_proc_kill", pid=os.getpid(), signal="HUP")
        assert reply.code == "FEATURE_DISABLED"
        assert "kill_enabled" in reply.text
        assert not client.call("linux_proc_list").is_error


def test_zero_and_negative_numbers_are_not_killed(server: Client) -> None:
    for pid in (0, -1, -os.getpid(), -(2**31)):
        assert kill(server, pid) == "KILL_FORBIDDEN"


def test_the_servers_own_launcher_is_not_killed(server: Client) -> None:
    server.call("run_cmd", command="true")
    children = Path(f"/proc/{server.process.pid}/task").glob("*/children")
    pids = [int(word) for path in children for word in path.read_text().split()]
    assert pids
    assert {kill(server, pid, "KILL") for pid in pids} == {"KILL_FORBIDDEN"}


def test_a_part_of_the_kernel_is_not_killed(server: Client) -> None:
    if not Path("/proc/2/cmdline").exists() or Path("/proc/2/cmdline").read_bytes():
        pytest.skip("no kernel threads are visible here")
    assert kill(server, 2) in ("KILL_FORBIDDEN", "PERMISSION_DENIED")


@AS_ROOT
def test_another_users_process_is_not_killed_unless_configured(server: Client, workspace: Workspace) -> None:
    with process("sleep", "1000", user=NOBODY, group=NOBODY) as other:
        refused = server.call("linux_proc_kill", pid=other.pid)
        assert refused.code == "PERMISSION_DENIED"
        assert "allow_kill_other_users" in refused.meta["hint"]
        assert other.poll() is None
        setting = "linux_ops.process_limits.allow_kill_other_users=true"
        with Client("--root", str(workspace.root), *UNASKED, "--set", setting) as bold:
            assert bold.call("linux_proc_kill", pid=other.pid).meta["success"] is True
        assert other.wait(PATIENCE) == -signal.SIGTERM


def test_a_process_that_does_not_exist_is_not_found(server: Client) -> None:
    with process("true") as gone:
        gone.wait(PATIENCE)
        assert kill(server, gone.pid) == "PROCESS_NOT_FOUND"
    assert kill(server, 2**22 + 1) == "PROCESS_NOT_FOUND"
    assert kill(server, 2**40) in ("PROCESS_NOT_FOUND", "BAD_ARGS")


def test_a_thread_is_not_a_process(server: Client) -> None:
    code = """
import signal, threading
thread = threading.Thread(target=threading.Event().wait, daemon=True)
thread.start()
print(thread.native_id, flush=True)
signal.pause()
"""
    with process(sys.executable, "-c", code, stdout=subprocess.PIPE) as one:
        assert one.stdout
        thread = int(one.stdout.readline())
        assert kill(server, thread, "KILL") == "PROCESS_NOT_FOUND"
        assert one.poll() is None
        one.stdout.close()


@pytest.mark.parametrize("name", ["9; rm", "SIGTERM", "STOP", "0", "65", "-1", "term", ""])
def test_a_signal_is_one_of_four(server: Client, name: str) -> None:
    with process() as one:
        assert kill(server, one.pid, name) == "INVALID_ARGUMENT"
        assert one.poll() is None


@pytest.mark.parametrize("number", [0, 65, -1, 9])
def test_a_signal_is_not_a_number(server: Client, number: int) -> None:
    with process() as one:
        assert server.call("linux_proc_kill", pid=one.pid, signal=number).code == "BAD_ARGS"
        assert one.poll() is None


@pytest.mark.parametrize("name", ["TERM", "KILL", "INT", "HUP"])
def test_each_signal_arrives_and_what_came_of_it_is_told(server: Client, name: str) -> None:
    with process() as one:
        reply = server.call("linux_proc_kill", pid=one.pid, signal=name).meta
        assert reply["success"] is True
        assert reply["message"].startswith(f"Sent SIG{name} to pid {one.pid}; it ")
        assert one.wait(PATIENCE) == -signal.Signals[f"SIG{name}"]


def test_a_process_that_ignores_a_signal_is_said_to_run(server: Client) -> None:
    code = "import signal; signal.signal(15, signal.SIG_IGN); print(flush=True)\nwhile True: signal.pause()"
    with process(sys.executable, "-c", code, stdout=subprocess.PIPE) as deaf:
        assert deaf.stdout
        deaf.stdout.readline()
        assert server.call("linux_proc_kill", pid=deaf.pid).meta["message"].endswith("it still runs")
        assert server.call("linux_proc_kill", pid=deaf.pid, signal="KILL").meta["message"].endswith("it has ended")
        deaf.stdout.close()


def test_switched_off_process_tools_do_nothing(workspace: Workspace) -> None:
    with (
        process() as one,
        Client("--root", str(workspace.root), "--set", "linux_ops.features.proc_enabled=false") as quiet,
    ):
        for tool, arguments in {
            "linux_proc_list": {},
            "linux_proc_tree": {},
            "linux_proc_kill": {"pid": one.pid},
        }.items():
            assert quiet.call(tool, **arguments).code == "FEATURE_DISABLED"
        assert one.poll() is None


# --- the tree ------------------------------------------------------------------------------------------


def branch_of(branches: list[ProcessBranch], pid: int) -> ProcessBranch | None:
    for branch in branches:
        found = branch if branch.pid == pid else branch_of(branch.children, pid)
        if found is not None:
            return found
    return None


def test_children_are_below_their_parents(tmp_path: Path) -> None:
    with process("sleep", "1000") as child, gate_on(tmp_path) as gate:
        result = gate.call(context(gate), "linux_proc_tree", {"pid": os.getpid()})
        assert isinstance(result, ProcessTree)
        (top,) = result.tree
        assert top.pid == os.getpid()
        assert branch_of(top.children, child.pid) is not None
        lines = text_of(gate, "linux_proc_tree", pid=os.getpid()).split("\n")
        assert f" {child.pid} sleep 1000" in lines
        with pytest.raises(ProcessNotFound):
            gate.call(context(gate), "linux_proc_tree", {"pid": 2**22 + 1})


def test_a_tree_that_is_too_big_is_cut_at_its_leaves(tmp_path: Path) -> None:
    config = Config(mode="classic")
    config.limits.max_reply_bytes = 1_000
    with process("sleep", "1000", "0.01"), gate_on(tmp_path, config) as gate:
        reply = json.loads(text_of(gate, "linux_proc_tree"))
        assert reply["truncated"] is True
        whole = json.loads(text_of(gate, "linux_handle_read", handle=reply["handle"], grep="sleep 1000 0.01"))
        assert "sleep 1000 0.01" in whole["content"]


def test_two_looks_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    with gate_on(tmp_path) as gate:
        failures: list[LlmcError] = []

        def look() -> None:
            try:
                gate.call(context(gate), "linux_proc_list", {})
            except LlmcError as exc:
                failures.append(exc)

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
