"""A tool is its function: name, schema and argument checks all come from the signature."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
import pytest

from llmc_mcp.config.schema import Config
from llmc_mcp.context import Context
from llmc_mcp.errors import BadArgs
from llmc_mcp.gate.catalog import Catalog
from llmc_mcp.tool import Result, ToolDef, registered, tool

Small = Annotated[int, msgspec.Meta(ge=1, le=10, title="Small", description="not for the model")]


class Nothing(Result):
    """An empty result."""


def sample(
    ctx: Context,
    path: str,
    count: Small = 5,
    offset: int = 0,
    glob: str | None = None,
    deep: bool = False,
    kind: Literal["file", "dir"] = "file",
    tags: list[str] | None = None,
) -> Nothing:
    return Nothing()


def definition_of(fn: Any, **changes: Any) -> ToolDef:
    options: dict[str, Any] = {
        "name": fn.__name__,
        "aliases": (),
        "needs": (),
        "read_only": True,
        "destructive": False,
        "idempotent": False,
    }
    return ToolDef(fn, "A sample", **{**options, **changes})


def inside(value: object) -> Iterator[tuple[str, object]]:
    """Every key with its value, however deep."""
    if isinstance(value, dict):
        for key, item in value.items():  # pyright: ignore[reportUnknownVariableType]
            yield str(key), item  # pyright: ignore[reportUnknownArgumentType]
            yield from inside(item)  # pyright: ignore[reportUnknownArgumentType]
    elif isinstance(value, list):
        for item in value:  # pyright: ignore[reportUnknownVariableType]
            yield from inside(item)  # pyright: ignore[reportUnknownArgumentType]


def test_the_schema_is_the_signature() -> None:
    schema = definition_of(sample).input_schema()
    assert schema == {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "count": {"type": "integer", "minimum": 1, "maximum": 10, "default": 5},
            "offset": {"type": "integer"},
            "glob": {"type": "string"},
            "deep": {"type": "boolean"},
            "kind": {"enum": ["dir", "file"], "default": "file"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["path"],
    }


def test_a_schema_says_nothing_that_a_model_need_not_read() -> None:
    keys = {key for key, _ in inside(definition_of(sample).input_schema())}
    assert keys.isdisjoint({"title", "description", "anyOf", "$ref", "additionalProperties"})
    assert ("default", None) not in list(inside(definition_of(sample).input_schema()))


def test_a_tool_without_arguments_requires_nothing() -> None:
    def bare(ctx: Context) -> Nothing:
        return Nothing()

    assert definition_of(bare).input_schema() == {"type": "object", "properties": {}}
    assert definition_of(bare).parse(None) == {}


def test_arguments_that_are_left_out_get_their_defaults() -> None:
    assert definition_of(sample).parse({"path": "x"}) == {
        "path": "x",
        "count": 5,
        "offset": 0,
        "glob": None,
        "deep": False,
        "kind": "file",
        "tags": None,
    }


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ({}, "path"),
        ({"path": 7}, "path"),
        ({"path": None}, "path"),
        ({"path": "x", "count": 0}, "count"),
        ({"path": "x", "count": 11}, "count"),
        ({"path": "x", "count": "5"}, "count"),
        ({"path": "x", "count": 5.5}, "count"),
        ({"path": "x", "deep": 1}, "deep"),
        ({"path": "x", "kind": "socket"}, "kind"),
        ({"path": "x", "tags": "a"}, "tags"),
        ({"path": "x", "tags": [1]}, "tags"),
        ({"path": "x", "colour": "red"}, "colour"),
    ],
)
def test_a_breach_of_the_schema_names_the_field(raw: dict[str, object], field: str) -> None:
    with pytest.raises(BadArgs) as caught:
        definition_of(sample).parse(raw)
    assert f"`{field}" in caught.value.message
    assert caught.value.message.startswith("sample: ")
    assert caught.value.hint == "Arguments: path, count?, offset?, glob?, deep?, kind?, tags?."


@pytest.mark.parametrize("raw", [[], "path", 7, True])
def test_arguments_are_an_object(raw: object) -> None:
    with pytest.raises(BadArgs, match="object"):
        definition_of(sample).parse(raw)


def test_hints_are_told_truthfully() -> None:
    assert definition_of(sample).annotations == {"readOnlyHint": True, "openWorldHint": False}
    writing = definition_of(sample, read_only=False, destructive=True, idempotent=True)
    assert writing.annotations == {
        "readOnlyHint": False,
        "openWorldHint": False,
        "destructiveHint": True,
        "idempotentHint": True,
    }


def test_two_tools_of_one_name_are_refused() -> None:
    def stat(ctx: Context) -> Nothing:
        return Nothing()

    from llmc_mcp.tools.linux_ops import fs

    before = registered["stat"]
    with pytest.raises(ValueError, match="two tools are called stat"):
        tool("Again")(stat)
    assert registered["stat"] is before
    assert before.fn is fs.stat


def test_every_tool_says_what_it_returns_and_can_keep_what_it_cuts() -> None:
    for known in Catalog(Config(mode="classic")).tools.values():
        assert known.result_shape().startswith("{"), known.name
        result = get_type_hints(known.fn)["return"]
        for shape in get_args(result) or (result,):
            if shape.handle_kind:
                assert "handle" in shape.__struct_fields__, f"{known.name} has nowhere to put its handle"
