"""Edits while another process keeps changing the file: an edit lands where it was meant, or is refused.

The file has lines with numbers of their own; the other process inserts and removes lines between them and never touches
these. So each number is there exactly once, whatever happens, unless an edit hits a line that it did not mean.
"""

import multiprocessing
import os
import random
import re
import tempfile
from collections import Counter
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import NamedTuple

from llmc_mcp.app import App
from llmc_mcp.changes.diff import unified
from llmc_mcp.changes.edit import LineEdit, TextEdit
from llmc_mcp.config.schema import Config
from llmc_mcp.errors import LlmcError
from llmc_mcp.files.revisions import revision_of
from llmc_mcp.session import Session

_LINES = 120
_OWN = re.compile(rb"^(?:line|edited) (\d+)\b", re.M)
_SESSION = Session(principal="bench", session_id="bench")


class Raced(NamedTuple):
    """What became of the edits of one dialect."""

    dialect: str
    made: int
    refused: int
    wrong: int


def race(trials: int, seed: int) -> list[Raced]:
    """Edits in each dialect in turn, beside a writer."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "root", "numbers.txt")
        path.parent.mkdir()
        path.write_bytes(b"".join(b"line %d\n" % number for number in range(_LINES)))
        stop = context.Event()
        writer = context.Process(target=_keep_writing, args=(path, stop, seed))
        writer.start()
        app = App(Config(), [str(path.parent)], f"{folder}/data")
        try:
            return _edit(app, path, trials, random.Random(seed + 1))
        finally:
            stop.set()
            writer.join()
            app.close()


def _keep_writing(path: Path, stop: Event, seed: int) -> None:
    """Insert and remove lines of noise, and replace the file in one step, as editors and git do."""
    chance = random.Random(seed)
    while not stop.is_set():
        lines = path.read_bytes().splitlines(keepends=True)
        for _ in range(chance.randint(1, 6)):
            at = chance.randrange(len(lines))
            if lines[at].startswith(b"noise") and chance.random() < 0.6:
                del lines[at]
            elif len(lines) < 4 * _LINES:
                lines.insert(at, b"noise %d\n" % chance.randrange(10**6))
        aside = path.with_suffix(".aside")
        aside.write_bytes(b"".join(lines))
        os.replace(aside, path)
        stop.wait(chance.random() * 0.02)


def _edit(app: App, path: Path, trials: int, chance: random.Random) -> list[Raced]:
    made, refused, wrong = Counter[str](), Counter[str](), Counter[str]()
    dialects = ("lines", "old_text", "unified", "v4a")
    for trial in range(trials):
        dialect = dialects[trial % len(dialects)]
        data = path.read_bytes()
        lines = data.decode().split("\n")
        at = chance.choice([at for at, line in enumerate(lines) if line.startswith(("line", "edited"))])
        new = f"edited {lines[at].split()[1]} {trial}"
        try:
            _apply(app, str(path), dialect, data, lines, at, new)
            made[dialect] += 1
        except LlmcError:
            refused[dialect] += 1
        found = Counter(int(number) for number in _OWN.findall(path.read_bytes()))
        if found != Counter(range(_LINES)):
            wrong[dialect] += 1
            path.write_bytes(b"".join(b"line %d\n" % number for number in range(_LINES)))
    return [Raced(one, made[one], refused[one], wrong[one]) for one in dialects]


def _apply(app: App, path: str, dialect: str, data: bytes, lines: list[str], at: int, new: str) -> None:
    def check() -> None:
        pass

    if dialect == "lines":
        edits = [LineEdit(at + 1, at + 1, f"{new}\n")]
        app.mutations.edit(_SESSION, path, edits, check, revision=revision_of(data))
    elif dialect == "old_text":
        app.mutations.edit(_SESSION, path, [TextEdit(f"{lines[at]}\n", f"{new}\n")], check)
    elif dialect == "unified":
        after = "\n".join([*lines[:at], new, *lines[at + 1 :]]).encode()
        app.patching.apply(_SESSION, unified(data, after, "numbers.txt"), False, check)
    else:
        around = [f" {line}" for line in lines[max(at - 1, 0) : at]]
        text = "\n".join(["*** Begin Patch", "*** Update File: numbers.txt", "@@", *around, f"-{lines[at]}", f"+{new}"])
        app.patching.apply(_SESSION, f"{text}\n*** End Patch\n", False, check)
