"""F21 to F32: attacks on who a caller is: access tokens of an issuer, its keys, sign-in of browsers."""

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import anyio
import jwt
import pytest
from cryptography.hazmat.primitives import serialization

from llmc_mcp.config.schema import OAuth
from llmc_mcp.errors import InvalidArgument
from llmc_mcp.permissions.tokens import SCOPES, digest
from llmc_mcp.store.sqlite import SqliteStore
from llmc_mcp.web.auth import Principal, Tokens
from llmc_mcp.web.oauth import Issuer

from ..support.http_server import OPEN_HANDED, TOKEN, HttpServer
from ..support.issuer import KEY_ID, OTHER_KEY, PRIVATE_KEY, LoopbackIssuer, public_jwk
from ..support.workspace import Workspace

BASE = "http://127.0.0.1:8080"
AUDIENCE = f"{BASE}/mcp"
CALL = {"name": "stat", "args": {"path": "."}}


class Clock:
    """A clock that tests move."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def issuer() -> Iterator[LoopbackIssuer]:
    with LoopbackIssuer() as made:
        yield made


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def checked(issuer: LoopbackIssuer, clock: Clock) -> Issuer:
    return Issuer(OAuth(issuer.url, f"{issuer.base}/jwks"), clock)


def admitted(checked: Issuer, token: str) -> Principal | None:
    return anyio.run(checked.principal, token, BASE)


def encoded(part: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", None, "nOnE", ["RS256"], 7])
def test_f21_a_token_that_nobody_signed_is_refused(issuer: LoopbackIssuer, checked: Issuer, algorithm: Any) -> None:
    good = issuer.token(aud=AUDIENCE)
    assert admitted(checked, good) is not None
    _, claims, signature = good.split(".")
    head = encoded({"alg": algorithm, "kid": KEY_ID, "typ": "JWT"})
    for forged in (f"{head}.{claims}.", f"{head}.{claims}.{signature}", f"{head}.{claims}"):
        assert admitted(checked, forged) is None


@pytest.mark.parametrize(
    "audience", ["https://other.example/mcp", BASE, f"{AUDIENCE}/", "", None, [], ["x"], AUDIENCE.upper()]
)
def test_f22_a_token_for_another_server_is_refused(issuer: LoopbackIssuer, checked: Issuer, audience: Any) -> None:
    """Otherwise whoever runs another server could use what its clients send it here."""
    assert admitted(checked, issuer.token(aud=audience)) is None


def test_f23_a_public_key_is_no_secret_to_sign_with(issuer: LoopbackIssuer, checked: Issuer) -> None:
    public = PRIVATE_KEY.public_key()
    forms = (
        public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo),
        json.dumps(public_jwk()).encode(),
        public_jwk()["n"].encode(),
    )
    import hashlib
    import hmac

    for secret in forms:
        for algorithm, function in (("HS256", hashlib.sha256), ("HS512", hashlib.sha512)):
            claims = encoded({"iss": issuer.url, "sub": "x", "aud": AUDIENCE, "exp": time.time() + 60, "scope": "exec"})
            signed = f"{encoded({'alg': algorithm, 'kid': KEY_ID})}.{claims}"
            signature = base64.urlsafe_b64encode(hmac.new(secret, signed.encode(), function).digest()).rstrip(b"=")
            assert admitted(checked, f"{signed}.{signature.decode()}") is None
    issuer.keys = [{"kty": "oct", "kid": KEY_ID, "k": encoded("x")}]
    assert admitted(Issuer(OAuth(issuer.url, f"{issuer.base}/jwks")), jwt.encode({}, "x" * 64, "HS256")) is None


def test_f24_a_token_outside_of_its_time_is_refused(issuer: LoopbackIssuer, checked: Issuer) -> None:
    now = time.time()
    claims: list[dict[str, Any]] = [
        {"exp": now - 60},
        {"exp": None},
        {"nbf": now + 600},
        {"exp": "soon"},
        {"iat": now + 9e4},
    ]
    for wrong in claims:
        assert admitted(checked, issuer.token(aud=AUDIENCE, **wrong)) is None, wrong


def test_f25_a_key_that_the_issuer_gave_up_counts_no_longer(
    issuer: LoopbackIssuer, checked: Issuer, clock: Clock
) -> None:
    old = issuer.token(aud=AUDIENCE)
    assert admitted(checked, old) is not None
    issuer.keys = [public_jwk(OTHER_KEY, kid="key-2")]
    clock.now += 31
    fresh = issuer.token(OTHER_KEY, headers={"kid": "key-2"}, aud=AUDIENCE)
    assert admitted(checked, fresh) is not None  # an unknown key id has the keys fetched again
    assert admitted(checked, old) is None


def test_f26_a_slow_issuer_holds_nobody_up(workspace: Workspace, issuer: LoopbackIssuer) -> None:
    issuer.manner = "slow"
    settings = ("--set", f"oauth.issuer={issuer.url}", "--set", f"oauth.jwks_url={issuer.base}/jwks")
    with HttpServer(workspace.root, *OPEN_HANDED, *settings) as server:
        from concurrent.futures import ThreadPoolExecutor

        token = issuer.token(aud=f"{server.url}/mcp")
        with ThreadPoolExecutor(4) as pool, server.client(token) as client:
            waiting = [pool.submit(lambda: client.post("/tool", json=CALL)) for _ in range(4)]
            assert server.tool("stat", path=".").status_code == 200
            assert not all(one.done() for one in waiting)
            assert {one.result().status_code for one in waiting} == {401}
        assert issuer.fetched == 1


@pytest.mark.parametrize("manner", ["endless", "redirecting", "gone"])
def test_f27_an_issuer_without_usable_keys_admits_nobody(issuer: LoopbackIssuer, checked: Issuer, manner: str) -> None:
    issuer.manner = manner
    assert admitted(checked, issuer.token(aud=AUDIENCE)) is None
    issuer.manner = "usual"
    useless: list[Any] = [
        [],
        [{}],
        [{"kty": "RSA"}],
        [{"kty": "RSA", "n": "x", "e": 7}],
        ["x"],
        [public_jwk(use="enc")],
    ]
    for keys in useless:
        issuer.keys = keys
        fresh = Issuer(OAuth(issuer.url, f"{issuer.base}/jwks"))
        assert admitted(fresh, issuer.token(aud=AUDIENCE)) is None, keys


def test_f28_keys_outlive_an_issuer_that_is_gone_for_an_hour_at_most(
    issuer: LoopbackIssuer, checked: Issuer, clock: Clock
) -> None:
    assert admitted(checked, issuer.token(aud=AUDIENCE)) is not None
    issuer.manner = "gone"
    clock.now += 3000
    assert admitted(checked, issuer.token(aud=AUDIENCE)) is not None
    clock.now += 3000
    assert admitted(checked, issuer.token(aud=AUDIENCE)) is None
    issuer.manner = "usual"
    clock.now += 31
    assert admitted(checked, issuer.token(aud=AUDIENCE)) is not None


def test_f29_nothing_that_a_tokens_header_points_to_is_fetched_or_trusted(
    issuer: LoopbackIssuer, checked: Issuer
) -> None:
    own = public_jwk(OTHER_KEY)
    for header in (
        *({"jwk": own}, {"jku": f"{issuer.base}/evil"}, {"x5u": f"{issuer.base}/evil"}, {"kid": "../../evil"}),
        *({"crit": ["b64"], "b64": False}, {"kid": "' OR 1"}),
    ):
        assert admitted(checked, issuer.token(OTHER_KEY, headers=header, aud=AUDIENCE)) is None
    crit = issuer.token(headers={"crit": ["unknown"], "unknown": 1}, aud=AUDIENCE)
    assert admitted(checked, crit) is None
    for number in range(20):
        assert admitted(checked, issuer.token(headers={"kid": f"made-up-{number}"}, aud=AUDIENCE)) is None
    assert issuer.fetched == 1


@pytest.mark.parametrize("subject", ["", None, 7, "a\nb", "x" * 1000, "\x1b[2K"])
def test_f30_a_subject_is_a_plain_word_and_never_one_of_ours(
    issuer: LoopbackIssuer, checked: Issuer, subject: Any
) -> None:
    claims: list[dict[str, Any]] = [
        {"sub": subject},
        {"iss": "http://127.0.0.1:1/"},
        {"iss": None},
        {"iss": issuer.base},
    ]
    for wrong in claims:
        assert admitted(checked, issuer.token(aud=AUDIENCE, **wrong)) is None
    for name in ("owner", "uid:0", "anonymous", "sub:alice"):
        principal = admitted(checked, issuer.token(aud=AUDIENCE, sub=name, scope="admin2"))
        assert principal is not None
        assert principal.name == f"sub:{name}"
        assert principal.scopes == frozenset()


@pytest.mark.parametrize("url", ["http://issuer.example/", "ftp://127.0.0.1/", "file:///etc/passwd", "//127.0.0.1/"])
def test_f31_keys_come_over_a_safe_way_only(url: str) -> None:
    with pytest.raises(InvalidArgument, match="https"):
        Issuer(OAuth(url))
    with pytest.raises(InvalidArgument, match="https"):
        Issuer(OAuth("https://issuer.example", url))


def test_f32_sign_in_takes_no_foreign_form_no_used_link_and_leads_nowhere_else(workspace: Workspace) -> None:
    store = SqliteStore(str(workspace.root.parent / "data"))
    tokens = Tokens({"owner": Principal("owner", frozenset(SCOPES), digest=digest("x"))}, store)
    code = tokens.login_code()
    assert [tokens.use_code(code) is not None for _ in range(3)] == [True, False, False]
    with HttpServer(workspace.root, *OPEN_HANDED) as server, server.client("") as browser:
        fields = {"token": TOKEN, "next": "//evil.test"}
        for headers in (
            {"origin": "null"},
            {"origin": "null", "sec-fetch-site": "cross-site"},
            {"origin": "null", "sec-fetch-site": "same-site"},
            {"origin": "http://evil.test", "sec-fetch-site": "same-origin"},
        ):
            assert browser.post("/login", data=fields, headers=headers).status_code == 403
        own = browser.post("/login", data=fields, headers={"origin": "null", "sec-fetch-site": "same-origin"})
        assert (own.status_code, own.headers["location"]) == (303, "/ui")
        browser.cookies.clear()
        assert browser.get("/login", params={"code": TOKEN}).status_code == 200
        assert browser.get("/docs", params={"token": TOKEN}).status_code == 401
