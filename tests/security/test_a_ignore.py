"""Ignore files that are made to fill memory (A40), and what bounds every child of the server's own (C25)."""

import re
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..support.client import Client
from ..support.processes import processes_below
from ..support.workspace import Workspace

TREE_BYTES = 3 << 30  # of each process of the server: the bombs are harmless whatever the server does
BOMB_BYTES = 8 << 20  # as rules of a .gitignore they take more than 1 GiB


def rules(size: int) -> str:
    """Rules that are all different and none of which is plain text."""
    count = size // 20
    return "".join(f"a{number:06}*b?[c-d]*z\n" for number in range(count))


@pytest.fixture
def bounded(workspace: Workspace, tmp_path: Path) -> Iterator[Client]:
    env = {"LLMC_DATA_DIR": str(tmp_path / "data")}
    patient = ("--set", "tools.read_timeout=30")  # a loaded machine takes a while to fill memory
    with Client("--root", str(workspace.root), "--mode", "classic", *patient, env=env) as client:
        resource.prlimit(client.process.pid, resource.RLIMIT_DATA, (TREE_BYTES, TREE_BYTES))
        yield client


def notes(server: Client) -> str:
    return server.call("rag_stats").text


def found(server: Client, word: str) -> str:
    return server.call("rag_search", query=word).text


def test_a40_large_ignore_files_keep_their_folders_out_of_the_index(workspace: Workspace, bounded: Client) -> None:
    workspace.file("clean/good.py", "def wanted_here():\n    return 1\n")
    workspace.file("clean/.ragignore", "skipped.py\n")
    workspace.file("clean/skipped.py", "def left_out_by_rule():\n    return 1\n")
    bomb = rules(900 << 10)
    for number in range(8):
        workspace.file(f"bomb{number}/.ragignore", bomb)
        workspace.file(f"bomb{number}/code.py", f"def left_out_{number}():\n    return 1\n")
    workspace.file("line/.ragignore", "x" * 5_000)
    workspace.file("line/code.py", "def left_out_by_line():\n    return 1\n")
    assert "wanted_here" in found(bounded, "wanted_here")
    assert "ignore file too large" in notes(bounded)
    assert ".ragignore" in notes(bounded)
    for name in ("left_out_3", "left_out_by_line", "left_out_by_rule"):
        assert f"def {name}" not in found(bounded, name)


def test_a40_a_root_whose_own_ignore_file_is_too_large_is_not_indexed(workspace: Workspace, bounded: Client) -> None:
    workspace.file(".ragignore", rules(28 << 20))
    workspace.file("code.py", "def left_out():\n    return 1\n")
    assert "def left_out" not in found(bounded, "left_out")
    assert "ignore file too large: .ragignore" in notes(bounded)


def test_c25_a_search_that_fills_memory_ends_with_a_clear_error(workspace: Workspace, bounded: Client) -> None:
    workspace.file(".git/HEAD", "")
    workspace.file(".gitignore", rules(BOMB_BYTES))
    workspace.file("code.txt", "needle\n")
    sooner = TREE_BYTES // 6
    resource.prlimit(bounded.process.pid, resource.RLIMIT_DATA, (sooner, sooner))
    reply = bounded.call("linux_search_content", root=".", pattern="needle")
    assert reply.code == "OUTPUT_TOO_LARGE"
    assert "ignore" in reply.meta["hint"]
    assert "needle" in bounded.call("linux_search_content", root="code.txt", pattern="needle").text
    assert bounded.call("rag_search", query="needle").code == "FEATURE_UNAVAILABLE"
    assert "too large" in notes(bounded)


def test_c25_the_process_that_keeps_an_index_is_bounded(workspace: Workspace, tmp_path: Path) -> None:
    workspace.file("code.py", "def wanted_here():\n    return 1\n")
    with Client("--root", str(workspace.root), "--mode", "classic", env={"LLMC_DATA_DIR": str(tmp_path)}) as server:
        assert "wanted_here" in found(server, "wanted_here")
        keepers = [pid for pid in processes_below(server.process.pid) if b"rag.build" in command(pid)]
        assert keepers
        for pid in keepers:
            most = re.search(r"Max data size\s+(\d+)", Path(f"/proc/{pid}/limits").read_text())
            assert most, "not unlimited"
            assert int(most[1]) <= 4 << 30
            assert int(Path(f"/proc/{pid}/oom_score_adj").read_text()) > 0


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
