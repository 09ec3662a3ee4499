"""A person with a browser: opens what the server prints, signs in, and sees the page."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..support.browser import Browser
from ..support.client import PATIENCE
from ..support.forked import LLMC, ForkedServer
from ..support.workspace import Workspace


class Printed:
    """A server as `make run` starts it, and what it prints."""

    def __init__(self, root: Path, data: Path) -> None:
        environment = {**os.environ, "LLMC_DATA_DIR": str(data)}
        environment.pop("LLMC_MCP_TOKEN", None)
        self.process = ForkedServer(
            LLMC,
            ["run", "--port", "0", "--root", str(root)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=root,
            text=True,
        )
        assert self.process.stdout
        self.text = ""
        for line in self.process.stdout:
            self.text += line
            if "^C ends it" in line:
                break

    def find(self, pattern: str) -> str:
        found = re.search(pattern, self.text)
        assert found, self.text
        return found[1]

    def close(self) -> str:
        """End it; returns its log."""
        self.process.send_signal(signal.SIGINT)
        return self.process.communicate(timeout=PATIENCE)[1]


@pytest.fixture
def printed(workspace: Workspace, tmp_path: Path) -> Iterator[Printed]:
    server = Printed(workspace.root, tmp_path / "data")
    yield server
    server.close()


def test_whoever_opens_the_printed_page_signs_in_with_the_token_and_sees_it(printed: Printed, tmp_path: Path) -> None:
    address = printed.find(r"(http://\S+/docs)")
    with Browser(tmp_path / "home") as browser:
        page = browser.page()
        page.goto(address)
        assert page.path == "/login?next=/docs"
        page.fill("token", printed.find(r"token\s+(\S+)"))
        page.loaded(lambda: page.press("Enter"))
        assert page.path == "/docs"
        assert "linux_fs_read" in page.text
        page.goto(address.removesuffix("docs"))
        assert page.path == "/ui"


def test_the_printed_link_signs_in_once(printed: Printed, tmp_path: Path) -> None:
    link = printed.find(r"browser\s+(\S+)")
    with Browser(tmp_path / "one") as browser, Browser(tmp_path / "two") as other:
        page, late = browser.page(), other.page()
        page.goto(link)
        assert page.path == "/ui"
        late.goto(link)
        assert "used already" in late.text
    assert link.partition("code=")[2] not in printed.close()
