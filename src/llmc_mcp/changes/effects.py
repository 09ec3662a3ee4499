"""What a change did, path by path, in words."""

from typing import NamedTuple

from .journal import Change
from .records import TRASH, MakeRecord, MoveRecord, PutRecord, Record, RemoveRecord, SortRecord
from .transaction import BACKGROUND, COMMAND
from .tree import TreeEntry, TreeRecord, entries_of

_LISTED = 50  # entries of one command; the rest is counted
_ABOUT_SHOWN = 60  # characters of its line
_WORDS = {"apply_diff": "patch", "undo": "undo", "write": "write", "append": "append", "edit": "edit"}


class ShownEffect(NamedTuple):
    """One path of a change; `target` is that of a move within the roots."""

    path: str
    action: str
    target: str | None = None
    added: int | None = None  # lines; None: not counted
    removed: int | None = None


def effects_of(change: Change) -> list[ShownEffect]:
    """What a change did; of a command with many files, the first ones and how many there are."""
    if not change.effects:
        return [ShownEffect(change.roots[0] if change.roots else "/", _lost(change))]
    return [effect for record in change.effects for effect in _effects_of(change, record)]


def _effects_of(change: Change, record: Record) -> list[ShownEffect]:
    if isinstance(record, TreeRecord):
        entries = list(entries_of(record))
        shown = [
            ShownEffect(f"{record.path}/{entry.path}", f"{change.action}: {_word(entry)}")
            for entry in entries[:_LISTED]
        ]
        if len(entries) > _LISTED:
            shown.append(ShownEffect(record.path, f"{change.action}: {len(entries):,} files in all"))
        return shown
    return [ShownEffect(_path_of(record), _action_of(change, record), _target_of(record), *_counts_of(record))]


def _word(entry: TreeEntry) -> str:
    before, after = entry.before, entry.after
    if after is None:
        return "delete"
    if before is None:
        return "mkdir" if after.kind == "dir" else "link" if after.kind == "symlink" else "create"
    if not before.has_content_of(after):
        return "write"
    return "chmod" if before.mode != after.mode else "touch"


def _lost(change: Change) -> str:
    """Of a command that has no effects although it is over: nobody was there to see what it did."""
    if change.action in (COMMAND, BACKGROUND):
        return "command (the server was killed: not undoable)"
    return change.action


def line_of(change: Change) -> str | None:
    """The line of a command, shortened."""
    about = change.about
    return None if not about else about if len(about) <= _ABOUT_SHOWN else f"{about[:_ABOUT_SHOWN]}…"


def paths_shown(change: Change) -> list[str]:
    """The paths that a change is about."""
    return [effect.path for effect in effects_of(change)]


def _action_of(change: Change, record: Record) -> str:
    if change.state == "failed":
        return f"{change.action} (interrupted, not settled)"
    if isinstance(record, MakeRecord):
        return "mkdir"
    if isinstance(record, RemoveRecord):
        return "rmdir"
    if isinstance(record, SortRecord):
        return f"{change.action}: {len(record.moves):,} files moved"
    if isinstance(record, PutRecord):
        return "create" if record.before is None else _WORDS.get(change.action, change.action)
    if not isinstance(record, MoveRecord):
        return change.action
    if record.target.startswith(TRASH):
        return "delete"
    return "restore" if record.path.startswith(TRASH) else "move"


def _path_of(record: Record) -> str:
    """The path that a row is about; for an entry restored from the trash, its new one."""
    return record.target if isinstance(record, MoveRecord) and record.path.startswith(TRASH) else record.path


def _target_of(record: Record) -> str | None:
    if not isinstance(record, MoveRecord) or TRASH in (record.path[: len(TRASH)], record.target[: len(TRASH)]):
        return None
    return record.target


def _counts_of(record: Record) -> tuple[int | None, int | None]:
    return (record.added, record.removed) if isinstance(record, PutRecord) else (None, None)
