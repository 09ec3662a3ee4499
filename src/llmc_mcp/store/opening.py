"""Opens the store that the configuration names."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from ..errors import FeatureUnavailable, InvalidArgument
from .base import Store

SQLITE = "sqlite"


class StoreChoice(Protocol):
    """The settings of [mcp.store]."""

    url: str
    workspaces: dict[str, str]


def store_of(settings: StoreChoice, data_dir: str, roots: Iterable[str] = ()) -> Store:
    """The store that a configuration names, for a server on these roots or for a person."""
    return open_store(settings.url, data_dir, roots, named=settings.workspaces)


def open_store(url: str, data_dir: str, roots: Iterable[str] = (), *, named: Mapping[str, str] | None = None) -> Store:
    """The store that the configuration names: `sqlite`, or the address of a PostgreSQL database.

    `named` has the names of workspaces by their folders, for servers on several machines.
    """
    if url == SQLITE:
        from .sqlite import SqliteStore

        return SqliteStore(data_dir)
    if not url.startswith(("postgresql://", "postgres://")):
        raise InvalidArgument("mcp.store.url is neither `sqlite` nor an address that begins with postgresql://")
    try:
        from .postgres import PostgresStore
    except ImportError as exc:
        raise FeatureUnavailable(
            f"mcp.store.url names PostgreSQL, and {exc.name} is not installed", hint="pip install 'llmc-mcp[postgres]'"
        ) from None
    return PostgresStore(url, data_dir, roots, named)
