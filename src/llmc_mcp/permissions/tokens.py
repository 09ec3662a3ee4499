"""The tokens of HTTP clients, in the store: names, scopes, expiry and tools; of the tokens themselves only hashes.

Whoever changes a token changes the file `tokens.stamp` beside the store, which a server looks at with every request: a
stat instead of a query. So a new token is accepted, and a revoked one refused, from the next request on.
"""

import hashlib
import os
import re
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ..errors import InvalidArgument, NotFound
from ..store.schema import insert_or_replace

if TYPE_CHECKING:
    from ..store.base import Store

SCOPES = ("read", "write", "exec", "admin")
OWNER = "owner"
ANONYMOUS = "anonymous"
STAMP = "tokens.stamp"

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

    def __init__(self, store: "Callable[[], Store]", clock: Callable[[], float] = time.time) -> None:
        self._store, self._clock = store, clock

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
        if any(kept.name == name for kept in self.list()):
            raise InvalidArgument(f"there is a token {name} already", hint=f"llmc token rotate {name}, or revoke it.")
        now = self._clock()
        token = secrets.token_urlsafe(_BYTES)
        expires = now + lasts_s if lasts_s is not None else 0.0
        self.put(StoredToken(name, digest(token), scopes, tools, now, expires))
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
        row = (token.name, token.digest.hex(), ",".join(token.scopes), ",".join(token.tools))
        with self._store().transaction(durable=True) as connection:
            connection.execute(insert_or_replace("tokens", _COLUMNS), (*row, token.created_at, token.expires_at))
        self._touch()

    def revoke(self, name: str) -> None:
        """Remove a token; no server accepts it from now on."""
        with self._store().transaction(durable=True) as connection:
            gone = connection.execute("DELETE FROM tokens WHERE name=?", (name,)).rowcount
        if not gone:
            raise NotFound(f"there is no token {name!r}", hint="llmc token list")
        self._touch()

    def _touch(self) -> None:
        path = os.path.join(self._store().data_dir, STAMP)
        fresh = f"{path}.{os.getpid()}.{secrets.token_hex(4)}"
        os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        os.replace(fresh, path)  # another inode each time, whatever the clock says


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
