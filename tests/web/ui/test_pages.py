"""What the pages show and do, over plain HTTP: as it is without JavaScript."""

import httpx2 as httpx

from llmc_mcp.web.ui.layout import ASSETS

from ...support.client import Client
from ...support.workspace import Workspace
from .conftest import PagesServer, proof_in


def submit(visitor: httpx.Client, page: str, path: str, **fields: str) -> httpx.Response:
    """Fill in a form of a page."""
    proof = proof_in(visitor.get(page).text)
    return visitor.post(path, data={**fields, "csrf": proof}, follow_redirects=True)


def test_a_browser_without_a_token_is_sent_to_the_login(pages_server: PagesServer) -> None:
    with pages_server.client("") as client:
        for path in ("/ui", "/ui/changes", "/ui/events"):
            reply = client.get(path, headers={"accept": "text/html"})
            assert (reply.status_code, reply.headers["location"]) == (303, f"/login?next={path}")


def test_a_call_of_any_session_is_on_the_overview(pages_server: PagesServer, visitor: httpx.Client) -> None:
    pages_server.call("list_dir", session="of-this-server", path=".")
    with Client(
        "--root", str(pages_server.data_dir.parent), env={"LLMC_DATA_DIR": str(pages_server.data_dir)}
    ) as stdio:
        assert not stdio.call("list_dir", path=".").code
    shown = visitor.get("/ui").text
    assert "of-this-server" in shown
    assert "stdio" in shown
    assert "list_dir" in shown


def test_a_change_is_shown_as_a_diff_undone_and_redone(
    pages_server: PagesServer, pages_workspace: Workspace, visitor: httpx.Client
) -> None:
    pages_workspace.file("greeting.txt", "hello\n")
    change = pages_server.call("linux_fs_write", path="greeting.txt", content="bye\n", mode="rewrite")["undo_id"]
    page = f"/ui/change?id={change}"
    shown = visitor.get(page).text
    assert '<span class="del">-hello</span>' in shown
    assert '<span class="add">+bye</span>' in shown
    undone = submit(visitor, page, "/ui/undo", id=change, back=page).text
    assert "Undone: " in undone
    assert (pages_workspace.root / "greeting.txt").read_text() == "hello\n"
    assert ">Redo</button>" in undone
    redo = undone.split('name="id" value="')[1].split('"')[0]
    assert "Redone: " in submit(visitor, page, "/ui/undo", id=redo, back=page).text
    assert (pages_workspace.root / "greeting.txt").read_text() == "bye\n"


def test_all_changes_of_a_session_are_undone_at_once(
    pages_server: PagesServer, pages_workspace: Workspace, visitor: httpx.Client
) -> None:
    for name in ("one.txt", "two.txt"):
        pages_server.call("linux_fs_write", session="whole", path=name, content="new\n")
    page = "/ui/session?id=whole"
    assert "Undo all 2 changes" in visitor.get(page).text
    assert "Undone: 2 of 2 changes." in submit(visitor, page, "/ui/undo", session="whole", back=page).text
    assert not (pages_workspace.root / "one.txt").exists()
    assert not (pages_workspace.root / "two.txt").exists()


def test_a_change_of_a_stdio_session_in_another_folder_is_undone(
    pages_server: PagesServer, workspace: Workspace, visitor: httpx.Client
) -> None:
    with Client("--root", str(workspace.root), env={"LLMC_DATA_DIR": str(pages_server.data_dir)}) as stdio:
        assert not stdio.call("linux_fs_write", path="elsewhere.txt", content="x\n").code
    shown = visitor.get("/ui/changes").text
    assert str(workspace.root / "elsewhere.txt") in shown
    change = shown.split("/ui/change?id=")[1].split('"')[0]
    assert "Undone: " in submit(visitor, "/ui/changes", "/ui/undo", id=change, back="/ui/changes").text
    assert not (workspace.root / "elsewhere.txt").exists()


def test_a_form_that_is_not_from_the_viewers_page_changes_nothing(
    pages_server: PagesServer, pages_workspace: Workspace, visitor: httpx.Client
) -> None:
    change = pages_server.call("linux_fs_write", path="kept.txt", content="kept\n")["undo_id"]
    with pages_server.visitor() as other:
        foreign = proof_in(other.get("/ui/changes").text)
    for proof in ("", "0" * 64, foreign):
        assert visitor.post("/ui/undo", data={"id": change, "csrf": proof}).status_code == 403
    own = proof_in(visitor.get("/ui/changes").text)
    fields = {"id": change, "csrf": own}
    assert visitor.post("/ui/undo", data=fields, headers={"origin": "http://evil.example"}).status_code == 403
    assert (pages_workspace.root / "kept.txt").exists()


def test_a_form_never_leads_to_another_site(pages_server: PagesServer, visitor: httpx.Client) -> None:
    change = pages_server.call("linux_fs_write", path="away.txt", content="x\n")["undo_id"]
    proof = proof_in(visitor.get("/ui/changes").text)
    for back in ("//evil.example", "https://evil.example/ui", "/ui/changes\r\nx: y", "/login"):
        reply = visitor.post("/ui/undo", data={"id": change, "csrf": proof, "back": back})
        assert reply.headers["location"] == "/ui"


def test_every_page_forbids_what_it_does_not_need(visitor: httpx.Client) -> None:
    reply = visitor.get("/ui")
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "<script>" not in reply.text
    assert " style=" not in reply.text
    assert reply.headers["cache-control"] == "no-store"
    assert reply.headers["x-frame-options"] == "DENY"


def test_all_assets_together_are_small_and_kept_by_browsers(visitor: httpx.Client) -> None:
    sizes = 0
    for path in ASSETS:
        reply = visitor.get(path)
        assert "immutable" in reply.headers["cache-control"]
        sizes += len(reply.content)
    assert sizes + len(visitor.get("/ui").content) <= 100_000
