"""Several HTTP servers on one store: a program runs in one of them, and calls that name it arrive at any."""

import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx2 as httpx
import msgspec
import pytest

from llmc_mcp.config.schema import Config, Server
from llmc_mcp.errors import InvalidArgument
from llmc_mcp.web.replica_claims import CALL_PATH, signed
from llmc_mcp.web.replicas import replica_url

from ..support.client import PATIENCE
from ..support.http_server import TOKEN, HttpServer
from ..support.postgres import Cluster
from ..support.replicas import Forger, give_token, replica, rows

ANNA = "token-of-anna-0123456789"


class Pair:
    """Two replicas."""

    def __init__(self, store: str, one: HttpServer, two: HttpServer) -> None:
        self.store, self.one, self.two = store, one, two


@pytest.fixture(scope="module")
def pair(postgres: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("replicas")
    (folder / "root").mkdir()
    store, data = postgres.fresh(), (folder / "one", folder / "two")
    give_token("anna", ANNA, store, folder / "one")
    with replica(folder / "root", store, data[0]) as one, replica(folder / "root", store, data[1]) as two:
        yield Pair(store, one, two)


def post(server: HttpServer, tool: str, /, session: str = "S", token: str = TOKEN, **arguments: Any) -> httpx.Response:
    with server.client(token) as client:
        return client.post("/tool", json={"session_id": session, "name": tool, "args": arguments})


def start(server: HttpServer, **whose: str) -> str:
    """A program that answers each line."""
    started = post(server, "linux_proc_start", **whose, command=["sed", "-u", "s/^/heard /"])
    assert started.status_code == 200, started.text
    return started.json()["proc_id"]


def test_any_replica_types_into_a_program_reads_it_lists_it_and_stops_it(pair: Pair) -> None:
    proc_id = start(pair.one)
    sent = post(pair.two, "linux_proc_send", proc_id=proc_id, input="hello", read_timeout_ms=60_000)
    assert sent.json()["output"] == "heard hello\n"
    post(pair.two, "linux_proc_send", proc_id=proc_id, input="again")
    assert post(pair.two, "linux_proc_read", proc_id=proc_id, timeout_ms=60_000).json()["output"] == "heard again\n"
    other = start(pair.two)
    for server in (pair.one, pair.two):
        listed = post(server, "linux_proc_sessions").json()["processes"]
        assert {one["proc_id"] for one in listed} >= {proc_id, other}
    assert post(pair.two, "linux_proc_stop", proc_id=proc_id).json()["stopped"]
    assert post(pair.one, "linux_proc_read", proc_id=proc_id).json()["state"] == "no_such_process"
    assert post(pair.one, "linux_proc_stop", proc_id=other).json()["stopped"]


def test_a_command_in_the_background_goes_on_at_another_replica_with_its_whole_output(pair: Pair) -> None:
    line = "read word; echo got $word; seq 1 30000; echo bad >&2; exit 3"
    process = post(pair.one, "run_cmd", command=line, yield_after=0).json()["process"]
    done = post(pair.two, "run_cmd", process=process, stdin="it\n", yield_after=60).json()
    assert done["data"]["exit_code"] == 3
    assert done["data"]["stdout"].startswith("got it\n1\n2\n")
    assert done["data"]["stderr"] == "bad\n"
    page = post(pair.two, "linux_handle_read", handle=done["meta"]["handle"], offset=20_000, limit=1)
    assert page.json()["content"].strip() == "20000"
    called = rows(pair.store, f"SELECT tool FROM calls WHERE args LIKE '%{process}%'")
    assert called in ([("run_cmd",)], [])  # once, at the replica that the client called; or not written yet


def test_a_program_is_there_for_its_own_session_and_principal_alone(pair: Pair) -> None:
    proc_id = start(pair.one)
    for whose in ({"session": "other"}, {"token": ANNA}):
        assert post(pair.two, "linux_proc_sessions", **whose).json()["processes"] == []
        assert post(pair.two, "linux_proc_read", **whose, proc_id=proc_id).json()["state"] == "no_such_process"
        refused = post(pair.two, "linux_proc_send", **whose, proc_id=proc_id, input="x")
        assert (refused.status_code, refused.json()["code"]) == (404, "PROCESS_NOT_FOUND")
        assert post(pair.two, "run_cmd", **whose, process=proc_id, stop=True).status_code == 404
    assert post(pair.one, "linux_proc_stop", proc_id=proc_id).json()["stopped"]


def test_hanging_up_ends_a_forwarded_call_and_leaves_its_program_running(pair: Pair) -> None:
    proc_id = start(pair.one)
    with socket.create_connection(("127.0.0.1", pair.two.port), timeout=PATIENCE) as wire:
        call = {"session_id": "S", "name": "linux_proc_read", "args": {"proc_id": proc_id, "timeout_ms": 600_000}}
        body = msgspec.json.encode(call)
        head = f"POST /tool HTTP/1.1\r\nHost: localhost\r\nX-LLMC-Token: {TOKEN}\r\nContent-Type: application/json\r\n"
        head += f"X-Correlation-Id: hangs-up-1\r\nContent-Length: {len(body)}\r\n\r\n"
        wire.sendall(head.encode() + body)
        with pair.one.client() as client:
            _await(lambda: f"proc_id={proc_id} timeout_ms=600000" in client.get("/ui").text)
    _await(lambda: _status(pair.one, "hangs-up-1") == "CANCELLED")
    sent = post(pair.two, "linux_proc_send", proc_id=proc_id, input="still", read_timeout_ms=60_000)
    assert sent.json()["output"] == "heard still\n"
    assert post(pair.two, "linux_proc_stop", proc_id=proc_id).json()["stopped"]


def _status(server: HttpServer, cid: str) -> str:
    return next((one["status"] for one in server.events if one["event"] == "tool" and one.get("cid") == cid), "")


def _await(condition: Any) -> None:
    for _ in range(20_000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it does not happen")


def test_a_person_sees_the_programs_of_all_replicas_and_stops_one_on_any_page(pair: Pair) -> None:
    proc_id = start(pair.one, token=ANNA)
    post(pair.one, "linux_proc_send", token=ANNA, proc_id=proc_id, input="for the page", read_timeout_ms=60_000)
    with pair.two.client() as client:
        page = client.get("/ui/processes").text
        assert proc_id in page
        assert "heard for the page" in page
        proof = page.partition('name="csrf" value="')[2].partition('"')[0]
        form = {"id": proc_id, "csrf": proof}
        client.post("/ui/stop", data=form, headers={"Origin": pair.two.url})
        assert proc_id not in client.get("/ui/processes").text
    assert post(pair.one, "linux_proc_read", token=ANNA, proc_id=proc_id).json()["state"] == "no_such_process"


def test_a_page_shows_nobody_the_programs_of_others(pair: Pair) -> None:
    proc_id = start(pair.one)
    with pair.two.client(ANNA) as client:
        page = client.get("/ui/processes").text
        assert proc_id not in page
    assert post(pair.one, "linux_proc_stop", proc_id=proc_id).json()["stopped"]


def test_a_browser_that_signed_in_at_one_replica_is_known_at_the_other_until_it_signs_out(pair: Pair) -> None:
    with pair.one.client("") as one, pair.two.client("") as two:
        signed_in = one.post("/login", data={"token": TOKEN}, headers={"Origin": pair.one.url})
        cookie = signed_in.headers["set-cookie"].partition(";")[0]
        page = two.get("/ui", headers={"Cookie": cookie})
        assert page.status_code == 200
        proof = page.text.partition('name="csrf" value="')[2].partition('"')[0]
        out = one.post("/ui/sign-out", data={"csrf": proof}, headers={"Cookie": cookie, "Origin": pair.one.url})
        assert out.status_code == 303  # the form of one replica is good at the other
        assert one.get("/ui", headers={"Cookie": cookie}).status_code == 401
        _await(lambda: two.get("/ui", headers={"Cookie": cookie}).status_code == 401)


def test_an_mcp_session_that_began_at_one_replica_goes_on_at_the_other(pair: Pair) -> None:
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
    with pair.one.client() as one, pair.two.client() as two:
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        begun = one.post("/mcp", json=_message("initialize", hello), headers=headers)
        session = {**headers, "Mcp-Session-Id": begun.headers["mcp-session-id"]}
        call = {"name": "linux_proc_start", "arguments": {"command": "cat"}}
        started = one.post("/mcp", json=_message("tools/call", call), headers=session).json()
        proc_id = msgspec.json.decode(started["result"]["content"][0]["text"].partition("\n")[0])["proc_id"]
        stop = {"name": "linux_proc_stop", "arguments": {"proc_id": proc_id}}
        ended = two.post("/mcp", json=_message("tools/call", stop), headers=session).json()
        assert '"stopped":true' in ended["result"]["content"][0]["text"]


def _message(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def test_other_replicas_reach_a_server_where_its_operator_says() -> None:
    def told(host: str, url: str) -> str:
        return replica_url(Config(server=Server(host=host, replica_url=url)), 8080)

    assert told("0.0.0.0", "https://one.internal/") == "https://one.internal"
    assert told("10.1.2.3", "") == "http://10.1.2.3:8080"
    assert told("::1", "") == "http://[::1]:8080"
    assert re.fullmatch(r"http://[\d.]+:8080", told("0.0.0.0", ""))  # the address of this machine's name
    for wrong in ("one.internal:8080", "http://", "http://user@one", "http://one/path", "http://one:x", "ftp://one"):
        with pytest.raises(InvalidArgument, match=r"mcp\.server\.replica_url"):
            told("127.0.0.1", wrong)


# --- attacks ---------------------------------------------------------------------------------------------------------


def stop_of(proc_id: str) -> bytes:
    """A forwarded call that ends a program."""
    arguments = {"proc_id": proc_id}
    return msgspec.json.encode(
        {"type": "tool", "name": "linux_proc_stop", "arguments": arguments, "reply_bytes": 10_000, "lean": False}
    )


def test_a_call_that_no_replica_signed_is_refused_before_its_body_is_read(pair: Pair) -> None:
    proc_id = start(pair.one)
    body, forger = stop_of(proc_id), Forger(pair.one, pair.store)
    claims = forger.claims(body)
    other = Forger(pair.two, pair.store)
    good = signed(claims, forger.key)
    encoded, _, signature = good.partition(".")
    swapped = signed(forger.claims(body, principal="anna"), forger.key).partition(".")[0]
    for header in (
        "",
        ".",
        "x" * 13_000,
        signed(claims, ""),
        signed(claims, other.key),
        f"{encoded}.{signature[:-1]}{'0' if signature[-1] != '0' else '1'}",
        f"{swapped}.{signature}",
        f"{encoded}.",
        encoded,
        f"bm8gSlNPTg==.{signature}",
    ):
        refused = forger.post(body, header)
        assert refused.status_code == 401, header[:80]
        assert "x-llmc-proof" not in refused.headers
    # A token is no signature, and what is refused is refused at its head: the body is announced, and never sent.
    head = f"POST {CALL_PATH} HTTP/1.1\r\nHost: x\r\nX-LLMC-Token: {TOKEN}\r\nContent-Length: 9000000\r\n\r\n"
    assert pair.one.raw(head.encode()).startswith(b"HTTP/1.1 401 ")
    assert post(pair.one, "linux_proc_stop", proc_id=proc_id).json()["stopped"]


def test_a_call_is_taken_once_within_its_time_by_the_replica_that_it_is_for(pair: Pair) -> None:
    proc_id = start(pair.one)
    forger, other = Forger(pair.one, pair.store), Forger(pair.two, pair.store)
    read = msgspec.json.encode(
        {"type": "tool", "name": "linux_proc_read", "arguments": {"proc_id": proc_id, "timeout_ms": 0},
         "reply_bytes": 10_000, "lean": False}
    )  # fmt: skip
    claims = forger.claims(read)
    first = forger.send(read, claims)
    assert (first.status_code, first.json()["state"]) == (200, "running")
    assert first.headers["x-llmc-proof"]
    assert forger.send(read, claims).status_code == 401  # replayed
    for at in (forger.now - 60, forger.now + 60):
        assert forger.send(read, forger.claims(read, at=at)).status_code == 401
    assert forger.send(stop_of(proc_id), forger.claims(read)).status_code == 401  # another body
    assert other.send(read, forger.claims(read), forger.key).status_code == 421  # another replica
    assert other.send(read, forger.claims(read), other.key).status_code == 421
    assert forger.send(read, forger.claims(read, to=other.id)).status_code == 421
    assert forger.send(read, forger.claims(read, nonce="n" * 9_000)).status_code == 401
    assert forger.send(read, forger.claims(read, scopes=None)).status_code == 401  # which would be all of them
    with pair.one.client("") as client:
        assert client.get(CALL_PATH).status_code == 405
    assert post(pair.one, "linux_proc_stop", proc_id=proc_id).json()["stopped"]


def test_even_a_signed_call_gets_no_more_than_its_caller_may_have(pair: Pair) -> None:
    proc_id, forger = start(pair.one), Forger(pair.one, pair.store)
    stop = stop_of(proc_id)
    for whose in ({"principal": "anna"}, {"session_id": "other"}):
        refused = forger.send(stop, forger.claims(stop, **whose))
        assert (refused.status_code, refused.json()["code"]) == (404, "PROCESS_NOT_FOUND")
    refused = forger.send(stop, forger.claims(stop, scopes=frozenset({"read"})))
    assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN")
    for name, arguments in (
        ("linux_fs_read", {"path": "/etc/passwd"}),
        ("run_cmd", {"command": "id"}),
        ("run_cmd", {"command": "id", "process": ""}),
        ("execute_code", {"code": "1"}),
        ("no_such_tool", {}),
    ):
        call = {"type": "tool", "name": name, "arguments": arguments, "reply_bytes": 1_000, "lean": True}
        body = msgspec.json.encode(call)
        assert forger.send(body, forger.claims(body)).status_code in (403, 422), name
    for body in (b"", b"{}", b"[" * 100_000, b'{"type":"exec"}'):
        assert forger.send(body, forger.claims(body)).status_code == 422
    page = msgspec.json.encode({"type": "stop", "proc_id": proc_id})
    assert (
        forger.send(page, forger.claims(page, principal="anna", scopes=frozenset({"read", "exec"}))).status_code == 404
    )
    assert forger.send(page, forger.claims(page, scopes=frozenset({"read"}))).status_code == 403
    assert forger.send(page, forger.claims(page)).status_code == 200


def test_a_body_is_limited_as_any_other(pair: Pair) -> None:
    forger, body = Forger(pair.one, pair.store), b" " * (17 << 20)
    try:
        assert forger.send(body, forger.claims(body)).status_code == 413
    except httpx.TransportError:
        pass  # refused, and the connection closed, before all of it was sent
    _await(lambda: [one["status"] for one in pair.one.events if one.get("route") == CALL_PATH][-1] == 413)


class Impostor:
    """A server at the address of a replica that is none: it keeps what it hears, and answers as it likes."""

    def __init__(self, status: int, body: bytes, **headers: str) -> None:
        heard = self.heard = list[str]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                heard.append(self.path)
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                try:
                    self.wfile.write(body)
                except OSError:
                    pass  # it has heard enough

            def log_message(self, format: str, *_: object) -> None: ...

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def __enter__(self) -> "Impostor":
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def pretend(store: str, url: str, proc_id: str, number: int, *, lives: bool = True) -> None:
    """Rows of a replica that there is not, and of a program in it."""
    name, seen = f"impostor{number}", "extract(epoch FROM clock_timestamp())" + ("" if lives else " - 60")
    rows(store, f"INSERT INTO replicas VALUES ('{name}', '{url}', 'k', {seen}) RETURNING 1")
    rows(store, f"INSERT INTO owners VALUES ('{proc_id}', '{name}', 'owner', 'S') RETURNING 1")


def test_what_answers_in_the_place_of_a_replica_is_not_believed(pair: Pair) -> None:
    said = b'{"acknowledged":true,"output":"trust me"}'
    with Impostor(200, said) as lies, Impostor(302, b"", Location=f"{pair.two.url}{CALL_PATH}") as leads_away, Impostor(
        200, b"x" * (20 << 20)
    ) as talks:  # fmt: skip
        urls = (
            lies.url,
            leads_away.url,
            talks.url,
            pair.one.url,  # this very server
            pair.two.url,  # another one
            "ftp://127.0.0.1",
            "http://user:pass@127.0.0.1:1/",
            "http://127.0.0.1:99999",
            f"{lies.url}/elsewhere?x=",
        )
        for number, url in enumerate(urls):
            proc_id = f"P_{number:016x}"
            pretend(pair.store, url, proc_id, number)
            called = post(pair.one, "linux_proc_send", proc_id=proc_id, input="secret")
            assert called.json()["code"] == "REPLICA_UNREACHABLE", called.text
            assert "mcp.server.replica_url" in called.json()["hint"]
        assert (lies.heard, leads_away.heard) == ([CALL_PATH], [CALL_PATH])  # no redirect was followed
    rows(pair.store, "DELETE FROM replicas WHERE id LIKE 'impostor%' RETURNING 1")
    rows(pair.store, "DELETE FROM owners WHERE replica LIKE 'impostor%' RETURNING 1")


def test_a_forwarded_call_is_not_forwarded_again(pair: Pair) -> None:
    forger = Forger(pair.two, pair.store)
    rows(pair.store, f"INSERT INTO owners VALUES ('P_{7:016x}', '{forger.id}', 'owner', 'S') RETURNING 1")
    refused = post(pair.one, "linux_proc_send", proc_id=f"P_{7:016x}", input="x")  # two does not have it
    assert (refused.status_code, refused.json()["code"]) == (404, "PROCESS_NOT_FOUND")
    proc_id = start(pair.one)
    stop = stop_of(proc_id)
    refused = forger.send(stop, forger.claims(stop))  # two knows where it is, and does not say
    assert (refused.status_code, refused.json()["code"]) == (404, "PROCESS_NOT_FOUND")
    assert post(pair.two, "linux_proc_stop", proc_id=proc_id).json()["stopped"]
    rows(pair.store, f"DELETE FROM owners WHERE proc_id='P_{7:016x}' RETURNING 1")


# --- the end of a replica --------------------------------------------------------------------------------------------


def test_a_program_of_a_replica_that_has_ended_is_gone_and_said_to_be(pair: Pair) -> None:
    pretend(pair.store, "http://127.0.0.1:1", f"P_{8:016x}", 8, lives=False)
    listed = post(pair.one, "linux_proc_sessions").json()
    assert "has ended" in listed["warnings"][0]
    gone = post(pair.one, "run_cmd", process=f"P_{8:016x}")
    assert (gone.status_code, gone.json()["code"]) == (410, "PROCESS_GONE")
    assert "Start it again" in gone.json()["hint"]
    assert rows(pair.store, f"SELECT 1 FROM owners WHERE proc_id='P_{8:016x}'") == []
    rows(pair.store, "DELETE FROM replicas WHERE id='impostor8' RETURNING 1")


def test_a_replica_that_is_killed_takes_its_programs_with_it_and_one_that_stops_leaves_no_rows(
    pair: Pair, tmp_path: Path
) -> None:
    third = replica(tmp_path, pair.store, tmp_path / "data")
    fourth = replica(tmp_path, pair.store, tmp_path / "other")
    proc_id, left = start(third), start(fourth)
    ids = Forger(third, pair.store).id, Forger(fourth, pair.store).id
    assert post(pair.one, "linux_proc_send", proc_id=proc_id, input="x").status_code == 200
    third.stop(signal.SIGKILL)
    gone = post(pair.one, "linux_proc_send", proc_id=proc_id, input="x")
    assert (gone.status_code, gone.json()["code"]) == (410, "PROCESS_GONE")
    assert rows(pair.store, f"SELECT count(*) FROM owners WHERE replica='{ids[0]}'") == [(0,)]
    assert fourth.stop() == 0
    assert rows(pair.store, f"SELECT 1 FROM replicas WHERE id='{ids[1]}'") == []
    assert rows(pair.store, f"SELECT 1 FROM owners WHERE proc_id='{left}'") == []
    assert post(pair.one, "linux_proc_send", proc_id=left, input="x").json()["code"] == "PROCESS_NOT_FOUND"


def test_a_replica_that_was_paused_for_long_gets_its_rows_back(pair: Pair) -> None:
    proc_id = start(pair.two)
    os.kill(pair.two.process.pid, signal.SIGSTOP)
    try:
        late = f"UPDATE replicas SET seen_at=seen_at-60 WHERE url='{pair.two.url}' RETURNING 1"
        rows(pair.store, late)
        assert post(pair.one, "linux_proc_send", proc_id=proc_id, input="x").status_code == 410
    finally:
        os.kill(pair.two.process.pid, signal.SIGCONT)
    _await(lambda: rows(pair.store, f"SELECT 1 FROM owners WHERE proc_id='{proc_id}'") == [(1,)])
    assert post(pair.one, "linux_proc_stop", proc_id=proc_id).json()["stopped"]


def test_replicas_are_ready_while_the_database_is_and_find_each_other_again(pair: Pair, postgres: Cluster) -> None:
    proc_id = start(pair.one)
    with pair.one.client() as client:
        assert client.get("/ready").json() == {"ready": True}
        postgres.stop()
        try:
            down = client.get("/ready")
            assert down.status_code == 503
            assert "the store" in down.json()["reason"]
            assert client.get("/health").status_code == 200
        finally:
            postgres.start()
        _await(lambda: client.get("/ready").status_code == 200)
    _await(lambda: post(pair.two, "linux_proc_send", proc_id=proc_id, input="x").status_code == 200)
    assert post(pair.two, "linux_proc_stop", proc_id=proc_id).json()["stopped"]


def test_replicas_that_stop_leave_no_lease(pair: Pair, tmp_path: Path) -> None:
    with replica(tmp_path, pair.store, tmp_path / "data") as server:
        assert post(server, "linux_fs_write", path="a.txt", content="x").status_code == 200
        assert post(server, "run_cmd", command="sleep 600", yield_after=0).json()["running"]
    assert rows(pair.store, "SELECT key FROM leases") == []
