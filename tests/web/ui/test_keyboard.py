"""The pages in Chromium, by keyboard alone."""

from ...support.browser import Page
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
