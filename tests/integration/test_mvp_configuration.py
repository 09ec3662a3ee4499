"""A server with the configuration of the MVP document as it is printed there, whose root is `/`: every tool in it."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..config.test_config import SEEDS
from ..support.changes import done
from ..support.client import Client

DIFF = "--- a{0}\n+++ b{0}\n@@ -1,2 +1,2 @@\n def open_the_shop():\n-    return 1\n+    return 2\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("machine") / "project"
    folder.mkdir()
    (folder / "shop.py").write_text("def open_the_shop():\n    return 1\n\n\ndef close():\n    open_the_shop()\n")
    (folder / "test_shop.py").write_text("import shop\n\n\ndef test_it():\n    assert shop.open_the_shop() == 2\n")
    (folder / "long.txt").write_text("a line\n" * 5000)
    (folder / ".gitignore").write_text(".venv\n")
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / ".venv/bin/python").symlink_to(sys.executable)
    (folder / ".venv/lib").symlink_to(Path(sys.prefix) / "lib")
    shutil.copy(Path(sys.prefix) / "pyvenv.cfg", folder / ".venv/pyvenv.cfg")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return folder


@pytest.fixture(scope="module")
def server(project: Path) -> Iterator[Client]:
    config = project.parent / "llmc.toml"
    config.write_text(SEEDS["server"])
    env = {"LLMC_DATA_DIR": str(project.parent / "data")}
    with Client("--config", str(config), env=env, cwd=project) as client:
        yield client


def calls(project: Path, server: Client) -> dict[str, dict[str, Any]]:
    """Sensible arguments for each tool, in an order in which each finds what it needs."""
    at = str(project)
    handle = done(server.call("linux_fs_read", path=f"{at}/long.txt"))["handle"]
    sleeper = done(server.call("linux_proc_start", command="bash -c 'read line'", cwd=at))
    shell = done(server.call("linux_proc_start", command="bash", cwd=at))["proc_id"]
    return {
        "read_file": {"path": f"{at}/shop.py"},
        "linux_fs_read": {"path": f"{at}/shop.py"},
        "repo_read": {"root": at, "path": "shop.py"},
        "linux_fs_read_many": {"paths": [f"{at}/shop.py", "/etc/os-release"]},
        "list_dir": {"path": "/"},
        "linux_fs_list": {"path": at},
        "stat": {"path": f"{at}/shop.py"},
        "linux_fs_write": {"path": f"{at}/new.txt", "content": "new\n"},
        "linux_fs_edit": {"path": f"{at}/new.txt", "old_text": "new", "new_text": "newer"},
        "linux_fs_move": {"source": f"{at}/new.txt", "target": f"{at}/moved.txt"},
        "linux_fs_mkdirs": {"path": f"{at}/folder"},
        "linux_fs_apply_diff": {"diff_text": DIFF.format(f"{at}/shop.py")},
        "code_check": {"paths": [f"{at}/shop.py"]},
        "code_rewrite": {
            "pattern": "print($A)",
            "rewrite": "print($A)",
            "language": "python",
            "paths": [f"{at}/shop.py"],
        },
        "code_edit": {"symbol": "open_the_shop", "action": "rename", "new_name": "open_shop", "dry_run": True},
        "linux_fs_delete": {"path": f"{at}/moved.txt"},
        "linux_fs_undo": {},
        "linux_fs_changes": {},
        "linux_search_content": {"root": at, "pattern": "open_the_shop"},
        "linux_search_files": {"root": at, "pattern": "shop"},
        "linux_handle_read": {"handle": handle},
        "run_cmd": {"command": "cat shop.py", "cwd": at},
        "run_pytest": {},
        "te_run": {"command": "grep -rn open_the_shop .", "cwd": at},
        "linux_proc_list": {},
        "linux_proc_tree": {},
        "linux_proc_start": {"command": "bash -c 'echo started'", "cwd": at},
        "linux_proc_send": {"proc_id": shell, "input": "echo there", "read_timeout_ms": 1000},
        "linux_proc_read": {"proc_id": shell},
        "linux_proc_sessions": {},
        "linux_proc_kill": {"pid": sleeper["pid"]},
        "linux_proc_stop": {"proc_id": shell},
        "linux_sys_snapshot": {},
        "linux_sys_services": {},
        "rag_search": {"query": "open_the_shop"},
        "rag_index": {"path": at},
        "rag_stats": {},
        "rag_where_used": {"symbol": "open_the_shop"},
        "rag_lineage": {"symbol": "open_the_shop", "direction": "callers"},
        "inspect": {"symbol": "open_the_shop"},
        "rag_search_enriched": {"query": "open_the_shop"},
        "rag_plan": {"query": "change open_the_shop"},
        "rag_bootload": {"session_id": "s", "task_id": "open-the-shop"},
        "execute_code": {"code": f"read_file(path={f'{at}/shop.py'!r})"},
        "linux_mcp_usage_stats": {},
        "linux_mcp_recent_calls": {},
        "get_metrics": {},
        "health": {},
        "00_INIT": {},
        "linux_mcp_run_onboarding": {"flow_name": "explain_repo", "path": at},
    }


def test_every_tool_answers_with_the_configuration_of_the_mvp_document(project: Path, server: Client) -> None:
    listed = {tool["name"] for tool in server.request("tools/list")["result"]["tools"]}
    arguments = calls(project, server)
    assert set(arguments) == listed
    replies = {name: server.call(name, **given) for name, given in arguments.items()}
    unavailable = {"linux_sys_services"}  # without systemd
    refused = {name: reply.text for name, reply in replies.items() if reply.is_error and name not in unavailable}
    assert refused == {}
    assert done(replies["run_cmd"])["data"]["stdout"].startswith("def open_the_shop():\n    return 2")
    assert done(replies["run_pytest"])["passed"] == 1
    assert "shop.py" in done(replies["te_run"])["stdout"]
    assert "there" in replies["linux_proc_send"].text + replies["linux_proc_read"].text
    assert "shop.py#L1" in replies["rag_search"].text
    assert done(replies["rag_stats"])["files"] == 4  # of the project: what was deleted is there again
    assert done(replies["execute_code"])["result"]


def test_no_tool_reaches_the_servers_own_places_below_that_root(project: Path, server: Client) -> None:
    base = project.parent
    assert done(server.call("run_cmd", command="ls", cwd=str(project)))["data"]["exit_code"] == 0
    assert server.call("list_dir", path=str(base / "data")).is_error
    assert server.call("linux_fs_delete", path=str(base), recursive=True).code == "PERMISSION_DENIED"
    for path in (base / "llmc.toml", "/usr/bin/llmc-new", "/etc/ld.so.preload", Path(subprocess.__file__)):
        assert server.call("linux_fs_write", path=str(path), content="x").code == "PERMISSION_DENIED", path
    assert server.call("linux_fs_move", source="/etc/ld.so.conf.d", target="/etc/x").code == "PERMISSION_DENIED"
    script = f"ls -A {base}/data; echo x >> {base}/llmc.toml; mv {base}/data {base}/away; rm -rf {base}/data; true"
    assert done(server.call("run_cmd", command=["bash", "-c", script]))["data"]["stdout"] == ""
    assert (base / "llmc.toml").read_text() == SEEDS["server"]
    assert (base / "data/llmc.db").exists() or list((base / "data").iterdir())
    assert not (base / "away").exists()
