"""Every page is usable by everybody: axe-core finds nothing serious, in light and dark, on a desk and on a phone."""

import json
from pathlib import Path

import pytest

from llmc_mcp.web.ui.routes import PAGES

from ...support.browser import Page
from ...support.workspace import Workspace, require
from .conftest import PagesServer

AXE = Path(__file__).parents[2] / "accessibility" / "node_modules" / "axe-core" / "axe.min.js"
PHONE, DESK = (360, 740), (1280, 900)


@pytest.fixture(scope="module")
def axe() -> str:
    require(AXE.exists(), "axe-core (make clients)")
    return AXE.read_text()


@pytest.fixture(scope="module")
def busy_server(pages_server: PagesServer, pages_workspace: Workspace) -> dict[str, str]:
    """What the pages have something to show of; returns the parameters of those that need one."""
    pages_workspace.file("a.txt", "one\ntwo\n")
    change = pages_server.call("linux_fs_write", path="a.txt", content="one\nthree\n", mode="rewrite")["undo_id"]
    pages_server.call("linux_proc_start", command="bash -c 'echo ready; read x'")
    return {"/ui/change": f"?id={change}", "/ui/session": "?id=S"}


@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_no_serious_finding_and_fits_a_phone(
    page: Page, pages_server: PagesServer, busy_server: dict[str, str], axe: str, path: str
) -> None:
    for scheme, size in (("light", DESK), ("dark", PHONE)):
        page.prefer(scheme)
        page.resize(*size)
        page.goto(f"{pages_server.url}{path}{busy_server.get(path, '')}")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{path} is wider than {size}"
        page.evaluate(axe)
        found = page.evaluate("axe.run().then(result => JSON.stringify(result.violations))")
        serious = [
            (one["id"], [node["html"][:200] for node in one["nodes"][:3]])
            for one in json.loads(found)
            if one["impact"] in ("serious", "critical")
        ]
        assert serious == [], f"{path} in {scheme}"
