"""Helpers for tests of what commands change: a server, a folder with a bit of everything, what is in it."""

import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from llmc_mcp.app import App
from llmc_mcp.changes.commands import CommandChanges
from llmc_mcp.config.schema import Config
from llmc_mcp.session import Session

from .changes import done, journaling_server, litter, never
from .client import Client
from .workspace import Workspace

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
            elif not path.is_file():
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


# --- without a server ------------------------------------------------------------------------------

WHO = Session("uid:0", "commands")


@contextmanager
def engines(root: Path, data: Path, config: Config | None = None) -> Generator[App]:
    app = App(config or Config(), [str(root)], str(data))
    try:
        yield app
    finally:
        app.close()
        assert litter(root) == []


def command(app: App, act: Callable[[], object]) -> CommandChanges:
    """A command that is done by the test itself."""
    undoing = app.command_undo
    assert undoing is not None
    window = undoing.begin(WHO, "a command")
    act()
    return window.end()


def undo(app: App, changes: CommandChanges) -> tuple[str, ...]:
    """Undo it; returns what was not brought back."""
    assert changes.undo_id is not None
    left = app.undoing.undo(WHO, app.changes.journal.find(changes.undo_id, None), False, never).left
    return tuple(str(one) for one in left)
