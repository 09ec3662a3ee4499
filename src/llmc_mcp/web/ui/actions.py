"""What the forms of the pages do. The gate has checked the scope; each looks only at what its viewer may see."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ...changes.effects import effects_of
from ...context import Context
from ...errors import NotFound, ProcessNotFound
from ...gate.dispatch import Gate
from ...review import processes
from ...review.undoing import app_on, journal_of, standing, undo_all
from . import tokens
from .layout import Viewer, WebPage


class Outcome(NamedTuple):
    """What a form did: a line for the next page or, where that must not be kept, a page of its own."""

    notice: str
    page: WebPage | None = None


Action = Callable[[Gate, Viewer, Context, Mapping[str, str]], Outcome]


def undo(gate: Gate, viewer: Viewer, ctx: Context, given: Mapping[str, str]) -> Outcome:
    """Take back one change (or its undo, which is a redo), or all that a session changed."""
    app = gate.app
    journal = journal_of(app.config, app.store, viewer.reader.roots)
    if session_id := given.get("session"):
        chosen = standing(journal, viewer.reader.principal, session_id)
        if not chosen:
            raise NotFound("this session has no change to undo")
        with app_on(chosen, app.config, app.data_dir, app) as engines:
            done = undo_all(engines, viewer.session, chosen, ctx.check)
        failures = [one.failure.message for one in done if one.failure is not None]
        return Outcome(f"Undone: {len(done) - len(failures)} of {len(done)} changes. {' '.join(failures[:3])}".strip())
    change = journal.find(given.get("id", ""), viewer.reader.principal)
    with app_on([change], app.config, app.data_dir, app) as engines:
        undone = engines.undoing.undo(viewer.session, change, False, ctx.check)
    verb = "Redone" if change.undoes is not None else "Undone"
    paths = ", ".join(effect.path for effect in effects_of(change)[:3])
    left = f" Not brought back: {'; '.join(map(str, undone.left[:3]))}." if undone.left else ""
    return Outcome(f"{verb}: {paths}.{left}")


def stop(gate: Gate, viewer: Viewer, ctx: Context, given: Mapping[str, str]) -> Outcome:
    """End a program in the background with all it started."""
    app, proc_id, principal = gate.app, given.get("id", ""), viewer.reader.principal
    try:
        ended = processes.stop(app.data_dir, principal, proc_id, ctx.check, app)
    except ProcessNotFound:
        if gate.replicas is None:
            raise
        ended = gate.replicas.stop(viewer.session, principal, proc_id, ctx.check)
    return Outcome(f"Stopped: {ended.command[:100]}")


def approve(gate: Gate, viewer: Viewer, ctx: Context, given: Mapping[str, str]) -> Outcome:
    """Let a call that waits happen, once."""
    del ctx
    answered = gate.app.approvals.answer(given.get("id", ""), True, viewer.name)
    return Outcome(f"Approved: {answered.deed}")


def deny(gate: Gate, viewer: Viewer, ctx: Context, given: Mapping[str, str]) -> Outcome:
    """Refuse a call that waits."""
    del ctx
    answered = gate.app.approvals.answer(given.get("id", ""), False, viewer.name)
    return Outcome(f"Denied: {answered.deed}")


def create_token(gate: Gate, viewer: Viewer, ctx: Context, given: Mapping[str, str]) -> Outcome:
    """Make a token; the page that shows it is the reply, and nothing keeps it."""
    del ctx
    tokens.refuse_beyond_own(viewer, given)
    return Outcome("", tokens.create(gate, viewer, given))


def revoke_token(gate: Gate, viewer: Viewer, ctx: Context, given: Mapping[str, str]) -> Outcome:
    """Have no server accept a token any more."""
    del viewer, ctx
    gate.app.token_table.revoke(given.get("name", ""))
    return Outcome(f"Revoked: {given.get('name', '')}")
