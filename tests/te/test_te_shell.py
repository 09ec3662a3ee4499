"""`te init`: wrappers that act at once, or for agents only, and only where the shell's own reader reads."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ..support.envelope import Te
from ..support.workspace import require

SHELLS = {"bash": ["bash", "--norc", "-c"], "zsh": ["zsh", "-f", "-c"], "fish": ["fish", "--no-config", "-c"]}
BIN = os.path.dirname(sys.executable)
DEBIAN = "alias ls='ls --color=auto'; alias grep='grep --color=auto'; alias ll='ls -l'\n"  # of its ~/.bashrc
ENRICHED = "# TE_BEGIN_META\n"


@pytest.fixture
def te(tmp_path: Path) -> Te:
    folder = tmp_path / "work"
    folder.mkdir()
    made = Te(folder, tmp_path / "data")
    made.env["PATH"] = f"{BIN}:{os.environ['PATH']}"
    made.file("a.txt", "needle\nhay\n")
    made.file("long.txt", "a needle in a long text\n" * 2_000)
    return made


def run(te: Te, shell: str, script: str, *, agent: bool = True, flags: str = "", before: str = "") -> str:
    if shell != "bash":
        require(shutil.which(shell) is not None, shell)
    start = f"te init fish {flags} | source" if shell == "fish" else f'eval "$(te init {shell} {flags})"'
    env = te.env if agent else {name: value for name, value in te.env.items() if name != "TE_AGENT_ID"}
    done = subprocess.run(
        [*SHELLS[shell], f"{before}{start}\n{script}"],
        env=env,
        cwd=te.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("agent", [True, False])
def test_commands_are_enriched_for_whoever_evaluates_it(te: Te, shell: str, agent: bool) -> None:
    assert run(te, shell, "grep -n needle long.txt", agent=agent).startswith(ENRICHED)


@pytest.mark.parametrize("shell", SHELLS)
def test_in_a_start_up_file_for_all_they_are_enriched_for_agents_alone(te: Te, shell: str) -> None:
    assert run(te, shell, "grep -n needle long.txt", flags="--agents").startswith(ENRICHED)
    assert run(te, shell, "grep -n needle a.txt", agent=False, flags="--agents") == "1:needle\n"
    long = run(te, shell, "cat long.txt", agent=False, flags="--agents")
    assert long == (te.folder / "long.txt").read_text()


@pytest.mark.parametrize("shell", ["bash", "zsh"])
@pytest.mark.parametrize("line", ["grep needle long.txt", "ls many", "ll many"])
def test_aliases_of_the_wrapped_names_stay_in_force(te: Te, shell: str, line: str) -> None:
    """As in the ~/.bashrc of Debian. A script expands aliases only line by line, so the line is read later."""
    for number in range(800):
        te.file(f"many/file_number_{number}", "")
    expand = "shopt -s expand_aliases\n" if shell == "bash" else ""
    assert run(te, shell, f"eval '{line}'", before=expand + DEBIAN).startswith(ENRICHED)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    "script",
    [
        "cat a.txt | tr a-z A-Z",
        "cat a.txt > copy.txt; command cat copy.txt | tr a-z A-Z",
        'x="$(cat a.txt)"; echo "$x" | tr a-z A-Z',
    ],
)
def test_a_program_that_reads_gets_what_the_command_prints(te: Te, shell: str, script: str) -> None:
    if shell == "fish":
        script = script.replace('x="$(cat a.txt)"; echo "$x"', "set x (cat a.txt); printf '%s\\n' $x")
    assert run(te, shell, script) == "NEEDLE\nHAY\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_exit_codes_come_through_a_wrapper(te: Te, shell: str) -> None:
    status = "$status" if shell == "fish" else "$?"
    assert run(te, shell, f"grep -n nowhere a.txt; echo {status}") == "1\n"


def test_bash_completes_options_commands_and_handles(te: Te) -> None:
    te.file("long.txt", "some words in a line\n" * 9_000)
    handle = te("cat", "long.txt").meta["handle"]
    words = 'COMP_WORDS=(te {}); COMP_CWORD={}; _te; printf "%s\\n" "${{COMPREPLY[@]}}"'
    assert "--list-handles" in run(te, "bash", words.format("--li", 1))
    assert "grep" in run(te, "bash", words.format("gre", 1)).split()
    assert run(te, "bash", words.format("init ''", 2)).split() == ["bash", "zsh", "fish"]
    assert run(te, "bash", words.format("--handle H", 2)).split() == [handle]


def test_another_shell_is_not_known(te: Te) -> None:
    done = te("init", "tcsh")
    assert (done.code, done.out) == (2, b"")
    assert done.err == b"te: init knows bash, zsh and fish, not tcsh\n"
