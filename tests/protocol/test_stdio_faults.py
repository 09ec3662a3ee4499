"""A server on pipes when something around it fails: its client goes, a file system hangs, threads are scarce."""

import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llmc_mcp.config.schema import Limits
from llmc_mcp.errors import Timeout
from llmc_mcp.protocol.methods import Methods, ProtocolError, Request
from llmc_mcp.protocol.oversized import IdScanner
from llmc_mcp.session import Session

from ..support.client import PATIENCE, Client, Reply
from ..support.gates import gate_on
from ..support.hung_mount import CONTENT, HangingMount, can_mount, hanging_mount
from ..support.processes import processes_below
from ..support.signals import obeying_hang_ups
from ..support.workspace import Workspace, require

COMMAND = [sys.executable, "-m", "llmc_mcp.server", "--log-level", "error", "--root"]


def call(number: int, name: str, **arguments: Any) -> bytes:
    params = {"name": name, "arguments": arguments}
    request = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    return json.dumps(request).encode() + b"\n"


def until(condition: Callable[[], bool], still: Callable[[], bool]) -> None:
    """Wait for a condition while another holds; whatever hangs is ended by the test's own time limit."""
    while not condition():
        assert still()
        time.sleep(0.01)


# --- a client that is gone ---------------------------------------------------------------------------------


@pytest.fixture
def sleeper(workspace: Workspace) -> str:
    """A command that says that it runs, and then waits far longer than any test runs."""
    return f"bash -c 'echo > {workspace.root}/runs; exec sleep 1000'"


def command_of(server: "subprocess.Popen[bytes]", workspace: Workspace) -> int:
    """A pidfd of the running command."""
    until((workspace.root / "runs").exists, lambda: server.poll() is None)
    found: list[int] = []

    def is_there() -> bool:
        found[:] = [pid for pid in processes_below(server.pid) if _words(pid)[:1] == [b"sleep"]]
        return bool(found)

    until(is_there, lambda: server.poll() is None)
    return os.pidfd_open(found[0])


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


@pytest.mark.parametrize("stream", ["pipe", "socket"])
@pytest.mark.parametrize("first", ["stdin", "stdout"])
def test_a_command_ends_when_nobody_reads_the_server_any_more(
    workspace: Workspace, sleeper: str, stream: str, first: str
) -> None:
    ours: Any
    if stream == "pipe":
        server = subprocess.Popen([*COMMAND, str(workspace.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        ours = server.stdout
    else:  # as node connects its children
        ours, theirs = socket.socketpair()
        server = subprocess.Popen([*COMMAND, str(workspace.root)], stdin=subprocess.PIPE, stdout=theirs.fileno())
        theirs.close()
    assert server.stdin
    try:
        server.stdin.write(call(1, "run_cmd", command=sleeper, timeout=900))
        server.stdin.flush()
        watch = command_of(server, workspace)
        if first == "stdin":
            server.stdin.close()
        ours.close()
        assert select.select([watch], [], [], PATIENCE)[0], "the command still runs"
        os.close(watch)
        assert server.wait(PATIENCE) == 0
    finally:
        server.kill()
        server.wait()
        server.stdin.close()
        ours.close()


def test_at_the_end_of_input_a_command_goes_on_while_somebody_reads(workspace: Workspace) -> None:
    os.mkfifo(workspace.root / "go")
    command = "bash -c 'echo > runs; cat go; echo done'"
    server = subprocess.Popen([*COMMAND, str(workspace.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin
    assert server.stdout
    with server:
        server.stdin.write(call(1, "run_cmd", command=command, timeout=60))
        server.stdin.close()
        until((workspace.root / "runs").exists, lambda: server.poll() is None)
        (workspace.root / "go").write_text("went on\n")
        reply = Reply(json.loads(server.stdout.readline())["result"])
        assert reply.body == "went on\ndone\n"
        assert server.wait(PATIENCE) == 0


# --- signals -----------------------------------------------------------------------------------------------


def test_a_hang_up_drains_the_server_as_other_signals_do(workspace: Workspace, sleeper: str) -> None:
    with obeying_hang_ups():
        started = Client("--root", str(workspace.root))
    with started as client:
        client.start_call("run_cmd", {"command": sleeper, "timeout": 900})
        watch = command_of(client.process, workspace)
        client.process.send_signal(signal.SIGHUP)
        assert client.process.wait(PATIENCE) == 0
        assert select.select([watch], [], [], PATIENCE)[0]
        os.close(watch)
        client.close()
    assert '"status":"CANCELLED"' in client.log


def test_a_server_that_is_to_outlive_its_terminal_does(workspace: Workspace) -> None:
    nohup = ["bash", "-c", 'trap "" HUP; exec "$@"', "nohup", *COMMAND, str(workspace.root)]
    with subprocess.Popen(nohup, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin
        assert server.stdout
        ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
        for _ in range(2):
            server.stdin.write(ping)
            server.stdin.flush()
            assert json.loads(server.stdout.readline())["result"] == {}
            server.send_signal(signal.SIGHUP)
        server.stdin.close()
        assert server.wait(PATIENCE) == 0


# --- messages that are too long ------------------------------------------------------------------------------

TOO_LONG = "y" * Limits().max_request_bytes


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ('{"id": 7, "method": "x", "params": {"id": 1, "text": "%s"}}', 7),
        ('{"method": "x", "params": {"id": 1, "text": "%s"}, "id": "last"}', "last"),
        ('{"params": {"text": "%s", "more": [{"id": 3}, "\\"id\\": 4, "]}, "\\u0069d": "q\\"}"}', 'q"}'),
        ('{"params": {"id": 1, "text": "%s"}}', None),
        ('[{"id": 1}, "%s", {"id": 2}]', None),
        ('{"params": "%s", "id": {"id": 5}}', None),
        ('{"params": "%s", "id": true}', None),
        ('{"params": "%s", "id": 5', None),
    ],
)
def test_the_answer_to_a_message_over_the_limit_has_its_id(
    server: Client, message: str, expected: str | int | None
) -> None:
    server.send_raw(message.replace("%s", TOO_LONG).encode() + b"\n")
    reply = server.wait(expected)
    assert reply["error"]["code"] == -32600
    assert server.request("ping")["result"] == {}


def test_an_id_is_found_however_a_message_is_cut_into_pieces() -> None:
    message = b'{"a": ["\\\\", {"id": 1}, "\\"id\\":2"], "\\\\": "\\\\\\"", "id" : "\\\\x\\"" , "b": {}}'
    for size in range(1, len(message) + 1):
        scanner = IdScanner()
        for start in range(0, len(message), size):
            scanner.feed(message[start : start + size])
        assert scanner.found() == json.loads(message)["id"], size


# --- a file system that does not answer ---------------------------------------------------------------------


@pytest.fixture
def impatient(workspace: Workspace, mount: HangingMount) -> Iterator[Client]:
    """A server whose calls have little time, on a workspace with a mount that is about to hang."""
    settings = ("--set", "tools.read_timeout=1", "--set", "limits.workers=8")
    with Client("--root", str(workspace.root), *settings) as client:
        workspace.file("a.txt", "at hand\n")
        try:
            assert client.call("read_file", path="hung/there.txt").body.encode() == CONTENT
            yield client
        finally:
            mount.end()  # or the server can't leave


def test_a_call_into_a_hung_mount_times_out_and_leaves_the_server_at_work(
    impatient: Client, mount: HangingMount
) -> None:
    mount.hang()
    lost = [impatient.start_call("stat", {"path": "hung/there.txt"}) for _ in range(3)]
    replies = [Reply(impatient.wait(request)["result"]) for request in lost]
    assert {reply.code for reply in replies} == {"TIMEOUT"}
    assert all("file system" in reply.meta["hint"] for reply in replies)
    assert impatient.call("read_file", path="a.txt").body == "at hand\n"
    mount.end()
    assert impatient.call("read_file", path="a.txt").body == "at hand\n"


def test_when_too_many_calls_hang_the_next_is_refused_and_once_they_are_back_it_is_served(
    impatient: Client, mount: HangingMount
) -> None:
    mount.hang()
    codes: set[str] = set()
    while "RESOURCE_BUSY" not in codes:
        hung = [impatient.start_call("stat", {"path": "hung/there.txt"}) for _ in range(20)]
        codes |= {Reply(impatient.wait(request)["result"]).code for request in hung}
    assert codes == {"TIMEOUT", "RESOURCE_BUSY"}
    refused = impatient.call("read_file", path="a.txt")
    assert (refused.code, bool(refused.meta["hint"])) == ("RESOURCE_BUSY", True)
    assert impatient.call("run_cmd", command="true").code == ""  # in the other lane
    mount.end()
    until(lambda: not impatient.call("read_file", path="a.txt").is_error, lambda: impatient.process.poll() is None)


def test_a_command_that_hangs_in_a_mount_is_given_up_at_its_timeout(impatient: Client, mount: HangingMount) -> None:
    assert impatient.call("run_cmd", command="true").code == ""
    mount.hang()
    reply = impatient.call("run_cmd", command="cat hung/there.txt", timeout=1)
    assert reply.code == "TIMEOUT"
    assert impatient.call("run_cmd", command="cat a.txt").body == "at hand\n"


def test_a_command_in_one_root_does_not_wait_for_another_that_hangs(workspace: Workspace, tmp_path: Path) -> None:
    require(can_mount(), "root that may make mounts")
    workspace.file("a.txt", "at hand\n")
    roots = ("--root", str(workspace.root), "--root", str(tmp_path / "other"))
    with hanging_mount(tmp_path / "other") as mount, Client(*roots) as client:
        there = client.call("run_cmd", command=["cat", f"{mount.folder}/there.txt"])
        assert there.body.encode() == CONTENT
        try:
            mount.hang()
            reply = client.call("run_cmd", command="cat a.txt")
        finally:
            mount.end()
        assert reply.body == "at hand\n"
        assert f"{mount.folder} does not answer" in str(reply.meta["warnings"])


def test_a_server_with_calls_that_hang_ends_at_the_end_of_input(
    workspace: Workspace, mount: HangingMount, impatient: Client
) -> None:
    mount.hang()
    lost = impatient.start_call("stat", {"path": "hung/there.txt"})
    assert impatient.process.stdin
    impatient.process.stdin.close()
    assert Reply(impatient.wait(lost)["result"]).code == "TIMEOUT"
    until(lambda: _state(impatient.process.pid) == "Z", lambda: True)  # its hung thread is the kernel's to end
    mount.end()
    assert impatient.process.wait(PATIENCE) == 0


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_request_other_than_a_call_fails_with_a_protocol_error(workspace: Workspace) -> None:
    with gate_on(workspace.root) as gate:
        request = Request("resources/read", {}, Session("uid:0", "s"), lambda _: None, lambda _: None, "the-cid")
        with pytest.raises(ProtocolError) as caught:
            Methods(gate).give_up(request, None, Timeout("took too long"))
    assert caught.value.data == {"code": "TIMEOUT", "message": "took too long", "correlation_id": "the-cid"}


# --- lanes -------------------------------------------------------------------------------------------------


def test_commands_that_take_long_never_keep_a_file_tool_waiting(server: Client, workspace: Workspace) -> None:
    workspace.file("a.txt", "at hand\n")
    os.mkfifo(workspace.root / "go")
    workers = Limits().workers
    slow = [
        server.start_call("run_cmd", {"command": f"bash -c 'echo > runs{number}; cat go'", "timeout": 60})
        for number in range(workers + 2)
    ]
    until(lambda: len(list(workspace.root.glob("runs*"))) == workers, lambda: server.process.poll() is None)
    assert server.call("read_file", path="a.txt").body == "at hand\n"
    assert server.call("stat", path="a.txt").code == ""
    for request in slow:
        server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request}})


# --- scarcity ------------------------------------------------------------------------------------------------

SCARCE_SERVER = """
import threading
from llmc_mcp.context import Context
from llmc_mcp.server import main
from llmc_mcp.tool import Result, tool

@tool("Let no thread start, or let them again", read_only=True)
def threads(ctx: Context, scarce: bool) -> Result:
    threading.stack_size(1 << 46 if scarce else 0)  # no thread can have that much
    return Result()

main()
"""


def test_a_server_without_threads_serves_with_those_it_has_and_recovers(workspace: Workspace) -> None:
    workspace.file("a.txt", "at hand\n")
    server = subprocess.Popen(
        [sys.executable, "-c", SCARCE_SERVER, "--root", str(workspace.root), "--log-level", "error"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdin
    assert server.stdout

    def ask(*requests: bytes) -> dict[int, Reply]:
        assert server.stdin
        assert server.stdout
        server.stdin.write(b"".join(requests))
        server.stdin.flush()
        replies = (json.loads(server.stdout.readline()) for _ in requests)
        return {reply["id"]: Reply(reply["result"]) for reply in replies}

    with server:
        assert ask(call(1, "threads", scarce=True))[1].code == ""
        crowd = ask(*(call(number, "read_file", path="a.txt") for number in range(20)))
        assert all("at hand" in reply.text for reply in crowd.values())
        starved = ask(call(1, "run_cmd", command="true"))[1]
        assert starved.code == "RESOURCE_BUSY"
        assert ask(call(1, "threads", scarce=False))[1].code == ""
        assert ask(call(1, "run_cmd", command="true"))[1].code == ""
        assert ask(call(1, "execute_code", code="1 + 1"))[1].code == ""
        server.stdin.close()
        assert server.wait(PATIENCE) == 0


def test_a_server_that_was_short_of_descriptors_works_again_afterwards(server: Client, workspace: Workspace) -> None:
    workspace.file("a.txt", "at hand\n")
    pid = server.process.pid
    assert server.request("ping")["result"] == {}
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("execute_code", {"code": "1 + 1"}),
        ("run_cmd", {"command": "true"}),
        ("linux_search_content", {"root": ".", "pattern": "hand"}),
        ("read_file", {"path": "a.txt"}),
    ]
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")), limits[1]))
    for name, arguments in calls * 3:
        assert server.call(name, **arguments).is_error
    resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    for name, arguments in calls:
        assert server.call(name, **arguments).code == "", name
