"""`llmc allow` and `llmc config set`: what the user widens, how the file looks afterwards, who can't do it."""

import os
import stat
from pathlib import Path

import pytest

from llmc_mcp.app import App
from llmc_mcp.config.live import LiveConfig
from llmc_mcp.config.trust import INSIDE_COMMAND
from llmc_mcp.errors import CommandNotAllowed
from llmc_mcp.gate.catalog import Catalog
from llmc_mcp.gate.dispatch import Gate
from llmc_mcp.gate.log import Log

from ..support.client import Client
from ..support.gates import text_of
from ..support.machine import Machine

DENIED = "PERMISSION_DENIED"
UNLISTED = "factor"  # every machine has it, and it is nothing that a developer needs every day
OWN_FILE = """\
# what I allow
[mcp]
mode = "hybrid"   # small

[mcp.linux_ops.commands]
allowed_binaries = [
  "wget",   # for the mirror
]
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    for name, value in made.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("LLMC_CONFIG", raising=False)
    return made


def users_file(machine: Machine) -> Path:
    return machine.home / ".config/llmc/llmc.toml"


# --- the file ----------------------------------------------------------------------------------------


def test_a_program_is_added_and_comments_and_layout_stay(machine: Machine) -> None:
    machine.users_file(OWN_FILE)
    done = machine.llmc("allow", "program", "curl")
    assert done.returncode == 0, done.stderr
    assert users_file(machine).read_text() == OWN_FILE.replace("mirror\n", 'mirror\n  "curl",\n')
    assert machine.load().config.linux_ops.commands.allowed_binaries == ("wget", "curl")


def test_the_first_thing_that_is_allowed_makes_a_file_for_the_user_alone(machine: Machine) -> None:
    assert machine.llmc("allow", "network").returncode == 0
    assert machine.load().config.tools.allow_outbound_network is True
    assert stat.S_IMODE(users_file(machine).stat().st_mode) == 0o600
    assert [path.name for path in users_file(machine).parent.iterdir()] == ["llmc.toml"]


def test_what_was_allowed_is_listed_and_each_line_can_be_revoked(machine: Machine) -> None:
    (machine.home / "data").mkdir()
    hosts = ("network python", "network *.example.org:8443", "network 10.0.0.6")
    for words in ("program curl", *hosts, "network", "dir ~/data", "dir ~/data --write"):
        assert machine.llmc("allow", *words.split()).returncode == 0
    listed = machine.llmc("allow").stdout.splitlines()
    folders = [f"dir {machine.home}/data", f"dir {machine.home}/data --write"]
    assert listed == ["program curl", "network", *hosts, *folders]
    for line in listed:
        machine.llmc("allow", *line.split(), "--revoke")
    assert machine.llmc("allow").stdout == ""
    config = machine.load().config
    assert not config.linux_ops.commands.allowed_binaries
    assert not config.tools.allow_outbound_network
    assert config.tools.network_allow == ()
    assert config.sandbox.extra_read == config.sandbox.extra_write == ()


@pytest.mark.parametrize(
    "words",
    [
        ["allow", "dir", "~"],
        ["allow", "dir", "/"],
        ["allow", "dir", "~/.ssh"],
        ["allow", "dir", "~/.config"],
        ["allow", "dir", "~/gone"],
        ["allow", "network", "please"],
        ["allow", "network", "https://example.org/"],
        ["allow", "network", "*.org"],
        ["allow", "network", "0x7f.1"],
        ["allow", "network", "user@example.org"],
        ["config", "set", "tools.network_allow", "pypi.org,pyhton"],
        ["allow", "program"],
        ["allow", "everything"],
        ["allow", "program", "curl", "--write"],
        ["config", "set", "tools.read_timeout", "-3"],
        ["config", "set", "mode", "loud"],
        ["config", "set", "tools.reed_timeout", "3"],
        ["config", "unset", "tools.reed_timeout"],
        ["config", "set", "tools", "3"],
    ],
)
def test_what_is_wrong_or_too_much_is_refused_and_nothing_is_written(machine: Machine, words: list[str]) -> None:
    (machine.home / ".ssh").mkdir()
    done = machine.llmc(*words)
    assert done.returncode == 2
    assert "llmc: " in done.stderr
    assert not users_file(machine).exists()


def test_a_file_with_a_mistake_is_not_touched(machine: Machine) -> None:
    path = machine.users_file("[mcp.tools]\nread_timeout = 'soon'\n")
    done = machine.llmc("allow", "network")
    assert done.returncode == 2
    assert "read_timeout" in done.stderr
    assert path.read_text() == "[mcp.tools]\nread_timeout = 'soon'\n"


def test_an_unsafe_program_is_not_allowed_by_a_list_that_does_not_decide(machine: Machine) -> None:
    machine.users_file('[mcp.linux_ops.commands]\nunsafe_binaries = ["dd"]\n')
    done = machine.llmc("allow", "program", "dd")
    assert done.returncode == 2
    assert "unsafe_binaries" in done.stderr


def test_a_setting_is_set_and_unset_and_the_reply_says_when_it_takes_effect(machine: Machine) -> None:
    machine.users_file(OWN_FILE)
    done = machine.llmc("config", "set", "mcp.tools.exec_timeout", "120")
    assert "start again" in done.stdout
    assert machine.load().config.tools.exec_timeout == 120
    assert "within a second" in machine.llmc("config", "set", "sandbox.extra_read", "/opt,/srv").stdout
    assert machine.load().config.sandbox.extra_read == ("/opt", "/srv")
    for name in ("tools.exec_timeout", "sandbox.extra_read"):
        assert machine.llmc("config", "unset", name).returncode == 0
    assert machine.load().config.tools.exec_timeout == 30
    assert users_file(machine).read_text().startswith(OWN_FILE)


def test_a_linked_file_is_changed_where_it_is(machine: Machine) -> None:
    kept = machine.home / "dotfiles.toml"
    kept.write_text(OWN_FILE)
    users_file(machine).parent.mkdir(parents=True)
    users_file(machine).symlink_to(kept)
    assert machine.llmc("allow", "network").returncode == 0
    assert users_file(machine).is_symlink()
    assert "allow_outbound_network = true" in kept.read_text()


def test_hosts_are_allowed_one_by_one_and_the_mode_follows(machine: Machine) -> None:
    assert machine.load().config.network() == "off"
    assert machine.llmc("allow", "network", "Python").returncode == 0
    assert machine.load().config.network() == "allowlist"
    assert machine.llmc("allow", "network").returncode == 0
    assert machine.load().config.network() == "on"
    done = machine.llmc("allow", "network", "example.org")
    assert done.returncode == 2
    assert "the whole network" in done.stderr
    machine.llmc("allow", "network", "--revoke")
    assert machine.load().config.network() == "allowlist"
    machine.llmc("allow", "network", "python", "--revoke")
    assert machine.load().config.network() == "off"


def test_what_is_allowed_takes_the_place_of_a_mode_that_forbids_it(machine: Machine) -> None:
    machine.users_file('[mcp.tools]\nnetwork = "off"\n')
    assert machine.llmc("allow", "network", "example.org").returncode == 0
    assert machine.load().config.network() == "allowlist"
    machine.users_file('[mcp.tools]\nnetwork = "allowlist"\n')
    assert machine.llmc("allow", "network").returncode == 0
    assert machine.load().config.network() == "on"


# --- a running server --------------------------------------------------------------------------------


def test_a_running_server_notices_what_is_allowed_and_revoked(machine: Machine) -> None:
    with machine.server() as server:
        refused = server.call("run_cmd", command=f"{UNLISTED} 6")
        assert refused.code == "COMMAND_NOT_ALLOWED"
        assert f"llmc allow program {UNLISTED}" in refused.text
        machine.llmc("allow", "program", UNLISTED)
        assert "6: 2 3" in _when(server, allowed=True)
        machine.llmc("allow", "program", UNLISTED, "--revoke")
        _when(server, allowed=False)


def _when(server: Client, *, allowed: bool) -> str:
    reply = None
    for _ in range(3_000):
        reply = server.call("run_cmd", command=f"{UNLISTED} 6")
        if (reply.code != "COMMAND_NOT_ALLOWED") == allowed:
            return reply.text
    raise AssertionError(f"the server never noticed: {reply and reply.text}")


@pytest.fixture
def gate(machine: Machine) -> Gate:
    loaded = machine.load()
    app = App(loaded.config, [str(machine.repo)], loaded.data_dir, loaded.files, loaded.trusted_files)
    app.follow(LiveConfig(loaded, every_s=0))
    return Gate(app, Catalog(loaded.config), Log(enabled=False, level="error", log_format="text", with_ids=True))


def test_the_network_and_folders_are_taken_over_and_nothing_else(machine: Machine, gate: Gate) -> None:
    data = machine.home / "data"
    data.mkdir()
    (data / "table").write_text("from outside\n")
    try:
        assert "No such file" in text_of(gate, "run_cmd", command=f"cat {data}/table")
        assert gate.app.sandbox.level().blocks_network
        for words in (["allow", "dir", str(data)], ["allow", "network"], ["config", "set", "mode", "classic"]):
            assert machine.llmc(*words).returncode == 0
        assert "from outside" in text_of(gate, "run_cmd", command=f"cat {data}/table")
        assert not gate.app.sandbox.level().blocks_network
        assert gate.app.config.mode == "hybrid"
        assert "Read-only file system" in text_of(gate, "run_cmd", command=f"touch {data}/new")
        machine.llmc("allow", "dir", str(data), "--revoke")
        assert "No such file" in text_of(gate, "run_cmd", command=f"cat {data}/table")
    finally:
        gate.close()


def test_a_file_that_became_wrong_leaves_what_was_in_force(machine: Machine, gate: Gate) -> None:
    try:
        machine.llmc("allow", "program", UNLISTED)
        assert "6: 2 3" in text_of(gate, "run_cmd", command=f"{UNLISTED} 6")
        machine.users_file("[mcp.tools]\nrun_cmd_allowlist = 7\n")
        assert "6: 2 3" in text_of(gate, "run_cmd", command=f"{UNLISTED} 6")
    finally:
        gate.close()


# --- nobody else -------------------------------------------------------------------------------------


def test_neither_a_tool_nor_a_command_can_allow_anything(machine: Machine) -> None:
    """The home is a root here, so nothing but the rules about the file itself is in the way."""
    with machine.server("--root", str(machine.home)) as server:
        wish = "[mcp.tools]\nallow_outbound_network = true\n"
        path = users_file(machine)
        assert server.call("linux_fs_write", path=str(path), content=wish, create_parents=True).code == DENIED
        code = f"import os; os.makedirs('{path.parent}', exist_ok=True); open('{path}', 'w').write({wish!r})"
        server.call("run_cmd", command=["python3", "-c", code])
        assert not path.exists()
        machine.users_file("# mine\n")
        server.call("run_cmd", command=f"echo x > {path}; mv {path.parent} {machine.home}/moved; rm -rf {path.parent}")
        assert path.read_text() == "# mine\n"
        assert INSIDE_COMMAND in server.call("run_cmd", command="env").text


def test_a_command_of_a_server_is_told_that_it_is_one(machine: Machine) -> None:
    done = machine.llmc("allow", "network", **{INSIDE_COMMAND: "1"})
    assert done.returncode == 2
    assert "terminal" in done.stderr
    assert not users_file(machine).exists()


def test_the_refusal_of_an_unsafe_program_names_the_setting_that_decided(machine: Machine, gate: Gate) -> None:
    try:
        machine.users_file('[mcp.linux_ops.commands]\nunsafe_binaries = ["dd"]\n')
        gate.app.refresh()
        with pytest.raises(CommandNotAllowed) as refused:
            gate.app.shell.programs.find("dd", os.sep)
        assert "unsafe_binaries" in str(refused.value.hint)
        assert "llmc allow" not in str(refused.value.hint)
    finally:
        gate.close()


# --- slips -------------------------------------------------------------------------------------------


def test_a_flag_without_anything_to_apply_it_to_is_refused(machine: Machine) -> None:
    done = machine.llmc("allow", "--revoke")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--revoke: of what?" in done.stderr


def test_a_program_that_commands_do_not_find_is_allowed_with_a_word_about_it(machine: Machine) -> None:
    done = machine.llmc("allow", "program", "no-such-program")
    assert done.returncode == 0
    assert "commands find no program no-such-program now" in done.stderr
    assert machine.llmc("allow", "program", UNLISTED).stderr == ""


def test_a_setting_that_only_commands_for_people_read_holds_at_once(machine: Machine) -> None:
    assert "from now on" in machine.llmc("config", "set", "sandbox.forward_ports", "true").stdout


def test_an_unknown_key_is_said_once(machine: Machine) -> None:
    assert machine.llmc("config", "set", "nope", "1").stderr.startswith("llmc: config set: unknown key mcp.nope")
