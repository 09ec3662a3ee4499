"""`llmc changes`, `undo`, `trash` and `locks`: a person looks at what an agent did and takes it back."""

import json
import os
import pty
from pathlib import Path

import pytest

from ..support.changes import done
from ..support.client import Client
from ..support.forked import LLMC, ForkedServer, llmc
from ..support.workspace import Workspace


class Person:
    """Somebody with a shell in the workspace."""

    def __init__(self, workspace: Workspace, data: Path) -> None:
        self.root = workspace.root
        self._env = {**os.environ, "LLMC_DATA_DIR": str(data)}

    def llmc(self, *arguments: str, cwd: Path | None = None, code: int = 0) -> str:
        run = llmc(*arguments, env=self._env, cwd=cwd or self.root)
        assert run.returncode == code, run.stdout + run.stderr
        return run.stdout if code == 0 else run.stderr

    def llmc_on_a_terminal(self, *arguments: str) -> str:
        here, there = pty.openpty()
        with ForkedServer(LLMC, arguments, env=self._env, cwd=self.root, stdout=there) as run:
            assert run.wait() == 0
        os.close(there)
        shown = b""
        try:
            while piece := os.read(here, 1 << 16):
                shown += piece
        except OSError:  # the other end is closed
            pass
        os.close(here)
        return shown.decode()


@pytest.fixture
def person(workspace: Workspace, tmp_path: Path) -> Person:
    return Person(workspace, tmp_path / "data")


@pytest.fixture(autouse=True)
def agent(workspace: Workspace, tmp_path: Path) -> None:
    """An agent wrote, edited and deleted something."""
    workspace.file("a.txt", "one\ntwo\n")
    workspace.file("gone.txt", "bye\n")
    env = {"LLMC_DATA_DIR": str(tmp_path / "data")}
    with Client("--root", str(workspace.root), "--mode", "classic", env=env) as server:
        done(server.call("linux_fs_edit", path="a.txt", old_text="two", new_text="zwei"))
        done(server.call("linux_fs_write", path="new.txt", content="new\n"))
        done(server.call("linux_fs_delete", path="gone.txt"))


def test_changes_are_listed_newest_first(person: Person) -> None:
    lines = person.llmc("changes").splitlines()
    assert [line.split()[3] for line in lines] == ["delete", "create", "edit"]
    rows = json.loads(person.llmc("changes", "--json"))
    assert {line.rpartition("  ")[2] for line in lines} == {f"[{rows[0]['session']}]"}, "for llmc undo --session"
    assert [(row["action"], row["lines_added"], row["undone"]) for row in rows] == [
        ("delete", None, False),
        ("create", 1, False),
        ("edit", 1, False),
    ]


def test_only_what_lies_below_this_folder_is_listed_unless_all_is_asked_for(person: Person, tmp_path: Path) -> None:
    assert person.llmc("changes", cwd=tmp_path / "outside") == ""
    assert len(person.llmc("changes", "--all", cwd=tmp_path / "outside").splitlines()) == 3


def test_the_diff_is_plain_in_a_pipe_and_coloured_on_a_terminal(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = person.llmc("changes", "--diff")
    assert "-two\n+zwei\n" in plain
    assert "\x1b" not in plain
    assert "\x1b[32m+zwei\x1b[0m" in person.llmc_on_a_terminal("changes", "--diff")


def test_undo_takes_back_the_newest_then_the_next_and_can_be_redone(person: Person) -> None:
    assert "delete" in person.llmc("undo")
    assert (person.root / "gone.txt").read_text() == "bye\n"
    assert "create" in person.llmc("undo")
    assert not (person.root / "new.txt").exists()
    newest = person.llmc("changes").split()[0]
    person.llmc("undo", newest)
    assert (person.root / "new.txt").read_text() == "new\n"


def test_a_whole_session_is_undone(person: Person) -> None:
    session = json.loads(person.llmc("changes", "--json"))[0]["session"]
    person.llmc("undo", "--session", session)
    assert {path.name: path.read_text() for path in person.root.iterdir()} == {
        "a.txt": "one\ntwo\n",
        "gone.txt": "bye\n",
    }


def test_a_changed_file_needs_force(person: Person) -> None:
    (person.root / "a.txt").write_text("mine\n")
    edit = json.loads(person.llmc("changes", "--json"))[2]["undo_id"]
    assert "changed since" in person.llmc("undo", edit, code=2)
    person.llmc("undo", edit, "--force")
    assert (person.root / "a.txt").read_text() == "one\ntwo\n"


def test_the_trash_is_listed_restored_and_emptied(person: Person) -> None:
    (line,) = person.llmc("trash").splitlines()
    assert line.endswith("gone.txt")
    person.llmc("trash", "restore", line.split()[0])
    assert (person.root / "gone.txt").read_text() == "bye\n"
    assert person.llmc("trash") == ""
    redo = person.llmc("changes").split()[0]
    person.llmc("undo", redo)
    person.llmc("trash", "empty")
    assert person.llmc("trash") == ""
    assert "dropped" in person.llmc("undo", person.llmc("changes").split()[0], code=2)


def test_locks_and_mistakes_are_told(person: Person) -> None:
    assert person.llmc("locks") == ""
    assert "unknown" in person.llmc("locks", "--frobnicate", code=2)
    assert "no change" in person.llmc("undo", "U_nothing", code=2)
    for verb in ("restore", "empty"):
        told = person.llmc("trash", verb, "U_nothing", code=2)
        assert "nothing of U_nothing is in the trash" in told
        assert "llmc trash lists" in told
    assert "usage" in person.llmc("undo", "--help")
