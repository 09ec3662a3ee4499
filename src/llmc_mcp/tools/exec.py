"""Commands: run a program, run the tests, run what the operator offers by name. All of them in the sandbox."""

import re
import time
from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec

from ..config.schema import Config
from ..context import Context
from ..tool import COMMANDS, PROCESSES, Result, Row, Streams, ToolDef, tool

if TYPE_CHECKING:
    from ..commands.runner import CommandCall, CommandResult
    from ..commands.shell_syntax import CommandLine
    from ..files.handles import Sink

Seconds = Annotated[float, msgspec.Meta(gt=0)]

_ROOM_FOR_META = 1_000
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


class CommandOutput(Result):
    """What a command printed and how it ended; a failing command is an answer, not an error."""

    data: Streams
    meta: CommandMeta
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
    body: ClassVar[str] = "failures"

    def cut(self, kept: int) -> None:
        self.shown = kept


@tool(
    "Run a shell line, or a program (a list of words)",
    needs=COMMANDS,
    destructive=True,
    content=("stdin",),
    task_support="optional",
)
def run_cmd(
    ctx: Context,
    command: str | list[str],
    cwd: str | None = None,
    timeout: Seconds | None = None,
    stdin: str | None = None,
) -> CommandOutput:
    line = ctx.app.shell_lines.read(command)
    seconds = timeout or ctx.app.config.tools.exec_timeout
    if line.argv[0] == "te" and line.argv[1:2] != ["--raw"]:
        return _run_te(ctx, line, cwd, seconds, stdin)
    if line.argv[0] == "te":
        line = line._replace(argv=line.argv[2:] or ["te"])
    done = _run(ctx, line, cwd, seconds, stdin)
    if _NO_TE.search(done.data.stderr):
        done.meta.warnings = [*(done.meta.warnings or ()), _TE_HINT]
    explained = ctx.app.shell_lines.explanations((ctx.session.principal, ctx.session.session_id), line)
    if explained:
        done.meta.warnings = [*(done.meta.warnings or ()), *explained]
    return done


def _run_te(ctx: Context, line: "CommandLine", cwd: str | None, timeout: float, stdin: str | None) -> CommandOutput:
    """te is no program in the sandbox: the server answers for it, as te_run does."""
    from .te import answer_te

    started = time.monotonic()
    done = answer_te(ctx, line.argv[1:], cwd, _limit_time(ctx, timeout), stdin)
    spent = int((time.monotonic() - started) * 1000)
    warnings = [*line.warnings, *done.warnings] or None
    meta = CommandMeta(spent, done.truncated, done.handle, ctx.app.sandbox.level().name, None, warnings)
    return CommandOutput(Streams(done.stdout, done.stderr, done.exit_code), meta)


@tool("Run pytest; returns counts and failures", needs=PROCESSES, destructive=True, task_support="optional")
def run_pytest(
    ctx: Context, path: str | None = None, args: list[str] | None = None, timeout: Seconds | None = None
) -> TestReport:
    limits = ctx.app.config.linux_ops.process_limits
    seconds = _limit_time(ctx, timeout or limits.default_timeout_sec)
    outcome = ctx.app.pytest.run(path, args or [], seconds, _call(ctx))
    failures = [TestFailure(row.test, row.file, row.line, row.message) for row in outcome.failures]
    return TestReport(
        passed=outcome.passed,
        failed=outcome.failed,
        errors=outcome.errors,
        skipped=outcome.skipped,
        duration_s=outcome.duration_s,
        failures=failures,
        handle=outcome.handle,
        warnings=outcome.warnings or None,
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
    )


def _run(
    ctx: Context, line: "CommandLine", cwd: str | None, timeout: float, stdin: str | None, *, listed: bool = True
) -> CommandOutput:
    seconds = _limit_time(ctx, timeout)
    shell = ctx.app.shell
    done = shell.run_command(line, cwd=cwd, timeout_sec=seconds, stdin=stdin, call=_call(ctx), listed=listed)
    return _answer(done)


def _answer(done: "CommandResult") -> CommandOutput:
    meta = CommandMeta(
        done.duration_ms, done.truncated, done.handle, done.sandbox, done.signal, list(done.warnings) or None
    )
    streams = Streams(done.stdout, done.stderr, done.exit_code)
    streams.gaps = done.gaps
    return CommandOutput(streams, meta)


def _limit_time(ctx: Context, seconds: float) -> float:
    seconds = ctx.app.config.capped_seconds(seconds)
    ctx.limit_time(seconds)
    return seconds


def _call(ctx: Context) -> "CommandCall":
    from ..commands.runner import CommandCall

    def open_sink() -> "Sink":
        from ..files.handles import SafeSink

        return SafeSink(lambda: ctx.app.handles.spool(ctx.session.principal, "command_output", {}), ctx.unkept)

    return CommandCall(ctx.check, open_sink, ctx.reply_bytes - _ROOM_FOR_META, env=ctx.session.environment())
