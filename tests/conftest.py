"""Fixtures: a workspace, a server on it, and a data directory of the tests' own."""

import gc
import os
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from .support.client import Client
from .support.hung_mount import HangingMount, can_mount, hanging_mount
from .support.postgres import NEEDED, Cluster, cluster, programs
from .support.workspace import Workspace, require

# Words of a skipped test's reason → what would let it run.
REMEDIES = (
    (("bwrap", "bubblewrap"), "apt-get install bubblewrap"),
    (("PostgreSQL",), "apt-get install postgresql"),
    (("chromium",), "apt-get install chromium"),
    (("kubernetes-validate",), "pip install kubernetes-validate"),
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


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Make no garbage collection of what is imported and collected here: nearly all of it stays to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def data_directory(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep what servers store during the tests out of the user's data directory."""
    os.environ["LLMC_DATA_DIR"] = str(tmp_path_factory.mktemp("data"))
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # of a pytest that a test starts: it would import all of ours
    os.environ["LLMC_MCP_RAG_BUILD_WAIT_SEC"] = "60"  # a loaded machine builds slowly, and a test wants what is there


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """A PostgreSQL of the tests' own."""
    require(programs() != "", NEEDED)
    with cluster() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """The address of an empty store, of each kind in turn."""
    if request.param == "sqlite":
        return "sqlite"
    running: Cluster = request.getfixturevalue("postgres")
    return running.fresh()


@pytest.fixture(scope="session", autouse=True)
def tested_store(request: pytest.FixtureRequest) -> None:
    """With LLMC_TEST_STORE=postgres, every server that a test starts has its state in PostgreSQL."""
    if os.environ.get("LLMC_TEST_STORE") == "postgres":
        running: Cluster = request.getfixturevalue("postgres")
        os.environ["LLMC_MCP_STORE_URL"] = running.fresh()


@pytest.fixture
def sqlite_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what SQLite does: servers have their state there, whatever LLMC_TEST_STORE says."""
    monkeypatch.delenv("LLMC_MCP_STORE_URL", raising=False)


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
