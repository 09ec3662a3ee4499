"""`te` gets out of the way: the command's output, exit code and death are its own, and each run leaves a row."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ..support.envelope import TE, Te
from ..support.signals import WAITS_FOR_SIGNAL, obey_interrupts
from ..support.workspace import require
from ..test_imports import loaded_by

AS_ROOT = os.geteuid() == 0


@pytest.fixture
def te(tmp_path: Path) -> Te:
    folder = tmp_path / "work"
    folder.mkdir()
    return Te(folder, tmp_path / "data")


# --- exit codes and signals ------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [[], ["--raw"], ["--"]])
@pytest.mark.parametrize("code", [0, 1, 3, 255])
def test_the_exit_code_is_the_commands(te: Te, code: int, flags: list[str]) -> None:
    assert te(*flags, "sh", "-c", f"exit {code}").code == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGPIPE])
def test_a_command_killed_by_a_signal_is_seen_as_killed_by_it(te: Te, number: signal.Signals) -> None:
    assert te("sh", "-c", f"kill -{number.value} $$").code == -number


def test_an_enriched_command_keeps_its_exit_code(te: Te) -> None:
    te.file("a.txt", "one\n")
    assert te("grep", "one", "a.txt").code == 0
    assert te("grep", "two", "a.txt").code == 1
    assert te("grep", "two", "missing.txt").code == 2
    assert te("ls", "missing").code == 2


def test_an_enriched_command_that_is_killed_is_seen_as_killed(te: Te) -> None:
    """python -m pytest is enriched; a conftest makes it kill itself."""
    te.file("conftest.py", "import os\nos.kill(os.getpid(), 9)\n")
    assert te(sys.executable, "-m", "pytest").code == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_sent_to_te_reaches_the_command(te: Te, number: signal.Signals) -> None:
    with subprocess.Popen(
        [*TE, sys.executable, "-c", WAITS_FOR_SIGNAL, str(number.value)],
        stdout=subprocess.PIPE,
        env=te.env,
        cwd=te.folder,
        start_new_session=True,
        preexec_fn=obey_interrupts,  # noqa: PLW1509 - one system call, which needs no lock that a thread may hold
    ) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == b"ready\n"
            process.send_signal(number)
            out, _ = process.communicate(timeout=60)
        finally:
            if process.returncode is None:  # else its number may be another's by now
                os.killpg(process.pid, signal.SIGKILL)
    assert (out, process.returncode) == (b"got\n", 7)


# --- byte by byte ------------------------------------------------------------------------------------


def test_output_passes_through_byte_by_byte(te: Te) -> None:
    every_byte = bytes(range(256)) * 400
    for flags in ([], ["--raw"]):
        done = te.fed(every_byte, *flags, "tee", "/dev/null")
        assert (done.out, done.err, done.code) == (every_byte, b"", 0)


@pytest.mark.parametrize("mode", ["wb", "ab"])
def test_output_to_a_file_passes_through(te: Te, mode: str) -> None:
    target = te.file("out", b"before\n")
    with open(target, mode) as file:
        subprocess.run([*TE, "printf", "after"], stdout=file, env=te.env, cwd=te.folder, check=True)
    assert target.read_bytes() == (b"before\nafter" if mode == "ab" else b"after")
    assert te.stats()["enrich_next"][0]["tokens_shown"] == 1


def test_output_streams(te: Te) -> None:
    process = subprocess.Popen(
        [*TE, "sh", "-c", "echo one; read line; echo two"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=te.env,
    )
    assert process.stdin
    assert process.stdout
    assert process.stdout.readline() == b"one\n"  # the command waits for us: it has not ended
    out, _ = process.communicate(b"go\n", timeout=60)
    assert out == b"two\n"


def test_arguments_arrive_unchanged_and_no_shell_reads_them(te: Te) -> None:
    arguments = [b"a b", b"", b"$HOME", b"*", b"--", b"\xff\xfe", b"new\nline", b"-n"]
    assert te("printf", "%s|", *arguments).out == b"|".join(arguments) + b"|"


def test_standard_error_stays_apart(te: Te) -> None:
    done = te("sh", "-c", "echo out; echo err >&2")
    assert (done.out, done.err) == (b"out\n", b"err\n")


def test_what_a_command_leaves_running_goes_on_printing_and_does_not_hold_te_up(te: Te) -> None:
    """The caller sees te end with its command; the pipe stays open as long as somebody may write to it."""
    os.mkfifo(te.folder / "gate")
    process = subprocess.Popen(
        [*TE, "sh", "-c", "(read line < gate; echo late) & echo early"],
        stdout=subprocess.PIPE,
        env=te.env,
        cwd=te.folder,
    )
    assert process.wait(60) == 0
    assert process.stdout
    assert process.stdout.readline() == b"early\n"
    (te.folder / "gate").write_text("go\n")
    assert process.stdout.read() == b"late\n"
    process.stdout.close()


@pytest.mark.parametrize("command", ["yes", "grep -r x .", "find /usr/share"])
def test_a_reader_who_leaves_ends_it_quietly(te: Te, command: str) -> None:
    for number in range(20):
        te.file(f"folder/{number}.txt", "a line with an x in it\n" * 20_000)
    script = f"{sys.executable} -c 'from llmc_mcp.te.main import main; main()' {command} | head -n 2"
    done = subprocess.run(["bash", "-c", script], env=te.env, cwd=te.folder, capture_output=True, check=False)
    assert done.stdout.count(b"\n") == 2
    assert b"Traceback" not in done.stderr


# --- what can't start --------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [[], ["--raw"], ["--json"]])
def test_a_missing_command_is_127(te: Te, flags: list[str]) -> None:
    done = te(*flags, "no-such-command-here")
    assert (done.code, done.out) == (127, b"")
    assert done.err == b"te: no-such-command-here: command not found\n"


def test_a_missing_command_that_would_be_enriched_is_127(te: Te) -> None:
    done = te("fd", "x", PATH=str(te.folder))
    assert (done.code, done.err) == (127, b"te: fd: command not found\n")


def test_a_file_that_is_no_program_is_126(te: Te) -> None:
    done = te(str(te.file("plain", "just text")))
    assert done.code == 126
    assert b"ermission denied" in done.err


@pytest.mark.parametrize("words", [[], ["--json"], ["--"]])
def test_nothing_to_do_is_answered_with_how_to_use_it(te: Te, words: list[str]) -> None:
    done = te(*words)
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith(b"usage: te ")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--statz"], "te: unknown argument '--statz'\nhint: Did you mean --stats?\n"),
        (["--handle", "H_1", "--chnk=2"], "te: unknown argument '--chnk=2'\nhint: Did you mean --chunk?\n"),
        (["--chunk", "2"], "te: unknown argument '--chunk'\n"),
        (["--bogus"], "te: unknown argument '--bogus'\n"),
        (["--handle"], "te: ID is missing\n"),
        (["init"], "te: bash|zsh|fish is missing\n"),
        (["--\x1b[31m"], "te: unknown argument"),
    ],
)
def test_a_wrong_flag_is_named_with_the_one_that_was_meant(te: Te, words: list[str], told: str) -> None:
    done = te(*words)
    assert (done.code, done.out) == (2, b"")
    assert done.err.decode().startswith(told)
    assert done.err.count(b"\n") <= 4
    assert b"\x1b" not in done.err


def test_a_command_may_be_called_like_one_of_our_words(te: Te) -> None:
    program = te.file("init", "#!/bin/sh\necho mine\n")
    program.chmod(0o755)
    assert te("--", "init", PATH=f"{te.folder}:{os.environ['PATH']}").out == b"mine\n"


# --- a person --------------------------------------------------------------------------------------


def test_on_a_persons_terminal_te_becomes_the_command(te: Te) -> None:
    """`script` gives it a terminal; nothing is enriched there and no row is left."""
    env = {name: value for name, value in te.env.items() if name != "TE_AGENT_ID"}
    te.file("a.txt", "needle\n")
    line = f"{sys.executable} -c 'from llmc_mcp.te.main import main; main()' grep -n needle a.txt"
    done = subprocess.run(
        ["script", "-qec", line, "/dev/null"], env=env, cwd=te.folder, capture_output=True, check=True
    )
    assert b"TE_BEGIN_META" not in done.stdout
    assert b"needle" in done.stdout
    assert not te.data.exists()


def test_the_way_through_imports_neither_msgspec_nor_typing(te: Te) -> None:
    code = (
        f"import os; os.environ['LLMC_DATA_DIR'] = {str(te.data)!r}\n"
        "from llmc_mcp.envelope import records\n"
        "from llmc_mcp.te import child, folder\n"
        "noted = records.CommandRecord(['true'], records.identity(), folder.root_set())\n"
        "assert noted.record(child.run_through(['true'])[0])\n"
    )
    loaded = loaded_by(code)
    assert {"llmc_mcp.te.child", "sqlite3"} <= loaded
    assert {name for name in loaded if name.split(".")[0] in ("msgspec", "typing", "json", "subprocess")} == set()


def test_the_installed_script_does_the_same() -> None:
    script = os.path.join(os.path.dirname(sys.executable), "te")
    assert subprocess.run([script, "sh", "-c", "exit 9"], check=False).returncode == 9


# --- rows --------------------------------------------------------------------------------------------


def test_every_run_leaves_a_row_that_outlives_it(te: Te) -> None:
    te("sh", "-c", "seq 1 5000; exit 4", TE_SESSION_ID="s", TE_MODEL="m")
    te("--raw", "grep", "x", "/dev/null", TE_AGENT_ID="other")
    stats = te.stats()
    by_name = {row["command"]: row for row in stats["commands"]}
    assert (by_name["sh"]["runs"], by_name["sh"]["failed"]) == (1, 1)
    assert by_name["grep"]["failed"] == 1
    assert {row["agent"]: row["runs"] for row in stats["agents"]} == {"tester": 1, "other": 1}
    assert stats["enrich_next"] == [
        {"command": "sh", "runs": 1, "tokens_shown": 23893 // 4, "mode": "passthrough"},
    ]
    assert {row["command"] for row in stats["slow"]} == {"sh", "grep"}
    assert b"sh" in te("--stats").out


def test_a_row_holds_neither_arguments_nor_output(te: Te) -> None:
    te("printf", "%s", "SECRET-4711", "--token=SECRET-4711", "-pSECRET-4711")
    te.file("a.txt", "SECRET-4711\n")
    te("grep", "SECRET-4711", "a.txt")
    stored = b"".join(path.read_bytes() for path in te.data.rglob("llmc.db*"))
    assert stored
    assert b"SECRET-4711" not in stored


def test_two_hundred_at_once_on_one_store_all_work(te: Te) -> None:
    def run(number: int) -> bytes:
        return te("sh", "-c", f"echo {number}; exit {number % 3}").out

    with ThreadPoolExecutor(40) as pool:
        assert list(pool.map(run, range(200))) == [f"{number}\n".encode() for number in range(200)]
    assert te.stats()["agents"][0]["runs"] == 200


@pytest.mark.parametrize("command", [["sh", "-c", "echo out; exit 3"], ["cat", "big.txt"]])
def test_a_full_disk_under_the_telemetry_costs_the_command_nothing(te: Te, command: list[str], tmp_path: Path) -> None:
    require(AS_ROOT and _can_mount(tmp_path), "root, to mount a small file system")
    te.file("big.txt", "".join(f"line {number} of a long text\n" for number in range(30_000)))
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(small)], check=True)
    try:
        (small / "filler").write_bytes(b"x" * 12_000)
        done = te(*command, LLMC_DATA_DIR=str(small))
        assert b"Traceback" not in done.err
        assert done.code == (3 if command[0] == "sh" else 0)
        assert b"out\n" in done.out or "line 1 of a long text" in done.body
    finally:
        subprocess.run(["umount", str(small)], check=True)


def _can_mount(folder: Path) -> bool:
    probe = folder / "probe"
    probe.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(probe)], capture_output=True, check=False).returncode:
        return False
    subprocess.run(["umount", str(probe)], check=True)
    return True


@pytest.mark.parametrize("broken", ["a file in its place", "no database"])
def test_a_store_that_cannot_be_used_costs_the_command_nothing(te: Te, broken: str) -> None:
    if broken == "no database":
        te.data.mkdir()
        (te.data / "llmc.db").write_bytes(b"this is no database, whatever its name says" * 100)
    else:
        te.data.write_text("in the way")
    te.file("big.txt", "".join(f"line {number} of a long text\n" for number in range(30_000)))
    assert te("sh", "-c", "echo out; exit 3").code == 3
    done = te("cat", "big.txt")
    assert (done.code, done.err) == (0, b"")
    assert done.meta["handle"] is None
    assert done.crumbs[-1] == "the rest could not be kept; te --raw prints it all"


# --- size --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["cat", "/dev/stdin"], ["tee", "/dev/null"]])
def test_a_gigabyte_takes_no_memory(te: Te, command: list[str]) -> None:
    """None of the processes may have more than a third of what passes through."""
    line = "a line of some sixty bytes, as they are in a log of a server"
    script = f"ulimit -v 350000; yes '{line}' | head -c 1G | {_quoted(command)} | tail -c 600"
    done = subprocess.run(["bash", "-c", script], env=te.env, capture_output=True, check=True)
    assert done.stderr == b""
    assert (b"te --handle" if command[0] == "cat" else line.encode()) in done.stdout


def _quoted(command: list[str]) -> str:
    return f"{sys.executable} -c 'from llmc_mcp.te.main import main; main()' {' '.join(command)}"
