"""A path that leads nowhere is answered with the nearest ones that exist."""

from pathlib import Path

import pytest

from llmc_mcp.errors import NotFound
from llmc_mcp.files.filesystem import Access, Filesystem

from ..support.workspace import Workspace


def hint_for(files: Filesystem, path: str) -> str:
    with pytest.raises(NotFound) as missing:
        files.open_file(files.locate(path))
    return missing.value.hint or ""


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("src/serer.py", "src/server.py"),
        ("./src/Server.py", "./src/server.py"),
        ("readme.md", "README.md"),
        ("scr/server.py", "src"),
        (".gitignroe", ".gitignore"),
    ],
)
def test_the_nearest_names_of_the_same_folder_are_offered(workspace: Workspace, path: str, near: str) -> None:
    for name in ("src/server.py", "README.md", ".gitignore", "zebra.txt"):
        workspace.file(name)
    assert hint_for(Filesystem([str(workspace.root)]), path) == f"Nearest: {near}."


def test_an_absolute_path_is_answered_with_absolute_ones(workspace: Workspace) -> None:
    workspace.file("src/server.py")
    path = str(workspace.root / "src/serve.py")
    assert hint_for(Filesystem([str(workspace.root)]), path) == f"Nearest: {workspace.root}/src/server.py."


def test_nothing_is_said_about_secrets_hidden_names_or_places_outside(workspace: Workspace) -> None:
    for name in (".env", "id_rsa", ".qqqqqqqq"):
        workspace.file(name)
    data = workspace.root / "state"
    data.mkdir()
    (workspace.root / "out").symlink_to(workspace.outside)
    files = Filesystem([str(workspace.root)], Access((".env", "id_*"), hidden_dir=str(data)))
    for path in (".en", "id_rsb", "qqqqqqqq", "stat", "nothing-like-it"):
        assert hint_for(files, path) == ""
    with pytest.raises(Exception, match="outside"):
        files.open_file(files.locate("out/secre.txt"))


def test_only_so_many_names_of_a_folder_are_looked_at(workspace: Workspace, tmp_path: Path) -> None:
    folder = workspace.root / "many"
    folder.mkdir()
    for number in range(3_000):
        (folder / f"file{number}").touch()
    assert hint_for(Filesystem([str(workspace.root)]), "many/file").count("many/") == 3
