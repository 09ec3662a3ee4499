"""The file tools: what they read, how they say what it is, and what they refuse."""

import base64
import codecs
import hashlib
import json
import os
import socket
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from llmc_mcp.config.schema import Config, Limits, Server
from llmc_mcp.errors import FeatureUnavailable, LlmcError
from llmc_mcp.files import reader
from llmc_mcp.gate.dispatch import Gate

from .support.client import Client
from .support.gates import context, gate_on, text_of
from .support.workspace import SECRET, Workspace

Call = Callable[..., dict[str, Any]]
READERS = {"read_file": "data", "linux_fs_read": "content"}


@pytest.fixture
def gate(workspace: Workspace) -> Iterator[Gate]:
    with gate_on(workspace.root, Config(server=Server(result_format="json"))) as gate:
        yield gate


@pytest.fixture
def call(gate: Gate) -> Call:
    def run(tool: str, **arguments: Any) -> dict[str, Any]:
        return json.loads(text_of(gate, tool, **arguments))

    return run


def refused(gate: Gate, tool: str, **arguments: Any) -> str:
    """The code of the error that a call ends with."""
    with pytest.raises(LlmcError) as caught:
        gate.call(context(gate), tool, arguments)
    return caught.value.code


# --- reading ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", READERS)
def test_a_small_file_is_read_whole(workspace: Workspace, call: Call, tool: str) -> None:
    path = workspace.file("sub/a.txt", "one\ntwo\n")
    reply = call(tool, path="sub/a.txt")
    assert reply[READERS[tool]] == "one\ntwo\n"
    rev = hashlib.sha256(b"one\ntwo\n").hexdigest()[:6]
    assert reply["meta"] == {"path": str(path), "length": 8, "total_lines": 2, "truncated": False, "rev": rev}
    assert call(tool, path=str(path)) == reply


@pytest.mark.parametrize(
    ("content", "total"), [("", 0), ("\n", 1), ("x", 1), ("x\n", 1), ("x\ny", 2), ("\n\n\n", 3), ("a\r\nb\r\n", 2)]
)
def test_line_ends_are_kept_and_counted(workspace: Workspace, call: Call, content: str, total: int) -> None:
    workspace.file("a.txt", content)
    reply = call("read_file", path="a.txt")
    assert (reply["data"], reply["meta"]["total_lines"], reply["meta"]["truncated"]) == (content, total, False)


@pytest.mark.parametrize(
    ("offset", "lines", "expected", "next_offset"),
    [
        (0, 3, "0\n1\n2\n", 3),
        (4, 3, "4\n5\n6\n", 7),
        (7, 3, "7\n8\n9\n", None),
        (9, 5, "9\n", None),
        (10, 5, "", None),
        (500, 5, "", None),
        (-3, 10, "7\n8\n9\n", None),
        (-3, 2, "7\n8\n", 9),
        (-10, 1, "0\n", 1),
        (-99, 1, "0\n", 1),
    ],
)
def test_a_slice_says_how_to_go_on(
    workspace: Workspace, call: Call, offset: int, lines: int, expected: str, next_offset: int | None
) -> None:
    workspace.file("ten.txt", "".join(f"{number}\n" for number in range(10)))
    reply = call("read_file", path="ten.txt", offset_lines=offset, max_lines=lines)
    assert reply["data"] == expected
    assert reply["meta"].get("next_offset") == next_offset
    assert reply["meta"]["truncated"] is (next_offset is not None)
    assert reply["meta"]["total_lines"] == 10


def test_each_reader_has_its_own_defaults_and_bounds(workspace: Workspace, gate: Gate, call: Call) -> None:
    workspace.file("long.txt", "x\n" * 3_000)
    assert call("read_file", path="long.txt")["meta"]["next_offset"] == 2000
    assert call("linux_fs_read", path="long.txt")["meta"]["next_offset"] == 200
    assert refused(gate, "linux_fs_read", path="long.txt", offset_lines=-1) == "BAD_ARGS"
    for lines in (0, 2001):
        assert refused(gate, "linux_fs_read", path="long.txt", max_lines=lines) == "BAD_ARGS"


@pytest.mark.parametrize(
    ("raw", "text", "encoding"),
    [
        ("naïve €\n".encode(), "naïve €\n", None),
        (codecs.BOM_UTF8 + "é\n".encode(), "é\n", "utf-8-sig"),
        ("wide é €\n".encode("utf-16"), "wide é €\n", "utf-16"),
        (codecs.BOM_UTF16_BE + "wide\n".encode("utf-16-be"), "wide\n", "utf-16"),
        ("no mark here\n".encode("utf-16-le"), "no mark here\n", "utf-16-le"),
        ("no mark here\n".encode("utf-16-be"), "no mark here\n", "utf-16-be"),
        (b"caf\xe9 au lait\n", "café au lait\n", "latin-1"),
    ],
    ids=lambda value: repr(value)[:25],
)
@pytest.mark.parametrize("tool", READERS)
def test_encodings_are_detected_and_told(
    workspace: Workspace, call: Call, raw: bytes, text: str, encoding: str | None, tool: str
) -> None:
    workspace.file("a.txt", raw)
    reply = call(tool, path="a.txt")
    assert reply[READERS[tool]] == text
    assert reply["meta"].get("encoding") == encoding


def test_the_last_lines_of_a_wide_file_are_the_last_lines(workspace: Workspace, call: Call) -> None:
    workspace.file("wide.txt", "one\ntwo\nthree\n".encode("utf-16"))
    reply = call("read_file", path="wide.txt", offset_lines=-2)
    assert reply["data"] == "two\nthree\n"
    assert reply["meta"]["total_lines"] == 3


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"\x7fELF\x02\x01\x01" + bytes(50), "ELF binary"),
        (b"PK\x03\x04\x14\x00" + bytes(50), "zip archive"),
        (b"\x1f\x8b\x08\x00" + bytes(50), "gzip data"),
        (b"SQLite format 3\x00" + bytes(50), "SQLite database"),
        (bytes(range(256)), "binary data"),
    ],
)
def test_a_binary_file_is_described_in_one_line(workspace: Workspace, call: Call, raw: bytes, words: str) -> None:
    workspace.file("some.bin", raw)
    reply = call("read_file", path="some.bin")
    assert reply["data"] == f"{words}, {len(raw)} bytes, sha256 {hashlib.sha256(raw).hexdigest()}"
    assert reply["meta"]["truncated"] is False


@pytest.mark.parametrize(
    ("head", "mime_type"),
    [
        (b"\x89PNG\r\n\x1a\n\x00", "image/png"),
        (b"\xff\xd8\xff\xe0\x00", "image/jpeg"),
        (b"GIF89a\x00\x01", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 \x00", "image/webp"),
    ],
)
def test_an_image_is_sent_as_an_image(workspace: Workspace, server: Client, head: bytes, mime_type: str) -> None:
    raw = head + bytes(range(256))
    workspace.file("picture", raw)
    for tool in READERS:
        text, image = server.call(tool, path="picture").result["content"]
        assert image == {"type": "image", "data": base64.b64encode(raw).decode(), "mimeType": mime_type}
        assert json.loads(text["text"].split("\n")[0])["mime_type"] == mime_type


def test_an_image_that_is_too_large_is_described(workspace: Workspace, call: Call) -> None:
    raw = b"\x89PNG\r\n\x1a\n" + bytes(Limits().max_image_bytes)
    workspace.file("big.png", raw)
    said = call("read_file", path="big.png")["data"]
    assert said.startswith(
        f"image/png, {len(raw):,} bytes, not shown: images of more than 1,048,576 bytes are not sent"
    )


def test_a_line_of_200_kb_is_cut_and_says_so(workspace: Workspace, call: Call) -> None:
    workspace.file("long.txt", "before\n" + "x" * 200_000 + "\nafter\n")
    reply = call("read_file", path="long.txt")
    first, long, last, end = reply["data"].split("\n")
    assert (first, last, end) == ("before", "after", "")
    assert long.endswith("[line cut, 200,001 bytes]")
    assert 1_000 < len(long) < 5_000
    assert reply["meta"]["total_lines"] == 3


def test_past_the_counting_limit_the_total_is_an_estimate(workspace: Workspace) -> None:
    workspace.file("big.txt", "0123456789\n" * 100_000)
    config = Config(server=Server(result_format="json"), limits=Limits(count_lines_max_bytes=1_000))
    with gate_on(workspace.root, config) as gate:
        reply = json.loads(text_of(gate, "linux_fs_read", path="big.txt", offset_lines=100, max_lines=2))
        end = json.loads(text_of(gate, "read_file", path="big.txt", offset_lines=-2))
    assert reply["content"] == "0123456789\n" * 2
    assert reply["meta"]["total_lines_exact"] is False
    assert 90_000 < reply["meta"]["total_lines"] < 110_000
    assert reply["meta"]["next_offset"] == 102
    assert end["data"] == "0123456789\n" * 2


def test_names_that_are_no_utf8_can_be_listed_and_read(workspace: Workspace, call: Call) -> None:
    names = [b"caf\xe9.txt", b"new\nline.txt", b"\x1b[31mred.txt", b"back\\x5cslash", "übung.txt".encode()]
    for name in names:
        with open(os.path.join(os.fsencode(workspace.root), name), "wb") as file:
            file.write(name)
    listed = call("list_dir", path=".")["data"]
    assert len(listed) == len(names)
    assert "caf\\xe9.txt" in listed
    assert "übung.txt" in listed
    for shown in listed:
        digest = call("stat", path=shown)["data"]["sha256"]
        assert digest in [hashlib.sha256(name).hexdigest() for name in names]
    assert call("read_file", path="new\\x0aline.txt")["data"] == "new\nline.txt"


# --- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", [*READERS, "stat", "list_dir"])
@pytest.mark.parametrize("path", ["../outside/secret.txt", "/etc/passwd", "link", "sub/../../outside/secret.txt", ".."])
def test_what_lies_outside_is_refused(workspace: Workspace, gate: Gate, tool: str, path: str) -> None:
    workspace.file("sub/a.txt")
    (workspace.root / "link").symlink_to(workspace.outside / "secret.txt")
    if (tool, path) == ("stat", "link"):
        assert SECRET not in text_of(gate, tool, path=path)
    else:
        assert refused(gate, tool, path=path) == "INVALID_PATH"


def test_a_refusal_never_says_whether_it_exists(workspace: Workspace, gate: Gate) -> None:
    def message(name: str) -> str:
        with pytest.raises(LlmcError) as caught:
            gate.call(context(gate), "read_file", {"path": f"{workspace.outside}/{name}"})
        return caught.value.message.replace(name, "NAME")

    assert message("secret.txt") == message("nothing.txt")


@pytest.mark.parametrize("tool", READERS)
def test_what_is_no_file_is_refused_without_being_opened(workspace: Workspace, gate: Gate, tool: str) -> None:
    os.mkfifo(workspace.root / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(workspace.root / "sock"))
    (workspace.root / "folder").mkdir()
    for name in ("fifo", "sock", "folder", "."):
        assert refused(gate, tool, path=name) == "NOT_A_FILE"


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("read_file", {"path": "missing"}, "NOT_FOUND"),
        ("read_file", {"path": "a.txt/x"}, "NOT_A_DIRECTORY"),
        ("read_file", {"path": ""}, "BAD_ARGS"),
        ("read_file", {"path": "a\0b"}, "BAD_ARGS"),
        ("read_file", {"path": "n" * 256}, "BAD_ARGS"),
        ("read_file", {"path": "a.txt", "max_lines": 0}, "BAD_ARGS"),
        ("list_dir", {"path": "a.txt"}, "NOT_A_DIRECTORY"),
        ("list_dir", {"path": ".", "depth": 0}, "BAD_ARGS"),
        ("list_dir", {"path": ".", "depth": 11}, "BAD_ARGS"),
        ("stat", {"path": "missing"}, "NOT_FOUND"),
        ("stat", {"path": "loop"}, ""),
        ("read_file", {"path": "loop"}, "INVALID_PATH"),
    ],
)
def test_other_mistakes_have_their_codes(
    workspace: Workspace, gate: Gate, tool: str, arguments: dict[str, Any], code: str
) -> None:
    workspace.file("a.txt", "x\n")
    (workspace.root / "loop").symlink_to("loop")
    if code:
        assert refused(gate, tool, **arguments) == code
    else:
        assert json.loads(text_of(gate, tool, **arguments))["data"]["type"] == "symlink"


def test_links_that_stay_inside_are_followed(workspace: Workspace, call: Call) -> None:
    path = workspace.file("sub/a.txt", "inside\n")
    (workspace.root / "relative").symlink_to("sub/a.txt")
    (workspace.root / "absolute").symlink_to(path)
    (workspace.root / "folder").symlink_to(workspace.root / "sub")
    for name in ("relative", "absolute", "folder/a.txt", "sub/../sub/a.txt", "./sub//a.txt"):
        assert call("read_file", path=name)["data"] == "inside\n"


def test_a_second_root_is_reached_by_its_absolute_path(workspace: Workspace, tmp_path: Path) -> None:
    second = tmp_path / "second"
    second.mkdir()
    (second / "b.txt").write_text("second\n")
    with Client("--root", str(workspace.root), "--root", str(second)) as server:
        reply = server.call("read_file", path=str(second / "b.txt"))
        assert (reply.body, reply.meta["path"]) == ("second\n", str(second / "b.txt"))
        assert server.call("read_file", path="b.txt").code == "NOT_FOUND"


# --- listing ----------------------------------------------------------------------------------------------


@pytest.fixture
def tree(workspace: Workspace) -> Workspace:
    for name in ("b.txt", "a.txt", ".hidden", "sub/c.txt", "sub/deep/d.txt", "sub/deep/deeper/e.txt", ".git/config"):
        workspace.file(name, "x")
    (workspace.root / "link").symlink_to("sub")
    return workspace


def test_a_listing_is_sorted_and_marks_folders(tree: Workspace, call: Call) -> None:
    reply = call("list_dir", path=".")
    assert reply["data"] == ["a.txt", "b.txt", "link", "sub/"]
    assert reply["meta"] == {"path": str(tree.root), "truncated": False, "total": 4}


def test_depth_shows_levels_one_after_the_other(tree: Workspace, call: Call) -> None:
    assert call("list_dir", path=".", depth=2)["data"] == ["a.txt", "b.txt", "link", "sub/", "sub/c.txt", "sub/deep/"]
    assert call("list_dir", path="sub", depth=10)["data"] == [
        "c.txt",
        "deep/",
        "deep/d.txt",
        "deep/deeper/",
        "deep/deeper/e.txt",
    ]


def test_hidden_names_are_shown_on_request(tree: Workspace, call: Call) -> None:
    assert call("list_dir", path=".", include_hidden=True)["data"] == [
        ".git/",
        ".hidden",
        "a.txt",
        "b.txt",
        "link",
        "sub/",
    ]


def test_an_empty_folder_lists_nothing(workspace: Workspace, call: Call) -> None:
    assert call("list_dir", path=".")["data"] == []


def test_a_link_is_never_entered(workspace: Workspace, call: Call) -> None:
    workspace.file("real/a.txt")
    (workspace.root / "loop").symlink_to(".")
    (workspace.root / "out").symlink_to(workspace.outside)
    assert call("list_dir", path=".", depth=10)["data"] == ["loop", "out", "real/", "real/a.txt"]


def test_a_long_listing_is_cut_and_counted(workspace: Workspace) -> None:
    for number in range(50):
        workspace.file(f"{number:02}")
    config = Config(server=Server(result_format="json"), limits=Limits(max_list_entries=20))
    with gate_on(workspace.root, config) as gate:
        reply = json.loads(text_of(gate, "list_dir", path="."))
    assert reply["data"] == [f"{number:02}" for number in range(20)]
    assert (reply["meta"]["truncated"], reply["meta"]["shown"], reply["meta"]["total"]) == (True, 20, 50)


# --- stat -------------------------------------------------------------------------------------------------


def test_stat_tells_size_time_mode_type_and_hash(workspace: Workspace, call: Call) -> None:
    path = workspace.file("a.txt", "content\n")
    path.chmod(0o640)
    os.utime(path, (1_700_000_000, 1_700_000_000))
    assert call("stat", path="a.txt") == {
        "data": {
            "size": 8,
            "mtime": datetime.fromtimestamp(1_700_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "mode": "0640",
            "type": "file",
            "sha256": hashlib.sha256(b"content\n").hexdigest(),
        }
    }


def test_stat_tells_what_is_no_file(workspace: Workspace, call: Call) -> None:
    workspace.file("sub/a.txt", "x")
    os.mkfifo(workspace.root / "fifo")
    (workspace.root / "link").symlink_to("sub/a.txt")
    (workspace.root / "out").symlink_to(workspace.outside / "secret.txt")
    assert call("stat", path="sub")["data"]["type"] == "dir"
    assert call("stat", path="fifo")["data"]["type"] == "other"
    inside = call("stat", path="link")["data"]
    assert (inside["type"], inside["size"], inside["link_target"]) == ("file", 1, "sub/a.txt")
    outside = call("stat", path="out")["data"]
    assert (outside["type"], outside["link_target"]) == ("symlink", str(workspace.outside / "secret.txt"))
    assert "sha256" not in outside


def test_a_large_file_has_no_hash(workspace: Workspace) -> None:
    workspace.file("big", b"x" * 101)
    workspace.file("small", b"x" * 100)
    config = Config(server=Server(result_format="json"), limits=Limits(hash_max_bytes=100))
    with gate_on(workspace.root, config) as gate:
        assert "sha256" in json.loads(text_of(gate, "stat", path="small"))["data"]
        assert "sha256" not in json.loads(text_of(gate, "stat", path="big"))["data"]


# --- trees, many files, files of a repository ----------------------------------------------------------------


def paths_of(reply: dict[str, Any], root: Path) -> list[str]:
    return [entry["path"].removeprefix(f"{root}/") for entry in reply["entries"]]


def test_a_tree_has_types_sizes_and_times(tree: Workspace, call: Call) -> None:
    reply = call("linux_fs_list", path=".")
    assert paths_of(reply, tree.root) == ["a.txt", "b.txt", "link", "sub", "sub/c.txt", "sub/deep"]
    assert [entry["type"] for entry in reply["entries"]] == ["file", "file", "symlink", "dir", "file", "dir"]
    assert reply["entries"][0]["size_bytes"] == 1
    assert datetime.fromisoformat(reply["entries"][0]["mtime_iso"]).tzinfo is not None
    assert (reply["truncated"], reply["total_entries"]) == (False, 6)


def test_a_tree_of_depth_zero_is_the_place_itself(tree: Workspace, call: Call) -> None:
    (entry,) = call("linux_fs_list", path=".", depth=0)["entries"]
    assert (entry["path"], entry["type"]) == (str(tree.root), "dir")
    (entry,) = call("linux_fs_list", path="a.txt", depth=0)["entries"]
    assert (entry["path"], entry["type"], entry["size_bytes"]) == (f"{tree.root}/a.txt", "file", 1)


def test_a_glob_keeps_only_what_matches(tree: Workspace, call: Call) -> None:
    reply = call("linux_fs_list", path=".", depth=10, file_glob="[c-d].txt")
    assert paths_of(reply, tree.root) == ["sub/c.txt", "sub/deep/d.txt"]


def test_an_ignored_folder_is_one_entry(workspace: Workspace, call: Call) -> None:
    workspace.file(".gitignore", "build/\n")
    workspace.file("build/out.o")
    workspace.file("src/a.c")
    (workspace.root / ".git").mkdir()
    assert paths_of(call("linux_fs_list", path="."), workspace.root) == ["build", "src", "src/a.c"]
    ignored = call("linux_fs_list", path=".", include_ignored=True)
    assert paths_of(ignored, workspace.root) == ["build", "src", "build/out.o", "src/a.c"]


def test_where_nothing_tells_what_is_ignored_the_reply_says_so(
    workspace: Workspace, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.file(".gitignore", "build/\n")
    workspace.file("build/out.o")
    assert "note" not in call("linux_fs_list", path=".")
    monkeypatch.setattr("llmc_mcp.files.ripgrep.find_ripgrep", _no_ripgrep)
    with gate_on(workspace.root, Config(server=Server(result_format="json"))) as gate:
        reply = json.loads(text_of(gate, "linux_fs_list", path="."))
    assert paths_of(reply, workspace.root) == ["build", "build/out.o"]
    assert reply["note"] == "Ignored folders are listed too: no ripgrep here."


def _no_ripgrep() -> bytes:
    raise FeatureUnavailable("no ripgrep here")


@pytest.mark.parametrize("tool", ["list_dir", "linux_fs_list"])
def test_a_listing_stops_looking_at_its_bound_and_says_that_there_is_more(workspace: Workspace, tool: str) -> None:
    for number in range(30):
        workspace.file(f"a/{number:02}")
        workspace.file(f"b/{number:02}")
    config = Config(server=Server(result_format="json"), limits=Limits(list_count_cap=40))
    with gate_on(workspace.root, config) as gate:
        reply = json.loads(text_of(gate, tool, path=".", depth=3))
        rows = reply.get("data") or paths_of(reply, workspace.root)
        told = reply.get("meta", reply)
        assert len(rows) == len(set(rows)) == 40
        assert [row.rstrip("/") for row in rows[:2]] == ["a", "b"]
        assert {f"a/{number:02}" for number in range(30)} <= set(rows)
        assert (told["truncated"], told["total_is_exact"]) == (True, False)
        whole = json.loads(text_of(gate, tool, path="a", depth=3))
        assert "total_is_exact" not in whole.get("meta", whole)


def test_several_files_share_one_reply_and_one_failure_spares_the_others(workspace: Workspace, call: Call) -> None:
    workspace.file("a.txt", "a\n")
    workspace.file("big.txt", "0123456789\n" * 5_000)
    first, missing, outside, big = call("linux_fs_read_many", paths=["a.txt", "missing", "/etc/passwd", "big.txt"])[
        "files"
    ]
    assert (first["content"], first["total_lines"], first["truncated"]) == ("a\n", 1, False)
    assert missing["error"].startswith("NOT_FOUND")
    assert outside["error"].startswith("INVALID_PATH")
    assert big["truncated"] is True
    assert big["content"].startswith("0123456789\n")
    assert big["content"].endswith("\n")


def test_a_repository_file_is_named_below_its_root(workspace: Workspace, gate: Gate, call: Call) -> None:
    workspace.file("repo/src/a.py", "one\ntwo\n")
    assert call("repo_read", root="repo", path="src/a.py")["data"] == "one\ntwo\n"
    cut = call("repo_read", root="repo", path="src/a.py", max_bytes=5)
    assert (cut["data"], cut["meta"]["truncated"]) == ("one\nt", True)
    assert refused(gate, "repo_read", root=str(workspace.outside), path="secret.txt") == "INVALID_PATH"
    assert refused(gate, "repo_read", root="repo", path="../../outside/secret.txt") == "INVALID_PATH"


# --- what is remembered of a file --------------------------------------------------------------------------


def test_what_was_counted_and_hashed_is_forgotten_when_the_file_changes(
    workspace: Workspace, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same size, same time of change: only the file system's own clock tells that it was written."""
    monkeypatch.setattr(reader, "_SETTLED_NS", 0)
    file = workspace.root / "log.txt"

    def write(content: str) -> None:
        file.write_text(content)
        os.utime(file, (1_000_000_000, 1_000_000_000))

    def seen() -> tuple[int, str]:
        total = call("read_file", path="log.txt", max_lines=1)["meta"]["total_lines"]
        return total, call("stat", path="log.txt")["data"]["sha256"]

    write("one\ntwo\n")
    assert seen() == seen() == (2, hashlib.sha256(b"one\ntwo\n").hexdigest())
    write("one+two\n")
    assert seen() == (1, hashlib.sha256(b"one+two\n").hexdigest())
