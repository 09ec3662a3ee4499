"""`te` gets out of the way: the command's output, exit code and death are its own."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TE = [sys.executable, "-c", "from llmc_mcp.te_cli import main; main()"]


def te(*command: str | bytes, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*TE, *command], input=stdin, capture_output=True, check=False)


@pytest.mark.parametrize("code", [0, 1, 3, 255])
def test_the_exit_code_is_the_commands(code: int) -> None:
    assert te("sh", "-c", f"exit {code}").returncode == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_a_command_killed_by_a_signal_is_seen_as_killed_by_it(number: signal.Signals) -> None:
    assert te("sh", "-c", f"kill -{number.value} $$").returncode == -number


def test_output_passes_through_byte_by_byte() -> None:
    every_byte = bytes(range(256)) * 400
    done = te("cat", stdin=every_byte)
    assert (done.stdout, done.stderr, done.returncode) == (every_byte, b"", 0)


def test_arguments_arrive_unchanged_and_no_shell_reads_them() -> None:
    arguments = [b"a b", b"", b"$HOME", b"*", b"--", b"\xff\xfe", b"new\nline", b"-n"]
    done = te("printf", "%s|", *arguments)
    assert done.stdout == b"|".join(arguments) + b"|"


def test_standard_error_stays_apart() -> None:
    done = te("sh", "-c", "echo out; echo err >&2")
    assert (done.stdout, done.stderr) == (b"out\n", b"err\n")


def test_the_process_becomes_the_command() -> None:
    process = subprocess.Popen([*TE, "sh", "-c", "echo $$"], stdout=subprocess.PIPE)
    out, _ = process.communicate()
    assert int(out) == process.pid


def test_a_missing_command_is_127() -> None:
    done = te("no-such-command-here")
    assert (done.returncode, done.stdout) == (127, b"")
    assert done.stderr == b"te: no-such-command-here: command not found\n"


def test_a_file_that_is_no_program_is_126(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("just text")
    done = te(str(plain))
    assert done.returncode == 126
    assert b"ermission denied" in done.stderr


def test_without_a_command_it_says_how_to_be_used() -> None:
    done = te()
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"usage: te ")


def test_the_installed_script_does_the_same() -> None:
    script = os.path.join(os.path.dirname(sys.executable), "te")
    assert subprocess.run([script, "sh", "-c", "exit 9"], check=False).returncode == 9
