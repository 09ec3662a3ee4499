"""What agents left running, with its output and Stop; what commands were denied of the network."""

from collections.abc import Mapping

from ...gate.dispatch import Gate, PageForm
from ...review.processes import programs
from ...store.sessions import denials
from ...tools.linux_ops.proc import linux_proc_stop
from .html import Html, element, link, table
from .layout import HOME, Viewer, WebPage, facts, form, section, several, when

STOP = f"{HOME}/stop"
STOP_FORM = PageForm(STOP, "exec", linux_proc_stop.__name__)
_DENIALS = 200


def processes(gate: Gate, viewer: Viewer, _: Mapping[str, str]) -> WebPage:
    """What runs in all servers of the user, and in all replicas, beside their calls."""
    found = programs(gate.app.data_dir, viewer.reader.principal, gate.app)
    if gate.replicas is not None:
        found += gate.replicas.programs(viewer.session, viewer.reader.principal)
    parts = [
        section(
            one.command[:200],
            facts(
                [
                    ("State", one.state),
                    ("Kind", "command in the background" if one.background else "interactive program"),
                    ("Session", link(one.session_id, f"{HOME}/session", id=one.session_id)),
                    ("Since", one.started_iso),
                    ("Process", f"{one.proc_id}, pid {one.pid}"),
                ]
            ),
            _stop(viewer, one.proc_id, one.state),
            element("pre", one.output, tabindex=0, role="region", aria_label=f"Output of {one.proc_id}")
            if one.output
            else element("p", "It has printed nothing.", class_="quiet"),
        )
        for one in found
    ]
    empty = element("p", "Nothing runs in the background.", class_="quiet")
    return WebPage("Processes", several(parts or empty), live=True)


def _stop(viewer: Viewer, proc_id: str, state: str) -> Html | None:
    if not viewer.may("exec") or state != "running":
        return None
    fields = [("id", proc_id), ("back", f"{HOME}/processes")]
    return element("div", form(viewer, STOP, "Stop", fields, about=f"process {proc_id}", danger=True), class_="actions")


def network(gate: Gate, viewer: Viewer, _: Mapping[str, str]) -> WebPage:
    """What commands tried to reach and were denied."""
    rows = [
        (when(one.at), link(one.session_id, f"{HOME}/session", id=one.session_id), element("code", one.args))
        for one in denials(gate.app.store, viewer.reader, _DENIALS)
    ]
    app = gate.app
    about = facts(
        [("Commands may use", app.config.network()), ("Listed", ", ".join(app.config.tools.network_allow) or "-")]
    )
    hint = element("p", "llmc allow network HOST lets commands reach a host.", class_="quiet")
    shown = table("Denials", ("when", "session", "host and reason"), rows, frozenset())
    return WebPage("Network", several(about, hint, section("Denied", shown)), live=True)
