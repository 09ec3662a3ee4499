"""The outermost ASGI application: checks every request and adds headers to every reply.

It checks Host and Origin (a web page that the user happens to visit must not reach the server), the token and the
content type. Only then it reads the body, within limits on size and time. It cancels the call of a client that
disconnects, adds the correlation id, writes a log line, counts metrics and renders errors. The routes behind it receive
admitted requests only.
"""

import asyncio
import contextlib
import ipaddress
import re
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from ..config.schema import Config
from ..errors import AuthFailed, Cancelled, Forbidden, Internal, LlmcError, ShuttingDown, Timeout, TooLarge
from ..gate.dispatch import Gate
from ..gate.log import correlation_id
from ..protocol.lanes import RunningCall
from ..session import Session
from .auth import COOKIE, Principal, Tokens, is_loopback
from .drain import RETRY_AFTER, Drain
from .metrics import Metrics
from .oauth import METADATA, Issuer
from .replica_claims import CALL_PATH, HEADER, Verifier
from .replies import error_reply, refusal
from .threads import DisconnectWatch

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

TARGET_HOST = "target_host"  # in the state of a request whose request line holds a whole URL: the host that it names
_PROBES = frozenset({"/health", "/ready"})
OPEN_ROUTES = frozenset({*_PROBES, "/login", METADATA, f"{METADATA}/mcp"})
_REVOKED_EVERY_S = 0.5  # how often requests under way are checked for a token that was revoked
_PAGES = "/ui"  # for people: forms are accepted
_OPEN_BODY = 4 << 10  # bytes of a body on a route without authentication: enough for a token
_BODILESS = frozenset({"GET", "HEAD", "OPTIONS"})
_FORM = "application/x-www-form-urlencoded"
_SANE_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
_STAMPS = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; form-action 'self'"),
]


class RequestCaller(NamedTuple):
    """The sender of a request; routes find it in `scope["state"]`."""

    principal: Principal | None
    correlation_id: str
    config: Config
    running: RunningCall  # the call that it makes

    def session(self, session_id: str) -> Session:
        """The session of a call that this request makes."""
        if self.principal is None:
            raise AuthFailed("no token")
        defaults = self.config.session
        return Session(
            self.principal.name,
            session_id,
            defaults.default_agent_id,
            defaults.default_model,
            self.principal.scopes,
            limited=True,
            budget_profile=defaults.default_budget_profile,
            tools=self.principal.tools,
        )


class SharedParts(NamedTuple):
    """What the guard has in common with routes behind it; of a server that is no replica, the drain alone."""

    drain: Drain
    verifier: Verifier | None = None


class Guard:
    """The application that wraps all others."""

    def __init__(
        self,
        app: App,
        gate: Gate,
        tokens: Tokens,
        metrics: Metrics,
        routes: Iterable[str],
        issuer: Issuer | None = None,
        end_streams: Callable[[], None] = lambda: None,
        shared: SharedParts | None = None,
    ) -> None:
        config = gate.app.config
        self.end_streams = end_streams  # a server that stops does not wait for what never ends by itself
        shared = shared or SharedParts(Drain())
        self._issuer, self.drain = issuer, shared.drain
        self._verifier = shared.verifier
        self._under_way: dict[int, tuple[Principal, RunningCall, asyncio.Task[None] | None]] = {}
        self._watching: asyncio.Task[None] | None = None
        self._app, self._gate, self._tokens, self._metrics = app, gate, tokens, metrics
        self._config = config
        self._hosts = Hosts(config.server.host, config.server.allowed_hosts, config.server.allowed_origins)
        self._token_header = config.auth.header.lower().encode("latin-1", "replace")
        self._routes = frozenset(routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http" and scope["path"] in _PROBES:
            await self._handle(scope, receive, send)
        elif scope["type"] == "http":
            with self.drain.counted():
                await self._handle(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        scope.setdefault("state", {})
        headers: dict[bytes, bytes] = {}
        for name, value in reversed(scope["headers"]):  # the first of a name counts
            headers[name] = value
        exchange = _Exchange(scope, send, _chosen_id(headers.get(b"x-correlation-id")), self.drain)
        principal: Principal | None = None
        try:
            if scope["path"] not in _PROBES:
                self.drain.refuse_if_closed()
            principal = await self._admit(scope, headers)
            caller = RequestCaller(principal, exchange.correlation_id, self._config, RunningCall())
            scope["state"]["caller"] = caller
            body = await self._body(scope, headers, receive)
            scope["state"]["body"] = body
            with DisconnectWatch(receive, caller.running), self._revocable(principal, caller.running):
                await self._app(scope, _replay(body, receive), exchange.send)
        except _SignInFirst as exc:
            await exchange.redirect(exc.location)
        except LlmcError as exc:
            extra: dict[str, str] = {}
            if isinstance(exc, AuthFailed):
                self._metrics.auth_failed()
                extra = self._challenge(scope, headers)
            if isinstance(exc, ShuttingDown):
                extra = RETRY_AFTER
            await exchange.fail(exc, extra)
        except asyncio.CancelledError:  # the server is stopping and the grace period is over
            if principal is not None and not self._tokens.is_current(principal):
                await exchange.fail(AuthFailed("the token was revoked, or has expired"))
                return
            await exchange.fail(Timeout("the server is stopping, and the call took too long to wait for"))
        except ConnectionError:
            pass  # the client disconnected while sending
        except Exception:
            self._gate.log.exception("request_failed", route=self._route(scope), cid=exchange.correlation_id)
            await exchange.fail(Internal("the request failed unexpectedly"))
        finally:
            self._observe(scope, exchange, principal, time.perf_counter() - started)

    def _observe(self, scope: Scope, exchange: "_Exchange", principal: Principal | None, seconds: float) -> None:
        route = self._route(scope)
        status = exchange.status or Cancelled.http_status
        self._metrics.requested(route, scope["method"], status, seconds)
        self._gate.log.info(
            "http",
            route=route,
            method=scope["method"][:16],
            status=status,
            ms=round(seconds * 1000, 2),
            principal=principal.name if principal else None,
            cid=exchange.correlation_id,
        )

    def _route(self, scope: Scope) -> str:
        """The route for logs and metrics; paths that do not exist are all 'other', whatever a client sends."""
        return scope["path"] if scope["path"] in self._routes else "other"

    # --- admission -------------------------------------------------------------------------

    async def _admit(self, scope: Scope, headers: dict[bytes, bytes]) -> Principal | None:
        if self._verifier is not None and scope["path"] == CALL_PATH:
            return self._admit_replica(self._verifier, scope, headers)
        own_page = self._hosts.check(_host(scope, headers), _origin(headers))
        principal = await self._principal(scope, headers)
        if principal is None and scope["path"] not in OPEN_ROUTES:
            if _is_browser(scope, headers):
                raise _SignInFirst(scope["path"])
            raise AuthFailed(
                "missing or invalid token",
                hint=f"Send it in {self._config.auth.header}, or as Authorization: Bearer.",
            )
        if scope["method"] in _BODILESS:
            return principal
        if principal is not None and principal.by_cookie and not own_page:
            raise Forbidden("a signed-in browser may only send requests of the server's own pages")
        if scope["method"] != "DELETE" or _announces_body(headers):  # without a body it has no type
            _check_content(headers, form=(scope["path"] == "/login" or _is_page(scope["path"])) and own_page)
        return principal

    def _admit_replica(self, verifier: Verifier, scope: Scope, headers: dict[bytes, bytes]) -> Principal:
        """Whose call another replica forwards. No Host is checked: it calls by the address that it knows."""
        if scope["method"] != "POST":
            raise refusal(405, "this route does not allow this method")
        claims = verifier.verified(headers.get(HEADER.encode(), b"").decode("latin-1"))
        scope["state"]["forwarded"] = claims
        _check_content(headers, form=False)
        session = claims.session
        return Principal(session.principal, session.scopes or frozenset(), tools=session.tools)

    async def _principal(self, scope: Scope, headers: dict[bytes, bytes]) -> Principal | None:
        presented = headers.get(self._token_header)
        if presented is None:
            scheme, _, rest = headers.get(b"authorization", b"").partition(b" ")
            presented = rest.strip() if scheme.lower() == b"bearer" else None
        if presented is None and (cookie := _cookie(headers.get(b"cookie"))) is not None:
            if self._tokens.knows(cookie):
                return self._tokens.signed_in(cookie)
            return await asyncio.to_thread(self._tokens.signed_in, cookie)
        token = None if presented is None else presented.decode("latin-1")
        principal = self._tokens.principal(token)
        if principal is None and token is not None and self._issuer is not None:
            named = self._hosts.is_own(headers.get(b"host", b""), scope.get("server"))
            principal = await self._issuer.principal(token, base_url(scope) if named else "")
        return principal

    def _challenge(self, scope: Scope, headers: dict[bytes, bytes]) -> dict[str, str]:
        """What tells a client where access tokens come from (RFC 9728); nothing for a server without an issuer."""
        if self._issuer is None or b"host" not in headers:
            return {}
        error = ', error="invalid_token"' if b"authorization" in headers else ""
        metadata = f"{base_url(scope)}{METADATA}/mcp"
        return {"www-authenticate": f'Bearer realm="llmc"{error}, resource_metadata="{metadata}"'}

    # --- revocation ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _revocable(self, principal: Principal | None, running: RunningCall) -> Generator[None]:
        """End a request under way once its token is revoked or has expired, an open stream too."""
        if principal is None:
            yield
            return
        key = id(running)
        self._under_way[key] = principal, running, asyncio.current_task()
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            self._under_way.pop(key, None)

    async def _watch(self) -> None:
        while self._under_way:
            await asyncio.sleep(_REVOKED_EVERY_S)
            for principal, running, task in list(self._under_way.values()):
                if not self._tokens.is_current(principal):
                    running.cancel()
                    if task is not None:
                        task.cancel()

    # --- the body --------------------------------------------------------------------------------

    async def _body(self, scope: Scope, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        limits = self._config.limits
        is_open = scope["path"] in OPEN_ROUTES
        most = min(_OPEN_BODY, limits.max_request_bytes) if is_open else limits.max_request_bytes
        if not headers.get(b"content-length", b"0").isdigit():
            raise refusal(400, "Content-Length must be a number")
        if int(headers.get(b"content-length", b"0")) > most:
            raise _too_large(most, is_open)
        if scope["method"] in _BODILESS and b"transfer-encoding" not in headers and b"content-length" not in headers:
            return b""
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(limits.receive_timeout):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ConnectionError
                    size += len(message.get("body", b""))
                    if size > most:
                        raise _too_large(most, is_open)
                    parts.append(message.get("body", b""))
                    more = message.get("more_body", False)
        except TimeoutError:
            error = Timeout(f"the body did not arrive within {limits.receive_timeout:g} s")
            error.http_status = 408
            raise error from None
        return b"".join(parts)


class _Exchange:
    """One reply: adds the headers that every reply carries, remembers the status, and never replies twice."""

    def __init__(self, scope: Scope, send: Send, correlation_id: str, drain: Drain) -> None:
        self._scope, self._send, self.correlation_id, self._drain = scope, send, correlation_id, drain
        self.status = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = {name.lower() for name, _ in message.get("headers", [])}
            stamps = [(name, value) for name, value in _STAMPS if name not in own]
            if self._drain.has_begun and b"connection" not in own:
                stamps.append((b"connection", b"close"))  # its next request finds a server that stays
            message["headers"] = [
                *message.get("headers", []),
                (b"x-correlation-id", self.correlation_id.encode()),
                *stamps,
            ]
        await self._send(message)

    async def redirect(self, location: str) -> None:
        headers = [(b"location", location.encode("ascii", "replace")), (b"content-length", b"0")]
        await self.send({"type": "http.response.start", "status": 303, "headers": headers})
        await self.send({"type": "http.response.body", "body": b""})

    async def fail(self, error: LlmcError, extra: Mapping[str, str] | None = None) -> None:
        if self.status:  # the reply has begun; nothing is left but closing the connection
            return
        # The rest of the body is not read, so the connection can't be used again.
        announced = {name for name, _ in self._scope["headers"]} & {b"content-length", b"transfer-encoding"}
        has_body = announced or self._scope["method"] not in _BODILESS
        close = {**(extra or {}), **({"connection": "close"} if has_body else {})}
        status, headers, body = error_reply(error, self.correlation_id, close)
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})


class _SignInFirst(Exception):
    """A browser has to sign in before it sees a page."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.location = f"/login?next={quote(path, safe='/')}"


class Hosts:
    """The host names that the server accepts, and the web pages that may call it."""

    def __init__(self, host: str, allowed_hosts: Iterable[str], allowed_origins: Iterable[str]) -> None:
        self._loopback = is_loopback(host)
        self._host, self._listed = host.lower(), {name.lower() for name in allowed_hosts}
        self._names = {"localhost", self._host, *self._listed}
        self._origins = {origin.lower().rstrip("/") for origin in allowed_origins}

    def check(self, host: bytes | None, origin: bytes | None) -> bool:
        """Refuse requests from pages of other sites; return whether our own or an allowed page sent the request."""
        named = (host or b"").decode("latin-1").lower()
        name = _without_port(named)
        if not name or not (name in self._names or self._is_address(name)):
            raise Forbidden(
                "the Host header names another server", hint="The operator may allow it: mcp.server.allowed_hosts."
            )
        if origin is None:
            return False
        page = origin.decode("latin-1").lower()
        if page not in self._origins and urlsplit(page).netloc != named:
            raise Forbidden(
                "a page of another site may not call this server",
                hint="The operator may allow it: mcp.server.allowed_origins.",
            )
        return True

    def is_own(self, host: bytes, server: tuple[str, int | None] | None) -> bool:
        """Whether a host is how this very server is reached: a listed name, or the address a request came in on.

        Any other may be that of another server, whose tokens are not for us.
        """
        named = host.decode("latin-1").lower()
        name = _without_port(named)
        if name in self._listed:
            return True
        if server is None or named.rpartition(":")[2] != str(server[1]):
            return False
        return name in (self._host, server[0]) or (name == "localhost" and is_loopback(server[0]))

    def _is_address(self, name: str) -> bool:
        """Whether it is an acceptable IP address, which unlike a name can't be rebound; on loopback, a loopback one."""
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not self._loopback


def _host(scope: Scope, headers: dict[bytes, bytes]) -> bytes | None:
    """The server that a request is for. Two answers to that are refused: a proxy in front may have read the other."""
    host = headers.get(b"host")
    if sum(name == b"host" for name, _ in scope["headers"]) > 1:
        raise refusal(400, "there is more than one Host header")
    target: bytes | None = scope["state"].get(TARGET_HOST)
    if target is not None and target.lower() != (host or b"").lower():
        raise refusal(400, "the URL in the request line names another server than the Host header")
    return host


def _is_page(path: str) -> bool:
    return path == _PAGES or path.startswith(f"{_PAGES}/")


def _origin(headers: dict[bytes, bytes]) -> bytes | None:
    """The page that sent a request. A browser that keeps it to itself (null) still says if it was one of ours.

    No page can set Sec-Fetch-Site itself.
    """
    origin = headers.get(b"origin")
    if origin == b"null" and headers.get(b"sec-fetch-site") == b"same-origin" and b"host" in headers:
        return b"http://" + headers[b"host"]
    return origin


def _is_browser(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    """Whether somebody opened a page, as opposed to a program that calls the API."""
    return scope["method"] in ("GET", "HEAD") and b"text/html" in headers.get(b"accept", b"")


def base_url(scope: Scope) -> str:
    """The URL that a request was sent to; its host has been checked. A proxy in front is where TLS ends."""
    headers = dict(reversed(scope["headers"]))
    scheme = "https" if headers.get(b"x-forwarded-proto", b"").lower() == b"https" else scope.get("scheme", "http")
    return f"{scheme}://{headers.get(b'host', b'').decode('latin-1')}"


def _announces_body(headers: dict[bytes, bytes]) -> bool:
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def _check_content(headers: dict[bytes, bytes], *, form: bool) -> None:
    kind, _, parameters = headers.get(b"content-type", b"").decode("latin-1").lower().partition(";")
    if kind.strip() != "application/json" and not (form and kind.strip() == _FORM):
        raise refusal(415, "the body must be JSON", "Send Content-Type: application/json.")
    charset = re.search(r'charset\s*=\s*"?([^\s";]+)', parameters) if parameters else None
    if charset is not None and charset[1] not in ("utf-8", "utf8", "us-ascii"):
        raise refusal(415, "the body must be UTF-8")
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise refusal(415, "the body must not be compressed")


def _cookie(header: bytes | None) -> str | None:
    if header is None:
        return None
    try:
        found = SimpleCookie(header.decode("latin-1")).get(COOKIE)
    except CookieError:
        return None
    return found.value if found is not None else None


def _chosen_id(header: bytes | None) -> str:
    chosen = (header or b"").decode("latin-1")
    return chosen if _SANE_ID.fullmatch(chosen) else correlation_id()


def _too_large(limit: int, is_open: bool) -> TooLarge:
    hint = "A longer body needs a token." if is_open else "The limit is mcp.limits.max_request_bytes."
    return TooLarge(f"the request is longer than {limit:,} bytes", hint=hint)


def _replay(body: bytes, receive: Receive) -> Receive:
    """A receive function that returns the body already read, then the messages of the connection."""
    replayed = False

    async def replay() -> Message:
        nonlocal replayed
        if replayed:
            return await receive()
        replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
