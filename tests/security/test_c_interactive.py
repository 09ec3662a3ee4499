"""Processes by their number and programs on a terminal under attack: C09 to C11 and C17 to C22."""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmc_mcp.config.schema import Config
from llmc_mcp.errors import KillForbidden, PermissionDenied, ProcessNotFound
from llmc_mcp.machine.processes import Processes, Visible

from ..support.client import PATIENCE, Client
from ..support.talk import Talk, alive, eventually, talk_on
from ..support.workspace import SECRET, Workspace, require
from .arena import LEVELS, pids_with, wait_until_gone
from .attack import assert_alive

NOBODY = 65534


def unhurried() -> None:
    """A call that nobody takes back."""


@pytest.fixture(params=LEVELS)
def talk(request: pytest.FixtureRequest, workspace: Workspace) -> Iterator[Talk]:
    require(request.param == "landlock" or shutil.which("bwrap") is not None, "bubblewrap")
    with talk_on(workspace.root, level=request.param) as talk:
        yield talk


@pytest.fixture
def processes() -> Processes:
    return Processes(Visible(frozenset({os.getuid()}), list_others=False, kill_others=False))


# --- C09 to C11: signals -------------------------------------------------------------------------------


@pytest.mark.parametrize("pid", [0, 1, -1, -2, -(2**40)])
def test_c09_numbers_that_mean_more_than_one_process_are_refused(processes: Processes, pid: int) -> None:
    with pytest.raises(KillForbidden):
        processes.kill(pid, "KILL", unhurried)


def test_c09_the_server_and_all_above_it_are_refused(processes: Processes) -> None:
    pid = os.getpid()
    while pid > 0:
        with pytest.raises((KillForbidden, PermissionDenied)):
            processes.kill(pid, "KILL", unhurried)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.skipif(os.getuid() != 0, reason="needs a process of another user")
def test_c09_neither_real_nor_effective_user_may_be_another(processes: Processes) -> None:
    for user, code in ((NOBODY, ""), (None, f"import os; os.seteuid({NOBODY}); ")):
        argv = [sys.executable, "-S", "-c", f"{code}print(flush=True); import signal; signal.pause()"]
        if user is not None:
            argv = ["/bin/sh", "-c", "echo; exec sleep 1000"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, user=user) as other:
            assert other.stdout
            other.stdout.readline()
            with pytest.raises(PermissionDenied):
                processes.kill(other.pid, "TERM", unhurried)
            other.kill()


def test_c10_a_number_that_is_given_away_again_is_never_hit(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends between the check and the signal; whoever has its number then gets nothing."""
    grandchild = subprocess.Popen(["/bin/sh", "-c", "sleep 1000 & echo $!; wait"], stdout=subprocess.PIPE)
    assert grandchild.stdout
    pid = int(grandchild.stdout.readline())
    sent: list[int] = []

    def note(number: int, _: int) -> None:
        sent.append(number)

    monkeypatch.setattr(os, "kill", note)
    real = Processes._refuse_foreign  # pyright: ignore[reportPrivateUsage]

    def then_it_ends(self: Processes, number: int) -> None:
        real(self, number)
        handle = os.pidfd_open(number)
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        assert wait_until_gone([handle])

    monkeypatch.setattr(Processes, "_refuse_foreign", then_it_ends)
    with pytest.raises(ProcessNotFound):
        processes.kill(pid, "KILL", unhurried)
    assert sent == []
    grandchild.wait(PATIENCE)
    grandchild.stdout.close()


@pytest.mark.parametrize("name", [0, 65, -1, 9, "9; rm", "SIGKILL", "RTMIN", "KILL\n", None, ["KILL"]])
def test_c11_a_signal_that_is_none_is_refused(server: Client, name: object) -> None:
    with subprocess.Popen(["sleep", "1000"]) as one:
        try:
            for tool, target in (("linux_proc_kill", {"pid": one.pid}), ("linux_proc_stop", {"proc_id": "P_x"})):
                refused = "INVALID_ARGUMENT" if isinstance(name, str) else "BAD_ARGS"
                assert server.call(tool, **target, signal=name).code == refused
            assert one.poll() is None
        finally:
            one.kill()


# --- C16: owners ---------------------------------------------------------------------------------------


def test_c16_a_program_cannot_be_reached_by_guessing(talk: Talk) -> None:
    known = talk.start("cat").proc_id
    ids = {talk.start("cat").proc_id for _ in range(2)} | {known}
    assert all(len(proc_id) >= 16 for proc_id in ids)
    for guess in ("", "P_", known[:-1], known.lower()[2:], known + "0", "P_%", "../" + known, "\0"):
        assert talk.read(guess, wait_ms=0).state == "no_such_process"


# --- C17 to C21: the terminal --------------------------------------------------------------------------


@pytest.mark.parametrize("program", ["python3", "bash"])
def test_c17_an_interrupt_ends_a_busy_loop_and_nothing_else(talk: Talk, program: str) -> None:
    started = talk.start(program)
    loop = {"python3": "while True: pass", "bash": "while :; do :; done"}[program]
    busy = talk.send(started.proc_id, loop, wait_ms=100)
    assert (busy.state, busy.waiting_for_input) == ("running", False)
    assert talk.send(started.proc_id, "\x03").waiting_for_input is True
    answer = {"python3": "print(6 * 7)", "bash": "echo $((6 * 7))"}[program]
    assert talk.send(started.proc_id, answer).output.startswith("42\n")


@pytest.mark.parametrize("length", [4_094, 4_095, 4_096, 4_097, 5_000, 70_000])
def test_c18_a_long_line_arrives_whole(talk: Talk, length: int) -> None:
    counting = "import sys\nfor line in sys.stdin: print(len(line), flush=True)"
    started = talk.start(["python3", "-c", counting])
    assert talk.send(started.proc_id, "x" * length).output == f"{length + 1}\n"
    assert talk.send(started.proc_id, "short").output == "6\n"


def test_c19_no_printed_text_is_taken_for_a_prompt(talk: Talk) -> None:
    script = """
import time
for prompt in ('>>> ', '... ', '$ ', '# ', 'mysql> ', '(Pdb) ', 'In [1]: ', 'Continue? [y/N] ', '\\x1b[6n'):
    print(prompt, end='', flush=True)
    time.sleep(0.02)
input('the real one: ')
"""
    started = talk.python(script)
    assert started.first_output.endswith("the real one: ")
    assert started.decided_by is not None


def test_c19_a_program_cannot_answer_for_another(talk: Talk) -> None:
    """A thread that reads something else, on the descriptor that the terminal had, is not waiting for input."""
    script = "import os; print('up', flush=True); os.dup2(os.pipe()[0], 0); os.read(0, 1)"
    started = talk.python_asleep(script, "up\n")
    read = talk.read(started.proc_id, wait_ms=0)
    assert (started.first_output, read.output, read.waiting_for_input) == ("up\n", "", False)


def test_c20_end_of_input_ends_and_echo_is_single(talk: Talk) -> None:
    started = talk.start("cat")
    assert talk.send(started.proc_id, "once").output == "once\n"
    ended = talk.send(started.proc_id, "^D")
    assert (ended.output, ended.state, ended.exit_code) == ("", "exited", 0)


def test_c20_a_program_that_closes_its_terminal_is_still_known(talk: Talk) -> None:
    script = "import os, signal; print('bye'); [os.close(n) for n in (0, 1, 2)]; signal.pause()"
    started = talk.python_asleep(script, "bye\n")
    read = talk.read(started.proc_id, wait_ms=0)
    assert (started.first_output, read.output, read.state) == ("bye\n", "", "running")
    assert talk.stop(started.proc_id).stopped
    assert not alive(started.pid)


@pytest.mark.parametrize("length", [3_999, 4_000, 4_095, 5_000, 70_000])
def test_c27_end_of_input_arrives_after_a_long_line(talk: Talk, length: int) -> None:
    started = talk.start("cat")
    assert talk.send(started.proc_id, "x" * length).waiting_for_input is True
    ended = talk.send(started.proc_id, "^D")
    assert (ended.state, ended.exit_code) == ("exited", 0)


@pytest.mark.parametrize("length", [5_000, 70_000])
def test_c27_end_of_input_arrives_though_the_program_was_busy_when_it_was_typed(
    talk: Talk, workspace: Workspace, length: int
) -> None:
    os.mkfifo(workspace.root / "go")
    script = "import sys; open('go').close(); print([len(line) for line in sys.stdin])"
    started = talk.python(script, wait_ms=0)
    for typed in ("x" * length, "short", "y" * length, "^D"):
        talk.send(started.proc_id, typed, wait_ms=0)
    (workspace.root / "go").write_text("")
    assert talk.rest(started.proc_id) == f"[{length + 1}, 6, {length + 1}]\n"


def test_c27_an_interrupt_does_not_wait_behind_a_long_line(talk: Talk) -> None:
    started = talk.start("python3")
    talk.send(started.proc_id, "import termios, time; time.sleep(1000)", wait_ms=100)
    talk.send(started.proc_id, "x" * 5_000, wait_ms=0)
    assert "KeyboardInterrupt" in talk.send(started.proc_id, "^C").output
    assert talk.send(started.proc_id, "print(6 * 7)").output.startswith("42\n")


def test_c21_a_read_without_output_returns_at_its_deadline(talk: Talk) -> None:
    started = talk.python("import time; time.sleep(1000)", wait_ms=0)
    began = time.monotonic()
    silent = talk.read(started.proc_id, wait_ms=200)
    assert time.monotonic() - began >= 0.2
    assert (silent.output, silent.state, silent.waiting_for_input) == ("", "running", False)


def test_c21_characters_and_sequences_split_anywhere_come_out_whole(talk: Talk) -> None:
    script = """
import os
for byte in 'a é \\u20ac \\U0001f600 \\x1b[1;31mred\\x1b[0m z'.encode():
    os.write(1, bytes([byte]))
    input()
"""
    started = talk.python(script)
    said = started.first_output
    while True:
        turn = talk.send(started.proc_id, "")
        said += turn.output
        if turn.state == "exited":
            break
    assert said == "a é € 😀 red z"


def test_a_program_cannot_type_for_the_user(talk: Talk) -> None:
    """TIOCSTI and TIOCLINUX put keys into a terminal's input."""
    script = """
import fcntl
for request, argument in ((0x5412, b'x'), (0x541c, b'\\x02')):
    try:
        fcntl.ioctl(0, request, argument)
        print('typed')
    except OSError as exc:
        print('refused')
input()
"""
    started = talk.python(script)
    assert started.first_output == "refused\nrefused\n"


def test_a_flood_leaves_the_server_responsive_and_small(workspace: Workspace) -> None:
    with Client("--root", str(workspace.root), "--mode", "classic") as client:
        proc_id = client.call("linux_proc_start", command="cat /dev/zero", wait_ms=0).meta["proc_id"]
        before = memory_kb(client.process.pid)
        for _ in range(5):
            assert not client.call("linux_proc_read", proc_id=proc_id, timeout_ms=100).is_error
            assert_alive(client)
        assert memory_kb(client.process.pid) - before < 20_000
        assert client.call("linux_proc_stop", proc_id=proc_id).meta["stopped"] is True


def memory_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def sleeper(mark: str) -> str:
    """A shell command that sleeps under a name that `pids_with` finds."""
    return f"bash -c 'sleep 1000; :' {mark}"


# --- C22: cancelled ------------------------------------------------------------------------------------


def test_c22_a_cancelled_command_dies_with_its_tree_and_is_not_answered(server: Client, workspace: Workspace) -> None:
    mark = f"llmc-{secrets.token_hex(8)}"
    os.mkfifo(workspace.root / "go")
    script = f"setsid {sleeper(mark)} & echo > go; {sleeper(mark)}; wait"
    call_id = server.start_call("run_cmd", {"command": ["bash", "-c", script], "timeout": 60})
    (workspace.root / "go").read_text()
    assert eventually(lambda: len(pids_with(mark)) >= 2)
    pidfds = [os.pidfd_open(pid) for pid in pids_with(mark)]
    server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call_id}})
    assert wait_until_gone(pidfds)
    assert_alive(server)
    server.close()
    assert [line for line in server.raw_lines if f'"id":{call_id},'.encode() in line] == []


def test_c22_a_start_that_is_taken_back_leaves_no_process(server: Client) -> None:
    mark = f"llmc-{secrets.token_hex(8)}"
    arguments = {"command": ["bash", "-c", "sleep 1000; :", mark], "wait_ms": 60_000}
    call_id = server.start_call("linux_proc_start", arguments)
    assert eventually(lambda: len(pids_with(mark)) >= 1)
    pidfds = [os.pidfd_open(pid) for pid in pids_with(mark)]
    server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call_id}})
    assert wait_until_gone(pidfds)
    assert server.call("linux_proc_sessions").body == ""


def test_c22_a_read_that_is_taken_back_loses_nothing(server: Client) -> None:
    proc_id = server.call("linux_proc_start", command="python3").meta["proc_id"]
    server.call("linux_proc_send", proc_id=proc_id, input="import time; print('kept', flush=True); time.sleep(1000)")
    call_id = server.start_call("linux_proc_read", {"proc_id": proc_id, "timeout_ms": 60_000})
    server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call_id}})
    said = server.call("linux_proc_read", proc_id=proc_id, timeout_ms=1_000).body
    assert "kept\n" in said


def test_nothing_of_a_session_survives_the_servers_sudden_death(workspace: Workspace) -> None:
    mark = f"llmc-{secrets.token_hex(8)}"
    with Client("--root", str(workspace.root)) as client:
        script = f"setsid {sleeper(mark)} & echo up; {sleeper(mark)}; read"
        client.call("linux_proc_start", command=["bash", "-c", script], wait_ms=200)
        assert eventually(lambda: len(pids_with(mark)) >= 2)
        pidfds = [os.pidfd_open(pid) for pid in pids_with(mark)]
        client.process.kill()
        assert wait_until_gone(pidfds)
    assert pids_with(mark) == []


def test_secrets_of_the_outside_stay_there(talk: Talk, workspace: Workspace) -> None:
    proc_id = talk.start("python3").proc_id
    said = talk.send(proc_id, f"print(open({str(workspace.outside / 'secret.txt')!r}).read())").output
    assert SECRET not in said
    assert "Error" in said


def test_a_switched_off_terminal_is_off(workspace: Workspace) -> None:
    config = Config()
    config.linux_ops.features.repl_enabled = False
    with talk_on(workspace.root, config) as talk:
        for call in (lambda: talk.start("cat"), lambda: talk.read("P_x"), talk.sessions):
            with pytest.raises(Exception, match="switched off"):
                call()
