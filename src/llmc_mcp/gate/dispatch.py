"""The only way to a handler.

Whatever the surface, a call comes through `call`: the name is resolved, arguments are checked, time is limited,
the handler runs, its reply is cut to size, and the outcome is logged and recorded. Failures are raised as LlmcError;
anything else that escapes a handler is a bug, becomes INTERNAL, and leaves its traceback in the log only.
"""

import os
import threading
import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import msgspec

from ..app import App
from ..context import ELICIT, Ask, Context, Progress
from ..errors import BadArgs, Forbidden, Internal, InvalidPath, LlmcError, shortage
from ..session import Session
from ..tokens import estimate, sample
from ..tool import Result, ToolDef, as_payload
from .catalog import Catalog
from .elsewhere import OtherReplicas
from .log import Log
from .rate_limit import CallCounts, Limiter, OwnCounts, limits_of
from .render import RenderedReply, fit, render
from .usage import Recorder, Usage, UsageListener, summarize

if TYPE_CHECKING:
    from ..egress.client import Denial
    from .audit import Audit
    from .permit import Permits

Outcome = TypeVar("Outcome")

SCOPE = "read"  # of requests that are not tool calls: resources, prompts, completion

_NETWORK, _DENIED = "network", "DENIED"  # how the records name what commands were denied

_BYTES_PER_TOKEN = 4  # a rough estimate, for arguments and for what was not sent


class _FinishedCall(NamedTuple):
    """A call that is over: what the log, the audit and the statistics are written from."""

    ctx: Context
    name: str
    tool: ToolDef | None  # None: no such tool, or another method of the protocol
    raw_args: object
    status: str
    duration_ms: float
    outcome: object
    sent: str | bytes  # what a model reads of it


class LiveCall(NamedTuple):
    """A call under way, for whoever watches."""

    session: Session
    tool: str
    args: str
    seconds: float


class PageForm(NamedTuple):
    """A form of the pages: the scope that it needs, and the tool that does the same, if there is one."""

    path: str
    scope: str
    tool: str = ""


class Gate:
    """Everything a surface needs: the app behind it, the tools in force, the log."""

    def __init__(self, app: App, catalog: Catalog, log: Log) -> None:
        self.app, self.catalog, self.log = app, catalog, log
        self._cold = bool(catalog.with_role("code"))
        self.limits = Limiter(
            _counts(lambda: self.app),
            limits_of(app.config),
            lambda principal, at, admitted: log.debug("rate", principal=principal, at=at, admitted=admitted),
        )
        app.on_settings.append(lambda config: self.limits.reconfigure(limits_of(config)))
        self.listeners: list[UsageListener] = []
        self.recorder = _recorder(lambda: self.app, self.listeners)
        self.root_bounds = [os.fsdecode(root.real) for root in app.files.roots]  # what a client may choose folders in
        self.without_roots = ""  # why no folder is served yet, and what to do
        self._audit: Audit | None = None
        self._opening_audit = threading.Lock()
        self.replicas: OtherReplicas | None = None  # where programs run that calls here may name
        self._under_way: dict[Context, tuple[str, object, float]] = {}
        self.live_changes = 0  # grows whenever a call begins or ends

    def use_roots(self, roots: list[str]) -> App:
        """Serve these folders from now on; returns what served the former ones, for the caller to close."""
        former, self.app = self.app, self.app.with_roots(roots)
        self.__dict__.pop("permits", None)
        self.without_roots = ""
        return former

    @cached_property
    def permits(self) -> "Permits":
        """What the rules say about calls; a start does without it."""
        from .permit import Permits

        return Permits(self.app, self.catalog, self.root_bounds)

    def visible(self, session: Session) -> list[dict[str, Any]]:
        """What tools/list shows a session."""
        return self.permits.visible(session) if self.app.config.policy.rules else self.catalog.visible(session)

    def may_ask(self, session: Session, tool: ToolDef) -> bool:
        """Whether a call may need a person's word, its own or that of a call that it makes."""
        return tool.may_ask or (bool(self.app.config.policy.rules) and self.permits.may_ask(tool, session))

    def context(
        self,
        session: Session,
        correlation_id: str,
        progress: Callable[[Progress], None] | None = None,
        ask: Ask | None = None,
        answers: frozenset[str] = frozenset({ELICIT}),
    ) -> Context:
        """A context for one call through this gate; `ask`: how to ask the client, for what it `answers`."""
        return Context(
            self.app,
            session,
            correlation_id=correlation_id,
            gate=self,
            progress=progress,
            ask=ask,
            answers=answers,
        )

    def call(self, ctx: Context, name: str, raw_args: object, *, reply_bytes: int | None = None) -> object:
        """Run a tool; returns its result, already within the reply limit."""
        limit = self.reply_limit(reply_bytes)
        with self.limits.admitted(ctx.session, ctx):
            return self._observed(ctx, name, raw_args, lambda: self._run(ctx, name, raw_args, limit))

    def reply_json(self, ctx: Context, name: str, raw_args: object, *, reply_bytes: int | None = None) -> bytes:
        """Run a tool; returns its own object as JSON, whatever format MCP clients get."""
        limit = self.reply_limit(reply_bytes)

        def run() -> bytes:
            return msgspec.json.encode(self._run(ctx, name, raw_args, limit, lean=False))

        with self.limits.admitted(ctx.session, ctx):
            return self._observed(ctx, name, raw_args, run)

    def reply(self, ctx: Context, name: str, raw_args: object, *, reply_bytes: int | None = None) -> RenderedReply:
        """Run a tool; returns what to send, in the format that is in force."""
        limit = self.reply_limit(reply_bytes)
        try:
            with self.limits.admitted(ctx.session, ctx):
                return self._observed(ctx, name, raw_args, lambda: self.render(self._run(ctx, name, raw_args, limit)))
        finally:
            self._warm_up(name)

    def ask(self, ctx: Context, method: str, raw_args: object, answer: Callable[[], Outcome]) -> Outcome:
        """Answer any other request (a resource, a prompt) by the rules of a read-only tool call."""

        def run() -> Outcome:
            self._refuse_scope(ctx, method, SCOPE)
            ctx.limit_time(self.app.config.capped_seconds(self.app.config.tools.read_timeout))
            ctx.check()
            return answer()

        with self.limits.admitted(ctx.session, ctx):
            return self._observed(ctx, method, raw_args, run)

    def answer_forwarded(self, ctx: Context, name: str, raw_args: object, reply_bytes: int, *, lean: bool) -> bytes:
        """Run a tool for another replica, which counts the call and records it; whether it may run is judged here."""
        limit = self.reply_limit(reply_bytes)

        def run() -> bytes:
            return msgspec.json.encode(self._run(ctx, name, raw_args, limit, lean=lean))

        return self._observed(ctx, name, raw_args, run)

    def act(self, ctx: Context, form: PageForm, raw_args: object, run: Callable[[], Outcome]) -> Outcome:
        """Do what was asked for on a page, by the rules of a tool call: scope, log, usage and audit.

        Whoever has no scope admin may be an agent with its token: for it a form is the tool that does the same.
        """

        def within_scope() -> Outcome:
            self._refuse_scope(ctx, form.path, form.scope)
            if form.tool:
                tool = self.catalog.find(form.tool)
                self._refuse_tool(ctx, tool)
                if self.app.config.policy.rules and not ctx.session.may("admin"):
                    self.permits.check(ctx, tool, {})
            ctx.limit_time(self.app.config.capped_seconds(self.app.config.tools.read_timeout))
            return run()

        ctx.audited = True
        with self.limits.admitted(ctx.session, ctx):
            return self._observed(ctx, form.path, raw_args, within_scope)

    def refuse_as(self, ctx: Context, name: str, arguments: dict[str, object]) -> None:
        """Refuse an answer that no tool gives where a call of this tool would be refused."""
        tool = self.catalog.known(name)
        if tool is not None:
            self._refuse_tool(ctx, tool)
            if self.app.config.policy.rules:
                self.permits.check(ctx, tool, arguments)

    def allows(self, ctx: Context, name: str, arguments: dict[str, object]) -> bool:
        """Whether a call of this tool would be let through without a question."""
        tool = self.catalog.known(name)
        if tool is None or not ctx.session.may_call(tool.name):
            return False
        return not self.app.config.policy.rules or self.permits.decide(ctx, tool, arguments)[0].action == "allow"

    def live_calls(self) -> list[LiveCall]:
        """The calls under way, the longest first."""
        now = time.perf_counter()
        content = self.catalog.content_arguments
        return [
            LiveCall(ctx.session, name, summarize(raw_args, content), now - started)
            for ctx, (name, raw_args, started) in list(self._under_way.items())
        ]

    def part(self, ctx: Context, name: str, arguments: dict[str, object], reply_bytes: int | None = None) -> object:
        """A tool's result as a part of an answer to `ask`, cut to the reply limit."""
        return self._run(ctx, name, arguments, self.reply_limit(reply_bytes), lean=True)

    def _warm_up(self, name: str) -> None:
        """A client that reads the introduction is about to work: start the code engine in the background."""
        if not self._cold:
            return
        tool = self.catalog.known(name)
        if tool is not None and tool.role == "bootstrap":
            try:
                threading.Thread(target=self._warm_code, name="warm-up", daemon=True).start()
            except RuntimeError:  # no thread to be had: the engine starts when it is needed
                return
            self._cold = False

    def _warm_code(self) -> None:
        try:
            self.app.code.warm()
        except LlmcError as exc:
            self.log.debug("code_engine", reason=exc.message)

    def reply_limit(self, requested: int | None) -> int:
        """The bytes that a reply may have: as requested, up to the configured maximum."""
        limits = self.app.config.limits
        return min(max(requested or limits.max_reply_bytes, 1000), limits.max_reply_bytes_cap)

    def call_nested(self, ctx: Context, name: str, arguments: dict[str, object]) -> object:
        """A call that a tool makes: the same gate, but its result goes to that tool and costs no tokens."""
        child = Context(self.app, ctx.session, correlation_id=ctx.correlation_id, gate=self, parent=ctx)
        child.in_code = True
        limit = self.app.config.limits.code_result_bytes
        return self._observed(child, name, arguments, lambda: self._run(child, name, arguments, limit))

    def give_up(self, ctx: Context | None, error: LlmcError, cid: str, **what: str) -> None:
        """A surface answers in the place of a handler that does not come back or, without `ctx`, never ran."""
        self.log.warning("given_up", status=error.code, **what, cid=cid)
        if ctx is not None:
            self.limits.give_up(ctx)

    def flush_usage(self) -> None:
        """Wait until the calls so far can be read from the store."""
        if self.recorder is not None:
            self.recorder.flush()

    def close(self) -> None:
        """End what the calls left running and write what waits to be written."""
        if self.recorder is not None:
            self.recorder.close()
        if self._audit is not None:
            self._audit.close()
        self.limits.counts.close()
        self.app.close()
        self.log.close()

    def _observed(self, ctx: Context, name: str, raw_args: object, run: Callable[[], Outcome]) -> Outcome:
        """Run something for a call: one log line and one usage row, whatever its outcome."""
        started = time.perf_counter()
        self._under_way[ctx] = (name[:64], raw_args, started)
        self.live_changes += 1
        status, outcome = "ok", None
        try:
            outcome = run()
            return outcome
        except LlmcError as exc:
            status = exc.code
            raise
        except RecursionError:
            status = "BAD_ARGS"
            raise BadArgs("the arguments are nested too deeply") from None
        except BaseException as exc:
            status = "INTERNAL"
            if ends_process(exc):
                raise
            if short := shortage(exc):
                status = short.code
                raise short from None
            self.log.exception("tool_failed", tool=name[:64], cid=ctx.correlation_id)
            raise Internal(
                f"{name[:64]} failed unexpectedly ({type(exc).__name__})",
                hint="This is a bug in the server; its log has the details under the correlation id.",
            ) from None
        finally:
            self._under_way.pop(ctx, None)
            self.live_changes += 1
            duration_ms = (time.perf_counter() - started) * 1000
            tool = self.catalog.known(name[:64])
            shown = tool.name if tool is not None else name[:64]
            self._record(_FinishedCall(ctx, shown, tool, raw_args, status, duration_ms, outcome, _sent(outcome)))

    def _record(self, call: "_FinishedCall") -> None:
        """Log a call, count it, and audit it if it may have changed something."""
        summary = summarize(call.raw_args, self.catalog.content_arguments)
        self._log_call(call, summary)
        if not call.ctx.forwarded:
            self._keep_record(call, summary)
        for denial in self.app.network_denials():
            self._record_denial(call, denial)

    def _keep_record(self, call: "_FinishedCall", summary: str) -> None:
        if call.ctx.audited or (call.tool is not None and call.tool.mutating):
            self._audit_call(call, summary)
        if self.recorder is not None or self.listeners:
            self._count_call(call, summary)

    def _record_denial(self, call: "_FinishedCall", denial: "Denial") -> None:
        """Record that commands were denied a host as if it were a call, of the session that they belong to."""
        from ..commands.sessions import Owner

        who = call.ctx.session
        if isinstance(denial.owner, Owner):
            who = msgspec.structs.replace(who, principal=denial.owner.principal, session_id=denial.owner.session_id)
        shown = f"{denial.target} ({denial.detail})"
        self.log.warning("network", denied=shown, session=who.session_id, cid=call.ctx.correlation_id)
        ctx = Context(self.app, who, correlation_id=call.ctx.correlation_id, gate=self)
        if denial.reason == "host":
            self._ask_for_host(ctx, denial.target)
        made = _FinishedCall(ctx, _NETWORK, None, {"target": denial.target}, _DENIED, 0.0, None, "")
        self._audit_call(made, shown)
        if self.recorder is not None:
            self.recorder.record(_usage_row(made, shown)._replace(source=_NETWORK))

    def _ask_for_host(self, ctx: Context, target: str) -> None:
        """Leave a question about a host, for a person to answer; its next command then reaches it."""
        try:
            self.permits.ask_for_host(ctx.session, target)
        except LlmcError as exc:
            self.log.warning("approvals", reason=exc.message, cid=ctx.correlation_id)

    def _log_call(self, call: "_FinishedCall", summary: str) -> None:
        ctx = call.ctx
        for warning in [*ctx.warnings, *self.app.problems.drain()]:
            self.log.warning("call", warning=warning, tool=call.name, cid=ctx.correlation_id)
        if not self.log.has_info:
            return
        self.log.info(
            "tool",
            tool=call.name,
            status=call.status,
            args=summary,
            duration_ms=round(call.duration_ms, 2),
            truncated=ctx.truncated,
            **ctx.logged,
            bytes=len(call.sent),
            tokens=-(-len(call.sent) // _BYTES_PER_TOKEN),
            session=ctx.session.session_id,
            cid=ctx.correlation_id,
        )

    def _audit_call(self, call: "_FinishedCall", summary: str) -> None:
        settings, cid = self.app.config.observability, call.ctx.correlation_id
        if not settings.audit_enabled:
            return
        try:
            self._audit_trail().write(call.ctx.session, call.name, call.status, call.raw_args, summary, cid)
        except (OSError, ImportError) as exc:
            self.log.warning("audit", reason=str(exc), tool=call.name, cid=cid)

    def _audit_trail(self) -> "Audit":
        with self._opening_audit:
            if self._audit is None:
                from .audit import Audit

                store = (lambda: self.app.store) if self.app.config.store.is_shared() else None
                retention = self.app.config.observability.retention_days
                self._audit = Audit(self.app.data_dir, retention, store, self.app.problems.add)
            return self._audit

    def _count_call(self, call: "_FinishedCall", summary: str) -> None:
        """A row of usage, for the store or, where nothing is stored, for the listeners alone."""
        row = _usage_row(call, summary)
        if self.recorder is not None:
            self.recorder.record(row, sample(call.sent))
            return
        row = row._replace(tokens_out=estimate(call.sent))
        for listener in self.listeners:
            listener([row])

    def render(self, result: object) -> RenderedReply:
        """The text of a result in the format that is in force."""
        return render(result, lean=self.app.config.lean_replies(), first_root=self.app.files.roots[0].shown)

    def _run(self, ctx: Context, name: str, raw_args: object, limit: int, *, lean: bool | None = None) -> object:
        self.app.refresh()
        tool = self.catalog.find(name)
        if self.without_roots:
            raise InvalidPath(
                self.without_roots, hint="Start it with --root DIR, or from a client that has a folder open."
            )
        self._refuse_scope(ctx, tool.name, self.catalog.scope_of(tool))
        self._refuse_tool(ctx, tool)
        arguments = tool.parse(raw_args)
        config = self.app.config
        ctx.limit_time(config.capped_seconds(config.tools.read_timeout))
        ctx.check()
        ctx.reply_bytes = limit
        ctx.lean = config.lean_replies() if lean is None else lean
        if tool.consent is not None or config.policy.rules:
            self.permits.check(ctx, tool, arguments)
        if self.replicas is not None and (tool.process or tool.gathers) and not ctx.forwarded:
            result = self.replicas.handle(ctx, tool, arguments)
        else:
            result = tool.fn(ctx, **arguments)
        self._fit(ctx, result, limit, ctx.lean)
        ctx.truncated = _truncated(result)
        if isinstance(result, Result) and result.logged:
            ctx.logged = {field: getattr(result, field) for field in result.logged}
        return result

    def render_part(self, ctx: Context, result: object, room: int) -> str:
        """A result as text, cut to its room, to stand inside another reply."""
        self._fit(ctx, result, room, lean=True)
        return render(result, lean=True, first_root=self.app.files.roots[0].shown).text

    def _refuse_scope(self, ctx: Context, name: str, scope: str) -> None:
        if not ctx.session.may(scope):
            raise Forbidden(
                f"{name} needs the scope {scope!r}, which this token lacks",
                hint="Ask the operator for another token: llmc token create NAME --scope read,write,exec.",
            )

    def _refuse_tool(self, ctx: Context, tool: ToolDef) -> None:
        if not ctx.session.may_call(tool.name):
            raise Forbidden(
                f"{tool.name} is none of the tools of this token", hint="Ask the operator for another token."
            )

    def _fit(self, ctx: Context, result: object, limit: int, lean: bool) -> None:
        """Cut a reply to size; what it had no room for goes into a handle where the result wants one."""
        if not isinstance(result, Result):
            return
        _tell(ctx, result)
        if not result.body:
            return
        whole: object = getattr(result, result.body)
        fit(result, limit, lean=lean, first_root=self.app.files.roots[0].shown)
        was_cut = getattr(result, result.body) is not whole
        if was_cut and result.handle_kind and getattr(result, "handle", None) is None:
            handle = ctx.keep(result.handle_kind, result.handle_meta(), as_payload(whole))
            msgspec.structs.force_setattr(result, "handle", handle)
            if handle is None:
                _tell(ctx, result)
                fit(result, limit, lean=lean, first_root=self.app.files.roots[0].shown)


def ends_process(exc: BaseException) -> bool:
    """Whether an exception ends the process, as a signal's does; any other must not end the thread that serves calls.

    What a Rust extension raises when it panics is no Exception, and SystemExit in a worker ends nothing but the worker.
    """
    return isinstance(exc, SystemExit | KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def _tell(ctx: Context, result: Result) -> None:
    """Put what a call has to tell its caller where the result has its warnings."""
    meta: object = getattr(result, "meta", None)
    place = meta if hasattr(meta, "warnings") else result
    told: list[str] | None = getattr(place, "warnings", None)
    if ctx.notes:
        msgspec.structs.force_setattr(cast(msgspec.Struct, place), "warnings", [*(told or ()), *ctx.notes])
        ctx.notes.clear()


def _truncated(result: object) -> bool:
    meta: object = getattr(result, "meta", None)
    return bool(getattr(result, "truncated", False) or getattr(meta, "truncated", False))


def _sent(outcome: object) -> str | bytes:
    """What a model reads of an outcome: nothing of a result that goes to code."""
    if isinstance(outcome, RenderedReply):
        return outcome.text
    return outcome if isinstance(outcome, bytes) else ""


def _usage_row(call: _FinishedCall, summary: str) -> Usage:
    app = call.ctx.app
    who, sent, size = call.ctx.session, len(call.sent), _bytes_of(call.raw_args)
    return Usage(
        at=time.time(),
        source="mcp",
        tool=call.name,
        status=call.status,
        duration_ms=call.duration_ms,
        args=summary,
        bytes_in=size,
        bytes_out=sent,
        principal=who.principal,
        session_id=who.session_id,
        agent_id=who.agent_id,
        model=who.model,
        correlation_id=call.ctx.correlation_id,
        tokens_in=-(-size // _BYTES_PER_TOKEN),
        tokens_saved=_not_sent(call.ctx, call.outcome, sent) // _BYTES_PER_TOKEN,
        budget_profile=who.budget_profile,
        roots=app.root_set.key,
        sandbox=app.known_sandbox_level(),
    )


def _bytes_of(arguments: object) -> int:
    """The size of a call's arguments as a model writes them."""
    try:
        return len(msgspec.json.encode(arguments)) if arguments else 0
    except (TypeError, ValueError, RecursionError):
        return 0


def _not_sent(ctx: Context, outcome: object, sent: int) -> int:
    """Bytes that the tool produced and no model has to read: kept behind a handle, or handed to code."""
    if isinstance(outcome, msgspec.Struct) and not isinstance(outcome, RenderedReply):
        return len(msgspec.json.encode(cast(object, outcome)))
    return max(ctx.kept_bytes - sent, 0)


def _counts(app: Callable[[], App]) -> CallCounts:
    """Where calls are counted: with a store that servers share, there."""
    limits = limits_of(app().config)
    if not app().config.store.is_shared():
        return OwnCounts(limits)
    from .shared_limits import SharedCounts

    return SharedCounts(lambda: app().store, limits, app().problems.add)


def _recorder(app: Callable[[], App], listeners: list[UsageListener]) -> Recorder | None:
    settings = app().config.observability
    if not settings.enabled:
        return None
    if not settings.csv_token_audit_enabled:
        return Recorder(lambda: app().store, (), settings.retention_days, listeners)
    from .audit import TokenAudit

    sinks = (TokenAudit(settings.csv_path, app().data_dir),)
    return Recorder(lambda: app().store, sinks, settings.retention_days, listeners)
