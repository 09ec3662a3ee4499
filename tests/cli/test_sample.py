"""`make run` and `make smoke` serve a small project of their own making, never the clone that the server runs from."""

import subprocess
import sys
from pathlib import Path

from llmc_mcp.cli import sample

from ..support.workspace import require

TOP = Path(__file__).parents[2]


def make(*arguments: str, **environment: str) -> str:
    """What make would run for a target, its prerequisites taken as done."""
    told = subprocess.run(
        ["make", "--dry-run", "--assume-old=.venv/.run", *arguments],
        cwd=TOP,
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return told.stdout


def test_the_sample_is_a_project_whose_tests_pass(tmp_path: Path) -> None:
    assert sample.make(str(tmp_path / "workspace"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"],
        cwd=tmp_path / "workspace",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_the_sample_never_touches_what_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "workspace"
    assert sample.make(str(folder))
    (folder / "README.md").write_text("mine\n")
    (folder / "shop/cart.py").unlink()
    assert not sample.make(str(folder))
    assert (folder / "README.md").read_text() == "mine\n"
    assert not (folder / "shop/cart.py").exists()


def test_make_run_serves_the_sample_or_the_folder_that_is_named() -> None:
    require((TOP / "Makefile").exists(), "a clone")
    without = make("run", ROOT="/")  # whatever the environment calls ROOT
    assert "llmc_mcp.cli.sample workspace" in without
    assert "llmc run --root 'workspace'" in without
    assert "make run ROOT=DIR" in without
    named = make("run", "ROOT=/srv/shop", "RUN_ARGS=--port 0")
    assert "llmc run --root '/srv/shop' --port 0" in named
    assert "llmc_mcp.cli.sample" not in named


def test_make_smoke_starts_the_server_on_the_sample(tmp_path: Path) -> None:
    require((TOP / "Makefile").exists(), "a clone")
    assert "cd 'workspace'" in make("smoke")
    assert "cd '/srv/shop'" in make("smoke", "ROOT=/srv/shop")
    sample.make(str(tmp_path / "workspace"))
    code = "from llmc_mcp.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, "smoke"],
        cwd=tmp_path / "workspace",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "# Shop" in done.stdout
