"""The first page: what runs now, the sessions of all servers and shells, the latest calls; and a session's page."""

from collections.abc import Iterable, Mapping

from ... import __version__
from ...errors import NotFound
from ...gate.dispatch import Gate
from ...review.summary import SessionSummary, summarize_session
from ...review.undoing import journal_of, standing
from ...store.root_sets import folder_of
from ...store.sessions import SessionCall, SessionTotals, calls, session, sessions
from .changes import change_table, undo_session
from .html import Child, Html, address, element, link, table
from .layout import HOME, Viewer, WebPage, duration, facts, section, several, when

_SESSIONS, _CALLS, _CALLS_OF_SESSION, _CHANGES, _FILES = 30, 30, 250, 250, 30
_NUMBERS = frozenset({3, 4, 5, 6, 7, 8})
_CALL_NUMBERS = frozenset({5, 6, 7, 8})


def overview(gate: Gate, viewer: Viewer, _: Mapping[str, str]) -> WebPage:
    """What happens now, and what happened last."""
    store = gate.app.store
    roots = ", ".join(root.shown for root in gate.app.files.roots)
    about = facts(
        [
            ("Version", __version__),
            ("Folder", roots),
            ("Commands", gate.app.known_sandbox_level() or "none so far"),
            ("Code index", gate.app.index_state()),
        ]
    )
    body = several(
        about,
        section("Running now", _running(gate, viewer)),
        section("Sessions", session_table(sessions(store, viewer.reader, _SESSIONS))),
        section("Latest calls", call_table(calls(store, viewer.reader, _CALLS))),
    )
    return WebPage("Overview", body, live=True)


def _running(gate: Gate, viewer: Viewer) -> Html:
    own = [one for one in gate.live_calls() if viewer.sees_everything or one.session.principal == viewer.name]
    rows = [
        (
            element("code", one.tool),
            session_link(one.session.session_id),
            element("code", one.args),
            duration(one.seconds * 1000),
        )
        for one in own
    ]
    return table("Calls under way", ("tool", "session", "arguments", "for"), rows, frozenset({3}))


def session_link(session_id: str) -> Html:
    """A link to the page of a session."""
    return link(session_id, f"{HOME}/session", id=session_id)


def session_table(found: Iterable[SessionTotals]) -> Html:
    """Sessions, one per row."""
    head = ("session", "agent", "folder", "calls", "failed", "tokens in", "tokens out", "saved", "time", "sandbox")
    rows = [
        (
            session_link(one.session_id),
            f"{one.agent_id} ({one.principal})",
            folder_of(one.roots),
            f"{one.calls:,}",
            f"{one.errors:,}",
            f"{one.tokens_in:,}",
            f"{one.tokens_out:,}",
            f"{one.tokens_saved:,}",
            duration(one.busy_ms),
            one.sandbox or "-",
            when(one.last_at),
        )
        for one in found
    ]
    return table("Sessions", (*head, "last call"), rows, _NUMBERS)


def call_table(found: Iterable[SessionCall]) -> Html:
    """Calls, one per row."""
    head = ("when", "session", "tool", "arguments", "result", "time", "tokens in", "tokens out", "saved")
    rows: list[tuple[Child, ...]] = [
        (
            when(one.at),
            session_link(one.session_id),
            element("code", one.tool),
            element("code", one.args),
            element("span", one.status, class_=None if one.status == "ok" else "bad"),
            duration(one.duration_ms),
            f"{one.tokens_in:,}",
            f"{one.tokens_out:,}",
            f"{one.tokens_saved:,}",
        )
        for one in found
    ]
    return table("Calls", head, rows, _CALL_NUMBERS)


def _summary(found: SessionSummary) -> Html:
    tools = ", ".join(f"{name} {count:,}" for name, count, _ in found.tools)
    rows = [
        (
            element("code", one.path),
            one.action,
            "" if one.added is None else f"+{one.added:,}",
            "" if one.removed is None else f"-{one.removed:,}",
        )
        for one in found.files[:_FILES]
    ]
    more = len(found.files) - _FILES
    return section(
        "Summary",
        facts([("Turns", f"{found.turns:,}"), ("Tools", tools), ("Files changed", f"{len(found.files):,}")]),
        table("Files", ("file", "what", "added", "removed"), rows, frozenset({2, 3})) if rows else None,
        element("p", f"and {more:,} more files", class_="quiet") if more > 0 else None,
        [element("p", f"To {what}: ", element("code", command)) for what, command in found.actions],
    )


def session_page(gate: Gate, viewer: Viewer, given: Mapping[str, str]) -> WebPage:
    """One session: what it cost, what it changed, what it called."""
    session_id = given.get("id", "")
    store = gate.app.store
    totals = session(store, viewer.reader, session_id)
    journal = journal_of(gate.app.config, store, viewer.reader.roots)
    changed = journal.history(viewer.reader.principal, session_id, _CHANGES)
    if totals is None and not changed:
        raise NotFound(f"there is no session {session_id[:128]!r}")
    in_effect = standing(journal, viewer.reader.principal, session_id)
    body = several(
        session_table([totals] if totals is not None else []),
        _summary(summarize_session(store, journal, viewer.reader, session_id)) if totals is not None else None,
        section(
            "Changes",
            undo_session(viewer, session_id, len(in_effect)),
            change_table(viewer, changed, address(f"{HOME}/session", id=session_id)),
        ),
        section("Calls", call_table(calls(store, viewer.reader, _CALLS_OF_SESSION, session_id))),
    )
    return WebPage(f"Session {session_id}", body, live=True)
