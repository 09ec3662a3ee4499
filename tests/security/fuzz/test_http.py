"""Bytes on a socket: never a 5xx, and the server answers the next request."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ...support.http_server import OPEN_HANDED, TOKEN, HttpServer
from ...support.workspace import Workspace
from . import examples

METHODS = st.sampled_from([b"GET", b"POST", b"HEAD", b"OPTIONS", b"PRI", b"get", b"\0", b"CONNECT", b"P" * 300])
TARGETS = st.sampled_from(
    [
        b"/",
        b"/mcp",
        b"/tool",
        b"/health",
        b"/metrics",
        b"/x",
        b"*",
        b"http://evil/",
        b"/%00",
        b"/%ff",
        b"/" + b"a" * 9000,
        b"/tool?" + b"a=&" * 900,
        b"//evil/",
        b"/..%2f..%2fetc/passwd",
        b"/\xff",
    ]
)
VERSIONS = st.sampled_from([b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9", b"", b"HTTP/1.1 "])
HEADERS = st.sampled_from(
    [
        b"Host: 127.0.0.1",
        b"Host: evil.example",
        b"Host:",
        b"Content-Length: -1",
        b"Content-Length: 5",
        b"Expect: 100-continue",
        b"Content-Length: 99999999999999999999",
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: gzip, chunked",
        b": x",
        b"X-LLMC-Token: " + TOKEN.encode(),
        b"Content-Type: application/json",
        b"Accept: text/event-stream",
        b" folded",
        b"Upgrade: websocket\r\nConnection: Upgrade",
        b"A: " + b"b" * 9000,
        b"Origin: http://evil",
        b"Mcp-Session-Id: \x80",
        b"Connection: close",
    ]
)
BODIES = st.sampled_from(
    [b"", b"{}", b"[]", b"5\r\nhello\r\n0\r\n\r\n", b"fffffffffffffffff\r\n", b"\0" * 20, b"[" * 500]
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    first = b" ".join((draw(METHODS), draw(TARGETS), draw(VERSIONS)))
    head = b"\r\n".join([first, *draw(st.lists(HEADERS, max_size=6))])
    data = head + draw(st.sampled_from([b"\r\n\r\n", b"\n\n", b"\r\n"])) + draw(BODIES)
    cut = draw(st.integers(0, len(data))) if draw(st.integers(0, 4)) == 0 else len(data)
    return data[:cut]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    workspace = Workspace(tmp_path_factory.mktemp("http"))
    with HttpServer(workspace.root, *OPEN_HANDED, "--log-level", "warning") as server:
        yield server


@examples(150, a_second=60)
@given(data=requests() | st.binary(max_size=120))
def test_e08_any_bytes_leave_a_server_that_answers(served: HttpServer, data: bytes) -> None:
    answer = served.sent(data)
    statuses = [line.split(b" ")[1] for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.")]
    assert not any(status.startswith(b"5") for status in statuses), (data, answer)
    with served.client() as client:
        assert client.get("/health").status_code == 200
