"""What `te` costs a command in time, by hyperfine, and saves in tokens, on the everyday commands of its tests."""

import json
import os
import shlex
import subprocess
from pathlib import Path

from tests.envelope.test_te_enrich import EVERYDAY, words_of
from tests.support.envelope import Te

from .. import report, tokens
from ..search import django
from ..servers import BIN, RG

_TE = str(BIN / "te")
_MOST_TOKENS = 0.15


def run(work: Path, quick: bool) -> str:
    return f"{_times(work, quick)}\n\n{_savings(work)}\n\n{report.provenance(_version('hyperfine'), _version(str(RG)))}"


def _times(work: Path, quick: bool) -> str:
    big = work / "big.txt"
    with big.open("wb") as file:
        for _ in range(25 if quick else 250):
            file.write(b"a line of a text that is long but otherwise quite ordinary, like a log's\n" * 14_000)
    tree = django()
    cases = [
        ("true", "te true", 1.0, 60.0),
        (f"cat {big}", f"te --raw cat {big}", 1.2, 60.0),
        (f"{RG} -n 'def save' {tree}", f"te {RG} -n 'def save' {tree}", 1.3, 100.0),
        (f"{RG} -n self {tree}", f"te {RG} -n self {tree}", 1.3, 100.0),
    ]
    rows = [_compared(work, *case, rounds=10 if quick else 40) for case in cases]
    return report.table(["command", "plain, median ms", "te, median ms", "bar, ms", "bar is", ""], rows)


def _compared(work: Path, plain: str, with_te: str, factor: float, more: float, *, rounds: int) -> list[str]:
    """Both in turn, their output read by somebody, as an agent's is."""
    result = work / "hyperfine.json"
    env = {**os.environ, "LLMC_DATA_DIR": str(work / "data"), "TE_AGENT_ID": "bench"}
    env["PATH"] = f"{BIN}:{os.environ['PATH']}"
    command = ["hyperfine", "-N", "-i", "--warmup", "3", "--runs", str(rounds), "--output", "pipe", "--style", "none"]
    # Both ways are hyperfine's own words, split like a shell's; the plain one is what te runs, not a builtin.
    subprocess.run(
        [*command, "--export-json", str(result), plain, with_te], env=env, check=True, stdout=subprocess.DEVNULL
    )
    first, second = (one["median"] * 1000 for one in json.loads(result.read_text())["results"])
    bar = factor * first + more
    name = " ".join(Path(word).name if "/" in word else word for word in shlex.split(with_te))
    meaning = f"{factor:g} times + {more:g} ms"
    return [f"`{name}`", *map(report.number, (first, second, bar)), meaning, report.verdict(second, bar)]


def _savings(work: Path) -> str:
    rows: list[list[str]] = []
    for number, (line, (prepare, next_step, needed)) in enumerate(EVERYDAY.items()):
        folder = work / f"everyday-{number}"
        folder.mkdir()
        te = Te(folder, work / f"data-{number}")
        prepare(te)
        words = words_of(line)
        plain = subprocess.run(words, cwd=folder, capture_output=True, check=False).stdout.decode("utf-8", "replace")
        shown = te(*words).out.decode("utf-8", "replace")
        before, after = tokens.count(plain), tokens.count(shown)
        held = report.verdict(sum(text not in shown for text in needed), 0)
        rows.append([f"`{line}`", f"{before:,}", f"{after:,}", f"{after / before:.1%}", next_step, held])
        rows[-1].append(report.verdict(after / before, _MOST_TOKENS))
    return report.table(["command", "tokens", "with te", "share", "next step", "holds it", "≤ 15 %"], rows)


def _version(program: str) -> str:
    shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return " ".join(shown.split()[:2])
