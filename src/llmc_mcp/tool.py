"""A tool is one function: its signature is the input schema, its return type the shape of the result.

    @tool("Read lines of a text file", read_only=True, needs=FILES)
    def read_file(ctx: Context, path: str, offset_lines: int = 0) -> FileText: ...

Nothing about a tool is written anywhere else.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, cast, get_args, get_type_hints

import msgspec

from .errors import BadArgs

Handler = TypeVar("Handler", bound=Callable[..., object])

_DROPPED_FROM_SCHEMAS = ("title", "description", "additionalProperties")
# Settings that must be on for a tool to be there.
FILES = ("linux_ops.features.fs_enabled",)
PROCESSES = ("linux_ops.features.proc_enabled",)
COMMANDS = (*PROCESSES, "tools.enable_run_cmd")
KILLS = (*PROCESSES, "linux_ops.features.kill_enabled")
REPLS = (*PROCESSES, "linux_ops.features.repl_enabled")  # a program to talk to is a command too
SYSTEM = ("linux_ops.features.system_enabled",)
SYSTEM_LOGS = ("linux_ops.features.logs_enabled",)
CODE_INDEX = ("rag.jit_context_enabled",)
DYNAMIC_TOOLS = ("tools.dynamic_tools",)

# What a tool is to the modes that don't list all tools: one of the few that every mode lists, the one that runs code
# in which the others are functions, those that find and call the others by name, the one that explains the server.
Role = Literal["core", "code", "dynamic", "bootstrap"]

# Whether a call may be handed over to its client as a task of the protocol, which runs on after the reply.
TaskSupport = Literal["optional", "required"]


class Risk(NamedTuple):
    """What a call is about to do that a person had better agree to: of which kind (`config.schema.RISKS`), and what."""

    kind: str
    deed: str


# (ctx, arguments): the risk of a call with these arguments; None: there is none.
Consent = Callable[..., Risk | None]

_HUGE = 1 << 63  # JSON knows no bounds; a count or an offset that no file system can hold is a mistake


class Result(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What a tool returns. `body` names the field that holds the bulk: text, or a list of rows.

    A reply that is too long is cut in its body, at a line or a row; `cut` then makes the rest of the result
    say so truthfully: what was cut and how to get it.
    """

    body: ClassVar[str] = ""
    lean_leaves_out: ClassVar[tuple[str, ...]] = ()  # fields that tell a model nothing it does not know already
    logged: ClassVar[tuple[str, ...]] = ()  # fields that the call's line in the log has too
    handle_kind: ClassVar[str] = ""  # set where a cut reply leaves its whole body behind, as a handle of this kind

    warnings: list[str] | None = None  # what went wrong without failing the call

    def handle_meta(self) -> dict[str, str | int]:
        """Where the body comes from, kept with its handle."""
        return {}

    def cut(self, kept: int) -> None:
        """Only the first `kept` lines or rows of the body are sent: set the fields that report it."""
        marks = {"truncated": True, "shown": kept}
        if "truncated" not in self.__struct_fields__:
            raise NotImplementedError(f"{type(self).__name__} has a body but does not say how it is cut")
        for name in marks.keys() & set(self.__struct_fields__):
            setattr(self, name, marks[name])


class Image(msgspec.Struct):
    """An image for the client to show, sent beside the text."""

    data: bytes
    mime_type: str


class Row(msgspec.Struct, omit_defaults=True):
    """A row of a body, and how lean text shows it.

    `line_format` is its line; rows with the same `group_by` stand under one heading, which also has the `rev` of the
    first, if that field has one. With `numbered_from` the row is a `snippet` of several lines, shown with their numbers
    from that field on; `line` is the hit.
    """

    line_format: ClassVar[str] = ""
    group_by: ClassVar[str] = ""
    numbered_from: ClassVar[str] = ""


class Gap(NamedTuple):
    """A text lacks its middle: the line that stands in its place, and how many ends of lines went with it."""

    mark: str
    lines: int


class Streams(msgspec.Struct, dict=True):
    """A body of two texts: what a command printed. Too long, each keeps its beginning and its end."""

    stdout: str
    stderr: str
    exit_code: int | None  # None: it is still running

    def __post_init__(self) -> None:
        self.gaps: Mapping[str, Gap] = {}  # by stream; no field, so it is not sent


def as_payload(body: object) -> bytes:
    """A body as a handle keeps it: text as it is, rows as one JSON value a line."""
    if isinstance(body, str):
        return body.encode("utf-8", "replace")
    return b"".join(msgspec.json.encode(row) + b"\n" for row in cast(list[object], body))


class ToolDef:
    """A registered tool, with everything that is derived from its function."""

    def __init__(  # noqa: PLR0913 - all that a decorator says, each part by its name
        self,
        fn: Callable[..., object],
        description: str,
        *,
        name: str,
        aliases: tuple[str, ...] = (),
        needs: tuple[str, ...] = (),
        read_only: bool = False,
        destructive: bool = False,
        idempotent: bool = False,
        role: Role | None = None,
        carries_calls: bool = False,
        content: tuple[str, ...] = (),
        takes_long: bool = False,
        task_support: TaskSupport | None = None,
        consent: Consent | None = None,
        whole_trees: bool = False,
        program: str = "",
        process: str = "",
        gathers: bool = False,
    ) -> None:
        self.fn, self.description, self.name, self.aliases, self.needs = fn, description, name, aliases, needs
        self.role, self.carries_calls, self.content = role, carries_calls, content
        self._takes_long = takes_long
        self.task_support: TaskSupport | None = task_support
        self.consent = consent
        self.whole_trees, self.program = whole_trees, program
        self.process, self.gathers = process, gathers
        self.annotations = {"readOnlyHint": read_only, "openWorldHint": False}
        if not read_only:
            self.annotations |= {"destructiveHint": destructive, "idempotentHint": idempotent}
        self._arguments: type[msgspec.Struct] | None = None

    @cached_property
    def mutating(self) -> bool:
        """Whether a call may change something; such calls are audited."""
        return not self.annotations["readOnlyHint"]

    @cached_property
    def takes_long(self) -> bool:
        """Whether a call may take as long as a program, a whole tree or an index does; a transport keeps it apart."""
        return self._takes_long or self.carries_calls or self.scope == "exec" or self.needs == CODE_INDEX

    @property
    def may_ask(self) -> bool:
        """Whether a call may need the user's consent, its own or that of a call that it makes."""
        return self.consent is not None or self.carries_calls

    @cached_property
    def scope(self) -> str:
        """What a token must cover for this tool, derived from what the tool says of itself."""
        if not self.mutating or self.carries_calls:
            return "read"
        return "write" if self.needs == FILES else "exec"  # whatever else changes things needs the most

    @property
    def arguments(self) -> type[msgspec.Struct]:
        """The argument object as a type; made on first use, start-up pays only for what it lists."""
        if self._arguments is None:
            code, defaults = self.fn.__code__, self.fn.__defaults__ or ()
            names = code.co_varnames[1 : code.co_argcount]
            hints = get_type_hints(self.fn, include_extras=True)
            required = len(names) - len(defaults)
            fields = [(name, hints[name]) for name in names[:required]]
            optional = zip(names[required:], defaults, strict=True)
            self._arguments = msgspec.defstruct(
                self.name,
                [*fields, *((name, hints[name], default) for name, default in optional)],
                forbid_unknown_fields=True,
            )
        return self._arguments

    def input_schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments, without what a model does not need to read."""
        (_,), components = msgspec.json.schema_components([self.arguments])
        schema = components[self.name]
        properties = {name: _slim(spec, components) for name, spec in schema["properties"].items()}
        slim: dict[str, Any] = {"type": "object", "properties": properties}
        if schema["required"]:
            slim["required"] = schema["required"]
        return slim

    def result_shape(self) -> str:
        """The fields of the result, in a line."""
        result = get_type_hints(self.fn)["return"]
        shapes = get_args(result) or (result,)
        return " or ".join(f"{{{', '.join(_told_fields(shape))}}}" for shape in shapes)

    def parse(self, raw: object) -> dict[str, Any]:
        """Arguments as the function takes them, or BAD_ARGS naming the field."""
        try:
            parsed = msgspec.convert({} if raw is None else raw, self.arguments, strict=True)
        except msgspec.ValidationError as exc:
            raise BadArgs(f"{self.name}: {_plain_words(str(exc))}", hint=self._usage()) from None
        arguments = {field: getattr(parsed, field) for field in self.arguments.__struct_fields__}
        for field, value in arguments.items():
            if isinstance(value, int) and not -_HUGE <= value < _HUGE:
                raise BadArgs(f"{self.name}: `{field}` is out of range", hint=self._usage())
        return arguments

    def _usage(self) -> str:
        schema = self.input_schema()
        required = schema.get("required", [])
        shown = [name if name in required else f"{name}?" for name in schema["properties"]]
        return f"Arguments: {', '.join(shown) or 'none'}."


def _told_fields(shape: type[Result]) -> list[str]:
    """The fields that a model has to know of: an image is sent beside them, warnings explain themselves."""
    return [name for name in shape.__struct_fields__ if name not in ("image", "warnings")]


def _slim(spec: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in spec:  # an object as an argument: its fields stand where they are needed
        named = components[spec["$ref"].rpartition("/")[2]]
        fields = {name: _slim(field, components) for name, field in named["properties"].items()}
        return {"type": "object", "properties": fields, "required": named["required"]}
    slim = {key: value for key, value in spec.items() if key not in _DROPPED_FROM_SCHEMAS}
    if "items" in slim:
        slim["items"] = _slim(slim["items"], components)
    if "anyOf" in slim:  # X | None: leaving the argument out says the same
        others = [_slim(option, components) for option in slim.pop("anyOf") if option != {"type": "null"}]
        slim = {**(others[0] if len(others) == 1 else {"anyOf": others}), **slim}
    if slim.get("default", False) in (None, False, 0, ""):
        slim.pop("default", None)
    return slim


def _plain_words(message: str) -> str:
    return message.replace("`$.", "`").replace("Object ", "").replace(" - at `$`", "")


registered: dict[str, ToolDef] = {}


def tool(  # noqa: PLR0913 - all that is said of a tool, each part by its name
    description: str,
    *,
    name: str | None = None,
    aliases: tuple[str, ...] = (),
    needs: tuple[str, ...] = (),
    read_only: bool = False,
    destructive: bool = False,
    idempotent: bool = False,
    role: Role | None = None,
    carries_calls: bool = False,
    content: tuple[str, ...] = (),
    takes_long: bool = False,
    task_support: TaskSupport | None = None,
    consent: Consent | None = None,
    whole_trees: bool = False,
    program: str = "",
    process: str = "",
    gathers: bool = False,
) -> Callable[[Handler], Handler]:
    """Register a function `(ctx, arguments…) -> Result` as a tool.

    `needs`: settings that must be on. `carries_calls`: it changes nothing by itself; the gate checks each call that it
    makes. `content`: arguments that hold somebody's data, which no log shows. `takes_long`: its calls take longer
    than a look at a file, though neither its scope nor its needs say so. `task_support`: a call may run on as a task.
    `consent`: what a call does that a person had better agree to. `whole_trees`: a call reads or changes all that lies
    below the folder it names. `program`: the one that its calls start. `process`: the argument that names a program
    which outlived its call, and may run in another replica. `gathers`: its result is joined from those of all replicas.
    """

    def register(fn: Handler) -> Handler:
        definition = ToolDef(
            fn,
            description,
            name=name or fn.__name__,
            aliases=aliases,
            needs=needs,
            read_only=read_only,
            destructive=destructive,
            idempotent=idempotent,
            role=role,
            carries_calls=carries_calls,
            content=content,
            takes_long=takes_long,
            task_support=task_support,
            consent=consent,
            whole_trees=whole_trees,
            program=program,
            process=process,
            gathers=gathers,
        )
        if definition.name in registered:
            raise ValueError(f"two tools are called {definition.name}")
        registered[definition.name] = definition
        return fn

    return register
