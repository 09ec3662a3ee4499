"""`llmc install`: into a client's own settings and out again, with everything else in them kept."""

import contextlib
import io
import json
import os
import pty
import subprocess
import sys
import tomllib
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmc_mcp.cli import main
from llmc_mcp.cli.install import client_file, jsonc, toml, yaml
from llmc_mcp.cli.install.clients import CLIENTS, Client, server_command
from llmc_mcp.config.schema import Config
from llmc_mcp.gate.catalog import Catalog

from ..support.machine import Machine

NAMES = [client.name for client in CLIENTS]

ZED = """\
// Zed settings
{
  "theme": "One Dark", // dark
  "context_servers": {
    // mine
    "other": { "command": "other", "args": [] }, // keep
  },
  "vim_mode": true,
}
"""
CODEX = """\
# my settings
model = "o9"   # the good one

[mcp_servers.other]
command = "other"

# profiles
[profiles.fast]
model = "o9-mini"
"""
GOOSE = """\
GOOSE_PROVIDER: "anthropic"  # mine
extensions:
  other:
    enabled: true
    type: stdio
    cmd: other
    args:
    - --flag
    envs: {}

# how it asks
GOOSE_MODE: smart_approve
"""


class Here(Machine):
    """`llmc` without a process of its own: there are many calls."""

    def llmc(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.chdir(self.repo)
            patch.setattr("sys.argv", ["llmc", *arguments])
            patch.setattr("sys.stdin", io.StringIO())
            for name, value in environ.items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                main.main()
        return subprocess.CompletedProcess(arguments, int(ended.value.code or 0), out.getvalue(), err.getvalue())


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Here(tmp_path)
    for name, value in made.environ.items():
        monkeypatch.setenv(name, value)
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME", "CLINE_DIR", "CONTINUE_GLOBAL_DIR"):
        monkeypatch.delenv(name, raising=False)
    return made


def settings_of(client: Client, text: str) -> dict[str, Any]:
    if client.form == "yaml":
        return yaml.parse(text)
    return toml.parse(text) if client.form == "toml" else jsonc.parse(text, comments=client.comments).value


def install(machine: Machine, client: Client, *more: str) -> subprocess.CompletedProcess[str]:
    """`llmc install`, with a root for a client that needs one."""
    root = [] if client.starts_in_project else ["--root", str(machine.repo)]
    return machine.llmc("install", client.name, *root, *more)


def sample(client: Client) -> str:
    """Somebody's settings in this client's format, with another server in them."""
    if client.form == "toml":
        return CODEX
    if client.form == "yaml":
        return GOOSE
    if client.form == "jsonc":
        return ZED.replace("context_servers", client.table)
    return json.dumps({"theme": "dark", client.table: {"other": {"command": "other"}}}, indent=4) + "\n"


def write(path: str, text: str) -> Path:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, newline="")
    return file


def backups(file: Path) -> list[Path]:
    return sorted(file.parent.glob(f"{file.name}.llmc-*.bak"))


# --- every client -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", CLIENTS, ids=NAMES)
def test_an_entry_joins_what_is_there_and_leaves_as_if_it_had_never_been(machine: Machine, client: Client) -> None:
    file = write(client.file(), before := sample(client))
    file.chmod(0o640)
    assert install(machine, client).returncode == 0
    after = file.read_text()
    entry = settings_of(client, after)[client.table].pop("llmc")
    assert settings_of(client, after)[client.table]["other"] == settings_of(client, before)[client.table]["other"]
    assert client.words_of(entry)[: len(server_command())] == server_command()
    assert [line for line in before.splitlines() if line.rstrip(",") not in after] == []
    assert file.stat().st_mode & 0o777 == 0o640
    (backup,) = backups(file)
    assert (backup.read_text(), backup.stat().st_mode & 0o777) == (before, 0o640)

    again = install(machine, client)
    assert "already there" in again.stdout
    assert (file.read_text(), backups(file)) == (after, [backup])

    assert install(machine, client, "--uninstall").returncode == 0
    assert (file.read_text(), backups(file)) == (before, [])
    assert "not there" in install(machine, client, "--uninstall").stdout


@pytest.mark.parametrize("client", CLIENTS, ids=NAMES)
def test_a_file_that_is_missing_is_made_for_its_owner_only_and_goes_with_the_entry(
    machine: Machine, client: Client
) -> None:
    done = install(machine, client)
    assert done.returncode == 0
    file = Path(client.file())
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(settings_of(client, file.read_text())) == [client.table]
    assert "itself was not found" in done.stderr
    assert ("the folder in which" if client.starts_in_project else f"root: {machine.repo}") in done.stderr
    listed = {row["client"]: row for row in json.loads(machine.llmc("install", "--list", "--json").stdout)}
    assert (listed[client.name]["found"], listed[client.name]["state"]) == (False, "installed"), "ours is no sign of it"
    assert install(machine, client, "--uninstall").returncode == 0
    assert [path.name for path in file.parent.iterdir() if path.is_file()] == []


@pytest.mark.parametrize("client", CLIENTS, ids=NAMES)
def test_what_changed_since_is_kept_when_the_entry_goes(machine: Machine, client: Client) -> None:
    file = write(client.file(), sample(client))
    install(machine, client)
    file.write_text(file.read_text().replace("other", "another"))
    install(machine, client, "--uninstall")
    left = settings_of(client, file.read_text())
    assert left[client.table].keys() == {"another"}
    assert len(backups(file)) == 2, "one before each change"


@pytest.mark.parametrize("client", [client for client in CLIENTS if client.project_file], ids=lambda one: one.name)
def test_a_project_has_an_entry_of_its_own(machine: Machine, client: Client) -> None:
    assert machine.llmc("install", client.name, "--project").returncode == 0
    entry = settings_of(client, (machine.repo / client.project_file).read_text())[client.table]["llmc"]
    root = client.project_root or str(machine.repo)
    assert client.words_of(entry)[1:] == ([] if client.starts_in_project else ["--root", root])
    assert not Path(client.file()).exists()
    listed = machine.llmc("install", "--list").stdout
    assert f"{machine.repo}/{client.project_file}" in listed


@pytest.mark.parametrize("client", CLIENTS, ids=NAMES)
def test_the_entry_starts_a_server_that_answers(machine: Machine, client: Client, tmp_path: Path) -> None:
    install(machine, client)
    entry = settings_of(client, Path(client.file()).read_text())[client.table]["llmc"]
    (machine.repo / "here.txt").write_text("found me")
    started_in = machine.repo if client.starts_in_project else tmp_path
    call = {"name": "read_file", "arguments": {"path": "here.txt"}}
    request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}) + "\n"
    done = subprocess.run(
        client.words_of(entry), input=request, capture_output=True, text=True, cwd=started_in, check=True
    )
    assert "found me" in done.stdout


# --- refusals and care ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("claude-code", '{\n  "a": 1,\n  "b": nope\n}\n', 3),
        ("claude-desktop", '{\n  // a comment that Claude Desktop can not read\n  "a": 1\n}\n', 2),
        ("windsurf", '{\n  "mcpServers": [],\n}\n', 3),
        ("cursor", '{\n  "mcpServers": [\n  ]\n}\n', 2),
        ("vscode", '{\n  "servers": {\n', 3),
        ("zed", "[]\n", 1),
        ("codex", "a = 1\nb = = 2\n", 2),
        ("codex", "mcp_servers = 3\n", 1),
    ],
)
def test_a_file_that_can_not_be_read_is_named_with_its_line_and_left_alone(
    machine: Machine, name: str, text: str, line: int
) -> None:
    client = next(client for client in CLIENTS if client.name == name)
    file = write(client.file(), text)
    done = install(machine, client)
    assert done.returncode == 2
    assert f"{file}:{line}: " in done.stderr
    assert (file.read_text(), backups(file)) == (text, [])
    assert f"can't be read: line {line}" in machine.llmc("install", "--list").stdout


def test_bytes_that_are_no_text_are_refused(machine: Machine) -> None:
    file = machine.home / ".claude.json"
    file.write_bytes(b'{\n"a": "\xff"}')
    done = machine.llmc("install", "claude-code")
    assert f"{file}:2: not UTF-8" in done.stderr
    assert file.read_bytes() == b'{\n"a": "\xff"}'


@pytest.mark.parametrize(
    "text",
    [
        'mcp_servers = { llmc = { command = "x" } }\n',
        '[mcp_servers]\nllmc.command = "x"\n',
        '[mcp_servers]\nllmc = { command = "x" }\n',
    ],
)
def test_toml_in_a_form_of_somebodys_own_is_refused_rather_than_damaged(machine: Machine, text: str) -> None:
    file = write(str(machine.home / ".codex/config.toml"), text)
    for arguments in (["install", "codex"], ["install", "codex", "--uninstall"]):
        done = machine.llmc(*arguments)
        assert (done.returncode, file.read_text()) == (2, text)
        assert "nothing was changed" in done.stderr


def test_a_link_stays_a_link_and_what_it_points_to_is_written(machine: Machine) -> None:
    dotfiles = write(str(machine.home / "dotfiles/cursor.json"), '{\n\t"mcpServers": {}\n}\n')
    link = machine.home / ".cursor/mcp.json"
    link.parent.mkdir()
    link.symlink_to(dotfiles)
    machine.llmc("install", "cursor", "--root", str(machine.repo))
    assert link.is_symlink()
    assert '\t\t"llmc": {\n\t\t\t"command"' in dotfiles.read_text()
    assert [len(backups(link)), len(backups(dotfiles))] == [1, 0]
    machine.llmc("install", "cursor", "--uninstall")
    assert (link.is_symlink(), dotfiles.read_text()) == (True, '{\n\t"mcpServers": {}\n}\n')


def test_something_that_is_no_file_is_refused_without_waiting_for_it(machine: Machine) -> None:
    os.mkfifo(machine.home / ".claude.json")
    assert "is not a file" in machine.llmc("install", "claude-code").stderr


@pytest.mark.parametrize(("times", "code"), [(1, 0), (9, 2)])
def test_what_the_client_writes_meanwhile_is_not_lost(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, times: int, code: int
) -> None:
    file = write(str(machine.home / ".claude.json"), '{"starts": 0}')
    write_new, left = client_file._write_new, times  # pyright: ignore[reportPrivateUsage]

    def while_the_client_writes(path: str, text: str, like: os.stat_result | None) -> None:
        nonlocal left
        write_new(path, text, like)
        if left and not path.endswith(".bak"):
            left -= 1
            file.write_text(json.dumps({"starts": 100 + left}))

    monkeypatch.setattr(client_file, "_write_new", while_the_client_writes)
    done = machine.llmc("install", "claude-code")
    assert done.returncode == code
    kept = json.loads(file.read_text())
    assert (kept["starts"], "mcpServers" in kept) == ((100, True) if code == 0 else (106, False))
    assert [path.name for path in machine.home.iterdir() if path.suffix != ".bak" and path.is_file()] == [
        ".claude.json"
    ]
    assert len(backups(file)) == (1 if code == 0 else 0)


def test_a_dry_run_prints_the_change_and_makes_none(machine: Machine) -> None:
    file = write(str(machine.home / ".config/zed/settings.json"), ZED)
    done = machine.llmc("install", "zed", "--dry-run")
    assert '+    "llmc": {' in done.stdout.splitlines()
    assert not any(line.startswith("-") for line in done.stdout.splitlines()[2:])
    assert (file.read_text(), backups(file)) == (ZED, [])
    machine.llmc("install", "zed")
    after = file.read_text()
    removal = machine.llmc("install", "zed", "--uninstall", "--dry-run").stdout
    assert '-    "llmc": {' in removal.splitlines()
    assert file.read_text() == after


def test_a_dry_run_shows_what_allow_would_write_and_what_taking_it_back_would_remove(machine: Machine) -> None:
    before = files_below(machine.home)
    shown = machine.llmc("install", "claude-code", "--allow", "--dry-run").stdout.splitlines()
    assert '+    "allow": ["mcp__llmc"]' in shown
    assert "+<!-- llmc -->" in shown
    assert files_below(machine.home) == before
    machine.llmc("install", "claude-code", "--allow")
    allowed = files_below(machine.home)
    removal = machine.llmc("install", "claude-code", "--uninstall", "--dry-run").stdout.splitlines()
    assert '-    "allow": ["mcp__llmc"]' in removal
    assert "-<!-- llmc -->" in removal
    assert files_below(machine.home) == allowed


def test_a_changed_entry_changes_in_place_and_keeps_what_its_owner_added(machine: Machine) -> None:
    file = write(
        str(machine.home / ".cursor/mcp.json"),
        '{"mcpServers": {"llmc": {"command": "/old/llmc-mcp", /* mine */ "env": {"LLMC_MCP_MODE": "classic"}}}}',
    )
    assert "installed, command missing" in machine.llmc("install", "--list").stdout
    assert "changed in" in machine.llmc("install", "cursor", "--root", str(machine.repo)).stdout
    entry = jsonc.parse(file.read_text(), comments=True).value["mcpServers"]["llmc"]
    assert entry["env"] == {"LLMC_MCP_MODE": "classic"}
    assert entry["args"] == ["--root", str(machine.repo)]
    assert "/* mine */" in file.read_text()


def test_codex_keys_change_in_place_however_they_were_written(machine: Machine) -> None:
    text = '[mcp_servers.llmc] # ours\nargs = [\n  "--mode",\n  "classic",\n]\ncommand = "/old"\n\n'
    text += '[mcp_servers.llmc.env]\nA = "b"\n'
    file = write(str(machine.home / ".codex/config.toml"), text)
    machine.llmc("install", "codex", "--", "--mode", "hybrid")
    entry = tomllib.loads(file.read_text())["mcp_servers"]["llmc"]
    assert entry == {"args": ["--mode", "hybrid"], "command": server_command()[0], "env": {"A": "b"}}
    assert "# ours" in file.read_text()
    machine.llmc("install", "codex", "--uninstall")
    assert tomllib.loads(file.read_text()) == {}


def test_a_table_below_ours_is_not_ours(machine: Machine) -> None:
    text = '[mcp_servers.llmc.env]\nA = "b"\n\n[mcp_servers.llmc]\ncommand = "/old"\n\n[other]\nx = 1\n'
    file = write(str(machine.home / ".codex/config.toml"), text)
    assert machine.llmc("install", "codex").returncode == 0
    found = tomllib.loads(file.read_text())
    assert found["mcp_servers"]["llmc"] == {"command": server_command()[0], "args": [], "env": {"A": "b"}}
    assert machine.llmc("install", "codex", "--uninstall").returncode == 0
    assert tomllib.loads(file.read_text()) == {"other": {"x": 1}}


def test_roots_and_flags_are_what_was_asked_for(machine: Machine) -> None:
    other = machine.home / "other folder"
    other.mkdir()
    machine.llmc(
        "install", "claude-desktop", "--root", str(machine.repo), "--root=~/other folder", "--", "--mode", "classic"
    )
    file = machine.home / ".config/Claude/claude_desktop_config.json"
    entry = json.loads(file.read_text())["mcpServers"]["llmc"]
    assert entry["args"] == ["--root", str(machine.repo), "--root", str(other), "--mode", "classic"]
    assert machine.llmc("install", "cursor", "--root", "/nowhere").returncode == 2
    assert "claude-code" in machine.llmc("install", "claude-cod").stderr


def test_a_client_without_a_working_directory_gets_no_root_that_nobody_named(machine: Machine) -> None:
    done = machine.llmc("install", "cursor", "claude-code")
    assert done.returncode == 2
    assert "--root DIR" in done.stderr
    assert not (machine.home / ".cursor").exists()
    assert (machine.home / ".claude.json").exists(), "one client's trouble is not the other's"
    assert machine.llmc("install", "cursor", "--root", str(machine.home)).returncode == 0


def test_environment_moves_the_files_as_the_clients_move_them(machine: Machine) -> None:
    elsewhere = machine.home / "elsewhere"
    machine.llmc("install", "codex", "claude-code", CODEX_HOME=str(elsewhere), CLAUDE_CONFIG_DIR=str(elsewhere))
    assert sorted(path.name for path in elsewhere.iterdir()) == [".claude.json", "config.toml"]


def test_a_client_without_projects_says_so(machine: Machine) -> None:
    assert "no settings per project" in machine.llmc("install", "windsurf", "--project").stderr


def test_the_list_is_data_too(machine: Machine) -> None:
    write(str(machine.home / ".cursor/argv.json"), "{}")
    (machine.home / ".codeium/windsurf").mkdir(parents=True)
    rows = json.loads(machine.llmc("install", "--list", "--json").stdout)
    assert [row["client"] for row in rows] == NAMES
    found = {row["client"] for row in rows if row["found"]}
    assert ("cursor" in found, "windsurf" in found) == (True, False), "an empty folder is no client"


# --- which folder -----------------------------------------------------------------------------------------------------


def on_a_terminal(machine: Machine, typed: bytes, *arguments: str) -> tuple[int, str]:
    """`llmc` with a person at a terminal who types something; the exit code and what was shown."""
    command = [sys.executable, "-c", "from llmc_mcp.cli.main import main; main()", *arguments]
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command, cwd=machine.repo, env={**os.environ, **machine.environ}, stdin=theirs, stdout=theirs, stderr=theirs
    ) as running:
        os.close(theirs)
        os.write(ours, typed)
        shown = b""
        with contextlib.suppress(OSError):  # how a terminal says that its last user is gone
            while piece := os.read(ours, 4096):
                shown += piece
    os.close(ours)
    return running.returncode, shown.decode()


@pytest.mark.parametrize(("typed", "root"), [(b"\n", "repo"), (b"nowhere\n~/shop\n", "home/shop")])
def test_a_person_is_asked_for_the_folder(machine: Machine, tmp_path: Path, typed: bytes, root: str) -> None:
    (machine.home / "shop").mkdir()
    code, shown = on_a_terminal(machine, typed, "install", "cursor")
    assert code == 0, shown
    assert f"Which folder shall Cursor work in? [{machine.repo}]" in shown
    entry = json.loads((machine.home / ".cursor/mcp.json").read_text())["mcpServers"]["llmc"]
    assert entry["args"] == ["--root", str(tmp_path / root)]
    assert "already there" in machine.llmc("install", "cursor").stdout, "its root is known now"


def test_a_whole_home_is_not_offered(machine: Machine) -> None:
    machine.repo = machine.home
    code, shown = on_a_terminal(machine, b"\n\n\n", "install", "windsurf")
    assert code == 2
    assert "Which folder shall Windsurf work in? Name a folder" in shown, "nothing is offered"


# --- permissions ------------------------------------------------------------------------------------------------------


def files_below(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".bak"
    }


@pytest.mark.parametrize("client", CLIENTS, ids=NAMES)
def test_what_allow_writes_goes_with_the_entry(machine: Machine, client: Client) -> None:
    done = install(machine, client, "--allow")
    assert done.returncode == 0, done.stderr
    written = files_below(machine.home)
    recipe = client.recipe
    assert len(written) == 1 + (recipe.memory is not None) + (
        recipe.rules_file is not None and recipe.rules_file() != client.file()
    )
    assert recipe.in_entry or recipe.rules or recipe.note or "allow the tools when it asks" in done.stderr
    assert install(machine, client, "--allow").returncode == 0
    assert files_below(machine.home) == written, "a second run changes nothing"
    listed = {row["client"]: row for row in json.loads(machine.llmc("install", "--list", "--json").stdout)}
    assert not listed[client.name]["found"]
    assert install(machine, client, "--uninstall").returncode == 0
    assert files_below(machine.home) == {}


def test_claude_code_is_allowed_the_server_and_told_to_prefer_it(machine: Machine) -> None:
    rules = write(str(machine.home / ".claude/settings.json"), '{"permissions": {"allow": ["Bash(ls)"]}, "a": 1}\n')
    memory = write(str(machine.home / ".claude/CLAUDE.md"), "Be brief.\n")
    before = files_below(machine.home)
    machine.llmc("install", "claude-code", "--allow")
    assert json.loads(rules.read_text()) == {"permissions": {"allow": ["Bash(ls)", "mcp__llmc"]}, "a": 1}
    assert memory.read_text().startswith("Be brief.\n\n<!-- llmc -->\nFor files, search and commands prefer")
    machine.llmc("install", "claude-code", "--uninstall")
    assert files_below(machine.home) == before


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("codex", {"default_tools_approval_mode": "approve"}),
        ("gemini", {"trust": True}),
        ("cline", {"autoApprove": "tools"}),
        ("roo", {"alwaysAllow": "tools"}),
    ],
)
def test_some_clients_keep_it_in_the_entry(machine: Machine, name: str, allowed: dict[str, Any]) -> None:
    client = next(client for client in CLIENTS if client.name == name)
    install(machine, client, "--allow")
    entry = settings_of(client, Path(client.file()).read_text())[client.table]["llmc"]
    tools = sorted(tool.name for tool in Catalog(Config()).listed)
    assert {key: entry[key] for key in allowed} == {
        key: tools if value == "tools" else value for key, value in allowed.items()
    }


def test_zed_and_opencode_keep_it_beside_the_servers(machine: Machine) -> None:
    zed = write(str(machine.home / ".config/zed/settings.json"), ZED)
    machine.llmc("install", "zed", "--allow")
    found = jsonc.parse(zed.read_text(), comments=True).value
    assert found["agent"]["tool_permissions"]["tools"]["mcp:llmc:run_cmd"] == {"default": "allow"}
    machine.llmc("install", "opencode", "--allow", "--project")
    assert json.loads((machine.repo / "opencode.json").read_text())["permission"] == {"llmc_*": "allow"}
    machine.llmc("install", "zed", "--uninstall")
    assert jsonc.parse(zed.read_text(), comments=True).value == jsonc.parse(ZED, comments=True).value


# --- YAML -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", ["", "a: 1\n", "extensions: {}\n", "extensions:\nb: 2\n", GOOSE, GOOSE.rstrip()])
def test_an_entry_of_goose_comes_and_goes(before: str) -> None:
    path = ("extensions", "llmc")
    after = yaml.put(before, path, {"cmd": "x", "args": ["a: b", "#c"]})
    assert yaml.parse(after)["extensions"]["llmc"] == {"cmd": "x", "args": ["a: b", "#c"]}
    assert [line for line in before.splitlines() if line not in after and "extensions" not in line] == []
    left = yaml.parse(yaml.cut(after, path))
    assert left.get("extensions", {}) == yaml.parse(before).get("extensions", {})
    if "other" in before:
        assert yaml.cut(after, path) == before


def test_what_goose_wrote_in_its_own_form_is_read_and_removed(machine: Machine) -> None:
    block = '  llmc:\n    enabled: true\n    type: stdio\n    cmd: "/old"\n    args:\n    - --mode\n    - classic\n'
    file = write(
        str(machine.home / ".config/goose/config.yaml"), GOOSE.replace("extensions:\n", f"extensions:\n{block}")
    )
    assert "installed, command missing" in machine.llmc("install", "--list").stdout
    assert machine.llmc("install", "goose", "--uninstall").returncode == 0
    assert file.read_text() == GOOSE


@pytest.mark.parametrize("text", ["extensions: {other: {cmd: x}}\n", "extensions:\n- a\n", "- a\n", "a: 1\na: 2\n"])
def test_yaml_in_another_form_is_refused_rather_than_damaged(machine: Machine, text: str) -> None:
    file = write(str(machine.home / ".config/goose/config.yaml"), text)
    assert machine.llmc("install", "goose").returncode == 2
    assert file.read_text() == text


# --- text -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{}", '{\n  "s": {\n    "x": 1\n  }\n}'),
        ("{ /* c */ }", '{ /* c */\n  "s": {\n    "x": 1\n  }\n}'),
        ('{"s":{"a":1}}', '{"s":{"a":1, "x": 1}}'),
        ('{\r\n\t"s": {\r\n\t\t"a": 1\r\n\t}\r\n}\r\n', '{\r\n\t"s": {\r\n\t\t"a": 1,\r\n\t\t"x": 1\r\n\t}\r\n}\r\n'),
        ('{\n  "s": {\n    "a": 1 // one\n  }\n}', '{\n  "s": {\n    "a": 1, // one\n    "x": 1\n  }\n}'),
        ('{\n  "s": {\n    "a": 1,\n  },\n}', '{\n  "s": {\n    "a": 1,\n    "x": 1,\n  },\n}'),
        ('{\n  "s": {"x": 0}\n}', '{\n  "s": {"x": 1}\n}'),
        ('\ufeff{"s": {}}', '\ufeff{"s": {\n  "x": 1\n}}'),
        ("", '{\n  "s": {\n    "x": 1\n  }\n}\n'),
    ],
)
def test_a_value_is_put_where_a_person_would_write_it(before: str, after: str) -> None:
    assert jsonc.put(before, ("s", "x"), 1, comments=True) == after


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(
    before=st.dictionaries(st.text(max_size=4), VALUES, max_size=4),
    others=st.dictionaries(st.text(max_size=4), VALUES, max_size=3),
    indent=st.sampled_from([None, 1, 4, "\t"]),
    value=VALUES,
)
def test_whatever_the_file_holds_only_the_one_member_changes(
    before: dict[str, Any], others: dict[str, Any], indent: Any, value: Any
) -> None:
    whole = {**before, "servers": {name: item for name, item in others.items() if name != "llmc"}}
    text = json.dumps(whole, indent=indent)
    with_it = jsonc.put(text, ("servers", "llmc"), value, comments=False)
    assert json.loads(with_it) == {**whole, "servers": {**whole["servers"], "llmc": value}}
    assert json.loads(jsonc.cut(with_it, ("servers", "llmc"), comments=False)) == whole
    if whole["servers"]:
        assert jsonc.cut(with_it, ("servers", "llmc"), comments=False) == text


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet='{}[]",:/* \n1a\\', max_size=40))
def test_text_that_json_reads_is_read_alike_and_other_text_is_refused(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        expected = jsonc.Unreadable
    try:
        found = jsonc.parse(text, comments=False).value
    except jsonc.Unreadable as exc:
        found, _ = jsonc.Unreadable, exc.line
    assert found == expected or not text.strip()
