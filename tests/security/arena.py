"""Where the command attacks are fought: a root, an outside with things worth stealing, and a command engine.

Everything outside belongs to the user who runs the commands, so that nothing but the sandbox stands before it.
"""

import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

import llmc_mcp

from ..support.workspace import NOBODY, SECRET, require, run_as_at

LEVELS = ("workspace", "landlock")
USERS = ("root", "user")
SYSTEM_PYTHON = "/usr/bin/python3"
PATIENCE_MS = 30_000
PACKAGE = Path(llmc_mcp.__file__).parent

TOOLS = (
    "bash", "sh", "python3", "git", "find", "tar", "env", "cat", "ls", "echo", "true", "sleep", "dd", "id", "yes",
)  # fmt: skip

# An environment that tries to reach into whatever the server starts.
HOSTILE_ENVIRONMENT = {
    "LLMC_TEST_SECRET": SECRET,
    "BASH_ENV": "/nonexistent/evil",
    "BASH_FUNC_ls%%": "() { echo hijacked; }",
    "NODE_OPTIONS": "--require /nonexistent/evil",
    "PERL5OPT": "-Mevil",
    "GIT_DIR": "/nonexistent/evil",
    "GIT_SSH_COMMAND": "evil",
    "RIPGREP_CONFIG_PATH": "/nonexistent/evil",
    "PAGER": "evil",
    "EDITOR": "evil",
    "IFS": "x",
}


def require_combination(level: str, who: str) -> None:
    """Skip what this machine can't show."""
    require(level == "landlock" or shutil.which("bwrap") is not None, "bubblewrap")
    if who == "root":
        require(os.getuid() == 0, "a test run as root")
    if who == "user" and os.getuid() == 0:
        require(_nobody_runs_it(), "a system Python that an ordinary user can run this project with")


@cache
def _nobody_runs_it() -> bool:
    readable = subprocess.run(
        [SYSTEM_PYTHON, "-c", "import msgspec, llmc_mcp"],
        env={"PYTHONPATH": _python_path()},
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        check=False,
    )
    return readable.returncode == 0


def _python_path() -> str:
    return f"{Path(llmc_mcp.__file__).parents[1]}:{Path(msgspec.__file__).parents[1]}"


def put_code_into(root: Path, below: str = "app/lib") -> str:
    """A copy of the package in a root, as in a clone that is served; the import path that leads there."""
    lib = root / below
    shutil.copytree(PACKAGE, lib / "llmc_mcp", ignore=shutil.ignore_patterns("__pycache__"))
    (lib / "late.py").write_text("# of the server\n")
    return str(lib)


class Arena:
    """One level, one user. `run` is a command through the tool; `python` runs a script inside."""

    def __init__(
        self,
        level: str,
        who: str,
        *,
        code: str = "",
        home_is_root: bool = False,
        within: Sequence[str] = (),
        **setup: Any,
    ) -> None:
        """`code`: where in the root the server's own code lies; `home_is_root`: the root has the user's keys in it.

        `within`: words that start a program in the namespaces in which the server is to run.
        """
        self._within = list(within)
        require_combination(level, who)
        self.level, self.who = level, who
        self.other_user = who == "user" and os.getuid() == 0
        # Landlock does not hold root, so a server of root's has its commands run by somebody else.
        self.run_as = run_as_at(level) if who == "root" else ""
        self.base = Path(tempfile.mkdtemp(prefix="llmc-arena-"))
        self.base.chmod(0o755)
        self.root, self.outside = self.base / "root", self.base / "outside"
        self.home = self.root if home_is_root else self.base / "home"
        for folder in (self.root, self.outside, self.home, self.home / ".ssh", self.home / ".aws"):
            folder.mkdir(exist_ok=True)
        for secret in (self.outside / "secret.txt", self.home / ".ssh/id_rsa", self.home / ".aws/credentials"):
            secret.write_text(SECRET)
        data = self.base / "data" if home_is_root else self.home / "data"
        data.mkdir()
        self.setup = {"level": level, "roots": [str(self.root)], "data": str(data), **setup}
        self.code = put_code_into(self.root, code) if code else ""
        self.setup.setdefault("tools", {"run_cmd_allowlist": TOOLS})
        if self.run_as:
            self.setup["sandbox"] = {"run_as": self.run_as, **setup.get("sandbox", {})}
        self.hand_over()
        self._start()

    def hand_over(self) -> None:
        """Make everything the property of who runs commands."""
        if not self.other_user and not self.run_as:
            return
        data = self.home / "data"  # the server's
        for path in (self.root, self.outside, self.home, *self.base.rglob("*")):
            if self.other_user or not path.is_relative_to(data):
                os.lchown(path, NOBODY, NOBODY)

    @property
    def python_path(self) -> str:
        """Where this project is imported from."""
        return _python_path()

    def _start(self) -> None:
        # As root the interpreter of the tests, as another user one that he can reach.
        python = SYSTEM_PYTHON if self.other_user else sys.executable
        identity: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if self.other_user else {}
        within = self._within
        if within and identity:
            within, identity = [*within, f"--setgid={NOBODY}", f"--setuid={NOBODY}"], {}
        self.process = subprocess.Popen(
            [*within, python, str(Path(__file__).with_name("sandbox_driver.py")), json.dumps(self.setup)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **HOSTILE_ENVIRONMENT,
                "HOME": str(self.home),
                "PATH": "/usr/bin",
                "PYTHONPATH": f"{self.code}:{_python_path()}".lstrip(":"),
            },
            cwd="/",
            **identity,
        )
        hello = self.answer()
        self.pid: int = hello["pid"]
        assert hello["uid"] == (NOBODY if self.other_user else os.getuid())

    def __enter__(self) -> "Arena":
        return self

    def restart(self, **setup: Any) -> None:
        """The same server, set up otherwise."""
        self._end()
        self.setup |= setup
        self._start()

    def _end(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self._end()
        shutil.rmtree(self.base, ignore_errors=True)

    def order(self, command: str | list[str], **arguments: Any) -> None:
        """Start a command without waiting for it."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"command": command, **arguments}).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """The next answer of the server."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, "the driver ended"
        return json.loads(line)

    def run(self, command: str | list[str], **arguments: Any) -> dict[str, Any]:
        """A command and its answer."""
        self.order(command, **arguments)
        return self.answer()

    def python(self, script: str, *arguments: str, **options: Any) -> Any:
        """What a script inside prints, as JSON; `attempt(name, function)` collects what succeeded."""
        source = _PRELUDE + textwrap.dedent(script) + "\nprint(json.dumps(succeeded))\n"
        done = self.run(["python3", "-c", source, *arguments], **options)
        assert done.get("exit_code") == 0, done
        return json.loads(done["stdout"].splitlines()[-1])

    def outside_listing(self) -> list[str]:
        """What is outside now."""
        return sorted(path.name for path in self.outside.iterdir())


_PRELUDE = """
import ctypes, errno, json, os, socket, struct, sys
succeeded = []
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, function):
    try:
        function()
    except Exception:
        return
    succeeded.append(name)
def call(number, *arguments):
    ctypes.set_errno(0)
    libc.syscall.restype = ctypes.c_long
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
"""


def reached(listener: socket.socket) -> bool:
    """Whether anybody connected or sent."""
    return bool(select.select([listener], [], [], 0)[0])


def pids_with(token: str) -> list[int]:
    """Living processes that have a word on their command line."""
    found: list[int] = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and token.encode() in Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0"):
                state = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[0]
                if state not in "ZX":
                    found.append(int(entry))
        except OSError:
            continue
    return found


def wait_until_gone(pidfds: list[int]) -> bool:
    """Whether all of these processes end."""
    for fd in pidfds:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        ended = bool(poll.poll(PATIENCE_MS))
        os.close(fd)
        if not ended:
            return False
    return True
