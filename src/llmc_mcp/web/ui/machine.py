"""What this machine offers the server: the findings of `llmc doctor`."""

from collections.abc import Mapping

from ...errors import Forbidden
from ...gate.dispatch import Gate
from ...review.checks import findings_of_server
from .html import element, table
from .layout import Viewer, WebPage, several

_CLASSES = {"ok": "good", "missing": "warn", "broken": "bad"}


def doctor(gate: Gate, viewer: Viewer, _: Mapping[str, str]) -> WebPage:
    """All findings; they name paths of the machine, so they are the operator's."""
    if not viewer.sees_everything:
        raise Forbidden("this page needs the scope 'admin'")
    rows = [
        (
            element("span", one.state, class_=_CLASSES.get(one.state)),
            one.topic,
            several(
                element("div", one.message),
                [element("div", detail, class_="quiet") for detail in one.details],
                element("div", f"Fix: {one.fix}") if one.fix else None,
            ),
        )
        for one in findings_of_server(gate.app)
    ]
    return WebPage("Doctor", table("Findings", ("state", "topic", "finding"), rows, frozenset()))
