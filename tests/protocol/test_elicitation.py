"""Questions to the user: what needs consent, what each answer does, and clients that never answer."""

import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import anyio
import httpx2 as httpx
import pytest
from mcp import StdioServerParameters
from mcp.client import Client as SdkClient
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from llmc_mcp.context import Context, UserAnswer, UserQuestion
from llmc_mcp.session import Session

from ..support.asking import (
    ACCEPT,
    ASKS,
    CANCEL,
    DECLINE,
    HttpTalk,
    Message,
    StdioTalk,
    Talk,
    call,
    outcome,
    stateless,
    talk_to,
)
from ..support.client import PATIENCE, Client
from ..support.forked import llmc
from ..support.gates import gate_on
from ..support.http_server import NO_TLS, OPEN_HANDED, HttpServer
from ..support.talk import eventually
from ..support.workspace import Workspace

KINDS = ("stdio", "http")
ASKING = stateless(ASKS)
INVALID_PARAMS = -32602
SOON = "tools.consent_timeout=0.3"


@pytest.fixture(params=KINDS)
def talk(request: pytest.FixtureRequest, workspace: Workspace) -> Iterator[Talk]:
    """A client of the handshake era that shows forms."""
    with talk_to(request.param, workspace.root, capabilities=ASKS) as conversation:
        yield conversation


@pytest.fixture(params=KINDS)
def stateless_talk(request: pytest.FixtureRequest, workspace: Workspace) -> Iterator[Talk]:
    with talk_to(request.param, workspace.root, version="2026-07-28") as conversation:
        yield conversation


@pytest.fixture(autouse=True)
def tree(workspace: Workspace) -> None:
    workspace.file("tree/leaf.txt", "leaf")


DELETE = call("linux_fs_delete", path="tree", recursive=True)


@contextmanager
def foreign_process() -> Generator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def ask_and_answer(talk: Talk, params: Message, answer: Message) -> tuple[str, Message]:
    """Call, answer the one question, and return it with the reply to the call."""
    request = talk.start("tools/call", params)
    question = talk.heard("elicitation/create")
    talk.reply(question, result=answer)
    return question["params"]["message"], talk.wait(request)


# --- the handshake era -------------------------------------------------------------------------------


def test_a_folder_is_deleted_when_the_user_agrees(talk: Talk, workspace: Workspace) -> None:
    message, reply = ask_and_answer(talk, DELETE, ACCEPT)
    assert str(workspace.root / "tree") in message
    assert not outcome(reply).is_error
    assert not (workspace.root / "tree").exists()


@pytest.mark.parametrize("answer", [DECLINE, CANCEL, {"action": "perhaps"}, {}, {"action": "accept", "content": 7}])
def test_anything_but_a_yes_leaves_everything_as_it_is(server: Client, workspace: Workspace, answer: Message) -> None:
    """A no is a no; whatever says that nobody saw the question leaves it to another person to answer."""
    talk = StdioTalk(server, ASKS)
    _, reply = ask_and_answer(talk, DELETE, answer)
    refused = outcome(reply)
    assert refused.code == ("DECLINED" if answer == DECLINE else "APPROVAL_REQUIRED")
    assert refused.meta["hint"]
    assert (workspace.root / "tree/leaf.txt").exists()


def test_a_declined_call_over_http_is_refused(workspace: Workspace) -> None:
    with talk_to("http", workspace.root, capabilities=ASKS) as talk:
        _, reply = ask_and_answer(talk, DELETE, DECLINE)
        assert outcome(reply).code == "DECLINED"
        request = talk.start("tools/call", DELETE)
        talk.reply(talk.heard("elicitation/create"), error={"code": -32603, "message": "no user here"})
        assert outcome(talk.wait(request)).code == "APPROVAL_REQUIRED"
    assert (workspace.root / "tree/leaf.txt").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_never_answers_is_not_waited_for_forever(workspace: Workspace, kind: str) -> None:
    with talk_to(kind, workspace.root, SOON, capabilities=ASKS) as talk:
        request = talk.start("tools/call", DELETE)
        question = talk.heard("elicitation/create")
        assert talk.heard("notifications/cancelled")["params"]["requestId"] == question["id"]
        refused = outcome(talk.wait(request))
        assert refused.code == "APPROVAL_REQUIRED"
        assert refused.meta["approval_id"] in refused.meta["hint"]
        talk.reply(question, result=ACCEPT)  # too late
        assert not outcome(talk.request("tools/call", call("list_dir", path="."))).is_error
    assert (workspace.root / "tree/leaf.txt").exists()


@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {"url": {}}}, {"elicitation": None}])
@pytest.mark.parametrize("kind", KINDS)
def test_for_a_client_that_shows_no_forms_a_person_approves_elsewhere(
    workspace: Workspace, kind: str, capabilities: dict[str, Any]
) -> None:
    with talk_to(kind, workspace.root, capabilities=capabilities) as talk:
        refused = outcome(talk.request("tools/call", DELETE))
        assert refused.code == "APPROVAL_REQUIRED"
        assert (workspace.root / "tree").exists()
        answer_as_a_person(refused.meta["approval_id"])
        assert not outcome(talk.request("tools/call", DELETE)).is_error
    assert not (workspace.root / "tree").exists()


def answer_as_a_person(approval_id: str) -> None:
    assert llmc("approve", approval_id).returncode == 0


def test_a_cancelled_call_takes_its_question_back(talk: Talk, workspace: Workspace) -> None:
    request = talk.start("tools/call", DELETE)
    question = talk.heard("elicitation/create")
    talk.cancel(request)
    assert talk.heard("notifications/cancelled")["params"]["requestId"] == question["id"]
    assert (workspace.root / "tree/leaf.txt").exists()


def test_a_client_that_hangs_up_instead_of_answering_ends_the_call(workspace: Workspace) -> None:
    with Client("--root", str(workspace.root)) as client:
        talk = StdioTalk(client, ASKS)
        talk.start("tools/call", DELETE)
        talk.heard("elicitation/create")
        assert client.close() == 0
    assert (workspace.root / "tree/leaf.txt").exists()


def test_a_client_that_drops_its_connection_instead_of_answering_ends_the_call(workspace: Workspace) -> None:
    with HttpServer(workspace.root, *OPEN_HANDED) as served:
        with HttpTalk(served, ASKS) as talk:
            talk.start("tools/call", DELETE)
            talk.heard("elicitation/create")
        assert eventually(lambda: any(event.get("status") == "CANCELLED" for event in served.events))
    assert (workspace.root / "tree/leaf.txt").exists()


def test_an_answer_counts_for_its_own_session_only(workspace: Workspace) -> None:
    with (
        HttpServer(workspace.root, *OPEN_HANDED) as served,
        HttpTalk(served, ASKS) as owner,
        HttpTalk(served, ASKS) as other,
    ):
        request = owner.start("tools/call", DELETE)
        question = owner.heard("elicitation/create")
        other.reply(question, result=ACCEPT)
        owner.reply(question, result=DECLINE)
        assert outcome(owner.wait(request)).code == "DECLINED"


# --- what needs consent ------------------------------------------------------------------------------


def test_giving_up_undo_needs_consent(server: Client, workspace: Workspace) -> None:
    talk = StdioTalk(server, ASKS)
    write = call("linux_fs_write", path="new.txt", content="x", allow_unjournaled=True)
    message, reply = ask_and_answer(talk, write, DECLINE)
    assert "without undo" in message
    assert outcome(reply).code == "DECLINED"
    assert not (workspace.root / "new.txt").exists()
    _, reply = ask_and_answer(talk, call("linux_fs_delete", path="tree/leaf.txt", allow_unjournaled=True), ACCEPT)
    assert not outcome(reply).is_error
    assert not (workspace.root / "tree/leaf.txt").exists()


def test_a_process_that_the_server_did_not_start_is_signalled_with_consent_only(server: Client) -> None:
    talk = StdioTalk(server, ASKS)
    with foreign_process() as process:
        kill = call("linux_proc_kill", pid=process.pid)
        message, reply = ask_and_answer(talk, kill, DECLINE)
        assert f"process {process.pid} (sleep 600)" in message
        assert outcome(reply).code == "DECLINED"
        assert process.poll() is None
        _, reply = ask_and_answer(talk, kill, ACCEPT)
        assert not outcome(reply).is_error
        assert process.wait(30) != 0


def test_a_process_that_ends_while_the_user_thinks_is_no_longer_what_was_agreed_to(server: Client) -> None:
    talk = StdioTalk(server, ASKS)
    with foreign_process() as process:
        request = talk.start("tools/call", call("linux_proc_kill", pid=process.pid))
        question = talk.heard("elicitation/create")
        process.kill()
        process.wait()
        talk.reply(question, result=ACCEPT)
        assert outcome(talk.wait(request)).code == "STALE"


def test_what_can_be_undone_or_is_refused_anyway_is_not_asked_for(server: Client, workspace: Workspace) -> None:
    talk = StdioTalk(server, ASKS)
    workspace.file("a.txt", "a")
    started = outcome(talk.request("tools/call", call("linux_proc_start", command="cat")))
    not_asked = [
        (call("linux_fs_write", path="b.txt", content="b"), ""),
        (call("linux_fs_delete", path="a.txt"), ""),
        (call("linux_fs_delete", path="b.txt", recursive=True), ""),  # a file has nothing inside
        (call("linux_fs_delete", path="gone", recursive=True), "NOT_FOUND"),
        (call("linux_fs_delete", path="/etc", recursive=True), "INVALID_PATH"),
        (call("linux_proc_kill", pid=1), "KILL_FORBIDDEN"),
        (call("linux_proc_kill", pid=started.meta["pid"], signal="KILL"), ""),
    ]
    for params, code in not_asked:
        assert outcome(talk.request("tools/call", params)).code == code, params
    assert not talk.client.notifications


def test_code_asks_for_each_call_that_it_makes(talk: Talk, workspace: Workspace) -> None:
    workspace.file("other/leaf.txt", "leaf")
    code = (
        "linux_fs_delete(path='tree', recursive=True)\n"
        "try:\n    linux_fs_delete(path='other', recursive=True)\n"
        "except RuntimeError as exc:\n    print(exc)\n"
    )
    request = talk.start("tools/call", call("execute_code", code=code))
    talk.reply(talk.heard("elicitation/create"), result=ACCEPT)
    talk.reply(talk.heard("elicitation/create"), result=DECLINE)
    done = outcome(talk.wait(request))
    assert "DECLINED" in done.text
    assert not (workspace.root / "tree").exists()
    assert (workspace.root / "other/leaf.txt").exists()


def test_code_asks_no_further_once_nobody_answered(workspace: Workspace) -> None:
    code = "for _ in range(99):\n  try: linux_fs_delete(path='tree', recursive=True)\n  except RuntimeError: pass\n"
    with talk_to("stdio", workspace.root, SOON, capabilities=ASKS) as talk:
        assert not outcome(talk.request("tools/call", call("execute_code", code=code))).is_error
        assert isinstance(talk, StdioTalk)
        questions = [message for message in talk.client.notifications if message["method"] == "elicitation/create"]
        assert len(questions) == 1
    assert (workspace.root / "tree/leaf.txt").exists()


def test_open_questions_leave_a_worker_for_other_calls(workspace: Workspace) -> None:
    with talk_to("stdio", workspace.root, "limits.workers=2", capabilities=ASKS) as talk:
        first = talk.start("tools/call", DELETE)
        question = talk.heard("elicitation/create")
        assert outcome(talk.request("tools/call", DELETE)).code == "APPROVAL_REQUIRED"
        assert not outcome(talk.request("tools/call", call("list_dir", path="."))).is_error
        talk.reply(question, result=ACCEPT)
        assert not outcome(talk.wait(first)).is_error


def test_the_time_that_the_user_takes_does_not_count(workspace: Workspace) -> None:
    seen: list[float | None] = []

    def ask(ctx: Context, questions: Sequence[UserQuestion]) -> list[UserAnswer | None]:
        seen.extend((ctx.deadline, outer.deadline))
        return [None] * len(questions)

    with gate_on(workspace.root) as gate:
        outer = Context(gate.app, Session("uid:0", "test"), correlation_id="c", gate=gate, ask=ask)
        inner = Context(gate.app, outer.session, correlation_id="c", gate=gate, parent=outer)
        outer.limit_time(100)
        inner.limit_time(50)
        before = (outer.deadline, inner.deadline)
        assert inner.ask(UserQuestion("key", "Well?")) is None
        assert seen == [None, None]
        assert outer.deadline is not None
        assert inner.deadline is not None
        assert before[0] is not None
        assert outer.deadline > before[0]
        assert outer.deadline - inner.deadline == pytest.approx(50, abs=1)


# --- the official client -----------------------------------------------------------------------------


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_official_client_asks_its_user(workspace: Workspace, kind: str, era: str) -> None:
    asked_for: list[str] = []

    async def show_form(context: object, params: object) -> ElicitResult:
        del context
        asked_for.append(getattr(params, "message", ""))
        return ElicitResult(action="accept", content={})

    async def converse(transport: Any) -> None:
        with anyio.fail_after(2 * PATIENCE):
            async with SdkClient(transport, mode=era, elicitation_callback=show_form) as client:
                result = await client.call_tool("linux_fs_delete", {"path": "tree", "recursive": True})
                assert result.is_error is False

    async def over_http(served: HttpServer) -> None:
        headers = {"Authorization": f"Bearer {served.token}"}
        async with httpx.AsyncClient(headers=headers, timeout=PATIENCE, trust_env=False, verify=NO_TLS) as http:
            await converse(streamable_http_client(f"{served.url}/mcp", http_client=http))

    if kind == "http":
        with HttpServer(workspace.root, *OPEN_HANDED) as served:
            anyio.run(over_http, served)
    else:
        arguments = ["-m", "llmc_mcp.server", "--root", str(workspace.root)]
        env = {"LLMC_DATA_DIR": os.environ["LLMC_DATA_DIR"]}
        anyio.run(converse, stdio_client(StdioServerParameters(command=sys.executable, args=arguments, env=env)))
    assert len(asked_for) == 1
    assert not (workspace.root / "tree").exists()


# --- the stateless era -------------------------------------------------------------------------------


def asked(talk: Talk, params: Message) -> Message:
    result = talk.request("tools/call", {**params, "_meta": ASKING})["result"]
    assert result["resultType"] == "input_required", result
    return result


def answered(question: Message, params: Message, answer: Message) -> Message:
    """The call once more, with the answer to everything that was asked."""
    answers = dict.fromkeys(question["inputRequests"], answer)
    return {**params, "_meta": ASKING, "inputResponses": answers, "requestState": question["requestState"]}


@pytest.mark.parametrize(("answer", "code"), [(ACCEPT, ""), (DECLINE, "DECLINED"), (CANCEL, "APPROVAL_REQUIRED")])
def test_a_call_goes_on_with_the_answer(stateless_talk: Talk, workspace: Workspace, answer: Message, code: str) -> None:
    question = asked(stateless_talk, DELETE)
    (request,) = question["inputRequests"].values()
    assert request["method"] == "elicitation/create"
    assert str(workspace.root / "tree") in request["params"]["message"]
    reply = stateless_talk.request("tools/call", answered(question, DELETE, answer))
    assert reply["result"]["resultType"] == "complete"
    assert outcome(reply).code == code
    assert (workspace.root / "tree").exists() == bool(code)


def test_a_state_serves_once_and_for_its_own_call(server: Client, workspace: Workspace) -> None:
    talk = StdioTalk(server)
    workspace.file("other/leaf.txt", "leaf")
    question = asked(talk, DELETE)
    good = answered(question, DELETE, ACCEPT)
    bad: list[Message] = [
        {**good, "requestState": question["requestState"] + "x"},
        {**good, "requestState": 7},
        {**good, "requestState": None},
        {**good, "arguments": {"path": "other", "recursive": True}},
        {**good, "name": "linux_fs_write"},
        {**good, "inputResponses": 7},
        {**good, "inputResponses": dict.fromkeys(question["inputRequests"], 7)},
        {**good, "inputResponses": {key: {"action": "yes"} for key in question["inputRequests"]}},
    ]
    for params in bad:
        assert talk.request("tools/call", params)["error"]["code"] == INVALID_PARAMS, params
    assert (workspace.root / "tree").exists()
    assert not outcome(talk.request("tools/call", good)).is_error
    assert talk.request("tools/call", good)["error"]["code"] == INVALID_PARAMS
    assert (workspace.root / "other").exists()


def test_another_token_or_session_has_no_use_for_a_state(workspace: Workspace) -> None:
    with HttpServer(workspace.root, *OPEN_HANDED) as served, HttpTalk(served, version="2026-07-28") as talk:
        question = asked(talk, DELETE)
        params = answered(question, DELETE, ACCEPT)
        params["_meta"] = {**ASKING, "llmc/sessionId": "another"}
        assert talk.request("tools/call", params)["error"]["code"] == INVALID_PARAMS
    assert (workspace.root / "tree").exists()


def test_answers_to_other_questions_are_not_taken_for_consent(stateless_talk: Talk, workspace: Workspace) -> None:
    params = {**DELETE, "_meta": ASKING, "inputResponses": {"consent": ACCEPT}}
    question = stateless_talk.request("tools/call", params)["result"]
    assert question["resultType"] == "input_required"
    again = {**answered(question, DELETE, ACCEPT), "inputResponses": {"consent": ACCEPT}}
    once_more = stateless_talk.request("tools/call", again)["result"]
    assert once_more["resultType"] == "input_required"
    assert once_more["requestState"] != question["requestState"]
    assert (workspace.root / "tree").exists()


def test_code_that_asks_goes_on_where_it_was(stateless_talk: Talk, workspace: Workspace) -> None:
    code = call(
        "execute_code",
        code="linux_fs_write(path='log.txt', content='begun\\n', mode='append')\n"
        "linux_fs_delete(path='tree', recursive=True)\n",
    )
    done = outcome(stateless_talk.request("tools/call", answered(asked(stateless_talk, code), code, ACCEPT)))
    assert not done.is_error, done.text
    assert (workspace.root / "log.txt").read_text() == "begun\n"
    assert not (workspace.root / "tree").exists()


def test_for_a_client_that_does_not_come_back_nobody_agrees(workspace: Workspace) -> None:
    with talk_to("stdio", workspace.root, SOON) as talk:
        question = asked(talk, DELETE)
        assert isinstance(talk, StdioTalk)
        assert eventually(logged(talk, "APPROVAL_REQUIRED"))
        assert outcome(talk.request("tools/call", answered(question, DELETE, ACCEPT))).code == "APPROVAL_REQUIRED"
    assert (workspace.root / "tree").exists()


def logged(talk: StdioTalk, word: str) -> Callable[[], bool]:
    return lambda: word in talk.client.log


def test_only_so_many_questions_stay_open(workspace: Workspace) -> None:
    with talk_to("stdio", workspace.root, "limits.workers=2") as talk:
        for number in range(3):
            workspace.file(f"folder{number}/leaf.txt", "leaf")
        for number in range(2):
            asked(talk, call("linux_fs_delete", path=f"folder{number}", recursive=True))
        for meta in (ASKING, {**ASKING, "llmc/sessionId": "another"}):
            third = {**call("linux_fs_delete", path="folder2", recursive=True), "_meta": meta}
            assert "error" in talk.request("tools/call", third)
        assert not outcome(talk.request("tools/call", call("list_dir", path="."))).is_error


def test_a_call_that_waits_for_its_user_is_not_counted_as_running(workspace: Workspace) -> None:
    settings = ("limits.concurrency_per_token=1",)
    with talk_to("http", workspace.root, *settings, version="2026-07-28") as talk:
        question = asked(talk, DELETE)
        assert not outcome(talk.request("tools/call", call("list_dir", stateless(), path="."))).is_error
        assert not outcome(talk.request("tools/call", answered(question, DELETE, ACCEPT))).is_error
        assert not outcome(talk.request("tools/call", call("list_dir", stateless(), path="."))).is_error


def test_for_a_client_of_the_stateless_era_that_shows_no_forms_a_person_approves_elsewhere(
    stateless_talk: Talk, workspace: Workspace
) -> None:
    params = {**DELETE, "_meta": stateless()}
    answer_as_a_person(outcome(stateless_talk.request("tools/call", params)).meta["approval_id"])
    assert not outcome(stateless_talk.request("tools/call", params)).is_error
    assert not (workspace.root / "tree").exists()
