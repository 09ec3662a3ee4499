"""REST: the designed routes and shapes, every tool, one envelope for whatever goes wrong."""

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from llmc_mcp import __version__
from llmc_mcp.files.revisions import revision_of

from ..support.http_server import OPEN_HANDED, HttpServer
from ..support.workspace import Workspace

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    made = Workspace(tmp_path_factory.mktemp("api"))
    made.file("a.txt", "hello\nworld\n")
    made.file("long.txt", "".join(f'line "{number}" of many\n' for number in range(5000)))
    return made


@pytest.fixture(scope="module")
def served(workspace: Workspace) -> Iterator[HttpServer]:
    with HttpServer(workspace.root, *OPEN_HANDED) as server:
        yield server


@pytest.fixture
def client(served: HttpServer) -> Iterator[httpx.Client]:
    with served.client() as made:
        yield made


def tool(client: httpx.Client, name: str, /, **arguments: Any) -> Any:
    reply = client.post("/tool", json={"session_id": "S", "name": name, "args": arguments})
    assert reply.status_code == 200, reply.text
    return reply.json()


def envelope(reply: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert reply.status_code == status, reply.text
    body = reply.json()
    assert body["code"] == code
    assert set(body) <= {"code", "message", "hint", "correlation_id"}
    assert body["correlation_id"] == reply.headers["x-correlation-id"]
    return body


# --- the designed shapes ---------------------------------------------------------------------------------------------


def test_health_says_that_it_is_well_and_no_more(served: HttpServer) -> None:
    with served.client("") as anonymous:
        assert anonymous.get("/health").json() == {"ok": True, "version": "v0"}
        assert anonymous.get("/ready").json() == {"ready": True}


def test_health_names_the_server_to_whoever_has_a_token(client: httpx.Client) -> None:
    assert client.get("/health").json() == {"ok": True, "version": "v0", "server": __version__}


def test_read_file_list_dir_stat_and_run_cmd_have_their_designed_shapes(
    client: httpx.Client, workspace: Workspace
) -> None:
    path = str(workspace.root / "a.txt")
    assert tool(client, "read_file", path="a.txt") == {
        "data": "hello\nworld\n",
        "meta": {
            "path": path,
            "length": 12,
            "total_lines": 2,
            "truncated": False,
            "rev": revision_of(b"hello\nworld\n"),
        },
    }
    listing = tool(client, "list_dir", path=".")
    assert "a.txt" in listing["data"]
    assert listing["meta"]["path"] == str(workspace.root)
    assert tool(client, "stat", path="a.txt")["data"].keys() >= {"size", "mtime", "mode", "type"}
    ran = tool(client, "run_cmd", command="echo hi")["data"]
    assert (ran["stdout"], ran["exit_code"]) == ("hi\n", 0)


def test_every_tool_answers_over_rest_though_the_mode_lists_few(client: httpx.Client) -> None:
    assert tool(client, "linux.fs_read", path="a.txt", max_lines=1)["content"] == "hello\n"
    assert tool(client, "execute_code", code="read_file('a.txt')['data']")["result"] == "hello\nworld\n"


def test_a_reply_keeps_to_its_size_as_json_too(client: httpx.Client) -> None:
    reply = client.post("/tool", json={"name": "read_file", "args": {"path": "long.txt"}})
    assert len(reply.content) <= 10_000
    meta = reply.json()["meta"]
    assert meta["truncated"]
    assert reply.json()["data"].count("\n") == meta["next_offset"]


def test_invoke_agent_takes_note_and_hands_back_the_context_that_it_was_given(client: httpx.Client) -> None:
    body = {"session_id": "S", "role": "otto", "user_msg": "what is a?", "inject_context": "a is a file"}
    reply = client.post("/invoke_agent", json=body).json()
    assert reply["text"] == "[MCP v0] received; use /rag/search for pre-call context"
    assert reply["context"].startswith("a is a file")


def ask_the_index(client: httpx.Client) -> list[httpx.Response]:
    search = client.post("/rag/search", json={"q": "hello", "scope": "both", "k": 3, "budget_tokens": 600})
    return [search, client.post("/rag/bootload", json={"session_id": "of-the-body", "task_id": "T"})]


def test_the_code_index_answers_under_the_session_that_a_body_names(workspace: Workspace, tmp_path: Path) -> None:
    audit = tmp_path / "calls.csv"
    settings = ("observability.csv_token_audit_enabled=true", f"observability.csv_path={audit}")
    with HttpServer(workspace.root, *(word for one in settings for word in ("--set", one))) as server:
        with server.client() as client:
            found, load = ask_the_index(client)
        assert (found.status_code, load.status_code) == (200, 200), (found.text, load.text)
        assert load.json().keys() >= {"plan", "scope", "notes", "tools_available"}
    sessions = {row["tool"]: row["session_id"] for row in csv.DictReader(audit.read_text().splitlines())}
    assert sessions["rag_bootload"] == "of-the-body"


def test_a_code_index_that_is_switched_off_says_so(workspace: Workspace) -> None:
    with HttpServer(workspace.root, "--set", "rag.jit_context_enabled=false") as server, server.client() as client:
        for reply in ask_the_index(client):
            assert "mcp.rag.jit_context_enabled" in (envelope(reply, 403, "FEATURE_DISABLED")["hint"] or "")


# --- errors --------------------------------------------------------------------------------------------------------


def test_a_tools_error_has_its_own_status(client: httpx.Client) -> None:
    def failing(name: str, **arguments: Any) -> httpx.Response:
        return client.post("/tool", json={"session_id": "S", "name": name, "args": arguments})

    envelope(failing("read_file", path="/etc/passwd"), 403, "INVALID_PATH")
    envelope(failing("read_file", path="missing.txt"), 404, "NOT_FOUND")
    envelope(failing("read_file", path="."), 422, "NOT_A_FILE")
    envelope(failing("read_file", path=1), 422, "BAD_ARGS")
    envelope(failing("run_cmd", command="curl x"), 403, "COMMAND_NOT_ALLOWED")
    assert "read_file" in envelope(failing("reed_file"), 422, "UNKNOWN_TOOL")["hint"]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "NOT_FOUND"),
        ("GET", "/tool/", 404, "NOT_FOUND"),
        ("GET", "/tool", 405, "BAD_ARGS"),
        ("DELETE", "/mcp", 405, "BAD_ARGS"),
        ("PUT", "/health", 405, "BAD_ARGS"),
        ("PATCH", "/tool", 405, "BAD_ARGS"),
    ],
)
def test_unknown_routes_and_methods_get_the_envelope(
    client: httpx.Client, method: str, path: str, status: int, code: str
) -> None:
    envelope(client.request(method, path, headers={"content-type": "application/json"}), status, code)


@pytest.mark.parametrize("path", ["/mcp", "/tool", "/health"])
def test_a_delete_without_a_body_needs_no_content_type_to_be_told_405(client: httpx.Client, path: str) -> None:
    envelope(client.request("DELETE", path), 405, "BAD_ARGS")
    envelope(client.request("DELETE", path, headers={"content-length": "0"}), 405, "BAD_ARGS")
    envelope(client.request("DELETE", path, content=b"x", headers={"content-type": "text/plain"}), 415, "BAD_ARGS")


def test_a_message_without_words_is_refused(client: httpx.Client) -> None:
    assert "user_msg" in envelope(client.post("/invoke_agent", json={"user_msg": ""}), 422, "BAD_ARGS")["message"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"", 422),
        (b"\xff\xfe", 400),
        (b"[" * 100_000, 400),
        (b'{"name": NaN}', 400),
        (b'{"name": "stat", "args": {"path": "\\ud800"}}', 400),
        (b"[]", 422),
        (b'{"name": "stat", "args": [], "session_id": "S"}', 422),
        (b'{"name": "stat", "args": {}, "surprise": 1}', 422),
        (b'{"name": 5}', 422),
        (b'{"name": "stat", "args": {"path": {"a": ' + b'{"a": ' * 900 + b"1" + b"}" * 902 + b"}", 422),
    ],
)
def test_bodies_that_make_no_sense_are_refused_in_the_envelope(client: httpx.Client, body: bytes, status: int) -> None:
    reply = client.post("/tool", content=body, headers={"content-type": "application/json"})
    envelope(reply, status, "BAD_ARGS")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_other_kinds_of_content_are_refused(client: httpx.Client, kind: str) -> None:
    for path in ("/tool", "/mcp", "/invoke_agent"):
        envelope(client.post(path, content=b"{}", headers={"content-type": kind}), 415, "BAD_ARGS")
    for header in ({"content-type": "application/json; charset=utf-16"}, {"content-encoding": "gzip"}):
        reply = client.post("/tool", content=b"{}", headers={"content-type": "application/json", **header})
        envelope(reply, 415, "BAD_ARGS")


# --- correlation ids -----------------------------------------------------------------------------------------------


def test_a_sane_correlation_id_is_taken_and_any_other_replaced(client: httpx.Client, served: HttpServer) -> None:
    reply = client.get("/health", headers={"x-correlation-id": "my-request.1"})
    assert reply.headers["x-correlation-id"] == "my-request.1"
    for odd in ("x", "a b c d e f g h", "<script>alert(1)</script>", "z" * 65, 'a";cid="b'):
        reply = client.get("/health", headers={"x-correlation-id": odd})
        assert UUID.fullmatch(reply.headers["x-correlation-id"])


def test_one_correlation_id_ties_the_reply_to_every_line_of_the_log(client: httpx.Client, served: HttpServer) -> None:
    client.post(
        "/tool", json={"name": "stat", "args": {"path": "a.txt"}}, headers={"x-correlation-id": "tie-these-lines"}
    )
    wait_for_line(served, "tie-these-lines", "http")
    assert {event["event"] for event in served.events if event.get("cid") == "tie-these-lines"} == {"tool", "http"}


def wait_for_line(served: HttpServer, cid: str, event: str) -> dict[str, Any]:
    """A line of the log, which is written by a thread of its own: later requests push it out."""
    for _ in range(1000):
        for line in served.events:
            if line.get("cid") == cid and line["event"] == event:
                return line
        served.tool("stat", path=".")
    raise AssertionError(f"no line {event} for {cid}")


# --- pages ---------------------------------------------------------------------------------------------------------


def test_the_docs_name_every_route_and_tool_and_load_nothing_from_elsewhere(client: httpx.Client) -> None:
    page = client.get("/docs").text
    schema = client.get("/openapi.json").json()
    assert all(path in page for path in schema["paths"])
    assert {"/health", "/tool", "/invoke_agent", "/rag/search", "/rag/bootload", "/metrics"} <= set(schema["paths"])
    assert "linux_search_content(" in page
    assert not re.search(r"(src|href)=", page)


def test_the_openapi_document_is_served_to_token_holders_only(served: HttpServer) -> None:
    with served.client("") as anonymous:
        for path in ("/docs", "/openapi.json", "/metrics", "/nothing", "/tool", "/mcp"):
            envelope(anonymous.get(path), 401, "AUTH_FAILED")


def test_a_reply_is_never_cached_or_framed(client: httpx.Client) -> None:
    for path in ("/health", "/docs", "/nothing"):
        headers = client.get(path).headers
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "server" not in headers


def test_curl_as_the_readme_shows_it_works(served: HttpServer, workspace: Workspace) -> None:
    import subprocess

    done = subprocess.run(
        [
            *("curl", "-s", f"{served.url}/tool", "-H", f"X-LLMC-Token: {served.token}"),
            *("-H", "Content-Type: application/json", "-d", '{"name": "list_dir", "args": {"path": "."}}'),
        ],
        capture_output=True,
        check=True,
    )
    assert "a.txt" in json.loads(done.stdout)["data"]
    assert Path(json.loads(done.stdout)["meta"]["path"]) == workspace.root
