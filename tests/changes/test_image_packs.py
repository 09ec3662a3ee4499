"""What a command changed in many small files takes little more room in the journal than it had on the disk."""

import os
import random
from pathlib import Path

import pytest

from llmc_mcp.app import App
from llmc_mcp.config.schema import Config
from llmc_mcp.errors import LlmcError

from ..support.commands import command, engines, snapshot, undo
from .test_commands_limits import undo_and_redo

_FILES, _BYTES = 400, 1_024


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Many small files that can't be compressed."""
    made, chance = tmp_path / "root", random.Random(1)
    for number in range(_FILES):
        folder = made / f"folder{number % 10}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"file{number}.txt").write_bytes(chance.randbytes(_BYTES))
    return made


def stored(app: App) -> int:
    """The bytes of all images and of what the changes did."""
    (images,) = app.store.query("SELECT coalesce(sum(stored), 0) FROM images")[0]
    (effects,) = app.store.query("SELECT coalesce(sum(length(effects)), 0) FROM changes")[0]
    return int(str(images)) + int(str(effects))


def rewrite(root: Path) -> None:
    for path in root.rglob("*.txt"):
        path.write_text("new")


def test_many_small_files_are_kept_together_and_come_back(root: Path, tmp_path: Path) -> None:
    with engines(root, tmp_path / "data") as app:
        command(app, lambda: None)
        before = snapshot(root)
        changes = command(app, lambda: rewrite(root))
        assert changes.files == _FILES
        assert stored(app) <= 1.1 * _FILES * _BYTES
        undo_and_redo(app, changes, root, before, snapshot(root))


def test_the_same_content_is_kept_once(root: Path, tmp_path: Path) -> None:
    data = os.urandom(20_000)
    for path in root.rglob("*.txt"):
        path.write_bytes(data)
    with engines(root, tmp_path / "data") as app:
        command(app, lambda: None)
        undo(app, command(app, lambda: rewrite(root)))
        (images,) = app.store.query("SELECT sum(stored) FROM images")[0]
        assert int(str(images)) < 30_000
        assert all(path.read_bytes() == data for path in root.rglob("*.txt"))


def test_a_pack_that_made_room_for_others_is_missed_with_a_reason(root: Path, tmp_path: Path) -> None:
    config = Config()
    config.limits.journal_max_total_bytes = 600 << 10
    with engines(root, tmp_path / "data", config) as app:
        command(app, lambda: None)
        first = command(app, lambda: rewrite(root))
        for path in root.rglob("*.txt"):
            path.write_bytes(os.urandom(_BYTES))
        command(app, lambda: None)
        before = snapshot(root)
        second = command(app, lambda: rewrite(root))
        with pytest.raises(LlmcError, match="make room"):
            undo(app, first)
        undo(app, second)
        assert snapshot(root) == before
    assert len(list((tmp_path / "data" / "journal").iterdir())) <= 3  # the pack of the first is gone
