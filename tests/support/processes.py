"""Which processes run below another one; any of them may end while we look."""

import os
from contextlib import suppress
from pathlib import Path


def children_of(pid: int) -> list[int]:
    """The children that any thread of a process started; none when it has ended."""
    found: list[int] = []
    with suppress(OSError):  # the process or one of its threads has just ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += [int(word) for word in (task / "children").read_text().split()]
    return found


def processes_below(pid: int) -> set[int]:
    """All descendants of a process."""
    found: set[int] = set()
    todo = [pid]
    while todo:
        below = set(children_of(todo.pop()))
        todo += below - found
        found |= below
    return found


def processes_with(word: str) -> list[int]:
    """Processes whose command line contains a word."""
    found: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as file:
            if word.encode() in file.read() and int(name) != os.getpid():
                found.append(int(name))
    return found


def parent_of(pid: int) -> int:
    """The parent of a process; 0 when it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
