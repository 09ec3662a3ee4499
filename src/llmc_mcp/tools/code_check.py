"""Code: checks on request."""

import os
from typing import TYPE_CHECKING, ClassVar

from ..context import Context
from ..errors import LlmcError, NotFound
from ..files import names
from ..tool import COMMANDS, Result, Row, tool
from .exec import call_of, limit_time, owner_of

if TYPE_CHECKING:
    from ..code.baseline import Baseline

_SESSION, _COMMIT = "session", "commit"
_SHOWN = 60
_LONGEST = 240


class CheckedLine(Row):
    """A finding."""

    file: str
    line: int
    checker: str
    text: str
    group_by: ClassVar[str] = "file"
    line_format: ClassVar[str] = "{line} {checker}: {text}"


class CodeCheck(Result):
    """Findings that are new since a commit or since the session began."""

    findings: list[CheckedLine]
    total: int
    since: str
    files: int
    ran: list[str]
    skipped: list[str] | None = None
    former: int | None = None  # findings that are not new, and not listed
    truncated: bool = False
    shown: int | None = None
    handle: str | None = None
    body: ClassVar[str] = "findings"
    handle_kind: ClassVar[str] = "code_findings"


@tool(
    "Check code: syntax, the project's linters and types; only what is new since commit|session",
    needs=COMMANDS,
    destructive=True,
    task_support="optional",
    whole_trees=True,
)
def code_check(ctx: Context, paths: list[str] | None = None, since: str = _COMMIT) -> CodeCheck:
    ctx.app.sandbox.ready(owner_of(ctx))
    limit_time(ctx, ctx.app.config.linux_ops.process_limits.default_timeout_sec)
    wanted = _below_project(ctx, paths)
    baseline = _since_session(ctx, wanted) if since == _SESSION else _since_commit(ctx, wanted, since)
    texts = _texts(ctx, baseline)
    report = ctx.app.project_check.run(baseline, texts, call_of(ctx))
    rows = [CheckedLine(one.path, one.line, one.checker, one.text[:_LONGEST]) for one in report.found]
    rows.sort(key=lambda row: (row.file, row.line))
    reply = CodeCheck(rows[:_SHOWN], len(rows), baseline.name, len(texts), report.ran, report.skipped or None)
    reply.former = report.former or None
    if len(rows) > _SHOWN:
        from ..tool import as_payload

        reply.handle = ctx.keep(reply.handle_kind, {}, as_payload(rows))
        reply.cut(_SHOWN)
    return reply


def _below_project(ctx: Context, paths: list[str] | None) -> tuple[str, ...]:
    """The wanted paths, relative to the project; all of it by default."""
    root = ctx.app.project
    found: list[str] = []
    for path in paths or ():
        place = ctx.app.files.locate(path)
        inside = os.path.relpath(place.real, os.fsdecode(root.real))
        found.append("" if inside == "." else os.path.normpath(inside))
    return tuple(found) or ("",)


def _is_wanted(path: str, wanted: tuple[str, ...]) -> bool:
    return any(not one or path == one or path.startswith(f"{one}/") for one in wanted)


def _since_commit(ctx: Context, wanted: tuple[str, ...], since: str) -> "Baseline":
    from ..code.baseline import GitBaseline

    git = GitBaseline(ctx.app.sandbox, ctx.app.shell.programs, ctx.app.project)
    revision = "HEAD" if since == _COMMIT else since
    try:
        return git.at(revision, lambda path: _is_wanted(path, wanted), ctx.check)
    except NotFound:
        if since != _COMMIT:
            raise
        return _since_session(ctx, wanted)  # a folder without commits


def _since_session(ctx: Context, wanted: tuple[str, ...]) -> "Baseline":
    """The texts that the journal kept of the files that this session has changed."""
    from ..code.baseline import Baseline

    top = os.fsdecode(ctx.app.project.real).rstrip("/") + "/"
    files: dict[str, bytes | None] = {}
    for change in ctx.app.changes.journal.of_session(ctx.session):  # the newest first: the oldest text stays
        for path, before, _ in ctx.app.undoing.texts(change, lambda _: True):
            inside = path.removeprefix(top)
            if path.startswith(top) and _is_wanted(inside, wanted):
                files[inside] = before
    return Baseline(_SESSION, files)


def _texts(ctx: Context, baseline: "Baseline") -> dict[str, bytes]:
    """The files as they are now: those that may be shown, and are not too large to edit."""
    largest = ctx.app.config.limits.edit_max_bytes
    root = ctx.app.project
    found: dict[str, bytes] = {}
    for path in baseline.files:
        ctx.check()
        try:
            fd, info = ctx.app.files.open_file(
                ctx.app.files.locate(f"{root.shown.rstrip('/')}/{names.show(os.fsencode(path))}")
            )
        except LlmcError:
            continue
        with os.fdopen(fd, "rb", buffering=0) as opened:
            if info.st_size <= largest:
                found[path] = opened.read(info.st_size) or b""
    return found
