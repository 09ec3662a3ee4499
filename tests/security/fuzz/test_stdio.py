"""Lines on stdin: whatever they are, the server lives and answers the next ping."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ...support.client import Client
from ...support.workspace import Workspace
from . import examples

TEXTS = st.sampled_from(["", "\0", "\ud800", "\ufeff", "\U0010ffff", "é" * 40, "ping", "tools/call", "a" * 5_000])
NUMBERS = st.sampled_from(["0", "-0", "1e999", "-1e-999", "9" * 400, "1.5", "9007199254740993", "18446744073709551616"])
IDS = st.sampled_from(["1", "1", '"1"', "null", "true", "[]", "{}", '"' + "x" * 3_000 + '"']) | NUMBERS
VALUES = st.one_of(IDS, TEXTS.map(json.dumps), st.integers(1, 3_000).map(lambda depth: "[" * depth + "]" * depth))
OBJECTS = st.tuples(
    IDS, st.sampled_from(["ping", "initialize", "tools/list", "tools/call", "x", "notifications/cancelled"]), VALUES
).map(lambda parts: '{{"jsonrpc":"2.0","id":{},"method":"{}","params":{}}}'.format(*parts))
DOUBLED = st.tuples(IDS, IDS).map(lambda two: '{{"jsonrpc":"2.0","id":{},"id":{},"method":"ping"}}'.format(*two))
BATCHES = st.lists(OBJECTS, max_size=4).map(lambda many: f"[{','.join(many)}]")
LINES = st.one_of(OBJECTS, DOUBLED, BATCHES, VALUES).map(lambda text: text.encode("utf-8", "surrogatepass"))
ENDS = st.sampled_from([b"\n", b"\r\n", b"\n\n", b"\0\n", b" \n", b"\xff\n", b"\xe2\x80\xa8\n"])


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Lines, some of them cut short or with odd bytes in them."""
    data = b""
    for line in draw(st.lists(LINES | st.binary(max_size=30), min_size=1, max_size=8)):
        cut = draw(st.integers(0, len(line))) if draw(st.integers(0, 5)) == 0 else len(line)
        data += line[:cut] + draw(ENDS)
    return data


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    workspace = Workspace(tmp_path_factory.mktemp("stdio"))
    with Client("--root", str(workspace.root), "--log-level", "error") as client:
        yield client
        assert client.close() == 0
        assert "Traceback" not in client.log


@examples(200, a_second=50)
@given(data=streams())
def test_e01_any_lines_leave_a_server_that_answers(client: Client, data: bytes) -> None:
    client.send_raw(data)
    fresh = f"after-{hash(data)}-{id(data)}"
    client.send({"jsonrpc": "2.0", "id": fresh, "method": "ping"})
    assert "result" in client.wait(fresh)
