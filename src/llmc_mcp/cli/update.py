"""`llmc update`: whether a newer version is there, and how to get it. Asked only when a person runs it."""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
from typing import Any

from .. import __version__
from ..command_line import Arguments, declare
from ..errors import FeatureUnavailable

_ABOUT = """\
Says whether a newer version is there and how to get it; it changes nothing. An installation from a package index asks\
 that index, through pip and its settings; a clone asks the repository that it was cloned from. No server asks.

Exit code 1 when there is a newer one.
"""
_NAME = "llmc-mcp"
_PATIENCE_S = 30


@declare("update", _ABOUT)
def command(given: Arguments) -> int:
    """Look for a newer version."""
    del given
    clone = _clone()
    newer, how = (_newer_in_remote(clone), "git pull, then make install") if clone else (_newer_in_index(), _how())
    if newer:
        print(f"There is a newer version: {newer}. You have {__version__}.\nTo get it: {how}")
        return 1
    print(f"llmc {__version__} is the newest.")
    return 0


def _clone() -> str:
    """The git clone that this is installed from; empty if it is not."""
    try:
        said = importlib.metadata.distribution(_NAME).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return ""
    about: dict[str, Any] = json.loads(said) if said else {}
    folder = urllib.parse.unquote(urllib.parse.urlsplit(str(about.get("url", ""))).path)
    is_editable = bool(about.get("dir_info", {}).get("editable"))
    return folder if is_editable and os.path.exists(os.path.join(folder, ".git")) else ""


def _newer_in_remote(clone: str) -> str:
    """The commit of the remote branch, if the clone does not have it."""
    upstream = _git(clone, "rev-parse", "--abbrev-ref", "@{upstream}")
    remote, _, branch = upstream.stdout.strip().partition("/")
    if upstream.returncode or not branch:
        raise FeatureUnavailable("this clone follows no remote branch", hint="git branch --set-upstream-to says which.")
    asked = _git(clone, "ls-remote", remote, f"refs/heads/{branch}")
    if asked.returncode or not asked.stdout:
        raise FeatureUnavailable(f"{remote} can't be asked", hint="Is there a network? git ls-remote says more.")
    commit = asked.stdout.split()[0]
    is_there = _git(clone, "merge-base", "--is-ancestor", commit, "HEAD").returncode == 0
    return "" if is_there else f"commit {commit[:12]} of {upstream.stdout.strip()}"


def _git(clone: str, *words: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    return _run(["git", "-C", clone, *words], environment)


def _newer_in_index() -> str:
    """The newest version in the package index, if it is newer than this one."""
    pip = next((words for words in _pips() if _run([*words, "--version"]).returncode == 0), None)
    if pip is None:
        raise FeatureUnavailable("there is no pip to ask the package index with", hint=f"{_how()} gets the newest.")
    asking = ["--disable-pip-version-check", "--no-input", "--retries", "0", "index", "versions", _NAME]
    asked = _run([*pip, *asking])
    found = re.match(rf"{_NAME} \(([^)]+)\)", asked.stdout)
    if found is None:
        raise FeatureUnavailable(
            f"the package index can't be reached, or does not know {_NAME}",
            hint=f"pip index versions {_NAME} says more.",
        )
    return found[1] if _order(found[1]) > _order(__version__) else ""


def _pips() -> list[list[str]]:
    named = shutil.which("pip3") or shutil.which("pip")
    return [[sys.executable, "-m", "pip"], *([[named]] if named else [])]


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _run(command: list[str], environment: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=_PATIENCE_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return subprocess.CompletedProcess(command, 1, "", "")


def _how() -> str:
    if "/uv/tools/" in sys.prefix:
        return f"uv tool upgrade {_NAME}"
    return f"pipx upgrade {_NAME}" if "/pipx/venvs/" in sys.prefix else f"pip install --upgrade {_NAME}"
