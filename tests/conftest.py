"""Fixtures: a workspace, a server on it, and a data directory of the tests' own."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .support.client import Client
from .support.workspace import Workspace


@pytest.fixture(scope="session", autouse=True)
def data_directory(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep what servers store during the tests out of the user's data directory."""
    os.environ["LLMC_DATA_DIR"] = str(tmp_path_factory.mktemp("data"))


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


@pytest.fixture
def server(workspace: Workspace) -> Iterator[Client]:
    """A server in the default mode on the workspace."""
    with Client("--root", str(workspace.root)) as client:
        yield client
