"""Handles: paged, owned, bounded, and still there after a restart."""

import json
import os
import re
from pathlib import Path

import pytest

from llmc_mcp.errors import FeatureUnavailable, HandleNotFound
from llmc_mcp.files.handles import HandleRetention, Handles, is_handle
from llmc_mcp.store.root_sets import RootSet
from llmc_mcp.store.sqlite import SqliteStore

from ..support.client import Client
from ..support.forked import llmc
from ..support.workspace import Workspace

ME, OTHER = "uid:1", "uid:2"


def make(folder: Path, *, total: int = 1 << 30, spool: int = 4 << 20, ttl: float = 3600.0) -> Handles:
    return Handles(SqliteStore(str(folder)), HandleRetention(total, spool, ttl), RootSet(["/work"]))


def test_ids_tell_kind_and_time_and_cannot_be_guessed(tmp_path: Path) -> None:
    handles = make(tmp_path)
    ids = {handles.create(ME, "search_hits", {"root": str(n)}, b"x\n") for n in range(50)}
    assert len(ids) == 50
    assert all(re.fullmatch(r"H_srch_\d{8}T\d{6}Z_[a-z2-7]{16}", handle) for handle in ids)
    assert all(map(is_handle, ids))
    assert not is_handle("H_srch_../../etc/passwd")


def test_lines_are_paged_from_both_ends(tmp_path: Path) -> None:
    handles = make(tmp_path)
    lines = [f"line {n}\n".encode() * (1 + n % 3) for n in range(60_000)]
    whole = b"".join(lines)
    handle = handles.find(ME, handles.create(ME, "file_content", {}, whole))
    split = whole.splitlines(keepends=True)
    assert handle.lines == len(split)
    assert handles.lines(handle, 0, 2).data == b"".join(split[:2])
    page = handles.lines(handle, 70_000, 3)
    assert page.data == b"".join(split[70_000:70_003])
    assert page.next_offset == 70_003
    assert handles.lines(handle, -2, 10) == (b"".join(split[-2:]), len(split), None)
    assert handles.lines(handle, len(split) + 5, 10).data == b""
    assert handles.read(handle, 10, 7).data == whole[10:17]


def test_a_handle_of_somebody_else_an_expired_and_a_forged_one_are_not_there(tmp_path: Path) -> None:
    handles = make(tmp_path)
    mine = handles.create(ME, "file_content", {}, b"x")
    messages: set[str] = set()
    for principal, handle in [(OTHER, mine), (ME, mine[:-1] + ("a" if mine[-1] != "a" else "b"))]:
        with pytest.raises(HandleNotFound) as caught:
            handles.find(principal, handle)
        messages.add(caught.value.message.replace(handle, "H"))
    expired = make(tmp_path, ttl=-1)
    with pytest.raises(HandleNotFound) as caught:
        expired.find(ME, mine)
    messages.add(caught.value.message.replace(mine, "H"))
    assert len(messages) == 1


def test_equal_content_is_stored_once_and_an_equal_handle_given_again(tmp_path: Path) -> None:
    handles = make(tmp_path)
    first = handles.create(ME, "file_content", {"path": "/a"}, b"same")
    assert handles.create(ME, "file_content", {"path": "/a"}, b"same") == first
    assert handles.create(OTHER, "file_content", {"path": "/a"}, b"same") != first
    assert len(os.listdir(handles.folder)) == 1


def test_the_oldest_go_first_when_the_store_is_full(tmp_path: Path) -> None:
    handles = make(tmp_path, total=3_000)
    ids = [handles.create(ME, "file_content", {}, bytes([65 + n]) * 1_000) for n in range(5)]
    assert [handle.id for handle in handles.list(ME)] == ids[:1:-1]
    assert len(os.listdir(handles.folder)) == 3


def test_a_file_goes_with_its_last_handle_only(tmp_path: Path) -> None:
    handles = make(tmp_path, total=1_500)
    handles.create(ME, "file_content", {}, b"a" * 1_000)
    shared = handles.create(OTHER, "file_content", {}, b"a" * 1_000)
    handles.create(ME, "file_content", {}, b"b" * 400)
    kept = handles.find(OTHER, shared)
    assert handles.read(kept, 0, 2_000).data == b"a" * 1_000


def test_a_spool_keeps_the_beginning_and_the_end_of_what_is_too_long(tmp_path: Path) -> None:
    handles = make(tmp_path, spool=2 << 20)
    spool = handles.spool(ME, "command_output", {"path": "cmd"})
    spool.write(b"first line\n")
    for _ in range(64):
        spool.write(b"x" * 99_999 + b"\n")
    spool.write(b"last line\n")
    handle = handles.find(ME, spool.finish())
    assert handle.size < (2 << 20) + 300_000
    assert handles.lines(handle, 0, 1).data == b"first line\n"
    assert handles.lines(handle, -1, 1).data == b"last line\n"
    assert b"bytes dropped here" in handles.read(handle, 0, handle.size).data


def test_a_discarded_spool_leaves_no_file(tmp_path: Path) -> None:
    handles = make(tmp_path)
    spool = handles.spool(ME, "command_output", {})
    spool.write(b"x")
    spool.discard()
    assert os.listdir(handles.folder) == []


def test_what_a_crash_left_behind_is_cleared_once_it_is_old(tmp_path: Path) -> None:
    handles = make(tmp_path)
    living = handles.create(ME, "file_content", {}, b"kept")
    leftover = Path(handles.folder, "spool.1.dead")
    leftover.write_bytes(b"x")
    for path in Path(handles.folder).iterdir():
        os.utime(path, (0, 0))
    again = make(tmp_path)
    assert not leftover.exists()
    assert again.read(again.find(ME, living), 0, 10).data == b"kept"


def test_no_room_for_handles_is_said_with_a_way_out(tmp_path: Path) -> None:
    handles = make(tmp_path)
    os.rmdir(handles.folder)
    Path(handles.folder).write_text("in the way")
    with pytest.raises(FeatureUnavailable) as caught:
        handles.create(ME, "file_content", {}, b"x")
    assert "LLMC_DATA_DIR" in (caught.value.hint or "")


# --- through the server -----------------------------------------------------------------------------


def test_a_long_read_leaves_a_handle_that_survives_a_restart(workspace: Workspace) -> None:
    workspace.file("long.txt", "".join(f"line {n}\n" for n in range(1000)))
    with Client("--root", str(workspace.root)) as client:
        handle = client.call("linux_fs_read", path="long.txt").meta["handle"]
    with Client("--root", str(workspace.root)) as client:
        page = client.call("linux_handle_read", handle=handle, offset=500, limit=2)
        assert page.body == "line 500\nline 501\n"
        assert page.meta["total"] == 1000
        assert page.meta["next_offset"] == 502
        assert client.call("read_file", path=handle, offset_lines=-1).body == "line 999\n"
        assert client.call("linux_handle_read", handle=handle, offset=5, limit=4, unit="bytes").body == "0\nli"


def test_a_snapshot_stays_what_it_was_and_says_when_its_source_changed(workspace: Workspace, server: Client) -> None:
    path = workspace.file("long.txt", "old\n" * 300)
    handle = server.call("linux_fs_read", path="long.txt").meta["handle"]
    assert "stale" not in server.call("linux_handle_read", handle=handle, limit=1).meta
    path.write_text("new\n" * 300)
    page = server.call("linux_handle_read", handle=handle, limit=1)
    assert page.body == "old\n"
    assert page.meta["stale"] is True


def test_a_reference_to_a_large_file_turns_stale_when_it_changes(workspace: Workspace, server: Client) -> None:
    path = workspace.file("big.txt", "a line of text\n" * 200_000)
    handle = server.call("linux_fs_read", path="big.txt").meta["handle"]
    assert server.call("linux_handle_read", handle=handle, offset=199_999).body == "a line of text\n"
    assert server.call("linux_handle_read", handle=handle, grep="^nothing").meta["total"] == 0
    with path.open("a") as file:
        file.write("more\n")
    assert server.call("linux_handle_read", handle=handle).code == "STALE"
    assert server.call("linux_handle_read", handle=handle, unit="bytes").code == "STALE"
    assert server.call("linux_handle_read", handle=handle, grep="line").code == "STALE"


def test_grep_pages_through_the_matching_lines_of_a_handle(workspace: Workspace, server: Client) -> None:
    workspace.file("log.txt", "".join(f"{'ERROR' if n % 10 == 0 else 'info'} {n}\n" for n in range(1000)))
    handle = server.call("linux_fs_read", path="log.txt").meta["handle"]
    page = server.call("linux_handle_read", handle=handle, grep="^ERROR", offset=1, limit=2)
    assert page.body == "11:ERROR 10\n21:ERROR 20\n"
    assert page.meta["total"] == 100
    assert page.meta["next_offset"] == 3
    assert server.call("linux_handle_read", handle=handle, grep="(").code == "INVALID_ARGUMENT"
    assert server.call("linux_handle_read", handle=handle, grep="x", unit="bytes").code == "INVALID_ARGUMENT"


def test_a_cut_search_leaves_every_hit_in_its_handle(workspace: Workspace, server: Client) -> None:
    for number in range(40):
        workspace.file(f"file{number:02}.txt", "needle\n" * 10)
    reply = server.call("linux_search_content", root=".", pattern="needle", context_lines=0, max_results=5)
    assert reply.meta["total_hits"] == 400
    assert reply.meta["shown"] == 5
    rows: list[dict[str, object]] = []
    offset: int | None = 0
    while offset is not None:
        page = server.call("linux_handle_read", handle=reply.meta["handle"], unit="items", offset=offset, limit=150)
        rows += [json.loads(line) for line in page.body.splitlines()]
        offset = page.meta.get("next_offset")
    assert len(rows) == 400
    assert rows[399] == {"path": f"{workspace.root}/file39.txt", "line": 10, "snippet": "needle"}


def test_a_cut_listing_leaves_every_name_in_its_handle(workspace: Workspace, server: Client) -> None:
    for number in range(1500):
        workspace.file(f"a-file-with-quite-a-long-name-{number:04}.txt")
    reply = server.call("list_dir", path=".")
    assert reply.meta["truncated"] is True
    assert reply.meta["total"] == 1500
    page = server.call("linux_handle_read", handle=reply.meta["handle"], offset=1499)
    assert page.body == '"a-file-with-quite-a-long-name-1499.txt"\n'


def test_pages_respect_the_reply_limit_and_go_on_where_they_were_cut(workspace: Workspace, server: Client) -> None:
    content = "".join(f"{n} {'x' * (n % 150)}\n" for n in range(2000))
    workspace.file("wide.txt", content)
    handle = server.call("linux_fs_read", path="wide.txt").meta["handle"]
    read = ""
    offset: int | None = 0
    while offset is not None:
        page = server.call("linux_handle_read", handle=handle, offset=offset, limit=1000)
        assert len(page.text.encode()) <= 10_000
        read += page.body
        offset = page.meta.get("next_offset")
    assert read == content


def test_a_person_lists_and_prints_handles(workspace: Workspace) -> None:
    workspace.file("long.txt", "line\n" * 500)
    with Client("--root", str(workspace.root)) as client:
        handle = client.call("linux_fs_read", path="long.txt").meta["handle"]
    listed = llmc("handles")
    assert handle in listed.stdout
    assert str(workspace.root / "long.txt") in listed.stdout
    assert json.loads(llmc("handles", "--json").stdout)[0]["id"] == handle
    assert llmc("handles", handle).stdout == "line\n" * 500
    missing = llmc("handles", "H_file_20260101T000000Z_aaaaaaaaaaaaaaaa")
    assert missing.returncode == 2
    assert "hint: It may have expired" in missing.stderr
