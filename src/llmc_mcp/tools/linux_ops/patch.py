"""Files: exact edits and diffs."""

import re
from typing import Annotated, ClassVar

import msgspec

from ...changes.edit import END, LineEdit, TextEdit
from ...context import Context
from ...errors import BadArgs
from ...files.revisions import LENGTH, revision_of
from ...tool import FILES, Result, tool
from .syntax import syntax_after

_MOST_EDITS = 100
_NUMBER = re.compile("[0-9]{1,9}")
_HEX, _SHA256 = frozenset("0123456789abcdef"), 64

Count = Annotated[int, msgspec.Meta(ge=1)]


class Edit(Result):
    """An applied edit; the snippets show the first replacement, before and after."""

    replacements_made: int
    before_snippet: str
    after_snippet: str
    new_sha256: str
    undo_id: str
    rev: str
    syntax: str | None = None  # whether the file still parses
    body: ClassVar[str] = "after_snippet"
    lean_leaves_out: ClassVar[tuple[str, ...]] = ("before_snippet",)

    def cut(self, kept: int) -> None:
        """Do nothing: snippets are far shorter than a reply."""


class Patch(Result):
    """The effect of a diff, or of a dry run; the journal keeps the former content of the files."""

    files_modified: list[str]
    files_created: list[str]
    files_deleted: list[str]
    backups_created: bool
    undo_id: str | None
    message: str
    syntax: str | None = None  # whether the files still parse


class EditPart(msgspec.Struct, omit_defaults=True):
    """One of several edits of a file."""

    new_text: str
    old_text: str | None = None
    lines: str | None = None
    expected_replacements: int = 1


@tool(
    "Replace exact text, or lines '12-15' with expected=rev; a miss shows the closest block",
    aliases=("linux_fs_patch_block", "edit_file"),
    needs=FILES,
    destructive=True,
    content=("old_text", "new_text", "edits"),
)
def linux_fs_edit(  # noqa: PLR0913 - the tool's schema
    ctx: Context,
    path: str,
    old_text: str | None = None,
    new_text: str | None = None,
    expected_replacements: Count = 1,
    expected_sha256: str | None = None,
    lines: str | None = None,
    expected: str | None = None,
    edits: list[EditPart] | None = None,
) -> Edit:
    if edits is None:
        if new_text is None:
            raise BadArgs("new_text is missing", hint='new_text="" deletes what it replaces.')
        edits = [EditPart(new_text, old_text, lines, expected_replacements)]
    elif (old_text, new_text, lines) != (None, None, None):
        raise BadArgs("edits replaces old_text, lines and new_text", hint="Put all replacements into edits.")
    if not 1 <= len(edits) <= _MOST_EDITS:
        raise BadArgs(f"edits has {len(edits)} entries; it takes 1 to {_MOST_EDITS}")
    wanted = [_wanted(part, expected or expected_sha256) for part in edits]
    edited = ctx.app.mutations.edit(
        ctx.session, path, wanted, ctx.check, expected=expected_sha256, revision=_revision(expected)
    )
    made = edited.edit
    syntax = syntax_after(ctx, edited.id)
    return Edit(made.count, made.before, made.after, edited.sha256, edited.id, revision_of(made.data), syntax)


def _revision(expected: str | None) -> str | None:
    if expected is None or (LENGTH <= len(expected) <= _SHA256 and set(expected.lower()) <= _HEX):
        return expected and expected.lower()[:LENGTH]
    raise BadArgs(f"expected is {expected!r}; it must be the rev of a reply", hint="Every read of the file gives it.")


def _wanted(part: EditPart, guard: str | None) -> TextEdit | LineEdit:
    if (part.old_text is None) == (part.lines is None):
        raise BadArgs("an edit takes either old_text or lines", hint="Quote the text to replace, or number its lines.")
    if part.old_text is not None:
        return TextEdit(part.old_text, part.new_text, part.expected_replacements)
    first, dash, last = (part.lines or "").replace(" ", "").partition("-")
    last = last if dash else first
    if not _NUMBER.fullmatch(first) or not (_NUMBER.fullmatch(last) or last == "end"):
        raise BadArgs(
            f"lines is {part.lines!r}; it must be a number or a range",
            hint='lines="12-15", lines="12", lines="12-end", or lines="12-11" to insert before line 12.',
        )
    if guard is None:
        raise BadArgs("lines needs expected: line numbers count in one state of a file", hint="Pass its rev.")
    return LineEdit(int(first), END if last == "end" else int(last), part.new_text)


@tool(
    "Apply a unified, git or V4A diff to many files: all of it or nothing",
    aliases=("repo_write_patch",),
    needs=FILES,
    destructive=True,
    content=("diff_text",),
)
def linux_fs_apply_diff(ctx: Context, diff_text: str, dry_run: bool = False) -> Patch:
    done = ctx.app.patching.apply(ctx.session, diff_text, dry_run, ctx.check)
    total = len(done.modified) + len(done.created) + len(done.deleted)
    files = f"{total} file{'' if total == 1 else 's'}"
    message = f"Would change {files}" if dry_run else f"Applied to {files}"
    syntax = syntax_after(ctx, done.id) if done.id else None
    return Patch(done.modified, done.created, done.deleted, not dry_run, done.id or None, message, syntax)
