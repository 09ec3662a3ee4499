"""The tasks: what an agent wants to know or to do, what must be in place, and what an answer must hold."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .workspace import FAILED, LOG_LINES, Workspace

MARKER = "benchmark-marker"
FORTY = "".join(f"value_{number} = {number}\n" for number in range(40))
FOUR_HUNDRED = "".join(f"value_{number} = {number}\n" for number in range(400))
THREE = ("django/utils/inspect.py", "django/utils/deconstruct.py", "django/db/models/utils.py")


class Scene:
    """The workspace, and the processes that a task finds on the machine."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.started: list[subprocess.Popen[bytes]] = []

    def sleeper(self) -> subprocess.Popen[bytes]:
        """A process with a name of its own; it ends with the scene, or when a task kills it."""
        code = f"import time  # {MARKER}\ntime.sleep(3600)"
        self.started.append(subprocess.Popen([sys.executable, "-c", code]))
        return self.started[-1]

    @property
    def pid(self) -> int:
        return self.started[-1].pid

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.wait()
        self.started.clear()


@dataclass(frozen=True)
class Task:
    """`holds` says whether the replies answer the question, or whether the change is really there."""

    name: str
    holds: Callable[[Scene, str], bool]
    prepare: Callable[[Scene], object] = lambda _: None
    flood: bool = False


def _all_in(*words: str) -> Callable[[Scene, str], bool]:
    return lambda _, text: all(word in text for word in words)


def _lines_of(relative: str, first: int, count: int) -> Callable[[Scene, str], bool]:
    def holds(scene: Scene, text: str) -> bool:
        lines = (scene.workspace.root / relative).read_text().splitlines()[first : first + count]
        return all(line.strip() in text for line in _as_read(lines))

    return holds


def _as_read(lines: Sequence[str]) -> list[str]:
    """Lines that no JSON escape changes: quotes and backslashes look different in a classic reply."""
    return [line for line in lines if '"' not in line and "\\" not in line]


def _tail(_: Scene, text: str) -> bool:
    return all(f"request {number:06d}" in text for number in range(LOG_LINES - 50, LOG_LINES))


def _tree(scene: Scene, text: str) -> bool:
    top = scene.workspace.root / "django"
    wanted = [folder.name for folder in top.iterdir()] + [one.name for one in (top / "contrib").iterdir()]
    return all(name in text for name in wanted if not name.startswith("__"))


def _found_files(scene: Scene, text: str) -> bool:
    found = scene.workspace.root.joinpath("django").rglob("*middleware*.py")
    return all(str(path.relative_to(scene.workspace.root / "django")) in text for path in found)


def _many_hits(scene: Scene, text: str) -> bool:
    """Every file that has a hit is named."""
    folder = scene.workspace.root / "django"
    files = [path for path in folder.rglob("*.py") if "def save(" in path.read_text()]
    return all(str(path.relative_to(folder)) in text for path in files)


def _edited(scene: Scene, _: str) -> bool:
    return "return 45" in scene.workspace.settings.read_text()


def _near_miss(scene: Scene, text: str) -> bool:
    """Nothing changed, and the reply shows the line as it really is."""
    return "return 45" not in scene.workspace.settings.read_text() and "return 30" in text


def _written(content: str) -> Callable[[Scene, str], bool]:
    def holds(scene: Scene, _: str) -> bool:
        path = scene.workspace.root / "new.py"
        return path.exists() and path.read_text() == content

    return holds


def _unwrite(scene: Scene) -> None:
    (scene.workspace.root / "new.py").unlink(missing_ok=True)


def _killed(scene: Scene, _: str) -> bool:
    return scene.started[-1].wait(5) == -signal.SIGTERM


def _memory(_: Scene, text: str) -> bool:
    """The machine's memory in MB or GB is among the figures."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    figures = [float(figure) for figure in re.findall(r"\d+(?:\.\d+)?", text.replace(",", ""))]
    units = (1, 1e6, 1e9, 1 << 20, 1 << 30)
    return any(abs(figure * unit / total - 1) < 0.05 for figure in figures for unit in units)


def _stat(scene: Scene, text: str) -> bool:
    return str(scene.workspace.log.stat().st_size) in text


def _many_changed(scene: Scene, _: str) -> bool:
    return scene.workspace.many_changed()


def _three_files(scene: Scene, text: str) -> bool:
    return all(_lines_of(path, 0, 200)(scene, text) for path in THREE)


TASKS = [
    Task("read 200 lines", _lines_of("django/db/models/base.py", 0, 200)),
    Task("last 50 lines of a log", _tail),
    Task("tree, two levels", _tree),
    Task("find files by name", _found_files),
    Task("search, many hits", _many_hits),
    Task("search, one hit", _all_in("http/multipartparser.py")),
    Task("edit", _edited, lambda scene: scene.workspace.restore_settings()),
    Task("edit, near miss", _near_miss, lambda scene: scene.workspace.restore_settings()),
    Task("write 40 lines", _written(FORTY), _unwrite),
    Task("write 400 lines", _written(FOUR_HUNDRED), _unwrite),
    Task("5,000-line test run", _all_in(*FAILED, "3 failed"), flood=True),
    Task("ls -R", _all_in("CHANGES.txt", "run_tests.py"), flood=True),
    Task("REPL, three steps", _all_in("1764")),
    Task("which process is it", lambda scene, text: str(scene.pid) in text, Scene.sleeper),
    Task("kill a process", _killed, Scene.sleeper),
    Task("state of the machine", _memory),
    Task("where is a concept", _all_in("contrib/auth/hashers.py")),
    Task("read three files", _three_files),
    Task("stat", _stat),
    Task("change 30 files, one by one", _many_changed, lambda scene: scene.workspace.restore_many()),
    Task("change 30 files by a command", _many_changed, lambda scene: scene.workspace.restore_many()),
]
