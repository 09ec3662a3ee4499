"""Access tokens of an issuer: a real client finds it, gets a token, and calls what the token says it may."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2 as httpx
import pytest
from mcp.client import Client as SdkClient
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl

from ..support.client import PATIENCE
from ..support.http_server import OPEN_HANDED, HttpServer
from ..support.issuer import SUBJECT, LoopbackIssuer
from ..support.talk import eventually
from ..support.workspace import Workspace

CALL = {"name": "stat", "args": {"path": "a.txt"}}
REDIRECT = "http://127.0.0.1:1/callback"


@pytest.fixture(scope="module")
def issuer() -> Iterator[LoopbackIssuer]:
    with LoopbackIssuer() as made:
        yield made


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("oauth-data")


@pytest.fixture(scope="module")
def served(issuer: LoopbackIssuer, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    workspace = Workspace(tmp_path_factory.mktemp("oauth"))
    workspace.file("a.txt", "hello\n")
    rules = json.dumps([{"subject": SUBJECT, "path": "denied.txt", "do": "deny"}])
    settings = (f"oauth.issuer={issuer.url}", f"oauth.jwks_url={issuer.base}/jwks", f"policy.rules={rules}")
    arguments = [word for setting in settings for word in ("--set", setting)]
    with HttpServer(workspace.root, *OPEN_HANDED, *arguments, env={"LLMC_DATA_DIR": str(data)}) as server:
        yield server


class Kept:
    """The client's storage."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


def test_the_sdks_client_finds_the_issuer_signs_in_and_calls(served: HttpServer) -> None:
    answers: list[dict[str, list[str]]] = []

    async def follow(url: str) -> None:
        async with httpx.AsyncClient(timeout=PATIENCE, trust_env=False) as browser:
            reply = await browser.get(url)
        answers.append(parse_qs(urlsplit(reply.headers["location"]).query))

    async def answer() -> AuthorizationCodeResult:
        return AuthorizationCodeResult(code=answers[-1]["code"][0], state=answers[-1]["state"][0])

    async def converse() -> str:
        metadata = OAuthClientMetadata(redirect_uris=[AnyUrl(REDIRECT)], client_name="test", scope="read")
        auth = OAuthClientProvider(f"{served.url}/mcp", metadata, Kept(), follow, answer)
        async with (
            httpx.AsyncClient(auth=auth, timeout=PATIENCE, trust_env=False) as http,
            SdkClient(streamable_http_client(f"{served.url}/mcp", http_client=http)) as client,
        ):
            listed = {tool.name for tool in (await client.list_tools()).tools}
            assert "read_file" in listed
            assert "run_cmd" not in listed
            result: Any = await client.call_tool("read_file", {"path": "a.txt"})
            return result.content[0].text

    assert "hello" in anyio.run(converse)
    assert len(answers) == 1


def call(served: HttpServer, token: str, body: dict[str, Any] = CALL) -> httpx.Response:
    with served.client("") as client:
        return client.post("/tool", json=body, headers={"authorization": f"Bearer {token}"})


def test_a_refusal_says_where_tokens_come_from(served: HttpServer, issuer: LoopbackIssuer) -> None:
    with served.client("") as client:
        refused = client.post("/mcp", json={})
        assert refused.status_code == 401
        challenge = refused.headers["www-authenticate"]
        metadata = challenge.partition('resource_metadata="')[2].rstrip('"')
        assert metadata == f"{served.url}/.well-known/oauth-protected-resource/mcp"
        for url in (metadata, f"{served.url}/.well-known/oauth-protected-resource"):
            said = client.get(url).json()
            assert said["resource"] == f"{served.url}/mcp"
            assert said["authorization_servers"] == [issuer.url]
        assert 'error="invalid_token"' in call(served, "a.b.c").headers["www-authenticate"]


def test_without_an_issuer_there_is_no_metadata(workspace: Workspace) -> None:
    with HttpServer(workspace.root) as server, server.client("") as client:
        assert client.get("/.well-known/oauth-protected-resource").status_code == 404
        assert "resource_metadata" not in client.post("/mcp", json={}).headers["www-authenticate"]


def test_scopes_of_the_token_are_what_it_may_do(served: HttpServer, issuer: LoopbackIssuer) -> None:
    audience = f"{served.url}/mcp"
    write = {"name": "linux_fs_write", "args": {"path": "new.txt", "content": "x"}}
    assert call(served, issuer.token(aud=audience)).status_code == 200
    assert call(served, issuer.token(aud=audience), write).status_code == 403
    assert call(served, issuer.token(aud=audience, scope="write"), write).status_code == 200
    assert call(served, issuer.token(aud=audience, scope=None, scp=["read"])).status_code == 200
    assert call(served, issuer.token(aud=[audience, "other"])).status_code == 200
    for scope in ("", "admin2 root", "READ"):
        assert call(served, issuer.token(aud=audience, scope=scope)).status_code == 403


def test_a_token_for_another_server_is_refused_whatever_host_the_request_names(
    served: HttpServer, issuer: LoopbackIssuer
) -> None:
    own = urlsplit(served.url)
    with served.client("") as client:

        def status(host: str, **headers: str) -> int:
            token = issuer.token(aud=f"{headers.get('x-forwarded-proto', 'http')}://{host}/mcp")
            sent = {"host": host, "authorization": f"Bearer {token}", **headers}
            return client.post("/tool", json=CALL, headers=sent).status_code

        assert status(own.netloc) == status(f"localhost:{own.port}") == 200
        for host in ("localhost", "localhost:1", "127.0.0.1:1", f"127.0.0.2:{own.port}", f"[::1]:{own.port}"):
            assert status(host) == 401, host
        assert status("localhost", **{"x-forwarded-proto": "https"}) == 401


def test_rules_records_and_handles_are_by_subject(served: HttpServer, issuer: LoopbackIssuer, data: Path) -> None:
    alice, bob = (issuer.token(aud=f"{served.url}/mcp", sub=name, scope="read write") for name in (SUBJECT, "bob"))
    read = {"name": "stat", "args": {"path": "denied.txt"}}
    assert call(served, alice, read).json()["code"] == "PERMISSION_DENIED"
    assert call(served, bob, read).json()["code"] == "NOT_FOUND"
    assert call(served, bob, {"name": "linux_fs_write", "args": {"path": "b.txt", "content": "x"}}).status_code == 200
    assert eventually(lambda: any(event.get("principal") == "sub:bob" for event in served.events))

    def written() -> str:
        return "".join(path.read_text() for path in data.glob("audit/*") if path.is_file())

    assert eventually(lambda: "sub:bob" in written())


def test_scopes_of_an_issuer_are_mapped_and_its_keys_are_found(workspace: Workspace, issuer: LoopbackIssuer) -> None:
    from llmc_mcp.config.schema import OAuth
    from llmc_mcp.web.oauth import Issuer

    settings = OAuth(
        issuer.url,
        f"{issuer.base}/jwks",
        resource="https://mcp.example/mcp",
        audience="llmc",
        scopes={"tools:use": "read exec"},
    )
    made = Issuer(settings)
    assert made.metadata("http://127.0.0.1")["resource"] == "https://mcp.example/mcp"
    token = issuer.token(aud="llmc", scope="tools:use read")
    principal = anyio.run(made.principal, token, "http://127.0.0.1")
    assert principal is not None
    assert principal.scopes == {"read", "exec"}
    assert principal.name == "sub:alice"
    assert anyio.run(made.principal, issuer.token(aud="https://mcp.example/mcp"), "http://127.0.0.1") is None
