"""Browsers that signed in, and the secrets that all servers of a store sign with.

A cookie is a random number and a mark made with a secret of the store: one that somebody made up is refused without a
look into the store. The store has only its hash, with the name and the hash of the token that it stands for. Whoever
reads the store can sign in as nobody. A link that works once is a cookie of another kind, gone with its first use.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ..store.schema import insert_into, insert_missing, insert_or_replace

if TYPE_CHECKING:
    from ..store.base import Store

TOPIC = "tokens"  # what servers follow

_COOKIE, _LINK = "cookie", "link"
_KEY = "sign_ins"
_BYTES = 32
_MARK = 32  # characters
_COOKIE_S = 12 * 3600.0
_LINK_S = 600.0
_MOST = {_COOKIE: 200, _LINK: 16}  # of a principal
_COLUMNS = ("sha256", "kind", "principal", "token", "made_at", "until")
_SECRET_COLUMNS = ("name", "value", "made_at")
_FIND = "SELECT principal, token, until FROM sign_ins WHERE sha256=? AND kind=? AND until>?"
_DROP_OLDEST = (
    "DELETE FROM sign_ins WHERE sha256 IN (SELECT sha256 FROM sign_ins WHERE principal=? AND kind=?"
    " ORDER BY made_at DESC, sha256 LIMIT 1000 OFFSET ?)"
)


class SignIn(NamedTuple):
    """Whom a cookie stands for: a principal, by a token with this hash, and for how many seconds."""

    principal: str
    token: bytes
    lasts_s: float


class SignIns:
    """The sign-ins in a store; safe from any thread and any process."""

    def __init__(self, store: "Callable[[], Store]") -> None:
        self._store = store
        self._key = b""

    def refresh(self) -> None:
        """Read the secret again, which another server may have replaced."""
        self._key = shared_secret(self._store(), _KEY).encode()

    def cookie(self, principal: str, token: bytes) -> str:
        """A cookie for a browser; if a principal has too many, its oldest are dropped."""
        return self._make(_COOKIE, principal, token, _COOKIE_S)

    def link(self, principal: str, token: bytes) -> str:
        """A code that signs a browser in: once, within ten minutes."""
        return self._make(_LINK, principal, token, _LINK_S)

    def find(self, cookie: str) -> SignIn | None:
        """Whom a cookie stands for."""
        if not self.is_ours(cookie):
            return None
        now = self._store().now()
        return _read(self._store().query(_FIND, (_hashed(cookie), _COOKIE, now)), now)

    def use(self, link: str) -> SignIn | None:
        """Whom a link signs in; it is used up, for all servers."""
        if not self.is_ours(link):
            return None
        now, hashed = self._store().now(), _hashed(link)
        with self._store().transaction(durable=True) as connection:
            found = _read(connection.execute(_FIND, (hashed, _LINK, now)).fetchall(), now)
            gone = connection.execute("DELETE FROM sign_ins WHERE sha256=? AND kind=?", (hashed, _LINK)).rowcount
        return found if gone else None

    def end(self, cookie: str) -> None:
        """Invalidate a cookie, for all servers."""
        if self.is_ours(cookie):
            with self._store().transaction(durable=True) as connection:
                connection.execute("DELETE FROM sign_ins WHERE sha256=?", (_hashed(cookie),))
                self._store().announce(connection, TOPIC)

    def end_all(self) -> None:
        """Invalidate every cookie and link, and the secret that they are marked with."""
        with self._store().transaction(durable=True) as connection:
            connection.execute("DELETE FROM sign_ins")
            row = (_KEY, secrets.token_urlsafe(_BYTES), self._store().now())
            connection.execute(insert_or_replace("secrets", _SECRET_COLUMNS), row)
            self._store().announce(connection, TOPIC)

    def is_ours(self, cookie: str) -> bool:
        """Whether it has our mark, which costs no look into the store."""
        number, _, mark = cookie.partition(".")
        return hmac.compare_digest(mark.encode("utf-8", "replace"), self._mark(number).encode())

    def _make(self, kind: str, principal: str, token: bytes, lasts_s: float) -> str:
        number = secrets.token_urlsafe(_BYTES)
        cookie, now = f"{number}.{self._mark(number)}", self._store().now()
        row = (_hashed(cookie), kind, principal, token.hex(), now, now + lasts_s)
        with self._store().transaction(durable=True) as connection:
            connection.execute("DELETE FROM sign_ins WHERE until<?", (now,))
            connection.execute(insert_into("sign_ins", _COLUMNS), row)
            connection.execute(_DROP_OLDEST, (principal, kind, _MOST[kind]))
        return cookie

    def _mark(self, number: str) -> str:
        if not self._key:
            self.refresh()
        return hmac.new(self._key, number.encode("utf-8", "replace"), hashlib.sha256).hexdigest()[:_MARK]


def shared_secret(store: "Store", name: str, first: str = "") -> str:
    """A secret that all servers of a store have; made, as `first` or by chance, when nobody has asked for it before."""
    ask = "SELECT value FROM secrets WHERE name=?"
    if not (found := store.query(ask, (name,))):
        with store.transaction(durable=True) as connection:
            row = (name, first or secrets.token_urlsafe(_BYTES), store.now())
            connection.execute(insert_missing("secrets", _SECRET_COLUMNS), row)
        found = store.query(ask, (name,))
    return str(found[0][0])


def _hashed(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "replace")).hexdigest()


def _read(rows: list[tuple[object, ...]], now: float) -> SignIn | None:
    if not rows:
        return None
    principal, token, until = rows[0]
    return SignIn(str(principal), bytes.fromhex(str(token)), float(str(until)) - now)
