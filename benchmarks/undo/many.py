"""Many files changed by one command and undone: time, memory, and how large the journal gets."""

import random
import resource
import time
from collections.abc import Callable
from pathlib import Path

from llmc_mcp.app import App
from llmc_mcp.config.schema import Config
from llmc_mcp.session import Session

_WHO = Session(principal="bench", session_id="many")
_FOLDERS = 500


def many(folder: Path, count: int, size: int) -> tuple[list[list[str]], str]:
    """Rows: what was done, seconds, CPU seconds, peak memory so far; and the size of the journal in words.

    The files hold random bytes, so nothing is gained by compressing them.
    """
    root, chance, rows = folder / "root", random.Random(1), list[list[str]]()
    for number in range(count):
        path = root / f"folder{number % _FOLDERS}" / f"file{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(chance.randbytes(size))
    config = Config()
    config.limits.journal_max_total_bytes = 16 << 30
    app = App(config, [str(root)], str(folder / "data"))
    try:
        undo = app.command_undo
        assert undo is not None
        rows.append(_row("first look", undo.prepare))
        before = _contents(root)
        window = undo.begin(_WHO, "a command")
        for number, path in enumerate(sorted(root.rglob("*.txt"))):
            path.write_text(f"new {number}")
        rows.append(_row("comparing and journaling", window.end))
        journal = _journal(app, count * size)
        change = app.changes.journal.newest(_WHO)
        rows.append(_row("undo", lambda: app.undoing.undo(_WHO, change, False, lambda: None)))
        restored = _contents(root) == before
        return rows, f"{journal} {'All files are' if restored else 'NOT all files are'} as before, times included."
    finally:
        app.close()


def _row(name: str, act: Callable[[], object]) -> list[str]:
    started, cpu = time.perf_counter(), time.process_time()
    act()
    spent, cpu_spent = time.perf_counter() - started, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return [name, f"{spent:.1f}", f"{cpu_spent:.1f}", f"{peak:,} MB"]


def _journal(app: App, changed: int) -> str:
    (images,) = app.store.query("SELECT coalesce(sum(stored), 0) FROM images")[0]
    (effects,) = app.store.query("SELECT coalesce(sum(length(effects)), 0) FROM changes")[0]
    stored = int(str(images)) + int(str(effects))
    return f"Journal: {stored / 1e6:.1f} MB for {changed / 1e6:.1f} MB, {stored / changed:.2f} times."


def _contents(root: Path) -> dict[str, tuple[bytes, int, int]]:
    found: dict[str, tuple[bytes, int, int]] = {}
    for path in root.rglob("*.txt"):
        info = path.stat()
        found[str(path)] = path.read_bytes(), info.st_mode, info.st_mtime_ns
    return found
