"""Attacks by commands on the server's own code (B24), on what is hidden from them (B30), through sockets (B32)."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..support.client import Client
from ..support.workspace import SECRET, Workspace
from .arena import USERS, Arena, put_code_into, reached

SWAPS = """
import shutil
lib = sys.argv[1]
above = os.path.dirname(lib)
def write(path, text="evil"):
    with open(path, "w") as file:
        file.write(text)
attempt("write", lambda: write(lib + "/late.py"))
attempt("create", lambda: write(lib + "/json.py"))
attempt("append", lambda: open(lib + "/llmc_mcp/server.py", "a"))
attempt("unlink", lambda: os.unlink(lib + "/late.py"))
attempt("mkdir", lambda: os.mkdir(lib + "/llmc_mcp/new"))
attempt("chmod", lambda: os.chmod(lib + "/late.py", 0o777))
attempt("truncate", lambda: os.truncate(lib + "/late.py", 0))
attempt("hard link out of it", lambda: os.link(lib + "/late.py", above + "/late.py"))
attempt("rename out of it", lambda: os.rename(lib + "/late.py", above + "/late.py"))
attempt("rename it", lambda: os.rename(lib, lib + "2"))
attempt("rename what is above", lambda: os.rename(above, above + "2"))
attempt("exchange what is above", lambda: (os.mkdir(above + "3"), os.rename(above + "3", above)))
attempt("remove what is above", lambda: shutil.rmtree(above))
attempt("unmount", lambda: call(166, lib.encode(), 2))
attempt("another namespace", lambda: call(272, 0x10020000))
"""


@pytest.mark.parametrize("who", USERS)
def test_b24_a_command_can_not_change_the_servers_own_code(who: str) -> None:
    with Arena("workspace", who, code="app/lib") as arena:
        lib = arena.root / "app/lib"
        before = sorted(path.relative_to(lib) for path in lib.rglob("*") if "__pycache__" not in path.parts)
        assert arena.python(SWAPS, str(lib)) == []
        assert (lib / "late.py").read_text() == "# of the server\n"
        assert sorted(path.relative_to(lib) for path in lib.rglob("*") if "__pycache__" not in path.parts) == before
        assert arena.run(["bash", "-c", "echo mine > app/mine && mv app/mine app/yours && cat app/yours"])["stdout"]
        assert arena.run(["cat", "app/lib/late.py"])["stdout"] == "# of the server\n"


@pytest.mark.parametrize("who", USERS)
def test_b24_landlock_is_refused_where_it_would_leave_own_code_writable(who: str) -> None:
    with Arena("landlock", who, code="app/lib") as arena:
        done = arena.run(["true"])
        assert done["error"] == "FEATURE_UNAVAILABLE"
        assert "own code" in done["message"]
        assert "install the server elsewhere" in done["message"]


def test_b24_a_link_put_in_the_place_of_a_folder_above_is_not_followed() -> None:
    """What an unconfined program does to the folders between two commands must not lead bubblewrap outside."""
    with Arena("workspace", "root", code="app/lib") as arena:
        assert arena.run(["true"])["exit_code"] == 0
        (arena.root / "app").rename(arena.root / "old")
        (arena.root / "app").symlink_to(f"/oldroot{arena.outside}/made")
        done = arena.run(["true"])
        assert done.get("exit_code") in (0, None)
        assert arena.outside_listing() == ["secret.txt"]


def doctor(root: Path, **env: str) -> dict[str, dict[str, Any]]:
    """What `llmc doctor` finds about a root, by topic."""
    told = subprocess.run(
        [
            sys.executable,
            "-P",
            "-c",
            "from llmc_mcp.cli.main import main; main()",
            "doctor",
            "--json",
            "--root",
            str(root),
        ],
        env={**os.environ, **env},
        capture_output=True,
        check=False,
    )
    return {row["topic"]: row for row in json.loads(told.stdout)}


def test_b24_doctor_and_the_start_say_that_own_code_lies_in_a_root(workspace: Workspace, tmp_path: Path) -> None:
    path = put_code_into(workspace.root)
    env = {"PYTHONPATH": path, "LLMC_DATA_DIR": str(tmp_path / "data")}
    with Client("--root", str(workspace.root), env=env) as client:
        client.call("health")
        assert f"no tool and no command changes {path}" in client.log
    assert doctor(workspace.root, **env)["own code"]["details"] == [path]
    assert "own code" not in doctor(workspace.outside, **env)


# --- B30: what is hidden -----------------------------------------------------------------------------


@pytest.fixture
def home() -> Iterator[Arena]:
    """A root that is the home of the user, with keys in it, and more that the operator denied."""
    with Arena("workspace", "root", home_is_root=True, sandbox={"deny_read": ["~/vault", "~/token"]}) as arena:
        yield arena


def look(arena: Arena) -> str:
    """What a command finds of everything below the root, links followed or not."""
    done = arena.run(["bash", "-c", "grep -rs . .; grep -Rs . .; true"])
    return done.get("stdout", "")


def test_b30_what_is_hidden_stays_hidden_when_it_appears_or_is_replaced(home: Arena) -> None:
    assert SECRET not in look(home)
    (home.root / ".kube").mkdir()
    (home.root / ".kube/config").write_text(SECRET)  # made after the first command
    assert SECRET not in look(home)
    shutil.rmtree(home.root / ".ssh")
    (home.root / ".ssh").mkdir()
    (home.root / ".ssh/id_rsa").write_text(SECRET)  # another folder in its place
    assert SECRET not in look(home)
    (home.root / ".netrc").write_text(SECRET)
    assert SECRET not in look(home)


@pytest.mark.parametrize("before", ["", "/oldroot"])  # where bubblewrap keeps the outside while it mounts
@pytest.mark.parametrize("target", ["", "/none"])
def test_b30_a_link_in_place_of_something_hidden_makes_nothing_outside(home: Arena, target: str, before: str) -> None:
    (home.root / "vault").mkdir()
    (home.root / "token").write_text(SECRET)
    assert home.run(["true"])["exit_code"] == 0
    shutil.rmtree(home.root / ".ssh")
    (home.root / "vault").rmdir()
    (home.root / "token").unlink()
    for name in ("vault", "token", ".ssh", ".kube"):
        (home.root / name).symlink_to(f"{before}{home.outside}{target}")
    assert home.run(["true"])["exit_code"] == 0
    assert home.outside_listing() == ["secret.txt"]


def test_b30_no_command_runs_where_a_link_that_it_could_replace_leads_to_what_is_hidden(home: Arena) -> None:
    (home.root / "dotfiles").mkdir()
    (home.root / ".ssh").rename(home.root / "dotfiles/ssh")
    (home.root / ".ssh").symlink_to("dotfiles/ssh")
    done = home.run(["cat", "dotfiles/ssh/id_rsa"])
    assert done["error"] == "FEATURE_UNAVAILABLE"
    assert ".ssh" in done["message"]


def test_b30_what_is_hidden_can_not_be_moved_by_a_command(home: Arena) -> None:
    tried = "for what in .ssh .aws; do mv $what x; rm -r $what; ln -sfn /tmp $what; mv -T app $what; done; true"
    assert home.run(["bash", "-c", tried])["exit_code"] == 0
    assert (home.root / ".ssh/id_rsa").read_text() == SECRET
    assert (home.root / ".aws/credentials").read_text() == SECRET
    assert SECRET not in look(home)


# --- B32: sockets in the root ------------------------------------------------------------------------

CONNECT = """
import socket, sys
with socket.socket(socket.AF_UNIX) as end:
    end.connect(sys.argv[1])
"""


def test_b32_doctor_names_the_sockets_that_commands_can_reach(workspace: Workspace) -> None:
    assert "sockets" not in doctor(workspace.root)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(workspace.root / "agent.sock"))
        listener.listen()
        assert doctor(workspace.root)["sockets"]["details"] == [str(workspace.root / "agent.sock")]


@pytest.mark.parametrize("level", ["workspace", "landlock"])
def test_b32_a_socket_inside_a_root_is_reached_only_where_it_is_said(level: str) -> None:
    with Arena(level, "root") as arena, socket.socket(socket.AF_UNIX) as listener:
        path = arena.root / "agent.sock"
        listener.bind(str(path))
        listener.listen()
        done = arena.run(
            ["python3", "-c", f"import socket, sys{CONNECT}".replace("succeeded.append", "print"), str(path)]
        )
        assert reached(listener) == (done["exit_code"] == 0) == (level == "workspace"), done


def test_b24_a_command_can_not_be_first_to_make_the_folder_of_the_users_packages() -> None:
    """Python imports `usercustomize` from there at every start, should it exist."""
    with Arena("workspace", "user", home_is_root=True) as arena:
        script = """
            import pathlib
            folder = pathlib.Path(sys.argv[1], ".local/lib", "python%d.%d" % sys.version_info[:2], "site-packages")
            attempt("make", lambda: folder.mkdir(parents=True))
            attempt("write", lambda: (folder / "usercustomize.py").write_text("# of another"))
            attempt("move", lambda: os.rename(pathlib.Path(sys.argv[1], ".local"), pathlib.Path(sys.argv[1], "away")))
        """
        assert arena.python(script, str(arena.root)) == []
