"""After a change, the reply says whether the file still parses; and never costs the change anything."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from llmc_mcp.kernel import syscalls
from llmc_mcp.kernel.launcher import Launcher
from llmc_mcp.rag.build.syntax_client import Checker
from llmc_mcp.tools.linux_ops.syntax import summary

from ..support.client import Client
from ..support.workspace import Workspace, require

PATIENT = 60.0


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    require(syscalls.landlock_abi() > 0, "Landlock")
    one = Launcher()
    yield one
    one.close()


@pytest.fixture(scope="module")
def patient(launcher: Launcher) -> Iterator[Checker]:
    """One that waits for as long as it takes."""
    one = Checker(launcher, os.environ["LLMC_DATA_DIR"], PATIENT)
    yield one
    one.close()


@pytest.mark.parametrize(
    ("path", "before", "after", "told"),
    [
        ("a.py", "x = 1\n", "x = 2\n", "ok"),
        ("a.py", "x = 1\n", "x = 1\ny = (\n", "line 2: y = ("),
        ("new.py", None, "def f(:\n", "line 1: missing ) in def f(:"),
        ("a.js", "f()\n", "f({a: 1)\n", "line 1: missing } in f({a: 1)"),
        ("a.rs", "fn f( {}\n", "// more\nfn f( {}\n", "line 2, as before this change"),
        ("a.rs", "fn f( {}\n", "fn f( {}\nfn g() {}\nfn h) {}\n", "line 3: fn h) {}"),
        ("a.rs", "fn f( {}\n", "fn f() {}\n", "ok"),
        ("package.json", None, '{"a": 1,}', 'line 1: {"a": 1,}'),
        ("run", "", "#!/bin/sh\nif x; then\n", "line 2: missing fi in if x; then"),
        ("new.cpp", None, "void f( {", None),  # macros look like that to its grammar
        ("old.cpp", "void f() {}\n", "void f( {}\n", "line 1: void f( {}"),
        ("a.md", None, "# (", None),
        ("a.txt", None, "(", None),
        ("a.py", None, "x = 1\n" * 100_000, None),  # too large to be worth it
    ],
)
def test_what_is_told_of_a_change(
    patient: Checker, path: str, before: str | None, after: str, told: str | None
) -> None:
    assert patient.check(path, None if before is None else before.encode(), after.encode()) == told


def test_a_checking_process_that_dies_is_replaced(patient: Checker) -> None:
    assert patient.check("a.py", None, b"x = 1\n") == "ok"
    pid = checking_processes()[-1]
    os.kill(pid, signal.SIGKILL)
    answers = {patient.check("a.py", None, b"x = 1\n") for _ in range(3)}
    assert "ok" in answers, "at most the question that it died of is not answered"


def test_it_can_read_no_file_of_the_user_and_write_nothing(patient: Checker) -> None:
    assert patient.check("a.py", None, b"x = 1\n") == "ok"
    status = Path(f"/proc/{checking_processes()[-1]}/status").read_text()
    assert "NoNewPrivs:\t1" in status, "Landlock is in force"


def test_who_has_no_patience_gets_no_answer_and_no_delay(launcher: Launcher, tmp_path: Path) -> None:
    hasty = Checker(launcher, str(tmp_path / "data"), 0.0)
    assert hasty.check("a.py", None, b"x = (\n") is None
    hasty.close()


def test_where_grammars_cannot_be_kept_nothing_is_told(launcher: Launcher, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    one = Checker(launcher, str(tmp_path / "file" / "data"), PATIENT)
    assert one.check("a.py", None, b"x = (\n") is None
    one.close()


def test_where_nothing_confines_it_it_does_not_run(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(syscalls, "landlock_abi", lambda: 0)
    one = Checker(launcher, os.environ["LLMC_DATA_DIR"], PATIENT)
    assert one.check("a.py", None, b"x = (\n") is None
    one.close()


def test_edits_writes_and_diffs_say_whether_the_file_still_parses(server: Client, workspace: Workspace) -> None:
    require(syscalls.landlock_abi() > 0, "Landlock")
    path = workspace.file("a.py", "x = 1\n")
    reply: dict[str, object] = {}
    for number in range(200):  # until the checking process runs: no change waits for its start
        reply = server.call("linux_fs_write", path=str(path), content=f"x = {number}\n").meta
        if "syntax" in reply:
            break
    assert reply["syntax"] == "ok"
    reply = server.call("linux_fs_edit", path=str(path), old_text="x = ", new_text="x = (").meta
    assert str(reply["syntax"]).startswith("line 1: x = (")
    workspace.file("b.py", "y = 1\n")
    diff = "--- a/b.py\n+++ b/b.py\n@@ -1 +1 @@\n-y = 1\n+y = 2\n"
    assert server.call("linux_fs_apply_diff", diff_text=diff).meta["syntax"] == "ok"
    notes = workspace.file("notes.txt", "(\n")
    assert "syntax" not in server.call("linux_fs_edit", path=str(notes), old_text="(", new_text="[").meta


def checking_processes() -> list[int]:
    """Those that this test run started."""
    return [child.pid for child in psutil.Process().children(recursive=True) if is_checking(child)]


def is_checking(process: psutil.Process) -> bool:
    try:
        return any("llmc_mcp.rag.build.syntax_child import" in word for word in process.cmdline())
    except psutil.Error:
        return False


def test_what_checks_has_the_system_calls_of_a_command_only(launcher: Launcher) -> None:
    checker = Checker(launcher, os.environ["LLMC_DATA_DIR"], PATIENT)
    before = set(checking_processes())
    try:
        assert checker.check("a.py", None, b"x = 1\n") == "ok"
        (pid,) = set(checking_processes()) - before
        assert "\nSeccomp:\t2\n" in Path(f"/proc/{pid}/status").read_text()
    finally:
        checker.close()


def test_of_a_change_of_several_files_it_is_said_which_fail_and_how_many_nobody_looked_at() -> None:
    assert summary([]) is None
    assert summary([("a.py", None)]) is None
    assert summary([("a.py", "line 3: wrong")]) == "line 3: wrong"
    assert summary([("a.py", "ok"), ("b.py", "ok")]) == "ok"
    assert summary([("a.py", "ok"), ("b.py", "line 3: wrong")]) == "b.py line 3: wrong"
    assert summary([("a.py", "ok"), ("b.py", None), ("c.py", None)]) == "ok (1 of 3 files checked)"
    assert summary([("a.py", None), ("b.py", None)]) is None
