"""Hybrid mode: a handful of tools, every capability. Names of the first five tests are the design document's."""

import shutil
from pathlib import Path

import pytest

from benchmarks.tokens import count, count_tools
from llmc_mcp.config.schema import Config
from llmc_mcp.tools.introduction import bootstrap, instructions

from .support.client import Client
from .support.gates import gate_on
from .support.workspace import Workspace, require

pytestmark = pytest.mark.filterwarnings("ignore:open_binary is deprecated:DeprecationWarning")  # bpe_openai's own


def test_hybrid_mode_tool_count(server: Client) -> None:
    assert [tool["name"] for tool in server.tools()] == [
        "read_file",
        "list_dir",
        "linux_fs_write",
        "linux_fs_edit",
        "run_cmd",
        "execute_code",
        "00_INIT",
    ]


def test_hybrid_mode_write_works(workspace: Workspace, server: Client) -> None:
    assert not server.call("linux_fs_write", path="test.txt", content="hello").is_error
    assert (workspace.root / "test.txt").read_text() == "hello"


def test_hybrid_mode_execute_code_blocked(workspace: Workspace) -> None:
    settings = ("--set", "code_execution.engine=python", "--set", "sandbox.level=off")
    with Client("--root", str(workspace.root), *settings) as client:
        reply = client.call("execute_code", code="open('x', 'w').write('y')")
        assert reply.code == "ISOLATION_REQUIRED"
    assert not (workspace.root / "x").exists()


@pytest.mark.parametrize("path", ["../../etc/passwd", "../outside/new.txt", "/etc/llmc-test"])
def test_path_traversal_blocked(workspace: Workspace, server: Client, path: str) -> None:
    assert server.call("linux_fs_write", path=path, content="x").code == "INVALID_PATH"
    assert sorted(item.name for item in workspace.outside.iterdir()) == ["secret.txt"]
    assert not Path("/etc/llmc-test").exists()


def test_the_introduction_describes_the_format_in_force(workspace: Workspace) -> None:
    for mode, said in (("hybrid", "a line of JSON about the body"), ("classic", "one JSON object")):
        config = Config()
        config.mode = mode
        with gate_on(workspace.root, config) as gate:
            assert said in bootstrap(gate.app, gate.catalog)


def test_shell_injection_blocked(workspace: Workspace) -> None:
    """Whoever puts untrusted words into a command passes a list, or has the operator switch the shell off."""
    canary = workspace.file("canary.txt", "alive")
    lines = (f"; rm {canary}", f"&& rm {canary}", f"`rm {canary}`", f"$(rm {canary})")
    with Client("--root", str(workspace.root)) as client:
        for words in lines:
            assert client.call("run_cmd", command=["ls", words]).meta["exit_code"] != 0
            assert canary.read_text() == "alive"
    with Client("--root", str(workspace.root), "--set", "tools.run_cmd_shell=never") as client:
        for words in lines:
            reply = client.call("run_cmd", command=f"ls {words}")
            assert reply.is_error or reply.meta["exit_code"] != 0
            assert canary.read_text() == "alive"


def test_a_program_that_is_not_on_the_list_is_not_run(server: Client) -> None:
    assert server.call("run_cmd", command="wget malware.example").code == "COMMAND_NOT_ALLOWED"


@pytest.mark.parametrize(("mode", "most"), [("hybrid", 700), ("code_execution", 400)])
def test_a_mode_costs_no_more_than_its_budget(workspace: Workspace, mode: str, most: int) -> None:
    with gate_on(workspace.root, Config(mode=mode)) as gate:
        assert count_tools(gate.catalog.entries) + count(instructions(gate.app, gate.catalog)) <= most


def test_the_full_list_costs_at_most_seventy_five_tokens_a_tool(workspace: Workspace) -> None:
    with gate_on(workspace.root, Config(mode="classic")) as gate:
        assert count_tools(gate.catalog.entries) <= 75 * len(gate.catalog.entries)


@pytest.mark.parametrize("mode", ["classic", "hybrid", "code_execution"])
def test_what_is_said_up_front_is_short_and_names_only_what_is_there(workspace: Workspace, mode: str) -> None:
    with gate_on(workspace.root, Config(mode=mode)) as gate:
        assert len(instructions(gate.app, gate.catalog)) <= 400
        text = bootstrap(gate.app, gate.catalog)
        assert count(text) <= 350
        words = {word.strip(",.:()*") for word in text.split()}
        named = {word for word in words if word.startswith(("linux_", "run_", "rag_")) or word in gate.catalog.tools}
        assert named <= set(gate.catalog.tools)
        if mode != "classic":
            assert "ephemeral" in text or "kept" in text


def test_a_whole_task_through_seven_tools(workspace: Workspace, server: Client) -> None:
    """Read, search, edit, run the tests in the sandbox, and take it back."""
    require(shutil.which("bwrap") is not None or Path("/sys/kernel/security").exists(), "a sandbox")
    assert len(server.tools()) <= 7
    workspace.file("calc.py", "def add(a, b):\n    return a - b\n")
    workspace.file("check.py", "from calc import add\nassert add(2, 3) == 5\nprint('all good')\n")
    assert "return a - b" in server.call("read_file", path="calc.py").body
    found = server.call("execute_code", code="linux_search_content('.', 'def add')['hits'][0]['path']")
    assert found.meta["result"] == str(workspace.root / "calc.py")
    assert server.call("run_cmd", command="python3 check.py").meta["exit_code"] == 1
    edited = server.call("linux_fs_edit", path="calc.py", old_text="a - b", new_text="a + b")
    assert edited.meta["replacements_made"] == 1
    passed = server.call("run_cmd", command="python3 check.py")
    assert passed.meta["exit_code"] == 0
    assert "all good" in passed.text
    undone = server.call("execute_code", code="linux_fs_undo()['undone'][0]['path']")
    assert undone.meta["result"] == str(workspace.root / "calc.py")
    assert (workspace.root / "calc.py").read_text() == "def add(a, b):\n    return a - b\n"
