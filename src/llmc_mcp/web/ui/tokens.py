"""Limits in force, and the tokens of HTTP clients: create one (shown once), revoke one."""

import time
from collections.abc import Iterable, Mapping

from ...errors import Forbidden
from ...gate.dispatch import Gate
from ...permissions.tokens import SCOPES, StoredToken
from .html import Html, element, table
from .layout import HOME, Viewer, WebPage, facts, form, section, several, when

CREATE, REVOKE = f"{HOME}/token-create", f"{HOME}/token-revoke"
_DAY_S = 86_400.0


def limits_and_tokens(gate: Gate, viewer: Viewer, _: Mapping[str, str]) -> WebPage:
    """What bounds every client, and who the clients are."""
    limits = gate.app.config.limits
    bounds = facts(
        [
            ("Calls per second and token", f"{limits.rate_limit_rps:g}"),
            ("In one burst", f"{limits.rate_limit_burst:,}"),
            ("At a time and token", f"{limits.concurrency_per_token:,}"),
            ("Reply, in bytes", f"{limits.max_reply_bytes:,}"),
            ("Request, in bytes", f"{limits.max_request_bytes:,}"),
            ("Connections", f"{limits.max_connections:,}"),
            ("Records are kept for", f"{gate.app.config.observability.retention_days or 'ever'} days"),
        ]
    )
    mine = facts([("Signed in as", viewer.name), ("Scopes", ", ".join(sorted(viewer.scopes)))])
    return WebPage("Limits and tokens", several(section("Limits", bounds), section("You", mine), _tokens(gate, viewer)))


def _tokens(gate: Gate, viewer: Viewer) -> Html | None:
    if not viewer.may("admin"):
        return None
    listed = _table(viewer, gate.app.token_table.list())
    return several(section("Tokens", listed), section("New token", _create(viewer)))


def _table(viewer: Viewer, found: Iterable[StoredToken]) -> Html:
    rows = [
        (
            one.name,
            ", ".join(one.scopes),
            ", ".join(one.tools) or "all",
            when(one.created_at),
            when(one.expires_at) if one.expires_at else "never",
            form(
                viewer, REVOKE, "Revoke", [("name", one.name), ("back", f"{HOME}/tokens")], about=one.name, danger=True
            ),
        )
        for one in found
    ]
    return table("Tokens", ("name", "scopes", "tools", "created", "expires", "action"), rows, frozenset())


def _create(viewer: Viewer) -> Html:
    name = element("label", "Name ", element("input", name="name", required=True, pattern="[a-z][a-z0-9_\\-]{0,31}"))
    boxes = [
        element(
            "label", element("input", type="checkbox", name="scopes", value=scope, checked=scope == "read"), f" {scope}"
        )
        for scope in SCOPES
    ]
    days = element(
        "label", "Days until it expires, 0 for never ", element("input", name="days", type="number", min=0, value=90)
    )
    scopes = element("fieldset", element("legend", "Scopes"), *boxes)
    return form(viewer, CREATE, "Create token", inside=several(name, scopes, days, " "))


def create(gate: Gate, viewer: Viewer, given: Mapping[str, str]) -> WebPage:
    """Make a token, for no more tools than its maker's, and the only page that ever shows it."""
    scopes = tuple(scope for scope in given.get("scopes", "").split(",") if scope)
    days = given.get("days", "")
    lasts = int(days) * _DAY_S if days.isdecimal() and int(days) else None
    secret = gate.app.token_table.create(given.get("name", ""), scopes, tools=viewer.session.tools, lasts_s=lasts)
    until = (
        "never expires"
        if lasts is None
        else f"expires {time.strftime('%Y-%m-%d', time.localtime(time.time() + lasts))}"
    )
    body = several(
        element("p", f"The token {given.get('name', '')} ({', '.join(scopes)}) {until}. It is shown this once."),
        element("pre", secret, tabindex=0, role="region", aria_label="The new token"),
        element("p", element("a", "Back to limits and tokens", href=f"{HOME}/tokens")),
    )
    return WebPage("New token", body)


def refuse_beyond_own(viewer: Viewer, given: Mapping[str, str]) -> None:
    """Nobody gives away more than they have."""
    beyond = set(filter(None, given.get("scopes", "").split(","))) - viewer.scopes
    if beyond & set(SCOPES):
        raise Forbidden(f"your own token lacks {', '.join(sorted(beyond))}")
