"""The edits of recorded runs: each file that a command changed, before and after.

Only commands that may write are run, in their order, on the checkout that the run began with, in bubblewrap: they see
the machine read-only, no network, and the checkout where the recorded agents had theirs. The commands of a run share a
`/tmp`, as scripts that edit are often written there first.
"""

import gzip
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from ..shell.copies import Checkout
from ..shell.recorded import PLACE, Run

_WRITES = re.compile(
    r"sed\s+(-\S+\s+)*-\w*i|<<|>\s*[\w./$~\"']|\btee\b|\bpatch\b|git (apply|checkout|stash|reset)|\.write"
    r"|\bmv\b|\bcp\b|\brm\b"
)
_PYTHON = re.compile(r"(?:cd \S+ && )?python3?\s+(?:-\s*<<|-c|(?P<script>[\w./-]+\.py)\b)")
_PYTHON_WRITES = re.compile(r"\.write|write_text|write_bytes|shutil|os\.re")
_NOT_FOLLOWED = frozenset({".git", "__pycache__", ".pytest_cache"})
_LARGEST = 1 << 20
_PYTHONS = "/run/pythons"  # Debian calls it python3 alone


class Pair(msgspec.Struct, array_like=True):
    """A file that a command changed; `before` is None for one that it made."""

    run: str
    path: str
    before: bytes | None
    after: bytes


def pairs_of(repository: Path, runs: Sequence[Run], limit_s: float) -> Iterator[Pair]:
    """The edits of the runs of one repository."""
    with tempfile.TemporaryDirectory(prefix="edits-") as folder:
        place = Path(folder, "testbed")
        checkout = Checkout(repository, sorted({run.commit for run in runs}), place)
        for run in runs:
            if run.commit in checkout.commits:
                checkout.go_to(run.commit)
                yield from _pairs_of_run(run, place, limit_s)


def _pairs_of_run(run: Run, place: Path, limit_s: float) -> Iterator[Pair]:
    seen = _look(place)
    known: dict[str, bytes | None] = {}
    with tempfile.TemporaryDirectory(prefix="edits-") as scratch:
        for number, command in enumerate(run.commands):
            if not _may_write(command, known, Path(scratch)):
                continue
            _run(command, place, Path(scratch), limit_s)
            now = _look(place)
            for path in sorted(path for path, stamp in now.items() if seen.get(path) != stamp):
                before = known[path] if path in known else _committed(place, path)
                after = _content(place / path)
                known[path] = after
                if after is not None and after != before:
                    yield Pair(f"{run.name}#{number}", path, before, after)
            known.update(dict.fromkeys(seen.keys() - now.keys()))
            seen = now


def _may_write(command: str, known: dict[str, bytes | None], scratch: Path) -> bool:
    """Whether a command may change a file; a program in Python only if it says so."""
    python = _PYTHON.match(command.strip())
    if python is None:
        return _WRITES.search(command) is not None
    name = os.path.normpath(python["script"] or "")
    script = known.get(name.removeprefix(f"{PLACE}/"))
    if name.startswith("/tmp/"):
        script = _content(scratch / name.removeprefix("/tmp/"))
    return _PYTHON_WRITES.search(script.decode(errors="replace") if script else command) is not None


def read_pairs(path: Path) -> list[Pair]:
    """Pairs that were kept in a file."""
    return msgspec.msgpack.decode(gzip.decompress(path.read_bytes()), type=list[Pair])


def write_pairs(path: Path, pairs: list[Pair]) -> None:
    """Keep pairs in a file: replaying the commands takes far longer than expressing the edits."""
    path.write_bytes(gzip.compress(msgspec.msgpack.encode(pairs), 1))


def _run(command: str, place: Path, scratch: Path, limit_s: float) -> None:
    """What it changes until its time is over counts, however it ends."""
    words = ["bwrap", "--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc", "--dev", "/dev", "--proc", "/proc"]
    words += [word for name in ("bin", "lib", "lib64") for word in ("--symlink", f"usr/{name}", f"/{name}")]
    words += ["--bind", str(scratch), "/tmp", "--tmpfs", "/root", "--symlink", "/usr/bin/python3", f"{_PYTHONS}/python"]
    words += ["--bind", str(place), PLACE, "--chdir", PLACE, "--unshare-all", "--die-with-parent", "--new-session"]
    env = {"PATH": f"{_PYTHONS}:/usr/local/bin:/usr/bin:/bin", "HOME": "/root", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        subprocess.run([*words, "bash", "-c", command], env=env, capture_output=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        pass


def _look(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file with its time and inode."""
    found: dict[str, tuple[int, int]] = {}
    todo, skip = [str(folder)], len(str(folder)) + 1
    while todo:
        with os.scandir(todo.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in _NOT_FOLLOWED:
                        todo.append(entry.path)
                else:
                    info = entry.stat(follow_symlinks=False)
                    found[entry.path[skip:]] = info.st_mtime_ns, info.st_ino
    return found


def _committed(place: Path, path: str) -> bytes | None:
    command = ["git", "-C", str(place), "show", f"HEAD:{path}"]
    shown = subprocess.run(command, capture_output=True, check=False)
    return shown.stdout if shown.returncode == 0 else None


def _content(path: Path) -> bytes | None:
    if path.is_symlink() or not path.is_file() or path.stat().st_size > _LARGEST:
        return None
    return path.read_bytes()
