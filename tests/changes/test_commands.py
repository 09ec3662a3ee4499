"""What commands change is journaled, and can be undone like any other change."""

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..support.changes import done, journaling_server, litter, undo
from ..support.client import Client
from ..support.workspace import Workspace

GIT = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("commands"))


@pytest.fixture(scope="module")
def running(shared: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """One server for all: its start costs more than a test."""
    with journaling_server(shared, tmp_path_factory.mktemp("data")) as client:
        yield client
    assert litter(shared.root) == []


def git(folder: Path, *words: str) -> str:
    return subprocess.run([*GIT, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def run(server: Client, command: str, **more: Any) -> dict[str, Any]:
    """The meta of a command that succeeds."""
    reply = done(server.call("run_cmd", command=command, **more))
    assert reply["data"]["exit_code"] == 0, reply
    return reply["meta"]


def snapshot(root: Path, *, without: tuple[str, ...] = ()) -> dict[str, tuple[object, ...]]:
    """Every entry below a folder: kind, mode, content or target, and the time of a file."""
    found: dict[str, tuple[object, ...]] = {}
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in without]
        for name in (*folders, *files):
            path = Path(folder, name)
            info = path.lstat()
            if path.is_symlink():
                seen: tuple[object, ...] = (os.readlink(path),)
            elif path.is_dir():
                seen = ()
            else:
                seen = (path.read_bytes(), info.st_mtime_ns)
            found[str(path.relative_to(root))] = (stat.S_IFMT(info.st_mode), stat.S_IMODE(info.st_mode), *seen)
    return found


@pytest.fixture
def files(shared: Workspace) -> Path:
    """A folder with a bit of everything."""
    root = shared.root
    for path in root.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    (root / "src" / "deep").mkdir(parents=True)
    (root / "a.txt").write_text("one\n")
    (root / "src" / "b.py").write_text("two\n" * 50)
    (root / "src" / "deep" / "c.bin").write_bytes(bytes(range(256)) * 20)
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("a.txt")
    (root / "empty").write_text("")
    return root


@pytest.fixture
def server(files: Path, running: Client) -> Client:
    """The server, which has seen the folder."""
    run(running, "true")
    return running


COMMANDS = {
    "an edit in place": "sed -i s/two/drei/ src/b.py",
    "a redirection": "echo more > a.txt; echo x >> src/b.py",
    "a heredoc": "cat > new.txt <<'E'\nhello\nE",
    "a removal": "rm a.txt src/b.py link",
    "a removed tree": "rm -r src",
    "a move": "mv src lib",
    "a moved file": "mv a.txt src/deep/z.txt",
    "an overwriting move": "mv a.txt src/b.py",
    "a copy": "cp -r src copy",
    "a mode": "chmod 600 a.txt run.sh; chmod 700 src",
    "a link": "ln -sf run.sh link; ln -s nowhere other",
    "folders": "mkdir -p x/y/z; touch x/y/z/w; rmdir x/y/z 2>/dev/null || true",
    "a file that becomes a folder": "rm a.txt; mkdir a.txt; echo 1 > a.txt/in",
    "a folder that becomes a file": "rm -r src; echo file > src",
    "a link that becomes a file": "rm link; echo file > link",
    "a touch": "touch -d 2001-01-01 a.txt",
    "an emptied file": ": > src/b.py; echo full > empty",
    "names that need care": "printf 1 > 'a b'; printf 2 > $'new\\nline'; printf 3 > $'\\377'",
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_what_a_command_did_is_undone_and_redone(server: Client, files: Path, command: str) -> None:
    before = snapshot(files)
    told = run(server, command)
    after = snapshot(files)
    assert told["files_changed"] >= 1
    redo = undo(server, told["undo_id"])[0]["redo_id"]
    assert snapshot(files) == before
    undo(server, redo)
    assert snapshot(files) == after


def test_a_command_that_changes_nothing_has_no_undo_id(server: Client) -> None:
    told = run(server, "cat a.txt | wc -l")
    assert "undo_id" not in told and "files_changed" not in told and "undo" not in told


def test_the_newest_change_may_be_a_command(server: Client, files: Path) -> None:
    run(server, "echo 2 > a.txt")
    undo(server)
    assert (files / "a.txt").read_text() == "one\n"


def test_changes_are_listed_with_the_line_of_the_command_and_as_a_diff(server: Client) -> None:
    run(server, "sed -i s/one/eins/ a.txt && rm run.sh")
    rows = done(server.call("linux_fs_changes"))["changes"][:2]
    assert [(Path(row["path"]).name, row["action"]) for row in rows] == [
        ("a.txt", "command: write"),
        ("run.sh", "command: delete"),
    ]
    assert rows[0]["command"] == "sed -i s/one/eins/ a.txt && rm run.sh"
    text = server.call("linux_fs_changes", diff=True).text
    assert "-one" in text and "+eins" in text and "-#!/bin/sh" in text


def test_a_file_that_was_changed_since_stops_the_undo_and_is_named(server: Client, files: Path) -> None:
    told = run(server, "echo 2 > a.txt; echo 2 > src/b.py")
    (files / "src" / "b.py").write_text("mine\n")
    reply = server.call("linux_fs_undo", undo_id=told["undo_id"])
    assert reply.code == "STALE" and "src/b.py" in reply.text and "a.txt" not in reply.text
    assert (files / "a.txt").read_text() == "2\n"
    undo(server, told["undo_id"], force=["src/b.py"])
    assert (files / "src" / "b.py").read_text() == "two\n" * 50
    assert (files / "a.txt").read_text() == "one\n"


def test_what_was_there_before_the_command_is_not_its_doing(server: Client, files: Path) -> None:
    run(server, "true")
    (files / "a.txt").write_text("an editor's\n")
    told = run(server, "echo 1 > new")
    assert told["files_changed"] == 1
    undo(server, told["undo_id"])
    assert (files / "a.txt").read_text() == "an editor's\n" and not (files / "new").exists()


def test_a_folder_that_somebody_put_a_file_into_is_not_removed(server: Client, files: Path) -> None:
    told = run(server, "mkdir made; echo 1 > made/one")
    (files / "made" / "mine").write_text("mine")
    reply = server.call("linux_fs_undo", undo_id=told["undo_id"])
    assert reply.code == "STALE" and "made/mine" in reply.text
    undo(server, told["undo_id"], force=True)
    assert not (files / "made" / "one").exists() and (files / "made" / "mine").read_text() == "mine"


def test_bytecode_does_not_count_and_does_not_stop_an_undo(server: Client, files: Path) -> None:
    told = run(server, "mkdir pkg; echo 1 > pkg/m.py; mkdir pkg/__pycache__; echo 1 > pkg/__pycache__/m.pyc")
    assert told["files_changed"] == 1
    undo(server, told["undo_id"])
    assert not (files / "pkg").exists()


def test_a_change_of_a_file_tool_is_not_the_commands(server: Client, files: Path) -> None:
    done(server.call("linux_fs_write", path="a.txt", content="tool\n"))
    told = run(server, "echo 1 > new")
    assert told["files_changed"] == 1
    undo(server, told["undo_id"])
    assert (files / "a.txt").read_text() == "tool\n"
    undo(server)
    assert (files / "a.txt").read_text() == "one\n"


def test_a_command_that_ran_out_of_time_is_undone_too(server: Client, files: Path) -> None:
    reply = server.call("run_cmd", command="echo 2 > a.txt; sleep 60", timeout=1, yield_after=5)
    assert reply.code == "TIMEOUT" and "undo_id U_" in reply.text
    undo(server)
    assert (files / "a.txt").read_text() == "one\n"


# --- other tools that run programs -----------------------------------------------------------------


def test_a_command_in_the_background_has_an_entry_for_each_reply(server: Client, files: Path) -> None:
    line = "echo 1 > one; read x; echo 2 > two; read x; echo 3 > three"
    first = done(server.call("run_cmd", command=line, yield_after=0.5))
    assert first["running"] and first["meta"]["files_changed"] == 1
    second = done(server.call("run_cmd", process=first["process"], stdin="\n", yield_after=5))
    assert second["meta"]["files_changed"] == 1 and second["meta"]["undo_id"] != first["meta"]["undo_id"]
    undo(server, second["meta"]["undo_id"])
    assert (files / "one").exists() and not (files / "two").exists()
    third = done(server.call("run_cmd", process=first["process"], stdin="\n", yield_after=5))
    assert third["data"]["exit_code"] == 0 and third["meta"]["files_changed"] == 1
    undo(server, third["meta"]["undo_id"])
    undo(server, first["meta"]["undo_id"])
    assert not (files / "one").exists() and not (files / "three").exists()


def test_a_file_tool_beside_a_program_is_not_taken_for_it(server: Client, files: Path) -> None:
    started = done(server.call("linux_proc_start", command="sh", wait_ms=200))
    done(server.call("linux_fs_write", path="a.txt", content="tool\n"))
    sent = done(
        server.call(
            "linux_proc_send", proc_id=started["proc_id"], input="echo 1 > one; echo ok\n", read_timeout_ms=5000
        )
    )
    assert sent["files_changed"] == 1
    stopped = done(server.call("linux_proc_stop", proc_id=started["proc_id"]))
    assert "undo_id" not in stopped
    undo(server, sent["undo_id"])
    assert (files / "a.txt").read_text() == "tool\n" and not (files / "one").exists()


def test_te_run_and_te_in_run_cmd_can_be_undone(server: Client, files: Path) -> None:
    told = done(server.call("te_run", command="sed -i s/one/eins/ a.txt"))
    assert told["files_changed"] == 1
    undo(server, told["undo_id"])
    meta = run(server, "te sed -i s/one/eins/ a.txt")
    undo(server, meta["undo_id"])
    assert (files / "a.txt").read_text() == "one\n"


# --- git -------------------------------------------------------------------------------------------


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
