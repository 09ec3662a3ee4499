"""Changing files through a server that has a journal of its own: the fixture, the calls, and what must not be left."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .client import Client, Reply
from .workspace import Workspace


@pytest.fixture
def server(workspace: Workspace, tmp_path: Path) -> Iterator[Client]:
    """A server that answers in JSON and has a journal of its own; a test imports it under this name."""
    with Client(
        "--root", str(workspace.root), "--mode", "classic", env={"LLMC_DATA_DIR": str(tmp_path / "data")}
    ) as it:
        yield it
    assert litter(workspace.root) == []


def sha(text: str | bytes) -> str:
    """The hash that a change reports for this content."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def litter(folder: Path) -> list[str]:
    """Files that only a change in progress may leave."""
    return [str(path) for path in folder.rglob(".llmc-*")]


def done(reply: Reply) -> dict[str, Any]:
    """The result of a call, which must not be an error."""
    assert not reply.is_error, reply.text
    return reply.meta


def undo(server: Client, undo_id: str | None = None, **more: Any) -> list[dict[str, Any]]:
    """Take back one change, or the newest."""
    return done(server.call("linux_fs_undo", **({"undo_id": undo_id} if undo_id else {}), **more))["undone"]


def changes(server: Client, **arguments: Any) -> list[dict[str, Any]]:
    """The changes that the journal lists."""
    return done(server.call("linux_fs_changes", **arguments))["changes"]
