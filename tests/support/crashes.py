"""Kills a process at a random moment of a change, then looks at what is left, many times over.

Run as a program: `python -m tests.support.crashes FOLDER POINTS [SEED]`; prints one JSON line. A moment is a call into
C: the process that makes the change counts them and sends itself SIGKILL before a randomly chosen one, so every system
call and every statement of the store has its turn, and a seed repeats a run exactly.
"""

import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from llmc_mcp.app import App
from llmc_mcp.changes import operations, patches, undo
from llmc_mcp.config.schema import Config
from llmc_mcp.machine import downloads
from llmc_mcp.session import Session

from .changes import never

# Before the counting begins: no change is under way while code is loaded.
LOADED = (operations, downloads, patches, undo)

WHO = Session("uid:0", "crashes")
DIFF = """\
--- a/one.txt
+++ b/one.txt
@@ -1,2 +1,2 @@
-one
+eins
 end
--- a/two.txt
+++ b/two.txt
@@ -1,2 +1,2 @@
-two
+zwei
 end
--- /dev/null
+++ b/new/folder/three.txt
@@ -0,0 +1 @@
+drei
--- a/gone.txt
+++ /dev/null
@@ -1 +0,0 @@
-gone
"""
BIG, BIGGER = random.Random(1).randbytes(200_000).hex(), random.Random(2).randbytes(220_000).hex()
BEFORE = {
    "one.txt": "one\nend\n",
    "two.txt": "two\nend\n",
    "gone.txt": "gone\n",
    "dir/deep.txt": "deep\n",
    "big.txt": BIG,  # too large, when compressed, for a row of the store
}


def _write(app: App) -> None:
    app.mutations.write(WHO, "big.txt", BIGGER, never)


def _append(app: App) -> None:
    app.mutations.write(WHO, "one.txt", "more\n", never, append=True)


def _create(app: App) -> None:
    app.mutations.write(WHO, "new/folder/three.txt", "drei\n", never, parents=True)


def _edit(app: App) -> None:
    app.mutations.edit(WHO, "two.txt", "two", "zwei", 1, never)


def _diff(app: App) -> None:
    app.patching.apply(WHO, DIFF, False, never)


def _move(app: App) -> None:
    app.mutations.move(WHO, "one.txt", "two.txt", True, never)


def _delete(app: App) -> None:
    app.mutations.delete(WHO, "dir", never, recursive=True)


def _organize(app: App) -> None:
    app.organizer.apply(WHO, app.organizer.find("."), never)


def _without(*names: str) -> dict[str, str]:
    return {name: text for name, text in BEFORE.items() if name not in names}


def _undo(app: App) -> None:
    app.undoing.undo(WHO, app.changes.journal.newest(WHO), False, never)


class Scenario(NamedTuple):
    """A change, and the files before and after it; `first` is made before the one that is crashed."""

    change: Callable[[App], None]
    after: dict[str, str]
    before: dict[str, str] = BEFORE
    first: Callable[[App], None] | None = None


PATCHED = {
    **_without("gone.txt"),
    "one.txt": "eins\nend\n",
    "two.txt": "zwei\nend\n",
    "new/folder/three.txt": "drei\n",
}
MOVED = {**_without("one.txt"), "two.txt": "one\nend\n"}
SORTED = {name if "/" in name else f"Documents/{name}": text for name, text in BEFORE.items()}
CHANGES = {
    "write": Scenario(_write, {**BEFORE, "big.txt": BIGGER}),
    "append": Scenario(_append, {**BEFORE, "one.txt": "one\nend\nmore\n"}),
    "create": Scenario(_create, {**BEFORE, "new/folder/three.txt": "drei\n"}),
    "edit": Scenario(_edit, {**BEFORE, "two.txt": "zwei\nend\n"}),
    "diff": Scenario(_diff, PATCHED),
    "move": Scenario(_move, MOVED),
    "delete": Scenario(_delete, _without("dir/deep.txt")),
    "undo diff": Scenario(_undo, BEFORE, PATCHED, _diff),
    "undo move": Scenario(_undo, BEFORE, MOVED, _move),
    "organize": Scenario(_organize, SORTED),
    "undo organize": Scenario(_undo, BEFORE, SORTED, _organize),
}


def _fresh(root: Path) -> None:
    for name, text in BEFORE.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _now(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def _fork(body: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            body()
        except Exception as exc:  # noqa: BLE001 - the parent only sees that it failed; this says why
            os.write(2, f"{exc!r}\n".encode())
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1]


class _Countdown:
    """Counts calls into C and ends the process before one of them."""

    def __init__(self, fatal: int | None) -> None:
        self.calls, self._fatal = 0, fatal

    def __call__(self, _frame: FrameType, event: str, _argument: object) -> None:
        if event == "c_call":
            if self.calls == self._fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            self.calls += 1


def _run(data: Path, root: Path, scenario: Scenario, fatal: int | None) -> int:
    """How many calls the change takes; with `fatal`, it dies before that one."""
    reading, writing = os.pipe()

    def body() -> None:
        app = App(Config(), [str(root)], str(data))
        app.changes.settle_abandoned()
        for rule in (app.files.is_secret, app.files.is_protected):  # they compile their lists on first use
            rule("x")
        if scenario.first is not None:
            scenario.first(app)
        countdown = _Countdown(fatal)
        sys.setprofile(countdown)
        scenario.change(app)
        sys.setprofile(None)
        os.write(writing, str(countdown.calls).encode())

    status = _fork(body)
    os.close(writing)
    with open(reading) as pipe:
        calls = pipe.read()
    if fatal is None or status == 0:
        return int(calls)
    if os.WTERMSIG(status) != signal.SIGKILL:
        raise RuntimeError(f"the change failed by itself: {status}")
    return fatal


def crash(data: Path, root: Path, name: str, fatal: int) -> str:
    """Crash one change at one point, settle, undo; returns `old` or `new`, or raises an error that says why."""
    scenario = CHANGES[name]
    _fresh(root)
    _run(data, root, scenario, fatal)
    app = App(Config(), [str(root)], str(data))
    try:
        app.reader  # noqa: B018 - creating the reader settles pending changes
        found = _now(root)
        state = "old" if found == scenario.before else "new" if found == scenario.after else "torn"
        made = [one for one in app.changes.journal.history(None, None, 2) if one.roots == [str(root)]]
        if state == "torn" or len(made) != (state == "new") + (scenario.first is not None):
            raise AssertionError(f"{name} at {fatal}: {state}, journaled {made}, found {sorted(found)}")
        if app.changes.leases.all() or app.changes.journal.pending():
            raise AssertionError(f"{name} at {fatal}: a change is still in progress")
        if state == "new":
            app.undoing.undo(WHO, made[0], False, never)
        if _now(root) != scenario.before:
            raise AssertionError(f"{name} at {fatal}: undo did not bring everything back: {sorted(_now(root))}")
        empty = [path for path in root.rglob("*") if path.is_dir() and not any(path.iterdir())]
        if empty:
            raise AssertionError(f"{name} at {fatal}: litter: {empty}")
        return state
    finally:
        app.close()


def main() -> None:
    """Crash POINTS times."""
    folder, points = Path(sys.argv[1]).resolve(), int(sys.argv[2])
    chance = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    data, lengths, seen = folder / "data", dict[str, int](), Counter[str]()
    for number in range(points):
        name = list(CHANGES)[number % len(CHANGES)]
        root = folder / f"root{number}"
        if name not in lengths:
            rehearsal = folder / f"rehearsal-{name}"
            _fresh(rehearsal)
            lengths[name] = _run(data, rehearsal, CHANGES[name], None)
        _fresh(root)
        seen[f"{name}: {crash(data, root, name, chance.randrange(lengths[name]))}"] += 1
    print(json.dumps({"points": points, "moments": lengths, "seen": dict(sorted(seen.items()))}))


if __name__ == "__main__":
    main()
