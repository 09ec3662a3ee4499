"""The HTML pages: sign-in and API documentation. They use no scripts and no external resources."""

import re
from html import escape
from typing import Any
from urllib.parse import parse_qs

import msgspec
from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse

from ..errors import AuthFailed
from ..gate.catalog import Catalog
from .auth import COOKIE, Principal, Tokens
from .browsers import SharedBrowsers
from .guard import base_url
from .oauth import METADATA, Issuer

_STYLE = "body{font:16px/1.5 system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem}code,pre{background:#8882}"
_PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    "<title>{title}</title><style>{style}</style><h1>{title}</h1>{body}</html>"
)
_FORM = (
    '<form method="post" action="/login"><input type="hidden" name="next" value="{next}">'
    '<label>Token <input type="password" name="token" required autofocus '
    'autocomplete="current-password"></label> <button>Sign in</button></form>'
    "<p>The server prints at start-up where the token is stored.</p>"
)
_FIRST_PAGE = "/ui"
_LOCAL = re.compile(r"/(?:[A-Za-z0-9._~-]++/?)*+")


def page(title: str, body: str) -> str:
    """A page with a body in HTML."""
    return _PAGE.format(title=escape(title), style=_STYLE, body=body)


def sign_in_routes(tokens: Tokens, browsers: SharedBrowsers | None = None) -> APIRouter:
    """Sign-in for browsers: a form for the token sets a cookie that scripts can't read and other sites can't send."""
    router = APIRouter(include_in_schema=False)

    async def signed_in(request: Request, principal: Principal, target: str) -> Response:
        cookie = tokens.sign_in(principal) if browsers is None else await browsers.sign_in(principal)
        response = RedirectResponse(_local(target), status_code=303)
        # The Origin, which the guard has checked, shows whether a proxy in front of the server terminates TLS.
        secure = request.headers.get("origin", "").startswith("https://")
        response.set_cookie(COOKIE, cookie, httponly=True, samesite="strict", path="/", secure=secure)
        return response

    @router.get("/login")
    async def form(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        target, code = request.query_params.get("next", ""), request.query_params.get("code", "")
        if code:
            principal = tokens.use_code(code)
            if principal is not None:
                return await signed_in(request, principal, target)
        note = "<p>This link was used already, or is too old.</p>" if code else ""
        body = note + _FORM.replace("{next}", escape(_local(target)))
        # With the guard's no-referrer a browser would hide from us that the form is our own page's.
        return HTMLResponse(page("LLMC MCP: sign in", body), headers={"referrer-policy": "same-origin"})

    @router.post("/login")
    async def sign_in(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        fields = _fields_in(await request.body(), request.headers.get("content-type", ""))
        principal = tokens.principal(fields.get("token", ""))
        if principal is None:
            raise AuthFailed("invalid token", hint="The server prints at start-up where the token is stored.")
        return await signed_in(request, principal, fields.get("next", ""))

    @router.post("/logout")
    async def sign_out(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        tokens.sign_out(request.cookies.get(COOKIE, ""))
        if browsers is not None:
            await browsers.sign_out(request.cookies.get(COOKIE, ""))
        response = Response(status_code=204)
        response.delete_cookie(COOKIE, path="/")
        return response

    return router


def metadata_routes(issuer: Issuer) -> APIRouter:
    """What tells clients where access tokens for this server come from (RFC 9728); for anybody to read."""
    router = APIRouter(include_in_schema=False)

    async def metadata(request: Request) -> Response:
        return JSONResponse(issuer.metadata(base_url(request.scope)))

    for path in (METADATA, f"{METADATA}/mcp"):
        router.get(path)(metadata)
    return router


def _fields_in(body: bytes, content_type: str) -> dict[str, str]:
    if content_type.startswith("application/json"):
        try:
            return msgspec.json.decode(body, type=dict[str, str])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return {}
    return {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}


def _local(target: str) -> str:
    """Where a browser goes next: a page of this server, whatever a link says."""
    return target if len(target) <= 200 and _LOCAL.fullmatch(target) and target != "/" else _FIRST_PAGE


def docs_page(openapi: dict[str, Any], catalog: Catalog) -> str:
    """The routes with their request bodies, and the tools that /tool can call."""
    parts = [
        "<p>As OpenAPI: <code>/openapi.json</code>. Every error is <code>{code, message, hint?, correlation_id}</code>."
    ]
    for path, operations in openapi["paths"].items():
        for method, operation in operations.items():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            name = body.get("$ref", "").rpartition("/")[2]
            schema = openapi.get("components", {}).get("schemas", {}).get(name, {}).get("properties")
            parts.append(f"<h2><code>{escape(method.upper())} {escape(path)}</code></h2>")
            parts.append(f"<p>{escape(operation.get('description', operation.get('summary', '')))}")
            if schema:
                parts.append(f"<pre>{escape(msgspec.json.format(msgspec.json.encode(schema)).decode())}</pre>")
    parts.append("<h2>Tools</h2><dl>")
    for tool in catalog.tools.values():
        names = ", ".join(tool.input_schema()["properties"])
        parts.append(
            f"<dt><code>{escape(tool.name)}({escape(names)})</code> needs <code>{catalog.scope_of(tool)}</code>"
            f"<dd>{escape(tool.description)}"
        )
    return page("LLMC MCP: the API", "".join(parts) + "</dl>")
