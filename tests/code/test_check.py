"""Checks on request: only what is new, by the project's own checkers, in the sandbox."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llmc_mcp.code.linters import CHECKERS, CodeFinding, available, findings
from llmc_mcp.config.schema import Config
from llmc_mcp.errors import NotFound
from llmc_mcp.gate.dispatch import Gate
from llmc_mcp.kernel import syscalls

from ..support.gates import context, gate_on
from ..support.workspace import require

Call = Callable[..., Any]


def git(folder: Path, *words: str) -> None:
    settings = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    subprocess.run(["git", "-C", str(folder), *settings, *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with an old finding, and ruff in its own environment."""
    require(syscalls.landlock_abi() > 0, "Landlock")
    made = tmp_path_factory.mktemp("checked")
    ruff = Path(sys.executable).with_name("ruff")
    require(ruff.exists(), "ruff")
    (made / ".venv/bin").mkdir(parents=True)
    shutil.copy2(ruff, made / ".venv/bin/ruff")
    (made / ".gitignore").write_text(".venv\n")
    (made / "old.py").write_text("import os\n\n\ndef f():\n    return 1\n")
    (made / "fine.py").write_text("x = 1\n")
    git(made, "init", "-q")
    git(made, "add", "-A")
    git(made, "commit", "-qm", "one")
    return made


@pytest.fixture(scope="module")
def gate(root: Path) -> Iterator[Gate]:
    config = Config()
    config.rag.jit_context_enabled = False
    with gate_on(root, config) as made:
        yield made


@pytest.fixture
def call(gate: Gate, root: Path) -> Iterator[Call]:
    def run(tool: str, **arguments: object) -> Any:
        return gate.call(context(gate), tool, arguments)

    yield run
    git(root, "reset", "-q", "--hard")
    git(root, "clean", "-fdq")


def shown(reply: Any) -> list[tuple[str, int, str]]:
    return [(row.file, row.line, row.checker) for row in reply.findings]


def test_only_findings_that_the_commit_does_not_have_are_reported(root: Path, call: Call) -> None:
    (root / "old.py").write_text("# A line.\nimport os\n\n\ndef f():\n    return undefined_name\n")
    found = call("code_check")
    assert shown(found) == [("old.py", 6, "ruff")]
    assert "undefined_name" in found.findings[0].text
    assert (found.former, found.files, found.ran) == (1, 1, ["syntax", "ruff"])


def test_a_new_file_is_checked_as_a_whole_and_syntax_without_any_linter(root: Path, call: Call) -> None:
    (root / "new.py").write_text("import sys\n")
    (root / "broken.go").write_text("package a\n\nfunc F( {\n")
    found = call("code_check")
    assert ("new.py", 1, "ruff") in shown(found)
    assert any(row.file == "broken.go" and row.checker == "syntax" for row in found.findings)


def test_paths_narrow_the_check_and_nothing_changed_is_nothing_found(root: Path, call: Call) -> None:
    assert call("code_check").findings == []
    (root / "fine.py").write_text("x = y\n")
    (root / "old.py").write_text("z = y\n")
    assert {row.file for row in call("code_check", paths=["fine.py"]).findings} == {"fine.py"}


def test_since_the_session_began_the_journal_has_the_former_texts(root: Path, call: Call) -> None:
    (root / "old.py").write_text("import os\nimport re\n")  # not by this session
    call("linux_fs_write", path="fine.py", content="x = no_such_name\n")
    found = call("code_check", since="session")
    assert shown(found) == [("fine.py", 1, "ruff")]
    assert found.since == "session"


def test_a_folder_without_commits_is_compared_with_the_sessions_start(root: Path, call: Call) -> None:
    (root / ".git").rename(root / ".away")
    try:
        call("linux_fs_write", path="fine.py", content="x = no_such_name\n")
        found = call("code_check")
    finally:
        (root / ".away").rename(root / ".git")
    assert (shown(found), found.since) == ([("fine.py", 1, "ruff")], "session")


def test_an_unknown_commit_is_refused(call: Call) -> None:
    with pytest.raises(NotFound, match="no commit"):
        call("code_check", since="nowhere")


def test_a_checker_that_reads_projects_is_compared_with_the_unpacked_commit(root: Path, call: Call) -> None:
    """A stand-in for a compiler: it reports each line with TODO in any file, like one that sees the whole project."""
    require(shutil.which("grep") is not None, "grep")
    (root / "node_modules/.bin").mkdir(parents=True)
    tool = root / "node_modules/.bin/tsc"
    tool.write_text(
        '#!/bin/sh\ngrep -rn --include="*.ts" TODO . | sed -E "s/^([^:]+):([0-9]+):/\\1(\\2,1): error TS1: /"\n'
    )
    os.chmod(tool, 0o755)
    (root / "tsconfig.json").write_text("{}\n")
    (root / "a.ts").write_text("const a = 1 // TODO old\n")
    git(root, "add", "-A", "-f", "tsconfig.json", "a.ts")
    git(root, "commit", "-qm", "two")
    (root / "a.ts").write_text("const b = 2\nconst a = 1 // TODO old\nconst c = 3 // TODO new\n")
    found = call("code_check")
    assert shown(found) == [("a.ts", 3, "tsc")]
    assert found.former == 1


@pytest.mark.parametrize(
    ("checker", "printed", "place"),
    [
        ("ruff", "a/b.py:3:5: F821 Undefined name `x`", ("a/b.py", 3)),
        ("pyright", "  /r/a.py:7:1 - error: no (reportX)", ("a.py", 7)),
        ("tsc", "src/a.ts(4,2): error TS2304: Cannot find name", ("src/a.ts", 4)),
        ("go", "./x.go:9:2: undefined: y", ("x.go", 9)),
        ("cargo", "src/lib.rs:2:5: error[E0425]: cannot find value", ("src/lib.rs", 2)),
        ("eslint", "/r/a.js\n  1:7  error  'a' is unused  no-unused-vars\n", ("a.js", 1)),
        ("ty", "a.py:1:1: error[unresolved-import] Cannot resolve", ("a.py", 1)),
    ],
)
def test_the_output_of_each_checker_is_read(checker: str, printed: str, place: tuple[str, int]) -> None:
    (found,) = findings(checker, printed, ["/r"])
    assert (found.path, found.line, found.checker) == (*place, checker)
    assert isinstance(found, CodeFinding)


def test_of_several_type_checkers_the_first_that_the_project_has_runs() -> None:
    has = {"pyproject.toml", ".venv/bin/pyright"}
    chosen = available({"python"}, has.__contains__, lambda name: f"/usr/bin/{name}" if name == "ruff" else None)
    assert {one.name: program for one, program in chosen.items()} == {
        "ruff": "/usr/bin/ruff",
        "pyright": "./.venv/bin/pyright",
    }
    assert len({one.name for one in CHECKERS}) == len(CHECKERS)
