"""execute_code: every tool as a function, and only the answer costs tokens."""

import json
from pathlib import Path
from typing import cast

import pytest

from llmc_mcp.config.schema import Config
from llmc_mcp.errors import IsolationRequired

from ..support.client import Client
from ..support.gates import gate_on, text_of
from ..support.python_runs import interpreters
from ..support.workspace import Workspace


def value(server: Client, code: str) -> object:
    reply = server.call("execute_code", code=code)
    assert "error" not in reply.meta, reply.text
    return reply.meta.get("result")


def error(server: Client, code: str) -> dict[str, object]:
    return server.call("execute_code", code=code).meta["error"]


def test_tools_are_functions_with_their_own_names_and_arguments(workspace: Workspace, server: Client) -> None:
    workspace.file("a.txt", "one\ntwo\n")
    assert value(server, "read_file('a.txt')['data']") == "one\ntwo\n"
    assert value(server, "read_file(path='a.txt', offset_lines=-1)['data']") == "two\n"
    assert value(server, "read_file('a.txt', 1, max_lines=1)['meta']['total_lines']") == 2
    assert value(server, "'LLMC' in init()['text']") is True


def test_tools_that_the_mode_does_not_list_are_there_too(workspace: Workspace, server: Client) -> None:
    workspace.file("deep/needle.txt")
    listed = {tool["name"] for tool in server.tools()}
    assert "linux_search_files" not in listed
    assert value(server, "[hit['path'] for hit in linux_search_files('.', 'needle')['hits']]") == [
        str(workspace.root / "deep/needle.txt")
    ]


def test_a_loop_over_many_files_answers_with_the_answer_alone(workspace: Workspace, server: Client) -> None:
    for number in range(30):
        workspace.file(f"file{number}.txt", "word other\n" * 200)
    reply = server.call(
        "execute_code",
        code="total = 0\nfor name in list_dir('.')['data']:\n    total += read_file(name)['data'].count('word')\ntotal",
    )
    assert reply.meta["result"] == 6000
    assert reply.meta["tool_calls"] == 31
    assert len(reply.text) < 200


def test_results_inside_code_are_not_cut_to_the_size_of_a_reply(workspace: Workspace, server: Client) -> None:
    workspace.file("long.txt", "x" * 79 + "\n" + "0123456789\n" * 1999)
    assert value(server, "len(read_file('long.txt')['data'])") == 80 + 11 * 1999


def test_a_read_in_code_is_whole(workspace: Workspace, server: Client) -> None:
    workspace.file("numbers.txt", "".join(f"{number}\n" for number in range(300_001)))
    reply = server.call("execute_code", code="sum(int(line) for line in read_file('numbers.txt')['data'].split())")
    assert reply.meta["result"] == sum(range(300_001))
    assert "warnings" not in reply.meta
    workspace.file("wide.txt", "x" * 50_000 + "\n")
    assert value(server, "len(linux_fs_read('wide.txt')['content'])") == 50_001
    assert value(server, "[len(f['content']) for f in linux_fs_read_many(['wide.txt'])['files']]") == [50_001]


def test_a_result_that_was_cut_is_warned_of(workspace: Workspace) -> None:
    workspace.file("long.txt", "0123456789\n" * 10_000)
    for number in range(120):
        workspace.file(f"many/{number}.txt", "needle\n")
    with Client("--root", str(workspace.root), "--set", "limits.code_result_bytes=20000") as client:
        reply = client.call("execute_code", code="r = read_file('long.txt')\nr['meta']['truncated'], len(r['data'])")
        assert reply.meta["result"][0] is True
        assert "read_file" in reply.meta["warnings"][0]
        (warning,) = client.call("execute_code", code="len(linux_search_content('.', 'needle')['hits'])").meta[
            "warnings"
        ]
        assert "linux_search_content" in warning


def test_a_part_that_was_asked_for_is_no_reason_to_warn(workspace: Workspace, server: Client) -> None:
    workspace.file("long.txt", "0123456789\n" * 10_000)
    reply = server.call("execute_code", code="len(read_file('long.txt', max_lines=3)['data'])")
    assert reply.meta["result"] == 33
    assert "warnings" not in reply.meta


def test_a_tools_result_as_the_last_expression_reads_like_the_tools_own_reply(
    workspace: Workspace, server: Client
) -> None:
    workspace.file("a.txt", "one needle\ntwo\n")
    lone = server.call("linux_search_content", root=".", pattern="needle")
    reply = server.call("execute_code", code="linux_search_content('.', 'needle')")
    assert reply.body == lone.text
    assert reply.meta["result"] == "below"
    printed = server.call("execute_code", code="print('first')\nlinux_search_content('.', 'needle')")
    assert printed.body == f"first\n{lone.text}"
    changed = server.call("execute_code", code="r = linux_search_content('.', 'needle')\nr['total_hits'] = 9\nr")
    assert changed.meta["result"]["total_hits"] == 9


def test_results_always_say_whether_they_are_a_part(workspace: Workspace, server: Client) -> None:
    workspace.file("a.py", "def needle():\n    pass\n")
    assert value(server, "tool = linux_search_content('.', 'needle')\ntool['truncated']") is False
    assert value(server, "run_cmd('true')['meta']['truncated']") is False


def test_other_names_of_a_tool_are_functions_too(workspace: Workspace, server: Client) -> None:
    workspace.file("a.txt", "one\n")
    assert value(server, "edit_file('a.txt', 'one', 'two')['replacements_made']") == 1
    assert value(server, "help('rag_query').startswith('rag_search(')") is True
    assert value(server, "sum('edit_file' in line for line in tools())") == 0


def test_an_operator_can_demand_isolation_for_any_engine(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("LLMC_ISOLATED", raising=False)
    monkeypatch.setattr("llmc_mcp.app._CONTAINER_MARKS", (str(tmp_path / "mark"),))
    for engine in ("monty", "python"):
        config = Config()
        config.code_execution.engine, config.code_execution.require_isolation = engine, True
        with gate_on(workspace.root, config) as gate, pytest.raises(IsolationRequired, match="require_isolation"):
            text_of(gate, "execute_code", code="1 + 1")
    (tmp_path / "mark").touch()
    config.code_execution.engine = "monty"
    with gate_on(workspace.root, config) as gate:
        assert '"result":2' in text_of(gate, "execute_code", code="1 + 1")


def test_prints_and_the_last_expression_come_back(server: Client) -> None:
    reply = server.call("execute_code", code="print('hello')\nprint(1, 2)\n{'a': [1, None, 'x']}")
    assert reply.body == "hello\n1 2\n"
    assert reply.meta["result"] == {"a": [1, None, "x"]}


def test_values_without_a_json_form_are_shown_as_text(server: Client) -> None:
    assert value(server, "sorted({1, 2})") == [1, 2]
    assert isinstance(value(server, "import datetime\ndatetime.date(2026, 1, 2)"), str)


def test_a_failing_tool_is_an_exception_that_starts_with_its_code(server: Client) -> None:
    assert value(server, "try:\n    read_file('nope')\nexcept RuntimeError as e:\n    str(e)[:9]\n") is None
    caught = "r = ''\ntry:\n    read_file('nope')\nexcept RuntimeError as e:\n    r = str(e)\nr"
    assert str(value(server, caught)).startswith("NOT_FOUND: nope")
    uncaught = error(server, "x = 1\nread_file('nope')")
    assert "NOT_FOUND: nope" in str(uncaught["message"])
    assert uncaught["line"] == 2
    assert uncaught["source"] == "read_file('nope')"


def test_wrong_arguments_name_the_field(server: Client) -> None:
    assert "BAD_ARGS" in str(error(server, "read_file('a', max_lines='many')")["message"])
    assert "BAD_ARGS" in str(error(server, "read_file('a', 1, 2, 3)")["message"])


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import statistics", "Modules:"),
        ("class A(dict): pass", "functions"),
        ("def f():\n    yield 1", "list"),
        ("open('/etc/passwd').read()", "read_file"),
        ("raed_file('x')", "read_file"),
    ],
)
def test_what_the_engine_lacks_comes_with_a_way_around(server: Client, code: str, words: str) -> None:
    failure = error(server, code)
    assert words in str(failure["hint"])
    assert failure["line"]


def test_tools_lists_and_help_explains(server: Client) -> None:
    listed = cast(list[object], value(server, "tools()"))
    assert any(str(row).startswith("read_file(path, offset_lines?, max_lines?): ") for row in listed)
    assert not any(str(row).startswith("execute_code") for row in listed)
    explained = str(value(server, "help('linux_fs_read')"))
    assert "returns: {content, meta, handle}" in explained
    assert '"maximum":2000' in explained
    assert "UNKNOWN_TOOL" in str(error(server, "help('nope')")["message"])


def test_a_value_and_what_was_printed_share_a_reply(server: Client) -> None:
    reply = server.call("execute_code", code="print('p' * 6000)\n'v' * 6000")
    assert reply.meta["truncated"] is True
    assert len(reply.text.encode()) <= 10_000


def test_an_error_and_its_hint_are_two_sentences(server: Client) -> None:
    message = str(error(server, "linux_fs_write('no/such/file', 'x')")["message"])
    assert "its folder does not exist. Make it with" in message


def test_an_argument_to_tools_is_refused_in_its_own_name(server: Client) -> None:
    assert "tools() takes no arguments" in str(error(server, "tools('files')")["message"])


def test_a_long_value_goes_behind_a_handle(server: Client) -> None:
    reply = server.call("execute_code", code="'y' * 50_000")
    assert reply.meta["truncated"] is True
    assert len(reply.text) < 10_000
    page = server.call("linux_handle_read", handle=reply.meta["handle"], unit="bytes", offset=49_990, limit=100)
    assert page.body == "y" * 10


def test_calls_from_code_pass_the_same_gate(workspace: Workspace, server: Client) -> None:
    workspace.file(".env", "SECRET=1\n")
    assert "PERMISSION_DENIED" in str(error(server, "read_file('.env')")["message"])
    assert "INVALID_PATH" in str(error(server, "read_file('../outside/secret.txt')")["message"])
    server.close()
    tools = [json.loads(line)["tool"] for line in server.log.splitlines() if '"event":"tool"' in line]
    assert tools == ["read_file", "execute_code", "read_file", "execute_code"]


def test_hidden_tools_can_be_found_and_called_where_the_operator_wants_it(workspace: Workspace) -> None:
    workspace.file("needle.txt")
    with Client("--root", str(workspace.root), "--set", "tools.dynamic_tools=true") as client:
        assert {"tool_search", "call_tool"} <= {tool["name"] for tool in client.tools()}
        found = client.call("tool_search", query="find files by name")
        assert found.body.startswith("linux_search_files:")
        assert '{"type":"object","properties":' in found.body
        called = client.call("call_tool", name="linux_search_files", args={"root": ".", "pattern": "needle"})
        assert called.body == "needle.txt"
        assert client.call("call_tool", name="call_tool", args={}).code == "INVALID_ARGUMENT"
        assert client.call("call_tool", name="nope").code == "UNKNOWN_TOOL"


def test_they_are_not_there_by_default(server: Client) -> None:
    assert server.call("tool_search", query="x").code == "FEATURE_DISABLED"


def test_cpython_asks_for_isolation(workspace: Workspace) -> None:
    settings = ("--set", "code_execution.engine=python", "--set", "sandbox.level=off")
    with Client("--root", str(workspace.root), *settings) as client:
        assert client.call("execute_code", code="1").code == "ISOLATION_REQUIRED"


def test_a_run_takes_no_longer_than_configured(workspace: Workspace) -> None:
    with Client("--root", str(workspace.root), "--set", "code_execution.timeout=0.2") as client:
        reply = client.call("execute_code", code="while True: pass", timeout=500)
        assert "> 200ms" in reply.meta["error"]["message"]


def test_a_call_that_is_taken_back_ends_a_loop_that_calls_nothing(workspace: Workspace, server: Client) -> None:
    call = server.start_call("execute_code", {"code": "linux_fs_write('begun', '')\nwhile True: pass"})
    while not (workspace.root / "begun").exists():
        server.call("health")
    busy = interpreters(server.process.pid)
    assert busy
    server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call}})
    while busy & interpreters(server.process.pid):
        server.call("health")
    assert value(server, "6 * 7") == 42
    server.close()
    lines = [json.loads(line) for line in server.log.splitlines() if '"tool":"execute_code"' in line]
    assert sorted(line["status"] for line in lines) == ["CANCELLED", "ok"]


def test_a_call_that_is_taken_back_leaves_other_runs_alone(workspace: Workspace, server: Client) -> None:
    endless = server.start_call("execute_code", {"code": "linux_fs_write('one', '')\nwhile True: pass"})
    code = "linux_fs_write('two', '')\nwhile not list_dir('.')['data'].count('go'): pass\n'done'"
    other = server.start_call("execute_code", {"code": code})
    while not ((workspace.root / "one").exists() and (workspace.root / "two").exists()):
        server.call("health")
    assert len(interpreters(server.process.pid)) == 2
    server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": endless}})
    while len(interpreters(server.process.pid)) == 2:
        server.call("health")
    workspace.file("go")
    assert '"result":"done"' in server.wait(other)["result"]["content"][0]["text"]


def test_hybrid_lists_execute_code_unless_told_not_to(workspace: Workspace, server: Client) -> None:
    assert "execute_code" in {tool["name"] for tool in server.tools()}
    with Client("--root", str(workspace.root), "--set", "hybrid.include_execute_code=false") as client:
        assert "execute_code" not in {tool["name"] for tool in client.tools()}
