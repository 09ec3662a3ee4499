"""The server as an OAuth 2.1 resource server, as MCP's authorization asks: access tokens that an issuer signs.

A token is taken if the issuer signed it (a key of its JWKS, an asymmetric algorithm, the one that fits the key), if it
was made for this server (`aud`), and as long as it lasts. Nothing that a token's header points to is fetched. The keys
are fetched from the issuer alone, within limits on time and size, not more often than every half minute, and outlive an
issuer that is gone for an hour.
"""

import asyncio
import json
import threading
import time
import urllib.request
from collections.abc import Callable
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import jwt

from ..config.schema import OAuth
from ..errors import InvalidArgument
from ..permissions.rules import BY_SUBJECT
from ..permissions.tokens import SCOPES
from .auth import Principal, is_loopback

METADATA = "/.well-known/oauth-protected-resource"

_ALGORITHMS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
_OFFERED = tuple(scope for scope in SCOPES if scope != "admin")  # what clients ask for, unasked
_LONGEST_TOKEN = 12_000  # characters
_MOST_BYTES = 256 << 10  # of a reply of the issuer
_MOST_KEYS = 64
_FETCH_S = 4.0
_FETCH_EVERY_S = 30.0  # whatever key ids clients make up
_KEYS_LAST_S = 3600.0
_LEEWAY_S = 30
_LONGEST_SUBJECT = 200


class _Key(NamedTuple):
    key: jwt.PyJWK
    algorithms: tuple[str, ...]


class Issuer:
    """The issuer whose access tokens are taken."""

    def __init__(self, settings: OAuth, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock = settings, clock
        self._keys: dict[str, _Key] = {}
        self._fetched_at = self._tried_at = float("-inf")
        self._fetching = threading.Lock()
        for url in filter(None, (settings.issuer, settings.jwks_url)):
            _demand_https(url)

    def resource(self, base: str) -> str:
        """What this server is called, in tokens and metadata."""
        return self._settings.resource or f"{base}/mcp"

    def metadata(self, base: str) -> dict[str, Any]:
        """The protected-resource metadata (RFC 9728)."""
        return {
            "resource": self.resource(base),
            "authorization_servers": [self._settings.issuer],
            "scopes_supported": sorted(self._settings.scopes) or list(_OFFERED),
            "bearer_methods_supported": ["header"],
            "resource_name": "LLMC MCP",
        }

    async def principal(self, token: str, base: str) -> Principal | None:
        """The client that a token was issued to; None if the token does not count here.

        `base` is empty where a request does not name this server as the one that it is for.
        """
        if token.count(".") != 2 or len(token) > _LONGEST_TOKEN:
            return None
        if not (base or self._settings.audience or self._settings.resource):
            return None
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            return None
        key_id, algorithm = header.get("kid", ""), header.get("alg")
        if "crit" in header or not isinstance(key_id, str) or not isinstance(algorithm, str):
            return None
        if not any(algorithm in family for family in _ALGORITHMS.values()):
            return None
        key = self._key(key_id)
        if key is None:
            await asyncio.to_thread(self._fetch)
            key = self._key(key_id)
        if key is None or algorithm not in key.algorithms:
            return None
        return self._verified(token, key, algorithm, base)

    def _verified(self, token: str, key: _Key, algorithm: str, base: str) -> Principal | None:
        try:
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                audience=self._settings.audience or self.resource(base),
                issuer=self._settings.issuer,
                leeway=_LEEWAY_S,
                options={"require": ["exp", "iss", "aud", "sub"], "enforce_minimum_key_length": True},
            )
        except (jwt.PyJWTError, ValueError, TypeError):
            return None
        subject = claims["sub"]
        if not isinstance(subject, str) or not subject.isprintable() or not 0 < len(subject) <= _LONGEST_SUBJECT:
            return None
        return Principal(f"{BY_SUBJECT}{subject}", self._scopes(claims), until=float(claims["exp"]))

    def _scopes(self, claims: dict[str, Any]) -> frozenset[str]:
        """The scopes of a token as ours; without a mapping they are called as ours are."""
        given: object = claims.get("scope", claims.get("scp", ""))
        names = given.split() if isinstance(given, str) else given
        if not isinstance(names, list):
            return frozenset()
        mapping = self._settings.scopes or dict(zip(SCOPES, SCOPES, strict=True))
        ours = {mapping.get(name, "") for name in cast(list[object], names) if isinstance(name, str)}
        return frozenset(scope for word in ours for scope in word.split()) & frozenset(SCOPES)

    # --- keys ------------------------------------------------------------------------------------

    def _key(self, key_id: str) -> _Key | None:
        if self._clock() - self._fetched_at > _KEYS_LAST_S:
            return None
        if not key_id and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    def _fetch(self) -> None:
        """Fetch the issuer's keys, unless that was tried a moment ago; one thread at a time."""
        with self._fetching:
            if self._clock() - self._tried_at < _FETCH_EVERY_S:
                return
            self._tried_at = self._clock()
            try:
                fetched = _usable_keys(_get_json(self._jwks_url()))
            except (OSError, ValueError, KeyError, TypeError):
                return  # the keys so far serve on for a while
            if fetched:
                self._keys, self._fetched_at = fetched, self._clock()

    def _jwks_url(self) -> str:
        if self._settings.jwks_url:
            return self._settings.jwks_url
        issuer = urlsplit(self._settings.issuer)
        path = issuer.path.rstrip("/")
        base = f"{issuer.scheme}://{issuer.netloc}"
        for well_known in (
            f"{base}/.well-known/oauth-authorization-server{path}",
            f"{base}{path}/.well-known/openid-configuration",
        ):
            try:
                found = _get_json(well_known)
            except (OSError, ValueError):
                continue
            if found.get("issuer") == self._settings.issuer:
                url = str(found["jwks_uri"])
                _demand_https(url)
                return url
        raise ValueError("the issuer has no metadata")


def _usable_keys(jwks: dict[str, Any]) -> dict[str, _Key]:
    """The public keys for signatures, by id; whatever else is there is not for us."""
    found: dict[str, _Key] = {}
    for raw in cast(list[dict[str, Any]], [key for key in jwks["keys"] if isinstance(key, dict)])[:_MOST_KEYS]:
        algorithms = _ALGORITHMS.get(raw.get("kty", ""), ())
        if raw.get("alg"):
            algorithms = tuple(name for name in algorithms if name == raw["alg"])
        if not algorithms or raw.get("use", "sig") != "sig" or "d" in raw:
            continue
        try:
            found[str(raw.get("kid", ""))] = _Key(jwt.PyJWK(raw, algorithms[0] if raw.get("alg") else None), algorithms)
        except jwt.PyJWTError:
            continue
    return found


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Follow nobody: what the operator wrote down is what is asked."""


def _get_json(url: str) -> dict[str, Any]:
    """A JSON object, within limits on time and size."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)
    until = time.monotonic() + _FETCH_S
    body = b""
    with opener.open(url, timeout=_FETCH_S) as reply:
        while piece := reply.read1(_MOST_BYTES + 1):
            body += piece
            if len(body) > _MOST_BYTES:
                raise ValueError(f"{url}: too long")
            if time.monotonic() > until:
                raise TimeoutError(f"{url}: too slow")
    found: object = json.loads(body)
    if not isinstance(found, dict):
        raise ValueError(f"{url}: no object")  # noqa: TRY004 - what the issuer sent, not what a caller passed
    return cast(dict[str, Any], found)


def _demand_https(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        return
    raise InvalidArgument(f"{url}: the issuer's keys need https", hint="http is for issuers on loopback only.")
