"""Toolchains in the home: which are found, that commands can use them, and that what is secret beside them stays so."""

import os
import shutil
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from llmc_mcp.commands.allowlist import programs_from
from llmc_mcp.config.schema import Config
from llmc_mcp.errors import InvalidArgument, NotFound
from llmc_mcp.files.filesystem import Filesystem
from llmc_mcp.gate.dispatch import Gate
from llmc_mcp.sandbox.profile import SYSTEM_PATH, search_path, settings_from
from llmc_mcp.sandbox.toolchains import find_toolchains, programs_path

from ..support.gates import gate_on, text_of
from ..support.workspace import NOBODY, SECRET, Workspace, hand_over, require, run_as_at

OpenGate = Callable[..., AbstractContextManager[Gate]]


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def secret(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"token = {SECRET}\n")
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a bit of everything."""
    home = tmp_path / "home"
    program(home / ".cargo/bin/cargo", "echo own cargo, rustup in $RUSTUP_HOME")
    program(home / ".rustup/toolchains/stable/bin/rustc", "echo rustc")
    program(home / ".pyenv/shims/python3", f'exec {home}/.pyenv/versions/3.12.1/bin/python3 "$@"')
    program(home / ".pyenv/versions/3.12.1/bin/python3", "echo own python")
    program(home / ".nvm/versions/node/v9.1.0/bin/node", "echo node 9")
    program(home / ".nvm/versions/node/v20.1.0/bin/node", "echo node 20")
    program(home / "go/bin/gofmt", "echo own gofmt")
    program(home / ".local/share/uv/tools/ruff/bin/ruff", "echo own ruff")
    (home / ".local/bin").mkdir()
    (home / ".local/bin/ruff").symlink_to(home / ".local/share/uv/tools/ruff/bin/ruff")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{home}/.pyenv/shims:/usr/bin:/bin:{home}/go/bin")
    return home


SECRETS = (
    ".cargo/credentials.toml",
    ".cargo/credentials",
    ".cargo/config.toml",
    ".npmrc",
    ".pypirc",
    ".local/share/uv/credentials/credentials.toml",
    ".nvm/versions/node/v20.1.0/etc/npmrc",
    ".pyenv/versions/3.12.1/pip.conf",
    "go/secret.txt",
)


@pytest.fixture(params=["workspace", "landlock"])
def open_gate(request: pytest.FixtureRequest, home: Path, workspace: Workspace) -> OpenGate:
    if request.param == "workspace":
        require(os.path.exists("/usr/bin/bwrap"), "bubblewrap")

    @contextmanager
    def build(**settings: object) -> Generator[Gate]:
        config = Config()
        config.sandbox.level = request.param
        config.sandbox.run_as = run_as_at(request.param)
        for name, value in settings.items():
            setattr(config.sandbox, name, value)
        if config.sandbox.run_as:
            hand_over(workspace.root)
            hand_over(home)
        with gate_on(workspace.root, config) as gate:
            yield gate

    return build


def test_programs_of_toolchains_in_the_home_run_as_in_the_users_own_shell(open_gate: OpenGate, home: Path) -> None:
    with open_gate() as gate:
        for command, printed in {
            "cargo build": f"own cargo, rustup in {home}/.rustup",
            "python3 -V": "own python",
            "node -v": "node 20",
            "ruff check": "own ruff",
            "ruff check | cat && cargo 2>&1 | cat": "own cargo",
        }.items():
            assert printed in text_of(gate, "run_cmd", command=command), command


def test_secrets_beside_and_inside_a_toolchain_stay_hidden_and_nothing_can_be_changed(
    open_gate: OpenGate, home: Path
) -> None:
    for name in SECRETS:
        secret(home / name)
    with open_gate() as gate:
        for name in SECRETS:
            assert SECRET not in text_of(gate, "run_cmd", command=["cat", f"{home}/{name}"]), name
        assert "own python" in text_of(gate, "run_cmd", command="python3 -V")
        text_of(gate, "run_cmd", command=f"echo harm >> {home}/.cargo/bin/cargo; touch {home}/.pyenv/shims/ls")
        assert "harm" not in (home / ".cargo/bin/cargo").read_text()
        assert not (home / ".pyenv/shims/ls").exists()


def test_the_operator_may_name_folders_or_have_none(open_gate: OpenGate, home: Path, tmp_path: Path) -> None:
    program(home / "sdk/bin/tsc", "echo own tsc")
    with open_gate(toolchains="none") as gate:
        assert "own" not in text_of(gate, "run_cmd", command="python3 -c 'print(1)'")
    with open_gate(toolchains=(f"{home}/sdk",)) as gate:
        assert "own tsc" in text_of(gate, "run_cmd", command="tsc --version")
        assert "own" not in text_of(gate, "run_cmd", command="python3 -c 'print(1)'")


def test_toolchains_come_ahead_of_the_system_in_the_order_of_the_users_path(home: Path) -> None:
    found = find_toolchains("auto", str(home))
    path = programs_path(found, SYSTEM_PATH, f"{home}/.cargo/bin:{home}/.pyenv/shims:/usr/bin:/bin:{home}/go/bin")
    ahead, behind = path[: path.index("/usr/bin")], path[path.index("/usr/bin") :]
    assert ahead[:2] == (f"{home}/.cargo/bin", f"{home}/.pyenv/shims")
    assert f"{home}/.local/bin" in ahead
    assert behind[-1] == f"{home}/go/bin"


def test_the_default_version_of_node_is_the_one_that_nvm_names(home: Path) -> None:
    alias = home / ".nvm/alias/default"
    alias.parent.mkdir()
    alias.write_text("9\n")
    (nvm,) = (one for one in find_toolchains("auto", str(home)) if one.name == "nvm")
    assert nvm.bins == (f"{home}/.nvm/versions/node/v9.1.0/bin",)


def test_a_home_without_toolchains_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert search_path(settings_from(Config())) == SYSTEM_PATH


def test_a_toolchain_that_is_a_link_out_of_the_home_is_for_the_operator_to_name(home: Path, tmp_path: Path) -> None:
    shutil.rmtree(home / ".cargo")
    secret(tmp_path / "private/bin/credentials")
    (home / ".cargo").symlink_to(tmp_path / "private")
    assert not any("cargo" in path for one in find_toolchains("auto", str(home)) for path in one.shown)


def test_run_pytest_uses_the_projects_interpreter_that_lies_in_a_toolchain(
    open_gate: OpenGate, home: Path, workspace: Workspace
) -> None:
    python = home / ".local/share/uv/python/cpython-3.12/bin/python3.12"
    program(python, 'echo "through the toolchain: $@" >&2; exit 3')
    (workspace.root / ".venv/bin").mkdir(parents=True)
    (workspace.root / ".venv/bin/python").symlink_to(python)
    with open_gate() as gate, pytest.raises(InvalidArgument, match="through the toolchain: -m pytest"):
        text_of(gate, "run_pytest")


def test_an_interpreter_that_commands_cannot_see_counts_as_missing_and_the_hint_leads_on(
    home: Path, workspace: Workspace
) -> None:
    python = program(home / "elsewhere/bin/python3", "echo")
    (workspace.root / "python").symlink_to(python)
    roots = tuple(Filesystem([str(workspace.root)]).roots)
    with pytest.raises(NotFound) as missing:
        programs_from(Config(), roots).find("./python", str(workspace.root))
    assert "llmc allow dir" in str(missing.value.hint)


def test_the_pyenv_of_this_machine_runs_at_the_workspace_level(workspace: Workspace) -> None:
    require(os.path.exists("/usr/bin/bwrap"), "bubblewrap")
    real = Path(os.path.expanduser("~/.pyenv/shims/python3"))
    if not real.exists() or os.getuid() == NOBODY:  # nobody has to have one: the made-up ones above prove the rule
        pytest.skip("needs a pyenv in the home")
    config = Config()
    config.sandbox.level = "workspace"
    with gate_on(workspace.root, config) as gate:
        reply = text_of(gate, "run_cmd", command=["python3", "-c", "import ssl, sys; print(sys.prefix)"])
        assert f"{real.parents[1]}/versions/" in reply
