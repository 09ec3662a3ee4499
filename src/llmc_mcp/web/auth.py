"""Authentication of HTTP clients: tokens, their scopes, and sign-in for browsers.

The operator's own token comes from the environment, or is created once in the data directory, readable by its owner
only. Further tokens have names and scopes (`llmc token add`); only their hashes are stored. A token is sent in a
header, never in a URL, and is compared with every valid token in constant time.
"""

import hashlib
import hmac
import os
import re
import secrets
import time
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from ..config.schema import Auth
from ..errors import InvalidArgument, LlmcError, NotFound

SCOPES = ("read", "write", "exec", "admin")
OWNER = "owner"
ANONYMOUS = "anonymous"
COOKIE = "llmc_session"

_OWN_FILE = "token"
_NAMED_FILE = "tokens.json"
_BYTES = 32
_SHORT = 16  # characters; a shorter token can be guessed
_SIGNED_IN_S = 12 * 3600.0
_MOST_SIGNED_IN = 200
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")


class Principal(NamedTuple):
    """An authenticated client."""

    name: str
    scopes: frozenset[str]
    by_cookie: bool = False


_Credential = tuple[bytes, frozenset[str]]  # the hash of a token, and its scopes


class NamedToken(msgspec.Struct):
    """A token as it is stored."""

    sha256: str
    scopes: tuple[str, ...]
    created: float


class Tokens:
    """The tokens of a server: those it started with, and the named ones currently stored."""

    def __init__(self, own: Mapping[str, _Credential], data_dir: str | None = None, *, anonymous: bool = False) -> None:
        self._own, self._data_dir = dict(own), data_dir
        self._named: dict[str, _Credential] = {}
        self._read_at: object = None  # stamp of the file when it was last read
        self._signed_in: dict[bytes, tuple[str, bytes, float]] = {}
        self._anonymous = Principal(ANONYMOUS, frozenset(SCOPES)) if anonymous else None

    def _valid(self) -> dict[str, _Credential]:
        """The currently valid tokens: `llmc token add` and `remove` take effect without a restart. Costs one stat."""
        if self._data_dir is not None:
            stamp = _stamp(self._data_dir)
            if stamp != self._read_at:
                self._named = _named(self._data_dir)
                self._read_at = stamp
        return {**self._own, **self._named}

    def principal(self, token: str | None) -> Principal | None:
        """The client that a token belongs to. Takes as long for an invalid token as for a valid one."""
        if token is None:
            return self._anonymous
        presented, found = _digest(token), None
        for name, (digest, scopes) in self._valid().items():
            if hmac.compare_digest(presented, digest):
                found = Principal(name, scopes)
        return found

    def sign_in(self, principal: Principal) -> str:
        """Create a cookie for a browser; if there are too many, the oldest is dropped."""
        now = time.monotonic()
        self._signed_in = {key: kept for key, kept in self._signed_in.items() if kept[2] > now}
        while len(self._signed_in) >= _MOST_SIGNED_IN:
            self._signed_in.pop(next(iter(self._signed_in)))
        cookie = secrets.token_urlsafe(_BYTES)
        token = self._valid().get(principal.name, (b"", frozenset()))[0]
        self._signed_in[_digest(cookie)] = (principal.name, token, now + _SIGNED_IN_S)
        return cookie

    def signed_in(self, cookie: str) -> Principal | None:
        """The client that a cookie belongs to; a cookie is invalid once its token is removed."""
        name, token, until = self._signed_in.get(_digest(cookie), ("", b"", 0.0))
        credential = self._valid().get(name)
        if credential is None or credential[0] != token or until <= time.monotonic():
            return None
        return Principal(name, credential[1], by_cookie=True)

    def sign_out(self, cookie: str) -> None:
        """Invalidate a cookie."""
        self._signed_in.pop(_digest(cookie), None)


class IssuedTokens(NamedTuple):
    """The tokens in force, the operator's own token and its source, and warnings."""

    tokens: Tokens
    owners: str | None
    source: str
    notices: list[str]


def issue(settings: Auth, host: str, data_dir: str, environ: Mapping[str, str]) -> IssuedTokens:
    """Collect the tokens at start-up; refuse to start a server that anybody on the network could use."""
    named = stored(data_dir)
    given = environ.get(settings.token_env, "").strip()
    loopback = is_loopback(host)
    if not loopback and not given and not named:
        raise InvalidArgument(
            f"no token, and {host} is not a loopback address: anybody on the network could call this server",
            hint=f"Set {settings.token_env} (openssl rand -hex 32), or run llmc token add NAME, or use 127.0.0.1.",
        )
    if settings.allow_unauthenticated and not loopback:
        raise InvalidArgument(
            f"mcp.auth.allow_unauthenticated is for loopback addresses only, and {host} is not one",
            hint="Remove it from the configuration, and give clients a token.",
        )
    if settings.allow_unauthenticated:
        notices = ["mcp.auth.allow_unauthenticated: any program on this machine may call every tool"]
        return IssuedTokens(Tokens({}, data_dir, anonymous=True), None, "none", notices)
    if given:
        notices = [f"the token in {settings.token_env} is short enough to be guessed"] if len(given) < _SHORT else []
        own, source = given, f"environment variable {settings.token_env}"
    elif loopback:
        notices = []
        own, source = kept_secret(data_dir, _OWN_FILE), os.path.join(data_dir, _OWN_FILE)
    else:
        return IssuedTokens(Tokens({}, data_dir), None, "named tokens", [])
    return IssuedTokens(Tokens({OWNER: (_digest(own), frozenset(SCOPES))}, data_dir), own, source, notices)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    import ipaddress

    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def kept_secret(data_dir: str, name: str) -> str:
    """A secret in the data directory, created on the first start; concurrent first starts agree on one."""
    path = os.path.join(data_dir, name)
    try:
        _make_secret(path)
    except OSError as exc:
        raise InvalidArgument(
            f"{path}: can't be written: {(exc.strerror or str(exc)).lower()}",
            hint=f"Make {data_dir} writable, or set LLMC_DATA_DIR to another folder.",
        ) from None
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if os.fstat(fd).st_mode & 0o077:
            os.fchmod(fd, 0o600)
        secret = os.read(fd, 200).decode("ascii", "replace").strip()
    finally:
        os.close(fd)
    if len(secret) < _SHORT:
        raise InvalidArgument(f"{path} holds no secret", hint="Delete the file; the next start creates a new one.")
    return secret


def _make_secret(path: str) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    fresh = f"{path}.{os.getpid()}"
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(f"{secrets.token_urlsafe(_BYTES)}\n")
    try:
        os.link(fresh, path)  # atomic, and never replaces an existing file
    except FileExistsError:
        pass
    finally:
        os.unlink(fresh)


# --- named tokens --------------------------------------------------------------------------------------------------


def stored(data_dir: str) -> dict[str, NamedToken]:
    """The named tokens in the data directory."""
    path = os.path.join(data_dir, _NAMED_FILE)
    try:
        with open(path, "rb") as file:
            kept = msgspec.json.decode(file.read(), type=dict[str, NamedToken])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as exc:
        raise InvalidArgument(f"{path}: {exc}", hint="Move the file away and add the tokens again.") from None
    return {name: token for name, token in kept.items() if name != OWNER}


def _stamp(data_dir: str) -> object:
    """A value that changes with the file, which is always replaced as a whole."""
    try:
        info = os.stat(os.path.join(data_dir, _NAMED_FILE))
    except OSError:
        return None
    return info.st_ino, info.st_mtime_ns, info.st_size


def _named(data_dir: str) -> dict[str, _Credential]:
    """The named tokens that a running server accepts; none if the file can't be read."""
    try:
        kept = stored(data_dir)
        return {name: (bytes.fromhex(token.sha256), frozenset(token.scopes)) for name, token in kept.items()}
    except (LlmcError, ValueError):
        return {}


def add(data_dir: str, name: str, scopes: tuple[str, ...]) -> str:
    """Create a named token; only its hash is stored."""
    if not _NAME.fullmatch(name) or name in (OWNER, ANONYMOUS):
        raise InvalidArgument(f"{name!r} is not a valid name for a token", hint="Lower case letters, digits, - and _.")
    if not scopes or set(scopes) - set(SCOPES):
        raise InvalidArgument(f"unknown scopes in {','.join(scopes)!r}", hint=f"Scopes: {', '.join(SCOPES)}.")
    tokens = stored(data_dir)
    if name in tokens:
        raise InvalidArgument(f"there is a token {name} already", hint=f"llmc token remove {name}")
    token = secrets.token_urlsafe(_BYTES)
    _store(data_dir, {**tokens, name: NamedToken(_digest(token).hex(), scopes, time.time())})
    return token


def remove(data_dir: str, name: str) -> None:
    """Remove a named token; no server accepts it from now on."""
    tokens = stored(data_dir)
    if name not in tokens:
        raise NotFound(f"there is no token {name!r}", hint="llmc token list")
    _store(data_dir, {other: token for other, token in tokens.items() if other != name})


def _store(data_dir: str, tokens: dict[str, NamedToken]) -> None:
    path = os.path.join(data_dir, _NAMED_FILE)
    fresh = f"{path}.{os.getpid()}"
    try:
        os.makedirs(data_dir, mode=0o700, exist_ok=True)
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(tokens)))
        os.replace(fresh, path)
    except OSError as exc:
        raise LlmcError(f"{path}: {exc.strerror}") from None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
