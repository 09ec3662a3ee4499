"""The folders that a client has open: served, followed when they change, and never more than the operator allows."""

import os
from pathlib import Path
from typing import Any

import pytest

from llmc_mcp.protocol.client_roots import served_folders

from ..support.asking import Message, StdioTalk, call, initialize, outcome
from ..support.client import Client
from ..support.workspace import Workspace

ROOTS: Message = {"roots": {"listChanged": True}}


def uri(path: Path) -> Message:
    return {"uri": path.as_uri()}


class RootsTalk(StdioTalk):
    """A client that says which folders it has open."""

    def __init__(self, client: Client, *folders: Path) -> None:
        super().__init__(client, ROOTS)
        self.client.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self.answer(*folders)

    def answer(self, *folders: Path) -> None:
        self.reply(self.heard("roots/list"), result={"roots": [uri(folder) for folder in folders]})

    def change(self, *folders: Path) -> None:
        self.client.send({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})
        self.answer(*folders)

    def read(self, path: Path | str) -> str:
        return outcome(self.request("tools/call", call("read_file", path=str(path)))).code

    def settled(self, path: Path) -> None:
        """Wait until a folder is served."""
        while self.read(path) == "INVALID_PATH":
            pass


@pytest.fixture(autouse=True)
def files(workspace: Workspace) -> None:
    workspace.file("one/a.txt", "1")
    workspace.file("two/a.txt", "2")


def test_a_client_narrows_the_roots_and_is_followed(server: Client, workspace: Workspace) -> None:
    one, two = workspace.root / "one", workspace.root / "two"
    talk = RootsTalk(server, one)
    assert talk.read(one / "a.txt") == ""
    assert talk.read("a.txt") == ""  # relative paths start at the client's folder
    assert talk.read(two / "a.txt") == "INVALID_PATH"
    listed = outcome(talk.request("tools/call", call("run_cmd", command=["ls", str(workspace.root)])))
    assert "two" not in listed.text
    talk.change(two)
    talk.settled(two / "a.txt")
    assert talk.read(one / "a.txt") == "INVALID_PATH"


def test_a_client_cannot_widen_the_roots(server: Client, workspace: Workspace) -> None:
    (workspace.root / "link").symlink_to(workspace.outside)
    talk = RootsTalk(server, workspace.outside, Path("/"), workspace.root / "link")
    assert talk.read(workspace.root / "one/a.txt") == ""
    assert talk.read(workspace.outside / "secret.txt") == "INVALID_PATH"


def test_an_operator_may_have_the_roots_stay_as_they_are(workspace: Workspace) -> None:
    with Client("--root", str(workspace.root), "--set", "tools.client_roots=false") as client:
        talk = StdioTalk(client, ROOTS)
        client.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        read = call("read_file", path=str(workspace.root / "two/a.txt"))
        assert not outcome(talk.request("tools/call", read)).is_error
        assert not client.notifications


def test_a_client_that_never_names_its_folders_is_served_the_operators(server: Client, workspace: Workspace) -> None:
    server.request("initialize", initialize(ROOTS))
    assert server.call("read_file", path="one/a.txt").text


def test_in_a_home_directory_the_server_starts_and_says_what_to_do(workspace: Workspace, tmp_path: Path) -> None:
    home = tmp_path / "home"
    project = home / "project"
    project.mkdir(parents=True)
    (project / "a.txt").write_text("a")
    env = {"HOME": str(home), "LLMC_DATA_DIR": str(tmp_path / "state")}
    with Client(env=env, cwd=home) as client:
        assert client.request("tools/list", {})["result"]["tools"]
        for tool, arguments in (
            ("list_dir", {"path": "."}),
            ("run_cmd", {"command": "ls"}),
            ("read_file", {"path": "x"}),
        ):
            refused = client.call(tool, **arguments)
            assert refused.code == "INVALID_PATH"
            assert "--root DIR" in refused.meta["message"]
    with Client(env=env, cwd=home) as client:
        talk = RootsTalk(client, project)
        assert talk.read("a.txt") == ""
        assert talk.read(home / "other.txt") == "INVALID_PATH"
    assert not (tmp_path / "state/no-root/x").exists()


@pytest.mark.parametrize(
    "named",
    [
        *("https://example.test/x", "file://other-host/{root}", "file:relative", "file:///%00", "", "/plain/path"),
        *("file:///", "file:///etc", "file://{root}/../..", "file://{root}/missing", "file://{root}/one/a.txt"),
    ],
)
def test_what_is_no_folder_below_the_roots_is_not_served(workspace: Workspace, named: str) -> None:
    answer: dict[str, Any] = {"roots": [{"uri": named.replace("{root}", str(workspace.root))}, 7, {}, {"uri": None}]}
    bound = os.path.realpath(workspace.root)
    assert served_folders(answer, [bound]) in ([], [bound])
    for wrong in ({}, {"roots": None}, {"roots": "x"}):
        assert served_folders(wrong, [bound]) == []
