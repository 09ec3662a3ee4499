"""Processes: list, signal, and interact with programs."""

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import msgspec

from ...context import Context
from ...errors import InvalidArgument, ProcessNotFound
from ...tool import KILLS, PROCESSES, REPLS, Result, Risk, Row, as_payload, tool
from ..command_risks import consent_to_run

if TYPE_CHECKING:
    from ...commands.conversation import Turn
    from ...commands.sessions import Owner
    from ...machine.processes import Branch

MaxProcesses = Annotated[int, msgspec.Meta(ge=1, le=5000)]
_SIGNALS = ("TERM", "KILL", "INT", "HUP")
SignalName = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(_SIGNALS)})]
Sort = Literal["cpu", "mem", "pid"]

Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=600_000)]
Columns = Annotated[int, msgspec.Meta(ge=20, le=500)]

_ROOM_FOR_META = 600
_LONG_LINE_SHOWN = 400
_AROUND_A_WAIT_S = 10.0
_STOP_S = 20.0
_AROUND_A_BRANCH = 50  # bytes of the pid, field names and brackets of a process in a tree


# --- processes of the machine ------------------------------------------------------------------------


class ProcessInfo(Row):
    """A process. Lean text shows its pid, CPU and memory percentages and the start of its command, grouped by user."""

    pid: int
    user: str
    cpu_percent: float
    mem_percent: float
    command: str
    group_by: ClassVar[str] = "user"
    line_format: ClassVar[str] = "{pid} {cpu_percent:.0f} {mem_percent:.0f} {command:.32}"


class ProcessList(Result):
    """Sorted processes; `total_processes` counts all that match and may be listed."""

    processes: list[ProcessInfo]
    total_processes: int
    truncated: bool
    columns: str = "pid cpu% mem% command"
    logged: ClassVar[tuple[str, ...]] = ("total_processes",)
    shown: int | None = None
    handle: str | None = None
    body: ClassVar[str] = "processes"
    handle_kind: ClassVar[str] = "proc_list"


class SignalResult(Result):
    """The result of sending a signal."""

    success: bool
    message: str


class _Branches(list["ProcessBranch"]):
    """Children; lean text shows them below their parent."""

    def __format__(self, spec: str) -> str:
        lines = [line for branch in self for line in branch.lines()]
        return "".join(f"\n {line}" for line in lines)


class ProcessBranch(Row):
    """A process and its children."""

    pid: int
    command: str
    children: list["ProcessBranch"]
    line_format: ClassVar[str] = "{pid} {command}{children}"

    def lines(self) -> list[str]:
        return self.line_format.format(pid=self.pid, command=self.command, children=self.children).split("\n")


class ProcessTree(Result):
    """Processes below their parents; if the tree exceeds the reply, the handle has all of it."""

    tree: list[ProcessBranch]
    truncated: bool
    total_processes: int
    handle: str | None = None
    body: ClassVar[str] = "tree"


@tool("Running processes with CPU and memory use", needs=PROCESSES, read_only=True)
def linux_proc_list(
    ctx: Context,
    max_results: MaxProcesses = 200,
    user: str | None = None,
    sort: Sort = "cpu",
    name: str | None = None,
) -> ProcessList:
    found = ctx.app.processes.rows(user=user, name=name, sort=sort, check=ctx.check)
    rows = [ProcessInfo(*row) for row in found]
    reply = ProcessList(rows[:max_results], len(rows), False)
    if len(rows) > max_results:
        reply.handle = ctx.keep(reply.handle_kind, {}, as_payload(rows))
        reply.cut(max_results)
    return reply


def _consent_to_kill(ctx: Context, arguments: Mapping[str, Any]) -> Risk | None:
    foreign = ctx.app.processes.describe_foreign(arguments["pid"])
    return None if foreign is None else Risk("foreign_process", f"send SIG{_known(arguments['signal'])} to {foreign}")


@tool("Send a signal to a process", needs=KILLS, destructive=True, consent=_consent_to_kill)
def linux_proc_kill(ctx: Context, pid: int, signal: SignalName = "TERM") -> SignalResult:
    return SignalResult(True, ctx.app.processes.kill(pid, _known(signal), ctx.check))


def _known(signal: str) -> str:
    if signal not in _SIGNALS:
        raise InvalidArgument(f"{signal[:20]!r} is no signal that can be sent", hint=f"One of {', '.join(_SIGNALS)}.")
    return signal


@tool("Processes as a tree", needs=PROCESSES, read_only=True)
def linux_proc_tree(ctx: Context, pid: int | None = None) -> ProcessTree:
    found = ctx.app.processes.tree(pid)
    shown, count = _grow(found, ctx.reply_bytes - _ROOM_FOR_META)
    reply = ProcessTree(shown, count < len(found), len(found))
    if reply.truncated:
        whole = "\n".join(line for branch in _grow(found, 1 << 62)[0] for line in branch.lines())
        reply.handle = ctx.keep("proc_tree", {}, whole.encode("utf-8", "replace"))
    return reply


def _grow(found: "list[Branch]", room: int) -> tuple[list[ProcessBranch], int]:
    """The tree as far as it fits, level by level, and the number of processes in it."""
    pids = {branch.pid for branch in found}
    children: dict[int, list[Branch]] = {}
    for branch in found:
        children.setdefault(branch.parent if branch.parent in pids else 0, []).append(branch)
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


# --- interactive processes ---------------------------------------------------------------------------


class _CommandReply(Result, kw_only=True):
    """A reply that says what the program has changed since the last one."""

    undo_id: str | None = None
    files_changed: int | None = None
    undo: str | None = None  # "none: …", where it can't be taken back

    def tell(self, turn: "Turn") -> Self:
        changes = turn.changes
        self.undo_id, self.files_changed = changes.undo_id, changes.files or None
        self.undo = f"none: {changes.none}" if changes.none else None
        self.warnings = [*turn.warnings, *changes.warnings] or None
        return self


class ProcessOutput(_CommandReply):
    """New output of an interactive process, and whether it waits for input.

    `decided_by` is the system call on its terminal in which the process waits for input; `idle`: it only sleeps.
    """

    output: str
    state: str
    exit_code: int | None = None
    waiting_for_input: bool | None = None
    decided_by: str | None = None
    truncated: bool | None = None
    handle: str | None = None
    body: ClassVar[str] = "output"
    handle_kind: ClassVar[str] = "process_output"


class StartedProcess(_CommandReply):
    """A started interactive process and its first output."""

    proc_id: str
    pid: int
    first_output: str
    state: str
    exit_code: int | None = None
    waiting_for_input: bool | None = None
    decided_by: str | None = None
    truncated: bool | None = None
    handle: str | None = None
    body: ClassVar[str] = "first_output"
    handle_kind: ClassVar[str] = "process_output"


class Sent(_CommandReply):
    """Input was sent; with a read timeout, the resulting output."""

    acknowledged: bool
    output: str = ""
    state: str | None = None
    exit_code: int | None = None
    waiting_for_input: bool | None = None
    decided_by: str | None = None
    truncated: bool | None = None
    handle: str | None = None
    body: ClassVar[str] = "output"
    handle_kind: ClassVar[str] = "process_output"


class StopResult(_CommandReply):
    """An interactive process has ended and was removed; `output` is its unread output."""

    stopped: bool
    exit_code: int
    output: str = ""
    truncated: bool | None = None
    handle: str | None = None
    body: ClassVar[str] = "output"
    handle_kind: ClassVar[str] = "process_output"


class SessionRow(Row):
    """An interactive process of this session."""

    proc_id: str
    pid: int
    command: str
    state: str
    started_iso: str
    idle_s: int
    line_format: ClassVar[str] = "{proc_id} {pid} {state} {started_iso} idle {idle_s}s {command:.100}"


class Sessions(Result):
    """The interactive processes of this session."""

    processes: list[SessionRow]
    body: ClassVar[str] = "processes"

    def cut(self, kept: int) -> None:
        """Do nothing: the list is always far shorter than a reply."""

    def join(self, other: "Sessions") -> None:
        """Add those of the same session in another replica."""
        self.processes = sorted([*self.processes, *other.processes], key=lambda one: one.started_iso)


@tool(
    "Start a program to talk to (REPL, debugger, shell) on a terminal",
    needs=REPLS,
    destructive=True,
    consent=consent_to_run,
)
def linux_proc_start(
    ctx: Context,
    command: str | list[str],
    cwd: str | None = None,
    env: dict[str, str] | None = None,
    cols: Columns = 120,
    wait_ms: Milliseconds = 1000,
) -> StartedProcess:
    line, seconds = ctx.app.shell_lines.read(command), _seconds(ctx, wait_ms)
    window, none = ctx.app.shell.open_window(line, ctx.session)
    try:
        proc_id, pid, turn = ctx.app.repls.start(
            _owner(ctx),
            line,
            cwd=cwd,
            env=env or {},
            server_env=ctx.session.environment(),
            columns=cols,
            wait_s=seconds,
            check=ctx.check,
            window=window,
        )
    except BaseException:
        if window is not None:
            window.end()
        raise
    text, cut, handle = _shown(ctx, turn.output)
    reply = StartedProcess(proc_id, pid, text, *_standing(turn), cut, handle).tell(turn)
    reply.undo = f"none: {none}" if none else reply.undo
    return reply


@tool(
    "Type into an interactive process (^C, ^D work); may wait for the reply",
    needs=REPLS,
    destructive=True,
    content=("input",),
    process="proc_id",
)
def linux_proc_send(ctx: Context, proc_id: str, input: str, read_timeout_ms: Milliseconds = 0) -> Sent:
    turn = ctx.app.repls.send(_owner(ctx), proc_id, input, _seconds(ctx, read_timeout_ms), ctx.check)
    if turn is None:
        return Sent(True)
    text, cut, handle = _shown(ctx, turn.output)
    return Sent(True, text, *_standing(turn), cut, handle).tell(turn)


@tool("New output of an interactive process, and whether it waits for input", needs=REPLS, process="proc_id")
def linux_proc_read(ctx: Context, proc_id: str, timeout_ms: Milliseconds = 1000) -> ProcessOutput:
    try:
        turn = ctx.app.repls.read(_owner(ctx), proc_id, _seconds(ctx, timeout_ms), ctx.check)
    except ProcessNotFound:
        return ProcessOutput("", "no_such_process")
    text, cut, handle = _shown(ctx, turn.output)
    return ProcessOutput(text, *_standing(turn), cut, handle).tell(turn)


@tool("End an interactive process with all it started", needs=REPLS, destructive=True, process="proc_id")
def linux_proc_stop(ctx: Context, proc_id: str, signal: SignalName = "TERM") -> StopResult:
    import signal as signals

    ctx.limit_time(_STOP_S)
    turn = ctx.app.repls.stop(_owner(ctx), proc_id, signals.Signals[f"SIG{_known(signal)}"], ctx.check)
    return StopResult(True, turn.exit_code or 0, turn.output).tell(turn)


@tool("Interactive processes of this session", needs=REPLS, read_only=True, gathers=True)
def linux_proc_sessions(ctx: Context) -> Sessions:
    return Sessions([SessionRow(*row) for row in ctx.app.repls.running(_owner(ctx))])


def _owner(ctx: Context) -> "Owner":
    from ...commands.sessions import Owner

    return Owner(ctx.session.principal, ctx.session.session_id)


def _seconds(ctx: Context, milliseconds: int) -> float:
    """The time to wait; also extends the time limit of the call to cover it."""
    seconds = ctx.app.config.capped_seconds(milliseconds / 1000)
    ctx.limit_time(seconds + _AROUND_A_WAIT_S)
    return seconds


def _standing(turn: "Turn") -> tuple[str, int | None, bool | None, str | None]:
    waiting = bool(turn.waiting) if turn.exit_code is None else None
    return turn.state, turn.exit_code, waiting, turn.waiting or None


def _shown(ctx: Context, text: str) -> tuple[str, bool | None, str | None]:
    """The output; too long for a reply, its start and more of its end, that it is cut, and a handle of all of it."""
    room = ctx.reply_bytes - _ROOM_FOR_META
    if len(msgspec.json.encode(text)) <= room:
        return text, None, None
    handle = ctx.keep(ProcessOutput.handle_kind, {}, text.encode("utf-8", "replace"))
    lines = text.splitlines(keepends=True)
    head, tail = _fitting(lines, room // 4), _fitting(lines[::-1], room // 2)
    left_out = len(lines) - len(head) - len(tail)
    return "".join([*head, f"… [{left_out:,} lines left out] …\n", *tail[::-1]]), True, handle


def _fitting(lines: list[str], room: int) -> list[str]:
    """The first lines that fit; if even the first is too long, its start."""
    kept: list[str] = []
    for line in lines:
        room -= len(msgspec.json.encode(line))
        if room < 0:
            return kept or [f"{line[:_LONG_LINE_SHOWN]}… [line cut]\n"]
        kept.append(line)
    return kept
