"""The replay of recorded commands with undo says what it should."""

from pathlib import Path

from benchmarks.shell.recorded import Run
from benchmarks.undo.__main__ import report
from benchmarks.undo.many import many
from benchmarks.undo.replay import Replayed, replay

from .support.commands import git


def test_a_replayed_run_is_undone_and_redone_command_by_command(tmp_path: Path) -> None:
    repository = tmp_path / "owner__name"
    repository.mkdir()
    git(repository, "init", "-q")
    (repository / "a.txt").write_text("one\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "one")
    commit = git(repository, "rev-parse", "HEAD").strip()
    commands = [
        "cat a.txt",
        "cd /testbed && sed -i s/one/two/ a.txt",
        "rm a.txt && mkdir d && echo x > d/f",
        "git add -A",
    ]
    found = list(replay(Run("owner__name-1", "owner__name", commit, commands), tmp_path, 20, ()))
    assert [(one.name, one.restored, one.redone, one.silent) for one in found] == [
        (f"owner__name-1#{number}", True, True, "") for number in (1, 2, 3)
    ]


def test_a_silent_loss_is_counted_and_named() -> None:
    found = [
        Replayed("a#1", "rm x", 1, 0, restored=True, redone=True),
        Replayed("a#2", "rm y", 1, 0, silent="differs: ['y']"),
        Replayed("a#3", "rm z", 1, 0, said="Undo does not bring back z."),
    ]
    text = report(found, [])
    assert "| 3 | 1 | 33.33% | 1 | 1 | 1 |" in text
    assert "- a#2: differs: ['y']" in text


def test_many_changed_files_are_undone_and_the_journal_is_measured(tmp_path: Path) -> None:
    rows, journal = many(tmp_path, 40, 1_000)
    assert [row[0] for row in rows] == ["first look", "comparing and journaling", "undo"]
    assert "All files are as before" in journal
