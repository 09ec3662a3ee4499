"""Reading slices of big files through the server: time beside `wc -l`, and what the server's memory does."""

import subprocess
from pathlib import Path

from . import procfs, report
from .client import Client
from .servers import CACHE, Server, llmc

_LINES = 200
_LINE = "2026-01-01T00:00:00Z INFO request {:012d}\n"  # 200 of them fit into one reply
_BYTES_PER_LINE = len(_LINE.format(0))
_LOG_BYTES = 200_000_000
_BIG_BYTES = 1_000_000_000


def run(work: Path, quick: bool) -> str:
    CACHE.mkdir(exist_ok=True)
    rounds, scale = (3, 10) if quick else (9, 1)
    server = llmc(CACHE, work)
    with server.start(CACHE) as client:
        version = client.initialize()["serverInfo"]["version"]
    rows = _log(server, CACHE / "bench.log", _LOG_BYTES // scale, rounds)
    rows.append(_tail(server, CACHE / "bench-big.log", _BIG_BYTES // scale, rounds))
    head = ["what", "llmc, median", "bar", "bar is", ""]
    return f"{report.table(head, rows)}\n\n{report.provenance(f'llmc {version}')}"


def _log(server: Server, path: Path, size: int, rounds: int) -> list[list[str]]:
    """The start and the middle of a log; every round has a new server, so that nothing is remembered."""
    middle = size // _BYTES_PER_LINE // 2
    start_ms: list[float] = []
    middle_ms: list[float] = []
    wc_ms: list[float] = []
    growth: list[float] = []
    try:
        _write(path, size)
        for _ in range(rounds):
            wc_ms.append(
                report.milliseconds(lambda: subprocess.run(["wc", "-l", path], capture_output=True, check=True))
            )
            with server.start(path.parent) as client:
                before = _ready(client, path.parent)
                start_ms.append(report.milliseconds(lambda: _read(client, path, 0)))
                middle_ms.append(report.milliseconds(lambda: _read(client, path, middle)))
                growth.append(procfs.memory(client.pid).rss - before)
    finally:
        path.unlink(missing_ok=True)
    bar = 5 * report.median(wc_ms)
    meaning = f"5 times `wc -l` ({report.number(report.median(wc_ms))} ms)"
    name = f"of a {size // 1_000_000} MB log"
    return [
        _row(f"{_LINES} lines at the start {name}", report.median(start_ms), bar, "ms", meaning),
        _row(f"{_LINES} lines in the middle {name}", report.median(middle_ms), bar, "ms", meaning),
        _row("server RSS growth by both", report.median(growth), 5, "MB", "5 MB"),
    ]


def _tail(server: Server, path: Path, size: int, rounds: int) -> list[str]:
    taken: list[float] = []
    try:
        _write(path, size)
        for _ in range(rounds):
            with server.start(path.parent) as client:
                _ready(client, path.parent)
                taken.append(report.milliseconds(lambda: _read(client, path, -_LINES)))
    finally:
        path.unlink(missing_ok=True)
    name = f"last {_LINES} lines of {size // 1_000_000} MB"
    return _row(name, report.median(taken), 50, "ms", "50 ms")


def _row(name: str, value: float, bar: float, unit: str, meaning: str) -> list[str]:
    cells = [f"{report.number(one)} {unit}" for one in (value, bar)]
    return [name, *cells, meaning, report.verdict(value, bar)]


def _ready(client: Client, folder: Path) -> float:
    """Handshake and a read of another, small file: code is loaded, nothing of the big one is known. Returns RSS."""
    client.initialize()
    client.call("read_file", {"path": _small(folder).name})
    return procfs.memory(client.pid).rss


def _read(client: Client, path: Path, offset: int) -> None:
    reply = client.call("read_file", {"path": path.name, "offset_lines": offset, "max_lines": _LINES})
    meta, _, body = reply.partition("\n")
    first = offset if offset >= 0 else path.stat().st_size // _BYTES_PER_LINE + offset
    if body.rstrip("\n") != _lines(first, _LINES).rstrip("\n"):
        raise RuntimeError(f"{path.name} at {offset}: not the {_LINES} lines asked for: {meta}")


def _small(folder: Path) -> Path:
    small = folder / "small.log"
    if not small.exists():
        small.write_text(_LINE.format(0))
    return small


def _write(path: Path, size: int) -> None:
    """Numbered lines, every byte of them on disk: a sparse file would read too fast."""
    total, step = size // _BYTES_PER_LINE, 20_000
    with path.open("w") as out:
        for first in range(0, total, step):
            out.write(_lines(first, min(step, total - first)))


def _lines(first: int, count: int) -> str:
    return "".join(_LINE.format(at) for at in range(first, first + count))
