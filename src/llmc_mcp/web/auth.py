"""Authentication of HTTP clients: tokens, their scopes, and sign-in for browsers.

The operator's own token comes from the environment, or is created once in the data directory, readable by its owner
only. Further tokens have names, scopes, tools and an expiry (`llmc token create`); only their hashes are stored. What
`llmc token` changes counts from the next request on. A token is sent in a header, never in a URL, and is compared with
every valid token in constant time. A browser signs in with the token or by a link that works once.
"""

import hmac
import os
import secrets
import time
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from ..config.schema import Auth
from ..errors import InvalidArgument, LlmcError, NotFound
from ..permissions.tokens import ANONYMOUS, OWNER, SCOPES, STAMP, StoredToken, TokenTable, digest

COOKIE = "llmc_session"

_OWN_FILE = "token"
_FORMER_FILE = "tokens.json"  # where named tokens were before the store had them
_BYTES = 32
_SHORT = 16  # characters; a shorter token can be guessed
SIGNED_IN_S = 12 * 3600.0
_MOST_SIGNED_IN = 200
_LINK_S = 600.0
_MOST_LINKS = 16


class Principal(NamedTuple):
    """An authenticated client. `tools`: those that its token names, or all; `until`: when it ends, 0: never."""

    name: str
    scopes: frozenset[str]
    by_cookie: bool = False
    tools: tuple[str, ...] = ()
    until: float = 0.0
    digest: bytes = b""  # of the token


class Tokens:
    """The tokens of a server: its operator's own, and the named ones currently stored."""

    def __init__(
        self,
        own: Mapping[str, Principal],
        table: TokenTable | None = None,
        data_dir: str = "",
        *,
        anonymous: bool = False,
        own_file: bool = False,
    ) -> None:
        self._own, self._table, self._data_dir, self._own_file = dict(own), table, data_dir, own_file
        self._named: dict[str, Principal] = {}
        self._read_at: object = None  # stamp of the files when they were last read
        self._signed_in: dict[bytes, tuple[Principal, float]] = {}
        self._links: dict[bytes, float] = {}
        self._anonymous = Principal(ANONYMOUS, frozenset(SCOPES)) if anonymous else None

    def _valid(self) -> dict[str, Principal]:
        """The currently valid tokens: what `llmc token` does takes effect without a restart. Costs a few stats."""
        if self._table is not None:
            stamp = [_stamp(path) for path in self._watched()]
            if stamp != self._read_at:
                self._named = self._read_table(self._table)
                if self._own_file:
                    own = read_secret(os.path.join(self._data_dir, _OWN_FILE))
                    self._own = {OWNER: _owner(own)} if own else {}
                self._read_at = stamp
        now = time.time()
        return {name: one for name, one in {**self._own, **self._named}.items() if not one.until or now < one.until}

    def _watched(self) -> tuple[str, ...]:
        names = (STAMP, _OWN_FILE) if self._own_file else (STAMP,)
        return tuple(os.path.join(self._data_dir, name) for name in names)

    @staticmethod
    def _read_table(table: TokenTable) -> dict[str, Principal]:
        """The named tokens that a running server accepts; none if the store can't be read."""
        try:
            return {
                kept.name: Principal(kept.name, frozenset(kept.scopes), False, kept.tools, kept.expires_at, kept.digest)
                for kept in table.list()
            }
        except (LlmcError, ValueError):
            return {}

    def principal(self, token: str | None) -> Principal | None:
        """The client that a token belongs to. Takes as long for an invalid token as for a valid one."""
        if token is None:
            return self._anonymous
        presented, found = digest(token), None
        for candidate in self._valid().values():
            if hmac.compare_digest(presented, candidate.digest):
                found = candidate
        return found

    def is_current(self, principal: Principal) -> bool:
        """Whether a client that was admitted would be admitted now."""
        if not principal.digest:
            return not principal.until or time.time() < principal.until
        now = self._valid().get(principal.name)
        return now is not None and now.digest == principal.digest

    # --- browsers --------------------------------------------------------------------------------

    def sign_in(self, principal: Principal) -> str:
        """Create a cookie for a browser; if there are too many, the oldest is dropped."""
        now = time.monotonic()
        self._signed_in = {key: kept for key, kept in self._signed_in.items() if kept[1] > now}
        while len(self._signed_in) >= _MOST_SIGNED_IN:
            self._signed_in.pop(next(iter(self._signed_in)))
        cookie = secrets.token_urlsafe(_BYTES)
        self._signed_in[digest(cookie)] = (principal, now + SIGNED_IN_S)
        return cookie

    def signed_in(self, cookie: str) -> Principal | None:
        """The client that a cookie belongs to; a cookie is invalid once its token is removed."""
        principal, until = self._signed_in.get(digest(cookie), (None, 0.0))
        if principal is None or until <= time.monotonic() or not self.is_current(principal):
            return None
        return (self._valid().get(principal.name) or principal)._replace(by_cookie=True)

    def signed_in_as(self, name: str, token: bytes) -> Principal | None:
        """The client of that name who signed in with the token of this hash, as long as that is its token."""
        principal = self._valid().get(name)
        if principal is None or not hmac.compare_digest(principal.digest, token):
            return None
        return principal._replace(by_cookie=True)

    def sign_out(self, cookie: str) -> None:
        """Invalidate a cookie."""
        self._signed_in.pop(digest(cookie), None)

    def login_code(self) -> str:
        """A code that signs a browser in as the operator: once, within ten minutes. In memory only."""
        now = time.monotonic()
        self._links = {key: until for key, until in self._links.items() if until > now}
        while len(self._links) >= _MOST_LINKS:
            self._links.pop(next(iter(self._links)))
        code = secrets.token_urlsafe(_BYTES)
        self._links[digest(code)] = now + _LINK_S
        return code

    def use_code(self, code: str) -> Principal | None:
        """Whom a code signs in; it is used up."""
        until = self._links.pop(digest(code), 0.0)
        return self._valid().get(OWNER) if until > time.monotonic() else None


class IssuedTokens(NamedTuple):
    """The tokens in force, the operator's own token and its source, and warnings."""

    tokens: Tokens
    owners: str | None
    source: str
    notices: list[str]


def issue(
    settings: Auth, host: str, data_dir: str, environ: Mapping[str, str], *, has_issuer: bool = False
) -> IssuedTokens:
    """Collect the tokens at start-up; refuse to start a server that anybody on the network could use."""
    table = open_table(data_dir)
    given = environ.get(settings.token_env, "").strip()
    loopback = is_loopback(host)
    if not loopback and not given and not has_issuer and not table.list():
        raise InvalidArgument(
            f"no token, and {host} is not a loopback address: anybody on the network could call this server",
            hint=f"Set {settings.token_env} (openssl rand -hex 32), or run llmc token create NAME, or use 127.0.0.1.",
        )
    if settings.allow_unauthenticated and not loopback:
        raise InvalidArgument(
            f"mcp.auth.allow_unauthenticated is for loopback addresses only, and {host} is not one",
            hint="Remove it from the configuration, and give clients a token.",
        )
    if settings.allow_unauthenticated:
        notices = ["mcp.auth.allow_unauthenticated: any program on this machine may call every tool"]
        return IssuedTokens(Tokens({}, table, data_dir, anonymous=True), None, "none", notices)
    if given:
        notices = [f"the token in {settings.token_env} is short enough to be guessed"] if len(given) < _SHORT else []
        tokens = Tokens({OWNER: _owner(given)}, table, data_dir)
        return IssuedTokens(tokens, given, f"environment variable {settings.token_env}", notices)
    if loopback:
        own, source = kept_secret(data_dir, _OWN_FILE), os.path.join(data_dir, _OWN_FILE)
        return IssuedTokens(Tokens({OWNER: _owner(own)}, table, data_dir, own_file=True), own, source, [])
    return IssuedTokens(Tokens({}, table, data_dir), None, "named tokens", [])


def _owner(token: str) -> Principal:
    return Principal(OWNER, frozenset(SCOPES), digest=digest(token))


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


def read_secret(path: str) -> str:
    """A secret as it is now; empty if there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return ""
    try:
        return os.read(fd, 200).decode("ascii", "replace").strip()
    finally:
        os.close(fd)


def _stamp(path: str) -> object:
    """A value that changes with a file, which is always replaced as a whole."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_ino, info.st_mtime_ns, info.st_size


# --- the tokens of a data directory ----------------------------------------------------------------------------------


def open_table(data_dir: str) -> TokenTable:
    """The table of named tokens; those of a former version's file are moved into it first."""
    from ..store.sqlite import SqliteStore

    store = SqliteStore(data_dir)
    table = TokenTable(lambda: store)
    _adopt_former(data_dir, table)
    return table


class _FormerToken(msgspec.Struct):
    sha256: str
    scopes: tuple[str, ...]
    created: float


def _adopt_former(data_dir: str, table: TokenTable) -> None:
    path = os.path.join(data_dir, _FORMER_FILE)
    try:
        with open(path, "rb") as file:
            kept = msgspec.json.decode(file.read(), type=dict[str, _FormerToken])
        for name, token in kept.items():
            if name != OWNER and all(name != one.name for one in table.list()):
                hashed = bytes.fromhex(token.sha256)
                table.put(StoredToken(name, hashed, token.scopes, (), token.created, 0.0))
        os.unlink(path)
    except FileNotFoundError:
        return
    except (OSError, ValueError, msgspec.DecodeError) as exc:
        raise InvalidArgument(f"{path}: {exc}", hint="Move the file away and create the tokens again.") from None


def rotate_owner(data_dir: str) -> str:
    """Replace the operator's own token; running servers accept the new one, and only that, from now on."""
    path = os.path.join(data_dir, _OWN_FILE)
    fresh = f"{path}.{os.getpid()}"
    token = secrets.token_urlsafe(_BYTES)
    os.makedirs(data_dir, mode=0o700, exist_ok=True)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(f"{token}\n")
    os.replace(fresh, path)
    return token


def revoke_owner(data_dir: str) -> None:
    """Remove the operator's own token; the next start of a server makes another one."""
    try:
        os.unlink(os.path.join(data_dir, _OWN_FILE))
    except FileNotFoundError:
        raise NotFound("there is no token of the operator's own", hint="llmc token list") from None
