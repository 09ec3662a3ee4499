"""The two ways to run a command: plain bash, confined only so that it is harmless, and our run_cmd."""

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from llmc_mcp.app import App
from llmc_mcp.commands.shell_syntax import CommandLine
from llmc_mcp.config.schema import Config
from llmc_mcp.context import Context
from llmc_mcp.errors import LlmcError, NotFound, Timeout
from llmc_mcp.gate.log import correlation_id
from llmc_mcp.sandbox.profile import settings_from, toolchains_of
from llmc_mcp.session import Session
from llmc_mcp.tools.exec import run_cmd

from .compare import NOT_FOUND, TIME_IS_UP, Outcome

_HOME, _TMP = "/tmp/home", "/tmp"  # of a command's own, in both ways
_USER = "1000"  # who a command is in both ways, when the benchmark runs as root


class Plain:
    """bash on the whole machine, which it can only read, without its network; the copy is at `place`, writable."""

    def __init__(self, place: Path, environments: Sequence[Path], limit_s: float) -> None:
        self._place, self._environments, self._limit_s = place, environments, limit_s
        path = [*(f"{folder}/bin" for folder in environments), os.environ.get("PATH", os.defpath)]
        self._env = {
            "PATH": ":".join(path), "HOME": _HOME, "TMPDIR": _TMP, "LANG": "C.UTF-8", "TERM": "dumb",
            "USER": "llmc", "LOGNAME": "llmc", "GIT_TERMINAL_PROMPT": "0",
        }  # fmt: skip
        # A private home must not hide the toolchains of the real one.
        for toolchain in toolchains_of(settings_from(Config())):
            self._env |= dict(toolchain.env)
        self._as_user = _as_user(place.parent) if os.getuid() == 0 else []

    def run(self, command: str, copy: Path) -> Outcome:
        """The command, to its end or its limit; which files it changed is for the caller to see."""
        words = [
            *("prlimit", f"--fsize={Config().sandbox.max_file_mb << 20}"),  # also of what it prints
            *("bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
            *("--ro-bind", "/", "/", *self._as_user),
            *("--dev", "/dev", "--proc", "/proc", "--tmpfs", "/run", "--tmpfs", _TMP),
            *(word for folder in self._environments for word in ("--ro-bind", str(folder), str(folder))),
            *("--perms", "0755", "--dir", str(self._place.parent)),  # what `ls -la` shows as ..
            *("--dir", _HOME, "--bind", str(copy), str(self._place), "--chdir", str(self._place), "--clearenv"),
            *(word for name, value in self._env.items() for word in ("--setenv", name, value)),
            *("--", "bash", "-c", command, "bash"),
        ]
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
            try:
                code = process.wait(self._limit_s)
            except subprocess.TimeoutExpired:
                process.kill()  # and with it all that is in its namespace
                process.wait()
                code = TIME_IS_UP
            return Outcome(code, _text(out.fileno()), _text(err.fileno()), {})


class Ours:
    """Our server's engines on a copy, without a transport."""

    def __init__(self, place: Path, data: Path, environments: Sequence[Path], limit_s: float) -> None:
        config = Config()
        if environments:
            config.sandbox.toolchains = tuple(map(str, environments))
        self.app = App(config, [str(place)], str(data))
        self._limit_s, self._sessions = limit_s, 0

    def read(self, command: str) -> CommandLine | None:
        """The command as the server takes it; None where it takes none."""
        try:
            return self.app.shell_lines.read(command)
        except LlmcError:
            return None

    def run(self, command: str) -> Outcome:
        """The command in a session of its own, so with a /tmp of its own, to its end or its limit."""
        self._sessions += 1
        session = Session(principal="bench", session_id=f"bench-{self._sessions}")
        started = time.monotonic()
        try:
            done = run_cmd(self._context(session), command, timeout=self._limit_s)
            out, err = done.data.stdout, done.data.stderr
            while done.process is not None:
                done = run_cmd(self._context(session), process=done.process, yield_after=self._limit_s)
                out, err = out + done.data.stdout, err + done.data.stderr
        except Timeout:
            return Outcome(TIME_IS_UP, "", "", {})
        except LlmcError as exc:
            return Outcome(
                NOT_FOUND if isinstance(exc, NotFound) else 0, "", exc.message, {}, f"{exc.code}: {exc.message}"
            )
        code = done.data.exit_code or 0
        if code >= 128 and time.monotonic() - started >= self._limit_s:
            code = TIME_IS_UP
        return Outcome(code, out, err, {})

    def _context(self, session: Session) -> Context:
        return Context(self.app, session, correlation_id=correlation_id())


def _as_user(folder: Path) -> list[str]:
    """Options that make root the user that it is for our commands, too, by number and by name."""
    options = ["--uid", _USER, "--gid", _USER]
    for name, entry in (("passwd", f"llmc:x:{_USER}:{_USER}::{_HOME}:/bin/bash"), ("group", f"llmc:x:{_USER}:")):
        others = [line for line in Path("/etc", name).read_text().splitlines() if f":{_USER}:" not in line]
        (folder / name).write_text("\n".join([entry, *others, ""]))
        options += ["--ro-bind", str(folder / name), f"/etc/{name}"]
    return options


def _text(fd: int) -> str:
    size = os.fstat(fd).st_size
    return os.pread(fd, min(size, 256 << 20), 0).decode("utf-8", "replace")
