"""The MCP clients that `llmc install` supports: the location and format of their settings, and how they start servers.

Checked against the documentation of the clients, and against Claude Code 2.1 and Codex 0.166 themselves.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from ...errors import InvalidArgument
from ...policy import CLIENT_FILES
from . import jsonc, toml, yaml
from .permissions import TOOL, TOOLS, Recipe

SERVER = "llmc"
_UVX_CACHE = "/uv/archive-v"  # where uv keeps the environments of uvx


class Client(NamedTuple):
    """A client. Paths are functions because they depend on the environment."""

    name: str
    title: str
    form: str  # json, jsonc (comments and trailing commas allowed), toml or yaml
    table: str  # name of the table of servers in the file
    file: Callable[[], str]
    signs: Callable[[], tuple[str, ...]]  # paths of which one exists if the client is installed
    program: str = ""  # executable on the PATH, which also shows that it is installed
    project_file: str = ""  # relative to the project's folder; empty: not supported
    project_root: str = ""  # placeholder for the project's folder in that file; empty: the server starts there
    starts_in_project: bool = False  # servers start in the project's folder, so no --root is needed
    extra: Mapping[str, object] = {}  # what an entry has besides the command
    program_key: str = "command"  # the key of the program in an entry
    one_list: bool = False  # program and arguments are one list
    then: str = ""  # how to make the client see the change
    recipe: Recipe = Recipe()  # what --allow writes

    @property
    def comments(self) -> bool:
        """Whether its file may contain comments."""
        return self.form == "jsonc"

    def path(self) -> tuple[str, str]:
        """The path of our entry in the file."""
        return self.table, SERVER

    def words_of(self, entry: Mapping[str, Any]) -> list[str]:
        """The command line that an entry starts; empty if it has none."""
        program, arguments = entry.get(self.program_key), entry.get("args", [])
        words: object = program
        if not self.one_list:
            words = [program, *(cast("list[object]", arguments) if isinstance(arguments, list) else [])]
        if not isinstance(words, list):
            return []
        found = cast("list[object]", words)
        return [word for word in found if isinstance(word, str)] if found and isinstance(found[0], str) else []


def _home(*parts: str) -> str:
    return os.path.join(os.path.expanduser("~"), *parts)


def _config_home(*parts: str) -> str:
    chosen = os.environ.get("XDG_CONFIG_HOME", "")
    return os.path.join(chosen if os.path.isabs(chosen) else _home(".config"), *parts)


def _folder_of(variable: str, usual: str) -> str:
    return os.environ.get(variable) or _home(usual)


def _claude_code_file() -> str:
    chosen = os.environ.get("CLAUDE_CONFIG_DIR")
    return os.path.join(chosen, ".claude.json") if chosen else _home(".claude.json")


def _opencode_file() -> str:
    with_comments = _config_home("opencode", "opencode.jsonc")
    return with_comments if os.path.exists(with_comments) else _config_home("opencode", "opencode.json")


def _roo_folder(*parts: str) -> str:
    return _config_home("Code", "User", "globalStorage", "rooveterinaryinc.roo-cline", *parts)


CLIENTS = (
    Client(
        "claude-code",
        "Claude Code",
        "json",
        "mcpServers",
        _claude_code_file,
        lambda: (_claude_code_file(), _folder_of("CLAUDE_CONFIG_DIR", ".claude")),
        program="claude",
        project_file=CLIENT_FILES["claude-code"],
        starts_in_project=True,
        extra={"type": "stdio"},
        then="Start Claude Code in a project; /mcp lists the server.",
        recipe=Recipe(
            rules_file=lambda: os.path.join(_folder_of("CLAUDE_CONFIG_DIR", ".claude"), "settings.json"),
            project_rules_file=".claude/settings.json",
            rules_path=("permissions", "allow"),
            rules=("mcp__llmc",),
            memory=lambda: os.path.join(_folder_of("CLAUDE_CONFIG_DIR", ".claude"), "CLAUDE.md"),
        ),
    ),
    Client(
        "claude-desktop",
        "Claude Desktop",
        "json",
        "mcpServers",
        lambda: _config_home("Claude", "claude_desktop_config.json"),
        lambda: (_config_home("Claude"),),
        program="claude-desktop",
        then="Quit Claude Desktop and start it again.",
    ),
    Client(
        "cursor",
        "Cursor",
        "jsonc",
        "mcpServers",
        lambda: _home(".cursor", "mcp.json"),
        lambda: (_home(".cursor"),),
        program="cursor",
        project_file=CLIENT_FILES["cursor"],
        project_root="${workspaceFolder}",
        then="Switch the server on in Cursor's settings under MCP.",
        recipe=Recipe(
            rules_file=lambda: _home(".cursor", "permissions.json"),
            project_rules_file=".cursor/permissions.json",
            rules_path=("mcpAllowlist",),
            rules=("llmc:*",),
            note="Cursor takes its list of allowed MCP tools from that file alone from now on.",
        ),
    ),
    Client(
        "vscode",
        "VS Code",
        "jsonc",
        "servers",
        lambda: _config_home("Code", "User", "mcp.json"),
        lambda: (_config_home("Code"),),
        program="code",
        project_file=CLIENT_FILES["vscode"],
        project_root="${workspaceFolder}",
        extra={"type": "stdio"},
        then="Run the command 'MCP: List Servers' and start the server.",
    ),
    Client(
        "codex",
        "Codex",
        "toml",
        "mcp_servers",
        lambda: os.path.join(_folder_of("CODEX_HOME", ".codex"), "config.toml"),
        lambda: (_folder_of("CODEX_HOME", ".codex"),),
        program="codex",
        project_file=CLIENT_FILES["codex"],
        starts_in_project=True,
        then="Start Codex in a project; /mcp lists the server.",
        recipe=Recipe(
            in_entry={"default_tools_approval_mode": "approve"},
            memory=lambda: os.path.join(_folder_of("CODEX_HOME", ".codex"), "AGENTS.md"),
        ),
    ),
    Client(
        "windsurf",
        "Windsurf",
        "json",
        "mcpServers",
        lambda: _home(".codeium", "windsurf", "mcp_config.json"),
        lambda: (_home(".codeium", "windsurf"),),
        program="windsurf",
        then="Refresh the list of MCP servers in Cascade.",
    ),
    Client(
        "zed",
        "Zed",
        "jsonc",
        "context_servers",
        lambda: _config_home("zed", "settings.json"),
        lambda: (_config_home("zed"),),
        program="zed",
        project_file=CLIENT_FILES["zed"],
        starts_in_project=True,
        then="The agent panel's settings list the server.",
        recipe=Recipe(
            rules_file=lambda: _config_home("zed", "settings.json"),
            project_rules_file=CLIENT_FILES["zed"],
            rules_path=("agent", "tool_permissions", "tools"),
            rules=(f"mcp:llmc:{TOOL}",),
            rule_value={"default": "allow"},
        ),
    ),
    Client(
        "gemini",
        "Gemini CLI",
        "jsonc",
        "mcpServers",
        lambda: _home(".gemini", "settings.json"),
        lambda: (_home(".gemini"),),
        program="gemini",
        project_file=CLIENT_FILES["gemini"],
        starts_in_project=True,
        then="Start gemini in a project; /mcp lists the server.",
        recipe=Recipe(in_entry={"trust": True}, memory=lambda: _home(".gemini", "GEMINI.md")),
    ),
    Client(
        "opencode",
        "OpenCode",
        "jsonc",
        "mcp",
        _opencode_file,
        lambda: (_config_home("opencode"),),
        program="opencode",
        project_file=CLIENT_FILES["opencode"],
        starts_in_project=True,
        extra={"type": "local", "enabled": True},
        one_list=True,
        then="Start opencode in a project.",
        recipe=Recipe(
            rules_file=_opencode_file,
            project_rules_file=CLIENT_FILES["opencode"],
            rules_path=("permission",),
            rules=("llmc_*",),
            rule_value="allow",
            memory=lambda: _config_home("opencode", "AGENTS.md"),
        ),
    ),
    Client(
        "copilot",
        "GitHub Copilot CLI",
        "json",
        "mcpServers",
        lambda: os.path.join(_folder_of("COPILOT_HOME", ".copilot"), "mcp-config.json"),
        lambda: (_folder_of("COPILOT_HOME", ".copilot"),),
        program="copilot",
        project_file=CLIENT_FILES["copilot"],
        starts_in_project=True,
        extra={"type": "local", "tools": ["*"]},
        then="Start copilot in a project; /mcp show lists the server.",
        recipe=Recipe(
            memory=lambda: os.path.join(_folder_of("COPILOT_HOME", ".copilot"), "copilot-instructions.md"),
            note="Copilot asks unless it is started so: copilot --allow-tool=llmc.",
        ),
    ),
    Client(
        "cline",
        "Cline",
        "json",
        "mcpServers",
        lambda: os.path.join(_folder_of("CLINE_DIR", ".cline"), "data", "settings", "cline_mcp_settings.json"),
        lambda: (_folder_of("CLINE_DIR", ".cline"),),
        program="cline",
        then="Cline's list of MCP servers shows it.",
        recipe=Recipe(in_entry={"autoApprove": TOOLS}),
    ),
    Client(
        "roo",
        "Roo Code",
        "json",
        "mcpServers",
        lambda: _roo_folder("settings", "mcp_settings.json"),
        lambda: (_roo_folder(),),
        project_file=CLIENT_FILES["roo"],
        starts_in_project=True,
        then="Roo Code's list of MCP servers shows it.",
        recipe=Recipe(in_entry={"alwaysAllow": TOOLS}, memory=lambda: _home(".roo", "rules", "llmc.md")),
    ),
    Client(
        "junie",
        "JetBrains Junie",
        "json",
        "mcpServers",
        lambda: _home(".junie", "mcp", "mcp.json"),
        lambda: (_home(".junie"), _config_home("JetBrains")),
        program="junie",
        project_file=CLIENT_FILES["junie"],
        then="Settings | Tools | Junie | MCP Settings lists the server.",
        recipe=Recipe(note="Junie keeps what it may do in its action allowlist: allow the server there."),
    ),
    Client(
        "goose",
        "Goose",
        "yaml",
        "extensions",
        lambda: _config_home("goose", "config.yaml"),
        lambda: (_config_home("goose"),),
        program="goose",
        starts_in_project=True,
        extra={"name": "llmc", "type": "stdio", "enabled": True, "timeout": 300},
        program_key="cmd",
        then="Start a goose session in a project.",
        recipe=Recipe(
            memory=lambda: _config_home("goose", ".goosehints"),
            note="Goose asks by GOOSE_MODE; in the mode auto, which is its default, it does not.",
        ),
    ),
    Client(
        "amazon-q",
        "Amazon Q Developer CLI",
        "json",
        "mcpServers",
        lambda: _home(".aws", "amazonq", "mcp.json"),
        lambda: (_home(".aws", "amazonq"),),
        program="q",
        project_file=CLIENT_FILES["amazon-q"],
        starts_in_project=True,
        then="Start q chat in a project; /tools lists the server's.",
        recipe=Recipe(note="Amazon Q asks until you say: /tools trust @llmc, in the chat."),
    ),
    Client(
        "continue",
        "Continue",
        "json",
        "mcpServers",
        lambda: os.path.join(_folder_of("CONTINUE_GLOBAL_DIR", ".continue"), "mcpServers", "llmc.json"),
        lambda: (_folder_of("CONTINUE_GLOBAL_DIR", ".continue"),),
        program="cn",
        project_file=CLIENT_FILES["continue"],
        then="Reload the editor's window; the agent's tools list the server.",
        recipe=Recipe(note="Continue keeps that per tool in its settings: set the server's to automatic there."),
    ),
)
BY_NAME = {client.name: client for client in CLIENTS}


def server_command() -> list[str]:
    """The command that starts the server: the script of this installation, or its Python if there is no script."""
    if _UVX_CACHE in os.path.realpath(sys.prefix):
        raise InvalidArgument(
            "uvx made this installation for one run, and an entry needs one that stays",
            hint="First `uv tool install`, or pipx install, from where uvx took it; then llmc install CLIENT.",
        )
    script = os.path.join(os.path.dirname(sys.executable), "llmc-mcp")
    return [script] if os.access(script, os.X_OK) else [sys.executable, "-P", "-m", "llmc_mcp.server"]


def llmc_command() -> str:
    """How to call `llmc` in this shell: by name, or by path if it is not on the PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "llmc")
    return "llmc" if shutil.which("llmc") == beside or not os.access(beside, os.X_OK) else beside


def roots_for(client: Client, folder: str, *, project: bool) -> list[str]:
    """The default roots of an entry: none if the client starts the server in the project."""
    if client.starts_in_project:
        return []
    return [client.project_root or folder] if project else [folder]


def entry(client: Client, command: Sequence[str], roots: Sequence[str], flags: Sequence[str] = ()) -> dict[str, object]:
    """The server's entry in the client's file."""
    words = [*command, *(word for root in roots for word in ("--root", root)), *flags]
    if client.one_list:
        return {**client.extra, client.program_key: words}
    return {**client.extra, client.program_key: words[0], "args": words[1:]}


def snippet(client: Client, command: Sequence[str], folder: str, *, project: bool = False) -> str:
    """A complete file with the entry, for copying."""
    values = entry(client, command, roots_for(client, folder, project=project))
    if client.form == "toml":
        return toml.put("", client.path(), values)
    if client.form == "yaml":
        return yaml.put("", client.path(), values)
    return jsonc.put("", client.path(), values, comments=client.comments)


def guide(client: Client, command: Sequence[str], folder: str) -> str:
    """The section about a client in the documentation, in Markdown."""
    text = f"`llmc install {client.name}` writes `{_shown_path(client)}`"
    text += f", with `--project` the project's `{client.project_file}`" if client.project_file else ""
    if client.starts_in_project:
        text += f". {client.title} starts the server in the project's folder, so that folder is the root"
    elif client.project_file:
        text += ". Name the root: `--root DIR`; in a project's file it is the project"
    else:
        text += ". Name the root: `--root DIR`"
    fence = client.form if client.form in ("toml", "yaml") else "json"
    return f"{text}. {client.then} {client.recipe.about()}\n\n```{fence}\n{snippet(client, command, folder)}```\n"


def _shown_path(client: Client) -> str:
    """The path of the file with the home directory as ~."""
    path, home = client.file(), os.path.expanduser("~")
    return "~" + path.removeprefix(home) if path.startswith(home + "/") else path


def claude_code_command(command: Sequence[str], folder: str) -> str:
    """The command of Claude Code that adds the server."""
    return f"claude mcp add {SERVER} -- {' '.join(command)} --root {folder}"


def as_json(client: Client, command: Sequence[str], folder: str) -> str:
    """An entry as JSON, for clients that are not listed here."""
    values = entry(client, command, [folder])
    return json.dumps({client.table: {SERVER: values}}, indent=2)
