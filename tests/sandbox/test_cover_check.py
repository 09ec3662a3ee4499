"""What has to be covered inside the roots: found once, and found anew whenever the answer may be another one."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from llmc_mcp.files.filesystem import Filesystem
from llmc_mcp.sandbox.cover_check import CoverCheck
from llmc_mcp.sandbox.profile import SandboxSettings, covered_now

from ..support.workspace import require

Change = Callable[[Path], object]


def write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("secret\n")


def move_behind_a_link(path: Path) -> None:
    moved = path.rename(path.with_name(f"{path.name}-moved"))
    path.symlink_to(moved)


CHANGES: dict[str, Change] = {
    "nothing": lambda home: None,
    "a folder with keys is made": lambda home: write(home / ".ssh/id"),
    "it is replaced by another one": lambda home: ((home / ".ssh").rename(home / "old"), write(home / ".ssh/id")),
    "a link takes its place": lambda home: move_behind_a_link(home / ".ssh"),
    "the link leads elsewhere": lambda home: (
        (home / "other").mkdir(), (home / ".ssh").unlink(), (home / ".ssh").symlink_to(home / "other"),
    ),
    "the link is gone": lambda home: (home / ".ssh").unlink(),
    "a folder above it is moved": lambda home: ((home / ".local/share").rename(home / ".local/kept")),
    "it comes back": lambda home: ((home / ".local/kept").rename(home / ".local/share")),
    "a toolchain is installed": lambda home: write(home / ".nvm/versions/node/v20.1.0/etc/npmrc"),
    "a folder that only some may enter": lambda home: (home / ".nvm/versions").chmod(0o700),
    "another version": lambda home: write(home / ".nvm/versions/node/v22.0.0/etc/npmrc"),
    "a file that was denied appears": lambda home: write(home / "project/denied"),
    "the server's own code appears": lambda home: write(home / "lib/code.py"),
    "a writable folder becomes a link": lambda home: move_behind_a_link(home / "data"),
}  # fmt: skip


@pytest.mark.parametrize("root", [".", "project"])
def test_the_answer_is_the_one_that_is_found_anew_after_every_change(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    write(home / ".local/share/keyrings/k")
    (home / "data").mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(sys, "path", [*sys.path, str(home / "lib")])
    (home / "project").mkdir()
    files = Filesystem([str(home / root)])
    settings = SandboxSettings(
        toolchains="auto", deny_read=(str(home / "project/denied"),), extra_write=(str(home / "data"),)
    )
    kept = CoverCheck()

    asked = settings, tuple(files.roots), str(tmp_path / "data")
    seen: list[str] = []
    for name, change in CHANGES.items():
        change(home)
        ours = kept.now(*asked)
        assert ours == covered_now(*asked), name
        seen.append(repr(ours))
    assert len(set(seen)) >= 4, "several of these changes are seen"


def test_it_is_not_found_anew_while_nothing_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / ".ssh/id")
    files = Filesystem([str(tmp_path)])
    kept = CoverCheck()
    first = kept.now(SandboxSettings(), tuple(files.roots), str(tmp_path / "data"))
    first = kept.now(SandboxSettings(), tuple(files.roots), str(tmp_path / "data"))  # the data folder was made by then
    write(tmp_path / "unrelated")
    write(tmp_path / ".ssh/another")
    assert kept.now(SandboxSettings(), tuple(files.roots), str(tmp_path / "data")) is first


def test_a_bind_mount_that_shows_a_secret_is_noticed(tmp_path: Path) -> None:
    require(os.getuid() == 0, "root")
    code = f"""
import os, subprocess
from llmc_mcp.files.filesystem import Filesystem
from llmc_mcp.sandbox.cover_check import CoverCheck
from llmc_mcp.sandbox.profile import SandboxSettings
os.environ["HOME"] = {str(tmp_path / "home")!r}
roots = tuple(Filesystem([{str(tmp_path / "root")!r}]).roots)
kept = CoverCheck()
before = kept.now(SandboxSettings(), roots, {str(tmp_path / "data")!r})
subprocess.run(["mount", "--bind", {str(tmp_path / "home/.ssh")!r}, {str(tmp_path / "root/shown")!r}], check=True)
after = kept.now(SandboxSettings(), roots, {str(tmp_path / "data")!r})
assert "shown" not in repr(before) and "shown" in repr(after), (before, after)
"""
    write(tmp_path / "home/.ssh/id")
    (tmp_path / "root/shown").mkdir(parents=True)
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", code], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
