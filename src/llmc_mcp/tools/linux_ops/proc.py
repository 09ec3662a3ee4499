"""Processes: what runs on the machine, and programs to talk to."""

from collections import deque
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import msgspec

from ...app import Context
from ...tool import Result, Row, as_payload, tool

if TYPE_CHECKING:
    from ...te.processes import Branch

MaxProcesses = Annotated[int, msgspec.Meta(ge=1, le=5000)]
SignalName = Literal["TERM", "KILL", "INT", "HUP"]
Sort = Literal["cpu", "mem", "pid"]

_ROOM_FOR_META = 600
_AROUND_A_BRANCH = 50  # pid, names and brackets of one process in a tree


# --- what runs on the machine ------------------------------------------------------------------------


class ProcessInfo(Row):
    """A process. Lean text has its pid, CPU and memory percent and the start of its command, below its user."""

    pid: int
    user: str
    cpu_percent: float
    mem_percent: float
    command: str
    group_by: ClassVar[str] = "user"
    line_format: ClassVar[str] = "{pid} {cpu_percent:.0f} {mem_percent:.0f} {command:.32}"


class ProcessList(Result):
    """Processes in order; `total_processes` counts those that may be seen and fit."""

    processes: list[ProcessInfo]
    total_processes: int
    truncated: bool
    columns: str = "pid cpu% mem% command"
    shown: int | None = None
    handle: str | None = None
    body: ClassVar[str] = "processes"
    handle_kind: ClassVar[str] = "proc_list"

    def cut(self, kept: int) -> None:
        self.truncated, self.shown = True, kept


class Killed(Result):
    """What came of a signal."""

    success: bool
    message: str


class _Branches(list["ProcessBranch"]):
    """Children; lean text shows them below their parent."""

    def __format__(self, spec: str) -> str:
        lines = [line for branch in self for line in branch.lines()]
        return "".join(f"\n {line}" for line in lines)


class ProcessBranch(Row):
    """A process and what it started."""

    pid: int
    command: str
    children: list["ProcessBranch"]
    line_format: ClassVar[str] = "{pid} {command}{children}"

    def lines(self) -> list[str]:
        return self.line_format.format(pid=self.pid, command=self.command, children=self.children).split("\n")


class ProcessTree(Result):
    """Processes below their parents; what has no room in the reply is in the handle."""

    tree: list[ProcessBranch]
    truncated: bool
    total_processes: int
    handle: str | None = None
    body: ClassVar[str] = "tree"

    def cut(self, kept: int) -> None:
        del kept
        self.truncated = True


@tool("Running processes with CPU and memory use", feature="proc_enabled", read_only=True)
def linux_proc_list(
    ctx: Context,
    max_results: MaxProcesses = 200,
    user: str | None = None,
    sort: Sort = "cpu",
    name: str | None = None,
) -> ProcessList:
    found = ctx.app.processes.rows(user=user, name=name, sort=sort, check=ctx.check)
    rows = [ProcessInfo(*row) for row in found]
    reply = ProcessList(rows[:max_results], len(rows), len(rows) > max_results)
    if reply.truncated:
        reply.handle = ctx.keep(reply.handle_kind, {}, as_payload(rows))
    return reply


@tool("Send a signal to a process", feature="proc_enabled", destructive=True)
def linux_proc_kill(ctx: Context, pid: int, signal: SignalName = "TERM") -> Killed:
    return Killed(True, ctx.app.processes.kill(pid, signal, ctx.check))


@tool("Processes as a tree", feature="proc_enabled", read_only=True)
def linux_proc_tree(ctx: Context, pid: int | None = None) -> ProcessTree:
    found = ctx.app.processes.tree(pid)
    shown, count = _grow(found, ctx.app.config.limits.max_reply_bytes - _ROOM_FOR_META)
    reply = ProcessTree(shown, count < len(found), len(found))
    if reply.truncated:
        whole = "\n".join(line for branch in _grow(found, 1 << 62)[0] for line in branch.lines())
        reply.handle = ctx.keep("proc_tree", {}, whole.encode("utf-8", "replace"))
    return reply


def _grow(found: "list[Branch]", room: int) -> tuple[list[ProcessBranch], int]:
    """The tree as far as it fits, level by level, and how many processes are in it."""
    known = {branch.pid for branch in found}
    children: dict[int, list[Branch]] = {}
    for branch in found:
        children.setdefault(branch.parent if branch.parent in known else 0, []).append(branch)
    tops: list[ProcessBranch] = []
    todo = deque((branch, tops) for branch in children.get(0, ()))
    count = 0
    while todo:
        branch, siblings = todo.popleft()
        room -= len(branch.command.encode()) + _AROUND_A_BRANCH
        if room < 0:
            break
        node = ProcessBranch(branch.pid, branch.command, _Branches())
        siblings.append(node)
        count += 1
        todo.extend((child, node.children) for child in children.get(branch.pid, ()))
    return tops, count
