"""Which tools exist, which are enabled, and which of them a mode lists."""

from operator import attrgetter
from typing import Any

import msgspec

from ..config.schema import Config
from ..errors import FeatureDisabled, InvalidArgument, UnknownTool
from ..session import Session
from ..tool import Role, ToolDef, registered

MODES = ("classic", "hybrid", "code_execution")


def _load() -> dict[str, ToolDef]:
    """Every tool, in the order of the modules below: the explicit list of what exists.

    Tool modules import no engine at start. The order must not depend on which of them was imported first.
    """
    from ..tools import code, enriched_search, graph, inspect, meta, plan, rag, te
    from ..tools import exec as commands
    from ..tools.linux_ops import changes, fs, handles, onboarding, patch, proc, search, stats, sysinfo

    modules = (
        *(fs, changes, patch, search, handles, commands, te, proc, sysinfo, rag, graph, inspect, enriched_search, plan),
        *(code, stats, meta, onboarding),
    )
    order = {module.__name__: place for place, module in enumerate(modules)}
    return dict(sorted(registered.items(), key=lambda row: order.get(row[1].fn.__module__, len(order))))


class Catalog:
    """The enabled tools by name and alias, and the part of them that tools/list shows."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.notices: list[str] = []
        everything = self._with_executables(_load())
        self.tools = {name: tool for name, tool in everything.items() if _switched_off(tool, config) is None}
        self._names = {alias: tool for tool in everything.values() for alias in (tool.name, *tool.aliases)}
        self.content_arguments = frozenset(name for tool in everything.values() for name in tool.content)
        self.listed = [self.tools[name] for name in self._listed_names(list(everything.values()))]
        self.entries = [_entry(tool) for tool in self.listed]
        size, expected = len(msgspec.json.encode(self.entries)), config.hybrid.bootstrap_budget_warning
        if size > expected and config.mode != "classic":  # whoever lists every tool knows what it costs
            self.notices.append(
                f"tools/list has {size:,} characters, more than bootstrap_budget_warning ({expected:,})"
            )

    def _with_executables(self, tools: dict[str, ToolDef]) -> dict[str, ToolDef]:
        from ..tools.exec import executables

        for tool in executables(self._config):
            if tool.name in tools:
                self.notices.append(f"mcp.tools.executables.{tool.name}: a tool has that name already")
            else:
                tools[tool.name] = tool
        return tools

    def visible(self, session: Session) -> list[dict[str, Any]]:
        """What tools/list shows a caller: the tools that the mode lists and the token covers."""
        if session.scopes is None:
            return self.entries
        pairs = zip(self.listed, self.entries, strict=True)
        return [entry for tool, entry in pairs if session.may(self.scope_of(tool)) and session.may_call(tool.name)]

    def scope_of(self, tool: ToolDef) -> str:
        """The scope that a tool needs: code in CPython is a program, whatever it calls."""
        in_cpython = tool.role == "code" and self._config.code_execution.engine == "python"
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

    def with_role(self, role: Role) -> list[ToolDef]:
        """The enabled tools of a role."""
        return [tool for tool in self.tools.values() if tool.role == role]

    def _listed_names(self, everything: list[ToolDef]) -> list[str]:
        config = self._config
        if config.mode == "classic":
            return list(self.tools)
        if config.mode not in MODES:
            raise InvalidArgument(f"mode {config.mode!r} is none of {', '.join(MODES)}")
        hybrid = config.mode == "hybrid"
        roles: list[Role] = ["code"] if not hybrid or config.hybrid.include_execute_code else []
        if config.tools.dynamic_tools:
            roles.append("dynamic")
        wanted = [tool.name for tool in everything if tool.role == "core"]
        wanted += config.hybrid.promoted_tools if hybrid else ()
        wanted += [tool.name for role in (*roles, "bootstrap") for tool in everything if tool.role == role]
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
    """The setting that disables a tool; None if it is enabled."""
    return next((f"mcp.{setting}" for setting in tool.needs if not attrgetter(setting)(config)), None)


def _entry(tool: ToolDef) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": tool.input_schema(),
        "annotations": tool.annotations,
    }
