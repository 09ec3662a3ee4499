"""Build trees and packages are covered as long as there is room, after everything else; what is not is named."""

from pathlib import Path

import pytest

from llmc_mcp.config.schema import Config
from llmc_mcp.tracking.generated import IgnorePatterns

from ..support.commands import command, engines, git, snapshot, undo


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository whose ignored folders come first by name, and hold more than the sources."""
    made = tmp_path / "root"
    for folder, files, size in (("aaa", 30, 500), ("node_modules/x", 30, 500), ("src", 5, 100)):
        (made / folder).mkdir(parents=True)
        for number in range(files):
            (made / folder / f"{number}.txt").write_text(f"{folder}{number}".ljust(size))
    (made / ".gitignore").write_text("/aaa/\n")
    git(made, "init", "-q", "--template=")
    git(made, "add", ".gitignore")
    git(made, "commit", "-qm", "one")
    return made


def test_sources_are_copied_before_what_git_ignores(root: Path, tmp_path: Path) -> None:
    config = Config()
    config.limits.command_undo_bytes = 20_000  # for all but half of what is ignored
    with engines(root, tmp_path / "data", config) as app:
        command(app, lambda: None)
        before = snapshot(root / "src")
        changes = command(app, lambda: [path.unlink() for path in root.glob("src/*")])
        assert changes.warnings == ()
        undo(app, changes)
        assert snapshot(root / "src") == before
        lost = command(app, lambda: [path.unlink() for path in (*root.glob("aaa/*"), *root.glob("node_modules/x/*"))])
        assert "budget" in lost.warnings[0]


def test_generated_files_leave_room_for_what_is_changed_later(root: Path, tmp_path: Path) -> None:
    config = Config()
    config.limits.command_undo_bytes = 20_000
    with engines(root, tmp_path / "data", config) as app:
        command(app, lambda: None)
        for number in range(5):
            text = str(number) * 1_000
            changes = command(app, lambda text=text: (root / "src" / "0.txt").write_text(text))
            assert changes.warnings == ()


def test_a_generated_tree_with_too_many_files_is_named_and_the_rest_is_covered(root: Path, tmp_path: Path) -> None:
    config = Config()
    config.limits.command_undo_files = 55 + len(list((root / ".git").rglob("*")))  # for one of the two
    with engines(root, tmp_path / "data", config) as app:
        command(app, lambda: None)
        assert app.command_undo is not None
        (tree,) = app.command_undo.trees
        (left_out,) = tree.uncovered
        before = snapshot(root / "src")
        changes = command(app, (root / "src" / "1.txt").unlink)
        assert left_out in changes.none
        undo(app, changes)
        assert snapshot(root / "src") == before
        gone = command(app, lambda: [path.unlink() for path in root.glob(f"{left_out}/**/*.txt")])
        assert left_out in gone.none


def test_a_new_tree_with_too_many_files_stays_and_the_rest_is_undone(root: Path, tmp_path: Path) -> None:
    config = Config()
    config.limits.command_undo_files = 200 + len(list((root / ".git").rglob("*")))

    def act() -> None:
        (root / "src" / "1.txt").unlink()
        (root / "build").mkdir()
        for number in range(300):
            (root / "build" / str(number)).write_text("x")

    with engines(root, tmp_path / "data", config) as app:
        command(app, lambda: None)
        before = snapshot(root / "src")
        changes = command(app, act)
        assert "build" in changes.none
        assert any(one.startswith("build: ") for one in undo(app, changes))
        assert snapshot(root / "src") == before
        assert len(list((root / "build").iterdir())) == 300


@pytest.mark.parametrize(
    ("patterns", "path", "ignored"),
    [
        ("build/\n", "build", True),
        ("build/\n", "a/build", True),
        ("/build\n", "a/build", False),
        ("*.egg-info/\n", "x.egg-info", True),
        ("docs/_build/\n", "docs/_build", True),
        ("**/gen\n", "a/b/gen", True),
        ("# build\n", "build", False),
        ("b*\n!build\n", "build", False),
    ],
)
def test_the_patterns_of_git_that_are_about_folders(patterns: str, path: str, ignored: bool) -> None:
    assert IgnorePatterns(patterns.encode()).match(path) is ignored
