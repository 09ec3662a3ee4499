"""Diffs: what GNU patch makes of them, we make of them, or refuse."""

import inspect
import random
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc_mcp import errors
from llmc_mcp.te import diff, diff_parse

from .conftest import require

TIMEOUT = 30
REAL = inspect.getsource(diff_parse).splitlines(keepends=True)


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT, check=False)


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    for tool in ("patch", "diff", "git"):
        require(shutil.which(tool) is not None, tool)


class Bench:
    """A folder in which diffs are made by other programs and applied by patch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.target, self.patch_file = folder / "target", folder / "p.diff"

    def made(self, maker: str, old: bytes, new: bytes) -> str:
        """A diff of one file called `f`."""
        if maker == "ours":
            return diff.unified(old, new, "f")
        for side, data in (("a", old), ("b", new)):
            (self.folder / side).mkdir(exist_ok=True)
            (self.folder / side / "f").write_bytes(data)
        command = ["git", "diff", "--no-index", "--no-prefix", "--no-color"] if maker == "git" else ["diff", maker]
        return run(*command, "a/f", "b/f", cwd=self.folder).stdout.decode()

    def patched(self, text: str, data: bytes) -> bytes | None:
        """What patch makes of a file; None when it refuses. -N: never ask, never reverse."""
        self.target.write_bytes(data)
        self.patch_file.write_bytes(text.encode())
        done = run("patch", "-s", "-N", "-r", "-", "--no-backup-if-mismatch", "target", "p.diff", cwd=self.folder)
        return self.target.read_bytes() if done.returncode == 0 else None


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def ours(text: str, data: bytes) -> bytes | errors.LlmcError | None:
    try:
        (patch,) = diff.parse(text)
        return diff.apply(patch, data)
    except errors.LlmcError as exc:
        return exc


def random_lines(chance: random.Random) -> list[str]:
    """Few different lines, so that hunks fit at more than one place; or real ones."""
    if chance.random() < 0.4:
        start = chance.randrange(len(REAL) - 60)
        return REAL[start : start + chance.randint(5, 60)]
    words = ["alpha", "beta", "", "}", "    return x", "\tif y:", "é ü", "gamma"][: chance.randint(2, 8)]
    return [f"{chance.choice(words)}\n" for _ in range(chance.randint(1, 50))]


def edited(chance: random.Random, lines: list[str], changes: int) -> list[str]:
    lines = list(lines)
    for number in range(changes):
        at = chance.randint(0, len(lines))
        kind = chance.random()
        if kind < 0.4:
            lines[at:at] = [f"new {number}\n" for _ in range(chance.randint(1, 3))]
        elif kind < 0.7:
            del lines[at : at + chance.randint(1, 3)]
        else:
            lines[at : at + 1] = [f"changed {number}\n"]
    return lines


def encoded(chance: random.Random, lines: list[str]) -> bytes:
    text = "".join(lines)
    return (text.removesuffix("\n") if chance.random() < 0.2 else text).encode()


def targets(chance: random.Random, lines: list[str]) -> dict[str, list[str]]:
    """What a diff meets in real life: the file it was made from, a shifted one, one with other lines."""
    at = chance.randint(0, len(lines))
    return {
        "same": lines,
        "shifted down": [f"top {i}\n" for i in range(chance.randint(1, 9))] + lines,
        "shifted up": lines[chance.randint(1, 4) :],
        "shifted within": [*lines[:at], "inserted\n", "inserted\n", *lines[at:]],
        "damaged": [line if chance.random() > 0.08 else f"damaged {line}" for line in lines],
        "both": ["top\n", *[line if chance.random() > 0.06 else f"x {line}" for line in lines]],
        "twice": lines + lines,
    }


@pytest.mark.parametrize("seed", range(48))
def test_a_diff_gives_what_gnu_patch_gives_or_is_refused_as_patch_refuses_it(bench: Bench, seed: int) -> None:
    chance = random.Random(seed)
    lines = random_lines(chance)
    old = encoded(chance, lines)
    new = encoded(chance, edited(chance, lines, chance.randint(1, 5)))
    maker = ["-u", "-U0", "-U1", "git", "ours"][seed % 5]
    text = bench.made(maker, old, new)
    if not text:
        return
    assert ours(text, old) == new
    for name, target in targets(chance, lines).items():
        data = encoded(chance, target)
        theirs, mine = bench.patched(text, data), ours(text, data)
        if theirs is None:
            assert isinstance(mine, errors.PatchFailed), (name, mine)
        elif isinstance(mine, errors.LlmcError):
            # The one thing that is stricter: lines are never added behind the end of the file.
            assert "adds lines at line" in mine.message, (name, mine.message)
        else:
            assert mine == theirs, name
