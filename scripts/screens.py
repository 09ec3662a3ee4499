"""`python -m scripts.screens`: the pictures of README.md, from commands that are really run, each on a terminal.

They run in a new home, on a small project made for it. Only folders and the token are replaced in what they print. Root
gets other answers than most people: make them as an ordinary user.
"""

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from llmc_mcp.cli.main import COMMANDS
from tests.support.browser import Browser

from .svg import picture

TOP = Path(__file__).parent.parent
IMAGES = TOP / "DOCS" / "images"
_BIN = Path(sys.executable).parent
_PROMPT = "\x1b[32m$\x1b[0m "
_CART = '''\
def total(prices, discount=0):
    """Sum of prices, less a discount in percent."""
    return sum(prices) * discount / 100
'''


class Scene:
    """A home with a project in it, and what was typed and printed there."""

    def __init__(self, base: Path) -> None:
        self.home, self.project = base / "home", base / "home" / "shop"
        self.project.mkdir(parents=True)
        (self.project / "cart.py").write_text(_CART)
        (self.project / "notes.md").write_text("- discounts look wrong\n")
        self.shown = ""
        self._environment = {
            "HOME": str(self.home),
            "PATH": f"{_BIN}:/usr/bin:/bin",
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "COLUMNS": "120",
        }

    def type(self, line: str, *, cwd: Path | None = None, until: str = "") -> str:
        """Run a line of a shell on a terminal; with `until`, press ^C once that was printed."""
        printed = self._run(line, cwd or self.project, until)
        self.shown += f"{_PROMPT}\x1b[1m{line}\x1b[0m\n{printed.rstrip()}\n"
        return printed

    def _run(self, line: str, cwd: Path, until: str) -> str:
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(cwd)
            os.execve("/bin/sh", ["sh", "-c", line], self._environment)
        printed = b""
        while True:
            ready, _, _ = select.select([terminal], [], [], 60)
            try:
                piece = os.read(terminal, 1 << 16) if ready else b""
            except OSError:  # the other end is closed
                piece = b""
            printed += piece
            if until and until in printed.decode(errors="replace"):
                os.killpg(os.getpgid(pid), signal.SIGINT)
                until = ""
            if not piece:
                break
        os.close(terminal)
        os.waitpid(pid, 0)
        return printed.decode(errors="replace").replace("\r\n", "\n")

    def agent(self, *calls: tuple[str, dict[str, Any]]) -> None:
        """What an agent does, through the server."""
        requests = "".join(
            json.dumps(
                {"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": {"name": name, "arguments": given}}
            )
            + "\n"
            for n, (name, given) in enumerate(calls)
        )
        command = [str(_BIN / "llmc-mcp"), "--root", str(self.project), "--mode", "classic"]
        done = subprocess.run(
            command,
            input=requests,
            env=self._environment,
            cwd=self.project,
            text=True,
            capture_output=True,
            check=False,
        )
        replies = [json.loads(line)["result"] for line in done.stdout.splitlines()]
        if len(replies) != len(calls) or any(reply.get("isError") for reply in replies):
            raise SystemExit(f"the agent's calls failed: {done.stdout}{done.stderr}")

    def photograph(self, path: str, name: str) -> None:
        """A picture of the change that a page of the server names first."""
        command = [str(_BIN / "llmc"), "run", "--port", "0"]
        with subprocess.Popen(
            command, env=self._environment, cwd=self.project, stdout=subprocess.PIPE, text=True
        ) as run:
            printed = ""
            while "^C ends it." not in printed:
                printed += run.stdout.readline() if run.stdout else ""
            link = printed.split("browser  ")[1].split()[0]
            with Browser(self.home) as browser:
                page = browser.page()
                page.resize(1000, 620)
                page.goto(link)
                page.goto(link.split("/login")[0] + path)
                page.goto(page.evaluate("document.querySelector('td a').href"))
                names = f"{json.dumps(str(self.project))}, '/home/me/shop'"
                page.evaluate(f"document.body.innerHTML = document.body.innerHTML.replaceAll({names}), 0")
                page.screenshot(IMAGES / f"{name}.png")
            run.send_signal(signal.SIGINT)

    def save(self, name: str, title: str) -> None:
        """The picture of everything typed so far."""
        text = self.shown.replace(str(self.project), "/home/me/shop").replace(str(self.home), "/home/me")
        text = text.replace(str(TOP), "/home/me/llmc-mcp")
        text = re.sub(r"\b[A-Za-z0-9_-]{32,}\b", "TOKEN", text)
        (IMAGES / f"{name}.svg").write_text(picture(text, title=title))
        self.shown = ""


def start(scene: Scene) -> None:
    """`make run`."""
    scene.type("make run", cwd=TOP, until="^C ends it.")
    scene.save("run", "make run: URL, token, sandbox level and client configuration")


def doctor(scene: Scene) -> None:
    """`llmc doctor`."""
    scene.type("llmc doctor")
    scene.save("doctor", "llmc doctor: what this machine offers, and what was tried and prevented")


def undo(scene: Scene) -> None:
    """`llmc changes`, `llmc undo`."""
    right = "sum(prices) * (100 - discount) / 100"
    edit = {"path": "cart.py", "old_text": "sum(prices) * discount / 100", "new_text": right}
    scene.agent(("linux_fs_edit", edit))
    scene.agent(("linux_fs_delete", {"path": "notes.md"}))
    scene.type("llmc changes")
    scene.type("llmc changes --diff")
    scene.type("llmc undo")
    scene.type("cat notes.md")
    scene.save("undo", "llmc changes and llmc undo: what an agent changed, and back again")


def search(scene: Scene) -> None:
    """`llmc search`, on this project's own source."""
    shutil.copytree(TOP / "src", scene.project / "src", ignore=shutil.ignore_patterns("__pycache__"))
    scene.type("llmc index")
    scene.shown = ""
    scene.type("llmc search where is a change taken back --limit 3 --lines 8")
    scene.save("search", "llmc search: where something is implemented")


def pages(scene: Scene) -> None:
    """`/ui`: a session in Chromium."""
    right = "sum(prices) * (100 - discount) / 100"
    edit = {"path": "cart.py", "old_text": "sum(prices) * discount / 100", "new_text": right}
    scene.agent(("read_file", {"path": "cart.py"}), ("linux_fs_edit", edit))
    scene.photograph("/ui/changes", "ui")


def main() -> None:
    """All pictures, or those that are named."""
    IMAGES.mkdir(exist_ok=True)
    scenes = {"run": start, "doctor": doctor, "undo": undo, "pages": pages}
    if "search" in COMMANDS:
        scenes["search"] = search
    for name in sys.argv[1:] or scenes:
        with tempfile.TemporaryDirectory() as base:
            scenes[name](Scene(Path(base)))


if __name__ == "__main__":
    main()
