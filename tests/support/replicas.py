"""Replicas: HTTP servers with data directories of their own, as on several machines, on one store."""

from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psycopg

from llmc_mcp.permissions.tokens import SCOPES, StoredToken, TokenTable, digest
from llmc_mcp.session import Session
from llmc_mcp.store.opening import open_store
from llmc_mcp.web.replica_claims import CALL_PATH, HEADER, Claims, claims_for, signed

from .http_server import OPEN_HANDED, HttpServer


def replica(root: Path, store: str, data: Path, *arguments: str, **env: str) -> HttpServer:
    """A server that shares its store with others."""
    variables = {"LLMC_DATA_DIR": str(data), "LLMC_MCP_STORE_URL": store, **env}
    return HttpServer(root, *OPEN_HANDED, *arguments, env=variables)


def give_token(name: str, token: str, url: str, data: Path, scopes: tuple[str, ...] = SCOPES[:3]) -> None:
    """Have the servers of a store accept a token."""
    with closing(open_store(url, str(data))) as store:
        TokenTable(lambda: store).put(StoredToken(name, digest(token), scopes, (), 0.0, 0.0))


def rows(store: str, query: str) -> list[tuple[Any, ...]]:
    """What the database says."""
    with psycopg.connect(store, autocommit=True) as connection:
        return connection.execute(query.encode()).fetchall()


class Forger:
    """Somebody who knows how replicas talk: with the key of one, or without."""

    def __init__(self, server: HttpServer, store: str) -> None:
        self._server = server
        query = f"SELECT id, key, seen_at FROM replicas WHERE url='{server.url}'"
        ((self.id, self.key, self.now),) = rows(store, query)

    def claims(self, body: bytes, principal: str = "owner", session_id: str = "S", **changed: Any) -> Claims:
        """Claims that would do, but for what is changed."""
        scopes = changed.pop("scopes", frozenset(SCOPES))
        session = Session(principal, session_id, scopes=scopes, limited=True)
        made = claims_for(self.id, self.now, body, session, "forged-call", False)
        return Claims(**{**{name: getattr(made, name) for name in made.__struct_fields__}, **changed})

    def send(self, body: bytes, claims: Claims, key: str | None = None) -> httpx.Response:
        """Send a body under claims."""
        return self.post(body, signed(claims, self.key if key is None else key))

    def post(self, body: bytes, header: str, **headers: str) -> httpx.Response:
        """Send a body with a header as it is."""
        with self._server.client("") as client:
            known = {"Content-Type": "application/json", HEADER: header, **headers}
            return client.post(CALL_PATH, content=body, headers=known)
