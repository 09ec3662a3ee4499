"""A folder to work in, with another one outside of it, and what the machine allows a test to do."""

import os
from pathlib import Path

import pytest

from llmc_mcp.files.off_limits import TRASH_FOLDER

SECRET = "OUTSIDE-SECRET-7f3a"
NOBODY = 65534
UNPLUGGED = "[pytest]\naddopts = --disable-plugin-autoload\n"  # for a pytest.ini: plugins take longer than all the rest


class Workspace:
    """A root, and beside it a folder that no tool may reach."""

    def __init__(self, base: Path) -> None:
        self.root = base / "root"
        self.outside = base / "outside"
        self.root.mkdir()
        self.outside.mkdir()
        (self.outside / "secret.txt").write_text(f"{SECRET}\n")

    def file(self, name: str, content: str | bytes = "") -> Path:
        """Make a file below the root, with its folders."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def entries(self) -> list[Path]:
        """What is at the top of the root, but for the trash of servers that share a store."""
        return [path for path in self.root.iterdir() if path.name != TRASH_FOLDER]

    def read(self, name: str) -> bytes:
        """What a file in the root holds."""
        return (self.root / name).read_bytes()


def run_as_at(level: str) -> str:
    """The user that commands run as at a level; empty for the user of the tests. Landlock does not confine root."""
    return "nobody" if level == "landlock" and os.getuid() == 0 else ""


def hand_over(folder: Path) -> None:
    """Give a folder and everything in it to the user nobody, and make it reachable."""
    for parent in folder.parents:
        mode = parent.stat().st_mode
        if mode & 0o011 != 0o011:
            parent.chmod(mode | 0o011)
    for path in (folder, *folder.rglob("*")):
        os.lchown(path, NOBODY, NOBODY)


def require(available: bool, what: str) -> None:
    """Skip where something optional is missing, fail where everything must be there."""
    if available:
        return
    if os.environ.get("LLMC_TEST_REQUIRE_ALL"):
        pytest.fail(f"{what} is missing, and this machine must have it")
    pytest.skip(f"needs {what}")
