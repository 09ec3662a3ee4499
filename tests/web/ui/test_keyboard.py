"""The pages in Chromium, by keyboard alone."""

from llmc_mcp.permissions.approvals import Approvals, AskedCall
from llmc_mcp.session import Session
from llmc_mcp.store.sqlite import SqliteStore

from ...support.browser import Browser, Page
from ...support.workspace import Workspace
from .conftest import PagesServer


def test_a_change_is_found_undone_and_redone_by_keyboard(
    page: Page, pages_server: PagesServer, pages_workspace: Workspace
) -> None:
    file = pages_workspace.file("typed.txt", "before\n")
    change = pages_server.call("linux_fs_write", path="typed.txt", content="after\n", mode="rewrite")["undo_id"]
    page.goto(f"{pages_server.url}/ui")
    page.tab_to("Changes")
    page.loaded(lambda: page.press("Enter"))
    page.tab_to(change)
    page.loaded(lambda: page.press("Enter"))
    assert "-before" in page.text
    page.tab_to(f"Undo change {change}")
    page.loaded(lambda: page.press("Enter"))
    assert file.read_text() == "before\n"
    page.tab_to(f"Redo change {change}")
    page.loaded(lambda: page.press("Enter"))
    assert file.read_text() == "after\n"
    assert page.complaints() == []


def test_a_call_appears_on_the_open_page_by_itself(page: Page, pages_server: PagesServer) -> None:
    page.goto(f"{pages_server.url}/ui")
    assert "seen-by-itself" not in page.text
    pages_server.call("list_dir", session="seen-by-itself", path=".")
    page.wait_for("document.body.innerText.includes('seen-by-itself')")
    assert page.complaints() == []


def test_the_focus_stays_where_it_is_when_the_page_updates_itself(page: Page, pages_server: PagesServer) -> None:
    change = pages_server.call("linux_fs_write", path="focus.txt", content="x\n")["undo_id"]
    page.goto(f"{pages_server.url}/ui/changes")
    page.tab_to(f"Undo change {change}")
    other = pages_server.call("linux_fs_write", path="other.txt", content="x\n")["undo_id"]
    page.wait_for(f"document.body.innerText.includes('{other}')")
    assert page.focused == f"Undo change {change}"


def test_a_person_signs_in_stops_a_program_approves_a_call_and_makes_a_token(
    browser: Browser, pages_server: PagesServer
) -> None:
    started = pages_server.call("run_cmd", session="keys", command="echo busy; sleep 603", yield_after=0.5)["process"]
    store = SqliteStore(str(pages_server.data_dir))
    approvals = Approvals(lambda: store)
    who = Session(principal="uid:0", session_id="asking", agent_id="agent")
    asked = approvals.request(AskedCall(who, "linux_fs_delete", {"path": "tree"}, "delete the tree", "risk", "/"))
    page = browser.page()
    page.clear_cookies()
    page.goto(f"{pages_server.url}/ui/processes")
    page.fill("token", str(pages_server.token))
    page.loaded(lambda: page.press("Enter"))
    assert page.path == "/ui/processes"
    page.tab_to(f"Stop process {started}")
    page.loaded(lambda: page.press("Space"))
    assert "Stopped: " in page.text
    page.tab_to("Approvals")
    page.loaded(lambda: page.press("Enter"))
    page.tab_to(f"Approve {asked.id}: delete the tree")
    page.loaded(lambda: page.press("Enter"))
    assert "Approved: delete the tree" in page.text
    page.tab_to("Limits and tokens")
    page.loaded(lambda: page.press("Enter"))
    page.tab_to("Name")
    page.type("laptop")
    page.loaded(lambda: page.press("Enter"))
    assert "It is shown this once." in page.text
    page.tab_to("Sign out")
    page.loaded(lambda: page.press("Enter"))
    assert page.path.startswith("/login")
    assert page.complaints() == []
    store.close()
