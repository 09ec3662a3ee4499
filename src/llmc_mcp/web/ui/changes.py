"""What agents changed, as lists and as diffs, with Undo and Redo for each change, command and session."""

from collections.abc import Iterable, Mapping, Sequence

from ...changes.effects import effects_of
from ...changes.journal import Change
from ...gate.dispatch import Gate
from ...review.undoing import app_on, journal_of
from .html import Html, address, element, link, table
from .layout import HOME, Viewer, WebPage, facts, form, section, several, when

UNDO = f"{HOME}/undo"
_LISTED, _EFFECTS = 100, 8
_DIFF_MOST, _DIFF_LINES = 400_000, 3_000  # characters and lines of a diff that a page shows
_MARKS = {"+": "add", "-": "del", "@": "hunk"}


def changes(gate: Gate, viewer: Viewer, given: Mapping[str, str]) -> WebPage:
    """The newest changes of all sessions."""
    del given
    journal = journal_of(gate.app.config, gate.app.store, viewer.reader.roots)
    found = journal.history(viewer.reader.principal, None, _LISTED)
    return WebPage("Changes", change_table(viewer, found, f"{HOME}/changes"), live=True)


def change_table(viewer: Viewer, found: Iterable[Change], back: str) -> Html:
    """Changes, one per row."""
    rows = [
        (
            link(change.id, f"{HOME}/change", id=change.id),
            when(change.at),
            link(change.session_id, f"{HOME}/session", id=change.session_id),
            _what(change),
            _state(change),
            _button(viewer, change, back),
        )
        for change in found
    ]
    return table("Changes", ("change", "when", "session", "what", "state", "action"), rows, frozenset())


def _what(change: Change) -> Html:
    effects = effects_of(change)
    command = element("div", element("code", f"$ {change.about[:200]}")) if change.about else None
    lines = [
        element("div", f"{one.action} ", element("code", one.path), _moved(one.target), _counts(one.added, one.removed))
        for one in effects[:_EFFECTS]
    ]
    more = len(effects) - _EFFECTS
    return several(command, lines, element("div", f"and {more:,} more", class_="quiet") if more > 0 else None)


def _moved(target: str | None) -> Html | None:
    return None if target is None else several(" → ", element("code", target))


def _counts(added: int | None, removed: int | None) -> Html | None:
    if added is None:
        return None
    return several(
        " ", element("span", f"+{added:,}", class_="good"), " ", element("span", f"-{removed or 0:,}", class_="bad")
    )


def _state(change: Change) -> str:
    if change.undone_by is not None:
        return "undone"
    return "undo" if change.undoes is not None else "in effect" if change.state == "done" else change.state


def _button(viewer: Viewer, change: Change, back: str) -> Html | None:
    """Undo, or Redo for what is undone. The undo of a change is taken back at the change itself."""
    if not viewer.may("write") or change.dropped or change.undoes is not None or change.state != "done":
        return None
    if change.undone_by is not None:
        return form(viewer, UNDO, "Redo", [("id", change.undone_by), ("back", back)], about=f"change {change.id}")
    return form(viewer, UNDO, "Undo", [("id", change.id), ("back", back)], about=f"change {change.id}")


def undo_session(viewer: Viewer, session_id: str, count: int) -> Html | None:
    """The button that takes back all that a session changed."""
    if not count or not viewer.may("write"):
        return None
    label = f"Undo all {count:,} changes" if count > 1 else "Undo the change"
    fields = [("session", session_id), ("back", address(f"{HOME}/session", id=session_id))]
    return element("div", form(viewer, UNDO, label, fields, about="of this session", danger=True), class_="actions")


def change_page(gate: Gate, viewer: Viewer, given: Mapping[str, str]) -> WebPage:
    """One change as a diff."""
    app = gate.app
    change = journal_of(app.config, app.store, viewer.reader.roots).find(given.get("id", ""), viewer.reader.principal)
    with app_on([change], app.config, app.data_dir, app) as engines:
        text = engines.undoing.diff([change], most=_DIFF_MOST)
    body = several(
        facts(
            [
                ("When", when(change.at)),
                ("Session", link(change.session_id, f"{HOME}/session", id=change.session_id)),
                ("Agent", change.agent_id),
                ("State", _state(change)),
            ]
        ),
        element("div", _what(change)),
        element("div", _button(viewer, change, f"{HOME}/change?id={change.id}"), class_="actions"),
        section("Before the change and now", diff(text)),
    )
    return WebPage(f"Change {change.id}", body, live=True)


def diff(text: str) -> Html:
    """A unified diff, coloured."""
    lines = text.splitlines()
    if not lines:
        return element("p", "The files are as they were before.", class_="quiet")
    shown = [element("span", line, class_=_class_of(line)) for line in _first(lines)]
    return element("pre", *shown, tabindex=0, role="region", aria_label="Diff")


def _first(lines: Sequence[str]) -> list[str]:
    more = len(lines) - _DIFF_LINES
    return [*lines[:_DIFF_LINES], f"# {more:,} more lines"] if more > 0 else list(lines)


def _class_of(line: str) -> str | None:
    return "file" if line.startswith(("+++ ", "--- ", "rename ")) else _MARKS.get(line[:1])
