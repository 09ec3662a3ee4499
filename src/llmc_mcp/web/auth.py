"""Authentication of HTTP clients: tokens, their scopes, and sign-in for browsers.

The operator's own token comes from the environment, or is created once in the data directory, readable by its owner
only. Further tokens have names, scopes, tools and an expiry (`llmc token create`); only their hashes are stored. What
`llmc token` changes counts from the next request on. A token is sent in a header, never in a URL, and is compared with
every valid token in constant time. A browser signs in with the token or by a link that works once; servers that share
a store share its cookies.
"""

import hmac
import os
import secrets
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ..config.schema import Auth
from ..errors import FeatureUnavailable, InvalidArgument, LlmcError, NotFound
from ..permissions.sign_ins import TOPIC, SignIn, SignIns
from ..permissions.tokens import ANONYMOUS, OWNER, OWNERS, SCOPES, StoredToken, TokenTable, digest
from ..store.data_dir import stamp_of
from ..store.opening import SQLITE, open_store

if TYPE_CHECKING:
    from ..store.base import Following, Store

COOKIE = "llmc_session"

_OWN_FILE = "token"
_FORMER_FILE = "tokens.json"  # where named tokens were before the store had them
_BYTES = 32
_SHORT = 16  # characters; a shorter token can be guessed
_MOST_REMEMBERED = 1_000  # cookies
_TRUSTED_S = 900.0  # how long a server accepts stored tokens without having reached a shared store


class Principal(NamedTuple):
    """An authenticated client. `tools`: those that its token names, or all; `until`: when it ends, 0: never."""

    name: str
    scopes: frozenset[str]
    by_cookie: bool = False
    tools: tuple[str, ...] = ()
    until: float = 0.0
    digest: bytes = b""  # of the token


class Tokens:
    """The tokens of a server: its operator's own, and those currently in the store.

    They are in memory. With SQLite a request costs a few stats, to see whether something changed; with PostgreSQL
    `follow` hears of it. A server that has not reached the database for a while accepts what it knew, then its own
    token alone: it would not hear of a token that is revoked.
    """

    def __init__(
        self,
        own: Mapping[str, Principal],
        store: "Store | None" = None,
        *,
        anonymous: bool = False,
        own_file: bool = False,
    ) -> None:
        self._own, self._store, self._own_file = dict(own), store, own_file
        self._table = TokenTable(lambda: store) if store is not None else None
        self._sign_ins = SignIns(lambda: store) if store is not None else None
        self._stored: list[Principal] = []
        self._read_at: object = None  # stamp of the files when they were last read
        self._ahead_s = 0.0  # of our clock: that of the store
        self._cookies: dict[str, tuple[SignIn, float]] = {}  # those seen lately, and until when they count
        self._following: Following | None = None
        self._anonymous = Principal(ANONYMOUS, frozenset(SCOPES)) if anonymous else None

    # --- what the store says ---------------------------------------------------------------------

    def follow(self) -> None:
        """Hear of changes from now on, where other data directories share the store."""
        if self._store is not None and self._store.is_shared:
            self.refresh()
            self._following = self._store.follow(TOPIC, self.refresh)

    def close(self) -> None:
        """Follow no longer."""
        if self._following is not None:
            self._following.close()

    def refresh(self) -> None:
        """Read all tokens again, and forget which cookies were valid; raises LlmcError where that can't be done."""
        if self._store is None or self._table is None or self._sign_ins is None:
            return
        stored = [_stored(kept) for kept in self._table.list()]
        self._ahead_s = self._store.now() - time.time()
        self._sign_ins.refresh()
        self._stored, self._cookies = stored, {}

    def _valid(self) -> list[Principal]:
        """The currently valid tokens: what `llmc token` does takes effect without a restart."""
        if self._store is not None and not self._store.is_shared:
            self._look(self._store.data_dir)
        stored = self._stored
        if self._following is not None and time.monotonic() - self._following.heard_at > _TRUSTED_S:
            stored = []
        now = time.time() + self._ahead_s
        return [one for one in (*self._own.values(), *stored) if not one.until or now < one.until]

    def _look(self, data_dir: str) -> None:
        """Read tokens again if the files in the data directory say that they changed."""
        names = (stamp_of(data_dir, TOPIC), *((os.path.join(data_dir, _OWN_FILE),) if self._own_file else ()))
        stamp = [_stamp(path) for path in names]
        if stamp == self._read_at:
            return
        try:
            self.refresh()
        except (LlmcError, ValueError):  # none, if the store can't be read
            self._stored, self._cookies = [], {}
        if self._own_file:
            own = read_secret(os.path.join(data_dir, _OWN_FILE))
            self._own = {OWNER: _owner(own)} if own else {}
        self._read_at = stamp

    # --- programs --------------------------------------------------------------------------------

    def principal(self, token: str | None) -> Principal | None:
        """The client that a token belongs to. Takes as long for an invalid token as for a valid one."""
        if token is None:
            return self._anonymous
        presented, found = digest(token), None
        for candidate in self._valid():
            if hmac.compare_digest(presented, candidate.digest):
                found = candidate
        return found

    def is_current(self, principal: Principal) -> bool:
        """Whether a client that was admitted would be admitted now."""
        if not principal.digest:
            return not principal.until or time.time() < principal.until
        return self._current(principal.name, principal.digest) is not None

    def _current(self, name: str, token: bytes) -> Principal | None:
        return next((one for one in self._valid() if one.name == name and one.digest == token), None)

    # --- browsers --------------------------------------------------------------------------------

    def sign_in(self, principal: Principal) -> str:
        """Create a cookie for a browser."""
        return self._browsers().cookie(principal.name, principal.digest)

    def knows(self, cookie: str) -> bool:
        """Whether `signed_in` answers from memory; if not, it asks the store, which may take a while."""
        self._valid()  # forgets cookies if something changed
        return cookie in self._cookies or not self._browsers().is_ours(cookie)

    def signed_in(self, cookie: str) -> Principal | None:
        """The client that a cookie belongs to; a cookie is invalid once its token is removed."""
        self._valid()
        cookies = self._cookies  # what is read from here on is forgotten with them, if something changes meanwhile
        kept = cookies.get(cookie)
        if kept is None:
            found = self._browsers().find(cookie)
            if found is None:
                return None
            if len(cookies) >= _MOST_REMEMBERED:
                cookies.clear()
            kept = cookies[cookie] = found, time.monotonic() + found.lasts_s
        sign_in, until = kept
        current = self._current(sign_in.principal, sign_in.token) if time.monotonic() < until else None
        return None if current is None else current._replace(by_cookie=True)

    def sign_out(self, cookie: str) -> None:
        """Invalidate a cookie, here and on all servers of the store."""
        self._browsers().end(cookie)
        self._cookies.pop(cookie, None)

    def login_code(self) -> str:
        """A code that signs a browser in as the operator: once, within ten minutes."""
        owner = next((one for one in self._valid() if one.name == OWNER), None)
        return self._browsers().link(OWNER, owner.digest if owner else b"")

    def use_code(self, code: str) -> Principal | None:
        """Whom a code signs in; it is used up."""
        found = self._browsers().use(code)
        return None if found is None else self._current(found.principal, found.token)

    def sign_all_out(self) -> None:
        """Invalidate every cookie and every link."""
        self._browsers().end_all()

    def _browsers(self) -> SignIns:
        if self._sign_ins is None:
            raise FeatureUnavailable("without a store nobody signs in")
        return self._sign_ins


def _stored(kept: StoredToken) -> Principal:
    name = OWNER if kept.name.startswith(OWNERS) else kept.name
    return Principal(name, frozenset(kept.scopes), False, kept.tools, kept.expires_at, kept.digest)


class IssuedTokens(NamedTuple):
    """The tokens in force, the operator's own token and its source, and warnings."""

    tokens: Tokens
    owners: str | None
    source: str
    notices: list[str]


def issue(
    settings: Auth,
    host: str,
    data_dir: str,
    environ: Mapping[str, str],
    *,
    has_issuer: bool = False,
    store: "Store | None" = None,
) -> IssuedTokens:
    """Collect the tokens at start-up; refuse to start a server that anybody on the network could use."""
    store = store or open_store(SQLITE, data_dir)
    table = _table_in(store)
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
        return IssuedTokens(Tokens({}, store, anonymous=True), None, "none", notices)
    if given:
        notices = [f"the token in {settings.token_env} is short enough to be guessed"] if len(given) < _SHORT else []
        tokens = Tokens({OWNER: _owner(given)}, store)
        return IssuedTokens(tokens, given, f"environment variable {settings.token_env}", notices)
    if loopback:
        own, source = kept_secret(data_dir, _OWN_FILE), os.path.join(data_dir, _OWN_FILE)
        if store.is_shared:  # by its row it counts on all servers, and any of them can revoke it
            table.replace_owner("", own)
            return IssuedTokens(Tokens({}, store), own, source, [])
        return IssuedTokens(Tokens({OWNER: _owner(own)}, store, own_file=True), own, source, [])
    return IssuedTokens(Tokens({}, store), None, "named tokens", [])


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


def open_table(data_dir: str, url: str = SQLITE) -> TokenTable:
    """The table of named tokens; those of a former version's file are moved into it first."""
    return _table_in(open_store(url, data_dir))


def _table_in(store: "Store") -> TokenTable:
    table = TokenTable(lambda: store)
    _adopt_former(store.data_dir, table)
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


def rotate_owner(data_dir: str, table: TokenTable | None = None) -> str:
    """Replace the operator's own token; running servers accept the new one, and only that, from now on."""
    path = os.path.join(data_dir, _OWN_FILE)
    former, fresh = read_secret(path), f"{path}.{os.getpid()}"
    token = secrets.token_urlsafe(_BYTES)
    os.makedirs(data_dir, mode=0o700, exist_ok=True)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(f"{token}\n")
    if table is not None:
        table.replace_owner(former, token)
    os.replace(fresh, path)
    return token


def revoke_owner(data_dir: str, table: TokenTable | None = None) -> None:
    """Remove the operator's own token; the next start of a server makes another one."""
    path = os.path.join(data_dir, _OWN_FILE)
    if table is not None and (former := read_secret(path)):
        table.replace_owner(former, "")
    try:
        os.unlink(path)
    except FileNotFoundError:
        raise NotFound("there is no token of the operator's own", hint="llmc token list") from None
