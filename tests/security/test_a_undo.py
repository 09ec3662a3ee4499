"""Undoing what commands did reaches nothing that the commands themselves could not."""

from pathlib import Path

import pytest

from llmc_mcp.app import App
from llmc_mcp.config.schema import Config
from llmc_mcp.errors import LlmcError

from ..support.changes import never
from ..support.commands import WHO, command, engines, git, undo
from ..support.workspace import SECRET, Workspace


@pytest.mark.parametrize("way", ["alternates", "link"])
def test_a50_undo_restores_nothing_from_objects_outside_the_roots(
    workspace: Workspace, tmp_path: Path, way: str
) -> None:
    """An index can claim that a file is a blob that only another repository has."""
    other, root = workspace.outside, workspace.root
    git(other, "init", "-q")
    git(other, "add", "-A")
    oid = git(other, "rev-parse", ":secret.txt").strip()
    (root / "bait").write_text("x" * (len(SECRET) + 1))
    git(root, "init", "-q")
    objects = root / ".git" / "objects"
    if way == "alternates":
        (objects / "info" / "alternates").write_text(f"{other}/.git/objects\n")
    else:
        objects.rename(root / ".git" / "unused")
        objects.symlink_to(other / ".git" / "objects")
    git(root, "add", "bait")
    index = root / ".git" / "index"
    own = git(root, "rev-parse", ":bait").strip()
    index.write_bytes(index.read_bytes().replace(bytes.fromhex(own), bytes.fromhex(oid)))
    before = (root / "bait").read_text()
    with engines(root, tmp_path / "data") as app:
        undo(app, command(app, (root / "bait").unlink))
    assert (root / "bait").read_text() == before


@pytest.mark.parametrize("force", [False, True])
def test_a51_undo_follows_no_link_that_took_a_folders_place(workspace: Workspace, tmp_path: Path, force: bool) -> None:
    root, outside = workspace.root, workspace.outside
    (root / "folder").mkdir()
    (root / "folder" / "secret.txt").write_text("mine")
    with engines(root, tmp_path / "data") as app:
        changes = command(app, lambda: (root / "folder" / "secret.txt").write_text("changed"))
        assert changes.undo_id is not None
        (root / "folder" / "secret.txt").unlink()
        (root / "folder").rmdir()
        (root / "folder").symlink_to(outside)
        change = app.changes.journal.find(changes.undo_id, None)
        with pytest.raises(LlmcError):
            app.undoing.undo(WHO, change, force, never)
    assert (outside / "secret.txt").read_text() == f"{SECRET}\n"
    assert sorted(path.name for path in outside.iterdir()) == ["secret.txt"]


def test_a52_undo_never_writes_a_configuration_in_force(workspace: Workspace, tmp_path: Path) -> None:
    config = workspace.file("llmc.toml", "[mcp]\n")
    app = App(Config(), [str(workspace.root)], str(tmp_path / "data"), own_files=[str(config)])
    try:
        changes = command(app, lambda: config.write_text("[mcp.tools]\n"))
        with pytest.raises(LlmcError, match="protected"):
            undo(app, changes)
        assert config.read_text() == "[mcp.tools]\n"
    finally:
        app.close()
