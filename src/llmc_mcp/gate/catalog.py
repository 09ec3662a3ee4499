"""Which tools there are, and which of them a mode shows."""

from typing import Any

import msgspec

from ..config.schema import Config
from ..errors import FeatureDisabled, InvalidArgument, UnknownTool
from ..session import Session
from ..tool import ToolDef, registered

MODES = ("classic", "hybrid", "code_execution")
_ALWAYS_LISTED = ("read_file", "list_dir")
_BOOTSTRAP = "00_INIT"


def _load() -> dict[str, ToolDef]:
    """Every tool, in the order of the modules below: the explicit list of what exists.

    Tool modules import no engine at start. Who imported one of them first must not decide the order.
    """
    from ..tools import code, code_graph, meta, rag, te
    from ..tools import exec as commands
    from ..tools.linux_ops import changes, fs, handles, onboarding, patch, proc, search, stats, sysinfo

    modules = (
        *(fs, changes, patch, search, handles, commands, te, proc, sysinfo, rag, code_graph),
        *(code, stats, meta, onboarding),
    )
    order = {module.__name__: place for place, module in enumerate(modules)}
    return dict(sorted(registered.items(), key=lambda row: order.get(row[1].fn.__module__, len(order))))


class Catalog:
    """The enabled tools by name and alias, and the part of them that tools/list shows."""

    def __init__(self, config: Config) -> None:
        everything = _load()
        self._config = config
        self.tools = {name: tool for name, tool in everything.items() if _switched_off(tool, config) is None}
        known = dict(everything)
        self.notices: list[str] = []
        self._add_executables(config, known)
        self._names = {alias: tool for tool in known.values() for alias in (tool.name, *tool.aliases)}
        self.listed = [self.tools[name] for name in self._listed_names(config)]
        self.entries = [_entry(tool) for tool in self.listed]
        size, expected = len(msgspec.json.encode(self.entries)), config.hybrid.bootstrap_budget_warning
        if size > expected:
            self.notices.append(
                f"tools/list has {size:,} characters, more than bootstrap_budget_warning ({expected:,})"
            )

    def _add_executables(self, config: Config, known: dict[str, ToolDef]) -> None:
        from ..tools.exec import executables

        for tool in executables(config):
            if tool.name in known:
                self.notices.append(f"mcp.tools.executables.{tool.name}: a tool has that name already")
                continue
            known[tool.name] = tool
            if config.linux_ops.features.proc_enabled:
                self.tools[tool.name] = tool

    def visible(self, session: Session) -> list[dict[str, Any]]:
        """What tools/list shows a caller: what the mode lists and his token covers."""
        if session.scopes is None:
            return self.entries
        pairs = zip(self.listed, self.entries, strict=True)
        return [entry for tool, entry in pairs if session.may(self.scope_of(tool))]

    def scope_of(self, tool: ToolDef) -> str:
        """What a token must cover for a tool: code in CPython is a program, whatever it calls."""
        in_cpython = tool.name == "execute_code" and self._config.code_execution.engine == "python"
        return "exec" if in_cpython else tool.scope

    def known(self, name: str) -> ToolDef | None:
        """The tool that a name means, switched on or not."""
        return self._names.get(name) or self._names.get(name.replace(".", "_", 1))

    def find(self, name: str) -> ToolDef:
        """A tool by its name, an alias, or either with a dot behind its family (`linux.fs_read`)."""
        tool = self.known(name)
        if tool is None:
            raise UnknownTool(f"there is no tool {name!r}", hint=self._nearest(name))
        if tool.name not in self.tools:
            raise FeatureDisabled(f"{tool.name} is switched off", hint=f"Setting: {_switched_off(tool, self._config)}.")
        return tool

    def _listed_names(self, config: Config) -> list[str]:
        if config.mode == "classic":
            return list(self.tools)
        if config.mode not in MODES:
            raise InvalidArgument(f"mode {config.mode!r} is none of {', '.join(MODES)}")
        hybrid = config.mode == "hybrid"
        wanted = [*_ALWAYS_LISTED, *(config.hybrid.promoted_tools if hybrid else ())]
        if not hybrid or config.hybrid.include_execute_code:
            wanted.append("execute_code")
        if config.tools.dynamic_tools:
            wanted += ["tool_search", "call_tool"]
        wanted.append(_BOOTSTRAP)
        for name in wanted:
            if name not in self.tools:
                self.notices.append(f"the mode lists a tool that is not there: {name!r}. {self._nearest(name)}")
        return [name for name in dict.fromkeys(wanted) if name in self.tools]

    def _nearest(self, name: str) -> str:
        import difflib

        there = [known for known, tool in self._names.items() if tool.name in self.tools]
        close = difflib.get_close_matches(name[:64].replace(".", "_"), there, n=3, cutoff=0.5)
        return f"Did you mean {' or '.join(close)}?" if close else f"Tools: {', '.join(sorted(self.tools))}."


def _switched_off(tool: ToolDef, config: Config) -> str | None:
    """The setting that keeps a tool away; None when it is there."""
    features = config.linux_ops.features
    if tool.feature in ("repl_enabled", "enable_run_cmd") and not features.proc_enabled:
        return "mcp.linux_ops.features.proc_enabled"  # a program to talk to is a command too
    if tool.feature in ("dynamic_tools", "enable_run_cmd"):
        return None if getattr(config.tools, tool.feature) else f"mcp.tools.{tool.feature}"
    if tool.feature == "jit_context_enabled":
        return None if config.rag.jit_context_enabled else "mcp.rag.jit_context_enabled"
    if tool.feature is None or getattr(features, tool.feature):
        return None
    return f"mcp.linux_ops.features.{tool.feature}"


def _entry(tool: ToolDef) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": tool.input_schema(),
        "annotations": tool.annotations,
    }
