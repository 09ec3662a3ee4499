"""Programs that tests fork from a template behave as those that an interpreter starts."""

import os
import re
import signal
import subprocess
import sys

import pytest

from .support.forked import LLMC, TE, Program, run

SIGNALS = (signal.SIGHUP, signal.SIGINT)


@pytest.mark.parametrize(
    ("program", "words"),
    [(LLMC, ["--version"]), (LLMC, ["chnges"]), (TE, ["sh", "-c", "cat; echo \udcff >&2; exit 3"]), (TE, ["nowhere"])],
)
def test_output_and_exit_code_are_those_of_an_interpreter(program: Program, words: list[str]) -> None:
    command = [sys.executable, *program.words, *words]
    alone = subprocess.run(command, input=b"typed", capture_output=True, check=False)
    forked = run(program, *words, stdin=b"typed")
    assert (forked.returncode, forked.stdout, forked.stderr) == (alone.returncode, alone.stdout, alone.stderr)


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL], ids=["nohup", "terminal"])
def test_signals_are_ignored_where_the_tests_ignore_them(handler: signal.Handlers) -> None:
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        status = run(TE, "--raw", "cat", "/proc/self/status", env=os.environ).stdout.decode()
    finally:
        for number, was in before.items():
            signal.signal(number, was)
    found = re.search(r"SigIgn:\s+(\w+)", status)
    assert found, status
    ignored = {number for number in SIGNALS if int(found[1], 16) >> (number - 1) & 1}
    assert ignored == (set(SIGNALS) if handler is signal.SIG_IGN else set())
