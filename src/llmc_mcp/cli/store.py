"""`llmc store`: the database that holds the state of servers; for those who run one for a team."""

import sys

from ..command_line import Arguments, Command, Positional
from ..config.load import load
from ..store.base import Store
from ..store.opening import open_store
from ..store.row_paths import rename_workspace
from ..store.schema import STEPS
from ..store.transfer import copy, findings, rows_of

command = Command(
    "store",
    "Checks, upgrades and copies the database in which servers store changes, leases, handles and statistics:"
    " mcp.store.url, by default SQLite in the data directory.",
    default="check",
)
_FROM = Positional("FROM", "sqlite, or postgresql://…")
_TO = Positional("TO", "sqlite, or postgresql://…; it must be empty")


def _open(url: str = "") -> Store:
    loaded = load()
    return open_store(url or loaded.config.store.url, loaded.data_dir, named=loaded.config.store.workspaces)


@command.verb("check", "whether it can be read and written, what it holds, and what does not fit together")
def _check(given: Arguments) -> int:
    del given
    store = _open()
    store.probe()
    print(f"{store.name}: version {len(STEPS)}, can be written")
    for table, count in rows_of(store).items():
        print(f"  {table:14} {count:>10,} rows")
    wrong = findings(store)
    for finding in wrong:
        print(f"  {finding}")
    return 1 if wrong else 0


@command.verb("migrate", "make its tables, or bring them to this version")
def _migrate(given: Arguments) -> int:
    del given
    print(f"{_open().name}: version {len(STEPS)}")
    return 0


@command.verb(
    "rename",
    "give a workspace another name, as mcp.store.workspaces has it; stop the servers first",
    positionals=(Positional("OLD", "its name so far"), Positional("NEW", "its name from now on")),
)
def _rename(given: Arguments) -> int:
    old, new = given.positionals
    print(f"{old} → {new}: {rename_workspace(_open(), old, new):,} rows")
    return 0


@command.verb("copy", "copy everything into an empty store; stop the servers first", positionals=(_FROM, _TO))
def _copy(given: Arguments) -> int:
    source, target = (_open(url) for url in given.positionals)
    copy(source, target, lambda table, count: print(f"  {table:14} {count:>10,} rows", file=sys.stderr))
    print(f"{source.name} → {target.name}; set mcp.store.url to use it")
    return 0
