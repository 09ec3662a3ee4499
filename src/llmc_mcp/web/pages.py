"""The HTML pages: sign-in and API documentation. They use no scripts and no external resources."""

from html import escape
from typing import Any
from urllib.parse import parse_qs

import msgspec
from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from ..errors import AuthFailed
from ..gate.catalog import Catalog
from .auth import COOKIE, Tokens

_STYLE = "body{font:16px/1.5 system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem}code,pre{background:#8882}"
_PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    "<title>{title}</title><style>{style}</style><h1>{title}</h1>{body}</html>"
)
_FORM = (
    '<form method="post" action="/login"><label>Token <input type="password" name="token" required autofocus '
    'autocomplete="current-password"></label> <button>Sign in</button></form>'
    "<p>The server prints at start-up where the token is stored.</p>"
)


def page(title: str, body: str) -> str:
    """A page with a body in HTML."""
    return _PAGE.format(title=escape(title), style=_STYLE, body=body)


def sign_in_routes(tokens: Tokens) -> APIRouter:
    """Sign-in for browsers: a form for the token sets a cookie that scripts can't read and other sites can't send."""
    router = APIRouter(include_in_schema=False)

    @router.get("/login", response_class=HTMLResponse)
    async def form() -> str:  # pyright: ignore[reportUnusedFunction]
        return page("LLMC MCP: sign in", _FORM)

    @router.post("/login")
    async def sign_in(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        principal = tokens.principal(_token_in(await request.body(), request.headers.get("content-type", "")))
        if principal is None:
            raise AuthFailed("invalid token", hint="The server prints at start-up where the token is stored.")
        response = RedirectResponse("/docs", status_code=303)
        # The Origin, which the guard has checked, shows whether a proxy in front of the server terminates TLS.
        secure = request.headers.get("origin", "").startswith("https://")
        response.set_cookie(
            COOKIE, tokens.sign_in(principal), httponly=True, samesite="strict", path="/", secure=secure
        )
        return response

    @router.post("/logout")
    async def sign_out(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        tokens.sign_out(request.cookies.get(COOKIE, ""))
        response = Response(status_code=204)
        response.delete_cookie(COOKIE, path="/")
        return response

    return router


def _token_in(body: bytes, content_type: str) -> str:
    if content_type.startswith("application/json"):
        try:
            return msgspec.json.decode(body, type=dict[str, str]).get("token", "")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return ""
    return parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0]


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
