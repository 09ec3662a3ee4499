"""Onboarding flows and statistics over MCP, under the names of the original design."""

import json
from pathlib import Path

import pytest

from ..support.client import Client
from ..support.workspace import Workspace


@pytest.mark.parametrize("mode", ["classic", "hybrid"])
def test_a_first_session_is_onboarded_and_counted(workspace: Workspace, tmp_path: Path, mode: str) -> None:
    workspace.file("README.md", "# Shop\n\nA small shop that sells things to whoever walks by.\n")
    workspace.file("shop.py", "def sell(thing):\n    return thing\n")
    data = {"LLMC_DATA_DIR": str(tmp_path / "data")}
    flags = ("--root", str(workspace.root), "--mode", mode, "--set", "server.result_format=json")
    with Client(*flags, env=data) as client:
        shown = json.loads(client.call("linux.mcp_run_onboarding", flow_name="explain_repo").text)
        assert shown["flow"] == "explain_repo"
        assert all(step["description"] for step in shown["steps"])
        assert "shop" in client.call("linux.mcp_run_onboarding", flow_name="explain_repo").text.lower()
        health = json.loads(client.call("linux.mcp_run_onboarding", flow_name="system_health").text)
        assert health["summary"]
        client.call("linux.fs_read", path="missing.txt")
    with Client(*flags, env=data) as client:  # statistics outlive the server
        tools = json.loads(client.call("linux.mcp_usage_stats").text)["tools"]
        assert tools["linux_mcp_run_onboarding"]["count"] == 3
        assert tools["linux_fs_read"]["errors"] == 1
        calls = json.loads(client.call("linux.mcp_recent_calls", tool_name="linux.fs_read").text)["calls"]
        assert [call["status"] for call in calls] == ["NOT_FOUND"]


def test_downloads_are_planned_then_sorted_then_taken_back(workspace: Workspace) -> None:
    for name in ("photo.jpg", "report.pdf", "song.mp3"):
        workspace.file(f"Downloads/{name}", name)
    with Client("--root", str(workspace.root), "--set", "server.result_format=json") as client:
        before = sorted(path.name for path in (workspace.root / "Downloads").iterdir())
        client.call("linux.mcp_run_onboarding", flow_name="organize_downloads")
        assert sorted(path.name for path in (workspace.root / "Downloads").iterdir()) == before
        client.call("linux.mcp_run_onboarding", flow_name="organize_downloads", apply=True)
        assert sorted(path.name for path in (workspace.root / "Downloads").iterdir()) != before
        assert not client.call("linux.fs_undo").is_error
        assert sorted(path.name for path in (workspace.root / "Downloads").iterdir()) == before


def test_without_a_downloads_folder_the_hint_says_what_to_do(workspace: Workspace) -> None:
    with Client("--root", str(workspace.root), env={"HOME": str(workspace.outside)}) as client:
        reply = client.call("linux.mcp_run_onboarding", flow_name="organize_downloads")
        assert reply.code == "NOT_FOUND"
        assert "--root" in reply.text
