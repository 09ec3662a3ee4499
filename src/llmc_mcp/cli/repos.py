"""`llmc repos`: which repositories are indexed, for a person."""

import os
import shlex
import shutil
import sys
import time
from typing import NamedTuple

from ..command_line import JSON, Arguments, Command, Positional
from ..errors import NotFound
from ..policy import is_below
from ..printing import counted, print_json, print_line
from ..rag.store.layout import Home, indexed_folders
from ..rag.store.tables import IndexDamaged, IndexTables
from ..store.data_dir import data_directory
from .person import path_of, shown

_UNFINISHED = "unfinished"
_HOW_IT_GOES_ON = {_UNFINISHED: ": the next search there or llmc repos add goes on with it"}

command = Command("repos", "Lists the repositories that are indexed, indexes another, or forgets one.", default="list")


@command.verb("list", "files, chunks and size of each, and when it was last indexed", flags=(JSON,))
def list_all(given: Arguments) -> int:
    """List the repositories that are indexed."""
    rows = [_row(path, home) for path, home in indexed_folders(data_directory())]
    if "--json" in given:
        print_json([row._asdict() for row in rows])
        return 0
    for row in rows:
        state = "" if row.state == "complete" else f", {row.state}{_HOW_IT_GOES_ON.get(row.state, '')}"
        size = f"{counted(row.files, 'file')}, {counted(row.chunks, 'chunk')}, {row.bytes / 1e6:.1f} MB"
        print_line(f"{row.path}  {size}, {row.updated_iso or 'never'}{state}")
    if not rows:
        print("no repository is indexed; llmc repos add PATH indexes one", file=sys.stderr)
    return 0


@command.verb("add", "index a folder", positionals=(Positional("PATH", "the folder"),))
def add(given: Arguments) -> int:
    """Index a folder."""
    from .index import index

    return index(given.positionals)


@command.verb(
    "forget",
    "delete the index of a folder, never the folder itself",
    positionals=(Positional("PATH", "the folder, or what it was before it was deleted"),),
)
def forget(given: Arguments) -> int:
    """Delete the index of a folder."""
    (folder,) = given.positionals
    indexed = indexed_folders(data_directory())
    found = _named(folder, indexed) or _named(path_of(folder), indexed)  # the one that has this very name comes first
    if not found:
        real = os.path.realpath(folder)
        around = max((path for path, _ in indexed if is_below(real, path_of(path))), key=len, default=None)
        if around is not None:
            raise NotFound(
                f"{shown(folder)} is not indexed by itself: it belongs to {around}",
                hint=f"llmc repos forget {shlex.quote(around)} forgets all of that.",
            )
        raise NotFound(f"{shown(folder)} is not indexed", hint="llmc repos list shows what is.")
    for path, home in found:
        shutil.rmtree(home.folder)
        print(f"forgot {path}", file=sys.stderr)
    return 0


def _named(folder: str, indexed: list[tuple[str, Home]]) -> list[tuple[str, Home]]:
    """The indexes of a folder, by its path as it was given or without links."""
    spelled = (shown(folder.rstrip("/")), shown(os.path.realpath(folder)))
    return [(path, home) for path, home in indexed if path in spelled]


class _Row(NamedTuple):
    """One repository, as it is listed."""

    path: str
    files: int
    chunks: int
    bytes: int
    updated_iso: str | None
    state: str


def _row(path: str, home: Home) -> _Row:
    files, chunks, updated, state = 0, 0, 0.0, "not built"
    build = home.current()
    try:
        if build is not None:
            tables = IndexTables(build)
            totals, updated = tables.totals(), tables.updated()
            files, chunks, state = totals.files, totals.chunks, "complete"
            if not tables.complete:
                state = "being built" if home.is_being_written() else _UNFINISHED
            tables.close()
    except IndexDamaged:
        state = "to be built anew"
    return _Row(
        path=path,
        files=files,
        chunks=chunks,
        bytes=home.size(),
        updated_iso=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(updated)) if updated else None,
        state=state if os.path.isdir(path_of(path)) else "the folder is gone",
    )
