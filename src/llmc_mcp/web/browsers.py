"""Browsers that signed in at one replica, and come to another with their next request.

Who is behind a cookie is in the store; each replica remembers it for a moment, so that a page with its parts costs one
look. Signing out counts everywhere once that moment is over.
"""

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

from ..errors import LlmcError
from ..permissions.tokens import digest
from ..store.replicas import SharedSignIns, SignedInBrowser
from .auth import SIGNED_IN_S, Principal, Tokens

_REMEMBERED_S = 2.0
_REMEMBERED = 1_000


class SharedBrowsers:
    """The sign-ins of all replicas; belongs to the event loop."""

    def __init__(self, tokens: Tokens, rows: Callable[[], SharedSignIns]) -> None:
        self._tokens, self._rows = tokens, rows
        self._seen: OrderedDict[str, tuple[SignedInBrowser | None, float]] = OrderedDict()

    async def sign_in(self, principal: Principal) -> str:
        """Make a cookie for a browser."""
        cookie = secrets.token_urlsafe(32)
        browser = SignedInBrowser(principal.name, principal.digest.hex())
        await asyncio.to_thread(lambda: self._rows().add(_hashed(cookie), browser, SIGNED_IN_S))
        return cookie

    async def principal(self, cookie: str) -> Principal | None:
        """The client that a cookie belongs to; nobody's once its token is removed."""
        hashed, now = _hashed(cookie), time.monotonic()
        browser, until = self._seen.get(hashed, (None, 0.0))
        if now >= until:
            try:
                browser = await asyncio.to_thread(lambda: self._rows().find(hashed))
            except LlmcError:
                return None
            self._seen[hashed] = browser, now + _REMEMBERED_S
            while len(self._seen) > _REMEMBERED:
                self._seen.popitem(last=False)
        return None if browser is None else self._tokens.signed_in_as(browser.principal, bytes.fromhex(browser.token))

    async def sign_out(self, cookie: str) -> None:
        """Make a cookie nobody's."""
        hashed = _hashed(cookie)
        self._seen.pop(hashed, None)
        await asyncio.to_thread(lambda: self._rows().remove(hashed))


def _hashed(cookie: str) -> str:
    return digest(cookie).hex()
