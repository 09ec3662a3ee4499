"""Code: edits by pattern."""

from typing import ClassVar

from ..context import Context
from ..errors import BadArgs
from ..tool import FILES, Result, tool
from .linux_ops.syntax import syntax_after


class CodeRewrite(Result):
    """What a pattern matched. `detail`: the diff of a dry run, else the lines of the matches by file."""

    files: list[str]
    matches: int
    searched: int  # files
    detail: str
    undo_id: str | None = None
    notes: list[str] | None = None
    syntax: str | None = None
    handle: str | None = None
    truncated: bool = False
    body: ClassVar[str] = "detail"
    handle_kind: ClassVar[str] = "code_matches"


@tool(
    "Replace code by ast-grep pattern: foo($A, $$$REST) → bar($$$REST); one undo",
    needs=FILES,
    destructive=True,
    content=("pattern", "rewrite"),
    takes_long=True,
    whole_trees=True,
)
def code_rewrite(
    ctx: Context,
    pattern: str,
    rewrite: str,
    language: str,
    paths: list[str] | None = None,
    dry_run: bool = False,
) -> CodeRewrite:
    if not pattern.strip():
        raise BadArgs("pattern is empty")
    patterns = ctx.app.patterns
    known = patterns.language(language)
    places = [ctx.app.files.locate(path) for path in paths or [ctx.app.project.shown]]
    found = patterns.find(known, pattern, rewrite, places, ctx.check)
    reply = CodeRewrite(list(found.files), found.total, found.searched, "")
    notes = [f"Not UTF-8, left out: {', '.join(found.skipped[:5])}"] if found.skipped else []
    if not found.files:
        notes.append("Nothing matches. A pattern is code that parses on its own: $A is one node, $$$A any number.")
    else:
        compute = patterns.compute(known, pattern, rewrite, found, ctx.check)
        done = ctx.app.rewriting.rewrite(ctx.session, "rewrite", compute, ctx.check, dry_run=dry_run)
        reply.files, reply.undo_id = [file.path for file in done.files], done.id or None
        if done.id:
            reply.syntax = syntax_after(ctx, done.id)
            reply.detail = "".join(
                f"{path}: {', '.join(map(str, lines))}\n" for path, (_, lines) in found.files.items()
            )
        else:
            reply.detail = "".join(file.diff for file in done.files)
    reply.notes = notes or None
    return reply
