"""The systemd units, as far as they can be checked without a systemd that runs; `make image-test` runs one."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ..support.workspace import require
from .image import REPOSITORY

UNITS = REPOSITORY / "deploy/systemd"


@pytest.mark.parametrize("kind", ["system", "user"])
def test_systemd_finds_no_mistake_in_a_unit(kind: str, tmp_path: Path) -> None:
    require(shutil.which("systemd-analyze") is not None, "systemd-analyze")
    text = (UNITS / kind / "llmc-mcp.service").read_text()
    text, count = re.subn(r"^ExecStart=\S+", f"ExecStart={sys.executable}", text, flags=re.MULTILINE)
    assert count == 1
    (tmp_path / "llmc-mcp.service").write_text(text)
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path), "SYSTEMD_LOG_LEVEL": "notice"}
    command = ["systemd-analyze", "verify", f"--{kind}", "--man=no", "--recursive-errors=no"]
    done = subprocess.run(
        [*command, str(tmp_path / "llmc-mcp.service")], env=env, capture_output=True, text=True, check=False
    )
    ours = [line for line in done.stderr.splitlines() if "llmc-mcp.service" in line]
    assert ours == []
    assert done.returncode == 0, done.stderr


def test_the_system_unit_is_rated_as_little_exposed() -> None:
    require(shutil.which("systemd-analyze") is not None, "systemd-analyze")
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=30"]
    done = subprocess.run(
        [*command, str(UNITS / "system/llmc-mcp.service")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-300:] + done.stderr
    assert "Overall exposure level" in done.stdout


@pytest.mark.parametrize("kind", ["system", "user"])
def test_what_would_break_the_server_or_its_sandbox_is_not_set(kind: str) -> None:
    text = (UNITS / kind / "llmc-mcp.service").read_text()
    set_keys = set(re.findall(r"^(\w+)=", text, re.MULTILINE))
    assert not set_keys & {"RestrictSUIDSGID", "RestrictNamespaces", "ProtectHostname", "ProcSubset", "PrivateNetwork"}
    assert "NoNewPrivileges" in set_keys
