"""Where a task takes place, and what a session should know before it starts on one."""

import os
from typing import TYPE_CHECKING, ClassVar, Literal

from ..context import Context
from ..errors import FeatureUnavailable, LlmcError
from ..files import names
from ..tool import CODE_INDEX, Result, Row, tool
from .index_common import Scope, caller_of, code_query, display_path
from .rag import Snippet, snippet_of

if TYPE_CHECKING:
    from ..rag.query.plan import PlanFile, PlanSpan

_RULES_BYTES = 256 << 10
_MAP_TOKENS = 400


class SpanRow(Row):
    """A place to look at, and why."""

    path: str
    lines: str
    score: float
    rationale: str
    line_format: ClassVar[str] = "{path}:{lines} {score} {rationale}"


class FileRow(Row):
    """A file that a task concerns, why, and its definitions to look at."""

    path: str
    score: float
    reasons: list[str]
    symbols: list[str]
    line_format: ClassVar[str] = "{path} {score} [{symbols}] {reasons}"


class PlanText(Result):
    """Where a task takes place; `spans` are places in the files, and places that use what the task names."""

    intent: str
    symbols: list[str]
    files: list[FileRow]
    spans: list[SpanRow]
    confidence: float
    freshness: str
    hint: str | None = None
    truncated: bool = False
    body: ClassVar[str] = "files"
    lean_leaves_out: ClassVar[tuple[str, ...]] = ("spans",)

    def cut(self, kept: int) -> None:
        del kept
        self.truncated = True


@tool("Where to look for a task (an issue, a traceback): files, symbols, reasons", needs=CODE_INDEX, read_only=True)
def rag_plan(ctx: Context, query: str, detail_level: Literal["summary", "full"] = "summary") -> PlanText:
    from ..rag.query import plan

    made = plan.make(ctx.app.rag, query, detail_level, caller_of(ctx))
    return PlanText(
        intent=made.intent,
        symbols=made.symbols,
        files=[_file(file) for file in made.files],
        spans=[_span(span) for span in made.spans],
        confidence=made.confidence,
        freshness=made.freshness,
        hint=made.hint or None,
    )


def _file(file: "PlanFile") -> FileRow:
    path = f"{file.root.shown.rstrip('/')}/{names.show(file.path)}"
    symbols = [f"{one.name}:{one.first_line}-{one.last_line}" for one in file.symbols]
    return FileRow(path, file.score, file.reasons, symbols)


def _span(span: "PlanSpan") -> SpanRow:
    path = f"{span.root.shown.rstrip('/')}/{names.show(span.path)}"
    return SpanRow(path, f"{span.first_line}-{span.last_line}", span.score, span.rationale)


class Bootload(Result):
    """What a session should know before it starts on a task."""

    plan: str
    scope: Scope
    notes: str
    tools_available: list[str]
    snippets: list[Snippet]
    provenance: bool = True


@tool("Rules of the repository and a plan for a task, to start with", needs=CODE_INDEX, read_only=True)
def rag_bootload(ctx: Context, session_id: str, task_id: str) -> Bootload:
    from ..rag.query import bootload

    del session_id  # the task decides what there is to know; whose session it is changes nothing
    words = bootload.task_words(task_id)
    rules = bootload.rules(lambda path: _text_of(ctx, path), words)
    scope = bootload.scope_of(words)
    plan = _planned(ctx, words, rules.commands)
    notes = rules.notes or ["There is no AGENTS.md, CONTRACTS.md or README here."]
    if rules.sources:
        notes = [f"From {', '.join(rules.sources)}:", *notes]
    return Bootload(plan, scope, "\n".join(notes), sorted(ctx.gate.catalog.tools), _snippets(ctx, words, scope))


def _snippets(ctx: Context, words: str, scope: Scope) -> list[Snippet]:
    """The code or text that the task's name finds, each piece with its file and lines."""
    if not words:
        return []
    try:
        answer = ctx.app.rag.search(code_query(ctx, words, scope, None, None, None), caller_of(ctx))
    except FeatureUnavailable:
        return []  # the plan says so
    return [snippet_of(ctx, hit) for hit in answer.hits]


def _planned(ctx: Context, words: str, commands: list[str]) -> str:
    try:
        steps = _from_index(ctx, words)
    except FeatureUnavailable as exc:
        steps = [f"Without the code index: {exc.message}.", *([exc.hint] if exc.hint else [])]
    if commands:
        steps.append(f"Check with: {'; '.join(commands)}")
    return "\n".join(steps)


def _from_index(ctx: Context, words: str) -> list[str]:
    from ..rag.query import plan

    steps: list[str] = []
    made = plan.make(ctx.app.rag, words, "summary", caller_of(ctx)) if words else None
    if made is not None and made.confidence >= 0.2 and made.spans:
        steps.append(f"The task seems to be: {made.intent} ({words}); confidence {made.confidence}. Look at:")
        steps += [
            f"- {display_path(ctx, span.root, span.path)}:{span.first_line}-{span.last_line} ({span.rationale})"
            for span in made.spans
        ]
    else:
        steps.append("The task's name says nothing that the index knows. What the repository leans on:")
        for drawn in ctx.app.maps.draw(_MAP_TOKENS, caller_of(ctx)):
            if drawn.text:
                steps += [drawn.text] if drawn.root == ctx.app.files.roots[0] else [f"# {drawn.root.shown}", drawn.text]
    return steps


def _text_of(ctx: Context, path: str) -> str | None:
    """A small text file of the project."""
    files = ctx.app.files
    try:
        handle, info = files.open_file(files.locate(os.path.join(ctx.app.project.shown, path)))
    except LlmcError:
        return None
    with os.fdopen(handle, "rb") as file:
        return file.read(min(info.st_size, _RULES_BYTES)).decode("utf-8", "replace")
