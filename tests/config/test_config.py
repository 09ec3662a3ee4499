"""One configuration from the command line, the environment, files and defaults."""

import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from llmc_mcp.config.load import load, variable_of
from llmc_mcp.config.schema import NOT_IN_FORCE, Config, data_directory, find_key, get_key, keys, sections
from llmc_mcp.config.trust import ConfigError
from scripts.config_docs import page

from ..support.machine import Machine


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setenv("HOME", str(made.home))
    return made


# --- the files of the documents that this server was specified by -------------------------------------------

SEEDS = {
    "roots": """
[mcp.linux_ops.roots]
allowed_roots = ["~/src/llmc", "~"]
enforce_roots = true
""",
    "processes": """
[mcp.linux_ops.process_limits]
max_procs_per_session = 4
max_procs_total = 32
default_timeout_sec = 60
max_timeout_sec = 600
allow_kill_other_users = false

[mcp.linux_ops.features]
proc_enabled = true
system_enabled = true
""",
    "server": """
[mcp]
enabled = true
config_version = "v0"

[mcp.server]
host = "127.0.0.1"
port = 8080
tls_enabled = false

[mcp.auth]
mode = "token"
header = "X-LLMC-Token"
token_env = "LLMC_MCP_TOKEN"
allow_unauthenticated = false

[mcp.tools]
enable_run_cmd = true
allowed_roots = ["/"]
allow_outbound_network = true
run_cmd_allowlist = ["bash","sh","rg","grep","cat","ls","python","pip"]
exec_timeout = 30
read_timeout = 10
idle_timeout = 60

[mcp.rag]
jit_context_enabled = true
default_scope = "repo"
top_k = 3
token_budget = 600

[mcp.observability]
enabled = true
metrics_prometheus_enabled = true
metrics_path = "/metrics"
csv_token_audit_enabled = false
csv_path = "./artifacts/token_audit.csv"
log_format = "json"
log_level = "info"
retention_days = 0
include_correlation_id = true

[mcp.limits]
rate_limit_rps = 10
rate_limit_burst = 20
concurrency_per_token = 8
max_request_bytes = 262144
max_header_bytes  = 16384
""",
    "observability": """
[mcp.observability]
enabled = true
log_format = "json"
log_level = "info"
include_correlation_id = true
metrics_enabled = true
csv_token_audit_enabled = false
csv_path = "./artifacts/mcp_token_audit.csv"
""",
    "container": """
[mcp.session]
# Default session context (can be overridden per-call)
default_agent_id = "claude-desktop-mcp"
default_model = "unknown"
# Session ID generated per conversation if not provided

[mcp.te]
enabled = true
script_path = "scripts/te"  # Relative to LLMC_ROOT
json_mode = true  # Request JSON output from TE
timeout = 30  # Override TE's internal timeout
passthrough_on_failure = true  # If TE fails, fall back to direct exec

[mcp.resources]
# Sidecar documents exposed as MCP resources
sidecars = [
    "DOCS/agents.core.min.md",
    "DOCS/contracts.env.min.md",
]

[mcp.docker]
# Settings only relevant when running in container
data_volume = "/app/.llmc"
persist_telemetry = true
persist_token_audit = true
""",
    "modes": """
[mcp]
# NEW: Mode selector - 'classic' | 'hybrid' | 'code_execution'
mode = "hybrid"  # Default to hybrid for new installs

[mcp.hybrid]
# Explicitly define which tools are promoted beyond read/list
# Default set provides write capability without full classic bloat
promoted_tools = ["linux_fs_write", "linux_fs_edit", "run_cmd"]

# Optional: Include execute_code for complex computation (requires isolation)
include_execute_code = true

# Budget warning threshold (characters)
bootstrap_budget_warning = 15000
""",
}


@pytest.mark.parametrize("name", SEEDS)
def test_every_specified_file_loads_as_it_is_written(machine: Machine, name: str) -> None:
    loaded = machine.load("--config", str(machine.named_file(SEEDS[name])))
    assert loaded.refusals == []
    assert loaded.ignored == []


def test_the_specified_server_file_means_what_it_says(machine: Machine) -> None:
    loaded = machine.load("--config", str(machine.named_file(SEEDS["server"])))
    assert loaded.roots == ["/"]
    assert loaded.config.tools.allow_outbound_network
    assert loaded.config.allowed_binaries() == {"bash", "sh", "rg", "grep", "cat", "ls", "python", "pip"}
    assert loaded.config.limits.max_request_bytes == 262_144


def test_the_specified_roots_are_expanded(machine: Machine) -> None:
    loaded = machine.load("--config", str(machine.named_file(SEEDS["roots"])))
    assert loaded.roots == [str(machine.home / "src/llmc"), str(machine.home)]


def test_what_is_not_in_force_is_said_once_for_each_reason(machine: Machine) -> None:
    loaded = machine.load("--config", str(machine.named_file(SEEDS["container"])))
    assert any("mcp.te.script_path (te is part of this package; remove the key)" in line for line in loaded.idle)
    assert any("mcp.docker.data_volume (the environment variable LLMC_DATA_DIR" in line for line in loaded.idle)
    told = " ".join(loaded.idle)
    assert all(f"mcp.{name}" in told for name in loaded.sources if name.startswith("docker."))
    assert len(loaded.idle) == len(set(loaded.idle))


# --- precedence ---------------------------------------------------------------------------------------------


def seconds(value: int) -> str:
    return f'[mcp]\nmode = "hybrid"\n[mcp.tools]\nread_timeout = {value}\n'


def test_the_command_line_beats_the_environment_beats_files_beats_the_default(machine: Machine) -> None:
    def read_timeout(*arguments: str, **environ: str) -> tuple[float, str | None]:
        loaded = machine.load(*arguments, **environ)
        return loaded.config.tools.read_timeout, loaded.sources.get("tools.read_timeout")

    variable = {"LLMC_MCP_TOOLS_READ_TIMEOUT": "3"}
    assert read_timeout() == (10, None)
    users = machine.users_file(seconds(6))
    assert read_timeout() == (6, f"{users}:4")
    machine.repo_file(seconds(5))
    assert read_timeout() == (5, "llmc.toml:4")
    named = machine.named_file(seconds(4))
    assert read_timeout(LLMC_CONFIG=str(named)) == (4, f"{named}:4")
    assert read_timeout("--config", str(named), LLMC_CONFIG="/nowhere") == (4, f"{named}:4")
    assert read_timeout(**variable) == (3, "LLMC_MCP_TOOLS_READ_TIMEOUT")
    assert read_timeout("--set", "tools.read_timeout=2", **variable) == (2, "--set tools.read_timeout")
    assert read_timeout("--set=mcp.tools.read_timeout=1", "--set", "tools.read_timeout=2") == (
        2,
        "--set tools.read_timeout",
    )


def test_a_named_file_is_the_only_one_that_is_read(machine: Machine) -> None:
    machine.users_file("[mcp]\nbroken")
    machine.repo_file("[mcp]\nbroken")
    named = machine.named_file('[mcp]\nmode = "classic"\n')
    assert machine.load("--config", str(named)).files == [str(named)]


def test_a_working_directory_that_holds_the_users_own_file_is_not_a_workspace(machine: Machine) -> None:
    own = machine.users_file('[mcp]\nmode = "hybrid"\n[mcp.tools]\nallow_outbound_network = true\n')
    machine.repo = own.parent
    loaded = machine.load()
    assert loaded.config.tools.allow_outbound_network
    assert loaded.files == [str(own)]


def test_other_tables_of_the_file_are_left_alone(machine: Machine) -> None:
    machine.repo_file('[embeddings]\nmodel = "x"\n[mcpx]\ny = 1\n')
    loaded = machine.load()
    assert loaded.config == Config()
    assert loaded.notices == []


# --- values ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "text", "key", "value"),
    [
        ("LLMC_MCP_MODE", "classic", "mode", "classic"),
        ("LLMC_MCP_TOOLS_EXEC_TIMEOUT", "2.5", "tools.exec_timeout", 2.5),
        ("LLMC_MCP_LIMITS_WORKERS", "2", "limits.workers", 2),
        ("LLMC_MCP_LINUX_OPS_FEATURES_FS_ENABLED", "false", "linux_ops.features.fs_enabled", False),
        ("LLMC_MCP_LINUX_OPS_FEATURES_LOGS_ENABLED", "on", "linux_ops.features.logs_enabled", True),
        ("LLMC_MCP_TOOLS_RUN_CMD_ALLOWLIST", "git, make", "tools.run_cmd_allowlist", ("git", "make")),
        ("LLMC_MCP_TOOLS_RUN_CMD_ALLOWLIST", '["a,b"]', "tools.run_cmd_allowlist", ("a,b",)),
        ("LLMC_MCP_TOOLS_RUN_CMD_ALLOWLIST", "[]", "tools.run_cmd_allowlist", ()),
        ("LLMC_MCP_TOOLS_EXECUTABLES", '{"x": "/bin/x"}', "tools.executables", {"x": "/bin/x"}),
        ("LLMC_MCP_SANDBOX_RUN_AS", "nobody", "sandbox.run_as", "nobody"),
    ],
)
def test_the_environment_and_set_read_every_kind_of_value(
    machine: Machine, variable: str, text: str, key: str, value: object
) -> None:
    assert get_key(machine.load(**{variable: text}).config, key) == value
    assert get_key(machine.load("--set", f"{key}={text}").config, key) == value


def test_an_empty_variable_is_no_setting_and_the_token_never_is(machine: Machine) -> None:
    named = machine.named_file('[mcp]\nmode = "hybrid"\n[mcp.auth]\ntoken_env = "LLMC_MCP_OTHER"\n')
    tokens = {"LLMC_MCP_TOKEN": "s3cret", "LLMC_MCP_OTHER": "s3cret", "LLMC_MCP_MODE": ""}
    loaded = machine.load("--config", str(named), **tokens)
    assert loaded.config.mode == "hybrid"
    assert "s3cret" not in repr(loaded)


def test_every_key_has_a_variable_of_its_own() -> None:
    assert len({variable_of(name) for name in keys()}) == len(keys())
    assert variable_of("linux_ops.roots.enforce_roots") == "LLMC_MCP_LINUX_OPS_ROOTS_ENFORCE_ROOTS"
    assert "LLMC_MCP_TOKEN" not in {variable_of(name) for name in keys()}


WRONG = {
    "a misspelled key": (
        "[mcp.tools]\n\nexec_timout = 3\n",
        ":3: unknown key mcp.tools.exec_timout, did you mean exec_timeout?",
    ),
    "a misspelled section": ("[mcp.tool]\nx = 1\n", ":1: unknown key mcp.tool, did you mean tools?"),
    "another section's key": ("[mcp]\nworkers = 1\n", ":2: unknown key mcp.workers, did you mean mcp.limits.workers?"),
    "a key like no other": ("[mcp]\nqqqqqqqq = 1\n", ":2: unknown key mcp.qqqqqqqq"),
    "text for a number": ('[mcp.limits]\nworkers = "8"\n', ":2: mcp.limits.workers: expected a whole number, got text"),
    "true for a number": ("[mcp.limits]\nworkers = true\n", ":2: mcp.limits.workers: expected a whole number"),
    "zero seconds": ("[mcp.tools]\nread_timeout = 0\n", ":2: mcp.tools.read_timeout: expected a number > 0"),
    "no number": ("[mcp.tools]\nread_timeout = nan\n", ":2: mcp.tools.read_timeout: expected a number > 0"),
    "for ever": ("[mcp.tools]\nread_timeout = inf\n", ":2: mcp.tools.read_timeout: expected a number <= "),
    "a port too high": ("[mcp.server]\nport = 70000\n", ":2: mcp.server.port: expected a whole number <= 65535"),
    "a word too many": ('[mcp]\nmode = "turbo"\n', ":2: mcp.mode: 'turbo' is none of classic, hybrid, code_execution"),
    "another version": ('[mcp]\nconfig_version = "v9"\n', ":2: mcp.config_version: 'v9' is none of v0"),
    "a list of numbers": ("[mcp.tools]\nallowed_roots = [1]\n", ":2: mcp.tools.allowed_roots: expected text"),
    "a value for a section": ("[mcp]\ntools = 3\n", ":2: mcp.tools is a section, not a value"),
    "a value for everything": ("mcp = 3\n", ":1: mcp is a section, not a value"),
    "a table for a value": ("[mcp.tools.read_timeout]\nx = 1\n", ":1: mcp.tools.read_timeout: expected a number"),
    "an array of tables": ("[[mcp.tools]]\nread_timeout = 1\n", ":1: mcp.tools is a section, not a value"),
    "inline tables": ("[mcp]\nmode='classic'\ntools = { exec_timout = 3 }\n", ":3: unknown key mcp.tools.exec_timout"),
    "dotted keys": ('[mcp]\n"tools" . exec_timout = 3\n', ":2: unknown key mcp.tools.exec_timout"),
    "a key after a list": ('[mcp.tools]\nallowed_roots = [\n  "a",\n]\nx_y_z = 1\n', ":5: unknown key mcp.tools.x_y_z"),
    "a syntax error": ("[mcp]\n\nmode =\n", ":3: Invalid value"),
    "a key twice": ("[mcp]\nmode='classic'\nmode='hybrid'\n", ":3: Cannot overwrite a value"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_named_with_its_file_and_line(machine: Machine, case: str) -> None:
    text, expected = WRONG[case]
    machine.repo_file(text)
    with pytest.raises(ConfigError) as caught:
        machine.load()
    assert caught.value.message.startswith(f"llmc.toml{expected}")


def test_every_mistake_of_a_file_is_named_at_once(machine: Machine) -> None:
    machine.repo_file("[mcp]\na_a = 1\n[mcp.tools]\nread_timeout = 'x'\n")
    with pytest.raises(ConfigError) as caught:
        machine.load(LLMC_MCP_TOOLS_EXEC_TIMOUT="1")
    assert [problem.partition(": ")[0] for problem in caught.value.problems] == [
        "LLMC_MCP_TOOLS_EXEC_TIMOUT",
        "llmc.toml:2",
        "llmc.toml:4",
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--set", "tools.exec_timout=1"], "--set tools.exec_timout: unknown key mcp.tools.exec_timout, did you mean"),
        (["--set", "tools.exec_timeout"], "expected section.key=value"),
        (["--set", "limits.workers=many"], "--set limits.workers: mcp.limits.workers: expected a whole number"),
        (["--set", "tools.executables=x"], "--set tools.executables: mcp.tools.executables: "),
        (["--mode", "turbo"], "--mode: mcp.mode: 'turbo' is none of"),
        (["--root"], "--root needs a value"),
        (["--config="], "--config needs a value"),
    ],
)
def test_a_mistake_on_the_command_line_is_named(machine: Machine, arguments: list[str], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        machine.load(*arguments)
    assert expected in caught.value.message


def test_a_key_cannot_repaint_the_terminal(machine: Machine) -> None:
    machine.repo_file('[mcp]\n"\\u001b[31m\\u202e' + "x" * 5000 + '" = 1\n')
    with pytest.raises(ConfigError) as caught:
        machine.load()
    assert "\x1b" not in caught.value.message
    assert "\u202e" not in caught.value.message
    assert len(caught.value.message) < 400


# --- files that are none ------------------------------------------------------------------------------------------


def make_odd(path: Path, kind: str) -> None:
    if kind == "a directory":
        path.mkdir()
    elif kind == "a FIFO":
        os.mkfifo(path)
    elif kind == "10 MB":
        path.write_bytes(b"#" * (10 << 20))
    elif kind == "not UTF-8":
        path.write_bytes(b'[mcp]\nmode = "\xff\xfe"\n')
    elif kind == "a loop of links":
        path.symlink_to(path)
    elif kind == "nested too deeply":
        path.write_text("mcp = " + "[" * 100_000)
    elif kind == "a device":
        path.symlink_to("/dev/zero")


ODD = {
    "a directory": "is a directory, not a configuration file",
    "a FIFO": "is not a regular file",
    "a device": "is not a regular file",
    "10 MB": "10,485,760 bytes; a configuration has at most 1,048,576",
    "not UTF-8": "not UTF-8 at byte 14",
    "a loop of links": "cannot be read: too many levels of symbolic links",
    "nested too deeply": "nested too deeply",
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("place", ["named", "workspace"])
def test_a_file_that_is_no_configuration_ends_the_start(machine: Machine, kind: str, place: str) -> None:
    path = machine.repo / "llmc.toml" if place == "workspace" else machine.home / "odd.toml"
    make_odd(path, kind)
    client = machine.server(*([] if place == "workspace" else ["--config", str(path)]))
    assert client.close() == 2
    assert f"{'llmc.toml' if place == 'workspace' else path}: {ODD[kind]}" in client.log
    assert "Traceback" not in client.log
    assert client.raw_lines == []


@pytest.mark.parametrize("how", ["--config", "LLMC_CONFIG"])
def test_a_named_file_must_be_there(machine: Machine, how: str) -> None:
    with pytest.raises(ConfigError, match=rf"/nowhere\.toml: no such file \({how}\)"):
        machine.load(*(["--config", "/nowhere.toml"] if how == "--config" else []), LLMC_CONFIG="/nowhere.toml")


def test_a_byte_order_mark_is_no_mistake(machine: Machine) -> None:
    (machine.repo / "llmc.toml").write_bytes(b"\xef\xbb\xbf[mcp.limits]\nworkers = 2\n")
    assert machine.load().config.limits.workers == 2


# --- what follows ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "arguments", "mode", "noticed"),
    [
        (None, [], "hybrid", False),
        ("[other]\nx = 1\n", [], "hybrid", False),
        ("[mcp]\n", [], "hybrid", False),
        ("[mcp]\nenabled = true\n[mcp.tools]\nexec_timeout = 5\n", [], "hybrid", False),
        ('[mcp]\nenabled = true\nconfig_version = "v0"\n', [], "classic", True),
        ('[mcp.server]\nport = 1\n[mcp.auth]\nmode = "token"\n[mcp.tools]\nexec_timeout = 5\n', [], "classic", True),
        ("[mcp.code_execution]\nenabled = true\n", [], "code_execution", True),
        ('[mcp]\nmode = "hybrid"\n', [], "hybrid", False),
        ('[mcp]\nconfig_version = "v0"\n', ["--mode", "code_execution"], "code_execution", False),
    ],
)
def test_only_a_full_file_without_a_mode_means_what_it_meant_before_there_were_modes(
    machine: Machine, text: str | None, arguments: list[str], mode: str, noticed: bool
) -> None:
    if text is not None:
        machine.users_file(text)
    loaded = machine.load(*arguments)
    assert loaded.config.mode == mode
    assert any(f"{mode} mode" in notice for notice in loaded.notices) is noticed


def test_a_workspace_never_changes_the_mode(machine: Machine) -> None:
    for text in ('[mcp]\nmode = "classic"\n', '[mcp]\nconfig_version = "v0"\n'):
        machine.repo_file(text)
        assert machine.load().config.mode == "hybrid"


def test_roots_come_from_the_command_line_then_the_configuration_then_the_working_directory(machine: Machine) -> None:
    assert machine.load().roots == [str(machine.repo)]
    tools = 'mode = "hybrid"\n[mcp.tools]\nallowed_roots = ["tools", "/t"]\n'
    machine.users_file(f"[mcp]\n{tools}")
    assert machine.load().roots == [f"{machine.repo}/tools", "/t"]
    machine.users_file(f'[mcp]\n{tools}[mcp.linux_ops.roots]\nallowed_roots = ["~/x"]\n')
    assert machine.load().roots == [f"{machine.home}/x"]
    machine.users_file(f'[mcp]\n{tools}[mcp.linux_ops.roots]\nallowed_roots = ["~/x"]\nenforce_roots = false\n')
    assert machine.load().roots == ["/"]
    assert machine.load("--root", "sub", "--root=/r").roots == [f"{machine.repo}/sub", "/r"]


def test_an_empty_root_is_refused(machine: Machine) -> None:
    assert machine.load("--set", 'tools.allowed_roots=["a", ""]').refusals != []


def test_a_working_directory_that_is_gone_is_said(machine: Machine) -> None:
    gone = load(environ=machine.environ, directory="")
    assert gone.refusals == ["the working directory is gone: name the folder to work in with --root DIR"]


def test_the_data_directory_comes_from_the_environment_only() -> None:
    home = os.path.expanduser("~")
    assert data_directory({}) == f"{home}/.local/state/llmc"
    assert data_directory({"XDG_STATE_HOME": "relative"}) == f"{home}/.local/state/llmc"
    assert data_directory({"XDG_STATE_HOME": "/s"}) == "/s/llmc"
    assert data_directory({"XDG_STATE_HOME": "/s", "LLMC_ROOT": "/app"}) == "/app/.llmc"
    assert data_directory({"XDG_STATE_HOME": "/s", "LLMC_ROOT": "/app", "LLMC_DATA_DIR": "~/d"}) == f"{home}/d"
    assert not [name for name in keys() if "data_dir" in name]


def test_loading_makes_no_data_directory(machine: Machine) -> None:
    machine.repo_file('[mcp]\nmode = "hybrid"\n[mcp.sandbox]\nlevel = "off"\n')
    machine.load()
    assert not machine.data.exists()


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("enabled=false", "mcp.enabled is false: this server is switched off"),
        ("server.tls_enabled=true", "set it to false and put a reverse proxy in front"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do_instead(machine: Machine, setting: str, expected: str) -> None:
    client = machine.server("--set", setting)
    assert client.close() == 2
    assert expected in client.log
    assert client.raw_lines == []


def test_allowed_binaries_are_both_lists_without_the_unsafe_ones(machine: Machine) -> None:
    text = '[mcp]\nmode = "hybrid"\n[mcp.tools]\nrun_cmd_allowlist = ["git", "ssh"]\n[mcp.linux_ops.commands]\n'
    text += 'allowed_binaries = ["curl", "jq"]\nunsafe_binaries = ["curl", "ssh"]\n'
    machine.users_file(text)
    assert machine.load().config.allowed_binaries() == {"git", "jq"}
    machine.users_file(text + "allow_unsafe = true\n")
    assert machine.load().config.allowed_binaries() == {"git", "ssh", "curl", "jq"}


def test_the_default_allowlist_holds_a_developers_day_and_nothing_that_downloads() -> None:
    allowed = Config().allowed_binaries()
    assert {"bash", "git", "rg", "make", "python3", "pytest", "node", "npm", "cargo", "go", "tar"} <= allowed
    assert not {"curl", "wget", "ssh", "sudo", "nc"} & allowed


# --- the log line -----------------------------------------------------------------------------------------------


def test_a_start_logs_what_differs_from_the_defaults_without_secrets(machine: Machine) -> None:
    machine.users_file('[mcp]\nmode = "hybrid"\n[mcp.store]\nurl = "postgres://me:hunter2@db/x"\n')
    with machine.server("--set", "tools.read_timeout=4", LLMC_MCP_TOKEN="t0ken") as client:
        client.tools()
    line = next(line for line in client.log.splitlines() if '"event":"config"' in line)
    assert '"mode":"hybrid"' in line
    assert f'"roots":["{machine.repo}"]' in line
    assert f'"data_dir":"{machine.data}"' in line
    assert '"tools.read_timeout":4.0' in line
    assert "postgres://***@db/x" in line
    assert "hunter2" not in client.log
    assert "t0ken" not in client.log


# --- declarations --------------------------------------------------------------------------------------------------


def test_every_key_declares_its_meaning_and_what_a_workspace_may_do_to_it() -> None:
    for name, key in keys().items():
        declared = [part.extra for part in get_args(key.type) if isinstance(part, msgspec.Meta)]
        assert len(declared) == 1, name
        assert "rule" in (declared[0] or {}), name
        assert key.doc, name
        assert len(key.doc) <= 80, name


def test_what_is_not_in_force_exists() -> None:
    assert set(NOT_IN_FORCE) <= {*keys(), *sections()}
    assert find_key("no.such") is None


def test_the_reference_page_is_up_to_date() -> None:
    stored = Path(__file__).parents[2] / "DOCS" / "configuration.md"
    assert stored.read_text() == page(), "run: python -m llmc_mcp.config_docs > DOCS/configuration.md"


def test_the_reference_page_names_every_key() -> None:
    text = page()
    assert [name for name in keys() if f"| `{name.rpartition('.')[2]}` |" not in text] == []


def test_a_start_without_a_file_imports_nothing_to_read_one(machine: Machine) -> None:
    script = (
        "import sys; from llmc_mcp.server import configure; configure(['--mode', 'classic', '--root', '.'])\n"
        "print(*{'tomllib', 'difflib', 'hashlib', 'argparse', 'dataclasses', 'logging', 'json'} & set(sys.modules))"
    )
    environment = {**os.environ, **machine.environ}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, cwd=machine.repo, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_number_of_thousands_of_digits_is_a_mistake_in_its_file(tmp_path: Path) -> None:
    (tmp_path / "llmc.toml").write_text(f"[mcp]\nmode = {'9' * 5_000}\n")
    with pytest.raises(ConfigError, match=r"llmc\.toml: "):
        load(environ={"HOME": str(tmp_path)}, directory=str(tmp_path))
