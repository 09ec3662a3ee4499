"""`code_check` after a one-line error in a checkout of Django, by a server as clients start it."""

import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from .. import procfs, servers
from .judges import Repository

_FILE, _OLD, _NEW = "django/utils/text.py", "import re\n", "import re, nothing_at_all\n"
_COMMIT = ["git", "-c", "user.name=bench", "-c", "user.email=bench@example.org", "commit", "-qm", "all"]


class Checked(NamedTuple):
    """One call: milliseconds, and what it found."""

    ms: float
    cpu_ms: float  # of the server and all its processes
    found: list[str]


def check(checkouts: Path, calls: int) -> list[Checked]:
    """The first call, which starts what it needs, and some more. The project has ruff in its environment."""
    with tempfile.TemporaryDirectory(prefix="checks-") as aside:
        root = Path(aside, "django")
        Repository("django/django", "python", "").unpack(checkouts.resolve(), root)
        for words in (["git", "init", "-q"], ["git", "add", "-A"], _COMMIT):
            subprocess.run(words, cwd=root, check=True, capture_output=True)
        (root / ".venv/bin").mkdir(parents=True)
        (root / ".git/info/exclude").write_text(".venv\n")
        shutil.copy2(servers.BIN / "ruff", root / ".venv/bin/ruff")
        with servers.llmc(root, Path(aside), "classic").start(root) as client:
            client.initialize()
            client.call("linux_fs_edit", {"path": _FILE, "old_text": _OLD, "new_text": _NEW})
            found: list[Checked] = []
            for _ in range(calls):
                began, spent = time.perf_counter(), procfs.cpu_ms(client.pid)
                reply = json.loads(client.call("code_check", {}))
                took = (time.perf_counter() - began) * 1000
                said = [f"{one['checker']}: {one['text']}" for one in reply["findings"]]
                found.append(Checked(took, procfs.cpu_ms(client.pid) - spent, said))
            return found
