"""Tasks: long calls that their client need not wait for, in the words of both eras, on stdio and over HTTP."""

import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from llmc_mcp.context import Context, UserAnswer, UserQuestion
from llmc_mcp.protocol.jsonrpc import ProtocolError
from llmc_mcp.protocol.request import Peer, Request
from llmc_mcp.session import Session
from llmc_mcp.web.auth import open_table

from ..conformance.fixtures import FixtureMethods
from ..support.asking import HAS_TASKS, TASKS, HttpTalk, Message, StdioTalk, Talk, call, outcome, stateless, talk_to
from ..support.client import Client, Reply
from ..support.gates import gate_on
from ..support.http_server import OPEN_HANDED, HttpServer
from ..support.processes import processes_with
from ..support.talk import alive, eventually
from ..support.workspace import UNPLUGGED, Workspace

KINDS = ("stdio", "http")
WITH_TASKS = stateless(HAS_TASKS)
INVALID_PARAMS, METHOD_NOT_FOUND, HEADER_MISMATCH, MISSING_CAPABILITY = -32602, -32601, -32020, -32021
FINAL = ("completed", "failed", "cancelled")


@pytest.fixture(params=KINDS)
def talk(request: pytest.FixtureRequest, workspace: Workspace) -> Iterator[Talk]:
    with talk_to(request.param, workspace.root) as conversation:
        yield conversation


@pytest.fixture(params=KINDS)
def stateless_talk(request: pytest.FixtureRequest, workspace: Workspace) -> Iterator[Talk]:
    with talk_to(request.param, workspace.root, version="2026-07-28") as conversation:
        yield conversation


# Ends once there is a file `go`.
WAITING = "bash -c 'until [ -e go ]; do sleep 0.05; done; echo went'"


def running(root: Path) -> int:
    """The pid of the command as the machine knows it, once it runs."""
    assert eventually(lambda: bool(commands_of(root)))
    return commands_of(root)[0]


def commands_of(root: Path) -> list[int]:
    """The processes of waiting commands in a root."""
    found: list[int] = []
    for pid in processes_with("until [ -e go ]"):
        with suppress(OSError):  # it has just ended
            if Path(f"/proc/{pid}/cwd").readlink() == root:
                found.append(pid)
    return found


def create(talk: Talk, tool: str, /, ttl: Any = None, **arguments: Any) -> Message:
    """Ask for a task in the words of 2025-11-25; the whole reply."""
    return talk.request("tools/call", {**call(tool, **arguments), "task": {} if ttl is None else {"ttl": ttl}})


def status_of(talk: Talk, task: str, meta: Message | None = None) -> str:
    params = {"taskId": task, **({"_meta": meta} if meta else {})}
    return talk.request("tasks/get", params)["result"]["status"]


def code_of(reply: Message) -> int:
    assert "error" in reply, reply
    return reply["error"]["code"]


# --- 2025-11-25 --------------------------------------------------------------------------------------


def test_a_command_runs_as_a_task_and_its_result_is_collected(talk: Talk, workspace: Workspace) -> None:
    assert talk.server["capabilities"]["tasks"] == {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
    task = create(talk, "run_cmd", command=WAITING)["result"]["task"]
    assert task["status"] == "working"
    assert task["ttl"] == 3_600_000
    assert task["pollInterval"] > 0
    assert [one["taskId"] for one in talk.request("tasks/list", {})["result"]["tasks"]] == [task["taskId"]]
    collected = talk.start("tasks/result", {"taskId": task["taskId"]})  # before there is one
    assert status_of(talk, task["taskId"]) == "working"
    workspace.file("go")
    result = talk.wait(collected)["result"]
    assert result["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": task["taskId"]}
    assert "went" in result["content"][0]["text"]
    assert status_of(talk, task["taskId"]) == "completed"
    assert talk.request("tasks/result", {"taskId": task["taskId"]})["result"] == result


def test_a_cancelled_task_stops_its_command_and_stays_cancelled(talk: Talk, workspace: Workspace) -> None:
    task = create(talk, "run_cmd", command=WAITING)["result"]["task"]["taskId"]
    pid = running(workspace.root)
    collected = talk.start("tasks/result", {"taskId": task})
    assert talk.request("tasks/cancel", {"taskId": task})["result"]["status"] == "cancelled"
    assert eventually(lambda: not alive(pid))
    assert code_of(talk.wait(collected)) == INVALID_PARAMS
    assert code_of(talk.request("tasks/cancel", {"taskId": task})) == INVALID_PARAMS  # twice
    assert status_of(talk, task) == "cancelled"


def test_whoever_waits_for_a_result_keeps_nobody_from_looking_or_cancelling(workspace: Workspace) -> None:
    with talk_to("stdio", workspace.root, "limits.workers=1") as talk:
        task = create(talk, "run_cmd", command=WAITING)["result"]["task"]["taskId"]
        waiting = [talk.start("tasks/result", {"taskId": task}) for _ in range(3)]
        assert not outcome(talk.request("tools/call", call("stat", path="."))).is_error
        assert status_of(talk, task) == "working"
        assert talk.request("tasks/cancel", {"taskId": task})["result"]["status"] == "cancelled"
        assert [code_of(talk.wait(request)) for request in waiting] == [INVALID_PARAMS] * 3


def test_a_tool_that_fails_is_a_failed_task_with_its_result(talk: Talk) -> None:
    task = create(talk, "run_cmd", command="wget malware.example")["result"]["task"]["taskId"]
    assert outcome(talk.request("tasks/result", {"taskId": task})).code == "COMMAND_NOT_ALLOWED"
    assert status_of(talk, task) == "failed"


@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel"])
def test_an_unknown_task_is_an_error(server: Client, method: str) -> None:
    talk = StdioTalk(server)
    for task in ("no-such-task", "", 7, None, ["x"], {"taskId": "x"}):
        assert code_of(talk.request(method, {"taskId": task})) == INVALID_PARAMS
    assert code_of(talk.request(method, {})) == INVALID_PARAMS


@pytest.mark.parametrize("nonsense", [-1, 1.5, "soon", True, [], {}])
def test_a_time_to_live_that_is_no_number_of_milliseconds_is_refused(server: Client, nonsense: object) -> None:
    talk = StdioTalk(server)
    assert code_of(create(talk, "run_cmd", command="true", ttl=nonsense)) == INVALID_PARAMS
    assert talk.request("tasks/list", {})["result"]["tasks"] == []


@pytest.mark.parametrize("wanted", [7, "now", [], None])
def test_a_task_that_is_no_object_is_refused(server: Client, wanted: object) -> None:
    talk = StdioTalk(server)
    assert code_of(talk.request("tools/call", {**call("run_cmd", command="true"), "task": wanted})) == INVALID_PARAMS


def test_a_time_to_live_is_kept_within_bounds(workspace: Workspace) -> None:
    with talk_to("stdio", workspace.root, "limits.task_ttl_sec=60") as talk:
        made = [create(talk, "run_cmd", command="true", ttl=ttl)["result"]["task"] for ttl in (0, 5_000, 1 << 60, None)]
        assert [task["ttl"] for task in made] == [1_000, 5_000, 60_000, 60_000]


def test_a_task_whose_time_is_over_is_gone_and_its_command_too(talk: Talk, workspace: Workspace) -> None:
    task = create(talk, "run_cmd", ttl=1, command=WAITING, timeout=60)["result"]["task"]["taskId"]
    assert eventually(lambda: "error" in talk.request("tasks/get", {"taskId": task}))
    assert code_of(talk.request("tasks/get", {"taskId": task})) == INVALID_PARAMS
    assert eventually(lambda: not commands_of(workspace.root))


def test_a_session_has_only_so_many_tasks(workspace: Workspace) -> None:
    with talk_to("stdio", workspace.root, "limits.max_tasks=2") as talk:
        made = [create(talk, "run_cmd", command="true") for _ in range(3)]
        assert ["error" in reply for reply in made] == [False, False, True]
        assert made[2]["error"]["data"]["code"] == "RATE_LIMITED"
        params = {**call("run_cmd", WITH_TASKS, command=WAITING)}
        workspace.file("go")
        assert "went" in outcome(talk.request("tools/call", params)).text  # no room for a task: the reply waits


def test_the_client_hears_of_a_task_that_ends(server: Client) -> None:
    talk = StdioTalk(server)
    task = create(talk, "run_cmd", command="true")["result"]["task"]["taskId"]
    told = talk.heard("notifications/tasks/status")["params"]
    assert (told["taskId"], told["status"]) == (task, "completed")


def test_tools_say_whether_they_run_as_tasks_where_the_version_has_the_word(workspace: Workspace) -> None:
    with talk_to("stdio", workspace.root, "mode=classic") as talk:
        listed = {tool["name"]: tool.get("execution") for tool in talk.request("tools/list", {})["result"]["tools"]}
        assert {name for name, execution in listed.items() if execution} == {
            "run_cmd",
            "run_pytest",
            "rag_index",
            "code_check",
        }
        assert listed["run_cmd"] == {"taskSupport": "optional"}
        later = talk.request("tools/list", {"_meta": stateless()})["result"]["tools"]
        assert not any("execution" in tool for tool in later)


def test_a_tool_without_tasks_refuses_one(talk: Talk, workspace: Workspace) -> None:
    workspace.file("a.txt", "hello")
    assert code_of(create(talk, "read_file", path="a.txt")) == METHOD_NOT_FOUND


@pytest.mark.parametrize("kind", KINDS)
def test_an_older_version_has_no_tasks(workspace: Workspace, kind: str) -> None:
    with talk_to(kind, workspace.root, version="2025-06-18") as talk:
        assert "tasks" not in talk.server["capabilities"]
        assert "content" in create(talk, "run_cmd", command="true")["result"]
        assert code_of(talk.request("tasks/get", {"taskId": "x"})) == METHOD_NOT_FOUND


def test_tests_and_the_index_run_as_tasks(server: Client, workspace: Workspace) -> None:
    workspace.file("test_one.py", "def test_one(): pass\n")
    workspace.file("pytest.ini", UNPLUGGED)
    talk = StdioTalk(server)
    tests = create(talk, "run_pytest", path="test_one.py")["result"]["task"]["taskId"]
    index = create(talk, "rag_index")["result"]["task"]["taskId"]
    at_once = outcome(talk.request("tools/call", call("run_pytest", path="test_one.py")))
    as_task = outcome(talk.request("tasks/result", {"taskId": tests}))
    assert (as_task.code, as_task.meta["passed"], as_task.body) == (at_once.code, 1, at_once.body)
    assert outcome(talk.request("tasks/result", {"taskId": index})).meta["state"] == "up to date"


@pytest.mark.parametrize("number", [None, signal.SIGTERM])
def test_the_end_of_the_session_ends_its_tasks(workspace: Workspace, number: int | None) -> None:
    with Client("--root", str(workspace.root)) as client:
        talk = StdioTalk(client)
        create(talk, "run_cmd", command=WAITING, timeout=600)
        pid = running(workspace.root)
        if number is not None:
            client.process.send_signal(number)
        assert client.close() == 0
        assert not alive(pid)


def test_the_end_of_the_server_ends_all_tasks(workspace: Workspace) -> None:
    with HttpServer(workspace.root, *OPEN_HANDED) as served, HttpTalk(served) as talk:
        create(talk, "run_cmd", command=WAITING, timeout=600)
        pid = running(workspace.root)
        assert served.stop() == 0
        assert not alive(pid)


def test_a_task_that_asks_is_answered_while_its_result_is_awaited(workspace: Workspace) -> None:
    with gate_on(workspace.root) as gate:
        methods = FixtureMethods(gate)
        asked: list[str] = []

        def ask(ctx: Context, questions: Sequence[UserQuestion]) -> list[UserAnswer | None]:
            del ctx
            asked.extend(question.key for question in questions)
            return [UserAnswer("accept", {"confirm": True})] * len(questions)

        def answer(method: str, **params: Any) -> Message:
            peer = Peer("2025-11-25", asks_users=True)
            session = Session("uid:0", "test")
            return methods.answer(
                Request(method, params, session, lambda _: None, lambda _: None, peer=peer, ask=ask, notify=None)
            )

        task = answer("tools/call", **call("confirm_delete", filename="a.txt"), task={})["task"]["taskId"]
        assert eventually(lambda: answer("tasks/get", taskId=task)["status"] == "input_required")
        assert "accept" in answer("tasks/result", taskId=task)["content"][0]["text"]
        assert asked == ["confirm"]
        broken = answer("tools/call", **call("protocol_error_job"), task={})["task"]["taskId"]
        with pytest.raises(ProtocolError, match="breaks the protocol"):
            answer("tasks/result", taskId=broken)
        methods.close()


# --- whose task it is --------------------------------------------------------------------------------


def test_a_task_is_nobody_elses(workspace: Workspace) -> None:
    data = {"LLMC_DATA_DIR": str(workspace.outside / "data")}
    with HttpServer(workspace.root, *OPEN_HANDED, env=data) as served, HttpTalk(served) as owner:
        task = create(owner, "run_cmd", command=WAITING)["result"]["task"]["taskId"]
        with HttpTalk(served, version="2026-07-28") as later:
            assert code_of(later.request("tasks/get", {"taskId": task, "_meta": WITH_TASKS})) == INVALID_PARAMS
        with HttpTalk(served) as other:
            for method in ("tasks/get", "tasks/result", "tasks/cancel"):
                assert code_of(other.request(method, {"taskId": task})) == INVALID_PARAMS
            assert other.request("tasks/list", {})["result"]["tasks"] == []
        stated = {"taskId": task, "_meta": {"llmc/sessionId": "another"}}
        assert code_of(owner.request("tasks/get", stated)) == INVALID_PARAMS
        assert status_of(owner, task) == "working"
        workspace.file("go")
        assert "went" in outcome(owner.request("tasks/result", {"taskId": task})).text


def test_a_task_is_not_another_tokens(workspace: Workspace) -> None:
    data = {"LLMC_DATA_DIR": str(workspace.outside / "data")}
    with HttpServer(workspace.root, *OPEN_HANDED, env=data) as served:
        token = open_table(data["LLMC_DATA_DIR"]).create("other", ("read", "write", "exec"))
        with HttpTalk(served, version="2026-07-28") as owner, HttpTalk(served, None, "2026-07-28", token) as other:
            params = call("run_cmd", WITH_TASKS, command=WAITING)
            task = owner.request("tools/call", params)["result"]["taskId"]
            for method in ("tasks/get", "tasks/cancel"):
                assert code_of(other.request(method, {"taskId": task, "_meta": WITH_TASKS})) == INVALID_PARAMS
            assert status_of(owner, task, WITH_TASKS) == "working"


# --- the extension of the stateless era --------------------------------------------------------------


def test_a_call_that_takes_long_becomes_a_task(stateless_talk: Talk, workspace: Workspace) -> None:
    talk = stateless_talk
    made = talk.request("tools/call", call("run_cmd", WITH_TASKS, command=WAITING))["result"]
    assert made["resultType"] == "task"
    assert made["status"] == "working"
    assert {"ttlMs", "pollIntervalMs", "createdAt", "lastUpdatedAt"} <= made.keys()
    assert not {"result", "content", "task"} & made.keys()
    workspace.file("go")
    about = {"taskId": made["taskId"], "_meta": WITH_TASKS}
    assert eventually(lambda: talk.request("tasks/get", about)["result"]["status"] == "completed")
    done = talk.request("tasks/get", about)["result"]
    assert done["resultType"] == "complete"
    assert "went" in done["result"]["content"][0]["text"]
    assert "_meta" not in done["result"]
    assert talk.request("tasks/cancel", about)["result"]["resultType"] == "complete"  # too late, and no error
    assert status_of(talk, made["taskId"], WITH_TASKS) == "completed"


def test_a_call_that_ends_soon_is_answered_without_a_task(stateless_talk: Talk) -> None:
    result = stateless_talk.request("tools/call", call("run_cmd", WITH_TASKS, command="wget malware"))["result"]
    assert result["resultType"] == "complete"
    assert Reply(result).code == "COMMAND_NOT_ALLOWED"


def test_a_cancelled_task_of_the_extension_ends(stateless_talk: Talk, workspace: Workspace) -> None:
    talk = stateless_talk
    made = talk.request("tools/call", call("run_cmd", WITH_TASKS, command=WAITING))["result"]
    pid = running(workspace.root)
    about = {"taskId": made["taskId"], "_meta": WITH_TASKS}
    for answers in ({}, {"inputResponses": 7}, {"inputResponses": None}):
        assert code_of(talk.request("tasks/update", {**about, **answers})) == INVALID_PARAMS
    unasked = {"inputResponses": {"nobody-asked": {"action": "accept"}}}
    assert talk.request("tasks/update", {**about, **unasked})["result"]["resultType"] == "complete"
    for _ in range(2):
        acknowledged = talk.request("tasks/cancel", about)["result"]
        assert "taskId" not in acknowledged
        assert status_of(talk, made["taskId"], WITH_TASKS) == "cancelled"
    assert eventually(lambda: not alive(pid))


def test_the_extension_serves_only_those_who_declare_it(stateless_talk: Talk) -> None:
    talk = stateless_talk
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        error = talk.request(method, {"taskId": "x", "_meta": stateless()})["error"]
        assert error["code"] == MISSING_CAPABILITY
        assert error["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    for method in ("tasks/list", "tasks/result"):
        assert code_of(talk.request(method, {"taskId": "x", "_meta": WITH_TASKS})) == METHOD_NOT_FOUND
    plain = talk.request("tools/call", {**call("run_cmd", stateless(), command="true"), "task": {"ttl": 5}})
    assert plain["result"]["resultType"] == "complete"


def test_an_unknown_task_of_the_extension_is_an_error(stateless_talk: Talk) -> None:
    for method in ("tasks/get", "tasks/cancel", "tasks/update"):
        params = {"taskId": "no-such-task", "inputResponses": {}, "_meta": WITH_TASKS}
        assert code_of(stateless_talk.request(method, params)) == INVALID_PARAMS


def test_the_header_must_name_the_task(workspace: Workspace) -> None:
    with HttpServer(workspace.root, *OPEN_HANDED) as served, served.client() as client:
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tasks/get",
        }
        params = {"taskId": "one", "_meta": WITH_TASKS}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": params}
        for name in ({"mcp-name": "another"}, {}):
            reply = client.post("/mcp", json=message, headers={**headers, **name})
            assert (reply.status_code, reply.json()["error"]["code"]) == (400, HEADER_MISMATCH)
        reply = client.post("/mcp", json=message, headers={**headers, "mcp-name": "one"})
        assert reply.json()["error"]["code"] == INVALID_PARAMS
