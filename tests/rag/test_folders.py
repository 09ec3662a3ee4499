"""Which folders are indexed where a root is the whole machine or a home directory."""

import contextlib
import os
import pty
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from ..support import forked
from ..support.changes import done
from ..support.client import Client
from ..support.processes import processes_with
from ..support.signals import obey_interrupts
from ..support.talk import eventually


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A home with a repository, a plain folder and something beside them, all small."""
    for name, code in {
        "home/repo/src/shop.py": "def open_the_shop():\n    return 1\n",
        "home/repo/AGENTS.md": "# Rules\n\nRun `make check` before you commit.\n",
        "home/plain/bakery.py": "def bake_the_bread():\n    return 2\n",
        "home/beside.py": "def stand_beside():\n    return 3\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    (tmp_path / "home/repo/.git").mkdir()
    return tmp_path


def serve(base: Path, root: str, cwd: Path, *arguments: str) -> Client:
    env = {"HOME": str(base / "home"), "LLMC_DATA_DIR": str(base / "data")}
    return Client("--root", root, "--mode", "classic", *arguments, env=env, cwd=cwd)


def files(client: Client) -> int:
    return done(client.call("rag_stats"))["files"]


@pytest.mark.parametrize("root", ["/", "~", "~/"])
def test_of_a_broad_root_the_repository_around_the_working_directory_is_indexed(base: Path, root: str) -> None:
    with serve(base, root, base / "home/repo/src") as client:
        assert f"{base}/home/repo/src/shop.py#L1" in client.call("rag_search", query="open_the_shop").text
        assert files(client) == 2
        assert "make check" in client.call("rag_bootload", session_id="s", task_id="open-the-shop").text
        missed = client.call("rag_search", query="zzyzx_quux").text
        assert f"only {base}/home/repo is searched: rag_index(path=FOLDER)" in missed


def test_without_a_repository_the_working_directory_is_indexed(base: Path) -> None:
    with serve(base, "/", base / "home/plain") as client:
        assert "bakery.py" in client.call("rag_search", query="bake_the_bread").text
        assert files(client) == 1


@pytest.mark.parametrize("cwd", ["/", "home"])
def test_a_whole_machine_or_home_is_not_indexed_because_a_server_was_started_there(base: Path, cwd: str) -> None:
    with serve(base, "/", base / cwd) as client:
        for tool, arguments in (
            ("rag_search", {"query": "open_the_shop"}),
            ("rag_where_used", {"symbol": "open_the_shop"}),
            ("rag_plan", {"query": "open_the_shop"}),
            ("rag_index", {}),
        ):
            reply = client.call(tool, **arguments)
            assert reply.code == "FEATURE_UNAVAILABLE", (tool, reply.text)
            assert "rag_index(path=FOLDER)" in reply.meta["hint"]
        assert "no folder is indexed" in client.call("rag_stats").text
        assert "no folder is indexed" in client.call("health").text
        assert not client.call("rag_bootload", session_id="s", task_id="open-the-shop").is_error
        for folder in ("/", str(base / "home")):
            assert client.call("rag_index", path=folder).code == "INVALID_ARGUMENT"


def test_a_folder_that_a_client_names_is_indexed_alone(base: Path) -> None:
    with serve(base, "/", Path("/")) as client:
        report = done(client.call("rag_index", path=str(base / "home/plain")))
        assert (report["state"], report["files"]) == ("up to date", 1)
        assert "bakery.py" in client.call("rag_search", query="bake_the_bread").text
        assert done(client.call("rag_index", path=str(base / "home/repo/src")))["files"] == 1
        assert files(client) == 2
        assert done(client.call("rag_index", path=str(base / "home/repo")))["files"] == 2  # with what is inside
        assert files(client) == 3
        reply = client.call("inspect", path=str(base / "home/beside.py"))
        assert reply.code == "NOT_FOUND"
        assert "rag_index(path=FOLDER)" in reply.meta["hint"]


def test_the_operator_names_the_folders_to_index(base: Path) -> None:
    named = f'rag.roots=["{base}/home/plain", "{base}/home/repo/src"]'
    with serve(base, "/", Path("/"), "--set", named) as client:
        assert "bakery.py" in client.call("rag_search", query="bake_the_bread").text
        assert "shop.py" in client.call("rag_search", query="open_the_shop").text
        assert files(client) == 2


def test_a_folder_outside_the_roots_is_not_indexed_whoever_names_it(base: Path) -> None:
    with serve(base, str(base / "home/repo"), base, "--set", f"rag.roots={base}/home/plain") as client:
        assert client.call("rag_search", query="bake_the_bread").code == "INVALID_PATH"


def test_a_narrow_root_inside_a_broad_one_is_indexed_as_a_whole(base: Path) -> None:
    with serve(base, str(base / "home"), Path("/"), "--root", str(base / "home/plain")) as client:
        assert "bakery.py" in client.call("rag_search", query="bake_the_bread").text
        assert files(client) == 1


def test_an_ordinary_root_is_indexed_as_a_whole_wherever_the_server_was_started(base: Path) -> None:
    with serve(base, str(base / "home/repo"), base / "home/repo/src") as client:
        assert files(client) == 0
        assert done(client.call("rag_index", path="src"))["files"] == 2
        assert client.call("rag_search", query="zzyzx_quux").meta["freshness"] == "fresh"


# --- a person ----------------------------------------------------------------------------------------


def llmc(base: Path, cwd: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "HOME": str(base / "home"), "LLMC_DATA_DIR": str(base / "data")}
    return forked.llmc(*words, cwd=cwd, env=env)


@pytest.mark.parametrize("words", [("search", "open_the_shop"), ("index",), ("map",), ("where-used", "open_the_shop")])
@pytest.mark.parametrize("cwd", ["/", "home"])
def test_a_person_in_a_home_or_the_root_folder_is_told_to_choose(base: Path, words: tuple[str, ...], cwd: str) -> None:
    done = llmc(base, base / cwd, *words)
    assert done.returncode not in (0, 1)
    assert "not a repository, and too large to index" in done.stderr
    assert not (base / "data/index").exists()


def test_a_person_may_name_a_home_or_keep_it_as_a_repository(base: Path) -> None:
    assert llmc(base, base / "home", "index", ".").returncode == 0
    assert "beside.py" in llmc(base, base / "home", "search", "stand_beside").stdout
    (base / "home/.git").mkdir()
    assert llmc(base, base / "home", "index").returncode == 0
    assert "bakery.py" in llmc(base, base / "home/plain", "search", "bake_the_bread").stdout


@pytest.mark.parametrize(("answer", "code"), [("n", 2), ("", 2), ("y", 0)])
def test_a_person_on_a_terminal_is_asked_whether_a_whole_home_is_to_be_indexed(
    base: Path, answer: str, code: int
) -> None:
    env = {**os.environ, "HOME": str(base / "home"), "LLMC_DATA_DIR": str(base / "data")}
    command = [sys.executable, "-c", "from llmc_mcp.cli.main import main; main()", "search", "stand_beside"]
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, cwd=base / "home", env=env, stdin=theirs, stdout=theirs, stderr=theirs) as asked:
        os.close(theirs)
        shown = read_until(ours, b"[y/N]")
        os.write(ours, answer.encode() + b"\n")
        shown += read_until(ours, None)
        assert asked.wait() == code
    os.close(ours)
    assert b"index everything below it?" in shown
    assert (b"beside.py" in shown) == (answer == "y")
    assert (base / "data/index").exists() == (answer == "y")


def read_until(terminal: int, words: bytes | None) -> bytes:
    """What a program prints until these words, or to its end."""
    shown = b""
    while words is None or words not in shown:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # how Linux says that nobody has the terminal open any more
            break
        if not piece:
            break
        shown += piece
    return shown


@pytest.mark.parametrize("words", [("search", "open_the_shop"), ("index",)])
def test_a_person_who_presses_ctrl_c_is_back_at_the_shell_and_the_build_has_stopped(
    base: Path, words: tuple[str, ...]
) -> None:
    repo = base / "home/repo"
    for number in range(3_000):
        (repo / f"many_{number}.py").write_text(f"def number_{number}():\n    return {number}\n")
    env = {**os.environ, "HOME": str(base / "home"), "LLMC_DATA_DIR": str(base / "data")}
    env["LLMC_MCP_RAG_BUILD_WAIT_SEC"] = "60"  # a search waits until it is interrupted, however late that is
    command = [sys.executable, "-c", "from llmc_mcp.cli.main import main; main()", *words]
    with subprocess.Popen(
        command,
        cwd=repo,
        env=env,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=obey_interrupts,  # noqa: PLW1509 - no other thread forks here
    ) as running:
        assert eventually(lambda: any((base / "data").glob("index/*/current")))
        running.send_signal(signal.SIGINT)
        _, said = running.communicate()
        kept = "stopped: what is indexed so far is kept; the next search goes on with it\n"
        assert (running.returncode, said) == (130, kept)
    assert eventually(lambda: keepers_of(repo) == [])
    (database,) = (base / "data").glob("index/*/current/index.db")
    with contextlib.closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT value FROM meta WHERE key='complete'").fetchone() is None


def keepers_of(folder: Path) -> list[int]:
    """The processes that keep or build the index of a folder."""
    found: list[int] = []
    for pid in processes_with("rag.build.keeper import"):
        with contextlib.suppress(OSError):
            if os.path.samefile(f"/proc/{pid}/cwd", folder):
                found.append(pid)
    return found
