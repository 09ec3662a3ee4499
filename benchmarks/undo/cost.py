"""What following the files adds to a command, on one checkout."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

from llmc_mcp.app import App
from llmc_mcp.changes.commands import CommandUndo
from llmc_mcp.config.schema import Config
from llmc_mcp.session import Session

_WHO = Session(principal="bench", session_id="cost")


def cost(folder: Path, data: Path, times: int) -> list[list[str]]:
    """Rows: what was done, how often, added milliseconds (median, 95th percentile), CPU milliseconds (median).

    The command itself is a plain write by this process, so nothing but the undo is measured.
    """
    app = App(Config(), [str(folder)], str(data))
    try:
        undo = app.command_undo
        assert undo is not None
        some = sorted(path for path in folder.rglob("*.py") if path.stat().st_size < 100_000)[:times]
        rows = [_row("first look", [_measured(undo, lambda: None)])]
        rows.append(_row("read-only, watched", [_measured(undo, lambda: None, read_only=True) for _ in range(times)]))
        rows.append(_row("changes nothing, watched", [_measured(undo, lambda: None) for _ in range(times)]))
        rows.append(_row("edits a file, watched", [_measured(undo, _edit(path)) for path in some]))
        new = [folder / f"benchmark{number}" for number in range(20)]
        rows.append(_row("makes a folder, watched", [_measured(undo, path.mkdir) for path in new]))
        rows.append(_row("removes a folder, watched", [_measured(undo, path.rmdir) for path in new]))
        for tree in undo.trees:
            tree.watch.stop("the benchmark")
        rows.append(_row("edits a file, walked", [_measured(undo, _edit(path)) for path in some[:20]]))
        return rows
    finally:
        app.close()


def _edit(path: Path) -> Callable[[], None]:
    def edit() -> None:
        path.write_bytes(path.read_bytes() + b"\n# one more line\n")

    return edit


def _measured(undo: CommandUndo, act: Callable[[], None], *, read_only: bool = False) -> tuple[float, float]:
    started, cpu = time.perf_counter(), time.process_time()
    window = undo.begin(_WHO, "a command", read_only=read_only)
    spent, cpu_spent = time.perf_counter() - started, time.process_time() - cpu
    act()
    started, cpu = time.perf_counter(), time.process_time()
    window.end()
    return (spent + time.perf_counter() - started) * 1e3, (cpu_spent + time.process_time() - cpu) * 1e3


def _row(name: str, found: list[tuple[float, float]]) -> list[str]:
    wall, cpu = sorted(one[0] for one in found), [one[1] for one in found]
    late = wall[min(int(len(wall) * 0.95), len(wall) - 1)]
    return [name, str(len(wall)), f"{statistics.median(wall):.2f}", f"{late:.2f}", f"{statistics.median(cpu):.2f}"]
