"""A15, A17, A32 and the server's own data: what is kept from every tool that reads."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from llmc_mcp.errors import InvalidPath
from llmc_mcp.files.filesystem import Access, Filesystem

from ..support.client import Client
from ..support.workspace import Workspace, require

PASSWORD = "hunter2-in-a-file"


@pytest.mark.parametrize("name", [".env", "conf/.env.local", "key.pem", "id_rsa", ".netrc", ".aws/credentials"])
def test_a32_a_secret_file_is_shown_by_no_tool(workspace: Workspace, server: Client, name: str) -> None:
    workspace.file(name, f"password={PASSWORD}\n")
    (workspace.root / "link.txt").symlink_to(name)
    for path in (name, "link.txt", f"./{name}"):
        for tool in ("read_file", "linux_fs_read"):
            reply = server.call(tool, path=path)
            assert reply.code == "PERMISSION_DENIED", (tool, path)
            assert "mcp.policy.secret_names" in reply.meta["hint"]
        assert PASSWORD not in server.call("linux_fs_read_many", paths=[path]).text
        assert server.call("repo_read", root=".", path=path).code == "PERMISSION_DENIED"
    for root in (".", name, "link.txt"):
        for arguments in (
            {},
            {"include_ignored": True},
            {"file_glob": "*"},
            {"file_glob": "*", "include_ignored": True},
        ):
            reply = server.call("linux_search_content", root=root, pattern="password", **arguments)
            assert PASSWORD not in reply.text
            assert reply.is_error or reply.meta["total_hits"] == 0
    stat = server.call("stat", path=name)
    assert not stat.is_error
    assert "sha256" not in stat.meta


@pytest.mark.parametrize("name", [".env", "link.txt"])
def test_a32_a_secret_file_that_exists_is_changed_by_no_tool_and_a_new_one_may_be_made(
    workspace: Workspace, server: Client, name: str
) -> None:
    kept = workspace.file(".env", f"password={PASSWORD}\n")
    (workspace.root / "link.txt").symlink_to(".env")
    attempts = (
        server.call("linux_fs_write", path=name, content="x"),
        server.call("linux_fs_write", path=name, content="x", mode="append"),
        server.call("linux_fs_write", path=name, content="x", expected_sha256="0" * 64),
        server.call("linux_fs_edit", path=name, old_text="password", new_text="x"),
    )
    assert [reply.code for reply in attempts] == ["PERMISSION_DENIED"] * 4
    assert kept.read_text() == f"password={PASSWORD}\n"
    assert not server.call("linux_fs_write", path=".env.local", content="DEBUG=1\n").is_error
    assert server.call("linux_fs_write", path=".env.local", content="DEBUG=0\n").code == "PERMISSION_DENIED"


def test_a32_the_names_are_the_operators_to_choose(workspace: Workspace) -> None:
    place_name = ".env"
    workspace.file(place_name, PASSWORD)
    files = Filesystem([str(workspace.root)], Access(secret_names=("*.pem",)))
    fd, _ = files.open_file(files.locate(place_name))
    assert os.read(fd, 100).decode() == PASSWORD
    os.close(fd)


@pytest.fixture
def foreign_link(workspace: Workspace) -> Path:
    """A hard link in the root to a file of another user."""
    require(os.geteuid() == 0, "root, to make another user's file")
    target = workspace.outside / "foreign.txt"
    target.write_text(f"{PASSWORD}\n")
    os.chown(target, 65534, 65534)
    link = workspace.root / "innocent.txt"
    os.link(target, link)
    return link


@pytest.mark.usefixtures("foreign_link")
def test_a15_a_hard_link_to_another_users_file_is_not_read(server: Client) -> None:
    assert server.call("read_file", path="innocent.txt").code == "PERMISSION_DENIED"
    assert "mcp.policy.hard_links" in server.call("read_file", path="innocent.txt").meta["hint"]
    assert server.call("linux_search_content", root=".", pattern="hunter2").meta["total_hits"] == 0


def test_a15_a_hard_link_to_ones_own_file_is_read(workspace: Workspace, server: Client) -> None:
    os.link(workspace.file("a.txt", "mine\n"), workspace.root / "b.txt")
    assert server.call("read_file", path="b.txt").body == "mine\n"


def test_a17_another_file_system_below_a_root_is_entered_only_where_the_operator_lets_it(workspace: Workspace) -> None:
    require(os.geteuid() == 0 and shutil.which("mount") is not None, "root and mount")
    mounted = workspace.root / "mounted"
    mounted.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(mounted)], check=True)
    try:
        (mounted / "file.txt").write_text("inside the mount")
        everywhere = Filesystem([str(workspace.root)], Access(cross_mounts=True))
        at_home = Filesystem([str(workspace.root)], Access(cross_mounts=False))
        assert b"mounted/file.txt" in _names(everywhere)
        assert b"mounted/file.txt" not in _names(at_home)
        os.close(everywhere.open_file(everywhere.locate("mounted/file.txt"))[0])
        with pytest.raises(InvalidPath):
            at_home.open_file(at_home.locate("mounted/file.txt"))
    finally:
        subprocess.run(["umount", str(mounted)], check=True)


def _names(files: Filesystem) -> list[bytes]:
    return [entry.path for entry in files.walk(files.locate("."), depth=2, include_hidden=False)]


def test_the_servers_own_data_below_a_root_is_out_of_reach(workspace: Workspace) -> None:
    data = workspace.root / "state"
    workspace.file("long.txt", f"{PASSWORD}\n" * 500)
    with Client("--root", str(workspace.root), env={"LLMC_DATA_DIR": str(data)}) as client:
        assert client.call("linux_fs_read", path="long.txt").meta["handle"]
        payload = next((data / "handles").iterdir())
        (workspace.root / "link").symlink_to("state")
        for path in (f"state/handles/{payload.name}", f"link/handles/{payload.name}", "state/llmc.db"):
            assert client.call("read_file", path=path).code == "INVALID_PATH"
        assert client.call("list_dir", path="state").code == "INVALID_PATH"
        assert payload.name not in client.call("list_dir", path=".", depth=5, include_hidden=True).text
        reply = client.call("linux_search_content", root=".", pattern="hunter2", include_ignored=True, context_lines=0)
        assert "state/" not in reply.text
        assert client.call("linux_search_content", root="state", pattern="hunter2").code == "INVALID_PATH"
