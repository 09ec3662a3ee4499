"""Commands that outlive their call: handed over, waited for, typed to, ended, and never left behind."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from benchmarks.tokens import count_tools
from llmc_mcp.config.schema import Config
from llmc_mcp.errors import BadArgs, ProcessNotFound, Timeout
from llmc_mcp.tools.exec import CommandOutput

from ..security.arena import pids_with
from ..support.client import PATIENCE, Client
from ..support.gates import gate_on
from ..support.talk import Talk, alive, eventually, talk_on, terminal_fds
from ..support.workspace import Workspace, require

pytestmark = pytest.mark.filterwarnings("ignore:open_binary is deprecated:DeprecationWarning")  # bpe_openai's own


def id_of(reply: CommandOutput) -> str:
    """The id of a command that was handed over."""
    assert (reply.running, reply.data.exit_code) == (True, None)
    assert reply.process
    return reply.process


def limited(**limits: float) -> Config:
    config = Config()
    for name, value in limits.items():
        setattr(config.linux_ops.process_limits, name, value)
    return config


# Says that it has begun and goes on for as long as a file does not exist.
UNTIL = "echo begun; while [ ! -e {file} ]; do sleep 0.02; done; echo done; echo last >&2; exit 3"


def test_a_command_is_handed_over_and_waited_for(talk: Talk, workspace: Workspace) -> None:
    process = id_of(started := talk.run(UNTIL.format(file="go"), yield_after=0.5))
    assert started.data.stdout == "begun\n"
    assert started.meta.sandbox == talk.gate.app.sandbox.level().name
    again = talk.run(process=process, yield_after=0)
    assert (again.running, again.process, again.data.stdout) == (True, process, "")
    (workspace.root / "go").touch()
    ended = talk.run(process=process, yield_after=PATIENCE)
    assert (ended.data.stdout, ended.data.stderr, ended.data.exit_code) == ("done\n", "last\n", 3)
    assert (ended.running, ended.process) == (None, None)
    assert ended.meta.duration_ms >= started.meta.duration_ms


def test_a_command_that_ends_in_time_is_an_answer_as_ever(talk: Talk) -> None:
    ran = talk.run("echo a; exit 4", yield_after=PATIENCE)
    assert (ran.running, ran.process, ran.data.stdout, ran.data.exit_code) == (None, None, "a\n", 4)
    assert talk.sessions().processes == []


def test_input_is_typed_and_its_end_and_an_interrupt_too(talk: Talk) -> None:
    read = 'while IFS= read -r line; do echo "got <$line>"; done; echo end'
    process = id_of(talk.run(read, yield_after=0.2))
    for line in ("one", "two words", "x" * 5_000):
        answer = talk.run(process=process, stdin=f"{line}\n", yield_after=PATIENCE)
        assert (answer.data.stdout, answer.meta.waiting_for_input) == (f"got <{line}>\n", True)
    ended = talk.run(process=process, stdin="^D", yield_after=PATIENCE)
    assert (ended.data.stdout, ended.data.exit_code) == ("end\n", 0)
    process = id_of(talk.run("trap 'echo interrupted; exit 5' INT; while :; do sleep 0.02; done", yield_after=0.2))
    assert talk.run(process=process, stdin="^C", yield_after=PATIENCE).data.exit_code == 5


def test_open_input_does_not_look_like_data(talk: Talk, workspace: Workspace) -> None:
    """ripgrep searches its input instead of the folder when that is a pipe."""
    workspace.file("a.txt", "needle\n")
    assert talk.run("rg needle | cat", yield_after=PATIENCE).data.stdout == "a.txt:needle\n"


def test_what_was_started_without_input_takes_none(any_level: Talk, workspace: Workspace) -> None:
    given = any_level.run(f"cat; {UNTIL.format(file='go')}", stdin="text\n", yield_after=0.5)
    assert given.data.stdout == "text\nbegun\n"
    with pytest.raises(BadArgs, match="takes no input"):
        any_level.run(process=id_of(given), stdin="more\n")
    assert any_level.run("cat").data.stdout == ""  # nothing given, nothing waited for
    assert any_level.run(process=id_of(given), stop=True).data.exit_code == 143


def test_a_command_is_stopped_with_all_it_started(talk: Talk) -> None:
    mark = f"llmc-bg-stop-{os.getpid()}"
    line = f"setsid python3 -c 'import signal; signal.pause()' {mark} & echo begun; wait"
    process = id_of(started := talk.run(line, yield_after=1))
    assert "begun" in started.data.stdout
    assert eventually(lambda: len(pids_with(mark)) > 0)
    ended = talk.run(process=process, stop=True)
    assert (ended.running, ended.data.exit_code, ended.meta.signal) == (None, 143, "SIGTERM")
    assert pids_with(mark) == []
    with pytest.raises(ProcessNotFound):
        talk.run(process=process)


def test_the_tools_for_interactive_processes_see_it_too(talk: Talk, workspace: Workspace) -> None:
    process = id_of(talk.run(UNTIL.format(file="go"), yield_after=0.5))
    (row,) = talk.sessions().processes
    assert (row.proc_id, row.state) == (process, "running")
    assert Path(f"/proc/{row.pid}/comm").read_text().strip() in ("bash", "sleep")
    (workspace.root / "go").touch()
    assert "done\n" in talk.rest(process)
    assert talk.stop(process).exit_code == 3
    repl = talk.start("python3").proc_id
    answer = talk.run(process=repl, stdin="1 + 1", yield_after=PATIENCE)
    assert (answer.running, answer.data.stdout) == (True, "2\n>>> ")


def test_nobody_elses_process_is_there(any_level: Talk) -> None:
    process = id_of(any_level.run("sleep 1000", yield_after=0))
    for other in (Talk(any_level.gate, "another"), Talk(any_level.gate, principal="token:x")):
        with pytest.raises(ProcessNotFound):
            other.run(process=process)


def test_a_timeout_that_was_asked_for_holds_in_the_background(talk: Talk) -> None:
    process = id_of(talk.run("echo a; sleep 1000", timeout=3, yield_after=0.3))
    ended = talk.run(process=process, yield_after=PATIENCE)
    assert ended.data.exit_code == 143
    assert "timeout was over" in str(ended.meta.warnings)
    stubborn = "trap '' TERM; echo begun; while :; do sleep 0.05; done"
    process = id_of(talk.run(stubborn, timeout=3, yield_after=0.3))
    assert talk.run(process=process, yield_after=PATIENCE).data.exit_code == 137


def test_a_timeout_that_is_shorter_than_the_wait_ends_the_command(any_level: Talk) -> None:
    with pytest.raises(Timeout, match=r"longer than 0\.5 s"):
        any_level.run("sleep 1000", timeout=0.5)
    assert any_level.sessions().processes == []


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"command": "true", "process": "P_1"},
        {"command": "true", "stop": True},
        {"process": "P_1", "cwd": "."},
        {"process": "P_1", "timeout": 1},
        {"command": "true", "yield_after": -1},
        {"command": "true", "yield_after": 601},
    ],
)
def test_arguments_that_do_not_go_together_are_refused(any_level: Talk, arguments: dict[str, object]) -> None:
    with pytest.raises(BadArgs):
        any_level.run(**arguments)  # pyright: ignore[reportArgumentType]


def test_a_flood_in_the_background_is_bounded(talk: Talk) -> None:
    process = id_of(talk.run("while :; do echo 0123456789012345678901234567890123456789; done", yield_after=0.5))
    for _ in range(3):
        more = talk.run(process=process, yield_after=0.3)
        assert len(more.data.stdout) < 300_000
    assert talk.run("echo still | cat").data.stdout == "still\n"
    assert talk.run(process=process, stop=True).running is None


@pytest.mark.parametrize("level", ["workspace", "landlock"])
def test_a_fork_bomb_in_the_background_is_bounded_and_ends_when_it_is_stopped(level: str, workspace: Workspace) -> None:
    require(level == "landlock" or shutil.which("bwrap") is not None, "bubblewrap")
    config = Config()
    config.sandbox.max_processes = 40
    with talk_on(workspace.root, config, level=level) as talk:
        require(talk.gate.app.sandbox.counts_processes, "a bound for the processes of root")
        mark = f"llmc-bg-bomb-{os.getpid()}"
        bomb = f"bomb() {{ bomb | bomb & }}; bomb; exec -a {mark} sleep 1000"
        process = id_of(talk.run(bomb, yield_after=0.3))
        assert len(pids_with(mark)) < 100
        talk.run(process=process, stop=True)
        assert pids_with(mark) == []
        assert talk.run("echo still | cat").data.stdout == "still\n"


def test_streams_stay_apart_even_when_some_is_dropped(any_level: Talk) -> None:
    line = "for i in $(seq 20000); do echo out $i; echo err $i >&2; done; sleep 1000"
    process = id_of(any_level.run(line, yield_after=0))
    assert eventually(lambda: any_level.sessions().processes[0].state == "running")
    seen: dict[str, str] = {"out": "", "err": ""}
    for _ in range(200):
        turn = any_level.run(process=process, yield_after=0.05)
        seen["out"] += turn.data.stdout
        seen["err"] += turn.data.stderr
        if "out 20000" in seen["out"] and "err 20000" in seen["err"]:
            break
    assert "out 20000\n" in seen["out"]
    assert "err 20000\n" in seen["err"]
    assert not any(line.startswith("err") for line in seen["out"].splitlines())
    assert not any(line.startswith("out") for line in seen["err"].splitlines())
    any_level.run(process=process, stop=True)


def test_a_session_hands_over_as_many_commands_as_configured(workspace: Workspace) -> None:
    with talk_on(workspace.root, limited(max_background_per_session=1, max_timeout_sec=2)) as talk:
        first = id_of(talk.run("sleep 1000", yield_after=0))
        with pytest.raises(Timeout):  # no place: the call goes on waiting, and no longer than any call may
            talk.run("sleep 1000", yield_after=0.1, timeout=1)
        assert Talk(talk.gate, "another").run("sleep 1000", yield_after=0).running
        talk.run(process=first, stop=True)
        assert talk.run("sleep 1000", yield_after=0).running


def test_all_sessions_together_hand_over_as_many_as_configured(workspace: Workspace) -> None:
    with talk_on(workspace.root, limited(max_background_total=1)) as talk:
        assert talk.run("sleep 1000", yield_after=0).running
        with pytest.raises(Timeout):
            Talk(talk.gate, "another").run("sleep 1000", yield_after=0.1, timeout=1)


def test_an_idle_command_is_ended_unless_its_session_is_at_work(workspace: Workspace) -> None:
    with talk_on(workspace.root, limited(idle_reap_sec=2)) as talk:
        process = id_of(talk.run("sleep 1000", yield_after=0))
        for _ in range(30):
            talk.run(["sleep", "0.1"])
        assert [row.proc_id for row in talk.sessions().processes] == [process]
        assert eventually(lambda: talk.sessions().processes == [])


def test_twenty_commands_end_with_their_session_and_leave_nothing(workspace: Workspace) -> None:
    before = terminal_fds()
    mark = "llmc-bg-twenty"
    with talk_on(workspace.root) as talk:
        for _ in range(20):
            talk.run(["python3", "-c", "import signal; signal.pause()", mark], yield_after=0)
        assert len(talk.sessions().processes) == 20
        assert eventually(lambda: len(pids_with(mark)) >= 20)
    assert eventually(lambda: pids_with(mark) == [])
    assert terminal_fds() == before


@pytest.mark.parametrize("way", ["stop", "end"])
def test_many_commands_handed_over_leave_no_orphan(talk: Talk, way: str) -> None:
    mark = f"llmc-bg-many-{os.getpid()}"
    fds = 0
    for number in range(25):
        if number == 2:  # the pump and the parser are there
            fds = len(os.listdir("/proc/self/fd"))
        if way == "stop":
            line = f"python3 -c 'import signal; signal.pause()' {mark} & wait"
            assert talk.run(process=id_of(talk.run(line, yield_after=0)), stop=True).data.exit_code is not None
        else:
            process = id_of(talk.run(["sh", "-c", f"read x; echo {number}", mark], yield_after=0))
            assert talk.run(process=process, stdin="\n", yield_after=PATIENCE).data.stdout == f"{number}\n"
            talk.stop(process)
    assert pids_with(mark) == []
    assert len(os.listdir("/proc/self/fd")) < fds + 20  # store and audit may have been opened since; 23 commands ran


def test_no_command_outlives_a_server_that_is_killed(workspace: Workspace) -> None:
    with Client("--root", str(workspace.root)) as client:
        for _ in range(3):
            reply = client.call("run_cmd", command="setsid sleep 98765.4 & sleep 98765.4", yield_after=0.3)
            assert reply.meta["running"] is True
        client.process.send_signal(signal.SIGKILL)
        client.process.wait()
    assert eventually(lambda: pids_with("98765.4") == [])


def test_progress_shows_the_last_line_that_was_printed(workspace: Workspace) -> None:
    with Client("--root", str(workspace.root)) as client:
        line = "echo first; printf 'step 1\\nstep 2 of 9\\n'; sleep 2"
        client.wait(client.start_call("run_cmd", {"command": line}, {"progressToken": "p"}))
        shown = [note["params"]["message"] for note in client.notifications]
        assert "step 2 of 9" in shown
        process = client.call("run_cmd", command="sleep 1; echo later; sleep 1000", yield_after=0).meta["process"]
        client.wait(client.start_call("run_cmd", {"process": process, "yield_after": 3}, {"progressToken": "q"}))
        shown = [note["params"]["message"] for note in client.notifications]
        assert "later" in shown


def test_the_lean_reply_of_a_running_command_says_how_to_go_on(workspace: Workspace) -> None:
    with Client("--root", str(workspace.root)) as client:
        reply = client.call("run_cmd", command="echo begun; sleep 1000", yield_after=0.5)
        assert reply.body == "begun\n"
        assert reply.meta["running"] is True
        assert reply.meta["process"].startswith("P_")
        assert "exit_code" not in reply.meta


def test_a_cancelled_wait_leaves_the_command_alone(any_level: Talk, workspace: Workspace) -> None:
    process = id_of(any_level.run("sleep 1000", yield_after=0))
    (row,) = any_level.sessions().processes
    assert alive(row.pid)
    any_level.run(process=process, yield_after=0.1)
    assert alive(row.pid)


def test_the_hybrid_list_stays_short(workspace: Workspace) -> None:
    with gate_on(workspace.root, Config(mode="hybrid")) as gate:
        assert count_tools(gate.catalog.entries) <= 620
        (schema,) = [entry["inputSchema"] for entry in gate.catalog.entries if entry["name"] == "run_cmd"]
        assert schema["properties"]["yield_after"] == {"type": "number", "minimum": 0, "maximum": 600, "default": 10}
