"""Who calls is what the client, the call and the configuration say, in that order of distance; nothing is guessed."""

import json
from pathlib import Path
from typing import Any

import pytest

from llmc_mcp.config.schema import Config
from llmc_mcp.protocol.methods import client_name, introduced
from llmc_mcp.session import Session
from llmc_mcp.store.sqlite import SqliteStore
from llmc_mcp.web.mcp import SessionIds

from ..support.client import Client, Reply
from ..support.http_server import OPEN_HANDED, HttpServer
from ..support.workspace import Workspace

CLIENT_KEY = "io.modelcontextprotocol/clientInfo"
STATELESS: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "claude-desktop", "version": "1"},
}
CONFIGURED = (
    *("--set", "session.default_agent_id=otto", "--set", "session.default_model=m1"),
    *("--set", "session.default_budget_profile=M5"),
)


def callers(data: Path) -> list[tuple[object, ...]]:
    return SqliteStore(str(data)).query(
        "SELECT agent_id, model, budget_profile FROM calls WHERE source='mcp' ORDER BY at"
    )


def stat(client: Client, meta: dict[str, Any] | None = None) -> Reply:
    return Reply(client.wait(client.start_call("stat", {"path": "."}, meta))["result"])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def test_what_is_said_closest_to_the_call_wins(workspace: Workspace, data: Path) -> None:
    with Client("--root", str(workspace.root), *CONFIGURED, env={"LLMC_DATA_DIR": str(data)}) as client:
        stat(client)
        client.request("initialize", INITIALIZE)
        stat(client)
        stat(client, {**STATELESS, CLIENT_KEY: {"name": "another", "version": "2"}})
        stat(client, {"llmc/agentId": "worker-7", "llmc/model": "opus", "llmc/budgetProfile": "night"})
        stat(client)
    assert callers(data) == [
        ("otto", "m1", "M5"),
        ("claude-desktop", "m1", "M5"),
        ("another", "m1", "M5"),
        ("worker-7", "opus", "night"),
        ("claude-desktop", "m1", "M5"),
    ]


def test_a_call_may_name_its_own_session(workspace: Workspace, data: Path) -> None:
    with Client("--root", str(workspace.root), env={"LLMC_DATA_DIR": str(data)}) as client:
        stat(client)
        stat(client, {"llmc/sessionId": "task-1"})
    sessions = [row[0] for row in SqliteStore(str(data)).query("SELECT session_id FROM calls ORDER BY at")]
    assert sessions[0] != "task-1"
    assert sessions[1] == "task-1"


@pytest.mark.parametrize("value", [7, "", "x" * 129, "two\nlines", "nul\0", "ü", ["a"], {"a": 1}])
def test_a_word_about_the_caller_that_is_none_is_refused(server: Client, value: object) -> None:
    reply = server.wait(server.start_call("stat", {"path": "."}, {"llmc/model": value}))
    assert reply["error"]["code"] == -32602
    assert "llmc/model" in reply["error"]["message"]


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ({"name": "Claude Code"}, "Claude Code"),
        ({"name": "evil\x1b[31m\nname"}, "evil31mname"),
        ({"name": "x" * 500}, "x" * 128),
        ({"name": "\u202e"}, ""),
        ({"name": 7}, ""),
        ({}, ""),
        (None, ""),
        ("claude", ""),
    ],
)
def test_a_clients_name_is_taken_as_a_plain_word_or_not_at_all(said: object, name: str) -> None:
    assert client_name(said) == name
    assert introduced(Session("p", "s", "otto"), said).agent_id == (name or "otto")


@pytest.mark.parametrize("tool", ["run_cmd", "te_run"])
def test_a_command_is_told_who_runs_it(workspace: Workspace, data: Path, tool: str) -> None:
    with Client("--root", str(workspace.root), *CONFIGURED, env={"LLMC_DATA_DIR": str(data)}) as client:
        command = {"command": ["sh", "-c", 'printf "%s|%s|%s\\n" "$TE_AGENT_ID" "$TE_SESSION_ID" "$TE_MODEL"']}
        meta = {"llmc/agentId": "a 1", "llmc/sessionId": "s/2"}
        reply = Reply(client.wait(client.start_call(tool, command, meta))["result"])
    assert reply.body == "a 1|s/2|m1\n"


def test_an_interactive_program_is_told_too_and_cannot_be_told_otherwise(workspace: Workspace) -> None:
    with Client("--root", str(workspace.root), *CONFIGURED) as client:
        command = ["sh", "-c", 'echo "agent=$TE_AGENT_ID"']
        assert "agent=otto" in client.call("linux_proc_start", command=command).text
        refused = client.call("linux_proc_start", command=command, env={"TE_AGENT_ID": "me"})
        assert refused.code == "PERMISSION_DENIED"


def test_a_budget_profile_decides_before_the_agent(workspace: Workspace, data: Path) -> None:
    budgets = ("--set", 'te.budgets={"otto": 1000, "night": 9000}')
    with Client("--root", str(workspace.root), *CONFIGURED, *budgets, env={"LLMC_DATA_DIR": str(data)}) as client:

        def left(meta: dict[str, str] | None) -> int:
            reply = Reply(client.wait(client.start_call("te_run", {"command": "true"}, meta))["result"])
            return reply.meta["telemetry"]["budget_remaining"]

        assert left(None) == 1000
        assert left({"llmc/budgetProfile": "night"}) == 9000
        assert left({"llmc/budgetProfile": "unheard-of"}) == 1000


# --- over HTTP -----------------------------------------------------------------------------------------------------


def post(served: HttpServer, method: str, params: dict[str, Any], **headers: str) -> tuple[dict[str, Any], str]:
    with served.client() as client:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        accept = {"accept": "application/json, text/event-stream", **headers}
        reply = client.post("/mcp", json=message, headers=accept)
    return json.loads(reply.text), reply.headers.get("mcp-session-id", "")


def test_over_http_a_conversation_keeps_its_clients_name_without_the_server_keeping_anything(
    workspace: Workspace, data: Path
) -> None:
    call = {"name": "stat", "arguments": {"path": "."}}
    environment = {"LLMC_DATA_DIR": str(data)}
    with HttpServer(workspace.root, *OPEN_HANDED, *CONFIGURED, env=environment) as served:
        _, session_id = post(served, "initialize", INITIALIZE)
    with HttpServer(workspace.root, *OPEN_HANDED, *CONFIGURED, env=environment) as served:  # another process
        post(served, "tools/call", call, **{"mcp-session-id": session_id})
        post(served, "tools/call", call)
        said = {**call, "_meta": {"llmc/agentId": "worker-7"}}
        post(served, "tools/call", said, **{"mcp-session-id": session_id})
        served.tool("stat", path=".")
        with served.client() as client:
            page = client.get("/metrics").text
    assert [row[0] for row in callers(data)] == ["claude-desktop", "otto", "worker-7", "otto"]
    by_session = SqliteStore(str(data)).query("SELECT session_id FROM calls WHERE agent_id='claude-desktop'")
    assert by_session == [(session_id.partition(".")[0],)]
    assert 'llmc_agent_calls_total{agent="otto"} 2.0' in page
    assert 'llmc_agent_calls_total{agent="other"} 2.0' in page  # a label is the operator's word, not a client's


def test_a_session_id_is_worth_nothing_to_another_principal_or_with_another_name() -> None:
    ids = SessionIds("key")
    made = ids.make("ada", "claude")
    assert ids.read(made, "ada") == (made.partition(".")[0], "claude", False)
    assert ids.read(made, "bob") is None
    assert ids.read(made.partition(".")[0], "ada") is None
    assert ids.read(made + "A", "ada") is None
    assert SessionIds("other").read(made, "ada") is None
    assert ids.read("", "ada") is None
    unnamed = ids.make("ada")
    assert ids.read(unnamed, "ada") == (unnamed, "", False)


def test_nothing_is_known_of_a_caller_that_says_nothing() -> None:
    session = Session("uid:0", "s")
    assert (session.agent_id, session.model, session.budget_profile) == ("unknown", "unknown", "unknown")
    defaults = Config().session
    assert {defaults.default_agent_id, defaults.default_model, defaults.default_budget_profile} == {"unknown"}
