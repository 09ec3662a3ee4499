"""`llmc doctor --fix` offers, asks and does; `llmc update` looks for a newer version when it is told to."""

import contextlib
import os
import pty
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from llmc_mcp import __version__
from llmc_mcp.cli import fixes, update
from llmc_mcp.cli.doctor import command as doctor
from llmc_mcp.errors import FeatureUnavailable

from ..support.forked import LLMC, ForkedServer
from ..support.machine import Machine


def program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def person(tmp_path: Path) -> Machine:
    """Somebody with an empty home, whose package manager only writes down what it is told."""
    made = Machine(tmp_path)
    for name in ("apt-get", "sudo"):  # they read all that they are given
        program(tmp_path / "bin", name, f'cat >/dev/null; echo {name} "$@" >> {tmp_path}/installed')
    made.environ |= {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "SHELL": "/bin/bash"}
    return made


def fix(person: Machine, answers: str) -> tuple[int, str]:
    """`llmc doctor --fix` at a terminal; the exit code and what was shown."""
    ours, theirs = pty.openpty()
    command = ["doctor", "--fix", "--root", str(person.repo)]
    terminal = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    with ForkedServer(LLMC, command, env={**os.environ, **person.environ}, cwd=None, **terminal) as running:
        os.close(theirs)
        os.write(ours, answers.encode())
        shown = b""
        with contextlib.suppress(OSError):  # how a terminal says that its last user is gone
            while piece := os.read(ours, 4096):
                shown += piece
    os.close(ours)
    return running.returncode, shown.decode()


def test_what_the_person_declines_is_not_done(person: Machine) -> None:
    code, shown = fix(person, "n\n" * 9)
    assert code == 0
    assert shown.count("Do that? [y/N]") >= 3
    assert not (person.home / ".bashrc").exists()
    assert not (person.home / ".local/bin").exists()


def test_what_the_person_wants_is_done_once(person: Machine) -> None:
    fix(person, "y\n" * 9)
    links = person.home / ".local/bin"
    assert {path.name for path in links.iterdir()} == {"llmc", "llmc-mcp", "te"}
    assert os.access(links / "llmc", os.X_OK)
    lines = (person.home / ".bashrc").read_text().splitlines()
    assert lines == ['export PATH="$HOME/.local/bin:$PATH"', 'eval "$(llmc completion bash)"']
    person.environ["PATH"] = f"{links}:{person.environ['PATH']}"
    _, shown = fix(person, "y\n" * 9)
    assert "append to" not in shown
    assert "link them" not in shown
    assert (person.home / ".bashrc").read_text().splitlines() == lines


def test_without_a_person_nothing_is_done(person: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor(["--fix", "--json", "--root", str(person.repo)]) == 2
    done = person.llmc("doctor", "--fix")
    assert done.returncode == 2
    assert "at a terminal" in done.stderr


@contextlib.contextmanager
def answers(typed: bytes) -> Generator[int]:
    """A person's answers on the standard input of this process; where what is left of them can be read."""
    reading, writing = os.pipe()
    os.write(writing, typed)
    os.close(writing)
    before = os.dup(0)
    os.dup2(reading, 0)
    try:
        yield reading
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(reading)


def test_a_package_is_installed_by_the_package_manager_that_is_there(
    person: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", person.environ["PATH"])
    monkeypatch.setenv("HOME", str(person.home))
    first, *_ = fixes.fixes_for({"bubblewrap": []})
    assert first.step.endswith("apt-get install -y bubblewrap")
    with answers(b"n\n") as left:
        first.do()
        assert os.read(left, 9) == b"n\n", "the answer is for the next question"
    assert "install -y bubblewrap" in (tmp_path / "installed").read_text()


# --- update -----------------------------------------------------------------------------------------------------------


def index(folder: Path, version: str) -> str:
    """A package index with one version of the package."""
    wheel = f"llmc_mcp-{version}-py3-none-any.whl"
    page = folder / "simple" / "llmc-mcp" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text(f'<!DOCTYPE html><a href="{wheel}">{wheel}</a>')
    (page.parent / wheel).write_bytes(b"")
    return f"file://{folder}/simple"


@pytest.fixture
def from_an_index(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An installation that is no clone, and a pip that has no settings but the test's."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setattr(update, "_clone", lambda: "")
    return monkeypatch


@pytest.mark.parametrize(("there", "code", "said"), [("9.10.0", 1, "9.10.0"), (__version__, 0, "is the newest")])
def test_the_package_index_is_asked(
    from_an_index: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    there: str,
    code: int,
    said: str,
) -> None:
    from_an_index.setenv("PIP_INDEX_URL", index(tmp_path, there))
    assert update.command([]) == code
    assert said in capsys.readouterr().out


def test_an_index_that_can_not_be_reached_is_said(from_an_index: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from_an_index.setenv("PIP_INDEX_URL", f"file://{tmp_path}/nowhere")
    with pytest.raises(FeatureUnavailable, match="can't be reached"):
        update.command([])


def test_a_clone_asks_its_remote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def git(*words: str, cwd: Path) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
        subprocess.run(["git", *identity, *words], cwd=cwd, check=True, capture_output=True)

    origin, clone = tmp_path / "origin", tmp_path / "clone"
    origin.mkdir()
    git("init", cwd=origin)
    git("commit", "--allow-empty", "-m", "one", cwd=origin)
    git("clone", str(origin), str(clone), cwd=tmp_path)
    monkeypatch.setattr(update, "_clone", lambda: str(clone))
    assert update.command([]) == 0
    git("commit", "--allow-empty", "-m", "two", cwd=origin)
    assert update.command([]) == 1
    assert "git pull" in capsys.readouterr().out
