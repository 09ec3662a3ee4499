"""The MCP clients that `llmc install` supports: the location and format of their settings, and how they start servers.

Checked against the documentation of the clients, and against Claude Code 2.1 and Codex 0.166 themselves.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...policy import CLIENT_FILES
from . import jsonc, toml

SERVER = "llmc"


class Client(NamedTuple):
    """A client. Paths are functions because they depend on the environment."""

    name: str
    title: str
    form: str  # json, jsonc (comments and trailing commas allowed) or toml
    table: str  # name of the table of servers in the file
    file: Callable[[], str]
    signs: Callable[[], tuple[str, ...]]  # paths of which one exists if the client is installed
    program: str = ""  # executable on the PATH, which also shows that it is installed
    project_file: str = ""  # relative to the project's folder; empty: not supported
    project_root: str = ""  # placeholder for the project's folder in that file; empty: the server starts there
    starts_in_project: bool = False  # servers start in the project's folder, so no --root is needed
    says_type: bool = False  # entries have a `type`
    then: str = ""  # how to make the client see the change

    @property
    def comments(self) -> bool:
        """Whether its file may contain comments."""
        return self.form == "jsonc"

    def path(self) -> tuple[str, str]:
        """The path of our entry in the file."""
        return self.table, SERVER


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
        says_type=True,
        then="Start Claude Code in a project; /mcp lists the server.",
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
        says_type=True,
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
    ),
)
BY_NAME = {client.name: client for client in CLIENTS}


def server_command() -> list[str]:
    """The command that starts the server: the script of this installation, or its Python if there is no script."""
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
    return [client.project_root] if project else [folder]


def entry(client: Client, command: Sequence[str], roots: Sequence[str], flags: Sequence[str] = ()) -> dict[str, object]:
    """The server's entry in the client's file."""
    program, *words = command
    arguments = [*words, *(word for root in roots for word in ("--root", root)), *flags]
    kind: dict[str, object] = {"type": "stdio"} if client.says_type else {}
    return {**kind, "command": program, "args": arguments}


def snippet(client: Client, command: Sequence[str], folder: str, *, project: bool = False) -> str:
    """A complete file with the entry, for copying."""
    values = entry(client, command, roots_for(client, folder, project=project))
    if client.form == "toml":
        return toml.put("", client.path(), values)
    return jsonc.put("", client.path(), values, comments=client.comments)


def guide(client: Client, command: Sequence[str], folder: str) -> str:
    """The section about a client in the documentation, in Markdown."""
    text = f"`llmc install {client.name}` writes `{_shown_path(client)}`"
    text += f", with `--project` the project's `{client.project_file}`" if client.project_file else ""
    if client.starts_in_project:
        text += f". {client.title} starts the server in the project's folder, so that folder is the root"
    elif client.project_file:
        text += ". The root is this folder, or `--root DIR`; in a project's file the project"
    else:
        text += ". The root is this folder, or `--root DIR`"
    fence = "toml" if client.form == "toml" else "json"
    return f"{text}. {client.then}\n\n```{fence}\n{snippet(client, command, folder)}```\n"


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
