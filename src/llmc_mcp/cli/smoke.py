"""`llmc smoke`: check that the server works here, through the protocol, and print how to connect a client."""

import json
import os
import subprocess
import sys
from typing import Any

from ..command_line import Arguments, declare
from ..errors import Internal
from .install.clients import BY_NAME, as_json, claude_code_command, llmc_command, server_command

_PREVIEW_LINES = 6
_ABOUT = """\
Starts the server on this folder, lists its tools, reads README.md or the folder through it, and prints how to connect\
 a client. Exit code 0 when all of it worked.
"""


class _ServerProcess:
    """A server process, used over stdio."""

    def __init__(self, root: str) -> None:
        command = [sys.executable, "-P", "-m", "llmc_mcp.server", "--root", root, "--log-level", "warning"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._last_id = 0

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if self._process.stdin is None or self._process.stdout is None:
            raise Internal("the server has no pipes")
        self._last_id += 1
        message = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        reply = json.loads(self._process.stdout.readline() or '{"error": {"message": "the server ended"}}')
        if "error" in reply:
            raise Internal(f"{method}: {reply['error']['message']}")
        return reply["result"]

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        result = self.ask("tools/call", {"name": name, "arguments": arguments})
        if result["isError"]:
            raise Internal(f"{name}: {result['content'][0]['text']}")
        return result["content"][0]["text"]

    def close(self) -> int:
        if self._process.stdin is not None:
            self._process.stdin.close()
        return self._process.wait(timeout=10)


@declare("smoke", _ABOUT)
def command(given: Arguments) -> int:
    """`llmc smoke`."""
    del given
    return run(os.getcwd())


def run(folder: str) -> int:
    """Start, list, read, print; 0 when all of it worked."""
    server = _ServerProcess(folder)
    try:
        hello = server.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}})
        tools = server.ask("tools/list", {})["tools"]
        health = json.loads(server.call("health", {}))
        reader, arguments = _something_to_read(folder)
        meta, _, text = server.call(reader, arguments).partition("\n")
    finally:
        code = server.close()
    print(f"{hello['serverInfo']['name']} {hello['serverInfo']['version']} on {folder}")
    print("\n".join(f"{what}: {how}" for what, how in health["sandbox"].items()) + "\n")
    print(f"{len(tools)} tools listed ({len(json.dumps(tools)):,} characters):")
    for tool in tools:
        print(f"  {tool['name']:22} {tool['description']}")
    print(f"\n{reader} {arguments['path']} -> {meta}")
    print("\n".join(f"  | {line}" for line in text.splitlines()[:_PREVIEW_LINES]))
    print(f"\n{client_configuration(folder)}")
    return code


def _something_to_read(folder: str) -> tuple[str, dict[str, Any]]:
    if os.path.isfile(os.path.join(folder, "README.md")):
        return "read_file", {"path": "README.md", "max_lines": _PREVIEW_LINES}
    return "list_dir", {"path": "."}


def client_configuration(folder: str) -> str:
    """The configuration for clients, to paste."""
    command = server_command()
    return (
        f"Connect a client ({', '.join(BY_NAME)}):\n"
        f"  {llmc_command()} install CLIENT\n"
        "Or by hand, Claude Code:\n"
        f"  {claude_code_command(command, folder)}\n"
        "Claude Desktop, Cursor and others (mcpServers in their JSON configuration):\n"
        f"{as_json(BY_NAME['cursor'], command, folder)}"
    )
