"""What git commands do is undone together: the work tree, the refs and the index; objects are left."""

from pathlib import Path

import pytest

from ..support.changes import done, undo
from ..support.client import Client
from ..support.commands import files, git, run, running, server, shared, snapshot

__all__ = ["files", "running", "server", "shared"]  # fixtures


@pytest.fixture
def repository(files: Path) -> Path:
    """The folder as a repository with two commits, a dirty file, a staged one and an untracked one."""
    git(files, "init", "-q")
    (files / ".gitignore").write_text("ignored/\n")
    git(files, "add", "-A")
    git(files, "commit", "-qm", "one")
    (files / "src" / "b.py").write_text("second\n")
    git(files, "commit", "-qam", "two")
    git(files, "branch", "other", "HEAD~1")
    git(files, "gc", "-q")
    (files / "a.txt").write_text("dirty\n")
    (files / "staged").write_text("staged\n")
    git(files, "add", "staged")
    (files / "untracked").write_text("untracked\n")
    (files / "ignored").mkdir()
    (files / "ignored" / "built").write_text("built\n")
    return files


GIT_COMMANDS = {
    "a commit": "git add -A && git -c user.name=t -c user.email=t@t commit -qm three",
    "a checkout of a file": "git checkout -- a.txt",
    "a checkout of a branch": "git stash -q && git checkout -q other",
    "a stash": "git -c user.name=t -c user.email=t@t stash -qu",
    "a hard reset": "git reset -q --hard HEAD~1",
    "a clean": "git clean -fdxq",
    "a restore": "git restore --staged --worktree .",
    "a removal": "git rm -rqf src",
    "a move": "git mv src lib",
    "a branch": "git branch -D other && git branch new && git tag v1",
    "a repack": "git add -A && git -c user.name=t -c user.email=t@t commit -qm x && git gc -q --prune=now && rm -r src",
}


@pytest.mark.parametrize("command", GIT_COMMANDS.values(), ids=GIT_COMMANDS.keys())
def test_refs_and_index_come_back_with_the_files(server: Client, repository: Path, command: str) -> None:
    run(server, "true")
    before, status = snapshot(repository, without=(".git",)), git(repository, "status", "--porcelain=v2", "--branch")
    refs, stashes = git(repository, "for-each-ref"), git(repository, "stash", "list")
    told = run(server, command)
    undo(server, told["undo_id"])
    assert snapshot(repository, without=(".git",)) == before
    assert git(repository, "status", "--porcelain=v2", "--branch") == status
    assert (git(repository, "for-each-ref"), git(repository, "stash", "list")) == (refs, stashes)
    assert git(repository, "fsck", "--no-dangling") == ""


def test_git_status_changes_nothing_and_stops_no_undo(server: Client, repository: Path) -> None:
    told = run(server, "git add a.txt")
    assert told["files_changed"] == 1
    for path in repository.rglob("*.py"):
        path.touch()
    git(repository, "status")
    run(server, "git status -s")
    undo(server, told["undo_id"])
    assert " M a.txt" in git(repository, "status", "-s")


def test_a_deleted_repository_is_named_as_not_covered(server: Client, repository: Path) -> None:
    run(server, "true")
    told = run(server, "rm -rf .git")
    assert any("objects" in warning for warning in told["warnings"])


def test_a_session_with_committed_work_is_not_undone_silently(server: Client, repository: Path) -> None:
    written = done(server.call("linux_fs_write", path="untracked", content="agent's\n"))
    edited = run(server, "echo agent > a.txt")
    git(repository, "commit", "-qam", "the user's")
    commit = git(repository, "rev-parse", "HEAD")[:10]
    reply = server.call("linux_fs_undo", session=True)
    assert reply.code == "CONFLICT"
    assert commit in reply.text
    assert "a.txt" in reply.text
    assert "untracked" not in reply.text
    undo(server, edited["undo_id"])
    undo(server, written["undo_id"])
    assert (repository / "a.txt").read_text() == "dirty\n"
    assert (repository / "untracked").read_text() == "untracked\n"
