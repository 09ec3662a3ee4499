"""Every command explains itself, and a shell knows them all."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from llmc_mcp.cli import main
from llmc_mcp.cli.completion import help_of, words_after

from ..support.workspace import require

BIN = os.path.dirname(sys.executable)
SHELLS = {"bash": ["bash", "--norc"], "zsh": ["zsh", "-f"], "fish": ["fish", "--no-config"]}


@pytest.mark.parametrize("name", main.COMMANDS)
def test_each_command_says_how_it_is_used_and_what_for(name: str) -> None:
    text = help_of(name)
    assert text.startswith("usage: llmc-mcp " if name == "serve" else f"usage: llmc {name}")
    assert text.endswith("\n")
    assert "\n\n" in text, "after the usage comes a sentence"
    assert max(map(len, text.splitlines())) <= 120
    assert max(map(len, main.COMMANDS[name][1:]), default=0) <= 100
    assert not main.COMMANDS[name][1].endswith((".", "…")), "a page makes a sentence of it"


def test_every_command_stands_in_a_group() -> None:
    grouped = [name for names in main.GROUPS.values() for name in names]
    assert sorted(set(main.COMMANDS) - set(grouped)) == []
    assert len(grouped) == len(set(grouped))
    assert "More:" not in main.usage()


def test_help_about_a_command_is_its_own_and_a_slip_is_corrected(capsys: pytest.CaptureFixture[str]) -> None:
    for line, code, expected in ((["help", "undo"], 0, "usage: llmc undo"), (["chnges"], 2, "Did you mean changes?")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["llmc", *line])
            with pytest.raises(SystemExit) as ended:
                main.main()
        assert (ended.value.code or 0) == code
        assert expected in "".join(capsys.readouterr())


@pytest.mark.parametrize("word", ["list", "add", "forget"])
def test_whoever_means_the_indexed_repositories_is_shown_their_command(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.find("repo")([word]) == 2
    told = "hint: llmc repos lists, adds and forgets the repositories that are indexed.\n"
    assert capsys.readouterr().err.endswith(f"llmc: unknown argument {word!r}\n{told}")
    assert main.find("repo")(["validat"]) == 2
    assert capsys.readouterr().err.endswith("hint: Did you mean validate?\n")


def test_the_overview_imports_no_command() -> None:
    script = (
        "import sys; sys.argv = ['llmc', '--help']; from llmc_mcp.cli.main import main; main(); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = {name for name in done.stdout.split() if name.startswith("llmc_mcp")}
    assert loaded == {"llmc_mcp", "llmc_mcp.cli", "llmc_mcp.cli.main", "llmc_mcp.errors"}
    assert not {"msgspec", "argparse", "sqlite3", "asyncio"} & set(done.stdout.split())


@pytest.mark.parametrize(
    ("line", "some", "others"),
    [
        ("llmc", {"install", "undo", "--version"}, {"--json"}),
        ("llmc help", {"install", "undo"}, {"--json"}),
        ("llmc config", {"show", "trust", "untrust", "--help"}, {"llmc"}),
        ("llmc config show", {"--json"}, {"trust"}),
        ("llmc install", {"zed", "--project", "--list"}, {"show"}),
        ("llmc install zed", {"cursor", "--dry-run"}, {"show"}),
        ("llmc serve --mode", {"hybrid", "classic"}, {"--root"}),
        ("llmc-mcp", {"--root", "--transport"}, {"install"}),
        ("/usr/bin/llmc-mcp --transport", {"stdio", "http"}, {"--root"}),
        ("llmc serve --root", set[str](), {"--root"}),
        ("llmc nothing", set[str](), {"install"}),
    ],
)
def test_what_may_come_next_is_read_from_the_help(line: str, some: set[str], others: set[str]) -> None:
    words = words_after(line.split())
    assert some <= set(words)
    assert not others & set(words)
    assert len(words) == len(set(words))


def script_for(shell: str, line: str) -> str:
    """Load the completions and print what a Tab after `line` would offer."""
    if shell == "bash":
        words = line.split(" ")
        array = " ".join(f'"{word}"' for word in words)
        return (
            f'eval "$(llmc completion bash)"\nCOMP_WORDS=({array}); COMP_CWORD={len(words) - 1}; _{words[0]}\n'
            'printf "%s\\n" "${COMPREPLY[@]}"\n'
        )
    if shell == "fish":
        return f'llmc completion fish | source\ncomplete --do-complete "{line}" | string split -f1 \\t\n'
    # zsh completes only at a prompt: the function is called with what a prompt would give it
    words = " ".join(f'"{word}"' for word in line.split(" "))
    return (
        f'compadd() {{ shift; print -l -- "$@" }}; _files() {{ }}; _command_names() {{ }}\n'
        f'eval "$(llmc completion zsh)"\nwords=({words}); CURRENT={len(line.split(" "))}; _{line.split(" ")[0]}\n'
    )


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_all_three_commands(shell: str, tmp_path: Path) -> None:
    require(shutil.which(shell) is not None, shell)
    environment = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(tmp_path), "LLMC_DATA_DIR": str(tmp_path)}

    def offered(line: str) -> set[str]:
        done = subprocess.run(
            [*SHELLS[shell], "-c", script_for(shell, line)],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == ""
        return set(done.stdout.split())

    assert {"install", "undo", "changes"} <= offered("llmc ")
    assert {"cursor", "zed"} <= offered("llmc install ")
    assert {"--list-handles", "init"} <= offered("te ")
    if shell != "zsh":  # what was typed is compared by the shell itself
        assert offered("llmc install clau") == {"claude-code", "claude-desktop"}


def test_an_unknown_shell_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    from llmc_mcp.cli.completion import command

    assert command(["powershell"]) == 2
    assert "bash|zsh|fish" in capsys.readouterr().err


PRESS_CTRL_C = """
import importlib, signal, sys
module, _, function = sys.argv.pop(1).partition(":")
loading = sys.argv.pop(1)
class Key:
    def __del__(self):  # where an exception is printed, and goes no further
        signal.raise_signal(signal.SIGINT)
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == loading:
            Key()
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Finder())
getattr(importlib.import_module(module), function)()
"""


@pytest.mark.parametrize(
    ("program", "loading"),
    [
        ("llmc repos", "llmc_mcp.errors"),
        ("llmc repos", "msgspec"),
        ("te --version", "llmc_mcp.envelope.programs"),
    ],
)
def test_ctrl_c_while_modules_load_shows_no_traceback(program: str, loading: str) -> None:
    start = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["scripts"][
        program.split()[0]
    ]
    command = [sys.executable, "-c", PRESS_CTRL_C, start, loading, *program.split()[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
