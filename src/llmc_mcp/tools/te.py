"""Commands through the tool envelope: run in the sandbox, shown as a model should read them."""

import shlex
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec

from ..context import Context
from ..envelope.reply import Cost, TeOutput, as_text, enrichment_of
from ..errors import BadArgs, FeatureUnavailable, Internal, ResourceBusy
from ..tool import COMMANDS, tool

if TYPE_CHECKING:
    from ..commands.runner import CommandCall
    from ..commands.shell_syntax import CommandLine
    from ..envelope.families import CondensedOutput
    from ..envelope.family import Budget, FamilyPlan
    from ..envelope.records import Identity
    from ..files.handles import Sink

Seconds = Annotated[float, msgspec.Meta(gt=0)]

_ROOM_FOR_META = 2_000
_NOTE_S = 1.0  # how long the row of a command waits for other writers
_ESCAPED = 0.85  # of a reply's bytes are text; the rest is what JSON makes of line ends and quotes


@tool("Run a command; big output comes ranked, grouped, cut, with a handle", needs=COMMANDS, destructive=True)
def te_run(
    ctx: Context,
    command: str | list[str] | None = None,
    args: list[str] | None = None,
    cwd: str | None = None,
    timeout: Seconds | None = None,
) -> TeOutput:
    settings, given = ctx.app.config, command if command is not None else args
    if given is None or (command is not None and args is not None):
        raise BadArgs("give either `command` or `args`")
    seconds = settings.capped_seconds(timeout or settings.te.timeout)
    ctx.limit_time(seconds)
    return _WrappedCommand(ctx, ctx.app.shell_lines.read(given)).run(cwd, seconds)


class _WrappedCommand:
    """One command, what it is run for, and what its session may still read."""

    def __init__(self, ctx: Context, line: "CommandLine") -> None:
        from ..envelope.families import Envelope
        from ..envelope.records import CommandRecord

        argv = line.argv
        self._ctx, self._line, self._argv = ctx, line, argv
        self._plan, self._mode = _plan(ctx, argv)
        self._envelope = Envelope(self._plan, self._open_sink, unchanged_tokens=ctx.app.config.te.unchanged_tokens)
        self._noted = CommandRecord(argv, _who(ctx), ctx.app.root_set, source="te_run")

    def run(self, cwd: str | None, seconds: float) -> TeOutput:
        try:
            shell = self._ctx.app.shell
            line = self._line._replace(argv=self._plan.argv)
            done = shell.run_command(line, cwd=cwd, timeout_sec=seconds, call=self._call())
        except BaseException:
            self._envelope.drop()
            raise
        left = self._budget_left()
        shown = self._shown(self._budget(left, len(done.stderr)))
        self._note(done.exit_code, shown)
        if not self._ctx.app.config.te.json_mode:
            text = as_text(self._noted.name, shown).decode("utf-8", "replace")
            return self._answer(done.exit_code, text, done.stderr, done.warnings)
        answer = self._answer(done.exit_code, shown.body().decode("utf-8", "replace"), done.stderr, done.warnings)
        answer.enrichment = enrichment_of(shown)
        remaining = max(left - self._noted.tokens_out, 0)
        answer.telemetry = Cost(round(self._noted.latency_ms, 1), self._noted.who.agent_id, remaining)
        return answer

    def _call(self) -> "CommandCall":
        from ..commands.runner import CommandCall
        from ..kernel.child import OUT

        def tap(stream: str, piece: bytes) -> None:
            if stream == OUT:
                self._envelope.feed(piece)

        return CommandCall(self._ctx.check, lambda: None, 0, tap, self._ctx.session.environment())

    def _budget_left(self) -> int:
        from ..envelope.records import USED

        who, te = self._noted.who, self._ctx.app.config.te
        try:
            used = self._ctx.app.store.query(USED, (who.agent_id, who.session_id))[0][0]
        except (FeatureUnavailable, ResourceBusy):
            used = 0
        whole = te.budgets.get(self._ctx.session.budget_profile) or te.budgets.get(who.agent_id, te.default_budget)
        return max(whole - int(str(used)), 0)

    def _budget(self, left: int, stderr: int) -> "Budget":
        from ..envelope.families import share_of
        from ..envelope.family import Budget

        config = self._ctx.app.config
        tokens, _ = share_of(left, 0, config.te.reply_tokens)
        room = int((self._ctx.reply_bytes - _ROOM_FOR_META - min(stderr, 4_000)) * _ESCAPED)
        return Budget(tokens, max(room, 500))

    def _shown(self, budget: "Budget") -> "CondensedOutput":
        shown = self._envelope.finish(budget)
        if shown is not None:
            if shown.unchanged is not None and self._mode == "enriched":
                self._mode, self._noted.mode = "passthrough", "unchanged"
            return shown
        if self._envelope.failure is not None:
            self._ctx.warnings.append(f"enrichment failed: {self._envelope.failure!r}")
            if not self._ctx.app.config.te.passthrough_on_failure:
                raise Internal(
                    "the command ran, but its output could not be enriched",
                    hint=f"The output: handle {self._envelope.keep()}. Setting: mcp.te.passthrough_on_failure.",
                )
        self._mode = "passthrough"
        return self._envelope.as_it_is(budget)

    def _note(self, code: int, shown: "CondensedOutput") -> None:
        noted = self._noted
        noted.mode = noted.mode if noted.mode == "unchanged" else self._mode
        noted.shown(shown.body(), shown.raw_tokens)
        if not self._ctx.app.config.observability.enabled:
            return
        try:
            with self._ctx.app.store.transaction(wait_s=_NOTE_S) as connection:
                noted.insert(connection, code)
        except (FeatureUnavailable, ResourceBusy) as exc:
            self._ctx.warnings.append(exc.message)

    def _answer(self, code: int, stdout: str, stderr: str, warnings: list[str]) -> TeOutput:
        from ..envelope.reply import stderr_text

        complaint = stderr_text(stderr.encode("utf-8", "replace"))
        command = shlex.join(self._argv)
        return TeOutput(code == 0, self._mode, command, stdout, complaint, code, warnings=list(warnings) or None)

    def _open_sink(self) -> "Sink":
        from ..files.handles import SafeSink

        ctx, command = self._ctx, self._noted.name
        spool = partial(ctx.app.handles.spool, ctx.session.principal, "command_output", {"command": command})
        return SafeSink(spool, ctx.unkept)


def _plan(ctx: Context, argv: list[str]) -> "tuple[FamilyPlan, str]":
    from ..envelope.families import recognise
    from ..envelope.family import FamilyPlan
    from ..envelope.text import Ends

    plan = recognise(argv) if ctx.app.config.te.enabled else None
    if plan is not None:
        return plan, "enriched"
    return FamilyPlan(argv, Ends(), any_bytes=True), "passthrough"


def _who(ctx: Context) -> "Identity":
    from ..envelope.records import Identity

    session = ctx.session
    return Identity(session.agent_id, session.session_id, session.model, session.principal)
