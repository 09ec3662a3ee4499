"""`llmc`, `llmc config`, `llmc repo validate`."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from llmc_mcp.cli import main
from llmc_mcp.config.schema import keys

from ..support.machine import Machine


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setenv("HOME", str(made.home))
    return made


# --- llmc ---------------------------------------------------------------------------------------------------------


def test_help_names_every_command_and_each_has_a_module(machine: Machine) -> None:
    done = machine.llmc("--help")
    assert done.returncode == 0
    assert all(f"  {name} " in done.stdout for name in main.COMMANDS)
    package = Path(main.__file__).parents[1]
    modules = {entry.partition(":")[0].replace(".", "/") for entry, _ in main.COMMANDS.values()}
    assert [module for module in modules if not (package / f"{module}.py").exists()] == []


def test_no_command_is_help_and_an_unknown_one_is_an_error_on_stderr(machine: Machine) -> None:
    assert machine.llmc().stdout == machine.llmc("help").stdout != ""
    done = machine.llmc("confg")
    assert (done.returncode, done.stdout) == (2, "")
    assert "unknown command 'confg'" in done.stderr


@pytest.mark.parametrize("arguments", [["config"], ["config", "--help"], ["repo"], ["repo", "validate", "--help"]])
def test_commands_explain_themselves(machine: Machine, arguments: list[str]) -> None:
    done = machine.llmc(*arguments)
    assert done.returncode == 0
    assert done.stdout.startswith("usage: llmc ")


@pytest.mark.parametrize("arguments", [["config", "shw"], ["config", "trust", "a", "b"], ["repo", "check"]])
def test_a_wrong_subcommand_is_an_error_with_the_usage(machine: Machine, arguments: list[str]) -> None:
    done = machine.llmc(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage: llmc " in done.stderr


def test_llmc_serve_is_the_server(machine: Machine) -> None:
    done = machine.llmc("serve", "--help")
    assert done.stdout.startswith("usage: llmc-mcp ")
    assert machine.llmc("serve", "--frobnicate").returncode == 2


# --- llmc config ------------------------------------------------------------------------------------------------------


def test_show_prints_every_key_with_where_it_was_set(machine: Machine) -> None:
    machine.users_file('[mcp]\nmode = "classic"\n[mcp.store]\nurl = "postgres://me:hunter2@db/x"\n')
    done = machine.llmc("config", "show", "--set", "limits.workers=3", LLMC_MCP_TOKEN="t0ken")
    assert done.returncode == 0
    rows = dict(line.split(" = ", 1) for line in done.stdout.splitlines() if " = " in line)
    assert {name.rpartition(".")[2] for name in keys()} == set(rows)
    assert [part.strip() for part in rows["workers"].split("#")] == ["3", "--set limits.workers"]
    assert rows["max_queued_calls"].endswith("# default")
    assert rows["persist_telemetry"].endswith("# default; not in force in this version")
    assert '"postgres://***@db/x"' in rows["url"]
    assert "hunter2" not in done.stdout + done.stderr
    assert "t0ken" not in done.stdout + done.stderr


def test_a_verbose_start_prints_every_setting_without_secrets(machine: Machine) -> None:
    machine.users_file('[mcp.store]\nurl = "postgres://me:hunter2@db/x"\n')
    with machine.server("--verbose", "--set", "limits.workers=3") as client:
        client.tools()
    said = client.log
    assert [name for name in keys() if f"{name.rpartition('.')[2]} = " not in said] == []
    assert "# --set limits.workers" in said
    assert "hunter2" not in said


def test_show_as_json_is_only_json_on_stdout(machine: Machine) -> None:
    machine.repo_file('[mcp.sandbox]\nlevel = "off"\n')
    done = machine.llmc("config", "show", "--json")
    shown: dict[str, Any] = json.loads(done.stdout)
    assert shown["roots"] == [str(machine.repo)]
    assert shown["settings"]["mcp.sandbox.level"] == {"value": "auto", "source": "default", "in_force": True}
    assert shown["settings"]["mcp.mode"]["value"] == "hybrid"
    assert any("mcp.sandbox.level" in line for line in shown["notices"])
    assert "mcp.sandbox.level" in done.stderr


def test_show_says_what_is_wrong_like_a_start_does(machine: Machine) -> None:
    machine.repo_file("[mcp.tools]\nexec_timout = 1\n")
    done = machine.llmc("config", "show")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "llmc: llmc.toml:2: unknown key mcp.tools.exec_timout, did you mean exec_timeout?\n"


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("nowhere/llmc.toml", "no such file"),
        ("other.toml", "trust is about a folder's llmc.toml"),
        (".", "no such file"),
    ],
)
def test_trust_needs_a_workspace_file(machine: Machine, file: str, expected: str) -> None:
    done = machine.llmc("config", "trust", file)
    assert done.returncode == 2
    assert expected in done.stderr


def test_a_file_with_a_mistake_is_not_trusted(machine: Machine) -> None:
    machine.repo_file("[mcp.tools]\nexec_timout = 1\n")
    assert machine.llmc("config", "trust").returncode == 2
    assert not machine.data.exists()


def test_untrust_without_trust_says_so(machine: Machine) -> None:
    machine.repo_file("[mcp]\n")
    assert machine.llmc("config", "untrust").stdout.startswith("was not trusted")


# --- llmc repo validate ------------------------------------------------------------------------------------------


def validate(machine: Machine, *arguments: str) -> tuple[int, dict[str, tuple[str, str]]]:
    done = machine.llmc("repo", "validate", "--json", *arguments)
    rows: list[dict[str, str]] = json.loads(done.stdout)
    assert all(row["hint"] for row in rows)
    return done.returncode, {row["message"]: (row["severity"], row["hint"]) for row in rows}


def found(findings: dict[str, tuple[str, str]], words: str) -> tuple[str, str]:
    return next((what for message, what in findings.items() if words in message), ("", ""))


def test_a_plain_start_has_no_errors(machine: Machine) -> None:
    code, findings = validate(machine)
    assert code == 0
    assert [message for message in findings if "running as root" not in message] == []
    assert machine.llmc("repo", "validate").returncode == 0


def test_every_kind_of_finding_has_a_severity_and_a_hint(machine: Machine) -> None:
    machine.users_file(
        '[mcp]\nmode = "hybrid"\n[mcp.hybrid]\npromoted_tools = ["stat", "linux_fs_raed"]\n'
        '[mcp.tools]\nallowed_roots = ["/", "~/gone"]\nallow_outbound_network = true\n'
        'run_cmd_allowlist = ["sh", "no-such-binary"]\nexecutables = { lint = "/no/such/lint" }\n'
        '[mcp.sandbox]\nlevel = "off"\n[mcp.linux_ops.commands]\nallow_unsafe = true\n'
        "[mcp.docker]\npersist_telemetry = false\n"
        '[mcp.policy]\nhard_links = "allow"\nsecret_names = []\n'
    )
    machine.repo_file("[mcp.tools]\nexec_timeout = 900\n")
    code, findings = validate(machine)
    assert code == 1
    severity, hint = found(findings, "there is no tool 'linux_fs_raed'")
    assert severity == "error"
    assert "linux_fs_read" in hint
    assert found(findings, "gone does not exist")[0] == "error"
    assert found(findings, "/no/such/lint is no program")[0] == "error"
    for words in (
        "not on this machine: no-such-binary",
        "the whole machine is open",
        "mcp.sandbox.level: commands run unconfined",
        "mcp.tools.allow_outbound_network",
        "mcp.linux_ops.commands.allow_unsafe",
        "mcp.policy.secret_names",
        "mcp.policy.hard_links",
        "mcp.tools.exec_timeout = 900 is ignored",
    ):
        assert found(findings, words)[0] == "warning", words
    assert found(findings, "mcp.docker.persist_telemetry")[0] == "notice"
    assert bool(found(findings, "running as root")[0]) is (os.geteuid() == 0)


def test_an_alias_cannot_be_promoted_and_the_hint_names_the_tool(machine: Machine) -> None:
    findings = validate(machine, "--set", "hybrid.promoted_tools=linux.fs_read")[1]
    assert "linux_fs_read" in found(findings, "'linux.fs_read'")[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[mcp]\nmoed = 1\n", "llmc.toml:2: unknown key mcp.moed, did you mean mode?"),
        ("[mcp]\nenabled = false\n", "llmc.toml:2: mcp.enabled is false"),
    ],
)
def test_a_configuration_that_cannot_start_is_an_error(machine: Machine, text: str, expected: str) -> None:
    machine.repo_file(text)
    code, findings = validate(machine)
    assert code == 1
    assert found(findings, expected)[0] == "error"


def test_validate_takes_a_named_file(machine: Machine) -> None:
    named = machine.named_file("[mcp.tools]\nx = 1\n")
    done = machine.llmc("repo", "validate", "--config", str(named))
    assert done.returncode == 1
    assert f"error   {named}:2: unknown key mcp.tools.x" in done.stdout
    assert "hint: " in done.stdout
