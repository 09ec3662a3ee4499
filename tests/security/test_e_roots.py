"""E19: what an agent left behind under one project's roots is not there for an agent on another's."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from llmc_mcp.app import App
from llmc_mcp.config.schema import Config
from llmc_mcp.errors import ResourceBusy
from llmc_mcp.session import Session
from llmc_mcp.store.leases import CRIT_CODE, LeaseKey
from llmc_mcp.store.root_sets import RootSet

from ..support.client import Client
from ..support.envelope import Te
from ..support.http_server import TOKEN, HttpServer

SECRET = "plans-of-project-a"
HANDLES = {"type": "ref/resource", "uri": "llmc://handle/{id}"}


class Left(NamedTuple):
    """What an agent on project A left in the store of a user who also works on project B."""

    base: Path
    data: Path
    handle: str
    undo_id: str
    session: str

    def agent(self, root: str, mode: str = "classic") -> Client:
        return Client("--root", str(self.base / root), "--mode", mode, env={"LLMC_DATA_DIR": str(self.data)})


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    base, data = tmp_path_factory.mktemp("projects"), tmp_path_factory.mktemp("data")
    for name in ("a/sub", "ab", "b"):
        (base / "work" / name).mkdir(parents=True)
    (base / "work/a/sub/notes.txt").write_text(f"{SECRET}\n" * 1000)
    env = {"LLMC_DATA_DIR": str(data)}
    with Client("--root", str(base / "work/a"), "--mode", "classic", env=env) as client:
        handle = client.call("linux_fs_read", path="sub/notes.txt").meta["handle"]
        undo_id = client.call("linux_fs_write", path="made.txt", content="by a\n").meta["undo_id"]
        row = client.call("linux_fs_changes", session="all").meta["changes"][0]
    return Left(base, data, handle, undo_id, row["session"])


@pytest.fixture(scope="module", params=["work/b", "work/ab", "work/a/sub"])
def stranger(request: pytest.FixtureRequest, left: Left) -> Iterator[Client]:
    """An agent on another project, on one of a similar name, and on a part of A only."""
    with left.agent(request.param) as client:
        yield client


def request(client: Client, method: str, **params: Any) -> str:
    return json.dumps(client.request(method, params))


# --- another project ---------------------------------------------------------------------------------


def test_e19_a_handle_of_another_project_is_not_there(left: Left, stranger: Client) -> None:
    assert stranger.call("linux_handle_read", handle=left.handle).code == "HANDLE_NOT_FOUND"
    assert stranger.call("linux_handle_read", handle=left.handle, unit="bytes").code == "HANDLE_NOT_FOUND"
    assert stranger.call("linux_handle_read", handle=left.handle, grep="plans").code == "HANDLE_NOT_FOUND"
    assert stranger.call("read_file", path=left.handle).code == "HANDLE_NOT_FOUND"
    assert SECRET not in request(stranger, "resources/read", uri=f"llmc://handle/{left.handle}")


def test_e19_no_handle_of_another_project_is_completed(left: Left, stranger: Client) -> None:
    said = request(stranger, "completion/complete", ref=HANDLES, argument={"name": "id", "value": "H_"})
    assert "H_file" not in said


def test_e19_calls_of_another_project_are_neither_listed_nor_counted(left: Left, stranger: Client) -> None:
    recent = stranger.call("linux_mcp_recent_calls", max_results=1000).text
    assert "notes.txt" not in recent
    assert "made.txt" not in recent
    assert "linux_fs_write" not in stranger.call("linux_mcp_usage_stats").meta["tools"]
    assert "linux_fs_write" not in stranger.call("get_metrics").meta["tools"]


def test_e19_changes_of_another_project_are_neither_told_nor_undone(left: Left, stranger: Client) -> None:
    for session in ("all", left.session):
        for diff in (False, True):
            assert "made.txt" not in stranger.call("linux_fs_changes", session=session, diff=diff).text
    assert stranger.call("linux_fs_undo", undo_id=left.undo_id).code == "NOT_FOUND"
    assert stranger.call("linux_fs_undo", undo_id=left.undo_id, force=True).code == "NOT_FOUND"
    assert (left.base / "work/a/made.txt").read_text() == "by a\n"


def test_e19_a_session_id_that_was_taken_over_brings_no_change_of_another_project(left: Left) -> None:
    with left.agent("work/b") as stranger:
        for arguments in ({}, {"session": True}):
            sent = stranger.start_call("linux_fs_undo", arguments, {"llmc/sessionId": left.session})
            assert "made.txt" not in json.dumps(stranger.wait(sent))
    assert (left.base / "work/a/made.txt").read_text() == "by a\n"


def test_e19_code_reaches_no_more_than_calls_do(left: Left) -> None:
    with left.agent("work/b", "code_execution") as stranger:
        code = (
            f"found = []\n"
            f"for ask in (lambda: linux_handle_read(handle={left.handle!r}), lambda: read_file(path={left.handle!r}),\n"
            f"            lambda: linux_fs_changes(session='all'), lambda: linux_mcp_recent_calls()):\n"
            f"    try:\n"
            f"        found.append(str(ask()))\n"
            f"    except Exception as exc:\n"
            f"        found.append(str(exc)[:16])\n"
            f"found\n"
        )
        reply = stranger.call("execute_code", code=code)
    said = reply.text
    assert reply.meta["result"][:2] == ["HANDLE_NOT_FOUND"] * 2
    assert "notes.txt" not in said
    assert "made.txt" not in said


def test_e19_a_server_on_http_keeps_to_its_roots_too(left: Left) -> None:
    with HttpServer(left.base / "work/b", env={"LLMC_DATA_DIR": str(left.data)}, token=TOKEN) as served:
        assert "HANDLE_NOT_FOUND" in served.tool("linux_handle_read", handle=left.handle).text
        assert "made.txt" not in served.tool("linux_fs_changes", session="all").text
        assert "notes.txt" not in served.tool("linux_mcp_recent_calls", max_results=1000).text


def test_e19_equal_content_gives_each_project_a_handle_of_its_own(left: Left, tmp_path: Path) -> None:
    env = {"LLMC_DATA_DIR": str(tmp_path / "data")}
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/same.txt").write_text("same\n" * 1000)
    made: list[str] = []
    for extra in (tmp_path / "one", tmp_path / "two"):
        extra.mkdir()
        with Client("--root", str(tmp_path / "shared"), "--root", str(extra), "--mode", "classic", env=env) as client:
            made.append(client.call("linux_fs_read", path="same.txt").meta["handle"])
            assert not client.call("read_file", path=made[-1]).is_error
    assert made[0] != made[1]


def test_e19_who_waits_for_a_folder_above_is_not_told_its_path(tmp_path: Path) -> None:
    (tmp_path / "private/project").mkdir(parents=True)
    config = Config()
    config.limits.lease_wait_sec = 0.01
    app = App(config, [str(tmp_path / "private/project")], str(tmp_path / "data"))
    holder, held = Session("p", "s", "bob"), LeaseKey(f"code:{tmp_path / 'private'}", tree=True)

    def never() -> None:
        """Nobody takes the call back."""

    with (
        app.changes.leases.held(CRIT_CODE, [held], holder, wait_s=0, check=never),
        pytest.raises(ResourceBusy, match="bob") as refused,
    ):
        app.mutations.write(Session("p", "t"), "new.txt", "x", never)
    assert str(tmp_path / "private") not in refused.value.message
    app.close()


# --- one's own, and what lies within ------------------------------------------------------------------


@pytest.mark.parametrize("root", ["work/a", "work", "linked"])
def test_e19_the_same_roots_and_wider_ones_see_it(left: Left, root: str) -> None:
    if root == "linked" and not (left.base / root).exists():
        (left.base / root).symlink_to(left.base / "work/a")
    with left.agent(root) as client:
        assert SECRET in client.call("read_file", path=left.handle).text
        assert "notes.txt" in client.call("linux_mcp_recent_calls", max_results=1000).text
        assert "made.txt" in client.call("linux_fs_changes", session="all").text
        said = request(client, "completion/complete", ref=HANDLES, argument={"name": "id", "value": "H_"})
        assert left.handle in said


def llmc(left: Left, *words: str) -> str:
    command = [sys.executable, "-c", "from llmc_mcp.cli.main import main; main()", *words]
    env = {**os.environ, "LLMC_DATA_DIR": str(left.data)}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=env, cwd=left.base / "work/b").stdout


def test_e19_a_person_sees_everything_with_the_folder_it_came_from(left: Left) -> None:
    folder = str(left.base / "work/a")
    for words in (("handles",), ("calls", "-n", "1000"), ("changes", "--all")):
        assert folder in llmc(left, *words)
    assert SECRET in llmc(left, "handles", left.handle)


def test_e19_what_was_kept_before_rows_had_roots_is_only_a_persons() -> None:
    assert not RootSet(["/"]).covers("")
    assert not RootSet([]).covers("")
    assert not RootSet([]).covers(RootSet([]).key)


@pytest.mark.parametrize(
    ("reader", "writer", "visible"),
    [
        (["/a"], ["/a"], True),
        (["/a"], ["/a/b"], True),
        (["/"], ["/a"], True),
        (["/a", "/b"], ["/b/c", "/a"], True),
        (["/a"], ["/"], False),
        (["/a/b"], ["/a"], False),
        (["/a"], ["/ab"], False),
        (["/a"], ["/a", "/b"], False),
        (["/a"], ["/a/../b", "/b"], False),
        (["/a"], ['/a","/b'], False),
        (['/a"\\'], ['/a"\\/b'], True),
    ],
)
def test_e19_every_root_of_the_writer_must_lie_within_the_readers(
    reader: list[str], writer: list[str], visible: bool
) -> None:
    assert RootSet(reader).covers(RootSet(writer).key) is visible


# --- te ----------------------------------------------------------------------------------------------


def kept_by(te: Te) -> str:
    te.file("long.txt", "".join(f"{SECRET} {number}\n" for number in range(5000)))
    said = te("cat", "long.txt").out.decode()
    found = re.search(r"H_cmd_\w+", said)
    assert found, said
    return found[0]


def in_folder(te: Te, folder: Path) -> Te:
    folder.mkdir(parents=True, exist_ok=True)
    return Te(folder, te.data)


@pytest.fixture
def te(tmp_path: Path) -> Te:
    folder = tmp_path / "work/a"
    folder.mkdir(parents=True)
    return Te(folder, tmp_path / "data")


def test_e19_te_gives_an_agent_only_what_was_kept_in_its_own_project(te: Te, tmp_path: Path) -> None:
    handle = kept_by(te)
    assert SECRET in te("--handle", handle).out.decode()
    assert handle in te("--list-handles").out.decode()
    assert "cat" in [row["command"] for row in te.stats()["commands"]]
    for elsewhere in (tmp_path / "work/b", tmp_path / "work/a/deeper"):
        other = in_folder(te, elsewhere)
        assert SECRET not in other("--handle", handle).out.decode()
        assert SECRET not in other("--handle", handle, "--grep", "plans").out.decode()
        assert handle not in other("--list-handles").out.decode()
        assert "cat" not in [row["command"] for row in other.stats()["commands"]]
    above = in_folder(te, tmp_path / "work")
    assert SECRET in above("--handle", handle).out.decode()


def test_e19_a_repository_is_one_place_for_te(te: Te, tmp_path: Path) -> None:
    (te.folder / ".git").mkdir()
    handle = kept_by(in_folder(te, te.folder / "src/one"))
    assert SECRET in in_folder(te, te.folder / "tests")("--handle", handle).out.decode()
    assert SECRET not in in_folder(te, tmp_path / "work/b")("--handle", handle).out.decode()


def test_e19_a_person_reads_what_te_kept_in_a_folder_above(te: Te, tmp_path: Path) -> None:
    handle = kept_by(te)
    deeper, beside = in_folder(te, te.folder / "deeper"), in_folder(te, tmp_path / "work/b")
    assert SECRET in deeper("--handle", handle, TE_AGENT_ID="").out.decode()
    assert SECRET not in beside("--handle", handle, TE_AGENT_ID="").out.decode()


def test_e19_a_server_and_te_share_what_was_kept_within_the_servers_roots(te: Te, tmp_path: Path) -> None:
    handle = kept_by(te)
    env = {"LLMC_DATA_DIR": str(te.data)}
    for root, visible in ((tmp_path / "work/a", True), (tmp_path / "work", True), (tmp_path / "work/b", False)):
        root.mkdir(exist_ok=True)
        with Client("--root", str(root), "--mode", "classic", env=env) as client:
            assert client.call("read_file", path=handle).is_error is not visible
