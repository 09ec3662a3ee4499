"""Calls that wait for a person: what they are about to do, and Approve or Deny."""

import time
from collections.abc import Mapping

from ...gate.dispatch import Gate
from ...permissions.approvals import Approval
from .html import Html, element, link, table
from .layout import HOME, Viewer, WebPage, facts, form, section, several, when

APPROVE, DENY = f"{HOME}/approve", f"{HOME}/deny"
_RECENT = 50


def approvals(gate: Gate, viewer: Viewer, _: Mapping[str, str]) -> WebPage:
    """What waits, and what was answered in the last day."""
    kept = gate.app.approvals
    waiting = [_shown(viewer, one) for one in kept.pending() if _may_see(viewer, one)]
    answered = [
        (
            when(one.asked_at),
            element("code", one.tool),
            one.deed,
            link(one.session_id, f"{HOME}/session", id=one.session_id),
            "expired" if one.state == "pending" else one.state,
            one.answered_by or "-",
        )
        for one in kept.recent(_RECENT)
        if _may_see(viewer, one) and (one.state != "pending" or one.expires_at <= time.time())
    ]
    head = ("when", "tool", "what", "session", "state", "by")
    empty = element("p", "Nothing waits for you.", class_="quiet")
    past = section("Answered", table("Answers", head, answered, frozenset()))
    return WebPage("Approvals", several(section("Waiting", waiting or empty), past), live=True)


def _may_see(viewer: Viewer, one: Approval) -> bool:
    return viewer.sees_everything or one.principal == viewer.name


def _shown(viewer: Viewer, one: Approval) -> Html:
    fields = [("id", one.id), ("back", f"{HOME}/approvals")]
    buttons = None
    if viewer.may("admin"):
        buttons = element(
            "div",
            form(viewer, APPROVE, "Approve", fields, about=f"{one.id}: {one.deed}"),
            form(viewer, DENY, "Deny", fields, about=f"{one.id}: {one.deed}", danger=True),
            class_="actions",
        )
    return element(
        "article",
        element("h3", one.deed),
        facts(
            [
                ("Tool", element("code", one.tool)),
                ("Agent", f"{one.agent_id} ({one.principal})"),
                ("Session", link(one.session_id, f"{HOME}/session", id=one.session_id)),
                ("Rule", element("code", one.rule)),
                ("Until", when(one.expires_at)),
            ]
        ),
        element("pre", one.arguments, tabindex=0, role="region", aria_label=f"Arguments of {one.id}"),
        buttons,
    )
