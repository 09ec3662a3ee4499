"""A configuration written for an earlier version: it is read, and the start says what to change in it."""

from pathlib import Path

import pytest

from llmc_mcp.config.trust import ConfigError

from ..support.machine import Machine
from .test_config import SEEDS


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setenv("HOME", str(made.home))
    return made


OLD = "\n".join(SEEDS[name] for name in ("processes", "server", "container"))
WITHOUT_VERSION = OLD.replace('\nenabled = true\nconfig_version = "v0"\n', "\n")
assert WITHOUT_VERSION != OLD


@pytest.mark.parametrize("text", [OLD, WITHOUT_VERSION], ids=["v0", "without a version"])
def test_a_file_from_before_there_were_modes_is_served_and_told_what_to_write(machine: Machine, text: str) -> None:
    file = machine.users_file(text)
    with machine.server("--root", str(machine.repo)) as client:
        names = {tool["name"] for tool in client.tools()}
    assert "linux_fs_read" in names  # all tools, as it was then
    told = [line for line in client.log.splitlines() if line.startswith("llmc-mcp: ")]
    said = f'{file} is a full configuration without a mode: classic mode. Write mode = "hybrid" under [mcp]'
    assert any(said in line for line in told)
    assert any("mcp.te.script_path (te is part of this package; remove the key)" in line for line in told)
    assert any("mcp.docker.data_volume" in line and "LLMC_DATA_DIR" in line for line in told)


def test_a_volume_that_is_the_data_directory_needs_no_notice(machine: Machine) -> None:
    machine.users_file(SEEDS["container"].replace("/app/.llmc", str(machine.data)))
    assert "data_volume" not in " ".join(machine.load().lines())
    machine.users_file(SEEDS["container"])
    assert "data_volume" in " ".join(machine.load().lines())


def test_a_retired_switch_is_refused_with_what_to_do_instead(machine: Machine) -> None:
    machine.users_file(SEEDS["server"].replace("tls_enabled = false", "tls_enabled = true"))
    (refused, *_) = machine.load().refusals
    assert "set it to false and put a reverse proxy in front" in refused


@pytest.mark.parametrize("version", ["v1", "v2.0"])
def test_a_file_for_a_newer_version_is_refused_by_line(machine: Machine, version: str) -> None:
    file = machine.users_file(f'[mcp]\nmode = "hybrid"\nconfig_version = "{version}"\n')
    with pytest.raises(ConfigError, match=rf"{file}:3: mcp.config_version: '{version}' is none of v0"):
        machine.load()


def test_llmc_config_show_and_repo_validate_read_it_too(machine: Machine) -> None:
    machine.users_file(OLD)
    for command in (("config", "show"), ("repo", "validate")):
        done = machine.llmc(*command)
        assert "Traceback" not in done.stderr
        assert "script_path" in done.stdout + done.stderr, command
