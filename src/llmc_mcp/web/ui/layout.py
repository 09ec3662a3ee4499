"""The frame of every page: navigation, who is signed in, where the live part is; forms that change something."""

import hashlib
import hmac
import os
import time
from collections.abc import Iterable
from typing import NamedTuple

from ... import PACKAGE
from ...session import Session
from ...store.sessions import EVERYTHING, StoreReader
from ..guard import RequestCaller
from .html import Child, Html, document, element, joined

HOME = "/ui"
NAVIGATION = {
    HOME: "Overview",
    f"{HOME}/changes": "Changes",
    f"{HOME}/approvals": "Approvals",
    f"{HOME}/processes": "Processes",
    f"{HOME}/network": "Network",
    f"{HOME}/index": "Code index",
    f"{HOME}/usage": "Usage",
    f"{HOME}/tokens": "Limits and tokens",
    f"{HOME}/doctor": "Doctor",
}
CSRF = "csrf"
SESSION = "ui"  # the session that a person's own calls belong to
_ASSETS = os.path.join(PACKAGE, "web", "ui", "assets")
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


class Asset(NamedTuple):
    """A file of the pages; its address names its content, so a browser keeps it for good."""

    path: str
    data: bytes
    kind: str


def _asset(name: str) -> Asset:
    with open(os.path.join(_ASSETS, name), "rb") as file:
        data = file.read()
    stem, ending = os.path.splitext(name)
    return Asset(f"{HOME}/assets/{stem}-{hashlib.sha256(data).hexdigest()[:12]}{ending}", data, _TYPES[ending])


STYLE, SCRIPT, ICON = _asset("ui.css"), _asset("ui.js"), _asset("icon.svg")
ASSETS = {asset.path: asset for asset in (STYLE, SCRIPT, ICON)}


class Viewer(NamedTuple):
    """Who looks at a page: what they may see and do, and what their forms must carry."""

    name: str
    scopes: frozenset[str]
    session: Session
    reader: StoreReader
    csrf: str

    def may(self, scope: str) -> bool:
        """Whether this viewer's token has a scope."""
        return scope in self.scopes

    @property
    def sees_everything(self) -> bool:
        """Whether the viewer is the operator, who owns the store."""
        return self.reader == EVERYTHING


def viewer_of(caller: RequestCaller, reader: StoreReader, secret: bytes, cookie: str) -> Viewer:
    """The viewer behind a request. What a form must carry is bound to the cookie: no other page can know it."""
    principal = caller.principal
    name = principal.name if principal else ""
    proof = hmac.new(secret, f"{name}\0{cookie}".encode("utf-8", "replace"), "sha256").hexdigest()
    return Viewer(name, principal.scopes if principal else frozenset(), caller.session(SESSION), reader, proof)


class WebPage(NamedTuple):
    """A page to be framed; `live` ones update themselves."""

    title: str
    body: Html
    live: bool = False


def framed(page: WebPage, path: str, viewer: Viewer, notice: str = "") -> bytes:
    """A page as a browser gets it."""
    items = [
        element("li", element("a", name, href=address, aria_current="page" if address == path else None))
        for address, name in NAVIGATION.items()
    ]
    sign_out = form(viewer, f"{HOME}/sign-out", "Sign out") if viewer.name else None
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{page.title} · LLMC MCP"),
        element("link", rel="icon", href=ICON.path),
        element("link", rel="stylesheet", href=STYLE.path),
        element("script", src=SCRIPT.path, defer=True) if page.live else None,
    )
    body = element(
        "body",
        element("a", "Skip to content", href="#main", class_="skip"),
        element(
            "header",
            element("strong", "LLMC MCP"),
            element("nav", element("ul", *items), aria_label="Pages"),
            element("div", element("span", viewer.name, class_="quiet"), sign_out, class_="who"),
        ),
        element(
            "main",
            element("h1", page.title),
            element("p", notice, class_="notice", role="status") if notice else None,
            element("div", page.body, id="live" if page.live else None),
            id="main",
            tabindex=-1,
        ),
    )
    return document(element("html", head, body, lang="en"))


def form(
    viewer: Viewer,
    path: str,
    label: str,
    fields: Iterable[tuple[str, str]] = (),
    *,
    about: str = "",
    inside: Child = None,
    danger: bool = False,
) -> Html:
    """A form with one button; `about` says to a screen reader what the button is for."""
    hidden = [element("input", type="hidden", name=name, value=value) for name, value in [*fields, (CSRF, viewer.csrf)]]
    mark = hashlib.sha256(repr((path, label, list(fields))).encode("utf-8", "replace")).hexdigest()[:10]
    button = element(
        "button", label, aria_label=f"{label} {about}".strip(), id=f"b{mark}", class_="danger" if danger else None
    )
    return element("form", *hidden, inside, button, method="post", action=path)


def facts(pairs: Iterable[tuple[str, Child]]) -> Html:
    """Names and values."""
    return element("dl", *(element("div", element("dt", name), element("dd", value)) for name, value in pairs))


def section(title: str, *children: Child) -> Html:
    """A part of a page, under its heading."""
    return element("section", element("h2", title), *children)


def when(at: float) -> Html:
    """A time, for people and for programs."""
    shown = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    return element("time", shown, datetime=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)))


def duration(milliseconds: float) -> str:
    """A time span in the unit that fits it."""
    if milliseconds < 1000:
        return f"{milliseconds:,.0f} ms"
    seconds = milliseconds / 1000
    return f"{seconds:,.1f} s" if seconds < 120 else f"{seconds / 60:,.0f} min"


def several(*children: Child) -> Html:
    """Several parts of a page."""
    return joined(children)
