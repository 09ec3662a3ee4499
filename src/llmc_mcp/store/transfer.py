"""Copies a store into an empty one, of the same kind or the other, and looks for rows that don't fit together."""

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import islice

from ..errors import Conflict, FeatureUnavailable
from .base import Connection, Store
from .row_paths import translated
from .schema import STEPS, insert_missing

_BATCH = 500
# The target's triggers have added up what it holds; and servers share their code indexes there again.
_NOT_COPIED = ("totals", "shared_indexes")

# What must not be: a sentence, and the rows that break it.
_CHECKS = (
    (
        "changes refer to a pre-image that is not there",
        "SELECT count(*) FROM change_images c WHERE NOT EXISTS (SELECT 1 FROM images i WHERE i.sha256=c.sha256)",
    ),
    (
        "pre-images belong to a change that is not there",
        "SELECT count(*) FROM change_images c WHERE NOT EXISTS (SELECT 1 FROM changes x WHERE x.seq=c.seq)",
    ),
    (
        "pre-images belong to no change",
        "SELECT count(*) FROM images i WHERE NOT EXISTS (SELECT 1 FROM change_images c WHERE c.sha256=i.sha256)",
    ),
    (
        "leases are for a change that is over",
        "SELECT count(*) FROM leases l WHERE purpose<>'' AND NOT EXISTS"
        " (SELECT 1 FROM changes x WHERE x.id=l.purpose AND x.state='pending')",
    ),
)


@cache
def tables() -> dict[str, tuple[str, ...]]:
    """Every table of the schema and its columns; one that others refer to comes before them."""
    made = sqlite3.connect(":memory:")
    for step in STEPS:
        made.executescript(step)
    names = made.execute(
        "SELECT name FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
    )
    return {name: tuple(row[1] for row in made.execute(f"PRAGMA table_info({name})")) for (name,) in names.fetchall()}


def demand_tables(store: str, present: Iterable[tuple[object, ...]]) -> None:
    """Raise if a table of the schema is not among the rows that name those of a store."""
    if missing := tables().keys() - {str(name) for (name,) in present}:
        raise FeatureUnavailable(f"the store {store} lacks tables: {', '.join(sorted(missing))}")


def findings(store: Store) -> list[str]:
    """What is wrong in a store, a sentence each."""
    found: list[str] = []
    for sentence, query in _CHECKS:
        ((count,),) = store.query(query)
        if count:
            found.append(f"{count} {sentence}")
    lost = [name for name in shared_files(store) if not _is_there(store, name)]
    return [*found, f"{len(lost)} files are gone: {', '.join(lost[:3])}"] if lost else found


def rows_of(store: Store) -> dict[str, int]:
    """How many rows each table has."""
    return {table: int(str(store.query(f"SELECT count(*) FROM {table}")[0][0])) for table in tables()}  # noqa: S608 - own names


def copy(source: Store, target: Store, told: Callable[[str, int], None]) -> None:
    """Copy all rows and files; the target must be empty. All rows arrive, or none.

    Paths get the form that rows of the target carry; those of folders that are not on this machine keep theirs.
    """

    def renamed(path: str) -> str:
        return target.workspaces.stored(source.workspaces.local(path))

    used = [table for table, count in rows_of(target).items() if count and table not in ("totals", "root_sets")]
    if used:
        raise Conflict(f"{target.name} is not empty: it has {', '.join(used)}", hint="Copy into a new database.")
    with target.transaction(durable=True, wait_s=60) as connection:
        for table, columns in tables().items():
            count = 0
            for batch in _batches(source, table, columns):
                rows = [translated(table, columns, row, renamed) for row in batch]
                connection.executemany(insert_missing(table, columns), rows)
                count += len(batch)
            told(table, count)
        for name in shared_files(source):
            _copy_file(source, target, connection, name)
        target.follow_numbers(connection)


def _batches(source: Store, table: str, columns: tuple[str, ...]) -> Iterator[list[tuple[object, ...]]]:
    if table in _NOT_COPIED:
        return
    rows = iter(source.query(f"SELECT {', '.join(columns)} FROM {table} ORDER BY {columns[0]}"))  # noqa: S608 - own names
    while batch := list(islice(rows, _BATCH)):
        yield batch


def shared_files(store: Store) -> list[str]:
    """The files that rows speak of, by their names in the data directory."""
    payloads = store.query("SELECT DISTINCT payload FROM handles WHERE payload IS NOT NULL")
    images = store.query("SELECT sha256 FROM images WHERE data IS NULL")
    return [f"handles/{name}" for (name,) in payloads] + [f"journal/{name}.z" for (name,) in images]


def _is_there(store: Store, name: str) -> bool:
    return os.path.exists(os.path.join(store.data_dir, name)) or store.fetch(name)


def _copy_file(source: Store, target: Store, connection: Connection, name: str) -> None:
    if _is_there(source, name):
        here, there = (os.path.join(store.data_dir, name) for store in (source, target))
        if here != there:
            os.makedirs(os.path.dirname(there), mode=0o700, exist_ok=True)
            with open(here, "rb") as read, open(there, "wb") as written:
                while piece := read.read(1 << 20):
                    written.write(piece)
        target.share(connection, name)
