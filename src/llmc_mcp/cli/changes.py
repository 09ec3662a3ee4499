"""`llmc changes | undo | trash | locks`: what agents changed, and back again, for a person."""

import os
import sys
import time
from collections.abc import Sequence

from ..app import App
from ..changes.journal import Change, Journal, limits_from
from ..changes.undo import action_of, counts_of, path_of, target_of
from ..config.load import load
from ..config.schema import data_directory
from ..errors import InvalidArgument, NotFound
from ..policy import is_below
from ..printing import print_json, print_line
from ..session import Session
from ..store.sqlite import Store
from ..visible import visible
from .arguments import ParsedArguments

_LISTED = 200
_CHANGES = """\
usage: llmc changes [--all] [--session ID] [--diff] [--json]

What the file tools changed below this folder, newest first; --all: anywhere. --diff shows it as one coloured diff.
"""
_UNDO = """\
usage: llmc undo [ID | --session ID] [--force]

Takes back the newest change below this folder, one by its id, or a whole session's; an undo can be undone too.
--force does so even where a file changed since.
"""
_TRASH = """\
usage: llmc trash [--json]            what was deleted, newest first
       llmc trash restore ID          put it back where it was
       llmc trash empty [ID]          remove it, or everything, for good

ID is the first column of the list.
"""
_LOCKS = """\
usage: llmc locks [--json]

Who is changing what right now, on all servers of this user: what is locked, by which agent, and for how long.
"""
_COLOURS = {"+": "32", "-": "31", "@": "36"}


def _journal() -> Journal:
    loaded = load()
    return Journal(Store(loaded.data_dir), limits_from(loaded.config), None)


def _app(changes: Sequence[Change]) -> App:
    """The engines on whatever roots these changes were made below: a person's word is not bound to a server's."""
    roots = dict.fromkeys(root for change in changes for root in change.roots if os.path.isdir(root))
    loaded = load()
    return App(loaded.config, list(roots) or [os.getcwd()], loaded.data_dir)


def _here(change: Change) -> bool:
    here = os.path.realpath(os.getcwd())
    return any(is_below(path, here) for path in map(path_of, change.effects))


def _never() -> None:
    """A person who waits can press ^C."""


# --- changes ---------------------------------------------------------------------------------------


def changes(arguments: list[str]) -> int:
    """List changes, or show them as a diff."""
    words = ParsedArguments(arguments, _CHANGES, ("--all", "--diff", "--json"), ("--session",))
    found = _journal().history(None, words.values.get("--session"), _LISTED)
    if "--all" not in words.given:
        found = [change for change in found if _here(change)]
    if "--diff" in words.given:
        _print_diff(_app(found).undoing.diff(found))
    elif "--json" in words.given:
        rows = [row for change in found for row in _rows(change)]
        print_json(rows)
    else:
        for change in found:
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
            "action": action_of(change, record),
            "path": path_of(record),
            "target": target_of(record),
            "lines_added": counts_of(record)[0],
            "lines_removed": counts_of(record)[1],
            "undone": change.undone_by is not None,
        }
        for record in change.effects
    ]


def _line(row: dict[str, object]) -> str:
    lines = "" if row["lines_added"] is None else f"+{row['lines_added']} -{row['lines_removed']}"
    target = f" -> {row['target']}" if row["target"] else ""
    undone = "  (undone)" if row["undone"] else ""
    return f"{row['undo_id']}  {row['when']}  {row['action']:8} {lines:>10}  {row['path']}{target}{undone}"


def _print_diff(text: str) -> None:
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for line in text.splitlines():
        shown = visible(line, keep="\t")
        colour = _COLOURS.get(line[:1]) if coloured else None
        print(f"\x1b[{colour}m{shown}\x1b[0m" if colour else shown)


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


# --- undo ------------------------------------------------------------------------------------------


def undo(arguments: list[str]) -> int:
    """Take changes back."""
    words = ParsedArguments(arguments, _UNDO, ("--force",), ("--session",))
    if len(words.left) > 1 or (words.left and "--session" in words.values):
        raise InvalidArgument(f"one id, or --session\n{_UNDO}")
    return _undo(_chosen(words), force="--force" in words.given)


def _chosen(words: ParsedArguments) -> list[Change]:
    journal = _journal()
    if words.left:
        return [journal.find(words.left[0], None)]
    session = words.values.get("--session")
    standing = [
        change
        for change in journal.history(None, session, 100_000)
        if change.undoes is None and change.undone_by is None and (session or _here(change))
    ]
    if not standing:
        raise NotFound("there is no change to undo here", hint="llmc changes --all lists those of other folders.")
    return standing if session else standing[:1]


def _undo(chosen: Sequence[Change], *, force: bool) -> int:
    app = _app(chosen)
    who = Session(principal=f"uid:{os.getuid()}", session_id=f"llmc-{os.getpid()}", agent_id="llmc")
    for change in chosen:
        undone = app.undoing.undo(who, change, force, _never)
        for record in change.effects:
            print_line(f"undone: {action_of(change, record)} {path_of(record)}")
        print(f"to redo: llmc undo {undone.redo_id}", file=sys.stderr)
    app.close()
    return 0


# --- trash -----------------------------------------------------------------------------------------


def trash(arguments: list[str]) -> int:
    """List what was deleted, put it back, or remove it for good."""
    words = ParsedArguments(arguments, _TRASH, ("--json",))
    verb, *ids = words.left or ["list"]
    journal = _journal()
    if verb == "restore" and len(ids) == 1:
        return _undo([journal.find(ids[0], None)], force=False)
    if verb == "empty" and len(ids) <= 1:
        return _empty(ids[0] if ids else None)
    if verb != "list" or ids:
        raise InvalidArgument(f"unknown: {' '.join(words.left)}\n{_TRASH}")
    found = journal.trashed()
    if "--json" in words.given:
        rows = [dict(zip(("entry", "undo_id", "path", "kind", "bytes", "at"), row, strict=True)) for row in found]
        print_json(rows)
        return 0
    for _, change_id, path, kind, size, at in found:
        print_line(f"{change_id}  {_when(at)}  {kind:8} {size:>14,} bytes  {path}")
    if not found:
        print("the trash is empty", file=sys.stderr)
    return 0


def _empty(change_id: str | None) -> int:
    app = _app(())
    gone = [row[0] for row in app.changes.journal.trashed() if change_id in (None, row[1])]
    if change_id and not gone:
        raise NotFound(f"nothing of {change_id} is in the trash")
    app.changes.empty_trash(gone)
    print(f"removed for good: {len(gone)}", file=sys.stderr)
    app.close()
    return 0


# --- locks -----------------------------------------------------------------------------------------


def locks(arguments: list[str]) -> int:
    """List leases."""
    words = ParsedArguments(arguments, _LOCKS, ("--json",))
    if words.left:
        raise InvalidArgument(f"unknown: {words.left[0]}\n{_LOCKS}")
    from ..store.leases import Leases

    found = Leases(Store(data_directory()), 0).all()
    if "--json" in words.given:
        rows = [{**lease._asdict(), "over": lease.over} for lease in found]
        print_json(rows)
        return 0
    for lease in found:
        left = "over" if lease.over else f"{lease.expires_at - time.time():.0f} s left"
        holder = f"agent {lease.agent_id}, session {lease.session_id}, {left}"
        print_line(f"{lease.kind}  {lease.key}  {holder}  {lease.purpose}")
    if not found:
        print("nothing is locked", file=sys.stderr)
    return 0
