"""Trees, names and handle pages: linux_fs_list, linux_search_files and linux_handle_read at size."""

import subprocess
from collections.abc import Callable
from pathlib import Path

from llmc_mcp.files.filesystem import Entry, Filesystem, WalkBudget
from llmc_mcp.files.handles import HandleRetention, Handles
from llmc_mcp.files.listing import Lister
from llmc_mcp.files.ripgrep import Search, find_ripgrep
from llmc_mcp.kernel.launcher import Launcher
from llmc_mcp.store.root_sets import RootSet

from .report import median, milliseconds, provenance, table, verdict

_ROUNDS = 9


def _median_ms(action: Callable[[], object]) -> float:
    return median([milliseconds(action) for _ in range(_ROUNDS)])


def _tree(folder: Path, files: int, per_folder: int) -> Path:
    """`files` small files, some folders deep."""
    here = folder
    for number in range(files):
        if number % per_folder == 0:
            group = number // per_folder
            here = folder / f"part{group % 10}" / f"group{group // 10 % 10}" / f"deep{group}"
            here.mkdir(parents=True)
        (here / f"file_{number}.py").write_bytes(b"x\n")
    return folder


def _page_ms(work: Path) -> float:
    from llmc_mcp.store.sqlite import SqliteStore

    handles = Handles(SqliteStore(str(work / "data")), HandleRetention(1 << 30, 64 << 20, 3600.0), RootSet([str(work)]))
    spool = handles.spool("me", "command_output", {})
    line = b"a line of a log that is about eighty bytes long, as they tend to be everywhere\n"
    for _ in range(60 << 20 >> 18):
        spool.write(line * ((1 << 18) // len(line)))
    name = spool.finish()
    return _median_ms(lambda: handles.lines(handles.find("me", name), 500_000, 200))


def run(work: Path, quick: bool) -> str:
    """The table."""
    few, many = (2_000, 10_000) if quick else (20_000, 100_000)
    small, large = _tree(work / "small", few, 20), _tree(work / "large", many, 100)
    files, launcher = Filesystem([str(work)]), Launcher()
    search = Search(files, launcher, count_cap=10_000)
    lister = Lister(files, lambda: search)

    def nothing() -> None: ...

    def entries() -> list[Entry]:
        return list(lister.tree(files.locate(str(small)), 10, False, None, False, nothing, WalkBudget(few * 2), []))

    tree = _median_ms(entries)
    find = _median_ms(lambda: lister.find(files.locate(str(large)), "file_77", None, nothing))
    command = [find_ripgrep(), b"--files", b"./"]
    plain = _median_ms(lambda: subprocess.run(command, cwd=large, stdout=subprocess.DEVNULL, check=True))
    page = _page_ms(work)
    launcher.close()
    rows = [
        [f"linux_fs_list, depth 10, {few:,} files", f"{tree:.0f} ms", "400 ms", verdict(tree, 400)],
        [
            f"linux_search_files, {many:,} files",
            f"{find:.0f} ms",
            f"{1.5 * plain + 10:.0f} ms (1.5 times `rg --files`, {plain:.0f} ms, + 10 ms)",
            verdict(find, 1.5 * plain + 10),
        ],
        ["200 lines of a 60 MB handle", f"{page:.2f} ms", "5 ms", verdict(page, 5)],
    ]
    return table(["what", "median", "bar", ""], rows) + "\n\n" + provenance()
