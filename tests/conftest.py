"""Fixtures: a folder to work in with something outside of it, and a server on that folder."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .support.client import Client

SECRET = "OUTSIDE-SECRET-7f3a"
NOBODY = 65534


class Workspace:
    """A root, and beside it a folder that no tool may reach."""

    def __init__(self, base: Path) -> None:
        self.root = base / "root"
        self.outside = base / "outside"
        self.root.mkdir()
        self.outside.mkdir()
        (self.outside / "secret.txt").write_text(f"{SECRET}\n")

    def file(self, name: str, content: str | bytes = "") -> Path:
        """Make a file below the root, with its folders."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path


@pytest.fixture(scope="session", autouse=True)
def data_directory(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What servers keep during the tests is not the user's."""
    os.environ["LLMC_DATA_DIR"] = str(tmp_path_factory.mktemp("data"))


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


@pytest.fixture
def server(workspace: Workspace) -> Iterator[Client]:
    """A server in the default mode on the workspace."""
    with Client("--root", str(workspace.root)) as client:
        yield client


def run_as_at(level: str) -> str:
    """Whom commands have to run as at a level, if not as whoever runs the tests: Landlock does not hold root."""
    return "nobody" if level == "landlock" and os.getuid() == 0 else ""


def hand_over(folder: Path) -> None:
    """Make a folder and all in it nobody's own, and let him get there."""
    for parent in folder.parents:
        mode = parent.stat().st_mode
        if mode & 0o011 != 0o011:
            parent.chmod(mode | 0o011)
    for path in (folder, *folder.rglob("*")):
        os.lchown(path, NOBODY, NOBODY)


def require(available: bool, what: str) -> None:
    """Skip where something optional is missing, fail where everything must be there."""
    if available:
        return
    if os.environ.get("LLMC_TEST_REQUIRE_ALL"):
        pytest.fail(f"{what} is missing, and this machine must have it")
    pytest.skip(f"needs {what}")
