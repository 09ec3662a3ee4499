"""DOCS/mcp_linuxops_tools.md, made from the registry: `python -m llmc_mcp.tool_docs > DOCS/mcp_linuxops_tools.md`."""

from typing import Any

import msgspec

from llmc_mcp.config.schema import Config
from llmc_mcp.gate.catalog import Catalog
from llmc_mcp.tool import ToolDef

_HEAD = """\
# Tools

Made by `python -m llmc_mcp.tool_docs`; a test fails when it is stale. Names may be written with a dot
(`linux.fs_read`). `?` marks an optional argument. Errors are `{code, message, hint?, correlation_id}`.
"""


def document() -> str:
    """The whole page."""
    tools = Catalog(Config(mode="classic")).tools.values()
    return _HEAD + "".join(f"\n{_section(tool)}" for tool in sorted(tools, key=lambda tool: tool.name))


def _section(tool: ToolDef) -> str:
    schema = tool.input_schema()
    required: list[str] = schema.get("required", [])
    arguments = ", ".join(name if name in required else f"{name}?" for name in schema["properties"])
    lines = [f"## {tool.name}", "", f"`{tool.name}({arguments})`", "", f"{tool.description}.", ""]
    lines += [f"- `{name}`: {_words(spec)}" for name, spec in schema["properties"].items()]
    lines.append(f"- returns `{tool.result_shape()}`")
    if tool.aliases:
        lines.append(f"- also called {', '.join(f'`{alias}`' for alias in tool.aliases)}")
    lines.append(f"- {_nature(tool)}")
    return "\n".join(lines) + "\n"


def _words(spec: dict[str, Any]) -> str:
    if "anyOf" in spec:
        return " or ".join(_words(option) for option in spec["anyOf"])
    if "enum" in spec:
        kind = " | ".join(f"`{value}`" for value in spec["enum"])
    else:
        kind = str(spec.get("type", "any"))
    if "minimum" in spec or "maximum" in spec:
        kind += f" {spec.get('minimum', '…')}..{spec.get('maximum', '…')}"
    return f"{kind}, default `{msgspec.json.encode(spec['default']).decode()}`" if "default" in spec else kind


def _nature(tool: ToolDef) -> str:
    if tool.annotations["readOnlyHint"]:
        return "reads only"
    return "may destroy" if tool.annotations.get("destructiveHint") else "changes things"


if __name__ == "__main__":
    print(document(), end="")
