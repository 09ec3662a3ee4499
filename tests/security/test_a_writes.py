"""Attacks on the tools that change files: nothing outside the root changes, nothing protected changes."""

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmc_mcp.app import App
from llmc_mcp.changes.edit import TextEdit
from llmc_mcp.config.schema import Config
from llmc_mcp.errors import LlmcError
from llmc_mcp.session import Session

from ..support.changes import done, litter, never, server, undo
from ..support.client import Client
from ..support.workspace import SECRET, Workspace, require
from .test_a_races import INSIDE, Rig

__all__ = ["server"]  # the fixture

RACES = 15  # of every kind
PATIENT_ROUNDS = 20
WHO = Session("uid:0", "attack")


# --- A11: races ------------------------------------------------------------------------------------


class Mutator:
    """Changes things below `swap`, which is a folder at one moment and a link that leads out at the next."""

    def __init__(self, app: App, root: Path) -> None:
        self._app, self._round = app, 0
        self._real = os.open(root / "swap", os.O_RDONLY | os.O_DIRECTORY)  # whatever its name is at the moment
        self.calls: dict[str, Callable[[], object]] = {
            "write": lambda: app.mutations.write(WHO, "swap/deep/file.txt", f"{self._round}\n", never),
            "append": lambda: app.mutations.write(WHO, "swap/deep/file.txt", "word\n", never, append=True),
            "create": lambda: app.mutations.write(WHO, f"swap/made/{self._round}", "x", never, parents=True),
            "edit": lambda: app.mutations.edit(WHO, "swap/deep/file.txt", [TextEdit("word", "words")], never),
            "diff": lambda: app.patching.apply(WHO, DIFF, False, never),
            "mkdirs": lambda: app.mutations.mkdirs(WHO, f"swap/deep/{self._round}/x", True, never),
            "move": lambda: app.mutations.move(WHO, "swap/deep/file.txt", "swap/file.txt", True, never),
            "delete": lambda: app.mutations.delete(WHO, "swap/deep", never, recursive=True),
            "undo": lambda: app.undoing.undo(WHO, app.changes.journal.newest(WHO), True, never),
        }

    def run(self, rounds: int) -> Counter[str]:
        """Every kind of change, `rounds` times; what came of each."""
        seen: Counter[str] = Counter()
        for _ in range(rounds):
            self._round += 1
            for name, call in self.calls.items():
                self._restore()
                try:
                    call()
                except LlmcError as exc:
                    seen[f"{name} {exc.code}"] += 1
                else:
                    seen[f"{name} ok"] += 1
        return seen

    def _restore(self) -> None:
        """The file that most changes are about, whatever the last one did to it."""
        try:
            os.mkdir("deep", dir_fd=self._real)
        except FileExistsError:
            pass
        fd = os.open("deep/file.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, dir_fd=self._real)
        os.write(fd, INSIDE.encode())
        os.close(fd)

    def close(self) -> None:
        os.close(self._real)


DIFF = """\
--- a/swap/deep/file.txt
+++ b/swap/deep/file.txt
@@ -1 +1 @@
-common word, inside
+common word, patched
"""


@pytest.mark.parametrize("target", ["../outside/twin", "{outside}/twin"])
def test_a11_raced_changes_change_nothing_outside(workspace: Workspace, tmp_path: Path, target: str) -> None:
    rig = Rig(workspace, target)
    app = App(Config(), [str(workspace.root)], str(tmp_path / "data"))
    mutator, seen = Mutator(app, workspace.root), Counter[str]()
    with rig.swapping():
        for _ in range(PATIENT_ROUNDS):
            seen.update(mutator.run(RACES))
            if all(seen[f"{name} ok"] for name in mutator.calls) and seen["write INVALID_PATH"]:
                break
    unfinished = [change for change in app.changes.journal.history(None, None, 10_000) if change.state != "done"]
    assert (unfinished, app.changes.journal.pending(), app.changes.leases.all()) == ([], [], [])
    assert litter(workspace.root) == []
    mutator.close()
    app.close()
    rig.assert_outside_untouched()
    assert all(seen[f"{name} ok"] for name in mutator.calls), seen
    assert seen["write INVALID_PATH"], seen
    assert not any("INTERNAL" in outcome for outcome in seen), seen


# --- A15, A16: links -------------------------------------------------------------------------------


def test_a15_writing_a_hard_link_replaces_the_name_only(workspace: Workspace, server: Client) -> None:
    outside = workspace.outside / "mine.txt"
    outside.write_text("outside\n")
    os.link(outside, workspace.root / "linked.txt")
    done(server.call("linux_fs_write", path="linked.txt", content="inside\n"))
    done(server.call("linux_fs_write", path="linked.txt", content="more\n", mode="append"))
    assert outside.read_text() == "outside\n"
    assert (workspace.root / "linked.txt").read_text() == "inside\nmore\n"


def test_a15_a_hard_link_to_anothers_file_is_refused(workspace: Workspace, server: Client) -> None:
    require(os.geteuid() == 0, "root, to make another user's file")
    outside = workspace.outside / "theirs.txt"
    outside.write_text("theirs\n")
    os.chown(outside, 1234, 1234)
    os.link(outside, workspace.root / "linked.txt")
    reply = server.call("linux_fs_write", path="linked.txt", content="x")
    assert reply.code == "PERMISSION_DENIED"
    assert "hard_links" in reply.meta["hint"]
    assert outside.read_text() == "theirs\n"


@pytest.mark.parametrize(
    "target", ["{outside}/new.txt", "../outside/new.txt", "inside-but-missing.txt", "/proc/self/x"]
)
def test_a16_nothing_is_created_through_a_dangling_link(workspace: Workspace, server: Client, target: str) -> None:
    (workspace.root / "link").symlink_to(target.format(outside=workspace.outside))
    for arguments in ({}, {"mode": "append"}, {"create_parents": True}, {"expected_sha256": "absent"}):
        assert server.call("linux_fs_write", path="link", content="x", **arguments).code == "INVALID_PATH"
    assert server.call("linux_fs_write", path="link/below", content="x", create_parents=True).code == "INVALID_PATH"
    assert os.listdir(workspace.outside) == ["secret.txt"]
    assert os.listdir(workspace.root) == ["link"]


def test_a16_a_link_that_leads_out_is_refused_and_its_file_stays(workspace: Workspace, server: Client) -> None:
    (workspace.root / "link").symlink_to(workspace.outside / "secret.txt")
    (workspace.root / "folder").symlink_to(workspace.outside)
    for path in ("link", "folder/secret.txt", "folder/new.txt"):
        assert server.call("linux_fs_write", path=path, content="x").code == "INVALID_PATH"
        assert server.call("linux_fs_edit", path=path, old_text="SECRET", new_text="x").code == "INVALID_PATH"
    assert server.call("linux_fs_mkdirs", path="folder/new").code == "INVALID_PATH"
    assert server.call("linux_fs_move", source="folder/secret.txt", target="mine").code == "INVALID_PATH"
    assert server.call("linux_fs_delete", path="folder/secret.txt").code == "INVALID_PATH"
    assert (workspace.outside / "secret.txt").read_text() == f"{SECRET}\n"
    assert os.listdir(workspace.outside) == ["secret.txt"]


# --- A23 to A26: what must stay --------------------------------------------------------------------


@pytest.mark.parametrize("path", [".", "", "/", "./", "sub/..", "sub/.", "{root}", "{root}/", "{root}/."])
def test_a23_a_root_is_never_deleted_or_moved(workspace: Workspace, server: Client, path: str) -> None:
    workspace.file("sub/a.txt", "x")
    path = path.format(root=workspace.root)
    for tool, arguments in (
        ("linux_fs_delete", {"path": path, "recursive": True, "allow_unjournaled": True}),
        ("linux_fs_move", {"source": path, "target": "elsewhere"}),
    ):
        assert server.call(tool, **arguments).code in ("PERMISSION_DENIED", "INVALID_PATH", "BAD_ARGS")
    assert (workspace.root / "sub/a.txt").read_text() == "x"


def test_a23_a_folder_that_holds_a_root_or_the_servers_data_stays(workspace: Workspace) -> None:
    inner = workspace.root / "a/inner"
    inner.mkdir(parents=True)
    data = workspace.root / "b/data"
    with Client(
        "--root", str(workspace.root), "--root", str(inner), "--mode", "classic", env={"LLMC_DATA_DIR": str(data)}
    ) as it:
        for path in ("a", "a/inner", "b", "b/data"):
            assert it.call("linux_fs_delete", path=path, recursive=True).code in ("PERMISSION_DENIED", "INVALID_PATH")
            assert it.call("linux_fs_move", source=path, target="c").code in ("PERMISSION_DENIED", "INVALID_PATH")
        assert it.call("linux_fs_write", path="b/data/llmc.db", content="x").code == "INVALID_PATH"
        assert it.call("linux_fs_write", path="b/data/new", content="x").code == "INVALID_PATH"
        done(it.call("linux_fs_write", path="fine.txt", content="x"))


def test_a24_a_link_in_a_deleted_folder_is_removed_not_followed(workspace: Workspace, server: Client) -> None:
    workspace.file("dir/a.txt", "x")
    (workspace.root / "dir/out").symlink_to(workspace.outside)
    done(server.call("linux_fs_delete", path="dir", recursive=True))
    assert (workspace.outside / "secret.txt").read_text() == f"{SECRET}\n"
    undo(server)
    assert os.readlink(workspace.root / "dir/out") == str(workspace.outside)


def test_a26_a_root_that_was_renamed_is_still_the_root(workspace: Workspace, server: Client) -> None:
    assert not server.call("health").is_error  # it has opened its root
    moved = workspace.root.with_name("moved")
    workspace.root.rename(moved)
    workspace.root.symlink_to(workspace.outside)
    change = done(server.call("linux_fs_write", path="a.txt", content="x"))
    assert (moved / "a.txt").read_text() == "x"
    assert os.listdir(workspace.outside) == ["secret.txt"]
    undo(server, change["undo_id"])
    assert not (moved / "a.txt").exists()
    workspace.root.unlink()
    moved.rename(workspace.root)


# --- A30: modes ------------------------------------------------------------------------------------


def test_a30_set_user_id_is_never_kept(workspace: Workspace, server: Client) -> None:
    path = workspace.file("tool", "old")
    path.chmod(0o6755)
    done(server.call("linux_fs_write", path="tool", content="new"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    undo(server)
    assert stat.S_IMODE(path.stat().st_mode) == 0o755


def test_a30_a_read_only_file_is_respected_even_by_root(workspace: Workspace, server: Client) -> None:
    path = workspace.file("locked", "old\n")
    path.chmod(0o444)
    assert server.call("linux_fs_write", path="locked", content="new").code == "PERMISSION_DENIED"
    assert server.call("linux_fs_edit", path="locked", old_text="old", new_text="new").code == "PERMISSION_DENIED"
    assert path.read_text() == "old\n"


# --- A31, A32: names -------------------------------------------------------------------------------

PROTECTED = [".git/hooks/pre-commit", ".git/config", ".mcp.json", "sub/.git/config", "llmc.toml", "sub/.mcp.json"]


@pytest.fixture
def protected(workspace: Workspace) -> Iterator[Workspace]:
    for name in PROTECTED:
        workspace.file(name, "kept\n")
    yield workspace
    assert [(workspace.root / name).read_text() for name in PROTECTED] == ["kept\n"] * len(PROTECTED)


@pytest.mark.parametrize("path", [*PROTECTED, ".git/hooks/new", ".git/hooks/deep/new", "new/.git/config"])
def test_a31_protected_names_are_not_changed_by_any_tool(protected: Workspace, server: Client, path: str) -> None:
    protected.file("mine.txt", "x")
    replies = [
        server.call("linux_fs_write", path=path, content="x", create_parents=True),
        server.call("linux_fs_write", path=path, content="x", mode="append", create_parents=True),
        server.call("linux_fs_edit", path=path, old_text="kept", new_text="x"),
        server.call("linux_fs_move", source="mine.txt", target=path, overwrite=True),
        server.call("linux_fs_apply_diff", diff_text=f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n"),
    ]
    if (protected.root / path).exists():
        replies += [
            server.call("linux_fs_delete", path=path),
            server.call("linux_fs_move", source=path, target="elsewhere"),
        ]
    codes = {reply.code for reply in replies}
    assert codes <= {"PERMISSION_DENIED", "NOT_FOUND"}, codes  # a move into a folder that is not there
    assert replies[0].code == "PERMISSION_DENIED"
    assert "protected_names" in replies[0].meta["hint"]


def test_a31_no_detour_leads_to_a_protected_name(protected: Workspace, server: Client) -> None:
    protected.file("fake/hooks/pre-commit", "evil\n")
    protected.file("h/pre-commit", "evil\n")
    (protected.root / "hooks").symlink_to(".git/hooks")
    (protected.root / "config").symlink_to(".git/config")
    (protected.root / "sub2").mkdir()
    (protected.root / "sub2/.mcp.json").symlink_to("../fake/hooks/pre-commit")
    replies = {
        "through a folder link": server.call("linux_fs_write", path="hooks/post-commit", content="evil"),
        "through a file link": server.call("linux_fs_write", path="config", content="evil"),
        "a protected name that is a link": server.call("linux_fs_write", path="sub2/.mcp.json", content="evil"),
        "a folder moved to the place": server.call("linux_fs_move", source="fake", target="sub2/.git"),
        "a folder moved inside": server.call("linux_fs_move", source="h", target="sub2/../.git/hooks/x"),
        "the folder moved away": server.call("linux_fs_move", source=".git", target="away"),
        "the folder deleted": server.call("linux_fs_delete", path=".git", recursive=True),
        "the folder above deleted": server.call("linux_fs_delete", path="sub", recursive=True),
        "mkdirs": server.call("linux_fs_mkdirs", path=".git/hooks/dir"),
    }
    assert {name: reply.code for name, reply in replies.items()} == dict.fromkeys(replies, "PERMISSION_DENIED")


def test_a31_a_project_may_be_moved_with_its_git_folder(protected: Workspace, server: Client) -> None:
    done(server.call("linux_fs_move", source="sub", target="sub-renamed"))
    assert (protected.root / "sub-renamed/.git/config").read_text() == "kept\n"
    undo(server)


def test_a31_the_configuration_the_server_was_started_with_is_its_own(workspace: Workspace, tmp_path: Path) -> None:
    own = workspace.file("settings/my.toml", "[mcp]\nmode = 'classic'\n")
    with Client("--root", str(workspace.root), "--config", str(own)) as it:
        assert it.call("linux_fs_write", path="settings/my.toml", content="x").code == "PERMISSION_DENIED"
        assert it.call("linux_fs_delete", path="settings", recursive=True).code == "PERMISSION_DENIED"
    assert own.read_text().startswith("[mcp]")


def test_a31_the_list_is_the_operators(workspace: Workspace) -> None:
    workspace.file(".git/config", "old\n")
    settings = ("--set", 'policy.protected_names=["*.lock"]')
    with Client("--root", str(workspace.root), "--mode", "classic", *settings) as it:
        done(it.call("linux_fs_write", path=".git/config", content="new\n"))
        assert it.call("linux_fs_write", path="deep/uv.lock", content="x").code in ("PERMISSION_DENIED", "NOT_FOUND")
        assert it.call("linux_fs_write", path="uv.lock", content="x").code == "PERMISSION_DENIED"


def test_a32_a_secret_does_not_become_readable_under_another_name(workspace: Workspace, server: Client) -> None:
    workspace.file(".env", "TOKEN=hunter2\n")
    workspace.file(".aws/credentials", "hunter2\n")
    workspace.file("plain.txt", "x\n")
    replies = [
        server.call("linux_fs_move", source=".env", target="seen.txt"),
        server.call("linux_fs_move", source=".aws", target="aws"),
        server.call("linux_fs_move", source=".aws/credentials", target="seen.txt"),
        server.call("linux_fs_move", source="plain.txt", target=".env", overwrite=True),
        server.call("linux_fs_edit", path=".env", old_text="TOKEN", new_text="X"),
    ]
    assert {reply.code for reply in replies} == {"PERMISSION_DENIED"}
    assert server.call("linux_fs_write", path=".env", content="TOKEN=mine\n").code == "PERMISSION_DENIED"
    done(server.call("linux_fs_write", path=".env.local", content="TOKEN=hunter2\n"))
    shown = server.call("linux_fs_changes", diff=True).text + "".join(reply.text for reply in replies)
    assert "hunter2" not in shown
    undo(server)
    assert not (workspace.root / ".env.local").exists()
    assert (workspace.root / ".env").read_text() == "TOKEN=hunter2\n"
