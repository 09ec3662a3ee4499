"""execute_code over stdio: what a run costs, and what a loop over files saves beside calling the tools one by one."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from .client import Client
from .report import median, milliseconds, number, provenance, table, verdict
from .servers import llmc
from .tokens import count

_FILES = 30
_COUNT = "sum(read_file(n)['data'].count('word') for n in list_dir('.')['data'] if n.endswith('.txt'))"


def _direct(client: Client) -> int:
    """Tokens of asking for each file and reading the reply."""
    total = 0
    for number_of_file in range(_FILES):
        arguments = {"path": f"file{number_of_file}.txt"}
        reply = client.call("read_file", arguments)
        total += count(f"read_file {arguments}") + count(reply)
    return total


def _fill(root: Path) -> None:
    for number_of_file in range(_FILES):
        (root / f"file{number_of_file}.txt").write_text("a word and another\n" * 100)


def _over_an_interpreter(root: Path, homes: Path, rounds: int) -> tuple[float, float]:
    """What a run in CPython takes, and what starting that interpreter takes by itself."""
    server = llmc(root, homes, "code_execution")
    server = replace(server, command=(*server.command, "--set", "code_execution.engine=python"))
    bare = [sys.executable, "-I", "-S", "-c", "1 + 1"]
    with server.start(root) as client:
        client.initialize()
        client.call("execute_code", {"code": "1 + 1"})
        runs: list[float] = []
        starts: list[float] = []
        for _ in range(rounds):  # in turn, so that both see the same machine
            runs.append(milliseconds(lambda: client.call("execute_code", {"code": "1 + 1"})))
            starts.append(milliseconds(lambda: subprocess.run(bare, check=True)))
    return median(runs), median(starts)


def run(work: Path, quick: bool) -> str:
    """The table."""
    rounds = 20 if quick else 200
    root = work / "root"
    root.mkdir()
    homes = work / "homes"
    homes.mkdir()
    _fill(root)
    with llmc(root, homes).start(root) as client:
        client.initialize()
        client.call("00_INIT", {})
        time.sleep(1)  # what an agent takes to read the answer, and far more than the warm-up
        first = milliseconds(lambda: client.call("execute_code", {"code": "1 + 1"}))
        later = median([milliseconds(lambda: client.call("execute_code", {"code": "1 + 1"})) for _ in range(rounds)])
        loop = "for i in range(200): stat('file0.txt')"
        many = median([milliseconds(lambda: client.call("execute_code", {"code": loop})) for _ in range(5)])
        one = median([milliseconds(lambda: client.call("stat", {"path": "file0.txt"})) for _ in range(rounds)])
        reply = client.call("execute_code", {"code": _COUNT})
        in_code = count(f"execute_code {_COUNT}") + count(reply)
        direct = _direct(client)
    whole, start = _over_an_interpreter(root, homes, rounds)
    saved = 100 * (1 - in_code / direct)
    rows = [
        ["first run after warm-up", f"{number(first)} ms", "40 ms", verdict(first, 40)],
        ["later runs", f"{number(later)} ms", "3 ms", verdict(later, 3)],
        [
            f"200 calls in one run (one alone: {number(one)} ms)",
            f"{number(many)} ms",
            "150 ms over their own",
            verdict(many - 200 * one, 150),
        ],
        [
            f'a run with engine = "python" ({number(start)} ms: the interpreter alone)',
            f"{number(whole)} ms",
            "80 ms over it",
            verdict(whole - start, 80),
        ],
        [f"counting over {_FILES} files: tokens", f"{in_code:,} for {direct:,}", "95 % fewer", verdict(95, saved)],
    ]
    return table(["what", "measured", "bar", ""], rows) + "\n\n" + provenance()
