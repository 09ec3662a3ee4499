"""The tokens of HTTP clients, in the store: names, scopes, expiry and tools; of the tokens themselves only hashes.

Whoever changes a token announces it: with SQLite by the file `tokens.stamp` in the data directory, which a server looks
at with every request (a stat instead of a query), with PostgreSQL by a notice that every server hears at once. Where
several data directories share a store, the operator's own token of each has a row as well, `owner:` and a part of its
hash: all servers accept it, and any of them revokes it.
"""

import hashlib
import re
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ..errors import InvalidArgument, NotFound
from ..store.schema import insert_missing, insert_or_replace
from .sign_ins import TOPIC

if TYPE_CHECKING:
    from ..store.base import Store

SCOPES = ("read", "write", "exec", "admin")
OWNER = "owner"
ANONYMOUS = "anonymous"
OWNERS = f"{OWNER}:"  # what the names of their rows begin with

_BYTES = 32
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_PATTERN = re.compile(r"[A-Za-z0-9_*?.-]{1,64}")
_COLUMNS = ("name", "sha256", "scopes", "tools", "created_at", "expires_at")
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM tokens"  # noqa: S608 - own names


class StoredToken(NamedTuple):
    """A token as it is stored; `expires_at` 0: never, `tools` empty: all that its scopes cover."""

    name: str
    digest: bytes
    scopes: tuple[str, ...]
    tools: tuple[str, ...]
    created_at: float
    expires_at: float

    def is_valid(self, now: float) -> bool:
        """Whether it has not expired."""
        return not self.expires_at or now < self.expires_at


class TokenTable:
    """The tokens in a store; safe from any thread and any process."""

    def __init__(self, store: "Callable[[], Store]", clock: Callable[[], float] | None = None) -> None:
        self._store, self._clock = store, clock or (lambda: store().now())

    def list(self) -> list[StoredToken]:
        """Every token, expired ones too, by name."""
        return [_read(row) for row in self._store().query(f"{_SELECT} ORDER BY name")]

    def create(
        self, name: str, scopes: tuple[str, ...], *, tools: tuple[str, ...] = (), lasts_s: float | None = None
    ) -> str:
        """Make a token; it is returned here, and nowhere else ever."""
        if not _NAME.fullmatch(name) or name in (OWNER, ANONYMOUS):
            raise InvalidArgument(
                f"{name!r} is not a valid name for a token", hint="Lower case letters, digits, - and _."
            )
        if not scopes or set(scopes) - set(SCOPES):
            raise InvalidArgument(f"unknown scopes in {','.join(scopes)!r}", hint=f"Scopes: {', '.join(SCOPES)}.")
        if any(not _PATTERN.fullmatch(tool) for tool in tools):
            raise InvalidArgument(f"no names of tools: {','.join(tools)!r}", hint="Names or patterns, as linux_fs_*.")
        now = self._clock()
        token = secrets.token_urlsafe(_BYTES)
        expires = now + lasts_s if lasts_s is not None else 0.0
        if not self._put(StoredToken(name, digest(token), scopes, tools, now, expires), insert_missing):
            raise InvalidArgument(f"there is a token {name} already", hint=f"llmc token rotate {name}, or revoke it.")
        return token

    def rotate(self, name: str) -> str:
        """Give a token of the same name, scopes, tools and expiry; the old one is refused from now on."""
        found = next((kept for kept in self.list() if kept.name == name), None)
        if found is None:
            raise NotFound(f"there is no token {name!r}", hint="llmc token list")
        token = secrets.token_urlsafe(_BYTES)
        self.put(found._replace(digest=digest(token), created_at=self._clock()))
        return token

    def put(self, token: StoredToken) -> None:
        """Store a token, in the place of one of the same name."""
        self._put(token, insert_or_replace)

    def _put(self, token: StoredToken, insert: Callable[[str, tuple[str, ...]], str]) -> int:
        """Store a token; how many rows that made."""
        row = (token.name, token.digest.hex(), ",".join(token.scopes), ",".join(token.tools))
        with self._store().transaction(durable=True) as connection:
            made = connection.execute(insert("tokens", _COLUMNS), (*row, token.created_at, token.expires_at))
            self._store().announce(connection, TOPIC)
            return made.rowcount

    def revoke(self, name: str) -> None:
        """Remove a token; no server accepts it from now on."""
        with self._store().transaction(durable=True) as connection:
            gone = connection.execute("DELETE FROM tokens WHERE name=?", (name,)).rowcount
            self._store().announce(connection, TOPIC)
        if not gone:
            raise NotFound(f"there is no token {name!r}", hint="llmc token list")

    def replace_owner(self, former: str, token: str) -> None:
        """Where data directories share the store: store the operator's own token of one, in the place of another."""
        if not self._store().is_shared or former == token:
            return
        with self._store().transaction(durable=True) as connection:
            if former:
                connection.execute("DELETE FROM tokens WHERE name=?", (_owner_row(former),))
            if token:
                row = (_owner_row(token), digest(token).hex(), ",".join(SCOPES), "", self._clock(), 0.0)
                connection.execute(insert_missing("tokens", _COLUMNS), row)
            self._store().announce(connection, TOPIC)


def _owner_row(token: str) -> str:
    return f"{OWNERS}{digest(token).hex()[:12]}"


def digest(token: str) -> bytes:
    """What is stored of a token."""
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def _read(row: tuple[object, ...]) -> StoredToken:
    name, sha256, scopes, tools, created, expires = row
    return StoredToken(
        str(name),
        bytes.fromhex(str(sha256)),
        tuple(filter(None, str(scopes).split(","))),
        tuple(filter(None, str(tools).split(","))),
        float(str(created)),
        float(str(expires)),
    )
