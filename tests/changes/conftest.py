"""Fixtures of changes: the engines on a workspace."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from llmc_mcp.app import App
from llmc_mcp.config.schema import Config

from ..support.changes import litter
from ..support.workspace import Workspace


@pytest.fixture
def app(workspace: Workspace, tmp_path: Path) -> Iterator[App]:
    """The engines on a workspace, with a journal of their own."""
    it = App(Config(), [str(workspace.root)], str(tmp_path / "data"))
    yield it
    it.close()
    assert litter(workspace.root) == []
