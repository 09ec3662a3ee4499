"""What nobody thought of: schemathesis makes requests from our own OpenAPI document, hypothesis makes bytes."""

import json
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import httpx2 as httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ..support.http_server import OPEN_HANDED, TOKEN, HttpServer
from ..support.workspace import Workspace

SCHEMATHESIS: Any = import_module("schemathesis")  # whose types are incomplete

QUIET = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
    derandomize=True,
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    workspace = Workspace(tmp_path_factory.mktemp("fuzz"))
    workspace.file("a.txt", "hello\n")
    with HttpServer(workspace.root, *OPEN_HANDED, "--log-level", "warning") as server:
        yield server


ROUTES = ["/health", "/ready", "/tool", "/invoke_agent", "/rag/search", "/rag/bootload", "/metrics"]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.filterwarnings("ignore")
def test_no_request_breaks_the_server_or_its_own_document(served: HttpServer, route: str) -> None:
    with served.client() as client:
        document: Any = SCHEMATHESIS.openapi.from_dict(client.get("/openapi.json").json())
    operations = {found.ok().path: found.ok() for found in document.get_all_operations()}
    assert operations.keys() == set(ROUTES)

    @QUIET
    @given(case=operations[route].as_strategy())
    def send(case: Any) -> None:
        response = case.call(base_url=served.url, headers={"X-LLMC-Token": TOKEN})
        assert response.status_code < 500 or response.json()["code"] == "FEATURE_UNAVAILABLE", response.text
        case.validate_response(response, checks=_conformance())

    send()


def _conformance() -> list[Any]:
    checks: Any = import_module("schemathesis.specs.openapi.checks")
    return [checks.response_schema_conformance, checks.content_type_conformance, checks.status_code_conformance]


PATHS = st.sampled_from(["/tool", "/mcp", "/invoke_agent", "/rag/search", "/rag/bootload", "/login", "/health", "/x"])
METHODS = st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(
    ["content-type", "accept", "mcp-protocol-version", "mcp-session-id", "x-correlation-id", "expect"]
)
HEADER_TEXT = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=40)


def acceptable(reply: httpx.Response) -> bool:
    """Served, or refused in a way that a client can read."""
    if reply.status_code >= 500:
        return reply.json().get("code") == "FEATURE_UNAVAILABLE"
    return bool(reply.headers.get("x-correlation-id"))


@QUIET
@given(
    method=METHODS, path=PATHS, body=st.binary(max_size=200), headers=st.dictionaries(NAMES, HEADER_TEXT, max_size=3)
)
def test_any_bytes_and_headers_are_answered(
    served: HttpServer, method: str, path: str, body: bytes, headers: dict[str, str]
) -> None:
    raw = {name.encode(): text.strip().encode("latin-1") for name, text in headers.items() if name != "expect"}
    with served.client() as client:
        assert acceptable(client.request(method, path, content=body, headers=raw))


@QUIET
@given(path=PATHS, body=JSON)
def test_any_json_is_answered(served: HttpServer, path: str, body: Any) -> None:
    with served.client() as client:
        content = json.dumps(body).encode("utf-8", "surrogatepass")
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        assert acceptable(client.post(path, content=content, headers=headers))


@QUIET
@given(name=st.text(max_size=30), arguments=st.dictionaries(st.text(max_size=12), JSON, max_size=4))
def test_any_call_is_answered_over_rest_and_mcp(served: HttpServer, name: str, arguments: dict[str, Any]) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    headers = {"content-type": "application/json", "accept": "application/json"}
    with served.client() as client:
        for path, body in (("/tool", {"name": name, "args": arguments}), ("/mcp", message)):
            assert acceptable(client.post(path, content=json.dumps(body).encode(), headers=headers))


@QUIET
@given(pieces=st.lists(st.binary(min_size=1, max_size=60), max_size=5))
def test_bytes_that_are_no_request_end_in_silence_or_an_envelope(served: HttpServer, pieces: list[bytes]) -> None:
    try:
        answer = served.raw(*pieces, b"\r\n\r\n \x00\r\n\r\n")
    except ConnectionError:
        return
    assert answer == b"" or json.loads(answer.rpartition(b"\r\n\r\n")[2])["code"]
