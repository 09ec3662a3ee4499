"""Replies: two formats of one result, never longer than the limit, and cut so that nothing is lost."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc_mcp.config.schema import Config, Limits, Server
from llmc_mcp.gate.render import fit, relative, render
from llmc_mcp.tool import Result, Row, Streams

from ..support.client import Client, Reply
from ..support.gates import gate_on, text_of
from ..support.workspace import Workspace

LIMIT = Limits().max_reply_bytes
FORMATS = ("json", "lean")


class Lines(Result):
    """Text, and how many of its lines were kept."""

    text: str
    path: str = ""
    kept: int | None = None
    body: ClassVar[str] = "text"

    def cut(self, kept: int) -> None:
        self.kept = kept


class Note(Row):
    """A row on one line."""

    path: str
    count: int
    line_format: ClassVar[str] = "{count} {path}"


class Found(Row):
    """A row of several numbered lines."""

    path: str
    line: int
    snippet: str
    start: int | None = None
    group_by: ClassVar[str] = "path"
    numbered_from: ClassVar[str] = "start"


class Table(Result):
    """Rows."""

    rows: list[Note | Found]
    kept: int | None = None
    body: ClassVar[str] = "rows"

    def cut(self, kept: int) -> None:
        self.kept = kept


class Printed(Result):
    """What a command printed."""

    data: Streams
    kept: int | None = None
    body: ClassVar[str] = "data"

    def cut(self, kept: int) -> None:
        self.kept = kept


class Meta(Result):
    """No body at all."""

    path: str
    note: str | None = None
    truncated: bool = False


def shown(result: Result, *, lean: bool, root: str = "/r") -> str:
    return render(result, lean=lean, first_root=root).text


def config_for(reply_format: str) -> Config:
    return Config(server=Server(result_format=reply_format))


# --- the lean format -------------------------------------------------------------------------------------


def test_a_lean_reply_is_a_line_of_meta_then_the_body_as_it_is() -> None:
    text = 'say "hi"\\n\ttab\r\nend'
    head, _, body = shown(Lines(text, "/r/a/b.txt"), lean=True).partition("\n")
    assert body == text
    assert json.loads(head) == {"path": "a/b.txt", "body_bytes": len(text.encode())}


def test_body_bytes_counts_bytes_not_characters() -> None:
    head, _, body = shown(Lines("é€😀\n"), lean=True).partition("\n")
    assert json.loads(head)["body_bytes"] == len(body.encode()) == 10


def test_json_is_the_whole_object_with_absolute_paths() -> None:
    assert json.loads(shown(Lines("x\ty", "/r/a.txt"), lean=False)) == {"text": "x\ty", "path": "/r/a.txt"}


def test_a_lean_reply_leaves_out_what_says_nothing() -> None:
    assert shown(Meta("/r"), lean=True) == '{"path":"."}'
    assert json.loads(shown(Meta("/r/x", "n", True), lean=True)) == {"path": "x", "note": "n", "truncated": True}


@pytest.mark.parametrize(
    ("path", "root", "expected"),
    [
        ("/r/a/b", "/r", "a/b"),
        ("/r", "/r", "."),
        ("/rx/a", "/r", "/rx/a"),
        ("/other/a", "/r", "/other/a"),
        ("/a/b", "/", "a/b"),
    ],
)
def test_lean_paths_are_relative_to_the_first_root_only(path: str, root: str, expected: str) -> None:
    assert relative(path, root) == expected


CONTROLS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), 0x202E, 0x2066) if chr(code) not in "\t\n\r"]


def test_control_characters_and_escapes_are_shown_instead_of_obeyed() -> None:
    text = "".join(f"<{control}>" for control in CONTROLS) + "\x1b[31mred\x1b[0m"
    head, _, body = shown(Lines(text), lean=True).partition("\n")
    assert not any(control in body for control in CONTROLS)
    assert "␛[31mred␛[0m" in body
    assert "<\\u009b>" in body
    assert json.loads(head)["body_bytes"] == len(body.encode())


@pytest.mark.parametrize("lean", [False, True])
def test_no_control_character_is_raw_in_the_meta_and_json_gives_it_back(lean: bool) -> None:
    path = "/r/" + "".join(CONTROLS)
    line = shown(Meta(path), lean=lean)
    assert not any(control in line for control in CONTROLS)
    assert json.loads(line)["path"] == (path[3:] if lean else path)


def test_rows_are_shown_one_a_line() -> None:
    table = Table([Note("/r/a", 1), Note("/x/b", 2)])
    assert shown(table, lean=True).partition("\n")[2] == "1 a\n2 /x/b"


def test_rows_of_one_file_stand_under_one_heading_with_line_numbers() -> None:
    table = Table([Found("/r/a", 2, "x\nhit\ny", 1), Found("/r/a", 9, "hit"), Found("/r/b", 1, "hit\nz")])
    assert shown(table, lean=True).partition("\n")[2] == "a\n1-x\n2:hit\n3-y\n9:hit\nb\n1:hit\n2-z"


# --- cutting ---------------------------------------------------------------------------------------------

nasty = st.text(st.sampled_from('a"\\\n\n\t\r\x01\x1b\x7f\x9bé€😀\u202e'), max_size=3_000)


@given(nasty, st.integers(1_000, 3_000), st.booleans())
def test_a_cut_text_fits_ends_at_a_line_and_says_how_many_lines_it_has(body: str, limit: int, lean: bool) -> None:
    result = Lines(body, "/r/file.txt")
    fit(result, limit, lean=lean, first_root="/r")
    assert len(shown(result, lean=lean).encode()) <= limit
    if result.kept is None:
        assert result.text == body
    elif result.text.removesuffix("\n").endswith(" …[cut]"):
        assert result.kept == 1
        assert body.startswith(result.text.removesuffix("\n").removesuffix(" …[cut]"))
    else:
        assert result.text.endswith("\n")
        assert body.startswith(result.text)
        assert result.kept == result.text.count("\n") > 0


@given(st.lists(nasty, min_size=1, max_size=12), st.integers(1_000, 3_000), st.booleans())
def test_cut_rows_fit_and_are_the_first_rows(snippets: list[str], limit: int, lean: bool) -> None:
    rows: list[Note | Found] = [Found("/r/some/file.py", 5, text[:400], 4) for text in snippets]
    result = Table(list(rows))
    fit(result, limit, lean=lean, first_root="/r")
    if not all(row.snippet.count("\n") < 30 for row in rows if isinstance(row, Found)):
        return  # lines that are all ends leave nothing to shorten
    assert len(shown(result, lean=lean).encode()) <= limit
    assert len(result.rows) >= 1
    if result.kept is None:
        assert result.rows == rows
    elif len(result.rows) > 1:
        assert result.rows == rows[: result.kept]


def test_as_much_is_sent_as_fits() -> None:
    result = Lines("0123456789\n" * 10_000)
    fit(result, LIMIT, lean=True, first_root="/r")
    assert LIMIT * 0.95 < len(shown(result, lean=True).encode()) <= LIMIT


def test_a_body_that_just_fits_is_not_cut() -> None:
    result = Lines("x" * (LIMIT - 300))
    fit(result, LIMIT, lean=True, first_root="/r")
    assert result.kept is None


@pytest.mark.parametrize("lean", [True, False])
def test_a_flood_is_shown_by_its_ends_in_half_the_room(lean: bool) -> None:
    lines = [f"line {number}\n" for number in range(5_000)]
    result = Printed(Streams("".join(lines), "", 0))
    fit(result, LIMIT, lean=lean, first_root="/r")
    assert LIMIT // 3 < len(shown(result, lean=lean)) <= LIMIT // 2
    assert result.data.stdout.startswith("line 0\n")
    assert result.data.stdout.endswith("line 4999\n")
    assert result.kept is not None


def test_what_a_command_printed_is_shown_whole_while_it_fits() -> None:
    text = "x" * (LIMIT - 500)
    result = Printed(Streams(text, "", 0))
    fit(result, LIMIT, lean=True, first_root="/r")
    assert (result.data.stdout, result.kept) == (text, None)


def test_a_long_path_leaves_less_room_for_the_body_not_a_longer_reply() -> None:
    path = "/r/" + "/".join(["d" * 200] * 15)
    result = Lines("line\n" * 5_000, path)
    fit(result, LIMIT, lean=False, first_root="/r")
    assert len(shown(result, lean=False).encode()) <= LIMIT


def test_a_single_row_that_is_too_long_keeps_every_line_shortened() -> None:
    result = Table([Found("/r/min.js", 11, "\n".join(["x" * 3_000] * 21), 1)])
    fit(result, LIMIT, lean=True, first_root="/r")
    text = shown(result, lean=True)
    assert len(text.encode()) <= LIMIT
    lines = text.split("\n")[2:]
    assert len(lines) == 21
    assert lines[10].startswith("11:xxx")
    assert all(line.endswith("…[cut]") for line in lines)


# --- through the gate ------------------------------------------------------------------------------------

Make = Callable[[Workspace], tuple[str, dict[str, Any]]]


def big_file(content: bytes) -> Make:
    def make(workspace: Workspace) -> tuple[str, dict[str, Any]]:
        workspace.file("big", content)
        return "read_file", {"path": "big"}

    return make


def deep_file(workspace: Workspace) -> tuple[str, dict[str, Any]]:
    folder = "/".join(["d" * 150] * 8)
    workspace.file(f"{folder}/big", b'quote " and \\ and text\n' * 3_000)
    return "linux_fs_read", {"path": f"{folder}/big", "max_lines": 2000}


def many_names(workspace: Workspace) -> tuple[str, dict[str, Any]]:
    for number in range(600):
        workspace.file(f'many/a rather long name with a \\ and a " in it {number:04}')
    return "list_dir", {"path": "many"}


def odd_names(workspace: Workspace) -> tuple[str, dict[str, Any]]:
    (workspace.root / "odd").mkdir()
    for number in range(300):
        with open(os.fsencode(workspace.root / "odd") + b"/\xff\x1b[31m\x01\n%d" % number, "wb"):
            pass
    return "list_dir", {"path": "odd"}


def many_hits(workspace: Workspace) -> tuple[str, dict[str, Any]]:
    for number in range(40):
        workspace.file(f"hits/file{number}.txt", 'before "\\\nneedle "\\\x07\nafter\n' * 50)
    return "linux_search_content", {"root": "hits", "pattern": "needle", "max_results": 1000}


def wide_hits(workspace: Workspace) -> tuple[str, dict[str, Any]]:
    workspace.file("wide.txt", ('\\"\x01' * 1_000 + "\n") * 10 + "needle\n" + ('\\"\x01' * 1_000 + "\n") * 10)
    return "linux_search_content", {"root": "wide.txt", "pattern": "needle", "context_lines": 10}


BIG: dict[str, Make] = {
    "text": big_file(b"an ordinary line of text\n" * 5_000),
    "quotes": big_file(b'"\\"\\"\\"\\"\n' * 5_000),
    "controls": big_file(b"\x01\x1b\x1b\x1b\x08\n" * 5_000),
    "c1": big_file("\x9b\x85\x80\n".encode() * 5_000),
    "emoji": big_file("😀é€\n".encode() * 5_000),
    "empty lines": big_file(b"\n" * 50_000),
    "one line": big_file(b'"' * 3_900),
    "long lines": big_file((b"\\" * 3_999 + b"\n") * 20),
    "a very long line": big_file(b"x" * 200_000),
    "binary": big_file(bytes(range(256)) * 1_000),
    "deep": deep_file,
    "names": many_names,
    "odd names": odd_names,
    "hits": many_hits,
    "wide hits": wide_hits,
}


@pytest.mark.parametrize("reply_format", FORMATS)
@pytest.mark.parametrize("make", BIG.values(), ids=BIG.keys())
def test_no_reply_is_longer_than_the_limit(workspace: Workspace, make: Make, reply_format: str) -> None:
    tool, arguments = make(workspace)
    with gate_on(workspace.root, config_for(reply_format)) as gate:
        text = text_of(gate, tool, **arguments)
    assert len(text.encode()) <= LIMIT
    json.loads(text.split("\n", 1)[0])


@pytest.mark.parametrize("reply_format", FORMATS)
def test_an_error_that_quotes_the_caller_is_short_too(workspace: Workspace, reply_format: str) -> None:
    mode = "classic" if reply_format == "json" else "hybrid"
    with Client("--root", str(workspace.root), "--mode", mode) as server:
        for reply in (
            server.call("x" * 100_000),
            server.call("stat", **{"path": "a", "y" * 100_000: 1}),
            server.call("read_file", path="é" * 100_000),
            server.call("linux_search_content", root=".", pattern="(" * 50_000),
        ):
            assert reply.is_error
            assert len(reply.text.encode()) <= LIMIT


@pytest.mark.parametrize("reply_format", FORMATS)
@pytest.mark.parametrize("tool", ["read_file", "linux_fs_read"])
def test_following_next_offset_gives_the_file_byte_for_byte(workspace: Workspace, reply_format: str, tool: str) -> None:
    content = "".join(f'{number}: a "quoted" \\ line with é and €\t\r\n' for number in range(5_000)) + "no end"
    workspace.file("whole.txt", content)
    arguments: dict[str, Any] = {"path": "whole.txt", "max_lines": 2000}
    parts: list[str] = []
    with gate_on(workspace.root, config_for(reply_format)) as gate:
        for _ in range(500):
            text = text_of(gate, tool, **arguments)
            assert len(text.encode()) <= LIMIT
            if reply_format == "lean":
                head, _, body = text.partition("\n")
                meta = json.loads(head)
            else:
                reply = json.loads(text)
                meta, body = reply["meta"], reply["data" if tool == "read_file" else "content"]
            parts.append(body)
            assert meta["total_lines"] == 5_001
            if not meta.get("truncated"):
                assert "next_offset" not in meta
                break
            arguments["offset_lines"] = meta["next_offset"]
    assert len(parts) > 10
    assert "".join(parts).encode() == content.encode()


def test_a_cut_listing_says_how_much_of_it_is_shown(workspace: Workspace) -> None:
    tool, arguments = many_names(workspace)
    with gate_on(workspace.root, config_for("json")) as gate:
        reply = json.loads(text_of(gate, tool, **arguments))
    assert reply["meta"]["truncated"] is True
    assert reply["meta"]["total"] == 600
    assert 0 < reply["meta"]["shown"] == len(reply["data"]) < 600
    assert reply["data"] == sorted(reply["data"])


@pytest.mark.parametrize("reply_format", FORMATS)
def test_cut_hits_keep_the_true_total(workspace: Workspace, reply_format: str) -> None:
    tool, arguments = many_hits(workspace)
    with gate_on(workspace.root, config_for(reply_format)) as gate:
        text = text_of(gate, tool, **arguments)
    meta = json.loads(text.split("\n", 1)[0])
    assert meta["total_hits"] == 2_000
    assert meta["truncated"] is True
    sent = len(meta["hits"]) if reply_format == "json" else text.count(":needle")
    assert meta["shown"] == sent


def read_with(client: Client, asked: object) -> Reply:
    request = client.start_call("read_file", {"path": "big.txt"}, {"llmc/maxReplyBytes": asked})
    return Reply(client.wait(request)["result"])


def test_a_call_may_ask_for_a_longer_or_shorter_reply(workspace: Workspace, server: Client) -> None:
    workspace.file("big.txt", f"{'x' * 149}\n" * 3_000)
    cap = Limits().max_reply_bytes_cap
    assert 45_000 < len(read_with(server, 50_000).text.encode()) <= 50_000
    assert len(read_with(server, 2_000).text.encode()) <= 2_000
    assert len(read_with(server, 10**9).text.encode()) <= cap
    for nonsense in ("many", None, -5, 0, 1.5, [1]):
        assert len(read_with(server, nonsense).text.encode()) <= LIMIT


def test_lean_and_json_show_paths_their_own_way(workspace: Workspace, tmp_path: Path) -> None:
    workspace.file("sub/a.txt", "needle\n")
    for reply_format, path in (("json", f"{workspace.root}/sub/a.txt"), ("lean", "sub/a.txt")):
        with gate_on(workspace.root, config_for(reply_format)) as gate:
            text = text_of(gate, "read_file", path="sub/a.txt")
            assert (json.loads(text)["meta"] if reply_format == "json" else json.loads(text.split("\n")[0]))[
                "path"
            ] == path
            hits = text_of(gate, "linux_search_content", root=".", pattern="needle")
            assert (
                json.loads(hits)["hits"][0]["path"] if reply_format == "json" else hits.split("\n")[1].split()[0]
            ) == path


@pytest.mark.parametrize(
    ("mode", "reply_format", "lean"),
    [
        ("classic", "auto", False),
        ("hybrid", "auto", True),
        ("code_execution", "auto", True),
        ("classic", "lean", True),
        ("hybrid", "json", False),
    ],
)
def test_the_mode_chooses_the_format_unless_the_operator_does(mode: str, reply_format: str, lean: bool) -> None:
    assert Config(mode=mode, server=Server(result_format=reply_format)).lean_replies() is lean


def test_an_image_is_sent_once_beside_the_text_in_both_formats(workspace: Workspace) -> None:
    workspace.file("dot.png", b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 100)
    for mode in ("classic", "hybrid"):
        with Client("--root", str(workspace.root), "--mode", mode) as server:
            text, image = server.call("read_file", path="dot.png").result["content"]
            assert (image["type"], image["mimeType"]) == ("image", "image/png")
            assert len(image["data"]) > 25_608
            assert image["data"][:40] not in text["text"]
            assert len(text["text"]) < 500
