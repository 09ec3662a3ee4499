"""`llmc doctor` says what works, what does not, and what to do about it."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from llmc_mcp.cli import doctor
from llmc_mcp.kernel import syscalls
from llmc_mcp.review import checks
from llmc_mcp.sandbox import levels

from ..support.workspace import Workspace


def run(workspace: Workspace, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command as a person runs it."""
    env = {**os.environ, "LLMC_DATA_DIR": str(workspace.root.parent / "data")}
    command = [sys.executable, "-m", "llmc_mcp.cli.main", "doctor", "--root", str(workspace.root), *arguments]
    code = "import sys; from llmc_mcp.cli.main import main; sys.argv[0] = 'llmc'; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *command[3:]], env=env, capture_output=True, text=True, check=False
    )


def rows(workspace: Workspace, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, dict[str, Any]]:
    """The findings by topic, from this process."""
    doctor.command(["--json", "--root", str(workspace.root), *arguments])
    return {row["topic"]: row for row in json.loads(capsys.readouterr().out)}


@pytest.fixture(autouse=True)
def data(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMC_DATA_DIR", str(workspace.root.parent / "data"))


def test_a_healthy_machine_is_told_so_with_every_probe(workspace: Workspace) -> None:
    done = run(workspace)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "commands: run at level" in done.stdout
    assert "prevented: write a file outside the roots" in done.stdout


def test_json_is_a_list_of_findings(workspace: Workspace) -> None:
    found = json.loads(run(workspace, "--json").stdout)
    topics = {row["topic"] for row in found}
    assert {
        "python",
        "openat2",
        "landlock",
        "seccomp",
        "roots",
        "ripgrep",
        "commands",
        "code",
        "store",
        "port",
    } <= topics
    assert all(row["fix"] for row in found if row["state"] == "broken")


def test_a_machine_without_any_confinement_gets_a_fix_for_each_level(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(levels, "SYSTEM_PATH", ("/nonexistent",))
    monkeypatch.setattr(syscalls, "landlock_abi", lambda: 0)
    assert doctor.command(["--root", str(workspace.root)]) == 1
    printed = capsys.readouterr().out
    assert "apt install bubblewrap" in printed
    assert "lsm=landlock" in printed
    assert "BROKEN  commands" in printed


def test_an_unreadable_root_is_named(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert doctor.command(["--root", str(workspace.root / "missing")]) == 1
    assert "missing" in capsys.readouterr().out


def test_a_port_in_use_is_only_missing(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        found = rows(workspace, capsys, "--set", f"server.port={taken.getsockname()[1]}")
    assert found["port"]["state"] == "missing"
    assert "--port" in found["port"]["fix"]


def test_a_store_that_can_not_be_made_is_broken(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = workspace.root.parent / "file"
    blocked.write_text("")
    monkeypatch.setenv("LLMC_DATA_DIR", str(blocked / "data"))
    assert rows(workspace, capsys)["store"]["state"] == "broken"


def test_every_probe_has_words() -> None:
    from llmc_mcp.sandbox.probe import NAMES, attempts

    facts = {
        "outside": "/x",
        "root": "/x",
        "tcp": 1,
        "udp": 1,
        "abstract": "x",
        "server": 1,
        "environment": "",
        "pid_namespace": 1,
    }
    assert tuple(attempts(facts)) == NAMES
    assert set(checks._ATTEMPTS) == set(NAMES)  # pyright: ignore[reportPrivateUsage]


def test_an_unknown_argument_is_refused(workspace: Workspace) -> None:
    done = run(workspace, "--loud")
    assert done.returncode == 2
    assert "--loud" in done.stderr
    assert Path(workspace.root).exists()


def test_toolchains_are_named_with_what_commands_do_not_see(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    for folder in (".cargo/bin", ".local/bin", "odd/bin", "apps"):
        (home / folder).mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{home}/.cargo/bin:/usr/bin:/bin")
    found = rows(workspace, capsys)["toolchains"]
    assert (found["state"], found["message"]) == ("ok", "cargo, programs")
    monkeypatch.setenv("PATH", f"{home}/.cargo/bin:{home}/odd/bin:/usr/bin:/bin")
    (home / "apps/tool").touch()
    (home / ".local/bin/tool").symlink_to(home / "apps/tool")
    found = rows(workspace, capsys)["toolchains"]
    assert found["state"] == "missing"
    assert found["details"] == [
        f"on your PATH, but not on that of commands: {home}/odd/bin",
        f"leads to what commands can't see: {home}/.local/bin/tool",
    ]
    assert "llmc allow dir" in found["fix"]
