"""The only way to a handler.

Whatever the surface, a call comes through `call`: the name is resolved, arguments are checked, time is limited,
the handler runs, its reply is cut to size, and the outcome is logged. What goes wrong is raised as an LlmcError;
anything else that escapes a handler is a bug, becomes INTERNAL, and leaves its traceback in the log only.
"""

import time

from .app import App, Context
from .catalog import Catalog
from .errors import BadArgs, Internal, LlmcError
from .observability import Log
from .output import Rendered, fit, render
from .tool import Result, as_payload


class Gate:
    """Everything a surface needs: the app behind it, the tools in force, the log."""

    def __init__(self, app: App, catalog: Catalog, log: Log) -> None:
        self.app, self.catalog, self.log = app, catalog, log
        app.listed = catalog.listed

    def call(self, ctx: Context, name: str, raw_args: object, *, reply_bytes: int | None = None) -> object:
        """Run a tool; returns its result, already within the reply limit."""
        started = time.perf_counter()
        status = "ok"
        result: object = None
        try:
            result = self._run(ctx, name, raw_args)
            self._fit(ctx, result, reply_bytes)
            return result
        except LlmcError as exc:
            status = exc.code
            raise
        except RecursionError:
            status = "BAD_ARGS"
            raise BadArgs("the arguments are nested too deeply") from None
        except Exception as exc:
            status = "INTERNAL"
            self.log.exception("tool_failed", tool=name, cid=ctx.correlation_id)
            raise Internal(
                f"{name} failed unexpectedly ({type(exc).__name__})",
                hint="This is a bug in the server; its log has the details under the correlation id.",
            ) from None
        finally:
            for warning in ctx.warnings:
                self.log.warning("call", warning=warning, tool=name[:64], cid=ctx.correlation_id)
            self.log.info(
                "tool",
                tool=name[:64],
                status=status,
                ms=round((time.perf_counter() - started) * 1000, 2),
                truncated=_truncated(result),
                session=ctx.session.session_id,
                cid=ctx.correlation_id,
            )

    def render(self, result: object) -> Rendered:
        """The text of a result in the format that is in force."""
        return render(result, lean=self.app.config.lean_replies(), first_root=self.app.files.roots[0].shown)

    def _run(self, ctx: Context, name: str, raw_args: object) -> object:
        tool = self.catalog.find(name)
        arguments = tool.parse(raw_args)
        ctx.limit_time(self.app.config.tools.read_timeout)
        ctx.check()
        return tool.fn(ctx, **arguments)

    def _fit(self, ctx: Context, result: object, reply_bytes: int | None) -> None:
        """Cut a reply to size; what it had no room for goes into a handle where the result wants one."""
        if not isinstance(result, Result) or not result.body:
            return
        limits = self.app.config.limits
        limit = min(max(reply_bytes or limits.max_reply_bytes, 1000), limits.max_reply_bytes_cap)
        whole: object = getattr(result, result.body)
        fit(result, limit, lean=self.app.config.lean_replies(), first_root=self.app.files.roots[0].shown)
        was_cut = getattr(result, result.body) is not whole
        if was_cut and result.handle_kind and getattr(result, "handle", None) is None:
            result.handle = ctx.keep(result.handle_kind, result.handle_meta(), as_payload(whole))


def _truncated(result: object) -> bool:
    meta: object = getattr(result, "meta", None)
    return bool(getattr(result, "truncated", False) or getattr(meta, "truncated", False))
