"""Who may see and do what on the pages: scopes, processes, approvals, tokens."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest

from llmc_mcp.permissions.approvals import Approvals, AskedCall
from llmc_mcp.permissions.tokens import TokenTable
from llmc_mcp.session import Session
from llmc_mcp.store.sqlite import SqliteStore

from ...support.client import Client
from ...support.workspace import Workspace
from .conftest import PagesServer, proof_in
from .test_pages import submit


@pytest.fixture(scope="module")
def store(pages_server: PagesServer) -> Iterator[SqliteStore]:
    """The store of the server, as another process of the user has it."""
    made = SqliteStore(str(pages_server.data_dir))
    yield made
    made.close()


def test_a_background_command_is_shown_with_its_output_and_stopped(
    pages_server: PagesServer, visitor: httpx.Client
) -> None:
    started = pages_server.call("run_cmd", command="echo at work; sleep 600", yield_after=0.5)
    assert started["running"]
    shown = visitor.get("/ui/processes").text
    assert "echo at work; sleep 600" in shown
    assert "at work\n" in shown
    assert "Stopped: " in submit(visitor, "/ui/processes", "/ui/stop", id=started["process"], back="/ui/processes").text
    assert started["process"] not in visitor.get("/ui/processes").text


def test_looking_on_leaves_the_output_for_the_agent(pages_server: PagesServer, visitor: httpx.Client) -> None:
    started = pages_server.call("linux_proc_start", command="bash -c 'read x; echo got it; read x'")
    pages_server.call("linux_proc_send", proc_id=started["proc_id"], input="go\n")
    while "got it" not in visitor.get("/ui/processes").text:
        pass
    assert "got it" in pages_server.call("linux_proc_read", proc_id=started["proc_id"])["output"]
    assert "got it" in visitor.get("/ui/processes").text
    pages_server.call("linux_proc_stop", proc_id=started["proc_id"])


def test_a_program_of_a_stdio_server_is_shown_with_its_output_and_stopped(
    pages_server: PagesServer, visitor: httpx.Client, workspace: Workspace
) -> None:
    with Client("--root", str(workspace.root), env={"LLMC_DATA_DIR": str(pages_server.data_dir)}) as stdio:
        started = stdio.call("run_cmd", command="echo from afar; sleep 601", yield_after=0.5)
        while "from afar" not in (shown := visitor.get("/ui/processes").text):
            pass
        proc_id = started.meta["process"]
        assert proc_id in shown
        submit(visitor, "/ui/processes", "/ui/stop", id=proc_id, back="/ui/processes")
        while proc_id in visitor.get("/ui/processes").text:
            pass


def test_a_call_that_waits_is_approved_once(
    pages_server: PagesServer, visitor: httpx.Client, store: SqliteStore
) -> None:
    approvals = Approvals(lambda: store)
    who = Session(principal="uid:0", session_id="asking", agent_id="agent")
    call = AskedCall(who, "linux_fs_delete", {"path": "tree"}, "delete the folder tree", "risk", "/")
    asked = approvals.request(call)
    assert "delete the folder tree" in visitor.get("/ui/approvals").text
    page = "/ui/approvals"
    assert "Approved: delete the folder tree" in submit(visitor, page, "/ui/approve", id=asked.id, back=page).text
    assert approvals.use(call) is True
    assert "was answered already" in submit(visitor, page, "/ui/deny", id=asked.id, back=page).text


def test_a_new_token_is_shown_once_and_never_again(pages_server: PagesServer, visitor: httpx.Client) -> None:
    made = submit(visitor, "/ui/tokens", "/ui/token-create", name="phone", scopes="read", days="1")
    secret = made.text.split("<pre")[1].split(">")[1].split("<")[0]
    assert len(secret) >= 40
    shown = visitor.get("/ui/tokens").text
    assert "phone" in shown
    assert secret not in shown
    assert secret not in pages_server.log
    pages_server.call("list_dir", token=secret, path=".")
    assert "Revoked: phone" in submit(visitor, "/ui/tokens", "/ui/token-revoke", name="phone", back="/ui/tokens").text
    with pages_server.client(secret) as revoked:
        assert revoked.get("/ui").status_code == 401


def test_what_a_form_did_is_in_the_audit(pages_server: PagesServer, visitor: httpx.Client) -> None:
    change = pages_server.call("linux_fs_write", path="audited.txt", content="x\n")["undo_id"]
    submit(visitor, "/ui/changes", "/ui/undo", id=change, back="/ui/changes")
    records = "".join(path.read_text() for path in pages_server.data_dir.glob("audit/*.jsonl"))
    assert "/ui/undo" in records


@pytest.fixture(scope="module")
def reader(store: SqliteStore) -> str:
    """A token that may only read."""
    return TokenTable(lambda: store).create("reader", ("read",))


def test_a_token_that_may_only_read_sees_its_own_and_changes_nothing(
    pages_server: PagesServer, pages_workspace: Workspace, reader: str
) -> None:
    change = pages_server.call("linux_fs_write", session="owners", path="owners.txt", content="x\n")["undo_id"]
    pages_server.call("list_dir", session="readers", token=reader, path=".")
    with pages_server.visitor(reader) as visitor:
        shown = visitor.get("/ui").text
        assert "readers" in shown
        assert "owners" not in shown
        assert change not in visitor.get("/ui/changes").text
        assert visitor.get(f"/ui/change?id={change}").status_code == 404
        assert visitor.get("/ui/doctor").status_code == 403
        assert "New token" not in visitor.get("/ui/tokens").text
        proof = proof_in(shown)
        for path, fields in (
            ("/ui/undo", {"id": change}),
            ("/ui/stop", {"id": "P_0"}),
            ("/ui/approve", {"id": "A_0"}),
            ("/ui/token-create", {"name": "mine", "scopes": "admin"}),
        ):
            reply = visitor.post(path, data={**fields, "csrf": proof}, follow_redirects=True)
            assert "needs the scope" in reply.text
    assert (pages_workspace.root / "owners.txt").exists()


def test_a_token_for_some_tools_does_no_more_on_the_pages_and_gives_no_more_away(
    pages_server: PagesServer, pages_workspace: Workspace, store: SqliteStore
) -> None:
    table = TokenTable(lambda: store)
    some = table.create("some", ("read", "write", "admin"), tools=("linux_mcp_*", "linux_fs_write"))
    change = pages_server.call("linux_fs_write", token=some, path="some.txt", content="x\n")["undo_id"]
    with pages_server.visitor(some) as visitor:
        refused = submit(visitor, "/ui/changes", "/ui/undo", id=change, back="/ui/changes").text
        assert "none of the tools of this token" in refused
        submit(visitor, "/ui/tokens", "/ui/token-create", name="more", scopes="read", days="1")
    assert (pages_workspace.root / "some.txt").exists()
    assert next(one for one in table.list() if one.name == "more").tools == ("linux_mcp_*", "linux_fs_write")


def test_what_a_rule_denies_a_token_it_can_not_do_on_the_pages(workspace: Workspace, tmp_path: Path) -> None:
    rules = json.dumps([{"token": "ci", "tool": "linux_fs_undo", "do": "deny"}])
    with PagesServer(workspace, tmp_path / "data", "--set", f"policy.rules={rules}") as server:
        made = SqliteStore(str(server.data_dir))
        token = TokenTable(lambda: made).create("ci", ("read", "write"))
        made.close()
        change = server.call("linux_fs_write", token=token, path="kept.txt", content="x\n")["undo_id"]
        with server.visitor(token) as visitor:
            assert "is denied by rule 1" in submit(visitor, "/ui/changes", "/ui/undo", id=change, back="/ui").text
        assert (workspace.root / "kept.txt").exists()
        with server.visitor() as owner:
            submit(owner, "/ui/changes", "/ui/undo", id=change, back="/ui")
        assert not (workspace.root / "kept.txt").exists()
