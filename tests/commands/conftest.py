"""Fixtures of commands: a session at each level of the sandbox, or at the one in force."""

import shutil
from collections.abc import Iterator

import pytest

from ..support.talk import Talk, talk_on
from ..support.workspace import Workspace, require


@pytest.fixture(params=("workspace", "landlock"))
def talk(request: pytest.FixtureRequest, workspace: Workspace) -> Iterator[Talk]:
    require(request.param == "landlock" or shutil.which("bwrap") is not None, "bubblewrap")
    with talk_on(workspace.root, level=request.param) as talk:
        yield talk


@pytest.fixture
def any_level(workspace: Workspace) -> Iterator[Talk]:
    with talk_on(workspace.root) as talk:
        yield talk
