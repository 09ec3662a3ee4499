"""Changing files: what the journal costs beside a bare write, and the long versions of the crash and race tests."""

import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from llmc_mcp.app import App
from llmc_mcp.changes.edit import TextEdit
from llmc_mcp.config.schema import Config
from llmc_mcp.errors import LlmcError
from llmc_mcp.session import Session

from . import report
from .client import Client, ClientError
from .servers import filesystem, llmc

_WHO = Session("uid:0", "benchmark")
_REPOSITORY = Path(__file__).parents[1]
_LOG_PAGES = 1_000  # SQLite's log before a checkpoint
_INTENT_PAGES, _DONE_PAGES = 14, 6  # what the two transactions of a write add to it, by strace


def _never() -> None:
    """Nobody cancels."""


def run(work: Path, quick: bool) -> str:
    rounds = 100 if quick else 1_000
    rows = [
        *_beside_filesystem(work, rounds // 5),
        _write(work, rounds),
        _edit(work, 5 if quick else 30),
        _nearest(work, 3 if quick else 15),
        _crashes(work, 40 if quick else 500),
        _updates(work, 100 if quick else 1_000),
        _races(work, 500 if quick else 10_000),
    ]
    return f"{report.table(['what', 'measured', 'bar', ''], rows)}\n\n{report.provenance()}"


def _app(work: Path, name: str) -> tuple[App, Path]:
    root = work / name
    root.mkdir()
    return App(Config(), [str(root)], str(work / f"{name}-data")), root


def _write(work: Path, rounds: int) -> list[str]:
    """Turn by turn, so that whatever else the disk does hits both alike."""
    app, root = _app(work, "write")
    bare: list[float] = []
    journaled: list[float] = []
    for number in range(rounds):
        data = f"{number:08d}\n" + "x" * 4087
        bare.append(report.milliseconds(lambda: _bare_write(root, data.encode())))  # noqa: B023 - called at once
        journaled.append(report.milliseconds(lambda: app.mutations.write(_WHO, "journaled.txt", data, _never)))  # noqa: B023 - called at once
    app.close()
    ratio = report.median(journaled) / report.median(bare)
    text = f"{report.number(report.median(journaled))} ms, {ratio:.2f} times {report.number(report.median(bare))} ms"
    return ["write of 4 kB, with journal, lease and undo", text, "3 times", report.verdict(ratio, 3)]


def _bare_write(root: Path, data: bytes) -> None:
    fd = os.open(root / "bare.tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(fd, data)
    os.fsync(fd)
    os.close(fd)
    os.rename(root / "bare.tmp", root / "bare.txt")


def _beside_filesystem(work: Path, rounds: int) -> list[list[str]]:
    """Writes and edits through our server and the filesystem server, and the syncs of one write alone, in turns."""
    root = work / "beside"
    root.mkdir()
    servers = [llmc(root, work), filesystem(root, work)]
    times: dict[str, list[float]] = {name: [] for name in ("write", "edit", "their write", "their edit", "syncs")}
    with servers[0].start(root) as ours, servers[1].start(root) as theirs, _BareSyncs(work / "syncs") as bare:
        for client in (ours, theirs):
            client.initialize()
        for number in range(rounds):
            text, path, other = f"{number:08d}\n" + "x" * 4087, str(root / "a.txt"), str(root / "b.txt")
            for name, client, tool, arguments in (
                ("write", ours, "linux_fs_write", {"path": path, "content": text}),
                ("their write", theirs, "write_file", {"path": other, "content": text}),
                ("edit", ours, "linux_fs_edit", {"path": path, "old_text": text[:8], "new_text": "edited"}),
                (
                    "their edit",
                    theirs,
                    "edit_file",
                    {"path": other, "edits": [{"oldText": text[:8], "newText": "edited"}]},
                ),
            ):
                times[name].append(report.milliseconds(lambda: client.call(tool, arguments)))  # noqa: B023 - called at once
            times["syncs"].append(report.milliseconds(lambda: bare.write(text.encode())))  # noqa: B023 - called at once
    medians = {name: report.median(taken) for name, taken in times.items()}
    rows: list[list[str]] = []
    for name in ("write", "edit"):
        mine, peer = medians[name], medians[f"their {name}"]
        text = f"{report.number(mine)} ms, {mine / peer:.2f} times {report.number(peer)} ms"
        rows.append(
            [f"{name} of 4 kB over stdio, beside filesystem", text, "1.5 times", report.verdict(mine / peer, 1.5)]
        )
    floor, peer = medians["syncs"], medians["their write"]
    text = f"{report.number(floor)} ms, {floor / peer:.2f} times {report.number(peer)} ms"
    return [*rows, ["the syncs of one write alone", text, "", ""]]


class _BareSyncs:
    """What a journaled write has to wait for, and nothing else: no server, no lease, no SQL.

    The intent with the earlier content and the new file are synced at the same time, then the folder with the rename
    and the mark that the change is done. The log is overwritten in place, as SQLite's is once it has its size.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._log = os.open(folder / "log", os.O_RDWR | os.O_CREAT, 0o600)
        os.pwrite(self._log, bytes(_LOG_PAGES * 4096), 0)
        os.fsync(self._log)
        self._page, self._pool = 0, ThreadPoolExecutor(1)

    def _append(self, pages: int) -> None:
        for _ in range(pages):
            os.pwrite(self._log, os.urandom(4096), self._page * 4096)
            self._page = (self._page + 1) % _LOG_PAGES
        os.fdatasync(self._log)

    def write(self, data: bytes) -> None:
        fd = os.open(b".", os.O_WRONLY | os.O_TMPFILE, 0o600, dir_fd=self._folder)
        os.write(fd, data)
        synced = self._pool.submit(os.fsync, fd)
        self._append(_INTENT_PAGES)
        synced.result()
        os.link(f"/proc/self/fd/{fd}", "new", dst_dir_fd=self._folder, follow_symlinks=True)
        os.rename("new", "file", src_dir_fd=self._folder, dst_dir_fd=self._folder)
        os.close(fd)
        synced = self._pool.submit(os.fsync, self._folder)
        self._append(_DONE_PAGES)
        synced.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
        os.close(self._log)
        os.close(self._folder)


def _two_megabytes() -> str:
    return "".join(f"    line {number:06d} = some_function(argument, {number})\n" for number in range(39_000))


def _edit(work: Path, rounds: int) -> list[str]:
    app, root = _app(work, "edit")
    (root / "big.py").write_text(_two_megabytes())
    taken: list[float] = []
    for number in range(rounds):
        old = f"line {20_000 + number:06d} ="
        edit = (_WHO, "big.py", [TextEdit(old, f"{old} changed +")], _never)
        taken.append(report.milliseconds(lambda: app.mutations.edit(*edit)))  # noqa: B023 - called at once
    app.close()
    value = report.median(taken)
    return ["edit in a 2 MB file", f"{report.number(value)} ms", "25 ms", report.verdict(value, 25)]


def _nearest(work: Path, rounds: int) -> list[str]:
    app, root = _app(work, "nearest")
    (root / "big.py").write_text(_two_megabytes())
    block = "".join(f"    line {number:06d} = some_functoin(argument, {number})\n" for number in range(30_000, 30_010))

    def miss() -> None:
        try:
            app.mutations.edit(_WHO, "big.py", [TextEdit(block, "")], _never)
        except LlmcError as exc:
            if exc.code == "PATCH_COUNT_MISMATCH":
                return
        raise RuntimeError("the block was found")

    value = report.median([report.milliseconds(miss) for _ in range(rounds)])
    app.close()
    return ["the nearest block in 2 MB", f"{report.number(value)} ms", "200 ms", report.verdict(value, 200)]


def _crashes(work: Path, points: int) -> list[str]:
    folder = work / "crashes"
    folder.mkdir()
    command = [sys.executable, "-m", "tests.support.crashes", str(folder), str(points), "1"]
    done = subprocess.run(command, cwd=_REPOSITORY, check=True, capture_output=True, text=True)
    seen = json.loads(done.stdout)["seen"]
    new = sum(count for name, count in seen.items() if name.endswith("new"))
    return [f"kill -9 at {points} random points", f"{points - new} old, {new} new, 0 torn", "0 torn", "ok"]


def _updates(work: Path, wanted: int) -> list[str]:
    """Two servers count in one file at the same time, each told which content it expects."""
    root = work / "updates"
    root.mkdir()
    path = root / "count.txt"
    path.write_text("0\n")
    server = llmc(root, work)
    with server.start(root) as one, server.start(root) as two, ThreadPoolExecutor(2) as pool:
        refused = sum(pool.map(_count, (one, two), (path, path), (wanted // 2, wanted // 2)))
    lost = wanted // 2 * 2 - int(path.read_text())
    text = f"{lost} lost, {refused} refused and repeated"
    return [f"{wanted} updates by two servers at once", text, "0 lost", report.verdict(lost, 0)]


def _count(client: Client, path: Path, wanted: int) -> int:
    """Add one, `wanted` times; returns how often somebody else was faster."""
    refused = done = 0
    while done < wanted:
        text = path.read_text()
        expected = hashlib.sha256(text.encode()).hexdigest()
        arguments = {"path": path.name, "content": f"{int(text) + 1}\n", "expected_sha256": expected}
        try:
            client.call("linux_fs_write", arguments)
            done += 1
        except ClientError as exc:
            if "SHA_MISMATCH" not in str(exc):
                raise
            refused += 1
    return refused


def _races(work: Path, changes: int) -> list[str]:
    """Every kind of change below a folder that turns into a link that leads out and back, as fast as can be."""
    from tests.security.test_a_races import Rig
    from tests.security.test_a_writes import Mutator
    from tests.support.workspace import Workspace

    folder = work / "races"
    folder.mkdir()
    rig = Rig(Workspace(folder), "../outside/twin")
    app = App(Config(), [str(folder / "root")], str(folder / "data"))
    mutator, made, refused = Mutator(app, folder / "root"), 0, 0
    with rig.swapping():
        while made + refused < changes:
            seen = mutator.run(10)
            ok = sum(count for name, count in seen.items() if name.endswith(" ok"))
            made, refused = made + ok, refused + seen.total() - ok
    mutator.close()
    app.close()
    rig.assert_outside_untouched()
    return [f"{made + refused:,} raced changes ({made:,} made)", "0 bytes outside changed", "0 bytes", "ok"]
