"""Process and system tools over MCP, under the names of the original design."""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..support.client import PATIENCE, UNASKED, Client
from ..support.workspace import Workspace

DEBUGGING = Path(__file__).parents[2] / "DOCS" / "debugging_with_pdb.md"


@pytest.fixture(params=["classic", "hybrid"])
def client(request: pytest.FixtureRequest, workspace: Workspace) -> Iterator[Client]:
    with Client("--root", str(workspace.root), "--mode", request.param, *UNASKED) as client:
        yield client


@pytest.fixture
def classic(workspace: Workspace) -> Iterator[Client]:
    with Client("--root", str(workspace.root), "--mode", "classic") as client:
        yield client


def test_the_process_list_has_its_designed_shape(classic: Client) -> None:
    reply = json.loads(classic.call("linux.proc_list", max_results=10).text)
    assert 0 < len(reply["processes"]) <= 10
    assert set(reply["processes"][0]) == {"pid", "user", "cpu_percent", "mem_percent", "command"}
    assert isinstance(reply["total_processes"], int)
    assert isinstance(reply["truncated"], bool)


def test_a_process_is_found_killed_and_gone(client: Client) -> None:
    with subprocess.Popen(["sleep", "31.4"]) as sleeper:
        assert f"{sleeper.pid}" in client.call("linux.proc_list", name="sleep 31.4").text
        assert client.call("linux.proc_kill", pid=sleeper.pid).meta["success"] is True
        assert sleeper.wait(PATIENCE) == -signal.SIGTERM
        assert client.call("linux.proc_kill", pid=sleeper.pid).code == "PROCESS_NOT_FOUND"
        assert "sleep 31.4" not in client.call("linux.proc_list", name="sleep 31.4").text


def test_the_snapshot_is_plausible(client: Client) -> None:
    state = client.call("linux.sys_snapshot").meta
    assert 0 <= state["cpu_percent"] <= 100
    assert len(state["load_avg"]) == 3
    assert all(value >= 0 for value in state["load_avg"])
    assert 0 < state["mem_used_mb"] < state["mem_total_mb"]
    assert all(0 <= disk["used_percent"] <= 100 for disk in state["disks"])
    assert state["short_summary"]
    assert not client.call("linux.sys_snapshot", include_disks=False).meta.get("disks")


def test_a_conversation_with_python(classic: Client) -> None:
    def call(tool: str, **arguments: object) -> dict[str, Any]:
        return json.loads(classic.call(tool, **arguments).text)

    started = call("linux.proc_start", command="python3")
    assert set(started) >= {"proc_id", "pid", "first_output", "state"}
    proc_id = started["proc_id"]
    assert call("linux.proc_send", proc_id=proc_id, input="x = 6") == {"acknowledged": True}
    call("linux.proc_read", proc_id=proc_id)
    sent = call("linux.proc_send", proc_id=proc_id, input="x * 7", read_timeout_ms=10_000)
    assert sent == {
        "acknowledged": True,
        "output": "42\n>>> ",
        "state": "running",
        "waiting_for_input": True,
        "decided_by": sent["decided_by"],
    }
    (row,) = call("linux.proc_sessions")["processes"]
    assert row["proc_id"] == proc_id
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row["started_iso"])
    assert call("linux.proc_stop", proc_id=proc_id) == {"stopped": True, "exit_code": 143}
    assert call("linux.proc_read", proc_id=proc_id) == {"output": "", "state": "no_such_process"}
    assert classic.call("linux.proc_send", proc_id=proc_id, input="x").code == "PROCESS_NOT_FOUND"


def test_lean_replies_are_the_output_itself(workspace: Workspace) -> None:
    with Client("--root", str(workspace.root)) as client:
        proc_id = client.call("linux_proc_start", command="bash").meta["proc_id"]
        reply = client.call("linux_proc_send", proc_id=proc_id, input="echo 'a \"b\"'", read_timeout_ms=10_000)
        assert reply.body == 'a "b"\n$ '
        assert reply.meta["waiting_for_input"] is True


def test_two_servers_do_not_see_each_others_programs(workspace: Workspace) -> None:
    with Client("--root", str(workspace.root)) as one, Client("--root", str(workspace.root)) as two:
        proc_id = one.call("linux_proc_start", command="cat").meta["proc_id"]
        assert two.call("linux_proc_read", proc_id=proc_id).meta["state"] == "no_such_process"


def test_programs_can_be_talked_to_from_code(workspace: Workspace) -> None:
    code = """
p = linux_proc_start('python3')['proc_id']
answers = [linux_proc_send(p, f'{n} ** 2', 10000)['output'].split()[0] for n in range(5)]
linux_proc_stop(p)
answers
"""
    with Client("--root", str(workspace.root)) as client:
        reply = client.call("execute_code", code=code)
        assert not reply.is_error, reply.text
        assert all(f"{n * n}" in reply.text for n in range(5))


def test_the_debugging_session_in_the_documentation_goes_as_written(workspace: Workspace) -> None:
    """Its program, its inputs and its outputs are taken from the page."""
    page = DEBUGGING.read_text()
    program = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert program
    workspace.file("stats.py", program[1])
    steps = re.findall(r"```\n→ (\w+) (\{.*?\})\n(.*?)```", page, re.DOTALL)
    assert len(steps) > 5
    with Client("--root", str(workspace.root)) as client:
        proc_id = ""
        for tool, arguments, wanted in steps:
            reply = client.call(tool, **json.loads(arguments.replace("P_…", proc_id)))
            assert not reply.is_error, reply.text
            proc_id = reply.meta.get("proc_id", proc_id)
            body = reply.body.replace(str(workspace.root), "/workspace")
            if tool != "linux_fs_edit":  # the page says that it leaves this one out
                assert body.rstrip("\n ") == wanted.rstrip("\n "), (tool, arguments)
