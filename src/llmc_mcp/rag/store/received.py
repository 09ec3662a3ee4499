"""A build that came from another server: its databases are read here, by the confined process, and by nobody else.

They are files that somebody else made, and a server must not have SQLite read those. So their rows are copied, with the
types that they must have, into databases of our own, which servers can open; what can't be copied is damaged. Which
rules the build was made by is not for it to say, nor when its files were last seen: each of them is looked at.
"""

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress

from . import layout
from .tables import IndexDamaged, damage

_MARK = "received-"
_UNSHARED = ("meta", "earlier")  # the first is copied key by key, what files held before stays with who has seen it
_NUMBERS, _WORDS = ("generation", "next_id", layout.COMPLETE, layout.BASE_END), ("embedding",)


def place_in(build: str, name: str) -> str:
    """Where a file of another server's build belongs: a database, where nobody takes it for ours."""
    return os.path.join(build, f"{_MARK}{name}" if name in layout.DATABASES else name)


def is_received(build: str) -> bool:
    """Whether a build has databases of another server, which were not taken over yet."""
    return any(os.path.exists(place_in(build, name)) for name in layout.DATABASES)


def take_over(build: str, rules: str, tick: Callable[[], None]) -> None:
    """Make databases of our own with the rows of the received ones, which go; raises IndexDamaged."""
    for name in layout.DATABASES:  # of a process that was killed here
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(build, name))
    try:
        connection = layout.create(build)
        base = layout.connect_base(build)
        try:
            _copy(connection, place_in(build, layout.DATABASES[0]), [*layout.SCHEMA, *layout.CONTENT_SCHEMA], tick)
            _copy(base, place_in(build, layout.DATABASES[1]), layout.CONTENT_SCHEMA, tick)
            layout.put_meta(connection, layout.RULES, rules)
            layout.put_meta(connection, layout.SEALED, layout.seal(base))
            if not layout.get_meta(connection, layout.COMPLETE):
                raise IndexDamaged("the index of another server is not complete")
        finally:
            connection.close()
            base.close()
    except (sqlite3.Error, ValueError) as exc:
        raise damage(exc) from None
    for name in layout.DATABASES:
        os.unlink(place_in(build, name))


def _copy(target: sqlite3.Connection, source: str, schema: list[str], tick: Callable[[], None]) -> None:
    """Copy the rows of all tables of a schema from a database file."""
    target.execute("PRAGMA trusted_schema=OFF")
    target.execute("ATTACH CAST(? AS TEXT) AS received", (layout.immutable(source),))
    found = target.execute("PRAGMA received.user_version").fetchone()[0]
    if found != layout.FORMAT:
        raise IndexDamaged(f"the index of another server has format {found}")
    target.execute("BEGIN")
    for table in (statement.split()[2] for statement in schema):
        tick()
        if table not in _UNSHARED:
            columns = target.execute(f"PRAGMA main.table_info({table})").fetchall()
            into = ", ".join(name for _, name, *_ in columns)
            values = ", ".join(_value(name, kind) for _, name, kind, *_ in columns)
            target.execute(f"INSERT INTO main.{table} ({into}) SELECT {values} FROM received.{table}")  # noqa: S608 - own names
        elif table == "meta":
            _copy_meta(target)
    target.execute("COMMIT")
    target.execute("DETACH received")


def _value(column: str, kind: str) -> str:
    return "-1" if column == "mtime_ns" else f"CAST({column} AS {kind})"


def _copy_meta(target: sqlite3.Connection) -> None:
    for keys, kind in ((_NUMBERS, "INTEGER"), (_WORDS, "TEXT")):
        target.executemany(
            f"INSERT INTO main.meta (key, value) SELECT key, CAST(value AS {kind}) FROM received.meta WHERE key=?",  # noqa: S608 - own names
            [(key,) for key in keys],
        )
