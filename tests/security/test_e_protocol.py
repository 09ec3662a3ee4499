"""Attacks on the protocol: whatever a line holds, it gets one answer at most, and the next line is served."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ..support.client import PATIENCE, Client
from ..support.workspace import Workspace
from .attack import assert_alive, status_kb

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602


def error_code(client: Client, line: bytes, request_id: object = None) -> int:
    """The code of the JSON-RPC error that a line gets, under the id it should come with."""
    client.send_raw(line + b"\n")
    return client.wait(request_id)["error"]["code"]


def numbered(request_id: str, **fields: Any) -> bytes:
    """A request with raw JSON as its id."""
    rest = json.dumps({"jsonrpc": "2.0", **fields})[1:]
    return b'{"id":%s,' % request_id.encode() + rest.encode()


# --- lines that are no messages ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"}",
        b"nonsense",
        b"{]",
        b'{"jsonrpc":"2.0","id":1,"method":"ping"',
        b'{"jsonrpc":"2.0","id":1,"method":"ping"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping"} {"jsonrpc":"2.0","id":2,"method":"ping"}',
        b"{'id': 1}",
        b'{"id":1,}',
        b"\x00",
        b"\x00" * 1000,
        b'{"id":1,\x00"method":"ping"}',
        b'{"id":1,"method":"pi\x00ng"}',
        b"\xff\xfe\xfd",
        b'{"id":1,"method":"\xff"}',
        b'{"id":1,"method":"\xc0\xaf"}',
        b'{"id":1e999,"method":"ping"}',
        b"0x10",
        b"Content-Length: 20",
        b"GET / HTTP/1.1",
        "{“id”:1}".encode(),
    ],
    ids=lambda line: repr(line)[2:30],
)
def test_e01_a_line_that_is_not_json_gets_a_parse_error(server: Client, line: bytes) -> None:
    assert error_code(server, line) == PARSE_ERROR
    assert_alive(server)


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":77,"method":"\\ud800"}',
        b'{"jsonrpc":"2.0","id":77,"method":"ping","params":{"\\udfff":1}}',
        b'{"jsonrpc":"2.0","id":77,"method":"\xed\xa0\x80"}',
        b'{"jsonrpc":"2.0","id":77,"method":"ping","params":{"x":NaN}}',
        b'\xef\xbb\xbf{"jsonrpc":"2.0","id":77,"method":"ping"}',
    ],
    ids=["value", "key", "bytes", "nan", "mark"],
)
def test_e01_who_sends_broken_text_is_told_under_his_id(server: Client, line: bytes) -> None:
    assert error_code(server, line, 77) == PARSE_ERROR
    assert_alive(server)


def test_e01_a_broken_id_is_not_sent_back(server: Client) -> None:
    assert error_code(server, b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}') == PARSE_ERROR
    assert_alive(server)


@pytest.mark.parametrize("blank", [b"", b" ", b"\t", b"\r", b" \r"])
def test_e01_blank_lines_are_let_go(server: Client, blank: bytes) -> None:
    server.send_raw((blank + b"\n") * 50)
    assert_alive(server)
    assert len(server.raw_lines) == 1


@pytest.mark.parametrize("depth", [500, 2_000, 100_000, 2_000_000])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")], ids=["array", "object"])
def test_e01_deep_nesting_is_answered(server: Client, opening: bytes, closing: bytes, depth: int) -> None:
    nest = opening * depth + b"1" + closing * depth
    server.send_raw(nest + b"\n")
    assert server.wait(None)["error"]["code"] in (PARSE_ERROR, INVALID_REQUEST)
    for place in (b'"params":{"arguments":%s,"name":"stat"}', b'"params":{"_meta":%s}', b'"params":%s'):
        server.send_raw(b'{"jsonrpc":"2.0","id":"deep","method":"tools/call",' + place % nest + b"}\n")
        answer = server.messages.get(timeout=PATIENCE)
        assert answer is not None, "the server ended"
        if "result" in answer:
            assert json.loads(answer["result"]["content"][0]["text"])["code"] == "BAD_ARGS"
        else:
            assert answer["error"]["code"] in (PARSE_ERROR, INVALID_PARAMS)
    assert_alive(server)


def test_e01_a_line_of_100_megabytes_is_refused_without_being_kept(server: Client) -> None:
    assert_alive(server)
    before = status_kb(server.process.pid, "VmHWM")
    server.send_raw(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"')
    for _ in range(100):
        server.send_raw(b"x" * (1 << 20))
    server.send_raw(b'"}}\n')
    assert server.wait(1)["error"]["code"] == INVALID_REQUEST
    assert status_kb(server.process.pid, "VmHWM") - before < 64 << 10
    assert_alive(server)


def test_e01_100_megabytes_of_short_garbage_do_not_pile_up(server: Client) -> None:
    assert_alive(server)
    before = status_kb(server.process.pid, "VmHWM")
    for _ in range(25):
        server.send_raw((b"x" * 4_000_000) + b"\n")
        assert server.wait(None)["error"]["code"] == PARSE_ERROR
    assert status_kb(server.process.pid, "VmHWM") - before < 64 << 10
    assert_alive(server)


def test_e01_an_unfinished_last_line_is_served_and_the_server_leaves_in_peace(workspace: Workspace) -> None:
    for rest in (
        b'{"jsonrpc":"2.0","id":5,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":5,"me',
        b"\xff",
        b"x" * 17_000_000,
    ):
        client = Client("--root", str(workspace.root))
        client.send_raw(rest)
        assert client.close() == 0
        assert "Traceback" not in client.log


# --- how lines arrive --------------------------------------------------------------------------------


def test_e01_a_message_may_come_byte_by_byte(server: Client) -> None:
    for byte in b'{"jsonrpc":"2.0","id":"slow","method":"ping"}\n':
        server.send_raw(bytes([byte]))
    assert server.wait("slow")["result"] == {}


def test_e01_messages_may_be_cut_anywhere(workspace: Workspace, server: Client) -> None:
    workspace.file("täst-☃.txt", "inside\n")
    line = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 0,
            "method": "tools/call",
            "params": {"name": "stat", "arguments": {"path": "täst-☃.txt"}},
        },
        ensure_ascii=False,
    ).encode()
    stream = b"".join(line.replace(b'"id": 0', b'"id": %d' % number) + b"\r\n" for number in range(1, 200))
    step = 37  # shorter than a line and prime to its length: the cuts fall everywhere, within characters too
    for position in range(0, len(stream), step):
        server.send_raw(stream[position : position + step])
    for number in range(1, 200):
        assert server.wait(number)["result"]["isError"] is False


def test_e01_good_lines_between_garbage_are_all_served(server: Client) -> None:
    garbage = [b"{", b"\x00\x01", b"[]", b"\xff" * 100, b'"text"', b"null", b"", b'{"jsonrpc":"2.0"}', b"[" * 5000]
    for number in range(300):
        junk = garbage[number % len(garbage)]
        server.send_raw(junk + b'\n{"jsonrpc":"2.0","id":%d,"method":"ping"}\n' % number)
    for number in range(300):
        assert server.wait(number)["result"] == {}
    blank = sum(1 for number in range(300) if not garbage[number % len(garbage)])
    assert len(server.raw_lines) == 600 - blank


# --- messages of the wrong shape ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "line", [b"[]", b"null", b"1", b'"text"', b"true", b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]']
)
def test_e01_what_is_no_single_object_is_an_invalid_request(server: Client, line: bytes) -> None:
    assert error_code(server, line) == INVALID_REQUEST
    assert_alive(server)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, INVALID_REQUEST),
        ({"method": None}, INVALID_REQUEST),
        ({"method": 5}, INVALID_REQUEST),
        ({"method": ["ping"]}, INVALID_REQUEST),
        ({"method": {}}, INVALID_REQUEST),
        ({"method": ""}, METHOD_NOT_FOUND),
        ({"method": "PING"}, METHOD_NOT_FOUND),
        ({"method": "__class__"}, METHOD_NOT_FOUND),
        ({"method": "tools/call/../list"}, METHOD_NOT_FOUND),
        ({"method": "x" * 1_000_000}, METHOD_NOT_FOUND),
        ({"method": "notifications/initialized"}, METHOD_NOT_FOUND),
        ({"method": "ping", "params": 5}, INVALID_PARAMS),
        ({"method": "ping", "params": []}, INVALID_PARAMS),
        ({"method": "ping", "params": "x"}, INVALID_PARAMS),
        ({"method": "initialize"}, INVALID_PARAMS),
        ({"method": "initialize", "params": {"protocolVersion": 5}}, INVALID_PARAMS),
        ({"method": "initialize", "params": {"protocolVersion": ["2025-11-25"]}}, INVALID_PARAMS),
        ({"method": "tools/list", "params": {"cursor": "x"}}, INVALID_PARAMS),
        ({"method": "tools/list", "params": {"cursor": {}}}, INVALID_PARAMS),
        ({"method": "tools/call"}, INVALID_PARAMS),
        ({"method": "tools/call", "params": {"name": None}}, INVALID_PARAMS),
        ({"method": "tools/call", "params": {"name": 5, "arguments": {}}}, INVALID_PARAMS),
        ({"method": "tools/call", "params": {"name": ["stat"]}}, INVALID_PARAMS),
    ],
    ids=lambda value: str(value)[:50],
)
def test_e01_a_request_of_the_wrong_shape_is_refused_under_its_id(
    server: Client, fields: dict[str, Any], code: int
) -> None:
    server.send({"jsonrpc": "2.0", "id": "mine", **fields})
    answer = server.wait("mine")
    assert answer["error"]["code"] == code
    assert len(json.dumps(answer)) < 2_000
    assert_alive(server)


@pytest.mark.parametrize("request_id", ["null", "true", "1.5", "1e3", "[]", "[1]", "{}", '{"a":1}'])
def test_e01_an_id_that_is_neither_text_nor_whole_number_is_refused(server: Client, request_id: str) -> None:
    assert error_code(server, numbered(request_id, method="ping")) == INVALID_REQUEST
    assert_alive(server)


@pytest.mark.parametrize("request_id", [0, -1, 1 << 63, 1 << 64, -(1 << 70), 10**400, "", "☃", "a\nb", "x" * 100_000])
def test_e01_any_text_and_whole_number_is_an_id_and_comes_back_as_it_is(server: Client, request_id: str | int) -> None:
    server.send({"jsonrpc": "2.0", "id": request_id, "method": "ping"})
    assert server.wait(request_id)["result"] == {}
    server.send({"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": {"name": "health"}})
    assert server.wait(request_id)["result"]["isError"] is False
    server.send({"jsonrpc": "2.0", "id": request_id, "method": 5})
    assert server.wait(request_id)["error"]["code"] == INVALID_REQUEST
    assert_alive(server)


@pytest.mark.parametrize("digits", [4_299, 4_300, 4_301, 1_000_000])
def test_e01_an_id_of_thousands_of_digits_does_no_harm(server: Client, digits: int) -> None:
    for fields in ({"method": "ping"}, {"method": 5}, {"method": "tools/call", "params": {"name": "health"}}):
        server.send_raw(numbered("9" * digits, **fields) + b"\n")
        assert_alive(server)
        assert_alive(server)


def test_e01_a_second_request_with_an_id_under_way_is_refused_and_the_first_served(
    workspace: Workspace, server: Client
) -> None:
    workspace.file("file.txt", "inside\n")
    call = {"name": "linux_search_content", "arguments": {"root": ".", "pattern": "inside"}}
    line = json.dumps({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": call}).encode() + b"\n"
    server.send_raw(line * 50)
    assert_alive(server)
    while len(server.raw_lines) < 51:
        server.wait(9)
    answers = [json.loads(line) for line in server.raw_lines]
    served = [answer["result"] for answer in answers if answer["id"] == 9 and "result" in answer]
    refused = [answer["error"]["code"] for answer in answers if answer["id"] == 9 and "error" in answer]
    assert len(served) + len(refused) == 50
    assert served
    assert refused
    assert all("file.txt" in result["content"][0]["text"] for result in served)
    assert set(refused) == {INVALID_REQUEST}


@pytest.mark.parametrize(
    "message",
    [
        {"method": "notifications/initialized"},
        {"method": "no/such/notification", "params": {"x": 1}},
        {"method": "ping"},
        {"method": "tools/call", "params": {"name": "stat", "arguments": {"path": "."}}},
        {"method": "tools/call", "params": 5},
        {"method": "notifications/cancelled"},
        {"method": "notifications/cancelled", "params": {"requestId": None}},
        {"method": "notifications/cancelled", "params": {"requestId": 12345}},
        {"method": "notifications/cancelled", "params": {"requestId": [1]}},
        {"method": "notifications/cancelled", "params": {"requestId": {"a": 1}}},
        {"id": 5, "result": {}},
        {"id": None, "error": {"code": 1, "message": "x"}},
        {"result": 5},
    ],
    ids=lambda message: str(message)[:50],
)
def test_e01_notifications_and_stray_answers_get_no_answer(server: Client, message: dict[str, Any]) -> None:
    server.send({"jsonrpc": "2.0", **message})
    assert_alive(server)
    assert len(server.raw_lines) == 1


@pytest.mark.parametrize("meta", [5, [], "x", None, {"progressToken": []}, {"progressToken": 10**30}, {"x" * 1000: {}}])
@pytest.mark.parametrize("method", ["ping", "tools/list", "tools/call"])
def test_e01_junk_in_meta_does_not_matter(server: Client, method: str, meta: object) -> None:
    answer = server.request(method, {"_meta": meta, "name": "health"})
    assert "result" in answer, answer


@pytest.mark.parametrize("size", [-1, 0, 1, True, 10**30, "1000", 1.5, None, []])
def test_e01_no_reply_size_that_a_client_asks_for_breaks_the_limits(
    workspace: Workspace, server: Client, size: object
) -> None:
    workspace.file("big.txt", "a line\n" * 100_000)
    call = server.start_call("read_file", {"path": "big.txt"}, meta={"llmc/maxReplyBytes": size})
    text = server.wait(call)["result"]["content"][0]["text"]
    assert text.startswith("{")
    assert 500 < len(text) <= 200_000


@pytest.mark.parametrize("version", [5, None, [], "2099-01-01", "x" * 1_000_000, ""])
def test_e01_an_unknown_protocol_version_is_refused_in_few_words(server: Client, version: object) -> None:
    answer = server.request("tools/list", {"_meta": {"io.modelcontextprotocol/protocolVersion": version}})
    assert "error" in answer
    assert len(json.dumps(answer)) < 2_000
    assert_alive(server)


# --- arguments ---------------------------------------------------------------------------------------


NO_PATHS: list[Any] = [None, 5, True, 1.5, ["file.txt"], {"path": "file.txt"}]
NO_NUMBERS: list[Any] = ["1", "", None, True, 1.5, 1.0, [1], {}, "0x10", 1 << 63, 10**30, 10**4000, -(10**30)]
NO_FLAGS: list[Any] = [0, 1, "true", "", None, []]
SLICE = ("read_file", "linux_fs_read")
FOREIGN: list[dict[str, Any]] = [{"extra": 1}, {"Path": "."}, {"__class__": "x"}, {"": ""}, {"x" * 1_000_000: 1}]


def wrong_searches() -> Iterator[dict[str, Any]]:
    """Arguments of a search, each wrong in one place."""
    right = {"root": ".", "pattern": "x"}
    for name in ("root", "pattern"):
        yield from ({**right, name: value} for value in NO_PATHS)
    for name in ("literal", "ignore_case", "multiline", "include_ignored"):
        yield from ({**right, name: value} for value in NO_FLAGS)
    for name, too_much in (("context_lines", 11), ("max_results", 1001)):
        yield from ({**right, name: value} for value in (*NO_NUMBERS, -1, too_much))
    yield from ({**right, **field} for field in FOREIGN)
    yield from ({**right, "file_glob": value} for value in (5, [1], True))
    yield {**right, "flags": ["--pre=x"]}
    yield {"root": "."}
    yield {"pattern": "x"}


def wrong_calls() -> Iterator[tuple[str, Any]]:
    """Tools, each with arguments that are wrong in one place."""
    for tool in (*SLICE, "list_dir", "stat"):
        yield from ((tool, {"path": path}) for path in NO_PATHS)
        yield from ((tool, {"path": ".", **field}) for field in FOREIGN)
        yield tool, {}
    for tool in SLICE:
        for name in ("offset_lines", "max_lines"):
            wrong = [value for value in NO_NUMBERS if name == "offset_lines" or value is not None]  # null: left out
            yield from ((tool, {"path": "file.txt", name: value}) for value in wrong)
        yield from ((tool, {"path": "file.txt", "max_lines": value}) for value in (0, -1, 2001))
    yield from (("linux_fs_read", {"path": "file.txt", "offset_lines": value}) for value in (-1, -(1 << 62)))
    yield from (("list_dir", {"path": ".", "depth": value}) for value in (*NO_NUMBERS, 0, -1, 11))
    yield from (("list_dir", {"path": ".", "include_hidden": value}) for value in NO_FLAGS)
    yield from (("linux_search_content", arguments) for arguments in wrong_searches())
    for tool in ("read_file", "health", "00_INIT"):
        whole: list[Any] = [[], [1], "x", 5, True, 1.5]
        yield from ((tool, arguments) for arguments in whole)
    yield "health", {"extra": 1}
    yield "00_INIT", {"extra": {}}


def test_e08_arguments_that_breach_the_schema_are_refused_not_coerced(workspace: Workspace, server: Client) -> None:
    workspace.file("file.txt", "inside\n")
    wrongs = list(wrong_calls())
    calls = [server.start("tools/call", {"name": tool, "arguments": wrong}) for tool, wrong in wrongs]
    for call, (tool, wrong) in zip(calls, wrongs, strict=True):
        answer = server.wait(call)["result"]
        text = answer["content"][0]["text"]
        said = f"{tool} {str(wrong)[:200]}: {text[:300]}"
        assert answer["isError"] is True, said
        assert json.loads(text)["code"] == "BAD_ARGS", said
        assert len(text) < 3_000, said
    assert_alive(server)


def test_e08_only_read_file_counts_from_the_end(workspace: Workspace, server: Client) -> None:
    workspace.file("file.txt", "first\nsecond\nthird\n")
    assert server.call("read_file", path="file.txt", offset_lines=-1).body == "third\n"
    assert server.call("read_file", path="file.txt", offset_lines=-(1 << 62)).body == "first\nsecond\nthird\n"
    assert server.call("linux_fs_read", path="file.txt", offset_lines=-1).code == "BAD_ARGS"


def test_e08_an_offset_past_the_end_is_an_empty_slice(workspace: Workspace, server: Client) -> None:
    workspace.file("file.txt", "first\nsecond\n")
    for tool in ("read_file", "linux_fs_read"):
        for offset in (2, 1000, (1 << 63) - 1):
            reply = server.call(tool, path="file.txt", offset_lines=offset)
            assert not reply.is_error, reply.text
            assert reply.body == ""
            assert reply.meta["total_lines"] == 2


def test_e08_the_name_of_a_tool_is_taken_as_it_is(server: Client) -> None:
    names = ["", " stat", "stat ", "STAT", "../stat", "stat\0", "__init__", "x" * 1_000_000, "st\nat", "☃", "." * 1000]
    for name in names:
        reply = server.call(name, path=".")
        assert reply.code == "UNKNOWN_TOOL", name[:50]
        assert len(reply.text) < 3_000
    assert_alive(server)
