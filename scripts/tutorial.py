"""`python -m scripts.tutorial`: run what the tutorial and its fellows show, and put what was printed into the page.

In a block `console` every line after `$` is typed into a shell. In a block `text` every line after `→` is a tool and
its arguments, called by an agent; a new one after each block `console`. What follows such a line, up to the next one,
is its output.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).parent.parent
PAGES = ("tutorial", "howto_allow", "howto_network", "howto_two_repositories", "howto_undo", "troubleshooting")
_HOME = "/home/me"
_BLOCK = re.compile(r"^```(console|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LLMC_MCP = f"{_HOME}/llmc-mcp/.venv/bin"
# What differs from run to run, and what stands for it when two runs are compared.
_VARIES = (
    (re.compile(r"U_[0-9a-f]{10}"), "U_id"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d"), "time"),
    (re.compile(r'"duration_ms":\d+'), '"duration_ms":0'),
    (re.compile(r" *[\d,.]+ ms"), " 0 ms"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "sha256"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "uuid"),
    (re.compile(r"stdio-\d+-[0-9a-f]+|llmc-\d+"), "session"),
    (re.compile(r',"syntax":"ok"'), ""),  # not on a machine that is too busy to say so in time
)


def page_of(name: str) -> Path:
    """The file of a page."""
    return TOP / "DOCS" / f"{name}.md"


class Reader:
    """Somebody who follows the page, in an empty home with the sample project."""

    def __init__(self, base: Path) -> None:
        self._server: subprocess.Popen[str] | None = None
        self._home, self._project = base / "home", base / "home" / "llmc-mcp" / "workspace"
        for name in ("llmc-mcp", "shop", "api"):
            (self._home / name).mkdir(parents=True)
        self._environment = {
            "HOME": str(self._home),
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "PYTHONUNBUFFERED": "1",  # so that what goes to stdout and to stderr comes in the order of a terminal
        }
        sample = [sys.executable, "-P", "-m", "llmc_mcp.cli.sample", str(self._project)]
        subprocess.run(sample, check=True, capture_output=True)
        (self._project / ".env").write_text("KEY=1\n")
        subprocess.run(["git", "init", "--quiet", str(self._project)], check=True)

    def type(self, line: str) -> str:
        """What a shell prints for a line."""
        self.close()
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self._project,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return self._shown(done.stdout)

    def call(self, line: str) -> str:
        """The reply to an agent's call."""
        name, _, arguments = line.partition(" ")
        call = {"name": name, "arguments": json.loads(arguments)}
        server = self._server = self._server or self._start()
        if server.stdin is None or server.stdout is None:
            raise RuntimeError("a server without pipes")
        server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}) + "\n")
        server.stdin.flush()
        reply = json.loads(server.stdout.readline())
        return self._shown("← " + reply["result"]["content"][0]["text"].rstrip() + "\n")

    def close(self) -> None:
        """End the agent's session."""
        if self._server is not None:
            self._server.communicate()
            self._server = None

    def _start(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [str(Path(sys.executable).parent / "llmc-mcp")],
            cwd=self._project,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def _shown(self, text: str) -> str:
        shown = text.replace(str(self._home), _HOME).replace(str(Path(sys.executable).parent), _LLMC_MCP)
        # Whoever makes the pages, their reader is an ordinary user.
        return "".join(f"{line.rstrip()}\n" for line in shown.splitlines() if "WARNING: running as root" not in line)


def refreshed(page: str, reader: Reader) -> str:
    """The page with what is printed now."""

    def run(block: re.Match[str]) -> str:
        language, text = block[1], block[2]
        mark, act = ("$ ", reader.type) if language == "console" else ("→ ", reader.call)
        lines = [line for line in text.splitlines() if line.startswith(mark)]
        return f"```{language}\n" + "".join(f"{line}\n{act(line.removeprefix(mark))}" for line in lines) + "```"

    try:
        return _BLOCK.sub(run, page)
    finally:
        reader.close()


def comparable(page: str) -> Iterator[str]:
    """The lines of the page without what differs from run to run."""
    for line in page.splitlines():
        for pattern, word in _VARIES:
            line = pattern.sub(word, line)  # noqa: PLW2901 - step by step
        yield line


def main() -> None:
    """Rewrite the pages, or those that are named."""
    for name in sys.argv[1:] or PAGES:
        page = page_of(name)
        with tempfile.TemporaryDirectory() as base:
            page.write_text(refreshed(page.read_text(), Reader(Path(base))))


if __name__ == "__main__":
    main()
