"""A server with a store of its own, a signed-in browser, and what agents did there."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from llmc_mcp.web.auth import COOKIE

from ...support.browser import Browser, Page
from ...support.http_server import OPEN_HANDED, HttpServer
from ...support.workspace import Workspace


class PagesServer(HttpServer):
    """A server whose pages are looked at."""

    def __init__(self, workspace: Workspace, data: Path, *arguments: str) -> None:
        self.data_dir = data
        super().__init__(workspace.root, *OPEN_HANDED, *arguments, env={"LLMC_DATA_DIR": str(data)})

    def cookie(self, token: str | None = None) -> str:
        """The cookie that the login gives for a token."""
        with self.client("") as client:
            reply = client.post(
                "/login",
                content=json.dumps({"token": token or self.token}),
                headers={"content-type": "application/json", "origin": self.url},
            )
        return reply.cookies[COOKIE]

    def visitor(self, token: str | None = None) -> httpx.Client:
        """An HTTP client that is signed in as a browser is."""
        return httpx.Client(
            base_url=self.url,
            cookies={COOKIE: self.cookie(token)},
            headers={"origin": self.url},
            trust_env=False,
            timeout=60,
        )

    def call(self, name: str, /, session: str = "S", token: str | None = None, **arguments: Any) -> Any:
        """Call a tool in a session, and wait until the call is in the store."""
        with self.client(token) as client:
            reply = client.post("/tool", json={"session_id": session, "name": name, "args": arguments})
            assert reply.status_code == 200, reply.text
            flush: dict[str, Any] = {"session_id": "flush", "name": "linux_mcp_usage_stats", "args": {}}
            assert client.post("/tool", json=flush).status_code == 200
        return reply.json()


@pytest.fixture(scope="module")
def pages_workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("pages"))


@pytest.fixture(scope="module")
def pages_server(pages_workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PagesServer]:
    with PagesServer(pages_workspace, tmp_path_factory.mktemp("data")) as server:
        yield server


@pytest.fixture
def visitor(pages_server: PagesServer) -> Iterator[httpx.Client]:
    with pages_server.visitor() as client:
        yield client


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as made:
        yield made


@pytest.fixture
def page(browser: Browser, pages_server: PagesServer) -> Page:
    """A page of a signed-in browser."""
    made = browser.page()
    made.set_cookie(pages_server.url, COOKIE, pages_server.cookie())
    return made


def proof_in(html: str) -> str:
    """What the forms of a page carry."""
    found = re.search(r'name="csrf" value="([0-9a-f]+)"', html)
    assert found, html[:2000]
    return found[1]
