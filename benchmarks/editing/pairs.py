"""The edits of recorded runs: each file that a command changed, before and after.

Only commands that may write are run, in their order and in the sandbox, on the checkout that the run began with.
"""

import gzip
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from llmc_mcp.app import App
from llmc_mcp.config.schema import Config
from llmc_mcp.context import Context
from llmc_mcp.errors import LlmcError
from llmc_mcp.gate.log import correlation_id
from llmc_mcp.session import Session
from llmc_mcp.tools.exec import run_cmd

from ..shell.copies import Checkout
from ..shell.recorded import PLACE, Run

_WRITES = re.compile(
    r"sed\s+(-\S+\s+)*-\w*i|<<|>\s*[\w./$~\"']|\btee\b|\bpatch\b|git (apply|checkout|stash|reset)|\.write"
    r"|\bmv\b|\bcp\b|\brm\b"
)
_SCRIPT = re.compile(r"\bpython3?\s+[\w./-]+\.py\b")
_LARGEST = 1 << 20
_SESSION = Session(principal="bench", session_id="bench")


class Pair(msgspec.Struct, array_like=True):
    """A file that a command changed; `before` is None for one that it made."""

    run: str
    path: str
    before: bytes | None
    after: bytes


def pairs_of(run: Run, checkouts: Path, limit_s: float) -> Iterator[Pair]:
    """The edits of one run."""
    with tempfile.TemporaryDirectory(prefix="edits-") as folder:
        place = Path(folder, "testbed")
        checkout = Checkout(checkouts / run.repository, [run.commit], place)
        if not checkout.commits:
            return
        checkout.go_to(run.commit)
        app = App(Config(), [str(place)], f"{folder}/data")
        known: dict[str, bytes | None] = {}
        try:
            for number, command in enumerate(run.commands):
                if not (_WRITES.search(command) or _SCRIPT.search(command)):
                    continue
                _run(app, command.replace(PLACE, str(place)), limit_s)
                for path in sorted({*_changed(place), *known}):
                    before = known[path] if path in known else _committed(place, path)
                    after = _content(place / path)
                    known[path] = after
                    if after is not None and after != before:
                        yield Pair(f"{run.name}#{number}", path, before, after)
        finally:
            app.close()


def read_pairs(path: Path) -> list[Pair]:
    """Pairs that were kept in a file."""
    return msgspec.msgpack.decode(gzip.decompress(path.read_bytes()), type=list[Pair])


def write_pairs(path: Path, pairs: list[Pair]) -> None:
    """Keep pairs in a file: replaying the commands takes far longer than expressing the edits."""
    path.write_bytes(gzip.compress(msgspec.msgpack.encode(pairs), 1))


def _run(app: App, command: str, limit_s: float) -> None:
    ctx = Context(app, _SESSION, correlation_id=correlation_id())
    try:
        done = run_cmd(ctx, command, timeout=limit_s, yield_after=limit_s)
        if done.process is not None:
            run_cmd(ctx, process=done.process, stop=True)
    except LlmcError:
        pass  # what it changed until then counts


def _changed(place: Path) -> list[str]:
    command = ["git", "-C", str(place), "status", "--porcelain", "-z", "-uall", "--no-renames"]
    listed = subprocess.run(command, capture_output=True, check=True).stdout.decode(errors="surrogateescape")
    return [entry[3:] for entry in listed.split("\0") if entry and not entry.endswith(".pyc")]


def _committed(place: Path, path: str) -> bytes | None:
    command = ["git", "-C", str(place), "show", f"HEAD:{path}"]
    shown = subprocess.run(command, capture_output=True, check=False)
    return shown.stdout if shown.returncode == 0 else None


def _content(path: Path) -> bytes | None:
    if path.is_symlink() or not path.is_file() or path.stat().st_size > _LARGEST:
        return None
    return path.read_bytes()
