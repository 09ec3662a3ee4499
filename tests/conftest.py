"""Fixtures: a workspace, a server on it, and a data directory of the tests' own."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from .support.client import Client
from .support.hung_mount import HangingMount, can_mount, hanging_mount
from .support.workspace import Workspace, require

# Words of a skipped test's reason → what would let it run.
REMEDIES = (
    (("bwrap", "bubblewrap"), "apt-get install bubblewrap"),
    (("chromium",), "apt-get install chromium"),
    (("make peers",), "make peers (needs npm)"),
    (("make clients",), "make clients (needs npm)"),
    (("root", "user", "mount"), "run it as root"),
    (("Landlock", "landlock"), "a kernel with Landlock (Linux 5.13 or later)"),
)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in a line each what would let skipped tests run."""
    unlocked: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", ()):
        reason = str(report.longrepr[2]).removeprefix("Skipped: ")
        if reason.startswith("needs "):
            remedy = (what for words, what in REMEDIES if any(word in reason for word in words))
            unlocked[next(remedy, f"install {reason.removeprefix('needs ')}")] += 1
    for remedy, count in unlocked.most_common():
        terminalreporter.write_line(f"{count} tests were skipped; to run them: {remedy}")


@pytest.fixture(scope="session", autouse=True)
def data_directory(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep what servers store during the tests out of the user's data directory."""
    os.environ["LLMC_DATA_DIR"] = str(tmp_path_factory.mktemp("data"))


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


@pytest.fixture
def mount(workspace: Workspace) -> Iterator[HangingMount]:
    """A mount in the workspace that can be made to hang."""
    require(can_mount(), "root that may make mounts")
    with hanging_mount(workspace.root / "hung") as made:
        yield made


@pytest.fixture
def server(workspace: Workspace) -> Iterator[Client]:
    """A server in the default mode on the workspace."""
    with Client("--root", str(workspace.root)) as client:
        yield client
