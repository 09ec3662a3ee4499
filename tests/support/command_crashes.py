"""Kills a server at a random moment of a command, of the comparison after it, and of its undo, many times over.

`python -m tests.support.command_crashes FOLDER POINTS [SEED]` prints one JSON line: how often which state was found.
The command is a few changes by the process itself, so that it dies with the server, as commands do.
"""

import json
import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from llmc_mcp.app import App
from llmc_mcp.changes import commands, undo
from llmc_mcp.config.schema import Config
from llmc_mcp.session import Session
from llmc_mcp.tracking import tracker

from .changes import litter, never
from .commands import snapshot
from .crashes import Countdown, fork

LOADED = (commands, undo, tracker)  # before the counting begins
WHO = Session("uid:0", "crashes")


def _fresh(root: Path) -> None:
    (root / "dir" / "in").mkdir(parents=True)
    for name, text in {"one": "one\n", "two": "two\n" * 9, "dir/three": "3", "dir/in/four": "4\n" * 99}.items():
        (root / name).write_text(text)
    (root / "link").symlink_to("one")
    (root / "repository" / ".git" / "objects" / "ab").mkdir(parents=True)  # which is moved as a whole
    (root / "repository" / ".git" / "objects" / "ab" / "cd").write_text("an object")
    (root / "repository" / ".git" / "HEAD").write_text("ref: refs/heads/main\n")


def _act(root: Path) -> None:
    (root / "one").write_text("eins\n")
    (root / "two").unlink()
    (root / "dir").rename(root / "folder")
    (root / "new").mkdir()
    (root / "new" / "five").write_text("5\n")
    (root / "folder" / "three").chmod(0o700)
    (root / "folder" / "in").chmod(0o500)
    (root / "repository").rename(root / "moved")
    os.mkfifo(root / "fifo")
    (root / "link").unlink()
    (root / "link").write_text("a file now")


def _first_look(app: App, _: Path) -> None:
    undoing = app.command_undo
    assert undoing is not None
    undoing.begin(WHO, "one that changes nothing").end()


def _command(app: App, root: Path) -> None:
    undoing = app.command_undo
    assert undoing is not None
    window = undoing.begin(WHO, "a command")
    _act(root)
    window.end()


def _undo(app: App, _: Path) -> None:
    app.undoing.undo(WHO, app.changes.journal.newest(WHO), False, never)


def _redo(app: App, _: Path) -> None:
    newest = app.changes.journal.history(None, None, 1)[0]
    app.undoing.undo(WHO, newest, False, never)


SCENARIOS: dict[str, tuple[Callable[[App, Path], None], ...]] = {
    "command": (_first_look, _command),
    "undo": (_command, _undo),
    "redo": (_command, _undo, _redo),
}


def _run(data: Path, root: Path, steps: tuple[Callable[[App, Path], None], ...], fatal: int | None) -> int:
    """How many calls the last step takes; with `fatal`, it dies before that one."""
    reading, writing = os.pipe()

    def body() -> None:
        app = App(Config(), [str(root)], str(data))
        app.changes.settle_abandoned()
        for step in steps[:-1]:
            step(app, root)
        countdown = Countdown(fatal, None)
        sys.setprofile(countdown)
        steps[-1](app, root)
        sys.setprofile(None)
        os.write(writing, str(countdown.calls).encode())

    fork(body)
    os.close(writing)
    with open(reading) as pipe:
        return int(pipe.read() or 0)


def crash(base: Path, name: str, fatal: int) -> str:
    """Crash at one point and settle; returns what was found, or raises an error that says why it must not be."""
    root, data = base / "root", base / "data"
    _fresh(root)
    before = snapshot(root)
    _run(data, root, SCENARIOS[name], fatal)
    app = App(Config(), [str(root)], str(data))
    where = f"{name} at {fatal}"
    try:
        app.reader  # noqa: B018 - creating the reader settles pending changes
        if app.changes.journal.pending() or litter(root):
            raise AssertionError(f"{where}: not settled: {litter(root)}")
        found = snapshot(root)
        if name == "command":
            return _check_command(app, root, before, where)
        if _shape(found) not in (_shape(before), _shape(_acted(base))):
            raise AssertionError(f"{where}: torn: {sorted(found)}")
        return "old" if _shape(found) == _shape(before) else "new"
    finally:
        app.close()
        shutil.rmtree(base)


def _check_command(app: App, root: Path, before: dict[str, tuple[object, ...]], where: str) -> str:
    history = app.changes.journal.history(None, None, 5)
    if not history:
        if snapshot(root) != before:
            raise AssertionError(f"{where}: changed, and the journal does not know")
        return "old"
    if history[0].state == "failed":
        return "marked"
    app.undoing.undo(WHO, history[0], False, never)
    if snapshot(root) != before:
        raise AssertionError(f"{where}: undo did not bring everything back")
    return "new"


def _shape(found: dict[str, tuple[object, ...]]) -> dict[str, tuple[object, ...]]:
    """What is compared of a state that was made twice: all but times."""
    return {path: entry[:3] for path, entry in found.items()}


def _acted(base: Path) -> dict[str, tuple[object, ...]]:
    other = base / "other"
    if not other.exists():
        _fresh(other)
        _act(other)
    return snapshot(other)


def main() -> None:
    base, points = Path(sys.argv[1]), int(sys.argv[2])
    chance = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    outcomes: Counter[str] = Counter()
    lengths: dict[str, int] = {}
    for name, steps in SCENARIOS.items():
        _fresh(base / "count" / "root")
        lengths[name] = _run(base / "count" / "data", base / "count" / "root", steps, None)
        shutil.rmtree(base / "count")
    for number in range(points):
        name = list(SCENARIOS)[number % len(SCENARIOS)]
        outcomes[f"{name}: {crash(base / 'crash', name, chance.randrange(lengths[name]))}"] += 1
    print(json.dumps({"calls": lengths, "outcomes": outcomes}))


if __name__ == "__main__":
    main()
