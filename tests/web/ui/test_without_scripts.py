"""Without JavaScript the pages show and do the same; they only do not update themselves."""

from pathlib import Path

from llmc_mcp.web.auth import COOKIE

from ...support.browser import Browser
from ...support.workspace import Workspace
from .conftest import PagesServer


def test_a_change_is_undone_in_a_browser_without_javascript(
    tmp_path: Path, pages_server: PagesServer, pages_workspace: Workspace
) -> None:
    file = pages_workspace.file("plain.txt", "before\n")
    change = pages_server.call("linux_fs_write", path="plain.txt", content="after\n", mode="rewrite")["undo_id"]
    with Browser(tmp_path, javascript=False) as browser:
        page = browser.page()
        page.set_cookie(pages_server.url, COOKIE, pages_server.cookie())
        page.goto(f"{pages_server.url}/ui/change?id={change}")
        page.tab_to(f"Undo change {change}")
        page.loaded(lambda: page.press("Enter"))
        assert "Undone: " in page.text
    assert file.read_text() == "before\n"
