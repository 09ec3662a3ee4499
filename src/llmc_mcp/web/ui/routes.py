"""The routes of the pages: who may see and do what, forms, and their way to the gate.

A page shows an operator (scope `admin`) everything in the store, which all servers and shells of the user share, and
anybody else what their own token did within the roots of this server. A form changes something: it needs the scope, the
server's own page as its origin (the guard checks that) and the proof that only this viewer's pages hold.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse

from ...context import Context
from ...errors import Forbidden, InvalidArgument, LlmcError
from ...gate.dispatch import Gate, PageForm
from ...review.processes import activity
from ...store.data_dir import watched_files
from ...store.sessions import EVERYTHING, StoreReader
from ...tools.linux_ops.changes import linux_fs_undo
from ..auth import COOKIE, Tokens
from ..guard import RequestCaller
from ..threads import CallThreads
from . import actions, approvals, changes, index, machine, overview, processes, tokens, usage
from .html import element
from .layout import ASSETS, CSRF, HOME, Viewer, WebPage, framed, several, viewer_of
from .live import LiveFeed

Render = Callable[[Gate, Viewer, Mapping[str, str]], WebPage]
PAGES: dict[str, Render] = {
    HOME: overview.overview,
    f"{HOME}/session": overview.session_page,
    f"{HOME}/changes": changes.changes,
    f"{HOME}/change": changes.change_page,
    f"{HOME}/processes": processes.processes,
    f"{HOME}/network": processes.network,
    f"{HOME}/index": index.index,
    f"{HOME}/usage": usage.usage_page,
    f"{HOME}/approvals": approvals.approvals,
    f"{HOME}/tokens": tokens.limits_and_tokens,
    f"{HOME}/doctor": machine.doctor,
}
FORMS: dict[PageForm, actions.Action] = {
    PageForm(changes.UNDO, "write", linux_fs_undo.__name__): actions.undo,
    processes.STOP_FORM: actions.stop,
    PageForm(approvals.APPROVE, "admin"): actions.approve,
    PageForm(approvals.DENY, "admin"): actions.deny,
    PageForm(tokens.CREATE, "admin"): actions.create_token,
    PageForm(tokens.REVOKE, "admin"): actions.revoke_token,
}
_SIGN_OUT = f"{HOME}/sign-out"
_EVENTS = f"{HOME}/events"
PATHS = (*PAGES, *(form.path for form in FORMS), _SIGN_OUT, _EVENTS, *ASSETS)
_NOTICES_KEPT = 100
_FOR_GOOD = "private, max-age=31536000, immutable"  # the address of an asset names its content
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "referrer-policy": "same-origin",  # `no-referrer` would have forms sent without their origin
}


class UserPages:
    """The pages of one server."""

    def __init__(
        self,
        gate: Gate,
        workers: CallThreads,
        logins: Tokens,
        secret: str,
    ) -> None:
        self._gate, self._workers, self._logins = gate, workers, logins
        self._secret = secret.encode()  # behind what forms must carry: a form may come back to another replica
        self._notices: dict[str, str] = {}  # what a form did, until its viewer's next page
        self.feed = LiveFeed(watched_files(gate.app.data_dir), lambda: gate.live_changes + activity(gate.app))

    def router(self) -> APIRouter:
        """The routes; none of them is part of the API."""
        router = APIRouter(include_in_schema=False)
        for path, render in PAGES.items():
            router.get(path)(self._page_route(render))
        for form, act in FORMS.items():
            router.post(form.path)(self._form_route(form, act))
        for path in ASSETS:
            router.get(path)(_asset_route(path))
        router.get(_EVENTS)(self._events)
        router.post(_SIGN_OUT)(self._sign_out)
        return router

    # --- pages -----------------------------------------------------------------------------------

    def _page_route(self, render: Render) -> Callable[[Request], Any]:
        async def show(request: Request) -> Response:
            viewer = self._viewer(request)
            given = dict(request.query_params)
            if "x-llmc-live" not in request.headers:
                notice = self._notices.pop(viewer.csrf, "")
            else:
                notice = ""
            return await self._framed(request, viewer, lambda: render(self._gate, viewer, given), notice)

        return show

    async def _framed(
        self, request: Request, viewer: Viewer, make: Callable[[], WebPage], notice: str = ""
    ) -> Response:
        caller = _caller(request)
        status = 200
        try:
            page = await self._workers.start(caller.session("").principal, make, caller.running).outcome()
        except LlmcError as exc:
            page, status = _failure(exc), exc.http_status
        body = framed(page, request.url.path, viewer, notice)
        return Response(body, status, _HEADERS, media_type="text/html; charset=utf-8")

    def _viewer(self, request: Request) -> Viewer:
        caller = _caller(request)
        if caller.principal is None or not caller.principal.scopes & {"read", "admin"}:
            raise Forbidden("the pages need the scope 'read'")
        own = StoreReader(caller.principal.name, self._gate.app.root_set)
        reader = EVERYTHING if "admin" in caller.principal.scopes else own
        return viewer_of(caller, reader, self._secret, request.cookies.get(COOKIE, ""))

    async def _events(self, request: Request) -> Response:
        self._viewer(request)
        return StreamingResponse(self.feed.events(), headers=_HEADERS, media_type="text/event-stream")

    # --- forms -----------------------------------------------------------------------------------

    def _form_route(self, form: PageForm, act: actions.Action) -> Callable[[Request], Any]:
        async def submit(request: Request) -> Response:
            viewer, fields = self._viewer(request), _fields(await request.body())
            self._refuse_forged(viewer, fields)
            caller = _caller(request)
            known = {name: value for name, value in fields.items() if name not in (CSRF, "back")}

            def run() -> actions.Outcome:
                context: Context = self._gate.context(viewer.session, caller.correlation_id)
                caller.running.attach(context)
                return self._gate.act(context, form, known, lambda: act(self._gate, viewer, context, known))

            try:
                outcome = await self._workers.start(viewer.session.principal, run, caller.running).outcome()
            except LlmcError as exc:
                outcome = actions.Outcome(f"{exc.message}. {exc.hint or ''}".strip())
            if outcome.page is not None:
                page = outcome.page
                return await self._framed(request, viewer, lambda: page)
            self._notice(viewer, outcome.notice)
            return RedirectResponse(_own_path(fields.get("back", "")), 303, _HEADERS)

        return submit

    def _refuse_forged(self, viewer: Viewer, fields: Mapping[str, str]) -> None:
        if not secrets.compare_digest(fields.get(CSRF, "").encode(), viewer.csrf.encode()):
            raise Forbidden("this form is not from a page of yours", hint="Load the page again, and repeat it there.")

    def _notice(self, viewer: Viewer, notice: str) -> None:
        while len(self._notices) >= _NOTICES_KEPT:
            self._notices.pop(next(iter(self._notices)))
        self._notices[viewer.csrf] = notice

    async def _sign_out(self, request: Request) -> Response:
        self._refuse_forged(self._viewer(request), _fields(await request.body()))
        await asyncio.to_thread(self._logins.sign_out, request.cookies.get(COOKIE, ""))
        response = RedirectResponse("/login", 303, _HEADERS)
        response.delete_cookie(COOKIE, path="/")
        return response


def _asset_route(path: str) -> Callable[[], Any]:
    asset = ASSETS[path]

    async def send() -> Response:
        return Response(asset.data, media_type=asset.kind, headers={"cache-control": _FOR_GOOD})

    return send


def _caller(request: Request) -> RequestCaller:
    return request.scope["state"]["caller"]


def _fields(body: bytes) -> dict[str, str]:
    try:
        found = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=50, errors="strict")
    except (UnicodeDecodeError, ValueError):
        raise InvalidArgument("this is not a form") from None
    return {name: ",".join(values) for name, values in found.items()}


def _own_path(path: str) -> str:
    """Where to go after a form: a page of ours, whatever the form says."""
    page = path.partition("?")[0]
    return path if page in PAGES and path.isprintable() and path.isascii() else HOME


def _failure(error: LlmcError) -> WebPage:
    hint = element("p", error.hint, class_="quiet") if error.hint else None
    return WebPage("Not possible", several(element("p", error.message, class_="notice"), hint))
