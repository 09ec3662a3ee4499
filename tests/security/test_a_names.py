"""Files that make another program run something are not the file tools' to change."""

import os
import subprocess
from pathlib import Path

import pytest

from llmc_mcp.cli.install.clients import CLIENTS
from llmc_mcp.config.schema import Policy
from llmc_mcp.policy import name_rules

from ..support.changes import done, server, undo
from ..support.client import Client
from ..support.workspace import Workspace

__all__ = ["server"]  # the fixture

OBEYED = [
    *(".git/commondir", ".git/config.worktree", ".git/HEAD", ".git/info/attributes", "deep/er/.git/commondir"),
    *("mirror.git/config", "mirror.git/hooks/post-update"),
    *(".cursor/mcp.json", ".vscode/mcp.json", ".vscode/tasks.json", ".codex/config.toml", ".zed/settings.json"),
    *(".claude/settings.json", ".claude/settings.local.json", ".claude/hooks/stop.sh", ".gemini/settings.json"),
    *(".idea/workspace.xml", ".roo/mcp.json", ".windsurf/hooks.json", "team.code-workspace", "sub/.vscode/tasks.json"),
    *(".envrc", ".bashrc", ".bash_profile", ".bash_login", ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin"),
    *(".config/fish/config.fish", ".direnvrc", ".vimrc", ".exrc", ".nvimrc", ".nvim.lua", ".emacs", ".dir-locals.el"),
    *(".gdbinit", ".lldbinit", ".gitconfig", ".gitmodules"),
]


def test_a38_what_other_programs_obey_is_not_written(workspace: Workspace, server: Client) -> None:
    workspace.file("mine.txt", "x")
    changed: dict[str, list[str | None]] = {}
    for path in OBEYED:
        (workspace.root / path).parent.mkdir(parents=True, exist_ok=True)
        replies = [
            server.call("linux_fs_write", path=path, content="x"),
            server.call("linux_fs_move", source="mine.txt", target=path),
            server.call("linux_fs_apply_diff", diff_text=f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n"),
        ]
        workspace.file(path, "kept\n")
        replies += [
            server.call("linux_fs_edit", path=path, old_text="kept", new_text="x"),
            server.call("linux_fs_delete", path=path),
            server.call("linux_fs_move", source=path, target="elsewhere"),
        ]
        changed[path] = [reply.code for reply in replies]
    assert changed == dict.fromkeys(OBEYED, ["PERMISSION_DENIED"] * 6)
    assert {(workspace.root / path).read_text() for path in OBEYED} == {"kept\n"}


@pytest.mark.parametrize("path", [client.project_file for client in CLIENTS if client.project_file])
def test_a38_the_project_file_of_every_client_that_can_be_installed_is_protected(path: str) -> None:
    assert name_rules(Policy().protected_names).covers(f"/home/me/project/{path}")


def test_a38_nothing_else_becomes_a_git_folder(workspace: Workspace, server: Client) -> None:
    workspace.file("evil/config", "[core]\n\tfsmonitor = true\n")
    workspace.file("evil/HEAD", "ref: refs/heads/main\n")
    (workspace.root / "evil-link").symlink_to("evil")
    workspace.file("gitfile", "gitdir: evil\n")
    (workspace.root / "new").mkdir()
    replies = {
        "a folder": server.call("linux_fs_move", source="evil", target="new/.git"),
        "a link": server.call("linux_fs_move", source="evil-link", target="new/.git"),
        "a file": server.call("linux_fs_move", source="gitfile", target="new/.git"),
        "a new file": server.call("linux_fs_write", path="new/.git", content="gitdir: ../evil\n"),
        "a new folder": server.call("linux_fs_mkdirs", path="new/.git"),
    }
    assert {name: reply.code for name, reply in replies.items()} == dict.fromkeys(replies, "PERMISSION_DENIED")
    assert os.listdir(workspace.root / "new") == []


def test_a38_an_empty_folder_of_hooks_does_not_become_a_link(workspace: Workspace, server: Client) -> None:
    (workspace.root / ".git/hooks").mkdir(parents=True)
    workspace.file("evil/pre-commit", "#!/bin/sh\n")
    (workspace.root / "evil-link").symlink_to("evil")
    replies = [
        server.call("linux_fs_delete", path=".git/hooks", recursive=True),
        server.call("linux_fs_move", source=".git/hooks", target="away"),
        server.call("linux_fs_move", source="evil", target=".git/hooks"),
        server.call("linux_fs_move", source="evil-link", target=".git/hooks", overwrite=True),
    ]
    assert {reply.code for reply in replies} <= {"PERMISSION_DENIED", "CONFLICT"}
    (workspace.root / ".git/hooks").rmdir()
    assert server.call("linux_fs_move", source="evil-link", target=".git/hooks").code == "PERMISSION_DENIED"
    assert server.call("linux_fs_mkdirs", path=".git/hooks").code == "PERMISSION_DENIED"


def test_a38_no_link_leads_from_an_obeyed_folder_to_files_that_can_be_written(
    workspace: Workspace, server: Client
) -> None:
    workspace.file("evil/settings.json", "{}")
    (workspace.root / "evil-link").symlink_to("evil")
    (workspace.root / "home").mkdir()
    (workspace.root / "home/fish").symlink_to("../evil")
    replies = [
        server.call("linux_fs_move", source="evil-link", target=".claude"),
        server.call("linux_fs_move", source="evil-link", target=".vscode"),
        server.call("linux_fs_move", source="home", target=".config"),
    ]
    assert [reply.code for reply in replies] == ["PERMISSION_DENIED"] * 3


def test_a38_a_crafted_folder_does_not_become_effective_by_a_move(workspace: Workspace, server: Client) -> None:
    """A project is moved with what it holds; what is about the folder around it stays where it is."""
    workspace.file("evil/.claude/settings.json", "{}")
    workspace.file("evil/.vscode/tasks.json", "{}")
    workspace.file("evil/.git/config", "")
    for name in (".claude", ".vscode", ".git"):
        assert server.call("linux_fs_move", source=f"evil/{name}", target=name).code == "PERMISSION_DENIED", name
    done(server.call("linux_fs_move", source="evil", target="renamed"))
    assert (workspace.root / "renamed/.git/config").exists()
    undo(server)


def test_a38_the_neighbours_of_protected_files_can_be_changed(workspace: Workspace, server: Client) -> None:
    for path in (".claude/commands/review.md", ".github/workflows/ci.yml", ".gitignore", "big.git/main/src/config"):
        done(server.call("linux_fs_write", path=path, content="x", create_parents=True))
        assert Path(workspace.root / path).read_text() == "x"


@pytest.mark.parametrize("folder", [".claude", ".gemini", "mirror.git", ".config/nvim"])
def test_a38_an_undo_gives_no_folder_back_its_name_with_other_files_in_it(
    workspace: Workspace, server: Client, folder: str
) -> None:
    """What a folder may not get under its own name, it must not bring along when its move is taken back."""
    obeyed = {".config/nvim": "init.lua", "mirror.git": "hooks/post-update"}.get(folder, "settings.json")
    done(server.call("linux_fs_mkdirs", path=folder))
    move = done(server.call("linux_fs_move", source=folder, target="away"))["undo_id"]
    done(server.call("linux_fs_write", path=f"away/{obeyed}", content="evil", create_parents=True))
    for force in (False, True):
        assert "PERMISSION_DENIED" in server.call("linux_fs_undo", undo_id=move, force=force).text
    assert not (workspace.root / folder).exists()


def test_a38_no_folder_becomes_a_repository_under_another_name(workspace: Workspace, server: Client) -> None:
    """Whoever runs git in a folder with HEAD, objects and refs has it obey the configuration beside them."""
    ran = workspace.outside / "ran"
    config = (
        f'[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n\tfsmonitor = "touch {ran}; false"\n'
    )
    server.call("linux_fs_write", path="lib/config", content=config, create_parents=True)
    for folder in ("lib/objects", "lib/refs"):
        server.call("linux_fs_mkdirs", path=folder)
    server.call("linux_fs_write", path="lib/HEAD", content="ref: refs/heads/main\n")
    server.call("linux_fs_write", path="head", content="ref: refs/heads/main\n")
    server.call("linux_fs_move", source="head", target="lib/HEAD")
    environment = {"PATH": os.environ["PATH"], "HOME": str(workspace.outside)}
    subprocess.run(["git", "status"], cwd=workspace.root / "lib", env=environment, capture_output=True, check=False)
    assert not ran.exists()


def test_a38_a_repository_is_obeyed_as_it_was_whatever_its_name(workspace: Workspace, server: Client) -> None:
    subprocess.run(["git", "init", "-q", "--bare", str(workspace.root / "srv")], check=True)
    before = (workspace.root / "srv/config").read_text()
    workspace.file("evil/post-update", "#!/bin/sh\n")
    server.call("linux_fs_move", source="srv/refs", target="refs")  # so that git itself would not know it for one
    replies = [
        server.call("linux_fs_write", path="srv/config", content="evil"),
        server.call("linux_fs_write", path="srv/hooks/post-update", content="evil"),
        server.call("linux_fs_write", path="srv/commondir", content="../evil"),
        server.call("linux_fs_move", source="evil", target="srv/hooks/deep"),
        server.call("linux_fs_move", source="srv/HEAD", target="head"),
        server.call("linux_fs_delete", path="srv/hooks", recursive=True),
    ]
    assert [reply.code for reply in replies] == ["PERMISSION_DENIED"] * len(replies)
    assert (workspace.root / "srv/config").read_text() == before
    done(server.call("linux_fs_write", path="srv/description", content="mine\n"))


def test_a38_nothing_is_put_into_a_folder_between_the_look_into_it_and_its_move(
    workspace: Workspace, server: Client
) -> None:
    """Looking into a large folder takes a while, and other calls go on meanwhile."""
    for number in range(3_000):
        workspace.file(f"new/many/{number % 30}/{number}")
    calls = [("linux_fs_move", {"source": "new", "target": ".claude"})]
    calls += [("linux_fs_write", {"path": f"new/{name}", "content": "evil"}) for name in ("settings.json", "a", "b")]
    for started in [server.start_call(tool, arguments) for tool, arguments in calls]:
        server.wait(started)
    assert not (workspace.root / ".claude/settings.json").exists()


def test_a38_no_undo_takes_a_repository_away_with_the_folder_that_it_came_into(
    workspace: Workspace, server: Client
) -> None:
    made = done(server.call("linux_fs_mkdirs", path="made"))["undo_id"]
    (workspace.root / "back").mkdir()
    done(server.call("linux_fs_delete", path="back", recursive=True))
    redo = undo(server)[0]["redo_id"]
    for folder, change in (("made", made), ("back", redo)):
        workspace.file(f"{folder}/.git/config", "")
        assert "PERMISSION_DENIED" in server.call("linux_fs_undo", undo_id=change, force=True).text
        assert (workspace.root / folder / ".git/config").exists()
