"""MCP over pipes: both eras, many calls at once, and a conversation that nothing else can touch."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import StdioServerParameters
from mcp.client import Client as SdkClient
from mcp.client.stdio import stdio_client
from mcp_types import TextContent
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from llmc_mcp.config.schema import Limits
from llmc_mcp.files.revisions import revision_of

from ..support.client import PATIENCE, Client, Reply
from ..support.processes import children_of
from ..support.workspace import Workspace

STATELESS = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
}
ERAS = ("legacy", "auto", *MODERN_PROTOCOL_VERSIONS)


@pytest.fixture
def endless(workspace: Workspace) -> dict[str, Any]:
    """Arguments of a read_file that keeps a worker busy far longer than any test runs."""
    path = workspace.file("endless.txt", b"text\n" * 20_000)
    os.truncate(path, 1 << 40)  # holes: no disk, no end
    return {"path": "endless.txt", "offset_lines": 10**12}


def start_endless(client: Client, arguments: dict[str, Any], token: str = "t") -> int:
    """Start it and return once the server says that it is at work."""
    request = client.start_call("read_file", arguments, {"progressToken": token})
    wait_for_progress(client, token)
    return request


def keep_busy(client: Client, arguments: dict[str, Any], workers: int) -> list[int]:
    """Occupy that many workers."""
    tokens = [f"busy-{number}" for number in range(workers)]
    requests = [client.start_call("read_file", arguments, {"progressToken": token}) for token in tokens]
    for token in tokens:
        wait_for_progress(client, token)
    return requests


def wait_for_progress(client: Client, token: str, count: int = 1) -> None:
    def told() -> int:
        return sum(message["params"]["progressToken"] == token for message in client.notifications)

    while told() < count:
        message = client.messages.get(timeout=PATIENCE)
        assert message is not None, client.log
        assert "method" in message, message
        client.notifications.append(message)


def cancel(client: Client, request: int) -> None:
    params = {"requestId": request, "reason": "no longer wanted"}
    client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})


def finish(client: Client) -> list[dict[str, Any]]:
    """Hang up; everything the server sent."""
    assert client.close() == 0
    return [json.loads(line) for line in client.raw_lines]


def ask(lines: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Pipe lines into a server and let it end."""
    command = [sys.executable, "-m", "llmc_mcp.server", *arguments]
    return subprocess.run(command, input=lines, capture_output=True, check=False, timeout=PATIENCE)


# --- the official client -------------------------------------------------------------------------------


def with_sdk(root: Path, era: str, body: Any) -> None:
    async def main() -> None:
        parameters = StdioServerParameters(
            command=sys.executable,
            args=["-m", "llmc_mcp.server", "--root", str(root)],
            env=dict(os.environ),
        )
        with open(os.devnull, "w") as log:
            async with SdkClient(stdio_client(parameters, errlog=log), mode=era) as client:
                await body(client)

    anyio.run(main)


@pytest.mark.parametrize("era", ERAS)
def test_the_sdk_lists_and_calls_in_every_era(workspace: Workspace, era: str) -> None:
    workspace.file("a.txt", "hello\nworld\n")

    async def body(client: SdkClient) -> None:
        listed = await client.list_tools()
        assert "read_file" in [tool.name for tool in listed.tools]
        if era in ("legacy", "auto"):  # a client pinned to a version asks for nothing
            assert client.server_info is not None
            assert client.server_info.name == "llmc-mcp"
        assert client.protocol_version == ("2025-11-25" if era == "legacy" else "2026-07-28")

        good = await client.call_tool("read_file", {"path": "a.txt"})
        assert good.is_error is False
        assert isinstance(good.content[0], TextContent)
        assert good.content[0].text.endswith("\nhello\nworld\n")

        bad = await client.call_tool("read_file", {"path": "missing"})
        assert bad.is_error is True
        assert isinstance(bad.content[0], TextContent)
        assert json.loads(bad.content[0].text)["code"] == "NOT_FOUND"

    with_sdk(workspace.root, era, body)


@pytest.mark.parametrize("era", ERAS)
def test_the_sdk_may_call_many_tools_at_once(workspace: Workspace, era: str) -> None:
    for number in range(30):
        workspace.file(f"{number}.txt", f"content {number}\n")
    texts: dict[int, str] = {}

    async def body(client: SdkClient) -> None:
        async def read(number: int) -> None:
            result = await client.call_tool("read_file", {"path": f"{number}.txt"})
            assert isinstance(result.content[0], TextContent)
            texts[number] = result.content[0].text.split("\n")[1]

        async with anyio.create_task_group() as group:
            for number in range(30):
                group.start_soon(read, number)

    with_sdk(workspace.root, era, body)
    assert texts == {number: f"content {number}" for number in range(30)}


def test_the_sdk_gets_progress(workspace: Workspace, endless: dict[str, Any]) -> None:
    told: list[float] = []

    async def body(client: SdkClient) -> None:
        with anyio.CancelScope() as scope:

            async def heard(progress: float, total: float | None, message: str | None) -> None:
                told.append(progress)
                if len(told) == 2:
                    scope.cancel()

            await client.call_tool("read_file", endless, progress_callback=heard)
        assert (await client.call_tool("list_dir", {"path": "."})).is_error is False

    with_sdk(workspace.root, "legacy", body)
    assert 0 < told[0] < told[1]


# --- handshakes ------------------------------------------------------------------------------------------


def initialize(client: Client, version: object) -> dict[str, Any]:
    info = {"name": "test", "version": "1"}
    return client.request("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": info})


def test_every_handshake_version_is_agreed_on(server: Client) -> None:
    for version in HANDSHAKE_PROTOCOL_VERSIONS:
        result = initialize(server, version)["result"]
        assert result["protocolVersion"] == version
        assert result["serverInfo"]["name"] == "llmc-mcp"
        assert "tools" in result["capabilities"]


@pytest.mark.parametrize("version", ["2099-01-01", "1.0", "", "2026-07-28"])
def test_a_version_unknown_to_the_handshake_is_answered_with_our_newest(server: Client, version: str) -> None:
    assert initialize(server, version)["result"]["protocolVersion"] == HANDSHAKE_PROTOCOL_VERSIONS[-1]


def test_a_handshake_without_a_version_is_refused(server: Client) -> None:
    assert initialize(server, None)["error"]["code"] == -32602


def test_instructions_name_the_roots(server: Client, workspace: Workspace) -> None:
    assert str(workspace.root) in initialize(server, "2025-11-25")["result"]["instructions"]


def test_no_handshake_is_needed(server: Client, workspace: Workspace) -> None:
    workspace.file("a.txt", "x\n")
    assert server.call("read_file", path="a.txt").body == "x\n"
    assert server.tools()


def test_a_stateless_client_discovers_and_gets_complete_results(server: Client, workspace: Workspace) -> None:
    found = server.request("server/discover", {"_meta": STATELESS})["result"]
    assert set(found["supportedVersions"]) == {*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS}
    assert found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "llmc-mcp"
    listed = server.request("tools/list", {"_meta": STATELESS})["result"]
    assert listed["resultType"] == "complete"
    assert listed["ttlMs"] > 0
    assert listed["tools"] == server.tools()
    called = server.request("tools/call", {"name": "list_dir", "arguments": {"path": "."}, "_meta": STATELESS})
    assert called["result"]["resultType"] == "complete"


def test_both_eras_may_be_mixed_request_by_request(server: Client) -> None:
    initialize(server, "2025-06-18")
    assert "resultType" in server.request("tools/list", {"_meta": STATELESS})["result"]
    assert "resultType" not in server.request("tools/list")["result"]


def test_an_unknown_stateless_version_is_refused_with_the_known_ones(server: Client) -> None:
    meta = {**STATELESS, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}
    error = server.request("tools/list", {"_meta": meta})["error"]
    assert error["code"] == -32022
    assert error["data"] == {"supported": ["2026-07-28"], "requested": "2099-01-01"}


def test_each_era_has_its_own_methods(server: Client) -> None:
    assert server.request("ping")["result"] == {}
    for method in ("ping", "initialize"):
        assert server.request(method, {"_meta": STATELESS})["error"]["code"] == -32601
    assert server.request("server/discover")["error"]["code"] == -32601


@pytest.mark.parametrize("missing", ["io.modelcontextprotocol/clientCapabilities"])
def test_half_an_envelope_is_refused(server: Client, missing: str) -> None:
    meta = {key: value for key, value in STATELESS.items() if key != missing}
    assert server.request("tools/list", {"_meta": meta})["error"]["code"] == -32602


# --- messages that are wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", -32700),
        (b"\xff\xfe", -32700),
        (b"[" * 100_000, -32700),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
        (b'"ping"', -32600),
        (b'{"jsonrpc":"2.0","id":1}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"no/such"}', -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}}', -32602),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_wrong_message_is_an_error_and_the_conversation_goes_on(server: Client, line: bytes, code: int) -> None:
    server.send_raw(line + b"\n")
    reply = server.messages.get(timeout=PATIENCE)
    assert reply is not None
    assert reply["error"]["code"] == code
    assert server.request("ping")["result"] == {}


def test_what_needs_no_answer_gets_none(workspace: Workspace) -> None:
    client = Client("--root", str(workspace.root))
    for line in (
        b"",
        b"   ",
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
        b'{"jsonrpc":"2.0","method":"notifications/no-such","params":[1]}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}',
        b'{"jsonrpc":"2.0","id":5,"result":{}}',
    ):
        client.send_raw(line + b"\n")
    assert client.request("ping")["result"] == {}
    assert len(finish(client)) == 1


def test_a_message_over_the_limit_is_refused_and_the_next_one_answered(server: Client) -> None:
    server.send_raw(b'{"x":"' + b"y" * Limits().max_request_bytes + b'"}\n')
    reply = server.messages.get(timeout=PATIENCE)
    assert reply is not None
    assert (reply["id"], reply["error"]["code"]) == (None, -32600)
    assert server.request("ping")["result"] == {}


def test_a_message_may_come_in_pieces(server: Client) -> None:
    for byte in b'{"jsonrpc":"2.0","id":"in pieces","method":"ping"}\r\n':
        server.send_raw(bytes([byte]))
    assert server.wait("in pieces")["result"] == {}


# --- many calls at once ----------------------------------------------------------------------------------


def test_calls_are_answered_while_others_are_still_at_work(
    server: Client, workspace: Workspace, endless: dict[str, Any]
) -> None:
    workspace.file("a.txt", "x\n")
    busy = keep_busy(server, endless, Limits().workers - 1)
    quick = [server.start_call("read_file", {"path": "a.txt"}) for _ in range(50)]
    assert all(Reply(server.wait(request)["result"]).body == "x\n" for request in quick)
    for request in busy:
        cancel(server, request)
    assert {message["id"] for message in finish(server) if "id" in message} == set(quick)


def test_every_call_of_a_crowd_gets_its_own_answer(server: Client, workspace: Workspace) -> None:
    for number in range(40):
        workspace.file(f"{number}.txt", f"content {number}\n")
    requests = {server.start_call("read_file", {"path": f"{number % 40}.txt"}): number % 40 for number in range(400)}
    for request, number in requests.items():
        assert Reply(server.wait(request)["result"]).body == f"content {number}\n"


def test_searches_overlap_on_one_engine(server: Client, workspace: Workspace) -> None:
    for number in range(20):
        workspace.file(f"{number}.txt", f"needle-{number}-end\n")
    requests = {
        server.start_call("linux_search_content", {"root": ".", "pattern": f"needle-{number}-"}): number
        for number in range(20)
    }
    for request, number in requests.items():
        rev = revision_of(f"needle-{number}-end\n".encode())
        assert Reply(server.wait(request)["result"]).body == f"{number}.txt rev={rev}\n1:needle-{number}-end"


def test_an_id_under_way_cannot_be_used_twice(server: Client, endless: dict[str, Any]) -> None:
    request = start_endless(server, endless)
    server.send({"jsonrpc": "2.0", "id": request, "method": "ping"})
    assert server.wait(request)["error"]["code"] == -32600
    cancel(server, request)


def test_too_many_calls_are_refused_one_by_one(server: Client, endless: dict[str, Any]) -> None:
    limits = Limits()
    busy = keep_busy(server, endless, limits.workers)
    queued = [server.start_call("stat", {"path": "."}) for _ in range(limits.max_queued_calls - limits.workers)]
    refused = server.start_call("stat", {"path": "."})
    assert server.wait(refused)["error"]["code"] == -32000
    for request in busy:
        cancel(server, request)
    assert all("result" in server.wait(request) for request in queued)


# --- taking a call back, hearing of it --------------------------------------------------------------------


def test_a_cancelled_call_gets_no_reply_and_the_server_goes_on(server: Client, endless: dict[str, Any]) -> None:
    request = start_endless(server, endless)
    cancel(server, request)
    after = server.start_call("list_dir", {"path": "."})
    assert Reply(server.wait(after)["result"]).is_error is False
    assert [message["id"] for message in finish(server) if "id" in message] == [after]
    assert '"status":"CANCELLED"' in server.log


def test_a_cancelled_search_is_ended_and_gets_no_reply(server: Client, endless: dict[str, Any]) -> None:
    arguments = {"root": endless["path"], "pattern": "nothing like it"}
    request = server.start_call("linux_search_content", arguments, {"progressToken": "s"})
    wait_for_progress(server, "s")
    (launcher,) = children_of(server.process.pid)
    (searcher,) = children_of(launcher)
    watch = os.pidfd_open(searcher)
    cancel(server, request)
    assert select.select([watch], [], [], PATIENCE)[0], "the search is still running"
    os.close(watch)
    assert server.request("ping")["result"] == {}
    assert request not in [message.get("id") for message in finish(server)]


def test_a_call_cancelled_while_it_waits_for_a_worker_is_never_answered(
    server: Client, endless: dict[str, Any]
) -> None:
    busy = keep_busy(server, endless, Limits().workers)
    waiting = server.start_call("list_dir", {"path": "."})
    cancel(server, waiting)
    for request in busy:
        cancel(server, request)
    last = server.start_call("list_dir", {"path": "."})
    server.wait(last)
    assert [message["id"] for message in finish(server) if "id" in message] == [last]


@pytest.mark.parametrize("token", ["a token", 7, 0])
def test_progress_carries_the_token_and_grows(server: Client, endless: dict[str, Any], token: str | int) -> None:
    request = server.start_call("read_file", endless, {"progressToken": token})
    while len(server.notifications) < 2:
        message = server.messages.get(timeout=PATIENCE)
        assert message is not None
        server.notifications.append(message)
    cancel(server, request)
    assert {message["method"] for message in server.notifications} == {"notifications/progress"}
    assert {message["params"]["progressToken"] for message in server.notifications} == {token}
    first, second = [message["params"]["progress"] for message in server.notifications[:2]]
    assert 0 < first < second


def test_without_a_token_nothing_is_told(server: Client, endless: dict[str, Any]) -> None:
    silent = server.start_call("read_file", endless)
    other = start_endless(server, endless, "other")
    wait_for_progress(server, "other", 2)
    cancel(server, silent)
    cancel(server, other)
    messages = finish(server)
    assert {message["params"]["progressToken"] for message in messages if "params" in message} == {"other"}


# --- the streams -------------------------------------------------------------------------------------------

NOISY_SERVER = """
import os, subprocess, sys
from llmc_mcp.context import Context
from llmc_mcp.server import main
from llmc_mcp.tool import Result, tool

class Done(Result):
    stdin: str

@tool("Make noise", read_only=True)
def noise(ctx: Context) -> Done:
    print("printed", flush=True)
    sys.stdout.write("written\\n")
    os.write(1, b"raw\\n")
    subprocess.run(["sh", "-c", "echo from a child"])
    return Done(sys.stdin.read())

main()
"""


def test_only_protocol_reaches_stdout_whatever_a_tool_prints(workspace: Workspace) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "noise"}}
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    done = subprocess.run(
        [sys.executable, "-c", NOISY_SERVER, "--root", str(workspace.root)],
        input=f"{json.dumps(call)}\n{json.dumps(ping)}\n".encode(),
        capture_output=True,
        check=True,
        timeout=PATIENCE,
    )
    replies = {reply["id"]: reply for reply in map(json.loads, done.stdout.splitlines())}
    assert json.loads(replies[1]["result"]["content"][0]["text"]) == {"stdin": ""}
    assert replies[2]["result"] == {}
    for noise in (b"printed", b"written", b"raw", b"from a child"):
        assert noise in done.stderr
        assert noise not in done.stdout


PANICKING_SERVER = """
import sys
from llmc_mcp.context import Context
from llmc_mcp.server import main
from llmc_mcp.tool import Result, tool

class Panic(BaseException):
    pass  # as PyO3 raises where Rust panics: not an Exception

@tool("Panic", read_only=True)
def panic(ctx: Context) -> Result:
    raise Panic("index out of bounds")

@tool("Leave", read_only=True)
def leave(ctx: Context) -> Result:
    sys.exit(3)

main()
"""


def test_no_exception_of_a_tool_ends_a_worker(workspace: Workspace) -> None:
    workspace.file("a.txt", "still here\n")
    calls: list[dict[str, Any]] = [{"name": name} for name in ("panic", "leave") for _ in range(12)]
    calls.append({"name": "read_file", "arguments": {"path": "a.txt"}})
    requests = [
        {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        for number, params in enumerate(calls)
    ]
    done = subprocess.run(
        [sys.executable, "-c", PANICKING_SERVER, "--root", str(workspace.root)],
        input="".join(f"{json.dumps(request)}\n" for request in requests).encode(),
        capture_output=True,
        check=True,
        timeout=PATIENCE,
    )
    replies = {reply["id"]: reply["result"] for reply in map(json.loads, done.stdout.splitlines())}
    assert sorted(replies) == list(range(len(calls)))
    last = replies.pop(len(calls) - 1)
    assert "still here" in last["content"][0]["text"]
    assert all(json.loads(result["content"][0]["text"])["code"] == "INTERNAL" for result in replies.values())


def test_at_the_end_of_input_every_reply_is_finished(workspace: Workspace) -> None:
    workspace.file("a.txt", "needle\n" * 2_000)
    lines = b"".join(
        json.dumps(
            {
                "jsonrpc": "2.0",
                "id": number,
                "method": "tools/call",
                "params": {"name": "linux_search_content", "arguments": {"root": ".", "pattern": "needle"}}
                if number % 5 == 0
                else {"name": "read_file", "arguments": {"path": "a.txt"}},
            }
        ).encode()
        + b"\n"
        for number in range(60)
    )
    done = ask(lines.rstrip(b"\n"), "--root", str(workspace.root))  # the last line lacks its end
    replies = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(reply["id"] for reply in replies) == list(range(60))
    assert all(reply["result"]["isError"] is False for reply in replies)
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"jsonrpc":"2.0","method":"tools/list","id":1}', '"read_file"'),
        ('{"jsonrpc":"2.0","method":"ping","id":1}', '"result":{}'),
        (
            '{"jsonrpc":"2.0","method":"tools/call","params":{"name":"linux.fs_read","arguments":{"path":"a.txt"}},"id":1}',
            "hello",
        ),
    ],
)
def test_a_single_piped_line_is_answered(workspace: Workspace, line: str, expected: str) -> None:
    workspace.file("a.txt", "hello\n")
    done = subprocess.run(
        f"echo '{line}' | {sys.executable} -m llmc_mcp.server",
        shell=True,
        cwd=workspace.root,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    (reply,) = done.stdout.splitlines()
    assert json.loads(reply)["id"] == 1
    assert expected in reply


# --- leaving -----------------------------------------------------------------------------------------------


@pytest.fixture
def mute(workspace: Workspace) -> Iterator[subprocess.Popen[bytes]]:
    """A server whose replies nobody reads."""
    command = [sys.executable, "-m", "llmc_mcp.server", "--root", str(workspace.root), "--log-level", "error"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    yield process
    if process.poll() is None:
        process.kill()
    process.wait()
    assert process.stdin
    assert process.stdout
    process.stdin.close()
    process.stdout.close()


def test_a_client_that_goes_away_without_reading_does_not_keep_the_server(mute: subprocess.Popen[bytes]) -> None:
    assert mute.stdin
    assert mute.stdout
    mute.stdout.close()
    for number in range(5):
        mute.stdin.write(b'{"jsonrpc":"2.0","id":%d,"method":"tools/list"}\n' % number)
    mute.stdin.close()
    assert mute.wait(PATIENCE) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_server(server: Client, number: signal.Signals) -> None:
    server.request("ping")
    server.process.send_signal(number)
    assert server.process.wait(PATIENCE) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_server_at_work(server: Client, endless: dict[str, Any], number: signal.Signals) -> None:
    start_endless(server, endless)
    server.process.send_signal(number)
    assert server.process.wait(PATIENCE) == 0


def test_a_signal_ends_a_server_whose_replies_nobody_reads(workspace: Workspace, mute: subprocess.Popen[bytes]) -> None:
    workspace.file("a.txt", "x" * 100 + "\n" * 200)
    call = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "read_file", "arguments": {"path": "a.txt"}}}
    assert mute.stdin
    assert mute.stdout
    for number in range(900):
        mute.stdin.write(json.dumps({**call, "id": number}).encode() + b"\n")
    assert select.select([mute.stdout], [], [], PATIENCE)[0]  # it has begun to answer, into a pipe that fills up
    wait_until_asleep(mute.pid)
    mute.send_signal(signal.SIGTERM)
    assert mute.wait(PATIENCE) == 0


def wait_until_asleep(pid: int) -> None:
    """Until no thread of a process runs any more: whatever it could do, it has done."""
    quiet = 0
    while quiet < 50:
        quiet = quiet + 1 if set(thread_states(pid)) == {"S"} else 0


def thread_states(pid: int) -> Iterator[str]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            yield (task / "stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            yield "ended"  # between the listing and the look


def test_nothing_is_left_when_a_server_leaves(server: Client, workspace: Workspace) -> None:
    workspace.file("a.txt", "needle\n")
    server.call("linux_search_content", root=".", pattern="needle")
    watches = [os.pidfd_open(pid) for pid in children_of(server.process.pid)]
    assert len(watches) == 1
    server.process.terminate()
    assert server.process.wait(PATIENCE) == 0
    for watch in watches:
        assert select.select([watch], [], [], PATIENCE)[0], "the launcher is still alive"
        os.close(watch)


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["--help"], 0, b"usage: llmc-mcp"),
        (["--version"], 0, b"llmc-mcp "),
        (["--nonsense"], 2, b"--nonsense"),
        (["--root"], 2, b"--root needs a value"),
        (["--root", "/no/such/folder"], 2, b"/no/such/folder"),
    ],
)
def test_the_command_line_says_what_it_does_not_understand(arguments: list[str], code: int, expected: bytes) -> None:
    done = ask(b"", *arguments)
    assert done.returncode == code
    assert expected in (done.stdout if code == 0 else done.stderr)
    assert b"Traceback" not in done.stderr
