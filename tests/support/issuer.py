"""An OAuth issuer on loopback: the SDK's authorization server (registration, PKCE, codes), with tokens that are JWTs.

What it serves as its keys can be changed while it runs, and it can be slow, endless or gone, as a real one may be.
"""

import asyncio
import secrets
import threading
import time
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Any

import jwt
import uvicorn
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

KEY_ID = "key-1"
SUBJECT = "alice"
PRIVATE_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def public_jwk(key: rsa.RSAPrivateKey = PRIVATE_KEY, **more: Any) -> dict[str, Any]:
    """The public half of a key, as a JWKS has it."""
    return {**RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": KEY_ID, "use": "sig", **more}


class _Provider:
    """The part of an authorization server that is an application's own: whom it lets in, and what its tokens say."""

    def __init__(self, issuer: "LoopbackIssuer") -> None:
        self._issuer = issuer
        self._clients: dict[str, OAuthClientInformationFull] = {}
        self._codes: dict[str, AuthorizationCode] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self._clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        assert client_info.client_id
        self._clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = AuthorizationCode(
            code=secrets.token_urlsafe(20),
            scopes=[scope for scope in params.scopes or [] if scope == "read"],  # all that the person grants
            expires_at=time.time() + 60,
            client_id=client.client_id or "",
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self._codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        del client
        return self._codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del client
        scope = " ".join(authorization_code.scopes)
        token = self._issuer.token(aud=authorization_code.resource, scope=scope)
        return OAuthToken(access_token=token, token_type="Bearer", expires_in=300, scope=scope)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        del client, refresh_token
        return None

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        raise NotImplementedError

    async def load_access_token(self, token: str) -> AccessToken | None:
        del token
        return None

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        del token


class LoopbackIssuer:
    """The issuer, in a thread."""

    def __init__(self) -> None:
        self.keys: list[dict[str, Any]] = [public_jwk()]
        self.manner = "usual"  # or slow, endless, gone, redirecting
        self.fetched = 0
        config = uvicorn.Config(
            self._application, host="127.0.0.1", port=0, log_level="critical", ws="none", interface="asgi3"
        )
        self._server = uvicorn.Server(config)
        self._routes: Starlette | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
            self._ended.wait(0.01)
        self.base = f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"
        self.url = f"{self.base}/"
        options = ClientRegistrationOptions(
            enabled=True, valid_scopes=["read", "write", "exec"], default_scopes=["read"]
        )
        provider: Any = _Provider(self)
        routes = create_auth_routes(provider, AnyHttpUrl(self.url), client_registration_options=options)
        self._routes = Starlette(routes=[*routes, Route("/jwks", self._jwks)])

    def __enter__(self) -> "LoopbackIssuer":
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self._ended.set()
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()

    async def _application(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        assert self._routes is not None
        await self._routes(scope, receive, send)

    async def _jwks(self, request: Request) -> Response:
        del request
        self.fetched += 1
        if self.manner == "gone":
            return Response(status_code=503)
        if self.manner == "redirecting":
            return Response(status_code=302, headers={"location": f"{self.base}/elsewhere"})
        if self.manner in ("slow", "endless"):
            return StreamingResponse(self._drip(), media_type="application/json")
        return JSONResponse({"keys": self.keys})

    async def _drip(self) -> AsyncGenerator[bytes]:
        yield b'{"keys": ['
        while not self._ended.is_set():
            yield b" " * (1 if self.manner == "slow" else 65_536)
            await asyncio.sleep(0.05 if self.manner == "slow" else 0)

    def token(self, key: Any = PRIVATE_KEY, *, algorithm: str = "RS256", headers: Any = None, **claims: Any) -> str:
        """An access token; a claim that is None is left out."""
        now = int(time.time())
        all_claims = {"iss": self.url, "sub": SUBJECT, "iat": now, "exp": now + 300, "scope": "read", **claims}
        payload = {name: value for name, value in all_claims.items() if value is not None}
        return jwt.encode(payload, key, algorithm=algorithm, headers={"kid": KEY_ID, **(headers or {})})
