"""What one replica says to another when it forwards a call, signed: whose call it is, and that it is this very call.

The signature is an HMAC with the key of the replica that is called, which it makes at its start and shows in the store.
So claims are for one replica only, and what was recorded is worth nothing after its next start. Within `WINDOW_S` of
the store's clock, each is taken once. A reply is signed as well: an address may be another server's by now.
"""

import base64
import hashlib
import hmac
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from ..errors import AuthFailed, RateLimited
from ..session import Session
from .replies import refusal

CALL_PATH = "/replica/call"
HEADER, PROOF = "x-llmc-forwarded", "x-llmc-proof"
WINDOW_S = 30.0
_LONGEST = 12_000  # characters of the header
_REMEMBERED = 200_000  # nonces: more calls than any replica answers within the window
_NONCE = 32  # characters
_MISDIRECTED = 421


class Claims(msgspec.Struct, frozen=True):
    """The content of the header."""

    to: str  # the id of the replica that is called
    at: float  # by the store's clock
    nonce: str
    body: str  # sha256 of the request's body
    session: Session  # whose call it is, with its scopes
    agreed: bool  # whether a person agreed to it where it came in
    correlation_id: str


def claims_for(replica: str, now: float, body: bytes, session: Session, correlation_id: str, agreed: bool) -> Claims:
    """The claims about a call."""
    return Claims(replica, now, secrets.token_hex(_NONCE // 2), digest(body), session, agreed, correlation_id)


def digest(body: bytes) -> str:
    """The hash of a body."""
    return hashlib.sha256(body).hexdigest()


def signed(claims: Claims, key: str) -> str:
    """The value of the header."""
    encoded = base64.urlsafe_b64encode(msgspec.json.encode(claims)).decode()
    return f"{encoded}.{_signature(key, 'call', CALL_PATH, encoded)}"


def proof(key: str, nonce: str, status: int, body: bytes) -> str:
    """The signature of a reply."""
    return _signature(key, "reply", nonce, str(status), digest(body))


def proves(value: str, key: str, nonce: str, status: int, body: bytes) -> bool:
    """Whether a reply comes from the replica that was called, and answers this call."""
    return hmac.compare_digest(value.encode("utf-8", "replace"), proof(key, nonce, status, body).encode())


class Verifier:
    """Checks what is forwarded to one replica; belongs to the event loop."""

    def __init__(self, own_id: str, key: str, clock: Callable[[], float]) -> None:
        self._id, self._key, self._clock = own_id, key, clock
        self._lock = threading.Lock()
        self._seen: OrderedDict[str, float] = OrderedDict()  # nonces, the oldest first

    def verified(self, header: str) -> Claims:
        """The claims of a header; whatever is wrong with one that is not signed, its sender hears the same."""
        encoded, _, signature = header.partition(".")
        expected = _signature(self._key, "call", CALL_PATH, encoded)
        if len(header) > _LONGEST or not hmac.compare_digest(signature.encode("utf-8", "replace"), expected.encode()):
            if _named(encoded) not in ("", self._id):
                raise refusal(_MISDIRECTED, "this call is for another replica")
            raise AuthFailed("a forwarded call must be signed by a replica")
        try:
            claims = msgspec.json.decode(base64.urlsafe_b64decode(encoded), type=Claims)
        except (msgspec.DecodeError, ValueError):
            raise AuthFailed("a forwarded call must be signed by a replica") from None
        if len(claims.nonce) != _NONCE or claims.session.scopes is None:  # None would be everything
            raise AuthFailed("a forwarded call must be signed by a replica")
        if claims.to != self._id:
            raise refusal(_MISDIRECTED, "this call is for another replica")
        if abs(self._clock() - claims.at) > WINDOW_S:
            raise AuthFailed("the forwarded call is too old, or from the future")
        self._take(claims.nonce)
        return claims

    def _take(self, nonce: str) -> None:
        with self._lock:
            now = self._clock()
            while self._seen and next(iter(self._seen.values())) < now - 2 * WINDOW_S:
                self._seen.popitem(last=False)
            if nonce in self._seen:
                raise AuthFailed("this call was forwarded already")
            if len(self._seen) >= _REMEMBERED:
                raise RateLimited("too many calls are forwarded to this replica", retry_after=WINDOW_S)
            self._seen[nonce] = now


def _named(encoded: str) -> str:
    """The replica that unverified claims name; only to tell a lost call from a forged one."""
    try:
        return str(msgspec.json.decode(base64.urlsafe_b64decode(encoded))["to"])
    except (msgspec.DecodeError, ValueError, KeyError, TypeError):
        return ""


def _signature(key: str, *parts: str) -> str:
    return hmac.new(key.encode(), "\n".join(parts).encode("utf-8", "replace"), hashlib.sha256).hexdigest()
