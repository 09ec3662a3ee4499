"""What the tests of stores share."""

from collections.abc import Iterator
from typing import Any

import pytest

from llmc_mcp.store.postgres import PostgresStore


@pytest.fixture(autouse=True)
def closed_stores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close what a test opens and forgets: the garbage collector would, in a thread of the pool that it ends."""
    opened: list[PostgresStore] = []
    real = PostgresStore.__init__

    def noting(store: PostgresStore, *words: Any, **options: Any) -> None:
        real(store, *words, **options)
        opened.append(store)

    monkeypatch.setattr(PostgresStore, "__init__", noting)
    yield
    for store in opened:
        store.close()
