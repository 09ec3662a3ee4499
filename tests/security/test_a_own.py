"""Attacks on the server through its own code (A37), and on what the sandbox hides, by file tools (A39)."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..support.changes import done
from ..support.client import Client
from ..support.workspace import SECRET, Workspace, require
from .arena import put_code_into

DIFF = "--- a/{0}\n+++ b/{0}\n@@ -1 +1 @@\n-# of the server\n+# of another\n"
NEW_FILE = "--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n+# of another\n"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="module")
def server(served: Workspace) -> Iterator[Client]:
    """A server whose own code lies in its root, started in that root."""
    path = put_code_into(served.root)
    served.file("free/evil.py", "evil\n")
    served.file("app/notes.md", "words\n")
    (served.root / "link").symlink_to("app/lib")
    env = {"PYTHONPATH": path, "LLMC_DATA_DIR": str(served.root.parent / "data")}
    with Client("--root", str(served.root), "--mode", "classic", env=env, cwd=served.root) as client:
        yield client


CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "write": ("linux_fs_write", {"path": "app/lib/late.py", "content": "evil"}),
    "append": ("linux_fs_write", {"path": "app/lib/late.py", "content": "evil", "mode": "append"}),
    "create": ("linux_fs_write", {"path": "app/lib/json.py", "content": "evil"}),
    "create deep": (
        "linux_fs_write",
        {"path": "app/lib/new/deep.py", "content": "evil", "create_parents": True},
    ),
    "through a link": ("linux_fs_write", {"path": "link/json.py", "content": "evil"}),
    "compiled": (
        "linux_fs_write",
        {"path": "app/lib/llmc_mcp/__pycache__/x.pyc", "content": "evil", "create_parents": True},
    ),
    "edit": ("linux_fs_edit", {"path": "app/lib/late.py", "old_text": "server", "new_text": "evil"}),
    "diff": ("linux_fs_apply_diff", {"diff_text": DIFF.format("app/lib/late.py")}),
    "edit by symbol": (
        "code_edit",
        {"symbol": "app/lib/late.py:VALUE", "action": "replace_body", "text": "VALUE = 'evil'"},
    ),
    "rewrite": (
        "code_rewrite",
        {"pattern": "__version__ = $A", "rewrite": "evil = $A", "language": "python", "paths": ["app/lib/llmc_mcp"]},
    ),
    "diff that creates": ("linux_fs_apply_diff", {"diff_text": NEW_FILE.format("app/lib/json.py")}),
    "delete": ("linux_fs_delete", {"path": "app/lib/late.py"}),
    "delete all": ("linux_fs_delete", {"path": "app/lib", "recursive": True}),
    "delete a parent": ("linux_fs_delete", {"path": "app", "recursive": True}),
    "move away": ("linux_fs_move", {"source": "app/lib/late.py", "target": "late.py"}),
    "move all": ("linux_fs_move", {"source": "app/lib", "target": "lib"}),
    "move a parent": ("linux_fs_move", {"source": "app", "target": "app2"}),
    "move into": ("linux_fs_move", {"source": "free/evil.py", "target": "app/lib/json.py"}),
    "move over": ("linux_fs_move", {"source": "free/evil.py", "target": "app/lib/late.py", "overwrite": True}),
    "make a folder": ("linux_fs_mkdirs", {"path": "app/lib/json"}),
}


@pytest.mark.parametrize("attack", CHANGES)
def test_a37_no_file_tool_changes_the_servers_own_code(server: Client, served: Workspace, attack: str) -> None:
    before = sorted((path, path.is_file() and path.read_bytes()) for path in (served.root / "app").rglob("*"))
    tool, arguments = CHANGES[attack]
    reply = server.call(tool, **arguments)
    assert reply.code == "PERMISSION_DENIED", reply.text
    assert reply.meta["hint"]
    after = sorted((path, path.is_file() and path.read_bytes()) for path in (served.root / "app").rglob("*"))
    assert [row for row in after if "__pycache__" not in row[0].parts] == [
        row for row in before if "__pycache__" not in row[0].parts
    ]


def test_a37_own_code_can_be_read_and_its_neighbours_changed(server: Client) -> None:
    assert "of the server" in server.call("read_file", path="app/lib/late.py").text
    done(server.call("linux_fs_write", path="app/notes.md", content="other words\n"))
    done(server.call("linux_fs_move", source="app/notes.md", target="free/notes.md"))
    assert "own code" in server.log


def test_a37_an_undo_puts_nothing_into_own_code(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    env = {"LLMC_DATA_DIR": str(tmp_path / "data")}
    start = ("--root", str(workspace.root), "--mode", "classic")
    workspace.file("app/lib/json.py", "evil\n")
    with Client(*start, env=env) as before:
        change = done(before.call("linux_fs_delete", path="app/lib/json.py"))["undo_id"]
    path = put_code_into(workspace.root)
    with Client(*start, env={**env, "PYTHONPATH": path}) as client:
        reply = client.call("linux_fs_undo", undo_id=change, force=True)
        assert "PERMISSION_DENIED" in reply.text
    assert not (workspace.root / "app/lib/json.py").exists()


def test_a37_a_link_on_the_way_to_own_code_stays(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    put_code_into(tmp_path / "elsewhere")
    (workspace.root / "venv").symlink_to(tmp_path / "elsewhere/app/lib")
    env = {"PYTHONPATH": str(workspace.root / "venv"), "LLMC_DATA_DIR": str(tmp_path / "data")}
    with Client("--root", str(workspace.root), "--mode", "classic", env=env) as client:
        assert client.call("linux_fs_delete", path="venv").code == "PERMISSION_DENIED"
        assert client.call("linux_fs_move", source="venv", target="x").code == "PERMISSION_DENIED"
        assert "link on the way" in client.call("run_cmd", command="true").text
    assert (workspace.root / "venv").is_symlink()


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """Where a folder with the server's code and the data of servers is shown once more."""
    require(os.getuid() == 0, "a test run as root")
    there, shown = tmp_path / "there", tmp_path / "shown"
    for folder in (there, shown):
        folder.mkdir()
    subprocess.run(["mount", "--bind", str(there), str(shown)], check=True)
    yield shown
    subprocess.run(["umount", str(shown)], check=True)


def test_a37_b24_own_code_stays_as_it_is_under_the_name_of_another_mount(mounted: Path, tmp_path: Path) -> None:
    env = {"PYTHONPATH": put_code_into(tmp_path / "there"), "LLMC_DATA_DIR": str(tmp_path / "there/data")}
    with Client("--root", str(mounted), "--mode", "classic", env=env) as client:
        assert client.call("linux_fs_write", path="app/lib/late.py", content="evil").code == "PERMISSION_DENIED"
        assert client.call("linux_fs_move", source="app", target="away").code == "PERMISSION_DENIED"
        for path in ("app/lib/late.py", "data/evil"):
            client.call("run_cmd", command=["bash", "-c", f"echo evil >> {mounted}/{path}"])
        assert client.call("list_dir", path="data").is_error
    assert (mounted / "app/lib/late.py").read_text() == "# of the server\n"
    assert not (mounted / "data/evil").exists()


# Modules of the standard library that some tool needs, and a start does not.
LATE = ("difflib", "hashlib", "json", "pathlib", "random", "resource", "selectors", "shutil", "sqlite3", "tempfile")


def test_a37_nothing_in_a_root_is_imported_late(workspace: Workspace, tmp_path: Path) -> None:
    """`python -m` and PYTHONPATH put folders of the user on the import path, before the standard library."""
    (workspace.root / "mine").mkdir()
    env = {"PYTHONPATH": str(workspace.root / "mine"), "LLMC_DATA_DIR": str(tmp_path / "data")}
    with Client("--root", str(workspace.root), "--mode", "classic", env=env, cwd=workspace.root) as client:
        client.call("health")
        for module in LATE:
            for folder in ("", "mine/"):
                workspace.file(
                    f"{folder}{module}.py", f"open({str(workspace.outside / 'ran')!r}, 'a').write({module!r})\n"
                )
        done(client.call("linux_fs_write", path="a.txt", content="one\n"))
        done(client.call("linux_fs_edit", path="a.txt", old_text="one", new_text="two"))
        done(client.call("linux_fs_changes", diff=True))
        assert not client.call("linux_search_content", root=".", pattern="two").is_error
        client.call("run_cmd", command="true")
        client.call("execute_code", code="1")
    assert not (workspace.outside / "ran").exists()


def test_a37_nothing_in_the_working_directory_is_imported_at_the_start(workspace: Workspace) -> None:
    for module in ("msgspec", "signal", *LATE):
        workspace.file(f"{module}.py", f"open({str(workspace.outside / 'ran')!r}, 'a').write({module!r})\n")
    with Client("--root", str(workspace.root), cwd=workspace.root) as client:
        assert not client.call("list_dir", path=".").is_error
    assert not (workspace.outside / "ran").exists()


@pytest.mark.parametrize("inside", ["lib", "lib/llmc_mcp/te"])
def test_a37_a_root_inside_own_code_is_not_served(tmp_path: Path, inside: str) -> None:
    path = put_code_into(tmp_path)
    started = subprocess.run(
        [sys.executable, "-m", "llmc_mcp.server", "--root", str(tmp_path / "app" / inside)],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert started.returncode == 2
    assert "own code" in started.stderr
    assert "hint: " in started.stderr


# --- A39: what the sandbox hides ---------------------------------------------------------------------


@pytest.fixture
def home(workspace: Workspace, tmp_path: Path) -> Iterator[Client]:
    """A server on a home folder with keys in it, and more that the operator denied."""
    for name in (".ssh/id_rsa", ".config/gh/hosts.yml", ".netrc", "private/plan.txt", "deep/er/secret.txt"):
        workspace.file(name, f"{SECRET}\n")
    workspace.file("open.txt", "open\n")
    (workspace.root / "keys").symlink_to(".ssh")
    config = tmp_path / "llmc.toml"
    denied = [str(workspace.root / "private"), str(workspace.root / "deep/er")]
    config.write_text(f"[mcp.sandbox]\ndeny_read = {denied}\n[mcp.rag]\nroots = [{str(workspace.root)!r}]\n")
    env = {"HOME": str(workspace.root), "LLMC_DATA_DIR": str(tmp_path / "data")}
    with Client("--root", str(workspace.root), "--mode", "classic", "--config", str(config), env=env) as client:
        yield client


HIDDEN = (".ssh", ".config", ".netrc", "private", "deep/er", ".aws")


def test_a39_what_is_hidden_can_be_neither_moved_nor_changed(home: Client, workspace: Workspace) -> None:
    for name in HIDDEN:
        for tool, arguments in (
            ("linux_fs_move", {"source": name, "target": "x"}),
            ("linux_fs_delete", {"path": name, "recursive": True}),
            ("linux_fs_move", {"source": "open.txt", "target": f"{name}/new" if "." not in name[1:] else name}),
            ("linux_fs_write", {"path": f"{name}/new", "content": "x", "create_parents": True}),
        ):
            reply = home.call(tool, **arguments)
            assert reply.is_error, (tool, arguments)
            assert reply.code in ("PERMISSION_DENIED", "NOT_FOUND", "NOT_A_DIRECTORY"), reply.text
    assert home.call("linux_fs_move", source="deep", target="x").code == "PERMISSION_DENIED"
    edit = {"path": "private/plan.txt", "old_text": SECRET, "new_text": "x"}
    assert home.call("linux_fs_edit", **edit).code == "PERMISSION_DENIED"
    diff = f"--- a/private/plan.txt\n+++ b/private/plan.txt\n@@ -1 +1 @@\n-{SECRET}\n+x\n"
    assert home.call("linux_fs_apply_diff", diff_text=diff).code == "PERMISSION_DENIED"
    assert (workspace.root / "private/plan.txt").read_text() == f"{SECRET}\n"
    assert not (workspace.root / "x").exists()


def test_a39_what_is_hidden_can_be_neither_read_nor_found(home: Client) -> None:
    for path in (
        ".ssh/id_rsa",
        ".config/gh/hosts.yml",
        ".netrc",
        "private/plan.txt",
        "keys/id_rsa",
        "deep/er/secret.txt",
    ):
        for tool in ("read_file", "linux_fs_read", "stat"):
            assert home.call(tool, path=path).code == "PERMISSION_DENIED", (tool, path)
    for path in (".ssh", "private", "keys", "deep/er"):
        for tool in ("list_dir", "linux_fs_list"):
            assert home.call(tool, path=path).code == "PERMISSION_DENIED", (tool, path)
        assert home.call("linux_search_content", root=path, pattern=".").code == "PERMISSION_DENIED"
    listed = home.call("list_dir", path=".", include_hidden=True, depth=4).text
    assert "open.txt" in listed
    assert "plan.txt" not in listed
    found = home.call("linux_search_content", root=".", pattern="SECRET|open", include_ignored=True)
    assert "open.txt" in found.text
    assert SECRET not in found.text
    names = home.call("linux_search_files", root=".", pattern="*.txt").text
    assert "open.txt" in names
    assert "plan.txt" not in names


def test_a39_what_is_hidden_is_not_in_the_code_index(home: Client, workspace: Workspace) -> None:
    workspace.file("private/vault.py", "def open_the_vault():\n    return combination_of_the_vault()\n")
    workspace.file("deep/er/.ragignore", "x" * 70_000)  # so large that a walk which reads it says so
    workspace.file("shop.py", "def open_the_shop():\n    return 1\n")
    assert "open_the_shop" in home.call("rag_search", query="open_the_shop", scope="both").text
    assert home.call("inspect", symbol="open_the_vault").code == "NOT_FOUND"
    for tool, arguments in (
        ("rag_where_used", {"symbol": "combination_of_the_vault"}),
        ("rag_search", {"query": "open_the_vault", "scope": "both"}),
        ("rag_plan", {"query": "open_the_vault"}),
        ("rag_stats", {}),
    ):
        text = home.call(tool, **arguments).text
        assert "vault.py" not in text, (tool, text)
        assert "deep/er" not in text, (tool, text)
    assert done(home.call("rag_stats"))["files"] == 2  # open.txt and shop.py


def test_a39_a_root_that_was_named_inside_is_served(workspace: Workspace, tmp_path: Path) -> None:
    workspace.file(".config/editor/init.lua", "lua\n")
    workspace.file(".config/gh/hosts.yml", f"{SECRET}\n")
    env = {"HOME": str(workspace.root), "LLMC_DATA_DIR": str(tmp_path / "data")}
    roots = ("--root", str(workspace.root), "--root", str(workspace.root / ".config/editor"))
    with Client(*roots, "--mode", "classic", env=env) as client:
        inside = str(workspace.root / ".config/editor/init.lua")
        assert "lua" in client.call("read_file", path=inside).text
        done(client.call("linux_fs_write", path=inside, content="changed\n"))
        assert client.call("read_file", path=".config/gh/hosts.yml").code == "PERMISSION_DENIED"
