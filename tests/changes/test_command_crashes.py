"""A server that dies while a command runs, or while one is undone, leaves files that are old, new, or marked."""

import json
import subprocess
import sys
from pathlib import Path


def test_no_moment_of_death_tears_a_command_or_its_undo(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.command_crashes", str(tmp_path), "12", "5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert sum(json.loads(done.stdout)["outcomes"].values()) == 12
