"""The state of the machine: real figures, few tokens, and honest about what this machine does not have."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from llmc_mcp.config.schema import Config
from llmc_mcp.errors import FeatureDisabled, FeatureUnavailable, InvalidArgument
from llmc_mcp.kernel.launcher import Launcher
from llmc_mcp.machine.sysinfo import SystemInfo
from llmc_mcp.tools.linux_ops.sysinfo import SystemSnapshot

from .support.gates import context, gate_on, text_of


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    launcher = Launcher()
    yield launcher
    launcher.close()


def unhurried() -> None:
    """A call that nobody takes back."""


# --- the snapshot --------------------------------------------------------------------------------------


def test_the_snapshot_is_what_the_machine_says(tmp_path: Path) -> None:
    with gate_on(tmp_path) as gate:
        state = gate.call(context(gate), "linux_sys_snapshot", {})
    assert isinstance(state, SystemSnapshot)
    assert 0 <= state.cpu_percent <= 100
    assert len(state.load_avg) == 3
    assert state.mem_total_mb == psutil.virtual_memory().total >> 20
    assert 0 < state.mem_used_mb < state.mem_total_mb
    assert state.disks[0].mount == "/"
    assert state.disks[0].used_percent == pytest.approx(psutil.disk_usage("/").percent, abs=5)
    for part in ("CPU ", "load ", "RAM ", "/ "):
        assert part in state.short_summary


def test_a_busy_machine_looks_busy_at_the_first_look_and_the_next(launcher: Launcher) -> None:
    info = SystemInfo(launcher)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        assert info.snapshot(unhurried).cpu_percent > 30
        assert info.snapshot(unhurried).cpu_percent > 30
    finally:
        for process in busy:
            process.kill()
            process.wait()


def test_disks_are_real_and_each_is_there_once(tmp_path: Path) -> None:
    with gate_on(tmp_path) as gate:
        state = gate.call(context(gate), "linux_sys_snapshot", {})
    assert isinstance(state, SystemSnapshot)
    mounts = [disk.mount for disk in state.disks]
    assert len({os.stat(mount).st_dev for mount in mounts}) == len(mounts) <= 4
    assert not {"/proc", "/sys", "/dev", "/dev/shm", "/run"} & set(mounts)


@pytest.mark.filterwarnings("ignore:open_binary is deprecated:DeprecationWarning")  # bpe_openai's own
@pytest.mark.parametrize("mode", ["classic", "hybrid"])
def test_the_snapshot_costs_at_most_120_tokens(tmp_path: Path, mode: str) -> None:
    encoding: Any = importlib.import_module("bpe_openai").get_encoding("o200k_base")
    with gate_on(tmp_path, Config(mode=mode)) as gate:
        assert len(encoding.encode(text_of(gate, "linux_sys_snapshot"))) <= 120


def test_system_tools_can_be_switched_off(tmp_path: Path) -> None:
    config = Config()
    config.linux_ops.features.system_enabled = False
    with gate_on(tmp_path, config) as gate:
        for tool in ("linux_sys_snapshot", "linux_sys_services"):
            with pytest.raises(FeatureDisabled):
                gate.call(context(gate), tool, {})


# --- services and logs, on a system laid out below a folder ---------------------------------------------


class System:
    """The parts of a system that the tools look at; its programs print what ours expect of the real ones."""

    def __init__(self, base: Path) -> None:
        self.at = str(base)
        self.base = base

    def program(self, name: str, script: str) -> None:
        path = self.base / "usr/bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def folder(self, name: str) -> None:
        (self.base / name).mkdir(parents=True)


@pytest.fixture
def system(tmp_path: Path) -> System:
    return System(tmp_path)


def test_services_are_named_and_described(system: System, launcher: Launcher) -> None:
    system.folder("run/systemd/system")
    system.program(
        "systemctl",
        'echo "$@" >&2; test "$1" = list-units || exit 1\n'
        "echo '  ssh.service        loaded active running OpenBSD Secure Shell server'\n"
        "echo 'user@0.service loaded active running User Manager for UID 0'\n"
        "echo 'dev-sda.device loaded active plugged A disk'",
    )
    found = SystemInfo(launcher, system.at).services(unhurried)
    assert [(service.name, service.description) for service in found] == [
        ("ssh", "OpenBSD Secure Shell server"),
        ("user@0", "User Manager for UID 0"),
    ]


def test_without_systemd_services_are_unavailable_with_the_reason(system: System, launcher: Launcher) -> None:
    with pytest.raises(FeatureUnavailable, match="does not run systemd"):
        SystemInfo(launcher, system.at).services(unhurried)
    system.folder("run/systemd/system")
    with pytest.raises(FeatureUnavailable, match="systemctl is not installed"):
        SystemInfo(launcher, system.at).services(unhurried)
    system.program("systemctl", "echo 'Failed to connect to bus' >&2; exit 1")
    with pytest.raises(FeatureUnavailable, match="Failed to connect to bus"):
        SystemInfo(launcher, system.at).services(unhurried)


def test_logs_are_off_unless_the_operator_wants_them(tmp_path: Path) -> None:
    with gate_on(tmp_path) as gate, pytest.raises(FeatureDisabled, match="switched off"):
        gate.call(context(gate), "linux_sys_logs", {})
    config = Config()
    config.linux_ops.features.logs_enabled = True
    with gate_on(tmp_path, config) as gate:
        assert "linux_sys_logs" in gate.catalog.tools


def test_the_journal_comes_before_the_plain_log(system: System, launcher: Launcher) -> None:
    info = SystemInfo(launcher, system.at)
    with pytest.raises(FeatureUnavailable, match="no journal and no system log"):
        info.logs(10, None, None, unhurried)
    system.folder("var/log")
    (system.base / "var/log/syslog").write_text("".join(f"line {number}\n" for number in range(50)))
    log = info.logs(2, None, None, unhurried)
    assert (log.content, log.source) == ("line 48\nline 49\n", "/var/log/syslog")
    with pytest.raises(FeatureUnavailable, match="filtering by unit or time needs one"):
        info.logs(2, "ssh", None, unhurried)
    system.folder("var/log/journal")
    system.program("journalctl", 'echo "$@"')
    log = info.logs(5, "ssh.service", "1 hour ago", unhurried)
    assert log.source == "journald"
    system.program("journalctl", "true")
    assert info.logs(1, None, None, unhurried).source == "/var/log/syslog"  # a journal that nobody writes to
    assert info.logs(1, "ssh", None, unhurried) == ("", "journald")
    assert log.content.split()[-5:] == ["--lines=5", "--unit=ssh.service", "--since=1", "hour", "ago"]


@pytest.mark.parametrize("value", ["x\ny", "x;y", "$(x)", "'x", "\0", "x" * 200, ""])
def test_a_unit_or_time_is_plain_words(system: System, launcher: Launcher, value: str) -> None:
    system.folder("var/log/journal")
    system.program("journalctl", "echo never")
    for unit, since in ((value, None), (None, value)):
        with pytest.raises(InvalidArgument):
            SystemInfo(launcher, system.at).logs(5, unit, since, unhurried)


def test_of_a_long_log_the_end_is_shown_and_all_is_in_the_handle(
    tmp_path: Path, system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.folder("var/log")
    (system.base / "var/log/messages").write_text("".join(f"{number} {'x' * 90}\n" for number in range(1000)))
    config = Config(mode="classic")
    config.linux_ops.features.logs_enabled = True
    with gate_on(tmp_path, config) as gate:
        monkeypatch.setattr(gate.app.system, "_at", system.at)
        reply = json.loads(text_of(gate, "linux_sys_logs", lines=1000))
        assert reply["truncated"] is True
        assert reply["content"].rstrip("\n").rsplit("\n", 1)[-1].startswith("999 ")
        assert len(json.dumps(reply)) <= 10_000
        first = json.loads(text_of(gate, "linux_handle_read", handle=reply["handle"], limit=1))
        assert first["content"].startswith("0 ")
