"""Commands through the tool envelope: run in the sandbox, shown as a model should read them.

`te_run` does it as a tool; a command line of `te` given to `run_cmd` is answered here as well, for te is no program in
the sandbox: what it keeps and reads is the server's.
"""

import os
import shlex
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from ..context import Context
from ..envelope.reply import Cost, TeOutput, as_text, enrichment_of
from ..errors import BadArgs, FeatureUnavailable, Internal, ResourceBusy
from ..tool import COMMANDS, tool
from .command_risks import consent_to_run

if TYPE_CHECKING:
    from ..changes.commands import CommandChanges
    from ..commands.runner import CommandCall
    from ..commands.shell_syntax import CommandLine
    from ..envelope.families import CondensedOutput
    from ..envelope.family import Budget, FamilyPlan
    from ..envelope.kept import KeptPage
    from ..envelope.records import CommandRecord, Identity
    from ..files.handles import Handle, Sink

Seconds = Annotated[float, msgspec.Meta(gt=0)]

_ROOM_FOR_META = 2_000
_USAGE = "te [--json|--raw] COMMAND…, te --handle ID [--chunk N | --grep PATTERN], te --list-handles."
_NOTE_S = 1.0  # how long the row of a command waits for other writers
_ESCAPED = 0.85  # of a reply's bytes are text; the rest is what JSON makes of line ends and quotes


@tool(
    "Run a command; big output comes ranked, grouped, cut, with a handle",
    needs=COMMANDS,
    destructive=True,
    consent=consent_to_run,
)
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
    ctx.app.follow_files()
    ctx.limit_time(seconds)
    return _WrappedCommand(ctx, ctx.app.shell_lines.read(given)).run(cwd, seconds)


class TeAnswer(NamedTuple):
    """What te prints for a command line."""

    stdout: str
    stderr: str = ""
    exit_code: int = 0
    truncated: bool = False
    handle: str | None = None
    warnings: tuple[str, ...] = ()
    changes: "CommandChanges | None" = None


def answer_te(ctx: Context, words: list[str], cwd: str | None, seconds: float, stdin: str | None) -> TeAnswer:
    """The answer of te to the words after its name."""
    as_json = words[:1] == ["--json"]
    words = words[1:] if as_json else words
    if words[:1] == ["--handle"]:
        return _read_handle(ctx, words[1:], seconds)
    if words == ["--list-handles"]:
        from ..envelope import kept

        found = ctx.app.handles.list(ctx.session.principal)
        rows = (msgspec.json.encode(kept.listed(one)).decode() if as_json else kept.line_of(one) for one in found)
        return TeAnswer("".join(f"{row}\n" for row in rows))
    words = words[1:] if words[:1] == ["--"] else words
    if not words or words[0].startswith("-") or words[0] in ("init", "discover"):
        raise BadArgs(f"te {' '.join(words)[:80]}: not here", hint=_USAGE)
    from ..commands.shell_syntax import CommandLine

    command = _WrappedCommand(ctx, CommandLine(words))
    done = command.run(cwd, seconds, stdin, as_json=as_json)
    out = done.stdout if not as_json else msgspec.json.encode(done).decode() + "\n"
    stderr, warnings = "" if as_json else done.stderr, tuple(done.warnings or ())
    about = command.enrichment
    return TeAnswer(out, stderr, done.exit_code, about.truncated, about.handle, warnings, command.changes)


def _read_handle(ctx: Context, words: list[str], seconds: float) -> TeAnswer:
    from ..envelope import kept
    from ..envelope.records import CommandRecord

    if words[:1] in (["-h"], ["--help"]):
        raise BadArgs("te --handle wants a handle", hint=_USAGE)
    given = kept.asked_for(words)
    handles = ctx.app.handles
    handle = handles.find(ctx.session.principal, given.positionals[0])
    if handle.payload is None:
        raise BadArgs(f"{handle.id} refers to {handle.meta['path']}", hint="Read that file.")
    noted = CommandRecord(["te --handle"], _who(ctx), ctx.app.root_set, source="te_run")
    budget, _ = _budget(ctx, 0)
    code = 0
    if "--grep" in given:
        page, code = _search(ctx, handle, given.value("--grep"), budget, seconds)
    elif "--chunk" in given:
        page = kept.chunk(handles, handle, given.number("--chunk", least=0), budget)
    else:
        page = kept.whole(handles, handle, budget)
    noted.mode = "enriched"
    noted.shown(page.body(), 0)
    _record(ctx, noted, code)
    return TeAnswer(page.text().decode("utf-8", "replace"), "", code, bool(page.more), handle.id)


# grep reads what is kept from an open file: the sandbox has no path to it.
_GREP = 'exec grep -anh -e "$1" <&{fd}'


def _search(ctx: Context, handle: "Handle", pattern: str, budget: "Budget", seconds: float) -> "tuple[KeptPage, int]":
    """What grep finds, in the sandbox: a pattern may take long, and it is the caller's."""
    from ..commands.runner import CommandCall
    from ..commands.shell_syntax import CommandLine
    from ..envelope import kept
    from ..kernel.child import OUT

    found = kept.Matches(budget)

    def tap(stream: str, piece: bytes) -> None:
        if stream == OUT:
            found.take(piece)

    call = CommandCall(ctx.check, lambda: None, 0, tap)
    level = ctx.app.sandbox.level()
    line = CommandLine(["sh", "-c", _GREP.format(fd=level.free_fd), "sh", pattern])
    payload = ctx.app.handles.open(handle)
    try:
        done = ctx.app.shell.run_command(
            line, timeout_sec=seconds, call=call, listed=False, keep=(payload,), level=level
        )
    finally:
        os.close(payload)
    if done.exit_code > 1:
        raise BadArgs(f"grep: {done.stderr.strip()[:200]}", hint="The pattern is one of grep's, as grep -e takes it.")
    return found.page(handle), done.exit_code


class _WrappedCommand:
    """One command, what it is run for, and what its session may still read."""

    def __init__(self, ctx: Context, line: "CommandLine") -> None:
        from ..envelope.families import Envelope
        from ..envelope.records import CommandRecord

        argv = line.argv
        self._ctx, self._line, self._argv = ctx, line, argv
        self._plan, self._mode = _plan(ctx, argv)
        _remember(ctx, argv)
        self._envelope = Envelope(self._plan, self._open_sink, unchanged_tokens=ctx.app.config.te.unchanged_tokens)
        self._noted = CommandRecord(list(self._plan.named) or argv, _who(ctx), ctx.app.root_set, source="te_run")

    def run(
        self, cwd: str | None, seconds: float, stdin: str | None = None, *, as_json: bool | None = None
    ) -> TeOutput:
        """`as_json`: whether the reply has the output in a field of its own; as configured if not given."""
        try:
            shell = self._ctx.app.shell
            line = self._line._replace(argv=self._plan.argv)
            done = shell.run_command(line, cwd=cwd, timeout_sec=seconds, stdin=stdin, call=self._call())
        except BaseException:
            self._envelope.drop()
            raise
        budget, left = _budget(self._ctx, len(done.stderr))
        shown = self._shown(budget)
        self._note(done.exit_code, shown)
        hint = self._plan.hint(lambda path: f"{path}: Is a directory" in done.stderr)
        self.enrichment = enrichment_of(shown, hint)
        if as_json is None:
            as_json = self._ctx.app.config.te.json_mode
        if not as_json:
            text = as_text(self._noted.name, shown).decode("utf-8", "replace")
            answer = self._answer(done.exit_code, text, done.stderr, [*done.warnings, *([hint] if hint else [])])
        else:
            text = shown.body().decode("utf-8", "replace")
            answer = self._answer(done.exit_code, text, done.stderr, done.warnings)
            answer.enrichment = self.enrichment
            remaining = max(left - self._noted.tokens_out, 0)
            answer.telemetry = Cost(round(self._noted.latency_ms, 1), self._noted.who.agent_id, remaining)
        self.changes = done.changes
        answer.undo_id, answer.files_changed = done.changes.undo_id, done.changes.files or None
        answer.undo = f"none: {done.changes.none}" if done.changes.none else None
        answer.warnings = [*(answer.warnings or ()), *done.changes.warnings] or None
        return answer

    def _call(self) -> "CommandCall":
        from ..commands.runner import CommandCall
        from ..commands.sessions import Owner
        from ..kernel.child import OUT

        def tap(stream: str, piece: bytes) -> None:
            if stream == OUT:
                self._envelope.feed(piece)

        session = self._ctx.session
        owner = Owner(session.principal, session.session_id)
        return CommandCall(self._ctx.check, lambda: None, 0, tap, session.environment(), owner, session)

    def _shown(self, budget: "Budget") -> "CondensedOutput":
        shown = self._envelope.finish(budget)
        if shown is not None:
            if shown.unchanged is not None and self._mode == "enriched":
                self._mode, self._noted.mode = "passthrough", "unchanged"
            return shown
        if self._envelope.failure is not None:
            self._noted.mode = "fallback"
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
        noted.mode = noted.mode if noted.mode in ("unchanged", "fallback") else self._mode
        noted.shown(shown.body(), shown.raw_tokens)
        _record(self._ctx, noted, code)

    def _answer(self, code: int, stdout: str, stderr: str, warnings: list[str]) -> TeOutput:
        from ..envelope.reply import stderr_text

        complaint = stderr_text(stderr.encode("utf-8", "replace"))
        command = shlex.join(self._argv)
        return TeOutput(code == 0, self._mode, command, stdout, complaint, code, warnings=list(warnings) or None)

    def _open_sink(self) -> "Sink":
        return self._ctx.spool("command_output", {"command": self._noted.name})


# The latest commands of each session, in memory alone: what it reads a text for.
_RECENT: "dict[tuple[str, str], tuple[str, ...]]" = {}
_SESSIONS, _COMMANDS, _LONGEST = 256, 5, 1_000


def _session_key(ctx: Context) -> tuple[str, str]:
    return ctx.session.principal, ctx.session.session_id


def _remember(ctx: Context, argv: list[str]) -> None:
    key = _session_key(ctx)
    before = _RECENT.pop(key, ())
    _RECENT[key] = (*before, (_shell_line(argv) or shlex.join(argv))[:_LONGEST])[-_COMMANDS:]
    while len(_RECENT) > _SESSIONS:
        _RECENT.pop(next(iter(_RECENT)), None)


def _shell_line(argv: list[str]) -> str:
    """The line that a shell runs, where the command is one for a shell."""
    return argv[2] if len(argv) == 4 and argv[1] == "-c" and argv[0] == argv[3] else ""


def _plan(ctx: Context, argv: list[str]) -> "tuple[FamilyPlan, str]":
    from ..envelope.families import recognise
    from ..envelope.family import FamilyPlan
    from ..envelope.names import interest_of
    from ..envelope.recognition import recognise_line
    from ..envelope.text import Ends

    before, line = _RECENT.get(_session_key(ctx), ()), _shell_line(argv)
    plan = recognise_line(line, before) if line else recognise(argv)
    if plan is not None and ctx.app.config.te.enabled:
        interest = plan.interest or interest_of([shlex.join(argv), *reversed(before)])
        return plan._replace(argv=argv if line else plan.argv, interest=interest), "enriched"
    return FamilyPlan(argv, Ends(), any_bytes=True), "passthrough"


def _budget(ctx: Context, stderr: int) -> "tuple[Budget, int]":
    """What a reply may cost, and what the session has left; `stderr` characters share the reply."""
    from ..envelope.families import budget_of
    from ..envelope.records import USED

    who, te = _who(ctx), ctx.app.config.te
    try:
        used = int(str(ctx.app.store.query(USED, (who.agent_id, who.session_id))[0][0]))
    except (FeatureUnavailable, ResourceBusy):
        used = 0
    whole = te.budgets.get(ctx.session.budget_profile) or te.budgets.get(who.agent_id, te.default_budget)
    room = int((ctx.reply_bytes - _ROOM_FOR_META - min(stderr, 4_000)) * _ESCAPED)
    return budget_of(te, whole, used, max(room, 500))


def _record(ctx: Context, noted: "CommandRecord", code: int) -> None:
    if not ctx.app.config.observability.enabled:
        return
    try:
        store = ctx.app.store
        with store.transaction(wait_s=_NOTE_S) as connection:
            noted.insert(connection, code, store.workspaces.stored_key)
    except (FeatureUnavailable, ResourceBusy) as exc:
        ctx.warnings.append(exc.message)


def _who(ctx: Context) -> "Identity":
    from ..envelope.records import Identity

    session = ctx.session
    return Identity(session.agent_id, session.session_id, session.model, session.principal)
