"""The only way to a handler.

Whatever the surface, a call comes through `call`: the name is resolved, arguments are checked, time is limited,
the handler runs, its reply is cut to size, and the outcome is logged and recorded. What goes wrong is raised as
an LlmcError; anything else that escapes a handler is a bug, becomes INTERNAL, and leaves its traceback in the log only.
"""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec

from .app import App, Context
from .catalog import Catalog
from .errors import BadArgs, Internal, LlmcError
from .observability import Log
from .output import Rendered, fit, render
from .tool import Result, as_payload
from .usage import Recorder, Usage, summarize

Outcome = TypeVar("Outcome")


class Gate:
    """Everything a surface needs: the app behind it, the tools in force, the log."""

    def __init__(self, app: App, catalog: Catalog, log: Log) -> None:
        self.app, self.catalog, self.log = app, catalog, log
        app.listed, app.tools = catalog.listed, catalog.tools
        self._cold = "execute_code" in catalog.tools
        self._recorder = Recorder(lambda: app.store) if app.config.observability.enabled else None

    def call(self, ctx: Context, name: str, raw_args: object, *, reply_bytes: int | None = None) -> object:
        """Run a tool; returns its result, already within the reply limit."""
        limit = self._reply_limit(reply_bytes)
        return self._observed(ctx, name, raw_args, lambda: self._run(ctx, name, raw_args, limit))

    def reply(self, ctx: Context, name: str, raw_args: object, *, reply_bytes: int | None = None) -> Rendered:
        """Run a tool; returns what to send, in the format that is in force."""
        limit = self._reply_limit(reply_bytes)
        try:
            return self._observed(ctx, name, raw_args, lambda: self.render(self._run(ctx, name, raw_args, limit)))
        finally:
            self._warm_up()

    def _warm_up(self) -> None:
        """After the first call, and beside the second: make the code engine ready, for its first run to be quick."""
        if self._cold:
            self._cold = False
            threading.Thread(target=self._warm_code, name="warm-up", daemon=True).start()

    def _warm_code(self) -> None:
        try:
            self.app.code.warm()
        except LlmcError as exc:
            self.log.debug("code_engine", reason=exc.message)

    def _reply_limit(self, asked: int | None) -> int:
        limits = self.app.config.limits
        return min(max(asked or limits.max_reply_bytes, 1000), limits.max_reply_bytes_cap)

    def _nested(self, ctx: Context, name: str, arguments: dict[str, object]) -> object:
        """A call that code makes: the same gate, but its result goes to the code and costs no tokens."""
        child = Context(self.app, ctx.session, correlation_id=ctx.correlation_id, parent=ctx)
        limit = self.app.config.limits.code_result_bytes
        return self._observed(child, name, arguments, lambda: self._run(child, name, arguments, limit))

    def close(self) -> None:
        """End what the calls left running and write what waits to be written."""
        if self._recorder is not None:
            self._recorder.close()
        self.app.close()
        self.log.close()

    def _observed(self, ctx: Context, name: str, raw_args: object, run: Callable[[], Outcome]) -> Outcome:
        """Run something for a call: one log line and one usage row, whatever comes of it."""
        started = time.perf_counter()
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
        except Exception as exc:
            status = "INTERNAL"
            self.log.exception("tool_failed", tool=name[:64], cid=ctx.correlation_id)
            raise Internal(
                f"{name[:64]} failed unexpectedly ({type(exc).__name__})",
                hint="This is a bug in the server; its log has the details under the correlation id.",
            ) from None
        finally:
            sent = len(outcome.text) if isinstance(outcome, Rendered) else 0
            self._record(ctx, name[:64], raw_args, status, (time.perf_counter() - started) * 1000, sent)

    def _record(self, ctx: Context, name: str, raw_args: object, status: str, ms: float, sent: int) -> None:
        who, cid = ctx.session, ctx.correlation_id
        for warning in ctx.warnings:
            self.log.warning("call", warning=warning, tool=name, cid=cid)
        self.log.info(
            "tool",
            tool=name,
            status=status,
            ms=round(ms, 2),
            truncated=ctx.truncated,
            bytes=sent,
            session=who.session_id,
            cid=cid,
        )
        if self._recorder is not None:
            args = summarize(raw_args)
            row = Usage(time.time(), "mcp", name, status, ms, args, len(args), sent, *msgspec.structs.astuple(who)[:4])
            self._recorder.record(row)

    def render(self, result: object) -> Rendered:
        """The text of a result in the format that is in force."""
        return render(result, lean=self.app.config.lean_replies(), first_root=self.app.files.roots[0].shown)

    def _run(self, ctx: Context, name: str, raw_args: object, limit: int) -> object:
        tool = self.catalog.find(name)
        arguments = tool.parse(raw_args)
        config = self.app.config
        ctx.limit_time(config.capped_seconds(config.tools.read_timeout))
        ctx.check()
        ctx.call_tool = partial(self._nested, ctx)
        result = tool.fn(ctx, **arguments)
        self._fit(ctx, result, limit)
        ctx.truncated = _truncated(result)
        return result

    def _fit(self, ctx: Context, result: object, limit: int) -> None:
        """Cut a reply to size; what it had no room for goes into a handle where the result wants one."""
        if not isinstance(result, Result) or not result.body:
            return
        whole: object = getattr(result, result.body)
        fit(result, limit, lean=self.app.config.lean_replies(), first_root=self.app.files.roots[0].shown)
        was_cut = getattr(result, result.body) is not whole
        if was_cut and result.handle_kind and getattr(result, "handle", None) is None:
            handle = ctx.keep(result.handle_kind, result.handle_meta(), as_payload(whole))
            msgspec.structs.force_setattr(result, "handle", handle)


def _truncated(result: object) -> bool:
    meta: object = getattr(result, "meta", None)
    return bool(getattr(result, "truncated", False) or getattr(meta, "truncated", False))
