"""Helpers for tests of changes: a server with a journal of its own, and readers of its replies."""

import hashlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from .client import UNASKED, Client, Reply
from .workspace import Workspace


def never() -> None:
    """A cancellation check that never cancels."""


def sha(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def litter(folder: Path) -> list[str]:
    """Temporary files of changes: none may be left once a change is settled."""
    return [str(path) for path in folder.rglob(".llmc-*")]


@contextmanager
def journaling_server(workspace: Workspace, data_dir: Path) -> Generator[Client]:
    """A server that answers in JSON and keeps its journal in a directory of its own."""
    env = {"LLMC_DATA_DIR": str(data_dir)}
    with Client("--root", str(workspace.root), "--mode", "classic", *UNASKED, env=env) as client:
        yield client


@pytest.fixture
def server(workspace: Workspace, tmp_path: Path) -> Iterator[Client]:
    """Such a server on the workspace; it leaves no litter there."""
    with journaling_server(workspace, tmp_path / "data") as client:
        yield client
    assert litter(workspace.root) == []


def done(reply: Reply) -> dict[str, Any]:
    """The result of a call that succeeds."""
    assert not reply.is_error, reply.text
    return reply.meta


def undo(server: Client, undo_id: str | None = None, **more: Any) -> list[dict[str, Any]]:
    """The changes that linux_fs_undo reverted."""
    return done(server.call("linux_fs_undo", **({"undo_id": undo_id} if undo_id else {}), **more))["undone"]
