"""Files: exact edits and diffs."""

from typing import Annotated, ClassVar

import msgspec

from ...context import Context
from ...tool import FILES, Result, tool
from .syntax import syntax_after

Count = Annotated[int, msgspec.Meta(ge=1)]


class Edit(Result):
    """An applied edit; the snippets show the first replacement, before and after."""

    replacements_made: int
    before_snippet: str
    after_snippet: str
    new_sha256: str
    undo_id: str
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


@tool(
    "Replace exact text in a file; a miss shows the closest block",
    aliases=("linux_fs_patch_block", "edit_file"),
    needs=FILES,
    destructive=True,
    content=("old_text", "new_text"),
)
def linux_fs_edit(
    ctx: Context,
    path: str,
    old_text: str,
    new_text: str,
    expected_replacements: Count = 1,
    expected_sha256: str | None = None,
) -> Edit:
    edited = ctx.app.mutations.edit(
        ctx.session, path, old_text, new_text, expected_replacements, ctx.check, expected=expected_sha256
    )
    syntax = syntax_after(ctx, edited.id)
    return Edit(edited.edit.count, edited.edit.before, edited.edit.after, edited.sha256, edited.id, syntax)


@tool(
    "Apply a unified or git diff to many files: all of it or nothing",
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
