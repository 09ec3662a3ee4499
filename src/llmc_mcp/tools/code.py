"""Code: every tool as a function, so that loops and filters cost no tokens."""

import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, cast

import msgspec

from ..context import Context
from ..errors import InvalidArgument, LlmcError
from ..tool import DYNAMIC_TOOLS, Result, Row, ToolDef, tool

Seconds = Annotated[float, msgspec.Meta(gt=0, le=600)]

_MOST_FOUND = 8
_ROOM_FOR_META = 600
_REMEMBERED = 4  # results, for the one that code ends with
_BOUND = ("max_", "limit")  # how arguments begin that ask for a part
_INDIRECT = ("code", "dynamic")  # roles of the tools that call others; they don't call each other


class CodeError(msgspec.Struct, omit_defaults=True):
    """Why code stopped, where, and what to do about it."""

    message: str
    line: int | None = None
    source: str | None = None
    hint: str | None = None


class CodeResult(Result):
    """What code printed, and the value of its last expression."""

    stdout: str
    result: object
    tool_calls: int
    duration_ms: int
    error: CodeError | None = None
    note: str | None = None
    truncated: bool = False
    handle: str | None = None
    body: ClassVar[str] = "stdout"
    handle_kind: ClassVar[str] = "code_output"


@tool(
    "Run Python in which every tool is a function; tools() and help(name) explain",
    destructive=True,
    role="code",
    carries_calls=True,
    content=("code",),
)
def execute_code(ctx: Context, code: str, timeout: Seconds | None = None) -> CodeResult:
    from ..interpreters.engine import RunLimits

    settings, limits = ctx.app.config.code_execution, ctx.app.config.limits
    seconds = min(timeout or settings.timeout, settings.timeout)
    ctx.limit_time(seconds)
    started = time.perf_counter()
    calls = _Calls(ctx)
    outcome = ctx.app.code.run(
        code,
        calls.functions(),
        RunLimits(seconds, settings.max_memory_mb << 20, settings.max_output_bytes, limits.code_max_calls),
        ctx.check,
    )
    took = round((time.perf_counter() - started) * 1000)
    reply = CodeResult(outcome.stdout, None, calls.count, took, truncated=bool(outcome.cut_bytes))
    if outcome.failure is not None:
        reply.error = CodeError(*outcome.failure)
    if outcome.files:
        reply.note = f"Gone with the run: {', '.join(outcome.files)[:300]}. Persist files with linux_fs_write."
    reply.warnings = calls.cut_results() or None
    _set_value(ctx, reply, outcome.encoded, calls)
    return reply


def _set_value(ctx: Context, reply: CodeResult, encoded: bytes, calls: "_Calls") -> None:
    """The value, from its JSON; one that is too long for a reply goes behind a handle and is not decoded.

    A tool's own result is shown as the tool would show it, below what was printed.
    """
    room = max(ctx.reply_bytes // 2, ctx.reply_bytes - len(reply.stdout.encode()) - _ROOM_FOR_META)
    result = calls.result_behind(encoded) if ctx.lean else None
    if result is not None:
        shown = ctx.gate.render_part(ctx, result, room)
        reply.stdout += ("\n" if reply.stdout and not reply.stdout.endswith("\n") else "") + shown
        reply.result = "below"
        return
    if len(encoded) <= room:
        reply.result = msgspec.json.decode(encoded)
        return
    text = msgspec.json.decode(encoded, type=str) if encoded.startswith(b'"') else encoded.decode("utf-8", "replace")
    reply.handle = ctx.keep(reply.handle_kind, {}, text.encode("utf-8", "replace"))
    reply.result, reply.truncated = f"{text[: room // 4]} …[{len(encoded):,} bytes]", True


class _Calls:
    """The functions that code may call, and how often it did."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._tools = {
            _function_name(tool): tool
            for tool in ctx.gate.catalog.tools.values()
            if tool.role not in _INDIRECT and ctx.session.may(tool.scope)
        }
        self._aliases = {alias: tool for tool in self._tools.values() for alias in tool.aliases}
        self._results: deque[object] = deque(maxlen=_REMEMBERED)
        self._cut: Counter[str] = Counter()
        self.count = 0

    def functions(self) -> dict[str, Callable[..., object]]:
        made = {name: self._function(tool) for name, tool in {**self._aliases, **self._tools}.items()}
        return {**made, "tools": self._list, "help": self._help}

    def cut_results(self) -> list[str]:
        """A warning for each tool that handed over less than there was, without having been asked for a part."""
        return [
            f"{name} returned a part {count} times: see truncated in its results, then page or narrow"
            for name, count in self._cut.items()
        ]

    def result_behind(self, encoded: bytes) -> object:
        """The tool's result that a value is, unchanged; None if it is something else."""
        same = (one for one in reversed(self._results) if msgspec.json.encode(_as_code_sees(one)) == encoded)
        return next(same, None) if encoded.startswith(b"{") else None

    def _function(self, tool: ToolDef) -> Callable[..., object]:
        names = tool.arguments.__struct_fields__

        def call(*values: object, **named: object) -> object:
            if len(values) > len(names):
                raise TypeError(f"BAD_ARGS: {tool.name} takes {len(names)} arguments: {', '.join(names)}")
            self.count += 1
            given = {**dict(zip(names, values, strict=False)), **named}
            try:
                result = self._ctx.call_tool(tool.name, given)
            except LlmcError as exc:
                raise RuntimeError(f"{exc.code}: {_with_hint(exc)}") from None
            self._results.append(result)
            seen = _as_code_sees(result)
            if _is_part(seen) and not any(name.startswith(_BOUND) for name in given):
                self._cut[tool.name] += 1
            return seen

        return call

    def _list(self, *unexpected: object) -> list[str]:
        if unexpected:
            raise TypeError("tools() takes no arguments; help(name) explains one")
        return [f"{_usage(name, tool)}: {tool.description}" for name, tool in self._tools.items()]

    def _help(self, name: object) -> str:
        wanted = getattr(name, "__name__", str(name))
        tool = self._tools.get(wanted) or self._aliases.get(wanted)
        if tool is None:
            raise RuntimeError(f"UNKNOWN_TOOL: there is no tool {name!r}; tools() lists them")
        arguments = msgspec.json.encode(tool.input_schema()["properties"]).decode()
        usage = _usage(_function_name(tool), tool)
        return f"{usage}\n{tool.description}\narguments: {arguments}\nreturns: {tool.result_shape()}"


def _with_hint(exc: LlmcError) -> str:
    if not exc.hint:
        return exc.message
    is_several_lines = "\n" in exc.message  # the last may quote a file
    return exc.message + ("\n" if is_several_lines else " " if exc.message.endswith(".") else ". ") + exc.hint


def _as_code_sees(result: object) -> dict[str, Any]:
    """A result as the dict that code gets: the fields of the direct reply, and always whether it is a part."""
    seen: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(result))
    if isinstance(result, Result) and "truncated" in result.__struct_fields__:
        seen.setdefault("truncated", False)
    return seen


def _is_part(seen: dict[str, Any]) -> bool:
    meta = seen.get("meta")
    return bool(seen.get("truncated") or (isinstance(meta, dict) and cast(dict[str, Any], meta).get("truncated")))


def _function_name(tool: ToolDef) -> str:
    """What code calls a tool: its function's name where its own is none in Python."""
    return tool.name if tool.name.isidentifier() else tool.fn.__name__


def _usage(name: str, tool: ToolDef) -> str:
    schema: dict[str, Any] = tool.input_schema()
    required = schema.get("required", [])
    return f"{name}({', '.join(word if word in required else f'{word}?' for word in schema['properties'])})"


class _Schema(dict[str, Any]):
    """A JSON Schema; lean text shows it as such."""

    def __format__(self, spec: str) -> str:
        return msgspec.json.encode(dict(self)).decode()


class FoundTool(Row):
    """A tool that may be called by name."""

    name: str
    description: str
    input_schema: "_Schema"
    line_format: ClassVar[str] = "{name}: {description}\n  {input_schema}"


class FoundTools(Result):
    """Tools that fit a query, best first."""

    tools: list[FoundTool]
    truncated: bool = False
    body: ClassVar[str] = "tools"


@tool("Find tools beyond the listed ones by what they do", needs=DYNAMIC_TOOLS, read_only=True, role="dynamic")
def tool_search(ctx: Context, query: str) -> FoundTools:
    words = query.lower().split()
    rows: list[tuple[int, FoundTool]] = []
    for found in ctx.gate.catalog.tools.values():
        if found.role in _INDIRECT:
            continue
        text = f"{found.name} {found.description}".lower().replace("_", " ")
        score = sum(word in text for word in words)
        if score:
            rows.append((-score, FoundTool(found.name, found.description, _Schema(found.input_schema()))))
    rows.sort(key=lambda row: (row[0], row[1].name))
    return FoundTools([row for _, row in rows[:_MOST_FOUND]])


@tool("Call a tool found by tool_search", needs=DYNAMIC_TOOLS, destructive=True, role="dynamic", carries_calls=True)
def call_tool(ctx: Context, name: str, args: dict[str, Any] | None = None) -> Result:
    target = ctx.gate.catalog.tools.get(name.replace(".", "_"))
    if target is not None and target.role in _INDIRECT:
        raise InvalidArgument(f"{name} can't be called through call_tool")
    return cast(Result, ctx.call_tool(name, args or {}))
