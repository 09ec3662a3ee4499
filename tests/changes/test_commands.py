"""What commands change is journaled, and can be undone like any other change."""

import os
import shutil
from pathlib import Path

import pytest

from ..support.changes import done, journaling_server, undo
from ..support.client import Client
from ..support.commands import files, run, running, server, shared, snapshot
from ..support.forked import llmc
from ..support.workspace import Workspace, require

__all__ = ["files", "running", "server", "shared"]  # fixtures

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
    assert "undo_id" not in told
    assert "files_changed" not in told
    assert "undo" not in told


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
    assert "-one" in text
    assert "+eins" in text
    assert "-#!/bin/sh" in text


def test_a_file_that_was_changed_since_stops_the_undo_and_is_named(server: Client, files: Path) -> None:
    told = run(server, "echo 2 > a.txt; echo 2 > src/b.py")
    (files / "src" / "b.py").write_text("mine\n")
    reply = server.call("linux_fs_undo", undo_id=told["undo_id"])
    assert reply.code == "STALE"
    assert "src/b.py" in reply.text
    assert "a.txt" not in reply.text
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
    assert (files / "a.txt").read_text() == "an editor's\n"
    assert not (files / "new").exists()


def test_a_folder_that_somebody_put_a_file_into_is_not_removed(server: Client, files: Path) -> None:
    told = run(server, "mkdir made; echo 1 > made/one")
    (files / "made" / "mine").write_text("mine")
    reply = server.call("linux_fs_undo", undo_id=told["undo_id"])
    assert reply.code == "STALE"
    assert "made/mine" in reply.text
    undo(server, told["undo_id"], force=True)
    assert not (files / "made" / "one").exists()
    assert (files / "made" / "mine").read_text() == "mine"


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
    assert reply.code == "TIMEOUT"
    assert "undo_id U_" in reply.text
    undo(server)
    assert (files / "a.txt").read_text() == "one\n"


# --- other tools that run programs -----------------------------------------------------------------


def test_a_command_in_the_background_has_an_entry_for_each_reply(server: Client, files: Path) -> None:
    line = "echo 1 > one; read x; echo 2 > two; read x; echo 3 > three"
    first = done(server.call("run_cmd", command=line, yield_after=0.5))
    assert first["running"]
    assert first["meta"]["files_changed"] == 1
    second = done(server.call("run_cmd", process=first["process"], stdin="\n", yield_after=5))
    assert second["meta"]["files_changed"] == 1
    assert second["meta"]["undo_id"] != first["meta"]["undo_id"]
    undo(server, second["meta"]["undo_id"])
    assert (files / "one").exists()
    assert not (files / "two").exists()
    third = done(server.call("run_cmd", process=first["process"], stdin="\n", yield_after=5))
    assert third["data"]["exit_code"] == 0
    assert third["meta"]["files_changed"] == 1
    undo(server, third["meta"]["undo_id"])
    undo(server, first["meta"]["undo_id"])
    assert not (files / "one").exists()
    assert not (files / "three").exists()


def test_a_file_tool_beside_a_program_is_not_taken_for_it(server: Client, files: Path) -> None:
    started = done(server.call("linux_proc_start", command="sh", wait_ms=200))
    done(server.call("linux_fs_write", path="a.txt", content="tool\n"))
    typed = "echo 1 > one; echo ok\n"
    sent = done(server.call("linux_proc_send", proc_id=started["proc_id"], input=typed, read_timeout_ms=5000))
    assert sent["files_changed"] == 1
    stopped = done(server.call("linux_proc_stop", proc_id=started["proc_id"]))
    assert "undo_id" not in stopped
    undo(server, sent["undo_id"])
    assert (files / "a.txt").read_text() == "tool\n"
    assert not (files / "one").exists()


def test_te_run_and_te_in_run_cmd_can_be_undone(server: Client, files: Path) -> None:
    told = done(server.call("te_run", command="sed -i s/one/eins/ a.txt"))
    assert told["files_changed"] == 1
    undo(server, told["undo_id"])
    meta = run(server, "te sed -i s/one/eins/ a.txt")
    undo(server, meta["undo_id"])
    assert (files / "a.txt").read_text() == "one\n"


def test_of_a_whole_home_only_the_project_is_followed_and_the_reply_says_so(tmp_path: Path) -> None:
    require(shutil.which("bwrap") is not None, "bubblewrap")
    home, project = tmp_path / "home", tmp_path / "home" / "project"
    (project / ".git").mkdir(parents=True)
    env = {"HOME": str(home), "LLMC_DATA_DIR": str(tmp_path / "data")}
    with Client("--root", str(home), "--mode", "classic", env=env, cwd=project) as server:
        outside = run(server, "echo 1 > note.txt", cwd=str(home))
        assert f"only changes in {project} can be undone" in outside["undo"]
        assert "undo_id" not in outside
        inside = run(server, "echo 1 > note.txt", cwd=str(project))
        assert inside["files_changed"] == 1
        assert "undo" not in run(server, "ls", cwd=str(home))
        undo(server, inside["undo_id"])
    assert not (project / "note.txt").exists()


def test_what_happens_beside_a_program_in_the_background_is_undone_only_by_its_id(
    workspace: Workspace, tmp_path: Path
) -> None:
    mine, made = workspace.root / "mine.txt", workspace.root / "one"
    with journaling_server(workspace, tmp_path / "data") as server:
        started = done(server.call("linux_proc_start", command="cat", wait_ms=100))
        mine.write_text("a person's own")
        run(server, "true")
        refused = server.call("linux_fs_undo")
        assert refused.code == "CONFLICT"
        assert "mine.txt" in refused.meta["message"]
        run(server, "echo 1 > one")
        undone = done(server.call("linux_fs_undo", session=True))
        assert not made.exists()
        assert mine.exists(), undone
        stopped = done(server.call("linux_proc_stop", proc_id=started["proc_id"]))
        assert "warnings" not in stopped
        named = server.call("linux_fs_undo", undo_id=refused.meta["message"].partition(":")[0])
        assert (named.code, mine.exists()) == ("", False)


def test_an_undo_by_a_person_is_not_the_doing_of_a_program_in_the_background(
    workspace: Workspace, tmp_path: Path
) -> None:
    made = workspace.root / "one"
    with journaling_server(workspace, tmp_path / "data") as server:
        started = done(server.call("linux_proc_start", command="cat", wait_ms=100))
        told = run(server, "echo 1 > one")
        env = {**os.environ, "LLMC_DATA_DIR": str(tmp_path / "data")}
        assert llmc("undo", told["undo_id"], env=env, cwd=workspace.root).returncode == 0
        assert not made.exists()
        run(server, "true")
        stopped = done(server.call("linux_proc_stop", proc_id=started["proc_id"]))
        assert "undo_id" not in stopped
