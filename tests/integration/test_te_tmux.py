"""Interactive programs through te, on a real terminal."""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ..support.workspace import require

PATIENCE_S = 60.0
BIN = os.path.dirname(sys.executable)


class Tmux:
    """A terminal of a server of its own."""

    def __init__(self, folder: Path) -> None:
        self._socket = str(folder / "tmux")
        env = {**os.environ, "LLMC_DATA_DIR": str(folder / "data"), "PATH": f"{BIN}:{os.environ['PATH']}", "PS1": "$ "}
        env = {name: value for name, value in env.items() if name not in ("TMUX", "TE_AGENT_ID", "TE_SESSION_ID")}
        subprocess.run(
            [*self._tmux("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", "sh")],
            env={**env, "TERM": "xterm"},
            cwd=folder,
            check=True,
        )

    def _tmux(self, *words: str) -> list[str]:
        return ["tmux", "-S", self._socket, *words]

    def type(self, text: str) -> None:
        subprocess.run(self._tmux("send-keys", "-l", text), check=True)

    def press(self, *keys: str) -> None:
        subprocess.run(self._tmux("send-keys", *keys), check=True)

    def run(self, line: str) -> None:
        self.type(line)
        self.press("Enter")

    def screen(self) -> str:
        return subprocess.run(self._tmux("capture-pane", "-p"), capture_output=True, text=True, check=True).stdout

    def until(self, seen: Callable[[str], bool]) -> str:
        """The screen once it shows something; what never shows is a failure."""
        until = time.monotonic() + PATIENCE_S
        while not seen(screen := self.screen()):
            assert time.monotonic() < until, screen
            time.sleep(0.02)  # each look is a process
        return screen

    def close(self) -> None:
        subprocess.run(self._tmux("kill-server"), check=False, capture_output=True)


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    require(shutil.which("tmux") is not None, "tmux")
    made = Tmux(tmp_path)
    yield made
    made.close()


PROGRAM = """
import curses

def main(screen):
    screen.addstr(2, 5, "press q to leave")
    screen.refresh()
    key = screen.getch()
    return f"left by {chr(key)} on {curses.tigetnum('cols')} columns"

print(curses.wrapper(main))
"""


@pytest.mark.parametrize("agent", ["", "TE_AGENT_ID=ada "])
def test_a_full_screen_program_runs_untouched_through_te(tmux: Tmux, tmp_path: Path, agent: str) -> None:
    program = tmp_path / "full_screen.py"
    program.write_text(PROGRAM)
    tmux.run(f"{agent}te {shlex.quote(sys.executable)} {program}; echo code=$?")
    tmux.until(lambda screen: "press q to leave" in screen)
    tmux.type("q")
    screen = tmux.until(lambda screen: "code=0" in screen)
    assert "left by q" in screen
    assert "TE_BEGIN_META" not in screen


@pytest.mark.parametrize("agent", ["", "TE_AGENT_ID=ada "])
def test_a_shell_behind_te_talks_is_interrupted_and_stopped_like_any(tmux: Tmux, agent: str) -> None:
    tmux.run(f"{agent}te bash --norc")
    tmux.run("PS1='inner> '")
    tmux.until(lambda screen: "inner>" in screen.splitlines())
    tmux.run("echo $((6 * 7)); cat")
    tmux.until(lambda screen: "42" in screen.splitlines())
    tmux.press("C-c")
    tmux.run("echo again=$?")
    tmux.until(lambda screen: "again=130" in screen.splitlines())
    tmux.run("exit 5")
    tmux.run("echo outer=$?")
    assert "outer=5" in tmux.until(lambda screen: "outer=" in screen.replace("echo outer=", ""))


def test_a_program_behind_te_is_stopped_and_continued_by_the_shell(tmux: Tmux) -> None:
    tmux.run("exec bash --norc")
    tmux.run("TE_AGENT_ID=ada te cat -")
    tmux.run("one")
    tmux.until(lambda screen: screen.splitlines().count("one") == 2)
    tmux.press("C-z")
    tmux.until(lambda screen: "Stopped" in screen)
    tmux.run("fg")
    tmux.run("two")
    tmux.until(lambda screen: screen.splitlines().count("two") == 2)
    tmux.press("C-d")
    tmux.run("echo code=$?")
    tmux.until(lambda screen: "code=0" in screen.splitlines())


DEBIAN = """
alias ls='ls --color=auto'
alias grep='grep --color=auto'
alias ll='ls -l'
"""
START = {
    "bash": ('eval "$(te init bash)"', "bash --rcfile start -i"),
    "zsh": ('eval "$(te init zsh)"', "env ZDOTDIR=. zsh -i"),
    "fish": ("te init fish | source", "fish --no-config -i -C 'source start'"),
}


@pytest.mark.parametrize("shell", START)
def test_a_shell_with_the_usual_aliases_takes_the_wrappers_and_acts_at_once(
    tmux: Tmux, tmp_path: Path, shell: str
) -> None:
    """Nobody has to set TE_AGENT_ID; the shell is interactive and its output a terminal."""
    require(shutil.which(shell) is not None, shell)
    (tmp_path / "many").mkdir()
    for number in range(800):
        (tmp_path / f"many/file_number_{number}").touch()
    wrappers, start = START[shell]
    prompt = "function fish_prompt; echo 'ready> '; end" if shell == "fish" else "PS1='ready> '"
    for name in ("start", ".zshrc"):
        (tmp_path / name).write_text(f"{DEBIAN}{prompt}\n{wrappers}\necho status=$?\n".replace("$?", _status(shell)))
    tmux.run(f"exec {start}")
    started = tmux.until(lambda screen: "ready>" in screen)
    assert "status=0" in started
    assert "rror" not in started
    tmux.run(f"clear; ls many | wc -l; ls many; echo code={_status(shell)}")
    screen = tmux.until(lambda screen: "code=0" in screen.splitlines())
    assert "800" in screen.splitlines()
    assert "te --handle" in screen


def _status(shell: str) -> str:
    return "$status" if shell == "fish" else "$?"
