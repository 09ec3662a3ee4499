"""`python -m scripts.readme` (`make readme-test`): every command of README.md, from a clean clone, in an empty home.

Started by root it does so twice: as root, and as an ordinary user. Containers are left to `make image-test`. It needs
nothing but Python, git and make, so that it can be run on a bare machine.
"""

import contextlib
import json
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

TOP = Path(__file__).parent.parent
_ORDINARY = 54_321  # nobody has it
_KEPT = re.compile(r"(?i)pip_|.*_proxy$|ssl_cert|lang$|tmpdir$")
_SERVING = "^C ends it."
_CONNECTING = "make install CLIENT=claude-code"
_FIXING = ".venv/bin/llmc doctor --fix"
_LONGEST_S = 600


def command_lines(page: Path) -> Iterator[str]:
    """The lines of fenced blocks that are typed into a shell."""
    for language, block in re.findall(r"^ *```(\w*)\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL):
        if language in ("", "sh", "bash", "console"):
            for typed in dedent(block).replace("\\\n", " ").splitlines():
                line = typed.removeprefix("$ ")
                if re.match(r"(\S*/)?(llmc|llmc-mcp|te|make|echo)(?!\S)", line):
                    yield line


ABOUT_THIS_REPOSITORY = ("llmc search", "llmc where-used", "llmc map")


class Newcomer:
    """Somebody with a clone, an empty home, and a project on which an agent works."""

    def __init__(self, base: Path, user: int | None) -> None:
        self._user = user
        self.clone, self.project, self._home = base / "llmc-mcp", base / "project", base / "home"
        self._began = time.monotonic()
        subprocess.run(["git", "clone", "--quiet", str(TOP), str(self.clone)], check=True)
        for folder in (self.project, self._home):
            folder.mkdir()
        (self.project / "cart.py").write_text("def total(prices):\n    return sum(prices)\n")
        self._environment = {name: value for name, value in os.environ.items() if _KEPT.match(name)}
        path = f"{self._home}/.local/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        self._environment |= {"HOME": str(self._home), "PATH": path, "SHELL": "/bin/bash"}
        if user is not None:
            base.chmod(0o755)
            for path in (base, *base.rglob("*")):
                os.chown(path, user, user, follow_symlinks=False)

    def start(self, line: str, folder: Path, **options: Any) -> "subprocess.Popen[str]":
        """A line of a shell, as this person."""
        changed: dict[str, Any] = {}
        if self._user is not None:
            changed = {"user": self._user, "group": self._user, "extra_groups": []}
        return subprocess.Popen(
            ["bash", "-c", line],
            cwd=folder,
            env=self._environment,
            text=True,
            start_new_session=True,
            **changed,
            **options,
        )

    def run(self, line: str, folder: Path, typed: str = "") -> str:
        """What it printed; ends everything where it failed."""
        started = self.start(line, folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        printed, _ = started.communicate(typed, timeout=_LONGEST_S)
        if started.returncode:
            raise SystemExit(f"{line}: exit code {started.returncode}\n{printed}")
        return printed

    def connect(self) -> float:
        """What a client does with the entry in its file: the seconds from the clone to the list of tools."""
        entry = json.loads((self._home / ".claude.json").read_text())["mcpServers"]["llmc"]
        request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}) + "\n"
        line = shlex.join([entry["command"], *entry["args"]])
        if "execute_code" not in self.run(f"{line} 2>/dev/null", self.project, request):
            raise SystemExit(f"{line}: it lists no tools")
        return time.monotonic() - self._began

    def fix(self, line: str) -> None:
        """`llmc doctor --fix` at a terminal, with yes for an answer to whatever it offers."""
        ours, theirs = pty.openpty()
        started = self.start(line, self.clone, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        printed, answered = b"", 0
        with contextlib.suppress(OSError):  # how a terminal says that its last user is gone
            while piece := os.read(ours, 4096):
                printed += piece
                while printed.count(b"[y/N]") > answered:
                    answered += 1
                    os.write(ours, b"y\n")
        os.close(ours)
        if started.wait(timeout=_LONGEST_S):
            raise SystemExit(f"{line}: exit code {started.returncode}\n{printed.decode()}")

    def serve(self, line: str) -> str:
        """A server: wait until it listens, ask it what it says to ask, press ^C."""
        started = self.start(line, self.clone, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        printed, patience = "", threading.Timer(_LONGEST_S, started.kill)
        patience.start()
        while _SERVING not in printed:
            piece = started.stdout.readline() if started.stdout else ""
            if not piece:
                raise SystemExit(f"{line}: it ended, or did not listen in time\n{printed}")
            printed += piece
        patience.cancel()
        (curl,) = re.findall(r"^  (curl .*)$", printed, re.MULTILINE)
        if shutil.which("curl") and "README.md" not in self.run(curl, self.project):
            raise SystemExit(f"{curl}: no listing of the folder")
        os.killpg(started.pid, signal.SIGINT)
        started.wait(timeout=60)
        return printed

    def agent(self, **calls: dict[str, Any]) -> None:
        """What there is to see and to take back."""
        for name, arguments in calls.items():
            call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
            reply = json.loads(self.run("llmc-mcp --mode classic 2>/dev/null", self.project, json.dumps(call) + "\n"))
            if reply["result"]["isError"]:
                raise SystemExit(f"{name}: {reply}")


def follow(person: Newcomer) -> Iterator[tuple[str, float]]:
    """All commands in their order; yields each with the seconds it took."""
    lines = list(command_lines(TOP / "README.md"))
    began = time.monotonic()
    person.run(_CONNECTING, person.clone)
    yield _CONNECTING, time.monotonic() - began
    yield "(from the clone to a client's list of tools)", person.connect()
    began = time.monotonic()
    person.fix(_FIXING)
    yield _FIXING, time.monotonic() - began
    for line in sorted(lines, key=lambda line: not line.startswith("make")):  # the others need what make sets up
        began = time.monotonic()
        if line.startswith("make test"):
            continue  # minutes; CI runs it by itself
        if line.startswith("make run"):
            person.serve("make run RUN_ARGS='--port 0'")
        elif line.startswith("make"):
            person.run(line, person.clone)
            person.agent(linux_fs_write={"path": "new.py", "content": "pass\n"}, linux_fs_delete={"path": "cart.py"})
        else:
            person.run(line, person.clone if line.startswith(ABOUT_THIS_REPOSITORY) else person.project)
        yield line.partition("#")[0].strip(), time.monotonic() - began
    if not (person.project / "cart.py").exists():
        raise SystemExit("llmc undo did not take the newest change back")


def main(only: str = "") -> None:
    """As this user; as root also as an ordinary one, unless `only` names root or user."""
    users = {"root": None, "user": _ORDINARY} if os.geteuid() == 0 else {"user": None}
    for name, user in users.items():
        if only not in ("", name):
            continue
        with tempfile.TemporaryDirectory() as base:
            print(f"as {'root' if name == 'root' else 'an ordinary user'}, in an empty home, from a clean clone:")
            for line, seconds in follow(Newcomer(Path(base), user)):
                print(f"  {seconds:6.1f} s  {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
