"""Attacks by commands where the root is `/`: own code (B24), data and secrets (B30), sockets (B23), the machine."""

import os
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..support.workspace import SECRET, require
from .arena import USERS, Arena, reached
from .test_b_own import SWAPS

MACHINE: dict[str, Any] = {"roots": ["/"]}


@pytest.fixture(params=USERS)
def machine(request: pytest.FixtureRequest) -> Iterator[Arena]:
    """A server on `/` with its code, its data and the user's keys below it."""
    with Arena("workspace", request.param, code="app/lib", **MACHINE) as arena:
        yield arena


def test_commands_work_below_the_root_of_everything(machine: Arena) -> None:
    here = str(machine.root)
    assert machine.run(["bash", "-c", "echo mine > mine && mv mine yours && cat yours"], cwd=here)["stdout"] == "mine\n"
    assert (machine.root / "yours").exists()
    assert machine.run(["cat", str(machine.outside / "secret.txt")])["stdout"] == SECRET
    assert machine.run(["ls", "/"])["exit_code"] == 0
    assert machine.run(["cat", "/etc/os-release"])["stdout"] == Path("/etc/os-release").read_text()
    assert machine.run(["bash", "-c", "pwd"], cwd="/etc")["stdout"] == "/etc\n"


def test_b24_own_code_below_the_root_of_everything_stays_as_it_is(machine: Arena) -> None:
    lib = machine.root / "app/lib"
    assert machine.python(SWAPS, str(lib)) == []
    assert (lib / "late.py").read_text() == "# of the server\n"
    assert machine.run(["cat", str(lib / "late.py")])["stdout"] == "# of the server\n"


def test_b24_own_code_is_not_changed_through_the_cache_that_it_is_linked_to(machine: Arena) -> None:
    """uv installs packages as hard links into its cache."""
    cached = machine.home / ".cache/uv/archive/llmc_mcp/__init__.py"
    cached.parent.mkdir(parents=True)
    os.link(machine.root / "app/lib/llmc_mcp/__init__.py", cached)
    machine.hand_over()
    machine.restart()
    script = """
        path = sys.argv[1]
        attempt("write", lambda: open(path, "a"))
        attempt("move", lambda: os.rename(os.path.dirname(path), path + "2"))
    """
    assert machine.python(script, str(cached)) == []


OWN_PLACES = """
import shutil
home = sys.argv[1]
attempt("list data", lambda: os.listdir(home + "/data")[0])
attempt("open data", lambda: open(home + "/data/sandbox.json"))
for name in ("/data", "/.ssh", "/.aws", ""):
    attempt("rename " + name, lambda: os.rename(home + name, home + name + "-away"))
    attempt("exchange " + name, lambda: (os.mkdir(home + name + "-new"), os.rename(home + name + "-new", home + name)))
    attempt("remove " + name, lambda: shutil.rmtree(home + name))
    attempt("link " + name, lambda: os.symlink("/tmp", home + name))
attempt("read key", lambda: open(home + "/.ssh/id_rsa").read())
attempt("read credentials", lambda: open(home + "/.aws/credentials").read())
"""


def test_b30_data_and_keys_below_the_root_of_everything_are_neither_seen_nor_moved(machine: Arena) -> None:
    assert machine.run(["true"])["exit_code"] == 0
    before = sorted(path.name for path in (machine.home / "data").iterdir())
    assert machine.python(OWN_PLACES, str(machine.home)) == []
    assert (machine.home / ".ssh/id_rsa").read_text() == SECRET
    assert (machine.home / ".aws/credentials").read_text() == SECRET
    assert sorted(path.name for path in (machine.home / "data").iterdir()) == before


SYSTEM = """
token = sys.argv[1]
for folder in ("", "/usr", "/usr/bin", "/usr/local/bin", "/usr/lib", "/etc", "/etc/cron.d", "/sys", "/proc/sys"):
    attempt("create in " + folder, lambda: os.close(os.open(folder + "/" + token, os.O_CREAT | os.O_EXCL)))
for path in ("/usr/bin/env", "/etc/ld.so.cache", "/etc/passwd", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger"):
    attempt("open " + path, lambda: open(path, "r+b"))
for path in ("/usr", "/etc", "/tmp", "/home"):
    attempt("rename " + path, lambda: os.rename(path, path + token))
attempt("shadow", lambda: open("/etc/shadow").read(1)[0])
attempt("disk", lambda: os.listdir("/dev/disk"))
attempt("mount", lambda: call(165, b"none", b"/mnt", b"tmpfs", 0, 0))
"""


def test_b12_the_system_can_not_be_changed_below_the_root_of_everything(machine: Arena) -> None:
    token = f"llmc-test-{machine.pid}"
    assert machine.python(SYSTEM, token) == []
    assert not list(Path("/").glob(f"*{token}"))


def test_the_operator_may_open_a_folder_of_the_system(tmp_path: Path) -> None:
    """What is read-only of the root `/` follows the operator's word; nothing below /etc is touched by this test."""
    with Arena("workspace", "root", sandbox={"extra_write": ["/etc/opt"]}, **MACHINE) as arena:
        require(os.path.isdir("/etc/opt"), "a folder /etc/opt")
        assert arena.run(["bash", "-c", "test -w /etc/opt && ! test -w /etc"])["exit_code"] == 0


def test_b23_no_socket_of_the_machine_is_reached(machine: Arena) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        path = machine.outside / "agent.sock"
        listener.bind(str(path))
        path.chmod(0o777)
        listener.listen()
        script = f"attempt('connect', lambda: socket.socket(socket.AF_UNIX).connect({str(path)!r}))"
        assert machine.python(script) == []
        assert not reached(listener)
    assert machine.python("attempt('pair', lambda: socket.socketpair())") == ["pair"]
    assert machine.run(["ls", "-A", "/run"])["stdout"].split() == ["home", "llmc", "tmp"]


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A folder with a bind mount and a /proc in it."""
    require(os.getuid() == 0, "a test run as root")
    for name in ("there", "shown", "chroot/proc"):
        (tmp_path / name).mkdir(parents=True)
    subprocess.run(["mount", "--bind", str(tmp_path / "there"), str(tmp_path / "shown")], check=True)
    subprocess.run(["mount", "-t", "proc", "proc", str(tmp_path / "chroot/proc")], check=True)
    yield tmp_path
    for name in ("shown", "chroot/proc"):
        subprocess.run(["umount", str(tmp_path / name)], check=True)


def test_b24_b30_another_mount_below_the_root_of_everything_opens_nothing(mounted: Path) -> None:
    trusted = mounted / "there/deep/llmc.toml"
    trusted.parent.mkdir()
    trusted.write_text("")
    (mounted / "there/vault").mkdir()
    (mounted / "there/vault/key").write_text(SECRET)
    hidden = {"deny_read": [str(mounted / "there/vault")]}
    with Arena("workspace", "root", sandbox=hidden, trusted_files=[str(trusted)], **MACHINE) as arena:
        script = """
            at = sys.argv[1]
            for name in ("there", "shown"):
                attempt("write " + name, lambda: open(f"{at}/{name}/deep/llmc.toml", "a"))
                attempt("move " + name, lambda: os.rename(f"{at}/{name}/deep", f"{at}/{name}/away"))
                attempt("read " + name, lambda: open(f"{at}/{name}/vault/key"))
            attempt("environment", lambda: open(f"{at}/chroot/proc/self/environ"))
            attempt("kernel", lambda: open(f"{at}/chroot/proc/sys/kernel/core_pattern"))
        """
        assert arena.python(script, str(mounted)) == []


# --- configuration -----------------------------------------------------------------------------------


@pytest.mark.parametrize("who", USERS)
@pytest.mark.parametrize("roots", [["/"], []])
def test_e18_a_command_can_not_change_a_configuration_that_is_trusted(who: str, roots: list[str]) -> None:
    with Arena("workspace", who) as arena:
        trusted = arena.root / "conf/llmc.toml"
        trusted.parent.mkdir()
        trusted.write_text("# of the operator\n")
        arena.hand_over()
        arena.restart(trusted_files=[str(trusted)], roots=roots or [str(arena.root)])
        script = """
            path = sys.argv[1]
            attempt("write", lambda: open(path, "a"))
            attempt("replace", lambda: (open(path + "2", "w").close(), os.rename(path + "2", path)))
            attempt("remove", lambda: os.unlink(path))
            attempt("move its folder", lambda: os.rename(os.path.dirname(path), os.path.dirname(path) + "2"))
        """
        assert arena.python(script, str(trusted)) == []
        assert trusted.read_text() == "# of the operator\n"


@pytest.mark.parametrize("who", USERS)
@pytest.mark.parametrize("setup", [{}, MACHINE])
def test_e18_a_command_can_not_be_first_to_write_the_users_configuration(who: str, setup: dict[str, Any]) -> None:
    """What appears there, the next start trusts."""
    with Arena("workspace", who, home_is_root=True, **setup) as arena:
        script = """
            import pathlib
            folder = pathlib.Path(sys.argv[1], ".config/llmc")
            attempt("move", lambda: os.rename(folder.parent, folder.parent.with_name("away")))
            folder.mkdir(parents=True, exist_ok=True)  # in an empty folder of the command's own
            (folder / "llmc.toml").write_text("")
        """
        assert arena.python(script, str(arena.home)) == []
        assert not (arena.home / ".config/llmc/llmc.toml").exists()


def test_e18_landlock_is_refused_where_a_trusted_configuration_would_stay_writable() -> None:
    with Arena("landlock", "root") as arena:
        trusted = arena.root / "llmc.toml"
        trusted.write_text("")
        arena.restart(trusted_files=[str(trusted)])
        done = arena.run(["true"])
        assert done["error"] == "FEATURE_UNAVAILABLE"
        assert re.search(r"configuration unchanged inside a root: .*llmc\.toml", done["message"])
        assert "Install the package bubblewrap" in done["message"]
