"""Whatever runs a program says which files it changed that other programs obey."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmc_mcp.commands.protected_files import ProtectedFiles
from llmc_mcp.files.filesystem import Access, Filesystem

from ..support.client import Client
from ..support.talk import Talk, talk_on
from ..support.workspace import Workspace, require
from ..test_exec import project
from .arena import LEVELS

__all__ = ["project"]  # the fixture

OBEYED = [
    *(".git/commondir", ".cursor/mcp.json", ".vscode/tasks.json", ".codex/config.toml", ".claude/settings.json"),
    *(".envrc", ".bashrc", ".config/fish/config.fish", ".idea/workspace.xml", ".zed/settings.json"),
]


@pytest.fixture
def server(workspace: Workspace, tmp_path: Path) -> Iterator[Client]:
    script = workspace.file("operators.sh", "#!/bin/sh\necho > .envrc\n")
    script.chmod(0o755)
    flags = ("--mode", "classic", "--set", f'tools.executables={{"poison": "{script}"}}')
    env = {"LLMC_DATA_DIR": str(tmp_path / "data")}
    with Client("--root", str(workspace.root), *flags, env=env) as client:
        yield client


@pytest.fixture(params=LEVELS)
def talk(request: pytest.FixtureRequest, workspace: Workspace) -> Iterator[Talk]:
    require(request.param == "landlock" or shutil.which("bwrap") is not None, "bubblewrap")
    with talk_on(workspace.root, level=request.param) as talk:
        yield talk


def warned(meta: dict[str, Any]) -> str:
    """The warnings of a reply, wherever its tool puts them."""
    return " ".join([*(meta.get("warnings") or ()), *(meta.get("meta", {}).get("warnings") or ())])


@pytest.mark.parametrize("tool", ["run_cmd", "te_run"])
def test_b28_every_protected_name_is_reported_by_commands(workspace: Workspace, server: Client, tool: str) -> None:
    (workspace.root / "sub").mkdir()
    for path in OBEYED:
        script = f"mkdir -p $(dirname {path}) && echo evil > {path}"
        assert path in warned(server.call(tool, command=["bash", "-c", script], cwd="sub").meta), path
    assert "files that other programs obey" not in warned(server.call(tool, command=["true"]).meta)


def test_b28_the_operators_programs_report_too(server: Client) -> None:
    assert ".envrc" in warned(server.call("poison").meta)


def test_b28_pytest_reports_too(project: Workspace, server: Client) -> None:
    project.file("test_evil.py", "def test_it():\n    open('.envrc', 'w').write('evil')\n")
    reply = server.call("run_pytest", path="test_evil.py").meta
    assert (reply["passed"], reply["failures"]) == (1, [])
    assert ".envrc" in warned(reply)
    project.file("test_evil.py", "import os\nopen('.bashrc', 'w').write('evil')\nos._exit(3)\n")
    assert ".bashrc" in server.call("run_pytest", path="test_evil.py").meta["hint"]


def test_b28_a_command_that_is_ended_by_its_timeout_reports_too(server: Client) -> None:
    reply = server.call("run_cmd", command=["bash", "-c", "echo evil > .envrc; exec sleep 1000"], timeout=1)
    assert reply.code == "TIMEOUT"
    assert ".envrc" in reply.meta["hint"]


def test_b28_a_change_that_hides_its_time_and_size_is_reported(workspace: Workspace, server: Client) -> None:
    workspace.file(".envrc", "good")
    script = "touch -r .envrc t && printf evil > .envrc && touch -r t .envrc"
    assert ".envrc" in warned(server.call("run_cmd", command=["bash", "-c", script]).meta)


def test_b28_a_link_in_place_of_a_folder_is_reported(workspace: Workspace, server: Client) -> None:
    (workspace.root / ".git/hooks").mkdir(parents=True)
    script = "rmdir .git/hooks && mkdir evil && ln -s ../evil .git/hooks && ln -s evil .claude"
    warnings = warned(server.call("run_cmd", command=["bash", "-c", script]).meta)
    assert ".git/hooks" in warnings
    assert ".claude" in warnings


def test_b28_an_interactive_program_reports_when_it_is_read_and_when_it_ends(talk: Talk) -> None:
    started = talk.start(["bash", "--norc"])
    assert started.warnings is None
    sent = talk.send(started.proc_id, "echo evil > .envrc; echo written\n")
    assert ".envrc" in " ".join(sent.warnings or ()), sent
    assert talk.send(started.proc_id, "echo nothing\n").warnings is None
    talk.send(started.proc_id, "echo evil > .bashrc; echo written\n", wait_ms=0)
    assert ".bashrc" in " ".join(talk.read(started.proc_id).warnings or ())
    talk.send(started.proc_id, "trap 'echo evil > .vimrc; exit' TERM; echo set\n")
    assert ".vimrc" in " ".join(talk.stop(started.proc_id).warnings or ())


def test_b28_the_list_that_is_watched_is_the_operators(workspace: Workspace) -> None:
    watch = ProtectedFiles(Filesystem([str(workspace.root)], Access(protected_names=("deploy/*", "*.lock")))).watch(
        directory := os.open(workspace.root, os.O_RDONLY)
    )
    os.close(directory)
    workspace.file(".envrc", "")
    workspace.file("uv.lock", "")
    assert watch.changes() == []
    workspace.file("deploy/run.sh", "")
    assert "deploy/run.sh" in watch.changes()[0]
    assert watch.changes() == []
