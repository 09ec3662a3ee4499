"""Files: write, move, delete, create directories; list and undo changes."""

import stat
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ...context import Context
from ...errors import InvalidArgument
from ...tool import FILES, Result, Risk, Row, tool
from .syntax import syntax_after

if TYPE_CHECKING:
    from ...changes.journal import Change
    from ...changes.undo import Undone

_LISTED = 500
_LISTED_OF_ALL = 200  # as many as a reply shows; older ones are listed by their session
_DIFF_MOST = 2 << 20  # characters of a diff after which no further file is added
_CURRENT, _ALL = "current", "all"


class Write(Result):
    """A written file: bytes written, hash of the whole file, and the id that undoes the change."""

    bytes_written: int
    new_sha256: str
    undo_id: str
    syntax: str | None = None  # whether the file still parses


class MoveResult(Result):
    """A moved or renamed entry."""

    ok: bool
    source: str
    target: str
    undo_id: str


class PathChanged(Result):
    """A deleted or created path; `undo_id` is null if there was nothing to do."""

    ok: bool
    path: str
    undo_id: str | None


class UndoneRow(Row):
    """An undone change; undoing `redo_id` redoes it."""

    undo_id: str
    path: str
    action: str
    redo_id: str | None = None
    failed: str | None = None
    line_format: ClassVar[str] = "{undo_id}\t{action}\t{path}\t{redo_id}{failed}"


class Undo(Result):
    """Undone changes, newest first."""

    undone: list[UndoneRow]
    truncated: bool = False
    shown: int | None = None
    body: ClassVar[str] = "undone"


class ChangeRow(Row):
    """One path of a change."""

    undo_id: str
    path: str
    action: str
    when: str
    lines_added: int | None
    lines_removed: int | None
    target: str | None = None
    session: str | None = None
    state: str | None = None  # `undone`, or null if the change is in effect
    command: str | None = None  # the line, in the first row of a command
    line_format: ClassVar[str] = (  # added, removed and path in the order of git diff --numstat
        "{undo_id}\t{when}\t{action}\t{lines_added}\t{lines_removed}\t{path}\t{target}\t{state}{command}"
    )


class ChangeList(Result):
    """Changes, newest first."""

    changes: list[ChangeRow]
    truncated: bool = False
    shown: int | None = None
    handle: str | None = None
    body: ClassVar[str] = "changes"
    handle_kind: ClassVar[str] = "fs_changes"


class ChangeDiff(Result):
    """The effect of changes on files, as one diff from before the first change to now."""

    files: int
    diff: str
    note: str | None = None
    truncated: bool = False
    shown: int | None = None
    handle: str | None = None
    body: ClassVar[str] = "diff"
    handle_kind: ClassVar[str] = "diff"


def _consent_to_write(ctx: Context, arguments: Mapping[str, Any]) -> Risk | None:
    if not arguments["allow_unjournaled"]:
        return None
    path = ctx.app.files.locate(arguments["path"]).absolute
    return Risk("unjournaled", f"write {path}, without undo if it is too large for the journal")


def _consent_to_delete(ctx: Context, arguments: Mapping[str, Any]) -> Risk | None:
    if not arguments["allow_unjournaled"] and not arguments["recursive"]:
        return None
    place = ctx.app.files.locate(arguments["path"])
    if arguments["allow_unjournaled"]:
        return Risk("unjournaled", f"delete {place.absolute}, without undo if it is too large for the trash")
    info, link = ctx.app.files.stat(place)
    is_folder = link is None and stat.S_ISDIR(info.st_mode)
    if is_folder:
        ctx.app.mutations.refuse_delete(arguments["path"], ctx.check)  # nobody is asked for what can't be
    return Risk("recursive_delete", f"delete the folder {place.absolute} with all it holds") if is_folder else None


@tool(
    "Write or append to a file, atomically; undoable",
    needs=FILES,
    destructive=True,
    content=("content",),
    consent=_consent_to_write,
)
def linux_fs_write(
    ctx: Context,
    path: str,
    content: str,
    mode: Literal["rewrite", "append"] = "rewrite",
    expected_sha256: str | None = None,
    create_parents: bool = False,
    allow_unjournaled: bool = False,
) -> Write:
    written = ctx.app.mutations.write(
        ctx.session,
        path,
        content,
        ctx.check,
        append=mode == "append",
        expected=expected_sha256,
        parents=create_parents,
        unjournaled=allow_unjournaled,
    )
    return Write(written.size, written.sha256, written.id, syntax_after(ctx, written.id))


@tool("Move or rename a file or folder; undoable", needs=FILES, destructive=True, whole_trees=True)
def linux_fs_move(ctx: Context, source: str, target: str, overwrite: bool = False) -> MoveResult:
    done = ctx.app.mutations.move(ctx.session, source, target, overwrite, ctx.check)
    locate = ctx.app.files.locate
    return MoveResult(True, locate(source).absolute, locate(target).absolute, done.id)


@tool(
    "Delete a file or folder into the trash; undoable",
    needs=FILES,
    destructive=True,
    consent=_consent_to_delete,
    whole_trees=True,
)
def linux_fs_delete(ctx: Context, path: str, recursive: bool = False, allow_unjournaled: bool = False) -> PathChanged:
    done = ctx.app.mutations.delete(ctx.session, path, ctx.check, recursive=recursive, unjournaled=allow_unjournaled)
    return PathChanged(True, ctx.app.files.locate(path).absolute, done.id)


@tool("Make a folder and those above it; undoable", aliases=("linux_fs_mkdir",), needs=FILES, idempotent=True)
def linux_fs_mkdirs(ctx: Context, path: str, exist_ok: bool = True) -> PathChanged:
    done = ctx.app.mutations.mkdirs(ctx.session, path, exist_ok, ctx.check)
    return PathChanged(True, ctx.app.files.locate(path).absolute, done.id if done else None)


@tool("Undo the newest change, one by id, or the whole session's", needs=FILES, destructive=True)
def linux_fs_undo(
    ctx: Context, undo_id: str | None = None, session: bool = False, force: bool | list[str] = False
) -> Undo:
    undoing, journal = ctx.app.undoing, ctx.app.changes.journal
    if session and undo_id is not None:
        raise InvalidArgument("undo_id and session exclude each other")
    if session:
        undone = undoing.undo_session(ctx.session, force, ctx.check)
        failures = [one.failure for one in undone if one.failure is not None]
        if failures and len(failures) == len(undone):
            raise failures[0]
    elif undo_id:
        undone = [undoing.undo(ctx.session, journal.find(undo_id, ctx.session.principal), force, ctx.check)]
    else:
        undone = [undoing.undo_newest(ctx.session, force, ctx.check)]
    return Undo([row for one in undone for row in _undone_rows(one)])


@tool("What was changed in this session (or an id, or 'all'); optionally as a diff", needs=FILES, read_only=True)
def linux_fs_changes(ctx: Context, session: str | None = None, diff: bool = False) -> ChangeList | ChangeDiff:
    session_id = ctx.session.session_id if session in (None, _CURRENT) else None if session == _ALL else session
    most = _LISTED if diff or session_id is not None else _LISTED_OF_ALL
    found = ctx.app.changes.journal.history(ctx.session.principal, session_id, most + 1)
    if diff:
        text = ctx.app.undoing.diff(found[:most], ctx.check, _DIFF_MOST)
        reply = ChangeDiff(text.count("\n+++ ") + text.startswith("+++ "), text)
        if len(found) > most:
            reply.truncated, reply.note = True, f"Only the newest {most} changes: then is before the first of them."
        return reply
    rows = [row for change in found[:most] for row in _change_rows(change, session == _ALL)]
    return ChangeList(rows, len(found) > most)


def _undone_rows(undone: "Undone") -> list[UndoneRow]:
    from ...changes.effects import effects_of

    change, redo_id = undone.change, undone.redo_id or None
    failed = None if undone.failure is None else f"{undone.failure.code}: {undone.failure.message}"
    rows = [UndoneRow(change.id, effect.path, effect.action, redo_id, failed) for effect in effects_of(change)]
    return rows + [UndoneRow(change.id, what, "not brought back", redo_id, "see path") for what in undone.left]


def _change_rows(change: "Change", with_session: bool) -> Sequence[ChangeRow]:
    from ...changes.effects import effects_of, line_of

    when = datetime.fromtimestamp(change.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return [
        ChangeRow(
            undo_id=change.id,
            path=effect.path,
            action=effect.action,
            when=when,
            lines_added=effect.added,
            lines_removed=effect.removed,
            target=effect.target,
            session=change.session_id if with_session else None,
            state="undone" if change.undone_by is not None else None,
            command=line_of(change) if number == 0 else None,
        )
        for number, effect in enumerate(effects_of(change))
    ]
