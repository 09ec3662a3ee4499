"""`llmc changes | undo | trash | locks`: lists and undoes what agents changed."""

import os
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager

from ..app import App
from ..changes.effects import effects_of, line_of, paths_shown
from ..changes.journal import Change, Journal
from ..changes.undo import Undone, refuse_uncertain
from ..command_line import JSON, Arguments, Command, Flag, Positional, UsageError, declare
from ..config.load import load
from ..errors import NotFound
from ..policy import is_below
from ..printing import print_json, print_line
from ..review.undoing import app_on, journal_of, standing, undo_all
from ..store.opening import store_of
from ..visible import visible
from .person import never, session

_LISTED = 200
_COLOURS = {"+": "32", "-": "31", "@": "36"}


def _journal() -> Journal:
    loaded = load()
    return journal_of(loaded.config, store_of(loaded.config.store, loaded.data_dir))


def _app(changes: Sequence[Change]) -> AbstractContextManager[App]:
    """The engines on the roots of these changes: a person is not bound to a server's roots."""
    loaded = load()
    return app_on(changes, loaded.config, loaded.data_dir)


def _here(change: Change) -> bool:
    here = os.path.realpath(os.getcwd())
    return any(is_below(path, here) for path in paths_shown(change))


# --- changes ---------------------------------------------------------------------------------------


@declare(
    "changes",
    "Lists what the file tools and commands changed below this folder, newest first; [the session] stands at the end.",
    flags=(
        Flag("--all", "changes in every folder"),
        Flag("--session", "changes of one session", "ID"),
        Flag("--diff", "show the changes as one coloured diff"),
        JSON,
    ),
)
def changes(given: Arguments) -> int:
    """List changes, or show them as a diff."""
    found = _journal().history(None, given.value("--session") or None, _LISTED)
    if "--all" not in given:
        found = [change for change in found if _here(change)]
    if "--diff" in given:
        with _app(found) as app:
            _print_diff(app.undoing.diff(found))
    elif "--json" in given:
        rows = [row for change in found for row in _rows(change)]
        print_json(rows)
    else:
        for change in found:
            if (line := line_of(change)) is not None:
                print_line(f"{change.id}  {_when(change.at)}  $ {line}  [{change.session_id}]")
            for row in _rows(change):
                print_line(_line(row))
        if not found:
            print("no changes", file=sys.stderr)
    return 0


def _rows(change: Change) -> list[dict[str, object]]:
    return [
        {
            "undo_id": change.id,
            "when": _when(change.at),
            "session": change.session_id,
            "agent": change.agent_id,
            "action": effect.action,
            "path": effect.path,
            "target": effect.target,
            "lines_added": effect.added,
            "lines_removed": effect.removed,
            "undone": change.undone_by is not None,
            "command": change.about or None,
        }
        for effect in effects_of(change)
    ]


def _line(row: dict[str, object]) -> str:
    lines = "" if row["lines_added"] is None else f"+{row['lines_added']} -{row['lines_removed']}"
    target = f" -> {row['target']}" if row["target"] else ""
    undone = "  (undone)" if row["undone"] else ""
    action = str(row["action"]).removeprefix("command: ")  # the line above says that a command did it
    shown = f"{row['undo_id']}  {row['when']}  {action:12} {lines:>10}  {row['path']}{target}{undone}"
    return shown if row["command"] else f"{shown}  [{row['session']}]"


def _print_diff(text: str) -> None:
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for line in text.splitlines():
        shown = visible(line, keep="\t")
        colour = _COLOURS.get(line[:1]) if coloured else None
        print(f"\x1b[{colour}m{shown}\x1b[0m" if colour else shown)


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


# --- undo ------------------------------------------------------------------------------------------


@declare(
    "undo",
    "Takes back the newest change below this folder, one by its id, or a whole session's; an undo can be undone, too.",
    positionals=(Positional("ID", "the change, as llmc changes lists it", required=False),),
    flags=(
        Flag("--session", "every change of this session", "ID"),
        Flag("--force", "undo even where a file changed since"),
    ),
)
def undo(given: Arguments) -> int:
    """Take changes back."""
    if given.first() and "--session" in given:
        raise UsageError("name a change or a session, not both")
    chosen, force = _chosen(given.first(), given.value("--session")), "--force" in given
    if given.value("--session"):
        return _undo_session(chosen, force)
    if not given.first() and not force:
        refuse_uncertain(chosen[0])
    return _undo_one(chosen[0], force)


def _chosen(change_id: str | None, session_id: str) -> list[Change]:
    journal = _journal()
    if change_id:
        return [journal.find(change_id, None)]
    found = [change for change in standing(journal, None, session_id or None) if session_id or _here(change)]
    if not found:
        raise NotFound("there is no change to undo here", hint="llmc changes --all lists those of other folders.")
    return found if session_id else found[:1]


def _undo_session(chosen: Sequence[Change], force: bool) -> int:
    """Take back all that can be; returns 1 if something could not."""
    failed = 0
    with _app(chosen) as app:
        for undone in undo_all(app, session(), chosen, never, force=force):
            if undone.failure is None:
                _print_undone(undone)
            else:
                failed = 1
                print(f"not undone: {visible(undone.failure.message)}", file=sys.stderr)
    return failed


def _undo_one(change: Change, force: bool) -> int:
    with _app([change]) as app:
        _print_undone(app.undoing.undo(session(), change, force, never))
    return 0


def _print_undone(undone: Undone) -> None:
    for effect in effects_of(undone.change):
        print_line(f"undone: {effect.action.removeprefix('command: ')} {effect.path}")
    for what in undone.left:
        print(f"not brought back: {what}", file=sys.stderr)
    print(f"to redo: llmc undo {undone.redo_id}", file=sys.stderr)


# --- trash -----------------------------------------------------------------------------------------


_TRASHED = Positional("ID", "the first column of the list")
trash = Command("trash", "What agents deleted: list it, restore it, or remove it for good.", default="list")


@trash.verb("list", "what was deleted, newest first", flags=(JSON,))
def _list_trash(given: Arguments) -> int:
    found = _journal().trashed()
    if "--json" in given:
        rows = [dict(zip(("entry", "undo_id", "path", "kind", "bytes", "at"), row, strict=True)) for row in found]
        print_json(rows)
        return 0
    for _, change_id, path, kind, size, at in found:
        print_line(f"{change_id}  {_when(at)}  {kind:8} {size:>14,} bytes  {path}")
    if not found:
        print("the trash is empty", file=sys.stderr)
    return 0


@trash.verb("restore", "put it back where it was", positionals=(_TRASHED,))
def _restore(given: Arguments) -> int:
    journal, change_id = _journal(), given.positionals[0]
    if all(row[1] != change_id for row in journal.trashed()):
        raise _not_in_trash(change_id)
    return _undo_one(journal.find(change_id, None), force=False)


@trash.verb("empty", "remove it, or everything, for good", positionals=(_TRASHED._replace(required=False),))
def _empty(given: Arguments) -> int:
    change_id = given.first()
    with _app(()) as app:
        gone = [row[0] for row in app.changes.journal.trashed() if change_id in (None, row[1])]
        if change_id and not gone:
            raise _not_in_trash(change_id)
        app.changes.empty_trash(gone)
    print(f"removed for good: {len(gone)}", file=sys.stderr)
    return 0


def _not_in_trash(change_id: str) -> NotFound:
    return NotFound(f"nothing of {change_id} is in the trash", hint="llmc trash lists what is.")


# --- locks -----------------------------------------------------------------------------------------


@declare(
    "locks",
    "Lists what is being changed right now on all servers of this user: what is locked, by which agent, for how long.",
    flags=(JSON,),
)
def locks(given: Arguments) -> int:
    """List leases."""
    from ..store.leases import Leases

    loaded = load()
    leases = Leases(store_of(loaded.config.store, loaded.data_dir), 0)
    found = leases.all()
    if "--json" in given:
        rows = [{**lease._asdict(), "over": leases.is_over(lease)} for lease in found]
        print_json(rows)
        return 0
    for lease in found:
        left = "over" if leases.is_over(lease) else f"{leases.seconds_left(lease):.0f} s left"
        holder = f"agent {lease.agent_id}, session {lease.session_id}, {left}"
        print_line(f"{lease.kind}  {lease.key}  {holder}  {lease.purpose}")
    if not found:
        print("nothing is locked", file=sys.stderr)
    return 0
