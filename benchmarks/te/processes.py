"""Recorded commands on real processes: each prints its recorded output and ends as recorded, through te itself.

The words of the recorded command are kept, so te recognises the family, but the program behind them is a stand-in on
PATH that prints a file and exits. Nothing that was recorded is carried out. Every command has its own process of te,
forked from one that has imported it: starting Python 12,318 times would take most of the time.
"""

import json
import multiprocessing
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

from llmc_mcp.envelope.facts import RecordedStep
from llmc_mcp.envelope.lines import NotSimple, speaking
from llmc_mcp.envelope.programs import FAMILY_OF
from llmc_mcp.envelope.recognition import recognise_line
from llmc_mcp.envelope.reply import as_text
from llmc_mcp.te import run
from llmc_mcp.te.main import main

from .replayed import recorded_runs

_STAND_IN = '#!/bin/sh\n/bin/cat "$REPLAY_OUTPUT"\nexit "$REPLAY_CODE"\n'
_UNKNOWN = "replayed-command"  # no family's: te passes its output through
_NAME = re.compile(r"[\w.+-]+")
_AT_ONCE = 2
_BATCH = 100
_IMPORTED = (as_text, run)  # what te imports while its command runs


class Ended(NamedTuple):
    """How a replayed command ended: as recorded or not; whether its output came whole, or with a header."""

    number: int
    same_code: bool
    whole_or_marked: bool


def replay_processes(runs: Path, count: int, journal: Path | None = None) -> list[Ended]:
    """The first commands; those in the journal, a file of an earlier run, are not run again."""
    steps = [step for _, steps in recorded_runs(runs) for step in steps][:count]
    known = {ended.number: ended for ended in _read(journal)}
    todo = [number for number in range(len(steps)) if number not in known]
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="bench-te-") as folder, context.Pool(_AT_ONCE) as pool:
        stage = _Stage(Path(folder))
        for start in range(0, len(todo), _BATCH):
            batch = todo[start : start + _BATCH]
            done = pool.starmap(stage.run, [(number, steps[number]) for number in batch])
            known |= {ended.number: ended for ended in done}
            if journal is not None:
                with journal.open("a") as file:
                    file.writelines(json.dumps(ended) + "\n" for ended in done)
    return [known[number] for number in range(len(steps))]


def _read(journal: Path | None) -> Iterator[Ended]:
    if journal is not None and journal.exists():
        for line in journal.read_text().splitlines():
            yield Ended(*json.loads(line))


class _Stage:
    """A folder with stand-ins for programs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._programs = folder / "bin"
        self._programs.mkdir()
        for program in (*FAMILY_OF, _UNKNOWN):
            stand_in = self._programs / program
            stand_in.write_text(_STAND_IN)
            stand_in.chmod(0o755)

    def run(self, number: int, step: RecordedStep) -> Ended:
        """Run te in front of the command's stand-in."""
        output, code = step.output.encode(), step.exit_code & 0xFF
        file = self._folder / str(number)
        file.write_bytes(output)
        env = {
            "PATH": f"{self._programs}:{os.environ['PATH']}",
            "LLMC_DATA_DIR": str(self._folder / "data"),
            "TE_AGENT_ID": "bench",
            "REPLAY_OUTPUT": str(file),
            "REPLAY_CODE": str(code),
        }
        source, end = os.pipe()
        pid = os.fork()
        if pid == 0:
            _become_te(["-c", _line(step.command)], env, end)
        os.close(end)
        with open(source, "rb") as stream:
            printed = stream.read()
        ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        file.unlink()
        marked = printed.startswith(b"# TE_BEGIN_META\n")
        return Ended(number, ended == code, printed == output or marked)


def _become_te(words: list[str], environ: dict[str, str], stdout: int) -> NoReturn:
    os.dup2(stdout, 1)
    os.dup2(stdout, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(environ)
    sys.argv = ["te", *words]
    try:
        main()
    finally:  # te ends like its command, by itself; this is for one that could not start
        os._exit(125)


def _line(command: str) -> str:
    """The words of the command that speaks, quoted: no redirection or expansion of the recorded line is left."""
    try:
        spoken = speaking(command)
    except NotSimple:
        return _UNKNOWN
    if not spoken or recognise_line(command) is None:
        return _UNKNOWN
    argv = spoken[-1][0].argv
    program = os.path.basename(argv[0])
    if program not in FAMILY_OF or not _NAME.fullmatch(program):
        return _UNKNOWN
    return shlex.join([program, *argv[1:]])
