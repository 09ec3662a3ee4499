"""Commands: run a program, run the tests, run what the operator offers by name. All of them in the sandbox."""

import re
import time
from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec

from ..config.schema import Config
from ..context import Context
from ..errors import BadArgs
from ..tool import COMMANDS, PROCESSES, Result, Row, Streams, ToolDef, tool
from .command_risks import consent_to_run

if TYPE_CHECKING:
    from ..changes.commands import CommandChanges
    from ..commands.runner import CommandCall, CommandResult
    from ..commands.sessions import Owner
    from ..commands.shell_syntax import CommandLine
    from ..files.handles import Sink

Seconds = Annotated[float, msgspec.Meta(gt=0)]
Wait = Annotated[float, msgspec.Meta(ge=0, le=600)]

_ROOM_FOR_META = 1_000
_YIELD_AFTER_S = 10.0
_AROUND_A_WAIT_S = 20.0  # for the start of a command, and for ending one
_NO_TE = re.compile(r"\bte: (?:command )?not found$", re.MULTILINE)
_TE_HINT = "te is answered by the server, not by a program: give run_cmd a te command alone, without shell syntax."
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


class CommandMeta(msgspec.Struct, omit_defaults=True):
    """How a command ran. `signal`: what an exit code above 128 stands for."""

    duration_ms: int
    truncated: bool
    handle: str | None
    sandbox: str
    signal: str | None = None
    warnings: list[str] | None = None
    waiting_for_input: bool | None = None
    undo_id: str | None = None  # takes back what the command changed
    files_changed: int | None = None
    undo: str | None = None  # "none: …", where it can't be taken back

    def tell(self, changes: "CommandChanges") -> None:
        """Say what the command changed."""
        self.undo_id, self.files_changed = changes.undo_id, changes.files or None
        self.undo = f"none: {changes.none}" if changes.none else None
        self.warnings = [*(self.warnings or ()), *changes.warnings] or None


class CommandOutput(Result):
    """What a command printed and how it ended; a failing command is an answer, not an error.

    One that is `running` goes on as `process`: its output is what it has printed since the last reply.
    """

    data: Streams
    meta: CommandMeta
    running: bool | None = None
    process: str | None = None
    body: ClassVar[str] = "data"

    def cut(self, kept: int) -> None:
        del kept  # each stream says itself what it leaves out
        self.meta.truncated = True


class TestFailure(Row):
    """A test that failed."""

    test: str
    file: str
    line: int
    message: str
    line_format: ClassVar[str] = "{file}:{line} {test}: {message}"


class TestReport(Result):
    """Counts, and what failed; `handle` holds pytest's own output."""

    passed: int
    failed: int
    errors: int
    skipped: int
    duration_s: float
    failures: list[TestFailure]
    handle: str | None
    shown: int | None = None
    undo_id: str | None = None  # takes back what the tests changed
    files_changed: int | None = None
    undo: str | None = None
    body: ClassVar[str] = "failures"

    def cut(self, kept: int) -> None:
        self.shown = kept


@tool(
    "Run a shell line or argv; past yield_after s it runs on: `process` to wait, type, stop",
    needs=COMMANDS,
    destructive=True,
    content=("stdin",),
    task_support="optional",
    consent=consent_to_run,
    process="process",
)
def run_cmd(
    ctx: Context,
    command: str | list[str] | None = None,
    cwd: str | None = None,
    timeout: Seconds | None = None,
    yield_after: Wait = _YIELD_AFTER_S,
    stdin: str | None = None,
    process: str | None = None,
    stop: bool = False,
) -> CommandOutput:
    if (command is None) == (process is None):
        raise BadArgs("give either `command` or `process`")
    if process is not None:
        if cwd is not None or timeout is not None:
            raise BadArgs("`cwd` and `timeout` are for a new command")
        return _go_on(ctx, process, stdin, yield_after, stop)
    if stop or command is None:
        raise BadArgs("`stop` is for a `process`")
    line = ctx.app.shell_lines.read(command)
    if line.argv[0] == "te" and line.argv[1:2] != ["--raw"]:
        return _run_te(ctx, line, cwd, timeout or ctx.app.config.tools.exec_timeout, stdin)
    if line.argv[0] == "te":
        line = line._replace(argv=line.argv[2:] or ["te"])
    ctx.app.sandbox.ready(owner_of(ctx))
    done = _run_or_hand_over(ctx, line, cwd, stdin, timeout, yield_after)
    if _NO_TE.search(done.data.stderr):
        done.meta.warnings = [*(done.meta.warnings or ()), _TE_HINT]
    explained = ctx.app.shell_lines.explanations(owner_of(ctx), line)
    if explained:
        done.meta.warnings = [*(done.meta.warnings or ()), *explained]
    return done


def _run_te(ctx: Context, line: "CommandLine", cwd: str | None, timeout: float, stdin: str | None) -> CommandOutput:
    """te is no program in the sandbox: the server answers for it, as te_run does."""
    from .te import answer_te

    started = time.monotonic()
    done = answer_te(ctx, line.argv[1:], cwd, limit_time(ctx, timeout), stdin)
    spent = int((time.monotonic() - started) * 1000)
    warnings = [*line.warnings, *done.warnings] or None
    meta = CommandMeta(spent, done.truncated, done.handle, ctx.app.sandbox.level().name, None, warnings)
    if done.changes is not None:
        meta.tell(done.changes._replace(warnings=()))
    return CommandOutput(Streams(done.stdout, done.stderr, done.exit_code), meta)


@tool(
    "Run pytest; returns counts and failures",
    needs=PROCESSES,
    destructive=True,
    task_support="optional",
    program="pytest",
)
def run_pytest(
    ctx: Context, path: str | None = None, args: list[str] | None = None, timeout: Seconds | None = None
) -> TestReport:
    limits = ctx.app.config.linux_ops.process_limits
    ctx.app.sandbox.ready(owner_of(ctx))
    seconds = limit_time(ctx, timeout or limits.default_timeout_sec)
    outcome = ctx.app.pytest.run(path, args or [], seconds, call_of(ctx))
    failures = [TestFailure(row.test, row.file, row.line, row.message) for row in outcome.failures]
    return TestReport(
        passed=outcome.passed,
        failed=outcome.failed,
        errors=outcome.errors,
        skipped=outcome.skipped,
        duration_s=outcome.duration_s,
        failures=failures,
        handle=outcome.handle,
        warnings=[*outcome.warnings, *outcome.changes.warnings] or None,
        undo_id=outcome.changes.undo_id,
        files_changed=outcome.changes.files or None,
        undo=f"none: {outcome.changes.none}" if outcome.changes.none else None,
    )


def executables(config: Config) -> list[ToolDef]:
    """The operator's own programs as tools."""
    return [_executable(name, path) for name, path in config.tools.executables.items() if _NAME.fullmatch(name)]


def _executable(name: str, path: str) -> ToolDef:
    def run(ctx: Context, args: list[str] | None = None) -> CommandOutput:
        limits = ctx.app.config.linux_ops.process_limits
        from ..commands.shell_syntax import CommandLine

        line = CommandLine([path, *(args or [])])
        return _run(ctx, line, None, limits.default_timeout_sec, None, listed=False)

    return ToolDef(
        run,
        f"Run {path}"[:90],
        name=name,
        needs=PROCESSES,
        destructive=True,
        program=path,
    )


def _run(
    ctx: Context, line: "CommandLine", cwd: str | None, timeout: float, stdin: str | None, *, listed: bool = True
) -> CommandOutput:
    ctx.app.sandbox.ready(owner_of(ctx))
    seconds = limit_time(ctx, timeout)
    shell = ctx.app.shell
    done = shell.run_command(line, cwd=cwd, timeout_sec=seconds, stdin=stdin, call=call_of(ctx), listed=listed)
    return _answer(done)


def _run_or_hand_over(
    ctx: Context,
    line: "CommandLine",
    cwd: str | None,
    stdin: str | None,
    timeout: float | None,
    yield_after: float,
) -> CommandOutput:
    """Run a command; hand it over when its call has waited long enough, unless its time is over by then.

    A limit that the caller gave holds in the background too. One that the operator set for calls ends the command
    only where that is shorter than the wait.
    """
    from ..commands.runner import HandOver, RunningCommand

    config, owner = ctx.app.config, owner_of(ctx)
    given = yield_after is not _YIELD_AFTER_S  # the same object only where the argument was left out
    longest = config.capped_seconds(timeout or (float("inf") if given else config.tools.exec_timeout))
    wait = config.capped_seconds(yield_after) if given else yield_after
    if wait >= longest and (timeout is not None or not given):
        return _run(ctx, line, cwd, longest, stdin)

    def adopt(running: RunningCommand) -> str | None:
        ends_at = running.started + (timeout or float("inf"))
        return ctx.app.repls.adopt(owner, " ".join(line.argv), running, ends_at)

    ctx.app.repls.touch(owner)
    ctx.app.follow_files()
    ctx.limit_time(longest if longest > wait else wait + _AROUND_A_WAIT_S)
    hand_over = HandOver(wait, given and stdin is None, adopt)
    shell, call = ctx.app.shell, call_of(ctx)
    return _answer(shell.run_command(line, cwd=cwd, timeout_sec=longest, stdin=stdin, call=call, hand_over=hand_over))


def _go_on(ctx: Context, process: str, stdin: str | None, seconds: float, stop: bool) -> CommandOutput:
    """Go on with a command that was handed over, or with any other process of the session."""
    from ..commands.runner import signal_name
    from ..commands.sessions import Watcher

    def show(line: str) -> None:
        ctx.doing = line or ctx.doing

    seconds = ctx.app.config.capped_seconds(seconds)
    ctx.limit_time(seconds + _AROUND_A_WAIT_S)
    owner, repls = owner_of(ctx), ctx.app.repls
    repls.touch(owner)
    done = (
        repls.end(owner, process, ctx.check)
        if stop
        else repls.go_on(owner, process, stdin, seconds, Watcher(ctx.check, show))
    )
    turn = done.turn
    code = turn.exit_code
    whole, handle = turn.stdout + turn.stderr, None
    if len(msgspec.json.encode(whole)) > ctx.reply_bytes - _ROOM_FOR_META:
        handle = ctx.keep("command_output", {}, whole.encode("utf-8", "replace"))
    meta = CommandMeta(done.elapsed_ms, False, handle, done.sandbox, warnings=list(turn.warnings) or None)
    meta.tell(turn.changes)
    reply = CommandOutput(Streams(turn.stdout, turn.stderr, code), meta)
    if code is None:
        reply.running, reply.process = True, process
        meta.waiting_for_input = True if turn.waiting else None
    else:
        meta.signal = signal_name(code - 128)
    return reply


def _answer(done: "CommandResult") -> CommandOutput:
    meta = CommandMeta(
        done.duration_ms, done.truncated, done.handle, done.sandbox, done.signal, list(done.warnings) or None
    )
    meta.tell(done.changes)
    streams = Streams(done.stdout, done.stderr, None if done.process else done.exit_code)
    streams.gaps = done.gaps
    if done.process:
        return CommandOutput(streams, meta, True, done.process)
    return CommandOutput(streams, meta)


def limit_time(ctx: Context, seconds: float) -> float:
    """Limit the time of a call that runs a command, to what the operator allows."""
    ctx.app.follow_files()
    seconds = ctx.app.config.capped_seconds(seconds)
    ctx.limit_time(seconds)
    return seconds


def call_of(ctx: Context) -> "CommandCall":
    """What a command needs from the call it runs for."""
    from ..commands.conversation import last_line
    from ..commands.runner import CommandCall

    def open_sink() -> "Sink":
        return ctx.spool("command_output", {})

    def tap(stream: str, piece: bytes) -> None:
        del stream
        ctx.doing = last_line(piece) or ctx.doing

    return CommandCall(
        ctx.check,
        open_sink,
        ctx.reply_bytes - _ROOM_FOR_META,
        tap,
        ctx.session.environment(),
        owner_of(ctx),
        ctx.session,
    )


def owner_of(ctx: Context) -> "Owner":
    """The session whose network and /tmp a command shares."""
    from ..commands.sessions import Owner

    return Owner(ctx.session.principal, ctx.session.session_id)
