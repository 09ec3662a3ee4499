"""Writing, moving, deleting, making folders: what the file tools change, and how they take it back."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from .support.changes import done, litter, server, sha, undo
from .support.client import UNASKED, Client
from .support.workspace import Workspace

__all__ = ["server"]  # the fixture


# --- write -----------------------------------------------------------------------------------------


def test_a_write_tells_its_size_the_new_hash_and_how_to_take_it_back(workspace: Workspace, server: Client) -> None:
    reply = done(server.call("linux_fs_write", path="new.txt", content="grüße\n"))
    assert reply == {"bytes_written": 8, "new_sha256": sha("grüße\n"), "undo_id": reply["undo_id"]}
    assert (workspace.root / "new.txt").read_text() == "grüße\n"
    undo(server, reply["undo_id"])
    assert not (workspace.root / "new.txt").exists()


def test_a_rewrite_keeps_the_mode_and_the_undo_brings_the_old_content(workspace: Workspace, server: Client) -> None:
    script = workspace.file("run.sh", "old\n")
    script.chmod(0o750)
    reply = done(server.call("linux_fs_write", path="run.sh", content="new\n"))
    assert (script.read_text(), stat.S_IMODE(script.stat().st_mode)) == ("new\n", 0o750)
    undo(server, reply["undo_id"])
    assert (script.read_text(), stat.S_IMODE(script.stat().st_mode)) == ("old\n", 0o750)


def test_a_new_file_gets_what_the_umask_leaves(workspace: Workspace, server: Client) -> None:
    done(server.call("linux_fs_write", path="new.txt", content=""))
    (workspace.root / "reference").touch()
    assert (workspace.root / "new.txt").stat().st_mode == (workspace.root / "reference").stat().st_mode


def test_append_adds_to_the_end_and_tells_the_hash_of_the_whole(workspace: Workspace, server: Client) -> None:
    workspace.file("log", "one\n")
    reply = done(server.call("linux_fs_write", path="log", content="two\n", mode="append"))
    assert (reply["bytes_written"], reply["new_sha256"]) == (4, sha("one\ntwo\n"))
    assert (workspace.root / "log").read_text() == "one\ntwo\n"
    undo(server)
    assert (workspace.root / "log").read_text() == "one\n"


def test_append_makes_a_file_that_is_missing(workspace: Workspace, server: Client) -> None:
    done(server.call("linux_fs_write", path="log", content="one\n", mode="append"))
    assert (workspace.root / "log").read_text() == "one\n"


def test_what_is_appended_to_a_utf_16_file_is_utf_16(workspace: Workspace, server: Client) -> None:
    path = workspace.file("log", "one\n".encode("utf-16"))
    done(server.call("linux_fs_write", path="log", content="zwö\n", mode="append"))
    assert path.read_bytes().decode("utf-16") == "one\nzwö\n"


def test_folders_on_the_way_are_made_only_when_asked(workspace: Workspace, server: Client) -> None:
    reply = server.call("linux_fs_write", path="a/b/c.txt", content="x")
    assert reply.code == "NOT_FOUND"
    assert "create_parents" in reply.meta["hint"]
    made = done(server.call("linux_fs_write", path="a/b/c.txt", content="x", create_parents=True))
    assert (workspace.root / "a/b/c.txt").read_text() == "x"
    undo(server, made["undo_id"])
    assert workspace.entries() == []


def test_a29_a_stale_hash_is_refused_and_nothing_is_written(workspace: Workspace, server: Client) -> None:
    path = workspace.file("a.txt", "theirs\n")
    reply = server.call("linux_fs_write", path="a.txt", content="mine\n", expected_sha256=sha("older\n"))
    assert reply.code == "SHA_MISMATCH"
    assert path.read_text() == "theirs\n"
    done(server.call("linux_fs_write", path="a.txt", content="mine\n", expected_sha256=sha("theirs\n").upper()))
    assert path.read_text() == "mine\n"


def test_a_missing_file_is_not_checked_and_absent_demands_that_it_is_missing(
    workspace: Workspace, server: Client
) -> None:
    done(server.call("linux_fs_write", path="a.txt", content="one", expected_sha256=sha("whatever")))
    assert server.call("linux_fs_write", path="a.txt", content="two", expected_sha256="absent").code == "CONFLICT"
    assert (workspace.root / "a.txt").read_text() == "one"
    done(server.call("linux_fs_write", path="b.txt", content="two", expected_sha256="absent"))


@pytest.mark.parametrize("expected", ["", "abc", "z" * 64, "Absent"])
def test_a_hash_that_is_none_is_an_argument_error(server: Client, expected: str) -> None:
    reply = server.call("linux_fs_write", path="a.txt", content="x", expected_sha256=expected)
    assert reply.code == "INVALID_ARGUMENT"


def test_bad_targets_get_their_codes_and_nothing_changes(workspace: Workspace, server: Client) -> None:
    (workspace.root / "folder").mkdir()
    os.mkfifo(workspace.root / "fifo")
    read_only = workspace.file("locked.txt", "locked")
    read_only.chmod(0o444)
    workspace.file("plain", "x")
    expected = {
        "folder": "IS_DIRECTORY",
        "folder/": "IS_DIRECTORY",
        ".": "IS_DIRECTORY",
        "fifo": "NOT_A_FILE",
        "locked.txt": "PERMISSION_DENIED",
        "plain/below": "NOT_A_DIRECTORY",
        "../outside/new": "INVALID_PATH",
        str(workspace.outside / "new"): "INVALID_PATH",
        "": "BAD_ARGS",
        "nul\x00": "BAD_ARGS",
        "n" * 300: "BAD_ARGS",
    }
    before = {path: path.lstat() for path in workspace.root.rglob("*")}
    assert {path: server.call("linux_fs_write", path=path, content="x").code for path in expected} == expected
    assert {path: path.lstat() for path in workspace.root.rglob("*")} == before
    assert done(server.call("linux_fs_changes"))["changes"] == []


def test_a_lone_surrogate_is_refused(workspace: Workspace, server: Client) -> None:
    server.send_raw(
        b'{"jsonrpc":"2.0","id":"s","method":"tools/call","params":{"name":"linux_fs_write",'
        b'"arguments":{"path":"a.txt","content":"\\ud800"}}}\n'
    )
    assert "error" in server.wait("s")
    assert not (workspace.root / "a.txt").exists()


def test_a_change_too_large_for_the_journal_needs_the_callers_word(workspace: Workspace, tmp_path: Path) -> None:
    big = workspace.file("big", b"x" * 5000)
    settings = (*UNASKED, "--set", "limits.journal_max_bytes=4096")
    with Client("--root", str(workspace.root), "--mode", "classic", *settings) as server:
        reply = server.call("linux_fs_write", path="big", content="small")
        assert reply.code == "OUTPUT_TOO_LARGE"
        assert "allow_unjournaled" in reply.meta["hint"]
        assert big.stat().st_size == 5000
        more = done(server.call("linux_fs_write", path="big", content="+", mode="append", allow_unjournaled=True))
        assert big.read_bytes() == b"x" * 5000 + b"+"
        assert more["new_sha256"] == sha(b"x" * 5000 + b"+")
        assert server.call("linux_fs_undo", undo_id=more["undo_id"]).code == "STALE"


# --- links and owners ------------------------------------------------------------------------------


def test_a_write_through_a_link_replaces_the_file_and_keeps_the_link(workspace: Workspace, server: Client) -> None:
    target = workspace.file("deep/real.txt", "old")
    for name, leads_to in (("relative", "deep/real.txt"), ("absolute", str(target))):
        (workspace.root / name).symlink_to(leads_to)
        done(server.call("linux_fs_write", path=name, content=name))
        assert (workspace.root / name).is_symlink()
        assert target.read_text() == name


def test_owner_and_extended_attributes_stay(workspace: Workspace, server: Client) -> None:
    path = workspace.file("a.txt", "old")
    os.setxattr(path, "user.note", b"kept")
    if os.geteuid() == 0:
        os.chown(path, 1234, 1235)
    owner = (path.stat().st_uid, path.stat().st_gid)
    done(server.call("linux_fs_write", path="a.txt", content="new"))
    assert os.getxattr(path, "user.note") == b"kept"
    assert (path.stat().st_uid, path.stat().st_gid) == owner


# --- move ------------------------------------------------------------------------------------------


def test_a_move_renames_and_its_undo_renames_back(workspace: Workspace, server: Client) -> None:
    workspace.file("a.txt", "x")
    reply = done(server.call("linux_fs_move", source="a.txt", target="b.txt"))
    assert {**reply, "undo_id": ""} == {
        "ok": True,
        "source": str(workspace.root / "a.txt"),
        "target": str(workspace.root / "b.txt"),
        "undo_id": "",
    }
    assert (workspace.root / "b.txt").read_text() == "x"
    undo(server, reply["undo_id"])
    assert os.listdir(workspace.root) == ["a.txt"]


def test_a_folder_moves_with_all_it_holds(workspace: Workspace, server: Client) -> None:
    workspace.file("from/deep/a.txt", "x")
    (workspace.root / "into").mkdir()
    done(server.call("linux_fs_move", source="from/", target="into/to"))
    assert (workspace.root / "into/to/deep/a.txt").read_text() == "x"
    undo(server)
    assert (workspace.root / "from/deep/a.txt").read_text() == "x"


def test_a25_a_move_replaces_only_when_told_and_the_undo_brings_both_back(workspace: Workspace, server: Client) -> None:
    workspace.file("a.txt", "a")
    workspace.file("b.txt", "b")
    assert server.call("linux_fs_move", source="a.txt", target="b.txt").code == "CONFLICT"
    done(server.call("linux_fs_move", source="a.txt", target="b.txt", overwrite=True))
    assert {path.name: path.read_text() for path in workspace.entries()} == {"b.txt": "a"}
    redo = undo(server)[0]["redo_id"]
    assert {path.name: path.read_text() for path in workspace.entries()} == {"a.txt": "a", "b.txt": "b"}
    undo(server, redo)
    assert {path.name: path.read_text() for path in workspace.entries()} == {"b.txt": "a"}


def test_a25_bad_moves_get_their_codes(workspace: Workspace, server: Client) -> None:
    workspace.file("dir/a.txt", "x")
    workspace.file("b.txt", "x")
    expected = {
        ("missing", "c"): "NOT_FOUND",
        ("dir", "dir/inside"): "INVALID_ARGUMENT",
        ("b.txt", "b.txt"): "INVALID_ARGUMENT",
        ("b.txt", "dir"): "CONFLICT",
        ("b.txt", "nowhere/c"): "NOT_FOUND",
        ("b.txt", "../outside/c"): "INVALID_PATH",
        ("../outside/secret.txt", "c"): "INVALID_PATH",
        (".", "c"): "PERMISSION_DENIED",
        ("b.txt/", "c"): "NOT_A_DIRECTORY",
    }
    seen = {pair: server.call("linux_fs_move", source=pair[0], target=pair[1]).code for pair in expected}
    assert seen == expected


# --- delete ----------------------------------------------------------------------------------------


def test_what_is_deleted_is_in_the_trash_and_comes_back_as_it_was(workspace: Workspace, server: Client) -> None:
    path = workspace.file("a.txt", "x")
    path.chmod(0o440)
    reply = done(server.call("linux_fs_delete", path="a.txt"))
    assert reply["path"] == str(path)
    assert not path.exists()
    undo(server, reply["undo_id"])
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("x", 0o440)


def test_a_folder_is_deleted_only_recursively(workspace: Workspace, server: Client) -> None:
    workspace.file("dir/deep/a.txt", "x")
    (workspace.root / "dir/link").symlink_to(workspace.outside)
    assert server.call("linux_fs_delete", path="dir").code == "IS_DIRECTORY"
    done(server.call("linux_fs_delete", path="dir", recursive=True))
    assert workspace.entries() == []
    assert os.listdir(workspace.outside) == ["secret.txt"]
    undo(server)
    assert (workspace.root / "dir/deep/a.txt").read_text() == "x"
    assert (workspace.root / "dir/link").is_symlink()


def test_a_deleted_link_is_the_link_not_what_it_leads_to(workspace: Workspace, server: Client) -> None:
    target = workspace.file("real.txt", "x")
    (workspace.root / "link").symlink_to("real.txt")
    done(server.call("linux_fs_delete", path="link"))
    assert target.read_text() == "x"
    undo(server)
    assert os.readlink(workspace.root / "link") == "real.txt"


@pytest.mark.usefixtures("sqlite_store")  # whose trash is in the data directory
def test_deleting_what_the_trash_has_no_room_for_needs_the_callers_word(workspace: Workspace, tmp_path: Path) -> None:
    workspace.file("big", b"x" * 5000)
    settings = (*UNASKED, "--set", "limits.trash_max_total_bytes=4096")
    env = {"LLMC_DATA_DIR": str(tmp_path / "data")}
    with Client("--root", str(workspace.root), "--mode", "classic", *settings, env=env) as server:
        assert server.call("linux_fs_delete", path="big").code == "OUTPUT_TOO_LARGE"
        workspace.file("small", b"y" * 100)
        small = done(server.call("linux_fs_delete", path="small"))
        gone = done(server.call("linux_fs_delete", path="big", allow_unjournaled=True))
        assert server.call("linux_fs_undo", undo_id=gone["undo_id"]).code == "STALE"
        assert len(os.listdir(tmp_path / "data/trash")) == 1
        undo(server, small["undo_id"])
        assert (workspace.root / "small").exists()


# --- mkdirs ----------------------------------------------------------------------------------------


def test_folders_are_made_once_and_unmade_by_undo(workspace: Workspace, server: Client) -> None:
    reply = done(server.call("linux_fs_mkdir", path="a/b/c"))
    assert (workspace.root / "a/b/c").is_dir()
    assert done(server.call("linux_fs_mkdirs", path="a/b/c")).get("undo_id") is None
    assert server.call("linux_fs_mkdirs", path="a/b/c", exist_ok=False).code == "CONFLICT"
    undo(server, reply["undo_id"])
    assert os.listdir(workspace.root) == []


def test_a_file_or_a_dangling_link_in_the_way_is_a_conflict(workspace: Workspace, server: Client) -> None:
    workspace.file("plain", "x")
    (workspace.root / "dangling").symlink_to("nowhere")
    assert server.call("linux_fs_mkdirs", path="plain").code == "CONFLICT"
    assert server.call("linux_fs_mkdirs", path="plain/below").code in ("CONFLICT", "NOT_A_DIRECTORY")
    assert server.call("linux_fs_mkdirs", path="dangling").code == "CONFLICT"
    assert server.call("linux_fs_mkdirs", path="dangling/below").code == "INVALID_PATH"
    assert not (workspace.root / "nowhere").exists()


# --- another file system ---------------------------------------------------------------------------


@pytest.fixture
def elsewhere(workspace: Workspace) -> Iterator[Path]:
    """A folder on another file system than the workspace's."""
    shm = Path("/dev/shm")
    if not shm.is_dir() or shm.stat().st_dev == workspace.root.stat().st_dev:
        pytest.skip("needs a second file system at /dev/shm")
    folder = shm / f"llmc-test-{os.getpid()}"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.mark.usefixtures("sqlite_store")  # whose trash is in the data directory
def test_moves_and_deletes_cross_file_systems_and_come_back(workspace: Workspace, elsewhere: Path) -> None:
    workspace.file("dir/a.sh", "x").chmod(0o751)
    (workspace.root / "dir/link").symlink_to("a.sh")
    with Client("--root", str(workspace.root), "--root", str(elsewhere), "--mode", "classic", *UNASKED) as server:
        done(server.call("linux_fs_move", source="dir", target=str(elsewhere / "dir")))
        moved = elsewhere / "dir/a.sh"
        assert (moved.read_text(), stat.S_IMODE(moved.stat().st_mode)) == ("x", 0o751)
        assert os.readlink(elsewhere / "dir/link") == "a.sh"
        assert os.listdir(workspace.root) == []
        done(server.call("linux_fs_delete", path=str(elsewhere / "dir"), recursive=True))
        assert os.listdir(elsewhere) == []
        assert len(undo(server, session=True)) == 2
        assert (workspace.root / "dir/a.sh").read_text() == "x"
        assert os.listdir(elsewhere) == []
        assert litter(workspace.root) == []
