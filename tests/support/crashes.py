"""Kills a process at a random moment of a change, then looks at what is left, many times over.

Run as a program: `python -m tests.support.crashes FOLDER POINTS [SEED]`; prints one JSON line. A moment is a call into
C: the process that makes the change counts them and sends itself SIGKILL before a randomly chosen one, so every system
call and every statement of the store has its turn, and a seed repeats a run exactly.

`python -m tests.support.crashes FOLDER ELSEWHERE` kills the changes between two file systems instead, at every moment
that follows a change on a disk. ELSEWHERE is a folder on another file system than FOLDER.
"""

import gc
import json
import os
import random
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from llmc_mcp.app import App
from llmc_mcp.changes import operations, patches, undo
from llmc_mcp.changes.edit import TextEdit
from llmc_mcp.config.schema import Config
from llmc_mcp.errors import LlmcError
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
    app.mutations.edit(WHO, "two.txt", [TextEdit("two", "zwei")], never)


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

# --- between two file systems: names that begin with @ are in a second root, on another one ----------


def _path(app: App, name: str) -> str:
    root = app.files.roots[name.startswith("@")].real
    return os.path.join(os.fsdecode(root), name.removeprefix("@"))


def _mover(old: str, new: str) -> Callable[[App], None]:
    return lambda app: app.mutations.move(WHO, _path(app, old), _path(app, new), True, never) and None


def _deleter(*names: str) -> Callable[[App], None]:
    def delete(app: App) -> None:
        for name in names:
            app.mutations.delete(WHO, _path(app, name), never, recursive=True)

    return delete


def _create_apart(app: App) -> None:
    app.mutations.write(WHO, _path(app, "@new/folder/three.txt"), "drei\n", never, parents=True)


def _empty_trash(app: App) -> None:
    app.changes.empty_trash([entry for entry, *_ in app.changes.journal.trashed()])


def _renamed(old: str, new: str) -> dict[str, str]:
    moved = {new + name.removeprefix(old): text for name, text in APART.items() if name.startswith(old)}
    return {**{name: text for name, text in APART.items() if not name.startswith(old)}, **moved}


def _kept(*prefixes: str) -> dict[str, str]:
    return {name: text for name, text in APART.items() if not name.startswith(prefixes)}


APART = {
    "one.txt": "one\n",
    "@two.txt": "two\n",
    "dir/deep.txt": "deep\n",
    "dir/in/deeper.txt": "deeper\n",
    "dir/in/deepest.txt": "deepest\n",
    "@far/a.txt": "a" * 40,
    "@far/b/c.txt": "c" * 40,
    "@large.txt": "large" * 12,
}
TRASH_BYTES = 100  # room for the folder, not for the file as well
FILE_MOVED, FOLDER_MOVED = _renamed("one.txt", "@new.txt"), _renamed("dir", "@dir")
OVERWRITTEN = _renamed("one.txt", "@two.txt")
BETWEEN = {
    "move a file": Scenario(_mover("one.txt", "@new.txt"), FILE_MOVED, APART),
    "undo the move of a file": Scenario(_undo, APART, FILE_MOVED, _mover("one.txt", "@new.txt")),
    "move a folder": Scenario(_mover("dir", "@dir"), FOLDER_MOVED, APART),
    "undo the move of a folder": Scenario(_undo, APART, FOLDER_MOVED, _mover("dir", "@dir")),
    "move onto a file": Scenario(_mover("one.txt", "@two.txt"), OVERWRITTEN, APART),
    "undo a move onto a file": Scenario(_undo, APART, OVERWRITTEN, _mover("one.txt", "@two.txt")),
    "delete a file": Scenario(_deleter("@two.txt"), _kept("@two.txt"), APART),
    "delete a folder": Scenario(_deleter("@far"), _kept("@far"), APART),
    "undo the delete of a folder": Scenario(_undo, APART, _kept("@far"), _deleter("@far")),
    "trim the trash": Scenario(_deleter("@large.txt"), _kept("@far", "@large"), _kept("@far"), _deleter("@far")),
    "empty the trash": Scenario(_empty_trash, _kept("@far"), _kept("@far"), _deleter("@far")),
    "undo a new file": Scenario(_undo, APART, {**APART, "@new/folder/three.txt": "drei\n"}, _create_apart),
}


def _app(data: Path, roots: Sequence[Path]) -> App:
    config = Config()
    if len(roots) > 1:
        config.limits.trash_max_total_bytes = TRASH_BYTES
    return App(config, [str(root) for root in roots], str(data))


def _fresh(roots: Sequence[Path]) -> None:
    for name, text in (BEFORE if len(roots) == 1 else APART).items():
        path = roots[name.startswith("@")] / name.removeprefix("@")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _now(roots: Sequence[Path]) -> dict[str, str]:
    return {
        f"{'@' * number}{path.relative_to(root)}": path.read_text()
        for number, root in enumerate(roots)
        for path in root.rglob("*")
        if path.is_file()
    }


def warm_up(folder: Path) -> None:
    """Load and compile here, once, what every process that is forked from this one would."""
    (folder / "warm" / "root").mkdir(parents=True)
    app = _app(folder / "warm" / "data", [folder / "warm" / "root"])
    app.reader  # noqa: B018 - opens the store
    for rule in (app.files.is_secret, app.files.is_protected):
        rule("x")
    app.close()
    shutil.rmtree(folder / "warm")
    gc.freeze()  # or a collection there would copy every page that they share


def fork(body: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            body()
        except Exception as exc:  # noqa: BLE001 - the parent only sees that it failed; this says why
            os.write(2, f"{exc!r}\n".encode())
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1]


# Between two of these calls a disk holds the same: what an `open` makes is there before the next one, too.
CHANGING = frozenset(
    ("write", "sendfile", "fchmod", "utime", "symlink", "link", "mkdir", "rename", "unlink", "rmdir", "execute")
)


class Countdown:
    """Counts calls into C, those with the given names or all, and ends the process before one of them."""

    def __init__(self, fatal: int | None, counted: Container[str] | None) -> None:
        self.calls, self._fatal, self._counted = 0, fatal, counted

    def __call__(self, _frame: FrameType, event: str, call: object) -> None:
        if event == "c_call" and (self._counted is None or getattr(call, "__name__", "") in self._counted):
            if self.calls == self._fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            self.calls += 1


def _run(data: Path, roots: Sequence[Path], scenario: Scenario, fatal: int | None) -> int:
    """How many calls the change takes; with `fatal`, it dies before that one."""
    reading, writing = os.pipe()

    def body() -> None:
        app = _app(data, roots)
        app.changes.settle_abandoned()
        for rule in (app.files.is_secret, app.files.is_protected):  # they compile their lists on first use
            rule("x")
        if scenario.first is not None:
            scenario.first(app)
        countdown = Countdown(fatal, None if len(roots) == 1 else CHANGING)
        sys.setprofile(countdown)
        scenario.change(app)
        sys.setprofile(None)
        os.write(writing, str(countdown.calls).encode())

    status = fork(body)
    os.close(writing)
    with open(reading) as pipe:
        calls = pipe.read()
    if fatal is None or status == 0:
        return int(calls)
    if os.WTERMSIG(status) != signal.SIGKILL:
        raise RuntimeError(f"the change failed by itself: {status}")
    return fatal


def _settle_and_die(data: Path, roots: Sequence[Path], fatal: int) -> None:
    """Whoever settles may be killed as well."""

    def body() -> None:
        app = _app(data, roots)
        app.changes  # noqa: B018 - opens the store
        sys.setprofile(Countdown(fatal, CHANGING))
        app.changes.settle_abandoned()
        os._exit(0)

    fork(body)


def crash(data: Path, roots: Sequence[Path], name: str, fatal: int) -> str:
    """Crash one change at one point, settle, undo; returns `old` or `new`, or raises an error that says why."""
    scenario = (CHANGES if len(roots) == 1 else BETWEEN)[name]
    _fresh(roots)
    _run(data, roots, scenario, fatal)
    if len(roots) > 1:
        _settle_and_die(data, roots, fatal * 7 % 23)
    app = _app(data, roots)
    try:
        app.reader  # noqa: B018 - creating the reader settles pending changes
        found = _now(roots)
        state = "old" if found == scenario.before else "new" if found == scenario.after else "torn"
        ours = sorted(map(str, roots))
        made = [one for one in app.changes.journal.history(None, None, 2) if one.roots == ours]
        if state == "torn" or len(made) != (state == "new") + (scenario.first is not None):
            raise AssertionError(f"{name} at {fatal}: {state}, journaled {made}, found {sorted(found)}")
        if app.changes.leases.all() or app.changes.journal.pending():
            raise AssertionError(f"{name} at {fatal}: a change is still in progress")
        _refuse_litter(app, data, roots, f"{name} at {fatal}")
        if state == "new":
            app.undoing.undo(WHO, made[0], False, never)
        if _now(roots) != scenario.before:
            raise AssertionError(f"{name} at {fatal}: undo did not bring everything back: {sorted(_now(roots))}")
        _refuse_litter(app, data, roots, f"{name} at {fatal}, undone")
        return state
    finally:
        app.close()


def _refuse_litter(app: App, data: Path, roots: Sequence[Path], when: str) -> None:
    """Nothing may be left that is neither in the files nor in the journal."""
    empty = [path for root in roots for path in root.rglob("*") if path.is_dir() and not any(path.iterdir())]
    unknown = {entry.name for entry in (data / "trash").iterdir()} ^ {row[0] for row in app.changes.journal.trashed()}
    if empty or unknown:
        raise AssertionError(f"{when}: litter: {empty}, in the trash or its table alone: {unknown}")


def crash_at_random(folder: Path, points: int, seed: int) -> None:
    """Crash POINTS times."""
    chance = random.Random(seed)
    data, lengths, seen = folder / "data", dict[str, int](), Counter[str]()
    for number in range(points):
        name = list(CHANGES)[number % len(CHANGES)]
        if name not in lengths:
            rehearsal = [folder / f"rehearsal-{name}"]
            _fresh(rehearsal)
            lengths[name] = _run(data, rehearsal, CHANGES[name], None)
        seen[f"{name}: {crash(data, [folder / f'root{number}'], name, chance.randrange(lengths[name]))}"] += 1
    print(json.dumps({"points": points, "moments": lengths, "seen": dict(sorted(seen.items()))}))


def crash_between(folder: Path, elsewhere: Path, wanted: Sequence[str]) -> None:
    """Crash the changes between two file systems at every moment; says all that is wrong, not only the first."""
    lengths, seen, wrong = dict[str, int](), Counter[str](), list[str]()
    for name in wanted or BETWEEN:
        roots = [folder / "root", elsewhere / "root"]
        _fresh(roots)
        lengths[name] = _run(folder / "data", roots, BETWEEN[name], None)
        for fatal in range(lengths[name] + 1):
            for used in (*roots, folder / "data"):
                shutil.rmtree(used)
            try:
                seen[f"{name}: {crash(folder / 'data', roots, name, fatal)}"] += 1
            except (AssertionError, LlmcError, OSError) as exc:
                wrong.append(f"{name} at {fatal}: {exc}")
    points = sum(seen.values()) + len(wrong)
    print(json.dumps({"points": points, "moments": lengths, "seen": dict(sorted(seen.items())), "wrong": wrong}))


def main() -> None:
    """Crash at random points, or between two file systems at every one."""
    folder = Path(sys.argv[1]).resolve()
    warm_up(folder)
    if sys.argv[2].isdigit():
        crash_at_random(folder, int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    else:
        crash_between(folder, Path(sys.argv[2]).resolve(), sys.argv[3:])


if __name__ == "__main__":
    main()
