"""`te` for tests: run as an agent's shell would, with a store of its own, and its answer parsed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from . import forked

TE = [sys.executable, *forked.TE.words]


class Answer:
    """The answer of te for one command."""

    def __init__(self, done: subprocess.CompletedProcess[bytes]) -> None:
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    @property
    def enriched(self) -> bool:
        return self.out.startswith(b"# TE_BEGIN_META\n")

    @property
    def meta(self) -> dict[str, Any]:
        begin, line, end = self.out.split(b"\n", 3)[:3]
        assert (begin, end) == (b"# TE_BEGIN_META", b"# TE_END_META")
        return json.loads(line)

    @property
    def lines(self) -> list[str]:
        """The body without its breadcrumbs: as many lines as the header says."""
        return self.out.decode("utf-8", "replace").split("\n")[3 : 3 + self.meta["body_lines"]]

    @property
    def body(self) -> str:
        return "\n".join(self.lines)

    @property
    def crumbs(self) -> list[str]:
        rest = self.out.decode("utf-8", "replace").split("\n")[3 + self.meta["body_lines"] :]
        assert all(line.startswith("# TE: ") for line in rest if line)
        return [line.removeprefix("# TE: ") for line in rest if line]


class Te:
    """te in a folder, as an agent runs it; `unchanged=False` condenses short output, too."""

    def __init__(self, folder: Path, data: Path, *, unchanged: bool = True) -> None:
        self.folder, self.data = folder, data
        self.env = {**os.environ, "LLMC_DATA_DIR": str(data), "TE_AGENT_ID": "tester", "HOME": str(data)}
        self.env = {name: value for name, value in self.env.items() if name not in ("TE_SESSION_ID", "TE_MODEL")}
        if not unchanged:
            self.env["LLMC_MCP_TE_UNCHANGED_TOKENS"] = "0"

    def __call__(self, *words: str | bytes, **environ: str) -> Answer:
        return self._run(b"", words, environ)

    def fed(self, stdin: bytes, *words: str | bytes, **environ: str) -> Answer:
        """Run te with this standard input."""
        return self._run(stdin, words, environ)

    def _run(self, stdin: bytes, words: tuple[str | bytes, ...], environ: dict[str, str]) -> Answer:
        env = {**self.env, **environ}
        return Answer(forked.run(forked.TE, *words, stdin=stdin, cwd=self.folder, env=env, timeout=100))

    def json(self, *words: str | bytes, **environ: str) -> dict[str, Any]:
        """The answer of `te --json`."""
        return json.loads(self("--json", *words, **environ).out)

    def stats(self) -> dict[str, list[dict[str, Any]]]:
        """The answer of `te --stats --json`."""
        return json.loads(self("--stats", "--json").out)

    def file(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path
