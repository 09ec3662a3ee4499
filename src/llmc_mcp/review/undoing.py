"""Undo for a person: of any change of the store, on the roots that it was made below."""

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from ..app import App
from ..changes.journal import Change, Journal, limits_from
from ..changes.undo import Undone, refuse_uncertain
from ..config.schema import Config
from ..errors import LlmcError
from ..session import Session
from ..store.base import Store
from ..store.root_sets import RootSet
from ..store.workspaces import is_elsewhere

_ALL = 100_000


def journal_of(config: Config, store: Store, roots: RootSet | None = None) -> Journal:
    """The journal as a person reads it: every change, or those visible from some roots."""
    return Journal(store, limits_from(config), roots)


@contextmanager
def app_on(changes: Sequence[Change], config: Config, data_dir: str, serving: App | None = None) -> Generator[App]:
    """The engines on the roots of these changes; those of a server that serves all of them anyway."""
    roots = dict.fromkeys(root for change in changes for root in change.roots if _is_here(root))
    if serving is not None and all(serving.root_set.holds(root) for root in roots):
        yield serving
        return
    app = App(config, list(roots) or [os.getcwd()], data_dir)
    try:
        yield app
    finally:
        app.close()


def _is_here(root: str) -> bool:
    return not is_elsewhere(root) and os.path.isdir(root)


def standing(journal: Journal, principal: str | None, session_id: str | None) -> list[Change]:
    """The changes in effect, newest first: neither undone nor undos themselves."""
    found = journal.history(principal, session_id, _ALL)
    return [change for change in found if change.undoes is None and change.undone_by is None]


def undo_all(
    app: App, who: Session, changes: Sequence[Change], check: Callable[[], None], *, force: bool = False
) -> list[Undone]:
    """Undo several changes, newest first; a failure is reported and does not stop the rest."""
    if not force:
        app.undoing.refuse_committed(changes)
    done: list[Undone] = []
    for change in changes:
        try:
            if not force:
                refuse_uncertain(change)
            done.append(app.undoing.undo(who, change, force, check))
        except LlmcError as exc:
            done.append(Undone(change, failure=exc))
    return done
