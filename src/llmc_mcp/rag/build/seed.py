"""The beginning of an index: that of another worktree, clone or copy of the same files, if there is one.

What never changes in an index (base.db, tantivy's files) is linked, the rest is small and copied. Then the files are
compared with the index as ever: what has the same content is not parsed again, what has not is replaced. Only then can
it be searched: until then it tells of the files of another root.

A sibling is known by its files: most of a sample of them are here, too, with the same size. Its index must have been
made by the same rules, or it may hold what these forbid. It is read by the server, not by the process that parses: that
one must not reach what belongs to another root.
"""

import contextlib
import os
import random
import sqlite3
import time
from collections.abc import Iterator, Sequence

from ..store import layout
from ..store.layout import Home

_SAMPLE, _FIRST = 64, 8  # files compared, and how many of them before one gives up on an index that is of other files
_SHARE = 0.5  # of the sample that a sibling has in common
_LOCK_S = 0.5  # for the writer of the sibling to end


def seed(home: Home, root: int, rules: str) -> bool:
    """Copy the index of a sibling for the writer to begin with; False if there is none, or it can't be had."""
    best = max(_siblings(home, root, rules), default=(0.0, ""))
    if best[0] < _SHARE:
        return False
    folder = home.new_build()
    try:
        copy_current(Home(best[1]), folder)
    except (OSError, sqlite3.Error):  # the index is built from the files, as if there were no sibling
        home.discard(folder)
        return False
    home.put_aside(folder)
    return True


def _siblings(home: Home, root: int, rules: str) -> Iterator[tuple[float, str]]:
    """The folders of other indexes, each with the share of a sample of its files that are here."""
    above = os.path.dirname(home.folder)
    for name in sorted(os.listdir(above)):
        folder = os.path.join(above, name)
        build = Home(folder).current() if folder != home.folder else None
        if build is None:
            continue
        with contextlib.suppress(OSError, sqlite3.Error):
            yield _share(_sample(build, rules), root), folder


def _sample(build: str, rules: str) -> list[tuple[bytes, int]]:
    """Some files of an index, with their sizes; none if it was made by other rules, or is not complete."""
    connection = layout.connect(build)
    try:
        if layout.get_word(connection, layout.RULES) != rules or not layout.get_meta(connection, layout.SEALED):
            return []
        (last,) = connection.execute("SELECT coalesce(max(id),0) FROM files").fetchone()
        ids = random.sample(range(1, last + 1), min(last, _SAMPLE))
        marks = ",".join("?" * len(ids))
        return connection.execute(f"SELECT path, size FROM files WHERE id IN ({marks})", ids).fetchall()  # noqa: S608 - own names
    finally:
        connection.close()


def _share(sample: Sequence[tuple[bytes, int]], root: int) -> float:
    common = 0
    for number, (path, size) in enumerate(sample, 1):
        with contextlib.suppress(OSError):
            common += os.stat(path, dir_fd=root, follow_symlinks=False).st_size == size
        if number == _FIRST and not common:
            return 0.0
    return common / max(len(sample), 1)


def copy_current(home: Home, folder: str) -> None:
    """Copy the current build of an index, unless somebody keeps writing to it: raises OSError, as if there is none."""
    until = time.monotonic() + _LOCK_S

    def tick() -> None:
        if time.monotonic() > until:
            raise TimeoutError

    with home.writing(tick):
        build = home.current()
        if build is None:
            raise FileNotFoundError
        for kept in layout.unchanging(build):
            os.link(os.path.join(build, kept), os.path.join(folder, kept))
        layout.copy_rest(build, folder)
